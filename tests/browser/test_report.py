"""The report as a real browser shows it, in light and dark."""

import itertools
import re
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from rv.accept.report.page import Page
from rv.accept.report.write import as_html
from rv.accept.results import Status
from tests.unit.accept.made_pages import HOSTILE, page
from tests.unit.accept.made_results import of_rates
from tests.unit.accept.test_report_links import pair_result

PAPER = {"light": (0xFF, 0xFF, 0xFF), "dark": (0x0F, 0x13, 0x18)}
BAD = {"light": (0xC6, 0x28, 0x28), "dark": (0xFF, 0x6B, 0x62)}
FIRST_SERIES = {"light": (0x0B, 0x62, 0xC4), "dark": (0x68, 0xB0, 0xFF)}
SCHEMES = {"dark": "0", "light": "1"}


def browse(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a headless browser with a profile of its own."""
    return subprocess.run(
        [
            "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            "--disable-dev-shm-usage", f"--user-data-dir={folder / 'profile'}", *words,
        ],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "report.html"
    path.write_text(as_html(page(HOSTILE)), encoding="utf-8")
    return path


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_drawn_in_the_colours_of_the_scheme(written: Path, scheme: str) -> None:
    shot = written.parent / "shot.png"
    browse(
        written.parent,
        f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}",
        "--window-size=1200,1800",
        f"--screenshot={shot}",
        written.as_uri(),
    )
    pixels = (imread(shot)[..., :3] * 255).round().astype(int)

    def share(colour: tuple[int, ...]) -> float:
        return float((abs(pixels - np.array(colour)).max(axis=2) <= 2).mean())

    assert share(PAPER[scheme]) > 0.3
    assert share(BAD[scheme]) > 1e-3, "no verdict in the colour of failure"
    assert share(FIRST_SERIES[scheme]) > 1e-3, "no bars or dots"
    other = "dark" if scheme == "light" else "light"
    assert share(FIRST_SERIES[other]) < 1e-5


def fleet() -> str:
    """A page of twelve payloads on as many nodes, with links between all of them, all unfolded."""
    nodes = [f"gpu-node-{number:03d}" for number in range(12)]
    uuid = "GPU-aef4b2fe-676f-8f91-8de1-7{:011d}"
    runs = [
        of_rates(
            500 + 30 * at, test_type=f"payload_{p}", hostname=node,
            status=Status.ERROR if p == at else Status.PASS,
        )
        for at, node in enumerate(nodes)
        for p in range(12)
    ]  # fmt: skip
    runs = [
        replace(
            run,
            devices=(replace(run.devices[0], uuid=uuid.format(at // 12)),),
            tests=tuple(replace(test, host=run.hostname) for test in run.tests),
        )
        for at, run in enumerate(runs)
    ]
    runs += [pair_result(*pair, 40.0) for pair in itertools.combinations(nodes, 2)]
    text = as_html(Page(title="Fleet", when=datetime(2026, 1, 2, tzinfo=UTC), runs=runs))
    return text.replace("<details", "<details open")


@pytest.mark.parametrize("width", [500, 900, 1400])
@pytest.mark.parametrize("which", ["hostile", "fleet"])
def test_nothing_falls_off_at_either_end_and_no_text_is_under_another(
    written: Path, width: int, which: str
) -> None:
    """No window of a headless browser is narrower than 500 pixels."""
    text = written.read_text(encoding="utf-8") if which == "hostile" else fleet()
    # Only the test's copy runs a script: the page itself forbids them.
    probe = """<script>
      const over = [...document.querySelectorAll("td, dd, dt, code, li > *")].filter(
        each => each.scrollWidth > each.clientWidth + 2 && each.clientWidth);
      document.title = document.documentElement.scrollWidth + " wide, over: "
        + over.map(each => each.className + " " + each.textContent).slice(0, 5);
    </script>"""
    open_page = text.replace("default-src 'none'", "default-src 'unsafe-inline'")
    written.write_text(open_page.replace("</body>", f"{probe}</body>"), encoding="utf-8")
    done = browse(written.parent, f"--window-size={width},900", "--dump-dom", written.as_uri())
    (title,) = re.findall(r"<title>(.*?)</title>", done.stdout, re.DOTALL)
    assert title == f"{width} wide, over: "


def test_no_script_of_a_hostile_cluster_runs(written: Path) -> None:
    text = written.read_text(encoding="utf-8")
    probe = "<script>document.title = 'taken'</script>"
    written.write_text(text.replace("</body>", f"{probe}</body>"), encoding="utf-8")
    done = browse(written.parent, "--dump-dom", written.as_uri())
    assert "<title>taken</title>" not in done.stdout
    assert "<title>FAIL: " in done.stdout
