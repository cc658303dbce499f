"""Read results written before `rv.accept/1` as if they were of it. Pure; every field is untrusted.

Known: the tensor service's `{server,client}_test_results_*.json`, whose head is `server_info` or
`client_info`; `gpu_tests_result.json`, `ddp_tests_result.json`, `ddp_training_result.json`; the
`*_skipped.json` files; and the `summary.json` of all of them, which has return codes.
"""

from collections.abc import Mapping
from typing import Any, Final

from rv.accept.untrusted import list_of, object_of, text_of, whole_of

_HEADS: Final = {"test_info": "tests", "server_info": "server", "client_info": "client"}
_PAYLOADS: Final = ("gpu_tests", "ddp_tests", "ddp_training")
_RUNS: Final = ("gpu_tests", "ddp_tests", "ddp_train")

_Tests = tuple[str, list[dict[str, Any]]]
"""The payload that wrote a document, and its tests; none for a document of another kind."""


def as_current(document: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """Give an older document as `rv.accept/1` has it, None for what is no result.

    `name` is the file's name, which alone says what payload was skipped.
    """
    for head, kind in _HEADS.items():
        if isinstance(document.get(head), Mapping) and isinstance(document.get("tests"), list):
            info = {"test_type": f"tensor_service.{kind}", **document[head]}
            return {**document, "test_info": info}
    for payload, tests in (
        _skipped(document, name), _distributed(document), _gpu(document), _summary(document),
    ):  # fmt: skip
        if tests:
            info = {"test_type": payload, "world": {"size": document.get("world")}}
            return {"test_info": info, "env": document.get("env"), "tests": tests}
    return None


def _skipped(document: Mapping[str, Any], name: str) -> _Tests:
    if document.get("skipped") is not True:
        return "", []
    payload, reason = name.removesuffix("_skipped.json"), text_of(document.get("reason"))
    test = {"name": payload, "status": "SKIP", "reason": reason, "code": reason}
    return payload if payload in _PAYLOADS else "unknown", [test]


def _distributed(document: Mapping[str, Any]) -> _Tests:
    if {"world", "ok"} <= document.keys():
        reason = "the sum over all ranks is wrong"
        test = _test("all_reduce", document["ok"] is True, "wrong_result", reason)
        time = {"name": "time", "value": document.get("time"), "unit": "s", "dir": "lower"}
        return "ddp_tests", [{**test, "metrics": [time]}]
    if {"world", "improved"} <= document.keys():
        passed = document["improved"] is True
        return "ddp_training", [_test("train", passed, "no_progress", "the loss did not fall")]
    return "", []


def _gpu(document: Mapping[str, Any]) -> _Tests:
    failures = map(text_of, list_of(document.get("failures")))
    tests = [_test("gpu_tests", False, "failed", failure) for failure in failures]
    stages = [stage for stage in ("compute", "training") if stage in document]
    tests += [_test(s, document[s] is True, "failed", f"{s} failed") for s in stages]
    return "gpu_tests", tests


def _summary(document: Mapping[str, Any]) -> _Tests:
    tests = []
    for run in _RUNS:
        code = whole_of(object_of(document.get(run)).get("returncode"))
        if code is not None:
            tests.append(_test(run, code == 0, "exit_code", f"exit code {code}"))
    return "run_all", tests


def _test(name: str, passed: bool, code: str, reason: str) -> dict[str, Any]:  # noqa: FBT001
    if passed:
        return {"name": name, "status": "PASS"}
    return {"name": name, "status": "FAIL", "code": code, "reason": reason}
