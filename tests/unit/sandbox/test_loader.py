"""The loader's choices."""

import random

from rv.sandbox.loader import Loader, Node, parse_nodes, parse_waiting


def loader(seed: int = 1, share: float = 0.5) -> Loader:
    return Loader(share=share, shortest_s=10, longest_s=60, dice=random.Random(seed))


NODES = [Node(partition="p", gpus=8, free=8), Node(partition="q", gpus=8, free=8)]


def test_it_fills_up_to_the_share_and_no_further() -> None:
    """Half of 16 GPUs is 8; with 8 busy there is nothing to do."""
    jobs = loader().step(NODES, 0, 0)
    assert sum(gpus for _, gpus, _ in jobs) == 8
    assert all(10 <= seconds <= 60 for _, _, seconds in jobs)
    assert loader().step([NODES[0], Node(partition="q", gpus=8, free=0)], 0, 0) == []
    assert loader().step(NODES, 8, 0) == []


def test_the_same_seed_draws_the_same_jobs() -> None:
    """And another seed draws others."""
    assert loader(3).step(NODES, 0, 0) == loader(3).step(NODES, 0, 0)
    assert loader(3).step(NODES, 0, 0) != loader(4).step(NODES, 0, 0)


def test_it_learns_the_limits_of_a_partition() -> None:
    """A refused size is halved; a refused single GPU closes the partition for a while."""
    busy = loader(share=1)
    busy.learn("p", 8, now_s=0)
    assert max(gpus for part, gpus, _ in busy.step(NODES, 0, 0) if part == "p") <= 4
    busy.learn("p", 1, now_s=0)
    assert {part for part, _, _ in busy.step(NODES, 0, 1)} == {"q"}
    assert {part for part, _, _ in busy.step(NODES, 0, 100)} == {"p", "q"}


def test_nodes_that_take_no_jobs_do_not_count() -> None:
    """Neither do nodes without GPUs."""
    row = "NodeName={} State={} Partitions=p Gres=gpu:a:2,gpu:1g.5gb:2(S:0) GresUsed=gpu:a:1(IDX:0),gpu:1g.5gb:0(IDX:N/A)"
    text = "\n".join(
        [
            row.format("a", "MIXED"),
            row.format("b", "IDLE+DRAIN"),
            row.format("c", "DOWN*"),
            "NodeName=d State=IDLE Partitions=p Gres=(null) GresUsed=gpu:0",
        ]
    )
    assert parse_nodes(text) == [Node(partition="p", gpus=4, free=3)]


def test_waiting_jobs_are_read_in_both_spellings() -> None:
    """22.05 writes gres:gpu:2, later ones gres/gpu:2."""
    text = "1|p|gres:gpu:2|Resources\n2|q|gres/gpu:1|QOSMaxGRESPerUser\nnoise\n"
    assert parse_waiting(text) == [(("1"), "p", 2, "Resources"), ("2", "q", 1, "QOSMaxGRESPerUser")]


def test_jobs_that_will_not_start_soon_are_withdrawn() -> None:
    """A limit is learned; lost GPUs are not; one that Slurm has not looked at yet counts."""
    some = loader(share=1)
    pending = [
        ("1", "p", 4, "None"),
        ("2", "p", 8, "Resources"),
        ("3", "q", 8, "QOSMaxGRESPerUser"),
        ("4", "p", 1, "Priority"),
    ]
    assert some.review(pending, 0) == (5, ["2", "3"])
    assert some.largest == {"q": 4}
