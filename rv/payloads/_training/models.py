"""The models and their data: two built-in ones, and one of the Hugging Face hub."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from contract.verdicts import NotPassed
from torch import nn
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable


Batch = tuple[torch.Tensor, torch.Tensor]
FEATURES, CLASSES, VOCABULARY, LENGTH = 128, 4, 64, 32


def vectors(seed: int, size: int) -> Callable[[int], Batch]:
    """Return batches of normal vectors, labelled by the largest of four fixed projections."""
    truth = torch.randn(FEATURES, CLASSES, generator=torch.Generator().manual_seed(seed))

    def batch(step: int) -> Batch:
        x = torch.randn(size, FEATURES, generator=_generator(seed, step))
        return x, (x @ truth).argmax(dim=1)

    return batch


def tokens(seed: int, size: int) -> Callable[[int], Batch]:
    """Return batches of token rows, each following the same rule from a random first token."""

    def batch(step: int) -> Batch:
        row = torch.randint(VOCABULARY, (size,), generator=_generator(seed, step))
        rows = [row]
        for _ in range(LENGTH):
            rows.append((rows[-1] * 5 + 7) % VOCABULARY)
        text = torch.stack(rows, dim=1)
        return text[:, :-1], text[:, 1:]

    return batch


def part(batch: Batch, rank: int, world: int, device: str) -> Batch:
    """Return a rank's own rows of a global batch; all ranks get equally many."""
    x, y = batch
    size = len(x) // world
    rows = slice(rank * size, (rank + 1) * size)
    return x[rows].to(device), y[rows].to(device)


def _generator(seed: int, step: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed * 1_000_003 + step + 1)


def mlp(seed: int) -> nn.Module:
    """Make a perceptron of 128, 256 and 4."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(FEATURES, 256), nn.ReLU(), nn.Linear(256, CLASSES))


def decoder(seed: int) -> Decoder:
    """Make a small transformer decoder: two layers, 64 wide."""
    torch.manual_seed(seed)
    return Decoder(64, 2)


def loss_of(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the mean cross entropy, of rows or of rows of tokens."""
    return functional.cross_entropy(outputs.flatten(0, -2).float(), labels.flatten())


class Block(nn.Module):
    """Causal self-attention and a feed-forward layer, each on a normalized residual stream."""

    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add the outputs of attention and feed-forward to the residual stream."""
        rows, length, width = x.shape
        heads = self.qkv(self.norm1(x)).view(rows, length, 3, self.heads, -1).transpose(1, 3)
        query, key, value = heads.unbind(dim=2)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(rows, length, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Decoder(nn.Module):
    """Embeddings, blocks and a head."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, width)
        self.place = nn.Parameter(torch.randn(LENGTH, width) * 0.02)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits of each next token."""
        h = self.token(x) + self.place[: x.shape[1]]
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h)).clone()  # no view: FSDP2 hooks into the output


HUB_TEXT = (
    "A researcher on a busy cluster wants GPUs soon, and does not care where they come from. "
)
HUB_LENGTH = 128


class Logits(torch.nn.Module):
    """A hub model that gives its logits alone, as the built-in decoder does."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits of each next token."""
        return self.inner(input_ids=x, use_cache=False).logits


def hub_model(name: str) -> Logits:
    """Load a model into fp32; raises NotPassed without transformers."""
    return Logits(_transformers().AutoModelForCausalLM.from_pretrained(name).float())


def hub_batches(name: str, rows: int) -> Callable[[int], Batch]:
    """Return the same short text in every row and step: a loss that must fall fast."""
    tokenizer = _transformers().AutoTokenizer.from_pretrained(name)
    ids = torch.tensor(tokenizer(HUB_TEXT * 20)["input_ids"][: HUB_LENGTH + 1]).repeat(rows, 1)
    return lambda _step: (ids[:, :-1], ids[:, 1:])


def _transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        reason = f"--hf-model needs the package transformers: {error}"
        raise NotPassed("ERROR", "could_not_run", reason) from error
    return transformers
