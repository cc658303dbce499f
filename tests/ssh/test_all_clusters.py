"""`--cluster all` from a laptop: one cluster behind ssh, and one whose host there is none of."""

import json

from tests.ssh.conftest import Laptop
from tests.ssh.server import HOST
from tests.ssh.test_launch import logins


def test_a_race_goes_where_somebody_answers_over_one_login(laptop: Laptop) -> None:
    """The login that was asked over is the one that is launched over."""
    file = laptop.home / ".config" / "rv" / "config.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(f"clusters:\n  near: {{host: {HOST}}}\n  gone: {{host: nowhere.invalid}}\n")
    done = laptop.rv("run", "--cluster", "all", "--time", "5m", "--json", "true")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["state"] == "COMPLETED"
    assert "cannot connect to nowhere.invalid" in done.stderr
    assert "racing on near alone" in done.stderr
    assert logins(laptop) == 1
