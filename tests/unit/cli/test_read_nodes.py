"""A list of nodes that somebody typed is read as Slurm writes it, and nothing else is."""

import pytest

from rv.cli.read_nodes import node_names
from rv.errors import ErrorKind, RvError


@pytest.mark.parametrize(
    ("typed", "names"),
    [
        ("a1", ("a1",)),
        ("a1,b[2-4]", ("a1", "b2", "b3", "b4")),
        ("gpu[08-10]", ("gpu08", "gpu09", "gpu10")),
        ("rack1.node-2", ("rack1.node-2",)),
    ],
)
def test_a_list_as_slurm_writes_it_is_read(typed: str, names: tuple[str, ...]) -> None:
    assert node_names(typed) == names


@pytest.mark.parametrize(
    "typed", ["", ",", "a[1-", "a]", "a 1", "a1;b2", "-a1", "a1,../b", "a[1-200000]", "a1\x1b[m"]
)
def test_what_names_no_node_is_refused(typed: str) -> None:
    with pytest.raises(RvError) as refused:
        node_names(typed)
    assert refused.value.kind is ErrorKind.USAGE
