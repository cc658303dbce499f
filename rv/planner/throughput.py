"""How long a command takes with the GPUs of a strategy.

The work is in hours of one GPU of the reference model. n GPUs of a model do n * r / l of such hours
in an hour. r is the model's rate over the reference's, both by the first kind of measure that has a
value of both. l is the loss to the exchange of gradients, which on n GPUs moves 2 (n - 1) / n times
their bytes (Patarasuk and Yuan: Bandwidth optimal all-reduce algorithms for clusters of
workstations, JPDC 2009; what nccl-tests calls bus bandwidth B counts so):

    l = 1 + G / B * 2 (n - 1) / n,    G = 3 GB/s,

where G is how many bytes of gradients a GPU makes in a second, less what is sent meanwhile. B is
what acceptance measured for the model and layout; else what the link usually gives: 200 GB/s over
NVLink, 20 GB/s over PCIe, 20 GB/s between nodes.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from math import ceil, inf
from statistics import median
from typing import Final

from rv.errors import ErrorKind, RvError
from rv.models.performance import LONGEST_S, AllReduce, PastRace, Performance, Rate
from rv.models.plan import RunTime
from rv.models.request import Request, Work
from rv.planner.catalogue import Catalogue
from rv.planner.layouts import Layout
from rv.planner.limits import Infeasible
from rv.planner.quantiles import LEAST, conformal, corrected, ratio

_GRADIENTS: Final = 3.0
_NVLINK: Final = (200.0, "NVLink")
_PCIE: Final = (20.0, "PCIe")
_NETWORK: Final = (20.0, "a network between nodes")
_MOST_CORRECTION: Final = 4.0
"""Past runs of a name make a time at most so many times longer, or shorter."""

_UNSURE: Final = 1.3
_SURE: Final = 1.15
"""How much longer than expected one run of ten takes: by rv's prior, and by this name's past."""

_SURE_RUNS: Final = 3
"""Past runs of a name from which on they are more than trials."""

_MARGIN: Final = 1.2
"""The walltime over the p90: a job that is cut off has done nothing."""

_LEAST_VALUE: Final = 1e-6
_MOST_VALUE: Final = 1e12
"""Between these lies whatever GPUs and links do in a second, in any of the units."""

_MINUTE: Final = timedelta(minutes=1)


class RunTimes:
    """Says how long the command of one request takes on each model and layout."""

    def __init__(
        self,
        request: Request,
        performance: Performance,
        past: Sequence[PastRace],
        catalogue: Catalogue,
    ) -> None:
        """Raise `RvError(USAGE)` for a reference model that nothing knows."""
        self._performance = performance
        self._catalogue = catalogue
        self._rates: dict[tuple[str, str], Rate] = {}
        for rate in filter(_is_value, performance.rates):
            self._rates.setdefault((self._model(rate.gpu), rate.kind), rate)
        self._kinds = tuple(dict.fromkeys(rate.kind for rate in performance.rates))
        self._links = {
            (self._model(one.gpu), one.gpus, one.nodes): (one.value, one.source)
            for one in filter(_is_value, reversed(performance.all_reduce))
        }
        self._nvlinked = {self._model(name) for name in performance.nvlinked}
        self.reference = self._reference(request)
        self.work = Work(gpu_hours=self._gpu_hours(request), reference=self.reference)
        self._own = [race for race in past if race.run_s and race.name == request.name != ""]
        self._ratios = sorted(_ratios(past))

    def _model(self, gpu: str) -> str:
        model = self._catalogue.recognise((gpu,))
        return model.name if model else gpu

    def _reference(self, request: Request) -> str:
        """Return the reference model: of the meanings of its word the first that has a rate."""
        word = request.work.reference if request.work else ""
        word = word or self._performance.reference
        rated = {model for model, _ in self._rates}
        for name in (*self._catalogue.meanings(word), word):
            if name in rated:
                return name
        raise RvError(
            ErrorKind.USAGE,
            f"no rate of the reference GPU {word!r} is known",
            hint=f"write --work 12gpuh:MODEL, one of {', '.join(sorted(rated)[:12]) or 'none'}",
        )

    def _gpu_hours(self, request: Request) -> float:
        """Return the work; without --work it is what the smallest size does in the walltime."""
        if request.work:
            return request.work.gpu_hours
        smallest = Layout(1, min(request.sizes, default=request.gpus))
        loss, _ = self._loss(self.reference, smallest)
        hours: float = request.walltime / timedelta(hours=1)
        return hours * smallest.gpus_per_node / loss

    def notes(self, request: Request) -> Iterator[str]:
        """Say what the work is counted in, and what it was taken from."""
        work = f"{self.work.gpu_hours:.3g} GPU-hours of {self.reference}"
        named = bool(request.work and request.work.reference)
        origin = "" if named else f" ({self._performance.reference_origin})"
        if request.work:
            yield f"the work is {work}{origin}"
            return
        time = "--time" if request.walltime_given else "the usual time"
        count = min(request.sizes, default=request.gpus)
        yield f"the work is {work}{origin}: {time} on {count} of them; --work 12gpuh says another"

    def of(self, model: str, layout: Layout) -> RunTime:
        """Return how long the command takes.

        Raises `Infeasible` where no rate is known, or it is longer than anybody waits for.
        """
        rate, rated_by = self._relative(model)
        loss, scaled_by = self._loss(model, layout)
        speed = rate * layout.nodes * layout.gpus_per_node / loss
        factor, runs, corrected_by = self._correction(model, layout)
        modelled_s = self.work.gpu_hours * 3600 / speed * factor
        middle_s, late_s = self._quantiles(modelled_s, factor, runs)
        if not max(modelled_s, late_s) < LONGEST_S:
            raise Infeasible("the work takes longer than ten years there")
        return RunTime(
            p50=timedelta(seconds=middle_s),
            p90=timedelta(seconds=late_s),
            modelled=timedelta(seconds=modelled_s),
            rate=speed / factor,
            rated_by=rated_by,
            scaled_by=scaled_by,
            corrected_by=corrected_by,
        )

    def _relative(self, model: str) -> tuple[float, str]:
        """Return the rate of a GPU over the reference's, and what both are by."""
        for kind in self._kinds:
            rate, of = self._rates.get((model, kind)), self._rates.get((self.reference, kind))
            if rate and of:
                source = rate.source if rate.source == of.source else f"{rate.source}; {of.source}"
                return rate.value / of.value, source
        raise Infeasible(f"no rate of {model} is known that {self.reference} has too")

    def _loss(self, model: str, layout: Layout) -> tuple[float, str]:
        """Return how many times longer a step takes than without other GPUs, and by what link."""
        gpus = layout.nodes * layout.gpus_per_node
        if gpus < 2:
            return 1.0, ""
        usual = _NVLINK if model in self._nvlinked else _PCIE
        usual = _NETWORK if layout.nodes > 1 else usual
        bandwidth, source = self._links.get((model, gpus, layout.nodes), usual)
        return 1 + _GRADIENTS / bandwidth * 2 * (gpus - 1) / gpus, source

    def _correction(self, model: str, layout: Layout) -> tuple[float, int, str]:
        """Return what past runs of this name took over what they would be expected to take.

        Those on the same model and layout count, else those on the same model, else all: their
        median, between a quarter and four times. A run whose work is not known is taken to have
        done the same work.
        """
        gpus = layout.nodes * layout.gpus_per_node
        on_model = [race for race in self._own if race.gpu == model]
        here = [race for race in on_model if (race.gpus, race.nodes) == (gpus, layout.nodes)]
        for races in (here, on_model, self._own):
            factors = [factor for race in races if (factor := self._factor(race))]
            if factors:
                bounded = min(_MOST_CORRECTION, max(1 / _MOST_CORRECTION, median(factors)))
                runs = "run" if len(factors) == 1 else "runs"
                said = f"x{bounded:.2f} by {len(factors)} past {runs} of this name"
                return bounded, len(factors), said
        return 1.0, 0, ""

    def _factor(self, race: PastRace) -> float:
        """Return how many times longer a past run took than the model says; 0 for not known."""
        try:
            rate, _ = self._relative(race.gpu)
        except Infeasible:
            return 0.0
        loss, _ = self._loss(race.gpu, Layout(race.nodes, max(1, race.gpus // race.nodes)))
        is_known = bool(race.work) and race.reference == self.reference
        hours = (race.work if is_known else self.work.gpu_hours) * loss / (rate * max(1, race.gpus))
        return (race.run_s or 0.0) / 3600 / hours if hours else inf

    def _quantiles(self, modelled_s: float, factor: float, runs: int) -> tuple[float, float]:
        """Return the middle and the p90 of what the model says, in seconds.

        Of past runs of any name where there are enough, else the prior. One or two short runs of
        a name may be trials: until there are more they shorten what is likely, and not the p90.
        """
        doubt = 1 / min(1.0, factor) if runs < _SURE_RUNS else 1.0
        if len(self._ratios) >= LEAST:
            middle, late = (conformal(self._ratios, share) for share in (0.5, 0.9))
            return corrected(modelled_s, middle), corrected(modelled_s, late) * doubt
        return modelled_s, modelled_s * (_SURE if runs >= _SURE_RUNS else _UNSURE) * doubt


def _ratios(past: Iterable[PastRace]) -> Iterator[float]:
    """Yield how many times as long as foretold runs took, of those of which both is known."""
    for race in past:
        if race.predicted_run_s and race.run_s:
            yield ratio(race.predicted_run_s, race.run_s)


def _is_value(measured: Rate | AllReduce) -> bool:
    """Whether it can have been measured: values lie in a file."""
    return _LEAST_VALUE <= measured.value <= _MOST_VALUE


def asked_time(request: Request, run: RunTime) -> tuple[timedelta, timedelta]:
    """Return the walltime to ask for, in whole minutes, and the part that a limit may cut off.

    A chain's time is what all its segments do together.
    """
    least = ceil(run.p90 / _MINUTE) * _MINUTE
    walltime = max(1, ceil(_MARGIN * run.p90 / _MINUTE)) * _MINUTE  # 0 is no limit to Slurm
    return walltime, timedelta(0) if request.checkpoint else walltime - least
