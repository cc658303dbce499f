"""`--notify EVENTS=TARGET`: what it means, and what it refuses without repeating a secret."""

import pytest

from rv.errors import ErrorKind, RvError
from rv.models.notice import Event, Means, read_notice


@pytest.mark.parametrize(
    ("text", "events", "means", "target"),
    [
        ("end=mail", (Event.END,), Means.MAIL, ""),
        ("fail, start=mailto:you@example.org", (Event.START, Event.FAIL), Means.MAIL,
         "you@example.org"),
        ("end=https://example.org/a?b=c'd", (Event.END,), Means.POST,
         "https://example.org/a?b=c'd"),
        ("end=curl -d a=b https://example.org", (Event.END,), Means.COMMAND,
         "curl -d a=b https://example.org"),
    ],
)  # fmt: skip
def test_a_notice_is_read(text: str, events: object, means: Means, target: str) -> None:
    """What is neither a mail nor a URL is a command."""
    notice = read_notice(text)
    assert (notice.events, notice.means, notice.target) == (events, means, target)


@pytest.mark.parametrize(
    "text",
    [
        "", "mail", "end", "end=", "end= ", "=SECRET", "begin=SECRET", "end,=SECRET",
        "end=mailto:-SECRET", "end=mailto:", 'end=https://SECRET/"', "end=https://SECRET/\\",
        "end=https://SECRET a", "end=http://", "end=SECRET\0",
    ],
)  # fmt: skip
def test_what_is_none_is_refused(text: str) -> None:
    """With a hint, and without the target, which may be a secret."""
    with pytest.raises(RvError) as refused:
        read_notice(text)
    assert refused.value.kind is ErrorKind.USAGE
    assert refused.value.hint
    assert "SECRET" not in refused.value.message + refused.value.hint
