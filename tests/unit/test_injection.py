"""Nothing that a user, a site or a cluster says becomes code: neither in a job script nor in a
terminal."""

import itertools
import re
import shlex
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import jinja2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rv.errors import ErrorKind, RvError
from rv.models.plan import Submission
from rv.models.race import Chain, Entry
from rv.models.request import Command, Launcher
from rv.race.recover import _is_deleted
from rv.race.stage import _LEAVE_MARKER, _LINK_TEST
from rv.race.submit import SubmitOutcome, submit
from rv.render.script import render, sbatch_line
from rv.render.templates import Templates
from rv.slurm.squeue_scripts import squeue_by_name_script
from rv.transport.local import LocalTransport
from tests.unit.race.test_directory import race as plain_race
from tests.unit.render.test_golden import SEGMENTS, TWO_NODES, facts, read_template, strategy

TEMPLATES = Path(__file__).parents[2] / "templates"
QUOTING = {"q", "d", "words", "remark"}

NASTY = [
    "it's",
    "\"both\" 'kinds'",
    "$(touch pwned)",
    "`touch pwned`",
    "${HOME}$HOME$((1+1))",
    "{{ 7 * 7 }}{% for x in y %}{%# no #%}",
    "a\nb\n#SBATCH --uid=0\n",
    "\r\t\x0b\x1b[2J\x07",
    "--help",
    "-n",
    "; touch pwned; #",
    "&& touch pwned || touch pwned & | touch pwned",
    "> pwned",
    "*?[a-z]{a,b}~!^%#",
    "\\",
    "ends in a backslash \\",
    "é ü 日本 🙂 \u202eright to left",
    " leads and trails ",
    "RV_EOF\nEOF\n",
    "x" * 100_000,
]
VALUES = st.sampled_from(NASTY) | st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=60
)
ONE_LINE = VALUES.filter(lambda text: not re.search(r"[\x00-\x1f\x7f]", text))
PLAIN_PATH = st.text("abc/_. '\"$`(){}é🙂;&-", min_size=1, max_size=30).map("/{}".format)


def bash(script: str, cwd: Path) -> list[str]:
    """The NUL-ended words that a script prints; it must not fail, nor leave a file behind."""
    done = subprocess.run(
        ["bash", "--norc", "--noprofile"], input=script.encode(), capture_output=True, cwd=cwd,
        env={"PATH": "/usr/bin:/bin"}, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b""), done.stderr.decode(errors="replace")
    assert not list(cwd.iterdir()), "the value ran"
    return done.stdout.decode().split("\0")[:-1]


def script_of(**changes: object) -> str:
    """One job script, of a strategy and of a race with some values changed."""
    of_race = {"race_dir", "workdir", "command", "title", "modules", "chain", "slurm_path", "nonce"}
    plan = strategy(**{name: value for name, value in changes.items() if name not in of_race})
    race = facts(**{name: value for name, value in changes.items() if name in of_race})
    return render(Submission(number=1, strategies=(plan,)), race, Templates(read_template))


def is_whole(script: str) -> bool:
    """Whether bash reads it as a program."""
    done = subprocess.run(["bash", "-n"], input=script.encode(), capture_output=True)
    return (done.returncode, done.stderr) == (0, b"")


def statement(script: str, start: str) -> str:
    """The statement that begins with `start`, whole: bash itself says where it ends."""
    lines = script[script.index(f"\n{start}") + 1 :].split("\n")
    ends = ("\n".join(lines[:end]) for end in range(1, len(lines)))
    return next(text for text in ends if is_whole(text))


SHOW = """
module() { printf '%s\\0' "$@"; }
cd() { printf '%s\\0' "$@"; return "$failed"; }
rv_reject_node() { printf '%s\\0' "$@"; }
grep() { printf '%s\\0' "$@"; }
"""


