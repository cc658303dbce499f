"""A tensor on the wire: a magic word, a JSON header with type and shape, and the raw bytes.

Nothing of it is ever unpickled or evaluated: what a stranger sends is numbers or is refused.
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from typing import Any

MAGIC = b"RVT1"
CONTENT_TYPE = "application/x-rv-tensor"
LONGEST_HEADER = 65536  # bytes
MOST_DIMENSIONS = 8
ITEM_SIZES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1,
}  # fmt: skip


class Refused(Exception):  # noqa: N818 - an answer to the sender
    """What was sent is not taken: an HTTP status and why."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


@dataclass(frozen=True)
class Frame:
    """A tensor's type, shape and bytes, and what is to be done with it."""

    dtype: str
    shape: tuple[int, ...]
    raw: bytes | memoryview
    operations: tuple[str, ...] = ()


def encode(frame: Frame) -> bytes:
    """Put a frame into bytes."""
    header = json.dumps(
        {"dtype": frame.dtype, "shape": list(frame.shape), "operations": list(frame.operations)}
    ).encode()
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
    except ValueError:  # bytes that are no UTF-8 too
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
    wanted = math.prod(shape) * ITEM_SIZES[dtype]
    if wanted != len(raw):
        raise Refused(422, f"a {dtype} of shape {shape} has {wanted} bytes, {len(raw)} were sent")
    return Frame(dtype, tuple(shape), raw, tuple(operations))


def _is_shape(shape: list[Any]) -> bool:
    sizes = all(type(size) is int and 0 <= size < 2**40 for size in shape)
    return len(shape) <= MOST_DIMENSIONS and sizes
