"""A race directory's files: what rv wrote comes back, and whatever else stands there never raises."""

import json
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rv.models.race import Claim, Ended, Entry, Race, StateFiles
from rv.race.directory import load_races, read_record, read_state_files, record_text
from rv.transport.local import LocalTransport

NAMES = st.sampled_from(
    ["claim", "ended", "lost", "stop", "jobs/1.id", "jobs/2.refused", "jobs/x.id", "jobs/²3.id",
     "declined/a1", "exhausted/1", "again/2", "warnings/n", "absent/1", "absent/", "jobs/.id",
     "jobs/" + "9" * 250 + ".id", "other"]
)  # fmt: skip
CLAIM = "77.0\nsubmission=2\nnodes=a[1-2]\nhost=a1\nstarted=1700000000.25\n"
LINES = st.lists(
    st.tuples(
        st.sampled_from(["submission", "nodes", "host", "started", "code", "signal", "ended", "="]),
        st.sampled_from(["", "1", "-1", "nan", "inf", "1e999", "²", "9" * 30, "a=b"]) | st.text(),
    ).map("=".join)
)
FIRST = (
    st.sampled_from(["77.0", "77.0.3f2a9b10", "", ".", "77.", "²7.0", "1.2.3", "9" * 40 + ".0"])
    | st.text()
)
LIKELY = st.tuples(FIRST, LINES).map(lambda parts: "\n".join([parts[0], *parts[1]]).encode())


def race(**changes: object) -> Race:
    fields = {
        "race_id": "abcdefgh",
        "directory": "/races/abcdefgh",
        "cluster": "slurm:",
        "name": "n",
        "command": "true",
        "payload": "",
        "is_shell": False,
        "submitted_at": 1.5,
        "min_job_age": timedelta(seconds=2),
        "message_timeout": timedelta(seconds=10),
        "entries": (Entry(number=1, name="rv-abcdefgh-1", strategy="a/1x1/p"),),
        "waves": ((1,),),
    }
    return Race(**{**fields, **changes})  # type: ignore[arg-type]


ENTRIES = st.builds(
    Entry,
    number=st.integers(1, 99),
    name=st.text(),
    strategy=st.text(),
    gpu=st.text(),
    gpus=st.integers(0, 99),
    nodes=st.integers(1, 9),
    partition=st.text(),
    walltime=st.integers(0, 10**7).map(lambda seconds: timedelta(seconds=seconds)),
    cost=st.none() | st.floats(0, 1e9),
)


@given(
    st.text(),
    st.text(),
    st.floats(0, 4e9),
    st.lists(ENTRIES, max_size=4).map(tuple),
    st.lists(st.lists(st.integers(1, 9)).map(tuple), max_size=3).map(tuple),
)
def test_a_record_comes_back_as_it_was(
    command: str, name: str, at: float, entries: tuple[Entry, ...], waves: tuple[tuple[int, ...]]
) -> None:
    """Whatever the user's text holds."""
    staged = race(command=command, name=name, submitted_at=at, entries=entries, waves=waves)
    assert read_record(record_text(staged), staged.directory) == staged


def test_a_record_is_that_of_the_directory_it_lies_in() -> None:
    """A tree that was moved or copied is read where it is."""
    moved = read_record(record_text(race()), "/elsewhere")
    assert moved == race(directory="/elsewhere")


@pytest.mark.parametrize("name", ["/home/me/thesis", "../../up", ".", "other123"])
def test_a_record_of_another_race_is_none(tmp_path: Path, name: str) -> None:
    """An id becomes the name of files on this machine; and a copy beside it is no race."""
    own, other = race(), tmp_path / "evil2345"
    for folder, race_id in ((tmp_path / own.race_id, own.race_id), (other, name)):
        folder.mkdir()
        record = {**json.loads(record_text(own)), "race_id": race_id}
        (folder / "race.json").write_text(json.dumps(record))
    races = load_races(str(tmp_path), own.cluster, LocalTransport({"PATH": "/usr/bin:/bin"}))
    assert [each.race_id for each in races] == [own.race_id]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(st.text() | JSON.map(json.dumps))
def test_what_is_no_record_is_none(text: str) -> None:
    """No text at all makes it raise."""
    assert read_record(text, "/d") is None


@given(st.sampled_from(sorted(json.loads(record_text(race())))), JSON)
def test_a_record_with_a_changed_field_never_raises(key: str, value: object) -> None:
    """Written by another version, or edited by hand."""
    data = {**json.loads(record_text(race())), key: value}
    found = read_record(json.dumps(data), "/d")
    assert found is None or isinstance(found, Race)


def test_a_record_nested_beyond_reason_is_none() -> None:
    """The parser's own limit is no crash."""
    assert read_record("[" * 100_000, "/d") is None


@given(st.dictionaries(NAMES, st.binary() | LIKELY))
def test_state_files_never_raise(files: dict[str, bytes]) -> None:
    """Any bytes under any name that may stand there."""
    state = read_state_files(files)
    assert isinstance(state, StateFiles)
    assert state.stopped == ("stop" in files)


def test_a_claim_and_an_end() -> None:
    """As the job script writes them."""
    files = {"claim": CLAIM.encode(), "ended": b"77.0\ncode=3\nsignal=\nended=1700000009.5\n"}
    assert read_state_files(files) == StateFiles(
        claim=Claim(
            job_id=77, restart=0, submission=2, nodes="a[1-2]", host="a1", started_at=1700000000.25
        ),
        ended=Ended(owner="77.0", code=3, signal="", ended_at=1700000009.5),
    )


def test_two_jobs_of_one_id_are_told_apart() -> None:
    """By the token in their claims; a claim of rv 0.1.0 has none."""
    texts = (CLAIM, CLAIM.replace("77.0", "77.0.3f2a9b10", 1), CLAIM.replace("77.0", "77.0.", 1))
    claims = [read_state_files({"claim": text.encode()}).claim for text in texts]
    assert [claim and claim.owner for claim in claims] == ["77.0", "77.0.3f2a9b10", None]


def test_a_file_cut_short_is_as_good_as_absent() -> None:
    """A full disk leaves empty files; an exit file without a code says nothing."""
    assert read_state_files({"claim": b"", "ended": b""}) == StateFiles()
    assert read_state_files({"claim": b"77", "ended": b"77.0\n"}) == StateFiles()


def test_ids_refusals_and_nodes_are_read_by_number() -> None:
    """All ids of a submission count; what is no number is passed over."""
    state = read_state_files(
        {
            "jobs/1.id": b"5\n6\nx\n",
            "jobs/2.refused": b"Invalid qos\n",
            "jobs/two.id": b"7\n",
            "again/1": b"a1\n",
            "exhausted/2": b"no node is left\n",
            "declined/a1": b"no GPU\n",
            "warnings/a2": b"another model\n",
            "absent/1": b"12\n",
        }
    )
    assert state == StateFiles(
        job_ids=((1, (5, 6)),),
        refused=((2, "Invalid qos"),),
        again=(1,),
        exhausted=((2, "no node is left"),),
        declined=(("a1", "no GPU"),),
        warnings=(("a2", "another model"),),
        absent_since=((1, 12.0),),
    )
