"""Changing one value in a YAML file leaves every other character of it."""

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from rv.config.edit import set_value, unset_value
from rv.errors import RvError

FILE = """\
# mine
cluster: campus   # the big one

clusters:
  # near
  campus:
    host: ada@login   # by VPN
    race_root: /scratch/$USER/rv

  # far
  lab: {host: lab, defaults: {time: 1h}}
# for all
defaults:
    type: [a100,
           h100]  # best first
    sbatch: {nice: 5}
# the end
"""


def lines(before: str, after: str) -> tuple[list[str], list[str]]:
    """The lines that went and those that came."""
    old, new = before.splitlines(), after.splitlines()
    return [line for line in old if line not in new], [line for line in new if line not in old]


@pytest.mark.parametrize(
    ("keys", "value", "gone", "come"),
    [
        ("cluster", "lab", ["cluster: campus   # the big one"], ["cluster: lab   # the big one"]),
        ("clusters.campus.host", "eve@x", ["    host: ada@login   # by VPN"], ["    host: eve@x   # by VPN"]),
        ("clusters.campus.ssh", "auto", [], ["    ssh: auto"]),
        ("clusters.new.host", "n", [], ["  new:", "    host: n"]),
        ("clusters.lab.ssh", "auto", ["  lab: {host: lab, defaults: {time: 1h}}"], ["  lab: {host: lab, defaults: {time: 1h}, ssh: auto}"]),
        ("clusters.lab.defaults.mem", "8G", ["  lab: {host: lab, defaults: {time: 1h}}"], ["  lab: {host: lab, defaults: {time: 1h, mem: 8G}}"]),
        ("defaults.time", "2:59:00", [], ["    time: '2:59:00'"]),
        ("defaults.type", "v100", ["    type: [a100,", "           h100]  # best first"], ["    type: v100  # best first"]),
        ("defaults.cpus", 4, [], ["    cpus: 4"]),
        ("prices.per_gpu_hour.a40", 1.5, [], ["prices:", "  per_gpu_hour:", "    a40: 1.5"]),
    ],
)  # fmt: skip
def test_one_value_is_set(keys, value, gone, come):
    """The rest stays, comments and order too."""
    after = set_value(FILE, keys.split("."), value, "x")
    assert lines(FILE, after) == (gone, come)


@pytest.mark.parametrize(
    ("keys", "gone", "come"),
    [
        ("cluster", ["cluster: campus   # the big one"], []),
        ("clusters.campus.race_root", ["    race_root: /scratch/$USER/rv"], []),
        ("clusters.campus.host", ["    host: ada@login   # by VPN"], []),
        ("clusters.lab", ["  lab: {host: lab, defaults: {time: 1h}}"], []),
        ("clusters.lab.host", ["  lab: {host: lab, defaults: {time: 1h}}"], ["  lab: {defaults: {time: 1h}}"]),
        ("clusters.lab.defaults.time", ["  lab: {host: lab, defaults: {time: 1h}}"], ["  lab: {host: lab}"]),
        ("defaults.type", ["    type: [a100,", "           h100]  # best first"], []),
        ("defaults.sbatch.nice", ["    sbatch: {nice: 5}"], []),
    ],
)  # fmt: skip
def test_one_value_is_removed(keys, gone, come):
    """With mappings that would be empty, and no comment of another line."""
    after = unset_value(FILE, keys.split("."), "x")
    assert lines(FILE, after) == (gone, come)


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "defaults:\n", "defaults:  # mine\n", "{}\n", "defaults: {}"]
)
def test_a_file_that_says_nothing_gets_its_first_value(text):  # fmt: skip
    """Its comments stay too."""
    after = set_value(text, ["defaults", "time"], "1h", "x")
    assert yaml.safe_load(after) == {"defaults": {"time": "1h"}}
    assert all(line.partition("#")[2] in after for line in text.splitlines())


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("a: &x {b: 1}\nc: *x\n", "a.b"),
        ("a: &x {b: 1}\nc: *x\n", "a"),
        ("a: 1\n", "a.b"),
        ("- a\n", "a"),
    ],
)
def test_what_cannot_be_changed_alone_is_left(text, keys):
    """Rather than another value changed with it."""
    with pytest.raises(RvError):
        set_value(text, keys.split("."), 2, "x")


def test_what_is_not_set_cannot_be_removed():
    """It is named with its file."""
    with pytest.raises(RvError, match=r"defaults\.time is not set in x"):
        unset_value(FILE.replace("time", "mem"), ["defaults", "time"], "x")


KEYS = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3)
VALUES = st.one_of(
    st.text(max_size=20), st.integers(), st.booleans(), st.floats(allow_nan=False),
    st.lists(st.text(max_size=5), max_size=3),
)  # fmt: skip


@example([(["a"], "\x85"), (["b"], "x\u2028y\u2029z"), (["c"], ["\x85\n"])], True, ["a"])
@example([(["a"], ""), (["a"], "0,")], True, ["a"])
@example([(["a"], "\x85"), (["z", "b"], "x\u2028y\u2029z")], False, ["b"])
@given(st.lists(st.tuples(KEYS, VALUES), max_size=6), st.booleans(), KEYS)
def test_whatever_is_set_and_removed_is_read_back(steps, flow, removed):
    """And comments between the lines stay, in order."""
    text = "# first\n{} # one\n" if flow else "# first\nz:   # one\n  y: 1\n  # two\n\n# last\n"
    comments = [line.partition("#")[2] for line in text.splitlines() if "#" in line]
    for keys, value in steps:
        try:
            text = set_value(text, keys, value, "x")
        except RvError as error:
            assert "no mapping" in error.message  # noqa: PT017 - a value stands above it
            continue
        data = yaml.safe_load(text)
        for key in keys:
            data = data[key]
        assert data == value
    try:
        text = unset_value(text, removed, "x")
    except RvError as error:
        assert "not set" in error.message  # noqa: PT017
    at = -1
    for comment in comments:
        at = text.index(comment, at + 1)
