"""The probe: frames, the snapshot made of them, errors, and what is shared for how long."""

import re
import stat
import subprocess
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rv.errors import ErrorKind, RvError
from rv.models.snapshot import Snapshot
from rv.slurm.cache import SnapshotCache
from rv.slurm.probe import build_snapshot, probe_script, take_snapshot
from rv.slurm.script import (
    CommandOutput,
    new_sentinel,
    parallel_script,
    parse_outputs,
    write_outputs,
)
from rv.transport import ScriptResult
from rv.transport.query_retry import Patience

CAPTURED = (
    (Path(__file__).parents[2] / "data" / "slurm" / "22.05" / "probe.txt").read_bytes().decode()
)
S = "rv0123456789abcdef"
ACCOUNTS = {"qos", "qos_preemption", "associations", "association_limits", "accounts"}
# As 22.05 prints them; asked for since the capture.
LATER = {
    "qos_preemption": "Name|Preempt|PreemptMode\nnormal||cluster\nhigh|normal|requeue\nmig||cluster\n",
    "accounts": "Cluster|Account|ParentName|GrpTRES|GrpJobs|GrpSubmit\nlab|root||||\nlab|test|root|gres/gpu=6|9|\n",
}


def frames() -> dict[str, CommandOutput]:
    found = parse_outputs(CAPTURED, S)
    assert found is not None
    return found | {name: CommandOutput(exit_code=0, stdout=text) for name, text in LATER.items()}


@dataclass
class Cluster:
    """Answers a probe with given frames, under the sentinel that the script asks for."""

    answers: dict[str, CommandOutput]
    scripts: list[str] = field(default_factory=list)

    def run(self, script: str, *, timeout_s: float) -> ScriptResult:
        self.scripts.append(script)
        sentinel = script.rsplit("echo '", 1)[1].split(" ", maxsplit=1)[0]
        asked = {name: frame for name, frame in self.answers.items() if f"ask {name} " in script}
        text = write_outputs(asked, sentinel).replace(S, sentinel)
        return ScriptResult(returncode=0, stdout=text, stderr="")


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


def snapshot_of(cluster: object, cache: SnapshotCache | None = None, seconds: float = 30):  # type: ignore[no-untyped-def]
    return take_snapshot(cluster, cache, max_age=timedelta(seconds=seconds))  # type: ignore[arg-type]


def test_snapshot() -> None:
    """Everything a plan needs, from one captured answer of a real cluster."""
    found = snapshot_of(Cluster(frames()))
    assert (found.user, found.groups, found.config.name) == ("root", {"root"}, "lab")
    assert found.taken_at.isoformat() == "2026-11-21T09:14:22"
    assert [
        len(part)
        for part in (found.nodes, found.partitions, found.jobs, found.reservations, found.qos)
    ] == [6, 3, 5, 1, 3]
    assert found.associations is not None
    assert [(one.account, one.is_default) for one in found.associations] == [
        ("test", True),
        ("root", False),
    ]
    assert found.associations[0].limits.per_job == (("gres/gpu", 5), ("mem", 10240))
    assert {qos.name: (qos.preempts, qos.preempt_mode) for qos in found.qos}["high"] == (
        frozenset({"normal"}),
        "REQUEUE",
    )
    accounts = [(one.name, one.parent, one.limits.group_jobs) for one in found.accounts]
    assert accounts == [("root", "", None), ("test", "root", 9)]
    assert {job.name: job.gpus for job in found.jobs} == {
        "rv-abc-6": 0,
        "two": 2,
        "noc": 2,
        "rv-abc-1": 8,
        "held": 1,
    }
    assert found.notes == ()


def test_the_clusters_own_memory_rule_is_that_of_partitions_without_one() -> None:
    """Slurm prints a partition's own only; what is hidden is asked for too."""
    asked = frames()
    rule = f"{asked['config'].stdout}\nMaxMemPerCPU = 8000\n"
    own = asked["partitions"].stdout.replace("MaxMemPerNode=UNLIMITED", "MaxMemPerNode=9000", 1)
    changed = {
        "config": CommandOutput(exit_code=0, stdout=rule),
        "partitions": CommandOutput(exit_code=0, stdout=own),
    }
    first, *others = build_snapshot(asked | changed, S).partitions
    assert (first.max_memory_per_cpu_mib, first.max_memory_per_node_mib) == (None, 9000)
    assert {part.max_memory_per_cpu_mib for part in others} == {8000}
    script = probe_script(S)
    assert "scontrol -a show partition" in script
    assert "scontrol -a show node" in script


