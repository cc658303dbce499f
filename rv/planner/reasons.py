"""Why something cannot serve a request: raised deep down, collected in one place."""

from rv.models.quantities import short_memory


class Unfit(Exception):  # noqa: N818 - no error: the ordinary way to leave something out of a plan
    """Carries one sentence; `by_limit` where the site's limits speak, not its machines."""

    def __init__(self, reason: str, *, by_limit: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.by_limit = by_limit


_NOUNS = {"cpu": "CPU", "node": "node", "gres/gpu": "GPU", "jobs": "running job"}


def amount(tres: str, count: int) -> str:
    """Write an amount of a TRES for people: `4 GPUs`, `1 CPU`, `16G of memory`."""
    if tres == "mem":
        return f"{short_memory(count)} of memory"
    noun = _NOUNS.get(tres) or f"{tres.removeprefix('gres/gpu:')} GPU"
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
