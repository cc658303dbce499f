#!/usr/bin/env python3
"""Infer with a mixture of experts that is sharded over all ranks: a small Mixtral, random weights.

    torchrun --nproc_per_node=4 moe.py

Each rank holds its share of every layer's experts, and decodes rows of its own. The logits of the
prompt and every decoded token are held against a whole model in this process alone.

Needs torch and the package transformers; downloads nothing.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from _harness.flags import whole
from _harness.main import Payload, Session, run
from contract.schema import HIGHER, LOWER, metric
from contract.verdicts import NotPassed

if TYPE_CHECKING:
    import argparse

    from _harness.ranks import Group
    from _moe.mixtral import Decoded, Size

GATE = {"cpu": 1e-4, "cuda": 1e-3}
"""Gate, of the largest logit, in single precision: with fewer digits a token whose two best experts
are nearly equal goes to another one, and no gate would tell that from a fault."""


def body(session: Session) -> None:
    """Shard, decode, compare with a whole model."""
    device = session.devices()[0]
    session.need_torch()
    from _moe import mixtral

    with session.group(device) as group:
        size = chosen(session, group)
        single = mixtral.mixtral(size, session.options.seed)
        session.probe(device)
        single = single.to(device)
        sharded = make_sharded(session, group, copy.deepcopy(single))
        rows = mixtral.prompts(
            size,
            session.options.rows,
            session.options.length,
            session.options.seed + group.ranks.rank,
        ).to(device)
        decoded = mixtral.decode(sharded, rows, session.options.new_tokens)
        session.probe(device)
        compare(session, group, decoded, single, size)


def chosen(session: Session, group: Group) -> Size:
    """Choose a size that has room on all ranks. Raises NotPassed, on all of them alike."""
    from _moe import mixtral

    own = mixtral.Room(0, 0, mixtral.why_not())
    sizes = [mixtral.HALF] if session.options.quick else [mixtral.SMALL, mixtral.HALF]
    if group.device == "cpu":
        sizes, enough = [mixtral.TINY], mixtral.needs(mixtral.TINY)
        own = own._replace(free=enough, total=enough)
    else:
        free, total = session.torch.cuda.mem_get_info(group.device)
        own = own._replace(free=free, total=total)
    rooms = [own] * group.ranks.world
    group.dist.all_gather_object(rooms, own)
    return mixtral.fitting(sizes, rooms)


def make_sharded(session: Session, group: Group, model: Any) -> Any:
    """Shard a model that all ranks have alike, and report what this one holds of it."""
    from _training import shards
    from train_fsdp import shard

    if not session.faults.get("unsharded"):
        model = shard(group, model)
    if session.faults.get("wrong-expert"):
        spoil(model)
    share = shards.share_of(model.parameters(), group.ranks.world)
    with session.attempt("moe.shard", device=group.device, details=share.details):
        if not share.is_right:
            raise NotPassed("FAIL", "not_sharded", share.said(group.ranks.rank))
        session.report.add("moe.shard", "PASS", device=group.device, details=share.details)
    return model


def spoil(model: Any) -> None:
    """Change this rank's part of one layer's experts: the injected fault."""
    for name, parameter in model.named_parameters():
        if "experts" in name:
            local = parameter.to_local() if hasattr(parameter, "to_local") else parameter
            local.data.mul_(-1)
            return


def compare(session: Session, group: Group, decoded: Decoded, single: Any, size: Size) -> None:
    """Hold the logits of the prompt and every decoded token against a whole model."""
    from _moe import mixtral

    length, rows = session.options.length, decoded.rows
    if session.faults.get("wrong-token"):
        rows[-1, -2] = (rows[-1, -2] + 1) % decoded.logits.shape[-1]
    whole_model = mixtral.alone(single, rows)
    kind = group.device.partition(":")[0]
    apart = mixtral.furthest(decoded.logits, mixtral.of_prompt(single, rows[:, :length]))
    report(session, group, "logits", apart, GATE[kind], {"largest_difference": apart})
    behind, other = mixtral.worst_choice(rows, length, whole_model.logits)
    made = rows.shape[0] * (rows.shape[1] - length)
    facts: dict[str, Any] = {"largest_gap": behind, "compared": made, "not_the_best": other}
    facts |= {"used": whole_model.used}
    report(session, group, "tokens", behind, GATE[kind], facts, rates(decoded, size))


def report(
    session: Session, group: Group, what: str, off: float, gate: float, details: dict[str, Any],
    metrics: list[dict[str, Any]] | None = None,
) -> None:  # fmt: skip
    """Report one comparison, with the gate that it had to pass."""
    name, where = f"moe.{what}", f"rank {group.ranks.rank} on {group.hosts[group.ranks.rank]}"
    details |= {"gate": gate}
    with session.attempt(name, device=group.device, details=details):
        if not off <= gate:  # written so that NaN fails
            reason = f"{where}: {what} are {off:.2g} off a whole model's (gate {gate:g})"
            raise NotPassed("FAIL", "wrong_result", reason)
        idle = [expert for expert, count in enumerate(details.get("used", [])) if not count]
        if idle:
            reason = f"{where}: no token went through the experts {idle}"
            raise NotPassed("WARN", "underloaded", reason)
        session.report.add(name, "PASS", device=group.device, details=details, metrics=metrics)


def rates(decoded: Decoded, size: Size) -> list[dict[str, Any]]:
    """Return the time of the prompt, and the tokens that this rank decodes in a second."""
    rows = decoded.rows.shape[0]
    first, *others = decoded.seconds
    later = others or [first]
    rate = rows * len(later) / sum(later)
    tokens = [rows / each for each in later]
    return [
        metric("prompt_ms", [first * 1e3], "ms", LOWER, shape=size.word),
        metric("tokens", tokens, "tokens/s", HIGHER, value=rate, shape=size.word),
    ]


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this payload."""
    parser.add_argument("--rows", type=whole, default=8, help="rows of each rank")
    parser.add_argument("--length", type=whole, default=64, help="tokens of a prompt")
    parser.add_argument("--new-tokens", type=whole, help="to decode (32; 8 quick)")


def check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Settle how many tokens are decoded."""
    options.new_tokens = options.new_tokens or (8 if options.quick else 32)
    if options.new_tokens < 2:
        parser.error("--new-tokens is 2 at least: the first is of the prompt")


PAYLOAD = Payload(
    "moe",
    "Infer with a mixture of experts that is sharded over all ranks.",
    body,
    add_flags=add_flags,
    check=check,
    needs_numpy=True,
)

if __name__ == "__main__":
    run(PAYLOAD)
