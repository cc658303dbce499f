"""Clusters by name: which file says what of them, and what a project's file may not say."""

import os
import platform

import pytest

from rv.errors import ErrorKind, RvError
from rv.workflow.locate import locate
from rv.workflow.option_defaults import read_config
from rv.workflow.race_root import expand_folder
from rv.workflow.which_cluster import is_this_machine, named_clusters

CAMPUS = "clusters:\n  campus: {host: ada@login.campus.example, ssh: openssh}\n"


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Write a file: `site`, `user` or `project`, which is the current folder's."""
    paths = {
        "site": tmp_path / "etc" / "config.yaml",
        "user": tmp_path / "home" / "rv" / "config.yaml",
        "project": tmp_path / "project" / "rv.yaml",
    }
    for path in paths.values():
        path.parent.mkdir(parents=True)
    monkeypatch.setenv("RV_SITE_CONFIG", str(paths["site"]))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("RV_CLUSTER", raising=False)
    monkeypatch.delenv("RV_PROJECT_CONFIG", raising=False)
    monkeypatch.chdir(paths["project"].parent)

    def write(which, text):
        paths[which].write_text(text, encoding="utf-8")
        return paths[which]

    return write


def test_fields_of_one_cluster_come_from_both_files(files):
    """The user's win over the site's, each for itself."""
    files(
        "site", "cluster: campus\nclusters:\n  campus: {host: login, race_root: /scratch/$USER}\n"
    )
    path = files("user", "clusters:\n  campus: {host: ada@login}\n  lab: {host: lab}\n")
    clusters = named_clusters(os.environ)
    campus = clusters.named["campus"]
    assert (campus.host, campus.race_root, campus.origin) == (
        "ada@login", "/scratch/$USER", f"{path}:2",
    )  # fmt: skip
    assert (list(clusters.named), clusters.default.value) == (["campus", "lab"], "campus")


def test_what_a_file_says_for_a_cluster_wins_in_that_file_only(files, monkeypatch):
    """The project speaks last, as it is nearest."""
    files("user", f"{CAMPUS}    defaults: 1\n".replace(
        "openssh}\n    defaults: 1", "openssh, defaults: {account: lab, time: 3h}}\ndefaults: {time: 1h, mem: 8G}"
    ))  # fmt: skip
    files("project", "cluster: campus\ndefaults: {account: project}\n")

    def values(cluster=""):
        found = read_config(cluster).defaults
        return {name: setting.value for name, setting in found.items()}

    assert values() == {"time": "3h", "mem": "8G", "account": "project"}
    assert values("local") == {"time": "1h", "mem": "8G", "account": "project"}
    monkeypatch.setenv("RV_CLUSTER", "local")
    assert values()["time"] == "1h"


