"""What failed on each node, as the text of a ticket for those who can repair it. Pure."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from rv.accept.measurements import device_of
from rv.accept.report.expected import Compared, compared
from rv.accept.report.gpus import GpuRow, gpu_rows, key_of
from rv.accept.report.heat import SILENT
from rv.accept.report.places import host_of, number
from rv.accept.results import WORST_FIRST, RunResult, Status, TestResult
from rv.accept.store import Run
from rv.dataclass import dataclass

_FAILED: Final = (Status.FAIL, Status.ERROR)
_SHOWN: Final = (*_FAILED, Status.WARN)
_MOST_LINES: Final = 20
_OWN_FLAGS: Final = frozenset({"--no-reference"})
"""Flags that are of rv's own making: its judging is not part of what is reproduced."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """One test that was not passed; `measured` and `expected` are text, "" where none is known."""

    run: RunResult
    test: TestResult
    measured: str = ""
    expected: str = ""
    gpu: GpuRow | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Ticket:
    """One node: what failed there, the worst first, how to see it again, and what was logged."""

    node: str
    run: str
    cluster: str
    items: Sequence[Item]
    commands: Sequence[str]
    log: Sequence[str]

    @property
    def gpus(self) -> Sequence[GpuRow]:
        """The GPUs that failed, each once."""
        return list({item.gpu.uuid: item.gpu for item in self.items if item.gpu}.values())

    @property
    def software(self) -> Mapping[str, str]:
        """The versions that it was seen with."""
        env = self.items[0].run.env
        return {
            name: str(env[name]) for name in ("driver", "cuda", "nccl", "torch") if env.get(name)
        }

    @property
    def is_injected(self) -> bool:
        """Whether any of it was a fault made on purpose."""
        return any("--inject" in item.run.argv for item in self.items)

    @property
    def is_of_payloads(self) -> bool:
        """Whether a payload reported, and can be run again."""
        return any(item.run.test_type != SILENT for item in self.items)

    @property
    def jobs(self) -> Sequence[str]:
        """The Slurm jobs in which it was seen."""
        return list(dict.fromkeys(item.run.job_id for item in self.items if item.run.job_id))


def tickets(run: Run) -> list[Ticket]:
    """Give a ticket for each node of a judged run on which something failed, or none reported."""
    nodes: dict[str, list[Item]] = {}
    for item in _items(run):
        nodes.setdefault(item.test.host or host_of(item.run), []).append(item)
    found = []
    for node, items in nodes.items():
        items.sort(key=lambda item: WORST_FIRST.index(item.test.status))
        if items[0].test.status in _FAILED:
            found.append(_ticket(run, node, items))
    return sorted(found, key=lambda each: WORST_FIRST.index(each.items[0].test.status))


def _items(run: Run) -> Iterator[Item]:
    """Give each test that was not passed, with its number and its GPU."""
    numbers = compared(run.results)
    gpus = {_key(row): row for row in gpu_rows(run.results, numbers)}
    of_tests: dict[int, list[Compared]] = {}
    for each in numbers:
        of_tests.setdefault(id(each.test), []).append(each)
    for result in run.results:
        for test in result.tests:
            if test.status in _SHOWN:
                yield _item(result, test, of_tests.get(id(test), ()), gpus)


def _key(row: GpuRow) -> str:
    return key_of(RunResult(test_type="", status=Status.PASS, hostname=row.node), row.device)


def _item(
    result: RunResult, test: TestResult, numbers: Sequence[Compared], gpus: Mapping[str, GpuRow]
) -> Item:
    device = device_of(test, result)
    measured, expected = _worst_number(numbers)
    gpu = gpus.get(key_of(result, device)) if device else None
    return Item(run=result, test=test, measured=measured, expected=expected, gpu=gpu)


def _worst_number(numbers: Sequence[Compared]) -> tuple[str, str]:
    """Write the number that reached the least of what was expected, and what that was."""
    known = [each for each in numbers if each.share is not None]
    if not known:
        return "", ""
    least = min(known, key=lambda each: each.share or 0.0)
    value = f"{least.metric.name} {number(least.measured.value)} {least.metric.unit}".strip()
    return value, f"{number(least.expected)} ({least.basis})"


def _ticket(run: Run, node: str, items: Sequence[Item]) -> Ticket:
    payloads = list(
        dict.fromkeys(each.run.test_type for each in items if each.run.test_type != SILENT)
    )
    log = run.logs.get(node, "")
    lines = [line for payload in payloads for line in log_of(log, payload)]
    return Ticket(
        node=node,
        run=run.record.race_id,
        cluster=run.record.label or run.record.cluster,
        items=items,
        commands=list(_commands(run, node, items, payloads)),
        log=lines,
    )


def _commands(run: Run, node: str, items: Sequence[Item], payloads: Sequence[str]) -> Iterator[str]:
    """Write how to see it again, with rv and without, and how to ask the driver."""
    profile = ["--profile", run.record.profile] if run.record.profile else []
    yield shlex.join(["rv", "accept", "sweep", *payloads, *profile, "--nodes", node, "--no-avoid"])
    runs = {item.run.test_type: item.run for item in reversed(items)}
    yield from (shlex.join(_by_itself(node, runs[payload])) for payload in payloads)
    for uuid in dict.fromkeys(item.gpu.uuid for item in items if item.gpu):
        yield shlex.join(["srun", "-N1", "-n1", "-w", node, "nvidia-smi", "-q", "-i", uuid])


def _by_itself(node: str, result: RunResult) -> list[str]:
    """Give the words that run a payload as it ran, without rv."""
    gpus = [f"--gpus-per-node={len(result.devices)}"] if result.devices else []
    is_of_ranks = result.world_size > 1 and result.nnodes == 1
    start = ["torchrun", f"--nproc-per-node={result.world_size}"] if is_of_ranks else ["python3"]
    argv = [word for word in result.argv if word not in _OWN_FLAGS]
    slurm = ["srun", "-N1", "-n1", "-w", node, "--exclusive", *gpus]
    return [*slurm, *start, f"{result.test_type}.py", *argv]


def log_of(log: str, payload: str) -> list[str]:
    """Cut out what a payload printed last: its lines but those of its environment."""
    kept, is_inside = list[str](), False
    for line in log.splitlines():
        if line.startswith("[ACCEPT] "):
            is_inside = line.split()[1:2] == [payload]
        if is_inside and not line.startswith("[ENV]"):
            kept.append(line)
    return kept[-_MOST_LINES:]
