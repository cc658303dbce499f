"""Reading what the user wants run: launchers, scripts, payloads, pins, quoting."""

import shlex
import subprocess
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rv.errors import ErrorKind, RvError
from rv.models.request import Command, Launcher, Pins
from rv.workflow.command_line import KnownFiles, from_line, from_words, own_script
from rv.workflow.shellwords import simple_commands

FILES = frozenset(
    {
        "train.py",
        "conf.yaml",
        "src/train.py",
        "my script.py",
        "run.sh",
        "it's.py",
        "data.txt",
        "torchrun",
        "/abs/train.py",
    }
)
AROUND = KnownFiles(
    is_file=FILES.__contains__, payloads=("check", "train", "dataload"), nearby=("train.py",)
)
PAYLOADS = KnownFiles(
    is_file=FILES.__contains__,
    payloads=("check", "dataload", "own"),
    faults={"check": ("hang", "slow"), "dataload": ("duplicate",)},
)
NOTHING = KnownFiles(is_file=lambda _name: False)


@pytest.mark.parametrize(
    ("text", "launcher"),
    [
        ("python train.py", Launcher.PLAIN),
        ("./run.sh train.py", Launcher.PLAIN),
        ("torchrun --nproc_per_node=4 train.py", Launcher.TORCHRUN),
        ("/venv/bin/torchrun --nproc_per_node=4 train.py", Launcher.TORCHRUN),
        ("python -m torch.distributed.run train.py", Launcher.TORCHRUN),
        ("python3.11 -u -m torch.distributed.launch --use_env train.py", Launcher.TORCHRUN),
        ("python -um torch.distributed.run train.py", Launcher.TORCHRUN),
        ("python -W ignore -X dev -m torch.distributed.run train.py", Launcher.TORCHRUN),
        ("accelerate launch --multi_gpu --num_processes 4 train.py", Launcher.ACCELERATE),
        ("accelerate launch --config_file conf.yaml train.py", Launcher.ACCELERATE),
        ("python -m accelerate.commands.launch train.py", Launcher.ACCELERATE),
        ("accelerate config train.py", Launcher.PLAIN),
        ("deepspeed --num_gpus=2 train.py --deepspeed", Launcher.DEEPSPEED),
        ("uv run torchrun train.py", Launcher.TORCHRUN),
        ("uv run --with rich -p 3.12 torchrun train.py", Launcher.TORCHRUN),
        ("uv run -m torch.distributed.run train.py", Launcher.TORCHRUN),
        ("uv pip install torchrun train.py", Launcher.PLAIN),
        ("poetry run torchrun train.py", Launcher.TORCHRUN),
        ("conda run -n env torchrun train.py", Launcher.TORCHRUN),
        ("pixi run -e gpu torchrun train.py", Launcher.TORCHRUN),
        ("env X=Y torchrun train.py", Launcher.TORCHRUN),
        ("env -u Z X=Y torchrun train.py", Launcher.TORCHRUN),
        ("OMP_NUM_THREADS=4 torchrun train.py", Launcher.TORCHRUN),
        ("time nohup nice -n 5 torchrun train.py", Launcher.TORCHRUN),
        ("timeout -k 5 1h torchrun train.py", Launcher.TORCHRUN),
        ("srun -n 4 --gpus-per-task=1 python train.py", Launcher.MPI),
        ("mpirun -np 4 --mca btl tcp python train.py", Launcher.MPI),
        ("mpiexec torchrun train.py", Launcher.MPI),
        ("module load cuda && torchrun train.py", Launcher.TORCHRUN),
        ("if true; then torchrun train.py; fi", Launcher.TORCHRUN),
        ("(torchrun train.py) 2>&1 | tee log", Launcher.TORCHRUN),
        ("echo torchrun", Launcher.PLAIN),
        ("python -c 'torchrun' torchrun", Launcher.PLAIN),
        ("python -m pytest torchrun", Launcher.PLAIN),
    ],
)
def test_launcher_is_found(text: str, launcher: Launcher) -> None:
    """The launcher is found through wrappers, and only where it is what would run."""
    command = from_line(text, AROUND)

    assert launcher is command.launcher
    assert text == command.line


