"""storage_net.py: what was written comes back, or is told; only its own folder is removed."""

import functools
import http.server
import json
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from _storage import fio
from _storage.fio_output import Job, Rate, parse_fio
from contract.verdicts import NotPassed

from tests.payloads.burning import by_name, codes, run, without_torch
from tests.payloads.starting import Launcher

SMALL = ("--size", 4, "--files", 20, "--repeats", 2)


def measured(folder: Path, *words: object, **env: str) -> tuple[int, str, dict[str, Any]]:
    """Test the storage, which needs no torch for one rank."""
    return run("storage_net", folder, *words, **without_torch(folder), **env)


def test_storage_is_measured_and_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/mine").write_text("mine")

    code, text, result = measured(tmp_path, "--path", tmp_path / "data", *SMALL)

    assert code == 0, text
    large = by_name(result, "storage.large_file")
    assert {m["name"] for m in large["metrics"]} == {"write", "read"}
    assert all(metric["value"] > 0 for metric in large["metrics"])
    small = by_name(result, "storage.small_files")["metrics"]
    assert [m["name"] for m in small] == ["create", "stat", "read", "remove"]
    assert all(metric["value"] > 0 for metric in small)
    assert by_name(result, "storage.rename")["status"] == "PASS"
    assert by_name(result, "network.download")["code"] == "not_asked"
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["mine"]


@pytest.mark.parametrize(
    "fault", ["corrupt-file", "lost-file", "mixed-files", "stale-write", "stale-write:turn=2"]
)
def test_a_file_that_comes_back_changed_or_not_at_all_fails(fault: str, tmp_path: Path) -> None:
    code, text, result = measured(tmp_path, "--path", tmp_path, *SMALL, "--inject", fault)

    assert (code, codes(result)) == (1, {"storage_mismatch"}), text
    assert by_name(result, "storage.rename")["status"] == "PASS"  # the others run all the same
    assert not list(tmp_path.glob(".rv-storage-*"))


def test_a_rate_under_the_floor_fails(tmp_path: Path) -> None:
    code, text, result = measured(tmp_path, "--path", tmp_path, *SMALL, "--floor", 1e9)

    assert (code, codes(result)) == (1, {"below_floor"}), text


def test_a_file_system_below_its_floors_is_told(tmp_path: Path) -> None:
    """A warning: others may be at work there. Each of the two rates is named."""
    words = ("--path", tmp_path, *SMALL, "--inject", "slow-storage")
    code, text, result = measured(tmp_path, *words)

    assert (code, codes(result, "WARN")) == (0, {"slow_storage"}), text
    reasons = [
        by_name(result, f"storage.{name}")["reason"] for name in ("large_file", "small_files")
    ]
    assert ["write 0." in reasons[0], "create " in reasons[1]] == [True, True], reasons


def test_many_ranks_begin_together_and_the_slow_one_is_named(
    launch: Launcher, tmp_path: Path
) -> None:
    """Three at once; one that fails does not keep the others waiting."""
    folder = tmp_path / "shared"
    words = ("--path", folder, *SMALL, "--inject", "slow-storage:rank=1")
    done = launch("storage_net", tmp_path, *words, world=3)

    together = done.test("storage.large_file.together")
    assert (together["status"], together["code"]) == ("WARN", "slow_storage"), done.out
    assert together["reason"].startswith("rank 1 on ")
    assert together["details"]["ranks"] == 3
    assert not list(folder.iterdir())

    failed = launch("storage_net", tmp_path, *words[:-2], "--inject", "lost-file:rank=2", world=3)
    assert failed.code == 1
    assert ("storage.small_files", "storage_mismatch") in failed.bad


def test_a_folder_that_cannot_be_written_is_an_error_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")

    code, text, result = measured(tmp_path, "--path", tmp_path / "file/sub", *SMALL)

    assert (code, codes(result, "ERROR")) == (99, {"not_written"}), text
    assert "Traceback" not in text


