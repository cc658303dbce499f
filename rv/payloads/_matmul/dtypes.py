"""The number types that products are tested in, and what each device can do."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True)
class Kind:
    """A type of factors: torch's name, and the gate of its Freivalds residual.

    The gates are twice what was measured at K = 4096 on four H200 (fp64: five times): a clean
    product of any size stays below, as the residual hardly depends on it; where it grows with the
    length of a sum (fp32, fp64), so does the gate.
    """

    name: str
    torch_name: str
    gate: float
    capability: tuple[int, int] = (0, 0)
    grows: bool = False


KINDS = {
    kind.name: kind
    for kind in (
        Kind("fp64", "float64", 1e-14, grows=True),
        Kind("fp32", "float32", 2.5e-6, grows=True),
        Kind("tf32", "float32", 6e-4, capability=(8, 0)),
        Kind("fp16", "float16", 4.2e-4, capability=(5, 3)),
        Kind("bf16", "bfloat16", 3.4e-3, capability=(8, 0)),
        Kind("fp8", "float8_e4m3fn", 3.4e-3, capability=(8, 9)),
    )
}
ON_CPU = ("fp64", "fp32", "bf16")


def gate(kind: Kind, k: int) -> float:
    """Return the largest residual of a sound product whose sums have `k` terms."""
    return kind.gate * max(1.0, (k / 4096) ** 0.5) if kind.grows else kind.gate


def why_not(torch: Any, kind: Kind, device: str) -> str:
    """Return why a device lacks this type, or ""; emulated types count as missing."""
    if device == "cpu":
        return "" if kind.name in ON_CPU else "not on a CPU"
    if not hasattr(torch, kind.torch_name):
        return f"torch {torch.__version__} has no {kind.torch_name}"
    has = torch.cuda.get_device_capability(device)
    if has >= kind.capability:
        return ""
    return f"needs capability {'.'.join(map(str, kind.capability))}, has {has[0]}.{has[1]}"


@contextlib.contextmanager
def precision(torch: Any, kind: Kind) -> Iterator[None]:
    """Set torch's precision switches: TF32 for tf32 alone, full-precision sums."""
    matmul = torch.backends.cuda.matmul
    matmul.allow_bf16_reduced_precision_reduction = False
    matmul.allow_fp16_reduced_precision_reduction = False
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if kind.name == "tf32" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@dataclass(frozen=True)
class Factors:
    """Two matrices on a device, as their type wants them laid out.

    `strike(factors, out)` makes a product in place of `multiply`: an injected fault.
    """

    torch: Any
    kind: Kind
    left: Any
    right: Any
    one: Any = None
    strike: Callable[[Factors, Any], object] | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        """M, N and K."""
        return self.left.shape[0], self.right.shape[1], self.left.shape[1]

    def product(self, out: Any = None) -> Any:
        """Multiply into `out`, or into new memory that is poisoned first."""
        out = self.poisoned() if out is None else out
        (self.strike or Factors.multiply)(self, out)
        return out

    def poisoned(self) -> Any:
        """Return an output of NaN: one that is not written to its end shows it.

        What the allocator gives may hold the right bytes of the product before.
        """
        m, n, _ = self.shape
        dtype = output_type(self.torch, self.kind)
        return self.torch.full((m, n), float("nan"), dtype=dtype, device=self.left.device)

    def multiply(self, out: Any) -> None:
        """Multiply; fp8 factors give a bf16 product, summed without the fast accumulator."""
        if self.kind.name != "fp8":
            self.torch.mm(self.left, self.right, out=out)
            return
        scaled = self.torch._scaled_mm  # noqa: SLF001 - the only product of fp8 that torch has
        scaled(
            self.left, self.right, scale_a=self.one, scale_b=self.one,
            out_dtype=self.torch.bfloat16, use_fast_accum=False, out=out,
        )  # fmt: skip


def factors(torch: Any, kind: Kind, left: Any, right: Any, device: str) -> Factors:
    """Bring two matrices to a device in this type."""
    dtype = getattr(torch, kind.torch_name)
    a, b = (matrix.to(device).float().to(dtype) for matrix in (left, right))
    if kind.name != "fp8":
        return Factors(torch, kind, a, b)
    one = torch.ones((), device=device)
    return Factors(torch, kind, a.contiguous(), b.t().contiguous().t(), one)


def output_type(torch: Any, kind: Kind) -> Any:
    """Return the type of a product."""
    return torch.bfloat16 if kind.name == "fp8" else getattr(torch, kind.torch_name)
