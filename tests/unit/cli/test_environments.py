"""Environments that nobody asked for cost nothing; variables are laid over each other."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from rv.cli.init import _difference
from rv.cli.launching import check_shell
from rv.errors import RvError
from rv.models.request import Command, Launcher, Request
from rv.models.site import Config, Setting
from rv.workflow.environments import job_environment, with_environment
from rv.workflow.option_defaults import read_config, with_defaults
from rv.workflow.options import RequestOptions
from rv.workflow.read_options import build_request
from rv.workflow.user_variables import change_variables

if TYPE_CHECKING:
    from rv.workflow.cluster import Cluster


def test_nothing_is_asked_where_none_is_wanted() -> None:
    """There is no cluster to ask here."""
    request = Request()
    assert with_environment(request, cast("Cluster", None), "/", print) is request


def test_a_variable_typed_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over a file's, and over the caller's."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    config = Config(defaults={"env": Setting(value=["A=file", "B=file"], origin="f:1")})
    options = RequestOptions(env=["A=typed"], config=config)
    found = job_environment(options, {"A": "caller", "B": "caller", "C": "caller"})
    assert found == {"A": "typed", "B": "file", "C": "caller"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("env: {SLURM_CONF: s3cret}", "'SLURM_CONF' cannot be set"),
        ("env: [A=s3cret]", "env must be a mapping"),
        ("env: s3cret", "env must be a mapping"),
        ("env: {A: [s3cret]}", "its value must be text"),
        ("env: {A: true}", "its value must be text"),
        ("env: {1: s3cret}", "cannot be set"),
        ("setup: {a: b}", "setup must be a list of shell lines"),
        ("setup: [1]", "setup must be a list of shell lines"),
        ('venv: "a:b"', "no value for --venv"),
        ("container: two words", "'two words' is no image"),
        ("container_mounts: [data]", "'data' is no mount"),
        ("container_mounts: {a: b}", "container_mounts must be a list of mounts"),
    ],
)
def test_a_slip_in_a_file_is_named_with_its_line(
    text: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And without a value that may be secret."""
    monkeypatch.setenv("RV_SITE_CONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "rv").mkdir()
    (tmp_path / "rv" / "config.yaml").write_text(f"defaults:\n  {text}\n")
    with pytest.raises(RvError) as caught:
        read_config()
    shown: Any = caught.value.message + caught.value.hint
    assert "config.yaml:2" in shown
    assert says in shown
    assert "s3cret" not in shown


def test_variables_of_the_user_are_named_for_a_container(tmp_path: Path) -> None:
    """Their values count over the image's; what the login shell has does not."""
    found = job_environment(RequestOptions(env=["A=typed"], container="deep"), {"B": "caller"})
    assert found["RV_VARIABLES"] == "A"


@pytest.mark.parametrize(
    ("options", "command", "says"),
    [
        ({"container": "deep", "venv": "auto"}, None, "--venv and --container exclude each other"),
        ({"container": "deep"}, Command(line="srun x", launcher=Launcher.MPI), "srun and mpirun"),
        ({"container": "a b"}, None, "is no image"),
        ({"container_mounts": ["data"]}, None, "is no mount"),
    ],
)
def test_what_makes_no_sense_with_a_container_is_refused(
    options: dict[str, Any], command: Command | None, says: str
) -> None:
    """Before anything is asked of the cluster."""
    with pytest.raises(RvError, match=says):
        build_request(RequestOptions(**options), command)


def test_a_shell_in_a_container_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Where it was typed; a default is said to be without effect."""
    with pytest.raises(RvError, match="is for a command"):
        check_shell(RequestOptions(container="deep", typed=frozenset({"container"})), None)
    check_shell(RequestOptions(container="deep"), None)
    assert "not in deep" in capsys.readouterr().err
    check_shell(RequestOptions(container="deep"), Command(line="true"))


def test_a_variable_taken_from_here_wins_over_the_kept_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--env NAME` means the value of this shell, whatever `rv env` has."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    change_variables(lambda _: {"A": "kept", "B": "kept"})
    monkeypatch.setenv("A", "here")
    assert job_environment(RequestOptions(env=["A", "B"]), {}) == {"A": "here", "B": "kept"}


def test_the_users_environment_stands_in_place_of_the_sites(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two files may each have their own; the last one counts, as it does for one option."""
    site, user = tmp_path / "site.yaml", tmp_path / "rv" / "config.yaml"
    monkeypatch.setenv("RV_SITE_CONFIG", str(site))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    site.write_text("defaults: {conda: base, account: lab}\n")
    user.parent.mkdir()
    user.write_text("defaults: {container: 'ubuntu:24.04'}\n")
    options = with_defaults(RequestOptions(), set(), read_config())
    assert (options.conda, options.container, options.account) == ("", "ubuntu:24.04", "lab")
    assert build_request(options, None).container == "ubuntu:24.04"
    again = with_defaults(
        options, set(), Config(defaults={"venv": Setting(value="v", origin="f:1")})
    )
    assert (again.venv, again.container) == ("v", "")


def test_the_difference_of_init_shows_no_line_beside_it(tmp_path: Path) -> None:
    """It may hold a variable's value."""
    before = "defaults:\n  env:\n    TOKEN: s3cret\n"
    shown = _difference(before, before + "cluster: campus\n", tmp_path)
    assert "+cluster: campus" in shown
    assert "s3cret" not in shown