@pytest.mark.parametrize("name", ["config", "nodes", "partitions", "queue"])
def test_silent_controller(name: str) -> None:
    """A command the plan cannot do without makes the cluster unreachable, in Slurm's words."""
    bad = CommandOutput(
        exit_code=1,
        stdout="",
        stderr="warn\n\x1b[31mslurm_load: Unable to contact slurm controller\n",
    )
    with pytest.raises(RvError) as caught:
        snapshot_of(Cluster(frames() | {name: bad}))
    assert caught.value.kind is ErrorKind.UNREACHABLE
    assert caught.value.message.endswith("slurm_load: Unable to contact slurm controller")
    assert caught.value.hint


@dataclass
class Silent(Cluster):
    """Answers nothing for the first tries."""

    tries: int = 0

    def run(self, script: str, *, timeout_s: float) -> ScriptResult:
        if len(self.scripts) < self.tries:
            self.scripts.append(script)
            return ScriptResult(returncode=1, stdout="", stderr="no answer")
        return super().run(script, timeout_s=timeout_s)


def test_a_silent_controller_is_asked_again_and_the_user_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once when it is silent, with the time, and once when it answers."""
    monkeypatch.setattr("rv.transport.query_retry._FIRST_WAIT_S", 0.01)
    told: list[str] = []
    cluster = Silent(frames(), tries=3)
    patience = Patience(limit_s=60, say=told.append)
    assert take_snapshot(cluster, patience=patience).user == "root"  # type: ignore[arg-type]
    assert len(cluster.scripts) == 4
    silent, answers = told
    assert re.fullmatch(r"Slurm has not answered since \d\d:\d\d:\d\d: .* for 60 s", silent)
    assert answers.startswith("Slurm answers again, after ")


def test_a_first_try_of_another_thread_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer serves; its silence is followed by tries of one's own."""
    monkeypatch.setattr("rv.transport.query_retry._FIRST_WAIT_S", 0.01)
    cluster = Silent(frames(), tries=1)
    with pytest.raises(RvError) as caught:
        take_snapshot(cluster, patience=Patience(limit_s=0))  # type: ignore[arg-type]
    silence = caught.value

    def early() -> Snapshot:
        raise silence

    found = take_snapshot(cluster, patience=Patience(limit_s=9), early=early)  # type: ignore[arg-type]
    assert found.user == "root"
    assert take_snapshot(cluster, early=lambda: found) is found  # type: ignore[arg-type]
    assert len(cluster.scripts) == 2


def test_a_machine_without_slurm_is_asked_once() -> None:
    """No patience brings Slurm's commands there."""
    cluster = Cluster(frames() | {"config": CommandOutput(exit_code=127, stdout="")})
    with pytest.raises(RvError, match="no Slurm commands on PATH"):
        take_snapshot(cluster, patience=Patience(limit_s=60))  # type: ignore[arg-type]
    assert len(cluster.scripts) == 1


def test_hanging_command() -> None:
    """A command stopped after its time is "no answer in time"."""
    with pytest.raises(RvError, match="no answer in time"):
        build_snapshot(frames() | {"queue": CommandOutput(exit_code=124, stdout="")}, S)


def test_no_slurm() -> None:
    """Without Slurm on PATH the error names the sandbox."""
    with pytest.raises(RvError, match="no Slurm commands on PATH") as caught:
        build_snapshot(frames() | {"config": CommandOutput(exit_code=127, stdout="")}, S)
    assert "rv sandbox up" in caught.value.hint


