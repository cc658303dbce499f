"""A sweep that goes on does what it did when it was begun, whatever is typed now."""

from rv.accept.payload_command import Profile
from rv.accept.store import Sweep
from rv.accept.sweep import SweepOptions, as_begun
from rv.payloads.contract.catalogue import PAYLOADS


def test_a_resumed_sweep_keeps_its_profile_and_payloads() -> None:
    """Quick numbers would be no peers of the others."""
    known = Sweep(
        sweep_id="sweep-1", cluster="c", profile="accept", payloads=("check", "gone"), begun_at=0.0
    )
    options = as_begun(SweepOptions(payloads=PAYLOADS, profile=Profile.SMOKE), known)
    assert options.profile is Profile.ACCEPT
    assert [payload.name for payload in options.payloads] == ["check"]
