"""The payload scripts on the shared disk: one folder for each version, shared by a user's races.

`<race root>/.payloads-<uid>/<hash>` is written whole or not at all and never changed, so that races
that run may rely on it. A name that begins with a dot is no race.
"""

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final

from rv.errors import ErrorKind, RvError
from rv.race.directory import load_race
from rv.race.file_names import RECORD, payload_shelf
from rv.render.quote import shell
from rv.transport import LOST, Transport, require_end

_CUT_OFF: Final = re.compile(r"\.[0-9a-f]{20}\.(\d{1,12})\..*", re.ASCII)
_STAGING_S: Final = 3600.0


def stage_payloads(
    root: str, digest: str, files: Mapping[str, bytes], transport: Transport
) -> None:
    """Make sure that the folder of these files is there and whole.

    Call it when the race's record, with the hash, is written: that keeps the folder from being
    removed. Raises `RvError(STAGE)` where it cannot be written or another user could change it.
    """
    if _is_whole(root, digest, files, transport):
        return
    folder = payload_folder(root, digest)
    if digest in transport.directories(_shelf(root)):
        _repair(folder, files, transport)
        return
    try:
        transport.create_tree(folder, files)
    except RvError:
        if not _is_whole(root, digest, files, transport):  # another client may have been faster
            raise


def payload_hash(files: Mapping[str, bytes]) -> str:
    """Return the name of the folder of these files: a hash of their paths and contents."""
    digest = hashlib.sha256()
    for name, data in sorted(files.items()):
        digest.update(f"{name}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()[:20]


def payload_folder(root: str, digest: str) -> str:
    """Return the folder of the payloads of a hash."""
    return f"{_shelf(root)}/{digest}"


def has_several_versions(root: str, transport: Transport) -> bool:
    """Return whether there is more than one folder, or copy that was cut off."""
    return len(transport.names(_shelf(root))) > 1


def remove_unused_payloads(root: str, current: str, now_s: float, transport: Transport) -> None:
    """Remove the folders that no unfinished race uses, but for `current`, and copies cut off.

    Where a race's record cannot be read, nothing is removed.
    """
    folder = _shelf(root)
    for name in transport.names(folder):
        cut_off = _CUT_OFF.fullmatch(name)
        if cut_off and now_s - float(cut_off[1]) > _STAGING_S:
            transport.remove(f"{folder}/{name}")
    old = set(transport.directories(folder)) - {current}
    for digest in sorted(old - _in_use(root, old, transport)):
        _remove(root, digest, now_s, transport)


def _shelf(root: str) -> str:
    return payload_shelf(root, os.geteuid())


def _is_whole(root: str, digest: str, files: Mapping[str, bytes], transport: Transport) -> bool:
    """Whether the folder is the user's own, and each file is as it should be."""
    place = _shelf(root)
    if digest not in transport.directories(place):
        return False
    looked = transport.run(f"[ -O {shell(place)} ] && [ ! -L {shell(place)} ]", timeout_s=30)
    if looked.returncode:
        require_end(looked, f"the payloads in {place} cannot be looked at")
        raise RvError(
            ErrorKind.STAGE,
            f"another user could change your payloads, in {place}",
            hint="name a directory of your own with RV_RACE_ROOT=/path",
        )
    return transport.read_tree(payload_folder(root, digest), list(files)) == dict(files)


def _repair(folder: str, files: Mapping[str, bytes], transport: Transport) -> None:
    """Write what a purge of old files took away; jobs that use the rest are not disturbed."""
    left = transport.read_tree(folder, list(files))
    folders = sorted({str(PurePosixPath(folder, name).parent) for name in files})
    transport.run(f"mkdir -p {' '.join(map(shell, folders))}", timeout_s=30)
    for name, data in files.items():
        if left.get(name) != data:
            transport.write(f"{folder}/{name}", data)


def _in_use(root: str, digests: set[str], transport: Transport) -> set[str]:
    """Return which of the folders unfinished races use: all of them where one cannot be read."""
    from rv.race.verdict_file import is_settled

    if not digests:
        return set()
    used = set[str]()
    for name in transport.directories(root):
        directory = f"{root}/{name}"
        if is_settled(directory, transport):
            continue
        race = load_race(directory, transport)
        if race is not None:
            used.add(race.payload_hash)
        elif RECORD in transport.names(directory) or not transport.names(directory):
            return digests
    return used


def _remove(root: str, digest: str, now_s: float, transport: Transport) -> None:
    """Remove a folder, put aside first: a race that took it up in between gets it back."""
    folder = payload_folder(root, digest)
    aside = f"{_shelf(root)}/.{digest}.{now_s:.0f}.removed"
    moved = transport.run(f"mv -T {shell(folder)} {shell(aside)}", timeout_s=30).returncode
    if moved not in (0, LOST):
        return  # another client removes it
    if digest in _in_use(root, {digest}, transport):
        transport.run(f"mv -nT {shell(aside)} {shell(folder)}", timeout_s=30)
    transport.remove(aside)
