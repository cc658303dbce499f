"""The report as a real browser shows it, in light and dark."""

import subprocess
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from rv.accept.report.write import as_html
from tests.unit.accept.made_pages import HOSTILE, page

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


def test_a_phone_shows_it_without_scrolling_sideways(written: Path) -> None:
    text = written.read_text(encoding="utf-8")
    # Only the test's copy runs a script: the page itself forbids them.
    probe = "<script>document.title = document.documentElement.scrollWidth + ' wide'</script>"
    open_page = text.replace("default-src 'none'", "default-src 'unsafe-inline'")
    written.write_text(open_page.replace("</body>", f"{probe}</body>"), encoding="utf-8")
    # No window of a headless browser is narrower than 500 pixels.
    done = browse(written.parent, "--window-size=500,900", "--dump-dom", written.as_uri())
    assert "<title>500 wide</title>" in done.stdout


def test_no_script_of_a_hostile_cluster_runs(written: Path) -> None:
    text = written.read_text(encoding="utf-8")
    probe = "<script>document.title = 'taken'</script>"
    written.write_text(text.replace("</body>", f"{probe}</body>"), encoding="utf-8")
    done = browse(written.parent, "--dump-dom", written.as_uri())
    assert "<title>taken</title>" not in done.stdout
    assert "<title>FAIL: " in done.stdout
