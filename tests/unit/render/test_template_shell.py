"""Shell that the templates are made of, run as it stands: clocks that disagree, signals."""

import os
import re
import signal
import subprocess
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest

TEMPLATES = Path(__file__).parents[3] / "templates"


@pytest.mark.parametrize("path", sorted(TEMPLATES.glob("_chain*.j2")), ids=lambda path: path.name)
def test_a_chain_substitutes_no_command(path: Path) -> None:
    """A signal that comes during one takes its output away, and chains live on signals."""
    text = re.sub(r"\{%#.*?#%\}", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    found = [line for line in lines if re.search(r"\$\((?!\()|`|<\(", line)]
    assert found == []


def test_a_lease_holds_whatever_the_clock_that_wrote_it(tmp_path: Path) -> None:
    """The client's is an hour behind the node's; and the allocation ends when nobody renews."""
    text = (TEMPLATES / "_hold.sh.j2").read_text(encoding="utf-8")
    script = re.sub(r"\{%#.*?#%\}\n?", "", text).replace("{{ lease_seconds }}", "5")
    with subprocess.Popen(
        ["bash", "-c", script],
        env={"PATH": "/usr/bin:/bin", "RV_RACE_DIR": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
    ) as holder:
        begun = time.monotonic()
        while time.monotonic() - begun < 7:
            assert holder.poll() is None, "given up although the lease was renewed"
            (tmp_path / "new").write_text(f"{time.time() - 3600:.2f}\n")
            (tmp_path / "new").rename(tmp_path / "lease")
            time.sleep(0.2)
        _, said = holder.communicate(timeout=60)
    assert "nobody has held this shell" in said


OUT_OF_TIME = """
rv_say() {{ :; }}; rv_send_next() {{ :; }}; rv_signal_catching() {{ :; }}
rv_checkpoints=. RV_SEGMENT=1
{function}
setsid sleep 600 >/dev/null & rv_pid=$!
rv_out_of_time
echo $rv_pid
{end}
"""


@pytest.mark.parametrize("end", ["kill -KILL $$", 'kill "$rv_deadline"; kill "$rv_pid"'])
def test_nothing_waits_for_the_deadline_of_a_segment_that_is_over(tmp_path: Path, end: str) -> None:
    """Neither where the job ended it, nor where Slurm killed the job's shell outright."""
    golden = (TEMPLATES.parent / "tests" / "golden" / "checkpoint.sh").read_text(encoding="utf-8")
    function = re.search(r"^rv_out_of_time\(\) \{\n.*?^\}\n", golden, re.DOTALL | re.MULTILINE)
    assert function
    done = subprocess.run(
        ["bash", "-c", OUT_OF_TIME.format(function=function[0], end=end)],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        text=True,
    )
    with suppress(ProcessLookupError):
        os.kill(int(done.stdout), signal.SIGKILL)
    deadline = time.monotonic() + 10
    while left := _working_in(tmp_path):
        assert time.monotonic() < deadline, left
        time.sleep(0.2)


def _working_in(folder: Path) -> list[str]:
    """The command lines of the processes whose working directory is a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink() == folder:
                found.append((process / "cmdline").read_text())
        except OSError:
            continue
    return found


@pytest.mark.parametrize(
    ("claim", "is_lost"),
    [
        ("11.0.aaaaaaaa\nsubmission=1\n", True),
        ("11.0.aaaaaaaa\nsubmission=2\n", False),
        ("12.0.aaaaaaaa\nsubmission=1\n", False),
    ],
    ids=["its own", "of another submission with its id", "of another job"],
)
def test_only_a_restarted_winner_says_that_it_was_restarted(
    tmp_path: Path, claim: str, is_lost: bool
) -> None:
    """A controller that lost its state gives the winner's id to another job of the race."""
    golden = TEMPLATES.parent / "tests" / "golden" / "single_node.sh"
    script = re.sub(
        r"^RV_RACE_DIR=.*",
        f"RV_RACE_DIR={tmp_path}",
        golden.read_text(encoding="utf-8"),
        flags=re.M,
    )
    (tmp_path / "claim").write_text(claim)
    job = {"SLURM_JOB_ID": "11", "SLURM_RESTART_COUNT": "1", "SLURMD_NODENAME": "a1"}
    done = subprocess.run(["bash", "-c", script], env={"PATH": "/usr/bin:/bin", **job}, timeout=60)
    assert (done.returncode, (tmp_path / "lost").exists()) == (int(is_lost), is_lost)


def turn(folder: Path, turns: dict[str, str], *, claim_after_s: float = 9) -> float:
    """How long the job of rank 3 waits, in seconds."""
    text = (TEMPLATES / "_turn.sh.j2").read_text(encoding="utf-8")
    (folder / "turns").mkdir()
    for name, state in turns.items():
        (folder / "turns" / name).write_text(state)
    helpers = 'rv_state_file() { echo "$2" >"$1"; }\nrv_exists() { { : <"$1"; } 2>/dev/null; }\nRV_RANK=3\n'
    claim = f"{{ sleep {claim_after_s}; echo 1.0 >claim; }} >/dev/null 2>&1 &\n"
    began = time.monotonic()
    done = subprocess.run(
        ["bash", "-c", f"{helpers}{claim}{text}\nrv_wait_for_better; kill $! 2>/dev/null"],
        cwd=folder, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stderr == ""
    assert (folder / "turns" / "3").read_text() == "ready\n"
    return time.monotonic() - began


@pytest.mark.parametrize(
    "turns",
    [{}, {"4": "checking\n", "10": "ready\n"}, {"1": "", "2": "gone\n", "x": "ready\n"}],
    ids=["alone", "beside worse ones", "beside nonsense"],
)
def test_the_best_job_that_is_there_waits_for_nobody(tmp_path: Path, turns: dict[str, str]) -> None:
    """Neither alone nor beside jobs that are worse."""
    assert turn(tmp_path, turns) < 0.5


@pytest.mark.parametrize(
    ("turns", "least", "most"),
    [
        ({"1": "checking\n"}, 0.8, 1.9),
        ({"0": "checking\n", "2": "ready\n"}, 1.7, 2.9),
    ],
    ids=["that checks", "about to claim"],
)
def test_a_better_job_is_waited_for_a_moment(
    tmp_path: Path, turns: dict[str, str], least: float, most: float
) -> None:
    """One whose check hangs for a second, one that is about to claim for two; then no longer."""
    assert least < turn(tmp_path, turns) < most


def test_nobody_waits_once_the_race_is_decided(tmp_path: Path) -> None:
    """The better one has claimed."""
    assert turn(tmp_path, {"2": "ready\n"}, claim_after_s=0.3) < 1.2


def test_a_checkpoint_may_lie_behind_links(tmp_path: Path) -> None:
    """Home is small: the directory leads to a larger disk, or what is in it does."""
    golden = (TEMPLATES.parent / "tests" / "golden" / "checkpoint.sh").read_text(encoding="utf-8")
    (line,) = [each for each in golden.splitlines() if each.startswith("rv_is_fresh()")]
    (tmp_path / "scratch").mkdir()
    (tmp_path / "kept").mkdir()
    (tmp_path / "claim").touch()
    (tmp_path / "directory").symlink_to(tmp_path / "scratch")
    (tmp_path / "kept" / "latest").symlink_to(tmp_path / "scratch" / "step.pt")

    def is_fresh(folder: str) -> bool:
        check = f"{line}\nrv_is_fresh {folder} claim"
        return subprocess.run(["bash", "-c", check], cwd=tmp_path, check=False).returncode == 0

    for folder in ("directory", "kept"):
        assert not is_fresh(folder)
    saved = tmp_path / "scratch" / "step.pt"
    saved.touch()
    later_s = (tmp_path / "claim").stat().st_mtime + 5
    os.utime(saved, (later_s, later_s))
    for folder in ("directory", "kept"):
        assert is_fresh(folder)


def notices(folder: Path, me: str, *calls: str) -> str:
    """Call the functions of the golden script that has notices, as the job `me`; what it said."""
    golden = (TEMPLATES.parent / "tests" / "golden" / "notify.sh").read_text(encoding="utf-8")
    text = golden[golden.index("\nrv_notify() {") : golden.index("\nrv_notify start RUNNING")]
    text = text.replace("cd /home/ada/project", "cd .").replace("timeout -k 2 15", "timeout -k 1 1")
    (folder / "claims").mkdir(exist_ok=True)
    (folder / "notified").mkdir(exist_ok=True)
    (folder / "claims" / me).write_text(f"{me}\nwhole\n")
    begin = "rv_say() { echo \"rv: $*\"; }\nrv_notifier=none RV_UMASK=0077 RV_PYTHON=python3 rv_cause='' rv_code=0\n"
    environ = {
        "PATH": f"{folder}/bin:/usr/bin:/bin", "RV_ME": me, "RV_RACE": "abcd2345",
        "SLURM_JOB_ID": "11", "SLURM_JOB_USER": "ada", "SLURM_JOB_NODELIST": 'a[1-2],"b"',
    }  # fmt: skip
    done = subprocess.run(
        ["bash", "-c", f"{begin}{text}\n" + "\n".join(calls)],
        cwd=folder, env=environ, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """`mail`, `curl` and `say`, which write down what they are called with."""
    (tmp_path / "bin").mkdir()
    for name, line in (
        ("mail", 'echo "mail $*" >>told; cat >>told'),
        ("curl", 'echo "$*" >>told; cat "${@: -1}" >>told; exit 22'),
        ("say", 'echo "say $* $RV_EVENT $RV_EXIT_CODE" >>told; sleep 60'),
    ):
        (tmp_path / "bin" / name).write_text(f"#!/bin/bash\n{line}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path


def test_a_notice_is_sent_once_whatever_instance_of_a_job_comes(programs: Path) -> None:
    """A restart, a next segment, and a step that is taken twice send nothing more."""
    for me in ("11.0.aa", "11.1.bb", "12.0.cc"):
        notices(programs, me, "rv_notify start RUNNING ''")
    told = (programs / "told").read_text()
    assert told.count("mail -s rv: race abcd2345 night-run RUNNING you@example.org") == 1
    assert "on a[1-2],b as job 11." in told
    assert "say" not in told
    said = notices(programs, "12.0.cc", "rv_code=3", "rv_notify_end")
    notices(programs, "13.0.dd", "rv_notify_end")
    told = (programs / "told").read_text()
    assert told.count("night-run FAILED you@") == 1
    assert told.count("say it's FAILED fail 3") == 1
    assert '"event": "fail", "state": "FAILED", "exit_code": 3, "job_id": 11' in told
    assert told.count('url = "https://example.org/hook?token=it\'s"') == 1
    assert "--data-binary" in told
    assert not re.search("^-.*token", told, re.MULTILINE), "a URL in an argument"
    assert "rv: --notify: the POST of fail failed with code 22" in said
    assert "rv: --notify: the command for fail ended with code 124" in said


@pytest.mark.parametrize(
    ("facts", "state"),
    [
        ("rv_code=0", "COMPLETED"),
        ("rv_code=1", "FAILED"),
        ("rv_code=143 rv_cause=TERM", "CANCELLED"),
        ("rv_code=143 rv_cause=TERM SECONDS=10720", "TIMEOUT"),
        ("rv_code=143 rv_cause=TERM SECONDS=10720; : >stop", "CANCELLED"),
        ("rv_code=1 rv_cause=TIME", "TIMEOUT"),
    ],
)
def test_an_end_is_told_by_its_state(programs: Path, facts: str, state: str) -> None:
    """As the job itself can know it."""
    notices(programs, "11.0.aa", facts, "rv_notify_end")
    assert f"night-run {state} you@example.org" in (programs / "told").read_text()


def of_a_chain(begin: str, end: str) -> str:
    """The lines of the golden script of a chain from one that begins so to one that ends so."""
    golden = (TEMPLATES.parent / "tests" / "golden" / "checkpoint.sh").read_text(encoding="utf-8")
    found = re.search(rf"^{begin}.*?{end}$", golden, re.DOTALL | re.MULTILINE)
    assert found, begin
    return found[0]


def play(folder: Path, script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a part of a chain's script in its race directory, as the instance 11.0.aa."""
    for name in ("segments", "claims", "checkpoints"):
        (folder / name).mkdir(exist_ok=True)
    given = {
        "PATH": "/usr/bin:/bin", "RV_ME": "11.0.aa", "RV_RACE_DIR": str(folder),
        "RV_SEGMENT": "1", "RV_TOTAL_ELAPSED": "0",
    }  # fmt: skip
    return subprocess.run(
        ["bash", "-c", script], cwd=folder, env=given | variables, capture_output=True, text=True,
        timeout=60,
    )  # fmt: skip


# `sleep` of the script's own is its pause after the command's end; by its path, it is the command.
ENDING = r"""
rv_say() { :; }; rv_send_next() { :; }; rv_signal_catching() { :; }
rv_checkpoints=checkpoints rv_fruitless=0 rv_cause='' rv_asker='' rv_deadline='' rv_begun=$SECONDS
rv_signalled='' rv_watcher='' rv_sampler=''
trap 'rv_signalled=${rv_signalled:-$SECONDS}' USR1
"""


def decided(folder: Path, before: str, command: str, **variables: str) -> str:
    """What the script of a chain decides after a command, and the cause that it names."""
    (folder / "claims").mkdir()
    (folder / "claims" / "11.0.aa").touch()
    parts = [
        of_a_chain(r"rv_is_fresh\(\)", r"\}"),
        of_a_chain(r"rv_elapsed\(\)", r"\}"),
        of_a_chain(r"rv_out_of_time\(\)", r"^\}"),
        of_a_chain(r"rv_decide\(\)", r"^\}"),
        ENDING,
        before,
        f"/bin/bash -c {command!r} & rv_pid=$!",
        of_a_chain("while :; do\n  if", "^for rv_helper in .*?"),
        'rv_decide; echo "$rv_next $rv_cause"',
    ]
    done = play(folder, "\n".join(parts), **variables)
    assert done.stderr == ""
    return done.stdout.strip()


@pytest.mark.parametrize("elapsed", ["0", "43100"], ids=["early", "at the end of the whole time"])
def test_a_signal_after_the_commands_end_leaves_it_a_success(tmp_path: Path, elapsed: str) -> None:
    """The command was never told: it did what it had to do."""
    late = 'sleep() { kill -USR1 $$; /bin/sleep "$@"; }'
    assert decided(tmp_path, late, "exit 0", RV_TOTAL_ELAPSED=elapsed) == "done"


def test_a_command_that_was_told_goes_on(tmp_path: Path) -> None:
    """Its code 0 says that it saved."""
    assert decided(tmp_path, "kill -USR1 $$", "/bin/sleep 0.5") == "again"


def test_the_patience_counts_from_when_the_command_was_told(tmp_path: Path) -> None:
    """A signal may come long before the command begins, which then crashes by itself."""
    long_ago = "SECONDS=200 rv_signalled=100"
    assert decided(tmp_path, long_ago, "/bin/sleep 0.5; exit 3") == "crashed"


@pytest.mark.parametrize(
    ("following", "left"), [("done", ["ended"]), ("crashed", ["ended"]), ("again", ["1.ended"])]
)
def test_the_end_of_a_chain_is_written_first(
    tmp_path: Path, following: str, left: list[str]
) -> None:
    """A job that is killed between the two files has said all that counts."""
    killed = 'mv() { /bin/mv "$@"; kill -KILL $$; }; rv_enter() { :; }; rv_code=0'
    writing = of_a_chain(r'rv_enter \|\| exit "', "^fi")
    play(tmp_path, f"{killed}; rv_decide() {{ rv_next={following}; }}\n{writing}")
    assert [path.name for path in tmp_path.rglob("*ended") if path.name[0] != "."] == left


def test_a_chains_end_is_there_where_only_the_segments_had_room(tmp_path: Path) -> None:
    """Its tries were over when the disk was cleaned up."""
    writing = of_a_chain(r'rv_enter \|\| exit "', "^fi")
    made_up = (
        "sync() { [[ $1 != .ended* || $(wc -l <tries) -ge 5 ]] || { echo >>tries; false; }; }; "
        "sleep() { :; }; rv_enter() { :; }; rv_decide() { rv_next=done; }; rv_code=0; "
        "rv_cancel_others() { :; }; rv_cancel_next() { :; }; rv_sender=; : >tries"
    )
    play(tmp_path, f"{made_up}\n{writing}")
    ends = [tmp_path / name for name in ("ended", "segments/1.ended")]
    assert ends[0].read_text() == ends[1].read_text() != ""


@pytest.mark.parametrize(
    ("following", "goes_on", "is_over"),
    [("done", "", True), ("crashed", "", True), ("again", "2\n", False), ("", "", False)],
)
@pytest.mark.parametrize("job", ["11", "12"], ids=["put back", "of the next segment"])
def test_a_job_after_the_last_segment_writes_the_end_that_is_missing(
    tmp_path: Path, job: str, following: str, goes_on: str, *, is_over: bool
) -> None:
    """What the segment's own file says, under the name that counts."""
    end = f"11.0.aa\ncode=0\nsignal=\nnext={following}\n"
    (tmp_path / "segments").mkdir()
    (tmp_path / "segments" / "1").write_text("11.0.aa\nsegment=1\nwhole\n")
    (tmp_path / "segments" / "1.ended").write_text(end)
    functions = f"{of_a_chain(r'rv_field', '^}')}\nrv_was_cancelled() {{ false; }}\nset -- 11\n"
    entering = of_a_chain(r"rv_signalled=''", "^esac")
    done = play(tmp_path, f"{functions}{entering}\necho $RV_SEGMENT", SLURM_JOB_ID=job)
    assert (done.returncode, done.stdout, done.stderr) == (0, goes_on, "")
    assert (tmp_path / "ended").exists() == is_over
    assert not is_over or (tmp_path / "ended").read_text() == end


@pytest.mark.parametrize("last", ["0", "1"], ids=["first", "put back"])
def test_a_claim_needs_no_room(tmp_path: Path, last: str) -> None:
    """A quota that runs out as the segment is claimed would leave the race to nobody."""
    for name in ("segments", "claims"):
        (tmp_path / name).mkdir()
    (tmp_path / "claims" / "11.0.aa").write_text("11.0.aa\nwhole\n")
    if last == "1":
        for name in ("claim", "segments/1"):
            (tmp_path / name).write_text("11.0.earlier\nwhole\n")
    claiming = of_a_chain(r'if \[ "\$RV_SEGMENT" -eq "\$rv_last" \]', "claim .*?exit 1")
    done = play(tmp_path, f"ulimit -f 0\n{claiming}\necho claimed", rv_last=last)
    assert (done.stdout, done.stderr) == ("claimed\n", "")
    for name in ("claim", "segments/1"):
        assert (tmp_path / name).read_text() == "11.0.aa\nwhole\n"


def test_the_helper_of_a_script_that_was_killed_ends(tmp_path: Path) -> None:
    """Its process number is somebody else's by and by, and no signal may go there."""
    golden = (TEMPLATES.parent / "tests" / "golden" / "single_node.sh").read_text(encoding="utf-8")
    watch = golden[golden.index("rv_watch() {") : golden.index("rv_watcher=$!")]
    script = tmp_path / "job"
    script.write_text(
        f"rv_exists() {{ :; }}\nrv_pid=$$\ntrap '' TERM\n{watch.replace('sleep 30', 'sleep 0.3')}"
        'echo "$!"\nread -r _\n',
        encoding="utf-8",
    )
    with subprocess.Popen(
        ["bash", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as job:
        assert job.stdout
        helper = int(job.stdout.readline())
        job.kill()
    deadline = time.monotonic() + 20
    while runs(helper):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def runs(process: int) -> bool:
    """Whether it has not ended; the machine's first process may not have noticed yet that it did."""
    try:
        return " Z " not in Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(("last", "left"), [(1, "again/2"), (0, "exhausted/2")])
def test_a_node_that_failed_a_larger_layout_is_left_to_a_later_segment(
    tmp_path: Path, last: int, left: str
) -> None:
    """Of two nodes one failed this layout's check: the other is tried, and not kept off."""
    golden = (TEMPLATES.parent / "tests" / "golden" / "switch.sh").read_text(encoding="utf-8")
    text = golden[golden.index("rv_has_left() {") : golden.index("\nrv_reject_node() {")]
    for folder in ("declined", "again", "exhausted", "turns"):
        (tmp_path / folder).mkdir()
    (tmp_path / "declined" / "a100n1").write_text("GPU 3 is in use\n")
    (tmp_path / "declined" / "a100n2").write_text("nvidia-smi failed\n")
    helpers = (
        'rv_say() { :; }\nrv_exists() { [ -e "$1" ]; }\nrv_state_file() { echo "$2" >"$1"; }\n'
        f"RV_RACE_DIR={tmp_path} RV_RANK=1 SLURM_JOB_ID=7 rv_last={last} RV_SEGMENT={last + 1}\n"
    )
    bin_folder = tmp_path / "bin"  # without scontrol
    bin_folder.mkdir()
    for program in ("grep", "rm"):
        (bin_folder / program).symlink_to(f"/bin/{program}")
    script = f"{helpers}{text}\nrv_leave_node 'a100n2: nvidia-smi failed'"
    subprocess.run(
        ["/bin/bash", "-c", script], cwd=tmp_path, env={"PATH": str(bin_folder)}, timeout=60
    )
    (mark,) = [*tmp_path.glob("again/*"), *tmp_path.glob("exhausted/*")]
    assert mark.relative_to(tmp_path) == Path(left)
    if last:
        assert mark.read_text().splitlines() == ["a100n2", "7"]


def test_jobs_have_ports_of_their_own() -> None:
    """Seven apart in a cluster, elsewhere in another on the same machine: no job can probe them."""

    def port(job_id: int, cluster: str, conf: str = "/etc/slurm/slurm.conf") -> int:
        golden = (TEMPLATES.parent / "tests" / "golden" / "multi_node.sh").read_text("utf-8")
        lines = re.search(r"^rv_cluster=.*?^MASTER_PORT=.*?$", golden, re.DOTALL | re.MULTILINE)
        assert lines
        env = {"SLURM_JOB_ID": str(job_id), "SLURM_CLUSTER_NAME": cluster, "SLURM_CONF": conf}
        script = f"set -u\n{lines[0]}\necho $MASTER_PORT"
        return int(subprocess.check_output(["bash", "-c", script], env={"PATH": "/usr/bin", **env}))

    ports = [port(job_id, "one") for job_id in range(1, 9)]
    assert all(15000 <= each < 31000 for each in ports)
    assert {(other - one) % 16000 for one, other in pairwise(ports)} == {7}
    assert len({port(1, "one"), port(1, "two"), port(1, "one", "/home/ann/slurm.conf")}) == 3