def test_no_configuration() -> None:
    """No slurm.conf, as Slurm 22.05 says it: that will not pass, and is not waited for."""
    said = (
        "squeue: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host\n"
        "squeue: error: fetch_config: DNS SRV lookup failed\n"
        "squeue: error: _establish_config_source: failed to fetch config\n"
        "squeue: fatal: Could not establish a configuration source\n"
    )
    cluster = Cluster(frames() | {"config": CommandOutput(exit_code=1, stdout="", stderr=said)})
    with pytest.raises(RvError, match=r"no slurm\.conf on this machine") as caught:
        take_snapshot(cluster, patience=Patience(limit_s=60))
    assert caught.value.kind is ErrorKind.UNREACHABLE
    assert len(cluster.scripts) == 1


def test_no_database() -> None:
    """Without slurmdbd associations are None, with a note; that is no failure."""
    bad = CommandOutput(exit_code=1, stdout="", stderr="sacctmgr: error: Connection refused")
    found = snapshot_of(Cluster(frames() | dict.fromkeys(ACCOUNTS, bad)))
    assert (found.associations, found.qos) == (None, ())
    assert found.notes == (
        "could not read qos, qos preemption, associations, association limits, accounts: sacctmgr: error: Connection refused",
    )


def test_no_association_is_not_no_database() -> None:
    """A user whom the database does not know has no associations, which is known."""
    assert (
        snapshot_of(
            Cluster(frames() | {"associations": CommandOutput(exit_code=0, stdout="")})
        ).associations
        == ()
    )


@pytest.mark.parametrize("timed_out", [True, False])
def test_cut_off_answer(timed_out: bool) -> None:
    """Half an answer is no cluster."""

    class Cut:
        def run(self, script: str, *, timeout_s: float) -> ScriptResult:
            return ScriptResult(
                returncode=255, stdout=CAPTURED[:9000], stderr="ssh: lost\n", timed_out=timed_out
            )

    with pytest.raises(RvError, match="no answer within 30 s" if timed_out else "ssh: lost"):
        snapshot_of(Cut())


def test_shared_for_thirty_seconds(tmp_path: Path) -> None:
    """Within 30 s nobody asks again; accounts are asked for every ten minutes."""
    clock, cluster = Clock(), Cluster(frames())
    cache = SnapshotCache(directory=tmp_path / "c", key="k", clock=clock)
    first = snapshot_of(cluster, cache)
    clock.now += 29
    assert snapshot_of(cluster, cache) == first
    assert len(cluster.scripts) == 1
    clock.now += 2
    assert snapshot_of(cluster, cache) == first
    assert ["sacctmgr" in script for script in cluster.scripts] == [True, False]
    clock.now += 600
    snapshot_of(cluster, cache)
    assert "sacctmgr" in cluster.scripts[-1]


def test_a_silent_database_is_asked_again_after_a_minute(tmp_path: Path) -> None:
    """A failed answer of the database is kept shorter than a good one."""
    clock = Clock()
    cluster = Cluster(frames() | dict.fromkeys(ACCOUNTS, CommandOutput(exit_code=1, stdout="")))
    cache = SnapshotCache(directory=tmp_path, key="k", clock=clock)
    for wait in (0, 50, 61):
        clock.now += wait
        snapshot_of(cluster, cache, seconds=0)
    assert ["sacctmgr" in script for script in cluster.scripts] == [True, False, True]


def test_cache_is_private_and_per_cluster(tmp_path: Path) -> None:
    """The file is 0600, and another key has another file."""
    cache = SnapshotCache(directory=tmp_path / "c", key="k")
    snapshot_of(Cluster(frames()), cache)
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "c").iterdir()} == {0o600}
    other = Cluster(frames())
    snapshot_of(other, SnapshotCache(directory=tmp_path / "c", key="other"))
    assert len(other.scripts) == 1


@pytest.mark.parametrize(
    "garbage", [b"", b"\xff\xfe", b"[]\n", b'{"at": "x"}\n', b'{"at": 1e3, "sentinel": "S"}\ncut']
)
def test_broken_cache_is_empty(tmp_path: Path, garbage: bytes) -> None:
    """Whatever is in the file, the cluster is asked instead."""
    cluster, cache = Cluster(frames()), SnapshotCache(directory=tmp_path, key="k", clock=Clock())
    snapshot_of(cluster, cache)
    for path in tmp_path.iterdir():
        path.write_bytes(garbage)
    snapshot_of(cluster, cache)
    assert len(cluster.scripts) == 2


