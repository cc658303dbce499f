"""How jobs use their GPUs: sampled by the job itself, told at its end, and asked for while it runs."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from rv import sandbox
from tests.slurm.launching import Rv, group, profile

Eventually = Callable[..., None]


@pytest.fixture(scope="module")
def box(sandbox_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[sandbox.Sandbox]:
    """Two nodes with four large cards each, one with a small card, one with a card in slices."""
    sliced = group("m", "a100", gpus=7)
    sliced["gres"] = [sliced["gres"][0] | {"type": "1g.10gb", "mig": "1g.10gb"}]
    spec = profile([group("a", "a100", nodes=2), group("b", "a10", gpus=1), sliced])
    path = tmp_path_factory.mktemp("gpu") / "gpu.yaml"
    path.write_text(json.dumps(spec))
    yield sandbox.up("gpu-use", path)
    sandbox.down("gpu-use")


@pytest.fixture
def rv(box: sandbox.Sandbox, tmp_path: Path) -> Iterator[Rv]:
    """`rv` there; what the GPUs pretend is forgotten afterwards."""
    yield Rv(box=box, home=tmp_path)
    for kind in ("use", "processes", "fault"):
        for path in (box.directory / "nodes").glob(f"*/{kind}"):
            path.unlink()


def pretend(rv: Rv, node: str, kind: str, *lines: str) -> None:
    """Write what a node's nvidia-smi says of use or processes."""
    (rv.box.directory / "nodes" / node / kind).write_text("".join(f"{line}\n" for line in lines))


def run(rv: Rv, command: str, *options: str) -> "tuple[str, dict[str, object]]":
    """Run a command on large cards; what rv said, and its JSON."""
    shared = "--allow-busy-gpus"  # what is pretended, others use
    done = rv("run", "--type", "a100", "--time", "5m", "--json", shared, *options, command)
    assert done.returncode == 0, done.stderr
    return done.stderr, json.loads(done.stdout)


def test_a_race_tells_how_it_used_its_gpus(rv: Rv) -> None:
    """Only its own: the other GPUs of its node are as busy as can be."""
    full = "99|80000|400.0|80"
    for node in ("a1", "a2"):
        pretend(rv, node, "use", "0|12|9216|90.5|41", *(f"{index}|{full}" for index in (1, 2, 3)))
    said, document = run(rv, "sleep 6", "--gpu", "1")
    assert "GPU use 12 %, 9 of 80 GB: a 24 GB card would do\n" in said
    use = {"gpus": 1, "samples": 1, "utilization": 12.0, "peak_mib": 9216, "card_mib": 81920}
    assert document["gpu_use"] == use | {"smaller_card_mib": 23028}
    assert rv.state()["gpu_use"] == document["gpu_use"]


def test_each_node_samples_its_own(rv: Rv) -> None:
    """The mean is over all of them, the peak that of the fullest: no smaller card would hold it."""
    pretend(rv, "a1", "use", *(f"{index}|10|1024|90|41" for index in range(4)))
    pretend(rv, "a2", "use", *(f"{index}|30|40000|90|41" for index in range(4)))
    said, document = run(rv, "torchrun() { sleep 8; }; torchrun", "--gpu", "8", "--multi-node")
    assert "GPU use 20 %, 39 of 80 GB\n" in said
    assert document["gpu_use"]["gpus"] == 8  # type: ignore[index]


def test_a_short_command_says_nothing(rv: Rv) -> None:
    """It was over before the first sample, and waited for none."""
    said, document = run(rv, "true", "--gpu", "1")
    assert "GPU use" not in said
    assert document["gpu_use"] is None


def test_one_that_hangs_keeps_nobody(rv: Rv, eventually: Eventually) -> None:
    """The command ends as it would, and nothing of the sampling stays."""
    launched = rv.launch("run", "--type", "a100", "--gpu", "1", "--time", "5m", "sleep 7; echo end")
    with launched as process:
        eventually(lambda: rv.files() and rv.last().claim)
        for node in ("a1", "a2"):
            pretend(rv, node, "fault", "hang")
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "end\n"), err
    assert "GPU use" not in err
    assert "ran 7s" in err or "ran 8s" in err, err
    assert not [name for name in rv.last().names("gpus") if not name.startswith(".")]


