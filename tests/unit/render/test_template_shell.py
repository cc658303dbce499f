"""Shell that the templates are made of, run as it stands: clocks that disagree, signals."""

import re
import subprocess
import time
from pathlib import Path

import pytest

TEMPLATES = Path(__file__).parents[3] / "templates"


@pytest.mark.parametrize("path", sorted(TEMPLATES.glob("_chain*.j2")), ids=lambda path: path.name)
def test_a_chain_substitutes_no_command(path: Path) -> None:
    """A signal that comes during one takes its output away, and chains live on signals."""
    text = re.sub(r"\{%#.*?#%\}", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    found = [line for line in lines if re.search(r"\$\((?!\()|`|<\(", line)]
    assert found == []


def test_a_lease_holds_whatever_the_clock_that_wrote_it(tmp_path: Path) -> None:
    """The client's is an hour behind the node's; and the allocation ends when nobody renews."""
    text = (TEMPLATES / "_hold.sh.j2").read_text(encoding="utf-8")
    script = re.sub(r"\{%#.*?#%\}\n?", "", text).replace("{{ lease_seconds }}", "5")
    with subprocess.Popen(
        ["bash", "-c", script],
        env={"PATH": "/usr/bin:/bin", "RV_RACE_DIR": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
    ) as holder:
        begun = time.monotonic()
        while time.monotonic() - begun < 7:
            assert holder.poll() is None, "given up although the lease was renewed"
            (tmp_path / "new").write_text(f"{time.time() - 3600:.2f}\n")
            (tmp_path / "new").rename(tmp_path / "lease")
            time.sleep(0.2)
        _, said = holder.communicate(timeout=60)
    assert "nobody has held this shell" in said
