"""Payload scripts on the shared disk: one folder a version, whole, shared, and never taken away."""

import json
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from rv import bundle
from rv.errors import ErrorKind, RvError
from rv.race.directory import load_races, read_record, record_text
from rv.race.payload_folders import (
    has_several_versions,
    payload_folder,
    payload_hash,
    remove_unused_payloads,
    stage_payloads,
)
from rv.race.verdict_file import is_settled
from rv.transport import ScriptResult
from rv.transport.local import LocalTransport
from tests.unit.race.test_directory import race

FILES = {"check.py": b"print(1)\n", "_harness/main.py": b"x = 1\n", "contract/codes.py": b""}
EDITED = {**FILES, "check.py": b"print(2)\n"}
NOW_S = 1_800_000_000.0
TRANSPORT = LocalTransport({"PATH": "/usr/bin:/bin"})


def staged(root: Path, files: dict[str, bytes] = FILES) -> Path:
    """Stage payloads; their folder."""
    digest = payload_hash(files)
    stage_payloads(str(root), digest, files, TRANSPORT)
    return Path(payload_folder(str(root), digest))


def with_race(root: Path, files: dict[str, bytes], name: str = "abcdefgh") -> Path:
    """Write the record of a race that uses these payloads."""
    directory = root / name
    directory.mkdir(mode=0o700, parents=True)
    used = race(race_id=name, directory=str(directory), payload_hash=payload_hash(files))
    (directory / "race.json").write_text(record_text(used))
    return directory


def settle(directory: Path) -> None:
    """Leave what says that the race is over for good."""
    (directory / "verdict.json").write_text("{}")


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    every = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in every}


def remove_unused(root: Path, current: dict[str, bytes], now_s: float = NOW_S) -> None:
    remove_unused_payloads(str(root), payload_hash(current), now_s, TRANSPORT)


def test_two_races_share_one_folder_that_only_the_user_can_read(tmp_path: Path) -> None:
    folder = staged(tmp_path)
    written_at = (folder / "check.py").stat().st_mtime_ns

    assert staged(tmp_path) == folder
    assert contents(folder) == FILES
    assert (folder / "check.py").stat().st_mtime_ns == written_at
    modes = {
        stat.S_IMODE(path.stat().st_mode) for path in (folder, folder.parent, folder / "_harness")
    }
    assert modes == {0o700}
    assert load_races(str(tmp_path), "slurm:", TRANSPORT) == ()
    assert TRANSPORT.directories(str(tmp_path)) == ()


def test_an_edited_payload_has_another_folder_and_the_first_stays_as_it_was(tmp_path: Path) -> None:
    first, second = staged(tmp_path), staged(tmp_path, EDITED)

    assert first != second
    assert (contents(first), contents(second)) == (FILES, EDITED)
    assert payload_hash({"a": b"bc"}) != payload_hash({"ab": b"c"})
    assert payload_hash(dict(reversed(FILES.items()))) == payload_hash(FILES)


def purge(folder: Path) -> None:
    (folder / "_harness" / "main.py").unlink()
    (folder / "_harness").rmdir()


def cut(folder: Path) -> None:
    (folder / "check.py").write_bytes(b"pr")


