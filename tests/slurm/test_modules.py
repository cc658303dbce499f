"""Environment modules of the site, loaded by the real `module` on the node, before the claim."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rv import sandbox
from tests.slurm.launching import Rv

TOOL = "#%Module1.0\nsetenv TOOL_HOME /opt/tool\nprepend-path PATH /opt/tool/bin\n"


@pytest.fixture
def rv(small: sandbox.Sandbox, tmp_path: Path) -> Rv:
    """`rv` with a folder of modules that has tool/1.0."""
    folder = tmp_path / "modules" / "tool"
    folder.mkdir(parents=True)
    (folder / "1.0").write_text(TOOL)
    return Rv(box=small, home=tmp_path, more={"MODULEPATH": str(folder.parent)})


def test_the_command_finds_what_a_module_provides(rv: Rv) -> None:
    """On one node and on several; a configuration file may name modules for all launches."""
    config = rv.home / "config" / "rv"
    config.mkdir(parents=True)
    (config / "config.yaml").write_text("defaults: {modules: [tool/1.0]}\n")
    for layout in ("--single-node", "--multi-node"):
        done = rv(
            "up", "--gpu", "4", layout, "--time", "5m", "--run", "echo $TOOL_HOME; echo $PATH"
        )
        assert done.returncode == 0, done.stderr + rv.last().logs()
        assert "/opt/tool" in done.stdout.splitlines()[0]
        assert "/opt/tool/bin:" in done.stdout


def test_a_node_without_the_module_is_given_up_and_named(
    rv: Rv, eventually: Callable[..., None]
) -> None:
    """No command starts half set up."""
    done = rv("up", "--modules", "tool/2.0", "--time", "5m", "--run", rv.count_starts)
    assert done.returncode == 1, done.stderr
    assert "module load tool/2.0 failed on this node" in done.stderr
    assert rv.state()["state"] == "DECLINED"
    assert not rv.starts
    eventually(lambda: not rv.queue())
