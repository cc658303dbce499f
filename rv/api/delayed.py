"""A call that is made later, and callables that can be interrupted and go on: submitit's shapes."""

from collections.abc import Callable
from typing import Any


class DelayedSubmission:
    """The call `function(*args, **kwargs)`, to be made on a node."""

    def __init__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        self.function, self.args, self.kwargs = function, args, kwargs
        self._result: Any = None
        self._done = False

    def result(self) -> Any:
        """Make the call, once, and return what it returned."""
        if not self._done:
            self._result = self.function(*self.args, **self.kwargs)
            self._done = True
        return self._result

    def done(self) -> bool:
        """Whether the call was made."""
        return self._done

    @property
    def checkpoint(self) -> "Callable[..., DelayedSubmission | None] | None":
        """The function's own `checkpoint`, None where it cannot be interrupted."""
        own = getattr(self.function, "__submitit_checkpoint__", None)
        found: Callable[..., DelayedSubmission | None] | None = own or getattr(
            self.function, "checkpoint", None
        )
        return found

    @property
    def name(self) -> str:
        """What people call the function."""
        named = getattr(self.function, "__qualname__", "") or type(self.function).__qualname__
        return "".join(char for char in named if char.isprintable())


class Checkpointable:
    """A callable that, interrupted, is called again with the same arguments and its own state.

    Override `checkpoint` to say otherwise.
    """

    def checkpoint(self, *args: Any, **kwargs: Any) -> DelayedSubmission:
        """Return the call that goes on where this one is interrupted."""
        if not callable(self):
            raise TypeError(f"{type(self).__name__} has no __call__ method")
        return DelayedSubmission(self, *args, **kwargs)
