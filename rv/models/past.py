"""What became of an earlier race: what was expected of it, and what happened."""

from dataclasses import dataclass

from rv.models.plan import Source


@dataclass(frozen=True, kw_only=True, slots=True)
class PastRace:
    """One race that has started: its winner, with what the plan expected. Times are in seconds.

    `submitted_at` is since the epoch. `predicted_s` is None where the start was not known;
    `waited_s` is from the submission to the start of the command. `predicted_run_s` is how long the
    command was to take, None where nobody said how much work it is; `run_s` how long it took, None
    unless it ended well. `work` is in GPU-hours of `reference`, 0 where it is not known.
    """

    race_id: str
    submitted_at: float
    source: Source
    waited_s: float
    gpus: int
    predicted_s: float | None = None
    name: str = ""
    gpu: str = ""
    nodes: int = 1
    partition: str = ""
    predicted_run_s: float | None = None
    run_s: float | None = None
    work: float = 0.0
    reference: str = ""
