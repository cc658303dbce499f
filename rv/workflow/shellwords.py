"""Shell text as its simple commands and words, each word with its place in the text.

`shlex` says neither where a word stood nor whether the shell would still expand it; both are
needed to replace one word of a line that is otherwise kept as typed. Knows nothing of launchers.
"""

import re
from typing import Final

from rv.dataclass import dataclass
from rv.errors import ErrorKind, RvError

_BLANKS: Final = re.compile(r"(?:[ \t]|\\\n)*")
_COMMENT: Final = re.compile(r"#[^\n]*")
_PROCESS: Final = re.compile(r"[<>]\(")
_REDIRECT: Final = re.compile(r"&>>?|<<<|<<-?|<>|>>|>\||[<>]&?")
_SEPARATOR: Final = re.compile(r";;&?|;&|&&|\|\||\|&|[;&|()\n]")
_PLAIN: Final = re.compile(r"[^ \t\n;&|()<>'\"\\$`]+")
_WORD_ENDS: Final = frozenset(" \t\n;&|()<>")
_EXPANDED: Final = re.compile(r"[*?\[{]")
_OPENERS: Final = {")": "(", "}": "{"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Word:
    """One word: what it means once quotes are gone, and where it stands in the text.

    `dynamic` means that the shell would still expand it, so `value` is not what a program sees.
    """

    value: str
    start: int
    end: int
    dynamic: bool = False


def simple_commands(text: str) -> tuple[tuple[Word, ...], ...]:
    """Return the words of each simple command: what stands between `;`, `&&`, `|` and the like.

    Raises `RvError(USAGE)` for text that ends inside a quote or substitution.
    """
    return _Reader(text).commands()


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._done: list[tuple[Word, ...]] = []
        self._words: list[Word] = []
        self._heredocs: list[tuple[str, str]] = []

    def commands(self) -> tuple[tuple[Word, ...], ...]:
        while self._skip(_BLANKS) < len(self._text):
            start = self._at
            if self._skip(_COMMENT) > start:
                continue
            if _PROCESS.match(self._text, start):
                self._words.append(self._word())
            elif match := _REDIRECT.match(self._text, start):
                self._redirect(match[0])
            elif match := _SEPARATOR.match(self._text, start):
                self._separate(match[0])
            else:
                self._words.append(self._word())
        self._finish()
        return tuple(self._done)

    def _skip(self, pattern: re.Pattern[str]) -> int:
        match = pattern.match(self._text, self._at)
        if match:
            self._at = match.end()
        return self._at

    def _separate(self, separator: str) -> None:
        self._at += len(separator)
        self._finish()
        if separator == "\n":
            for delimiter, indent in self._heredocs:
                self._skip_heredoc(delimiter, indent)
            self._heredocs.clear()

    def _finish(self) -> None:
        if self._words:
            self._done.append(tuple(self._words))
        self._words.clear()

    def _redirect(self, operator: str) -> None:
        number = self._words[-1] if self._words else None
        if number and number.end == self._at and number.value.isdecimal():
            self._words.pop()  # the 2 of `2>file`
        self._at += len(operator)
        self._skip(_BLANKS)
        target = self._word()
        if operator in {"<<", "<<-"}:
            self._heredocs.append((target.value, "\t" if operator == "<<-" else ""))

    def _skip_heredoc(self, delimiter: str, indent: str) -> None:
        while self._at < len(self._text):
            line, newline, _ = self._text[self._at :].partition("\n")
            self._at += len(line) + len(newline)
            if line.lstrip(indent or "\0") == delimiter:
                return

    def _word(self) -> Word:
        start, parts, dynamic = self._at, list[str](), False
        while self._at < len(self._text):
            if self._text[self._at] in _WORD_ENDS and not _PROCESS.match(self._text, self._at):
                break
            part, expands = self._part()
            parts.append(part)
            dynamic = dynamic or expands
        value = "".join(parts)
        tilde = self._text[start : start + 1] == "~"
        return Word(value=value, start=start, end=self._at, dynamic=dynamic or tilde)

    def _part(self) -> tuple[str, bool]:
        if match := _PLAIN.match(self._text, self._at):
            self._at = match.end()
            return match[0], bool(_EXPANDED.search(match[0]))
        match self._next():
            case "'":
                return self._single(), False
            case '"':
                return self._double()
            case "\\":
                escaped = self._text[self._at : self._at + 1]
                self._at += len(escaped)
                return escaped.replace("\n", ""), False
            case opener:
                return self._expansion(opener), True

    def _single(self) -> str:
        start = self._at
        while self._next() != "'":
            pass
        return self._text[start : self._at - 1]

    def _double(self) -> tuple[str, bool]:
        parts, dynamic = list[str](), False
        while (char := self._next()) != '"':
            if char == "\\":
                escaped = self._next()
                kept = escaped if escaped in '"\\$`' else char + escaped
                parts.append("" if escaped == "\n" else kept)
            elif char in "$`":
                dynamic = True
                parts.append(self._expansion(char, literal="'"))
            else:
                parts.append(char)
        return "".join(parts), dynamic

    def _expansion(self, opener: str, *, literal: str = "") -> str:
        """Move past `$NAME`, `${…}`, `$(…)`, a backtick pair, `$'…'` or `<(…)`; give its text.

        `literal` is the quote that means nothing where this stands, as in `"${x:-it's}"`.
        """
        start = self._at - 1
        following = self._text[self._at : self._at + 1]
        if opener == "`":
            self._past("`")
        elif following == "(":
            self._next()
            self._nested(")")
        elif opener == "$" and following == "{":
            self._next()
            self._nested("}", literal=literal)
        elif opener == "$" and following == "'" and not literal:
            self._next()
            self._past("'")
        return self._text[start : self._at]

    def _past(self, closer: str) -> None:
        while (char := self._next()) != closer:
            if char == "\\":
                self._next()

    def _nested(self, closer: str, *, literal: str = "") -> None:
        depth = 1
        while depth:
            char = self._next()
            if char == "\\":
                self._next()
            elif char == '"':
                self._double()
            elif char == "'" and char != literal:
                self._single()
            elif char == "`":
                self._past("`")
            depth += (char == _OPENERS[closer]) - (char == closer)

    def _next(self) -> str:
        if self._at >= len(self._text):
            raise RvError(
                ErrorKind.USAGE,
                f"the command ends inside a quote or a parenthesis: {self._text!r}",
                hint="close it, or give the words one by one after --",
            )
        self._at += 1
        return self._text[self._at - 1]
