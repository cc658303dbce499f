"""A job on GPUs of two models: none is judged by what the other model reaches."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import membw
import pytest
from _bandwidth.links import Peer
from _collectives import measure
from _harness import judging
from _harness.report import Report
from _workers import verdicts
from _workers.slots import Slot
from _workers.workers import Order

H200, T4, ODD = "NVIDIA H200", "Tesla T4", "A model that nobody knows"


def session_of(*products: str, payload: str = "membw") -> Any:
    """A session of one rank that sees these GPUs, and no fault."""
    ranks = SimpleNamespace(rank=0, nodes=1, world=1)
    report = Report(payload, ranks)  # type: ignore[arg-type]
    report.devices = [{"index": at, "name": name, "mig": None} for at, name in enumerate(products)]
    return SimpleNamespace(
        report=report,
        ranks=ranks,
        payload=SimpleNamespace(name=payload),
        faults=SimpleNamespace(get=lambda *_, **__: None),
        options=SimpleNamespace(duration=2.0, balance=None, no_reference=False),
        say=lambda *_: None,
    )


def work(slots: list[Slot], rates: list[float], alone: list[float]) -> list[dict[str, Any]]:
    """What workers report: their rates, and of the first slot's those that they had alone."""
    results: list[dict[str, Any]] = []
    left = list(alone)
    for number, rate in enumerate(rates):
        slot = slots[number % len(slots)]
        own = {"alone_ops_per_second": left.pop()} if slot == slots[0] and left else {}
        results.append({"worker": number, "slot": slot.name, "ops_per_second": rate, **own})
    return results


def told(session: Any) -> list[tuple[str, str, str]]:
    """Give name, status and code of each test."""
    return [(t["name"], t["status"], t["code"] or "") for t in session.report.tests]


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ([4000, 4010, 3990, 250, 251, 249], "PASS"),
        ([4000, 4010, 2000, 250, 251, 249], "FAIL"),
        ([4000, 4010, 3990, 250, 251, 125], "FAIL"),
    ],
)
def test_copy_rates_are_held_against_those_of_the_model(rates: list[float], expected: str) -> None:
    """A T4 copies at a sixteenth of what an H200 does; half of its own kind's is bad."""
    session = session_of(*[H200] * 3, *[T4] * 3)
    membw._compare(session, [f"cuda:{at}" for at in range(6)], rates)

    assert [(name, status) for name, status, _ in told(session)] == [
        ("membw.peers_alike", expected)
    ]


@pytest.mark.parametrize(("rate", "expected"), [(3700, "PASS"), (3500, "WARN"), (3100, "FAIL")])
def test_of_two_of_a_model_the_slower_has_twice_the_room(rate: float, expected: str) -> None:
    """As in `check.py`; the other model beside them is no measure."""
    session = session_of(H200, H200, T4)
    membw._compare(session, [f"cuda:{at}" for at in range(3)], [4000, rate, 250])

    assert [status for _, status, _ in told(session)] == [expected]


def link(source: int, target: int, rate: float) -> Peer:
    return Peer(f"cuda:{source}", f"cuda:{target}", True, rate, rate, 0)


def test_links_between_two_models_are_no_measure_for_those_of_one() -> None:
    """Three H200 are linked by NVLink, and a T4 to each by PCIe; one that is slow is named."""
    session = session_of(H200, H200, H200, T4)

    def verdict(slow: float) -> dict[str, str]:
        pairs = [(one, other) for one in range(4) for other in range(one + 1, 4)]
        ways = [way for one, other in pairs for way in ((one, other), (other, one))]
        rates = [12.0 if 3 in way else 390.0 for way in ways]
        rates[0] = slow
        peers = [link(*way, rate) for way, rate in zip(ways, rates, strict=True)]
        return membw._judged_peers(session, peers, ["cuda:0"], {})

    assert verdict(390.0) == {"status": "PASS"}
    assert verdict(100.0) == {
        "status": "FAIL",
        "code": "slow_link",
        "reason": "cuda:0 to cuda:1 100.0 GB/s, where the median is 390.0",
    }


@pytest.mark.parametrize(
    ("done", "expected"), [([900, 890, 80, 79], "PASS"), ([900, 600, 80, 79], "FAIL")]
)
def test_work_is_balanced_among_gpus_of_a_model(done: list[int], expected: str) -> None:
    """The same number of workers does less on a smaller GPU."""
    session = session_of(H200, H200, T4, T4, payload="alloc_stress")
    slots = [Slot(f"cuda:{at}", str(at), "cuda") for at in range(4)]
    orders = [Order(at, slot, 1, 2.0, 1.0, "") for at, slot in enumerate(slots)]
    results = [{"status": "success", "operations": each} for each in done]
    verdicts.balance(session, slots, orders, results)

    assert [(name, status) for name, status, _ in told(session)] == [("alloc.balance", expected)]


