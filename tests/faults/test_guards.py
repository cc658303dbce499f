"""The suite can fail: with each guard taken out of rv, a scenario that is green turns red."""

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faults.accounting import Row
from tests.faults.scenario_runner import Task, names_asked_for, play_all, start_runners
from tests.faults.scenarios.catalogue import ALL
from tests.faults.world import ROOT, World

_LINK = re.compile(r'^\[ "\$rv_whole" .*ln -T .*\n', re.MULTILINE)
_COMPARED = re.compile(r'^if \[ "\$rv_owner" != "\$RV_ME" \]; then\n(.*\n)*?fi\n', re.MULTILINE)


def linked(text: str, link: str) -> str:
    """The preamble with another line where it makes its link."""
    assert len(_LINK.findall(text)) == 1, "the claim is made in other words now"
    return _LINK.sub(lambda _: link, text)


def no_claim(world: World) -> None:
    """Whoever gets as far as the claim starts the command."""
    spare_siblings(world)
    world.override("_preamble.sh.j2", lambda text: _COMPARED.sub("", linked(text, "")))


def plain_ln(world: World) -> None:
    """`ln` without -T makes its link inside a directory that is in the way, and says 0."""
    spare_siblings(world)
    link = 'ln "claims/$RV_ME" claim 2>/dev/null || exit 0\n'
    world.override("_preamble.sh.j2", lambda text: _COMPARED.sub("", linked(text, link)))


def spare_siblings(world: World) -> None:
    """Let no job cancel another: the quicker one would often hide what the claim is there for."""
    world.wrap("scancel", '[ -z "$SLURM_JOB_ID" ] || exit 0; exec "$real" "$@"')


def no_token(world: World) -> None:
    """A job is known by its id and restart alone."""
    world.override("_preamble.sh.j2", lambda text: text.replace(".${rv_token%%-*}", ""))


def no_second_look(world: World) -> None:
    """A job that is past its first step never hears of a stop."""

    def change(text: str) -> str:
        text = text.replace('! rv_exists stop || exit 0\n[ "$rv_whole"', '[ "$rv_whole"')
        return text.replace("\nif rv_exists stop; then", "\nif false; then")

    world.override("_preamble.sh.j2", change)


def no_requeue_0(world: World) -> None:
    """Slurm may run the winner again."""
    world.override(
        "_preamble.sh.j2", lambda text: re.sub(r"rv_slurm scontrol.*requeue=0.*", ":", text)
    )


def never_cancelled(world: World) -> None:
    """Neither the cancelled segment itself nor the job of the next cares that it was cancelled."""
    world.override("_chain.sh.j2", lambda text: text.replace("&& rv_was_scancelled", "&& false"))
    world.override(
        "_chain_enter.sh.j2", lambda text: text.replace('if rv_was_cancelled "$1"', "if false")
    )


def reject_by_exit(world: World) -> None:
    """A job that rejects its node merely ends."""
    world.override(
        "_preamble.sh.j2", lambda text: text.replace('  rv_say "node rejected: $1"\n', "  exit 0\n")
    )


def instead(module: str, code: str) -> Callable[[World], None]:
    """Run a copy of rv in which a function of a module is another one."""

    def change(world: World) -> None:
        copy = world.path / "copy"
        for name in ("rv", "templates", "strategies"):
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        path = copy / module
        name = code.split("(", maxsplit=1)[0].removeprefix("def ")
        assert f"\ndef {name}(" in path.read_text(encoding="utf-8")
        path.write_text(f"{path.read_text(encoding='utf-8')}\n\n{code}\n", encoding="utf-8")
        world.env["PYTHONPATH"] = str(copy)

    return change


@dataclass(frozen=True)
class Guard:
    """What is taken out, the scenario that shows it, and the complaint of the accounting."""

    remove: Callable[[World], None]
    scenario: str
    complaint: str


