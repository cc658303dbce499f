"""Stage a race: everything it needs is on the shared disk before the first sbatch."""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final

from rv.errors import ErrorKind, RvError
from rv.models.code import Code
from rv.models.plan import Plan, Strategy, Submission
from rv.models.race import Entry, Race, job_name
from rv.models.request import Request
from rv.race.directory import record_text
from rv.race.file_names import FOLDERS, RECORD, STAGED
from rv.race.new_race import LaunchContext, scripts
from rv.race.task_runs import FOLDERS as TASK_FOLDERS
from rv.render.quote import shell
from rv.render.script import ScriptContext
from rv.render.templates import Templates
from rv.slurm.printable import last_line
from rv.transport import FinishError, Transport

_NO_LINKS: Final = 47
_LINK_TEST: Final = f"ln -T nonce .link && rm .link || exit {_NO_LINKS}\n"
_NO_CHECKPOINTS: Final = 48
_GOES_ON_ELSEWHERE: Final = 50
# Of clients at once one goes on: whoever links the next name. One whose race is over, or that died
# while it staged, is followed in turn.
# Linked, not moved: where staging fails, what it made is deleted. A link leads to a larger disk.
_TAKE_UP: Final = """
echo "$RV_NAME" >.goes-on && key=first
until ln -T .goes-on {0}/.then."$key" 2>/dev/null; do
  next=''
  read -r next <{0}/.then."$key"
  [ "$next" != "$RV_NAME" ] || break
  [ -n "$next" ] || {{ echo {0} cannot be written >&2; exit {1}; }}
  if compgen -G "../.$next.*" >/dev/null ||
    {{ [ -d "../$next" ] && [ ! -e "../$next/ended" ] && [ ! -e "../$next/stop" ] &&
      [ ! -e "../$next/verdict.json" ]; }}; then
    echo "$next" >&2
    exit {2}
  fi
  key=$next
done
if [ -L {0}/checkpoints ]; then
  rmdir checkpoints && cp -P {0}/checkpoints checkpoints || exit {1}
else
  cp -al {0}/checkpoints/. checkpoints/ || exit {1}
fi
"""
_RUN_AGAIN: Final = 49
# A sweep is run again once: whoever links its name first. One that died while it staged is no one.
_TAKE_OVER: Final = """
echo "$RV_NAME" >.rerun && old=../{0} next=''
if ! ln -T .rerun "$old/rerun" 2>/dev/null; then
  read -r next <"$old/rerun"
  if [ "$next" != "$RV_NAME" ]; then
    if [ -d "../$next" ] || compgen -G "../.$next.*" >/dev/null ||
      ! mv -T "$old/rerun" .stale || ! ln -T .rerun "$old/rerun"; then
      echo "$next" >&2
      exit {1}
    fi
  fi
fi
"""
_LEAVE_MARKER: Final = f"""
[ -O .. ] && mkdir -p ../{STAGED} && : >../{STAGED}/"$RV_NAME"
exit 0"""


def stage(
    plan: Plan,
    request: Request,
    script: ScriptContext,
    context: LaunchContext,
    payloads: Mapping[str, bytes],
    templates: Templates,
    transport: Transport,
) -> Race:
    """Write the race directory, whole or not at all, and the payloads where they are missing.

    Raises `RvError(STAGE)` for a disk that is full, read-only or without hard links.
    """
    race = _race(plan, request, script, context)
    rendered = scripts((*plan.submissions, *plan.spares), script, templates)
    files = {
        RECORD: record_text(race).encode(),
        "nonce": script.nonce.encode(),
        "environment": _environment(context.environment),
    }
    files |= {f"jobs/{s.number}.sh": text.encode() for s, text in rendered}
    files |= context.files
    folders = (*FOLDERS, *TASK_FOLDERS) if script.sweep else FOLDERS
    try:
        transport.create_tree(script.race_dir, files, folders, _finish(script, context))
    except FinishError as failure:
        raise _unfinished(failure, script.race_dir) from failure
    except RvError:
        transport.remove(script.race_dir)  # made, perhaps, and the answer lost
        raise
    try:
        if payloads:
            from rv.race.payload_folders import stage_payloads

            stage_payloads(context.race_root, script.payload_hash, payloads, transport)
    except RvError:
        transport.remove(script.race_dir)
        raise
    return race