@pytest.mark.parametrize("damage", [purge, cut])
def test_what_a_purge_took_away_or_cut_off_is_written_again(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    """In place: races that run use the rest."""
    folder = staged(tmp_path)
    there = folder.stat().st_ino
    damage(folder)

    assert contents(staged(tmp_path)) == FILES
    assert folder.stat().st_ino == there


class Stuck(LocalTransport):
    """A login node whose disk does not answer scripts."""

    def run(self, script: str, *, timeout_s: float) -> ScriptResult:
        """Run out of time."""
        return ScriptResult(returncode=124, stdout="", stderr="", timed_out=True)


def test_a_disk_that_does_not_answer_is_no_other_user(tmp_path: Path) -> None:
    """That nothing is known of the folder is said, not that it is unsafe."""
    staged(tmp_path)
    with pytest.raises(RvError, match="the login node took too long") as caught:
        stage_payloads(str(tmp_path), payload_hash(FILES), FILES, Stuck({"PATH": "/usr/bin:/bin"}))
    assert caught.value.kind is ErrorKind.UNREACHABLE


def test_many_clients_stage_at_once(tmp_path: Path) -> None:
    """Each returns when the folder is whole; no copies are left beside it."""
    files = {f"_p/{number}.py": b"x" * number for number in range(50)}
    with ThreadPoolExecutor(16) as pool:
        folders = {
            each.result() for each in [pool.submit(staged, tmp_path, files) for _ in range(32)]
        }

    (folder,) = folders
    assert contents(folder) == files
    assert list(folder.parent.iterdir()) == [folder]


def test_a_copy_that_was_cut_off_is_no_folder_and_goes_after_an_hour(tmp_path: Path) -> None:
    folder = staged(tmp_path)
    half = folder.with_name(f".{folder.name}.{NOW_S:.0f}.k3f")
    half.mkdir()
    (half / "check.py").write_bytes(b"pr")

    assert has_several_versions(str(tmp_path), TRANSPORT)
    assert contents(staged(tmp_path)) == FILES
    remove_unused(tmp_path, FILES, NOW_S + 60)
    assert half.exists()
    remove_unused(tmp_path, FILES, NOW_S + 3700)
    assert not half.exists()
    assert contents(folder) == FILES
    assert not has_several_versions(str(tmp_path), TRANSPORT)


def test_a_disk_that_takes_nothing_more_is_an_error_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, _: bytes) -> None:
        raise OSError(28, "No space left on device", path)

    monkeypatch.setattr("rv.transport.local._write_new", full)
    with pytest.raises(RvError, match="the disk is full") as caught:
        staged(tmp_path)
    assert caught.value.kind is ErrorKind.STAGE
    (shelf,) = tmp_path.iterdir()
    assert list(shelf.iterdir()) == []


def test_a_folder_that_another_user_could_change_is_not_used(tmp_path: Path) -> None:
    folder = staged(tmp_path)
    folder.parent.rename(tmp_path / "elsewhere")
    folder.parent.symlink_to(tmp_path / "elsewhere")

    with pytest.raises(RvError, match="another user could change"):
        staged(tmp_path)


def test_other_versions_are_removed_but_what_an_unfinished_race_uses(tmp_path: Path) -> None:
    current, used, unused = staged(tmp_path), staged(tmp_path, EDITED), staged(tmp_path, {"a": b""})
    directory = with_race(tmp_path, EDITED)

    remove_unused(tmp_path, FILES)
    assert (current.exists(), used.exists(), unused.exists()) == (True, True, False)
    settle(directory)
    assert is_settled(str(directory), TRANSPORT)
    remove_unused(tmp_path, FILES)
    assert (current.exists(), used.exists()) == (True, False)
    assert [path.name for path in current.parent.iterdir()] == [current.name]


@pytest.mark.parametrize("record", ["{", "", None])
def test_nothing_is_removed_while_a_record_cannot_be_read(
    tmp_path: Path, record: str | None
) -> None:
    used = staged(tmp_path, EDITED)
    directory = tmp_path / "abcdefgh"
    directory.mkdir(mode=0o700)
    if record is not None:
        (directory / "race.json").write_text(record)

    remove_unused(tmp_path, FILES)
    assert contents(used) == EDITED


def test_a_race_that_takes_a_folder_up_while_it_is_removed_gets_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record is written first, and the folder looked at after that."""
    used = staged(tmp_path, EDITED)
    real, calls = LocalTransport.run, list[str]()

    def run(self: LocalTransport, script: str, *, timeout_s: float) -> object:
        if script.startswith("mv -T") and not calls:
            calls.append(script)
            with_race(tmp_path, EDITED)
        return real(self, script, timeout_s=timeout_s)

    monkeypatch.setattr(LocalTransport, "run", run)
    remove_unused(tmp_path, FILES)
    assert calls
    assert contents(used) == EDITED
    assert [path.name for path in used.parent.iterdir()] == [used.name]


def test_records_without_a_hash_still_load() -> None:
    """Races of an rv that copied payloads into each race directory."""
    old = json.loads(record_text(race(payload_hash="0123456789abcdef0123")))
    assert old.pop("payload_hash") == "0123456789abcdef0123"
    assert read_record(json.dumps(old), "/races/abcdefgh") == replace(race(), payload_hash="")


def test_what_is_staged_is_all_that_a_payload_needs() -> None:
    """The scripts, their packages and the contract."""
    files = bundle.payload_files()
    assert {"check.py", "run_all.py", "_harness/main.py", "contract/codes.py"} <= set(files)
    assert not [name for name in files if "__pycache__" in name]
