"""Batches that are timed, each of whose outputs is compared with that of a proven run.

Five batches of different images take turns, so that an output left over from before is another's.
Outputs are kept until they are compared, and then poisoned: memory that is handed out again holds
no right bytes. The device compares, and nothing waits for it.
"""

from __future__ import annotations

import itertools
import time
from typing import Any

import torch
from contract.verdicts import NotPassed

from .resnet import Shape, images, resnet

IMAGES = 5  # batches that take turns: a prime, for buffers come in powers of two
KEPT = 32  # outputs until they are compared
PROVEN = 2  # images of each batch that a CPU computes in single precision
TOLERANCE = {"fp16": 2e-2, "bf16": 1e-1}
"""How far outputs may be off those in single precision, by length; and off the proven ones, by the
largest difference, as a part of the largest value."""


class Batches:
    """A network and its batches on one device; calling it infers the next batch."""

    def __init__(
        self,
        shape: Shape,
        size: int,
        device: str,
        seed: int,
        faults: tuple[Any, Any] = (None, None),
    ) -> None:
        self.device, self.size = device, size
        self.strike, self.misplace = faults  # what changes one output, and what changes each
        self.kind = "bf16" if device == "cpu" else "fp16"
        self.dtype = torch.bfloat16 if device == "cpu" else torch.float16
        self.plain = resnet(shape, seed)
        network: Any = resnet(shape, seed)
        self.network = network.to(device, memory_format=torch.channels_last)
        own = [images(shape, size, seed + number) for number in range(IMAGES)]
        self.few = [each[:PROVEN].clone() for each in own]
        self.given = [each.to(device).contiguous(memory_format=torch.channels_last) for each in own]
        self.made = self.compared = 0
        self._kept: list[tuple[int, torch.Tensor]] = []
        self._found: list[torch.Tensor] = []
        self.proven = [self._infer(number) for number in range(IMAGES)]

    def _infer(self, number: int) -> torch.Tensor:
        return self._forward(self.given[number % IMAGES])

    def _forward(self, given: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode(), torch.autocast(self.device.partition(":")[0], self.dtype):
            out = self.network(given)
            return out if self.misplace is None else self.misplace(out)

    def require_places(self) -> float:
        """Infer each batch the other way round, and return how far an image is off at most.

        A CPU proves a few images of a batch alone: another that comes wrong in its place, each
        time, would else be what all later ones are held against. Raises NotPassed.
        """
        distances = [
            self._distance(self._forward(given.flip(0)).flip(0), right)
            for given, right in zip(self.given, self.proven, strict=True)
        ]
        far = [each for each in distances if not each <= TOLERANCE[self.kind]]  # NaN too
        if far:
            where = f"{self.device}: images come out otherwise at another place of their batch"
            reason = f"{where}, {far[0]:.2g} off (gate {TOLERANCE[self.kind]:g})"
            raise NotPassed("FAIL", "residual_too_large", reason)
        return max(distances)

    def _distance(self, came: torch.Tensor, right: torch.Tensor) -> float:
        """Return the largest difference as a part of the largest value, as in `compare`."""
        return float((came.float() - right.float()).abs().max() / right.float().abs().max())

    def require_proven(self, *, spoil: bool = False) -> float:
        """Compare some outputs with those of a CPU in single precision; return the distance.

        Raises NotPassed where one is too far off: rounding to half precision takes some 0.2 %.
        """
        with torch.inference_mode():
            right = torch.cat([self.plain(few) for few in self.few])
        came = torch.cat([each[:PROVEN].float().cpu() for each in self.proven])
        if spoil:
            came[0] += came.abs().max()
        distance = float((came - right).norm() / right.norm())
        if not distance <= TOLERANCE[self.kind]:  # written so that NaN fails
            gate = TOLERANCE[self.kind]
            reason = f"{self.device}: outputs in {self.kind} are {distance:.2g} off those in fp32"
            raise NotPassed("FAIL", "residual_too_large", f"{reason} (gate {gate:g})")
        return distance

    def __call__(self) -> None:
        """Infer the next batch, and keep its output."""
        out = self._infer(self.made)
        if self.strike is not None:
            with torch.inference_mode():
                out = self.strike(self.made, out, self.proven)
        self._kept.append((self.made, out))
        self.made += 1
        if len(self._kept) >= KEPT:
            self.compare()

    def compare(self) -> None:
        """Compare and poison what was kept: bits that differ, and the largest difference."""
        with torch.inference_mode():
            for number, out in self._kept:
                right = self.proven[number % IMAGES]
                bits = torch.count_nonzero(out.view(torch.int16) != right.view(torch.int16))
                apart = (out.float() - right.float()).abs().max()
                distance = apart / right.float().abs().max()
                self._found.append(torch.stack([bits.double(), distance.double()]))
                out.fill_(float("nan"))
        self.compared += len(self._kept)
        self._kept.clear()

    def require_right(self) -> dict[str, int]:
        """Return how many outputs were made, compared, and not the same bit by bit.

        Raises NotPassed where one is another output, and not only rounded otherwise.
        """
        self.compare()
        found = torch.stack(self._found).tolist()
        gate = TOLERANCE[self.kind]
        wrong = [at for at, (_, distance) in enumerate(found) if not distance <= gate]
        other = sum(1 for bits, _ in found if bits)
        details = {"made": self.made, "compared": self.compared, "other_bits": other}
        if wrong:
            reason = (
                f"{self.device}: {len(wrong)} of {self.compared} outputs are wrong while they are"
                f" timed, first number {wrong[0]}"
            )
            raise NotPassed("FAIL", "wrong_result", reason, details=details)
        return details


def timed(work: Batches, rounds: int) -> tuple[list[float], float]:
    """Infer batches; return the seconds of each, and of all by the clock, comparisons included."""
    is_cuda = work.device.startswith("cuda")
    if is_cuda:
        torch.cuda.synchronize(work.device)
    marks: list[Any] = []
    start = time.perf_counter()
    for _ in range(rounds):
        marks.append(_mark(work.device))
        work()
    marks.append(_mark(work.device))
    if is_cuda:
        torch.cuda.synchronize(work.device)
    whole = time.perf_counter() - start
    return [_seconds(*pair) for pair in itertools.pairwise(marks)], whole


def _mark(device: str) -> Any:
    if not device.startswith("cuda"):
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record(torch.cuda.current_stream(device))
    return event


def _seconds(first: Any, second: Any) -> float:
    if isinstance(first, float):
        return second - first
    return first.elapsed_time(second) / 1e3
