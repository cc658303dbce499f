"""Each rule that decides a race's state, by its name, and the page that is generated from them.

`GOLDEN=write tests/run.sh tests/unit/race/test_rules.py` rewrites docs/how-rv-decides.md.
"""

import os
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from rv.models.job import JobRecord, JobState
from rv.models.race import Race, RaceState, StateFiles
from rv.race.facts import Facts
from rv.race.rules import SECTIONS, Rule, Section, decide
from rv.race.sources import Sources
from rv.race.status import resolve
from tests.unit.race.test_chain import AGAIN, CHAINED, CRASHED, FIRST, after, chained
from tests.unit.race.test_status import (
    IDS,
    LATE,
    RACE,
    SENT,
    T0,
    WON,
    asked,
    ended,
    record,
    sent,
    won,
)

PAGE = Path(__file__).parents[3] / "docs" / "how-rv-decides.md"
RULES = [rule for section in SECTIONS for rule in section.rules]
S = RaceState
NOW = T0 + 9
DELETED = replace(SENT, deleted=True)
TERM = won(ended=ended(143, "TERM"))
BETWEEN = chained(FIRST, AGAIN)
LAST = chained(FIRST, CRASHED)
LIMITED = replace(
    RACE, entries=tuple(replace(e, walltime=timedelta(seconds=4)) for e in RACE.entries)
)


def slurm(*records: JobRecord, now_s: float = NOW, forgotten: tuple[int, ...] = ()) -> Sources:
    """What Slurm answers."""
    return Sources(records=records, now_s=now_s, queue_answered=True, forgotten=forgotten)