def test_one_gpu_is_no_measure_of_other_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four do 2.2 times what one of the largest does, and all are sound."""
    monkeypatch.setattr(verdicts.cpus, "effective", lambda: (16, {}))
    slots = [Slot(f"cuda:{at}", str(at), "cuda") for at in range(4)]
    results = work(slots, [100.0, 100.0, 10.0, 10.0], alone=[100.0])
    mixed, alike = (
        session_of(*names, payload="alloc_stress") for names in ([H200, H200, T4, T4], [H200] * 4)
    )
    for session in (mixed, alike):
        verdicts.scaling(session, slots, results)

    assert told(mixed) == [("alloc.scaling", "SKIP", "unsupported")]
    assert told(alike) == [("alloc.scaling", "FAIL", "below_floor")]


def test_what_two_workers_of_a_gpu_lose_to_each_other_is_no_loss_of_scaling() -> None:
    """Measured on two H200: 217.6 operations a second by one worker, 388.6 by two on each GPU."""
    session = session_of(H200, H200, payload="alloc_stress")
    slots = [Slot(f"cuda:{at}", str(at), "cuda") for at in range(2)]
    verdicts.scaling(session, slots, work(slots, [97.1] * 4, alone=[97.3, 97.3]))

    assert told(session) == [("alloc.scaling", "PASS", "")]


def test_one_gpu_has_nothing_to_scale_to() -> None:
    """Its workers against themselves would be below one time as often as not."""
    session = session_of(H200, payload="alloc_stress")
    slots = [Slot("cuda:0", "0", "cuda")]
    verdicts.scaling(session, slots, work(slots, [97.1], alone=[97.1]))

    assert told(session) == [("alloc.scaling", "SKIP", "unsupported")]


def test_gpus_without_a_worker_are_not_asked_to_scale() -> None:
    """Four workers on eight GPUs do four times what one does, and that is all they can."""
    session = session_of(*[H200] * 8, payload="alloc_stress")
    slots = [Slot(f"cuda:{at}", str(at), "cuda") for at in range(8)]
    verdicts.scaling(session, slots, work(slots, [100.0] * 4, alone=[100.0]))

    assert told(session) == [("alloc.scaling", "PASS", "")]


def test_a_worker_that_told_no_rate_makes_no_gpus_scale() -> None:
    """Half of what one GPU does would be doubled by two that share one GPU's work."""
    session = session_of(H200, H200, payload="alloc_stress")
    slots = [Slot(f"cuda:{at}", str(at), "cuda") for at in range(2)]
    verdicts.scaling(session, slots, work(slots, [25.0] * 4, alone=[50.0]))

    assert told(session) == [("alloc.scaling", "SKIP", "unsupported")]


def test_a_rank_is_late_among_those_with_its_model() -> None:
    """Two ranks on T4 take 30 times as long; of three on H200 one takes a third longer."""
    work = [(1.0, 1), (1.01, 1), (1.3, 1), (30.0, 2), (30.1, 2)]
    found = [
        measure.Arrival(rank, seconds, 0.0, model) for rank, (seconds, model) in enumerate(work)
    ]

    late = measure.stragglers(found, (1.05, 1.11), (1.11, 1.25))
    assert [(each.one.rank, each.status) for each in late] == [(2, "FAIL")]


def test_each_rank_tells_its_model() -> None:
    """Equal names give equal numbers, and others give others."""
    sent: list[list[float]] = []
    field: Any = SimpleNamespace(
        torch=SimpleNamespace(get_num_threads=lambda: 1, set_num_threads=lambda _: None),
        dist=SimpleNamespace(barrier=lambda group: None),
        device="cuda:0",
        group=None,
        gather=lambda numbers: sent.append(numbers) or [numbers],
    )
    for product in (H200, H200, T4):
        measure.arrivals(field, lambda: None, product, rounds=1)

    assert sent[0][2] == sent[1][2] != sent[2][2]


def rate(session: Any, device: str, value: float) -> None:
    metric = {"name": "stream_copy", "unit": "GB/s", "dir": "higher", "value": value}
    session.report.add("membw.stream", "PASS", device=device, metrics=[metric])


@pytest.mark.parametrize(
    ("products", "reason"),
    [
        ((H200, ODD), f"no reference for {ODD}: speed not judged"),
        ((ODD, ODD), f"no reference for {ODD}: speed not judged"),
        ((H200, H200), ""),
    ],
)
def test_each_model_without_a_reference_is_told(products: tuple[str, ...], reason: str) -> None:
    """A model that is known vouches for no other."""
    session = session_of(*products)
    for at in range(len(products)):
        rate(session, f"cuda:{at}", 4100.0)
    spoken = judging.judge_speeds(session)
    said = [t["reason"] for t in session.report.tests if t["code"] == "no_reference"]

    assert said == ([reason] if reason else [])
    assert ("speeds at" in spoken) == (H200 in products)


def test_a_gpu_that_failed_is_not_called_unknown() -> None:
    """It has no rate that could be judged."""
    session = session_of(H200, T4)
    rate(session, "cuda:0", 4100.0)
    session.report.add("membw.stream", "FAIL", code="wrong_result", reason="x", device="cuda:1")
    judging.judge_speeds(session)

    assert "no_reference" not in {code for _, _, code in told(session)}
