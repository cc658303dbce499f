"""The output of a race from a laptop: every line once, whatever happens to the connection."""

import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rv.transport import Transport
from rv.transport.local import LocalTransport
from tests.ssh.conftest import Laptop
from tests.ssh.test_launch import eventually, logins, races

PATTERNS = ["output/node[0-9]*.out", "segments/[0-9]*.output"]


@pytest.fixture(params=["local", "openssh", "paramiko"])
def transport(request: pytest.FixtureRequest, connect_by: Callable[[str], Transport]) -> Transport:
    """The same is asked of all."""
    if request.param == "local":
        return LocalTransport(dict(os.environ) | {"LC_ALL": "C"})
    return connect_by(request.param)


def test_files_are_read_on_from_where_they_were(transport: Transport, tmp_path: Path) -> None:
    """Any bytes; what has nothing new, and what no pattern names, is left out."""
    root = tmp_path / "a b'c"
    (root / "output").mkdir(parents=True)
    contents = {f"output/node{number}.out": bytes(range(256)) * (number + 1) for number in range(3)}
    for name, data in (contents | {"output/node.out": b"no", "output/node1.err": b"no"}).items():
        (root / name).write_bytes(data)
    assert transport.read_new(str(root), PATTERNS, {}, 10_000) == contents
    offsets = {"output/node0.out": 256, "output/node2.out": 700, "output/node1.out": 9000}
    assert transport.read_new(str(root), PATTERNS, offsets, 10_000) == {
        "output/node2.out": contents["output/node2.out"][700:]
    }
    some = transport.read_new(str(root), PATTERNS, {}, 300)
    assert sum(map(len, some.values())) == 300
    assert all(contents[name].startswith(data) for name, data in some.items())
    assert transport.read_new(str(tmp_path / "none"), PATTERNS, {}, 300) == {}


def test_a_large_answer_comes_in_parts(transport: Transport, tmp_path: Path) -> None:
    """Reading on until nothing is new gives the file."""
    data = os.urandom(3 << 20)
    name = "output/node0.out"
    (tmp_path / "output").mkdir()
    (tmp_path / name).write_bytes(data)
    got = b""
    while part := transport.read_new(str(tmp_path), PATTERNS, {name: len(got)}, 1 << 20):
        got += part[name]
    assert got == data


@pytest.mark.parametrize("ssh", ["openssh", "paramiko"])
def test_a_connection_that_breaks_while_following(laptop: Laptop, ssh: str) -> None:
    """Again and again, with output of two nodes: each line comes once, and in its node's order."""
    laptop = replace(laptop, ssh=ssh)
    lines = "for n in $(seq 60); do echo $NODE_RANK $n; echo e$NODE_RANK $n >&2; sleep 0.2; done"
    line = f"{lines}; until [ -e go ]; do sleep 0.2; done"
    sent = laptop.rv("run", "-d", "--gpu", "8", "--multi-node", "--time", "5m", line)
    assert sent.returncode == 0, sent.stderr
    eventually(lambda: races(laptop)[0]["state"] == "RUNNING")
    client = laptop.start("logs", "-f")
    for _ in range(4):
        time.sleep(2)
        count = logins(laptop)
        laptop.server.cut()
        eventually(lambda before=count: logins(laptop) > before)
    (laptop.home.parent / "away" / "go").touch()
    out, err = client.communicate(timeout=100)
    assert client.returncode == 0, err
    for node in (0, 1):
        told = [line for line in out.splitlines() if line.startswith(f"node{node}| ")]
        assert told == [f"node{node}| {node} {n}" for n in range(1, 61)]
        errors = [line for line in err.splitlines() if line.startswith(f"node{node}| ")]
        assert errors == [f"node{node}| e{node} {n}" for n in range(1, 61)]
    assert len(out.splitlines()) == 120
    one = laptop.rv("logs", "--node", "1", "--tail", "2")
    assert (one.stdout, one.stderr) == ("1 59\n1 60\n", "e1 59\ne1 60\n")
    assert laptop.rv("logs", "--tail", "1").stdout == "node0| 0 60\nnode1| 1 60\n"


