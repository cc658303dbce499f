"""What the watcher asks about its own jobs, on what a real 22.05 answered."""

import os
import subprocess
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rv.models.job import JobRecord, JobState
from rv.slurm import sacct, scontrol, squeue, squeue_scripts

DATA = Path(__file__).parents[2] / "data" / "slurm"
S = "rv0123456789abcdef"
SINCE = datetime.fromisoformat("2026-11-21T04:00:00")
PARSERS = [squeue.parse_squeue_own, scontrol.parse_show_job, sacct.parse_sacct]


def captured(name: str) -> str:
    return (DATA / "22.05" / f"{name}.txt").read_text()


def test_queue() -> None:
    """Only rv's jobs; a plan is no start, and a limit is no end."""
    found = {job.job_id: job for job in squeue.parse_squeue_own(captured("own_queue"), S) or ()}
    assert sorted(found) == [3, 12, 13, 14, 15, 16]
    assert (found[3].state, found[3].nodes, found[3].ended) == (JobState.RUNNING, "wolf[1-2]", None)
    requeued = found[14]
    assert (requeued.state, requeued.reason, requeued.restarts, requeued.started) == (
        JobState.PENDING,
        "BeginTime",
        1,
        None,
    )
    assert requeued.planned_start == datetime.fromisoformat("2026-11-21T09:16:19")
    assert (found[13].state, found[13].started is not None, found[13].ended is not None) == (
        JobState.COMPLETED,
        True,
        True,
    )


def test_show_jobs() -> None:
    """Exit code, signal, restarts and nodes; an id unknown to the controller is absent."""
    found = {job.job_id: job for job in scontrol.parse_show_job(captured("own_show_jobs"), S) or ()}
    assert sorted(found) == [3, 12, 13, 14, 15, 16]
    assert (found[15].name, found[15].exit_code, found[15].signal) == ("rv-abc-7", 3, 0)
    assert (found[12].exit_code, found[12].signal) == (0, 9)
    assert (found[3].exit_code, found[3].ended) == (None, None)
    assert (found[14].restarts, found[14].nodes) == (1, "")


def test_sacct() -> None:
    """Every record of a name, newest last; `CANCELLED by 0` and REQUEUED are states."""
    found = sacct.parse_sacct(captured("own_sacct"), S) or ()
    by_name = [(job.job_id, job.state, job.exit_code) for job in found if job.name == "rv-abc-2"]
    assert by_name == [
        (4, JobState.FAILED, 3),
        (8, JobState.FAILED, 3),
        (16, JobState.CANCELLED, 0),
    ]
    assert [job.state for job in found if job.job_id == 14] == [JobState.REQUEUED]
    submitted = [job.submitted for job in found if job.submitted]
    assert submitted == sorted(submitted)


def test_sacct_sorts_by_submission() -> None:
    """A requeued job's newest record is last, in whatever order the database gave them."""
    *rows, end = captured("own_sacct").removesuffix("\n").rsplit("\n", 2)
    shuffled = "\n".join([*reversed(rows[0].split("\n")), "", end, ""])
    found = sacct.parse_sacct(shuffled, S) or ()
    assert [job.job_id for job in found if job.name == "rv-abc-2"] == [4, 8, 16]


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize(
    "text",
    [
        "",
        f"\n{S} end 1\n",
        f"\n{S} end 127\n",
        "slurm_load_jobs error",
        f"5{S}|RUNNING|",
        f"x {S} end 0",
    ],
)
def test_a_failed_answer_is_not_an_empty_one(parse: object, text: str) -> None:
    """An error, or an answer without its last line, is None: never "no jobs"."""
    assert parse(text, S) is None  # type: ignore[operator]


@pytest.mark.parametrize("parse", PARSERS)
def test_no_jobs(parse: object) -> None:
    """A command that succeeded with nothing to say found no jobs."""
    assert parse(f"\n{S} end 0\n", S) == ()  # type: ignore[operator]


def test_a_job_name_forges_no_row_and_no_end() -> None:
    """Other jobs' names with newlines and the look of rows add nothing."""
    row = f"7{S}|RUNNING|0|N/A|N/A|N/A|cpu|a|None|{S}|(null)|{S}|rv-x-1|"
    evil = f"8{S}|RUNNING|0|N/A|N/A|N/A|cpu|a|None|{S}|(null)|{S}|evil\n9SENT|COMPLETED|0|N/A|N/A|N/A|cpu|a|None|SENT|(null)|SENT|rv-x-1|\nSENT end 1|"
    found = squeue.parse_squeue_own(f"{evil}\n{row}\n\n{S} end 0\n", S)
    assert [(job.job_id, job.state) for job in found or ()] == [(7, JobState.RUNNING)]