@pytest.mark.parametrize(
    ("text", "line", "message", "hint"),
    [
        ("cluster: ada@evil.example\n", 1, "does not say where rv connects", "rv init"),
        ("cluster: 'ssh:evil'\n", 1, "does not say where rv connects", "rv init"),
        (
            "clusters:\n  campus:\n    host: evil\n",
            3,
            "where or how rv connects (host)",
            "own file",
        ),
        ("clusters: {campus: {ssh: paramiko}}\n", 1, "where or how rv connects (ssh)", ""),
        ("clusters: {campus: {race_root: /x}}\n", 1, "how rv connects (race_root)", ""),
        ("clusters: {other: {defaults: {time: 1h}}}\n", 1, "no cluster 'other' is known", ""),
        ("cluster: campsu\n", 1, "no cluster 'campsu' is known", "did you mean campus?"),
        ("\nprices: {}\n", 2, "prices is for the site's and the user's own file", ""),
        ("max_fanout: 99\n", 1, "max_fanout is for the site's", ""),
        ("defaults: {tme: 1h}\n", 1, "unknown key 'tme'", "did you mean time?"),
        ("clusters: {campus: {defaults: {tme: 1h}}}\n", 1, "unknown key 'tme'", "time"),
        ("clusters: {campus: {default: {}}}\n", 1, "unknown key 'default'", "defaults"),
        ("default: {}\n", 1, "unknown key 'default'", "did you mean defaults?"),
    ],
)
def test_a_project_says_neither_where_nor_how_rv_connects(files, text, line, message, hint):
    """Code of others is not to choose to whom the user's keys speak."""
    files("user", CAMPUS)
    path = files("project", text)
    with pytest.raises(RvError) as caught:
        read_config()
    assert caught.value.kind is ErrorKind.CONFIG
    assert caught.value.message.startswith(f"{path}:{line}: ")
    assert message in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("clusters: {a: {host: '-oProxyCommand=x'}}\n", "is no host"),
        ("clusters: {a: {host: 'x;y'}}\n", "is no host"),
        ("clusters: {a: {host: '$(x)@y'}}\n", "is no host"),
        ("clusters: {a: {host: x, ssh: telnet}}\n", "unknown ssh 'telnet'"),
        ("clusters: {a: {host: x, race_root: rv}}\n", "is no folder"),
        ("clusters: {a: {host: x, race_root: /a/../b}}\n", "is no folder"),
        ("clusters: {a: {ssh: auto}}\n", "cluster a has no host"),
        ("clusters: {local: {host: x}}\n", "'local' is no name for a cluster"),
        ("clusters: {all: {host: x}}\n", "'all' is no name for a cluster"),
        ("clusters: {a.b: {host: x}}\n", "'a.b' is no name for a cluster"),
        ("clusters: [a]\n", "clusters must be a mapping"),
        ("clusters: {a: x}\n", "a must be a mapping"),
        ("cluster: all\n", "no cluster 'all' is known"),
        ("cluster: [a]\n", "cluster must be text"),
    ],
)
def test_slips_in_the_user_s_clusters_are_named(files, text, message):
    """Nothing of a host can mean something to a shell or to ssh."""
    path = files("user", text)
    with pytest.raises(RvError) as caught:
        read_config()
    assert caught.value.message.startswith(f"{path}:1: ")
    assert message in caught.value.message


def test_a_project_of_another_user_is_not_read(files, monkeypatch):
    """Whoever can write to a folder above could set defaults for others."""
    path = files("project", "defaults: {account: theirs}\n")
    os.chown(path, 65534, 65534)
    with pytest.raises(RvError, match="belongs to another user"):
        read_config()
    monkeypatch.setenv("RV_PROJECT_CONFIG", "none")
    assert read_config().defaults == {}


def test_a_project_reaches_down_to_its_folders_and_no_further_up_than_its_work_tree(
    files, tmp_path, monkeypatch
):
    """A file above the work tree is another project's."""
    files("project", "defaults: {time: 1h}\n")
    deep = tmp_path / "project" / "src" / "deep"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    assert read_config().defaults["time"].value == "1h"
    (deep.parent / ".git").mkdir()
    assert read_config().defaults == {}


def test_an_unknown_cluster_names_the_known_and_the_nearest(files):
    """For a name that was mistyped."""
    files("user", CAMPUS)
    with pytest.raises(RvError) as caught:
        locate("camps", os.environ)
    assert caught.value.message == "no cluster 'camps' is known"
    assert caught.value.hint.startswith("did you mean campus? known: campus, local, sandbox[:NAME]")


def test_all_clusters_are_no_single_one(files):
    """For commands that act on one."""
    files("user", CAMPUS)
    with pytest.raises(RvError) as caught:
        locate("all", os.environ)
    assert (caught.value.kind, caught.value.hint) == (ErrorKind.USAGE, "name one of campus")


def test_variables_of_a_folder_are_the_login_s(monkeypatch):
    """They are filled in as text: nothing is run."""
    login = {"USER": "ada", "HOME": "/home/ada", "SCRATCH": "/big/$(id)/ada"}
    assert expand_folder("/s/$USER/rv", login, "x") == "/s/ada/rv"
    assert expand_folder("~/rv", login, "x") == "/home/ada/rv"
    assert expand_folder("${SCRATCH}/rv", login, "x") == "/big/$(id)/ada/rv"
    with pytest.raises(RvError, match=r"names \$WORK, which a login there does not set"):
        expand_folder("$WORK/rv", login, "config.yaml:3")


def test_a_host_that_is_this_machine_needs_no_ssh():
    """One file serves a laptop and the login node whose home it also lies in."""
    here = platform.node()
    assert is_this_machine(f"ada@{here}")
    assert is_this_machine(here.partition(".")[0])
    assert not is_this_machine("elsewhere.example")