def test_more_than_fits_is_not_begun(tmp_path: Path) -> None:
    code, text, result = measured(tmp_path, "--path", tmp_path, "--size", 1e12)

    assert (code, codes(result, "ERROR")) == (99, {"could_not_run"}), text
    assert "are needed" in text


def test_a_download_is_timed_when_asked_for(tmp_path: Path) -> None:
    (tmp_path / "served").mkdir()
    (tmp_path / "served/file").write_bytes(b"x" * 100_000)
    folder = str(tmp_path / "served")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/file"
        code, text, result = measured(tmp_path, "--path", tmp_path, *SMALL, "--download", url)
        server.shutdown()

    assert code == 0, text
    assert by_name(result, "network.download")["details"]["bytes"] == 100_000


def test_a_download_that_nobody_answers_fails(tmp_path: Path) -> None:
    url = "http://127.0.0.1:1/file"
    code, text, result = measured(tmp_path, "--path", tmp_path, *SMALL, "--download", url)

    assert (code, codes(result)) == (1, {"server_unreachable"}), text


def captured(name: str) -> str:
    """What fio 3.33 printed here."""
    return (Path(__file__).parents[1] / "data/fio" / f"{name}.json").read_text()


def test_what_fio_printed_is_read() -> None:
    written, read, random, changed = map(
        parse_fio, map(captured, ("write", "verify", "random", "changed"))
    )

    assert (written.version, written.error, written.write.nbytes) == ("fio-3.33", 0, 64 << 20)
    assert read.read.nbytes == 64 << 20
    assert random.read.operations_a_second > 1000
    assert changed.error == 84
    older = json.loads(captured("write"))
    older["jobs"][0]["write"].pop("bw_bytes")
    assert parse_fio("fio: a note\n" + json.dumps(older)).write.bytes_a_second == pytest.approx(
        written.write.bytes_a_second, rel=1e-3
    )
    for text in ("", "{", "{}", '{"jobs": []}', captured("write").replace(": 0,", ": NaN,")):
        with pytest.raises(ValueError):
            parse_fio(text)


def test_without_fio_that_is_a_note(tmp_path: Path) -> None:
    code, text, result = measured(tmp_path, "--path", tmp_path, *SMALL, PATH=str(tmp_path))

    assert (code, by_name(result, "storage.fio")["code"]) == (0, "tool_absent"), text


@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
@pytest.mark.parametrize(
    ("words", "code", "failed"),
    [
        ((), 0, set()),
        (("--inject", "fio-corrupt"), 1, {"storage_mismatch"}),
        (("--inject", "fio-slow", "--floor", 1), 1, {"below_floor"}),
    ],
)
def test_fio_writes_checks_and_reads(
    words: tuple[object, ...], code: int, failed: set[str], tmp_path: Path
) -> None:
    words = ("--path", tmp_path, *SMALL, "--quick", *words)
    ended, text, result = measured(tmp_path, *words)

    assert (ended, codes(result)) == (code, failed), text
    rates = {each["name"] for each in by_name(result, "storage.fio")["metrics"]}
    wanted = {"fio_write", "fio_read", "fio_random_read"}
    assert rates == (set() if "fio-corrupt" in words else wanted)
    assert not list(tmp_path.glob(".rv-storage-*"))


@pytest.mark.parametrize("less", ["size", "random", "write"])
def test_fio_that_did_less_than_it_was_asked_for_is_no_pass(less: str) -> None:
    """A short file, no random read, nothing written in a second."""
    whole, idle = Rate(4 << 20, 1e8, 1e4), Rate(4 << 20, 0.0, 0.0)
    written = Job("fio-3.33", 0, idle, idle if less == "write" else whole)
    read = Job("fio-3.33", 0, whole, idle)
    size = 8.0 if less == "size" else 4.0
    session: Any = SimpleNamespace(
        options=SimpleNamespace(size=size, floor=None),
        faults=SimpleNamespace(get=lambda *_: None),
    )
    with pytest.raises(NotPassed) as raised:
        fio._report(session, 0, written, read, Job("", 0, idle, idle) if less == "random" else read)
    assert (raised.value.status, raised.value.code) == ("ERROR", "could_not_run")
