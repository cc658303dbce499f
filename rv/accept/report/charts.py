"""Charts as SVG text that takes the colours of the page around it, light or dark.

Drawn by matplotlib in colours that mean nothing, which become CSS variables afterwards: one drawing
serves both. Text stays text, so that it can be searched and read aloud.
"""

import io
import re
import statistics
import zlib
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from rv.dataclass import dataclass

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, GRID, BAD, REFERENCE = "#010203", "#040506", "#070809", "#0a0b0c"
SERIES: Final = tuple(f"#1010{number:02x}" for number in range(16, 24))
_NAMES: Final = {INK: "ink", GRID: "grid", BAD: "bad", REFERENCE: "reference"} | {
    colour: f"series-{number}" for number, colour in enumerate(SERIES)
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One line of a chart."""

    name: str
    x: Sequence[float]
    y: Sequence[float]


@dataclass(frozen=True, kw_only=True, slots=True)
class LineChart:
    """Lines over a common axis; `reference` is a level to compare with, `marks` stand upright."""

    title: str
    x: str
    y: str
    lines: Sequence[Line]
    is_log: bool = False
    caption: str = ""
    reference: float | None = None
    marks: Sequence[tuple[float, str]] = ()
    bad: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class DotChart:
    """One dot an item in each group; an outlier is drawn in the colour of failure, and named."""

    title: str
    y: str
    groups: Mapping[str, Mapping[str, float]]
    outliers: Collection[tuple[str, str]] = ()
    caption: str = ""


Chart = LineChart | DotChart


def draw(chart: Chart) -> str:
    """Draw a chart as an `<svg>` element, the same bytes for the same chart.

    Raises `ImportError` where matplotlib is not installed.
    """
    from cycler import cycler
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    style: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": chart.title,
        "font.family": "sans-serif",
        "font.size": 10,
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.edgecolor": GRID,
        "xtick.color": INK,
        "ytick.color": INK,
        "grid.color": GRID,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.prop_cycle": cycler(color=SERIES),
        "text.parse_math": False,
    }
    with rc_context(style):
        figure = Figure(figsize=(5.2, 3.0), layout="constrained")
        figure.patch.set_alpha(0)
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        axes.patch.set_alpha(0)
        axes.grid(visible=True, linewidth=0.6)
        axes.set_axisbelow(True)
        if isinstance(chart, LineChart):
            _lines(axes, chart)
        else:
            _dots(axes, chart)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return _themed(text.getvalue(), chart.title)


def _lines(axes: "Axes", chart: LineChart) -> None:
    for line in chart.lines:
        marker = "o" if len(line.x) <= 40 else None
        axes.plot(line.x, line.y, label=line.name, marker=marker, markersize=3, linewidth=1.5)
    if chart.reference is not None:
        axes.axhline(chart.reference, color=REFERENCE, linestyle="--", linewidth=1.2)
        axes.annotate(
            "reference", (0.01, chart.reference), xycoords=("axes fraction", "data"),
            fontsize=8, va="bottom", color=REFERENCE,
        )  # fmt: skip
    for at, what in chart.marks:
        axes.axvline(at, color=REFERENCE, linestyle=":", linewidth=1.2)
        axes.annotate(
            what, (at, 1), xycoords=("data", "axes fraction"), fontsize=8, rotation=90,
            va="top", ha="right",
        )  # fmt: skip
    for x, y in chart.bad:
        axes.plot([x], [y], marker="o", markersize=7, color=BAD, fillstyle="none", linestyle="none")
    if chart.is_log:
        _powers_of_two(axes)
    axes.set_xlabel(chart.x)
    axes.set_ylabel(chart.y)
    if len(chart.lines) > 1:
        axes.legend(
            frameon=False, fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=4,
            columnspacing=1, handlelength=1.2,
        )  # fmt: skip


def _powers_of_two(axes: "Axes") -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator

    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(LogLocator(base=2, numticks=9))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: binary(value)))


def binary(count: float) -> str:
    """Write a count in powers of 1024: 8, 4K, 1M, 4G."""
    power = next((power for power in range(4) if count < 1024 ** (power + 1)), 4)
    return f"{count / 1024**power:g}{('', 'K', 'M', 'G', 'T')[power]}"


def _dots(axes: "Axes", chart: DotChart) -> None:
    for position, (group, items) in enumerate(chart.groups.items()):
        middle = statistics.median(items.values())
        axes.plot([position - 0.3, position + 0.3], [middle] * 2, color=REFERENCE, linewidth=1.2)
        for number, (name, value) in enumerate(items.items()):
            at = position + 0.5 * (number + 0.5 - len(items) / 2) / len(items)
            is_out = (group, name) in chart.outliers
            axes.plot([at], [value], "o", markersize=5, color=BAD if is_out else SERIES[0])
            if is_out:
                axes.annotate(name, (at, value), xytext=(6, -3), textcoords="offset points",
                              fontsize=8, color=BAD)  # fmt: skip
    axes.set_xticks(range(len(chart.groups)), list(chart.groups))
    axes.set_xlim(-0.6, len(chart.groups) - 0.4)
    top = max(max(items.values()) for items in chart.groups.values())
    axes.set_ylim(0, 1.08 * top or 1.0)
    axes.set_ylabel(chart.y)


def _themed(svg: str, title: str) -> str:
    """Cut the drawing out of its document, name it, and give it the page's colours."""
    body = svg[svg.index("<svg") :].strip()
    for colour, name in _NAMES.items():
        body = body.replace(colour, f"var(--{name})")
    # Fixed sizes would not shrink with the page.
    body = re.sub(r' (?:width|height)="[\d.]+pt"', "", body, count=2)
    # Ids are one space in a page of several drawings.
    tag = f"c{zlib.crc32(title.encode()):x}"
    body = re.sub(r'(\bid="|url\(#|xlink:href="#)', rf"\g<1>{tag}-", body)
    return body.replace("<svg", '<svg role="img"', 1)
