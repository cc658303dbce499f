"""Which file system a folder is on, and what is expected of its type."""

import pytest

from rv.payloads._storage.floors import below_floors, floors_of, slow_ranks
from rv.payloads.contract.filesystems import parse_mount_type

MOUNTS = r"""
21 29 0:20 / /proc rw,nosuid shared:12 - proc proc rw
29 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw,errors=remount-ro
60 29 0:52 / /scratch rw,relatime shared:3 - lustre 192.0.2.1@o2ib:192.0.2.2@o2ib:/work rw,flock,lazystatfs
61 29 0:53 / /home rw,relatime shared:4 - nfs4 192.0.2.9:/home rw,vers=4.2,hard
62 29 0:54 / /gpfs/big rw,relatime shared:5 - gpfs big rw
63 29 0:55 / /mnt/two\040words rw shared:6 master:2 - beegfs beegfs_nodev rw
64 60 0:56 / /scratch/fast rw shared:7 - tmpfs tmpfs rw
65 64 0:57 / /scratch/fast rw shared:8 - xfs /dev/sdb rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/scratch/me", "lustre"),
        ("/scratch", "lustre"),
        ("/scratchy", "ext4"),
        ("/scratch/fast/me", "xfs"),
        ("/home/me", "nfs4"),
        ("/gpfs/big/me", "gpfs"),
        ("/mnt/two words/me", "beegfs"),
        ("/", "ext4"),
    ],
)
def test_the_deepest_and_last_mount_counts(path: str, kind: str) -> None:
    """A name that begins alike is no folder below."""
    assert parse_mount_type(MOUNTS, path) == kind


def test_what_is_no_mount_is_left_out() -> None:
    """A torn file, or none."""
    assert parse_mount_type("", "/x") == ""
    assert parse_mount_type("29 1 259:2\n29 - ext4\n" + MOUNTS[:90], "/proc/1") == "proc"


def test_each_type_has_its_floors_and_unknown_ones_have_none() -> None:
    """NFS may be slower than a parallel file system."""
    slow = {"write": 30.0, "create": 15.0}
    assert below_floors(slow, floors_of("nfs4")) == ""
    assert below_floors(slow, floors_of("lustre")) == (
        "write 30 MB/s, where Lustre gives 100 at least; "
        "create 15 files/s, where Lustre gives 50 at least"
    )
    assert below_floors(slow, floors_of("overlay")) == ""
    for kind in ("lustre", "gpfs", "beegfs", "nfs", "ext4", "xfs"):
        assert "write" in below_floors({"write": 1.0}, floors_of(kind))


def test_a_rank_far_below_the_others_is_named() -> None:
    """Of two nobody can say which."""
    hosts = ("a1", "a1", "a2", "a2")
    assert slow_ranks([200.0, 210.0, 60.0, 190.0], hosts, "MB/s") == (
        "rank 2 on a2 60 MB/s, the others 200"
    )
    assert slow_ranks([200.0, 20.0], hosts, "MB/s") == ""
    assert slow_ranks([200.0, 210.0, 60.0, 190.0], hosts, "MB/s", part=0.05) == ""
    assert slow_ranks([200.0, 150.0, 120.0], hosts, "MB/s") == ""