def check_arrival(text: str, empty: Path) -> None:
    """Every value of a script but those of #SBATCH lines is this text, and bash shows it so."""
    script = script_of(
        id=text, gpu=text, nonce=text, slurm_path=text, workdir=f"/{text}", name_pattern=text or "x",
        modules=(text, text), node_names=(text, "b"), command=Command(line=text),
    )  # fmt: skip
    assert is_whole(script)
    around = script.split("PATH=$PATH:$RV_NODE_PATH\n")[1].split("\nrv_enter || exit 1")[0]
    loading = around[around.index("\nmodule load ") :]
    shown = bash(
        f"""{SHOW}
{statement(script, "RV_STRATEGY=")}
{statement(script, "export RV_SUBMISSION=")}
{statement(script, "export RV_COMMAND=")}
printf '%s\\0' "$RV_STRATEGY" "$RV_GPU" "$RV_COMMAND"
bash -c 'printf "%s\\0" "$RV_COMMAND"'
f() {{
{statement(script, "  local node left=0 excluded=")}
printf '%s\\0' "${{nodes[@]}}"
}}
f
failed=0
{loading}
failed=1
{loading}
PATH=
{statement(script, "PATH=")}
printf '%s\\0' "$PATH"
""",
        empty,
    )
    load, there = ["load", text, text], f"/{text}"
    assert shown == [
        *[text] * 4, text, "b", *load, there, *load, there, f"no directory {there} on this node",
        f"{text}:/usr/local/bin:/usr/bin:/bin",
    ]  # fmt: skip


@pytest.mark.parametrize("text", NASTY, ids=lambda text: repr(text[:20]))
def test_a_nasty_value_arrives_byte_for_byte(tmp_path: Path, text: str) -> None:
    """From the request, from a site, or from what a cluster calls its things."""
    check_arrival(text, tmp_path)


few = settings(
    max_examples=15,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.large_base_example],
)


@given(VALUES)
@few
def test_any_value_arrives_byte_for_byte(tmp_path: Path, text: str) -> None:
    """Whatever else a keyboard has."""
    check_arrival(text, tmp_path)


@pytest.mark.parametrize("layout", ["multi_node", "chain"])
@pytest.mark.parametrize("text", NASTY[:10], ids=lambda text: repr(text[:20]))
def test_the_other_scripts_hold_the_same_command(tmp_path: Path, text: str, layout: str) -> None:
    """On several nodes, and in segments."""
    several = {**TWO_NODES, "command": Command(line=text, launcher=Launcher.TORCHRUN)}
    chain = {**SEGMENTS, "command": Command(line=text), "chain": Chain(total=timedelta(hours=12))}
    script = script_of(**{**(several if layout == "multi_node" else chain), "id": text})
    assert is_whole(script)
    export = statement(script, "export RV_COMMAND=")
    assert bash(f"{export}\nprintf '%s\\0' \"$RV_COMMAND\"", tmp_path) == [text]


@pytest.mark.parametrize("text", NASTY, ids=lambda text: repr(text[:20]))
def test_a_race_directory_arrives_or_is_refused(tmp_path: Path, text: str) -> None:
    """Slurm itself can hold neither a control character nor, for output, a backslash."""
    if "\\" in text or re.search(r"[\x00-\x1f\x7f]", text):
        with pytest.raises(RvError) as caught:
            script_of(race_dir=f"/{text}")
        assert caught.value.kind in (ErrorKind.STAGE, ErrorKind.USAGE)
        return
    script = script_of(race_dir=f"/{text}")
    assert is_whole(script)
    line = statement(script, "RV_RACE_DIR=")
    assert bash(f"{line}\nprintf '%s\\0' \"$RV_RACE_DIR\"", tmp_path) == [f"/{text}"]


DIRECTIVES = {
    "partition": "partition",
    "account": "account",
    "qos": "qos",
    "gres": "gres",
    "constraint": "constraint",
    "extra": "reservation",
}


