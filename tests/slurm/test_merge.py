"""A merged job starts wherever one of its parts would, knows what it became, and can be refused."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from rv import sandbox
from tests.slurm.launching import MODELS, REPOSITORY, RaceFiles, Rv, group, profile

Eventually = Callable[..., None]
WITHIN_S = 10


@dataclass(frozen=True, kw_only=True)
class Form:
    """One native form: the options that make rv produce it, and each part's model and nodes."""

    options: tuple[str, ...]
    parts: dict[str, tuple[str, ...]]

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(node for names in self.parts.values() for node in names)


VOLTA, AMPERE, OTHER = ("v1", "v2"), ("a1", "a2"), ("c1", "c2")
PLAIN, PLAINER = ("u1", "u2"), ("w1", "w2")
ON_ONE, ON_TWO = ("--gpu", "4", "--single-node"), ("--gpu", "4", "--multi-node")
FORMS = {
    "partitions": Form(
        options=("-p", "volta,ampere", *ON_ONE), parts={"v100": VOLTA, "a40": AMPERE}
    ),
    "partitions, two nodes": Form(
        options=("-p", "volta,ampere", *ON_TWO), parts={"v100": VOLTA, "a40": AMPERE}
    ),
    "types": Form(options=("-p", "both", *ON_ONE), parts={"v100": VOLTA, "a40": AMPERE}),
    "features": Form(options=("-p", "mixed", *ON_ONE), parts={"v100": PLAIN, "a40": PLAINER}),
    "features, two nodes": Form(
        options=("-p", "mixed", *ON_TWO), parts={"v100": PLAIN, "a40": PLAINER}
    ),
}


def untyped(prefix: str, model: str) -> dict[str, object]:
    """Two nodes whose GRES has no type; a feature names the model."""
    made = group(prefix, model, nodes=2)
    return made | {"gres": [made["gres"][0] | {"type": None}], "features": [model]}