def test_the_last_lines_and_what_follows(laptop: Laptop) -> None:
    """Of both streams, of errors alone, and from there to the end of the race."""
    first = "for n in $(seq 9); do echo $n; echo e$n >&2; done"
    line = f"{first}; until [ -e go ]; do sleep 0.2; done; echo 10"
    assert laptop.rv("run", "-d", "--gpu", "1", "--time", "5m", line).returncode == 0
    eventually(lambda: laptop.rv("logs").stdout.endswith("9\n"))
    done = laptop.rv("logs", "--tail", "2")
    assert (done.stdout, done.stderr) == ("8\n9\n", "e8\ne9\n")
    assert laptop.rv("logs", "--tail", "1", "--err").stdout == "e9\n"
    with laptop.start("logs", "-f", "--tail", "3") as client:
        assert client.stdout
        assert client.stderr
        last = [client.stdout.readline() for _ in range(3)]
        (laptop.home.parent / "away" / "go").touch()
        out, err = client.stdout.read(), client.stderr.read()
    assert (client.returncode, [*last, out]) == (0, ["7\n", "8\n", "9\n", "10\n"]), err
    assert "e6" not in err.splitlines()
    follow = laptop.rv("logs", "-f", "--tail", "0", "--err")
    assert (follow.stdout, "e9" in follow.stderr.splitlines()) == ("", False)


def test_all_logs_are_copied_here(laptop: Laptop) -> None:
    """Each file whole, in a folder of the race's; again over what was there."""
    line = "head -c 9000000 /dev/zero; echo end >&2"
    assert laptop.rv("run", "--gpu", "1", "--time", "5m", "-d", line).returncode == 0
    race = str(races(laptop)[0]["race"])
    eventually(lambda: races(laptop)[0]["state"] == "COMPLETED")
    for _ in range(2):
        done = laptop.rv("logs", "--pull", "got")
        assert done.returncode == 0, done.stderr
        files = {path.name: path for path in (laptop.home / "got" / race).iterdir()}
        assert set(files) == {"node0.out", "node0.err", "job1.log"}
        assert sorted(done.stdout.split()) == [f"got/{race}/{name}" for name in sorted(files)]
        assert files["node0.out"].stat().st_size == 9_000_000
        assert files["node0.err"].read_text() == "end\n"
    (laptop.home / "file").touch()
    done = laptop.rv("logs", "--pull", "file")
    assert done.returncode == 125
    assert "error[stage]: cannot write file/" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 2
    assert laptop.rv("logs", "--pull", "got", "-f").returncode == 2


def test_segments_follow_each_other(laptop: Laptop) -> None:
    """Each line is of one segment, and where one begins is said on stderr, live and afterwards."""
    line = (
        'echo "$RV_SEGMENT a"; echo "$RV_SEGMENT e" >&2; sleep 3; echo "$RV_SEGMENT b"; '
        'w=again; [ "$RV_SEGMENT" != 3 ] || w=done; echo $w >"$RV_CHECKPOINT_DIR/.rv-next"'
    )
    done = laptop.rv("run", "-d", "--gpu", "1", "--time", "20m", "--checkpoint", line)
    assert done.returncode == 0, done.stderr
    live = laptop.rv("logs", "-f")
    assert live.returncode == 0, live.stderr
    assert live.stdout.splitlines() == [f"{n} {word}" for n in (1, 2, 3) for word in "ab"]
    later = laptop.rv("logs")
    assert later.stdout == live.stdout
    assert later.stderr == "1 e\n-- segment 2 --\n2 e\n-- segment 3 --\n3 e\n"
    marks = Counter(line for line in live.stderr.splitlines() if line.startswith("-- segment"))
    assert marks == {"-- segment 2 --": 1, "-- segment 3 --": 1}
