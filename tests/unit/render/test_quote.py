"""Quoting, against the programs that read it."""

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rv.errors import ErrorKind, RvError
from rv.render import quote

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=200)
PRINTABLE = st.text(
    st.characters(min_codepoint=32, exclude_characters="\x7f", exclude_categories=["Cs"])
)


def bash(script: str) -> str:
    """What bash prints for a script."""
    done = subprocess.run(["bash", "-c", script], capture_output=True, check=True)
    return done.stdout.decode("utf-8", "surrogateescape")


@given(st.lists(TEXT, min_size=1, max_size=20))
@settings(max_examples=100)
def test_any_text_is_one_word_to_bash(texts):
    """It comes back as it went in, and beside it nothing else happens."""
    words = " ".join(quote.shell(text) for text in texts)
    assert bash(f"printf '%s\\0' {words}") == "".join(f"{text}\0" for text in texts)


@given(TEXT)
@settings(max_examples=100)
def test_any_text_survives_an_export_and_a_shell_inside(text):
    """As the command does on its way into the job."""
    assert bash(f"export V={quote.shell(text)}; bash -c 'printf %s \"$V\"'") == text


@given(TEXT, TEXT)
def test_a_nul_is_refused(before, after):
    """No argument of a program can hold one."""
    with pytest.raises(RvError) as caught:
        quote.shell(f"{before}\0{after}")
    assert caught.value.kind is ErrorKind.USAGE


@given(PRINTABLE)
def test_a_directive_is_one_quoted_line(text):
    """tests/slurm/test_directive_quoting.py asks sbatch itself; this is the grammar it follows."""
    quoted = quote.directive(text)
    inner = quoted[1:-1]
    assert quoted[0] == quoted[-1] == '"'
    assert inner.replace("\\\\", "").replace('\\"', "").count('"') == 0
    assert inner.replace("\\\\", "\1").replace('\\"', '"').replace("\1", "\\") == text


@given(PRINTABLE, st.sampled_from("\n\r\t\0\x1b\x7f"), PRINTABLE)
def test_a_control_character_is_refused_in_a_directive(before, control, after):
    """An sbatch line cannot hold one: a newline would begin a line of its own."""
    with pytest.raises(RvError) as caught:
        quote.directive(before + control + after)
    assert caught.value.kind is ErrorKind.USAGE
    assert caught.value.hint


@given(st.text())
def test_a_comment_is_harmless_whatever_it_was(text):
    """squeue and others print it unquoted, between separators."""
    made = quote.comment(text)
    assert len(made) <= 200
    assert not set(made) & set("|\n\r\t'\"`$;&<>()\\%#*?[]{}!~^")
    assert made.isascii()


@pytest.mark.parametrize(
    ("path", "expected"), [("/a/b", "/a/b"), ("/a/100%/x", "/a/100%%/x"), ("%j", "%%j")]
)
def test_a_percent_in_a_path_is_no_replacement_symbol(path, expected):
    """sbatch would put the job's id where %j is."""
    assert quote.path_pattern(path) == expected


def test_a_backslash_in_an_output_path_is_refused():
    """Slurm would drop it, and write somewhere else."""
    with pytest.raises(RvError) as caught:
        quote.path_pattern("/scratch/a\\b")
    assert caught.value.kind is ErrorKind.STAGE
    assert "RV_RACE_ROOT" in caught.value.hint