def test_a_shown_name_cannot_set_the_state() -> None:
    """A name with spaces and keys stays a name."""
    line = f"{S} job JobId=7 JobName=x JobState=COMPLETED UserId=a(1) JobState=RUNNING Restarts=2 ExitCode=0:0\n\n{S} end 0\n"
    (job,) = scontrol.parse_show_job(line, S) or ()
    assert (job.state, job.restarts) == (JobState.RUNNING, 2)


def test_unknown_words_and_missing_columns() -> None:
    """A state not yet invented is UNKNOWN, and missing keys are empty."""
    (job,) = (
        scontrol.parse_show_job(
            f"{S} job JobId=7 JobName=rv-a-1 UserId=a(1) JobState=QUANTUM\n\n{S} end 0\n", S
        )
        or ()
    )
    assert (job.state, job.exit_code, job.nodes) == (JobState.UNKNOWN, None, "")


@pytest.mark.parametrize("parse", PARSERS)
def test_any_answer_is_read_and_hides_no_job(parse: object) -> None:
    """Whatever lines an answer has, it gives records, and a well-formed row after them is one."""
    whole = {
        squeue.parse_squeue_own: f"77{S}|RUNNING|0|N/A|N/A|N/A|cpu|a|None|{S}|(null)|{S}|rv-x-1|",
        scontrol.parse_show_job: f"{S} job JobId=77 JobName=rv-x-1 UserId=a(1) JobState=RUNNING",
        sacct.parse_sacct: f"|{S}|".join(
            ["77", "RUNNING", "0:0", "", "", "", "cpu", "a", "/root", "rv-x-1"]
        ),
    }[parse]  # type: ignore[index]
    pieces = [
        S,
        "|",
        "\n",
        " job JobId=",
        "7",
        " JobName=rv-a-1 UserId=x JobState=",
        "RUNNING",
        " end 0\n",
        "rv-a-1",
        f"|{S}|",
        "9" * 30,
        "²",
    ]

    @given(st.text() | st.lists(st.sampled_from(pieces)).map("".join))
    def check(text: str) -> None:
        jobs = parse(f"{text}\n{whole}\n{S} end 0\n", S)  # type: ignore[operator]
        assert all(isinstance(job, JobRecord) for job in jobs)
        assert (77, "rv-x-1", JobState.RUNNING) in [(j.job_id, j.name, j.state) for j in jobs]

    check()


SCRIPTS = [
    squeue_scripts.squeue_own_script(S),
    squeue_scripts.squeue_by_name_script(["rv-a-1", "x'; echo oops"], S),
    scontrol.show_job_script([1, 2], S),
    scontrol.show_job_script([], S),
    sacct.sacct_script(["rv-a-1"], SINCE, S),
]


@pytest.mark.parametrize(("size", "behind"), [("0", False), ("7", True), ("-", False)])
def test_accounting_is_behind_while_the_controller_has_news_for_it(
    size: str, behind: bool, tmp_path: Path
) -> None:
    """As sdiag counts it; a site may keep that to itself."""
    for name, text in {"sdiag": f"DBD Agent queue size: {size}", "sacct": f"1|{S}|"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\necho '{text}'\n")
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    script = sacct.sacct_script(["rv-a-1"], SINCE, S)
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True)
    assert sacct.is_behind(done.stdout, S) is behind
    assert sacct.parse_sacct(done.stdout, S) == ()


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_are_bash_and_report_failure(script: str, tmp_path: Path) -> None:
    """On a machine without Slurm every script ends by saying that it failed (or asked nothing)."""
    tools = ("bash", "timeout", "id")
    for tool in tools:
        (tmp_path / tool).symlink_to(f"/usr/bin/{tool}")
    done = subprocess.run(
        ["/bin/bash", "-c", script], env={"PATH": str(tmp_path)}, capture_output=True, text=True
    )
    expected = "0" if script == SCRIPTS[3] else ("1" if "show()" in script else "127")
    assert done.stdout.endswith(f"\n{S} end {expected}\n")
    assert "oops" not in done.stdout.split("\n")


