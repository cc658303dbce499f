"""Which GPU model a site's words mean, and how a job asks for that model only."""

from dataclasses import replace

import pytest

from rv.models.request import Request
from rv.planner.catalogue import mig_profile
from rv.planner.planning import plan
from tests.unit.planner.clusters import (
    CATALOGUE,
    FAMILIES,
    campus,
    ids,
    nodes,
    one_partition,
    partition,
    planned,
    reasons,
    snapshot,
)


def one(gres, *, features=(), name="gpu"):
    """Return the single strategy for one GPU on a cluster of one kind of node."""
    members = nodes("n", 2, gres=gres, features=features)
    (strategy,) = planned(Request(), snapshot((partition(name, members), members))).strategies
    return strategy


@pytest.mark.parametrize(
    ("gres", "features", "name", "model"),
    [
        ("nvidia_a100-sxm4-80gb", (), "gpu", "a100-80"),
        ("NVIDIA_A100-PCIE-40GB", (), "gpu", "a100-40"),
        ("tesla_v100-sxm2-32gb", (), "gpu", "v100"),
        ("tesla_v100-sxm2-16gb", (), "gpu", "v100-16"),
        ("nvidia_h100_nvl", (), "gpu", "h100-nvl"),
        ("nvidia_gh200_480gb", (), "gpu", "gh200"),
        ("l40s", (), "gpu", "l40s"),
        ("rtx_6000_ada", (), "gpu", "rtx6000-ada"),
        ("a100", ("hbm80g",), "gpu", "a100-80"),
        ("a100", (), "gpu-a100-40", "a100-40"),
        ("a100", ("a100_80gb",), "gpu-a100-40", "a100-80"),
        ("a100", ("ib",), "gpu", "a100"),
        ("t4", ("a100_80gb",), "gpu-h100", "t4"),
        ("", ("skylake", "p100"), "gpu", "p100"),
        ("", (), "mi250x", "mi250"),
        ("nvidia", ("l40",), "gpu", "l40"),
        ("", ("a40", "a30"), "gpu", "gpu"),
        ("weird1", ("a100_80gb",), "gpu-a100-80", "weird1"),
    ],
)
def test_model_from_type_then_features_then_partition(gres, features, name, model):
    """Each kind of evidence refines the one before, and never contradicts it."""
    assert one({gres: 4}, features=features, name=name).gpu == model


def test_gres_is_asked_for_as_the_site_spells_it():
    """Slurm matches GRES types by their spelling; an untyped one has none."""
    assert one({"nvidia_a100-sxm4-80gb": 8}).gres == "gpu:nvidia_a100-sxm4-80gb:1"
    assert one({"": 8}, features=("a100",)).gres == "gpu:1"


def test_an_alias_takes_what_the_cluster_has():
    """Where nothing tells 40 from 80 GB, `--type a100` still finds the A100s."""
    members = nodes("n", 2, gres={"a100": 4})
    cluster = snapshot((partition("gpu", members), members))
    assert ids(planned(Request(types=("a100",)), cluster)) == ["a100/1x1/gpu"]


@pytest.mark.parametrize(("word", "models"), [("big", {"h200", "a100-80"}), ("a100", {"a100-80"})])
def test_the_models_of_an_alias_race_as_those_of_a_list_do(word, models):
    """Of a model's own name the best is meant."""
    catalogue = replace(CATALOGUE, aliases={**CATALOGUE.aliases, "big": ("h200", "a100-80")})
    made = plan(Request(types=(word,)), campus(), catalogue, FAMILIES)
    assert {strategy.gpu for strategy in made.strategies} == models


def test_two_models_of_one_type_are_told_apart_by_a_feature():
    """Both A100s in one partition: each job names the feature that only its nodes have."""
    small = nodes("s", 2, gres={"a100": 8}, features=("gpu", "a100_40gb"))
    large = nodes("l", 2, gres={"a100": 8}, features=("gpu", "fast", "a100_80gb"))
    made = planned(Request(), snapshot((partition("gpu", small + large), small + large)))
    found = {s.gpu: (s.constraint, s.node_names) for s in made.strategies}
    assert found == {
        "a100-40": ("a100_40gb", ("s1", "s2")),
        "a100-80": ("a100_80gb", ("l1", "l2")),
    }


def test_untyped_gres_with_features_in_one_partition():
    """Features alone tell the models apart, and become constraints."""
    old = nodes("v", 2, gres={"": 4}, features=("v100",))
    new = nodes("h", 2, gres={"": 4}, features=("h100",))
    made = planned(Request(gpus=4), snapshot((partition("gpu", old + new), old + new)))
    assert sorted((s.id, s.gres, s.constraint) for s in made.strategies) == [
        ("h100/1x4/gpu", "gpu:4", "h100"),
        ("h100/2x2/gpu", "gpu:2", "h100"),
        ("v100/1x4/gpu", "gpu:4", "v100"),
        ("v100/2x2/gpu", "gpu:2", "v100"),
    ]


