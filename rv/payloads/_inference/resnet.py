"""ResNet-50 of version 1.5 (stride in the 3x3 convolution) in plain layers, with random weights.

He, Zhang, Ren, Sun: Deep Residual Learning for Image Recognition, table 1: 25.6 million parameters
and 4.1 GFLOP (multiply and add as one) for an image of 224 x 224.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn

EXPANSION = 4
RESIDUAL = 0.2
"""The scale of each residual branch: with random weights a scale of 1 would double the variance in
every block, and half precision would overflow in a deeper one."""


class Shape(NamedTuple):
    """Blocks of each stage, channels of the first, classes, and the side of an image in pixels."""

    blocks: tuple[int, ...]
    width: int
    classes: int
    side: int


FULL = Shape((3, 4, 6, 3), 64, 1000, 224)
TINY = Shape((1, 1, 1, 1), 8, 16, 32)
"""For a CPU: every kind of layer once."""


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions beside a shortcut."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * EXPANSION
        last = nn.BatchNorm2d(outputs)
        nn.init.constant_(last.weight, RESIDUAL)
        self.branch = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, outputs, 1, bias=False), last,
        )  # fmt: skip
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            projection = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.shortcut = nn.Sequential(projection, nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add the branch to the shortcut."""
        return torch.relu(self.branch(x) + self.shortcut(x))


def resnet(shape: Shape, seed: int) -> nn.Module:
    """Make the network, ready to infer: batch normalization with fixed statistics."""
    torch.manual_seed(seed)
    inputs = shape.width
    layers: list[nn.Module] = [
        nn.Conv2d(3, inputs, 7, 2, 3, bias=False), nn.BatchNorm2d(inputs), nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
    ]  # fmt: skip
    for stage, count in enumerate(shape.blocks):
        width = shape.width * 2**stage
        for block in range(count):
            stride = 2 if stage and not block else 1
            layers.append(Bottleneck(inputs, width, stride))
            inputs = width * EXPANSION
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, shape.classes)]
    network = nn.Sequential(*layers)
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return network.eval()


def images(shape: Shape, count: int, seed: int) -> torch.Tensor:
    """Return random images, the same for a seed wherever they are used."""
    made = torch.Generator().manual_seed(seed)
    return torch.randn(count, 3, shape.side, shape.side, generator=made)