GUARDS = {
    "no claim": Guard(no_claim, "siblings_start_together", r"command started 2 times"),
    "ln without -T": Guard(
        plain_ln, "a_directory_in_place_of_the_claim", r"command started 2 times"
    ),
    "no token": Guard(
        no_token, "slurmctld_loses_its_state_before_the_claim", r"command started 2 times"
    ),
    "no second look for a stop": Guard(
        no_second_look, "stopped_while_slurmctld_hangs", r"COMPLETED .* instead of CANCELLED"
    ),
    "no requeue=0": Guard(
        no_requeue_0, "the_winner_is_requeued_by_hand", r"LOST .* instead of COMPLETED"
    ),
    "rejection by exit": Guard(
        reject_by_exit, "the_only_free_node_is_broken", r"(UNKNOWN|ENDED) .* instead of COMPLETED"
    ),
    "no look-up by name": Guard(
        instead(
            "rv/slurm/squeue_scripts.py",
            'def squeue_by_name_script(names, sentinel):\n    return _own_script(sentinel, " --name=nobody")',
        ),
        "sbatch_times_out_after_acceptance",
        r"was submitted \d times",
    ),
    "no patience": Guard(
        instead("rv/workflow/read_options.py", "def patience_s(options):\n    return 0.0"),
        "slurmctld_hangs_before_the_launch",
        r"controller does not answer",
    ),
    "accounting asked by name and time alone": Guard(
        instead(
            "rv/slurm/sacct.py",
            "def sacct_script(names, since, sentinel, ids=(), asked=sacct_script):\n"
            "    return asked(names, since, sentinel).replace(f'-s {_STATES} ', '')",
        ),
        "held_and_then_cancelled",
        r"instead of CANCELLED",
    ),
    "accounting believed while it is behind": Guard(
        instead("rv/slurm/sacct.py", "def is_behind(text, sentinel):\n    return False"),
        "accounting_hears_late_of_a_cancelled_job",
        r"instead of CANCELLED",
    ),
    "COMPLETING taken for gone": Guard(
        instead(
            "rv/race/cancel.py",
            "def _live_jobs(races, transport, asked=_live_jobs):\n"
            "    jobs = asked(races, transport)\n"
            "    return jobs and tuple(job for job in jobs if job.state != 'COMPLETING')",
        ),
        "stopped_while_completing",
        r"REQUEUED', '\w+",
    ),
    "REQUEUED taken for a loss": Guard(
        instead(
            "rv/race/sources.py",
            "def _lost_if_missing(files, records, recycled, *, accounting_answered):\n"
            "    return {number for number, _ in files.job_ids}",
        ),
        "cancelled_while_completing",
        r"instead of",
    ),
    "no environment scrub": Guard(
        instead(
            "rv/slurm/environment.py",
            "def scrubbed_environment(environ):\n    return dict(environ)",
        ),
        "a_hostile_environment",
        r"says \w+ of a race whose job Slurm knows",
    ),
    "no look at the job before": Guard(
        never_cancelled, "a_chain_is_cancelled_in_its_hand_over", r"command started 2 times"
    ),
    "every client sends the next segment": Guard(
        instead("rv/race/recover.py", "def _is_sender(race, claim, transport):\n    return True"),
        "login_nodes_send_the_next_segment",
        r"was submitted \d times",
    ),
    "leftovers not cancelled": Guard(
        instead("rv/race/cancel.py", "def cancel_leftovers(snapshot, transport):\n    return None"),
        "the_winner_cannot_cancel",
        r"left in the queue",
    ),
}


@pytest.fixture(scope="module")
def rows(
    request: pytest.FixtureRequest, sandbox_home: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Row]:
    """The accounting of each scenario, played without the guard it is about."""
    chosen = names_asked_for(request)
    runners = start_runners(len(chosen), tmp_path_factory.mktemp("guards"), sandbox_home)
    tasks = [
        Task(scenario=ALL[GUARDS[name].scenario], seed=0, prepare=GUARDS[name].remove, patience=15)
        for name in chosen
    ]
    return {row.scenario: row for row in play_all(runners, tasks)}


@pytest.mark.parametrize("name", GUARDS)
def test_without_a_guard_its_scenario_is_red(rows: dict[str, Row], name: str) -> None:
    """And the accounting names what went wrong."""
    guard = GUARDS[name]
    complaints = "\n".join(rows[guard.scenario].complaints)
    print(complaints)
    assert re.search(guard.complaint, complaints), complaints or "nothing is red"
