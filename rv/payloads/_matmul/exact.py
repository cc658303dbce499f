"""Products that must be right: to the last bit, or within the rounding of their type.

Exact products have entries +1 and -1: every partial sum is a small integer, exact in every floating
type, so that the product has one right answer per type, whatever the order of the sums. The
reference is multiplied on the CPU and proven in 64-bit integers, which share no code with it.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import random
from typing import TYPE_CHECKING, Any

from contract.verdicts import NotPassed

from .dtypes import Factors, Kind, factors, gate, output_type

if TYPE_CHECKING:
    from .dtypes import Factors


PROOFS = 24  # random vectors: a wrong reference passes them with a chance of at most 2 ** -24


@functools.lru_cache(maxsize=1)
def reference(torch: Any, size: int, seed: int) -> tuple[Any, Any, Any]:
    """Make two matrices of +1 and -1 and their product, proven in integers by Freivalds' test."""
    generator = torch.Generator().manual_seed(seed)

    def signs(columns: int) -> Any:
        return torch.randint(0, 2, (size, columns), generator=generator, dtype=torch.int8) * 2 - 1

    left, right, vectors = signs(size), signs(size), signs(PROOFS).to(torch.int64)
    product = left.float() @ right.float()
    of_right = right.to(torch.int64) @ vectors
    if not torch.equal(product.to(torch.int64) @ vectors, left.to(torch.int64) @ of_right):
        raise NotPassed("FAIL", "wrong_result", "the CPU's own product of integers is wrong")
    return left, right, product


def require_exact(
    torch: Any, kind: Kind, device: str, size: int, seed: int, *, spoil: bool
) -> None:
    """Multiply, and raise with the first wrong element unless all are right."""
    left, right, expected = reference(torch, size, seed)
    product = factors(torch, kind, left, right, device).product()
    exact = expected.to(device).to(output_type(torch, kind))
    if spoil:
        product[1, 2] = -product[1, 2] - 1
    wrong = (product != exact).nonzero()
    if len(wrong):
        row, column = wrong[0].tolist()
        got, want = product[row, column].item(), exact[row, column].item()
        at = f"first [{row}, {column}] = {got:g}, not {want:g}"
        reason = f"{device} {kind.name}: {len(wrong)} wrong elements, {at}"
        raise NotPassed("FAIL", "wrong_result", reason, details={"wrong": len(wrong), "size": size})


def seeded(torch: Any, kind: Kind, device: str, size: int, seed: int) -> Factors:
    """Make random factors that are the same on every device: drawn on the CPU."""
    generator = torch.Generator().manual_seed(seed + 1)
    a, b = (torch.randn(size, size, generator=generator) for _ in "ab")
    return factors(torch, kind, a, b, device)


def repeat(given: Factors, times: int, seed: int, *, spoil: bool) -> str:
    """Multiply again and again, compare bitwise with a proven product; return its digest."""
    torch, first = given.torch, given.product()
    require_small(given, first, str(first.device), seed)
    bits = first.view(torch.uint8)
    for time in range(1, times + 1):
        again = given.product()
        if spoil and time == times:
            again[3, 4] *= -1
        if not torch.equal(again.view(torch.uint8), bits):
            elements = (again.view(torch.uint8) != bits).nonzero()
            where = f"first in row {int(elements[0, 0])}"
            reason = f"{first.device} {given.kind.name}: product {time} of {times} differs, {where}"
            raise NotPassed("FAIL", "not_repeatable", reason, details={"bytes": len(elements)})
    return digest(bits.cpu().contiguous())


def digest(tensor: Any) -> str:
    """Return the SHA-256 of a CPU tensor's bytes (without numpy, which may be absent)."""
    size = tensor.numel() * tensor.element_size()
    return hashlib.sha256(ctypes.string_at(tensor.data_ptr(), size)).hexdigest()[:32]


def python_product(seed: int, *, spoil: bool) -> int:
    """Multiply without torch, in Python's own integers; return the size."""
    size, signs = 48, random.Random(seed)  # noqa: S311 - test data
    left, right = _sign_matrix(signs, size), _sign_matrix(signs, size)
    columns = list(zip(*right, strict=True))
    product = [[_dot(row, column) for column in columns] for row in left]
    if spoil:
        product[1][2] += 2
    for _ in range(PROOFS):
        x = [signs.choice((-1, 1)) for _ in range(size)]
        if _applied(product, x) != _applied(left, _applied(right, x)):
            raise NotPassed("FAIL", "wrong_result", "Python's product of integers is wrong")
    return size


def _sign_matrix(signs: random.Random, size: int) -> list[list[int]]:
    return [[signs.choice((-1, 1)) for _ in range(size)] for _ in range(size)]


def _applied(matrix: list[list[int]], vector: list[int]) -> list[int]:
    return [_dot(row, vector) for row in matrix]


def _dot(row: Any, column: Any) -> int:
    return sum(a * b for a, b in zip(row, column, strict=True))


SIGMAS = 8.0
ROWS = 2048  # rows turned into fp64 at a time: a whole matrix may not fit


def require_small(
    given: Factors, product: Any, device: str, seed: int, *, spoil: bool = False
) -> dict[str, float]:
    """Return the residual's relative norm and largest component in sigma; raise if too large."""
    torch, (m, n, k) = given.torch, given.shape
    if spoil:
        product = product.clone()
        at = int(product[m // 2].abs().argmax())
        product[m // 2, at] *= -1
    generator = torch.Generator().manual_seed(seed + 2)
    x = (torch.randint(0, 2, (n, 1), generator=generator) * 2 - 1).double().to(device)
    expected = _times(torch, given.left, _times(torch, given.right, x))
    rest = (_times(torch, product, x) - expected).flatten()
    ratio = float(rest.norm() / expected.norm())
    allowed = gate(given.kind, k)
    noise = max(float(rest.abs().median()) / 0.6745, allowed * float(expected.norm()) / m / 100)
    sigma = float(rest.abs().max()) / noise
    details = {"ratio": ratio, "gate": allowed, "max_sigma": sigma}
    if not (ratio <= allowed and sigma <= SIGMAS):  # written so that NaN fails
        row = int(rest.abs().argmax())
        reason = (
            f"{device} {given.kind.name} {m}x{n}x{k}: residual {ratio:.2g} (gate {allowed:.2g}),"
            f" row {row} at {sigma:.0f} sigma"
        )
        raise NotPassed("FAIL", "residual_too_large", reason, details=details)
    return details


def _times(torch: Any, matrix: Any, vector: Any) -> Any:
    """Multiply in fp64, some rows at a time."""
    starts = range(0, matrix.shape[0], ROWS)
    parts = (matrix[row : row + ROWS] for row in starts)
    wide = (part.float() if part.element_size() == 1 else part for part in parts)  # fp8
    return torch.cat([part.double() @ vector for part in wide])
