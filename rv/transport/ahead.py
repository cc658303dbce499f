"""Ask in a thread, so that a command goes on until it needs the answer."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Answer = TypeVar("Answer")


class Ahead(Generic[Answer]):
    """A question that is being asked. Its thread keeps nobody waiting who wants no answer."""

    def __init__(self, ask: Callable[[], Answer]) -> None:
        self._ask = ask
        self._answers: list[Answer] = []
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def answer(self) -> Answer:
        """Wait for the answer. Raises what asking raised."""
        self._thread.join()
        if self._failure:
            raise self._failure
        return self._answers[0]

    def _run(self) -> None:
        try:
            self._answers.append(self._ask())
        except BaseException as failure:  # noqa: BLE001 - raised where the answer is used
            self._failure = failure
