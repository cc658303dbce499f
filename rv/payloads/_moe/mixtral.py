"""A mixture of experts: the hub's own Mixtral with random weights, small; its decoding.

Nothing is downloaded: the package transformers has the classes, and the weights follow from a seed.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import torch
from contract.verdicts import NotPassed

EXPERTS, CHOSEN = 8, 2
"""Experts of a layer, and those that each token goes through: as in Mixtral 8x7B."""


class Size(NamedTuple):
    """Width, width inside of an expert, layers, heads, and words of the vocabulary."""

    width: int
    inner: int
    layers: int
    heads: int
    vocabulary: int


TINY = Size(32, 64, 2, 4, 128)
SMALL = Size(1024, 3584, 8, 16, 4096)
"""0.7 billion parameters in the experts: a sixty-fourth of Mixtral 8x7B."""
HALF = Size(1024, 3584, 4, 16, 4096)
"""Half of its layers, for a quick look: most of the time goes to making the weights."""


def mixtral(size: Size, seed: int) -> Any:
    """Make the model in single precision. Raises NotPassed (SKIP) without transformers."""
    try:
        from transformers import MixtralConfig, MixtralForCausalLM
    except ImportError as error:
        reason = f"a mixture of experts needs the package transformers: {error}"
        raise NotPassed("SKIP", "tool_absent", reason) from error
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
