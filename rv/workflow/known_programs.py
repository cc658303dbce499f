"""The programs that rv knows in a command: wrappers, launchers such as torchrun, and Python.

Each program is a row of a table; a new launcher is a new row. Pure: no file is looked at.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from rv.dataclass import dataclass
from rv.models.request import Launcher, Pins
from rv.workflow.shellwords import Word

RV_PYTHON: Final = '"$RV_PYTHON"'
"""The environment's python, else python3: the job script exports it (`env` runs no functions)."""


def word_set(text: str) -> frozenset[str]:
    """Write a set of words as one line of text."""
    return frozenset(text.split())


_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*\+?=", re.ASCII)
_PYTHON: Final = re.compile(r"(?:python|pypy)(?:\d+(?:\.\d+)*t?)?", re.ASCII)
_PYTHON_VALUED: Final = re.compile(r"-(?!-)[^cmWX]*(?P<letter>[cmWX])(?P<value>.*)", re.DOTALL)
_KEYWORDS: Final = word_set("if then elif else while until do ! {")
_FREE: Final = Pins()
_NOT_A_NUMBER: Final = frozenset({"auto", "gpu", "cpu", "xpu"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Invocation:
    """How one simple command runs.

    `program` is the last program recognised on the way; `script` the `*.py` that a Python would
    run; `interpreter` what must be written before that script, empty where something else runs it.
    """

    program: str = ""
    launcher: Launcher = Launcher.PLAIN
    pins: Pins = _FREE
    script: Word | None = None
    interpreter: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Wrapper:
    """A program that runs its operands; `valued` options take the next word."""

    subcommand: str = ""
    valued: frozenset[str] = frozenset()
    operands: int = 0
    interpreter: str = RV_PYTHON
    launcher: Launcher = Launcher.PLAIN


@dataclass(frozen=True, kw_only=True, slots=True)
class _Starter:
    """A program that starts ranks of a Python script; all options but `flags` take a value."""

    launcher: Launcher
    subcommand: str = ""
    flags: frozenset[str]
    processes: str
    nodes: str
    fixing: tuple[str, ...]


_SRUN: Final = _Wrapper(
    valued=word_set(
        "-n --ntasks -N --nodes -c --cpus-per-task -t --time -p --partition -w --nodelist -x"
        " --exclude -J --job-name -o --output -e --error -i --input -G --gpus -A --account -q --qos"
        " -C --constraint -D --chdir -m --distribution -r --relative -T --threads --mem --gres"
        " --mem-per-cpu --mem-per-gpu --cpus-per-gpu --gpus-per-node --gpus-per-task --gpu-bind"
        " --cpu-bind --ntasks-per-node --ntasks-per-gpu --export --mpi --jobid --het-group"
    ),
    launcher=Launcher.MPI,
)
_MPIRUN: Final = _Wrapper(
    valued=word_set(
        "-n -np --np -c -N -x -H -host --host -hostfile --hostfile -machinefile --machinefile -f"
        " -map-by --map-by -bind-to --bind-to -rank-by --rank-by -ppn -npernode --npernode"
        " -wdir --wdir -genv -env -prefix --prefix"
    ),
    launcher=Launcher.MPI,
)
_CONDA: Final = _Wrapper(
    subcommand="run", valued=word_set("-n --name -p --prefix --cwd -e"), interpreter="python"
)
_WRAPPERS: Final = {
    "time": _Wrapper(valued=word_set("-f --format -o --output")),
    "nohup": _Wrapper(),
    "setsid": _Wrapper(),
    "command": _Wrapper(),
    "exec": _Wrapper(valued=word_set("-a")),
    "nice": _Wrapper(valued=word_set("-n --adjustment")),
    "ionice": _Wrapper(valued=word_set("-c -n --class --classdata")),
    "stdbuf": _Wrapper(valued=word_set("-i -o -e --input --output --error")),
    "timeout": _Wrapper(valued=word_set("-k -s --kill-after --signal"), operands=1),
    "numactl": _Wrapper(
        valued=word_set("-i -N -m -C -p --interleave --cpunodebind --membind --physcpubind")
    ),
    "env": _Wrapper(valued=word_set("-u --unset -C --chdir")),
    "uv": _Wrapper(
        subcommand="run",
        valued=word_set(
            "--with --with-editable --with-requirements --extra --group --only-group --env-file"
            " --package --project --directory --python -p --index --index-url --config-file"
        ),
        interpreter="",
    ),
    "poetry": _Wrapper(subcommand="run", valued=word_set("-C --directory"), interpreter="python"),
    "pdm": _Wrapper(subcommand="run", valued=word_set("-p --project"), interpreter="python"),
    "pipenv": _Wrapper(subcommand="run", interpreter="python"),
    "pixi": _Wrapper(
        subcommand="run", valued=word_set("-e --environment --manifest-path"), interpreter="python"
    ),
    "conda": _CONDA,
    "mamba": _CONDA,
    "micromamba": _CONDA,
    "srun": _SRUN,
    "mpirun": _MPIRUN,
    "mpiexec": _MPIRUN,
    "orterun": _MPIRUN,
}
_TORCHRUN: Final = _Starter(
    launcher=Launcher.TORCHRUN,
    flags=word_set("--standalone --no_python --module -m --run_path --use_env -h --help"),
    processes="--nproc_per_node",
    nodes="--nnodes",
    fixing=("--standalone", "--rdzv", "--node_rank", "--master_addr"),
)
_ACCELERATE: Final = _Starter(
    launcher=Launcher.ACCELERATE,
    flags=word_set(
        "--cpu --multi_gpu --tpu --ipex --quiet -q --module -m --no_python --debug --use_xpu"
        " --use_deepspeed --use_fsdp --use_megatron_lm --use_parallelism_config --use_mps_device"
        " --tpu_cluster --no_tpu_cluster --tpu_use_sudo --same_network --downcast_bf16"
        " --enable_cpu_affinity --dynamo_use_fullgraph --dynamo_use_dynamic"
        " --dynamo_use_regional_compilation -h --help"
    ),
    processes="--num_processes",
    nodes="--num_machines",
    fixing=("--multi_gpu", "--machine_rank", "--main_process_ip"),
)
_DEEPSPEED: Final = _Starter(
    launcher=Launcher.DEEPSPEED,
    flags=word_set(
        "--module --no_python --no_local_rank --no_ssh --no_ssh_check --force_multi --save_pid"
        " --elastic_training --bind_cores_to_rank -h --help"
    ),
    processes="--num_gpus",
    nodes="--num_nodes",
    fixing=("--node_rank", "--master_addr", "--hostfile", "-H", "--include", "-i"),
)
_STARTERS: Final = {
    "torchrun": _TORCHRUN,
    "torch.distributed.run": _TORCHRUN,
    "torch.distributed.launch": _TORCHRUN,
    "accelerate": replace(_ACCELERATE, subcommand="launch"),
    "accelerate-launch": _ACCELERATE,
    "accelerate.commands.launch": _ACCELERATE,
    "deepspeed": _DEEPSPEED,
    "deepspeed.launcher.runner": _DEEPSPEED,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class _Option:
    name: str
    value: str
    typed: str


def read_invocation(words: Sequence[Word]) -> Invocation:
    """Walk through wrappers and launchers; the outermost launcher is the one that counts."""
    invocation, interpreter = Invocation(), RV_PYTHON
    while words := _at_program(words):
        program, rest = words[0].value.rpartition("/")[2], words[1:]
        invocation = replace(invocation, program=program)
        wrapper, starter = _WRAPPERS.get(program), _STARTERS.get(program)
        if wrapper and _has(rest, wrapper.subcommand):
            words = _behind(wrapper, rest)
            invocation = _launched_by(invocation, wrapper.launcher)
            interpreter = wrapper.interpreter if wrapper.subcommand else interpreter
        elif starter and _has(rest, starter.subcommand):
            invocation, words = _read_starter(invocation, starter, rest)
        elif _PYTHON.fullmatch(program):
            invocation, words = _read_python(invocation, rest)
        else:
            return _with_script(replace(invocation, interpreter=interpreter), words)
    return invocation


def _read_starter(
    invocation: Invocation, starter: _Starter, words: Sequence[Word]
) -> tuple[Invocation, Sequence[Word]]:
    """Read a launcher's options; what it starts is returned where that is a program, not Python."""
    options, operands = _options(words[bool(starter.subcommand) :], starter.flags)
    invocation = replace(invocation, pins=_pins(starter, options))
    invocation = _launched_by(invocation, starter.launcher)
    names = {option.name for option in options}
    if "--no_python" in names:
        return invocation, operands
    if names & {"-m", "--module"}:
        return invocation, ()
    return _with_script(invocation, operands), ()


def _read_python(
    invocation: Invocation, words: Sequence[Word]
) -> tuple[Invocation, Sequence[Word]]:
    """Read a Python's arguments; a launcher that it runs as a module is returned to be read."""
    is_module, operands = _python_operand(words)
    if not is_module:
        return _with_script(invocation, operands), ()
    is_starter = bool(operands) and operands[0].value in _STARTERS
    return invocation, operands if is_starter else ()


def _at_program(words: Sequence[Word]) -> Sequence[Word]:
    at = 0
    while at < len(words) and is_prefix(words[at].value):
        at += 1
    return words[at:]


def is_prefix(value: str) -> bool:
    """Tell whether the shell takes this word, `X=Y` or a keyword, to stand before a program."""
    return value in _KEYWORDS or _ASSIGNMENT.match(value) is not None


def _has(words: Sequence[Word], subcommand: str) -> bool:
    return not subcommand or (bool(words) and words[0].value == subcommand)


def _launched_by(invocation: Invocation, launcher: Launcher) -> Invocation:
    return (
        invocation
        if invocation.launcher is not Launcher.PLAIN
        else replace(invocation, launcher=launcher)
    )


def _with_script(invocation: Invocation, words: Sequence[Word]) -> Invocation:
    if words and words[0].value.endswith(".py"):
        return replace(invocation, script=words[0])
    return replace(invocation, interpreter="")


def _behind(wrapper: _Wrapper, words: Sequence[Word]) -> Sequence[Word]:
    at = 1 if wrapper.subcommand else 0
    while at < len(words) and words[at].value.startswith("-"):
        value = words[at].value
        at += 2 if value in wrapper.valued else 3 if value in {"--mca", "-mca"} else 1
        if value == "--":
            break
    return words[at + wrapper.operands :]


def _python_operand(words: Sequence[Word]) -> tuple[bool, Sequence[Word]]:
    """Return whether a module or text is run, and the words from the module or script on."""
    while words:
        option = words[0].value
        if option == "-" or not option.startswith("-"):
            return False, words
        words = words[1:]
        letter, takes_next = _python_option(option)
        if letter == "c":
            return True, ()
        if letter == "m":
            return True, words if takes_next else ()
        if takes_next:
            words = words[1:]
    return False, ()


def _python_option(option: str) -> tuple[str, bool]:
    """Return the letter of an option that takes a value, and whether that is the next word."""
    if match := _PYTHON_VALUED.fullmatch(option):
        return match["letter"], not match["value"]
    return "", option == "--check-hash-based-pycs"


def _options(words: Sequence[Word], flags: frozenset[str]) -> tuple[list[_Option], Sequence[Word]]:
    """Read a launcher's own options up to its first operand, `-` and `_` being the same in them."""
    options, at = list[_Option](), 0
    while at < len(words) and words[at].value.startswith("-"):
        word = words[at].value
        at += 1
        if word == "--":
            break
        name, equals, value = word.partition("=")
        name = "--" + name[2:].replace("-", "_") if name.startswith("--") else name
        typed, glued = word, len(name) > 2 and not name.startswith("--")
        if not equals and not glued and name not in flags and at < len(words):
            value = words[at].value
            typed = f"{word} {value}"
            at += 1
        options.append(_Option(name=name, value=value, typed=typed))
    return options, words[at:]


def _pins(starter: _Starter, options: Sequence[_Option]) -> Pins:
    """Read what the options fix; a value that is not a plain number pins without a number."""
    pinning = [option for option in options if _is_pinning(option, starter)]
    processes = _last_number(starter.processes, pinning)
    nodes = _last_number(starter.nodes, pinning)
    if any(option.name == "--standalone" for option in pinning):
        nodes = 1
    if starter.launcher is Launcher.ACCELERATE and processes and nodes:
        processes //= nodes  # accelerate counts the processes of all machines
    flags = tuple(option.typed for option in pinning)
    return Pins(processes_per_node=processes or None, nodes=nodes, flags=flags)


def _is_pinning(option: _Option, starter: _Starter) -> bool:
    """Whether an option fixes the processes, the nodes, or where they meet."""
    if option.name in {starter.processes, starter.nodes}:
        return option.value not in _NOT_A_NUMBER
    return option.name.startswith(starter.fixing)


def _last_number(name: str, options: Sequence[_Option]) -> int | None:
    values = [option.value for option in options if option.name == name]
    return _number(values[-1]) if values else None


def _number(value: str) -> int | None:
    """Read `4`, and `2:2` as 2; a range such as `1:2` fixes no number."""
    low, _, high = value.partition(":")
    same = value.isascii() and low.isdecimal() and (high or low) == low and len(low) < 10
    return int(low) or None if same else None
