"""The built-in models: nothing to download."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from .data import CLASSES, FEATURES, LENGTH, VOCABULARY


def mlp(seed: int) -> nn.Module:
    """Make a perceptron of 128, 256 and 4."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(FEATURES, 256), nn.ReLU(), nn.Linear(256, CLASSES))


def decoder(seed: int, width: int = 64, layers: int = 2) -> Decoder:
    """Make a small transformer decoder."""
    torch.manual_seed(seed)
    return Decoder(width, layers)


def loss_of(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Give the mean cross entropy, of rows or of rows of tokens."""
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
        """Add what attention and feed-forward say."""
        rows, length, width = x.shape
        heads = self.qkv(self.norm1(x)).view(rows, length, 3, self.heads, -1).transpose(1, 3)
        query, key, value = heads.unbind(dim=2)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(rows, length, width))
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
        """Give the logits of each next token."""
        h = self.token(x) + self.place[: x.shape[1]]
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h)).clone()  # no view: FSDP2 hooks into the output