@pytest.mark.parametrize(
    ("answer", "code", "expected"),
    [
        ("JobId=7 JobName=rv-a-1 UserId=a(1) JobState=RUNNING", 0, [7]),
        ("scontrol: warning: odd\nJobId=7 JobName=rv-a-1 UserId=a(1) JobState=RUNNING", 0, [7]),
        ("JobId=7 JobName=x\nJobId=9 JobName=rv-a-1 UserId=a(1) JobState=COMPLETED", 0, []),
        ("slurm_load_jobs error: Invalid job id specified", 1, []),
        ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)", 1, None),
    ],
)
def test_show_jobs_script(
    answer: str, code: int, expected: list[int] | None, tmp_path: Path
) -> None:
    """Unknown ids are absent, a silent controller is None, and only a first record counts."""
    command = tmp_path / "scontrol"
    command.write_text(f"#!/bin/bash\ncat <<'END'\n{answer}\nEND\nexit {code}\n")
    command.chmod(0o755)
    done = subprocess.run(
        ["bash", "-c", scontrol.show_job_script([7], S)],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    found = scontrol.parse_show_job(done.stdout, S)
    assert (found if found is None else [job.job_id for job in found]) == expected


def accounted(*rows: str) -> tuple[JobRecord, ...]:
    """Rows of sacct: id, state, code, submitted, started, ended, partition, nodes, directory, name."""
    lines = "\n".join(row.replace(" ", f"|{S}|") for row in rows)
    return sacct.parse_sacct(f"{lines}\n\n{S} end 0\n", S) or ()


T1, T2 = "2026-11-21T09:01:50", "2026-11-21T09:02:10"


def test_an_end_without_a_time_is_no_end() -> None:
    """The late record of a start says FAILED 0:0 before the real one, 0:9, comes."""
    (early,) = accounted(f"7 FAILED 0:0 {T1} {T1} Unknown gpu a1 /root rv-a-1")
    assert (early.state, early.exit_code, early.ended) == (JobState.RUNNING, None, None)
    (final,) = accounted(f"7 FAILED 0:9 {T1} {T1} {T2} gpu a1 /root rv-a-1")
    assert (final.state, final.exit_code, final.signal) == (JobState.FAILED, 0, 9)


def test_who_cancelled_a_job_is_known() -> None:
    """Accounting names the user by number."""
    row = f"7 CANCELLED 0:0 {T1} {T1} {T2} gpu a1 /root rv-a-1".replace(
        " CANCELLED", " CANCELLED_by_0"
    )
    text = row.replace(" ", f"|{S}|").replace("_", " ")
    (job,) = sacct.parse_sacct(f"{text}\n\n{S} end 0\n", S) or ()
    assert (job.state, job.reason) == (JobState.CANCELLED, "by uid 0")


def test_a_state_without_a_name_here_keeps_slurms_word() -> None:
    """So that it can be shown; it is no failure and no success."""
    row = f"7{S}|HIBERNATING|0|N/A|N/A|N/A|cpu|a|None|{S}|(null)|{S}|rv-x-1|"
    (job,) = squeue.parse_squeue_own(f"{row}\n\n{S} end 0\n", S) or ()
    assert (job.state, job.reason) == (JobState.UNKNOWN, "HIBERNATING")


def test_a_renamed_job_keeps_the_name_that_rv_gave_it() -> None:
    """By the script that was submitted; another program's script, or none, says nothing."""
    races = "/home/a b/races"
    given = {
        f"{races}/abcd2345/jobs/3.sh": "rv-abcd2345-3",
        f"{races}/abcd2345/jobs/0.sh": "rv-abcd2345-next",
        f"{races}/abcd2345/jobs/0.sh 12": "rv-abcd2345-next",  # newer Slurm adds the arguments
        f"{races}/abcd2345/jobs/3.shell": "mine",
        "(null)": "mine",
    }
    for command, name in given.items():
        line = f"{S} job JobId=7 JobName=mine UserId=a(1) JobState=RUNNING Command={command}"
        (shown,) = scontrol.parse_show_job(f"{line}\n\n{S} end 0\n", S) or ()
        assert shown.name == name
        row = f"7{S}|RUNNING|0|N/A|N/A|N/A|cpu|a|None|{S}|{command}|{S}|mine|"
        queued = squeue.parse_squeue_own(f"{row}\n\n{S} end 0\n", S) or ()
        assert [job.name for job in queued] == [name] * (name != "mine")


def test_arrays_and_parts_of_het_jobs_are_not_ours() -> None:
    """Other tools send them, under any name: no id of ours looks like theirs."""
    rows = [
        f"{job_id}{S}|PENDING|0|N/A|N/A|N/A|cpu|a|None|{S}|(null)|{S}|rv-abcdefgh-1|"
        for job_id in ("61_[2-20%2]", "61_3", "70+0", "71+1", "62")
    ]
    found = squeue.parse_squeue_own("\n".join([*rows, "", f"{S} end 0", ""]), S)
    assert [job.job_id for job in found or ()] == [62]
    kept = accounted(
        *(f"{i} COMPLETED 0:0 {T1} {T1} {T2} gpu a1 /root rv-a-1" for i in ("6_3", "7+0", "8"))
    )
    assert [job.job_id for job in kept] == [8]
    line = (
        f"{S} job JobId=61 ArrayJobId=61 ArrayTaskId=2-20 JobName=rv-a-1 UserId=a(1) JobState=PENDING"
        f"\n{S} job JobId=70 HetJobId=70 HetJobOffset=0 JobName=b UserId=a(1) JobState=RUNNING\n"
    )
    shown = scontrol.parse_show_job(f"{line}\n{S} end 0\n", S) or ()
    assert [(job.job_id, job.name) for job in shown] == [(61, "rv-a-1"), (70, "b")]
