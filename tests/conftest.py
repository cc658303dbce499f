"""What all tests share: signals, and which of them run over ssh.

With RV_FAULTS_OVER=openssh or paramiko the clients of tests/slurm and tests/faults are on a laptop.
What is left out then is listed here, with the reason, and named at the end of each run.
"""

import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

ROOT: Final = Path(__file__).parents[1]
OVER: Final = os.environ.get("RV_FAULTS_OVER", "")
LEFT_OUT: Final[Mapping[str, str]] = {
    "tests/faults/test_guards.py": "shows that the accounting finds faults; it is the same over ssh",
    "tests/faults/test_naive.py": "the launcher is no rv",
    "tests/faults/test_load.py": "counts what clients on one machine share",
    "tests/faults/test_two_users.py": "is about two users of one login node",
    "tests/slurm/test_all_clusters.py": "names sandboxes; tests/ssh/test_all_clusters.py names logins",
    "tests/slurm/test_setup.py": "is about a login node; tests/ssh has test_init.py and test_doctor.py",
    "tests/slurm/test_executor.py": "calls rv in this process; tests/ssh/test_python_api.py is over ssh",
    "tests/slurm/test_feasible.py": "compares plans with Slurm; the snapshot it plans with is a file",
    "tests/slurm/test_directive_quoting.py": "asks sbatch, and no rv",
    "tests/slurm/test_sandbox_jobs.py": "is about the sandbox, which is on this machine",
    "tests/slurm/test_sandbox_lifecycle.py": "is about the sandbox, which is on this machine",
}
"""Files, or tests of them (FILE::NAME), that are not run over ssh, and why."""

# How long an example takes says how busy the machine is, and nothing of rv.
settings.register_profile("rv", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rv")

# A shell starts what it runs in the background deaf to Ctrl-C, nohup to a hang-up, and so would be
# the clients of the tests.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def checkout_stays_clean() -> Iterator[None]:
    """What tests write goes elsewhere, but for caches: `.pytest_cache`, `__pycache__` and the like."""
    before = set(ROOT.iterdir())
    yield
    left = [path for path in ROOT.iterdir() if path not in before and path.name[0] not in "._"]
    assert left == [], "a test left these in the checkout"


def _reason(item: pytest.Item) -> str:
    """Return why a test is left out, "" where it is not."""
    file = item.path.relative_to(ROOT).as_posix()
    name = item.originalname if isinstance(item, pytest.Function) else item.name
    return LEFT_OUT.get(file, "") or LEFT_OUT.get(f"{file}::{name}", "")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave them out, over ssh alone."""
    left_out = [item for item in items if OVER and _reason(item)]
    if left_out:
        items[:] = [item for item in items if not _reason(item)]
        config.hook.pytest_deselected(items=left_out)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was left out, and why."""
    if not OVER:
        return
    terminalreporter.section(f"left out over {OVER}")
    for name, reason in LEFT_OUT.items():
        terminalreporter.write_line(f"{name}: {reason}")
