"""Whole job scripts, as they would be submitted, against tests/golden/*.sh.

`GOLDEN=write tests/run.sh tests/unit/render/test_golden.py` rewrites them; read the diff before you commit.
"""

import os
import re
import subprocess
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from rv import bundle
from rv.models.notice import read_notice
from rv.models.plan import Merged, Mode, Strategy, Submission
from rv.models.race import Chain
from rv.models.request import Command, Launcher
from rv.models.sweep import Sweep
from rv.render.script import ScriptContext, render, sbatch_line
from rv.render.templates import Templates

GOLDEN = Path(__file__).parents[2] / "golden"


def read_template(name: str) -> str:
    """Read a bundled template, whatever the user's own folder holds."""
    found = bundle.find(bundle.Kind.TEMPLATES, name)
    assert found is not None
    return found.read_text(encoding="utf-8")


def facts(**changes: object) -> ScriptContext:
    """The race that all the scripts belong to."""
    values: dict[str, object] = {
        "race_id": "abcd2345",
        "race_dir": "/home/ada/.local/state/rv/races/abcd2345",
        "nonce": "0123456789abcdef0123456789abcdef",
        "workdir": "/home/ada/project",
        "slurm_path": "/usr/bin",
        "numbers": (1, 2, 3),
        "ranking": (),
        "command": Command(line="python train.py"),
        "title": "night-run",
    }
    return ScriptContext(**(values | changes))  # type: ignore[arg-type]


def strategy(**changes: object) -> Strategy:
    """Four A100 on one node."""
    values: dict[str, object] = {
        "id": "a100-80/1x4/gpu-a100",
        "family": "single_node",
        "template": "single_node",
        "mode": Mode.DIRECT,
        "gpu": "a100-80",
        "gres": "gpu:a100:4",
        "gpus": 4,
        "nodes": 1,
        "gpus_per_node": 4,
        "partition": "gpu-a100",
        "walltime": timedelta(hours=2, minutes=59),
        "memory_mib": 131072,
        "cpus_per_task": 32,
        "node_names": ("a100n1", "a100n2"),
        "name_pattern": "A100.*80",
        "vram_mib": 81920,
    }
    return Strategy(**(values | changes))  # type: ignore[arg-type]


TWO_NODES = {
    "id": "a100-80/2x2/gpu-a100",
    "family": "multi_node",
    "template": "multi_node",
    "gres": "gpu:a100:2",
    "nodes": 2,
    "gpus_per_node": 2,
    "memory_mib": 65536,
    "cpus_per_task": 16,
}
MIG = {
    "id": "a100-1g.10gb/1x1/mig",
    "family": "mig",
    "template": "mig",
    "gpu": "a100-1g.10gb",
    "gres": "gpu:1g.10gb:1",
    "gpus": 1,
    "gpus_per_node": 1,
    "partition": "mig",
    "memory_mib": 16384,
    "cpus_per_task": 1,
    "mig_profile": "1g.10gb",
    "vram_mib": 9728,
    "qos": "mig",
    "node_names": ("mig1",),
    "walltime": timedelta(minutes=10),
}
CPUS_ONLY = {"id": "cpu/1x0/cpu", "gpu": "", "gres": "", "gpus": 0, "gpus_per_node": 0,
             "partition": "cpu", "name_pattern": "", "vram_mib": 0, "node_names": ("c1",)}  # fmt: skip
SEGMENTS = {
    "id": "a100-80/1x4/gpu-a100/checkpoint",
    "template": "checkpoint",
    "mode": Mode.CHECKPOINT,
    "walltime": timedelta(hours=4),
    "total": timedelta(hours=12),
    "buffer": timedelta(seconds=120),
}
V100 = {"id": "v100/1x4/gpu-v100", "gpu": "v100", "gres": "gpu:v100:4", "partition": "gpu-v100",
        "node_names": ("v100n1",), "name_pattern": "V100", "vram_mib": 15000}  # fmt: skip
FASTER = Submission(
    number=1,
    strategies=(
        replace(strategy(**SEGMENTS), id="h100/1x4/gpu-h100", gpu="h100", total=timedelta(hours=4)),
    ),
)
IN_TWO_PARTITIONS = Submission(
    number=1,
    strategies=(strategy(), strategy(**V100)),
    merged=Merged(
        form=strategy(
            id="a100-80/1x4/gpu-a100|v100/1x4/gpu-v100",
            partition="gpu-a100,gpu-v100",
            gres="gpu:4",
            node_names=("a100n1", "a100n2", "v100n1"),
        ),
        homes=((), ()),
    ),
)
BY_FEATURE = Submission(
    number=1,
    strategies=(
        strategy(**(TWO_NODES | {"gres": "gpu:2", "constraint": "a100"})),
        strategy(**(TWO_NODES | V100 | {"gres": "gpu:2", "constraint": "v100"})),
    ),
    merged=Merged(
        form=strategy(**(TWO_NODES | {"gres": "gpu:2", "constraint": "[a100|v100]"})),
        homes=(("a100n1", "a100n2"), ("v100n1", "v100n2")),
    ),
)
HOSTILE_COMMAND = """python 'it'"'"'s.py' --say "a \\"b\\" $HOME `id`" # $(reboot); é\nwait"""

