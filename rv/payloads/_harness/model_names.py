"""Whether the GPU that a site's name asks for is the one whose name the driver tells. Pure."""

from __future__ import annotations

import re

from contract.rates import words
from contract.references import GPUS

VARIANTS = ("ti", "super", "ada", "laptop")
"""Words without a digit that tell models apart; another one is a site's own (`volta`, `gpu`)."""
MODEL = re.compile(r"(?:[abhklmptv]|g[bh]|mi|rtx|gtx)?\d+(?:s(?!xm)|x(?!\d))?", re.ASCII)
"""How a model's name begins, as people type it. Another word, as `node4`, is a site's own."""
ALL_WORDS = frozenset(word for name in GPUS for word in words(name).split())
SIZE = re.compile(r"(\d{2,3})(?:gb?)?", re.ASCII)
LARGEST_GB = 300  # of a GPU: what is larger is the memory of its host, as of `GH200 480GB`
PARTED_PROFILE = re.compile(r"(\d)g_(\d+gb)", re.ASCII)
SLICE = re.compile(r"\dg", re.ASCII)
FORM = re.compile(r"(sxm|pcie|nvl)\d?", re.ASCII)


def same_model(requested: str, name: str) -> bool:
    """Return whether a driver's name fits a request, word by word.

    `a100-80` is `NVIDIA A100-SXM4-80GB`, and `gtx1080ti` a `GeForce GTX 1080 Ti`, but an `l4` is no
    `L40S`. What the name does not tell, such as the size of memory, fits; so does a word of one
    character, as of `a100-1`.
    """
    own = words(name).split()
    asked = PARTED_PROFILE.sub(r"\1g.\2", requested.lower())
    return all(_fits(word, own) for word in words(asked).split() if len(word) > 1)


def _fits(word: str, own: list[str]) -> bool:
    """Whether a word of a request fits the words of a name."""
    if form := FORM.fullmatch(word):
        return form[1] in (_forms(own) or [form[1]])
    if SLICE.fullmatch(word):
        return _is_slice(word, own)
    if _is_made_of(word, own) or _is_size(word, own):
        return True
    if not (model := MODEL.match(word)):
        return word not in VARIANTS
    # A site's own ending, as of `v100l` or `a100pcie40`.
    is_own = word not in ALL_WORDS and word[model.end() :] not in VARIANTS
    return is_own and _is_made_of(model[0], own)


def _is_slice(word: str, own: list[str]) -> bool:
    """Whether a MIG profile, such as `1g.5gb`, begins so, or none is told."""
    return any(each.startswith(f"{word}.") for each in own) or "mig" not in own


def _is_size(word: str, own: list[str]) -> bool:
    """Whether a word is the size of memory that a name tells, or one where it tells none."""
    sizes = [size for each in own if (size := SIZE.fullmatch(each)) and not each.isdecimal()]
    told = [size[1] for size in sizes if int(size[1]) < LARGEST_GB]
    size = SIZE.fullmatch(word)
    return size is not None and size[1] in (told or [size[1]])


def _forms(own: list[str]) -> list[str]:
    """Return the forms of a board that a name tells; H100s on SXM tell only of their memory."""
    told = [form[1] for each in own if (form := FORM.fullmatch(each))]
    return told or ["sxm"] * ("hbm3" in own)


def _is_made_of(word: str, own: list[str]) -> bool:
    """Whether words of a name make up a word of a request."""
    starts = (each for each in own if word.startswith(each))
    return not word or any(_is_made_of(word[len(each) :], own) for each in starts)
