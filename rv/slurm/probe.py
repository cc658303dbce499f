"""One round trip that asks a cluster for everything a plan needs, and the snapshot made of it."""

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Final

from rv.dataclass import dataclass
from rv.errors import ErrorKind, RvError
from rv.models.snapshot import Association, ClusterConfig, Partition, Snapshot
from rv.slurm import sacctmgr, scontrol, squeue, squeue_scripts, values
from rv.slurm.cache import CachedAnswer, SnapshotCache
from rv.slurm.printable import last_line
from rv.slurm.script import (
    CommandOutput,
    new_sentinel,
    parallel_script,
    parse_outputs,
    write_outputs,
)
from rv.transport import ScriptResult, Transport
from rv.transport.query_retry import Patience, retry_query

SHARED_FOR: Final = timedelta(seconds=30)
"""How long one snapshot serves all of a user's rv processes."""

_ACCOUNTS_FOR: Final = timedelta(minutes=10)
_FAILED_ACCOUNTS_FOR: Final = timedelta(minutes=1)
# A dead controller is reported after 9 s, a silent one after its MessageTimeout, 10 s by default.
_CONTROLLER_TIMEOUT_S: Final = 12
_DATABASE_TIMEOUT_S: Final = 5
_PROBE_S: Final = 30.0
_REQUIRED: Final = ("config", "nodes", "partitions", "queue")
_MISSING: Final = CommandOutput(exit_code=1, stdout="", stderr="was not asked")
_COMMAND_NOT_FOUND: Final = 127
_TIMED_OUT: Final = frozenset({124, 137})
_NO_CONFIGURATION: Final = re.compile(r"DNS SRV lookup failed")
"""What Slurm's commands say where there is neither a slurm.conf nor a site that serves one."""

_PERMISSION_DENIED: Final = re.compile(r"access/permission denied", re.IGNORECASE)

_USUAL_PATIENCE: Final = Patience()
_Outputs = Mapping[str, CommandOutput]


class _SilenceError(RvError):
    """No answer, which may come when Slurm is asked again."""


def take_snapshot(
    transport: Transport,
    cache: SnapshotCache | None = None,
    *,
    max_age: timedelta = SHARED_FOR,
    timeout_s: float = _PROBE_S,
    patience: Patience = _USUAL_PATIENCE,
    early: Callable[[], Snapshot] | None = None,
) -> Snapshot:
    """Return the cluster as it is, or as it was at most `max_age` ago.

    `early` waits for a first try that is on its way. Raises `RvError(UNREACHABLE)` where there is
    no Slurm or its controller does not answer, however often it is asked within the patience. What
    else could not be read is a note of the snapshot.
    """
    silences: list[RvError] = []
    began_s = time.time()

    def query_once() -> Snapshot | None:
        try:
            if early and not silences:
                return early()
            return _take_once(transport, cache, max_age, timeout_s)
        except _SilenceError as silence:
            silences.append(silence)
            return None

    snapshot = retry_query(
        query_once, retry_for_s=patience.limit_s, on_silence=lambda: patience.silent(began_s)
    )
    if snapshot is None:
        raise silences[-1]
    if silences:
        patience.say(f"Slurm answers again, after {time.time() - began_s:.0f} s")
    return snapshot


def _take_once(
    transport: Transport, cache: SnapshotCache | None, max_age: timedelta, timeout_s: float
) -> Snapshot:
    """Take the shared answer, else run the probe."""
    accounts = _cached_accounts(cache)
    cached = _parse_answer(cache.load("probe", max_age)) if cache else None
    if cached is not None and accounts is not None:
        return build_snapshot({**cached.outputs, **accounts}, cached.sentinel)
    sentinel = new_sentinel()
    script = probe_script(sentinel, with_accounts=accounts is None)
    return _read_probe(transport.run(script, timeout_s=timeout_s), sentinel, accounts, cache)


def ask_early(
    cache: SnapshotCache, send: Callable[[str, float], Callable[[], ScriptResult]]
) -> Callable[[], Snapshot] | None:
    """Send the probe, and return what waits for its answer; None where a fresh one is shared.

    `send` takes a script and its most seconds. What waits raises as `take_snapshot` does.
    """
    accounts = _cached_accounts(cache)
    if accounts is not None and cache.load("probe", SHARED_FOR):
        return None
    sentinel = new_sentinel()
    wait = send(probe_script(sentinel, with_accounts=accounts is None), _PROBE_S)
    return lambda: _read_probe(wait(), sentinel, accounts, cache)