def test_the_command_finds_nothing_of_it(rv: Rv) -> None:
    """No function, no variable and no child more: a program may wait for all that it has."""
    seen = "env | grep -c -e ^BASH_FUNC_rv_s[al] -e ^RV_NODE_PATH=; pgrep -P $$ -c -f tail; true"
    done = rv("run", "--gpu", "8", "--type", "a100", "--multi-node", "--time", "5m", seen)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split("\n")) == ["", *["node0| 0"] * 2, *["node1| 0"] * 2]


def gpus(rv: Rv, *options: str) -> "dict[str, object]":
    """What `rv gpu` answers."""
    done = rv("gpu", "--json", *options)
    assert done.returncode == 0, done.stdout
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


def test_the_gpus_of_a_running_race(rv: Rv, eventually: Eventually) -> None:
    """Its own, on all its nodes or on one; afterwards what was measured."""
    for node in ("a1", "a2"):
        pretend(rv, node, "use", *(f"{index}|{50 + index}|7000|91.5|44" for index in range(4)))
        pretend(rv, node, "processes", f"0|{os.getpid()}|6900|python train.py, x", "3|1|5|other")
    rv.fill("a1", 2)
    rv.fill("a2", 2)
    with rv.launch(
        "run",
        "--type",
        "a100",
        "--gpu",
        "4",
        "--multi-node",
        "--time",
        "5m",
        "--allow-busy-gpus",
        "sleep 12",
    ) as process:
        eventually(lambda: rv.files() and rv.last().claim)
        eventually(lambda: rv.state()["state"] == "RUNNING")
        both, second = gpus(rv), gpus(rv, "--node", "1")
        table = rv("gpu")
        rv.slurm("scancel", "--me", "--state=RUNNING", "--name=wrap")
        _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    rows = both["gpus"]
    assert isinstance(rows, list)
    mine = [(row["node"], row["index"]) for row in rows]
    assert len(mine) == 4
    assert mine == sorted(mine)
    assert [row["node"] for row in second["gpus"]] == ["a2", "a2"]  # type: ignore[attr-defined]
    assert {row["memory_mib"] for row in rows} == {7000}
    assert (rows[0]["utilization"], rows[0]["power_w"]) == (50 + rows[0]["index"], 91.5)
    if rows[0]["index"] == 0:
        assert rows[0]["processes"][0]["name"] == "python train.py, x"
    assert "NODE  GPU  MODEL" in table.stdout
    over = gpus(rv)
    assert (over["gpus"], over["state"]) == ([], "COMPLETED")
    assert len(over["measured"]) == 4  # type: ignore[arg-type]
    assert "PEAK MEMORY" in rv("gpu").stdout


def test_watching_ends_with_the_race(rv: Rv, eventually: Eventually) -> None:
    """In a pipe one table after the other; the last is what was measured."""
    gate = rv.home / "gate"
    held = f"while [ ! -e {gate} ]; do sleep 0.1; done"
    with rv.launch("run", "--type", "a100", "--gpu", "1", "--time", "5m", held) as process:
        eventually(lambda: rv.files() and rv.last().claim)
        eventually(lambda: rv.state()["state"] == "RUNNING")
        with rv.launch("gpu", "-w") as watching:
            assert watching.stdout
            assert any("PROCESSES" in line for line in watching.stdout)
            measured = Path(rv.last().directory, "gpus")
            eventually(lambda: any(measured.glob("[!.]*")))
            gate.touch()
            rest = watching.stdout.read()
        process.communicate(timeout=120)
    assert watching.returncode == 0
    assert rest.count("PEAK MEMORY") == 1


