"""What was found on a cluster, for a configuration that is made of it; and what a check found."""

from collections.abc import Mapping
from enum import StrEnum

from rv.dataclass import dataclass
from rv.models.plan import PoolView
from rv.models.snapshot import Snapshot


@dataclass(frozen=True, kw_only=True, slots=True)
class Folder:
    """A folder of the user's there. `variable` names it, "" where a usual path did.

    `is_shared`: its disk is one over the network, or that of the home; `free_mib` of space.
    """

    path: str
    variable: str
    disk: str
    free_mib: int
    has_links: bool
    is_home: bool
    is_shared: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Discovery:
    """What was found; `asked_s` is how many seconds the cluster took to answer."""

    snapshot: Snapshot
    pools: tuple[PoolView, ...]
    folders: tuple[Folder, ...]
    tools: Mapping[str, str]
    asked_s: float

    @property
    def accounts(self) -> tuple[str, ...]:
        """The accounts that the user may charge, the default first."""
        associations = sorted(
            self.snapshot.associations or (), key=lambda each: not each.is_default
        )
        return tuple(dict.fromkeys(each.account for each in associations))

    @property
    def default_account(self) -> str:
        """The account that Slurm charges by default, "" where there is none."""
        accounts = (each.account for each in self.snapshot.associations or () if each.is_default)
        return next(accounts, "")

    @property
    def qos(self) -> tuple[str, ...]:
        """The QOS that the user may ask for."""
        qos_names = (name for each in self.snapshot.associations or () for name in each.qos)
        return tuple(dict.fromkeys(qos_names))

    @property
    def scratch(self) -> tuple[Folder, ...]:
        """The folders beside the home that races can lie in, those with the most room first."""
        fit = (each for each in self.folders if each.is_shared and each.has_links)
        return tuple(sorted((e for e in fit if not e.is_home), key=lambda each: -each.free_mib))


class Verdict(StrEnum):
    """How a check went: WARN is what rv can do without."""

    OK = "ok"
    WARN = "WARN"
    FAIL = "FAIL"


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """What one check found; `remedy` says what to do, "" where all is well."""

    check: str
    verdict: Verdict
    what: str
    remedy: str = ""
