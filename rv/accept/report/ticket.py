"""What failed on each node, as the text of a ticket for those who can repair it. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from rv.accept.measurements import device_of
from rv.accept.pairs import KIND
from rv.accept.report.expected import Compared, compared
from rv.accept.report.gpus import GpuRow, gpu_rows, key_of
from rv.accept.report.heat import SILENT
from rv.accept.report.places import host_of, number
from rv.accept.report.reproduction import ask_driver, by_itself, reports_of, with_rv
from rv.accept.results import WORST_FIRST, RunResult, Status, TestResult
from rv.accept.runs import Run
from rv.dataclass import dataclass

_FAILED: Final = (Status.FAIL, Status.ERROR)
_SHOWN: Final = (*_FAILED, Status.WARN)
_MOST_LINES: Final = 20


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
    """What failed on one node, the worst first, how to see it again, and what was logged.

    `place` is the node; or between nodes what the sweep over pairs blames, such as `a1 and a4`.
    `reports` are the results that can be had again, by their payloads.
    """

    place: str
    run: str
    cluster: str
    items: Sequence[Item]
    reports: Mapping[str, RunResult]
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
    def is_of_node(self) -> bool:
        """Whether it is of one node, and not of what is between some."""
        return bool(self.items[0].test.host or self.items[0].run.test_type != KIND)

    @property
    def jobs(self) -> Sequence[str]:
        """The Slurm jobs in which it was seen."""
        return list(dict.fromkeys(item.run.job_id for item in self.items if item.run.job_id))


def tickets(run: Run) -> list[Ticket]:
    """Give a ticket for each node of a judged run on which something failed, or none reported.

    Of what is slow between nodes, and no node's own fault, each has its own.
    """
    places: dict[str, list[Item]] = {}
    for item in _items(run):
        places.setdefault(_place(item), []).append(item)
    found = []
    for place, items in places.items():
        items.sort(key=lambda item: WORST_FIRST.index(item.test.status))
        if items[0].test.status in _FAILED:
            found.append(_ticket(run, place, items))
    return sorted(found, key=lambda each: WORST_FIRST.index(each.items[0].test.status))


def _place(item: Item) -> str:
    """Name the node; where pairs are judged and none is at fault, what the reason begins with."""
    if item.run.test_type == KIND and not item.test.host:
        return item.test.reason.partition(": ")[0]
    return item.test.host or host_of(item.run)


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


def _ticket(run: Run, place: str, items: Sequence[Item]) -> Ticket:
    reports = reports_of(run, place, [item.run for item in items])
    log = run.logs.get(place, "")
    return Ticket(
        place=place,
        run=run.record.race_id,
        cluster=run.record.label or run.record.cluster,
        items=items,
        reports=reports,
        commands=list(filter(None, _commands(run, place, items, reports))),
        log=[line for payload in _payloads(items) for line in log_of(log, payload)],
    )


def _payloads(items: Sequence[Item]) -> list[str]:
    """Name the payloads that reported what a ticket tells of."""
    return [name for name in dict.fromkeys(each.run.test_type for each in items) if name != SILENT]


def _commands(
    run: Run, place: str, items: Sequence[Item], reports: Mapping[str, RunResult]
) -> Iterator[str]:
    """Write how to see it again, with rv and without, and how to ask the driver."""
    yield with_rv(run, place, _payloads(items))
    yield from (by_itself(place, report) for report in reports.values())
    for uuid in dict.fromkeys(item.gpu.uuid for item in items if item.gpu):
        yield ask_driver(place, uuid)


def log_of(log: str, payload: str) -> list[str]:
    """Cut out what a payload printed last: its lines but those of its environment."""
    kept, is_inside = list[str](), False
    for line in log.splitlines():
        if line.startswith("[ACCEPT] "):
            is_inside = line.split()[1:2] == [payload]
        if is_inside and not line.startswith("[ENV]"):
            kept.append(line)
    return kept[-_MOST_LINES:]
