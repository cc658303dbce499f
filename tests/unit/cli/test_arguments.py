"""Where rv's options end and the user's command begins."""

import pytest

from rv.cli.run import split_arguments
from rv.errors import ErrorKind, RvError

TAKES_VALUE = {"--gpu": True, "-g": True, "--mig": False, "--time": True, "-d": False, "-p": True}


@pytest.mark.parametrize(
    ("arguments", "options", "words", "is_argv"),
    [
        ("check.py", "", "check.py", False),
        ("check.py --mig --time 10m", "--mig --time 10m", "check.py", False),
        ("--mig check.py --time=10m", "--mig --time=10m", "check.py", False),
        ("--gpu 4 python train.py", "--gpu 4", "python train.py", True),
        ("-g 4 -d python train.py", "-g 4 -d", "python train.py", True),
        ("-pgpu python train.py", "-pgpu", "python train.py", True),
        ("--gpu 4 -- python train.py --lr 1 -d", "--gpu 4", "python train.py --lr 1 -d", True),
        ("-- --odd -- name", "", "--odd -- name", True),
        ("check.py --mig -- --epochs 3", None, "check.py", False),
        ("python -- train.py", "", "python train.py", True),
        ("cat -", "", "cat -", True),
        ("--gpu", "--gpu", "", False),
        ("", "", "", False),
    ],
)
def test_options_and_command_are_told_apart(arguments, options, words, is_argv):
    """Options before the command, or after one of one word; what follows -- is the command's."""
    if options is None:
        with pytest.raises(RvError):
            split_arguments(arguments.split(), TAKES_VALUE)
        return
    split = split_arguments(arguments.split(), TAKES_VALUE)
    assert (split.options, split.words) == (tuple(options.split()), tuple(words.split()))
    assert split.is_argv is is_argv


def test_a_quoted_command_is_one_word():
    """And may be followed by rv's options."""
    split = split_arguments(["torchrun train.py --lr 1", "--gpu", "4"], TAKES_VALUE)
    assert split.words == ("torchrun train.py --lr 1",)
    assert split.options == ("--gpu", "4")
    assert not split.is_argv


@pytest.mark.parametrize(
    "arguments", ["python train.py --gpu 4", "python train.py --lr 1", "a b -x"]
)
def test_an_option_after_several_words_is_nobodys(arguments):
    """It could be the program's own: the error shows both ways to say what is meant."""
    with pytest.raises(RvError) as caught:
        split_arguments(arguments.split(), TAKES_VALUE)
    assert caught.value.kind is ErrorKind.USAGE
    assert " -- " in caught.value.hint
    assert 'rv run "' in caught.value.hint


def test_a_word_after_options_after_a_word_is_nobodys():
    """Neither `a b` nor an argument of --mig can be guessed."""
    with pytest.raises(RvError, match="'train'"):
        split_arguments(["train", "--mig", "more"], TAKES_VALUE)


@pytest.mark.parametrize(
    ("option", "near"), [("--gpus", "--gpu"), ("--tme", "--time"), ("--mgi", "--mig")]
)
def test_an_unknown_option_names_the_nearest(option, near):
    """As every other command does."""
    with pytest.raises(RvError) as caught:
        split_arguments([option, "4", "python"], TAKES_VALUE)
    assert option in caught.value.message
    assert f"did you mean {near}?" in caught.value.hint


@pytest.mark.parametrize("before", [[], ["--gpu", "4"]])
def test_a_quoted_line_behind_the_dashes_is_the_line_that_it_is_without_them(before):
    """It ran as one program with spaces in its name, and was not found, on the GPU."""
    split = split_arguments([*before, "--", "python train.py && ls"], TAKES_VALUE)

    assert (split.words, split.is_argv) == (("python train.py && ls",), False)