def test_models_without_a_telling_feature_are_one_of_the_lesser_memory():
    """A job that may land on either kind is promised no more than the lesser."""
    small = nodes("s", 1, gres={"a100": 8}, features=("gpu",))
    large = nodes("l", 1, gres={"a100": 8}, features=("gpu", "a100_80gb"))
    made = planned(Request(), snapshot((partition("gpu", small + large), small + large)))
    found = {s.gpu: (s.constraint, s.node_names, s.vram_mib) for s in made.strategies}
    assert found["a100-80"] == ("a100_80gb", ("l1",), 81920)
    assert found["a100"] == ("", ("l1", "s1"), 40960)


def test_two_spellings_of_one_model_have_ids_of_their_own():
    """A partition where one model has two GRES types gives two strategies with two names."""
    one_way = nodes("a", 1, gres={"a40": 4})
    other = nodes("b", 1, gres={"nvidia_a40": 4})
    made = planned(Request(), snapshot((partition("gpu", one_way + other), one_way + other)))
    assert sorted(ids(made)) == ["a40/1x1/gpu/a40", "a40/1x1/gpu/nvidia_a40"]


def test_untyped_gpus_beside_slices_are_left_out_where_nothing_tells_them_apart():
    """Slurm would give an untyped request a slice."""
    whole = nodes("w", 1, gres={"": 4})
    cut = nodes("m", 1, gres={"1g.10gb": 7})
    made = planned(Request(), snapshot((partition("a100", whole + cut), whole + cut)))
    assert ids(made) == []
    assert "MIG slices beside them" in reasons(made)["a100/a100"]


def test_a_broken_pattern_never_recognises_two_models():
    """Every canonical name, and each alias, means a model of the catalogue, first of all itself."""
    for name in CATALOGUE.models:
        assert name in CATALOGUE.meanings(name)
    for alias, meant in CATALOGUE.aliases.items():
        assert set(meant) <= set(CATALOGUE.models), alias


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("1g.10gb", "1g.10gb"),
        ("nvidia_a100_3g.40gb", "3g.40gb"),
        ("a100-sxm4-80gb_1g.10gb+me", "1g.10gb"),
        ("a100", None),
        ("a100-40gb", None),
    ],
)
def test_mig_profiles_are_recognised_by_form(text, name):
    """With a vendor's prefix or without."""
    profile = mig_profile(text)
    assert (profile.name if profile else None) == name


def test_models_told_apart_by_two_features_or_by_any_of_several():
    """`a&b` where neither is its own alone, `a|b` where its nodes have none in common."""
    small = nodes("s", 1, gres={"": 4}, features=("a100", "hbm40g"))
    large = nodes("b", 1, gres={"": 4}, features=("a100", "hbm80g"))
    other = nodes("h", 1, gres={"": 4}, features=("h100", "hbm80g"))
    volta = nodes("v", 1, gres={"": 4}, features=("v100-sxm2",))
    slots = nodes("w", 1, gres={"": 4}, features=("v100-pcie",))
    made = planned(Request(), one_partition(small, large, other, volta, slots))
    assert {s.gpu: s.constraint for s in made.strategies} == {
        "a100-40": "hbm40g",
        "a100-80": "a100&hbm80g",
        "h100": "h100",
        "v100": "v100-pcie|v100-sxm2",
    }


def test_whole_gpus_beside_slices_have_their_part_of_the_node():
    """Two whole GPUs and seven sevenths are three: each whole one is a third of the node."""
    mixed = nodes("m", 1, gres={"a100": 2, "1g.10gb": 7}, cpus=12, gib=300)
    cluster = one_partition(mixed)
    (whole,) = planned(Request(types=("a100",)), cluster).strategies
    assert (whole.cpus_per_task, whole.memory_mib) == (4, 90 * 1024)
    (both,) = planned(Request(gpus=2, types=("a100",)), cluster).strategies
    assert (both.cpus_per_task, both.memory_mib) == (8, 180 * 1024)
    several = nodes("m", 1, gres={"1g.10gb": 7, "3g.40gb": 2})
    made = planned(Request(types=("3g.40gb",)), one_partition(several))
    assert [(s.gres, s.cpus_per_task) for s in made.strategies] == [("gpu:3g.40gb:1", 1)]


def test_untyped_slices_are_read_from_a_feature():
    """A feature that is a profile says that the GRES counts slices."""
    cut = nodes("m", 1, gres={"": 7}, features=("a100_80gb", "1g.10gb"))
    made = planned(Request(mig=True), one_partition(cut))
    assert [(s.mig_profile, s.gres) for s in made.strategies] == [("1g.10gb", "gpu:1")]