def _read_probe(
    result: ScriptResult, sentinel: str, accounts: _Outputs | None, cache: SnapshotCache | None
) -> Snapshot:
    """Make the snapshot of a probe's answer, and share it."""
    answer = _answer(result, sentinel)
    snapshot = build_snapshot({**answer.outputs, **(accounts or {})}, answer.sentinel)
    if cache is not None:
        cache.store("probe", answer.text, answer.sentinel)
        if accounts is None:
            text = write_outputs(_only_accounts(answer.outputs), answer.sentinel)
            cache.store("accounts", text, answer.sentinel)
    return snapshot


def probe_script(sentinel: str, *, with_accounts: bool = True) -> str:
    """Return the bash text of one probe; squeue's rows and all outputs carry `sentinel`."""
    commands = {
        "config": "scontrol show config",
        # Without -a what is hidden, or for other groups, is not shown and could not be explained.
        "nodes": "scontrol -a show node -d -o",
        "partitions": "scontrol -a show partition -o",
        "reservations": "scontrol show reservation -o",
        "queue": squeue_scripts.squeue_command(sentinel),
        "clock": "date +%Y-%m-%dT%H:%M:%S",
        "user": "id -un",
        "groups": "id -Gnz",
    }
    # The slow ones first: they wait for the database while the others start.
    accounting = sacctmgr.COMMANDS if with_accounts else {}
    timed = {name: (_DATABASE_TIMEOUT_S, line) for name, line in accounting.items()}
    timed |= {name: (_CONTROLLER_TIMEOUT_S, line) for name, line in commands.items()}
    return parallel_script(timed, sentinel)


def build_snapshot(outputs: _Outputs, sentinel: str) -> Snapshot:
    """Make the snapshot of a probe's outputs, without a clock, files or processes.

    Raises `RvError(UNREACHABLE)` where Slurm did not answer, `RvError(REFUSED)` where it hides
    what a plan needs.
    """
    _require_slurm(outputs)
    config = scontrol.parse_show_config(outputs["config"].stdout)
    controller_time = scontrol.parse_config_time(outputs["config"].stdout)
    taken_at = controller_time or values.time(_stdout(outputs, "clock"))
    if taken_at is None:
        raise _no_answer("it did not say what time it is")
    partitions = scontrol.parse_show_partition(outputs["partitions"].stdout)
    return Snapshot(
        taken_at=taken_at,
        user=_stdout(outputs, "user").strip(),
        groups=_groups(_stdout(outputs, "groups")),
        config=config,
        partitions=_with_defaults(partitions, config),
        nodes=scontrol.parse_show_node(outputs["nodes"].stdout),
        jobs=squeue.parse_squeue(outputs["queue"].stdout, sentinel),
        reservations=scontrol.parse_show_reservation(_stdout(outputs, "reservations")),
        qos=sacctmgr.parse_qos(_stdout(outputs, "qos"), _stdout(outputs, "qos_preemption")),
        associations=_associations(outputs, config.name),
        accounts=sacctmgr.parse_accounts(_stdout(outputs, "accounts"), config.name),
        notes=(*_unread(outputs, "reservations"), *_unread(outputs, *sacctmgr.COMMANDS)),
    )


