"""How the numbers of a report's GPUs moved over all runs kept here, the worst first. Pure."""

from collections.abc import Sequence
from typing import Final

from rv.accept.measurements import Measurement, bare_uuid
from rv.accept.regressions import Regression
from rv.accept.report.gpus import key_of
from rv.accept.results import RunResult
from rv.accept.trends import Trend, trends
from rv.dataclass import dataclass
from rv.payloads.contract.stats import PEER_WARN

_MOST: Final = 20
_LEAST_POINTS: Final = 3
_WIDTH, _HEIGHT, _EDGE = 120, 26, 3


@dataclass(frozen=True, kw_only=True, slots=True)
class TrendRow:
    """One number of one GPU over time, oldest first; `loss` is a fraction, positive for worse."""

    last: Measurement
    values: Sequence[float]
    usual: float
    loss: float
    regression: Regression | None

    @property
    def status(self) -> str:
        """The verdict of the history; "" where it found nothing."""
        return self.regression.status if self.regression else ""

    @property
    def points(self) -> str:
        """The values as the points of a line 120 wide and 26 high."""
        low, high = min(self.values), max(self.values)
        step = (_WIDTH - 2 * _EDGE) / max(1, len(self.values) - 1)
        room = _HEIGHT - 2 * _EDGE
        return " ".join(
            f"{_EDGE + step * i:.1f},{_HEIGHT - _EDGE - room * (v - low) / (high - low or 1):.1f}"
            for i, v in enumerate(self.values)
        )


def trend_rows(runs: Sequence[RunResult], kept: Sequence[Measurement]) -> list[TrendRow]:
    """Give the numbers of these GPUs that are flagged, or 5 % worse than usual; 20 at most."""
    here = {key_of(run, device) for run in runs for device in run.devices if device.uuid}
    own = [each for each in kept if each.has_own_level and bare_uuid(each.gpu_uuid) in here]
    return [_row(trend) for trend in trends(own) if _is_worse(trend)][:_MOST]


def _is_worse(trend: Trend) -> bool:
    is_worse = trend.regression is not None or trend.loss > PEER_WARN
    return is_worse and len(trend.values) >= _LEAST_POINTS


def _row(trend: Trend) -> TrendRow:
    return TrendRow(
        last=trend.last,
        values=trend.values,
        usual=trend.median,
        loss=trend.loss,
        regression=trend.regression,
    )