def read_until(terminal: int, awaited: bytes) -> bytes:
    """Read what is drawn, piece by piece, until it has come; a piece may end anywhere."""
    shown = b""
    while awaited not in shown:
        assert select.select([terminal], [], [], 60)[0], shown
        shown += os.read(terminal, 65536)
    return shown


def test_a_terminal_is_drawn_over(rv: Rv, eventually: Eventually) -> None:
    """The table stands once on the screen, again where it changed; Ctrl-C leaves it there."""
    with rv.launch("run", "--type", "a100", "--gpu", "1", "--time", "5m", "sleep 600") as process:
        eventually(lambda: rv.files() and rv.last().claim)
        eventually(lambda: rv.state()["state"] == "RUNNING")
        ours, theirs = pty.openpty()
        with subprocess.Popen(
            [sys.executable, "-m", "rv", "gpu", "-w"],
            env={**rv.client_environment(), "TERM": "xterm", "COLUMNS": "120"},
            stdin=theirs, stdout=theirs, stderr=subprocess.PIPE,
        ) as watching:  # fmt: skip
            os.close(theirs)
            shown = read_until(ours, b"PROCESSES")
            for node in ("a1", "a2"):
                pretend(rv, node, "use", *(f"{index}|77|7000|91|44" for index in range(4)))
            shown += read_until(ours, b"77 %")
            watching.send_signal(signal.SIGINT)
            assert watching.stderr is not None
            assert b"Traceback" not in watching.stderr.read()
        os.close(ours)
        assert watching.returncode == 130
        assert re.search(rb"\x1b\[\d+F\x1b\[J", shown), shown
        rv("stop")
        process.communicate(timeout=60)


def test_a_slice_is_not_told_from_its_card(rv: Rv, eventually: Eventually) -> None:
    """What nvidia-smi says is of the whole card: nothing is shown of it, and nothing measured."""
    pretend(rv, "m1", "use", "0|[N/A]|70000|90|41")
    with rv.launch("run", "--mig", "--gpu", "1", "--time", "5m", "sleep 8") as process:
        eventually(lambda: rv.files() and rv.last().claim)
        eventually(lambda: rv.state()["state"] == "RUNNING")
        (row,) = gpus(rv)["gpus"]  # type: ignore[misc]
        _, err = process.communicate(timeout=60)
    assert (row["model"], row["memory_mib"], row["utilization"]) == ("MIG 1g.10gb", None, None)
    assert process.returncode == 0, err
    assert "GPU use" not in err


def test_what_cannot_be_looked_at_is_one_line(rv: Rv, eventually: Eventually) -> None:
    """Each with a hint: not started, over and not measured, no GPUs, and nodes that cannot tell."""
    first = rv("run", "-d", "--gpu", "1", "--time", "5m", "--sbatch", "begin=now+1hour", "true")
    assert first.returncode == 0, first.stderr
    assert says(rv("gpu")) == "has not started yet"
    assert rv("stop").returncode == 0
    assert says(rv("gpu")) == "nothing was measured of its GPUs"
    assert rv("run", "--gpu", "0", "--time", "5m", "true").returncode == 0
    assert says(rv("gpu")) == "has no GPUs"
    with rv.launch("run", "--type", "a10", "--gpu", "1", "--time", "5m", "sleep 600") as process:
        eventually(lambda: len(rv.files()) == 3 and rv.last().claim)
        pretend(rv, "b1", "fault", "error")
        assert says(rv("gpu")) == "nvidia-smi failed"
        assert rv("gpu", "--node", "3").returncode == 2
        rv("stop")
        process.communicate(timeout=60)


def says(done: CompletedProcess[str]) -> str:
    """Which of these an error says; it has one line and a hint."""
    error, hint = [line for line in done.stderr.splitlines() if "on sandbox" not in line]
    assert error.startswith("error[")
    assert hint.startswith("  hint: ")
    known = (
        "has not started yet", "nothing was measured of its GPUs", "has no GPUs", "nvidia-smi failed",
    )  # fmt: skip
    return next((each for each in known if each in error), error)
