"""What a rule about the state of a race is made of; the rules themselves are in `rules`."""

from collections.abc import Callable

from rv.dataclass import dataclass
from rv.models.race import RaceState
from rv.race.facts import Facts


@dataclass(frozen=True, slots=True)
class Rule:
    """A condition, and the state, the sentence and the exit code that follow from it.

    `sources` names where the rule looks beside its section's sources, `when` says the condition in
    words. `says` may name facts in braces, such as {claim.job_id}. `state` is a function where a
    record of Slurm's decides which state it is; `may_be` then names all that it can be.
    """

    name: str
    sources: tuple[str, ...]
    when: str
    applies: Callable[[Facts], bool]
    state: RaceState | Callable[[Facts], RaceState]
    says: str = ""
    code: Callable[[Facts], int | None] | None = None
    may_be: tuple[RaceState, ...] = ()


@dataclass(frozen=True, slots=True)
class Section:
    """Rules that share a condition, sources, and where the exit code comes from."""

    title: str
    sources: tuple[str, ...]
    applies: Callable[[Facts], bool]
    rules: tuple[Rule, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """The state of a race, and the rule that gave it. `exit_code` is None where not known."""

    rule: Rule
    state: RaceState
    exit_code: int | None
    why: str
