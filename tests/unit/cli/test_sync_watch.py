"""How often `rv sync watch` looks."""

import pytest

from rv.cli.sync import pause_s


@pytest.mark.parametrize(
    ("took_s", "expected_s"), [(0.0, 1.0), (0.05, 1.0), (0.5, 5.0), (6.0, 20.0), (3600.0, 20.0)]
)
def test_a_slow_look_does_not_put_off_the_next_for_long(took_s: float, expected_s: float) -> None:
    """A look of six seconds, on a busy disk, was followed by none for a minute."""
    assert pause_s(took_s) == pytest.approx(expected_s)
