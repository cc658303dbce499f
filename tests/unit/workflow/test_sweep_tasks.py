"""The tasks of a sweep, and its command with their variables: what bash then makes of it."""

import subprocess

import pytest

from rv.errors import RvError
from rv.models.sweep import Task, read_tasks, variable, write_tasks
from rv.workflow.command_line import shell_line
from rv.workflow.sweep_tasks import parse_array, parse_sets, product_of, shown, with_variables

HOSTILE = [
    "; rm -rf /",
    "it's",
    '"',
    "a\nb",
    "$(id)",
    "`id`",
    "ünï",
    "*",
    "",
    " ",
    "\\",
    "{lr}",
    "'\"'",
]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("lr=1e-3,1e-4", ("1e-3", "1e-4")),
        ("seed=1..5", ("1", "2", "3", "4", "5")),
        ("seed=2..-1", ("2", "1", "0", "-1")),
        ("x=a,3..4,b", ("a", "3", "4", "b")),
        ("x='a,b',\"c d\"", ("a,b", "c d")),
        ("x=it's fine", None),
        ("x=\"it's\",''", ("it's", "")),
        ("x=a\nb,\\", ("a\nb", "\\")),
        ("x=1=2", ("1=2",)),
        ("x='1..5',08..11,-1..01", ("1..5", "08", "09", "10", "11", "-1", "00", "01")),
        ("x=a,,b", None),
        ("x=a,", None),
        ("x=,a", None),
        ("x=a'b,c'\"d\"", ("ab,cd",)),
        ("x", None),
        ("x=", None),
        ("2x=1", None),
        ("x=1..100001", None),
        ("x=1..60000,1..60000", None),
        ("x=a\0b", None),
    ],
)
def test_values_of_a_name(text: str, values: tuple[str, ...] | None) -> None:
    if values is None:
        with pytest.raises(RvError):
            parse_sets([text])
    else:
        (found,) = parse_sets([text]).values()
        assert found == values


def test_names_that_would_share_a_variable_are_refused() -> None:
    assert variable("l-r") == variable("L_R") == "RV_SET_L_R"
    with pytest.raises(RvError, match="given twice"):
        parse_sets(["l-r=1", "L_R=2"])


@pytest.mark.parametrize(
    ("text", "numbers", "limit"),
    [
        ("0-3", (0, 1, 2, 3), 0),
        ("0-9:3%2", (0, 3, 6, 9), 2),
        ("5,1-2,5", (5, 1, 2), 0),
        ("3-1", None, 0),
        ("0-3,9-5", None, 0),
        ("a", None, 0),
        ("1-", None, 0),
        ("0-3%0", None, 0),
        ("0-100000", None, 0),
        ("0-99999,0-99999", None, 0),
    ],
)
def test_numbers_of_an_array(text: str, numbers: tuple[int, ...] | None, limit: int) -> None:
    if numbers is None:
        with pytest.raises(RvError):
            parse_array(text)
    else:
        assert parse_array(text) == (numbers, limit)


def test_the_product_and_its_limit() -> None:
    tasks = product_of(parse_sets(["a=x,y", "b=1..3"]))
    assert [task.values for task in tasks[:4]] == [("x", "1"), ("x", "2"), ("x", "3"), ("y", "1")]
    assert [task.number for task in tasks] == list(range(6))
    with pytest.raises(RvError, match="1,000,000 tasks"):
        product_of(parse_sets(["a=1..1000", "b=1..1000"]))


def test_a_list_of_tasks_is_read_as_it_was_written() -> None:
    tasks = tuple(Task(number=n, values=(value, "x")) for n, value in enumerate(HOSTILE))
    assert read_tasks(write_tasks(tasks), 2) == tasks
    assert read_tasks(write_tasks(tasks)[:-3], 2) == tasks[:-1]


def run(line: str, **variables: str) -> list[str]:
    """What the words of a line are in bash."""
    script = f"show() {{ printf '%s\\0' \"$@\"; }}\n{line}"
    done = subprocess.run(["bash", "-c", script], env=variables, capture_output=True, check=True)
    return done.stdout.decode().split("\0")[:-1]


@pytest.mark.parametrize("value", HOSTILE)
def test_a_value_is_one_word_whatever_it_holds(value: str) -> None:
    words = ["show", "{lr}", "--lr={lr}", "it's {lr}", "{}", "{{lr}}", "${lr}", '{"a": {"b": 1}}']
    line = with_variables(shell_line(words), ["lr"])
    assert run(line, RV_SET_LR=value, RV_TASK_ID="7") == [
        value, f"--lr={value}", f"it's {value}", "7", "{lr}", "${lr}", '{"a": {"b": 1}}'
    ]  # fmt: skip
    typed = """show {lr} "a{lr}b" 'c{lr}' \\"{lr}; : {x,y}"""
    assert run(with_variables(typed, ["lr"]), RV_SET_LR=value) == [
        value, f"a{value}b", f"c{value}", f'"{value}'
    ]  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        "# don't\nshow {x} # it's {x}",
        "show a#'b {x}' {x}",
        "show $'it\\'s' {x}",
        'show "$(echo "(a)" b)" {x}',
        'show "`echo a`{x}"',
        "show <<<'a' {x}",
        "show $((1 << 2)) {x}",
        "echo \\' ; show {x}",
    ],
)
def test_a_place_after_any_quote_or_comment_has_its_value(line: str) -> None:
    words = run(with_variables(line, ["x"]), RV_SET_X="a  *")
    assert "a  *" in words[-1]
    assert not any("RV_SET_X" in word for word in words)


@pytest.mark.parametrize(
    "line", ["echo $'{x}'", 'echo "$(echo {x})"', 'echo "`a {x}`"', "cat <<E\n{x}\nE"]
)
def test_a_place_where_no_value_can_be_quoted_is_refused(line: str) -> None:
    with pytest.raises(RvError, match="cannot be quoted"):
        with_variables(line, ["x"])


def test_names_without_values_and_values_without_a_place_are_refused() -> None:
    with pytest.raises(RvError, match="no --set seed"):
        with_variables("echo {lr} {seed}", ["lr"])
    with pytest.raises(RvError, match="--set seed is not used"):
        with_variables("echo {lr}", ["lr", "seed"])
    assert with_variables("python t.py $RV_SET_LR", ["lr"]) == "python t.py $RV_SET_LR"


def test_a_command_is_shown_as_it_would_be_typed() -> None:
    task = Task(number=3, values=("it's",))
    assert shown(["echo", "--x={x}"], ["x"], task, is_argv=True) == "echo '--x=it'\"'\"'s'"
    assert shown(["echo {x} {} {{x}}"], ["x"], task, is_argv=False) == "echo 'it'\"'\"'s' 3 {x}"
