"""Between tensors and bytes, without numpy and without pickle; and what can be done with them."""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .wire import Frame, Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

OPERATIONS = ("relu", "sigmoid", "tanh", "abs", "neg", "exp", "log", "sqrt", "matmul")
MOST_OPERATIONS = 64


def to_frame(tensor: Any, operations: Sequence[str] = ()) -> Frame:
    """Copy a CPU tensor's bytes."""
    whole = tensor.contiguous()
    raw = ctypes.string_at(whole.data_ptr(), whole.numel() * whole.element_size())
    return Frame(
        str(whole.dtype).removeprefix("torch."), tuple(whole.shape), raw, tuple(operations)
    )


def from_frame(torch: Any, frame: Frame) -> Any:
    """Make a CPU tensor of a frame's bytes."""
    dtype = getattr(torch, frame.dtype)
    if not len(frame.raw):
        return torch.empty(frame.shape, dtype=dtype)
    return torch.frombuffer(bytearray(frame.raw), dtype=dtype).reshape(frame.shape)


def apply(torch: Any, names: Sequence[str], tensor: Any) -> Any:
    """Do one operation after the other. Raises Refused(422) for what cannot be done."""
    unknown = [name for name in names if name not in OPERATIONS]
    if unknown or not names or len(names) > MOST_OPERATIONS:
        what = (
            f"unsupported operation {unknown[0][:40]!r}" if unknown else "no or too many operations"
        )
        raise Refused(422, f"{what}; supported: {', '.join(OPERATIONS)}")
    for name in names:
        try:
            tensor = tensor @ tensor if name == "matmul" else getattr(torch, name)(tensor)
        except (RuntimeError, TypeError) as error:
            said = str(error).partition("\n")[0][:200]
            raise Refused(422, f"{name} is not possible with this tensor: {said}") from error
    return tensor


@dataclass
class Phases:
    """Milliseconds of the parts of one request, by name."""

    torch: Any = None
    device: str = "cpu"
    ms: dict[str, float] = field(default_factory=dict)
    _since: float = field(default_factory=time.perf_counter)

    def done(self, name: str) -> None:
        """Count the time since the last part to this one, once the device has done it."""
        if self.torch is not None and self.device.startswith("cuda"):
            self.torch.cuda.synchronize(self.device)
        now = time.perf_counter()
        self.ms[name] = round(self.ms.get(name, 0.0) + (now - self._since) * 1e3, 4)
        self._since = now
