"""What is timed on a device that waits for its process: tried on a GPU that only keeps time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import membw
import pytest
import torch
from _bandwidth import links
from _harness import timing
from contract.rates import rates_of

from tests.payloads.made_gpu import MadeGpu

if TYPE_CHECKING:
    from collections.abc import Callable

COPY_S = 0.0012
"""64 MiB at 55 GB/s."""


class Copies:
    """Ten rounds; what they cost the host is longer with each thread that it runs beside."""

    share = 1.0

    def __init__(self, gpu: MadeGpu, delay_s: float) -> None:
        self.gpu, self.delay_s = gpu, delay_s
        self.begun = self.made = 0

    def begin(self) -> None:
        """Begin anew: rounds are counted from here."""
        self.begun, self.made = self.begun + 1, 0

    def work(self) -> None:
        """Copy, after the host was kept waiting between two marks."""
        self.gpu.host_s += self.delay_s
        self.gpu.work(COPY_S)
        self.made += 1

    def between(self) -> None:
        """Compare."""
        self.gpu.work(1e-4)

    def wrong(self) -> int:
        return 0


@pytest.mark.parametrize(
    ("delay_s", "attempts", "is_fed"),
    [(1e-5, 1, True), (0.003, 3, True), (0.006, 4, True), (0.020, 4, False)],
)
def test_copies_are_timed_again_until_the_device_is_fed(
    delay_s: float, attempts: int, *, is_fed: bool
) -> None:
    """With 10 ms ahead, then 20, 40 and 80; what is timed then is the device and not the process."""
    gpu = MadeGpu()
    copies: Any = Copies(gpu, delay_s)
    timed = links._rounds(gpu, "cuda:0", copies, is_queued=True)

    assert (copies.begun, copies.made, timed.is_fed) == (attempts, links.ROUNDS, is_fed)
    assert gpu.sleeps == [timing.AHEAD * 2**n for n in range(attempts)]
    slowest = max(timed.each)
    assert (slowest == pytest.approx(COPY_S)) == is_fed


def test_pageable_memory_is_copied_by_the_host_and_not_again() -> None:
    """There the device waits for it, always."""
    gpu = MadeGpu()
    copies: Any = Copies(gpu, 0.02)
    timed = links._rounds(gpu, "cuda:0", copies, is_queued=False)

    assert (copies.begun, len(timed.each), timed.is_fed) == (1, links.ROUNDS, True)


def test_a_device_that_waited_is_a_warning() -> None:
    """Its rate is none of its own; what was fed passes."""
    assert membw._fed("cuda:1", []) == {"status": "PASS"}
    warned = membw._fed("cuda:1", ["copy", "add"])
    assert (warned["status"], warned["code"]) == ("WARN", "jitter")
    assert "cuda:1: it waited for this process in copy, add" in warned["reason"]


def test_the_rate_of_a_device_that_waited_is_not_judged() -> None:
    """What was fed is, of the same test."""
    tests: list[dict[str, Any]] = []

    def add(name: str, **about: Any) -> None:
        tests.append({"name": name, "class": None, **about})

    report: Any = SimpleNamespace(add=add, models={})
    session: Any = SimpleNamespace(report=report, say=lambda *_: None)
    rows = [
        links.Link("h2d_pinned", [10.0] * 3, 0, 1.0, is_fed=False),
        links.Link("d2h_pinned", [46.0] * 3, 0, 1.0),
    ]
    membw._add_links(session, "membw.host", "cuda:0", rows)

    (test,) = tests
    assert (test["status"], test["code"]) == ("WARN", "jitter")
    assert [metric["name"] for _, metric in rates_of(tests)] == ["d2h_pinned"]


ASLEEP_S = 0.12
"""How long a link stays at its slow pace, as two H200 did."""
SLOW_COPY_S, AWAKE_COPY_S = 0.004, 0.001


class SleepingLink:
    """Makes each copy of a device that sleeps; it is slow until it copied for `ASLEEP_S`.

    It has the only clock: how long a copy takes here has no part in it.
    """

    def __init__(self) -> None:
        self.now_s = self.first_s = 0.0

    def __call__(self, _number: int, run: Callable[[], object], _target: object) -> None:
        """Copy, late where the link still sleeps."""
        self.first_s = self.first_s or self.now_s
        is_asleep = self.now_s < self.first_s + ASLEEP_S
        run()
        self.now_s += SLOW_COPY_S if is_asleep else AWAKE_COPY_S

    def monotonic(self) -> float:
        """The clock, which each look moves."""
        self.now_s += 1e-7
        return self.now_s

    perf_counter = monotonic

    def perf_counter_ns(self) -> int:
        return round(self.monotonic() * 1e9)

    def sleep_again(self) -> SleepingLink:
        """Begin with another link, on the same clock."""
        self.first_s = 0.0
        return self


@pytest.fixture
def sleeping(monkeypatch: pytest.MonkeyPatch) -> SleepingLink:
    """A link whose clock is what the copies are timed by."""
    link = SleepingLink()
    monkeypatch.setattr(links, "time", link)
    monkeypatch.setattr(timing, "time", link)
    return link


def test_a_link_between_gpus_is_measured_awake(sleeping: SleepingLink) -> None:
    """Its pace asleep is steady too: no rate that counts is one of those."""
    nbytes = 1 << 20
    [there, back] = links.peers(torch, ["cpu", "cpu"], nbytes, sleeping)

    assert (there.wrong, back.wrong) == (0, 0)
    assert there.both_ways == pytest.approx(nbytes / AWAKE_COPY_S / 1e9, rel=0.01)


@pytest.mark.parametrize(("long_copy", "nbytes"), [(60.0, 1 << 20), (0.0, 1 << 18)])
def test_between_peers_fewer_bytes_are_copied_where_a_copy_takes_long(
    monkeypatch: pytest.MonkeyPatch, long_copy: float, nbytes: int
) -> None:
    """Eight GPUs without peer access would take minutes for a quick run otherwise."""
    monkeypatch.setattr(links, "LONG_COPY", long_copy)
    sizes = set()

    def strike(_number: int, run: Callable[[], object], target: Any) -> None:
        sizes.add(target.nbytes)
        run()

    links.peers(torch, ["cpu", "cpu"], 1 << 20, strike, least=1 << 18)

    assert sizes == {nbytes}


def test_a_link_to_the_host_is_measured_awake(sleeping: SleepingLink) -> None:
    """Ten rounds take less than the link sleeps."""
    nbytes = 1 << 20
    found = links.host_links(torch, "cpu", nbytes, lambda _way: sleeping.sleep_again())

    for link in found:
        assert link.wrong == 0
        assert link.rates == pytest.approx([nbytes / AWAKE_COPY_S / 1e9] * links.ROUNDS, rel=0.01)