@pytest.mark.parametrize(
    ("text", "pins"),
    [
        ("torchrun train.py", Pins()),
        ("torchrun train.py --nproc_per_node=4 --standalone", Pins()),
        ("torchrun --nproc_per_node=4 train.py", (4, None, "--nproc_per_node=4")),
        ("torchrun --nproc-per-node 4 train.py", (4, None, "--nproc-per-node 4")),
        ("torchrun --nproc_per_node=gpu train.py", Pins()),
        ("torchrun --nproc_per_node auto --nnodes 1 train.py", (None, 1, "--nnodes 1")),
        ("torchrun --nnodes=1:2 train.py", (None, None, "--nnodes=1:2")),
        ("torchrun --nnodes=2:2 train.py", (None, 2, "--nnodes=2:2")),
        ("torchrun --nnodes=$N train.py", (None, None, "--nnodes=$N")),
        ("torchrun --standalone train.py", (None, 1, "--standalone")),
        ("torchrun --rdzv-backend=c10d train.py", (None, None, "--rdzv-backend=c10d")),
        ("torchrun --node_rank 0 --max_restarts 3 train.py", (None, None, "--node_rank 0")),
        (
            "torchrun --nnodes=1 --nproc_per_node=2 train.py",
            (2, 1, "--nnodes=1", "--nproc_per_node=2"),
        ),
        (
            "accelerate launch --num_processes 8 --num_machines 2 train.py",
            (4, 2, "--num_processes 8", "--num_machines 2"),
        ),
        ("accelerate launch --multi_gpu train.py", (None, None, "--multi_gpu")),
        ("deepspeed --num_gpus 2 --num_nodes=1 train.py", (2, 1, "--num_gpus 2", "--num_nodes=1")),
        ("deepspeed -H hosts train.py", (None, None, "-H hosts")),
        ("python train.py --nproc_per_node=4", Pins()),
    ],
)
def test_pins_are_the_launchers_own_options(
    text: str, pins: Pins | tuple[int | str | None, ...]
) -> None:
    """What the launcher's options fix is read, and the script's own options are left alone."""
    if isinstance(pins, tuple):
        processes, nodes, *flags = pins
        pins = Pins(processes_per_node=processes, nodes=nodes, flags=tuple(flags))  # type: ignore[arg-type]

    assert pins == from_line(text, AROUND).pins


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("train.py --lr 1", '"$RV_PYTHON" train.py --lr 1'),
        ("./train.py", '"$RV_PYTHON" ./train.py'),
        ("/abs/train.py", '"$RV_PYTHON" /abs/train.py'),
        ("$HOME/x.py", '"$RV_PYTHON" $HOME/x.py'),
        ("X=1 nohup train.py && echo done", 'X=1 nohup "$RV_PYTHON" train.py && echo done'),
        ("conda run -n a train.py", "conda run -n a python train.py"),
        ("uv run train.py", "uv run train.py"),
        ("python train.py", "python train.py"),
    ],
)
def test_leading_script_gets_a_python(text: str, line: str) -> None:
    """A leading `*.py` runs with the environment's python, and nothing else of the line changes."""
    around = KnownFiles(is_file=lambda name: name in {*FILES, "./train.py"})

    assert line == from_line(text, around).line


@pytest.mark.parametrize(
    ("text", "line", "payload"),
    [
        ("check.py --quick", '"$RV_PYTHON" "$RV_PAYLOADS/check.py" --quick', "check"),
        ("torchrun check.py --size 8", 'torchrun "$RV_PAYLOADS/check.py" --size 8', "check"),
        ("python -u check.py", 'python -u "$RV_PAYLOADS/check.py"', "check"),
        ("uv run check.py", 'uv run "$RV_PAYLOADS/check.py"', "check"),
        ("torchrun train.py", "torchrun train.py", ""),
        ("check.py; check.py", ('"$RV_PYTHON" "$RV_PAYLOADS/check.py"; ' * 2)[:-2], "check"),
    ],
)
def test_payload_stands_in_for_a_script_that_is_nowhere(text: str, line: str, payload: str) -> None:
    """A bundled payload runs where there is no local file of its name, also behind a launcher."""
    command = from_line(text, AROUND)

    assert (line, payload) == (command.line, command.payload)
    assert command == from_words(shlex.split(text), AROUND) or ";" in text


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (
            "torchrun --nproc_per_node=4 trian.py",
            "no trian.py in the current directory",
            "did you mean train.py?",
        ),
        ("chek.py", "no chek.py in the current directory", "did you mean check.py?"),
        ("./check.py", "no ./check.py in the current directory", "did you mean check.py?"),
        ("python /no/x.py", "no /no/x.py", "bundled scripts: check.py, dataload.py, train.py"),
        (
            "source a/bin/activate && python nope.py",
            "no nope.py in the current directory",
            "bundled",
        ),
        ("srun -n 2 python nope.py", "no nope.py in the current directory", "bundled"),
        ("python -u nope.py", "no nope.py in the current directory", "bundled"),
    ],
)
def test_missing_script_is_a_usage_error(text: str, message: str, hint: str) -> None:
    """A script that a Python would run and that is nowhere is named, with the nearest one."""
    with pytest.raises(RvError) as caught:
        from_line(text, AROUND)

    assert (ErrorKind.USAGE, message) == (caught.value.kind, caught.value.message)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "torchrun $SCRIPT.py",
        'torchrun "$DIR"/x.py',
        "python `find . -name x.py`",
        "python *.py",
        "python ~/x.py",
        "python -c 'import x' nope.py",
        "python -m nope.py",
        "python -m pytest nope.py",
        "uv run https://host/x.py",
        "cd elsewhere && python nope.py",
        "git clone there && python there/nope.py",
        "[ -f nope.py ] && python nope.py",
        "cat > nope.py <<'END'\nprint('it''s')\nEND\npython nope.py",
        "bash missing.sh nope.py",
        "torchrun --no_python bash nope.sh",
        "torchrun -m pack.mod nope.py",
        "cat nope.py",
    ],
)
def test_scripts_that_cannot_be_judged_are_let_through(text: str) -> None:
    """Expansions, modules, other folders and files made on the way are no error, and stay as typed."""
    assert text == from_line(text, NOTHING).line


