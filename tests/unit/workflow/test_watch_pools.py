"""A watch over a cluster's GPUs when Slurm falls silent; the cluster's answers are the test's own."""

from concurrent.futures import Future
from pathlib import Path

import pytest

from rv.errors import ErrorKind, RvError
from rv.models.snapshot import Snapshot
from rv.slurm import probe
from rv.slurm.cache import SnapshotCache
from rv.transport.local import LocalTransport
from rv.workflow.cluster import Cluster
from rv.workflow.watch_pools import PoolsWatch
from tests.unit.planner.clusters import campus, nodes, partition, snapshot

SILENCE = RvError(ErrorKind.UNREACHABLE, "Slurm's controller does not answer")
REFUSAL = RvError(ErrorKind.REFUSED, "Slurm does not show its queue to you")


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[Snapshot | RvError]:
    """What Slurm says next; a first answer that was on its way is not asked for."""
    left: list[Snapshot | RvError] = []

    def take(*_: object, early: "Future[Snapshot] | None" = None, **__: object) -> Snapshot:
        said = early.result() if early else left.pop(0)
        if isinstance(said, RvError):
            raise said
        return said

    monkeypatch.setattr(probe, "take_snapshot", take)
    return left


def watch(tmp_path: Path, answer: "Future[Snapshot] | None" = None) -> PoolsWatch:
    cache = SnapshotCache(directory=tmp_path, key="k")
    return PoolsWatch(
        cluster=Cluster(key="k", label="here", transport=LocalTransport({}), cache=cache,
                        race_root="/r", slurm_path="/usr/bin", answer=answer),
        clock=lambda: 7.0,
    )  # fmt: skip


def test_a_silence_keeps_the_last_answer(tmp_path: Path, answers: list[Snapshot | RvError]) -> None:
    """What was on its way when rv began is used once; any other failure ends the watch."""
    early: Future[Snapshot] = Future()
    early.set_result(campus())
    members = nodes("n", 1, gres={"h200": 8})
    answers += [SILENCE, SILENCE, snapshot((partition("p", members), members)), REFUSAL]
    client = watch(tmp_path, early)
    first = client.look()
    assert len(first) > 5
    assert (client.look(), client.silent_since_s) == (first, 7.0)
    assert client.look() == first
    assert [pool.gpu for pool in client.look()] == ["h200"]
    assert client.silent_since_s is None
    with pytest.raises(RvError, match="queue"):
        client.look()


def test_without_a_first_answer_there_is_nothing_to_show(
    tmp_path: Path, answers: list[Snapshot | RvError]
) -> None:
    answers.append(SILENCE)
    with pytest.raises(RvError, match="does not answer"):
        watch(tmp_path).look()
