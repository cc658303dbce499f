"""Validation of the files that people write."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, BrokenBarrierError
from typing import Any

import pytest
from pydantic import model_validator

from rv.config.documents import parse_document
from rv.config.schema import Schema, validate
from rv.errors import ErrorKind

TOGETHER = Barrier(2)


class Slow(Schema):
    """Two threads are inside of its validation at once, where they may be."""

    name: str

    @model_validator(mode="before")
    @classmethod
    def wait(cls, values: Any) -> Any:
        """Wait a little for the other thread; the one that came last goes last."""
        try:
            if TOGETHER.wait(0.1) == 1:
                time.sleep(0.1)
        except BrokenBarrierError:
            TOGETHER.reset()
        return values


@pytest.fixture
def plugins_setting(monkeypatch: pytest.MonkeyPatch) -> str:
    """The user's own setting of pydantic's variable."""
    monkeypatch.setenv("PYDANTIC_DISABLE_PLUGINS", "mine")
    return "mine"


def test_two_threads_may_validate_at_once(plugins_setting: str) -> None:
    """Several sandboxes are started so; the variable that both need is as before afterwards."""
    document = parse_document("name: x\n", "a file", ErrorKind.CONFIG)
    with ThreadPoolExecutor(2) as pool:
        read = list(pool.map(lambda _: validate(document, Slow), range(2)))

    assert [one.name for one in read] == ["x", "x"]
    assert os.environ["PYDANTIC_DISABLE_PLUGINS"] == plugins_setting
