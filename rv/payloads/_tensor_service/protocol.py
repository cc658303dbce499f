"""A tensor on the wire: `RVT1`, the length of a header, a JSON header, and the raw bytes.

Nothing is ever unpickled or evaluated: what a client sends is numbers, or is refused.
"""

from __future__ import annotations

import ctypes
import json
import math
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

MAGIC = b"RVT1"
CONTENT_TYPE = "application/x-rv-tensor"
LONGEST_HEADER = 65536  # bytes
MOST_DIMENSIONS, MOST_OPERATIONS, MOST_ELEMENTS = 8, 64, 2**40
ITEM_SIZES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1,
}  # fmt: skip
OPERATIONS = ("relu", "sigmoid", "tanh", "abs", "neg", "exp", "log", "sqrt", "matmul")


class Refused(Exception):  # noqa: N818 - an answer to the client
    """A request that is refused: the HTTP status and the reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


@dataclass(frozen=True)
class Frame:
    """A tensor's type, shape and bytes, and the operations asked for."""

    dtype: str
    shape: tuple[int, ...]
    raw: bytes | memoryview
    operations: tuple[str, ...] = ()


def encode(frame: Frame) -> bytes:
    """Return the bytes of a frame."""
    fields = {"dtype": frame.dtype, "shape": frame.shape, "operations": frame.operations}
    header = json.dumps(fields).encode()
    return b"".join((MAGIC, struct.pack("<I", len(header)), header, frame.raw))


def decode(body: bytes) -> Frame:
    """Read a frame. Raises Refused: 400 for what is no frame, 422 for one without a tensor."""
    if body[:4] != MAGIC or len(body) < 8:
        raise Refused(400, "this is not a tensor: send RVT1, header length, JSON header, raw bytes")
    (length,) = struct.unpack("<I", body[4:8])
    if length > LONGEST_HEADER or 8 + length > len(body):
        raise Refused(400, "the header is longer than what was sent")
    try:
        header = json.loads(body[8 : 8 + length])
    except (ValueError, RecursionError):  # bytes that are no UTF-8, or 60,000 brackets
        raise Refused(400, "the header is not JSON") from None
    if not isinstance(header, dict):
        raise Refused(400, "the header is not a JSON object")
    return _checked(header, memoryview(body)[8 + length :])


def _checked(header: dict[str, Any], raw: memoryview) -> Frame:
    dtype, shape, operations = (header.get(name) for name in ("dtype", "shape", "operations"))
    if not isinstance(dtype, str) or dtype not in ITEM_SIZES:
        raise Refused(422, f"unsupported dtype; supported: {', '.join(ITEM_SIZES)}")
    if not isinstance(shape, list) or not _is_shape(shape):
        raise Refused(422, f"the shape is not a list of at most {MOST_DIMENSIONS} sizes")
    if not isinstance(operations, list) or not all(isinstance(name, str) for name in operations):
        raise Refused(422, "operations is not a list of names")
    size = math.prod(shape) * ITEM_SIZES[dtype]
    if size != len(raw):
        raise Refused(422, f"a {dtype} of shape {shape} has {size} bytes, {len(raw)} were sent")
    return Frame(dtype, tuple(shape), raw, tuple(operations))


def _is_shape(shape: list[Any]) -> bool:
    if len(shape) > MOST_DIMENSIONS or not all(type(size) is int and size >= 0 for size in shape):
        return False
    # An empty tensor has strides too, which torch counts in 64 bits.
    return math.prod(max(1, size) for size in shape) < MOST_ELEMENTS


def to_frame(tensor: Any, operations: Sequence[str] = ()) -> Frame:
    """Copy a CPU tensor's bytes; numpy is not needed."""
    whole = tensor.contiguous()
    raw = ctypes.string_at(whole.data_ptr(), whole.numel() * whole.element_size())
    dtype = str(whole.dtype).removeprefix("torch.")
    return Frame(dtype, tuple(whole.shape), raw, tuple(operations))


def from_frame(torch: Any, frame: Frame) -> Any:
    """Make a CPU tensor of a frame's bytes."""
    dtype = getattr(torch, frame.dtype)
    if not len(frame.raw):
        return torch.empty(frame.shape, dtype=dtype)
    return torch.frombuffer(bytearray(frame.raw), dtype=dtype).reshape(frame.shape)


def apply(torch: Any, names: Sequence[str], tensor: Any) -> Any:
    """Do one operation after the other. Raises Refused(422) for what cannot be done."""
    supported = f"supported: {', '.join(OPERATIONS)}"
    if not 0 < len(names) <= MOST_OPERATIONS:
        raise Refused(422, f"no or too many operations; {supported}")
    for name in names:
        if name not in OPERATIONS:
            raise Refused(422, f"unsupported operation {name[:40]!r}; {supported}")
    for name in names:
        try:
            tensor = tensor @ tensor if name == "matmul" else getattr(torch, name)(tensor)
        except (RuntimeError, TypeError) as error:
            why = str(error).partition("\n")[0][:200]
            raise Refused(422, f"{name} is not possible with this tensor: {why}") from error
    return tensor