def test_unwritable_cache_is_no_failure() -> None:
    """A cache that cannot be written changes nothing."""
    assert (
        snapshot_of(Cluster(frames()), SnapshotCache(directory=Path("/proc/none"), key="k")).user
        == "root"
    )


def test_forget(tmp_path: Path) -> None:
    """After a submission the queue is asked again, the accounts are not."""
    cluster, cache = Cluster(frames()), SnapshotCache(directory=tmp_path, key="k")
    snapshot_of(cluster, cache)
    cache.forget()
    snapshot_of(cluster, cache)
    assert ["sacctmgr" in script for script in cluster.scripts] == [True, False]


@given(
    st.dictionaries(
        st.sampled_from(["a", "b", "c"]),
        st.builds(CommandOutput, exit_code=st.integers(0, 255), stdout=st.text(), stderr=st.text()),
    )
)
def test_frames_round_trip(given_frames: dict[str, CommandOutput]) -> None:
    """What is written comes back, whatever the outputs hold."""
    assert parse_outputs(write_outputs(given_frames, S), S) == given_frames


@given(
    st.text()
    | st.lists(st.sampled_from(["S", " begin ", " end\n", " stderr\n", " done", "\n", "a 0"])).map(
        "".join
    )
)
def test_any_text_of_some_commands_leaves_the_others_readable(text: str) -> None:
    """Outputs end where they say, and a snapshot has what the other commands printed."""
    outputs = parse_outputs(f"{text}\nS end\n\nS begin z 3\nfine\nS stderr\n\nS end\nS done\n", "S")
    assert outputs is not None
    assert outputs["z"] == CommandOutput(exit_code=3, stdout="fine")
    try:
        snapshot = build_snapshot(
            frames()
            | {
                name: CommandOutput(exit_code=0, stdout=text)
                for name in ("nodes", "queue", "qos", "groups")
            },
            "S",
        )
    except RvError as error:
        pytest.fail(error.message)
    whole = build_snapshot(frames(), S)
    assert snapshot.partitions
    assert (snapshot.config, snapshot.partitions) == (whole.config, whole.partitions)
    assert (snapshot.user, snapshot.taken_at) == (whole.user, whole.taken_at)


def test_script_frames_output_code_and_errors_in_parallel(tmp_path: Path) -> None:
    """A real bash runs the commands side by side, stops what hangs, and leaves nothing behind."""
    commands = {
        "slow": (1, "sleep 60"),
        "quick": (5, "printf 'it'\"'\"'s\\n\\nfine'; echo bad >&2; exit 3"),
        "forger": (5, "printf 'x\\nSENT end\\nSENT done\\n'"),
        "missing": (5, "no-such-command-here"),
    }
    script = "echo banner\n" + parallel_script(commands, S)
    done = subprocess.run(
        ["bash", "-c", script],
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    found = parse_outputs(done.stdout, S)
    assert found is not None
    assert found["slow"].exit_code == 124
    assert found["quick"] == CommandOutput(exit_code=3, stdout="it's\n\nfine", stderr="bad\n")
    assert found["forger"].stdout == "x\nSENT end\nSENT done\n"
    assert found["missing"].exit_code == 127
    assert list(tmp_path.iterdir()) == []


def test_commands_run_side_by_side(tmp_path: Path) -> None:
    """The first command waits for what the second one does, so one after the other would hang."""
    flag = tmp_path / "flag"
    commands = {
        "first": (5, f"until [ -e {flag} ]; do sleep 0.02; done"),
        "second": (5, f"touch {flag}"),
    }
    done = subprocess.run(
        ["bash", "-c", parallel_script(commands, S)], capture_output=True, text=True
    )
    found = parse_outputs(done.stdout, S)
    assert found is not None
    assert [frame.exit_code for frame in found.values()] == [0, 0]


def test_probe_script() -> None:
    """Sentinels differ, start with a letter, and the script is bash."""
    one, two = new_sentinel(), new_sentinel()
    assert one != two
    assert one[0].isalpha()
    checked = subprocess.run(
        ["bash", "-n"], input=probe_script(one), text=True, capture_output=True
    )
    assert (checked.returncode, checked.stderr) == (0, "")
