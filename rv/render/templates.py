"""The templates of job scripts, compiled by jinja2, and where what it made of them is kept."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Protocol

from rv.render import quote

if TYPE_CHECKING:
    import jinja2
    from jinja2.bccache import Bucket

ReadTemplate = Callable[[str], str]


class CompiledTemplates(Protocol):
    """Keeps compiled templates, by name, from one command to the next: they are run as they are."""

    def load(self) -> Mapping[str, bytes]:
        """Return what was kept by the same versions of rv and jinja2."""

    def keep(self, templates: Mapping[str, bytes]) -> None:
        """Keep these in place of those before."""


@dataclass(frozen=True, slots=True)
class Templates:
    """`read` maps a file name such as `single_node.sh.j2` to its text.

    `compiled` spares most commands the compiling, which takes longer than the planning.
    """

    read: ReadTemplate
    compiled: CompiledTemplates | None = None


class Compiler:
    """jinja2's environment of some templates, with what it loads and keeps them by.

    Of the latter it calls `get_bucket` and `set_bucket`, as of its own `BytecodeCache`.
    """

    def __init__(self, templates: Templates) -> None:
        self._templates = templates
        self._texts: dict[str, str] = {}
        self._code: dict[str, bytes] | None = None
        self._has_new_code = False
        self.environment = self._environment()

    def _environment(self) -> "jinja2.Environment":
        import jinja2

        environment = jinja2.Environment(
            loader=jinja2.FunctionLoader(self._load),
            bytecode_cache=self if self._templates.compiled else None,  # type: ignore[arg-type]
            undefined=jinja2.StrictUndefined,
            comment_start_string="{%#",  # the usual {# is also how bash begins ${#array[@]}
            comment_end_string="#%}",
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
            autoescape=False,  # noqa: S701 - the output is bash, and `finalize` sees to it
            finalize=quote.written,
        )
        environment.filters["q"] = quote.shell
        environment.filters["words"] = quote.words
        environment.filters["d"] = quote.directive
        environment.filters["remark"] = quote.remark
        return environment

    def read_again(self) -> None:
        """Read each template once more when it is used next: it may have changed."""
        self._texts = {}

    def keep_code(self) -> None:
        """Keep what was compiled, for the next command."""
        if self._templates.compiled and self._code and self._has_new_code:
            self._has_new_code = False
            self._templates.compiled.keep(self._code)

    def _load(self, name: str) -> tuple[str, None, Callable[[], bool]]:
        text = self._text(name)
        return text, None, lambda: self._text(name) == text

    def _text(self, name: str) -> str:
        text = self._texts.get(name)
        if text is None:
            text = self._texts[name] = self._templates.read(name)
        return text

    def get_bucket(
        self, environment: "jinja2.Environment", name: str, _filename: str | None, text: str
    ) -> "Bucket":
        """Return the code of a template; none where this text was not compiled before."""
        from jinja2.bccache import Bucket

        if self._code is None and self._templates.compiled:
            self._code = dict(self._templates.compiled.load())
        digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        bucket = Bucket(environment, name, digest)
        if code := (self._code or {}).get(name):
            bucket.bytecode_from_string(code)
        return bucket

    def set_bucket(self, bucket: "Bucket") -> None:
        """Take the code of a template that was compiled just now."""
        if self._code is not None:
            self._code[bucket.key] = bucket.bytecode_to_string()
            self._has_new_code = True


@lru_cache(maxsize=4)
def compiler(templates: Templates) -> Compiler:
    """Return what compiles these templates: each once, and again where its text has changed."""
    return Compiler(templates)