def _finish(script: ScriptContext, context: LaunchContext) -> str:
    """Return the script that finishes a race directory: links are tried, what it needs copied."""
    earlier = context.resumes
    taken = _take_up(shell(earlier.directory)) if earlier else ""
    if script.sweep and context.retry_of:
        taken = _TAKE_OVER.format(shell(context.retry_of), _RUN_AGAIN)
    return _LINK_TEST + taken + _copy_code(context.code) + _LEAVE_MARKER


def _take_up(earlier: str) -> str:
    return _TAKE_UP.format(earlier, _NO_CHECKPOINTS, _GOES_ON_ELSEWHERE)


def _copy_code(code: Code | None) -> str:
    if code is None:
        return ""
    from rv.race.code_copy import copy_script  # of launches from elsewhere alone

    return copy_script(code)


def _unfinished(failure: FinishError, race_dir: str) -> RvError:
    if failure.code == _NO_CHECKPOINTS:
        return RvError(
            ErrorKind.STAGE,
            f"the checkpoints of the earlier race cannot be taken up: {last_line(failure.text)}",
            hint="another --name begins anew",
        )
    if failure.code == _GOES_ON_ELSEWHERE:
        following = last_line(failure.text)
        return RvError(
            ErrorKind.USAGE,
            f"race {following} goes on from that chain already",
            hint=f"rv logs -f {following} follows it, and rv rerun {following} goes on after it",
        )
    if failure.code == _RUN_AGAIN:
        following = last_line(failure.text)
        return RvError(
            ErrorKind.USAGE,
            f"it is run again already, as sweep {following}",
            hint=f"rv rerun {following} --failed goes on from there",
        )
    if failure.code != _NO_LINKS:
        from rv.race.code_copy import copy_failure

        return copy_failure(failure.text, race_dir)
    return RvError(
        ErrorKind.STAGE,
        f"the file system has no hard links, on {PurePosixPath(race_dir).parent}",
        hint="a race needs them to have one winner: name another disk with RV_RACE_ROOT=/path",
    )


def _environment(variables: Mapping[str, str]) -> bytes:
    pairs = (f"{name}={value}\0" for name, value in sorted(variables.items()) if "\0" not in value)
    return "".join(pairs).encode("utf-8", "surrogateescape")


def _race(plan: Plan, request: Request, script: ScriptContext, context: LaunchContext) -> Race:
    command = script.command
    return Race(
        race_id=script.race_id,
        directory=script.race_dir,
        cluster=context.cluster,
        name=script.title,
        command=command.line if command else "",
        payload=command.payload if command else "",
        is_shell=command is None,
        submitted_at=context.now_s,
        min_job_age=context.config.min_job_age,
        message_timeout=context.config.message_timeout,
        entries=tuple(
            _entry(script.race_id, s, plan.cost_unit) for s in (*plan.submissions, *plan.spares)
        ),
        waves=plan.waves,
        chain=script.chain,
        request=request,
        retry_of=context.retry_of,
        payload_hash=script.payload_hash,
        card_sizes=plan.card_sizes,
        code=context.code,
        workdir=script.workdir,
        resumes=context.resumes.race_id if context.resumes else "",
        work=plan.work,
        sweep=script.sweep,
    )


def _entry(race_id: str, submission: Submission, cost_unit: str) -> Entry:
    strategy = submission.strategy
    start_in = strategy.estimate.start_in
    return Entry(
        number=submission.number,
        name=job_name(race_id, submission.number),
        strategy=strategy.id,
        gpu=strategy.gpu,
        gpus=strategy.gpus,
        nodes=strategy.nodes,
        partition=strategy.partition,
        walltime=strategy.walltime,
        cost=_job_cost(strategy),
        cost_unit=cost_unit,
        instead_of=submission.instead_of,
        source=strategy.estimate.source,
        predicted_s=None if start_in is None else start_in.total_seconds(),
        predicted_run_s=strategy.run.modelled.total_seconds() if strategy.run else None,
    )


def _job_cost(strategy: Strategy) -> float | None:
    """Return the cost of one job; a strategy's is that of the whole time."""
    if strategy.cost is None or not strategy.total:
        return strategy.cost
    return strategy.cost * (strategy.walltime / strategy.total)
