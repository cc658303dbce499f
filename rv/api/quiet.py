"""What the command line would say on its way is logged here, and nothing is printed."""

import logging
from collections.abc import Sequence
from typing import Final

from rv.models.race import RaceStatus
from rv.race.output import Chunk
from rv.race.submit import SubmitOutcome, SubmitResult

LOG: Final = logging.getLogger("rv")
"""At the level INFO."""


class QuietSink:
    """Hears what becomes of launches and waits."""

    def status(self, status: RaceStatus) -> None:
        """A state is asked for where it is wanted."""

    def ended(self, status: RaceStatus) -> None:
        """So is an end."""

    def output(self, chunk: Chunk) -> None:
        """So is output."""

    def submitted(self, results: Sequence[SubmitResult]) -> None:
        """Say what Slurm did not take."""
        for result in results:
            if result.outcome is not SubmitOutcome.ACCEPTED:
                LOG.info("submission %d: %s %s", result.number, result.outcome, result.text)

    def say(self, text: str) -> None:
        """Say a sentence."""
        LOG.info(text)


QUIET: Final = QuietSink()