SILENT = Sources(records=(), now_s=NOW)
Case = tuple[Race, StateFiles, Sources, RaceState, str]
CASES: dict[str, Case] = {
    "deleted, jobs left": (RACE, DELETED, slurm(record("PENDING")), S.PENDING, "its race directory was deleted"),
    "deleted, no job known": (RACE, DELETED, slurm(), S.ENDED, "its race directory was deleted"),
    "deleted, Slurm silent": (RACE, DELETED, SILENT, S.UNKNOWN, "its race directory was deleted"),
    "deleted, jobs cancelled": (RACE, DELETED, slurm(record("CANCELLED")), S.CANCELLED, "its race directory was deleted"),
    "deleted, a job completed": (RACE, DELETED, slurm(record("COMPLETED")), S.ENDED, "its race directory was deleted; Slurm says COMPLETED"),
    "deleted, jobs failed": (RACE, DELETED, slurm(record("FAILED"), record("TIMEOUT", 2)), S.FAILED, "its race directory was deleted; Slurm says FAILED, TIMEOUT"),
    "stopping": (RACE, sent(stopped=True), slurm(record("COMPLETING")), S.PENDING, "stopped; its jobs are being cancelled"),
    "waiting": (RACE, SENT, slurm(record("PENDING", reason="Resources")), S.PENDING, "Resources"),
    "closed": (RACE, StateFiles(stopped=True, closed="it was never submitted"), slurm(), S.CANCELLED, "it was never submitted"),
    "stopped": (RACE, sent(stopped=True), slurm(record("CANCELLED")), S.CANCELLED, "stopped by you"),
    "forgotten by Slurm": (RACE, SENT, slurm(forgotten=(1,)), S.PENDING, "Slurm took job 1, lost it, and is to be sent it again"),
    "another submission unconfirmed": (RACE, asked(2, job_ids=IDS[:1]), slurm(), S.PENDING, "job 2 is unconfirmed: it was sent 9 s ago and no answer was heard"),
    "submission unconfirmed": (RACE, asked(1), slurm(), S.STAGED, "job 1 is unconfirmed: it was sent 9 s ago and no answer was heard"),
    "refused": (RACE, StateFiles(refused=((1, "bad"), (2, "worse"))), slurm(), S.REFUSED, "bad"),
    "unconfirmed for a day": (RACE, asked(1), slurm(now_s=T0 + 2 * 86400), S.CANCELLED, "it was never known to be submitted, for a day"),
    "never submitted": (RACE, StateFiles(unsent_since=T0), slurm(now_s=LATE), S.CANCELLED, "it was never submitted"),
    "staged": (RACE, StateFiles(unsent_since=T0), slurm(), S.STAGED, "nothing is known to be submitted yet"),
    "to be submitted again": (RACE, sent(again=(1,)), slurm(record("COMPLETED")), S.PENDING, "a job that left a rejected node waits to be submitted again"),
    "jobs unknown": (RACE, SENT, slurm(), S.UNKNOWN, "Slurm does not know its jobs now"),
    "completed, claim not seen": (RACE, sent(unclaimed_since=NOW - 59), slurm(record("COMPLETED"), record("CANCELLED", 2)), S.UNKNOWN, "job 11 completed, and its claim does not show here yet"),
    "completed without a claim": (RACE, sent(unclaimed_since=NOW - 60), slurm(record("COMPLETED"), record("CANCELLED", 2)), S.ENDED, "job 11 completed, and no claim of it shows: cause unknown"),
    "nodes rejected": (RACE, sent(exhausted=((1, "x"), (2, "x")), declined=(("a1", "no GPU"),)), slurm(), S.DECLINED, "every node failed the node check: a1: no GPU"),
    "ended by Slurm before the start": (RACE, SENT, slurm(record("TIMEOUT"), record("TIMEOUT", 2)), S.TIMEOUT, "no job started the command"),
    "ended before the start": (RACE, SENT, slurm(record("NODE_FAIL", nodes="a1"), record("FAILED", 2)), S.FAILED, "every job ended without starting the command (NODE_FAIL on a1)"),
    "vanished before the start": (RACE, sent(absent_since=((1, T0), (2, T0))), slurm(now_s=T0 + 29), S.ENDED, "its jobs have vanished and none started the command: cause unknown"),
    "stopped before more began": (RACE, won(ended=ended(143, "STOP"), stopped=True), slurm(record("COMPLETED")), S.CANCELLED, "stopped by you"),
    "requeued under its command": (RACE, TERM, slurm(record("PENDING", restarts=1)), S.LOST, "Slurm requeued job 11 after its claim on a1"),
    "succeeded, node out of touch": (RACE, won(ended=ended(), lost="restarted"), slurm(), S.COMPLETED, "the node was out of touch meanwhile: restarted"),
    "succeeded": (RACE, won(ended=ended()), slurm(), S.COMPLETED, ""),
    "chain out of time": (CHAINED, won(ended=replace(ended(1, "TIME"), why="no time is left")), slurm(), S.TIMEOUT, "no time is left"),
    "signal on a lost node": (RACE, TERM, slurm(record("NODE_FAIL")), S.LOST, "Slurm says NODE_FAIL"),
    "stopped by rv": (RACE, replace(TERM, stopped=True), slurm(record("CANCELLED")), S.CANCELLED, "stopped by you"),
    "ended by Slurm": (RACE, TERM, slurm(record("PREEMPTED")), S.PREEMPTED, "Slurm says PREEMPTED"),
    "ended at the time limit": (LIMITED, TERM, slurm(), S.TIMEOUT, "Slurm's SIGTERM came at the time limit"),
    "ended by a signal": (RACE, TERM, slurm(), S.CANCELLED, "the job was ended by Slurm (SIGTERM)"),
    "failed, node out of touch": (RACE, won(ended=ended(4)), slurm(record("NODE_FAIL")), S.FAILED, "the node was out of touch meanwhile: Slurm says NODE_FAIL"),
    "failed": (RACE, won(ended=ended(3)), slurm(), S.FAILED, "the command ended with code 3"),
    "stopped after its claim": (CHAINED, replace(BETWEEN, stopped=True), slurm(), S.CANCELLED, "stopped by you"),
    "cancelled between segments": (CHAINED, BETWEEN, slurm(record("CANCELLED"), after("PENDING")), S.CANCELLED, "Slurm says CANCELLED"),
    "segment waits": (CHAINED, BETWEEN, slurm(after("PENDING", reason="Resources")), S.PENDING, "segment 2 waits: Resources"),
    "segment checks its node": (CHAINED, chained(), slurm(record("RUNNING", restarts=1)), S.PENDING, "segment 1 is starting"),
    "segment is being sent": (CHAINED, BETWEEN, slurm(record("COMPLETING")), S.PENDING, "segment 2 is starting"),
    "stopped between segments": (CHAINED, replace(BETWEEN, stopped=True, segments=(), unended_since=T0 - 60), slurm(record("COMPLETED")), S.CANCELLED, "stopped by you"),
    "segment to be submitted again": (CHAINED, replace(BETWEEN, again=(1,)), slurm(record("COMPLETED", restarts=1)), S.PENDING, "a job that left a rejected node waits to be submitted again"),
    "segment's nodes rejected": (CHAINED, replace(BETWEEN, exhausted=((1, "x"),), declined=(("a1", "no GPU"),)), slurm(record("COMPLETED", restarts=1)), S.DECLINED, "every node failed the node check: a1: no GPU"),
    "over, end not seen": (CHAINED, chained(unended_since=NOW - 59), slurm(record("FAILED")), S.UNKNOWN, "job 11 is FAILED, and its end does not show here yet"),
    "completed without an end": (CHAINED, chained(unended_since=NOW - 60), slurm(record("COMPLETED")), S.ENDED, "Slurm says COMPLETED; segment 1 left no end: cause unknown"),
    "completed, next not seen": (CHAINED, BETWEEN, slurm(record("COMPLETED")), S.UNKNOWN, "job 11 completed, and no next one shows yet"),
    "next segment was not sent": (CHAINED, BETWEEN, slurm(record("FAILED")), S.PENDING, "the segment's job ended, and the next is to be sent"),
    "completed after a segment": (CHAINED, replace(LAST, unended_since=NOW - 60), slurm(record("COMPLETED")), S.ENDED, "job 11 completed, and no next one shows: cause unknown"),
    "chain preempted": (CHAINED, BETWEEN, slurm(record("PREEMPTED")), S.PENDING, "it was preempted, and its next segment is to be sent"),
    "next segment did not begin": (CHAINED, BETWEEN, slurm(after("CANCELLED")), S.CANCELLED, "job 13 of segment 2 ended before it began"),
    "node failed after a segment": (CHAINED, BETWEEN, slurm(record("NODE_FAIL")), S.LOST, "Slurm says NODE_FAIL for job 11 on a1"),
    "segment timed out": (CHAINED, BETWEEN, slurm(record("TIMEOUT")), S.PENDING, "the segment ended at its time limit, and the next is to be sent"),
    "ended after a segment": (CHAINED, LAST, slurm(record("DEADLINE")), S.DEADLINE, "Slurm says DEADLINE"),
    "vanished after a segment": (CHAINED, replace(BETWEEN, winner_absent_since=T0), slurm(), S.ENDED, "job 11 started on a1, left no exit file, and Slurm has not known it for 9 s: cause unknown"),
    "unknown after a segment": (CHAINED, BETWEEN, slurm(), S.UNKNOWN, "Slurm does not know job 11 now"),
    "restarted after its claim": (RACE, won(lost="restarted"), slurm(), S.LOST, "restarted"),
    "vanished": (RACE, won(absent_since=((1, T0),)), slurm(), S.ENDED, "job 11 started on a1, left no exit file, and Slurm has not known it for 9 s: cause unknown"),
    "state not known to rv": (RACE, WON, slurm(record("HIBERNATING", reason="HIBERNATING")), S.UNKNOWN, "Slurm calls job 11 HIBERNATING"),
    "not known now": (RACE, WON, slurm(), S.UNKNOWN, "Slurm does not know job 11 now"),
    "vanished, accounting unaware": (RACE, won(absent_since=((1, T0),)), slurm(record("RUNNING", source="sacct"), now_s=T0 + 900), S.ENDED, "job 11 started on a1, left no exit file, and Slurm has not known it for 900 s: cause unknown"),
    "accounting late": (RACE, WON, slurm(record("RUNNING", source="sacct")), S.RUNNING, "accounting calls job 11 RUNNING"),
    "completed": (RACE, WON, slurm(record("COMPLETED")), S.COMPLETED, "no exit file; Slurm says COMPLETED"),
    "node failed": (RACE, WON, slurm(record("BOOT_FAIL")), S.LOST, "Slurm says BOOT_FAIL for job 11 on a1"),
    "ended without an exit file": (RACE, WON, slurm(record("CANCELLED", reason="by uid 0")), S.CANCELLED, "Slurm says CANCELLED by uid 0"),
    "requeued after its claim": (RACE, WON, slurm(record("RUNNING", restarts=1)), S.LOST, "Slurm requeued job 11 after its claim on a1"),
    "running": (RACE, WON, slurm(record("RUNNING")), S.RUNNING, ""),
}  # fmt: skip


