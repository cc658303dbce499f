"""What goes on does what it did when it was begun, whatever is typed now."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rv.accept.payload_command import Profile, chosen, command, read_typed
from rv.accept.runs import Sweep
from rv.accept.sweep import SweepOptions, as_begun
from rv.errors import RvError
from rv.payloads.contract.catalogue import PAYLOADS


def test_a_resumed_sweep_keeps_its_profile_and_payloads() -> None:
    """Quick numbers would be no peers of the others."""
    known = Sweep(
        sweep_id="sweep-1", cluster="c", profile="accept", payloads=("check", "gone"), begun_at=0.0
    )
    options = as_begun(SweepOptions(payloads=PAYLOADS, profile=Profile.SMOKE), known)
    assert options.profile is Profile.ACCEPT
    assert [payload.name for payload in options.payloads] == ["check"]


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