CASES = {
    "single_node": (strategy(), facts()),
    "modules": (strategy(), facts(modules=("cuda/12.4", "it's"))),
    "cpus_only": (strategy(**CPUS_ONLY), facts(command=Command(line="make -j"), numbers=(1,))),
    "multi_node": (
        strategy(**TWO_NODES),
        facts(command=Command(line="torchrun train.py", launcher=Launcher.TORCHRUN)),
    ),
    "merged": (IN_TWO_PARTITIONS, facts()),
    "merged_by_feature": (
        BY_FEATURE,
        facts(command=Command(line="torchrun train.py", launcher=Launcher.TORCHRUN)),
    ),
    "mpi_on_two_nodes": (
        strategy(**TWO_NODES),
        facts(command=Command(line="srun ./solver", launcher=Launcher.MPI)),
    ),
    "mig": (
        strategy(**MIG),
        facts(
            command=Command(line='"$RV_PYTHON" "$RV_PAYLOADS/check.py"', payload="check"),
            payload_folder="/home/ada/.local/state/rv/races/.payloads-1000/0123456789abcdef0123",
        ),
    ),
    "shell": (strategy(), facts(command=None)),
    "venv": (
        strategy(),
        facts(
            venv="/scratch/ada/it's $HERE/venv",
            setup=("export A='b c'", "source env.sh\nulimit -n 4096"),
        ),
    ),
    "notify": (
        strategy(),
        facts(
            notices=(
                read_notice("start,end,fail=mailto:you@example.org"),
                read_notice("fail=https://example.org/hook?token=it's"),
                read_notice('end=say "it\'s $RV_STATE"'),
            ),
        ),
    ),
    "notify_of_a_chain": (
        strategy(**SEGMENTS),
        facts(chain=Chain(total=timedelta(hours=12)), notices=(read_notice("start,end=mail"),)),
    ),
    "conda": (
        strategy(**TWO_NODES),
        facts(
            command=Command(line="torchrun train.py", launcher=Launcher.TORCHRUN),
            conda="/opt/conda/envs/deep",
        ),
    ),
    "container": (
        strategy(),
        facts(
            command=Command(line="python it's.py"),
            container="nvcr.io/nvidia/pytorch:24.05-py3",
            mounts=("/data/it's $HERE:/data:ro",),
            project="/home/ada/project",
            modules=("apptainer",),
        ),
    ),
    "container_file_on_two_nodes": (
        strategy(**(TWO_NODES | SEGMENTS)),
        facts(
            command=Command(line="torchrun train.py", launcher=Launcher.TORCHRUN),
            chain=Chain(total=timedelta(hours=12)),
            container="/images/it's $HERE.sqsh",
            project="/home/ada/project",
        ),
    ),
    "sweep": (
        Submission(
            number=2,
            strategies=(strategy(extra=(("array", "1-8%4"),), gres="gpu:a100:1", gpus=1),),
            slots=4,
        ),
        facts(
            command=Command(line='python t.py --lr "$RV_SET_LR"'),
            sweep=Sweep(tasks=1000, names=("lr", "seed"), gpus=1, most_running=20),
        ),
    ),
    "sweep_on_cpus": (
        strategy(**CPUS_ONLY),
        facts(command=Command(line='sh "$RV_TASK_ID"'), sweep=Sweep(tasks=3, gpus=0)),
    ),
    "checkpoint": (strategy(**SEGMENTS), facts(chain=Chain(total=timedelta(hours=12)))),
    "switch": (
        Submission(number=2, strategies=(strategy(**SEGMENTS),)),
        facts(chain=Chain(total=timedelta(hours=12)), jobs=(FASTER,), moves={1: (), 2: (1,)}),
    ),
    "checkpoint_on_two_nodes": (
        strategy(**(TWO_NODES | SEGMENTS)),
        facts(
            command=Command(line="torchrun train.py", launcher=Launcher.TORCHRUN),
            chain=Chain(total=timedelta(hours=12), signal="USR2"),
        ),
    ),
    "hostile": (
        strategy(
            account="lab",
            qos="normal",
            constraint="[a100|h100]&nvlink",
            exclude_nodes=("bad1", "bad2"),
            strict_gpu=True,
            extra=(("reservation", 'day "one" \\ #1'), ("exclusive", "")),
        ),
        facts(
            race_dir='/scratch/a b/100%/it\'s "here"/abcd2345',
            workdir='/home/ada/new\nline/it\'s "$HOME" `id` \\ é',
            command=Command(line=HOSTILE_COMMAND),
            title='; rm -rf / "\n$(reboot) é',
        ),
    ),
}