@pytest.mark.parametrize("name", [rule.name for rule in RULES])
def test_the_rule_decides(name: str) -> None:
    """Each rule has a case of its name, in which it is the first that applies."""
    race, files, sources, state, why = CASES[name]
    status = resolve(race, files, sources)
    facts = Facts(race=race, files=files, sources=sources, jobs=status.jobs)
    assert decide(facts).rule.name == name
    assert (status.state, status.why) == (state, why)


def test_no_case_is_left_over() -> None:
    """Each belongs to a rule, and no two rules share a name."""
    names = [rule.name for rule in RULES]
    assert len(set(names)) == len(names)
    assert set(names) == set(CASES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_names_all_states_that_it_may_give(rule: Rule) -> None:
    """They are those that come out when Slurm's records are of each job state in turn."""
    race, files, sources, _, _ = CASES[rule.name]
    given = set()
    for job_state in JobState:
        records = tuple(replace(record, state=job_state) for record in sources.records)
        asked_with = replace(sources, records=records)
        jobs = resolve(race, files, asked_with).jobs
        decision = decide(Facts(race=race, files=files, sources=asked_with, jobs=jobs))
        if decision.rule is rule:
            given.add(decision.state)
    named = {rule.state} if isinstance(rule.state, RaceState) else set(rule.may_be)
    assert given == named


HEAD = """# How rv decides what state a race is in

This page is generated from `rv/race/rules.py`; after a change there, `GOLDEN=write tests/run.sh
tests/unit/race/test_rules.py` writes it anew.

rv keeps no daemon and no database. Each command looks at what is there now, and goes through the
rules below from top to bottom: **the first rule whose condition holds decides**, and its sentence is
the `why` of `rv ps --json`. A section's condition holds for all rules in it. What the sources are:

| source | what it is |
|---|---|
| claim | the file `claim` in the race directory: the job that won, made by a hard link, once |
| exit file | the file `ended`: the winner's job writes how its command ended; it counts only from the claim's own instance |
| state files | the other files there: `jobs/N.id` (accepted), `jobs/N.sent`, `jobs/N.refused`, `declined/NODE`, `exhausted/N`, `again/N`, `absent/N`, `absent/OWNER`, `segments/K`, `lost`, `stop` |
| queue | `squeue`, and `scontrol show job` for a job that has left the queue |
| accounting | `sacct`, which may lag by seconds, know nothing, or be missing |

The race directory is believed first, then the controller, then accounting. That a job is absent is
neither a failure nor a success. "For long" is longer than Slurm's `MinJobAge`, measured from when a
healthy controller first did not know the job; before anybody claimed, also longer than twice its
`MessageTimeout`.
"""


def page() -> str:
    """Write the rules as a page."""
    return "\n".join([HEAD, *(text for section in SECTIONS for text in _section(section))])


def _section(section: Section) -> list[str]:
    first = 1 + RULES.index(section.rules[0])
    rows = [_row(number, rule, section) for number, rule in enumerate(section.rules, first)]
    head = "| # | rule | condition | sources | state | why |\n|---|---|---|---|---|---|"
    return [f"## {section.title}\n", head, *rows, ""]


def _row(number: int, rule: Rule, section: Section) -> str:
    state = rule.state if isinstance(rule.state, RaceState) else _states(rule, rule.state)
    sources = ", ".join(dict.fromkeys((*section.sources, *rule.sources)))
    says = re.sub(r"\{([\w.]+)\}", lambda fact: f"*{re.sub(r'[._]', ' ', fact[1])}*", rule.says)
    return f"| {number} | {rule.name} | {rule.when} | {sources} | {state} | {says} |"


def _states(rule: Rule, choose: Callable[[Facts], RaceState]) -> str:
    """Name what a rule may give, and how it is chosen."""
    how = (choose.__doc__ or "").removeprefix("Return ").rstrip(".")
    return f"{', '.join(rule.may_be)}: {how}"


def test_the_page_is_current() -> None:
    """What the page says is what the rules do."""
    if os.environ.get("GOLDEN") == "write":
        PAGE.write_text(page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page(), (
        "GOLDEN=write rewrites docs/how-rv-decides.md"
    )
