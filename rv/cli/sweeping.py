"""`rv accept sweep`: one exclusive job on each of many nodes, and one table of what they said."""

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

import typer

from rv.accept import command as lines
from rv.accept import sweeps
from rv.accept.avoided import DAYS
from rv.accept.catalogue import DEFAULT_TIME, PAYLOADS, Payload, Profile, Starts
from rv.accept.failing import admin_text
from rv.accept.find import together
from rv.accept.judgement import judged, remember
from rv.accept.sweeps import NodeState, Sweep
from rv.accept.verdict import exit_code
from rv.cli import caller
from rv.cli.judging import fetch, note_nodes, record_of
from rv.cli.options import RequestOptions, build_request
from rv.errors import EXIT_INTERRUPTED, ErrorKind, RvError
from rv.models.race import RaceStatus
from rv.models.request import Request
from rv.models.snapshot import Node, Snapshot
from rv.slurm.environment import caller_environment
from rv.slurm.hostlist import expand
from rv.ui import console
from rv.workflow.sweep import Sweeper

_EXCLUSIVE: Final = ("exclusive", "")


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """What to sweep, as typed."""

    payloads: Sequence[Payload]
    profile: Profile
    nodes: str = ""
    states: str = ""
    deadline: timedelta | None = None
    max_jobs: int = sweeps.CHUNK
    days: int = DAYS
    resume: str = ""
    faults: Sequence[str] = ()
    strict: bool = False
    skip_exit_code: int = 0


def sweep(options: RequestOptions, wish: Wish) -> None:
    """Sweep the nodes, judge them against each other, show a row a node, and exit.

    Raises `RvError(USAGE)` for a snapshot, where nothing runs.
    """
    from rv.ui.acceptance import sweep_document, sweep_text

    if options.snapshot:
        raise RvError(
            ErrorKind.USAGE, "nothing can be submitted to a snapshot", hint="leave --snapshot out"
        )
    here = caller.current_caller(options.cluster)
    snapshot = here.cluster.take_snapshot()
    if wish.resume:
        known = sweeps.load(wish.resume, here.cluster.key)
        wish = _as_begun(wish, known)
    else:
        known = _begun(options, wish, here, snapshot)
    options = replace(options, time=options.time or DEFAULT_TIME[wish.profile])
    console.say(f"sweep {known.sweep_id} of {len(known.nodes)} nodes on {here.cluster.label}")
    sweeper = _sweeper(options, wish, here, snapshot)
    try:
        known = sweeper.run(known)
    except KeyboardInterrupt:
        console.say(f"detached: rv accept sweep --resume {known.sweep_id} goes on")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    run = together(known, here.cluster.label)
    remember(run)
    run = judged(run)
    bad = note_nodes(run, caller.now_s(), wish.days)
    if options.json:
        console.emit_json(sweep_document(run, bad))
    else:
        console.answer(*sweep_text(run))
        if bad:
            console.answer("\n" + admin_text(bad, here.cluster.label))
    raise typer.Exit(exit_code(run.results, strict=wish.strict, skip=wish.skip_exit_code))


def _begun(options: RequestOptions, wish: Wish, here: caller.Caller, snapshot: Snapshot) -> Sweep:
    partitions = {p.name: p.nodes for p in snapshot.partitions}
    wanted = [name for name in options.partition.split(",") if name]
    chosen = sweeps.choose_nodes(
        snapshot.nodes,
        expand(wish.nodes),
        {name: partitions.get(name, ()) for name in wanted},
        [word for word in wish.states.split(",") if word],
    )
    known = Sweep(
        sweep_id=f"sweep-{secrets.token_hex(4)}",
        cluster=here.cluster.key,
        profile=wish.profile,
        payloads=tuple(payload.name for payload in wish.payloads),
        begun_at=here.now_s,
        nodes=tuple(NodeState(node=node.name) for node in chosen),
    )
    sweeps.save(known)
    return known


def _as_begun(wish: Wish, known: Sweep) -> Wish:
    """A sweep that goes on does for the nodes that are left what it did for the others."""
    every = {payload.name: payload for payload in PAYLOADS}
    payloads = tuple(every[name] for name in known.payloads if name in every)
    return replace(wish, profile=Profile(known.profile), payloads=payloads)


def _sweeper(
    options: RequestOptions,
    wish: Wish,
    here: caller.Caller,
    snapshot: Snapshot,
) -> Sweeper:
    from rv.ui.follow import Follower

    nodes = {node.name: node for node in snapshot.nodes}
    base = build_request(options, None)
    payloads = wish.payloads

    def over(_: str, status: RaceStatus) -> None:
        names = tuple(payload.name for payload in _of(nodes.get(_node(status)), payloads))
        fetch(record_of(status, names, wish.profile, here.cluster.label), status,
              here.cluster.transport)  # fmt: skip

    return Sweeper(
        target=here.cluster,
        snapshot=snapshot,
        workdir=here.workdir,
        environment=caller_environment(here.environ),
        site=options.config.site,
        sink=Follower(json_only=options.json),
        request_of=lambda name: _request(base, nodes.get(name), name, payloads, wish),
        over=over,
        say=console.say,
        clock=caller.now_s,
        sleep=time.sleep,
        max_jobs=wish.max_jobs,
        patience=base.wait_timeout,
    )


def _node(status: RaceStatus) -> str:
    asked = status.race.request.only_nodes if status.race.request else ()
    return asked[0] if asked else ""


def _of(node: Node | None, payloads: Sequence[Payload]) -> Sequence[Payload]:
    """What a node can run: MIG slices cannot talk to each other, so there nothing is collective."""
    if node is None or not sweeps.is_mig(node):
        return payloads
    return [payload for payload in payloads if payload.starts is Starts.NODE]


def _request(
    base: Request, node: Node | None, name: str, payloads: Sequence[Payload], wish: Wish
) -> Request:
    """Ask for the whole of one node, as soon as it can be had."""
    is_mig = node is not None and sweeps.is_mig(node)
    most = max((group.total for group in node.gpus), default=0) if node else base.gpus
    limit = wish.deadline
    late = (("deadline", f"now+{round(limit.total_seconds())}"),) if limit else ()
    alone = () if is_mig else (_EXCLUSIVE,)
    return replace(
        base,
        gpus=1 if is_mig else most,
        mig=is_mig,
        only_nodes=(name,),
        max_submissions=1,
        command=lines.command(_of(node, payloads), wish.profile, wish.faults),
        sbatch=(*base.sbatch, ("nodelist", name), *alone, *late),
        wait_timeout=None,
    )
