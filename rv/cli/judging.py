"""From the end of an acceptance race to its verdict: fetch, keep, judge, show, exit."""

from collections.abc import Sequence

import typer

from rv.accept.avoided import DAYS, BadNode, load, update
from rv.accept.catalogue import Payload, Profile
from rv.accept.collect import patterns
from rv.accept.failing import bad_nodes, cleared
from rv.accept.judgement import judged, remember
from rv.accept.store import Run, RunRecord, save
from rv.accept.verdict import exit_code
from rv.cli.launching import Raced
from rv.cli.options import RequestOptions
from rv.models.race import RaceStatus
from rv.slurm.hostlist import expand
from rv.transport import Transport
from rv.ui import console


def finish(
    raced: Raced,
    payloads: Sequence[Payload],
    profile: Profile,
    options: RequestOptions,
    *,
    strict: bool,
    skip_exit_code: int,
) -> None:
    """Fetch what the job left, judge it, show the verdicts, and exit with their code."""
    from rv.ui.acceptance import run_document, run_text

    names = tuple(payload.name for payload in payloads)
    label = raced.here.cluster.label
    record = record_of(raced.status, names, profile, label)
    fetched = fetch(record, raced.status, raced.here.cluster.transport)
    run = judged(fetched)
    remember(fetched)
    note_nodes(run, raced.here.now_s)
    if options.json:
        console.emit_json(run_document(run))
    else:
        console.answer(*run_text(run))
    raise typer.Exit(exit_code(run.results, strict=strict, skip=skip_exit_code))


def record_of(status: RaceStatus, payloads: tuple[str, ...], profile: str, label: str) -> RunRecord:
    """Write down what a race was, for whoever reads its results later."""
    race, claim = status.race, status.claim
    entry = race.winner(claim) if claim else None
    asked = race.request.only_nodes if race.request else ()
    ended = f"the race {status.state}" + (f": {status.why}" if status.why else "")
    return RunRecord(
        race_id=race.race_id,
        cluster=race.cluster,
        label=label,
        profile=profile,
        asked=f"{entry.gpus} x {entry.gpu or 'no GPU'}" if entry else "",
        gpu=entry.gpu if entry else "",
        payloads=payloads,
        submitted_at=race.submitted_at,
        started_at=claim.started_at if claim else 0.0,
        job_id=claim.job_id if claim else 0,
        restart=claim.restart if claim else 0,
        nodes=expand(claim.nodes) if claim else asked,
        ended=ended,
    )


def fetch(record: RunRecord, status: RaceStatus, transport: Transport) -> Run:
    """Bring a race's results here and keep them."""
    wanted = patterns(record.payloads, len(record.nodes))
    files = transport.read_tree(f"{status.race.directory}/results", wanted)
    return save(record, files)


def note_nodes(run: Run, now: float, days: int = DAYS) -> tuple[BadNode, ...]:
    """Remember the nodes that failed, forget those that are good again, and say so."""
    bad = bad_nodes(run.results, run.record.race_id, now, days)
    good = cleared(run.results)
    before = load(run.record.cluster, now)
    if bad or any(entry.node in good for entry in before):
        update(run.record.cluster, bad, good, now)
    for entry in bad:
        console.say(f"{entry.node} {entry.reason}")
    for entry in before:
        if entry.node in good:
            console.say(f"{entry.node} is good again, and no longer avoided")
    return bad