@pytest.mark.parametrize("field", DIRECTIVES)
@given(text=VALUES.filter(bool))
@few
def test_a_value_of_an_sbatch_line_is_one_option(field: str, text: str) -> None:
    """As sbatch's own grammar has it, which tests/slurm/test_directive_quoting.py asks for."""
    value: object = (("reservation", text),) if field == "extra" else text
    if re.search(r"[\x00-\x1f\x7f]", text):
        with pytest.raises(RvError) as caught:
            script_of(**{field: value})
        assert caught.value.kind is ErrorKind.USAGE
        return
    lines = script_of(**{field: value}).split("\n")
    usual = script_of(**{field: (("reservation", "x"),) if field == "extra" else "x"}).split("\n")
    own = [line for line in lines if line.startswith(f"#SBATCH --{DIRECTIVES[field]}=")]
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    assert own == [f'#SBATCH --{DIRECTIVES[field]}="{escaped}"']
    assert [line for line in lines if line not in own] == [
        line for line in usual if not line.startswith(f"#SBATCH --{DIRECTIVES[field]}=")
    ]


def directives(script: str) -> list[str]:
    """The #SBATCH lines, which sbatch reads down to the first command."""
    head = itertools.takewhile(lambda line: line.startswith("#"), script.split("\n"))
    return [line for line in head if line.startswith("#SBATCH")]


@pytest.mark.parametrize("text", NASTY, ids=lambda text: repr(text[:20]))
def test_what_only_comments_hold_stays_in_them(text: str) -> None:
    """A strategy's id holds names of the cluster's; a race's name is the user's."""
    script, usual = script_of(id=text, title=text), script_of(id="x", title="x")
    assert is_whole(script)
    comment = re.compile(r'#SBATCH --comment="rv abcd2345[A-Za-z0-9._@/+=:, -]*"')
    assert len(directives(script)) == len(directives(usual)) > 10
    for ours, others in zip(directives(script), directives(usual), strict=True):
        assert ours == others or comment.fullmatch(ours)


@pytest.mark.parametrize(
    "field", ["race_dir", "workdir", "slurm_path", "id", "gpu", "partition", "gres", "command"]
)
def test_a_nul_is_refused(field: str) -> None:
    """Neither bash nor sbatch could hold it."""
    value: object = Command(line="a\0b") if field == "command" else "/a\0b"
    with pytest.raises(RvError) as caught:
        script_of(**{field: value})
    assert caught.value.kind is ErrorKind.USAGE


def test_a_command_that_no_program_could_be_given_is_refused() -> None:
    """Linux takes 128 KiB an argument: the job would fail after its claim."""
    with pytest.raises(RvError) as caught:
        script_of(command=Command(line="x" * (128 << 10)))
    assert (caught.value.kind, bool(caught.value.hint)) == (ErrorKind.USAGE, True)


@given(VALUES, ONE_LINE)
@few
def test_the_sbatch_lines_of_a_dry_run_are_the_same_words(text: str, value: str) -> None:
    """They are there to be pasted."""
    line = sbatch_line(strategy(partition=text, extra=(("reservation", value),) if value else ()))
    words = shlex.split(line)
    assert words[:3] == (["sbatch", "-p", text] if text else ["sbatch", "-t", "02:59:00"])
    assert not value or f"--reservation={value}" in words


# What keeps it so.


def outputs() -> Iterator[tuple[str, jinja2.nodes.Expr]]:
    """Everything that a bundled template writes but its own text."""
    environment = jinja2.Environment(comment_start_string="{%#", comment_end_string="#%}")
    environment.filters |= dict.fromkeys(QUOTING, str)
    for path in sorted(TEMPLATES.glob("*.j2")):
        tree = environment.parse(path.read_text(encoding="utf-8"))
        for output in tree.find_all(jinja2.nodes.Output):
            for node in output.nodes:
                if not isinstance(node, jinja2.nodes.TemplateData):
                    yield f"{path.name}:{node.lineno}", node


NUMBERS = re.compile(
    r"(job|other)\.number|s\.(nodes|gpus|gpus_per_node|cpus_per_task|memory_mib)|part\.vram_mib"
    r"|s\.node_names|omp_threads|\w+_seconds|(chain|other)\.\w+_(seconds|segments|fruitless)"
    r"|slots|sweep\.(width|gpus|tasks|tasks_a_folder|most_running)"
)
QUOTED_ALREADY = {
    "gpu_query",
    "process_query",
    "walltime",
    "chain.signal",
    "chain.total",
    "sweep.variables",
    "homes",
    "loop.index0",
}