def rendered(case: str) -> str:
    """Render one case."""
    plan, race = CASES[case]
    job = plan if isinstance(plan, Submission) else Submission(number=1, strategies=(plan,))
    ids = tuple(each.id for each in job.strategies)
    others = ("h100/1x4/best",) if len(race.numbers) > 1 else ()
    return render(job, replace(race, ranking=(*others, *ids)), Templates(read_template))


@pytest.mark.parametrize("case", CASES)
def test_the_script_is_the_golden_one(case):
    """A change of a template shows here as a change of whole scripts, to be read."""
    path = GOLDEN / f"{case}.sh"
    if os.environ.get("GOLDEN") == "write":
        path.write_text(rendered(case), encoding="utf-8")
    assert rendered(case) == path.read_text(encoding="utf-8"), (
        "a script changed: GOLDEN=write rewrites tests/golden, git diff shows what changed"
    )


@pytest.mark.parametrize("case", CASES)
def test_bash_can_read_the_script(case):
    """Whatever the values hold."""
    done = subprocess.run(["bash", "-n"], input=rendered(case), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("case", CASES)
def test_shellcheck_has_no_warning(case):
    """As of any script that a person would submit by hand.

    Quotes in a path that is exported look to it like quotes that somebody wanted to take effect.
    """
    quotes = ["-e", "SC2089,SC2090"] if case in ("hostile", "container") else []
    checked = subprocess.run(
        ["shellcheck", "-S", "warning", *quotes, "-"],
        input=rendered(case), capture_output=True, text=True,
    )  # fmt: skip
    assert checked.stdout == ""


def test_the_command_arrives_as_it_was_written(tmp_path):
    """The line that the user typed is what bash -c gets in the job."""
    (line,) = [t for t in rendered("hostile").split("export ") if t.startswith("RV_COMMAND=")]
    script = f"export {line.split('rv_pid')[0]}\n".split("\n\n")[0]
    done = subprocess.run(
        ["bash", "-c", f'{script}\nprintf %s "$RV_COMMAND"'], capture_output=True, text=True
    )
    assert done.stdout == HOSTILE_COMMAND


@pytest.mark.parametrize("case", CASES)
def test_the_steps_at_the_top_are_those_below(case):
    """By number and name, in the same order, in every script."""
    script = rendered(case)
    listed = re.findall(r"^#   (\d+\. .*)$", script, re.MULTILINE)
    assert listed == re.findall(r"^# (\d+\. .*)$", script, re.MULTILINE)
    last = 9 if case.startswith("sweep") else 11
    assert [int(step.split(".")[0]) for step in listed] == list(range(1, last + 1))


def test_no_golden_script_is_left_over():
    """Each belongs to a case."""
    assert {path.stem for path in GOLDEN.glob("*.sh")} == set(CASES)


def test_directives_are_whole_lines_before_the_first_command():
    """A value cannot begin a directive of its own, and sbatch stops reading at a command."""
    lines = rendered("hostile").splitlines()
    directives = [at for at, line in enumerate(lines) if line.startswith("#SBATCH")]
    first = next(at for at, line in enumerate(lines) if line and not line.startswith("#"))
    assert directives == list(range(1, len(directives) + 1))
    assert directives[-1] < first


def test_a_chain_may_have_as_many_segments_as_on_any_of_its_layouts():
    """One that moves has done the many of a slower one before."""
    short = replace(strategy(**SEGMENTS), walltime=timedelta(minutes=15))
    slow = Submission(number=2, strategies=(short,))
    race = facts(
        chain=Chain(total=timedelta(hours=12)), jobs=(FASTER, slow), moves={1: (), 2: (1,)}
    )
    assert (FASTER.strategy.segments, short.segments) == (1, 60)
    for job in (FASTER, slow):
        assert '"$RV_SEGMENT" -ge 130 ]' in render(job, race, Templates(read_template))


def test_a_chain_can_go_back_to_a_part_of_a_job_that_was_refused():
    """Whose times the scripts of the others know."""
    part = Submission(number=3, strategies=(strategy(**SEGMENTS),), instead_of=2)
    race = facts(
        chain=Chain(total=timedelta(hours=12)), jobs=(FASTER, part), moves={1: (), 3: (1,)}
    )
    assert "3) rv_times='43200 14400 120' ;;" in render(FASTER, race, Templates(read_template))


def test_sbatch_lines_are_what_a_person_would_type():
    """Without the race around it, quoted where the shell needs it."""
    assert sbatch_line(strategy()) == (
        "sbatch -p gpu-a100 -t 02:59:00 -N 1 --ntasks-per-node=1 -c 32 --mem=131072M"
        " --gres=gpu:a100:4 job.sh"
    )
    assert "'[a100|h100]&nvlink'" in sbatch_line(CASES["hostile"][0])
