"""A mixture of experts: the hub's own Mixtral with random weights, small; its decoding.

Nothing is downloaded: the package transformers has the classes, and the weights follow from a seed.
"""

from __future__ import annotations

import importlib
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from contract.verdicts import NotPassed

if TYPE_CHECKING:
    from collections.abc import Sequence

EXPERTS, CHOSEN = 8, 2
"""Experts of a layer, and those that each token goes through: as in Mixtral 8x7B."""


class Size(NamedTuple):
    """Width, width inside of an expert, layers, heads, and words of the vocabulary."""

    width: int
    inner: int
    layers: int
    heads: int
    vocabulary: int

    @property
    def word(self) -> str:
        """Its width, that of an expert, and its layers, as results name a size."""
        return f"{self.width}x{self.inner}x{self.layers}"


TINY = Size(32, 64, 2, 4, 128)
SMALL = Size(1024, 3584, 8, 16, 4096)
"""0.7 billion parameters in the experts: a sixty-fourth of Mixtral 8x7B."""
HALF = Size(1024, 3584, 4, 16, 4096)
"""Half of its layers: for a quick look, as most of the time goes to making the weights, and for a
GPU, or a MIG slice, that has no room for all."""
SPARE = 1.4
"""Of the weights of two models: for what is computed, and what sharding gathers."""


class Room(NamedTuple):
    """What a rank has for the test: bytes free and in all of its GPU, and why it cannot be run."""

    free: int
    total: int
    why_not: str = ""


def why_not() -> str:
    """Return why there is no such model here, or ""."""
    try:
        # The class is a placeholder, which raises at its first use, where torch is too old for it.
        importlib.import_module("transformers").MixtralForCausalLM.forward  # noqa: B018
    except (ImportError, AttributeError, RuntimeError) as error:
        said = " ".join(str(error).split())[:300]
        return f"a mixture of experts needs the package transformers: {said}"
    return ""


def parameters(size: Size) -> int:
    """Count the weights of a model, but for norms and routers."""
    experts = EXPERTS * 3 * size.width * size.inner
    attention = 3 * size.width**2  # of queries, out, and half as many heads of keys and values
    return size.layers * (experts + attention) + 2 * size.vocabulary * size.width


def needs(size: Size) -> int:
    """Return the bytes that a test takes: the model in single precision, and one to compare."""
    return int(2 * 4 * parameters(size) * SPARE)


def fitting(sizes: Sequence[Size], rooms: Sequence[Room]) -> Size:
    """Return the first size that has room on every rank; all ranks choose alike.

    Raises NotPassed: SKIP where transformers is absent on any, or its GPU is too small for the last
    size; ERROR `out_of_memory` where others hold the memory for that.
    """
    if absent := [room.why_not for room in rooms if room.why_not]:
        raise NotPassed("SKIP", "tool_absent", absent[0])
    for size in sizes:
        if all(needs(size) <= room.free for room in rooms):
            return size
    free, total = min(room.free for room in rooms), min(room.total for room in rooms)
    need = f"{needs(sizes[-1]) >> 20} MiB for a mixture of experts"
    if needs(sizes[-1]) > total:
        reason = f"the GPU is too small: {total >> 20} MiB, {need}"
        raise NotPassed("SKIP", "unsupported", reason)
    raise NotPassed("ERROR", "out_of_memory", f"{free >> 20} of {total >> 20} MiB free, {need}")


def mixtral(size: Size, seed: int) -> Any:
    """Make the model in single precision; transformers must be there."""
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(
        vocab_size=size.vocabulary, hidden_size=size.width, intermediate_size=size.inner,
        num_hidden_layers=size.layers, num_attention_heads=size.heads,
        num_key_value_heads=size.heads // 2, num_local_experts=EXPERTS,
        num_experts_per_tok=CHOSEN, max_position_embeddings=4096,
        initializer_range=size.width**-0.5,  # so that each expert matters
    )  # fmt: skip
    torch.manual_seed(seed)
    return MixtralForCausalLM(config).eval()


def prompts(size: Size, rows: int, length: int, seed: int) -> torch.Tensor:
    """Return random rows of tokens."""
    made = torch.Generator().manual_seed(seed)
    return torch.randint(size.vocabulary, (rows, length), generator=made)


class Decoded(NamedTuple):
    """The rows with what was decoded, the logits of the prompt, and the seconds of each step."""

    rows: torch.Tensor
    logits: torch.Tensor
    seconds: list[float]


@torch.no_grad()
def decode(model: Any, given: torch.Tensor, steps: int) -> Decoded:
    """Decode greedily with a cache of keys and values; all ranks take equally many steps."""
    rows, cache, seconds = given, None, list[float]()
    first = last = given
    for step in range(steps):
        start = time.perf_counter()
        said = model(input_ids=last, past_key_values=cache, use_cache=True)
        cache = said.past_key_values
        last = said.logits[:, -1:].argmax(dim=-1)
        rows = torch.cat([rows, last], dim=1)
        rows[0, -1].item()  # waits for the device
        seconds.append(time.perf_counter() - start)
        first = first if step else said.logits
    return Decoded(rows, first, seconds)


class Alone(NamedTuple):
    """What one process says of all tokens at once: logits, and the tokens of each expert."""

    logits: torch.Tensor
    used: list[int]


@torch.no_grad()
def of_prompt(model: Any, given: torch.Tensor) -> torch.Tensor:
    """Return the logits of the prompt, in the shapes in which `decode` has them."""
    return model(input_ids=given, use_cache=True).logits


@torch.no_grad()
def alone(model: Any, rows: torch.Tensor) -> Alone:
    """Run a whole model over whole rows, without a cache."""
    said = model(input_ids=rows, use_cache=False, output_router_logits=True)
    chosen = [layer.topk(CHOSEN, dim=-1).indices.flatten() for layer in said.router_logits]
    counts = torch.bincount(torch.cat(chosen), minlength=EXPERTS)
    return Alone(said.logits, counts.tolist())


def furthest(came: torch.Tensor, right: torch.Tensor) -> float:
    """Return the largest difference, as a part of the largest value."""
    return float((came.float() - right.float()).abs().max() / right.float().abs().max())


def worst_choice(rows: torch.Tensor, given: int, logits: torch.Tensor) -> tuple[float, int]:
    """Return by how much, and how often, a decoded token was not the best one.

    `logits` are of the same rows in one process. Two that are almost equal may change places by
    rounding, so that what counts is how far below the best one the token is that was taken.
    """
    taken = rows[:, given:]
    before = logits[:, given - 1 : -1].float()
    best = before.max(dim=-1).values
    gaps = best - before.gather(-1, taken[..., None])[..., 0]
    return float(gaps.max() / before.abs().max()), int((gaps > 0).sum())