@pytest.fixture(scope="module")
def box(sandbox_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[sandbox.Sandbox]:
    """Five pairs of nodes, one that is single, and a partition over all of them to fill them by."""
    groups = [group("v", "v100", nodes=2), group("a", "a40", nodes=2), group("c", "a40", nodes=2),
              untyped("u", "v100"), untyped("w", "a40"), group("t", "l4")]  # fmt: skip
    partitions = {
        "every": ["v", "a", "c", "u", "w", "t"],
        "volta": ["v"],
        "ampere": ["a"],
        "more": ["c"],
        "both": ["v", "a"],
        "mixed": ["u", "w"],
        "single": ["t"],
    }
    spec = profile(groups, partitions, slurm_conf={"EnforcePartLimits": "ALL"})
    path = tmp_path_factory.mktemp("profile") / "merged.yaml"
    path.write_text(yaml.safe_dump(spec))
    yield sandbox.up("merged", path)
    sandbox.down("merged")


@pytest.fixture
def rv(box: sandbox.Sandbox, tmp_path: Path, eventually: Eventually) -> Iterator[Rv]:
    """`rv` on an empty cluster."""
    rv = Rv(box=box, home=tmp_path)
    yield rv
    (box.directory / "bin" / "scontrol").unlink(missing_ok=True)
    for node in ("v1", "v2", "u1", "w1"):
        sandbox.set_fault(box, node, None)
    for name in ("volta", "ampere", "single"):
        rv.slurm("scontrol", "update", f"PartitionName={name}", "MaxTime=1-0")
    empty(rv, eventually)


def empty(rv: Rv, eventually: Eventually) -> None:
    """Take every job away."""
    rv.slurm("scancel", "--me")
    eventually(lambda: not rv.slurm("squeue", "-h"))


def fill(rv: Rv, nodes: tuple[str, ...], eventually: Eventually) -> dict[str, str]:
    """Take all GPUs of nodes; the jobs that do, by node."""
    jobs = {node: rv.fill(node, 4, "-p", "every") for node in nodes}
    eventually(lambda: all(rv.job_state(job) == "RUNNING" for job in jobs.values()))
    return jobs


def assert_became(rv: Rv, race: RaceFiles, model: str, nodes: tuple[str, ...], out: str) -> None:
    """One merged job was sent and won as the part of that model, which its command was told."""
    assert "|" in race.record["entries"][0]["strategy"]
    assert race.submitted.keys() == {1}
    winner = rv.state()["winner"]
    assert winner["strategy"].startswith(f"{model}/")
    names = rv.slurm("scontrol", "show", "hostnames", winner["nodes"]).split()
    assert set(names) <= set(nodes)
    assert f"told {model} {winner['strategy']}" in out
    assert f"has {MODELS[model][0]}" in out
    assert not race.names("warnings")


ASK = 'echo "told $RV_GPU $RV_STRATEGY"; echo "has $(nvidia-smi --query-gpu=name --format=csv,noheader)"'


@pytest.mark.parametrize(
    ("form", "model"), [(form, model) for form in FORMS for model in FORMS[form].parts]
)
def test_it_starts_where_only_one_of_its_parts_would(
    rv: Rv, form: str, model: str, eventually: Eventually
) -> None:
    """All the other parts' nodes are taken: that part alone starts, and so does the merged job."""
    options, free = FORMS[form].options, FORMS[form].parts[model]
    fill(rv, tuple(set(FORMS[form].nodes) - set(free)), eventually)
    alone = rv("up", *options, "--time", "10m", "--type", model, "--run", "true")
    assert alone.returncode == 0, alone.stderr
    assert waited(rv.last()) < WITHIN_S
    together = rv("up", *options, "--time", "10m", "--run", ASK)
    assert together.returncode == 0, together.stderr + rv.last().logs()
    assert waited(rv.last()) < WITHIN_S
    assert_became(rv, rv.last(), model, free, together.stdout)


@pytest.mark.parametrize(
    ("form", "model"), [(form, model) for form in FORMS for model in FORMS[form].parts]
)
def test_it_starts_when_the_nodes_of_any_part_are_freed(
    rv: Rv, form: str, model: str, eventually: Eventually
) -> None:
    """It waited while everything was taken."""
    jobs = fill(rv, FORMS[form].nodes, eventually)
    with rv.launch("up", *FORMS[form].options, "--time", "10m", "--run", ASK) as client:
        eventually(lambda: rv.files() and rv.last().submitted)
        freed = [jobs[node] for node in FORMS[form].parts[model]]
        rv.slurm("scancel", *freed)
        eventually(lambda: rv.last().claim, timeout=WITHIN_S)
        out, err = client.communicate(timeout=60)
    assert client.returncode == 0, err
    assert_became(rv, rv.last(), model, FORMS[form].parts[model], out)


@pytest.mark.parametrize("free", [AMPERE, OTHER])
def test_partitions_with_the_same_gres(
    rv: Rv, free: tuple[str, ...], eventually: Eventually
) -> None:
    """The job asks for the type, in both partitions, and names the one it is in.

    Of one model and layout a later strategy is left out where both starts are known: a job that
    waits without a plan makes one unknown.
    """
    fill(rv, tuple({*AMPERE, *OTHER} - set(free)), eventually)
    rv.slurm(
        "sbatch", "-H", "-p", "ampere,more", "--gres=gpu:1", "-o", "/dev/null", "--wrap", "true"
    )
    done = rv("up", "-p", "ampere,more", *ON_ONE, "--time", "10m", "--run", ASK)
    assert done.returncode == 0, done.stderr
    race = rv.last()
    assert waited(race) < WITHIN_S
    assert '--gres="gpu:a40:4"' in (race.directory / "jobs" / "1.sh").read_text()
    assert_became(rv, race, "a40", free, done.stdout)
    assert race.claim["strategy"].endswith("ampere" if free == AMPERE else "more")


def test_on_one_node_of_each_part_a_job_of_two_waits(rv: Rv, eventually: Eventually) -> None:
    """Two models under one command would be neither of the strategies."""
    jobs = fill(rv, (*PLAIN, *PLAINER), eventually)
    launched = rv("up", *FORMS["features, two nodes"].options, "--time", "10m", "--run", ASK, "-d")
    assert launched.returncode == 0, launched.stderr
    race = rv.last()
    rv.slurm("scancel", jobs["u1"], jobs["w1"])
    eventually(lambda: not rv.job_state(jobs["u1"]).startswith("RUN"))
    (job,) = race.submitted[1]
    probe = rv.slurm("sbatch", "--parsable", "-p", "mixed", "-w", "u1", "--gres=gpu:2", "--mem=1G",
                     "-o", "/dev/null", "--wrap", "true").strip()  # fmt: skip
    eventually(lambda: rv.job_state(probe) == "COMPLETED")  # the scheduler has been by
    assert rv.job_state(job) == "PENDING"
    rv.slurm("scancel", jobs["w2"])
    eventually(lambda: race.claim, timeout=WITHIN_S)
    assert race.claim["strategy"].startswith("a40/")


def test_an_idle_cluster_gives_the_best_partition(rv: Rv) -> None:
    """Slurm takes the partitions in the order of the list."""
    done = rv("up", "-p", "volta,ampere", *ON_ONE, "--time", "10m", "--run", ASK)
    assert done.returncode == 0, done.stderr
    assert_became(rv, rv.last(), "a40", AMPERE, done.stdout)


def test_a_merged_job_on_a_bad_node_becomes_another_strategy(
    rv: Rv, eventually: Eventually
) -> None:
    """The same job gives the node up and claims in the other partition, under its name."""
    jobs = fill(rv, AMPERE, eventually)
    for node in VOLTA:
        sandbox.set_fault(rv.box, node, "error")
    with rv.launch("up", *FORMS["partitions"].options, "--time", "10m", "--run", ASK) as client:
        eventually(lambda: rv.files() and len(rv.last().names("declined")) == 2, timeout=60)
        rv.slurm("scancel", *jobs.values())
        out, err = client.communicate(timeout=60)
    assert client.returncode == 0, err + rv.last().logs()
    assert rv.last().names("declined") == list(VOLTA)
    assert len(rv.last().submitted[1]) == 1
    assert_became(rv, rv.last(), "a40", AMPERE, out)


def test_where_no_part_has_enough_nodes_left_it_ends(rv: Rv, eventually: Eventually) -> None:
    """One bad node of each pair: two good ones are left, of two models."""
    for node in ("u1", "w1"):
        sandbox.set_fault(rv.box, node, "error")
    done = rv("up", *FORMS["features, two nodes"].options, "--time", "10m", "--run", "true")
    assert done.returncode == 1, done.stderr
    assert rv.state()["state"] == "DECLINED"
    eventually(lambda: not rv.queue())


THREE = ("-p", "volta,ampere,single", *ON_ONE, "--time", "20m")


def forbid(rv: Rv, partition: str) -> None:
    """Tighten a limit when rv has its snapshot already: a list with that partition is refused."""
    assert rv("up", *THREE, "--dry-run").returncode == 0
    rv.slurm("scontrol", "update", f"PartitionName={partition}", "MaxTime=5")


def test_a_refused_merge_falls_back_to_its_parts(rv: Rv, eventually: Eventually) -> None:
    """Each part goes under its own name; one of them is refused too, and one wins."""
    forbid(rv, "ampere")
    done = rv("up", *THREE, "--run", f"{rv.count_starts}; {ASK}")
    race = rv.last()
    assert done.returncode == 0, done.stderr + race.logs()
    assert "job 1 was refused: Requested time limit is invalid" in done.stderr
    assert sorted(path.stem for path in race.directory.glob("jobs/*.refused")) == ["1", "2"]
    assert race.submitted.keys() == {3, 4}
    assert rv.starts == {race.race_id: 1}
    said = rv.state()
    assert said["state"] == "COMPLETED"
    assert f"told {said['winner']['strategy'].partition('/')[0]} " in done.stdout
    eventually(lambda: not rv.queue())


def test_parts_of_a_refused_merge_wait_and_are_stopped_by_name(
    rv: Rv, eventually: Eventually
) -> None:
    """They are jobs of the race like any others, though nobody kept their ids."""
    fill(rv, (*VOLTA, *AMPERE, "t1"), eventually)
    forbid(rv, "ampere")
    launched = rv("up", *THREE, "--run", rv.count_starts, "-d")
    assert launched.returncode == 0, launched.stderr
    race = rv.last()
    assert len(rv.queue()) == 2
    assert rv.state()["state"] == "PENDING"
    for path in race.directory.glob("jobs/*.id"):
        path.unlink()
    assert rv("stop").returncode == 0
    assert not rv.queue()
    assert not rv.starts


def test_a_merge_that_is_refused_when_it_is_sent_again(rv: Rv, eventually: Eventually) -> None:
    """A node without scontrol gave it up, and its partitions changed meanwhile: once is enough."""
    program = rv.box.directory / "bin" / "scontrol"  # first in the PATH of jobs only
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    sandbox.set_fault(rv.box, "v1", "error")
    jobs = fill(rv, ("v2", *AMPERE, "t1"), eventually)
    assert rv("up", *THREE, "--run", rv.count_starts, "-d").returncode == 0
    race = rv.last()
    eventually(lambda: race.names("again") == ["1"] and not rv.queue(), timeout=60)
    rv.slurm("scontrol", "update", "PartitionName=ampere", "MaxTime=5")
    rv.states()
    assert race.names("again") == []
    sent = dict(race.submitted)
    rv.states()
    assert race.submitted == sent
    rv.slurm("scancel", jobs["t1"])
    eventually(lambda: race.claim and not rv.queue(), timeout=60)
    assert race.claim["strategy"] == "l4/1x4/single"
    assert rv.starts == {race.race_id: 1}


def test_a_merged_job_that_just_fails_is_followed_by_its_parts(rv: Rv) -> None:
    """A script that ends before it does anything, as after a failed prolog, stops none of them."""
    own = rv.home / "config" / "rv" / "templates"
    own.mkdir(parents=True)
    text = (REPOSITORY / "templates" / "_preamble.sh.j2").read_text()
    spoiled = "{% if job.number == 1 %}exit 1\n{% endif %}\n"
    (own / "_preamble.sh.j2").write_text(spoiled + text)
    done = rv("up", *THREE, "--run", rv.count_starts)
    race = rv.last()
    assert done.returncode == 0, done.stderr
    assert race.submitted.keys() == {1, 2, 3, 4}
    assert rv.starts == {race.race_id: 1}


def test_where_all_parts_are_refused_too_the_race_is(rv: Rv) -> None:
    """Slurm's words are the user's."""
    assert rv("up", *THREE, "--dry-run").returncode == 0
    for partition in ("volta", "ampere", "single"):
        rv.slurm("scontrol", "update", f"PartitionName={partition}", "MaxTime=5")
    done = rv("up", *THREE, "--run", "true")
    assert done.returncode == 125
    assert "error[refused]: Slurm refused every job: Requested time limit" in done.stderr
    assert rv.state()["state"] == "REFUSED"
    assert not rv.queue()


@pytest.mark.parametrize(
    ("option", "said"),
    [("x=y", "unrecognized option '--x=y'"), ("begin=foo", "Invalid --begin specification")],
)
def test_an_option_that_sbatch_does_not_take_is_refused_at_once(
    rv: Rv, option: str, said: str
) -> None:
    """It ends with 255, as what has lost its connection does: the job was looked for in vain."""
    done = rv("run", "--sbatch", option, "true")
    assert done.returncode == 125
    assert f"error[refused]: Slurm refused every job: {said}\n" in done.stderr
    assert "unconfirmed" not in done.stderr
    assert rv.state()["state"] == "REFUSED"


def waited(race: RaceFiles) -> float:
    """Seconds from the submission to the claim."""
    return float(race.claim["started"]) - race.record["submitted_at"]
