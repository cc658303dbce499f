"""What goes on does what it did when it was begun, whatever is typed now."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rv.accept.payload_command import Profile, chosen, command, read_typed
from rv.accept.runs import Sweep
from rv.accept.store import load_sweep, save_sweep
from rv.accept.sweep import SweepOptions, as_begun
from rv.errors import ErrorKind, RvError
from rv.models.request import Request
from rv.payloads.contract.catalogue import PAYLOADS

BEGUN = Sweep(
    sweep_id="sweep-1",
    cluster="c",
    profile="accept",
    payloads=("check", "gone"),
    begun_at=0.0,
    faults=("wrong-product",),
    max_jobs=3,
    avoid_days=1,
    is_of_pairs=True,
    base=Request(account="lab", setup=("module load x",), walltime=timedelta(minutes=7)),
    environment=(("A", "1"),),
    workdir="/work",
)


def test_a_resumed_sweep_goes_on_with_all_options_that_it_was_begun_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Quick numbers would be no peers of the others, nor clean nodes of those with a fault."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    save_sweep(BEGUN)

    options = as_begun(load_sweep("sweep-1", "c"))

    assert [payload.name for payload in options.payloads] == ["check"]
    expected = SweepOptions(
        payloads=options.payloads,
        profile=Profile.ACCEPT,
        base=Request(account="lab", setup=("module load x",), walltime=timedelta(minutes=7)),
        environment={"A": "1"},
        workdir="/work",
        max_jobs=3,
        avoid_days=1,
        faults=("wrong-product",),
        by_pairs=True,
    )
    assert options == expected


@pytest.mark.parametrize("changed", [{"base": None}, {"profile": "thorough"}])
def test_a_sweep_that_did_not_keep_its_options_does_not_go_on(changed: dict[str, Any]) -> None:
    with pytest.raises(RvError, match="did not keep its options") as refused:
        as_begun(replace(BEGUN, **changed))
    assert refused.value.kind is ErrorKind.USAGE


NAMES = [payload.name for payload in PAYLOADS]


@given(st.sampled_from(Profile), st.sets(st.sampled_from(NAMES), min_size=1))
def test_what_a_run_runs_is_read_from_its_race(profile: Profile, names: set[str]) -> None:
    """The line that the race keeps has the profile and every payload."""
    payloads = chosen(sorted(names), profile, NAMES)
    assert len(payloads) == len(names)
    assert read_typed(command(payloads, profile).typed) == (profile, payloads)


@pytest.mark.parametrize(
    "typed", ["", "python train.py", "acceptance", "acceptance quick: check", "acceptance smoke: "]
)
def test_another_command_is_no_run(typed: str) -> None:
    """Nothing is judged that was never tested."""
    assert read_typed(typed) is None


def test_a_run_of_a_payload_that_is_not_known_is_not_judged() -> None:
    """A newer rv began it: the verdict would say PASS of what was never read."""
    with pytest.raises(RvError, match="does not know the payload later, which the run has"):
        read_typed("acceptance smoke: check later")
