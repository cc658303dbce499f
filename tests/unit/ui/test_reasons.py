"""Slurm's reasons for waiting, as sentences."""

from pathlib import Path

import pytest

from rv.ui.reasons import sentence

FILE = Path(__file__).parents[2] / "data" / "slurm" / "pending_reasons.txt"
REASONS = [line for line in FILE.read_text().splitlines() if not line.startswith("#")]


@pytest.mark.parametrize("reason", REASONS)
def test_every_reason_of_slurm_has_a_sentence(reason):
    """With Slurm's own word behind it, to look up."""
    told = sentence(reason)
    words, _, name = told.partition(" (")
    assert name.removesuffix(")").endswith(reason)
    assert len(words.split()) >= 3


def test_no_two_limits_have_one_sentence():
    """Whose limit, of what, over what time and for whom can be told apart."""
    limits = [r for r in REASONS if r.startswith(("QOSMax", "QOSGrp", "AssocMax", "AssocGrp"))]
    told = {sentence(reason).partition(" (")[0] for reason in limits}
    assert len(limits) > 100
    assert len(told) == len(limits)


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("QOSMaxGRESPerUser", "with it you would use more GPUs than the QOS allows"),
        ("QOSGrpGRES", "with it everybody of this QOS together would use more GPUs than it allows"),
        ("AssocGrpCpuLimit", "with it the account would use more CPUs than it may"),
        ("AssocGrpBillingMinutes", "the account has used up its billing-minutes"),
        ("QOSMaxCpuPerJobLimit", "it asks for more CPUs than the QOS allows a job"),
        ("QOSMaxGRESPerNode", "it asks for more GPUs than the QOS allows on a node"),
        ("QOSMinGRES", "it asks for less than the GPUs that the QOS demands"),
        ("MaxGRESPerAccount", "with it the account would use more GPUs than the QOS allows"),
        (
            "MaxGRESRunMinsPerUser",
            "with it you would use more GPU-minutes at a time than the QOS allows",
        ),
        ("QOSMaxJobsPerUserLimit", "you run as many jobs as the QOS allows"),
    ],
)
def test_limits(reason, told):
    """Put together from their parts."""
    assert sentence(reason) == f"{told} ({reason})"


@pytest.mark.parametrize(
    ("reasons", "told"),
    [
        ("Brand_New", "Brand_New"),
        ("odd\x1b[2Jreason\n", "oddreason"),
        (
            "ReqNodeNotAvail, UnavailableNodes:wolf[1-2]",
            "a node that it needs is not available (ReqNodeNotAvail, UnavailableNodes:wolf[1-2])",
        ),
        (
            "Resources, Priority",
            "next in line for nodes that are busy (Resources); others are ahead in the queue (Priority)",
        ),
        (
            "Nodes required for job are DOWN, DRAINED or reserved for jobs",
            "its nodes are down, drained or kept for higher partitions (Nodes required for job are DOWN, DRAINED or reserved for jobs)",
        ),
        (
            "Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved",
            "its nodes are down, drained or kept for higher partitions (Nodes_required_for_job_are_DOWN, _DRAINED_or_reserved)",
        ),
        (
            "Job's account not permitted to use this partition (gpu allows lab)",
            "its account may not use the partition (Job's account not permitted to use this partition (gpu allows lab))",
        ),
        (
            "launch failure limit exceeded requeued held",
            "held: its starts failed too often (launch failure limit exceeded requeued held)",
        ),
        (
            "launch failed requeued held",
            "held: its last start failed (launch failed requeued held)",
        ),
        (
            "RaisedSignal:9(Killed)",
            "its last run was ended by a signal (RaisedSignal:9(Killed))",
        ),
    ],
)
def test_several_with_a_tail_and_unknown_ones(reasons, told):
    """What is not known is passed through, made printable, and nothing is lost."""
    assert sentence(reasons) == told
