"""A small deterministic training whose whole state can be saved and taken up again.

Dropout and Python's random numbers are part of it on purpose: what forgets a generator's state
resumes to other weights. The data depends on (seed, epoch) alone, its order is a sampler's.
"""

from __future__ import annotations

import os
import random
from typing import Any

from . import store

FEATURES, WIDTH, CLASSES, SAMPLES, BATCH = 16, 32, 4, 512, 16


class Training:
    """A model, its optimizer and scheduler, its place in the data, and its random numbers."""

    def __init__(self, torch: Any, device: str, seed: int, *, steps: int, dist: Any = None) -> None:
        deterministic(torch)
        self.torch, self.device, self.seed, self.dist = torch, device, seed, dist
        self.rank = dist.get_rank() if dist else 0
        self.world = dist.get_world_size() if dist else 1
        torch.manual_seed(seed)
        random.seed(seed + self.rank)
        self.model = model(torch).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3, foreach=False)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, steps)
        self.done = self.epoch = self.position = 0
        self.elapsed = 0.0
        torch.manual_seed(seed + 1 + self.rank)
        self._data = _data(torch, seed)

    def step(self) -> None:
        """Train on the next batch; every rank takes its share of it."""
        torch = self.torch
        inputs, labels = (part.to(self.device) for part in self._batch())
        noisy = inputs + 0.01 * random.random()  # noqa: S311 - part of the state under test
        loss = torch.nn.functional.cross_entropy(self.model(noisy), labels)
        self.optimizer.zero_grad()
        loss.backward()
        if self.dist:
            for parameter in self.model.parameters():
                self.dist.all_reduce(parameter.grad)
                parameter.grad /= self.world
        self.optimizer.step()
        self.scheduler.step()
        self.done += 1

    def _batch(self) -> tuple[Any, Any]:
        order = self.torch.Generator().manual_seed(self.seed * 1000 + self.epoch)
        places = self.torch.randperm(SAMPLES, generator=order)
        chosen = places[self.position : self.position + BATCH][self.rank :: self.world]
        self.position += BATCH
        if self.position >= SAMPLES:
            self.position, self.epoch = 0, self.epoch + 1
        inputs, labels = self._data
        return inputs[chosen], labels[chosen]

    def state(self) -> dict[str, Any]:
        """Return all that is needed to go on; under several ranks, call it on each."""
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "sampler": {"epoch": self.epoch, "position": self.position},
            "random": self._every(self._random()),
            "step": self.done,
            "elapsed": self.elapsed,
        }
        return state | {"digest": store.digest(self.torch, state)}

    def take_up(self, state: dict[str, Any], forget: str = "") -> None:
        """Go on from a state; `forget` leaves a part of it out (an injected fault)."""
        self.model.load_state_dict(state["model"])
        if forget != "optimizer":
            self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        self.epoch, self.position = state["sampler"]["epoch"], state["sampler"]["position"]
        self.done, self.elapsed = state["step"], state["elapsed"]
        if forget != "random":
            self._set_random(state["random"][self.rank])

    def digest(self) -> str:
        """Return the digest of model and optimizer."""
        parts = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        return store.digest(self.torch, parts)

    def _random(self) -> dict[str, Any]:
        on_gpu = self.device.startswith("cuda")
        return {
            "python": random.getstate(),
            "torch": self.torch.get_rng_state(),
            "cuda": self.torch.cuda.get_rng_state(self.device) if on_gpu else None,
        }

    def _set_random(self, state: dict[str, Any]) -> None:
        random.setstate(state["python"])
        self.torch.set_rng_state(state["torch"].cpu())
        if state["cuda"] is not None:
            self.torch.cuda.set_rng_state(state["cuda"].cpu(), self.device)

    def _every(self, value: Any) -> list[Any]:
        if not self.dist:
            return [value]
        every: list[Any] = [None] * self.world
        self.dist.all_gather_object(every, value)
        return every


def deterministic(torch: Any) -> None:
    """Make torch use deterministic algorithms only."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(mode=True)
    torch.backends.cudnn.benchmark = False


def model(torch: Any) -> Any:
    """Make a perceptron of 16, 32, 32 and 4, with dropout."""
    nn = torch.nn
    return nn.Sequential(
        nn.Linear(FEATURES, WIDTH), nn.ReLU(), nn.Dropout(0.1),
        nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES),
    )  # fmt: skip


def _data(torch: Any, seed: int) -> tuple[Any, Any]:
    """Return samples labelled by a random linear map."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(SAMPLES, FEATURES, generator=generator)
    return inputs, (inputs @ torch.randn(FEATURES, CLASSES, generator=generator)).argmax(1)
