"""What nvidia-smi prints on the nodes of a running job, all asked by one srun.

Each line begins with the script's sentinel, the node and what it is about, so that nodes whose
lines come mixed are told apart.
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from rv.dataclass import dataclass
from rv.models.gpu_use import GPU_QUERY, PROCESS_QUERY, GpuNow, GpuProcess
from rv.slurm.printable import printable

_ON_NODE: Final = """\
say() {
  while IFS= read -r line; do printf '%s %s %s %s\\n' "$mark" "$SLURMD_NODENAME" "$1" "$line"; done
}
echo "${CUDA_VISIBLE_DEVICES:-${SLURM_STEP_GPUS:-$SLURM_JOB_GPUS}}" | say own
command -v nvidia-smi >/dev/null || { echo 'has no nvidia-smi' | say failed; exit 0; }
rows=$(timeout -k 1 15 nvidia-smi GPU_QUERY 2>&1) ||
  { echo "$(tail -n 1 <<<"nvidia-smi failed: $rows")" | say failed; exit 0; }
say gpu <<<"$rows"
timeout -k 1 15 nvidia-smi PROCESS_QUERY 2>/dev/null | while IFS=, read -r uuid pid used name; do
  user=$(stat -c %U "/proc/${pid//[!0-9]/}" 2>/dev/null)
  echo "$uuid, $pid, $used, ${user:--}, $name"
done | say process
exit 0
"""
_NUMBER: Final = re.compile(r"\d{1,12}(?:\.\d{1,6})?", re.ASCII)
_MOST_ROWS: Final = 10_000


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeGpus:
    """The job's GPUs of one node; `failure` says what is wrong there, "" for nothing."""

    node: str
    gpus: tuple[GpuNow, ...] = ()
    failure: str = ""


def gpus_script(job_id: int, nodes: Sequence[str], sentinel: str) -> str:
    """Return the script that asks for a job's GPUs on these nodes of its."""
    on_node = _ON_NODE.replace("GPU_QUERY", shlex.join(GPU_QUERY))
    on_node = on_node.replace("PROCESS_QUERY", shlex.join(PROCESS_QUERY))
    names, line = shlex.quote(",".join(nodes)), shlex.quote(f"mark={sentinel}; {on_node}")
    count = len(nodes)
    return (
        f"timeout --foreground -k 2 50 srun --quiet --jobid={job_id} --overlap --input=none"
        f" --nodes={count} --ntasks={count} --ntasks-per-node=1 --nodelist={names}"
        f" --chdir=/ /bin/bash -c {line}\n"
        # 255 is a connection that was lost.
        "code=$?; exit $((code == 255 ? 1 : code))\n"
    )


def parse_gpus(text: str, sentinel: str) -> tuple[NodeGpus, ...]:
    """Read what the nodes said, by node; of the GPUs only those that are the job's."""
    answers: dict[str, dict[str, list[str]]] = {}
    for line in text.splitlines()[:_MOST_ROWS]:
        mark, _, rest = line.partition(" ")
        node, _, rest = rest.partition(" ")
        kind, _, said = rest.partition(" ")
        if mark == sentinel and node:
            answers.setdefault(node, {}).setdefault(kind, []).append(said)
    return tuple(_node(node, answer) for node, answer in sorted(answers.items()))


def _node(name: str, answer: dict[str, list[str]]) -> NodeGpus:
    if failed := answer.get("failed"):
        return NodeGpus(node=printable(name), failure=printable(failed[-1]))
    own = [word.strip() for word in "".join(answer.get("own", ())).split(",") if word.strip()]
    rows = [row for row in map(_fields, answer.get("gpu", ())) if len(row) == 8]
    processes = [_fields(line) for line in answer.get("process", ())]
    gpus = (_gpu(printable(name), row, processes) for row in _own(rows, own))
    return NodeGpus(node=printable(name), gpus=tuple(gpu for gpu in gpus if gpu))


def _own(rows: list[list[str]], own: Sequence[str]) -> list[list[str]]:
    """Pick the job's GPUs where the site does not hide those of others."""
    if len(rows) <= max(len(own), 1):
        return rows
    return [row for row in rows if row[0] in own or row[1] in own]


def _fields(line: str) -> list[str]:
    return [field.strip() for field in line.split(",")]


def _gpu(node: str, row: Sequence[str], processes: Iterable[Sequence[str]]) -> GpuNow | None:
    """Read a row of the query; None for what does not begin with a GPU's number."""
    index, uuid, used, total, busy, power, degrees, name = row
    if (number := _whole(index)) is None:
        return None
    return GpuNow(
        node=node,
        index=number,
        model=printable(name),
        utilization=_whole(busy),
        memory_mib=_whole(used),
        total_mib=_whole(total),
        power_w=_decimal(power),
        temperature_c=_whole(degrees),
        processes=tuple(_processes(uuid, processes)),
    )


def _processes(uuid: str, processes: Iterable[Sequence[str]]) -> Iterator[GpuProcess]:
    for row in processes:
        if len(row) >= 5 and row[0] == uuid and (pid := _whole(row[1])) is not None:
            name, user = printable(", ".join(row[4:])), printable(row[3])
            yield GpuProcess(pid=pid, user=user, name=name, memory_mib=_whole(row[2]))


def _whole(text: str) -> int | None:
    """Read a number; None for what the card does not tell, such as `[N/A]`."""
    number = _decimal(text)
    return None if number is None else int(number)


def _decimal(text: str) -> float | None:
    return float(text) if _NUMBER.fullmatch(text) else None