def names_in(node: jinja2.nodes.Expr) -> set[str]:
    """The values that an expression is made of: `a.b`, or a bare name."""
    parts = [*node.find_all(jinja2.nodes.Getattr)]
    parts += [node] if isinstance(node, jinja2.nodes.Getattr) else []
    owners = {id(part.node) for part in parts}
    bare = [*node.find_all(jinja2.nodes.Name)]
    bare += [node] if isinstance(node, jinja2.nodes.Name) else []
    return {f"{getattr(part.node, 'name', '')}.{part.attr}" for part in parts} | {
        part.name for part in bare if id(part) not in owners
    }


def test_every_value_in_a_template_is_quoted_or_a_number() -> None:
    """In branches that no test renders, too."""
    found = list(outputs())
    assert len(found) > 80
    for where, node in found:
        if not (isinstance(node, jinja2.nodes.Filter) and node.name in QUOTING):
            loose = {name for name in names_in(node) if not NUMBERS.fullmatch(name)}
            assert loose <= QUOTED_ALREADY, where


@pytest.mark.parametrize(
    "expression",
    ["s.partition", "job.line", "s.partition ~ s.gpu|q", "job.modules|join(' ')", "s.exclude_nodes",
     "s.account or 'x'", "s.partition|q|upper", "s.walltime", "no_such_name"],
)  # fmt: skip
def test_a_template_that_forgets_to_quote_is_an_error(expression: str) -> None:
    """The user's own too: it says so before anything is staged."""

    def read(name: str) -> str:
        text = read_template(name)
        return text.replace("#!/bin/bash\n", f"#!/bin/bash\n# {{{{ {expression} }}}}\n")

    job = Submission(number=1, strategies=(strategy(),))
    with pytest.raises(RvError) as caught:
        render(job, facts(modules=("a",)), Templates(read))
    assert caught.value.kind is ErrorKind.CONFIG
    assert "template" in caught.value.message
    assert caught.value.hint


# What is run on the cluster's login node.


@pytest.fixture
def login(tmp_path: Path) -> LocalTransport:
    """A login node whose sbatch and squeue say where they stand and what they are told."""
    for name in ("sbatch", "squeue"):
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(
            f"""#!/bin/bash\nprintf '%s\\0' "$PWD" "$@" >>{tmp_path}/told.{name}\necho 7\n"""
        )
        path.chmod(0o755)
    return LocalTransport({"PATH": f"{tmp_path}/bin:/usr/bin:/bin"})


@pytest.mark.parametrize("text", [t for t in NASTY if len(t) < 200], ids=lambda t: repr(t[:20]))
def test_a_race_directory_of_any_name_is_only_a_directory(
    tmp_path: Path, login: LocalTransport, text: str
) -> None:
    """To the shell that tries links in it, submits from it, and sees that it is gone."""
    root = tmp_path / f"root {text}".replace("/", "_")
    directory = f"{root}/aaaaaaaa"
    Path(root).mkdir(mode=0o700)
    before = {path.name for path in tmp_path.iterdir()}
    login.create_tree(directory, {"nonce": b"x"}, ["jobs", "segments"], _LINK_TEST + _LEAVE_MARKER)
    race = plain_race(directory=directory, entries=(Entry(number=1, name=text, strategy=text),))
    (result,) = submit(race, [1], login, sleep=lambda _: None)
    assert (result.outcome, result.job_id) == (SubmitOutcome.ACCEPTED, 7)
    told = (tmp_path / "told.sbatch").read_bytes().decode().split("\0")
    assert told[0] == directory
    assert login.run(squeue_by_name_script([text], "rvs"), timeout_s=30).returncode == 0
    assert f"--name={text}" in (tmp_path / "told.squeue").read_bytes().decode().split("\0")
    assert not _is_deleted(directory, login)
    login.remove(directory)
    assert _is_deleted(directory, login)
    assert {path.name for path in tmp_path.iterdir()} == before | {"told.sbatch", "told.squeue"}
