"""The first line of a launch: what rv took the options for."""

import os
from typing import Final

from rv.models.request import Command
from rv.models.site import ALL
from rv.ui import console
from rv.workflow.environments import masked
from rv.workflow.options import RequestOptions

_SECRET: Final = frozenset({"env", "notify"})
"""Options whose values may hold a secret: a token, or a URL by which anybody can post."""


def asks_all(options: RequestOptions) -> bool:
    """Whether every cluster with a name is meant."""
    return (options.cluster or os.environ.get("RV_CLUSTER", "")) == ALL


def say_request(options: RequestOptions, command: Command | None, cluster: str) -> None:
    """Say what rv took, on the first line, so that a misread option is noticed at once."""
    what = "a MIG slice" if options.mig else f"{options.gpu} GPU{'' if options.gpu == 1 else 's'}"
    kind = f" ({options.type})" if options.type else ""
    time = next((f" for {text}" for text in filter(None, (options.work, options.time))), "")
    run = f": {command.typed or command.line}" if command else ""
    console.say(f"rv on {cluster}: {what}{kind}{time}{run}")
    for name, setting in options.config.defaults.items():
        is_one = not isinstance(setting.value, list | tuple)
        values = [setting.value] if is_one else setting.value
        words = ", ".join(map(str, masked(values) if name in _SECRET else values))
        console.say(f"  {name.replace('_', ' ')} is {words} by {setting.origin}")
