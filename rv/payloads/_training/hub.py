"""A causal language model of the Hugging Face hub, where transformers is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from contract.verdicts import NotPassed

if TYPE_CHECKING:
    from collections.abc import Callable

    from .data import Batch

TEXT = "A researcher on a busy cluster wants GPUs soon, and does not care where they come from. "
LENGTH = 128


class Logits(torch.nn.Module):
    """A hub model that gives its logits alone, as the built-in decoder does."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Give the logits of each next token."""
        return self.inner(input_ids=x, use_cache=False).logits


def model(name: str) -> Logits:
    """Load a model into fp32; raises NotPassed without transformers."""
    return Logits(_transformers().AutoModelForCausalLM.from_pretrained(name).float())


def batches(name: str, rows: int) -> Callable[[int], Batch]:
    """Give the same short text in every row and step: a loss that must fall fast."""
    tokenizer = _transformers().AutoTokenizer.from_pretrained(name)
    ids = torch.tensor(tokenizer(TEXT * 20)["input_ids"][: LENGTH + 1]).repeat(rows, 1)
    return lambda _step: (ids[:, :-1], ids[:, 1:])


def _transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        reason = f"--hf-model needs the package transformers: {error}"
        raise NotPassed("ERROR", "could_not_run", reason) from error
    return transformers