def no_slurm() -> RvError:
    """Return the error for a machine without Slurm's commands."""
    return RvError(
        ErrorKind.UNREACHABLE,
        "no Slurm commands on PATH",
        hint="rv sandbox up starts a cluster here; --cluster names one to reach",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Answer:
    """A probe's answer, whole and by command."""

    text: str
    sentinel: str
    outputs: _Outputs


def _answer(result: ScriptResult, sentinel: str) -> _Answer:
    outputs = parse_outputs(result.stdout, sentinel)
    if outputs is None:
        why = last_line(result.stderr) or f"exit code {result.returncode}"
        if result.timed_out:
            why = f"no answer within {_PROBE_S:g} s"
        raise _SilenceError(
            ErrorKind.UNREACHABLE,
            f"the cluster could not be asked: {why}",
            hint="try again in a minute; scontrol ping says whether it is there",
        )
    return _Answer(text=result.stdout, sentinel=sentinel, outputs=outputs)


def _parse_answer(cached: CachedAnswer | None) -> _Answer | None:
    if cached is None:
        return None
    outputs = parse_outputs(cached.text, cached.sentinel)
    if outputs is None:
        return None
    return _Answer(text=cached.text, sentinel=cached.sentinel, outputs=outputs)


def _cached_accounts(cache: SnapshotCache | None) -> _Outputs | None:
    """Return fresh outputs of sacctmgr; those of a database that did not answer expire sooner."""
    if cache is None:
        return None
    for max_age in (_FAILED_ACCOUNTS_FOR, _ACCOUNTS_FOR):
        answer = _parse_answer(cache.load("accounts", max_age))
        outputs = _only_accounts(answer.outputs) if answer else {}
        is_usable = max_age is _FAILED_ACCOUNTS_FOR or all(o.is_good for o in outputs.values())
        if len(outputs) == len(sacctmgr.COMMANDS) and is_usable:
            return outputs
    return None


def _only_accounts(outputs: _Outputs) -> _Outputs:
    return {name: output for name, output in outputs.items() if name in sacctmgr.COMMANDS}


def _require_slurm(outputs: _Outputs) -> None:
    for name in _REQUIRED:
        output = outputs.get(name, _MISSING)
        if output.exit_code == _COMMAND_NOT_FOUND:
            raise no_slurm()
        if not output.is_good and _NO_CONFIGURATION.search(output.stderr):
            raise _no_configuration()
        if not output.is_good and _PERMISSION_DENIED.search(output.stderr):
            raise _hidden(name, _why(output))
        if not output.is_good:
            raise _no_answer(_why(output))


def _no_configuration() -> RvError:
    return RvError(
        ErrorKind.UNREACHABLE,
        "no slurm.conf on this machine, and none is served to it",
        hint="go to a login node, or set SLURM_CONF; rv sandbox up starts a cluster here",
    )


def _no_answer(why: str) -> RvError:
    return _SilenceError(
        ErrorKind.UNREACHABLE,
        f"Slurm's controller does not answer: {why}",
        hint="try again in a minute; scontrol ping says whether it is there",
    )


def _hidden(name: str, why: str) -> RvError:
    return RvError(
        ErrorKind.REFUSED,
        f"Slurm does not show its {name} to you: {why}",
        hint="PrivateData hides them; --snapshot FILE plans on what somebody else saved",
    )


def _with_defaults(
    partitions: tuple[Partition, ...], config: ClusterConfig
) -> tuple[Partition, ...]:
    """Give partitions without a memory rule the cluster's: Slurm prints only their own."""
    per_cpu, per_node = config.max_memory_per_cpu_mib, config.max_memory_per_node_mib
    if not per_cpu and not per_node:
        return partitions
    return tuple(
        partition
        if partition.max_memory_per_cpu_mib or partition.max_memory_per_node_mib
        else replace(partition, max_memory_per_cpu_mib=per_cpu, max_memory_per_node_mib=per_node)
        for partition in partitions
    )


def _associations(outputs: _Outputs, cluster: str) -> tuple[Association, ...] | None:
    """Return the user's associations; None where the database could not be asked."""
    if not outputs.get("associations", _MISSING).is_good:
        return None
    limits = _stdout(outputs, "association_limits")
    return sacctmgr.parse_associations(outputs["associations"].stdout, limits, cluster)


def _groups(text: str) -> frozenset[str]:
    """Read `id -Gnz`: names end with NUL, because directory services have names with spaces."""
    return frozenset(name for name in text.strip("\n").split("\0") if name)


def _unread(outputs: _Outputs, *names: str) -> tuple[str, ...]:
    failed = [name for name in names if not outputs.get(name, _MISSING).is_good]
    if not failed:
        return ()
    listed = ", ".join(name.replace("_", " ") for name in failed)
    return (f"could not read {listed}: {_why(outputs.get(failed[0], _MISSING))}",)


def _stdout(outputs: _Outputs, name: str) -> str:
    output = outputs.get(name, _MISSING)
    return output.stdout if output.is_good else ""


def _why(output: CommandOutput) -> str:
    if output.exit_code in _TIMED_OUT:
        return "no answer in time"
    return last_line(output.stderr) or f"exit code {output.exit_code}"
