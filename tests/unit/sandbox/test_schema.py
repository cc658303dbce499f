"""Profiles: what is read, and what is said about a wrong one."""

from pathlib import Path

import pytest

from rv.errors import ErrorKind, RvError
from rv.sandbox import schema

GOOD = """\
cluster: lab
nodes:
  - prefix: n
    count: 2
    memory: 64G
    gres:
      - {type: null, count: 2}
partitions:
  - name: all
    nodes: n
    billing: {GRES/gpu: 1.5}
"""


def test_a_profile_is_read_with_its_defaults() -> None:
    """Sizes become MiB, a single item a list, null an untyped GRES."""
    profile = schema.parse(GOOD, where="x.yaml")
    assert profile.nodes[0].memory == 65536
    assert profile.nodes[0].gres[0].type is None
    assert profile.partitions[0].nodes == ("n",)
    assert profile.partitions[0].billing == (("GRES/gpu", "1.5"),)
    assert profile.node_names == ("n1", "n2")


def test_an_account_is_a_name_or_more() -> None:
    """A name alone stands for an account without a parent and limits; sizes may be none or text."""
    accounts = "accounts: [lab, {name: sub, parent: lab, options: {GrpTRES: gres/gpu=2}}]\n"
    text = GOOD.replace("nodes: n\n", "nodes: n\n    max_mem_per_cpu: 8G\n") + accounts
    profile = schema.parse(text, where="x.yaml")
    assert [(a.name, a.parent, a.joined) for a in profile.accounts] == [
        ("lab", None, True),
        ("sub", "lab", True),
    ]
    assert profile.counts_gpus
    assert profile.partitions[0].max_mem_per_cpu == 8192


EXAMPLES = sorted(Path(__file__).parents[3].glob("examples/clusters/*.yaml"))


@pytest.mark.parametrize("name", [*schema.builtin_names(), *map(str, EXAMPLES)])
def test_the_bundled_profiles_are_valid(name: str) -> None:
    """Each parses and has nodes."""
    assert schema.load_profile(name).node_names


@pytest.mark.parametrize(
    ("before", "after", "line", "said", "hint"),
    [
        ("count: 2\n", "cuont: 2\n", 4, "unknown key 'cuont'", "did you mean count?"),
        ("billing:", "biling:", 11, "unknown key 'biling'", "did you mean billing?"),
        ("partitions:", "partition:", 8, "unknown key 'partition'", "did you mean partitions?"),
        ("memory: 64G", "memory: lots", 5, "memory must be a size", ""),
        ("count: 2\n", "count: two\n", 4, "count must be a whole number", ""),
        ("nodes: n\n", "nodes: m\n", 9, "'m' is not defined", ""),
        ("{type: null, count: 2}", "{type: a}", 7, "'count' is missing", ""),
        ("cluster: lab\n", "cluster: lab\ncluster: b\n", 2, "appears twice", ""),
        ("name: all", "name: 'a b'", 9, "is no name for Slurm", ""),
        ("name: all", "name: all\n    qos: gold", 9, "'gold' is not defined", ""),
        ("cluster: lab", "cluster: [", 3, "not YAML", ""),
        ("name: all", 'name: "a\\nb"', 9, "must be one value", ""),
        (
            "cluster: lab",
            "accounts: [{name: a, parent: b}, b]\ncluster: lab",
            1,
            "'b' is not def",
            "",
        ),
        ("cluster: lab", "accounts: [a, a]\ncluster: lab", 1, "appears twice", ""),
        ("cluster: lab", "accounts: [{name: a, joined: no}]\ncluster: lab", 1, "nobody can", ""),
    ],
)
def test_a_faulty_profile_is_answered_with_the_line(
    before: str, after: str, line: int, said: str, hint: str
) -> None:
    """The message has file, line and key; the hint the nearest key."""
    with pytest.raises(RvError) as caught:
        schema.parse(GOOD.replace(before, after, 1), where="x.yaml")
    assert caught.value.kind is ErrorKind.SANDBOX
    assert said in caught.value.message
    assert f"profile x.yaml:{line}: " in caught.value.message
    assert "\n" not in caught.value.message
    assert hint in caught.value.hint


def test_an_unknown_profile_names_the_nearest() -> None:
    """`campsu` is campus."""
    with pytest.raises(RvError) as caught:
        schema.load_profile("campsu")
    assert caught.value.hint == "did you mean campus?"


def test_an_empty_profile_is_refused() -> None:
    """Nothing is not a cluster."""
    with pytest.raises(RvError, match="a profile is a mapping"):
        schema.parse("", where="x.yaml")
