"""Freivalds' test at full size: is C = A B? In O(n^2), without multiplying again.

For a random x of +1 and -1 the residual r = C x - A (B x), in fp64, is rounding noise in a sound C.
One wrong element stands out of that noise: flipping the sign of a large one gave 140 sigma in
bf16 and more in the others, where sound products stay below 5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from contract.verdicts import NotPassed

from .dtypes import gate

if TYPE_CHECKING:
    from .dtypes import Factors

SIGMAS = 8.0
ROWS = 2048  # rows turned into fp64 at a time: a whole matrix may not fit


def require_small(given: Factors, device: str, seed: int, *, spoil: bool) -> dict[str, float]:
    """Give the residual's relative norm and its largest component in sigma; raise for too large."""
    torch, (m, n, k) = given.torch, given.shape
    product = given.product()
    if spoil:
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
    found = {"ratio": ratio, "gate": allowed, "max_sigma": sigma}
    if not (ratio <= allowed and sigma <= SIGMAS):  # written so that NaN fails
        row = int(rest.abs().argmax())
        reason = (
            f"{device} {given.kind.name} {m}x{n}x{k}: residual {ratio:.2g} (gate {allowed:.2g}),"
            f" row {row} at {sigma:.0f} sigma"
        )
        raise NotPassed("FAIL", "residual_too_large", reason, details=found)
    return found


def _times(torch: Any, matrix: Any, vector: Any) -> Any:
    """Multiply in fp64, some rows at a time."""
    starts = range(0, matrix.shape[0], ROWS)
    parts = (matrix[row : row + ROWS] for row in starts)
    wide = (part.float() if part.element_size() == 1 else part for part in parts)  # fp8
    return torch.cat([part.double() @ vector for part in wide])
