"""Keyword arguments are the options of `rv up`, in Python's types."""

from dataclasses import fields
from datetime import timedelta
from typing import Any

import pytest

from rv.api.executor import Executor
from rv.api.options import NOT_HERE, Options, launch_options
from rv.api.parameters import Shape, as_options, checked
from rv.errors import ErrorKind, RvError
from rv.models.request import Fanout
from rv.workflow.options import RequestOptions
from rv.workflow.read_options import build_request


@pytest.fixture(autouse=True)
def no_files(tmp_path, monkeypatch):
    """No configuration of whoever runs the tests."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("RV_SITE_CONFIG", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_is_true_is_an_option_without_a_value():
    """As sbatch spells `--exclusive`."""
    assert launch_options({"sbatch": {"exclusive": True, "nice": 1}}).sbatch == [
        "exclusive",
        "nice=1",
    ]


def test_every_option_is_an_argument():
    """But for those that only a terminal, or a client that stays, has use for."""
    renamed = {"gpu": "gpus", "type": "types"}
    options = {renamed.get(each.name, each.name) for each in fields(RequestOptions)}
    assert set(Options.__annotations__) == options - NOT_HERE
    assert options >= NOT_HERE


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ({"gpus": 4}, "gpus", 4),
        ({"types": ["a100", "h200"]}, "types", ("a100", "h200")),
        ({"types": "a100,h200"}, "types", ("a100", "h200")),
        ({"time": "2h"}, "walltime", timedelta(hours=2)),
        ({"time": timedelta(minutes=90)}, "walltime", timedelta(minutes=90)),
        ({"time": None}, "walltime_given", False),
        ({"vram": "40G"}, "min_vram_mib", 40960),
        ({"mig": True}, "mig", True),
        ({"partition": ["a", "b"]}, "partitions", ("a", "b")),
        (
            {"sbatch": {"nice": 100, "licenses": "matlab"}},
            "sbatch",
            (("nice", "100"), ("licenses", "matlab")),
        ),
        ({"fanout": "each"}, "fanout", Fanout.EACH),
        ({"widen_after": timedelta(seconds=9)}, "widen_after", timedelta(seconds=9)),
        ({"exclude": "a[1-2]"}, "exclude_nodes", ("a1", "a2")),
        ({"max_cost": 3}, "max_cost", 3.0),
        ({"modules": ["cuda", "gcc"]}, "modules", ("cuda", "gcc")),
        ({"checkpoint": True, "checkpoint_signal": "USR2"}, "checkpoint_signal", "USR2"),
    ],
)
def test_an_argument_is_read_as_its_option(given: dict[str, Any], field: str, value: object):
    """By the same builder."""
    assert getattr(build_request(launch_options(given), None), field) == value


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"gpu": 4}, "did you mean gpus?"),
        ({"gpus": 4.5}, "it takes: int"),
        ({"gpus": True}, "it takes: int"),
        ({"mig": "yes"}, "it takes: bool"),
        ({"time": 90}, "it takes: timedelta"),
        ({"types": [1]}, "it takes: list of str"),
        ({"setup": "module load x"}, "it takes: list of str"),
        ({"sbatch": ["nice=1"]}, "it takes: dict"),
        ({"fanout": "some"}, "it takes: one of 'auto', 'each'"),
        ({"name": 3}, "it takes: str"),
    ],
)
def test_a_slip_is_named_with_what_it_takes(given: dict[str, Any], says: str):
    """Before anything is asked of a cluster."""
    with pytest.raises(RvError) as caught:
        launch_options(given)
    assert caught.value.kind is ErrorKind.USAGE
    assert says in caught.value.hint


def test_a_variables_value_is_not_shown():
    """It may be a token."""
    with pytest.raises(RvError) as caught:
        launch_options({"env": ["TOKEN=s3cret"]})
    assert "s3cret" not in f"{caught.value.message} {caught.value.hint}"


def test_the_files_defaults_count(no_files):
    """As they do for `rv up`; an argument wins over them."""
    (no_files / "rv").mkdir()
    (no_files / "rv" / "config.yaml").write_text("defaults: {account: lab, type: a100}\n")
    assert launch_options({}).account == "lab"
    assert build_request(launch_options({"types": ["v100"]}), None).types == ("v100",)


@pytest.mark.parametrize(
    ("given", "options", "shape"),
    [
        ({}, {"gpus": 0}, Shape()),
        ({"gpus_per_node": 2}, {"gpus": 2, "single_node": True}, Shape(gpus_per_node=2)),
        (
            {"gpus_per_node": 2, "nodes": 2, "tasks_per_node": 2},
            {"gpus": 4, "multi_node": True},
            Shape(nodes=2, tasks_per_node=2, gpus_per_node=2),
        ),
        ({"slurm_gpus_per_task": 1, "tasks_per_node": 4}, {"gpus": 4, "single_node": True},
         Shape(tasks_per_node=4, gpus_per_node=4)),
        ({"cpus_per_task": 3, "tasks_per_node": 2}, {"gpus": 0, "cpus": 6}, Shape(tasks_per_node=2)),
        ({"timeout_min": 90, "mem_gb": 8, "name": "x"},
         {"gpus": 0, "time": "90m", "mem": "8G", "name": "x"}, Shape()),
        ({"slurm_partition": "a", "slurm_array_parallelism": 3},
         {"gpus": 0, "partition": "a"}, Shape(array_parallelism=3)),
        ({"slurm_additional_parameters": {"nice": 1}, "slurm_mail_type": "END"},
         {"gpus": 0, "sbatch": {"nice": 1, "mail-type": "END"}}, Shape()),
        ({"slurm_signal_delay_s": 60, "types": ["a100"]},
         {"gpus": 0, "checkpoint_buffer": "60s", "types": ["a100"]}, Shape()),
        ({"slurm_timeout_min": 90, "timeout_min": 5, "slurm_name": "x", "slurm_mem_gb": 1.5},
         {"gpus": 0, "time": "90m", "name": "x", "mem": "1.5G"}, Shape()),
        ({"slurm_ntasks_per_node": 2, "tasks_per_node": 3}, {"gpus": 0}, Shape(tasks_per_node=2)),
        ({"slurm_exclusive": True}, {"gpus": 0, "sbatch": {"exclusive": True}}, Shape()),
    ],
)  # fmt: skip
def test_parameters_of_submitit_are_options(given, options, shape):
    """Those for Slurm alone go on to sbatch."""
    assert as_options(given) == (options, shape)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"gpu_per_node": 1}, "did you mean gpus_per_node?"),
        ({"slurm_gres": "gpu:4"}, "gpus_per_node=4"),
        ({"slurm_mem_per_gpu": "4G"}, "mem_gb"),
    ],
)
def test_an_unknown_parameter_names_the_nearest(given, says):
    """And what rv asks for in another way says how."""
    with pytest.raises(RvError) as caught:
        checked(given)
    assert says in caught.value.hint


def test_parameters_of_other_clusters_are_ignored():
    """As submitit does with those of an executor that is not in use."""
    assert checked({"local_setup": ["true"], "debug_x": 1, "nodes": 1}) == {"nodes": 1}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"nodes": 0}, "one node and one task"),
        ({"nodes": 2}, "without GPUs"),
        ({"timeout_min": "soon"}, "it takes: int"),
        ({"tasks_per_node": 0}, "one node and one task"),
        ({"gpus_per_node": 1.5}, "it takes: int"),
        ({"gpus_per_node": True}, "it takes: int"),
        ({"slurm_array_parallelism": -1}, "1 or more"),
        ({"slurm_array_parallelism": 2.5}, "it takes: int"),
        ({"mem_gb": "2.0GB"}, "it takes: number"),
        ({"slurm_setup": "module load x"}, "it takes: list of str"),
        ({"time": 90}, "it takes: timedelta"),
    ],
)
def test_a_parameter_that_cannot_be_is_refused_where_it_is_set(given, says, tmp_path):
    """Before anything is asked of a cluster; those that were set before stay."""
    executor = Executor(tmp_path)
    executor.update_parameters(name="x")
    with pytest.raises(RvError) as caught:
        executor.update_parameters(**given)
    assert caught.value.kind is ErrorKind.USAGE
    assert says in f"{caught.value.message} {caught.value.hint}"
    assert executor.parameters == {"name": "x"}


def test_calls_that_are_too_large_are_refused(tmp_path):
    """Each has a pickle of its own: many with one large object would fill memory and disk."""
    executor = Executor(tmp_path, max_pickle_size_gb=0.001)
    with pytest.raises(RvError, match=r"more than 0\.001 GB") as caught:
        executor.map_array(len, [b"x" * 600_000] * 2)
    assert caught.value.kind is ErrorKind.USAGE
    assert "pass its path" in caught.value.hint
