"""The templates of job scripts, as jinja2 loads them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from rv.render import quote

if TYPE_CHECKING:
    import jinja2


@dataclass(frozen=True, slots=True)
class Templates:
    """`read` maps a file name such as `single_node.sh.j2` to its text.

    `compiled` is where jinja2 keeps what it made of them: compiling takes longer than planning.
    """

    read: Callable[[str], str]
    compiled: "jinja2.BytecodeCache | None" = None


@lru_cache(maxsize=4)
def environment(templates: Templates) -> "jinja2.Environment":
    """Return the environment of these templates, which are compiled again where a text changed."""
    import jinja2

    def load(name: str) -> tuple[str, None, Callable[[], bool]]:
        text = templates.read(name)
        return text, None, lambda: templates.read(name) == text

    made = jinja2.Environment(
        loader=jinja2.FunctionLoader(load),
        bytecode_cache=templates.compiled,
        undefined=jinja2.StrictUndefined,
        comment_start_string="{%#",  # the usual {# is also how bash begins ${#array[@]}
        comment_end_string="#%}",
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - the output is bash, and `finalize` sees to it
        finalize=quote.written,
    )
    made.filters["q"] = quote.shell
    made.filters["words"] = quote.words
    made.filters["d"] = quote.directive
    made.filters["remark"] = quote.remark
    return made
