"""Which race a word means that somebody types."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from rv.errors import RvError
from rv.models.race import Race
from rv.workflow import races
from rv.workflow.races import find_races
from tests.unit.race.test_status import RACE

NEW, OLD = (replace(RACE, race_id=race_id, name="") for race_id in ("newer000", "older000"))
CLUSTER = SimpleNamespace(race_root="/r", key=RACE.cluster, transport=None, label="c")


def found(monkeypatch: pytest.MonkeyPatch, word: str, *newest_first: Race) -> str:
    monkeypatch.setattr(races, "load_races", lambda *_: newest_first)
    (race,) = find_races([word], CLUSTER)  # type: ignore[arg-type]
    return race.race_id


def test_an_id_is_that_race_whatever_newer_ones_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run was judged, and a job cancelled, in the place of another."""
    named = replace(NEW, name="older000")
    assert found(monkeypatch, "older000", named, OLD) == "older000"
    assert found(monkeypatch, "newer000", named, OLD) == "newer000"


def test_a_name_is_the_newest_of_that_name(monkeypatch: pytest.MonkeyPatch) -> None:
    both = [replace(race, name="train") for race in (NEW, OLD)]
    assert found(monkeypatch, "train", *both) == "newer000"
    assert found(monkeypatch, "old", *both) == "older000"
    with pytest.raises(RvError, match="'nosuch' is no race here"):
        found(monkeypatch, "nosuch", *both)
