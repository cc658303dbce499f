"""What the jobs of a race measured of their GPUs, from the files that they leave in `gpus/`.

A file is of one job on one node, a line a GPU; templates/_gpu_use.sh.j2 writes it.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from rv.dataclass import dataclass
from rv.models.gpu_use import GpuSums, added
from rv.models.race import Race, RaceStatus
from rv.slurm.nvidia_smi import NodeGpus
from rv.slurm.printable import printable
from rv.transport import Transport

_FILES: Final = ("gpus/[0-9]*",)
_NAME: Final = re.compile(r"gpus/\d{1,18}\.\d{1,18}\.[0-9a-f]{1,32}\.(\S{1,255})", re.ASCII)
_LINE: Final = re.compile(r"((?:\d{1,12} ){6})(.*)", re.ASCII)
_MOST_GPUS: Final = 64
"""On one node."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RaceGpus:
    """The GPUs of a race: `now` by node while it runs, else what was measured, in `sums`."""

    status: RaceStatus
    now: tuple[NodeGpus, ...] = ()
    sums: tuple[GpuSums, ...] = ()


def load_gpu_sums(race: Race, transport: Transport) -> tuple[GpuSums, ...]:
    """Read what was measured of each GPU, over all segments of a chain; () where nothing was."""
    return read_gpu_sums(transport.read_tree(race.directory, _FILES))


def read_gpu_sums(files: Mapping[str, bytes]) -> tuple[GpuSums, ...]:
    """Read the files that jobs left in `gpus/`, by name; what is no line of theirs counts not."""
    return added(one for name, data in sorted(files.items()) for one in _sums(name, data))


def _sums(name: str, data: bytes) -> Iterator[GpuSums]:
    named = _NAME.fullmatch(name)
    if named is None:
        return
    for line in data.decode("utf-8", errors="replace").splitlines()[:_MOST_GPUS]:
        match = _LINE.fullmatch(line)
        if match is None:
            continue
        index, samples, measured, busy, peak_mib, total_mib = map(int, match[1].split())
        if samples and total_mib and measured <= samples and busy <= 100 * measured:
            yield GpuSums(
                node=printable(named[1]),
                index=index,
                model=printable(match[2].strip()),
                samples=samples,
                measured=measured,
                busy=busy,
                peak_mib=peak_mib,
                total_mib=total_mib,
            )
