"""One GPU that jobs number differently, as `cuda:0` and as `cuda:3`, stays one GPU."""

from dataclasses import replace

from rv.accept.measurements import Measurement, measurements
from rv.accept.peers import against_others, has_others
from rv.accept.report.series import charts
from rv.accept.report.trend_rows import trend_rows
from rv.accept.results import RunResult, Status
from rv.accept.trends import compare, trends
from tests.unit.accept.made_results import gpu, metric, outcome, run_of

DAY_S = 86400.0


def on(index: int, rate: float, day: int = 0, uuid: str = "GPU-b", node: str = "n1") -> RunResult:
    """A job of one GPU, which has this number in it."""
    test = outcome(f"cuda:{index}", metric(rate), host=node)
    device = gpu(index, "Other GPU", uuid=uuid)
    return run_of([test], [device], hostname=node, began=1e9 + day * DAY_S)


def number(result: RunResult) -> Measurement:
    (one,) = measurements(result, f"r{result.began}", "c", 0.0)
    return one


def test_one_other_gpu_is_one_peer_whatever_its_number() -> None:
    """Of two that disagree nothing says which is right: no node is bad for it."""
    own = number(on(0, 700, 9, uuid="GPU-a", node="n2"))
    same = [number(on(index, 800, index)) for index in range(3)]
    third = number(on(0, 801, 4, uuid="GPU-c"))

    remark = against_others(own, same)
    assert remark is not None
    assert (remark.status, remark.code) == (Status.WARN, "peers_disagree")
    told = against_others(own, [*same, third])
    assert told is not None
    assert (told.status, told.code) == (Status.FAIL, "peer_outlier")


def test_gpus_together_are_one_peer_whatever_their_device() -> None:
    own = replace(number(on(0, 230)), gpu_uuid="", device="", world=2, members="a b")
    same = [replace(own, members="c d", device=device, value=300) for device in ("", "cuda")]

    remark = against_others(own, same)
    assert remark is not None
    assert remark.code == "peers_disagree"


def test_without_a_uuid_the_devices_of_another_node_are_several() -> None:
    """Nothing else tells them apart."""
    own = number(on(0, 700, 9, uuid="", node="n2"))
    others = [number(on(index, 800, uuid="")) for index in range(2)]

    remark = against_others(own, others)
    assert remark is not None
    assert remark.code == "peer_outlier"
    assert not has_others(own, [number(on(1, 800, uuid="", node="n2"))])


def test_a_history_goes_on_under_another_number() -> None:
    """The fall is flagged, in the report too, in one chart."""
    jobs = [on(3, 780 + day % 2, day) for day in range(7)] + [on(0, 600, 90)]
    kept = [number(job) for job in jobs]

    (trend,) = trends(kept)
    assert len(trend.values) == 8
    assert trend.regression is not None
    (row,) = trend_rows(jobs[-1:], kept)
    assert row.values == trend.values
    (chart,) = [each for each in charts(jobs[-1:], kept) if each.caption.endswith("8 runs")]
    assert "worse than its sound runs" in chart.caption


def test_without_a_uuid_each_number_of_a_node_has_its_own_history() -> None:
    kept = [number(on(index, 700, index, uuid="")) for index in range(2)]

    assert len(trends(kept)) == 2


def test_runs_are_compared_by_the_gpu_and_not_by_its_number() -> None:
    """Its numbers and its verdict; the GPU that has its number in the other run is another one."""
    whole = run_of(
        [outcome(f"cuda:{at}", metric(780 + at)) for at in range(4)],
        [gpu(at, "Other GPU") for at in range(4)],
    )
    alone = on(0, 600, uuid="GPU-3")
    failed = replace(alone, tests=(replace(alone.tests[0], status=Status.FAIL),))
    found = compare(
        list(measurements(whole, "r1", "c", 0.0)), [number(failed)], ([whole], [failed])
    )

    assert [(c.before.value, c.after.value) for c in found.changes] == [(783, 600)]
    assert (found.only_before, found.only_after) == (3, 0)
    assert [(t.device, t.before, t.after) for t in found.turns] == [
        ("cuda:0", Status.PASS, None),
        ("cuda:1", Status.PASS, None),
        ("cuda:2", Status.PASS, None),
        ("cuda:0", Status.PASS, Status.FAIL),
    ]