@pytest.mark.parametrize(
    "text", ["python train.py && torchrun out/made.py", "python -m make && python made.py"]
)
def test_a_script_that_an_earlier_part_may_make_is_let_through(text: str) -> None:
    """A Python that ran before it may have written the file."""
    assert from_line(text, AROUND).line == text


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("python check.py", "check.py"),
        ("cd . && torchrun check.py --quick", "check.py"),
        ("python mine.py", ""),
        ("python dataload.py", ""),
        ("ls check.py", ""),
    ],
)
def test_a_file_with_a_payloads_name_is_named(text: str, name: str) -> None:
    """What runs is the user's own file."""
    files = KnownFiles(is_file={"check.py", "mine.py"}.__contains__, payloads=("check", "dataload"))
    assert own_script(text, files) == name


@pytest.mark.parametrize("text", ["", "  ", "\n", "# only a comment", ";", " ( ) "])
def test_empty_command_is_a_usage_error(text: str) -> None:
    """Text in which nothing would run is refused."""
    with pytest.raises(RvError, match="the command is empty") as caught:
        from_line(text, AROUND)

    assert caught.value.exit_code == 2


@pytest.mark.parametrize("words", [[], [""], [" "]])
def test_empty_words_are_a_usage_error(words: list[str]) -> None:
    """So are no words at all, and a blank program."""
    with pytest.raises(RvError, match="the command is empty"):
        from_words(words, AROUND)


@pytest.mark.parametrize(
    "text", ["echo 'x", 'echo "x', "echo $(x", "echo `x", "echo ${x", 'echo "$(x"', "a <(b"]
)
def test_unbalanced_text_is_a_usage_error(text: str) -> None:
    """A quote or substitution without an end is refused before any job is submitted."""
    with pytest.raises(RvError, match="ends inside a quote") as caught:
        from_line(text, AROUND)

    assert ErrorKind.USAGE is caught.value.kind


def test_nul_is_refused() -> None:
    """No shell can be given a NUL byte."""
    with pytest.raises(RvError, match="NUL"):
        from_words(["echo", "a\0b"], AROUND)


def test_file_name_with_a_space_is_one_word() -> None:
    """A single quoted word that is the name of a file is that file."""
    assert from_line("my script.py", AROUND).line == "\"$RV_PYTHON\" 'my script.py'"


def test_words_are_literal() -> None:
    """What looks like an expansion in an argv is a file name, and is not expanded."""
    with pytest.raises(RvError, match=r"no \$X\.py"):
        from_words(["python", "$X.py"], AROUND)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a 'b c' \"d $e\" f\\ g", [["a", "b c", "d $e", "f g"]]),
        ("a \\\n  b", [["a", "b"]]),
        ("a;b&&c||d|e&f\ng", [["a"], ["b"], ["c"], ["d"], ["e"], ["f"], ["g"]]),
        ("a 2>&1 >x b", [["a", "b"]]),
        ("a 2 > x", [["a", "2"]]),
        ("a # b\nc #d", [["a"], ["c"]]),
        ("a b#c", [["a", "b#c"]]),
        ("a <<E\nit's\nE\nb", [["a"], ["b"]]),
        ("a <<-E\n\tit's\n\tE\nb", [["a"], ["b"]]),
        ("a <<<b c", [["a", "c"]]),
        ("a $(b; c 'd)') e", [["a", "$(b; c 'd)')", "e"]]),
        ('a "${x:-it\'s}" b', [["a", "${x:-it's}", "b"]]),
        ('a "$(b "c d")" e', [["a", '$(b "c d")', "e"]]),
        ("a $'it\\'s' b", [["a", "$'it\\'s'", "b"]]),
        ("a <(b c) d", [["a", "<(b c)", "d"]]),
        ("a `b \\` c` d", [["a", "`b \\` c`", "d"]]),
        ("a '' \"\"", [["a", "", ""]]),
    ],
)
def test_shell_text_splits_as_bash_splits_it(text: str, words: list[list[str]]) -> None:
    """Operators, quotes, comments, redirections, here-documents and substitutions are told apart."""
    assert words == [[word.value for word in command] for command in simple_commands(text)]


TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
SHELLISH = st.text(st.sampled_from("ab .py/=-'\"\\$`(){}<>|&;\n\t#~*[]!é\x85\u2028"), max_size=30)


@settings(max_examples=150)
@given(st.lists(TEXT | SHELLISH, min_size=1, max_size=6))
@example(
    ["", "-n", "--", "a\nb", "'", '"', "\\", "$(x)", "`x`", "!x", "*", "~", "é", "X=1", "\r", "#"]
)
def test_argv_survives_bash(arguments: list[str]) -> None:
    """The line, run by bash, gives the program exactly the words that were typed."""
    line = from_words(["program", *arguments], AROUND).line
    script = f"program() {{ printf '%s\\0' \"$@\"; }}\n{line}\n"

    ran = subprocess.run(["bash", "-c", script], capture_output=True, check=True)

    assert [argument.encode() for argument in arguments] == ran.stdout.split(b"\0")[:-1]


def test_leading_assignment_is_one_for_bash() -> None:
    """A value with spaces is quoted so that bash still sees the assignment."""
    line = from_words(["X=a b", "Y=", "printenv", "X"], AROUND).line

    ran = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)
    assert ran.stdout == "a b\n"


def refusal(read: Callable[[], Command]) -> ErrorKind | None:
    """Say why a command was refused; any other exception goes through and fails the test."""
    try:
        read()
    except RvError as error:
        return error.kind
    return None


@settings(max_examples=500)
@given(SHELLISH | st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    """No text makes anything but an `RvError`, and the line stays as typed."""
    if refusal(lambda: from_line(text, NOTHING)) is not ErrorKind.USAGE:
        assert text == from_line(text, NOTHING).line.replace('"$RV_PYTHON" ', "")


@settings(max_examples=300)
@given(st.lists(TEXT | SHELLISH, min_size=1))
def test_quoted_words_are_read_back(words: list[str]) -> None:
    """What `shlex` quotes is read as one simple command with the same words, none dynamic."""
    (command,) = simple_commands(shlex.join(words))

    assert words == [word.value for word in command]
    assert not any(word.dynamic for word in command)


@settings(max_examples=300)
@given(st.lists(TEXT | SHELLISH, max_size=6))
def test_any_argv_is_read_or_refused(words: list[str]) -> None:
    """No argv makes anything but an `RvError` either."""
    assert refusal(lambda: from_words(words, NOTHING)) in {None, ErrorKind.USAGE}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("check.py --inject nosuch", "check can make no fault 'nosuch'"),
        ("torchrun check.py --inject=duplicate:step=3", "check can make no fault 'duplicate'"),
        ("dataload.py --inject ''", "dataload can make no fault ''"),
        (
            "check.py --inject hang && dataload.py --inject hang",
            "dataload can make no fault 'hang'",
        ),
    ],
)
def test_a_fault_that_no_payload_makes_is_refused(text: str, said: str) -> None:
    """Before anything is submitted, with those that there are."""
    with pytest.raises(RvError) as caught:
        from_line(text, PAYLOADS)
    assert caught.value.kind is ErrorKind.USAGE
    assert caught.value.message == said
    assert "--inject takes: " in caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "check.py --inject hang:rank=1 --inject slow",
        "check.py --inject $FAULT",
        "check.py --inject",
        "train.py --inject nosuch",
        "own.py --inject nosuch",
        "check.py && echo --inject nosuch",
    ],
)
def test_other_faults_are_left_to_the_payload(text: str) -> None:
    """What the shell expands, and scripts of which no faults are known."""
    assert from_line(text, PAYLOADS).line


@pytest.mark.parametrize("where", ["rank", "rank=", "=1", "rank=one", "rank=-1", "step=1,"])
def test_a_fault_that_cannot_be_read_is_refused(where: str) -> None:
    """Before anything is submitted."""
    with pytest.raises(RvError, match=r"is not KEY=VALUE") as caught:
        from_line(f"check.py --inject slow:{where}", PAYLOADS)
    assert caught.value.kind is ErrorKind.USAGE


def test_the_nearest_fault_is_offered() -> None:
    with pytest.raises(RvError) as caught:
        from_words(["check.py", "--inject", "slwo"], PAYLOADS)
    assert caught.value.hint.startswith("did you mean slow? ")
