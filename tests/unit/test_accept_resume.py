"""A sweep that goes on does what it did when it was begun, whatever is typed now."""

from rv.accept.catalogue import PAYLOADS, Profile
from rv.accept.sweeps import Sweep
from rv.cli.sweeping import Wish, _as_begun


def test_a_resumed_sweep_keeps_its_profile_and_payloads() -> None:
    """Quick numbers would be no peers of the others."""
    known = Sweep(
        sweep_id="sweep-1", cluster="c", profile="accept", payloads=("check", "gone"), begun_at=0.0
    )
    wish = _as_begun(Wish(payloads=PAYLOADS, profile=Profile.SMOKE, resume="last"), known)
    assert wish.profile is Profile.ACCEPT
    assert [payload.name for payload in wish.payloads] == ["check"]
