"""Results written before `rv.accept/1`, told in its words. Pure; every field is untrusted.

Known: the tensor service's `{server,client}_test_results_*.json`, whose head is `server_info` or
`client_info`; `gpu_tests_result.json`, `ddp_tests_result.json`, `ddp_training_result.json`; the
`*_skipped.json` files; and the `summary.json` of all of them, which has return codes.
"""

from collections.abc import Mapping
from typing import Any, Final

from rv.accept.untrusted import list_of, object_of, text_of, whole_of

_HEADS: Final = {"test_info": "tests", "server_info": "server", "client_info": "client"}
_NAMES: Final = {
    "gpu_tests": "gpu_tests",
    "ddp_tests": "ddp_tests",
    "ddp_training": "ddp_training",
}
_RUNS: Final = ("gpu_tests", "ddp_tests", "ddp_train")


def as_current(document: Mapping[str, Any], name: str) -> tuple[Mapping[str, Any], str]:
    """Give the document in the words of `rv.accept/1` and the older format's name, "" for none.

    `name` is the file's name, which is all that tells one skipped test from another.
    """
    for head, kind in _HEADS.items():
        if isinstance(document.get(head), Mapping) and isinstance(document.get("tests"), list):
            return _service(document, head, kind), head
    if document.get("skipped") is True:
        return _skipped(document, name), "skipped"
    if {"world", "ok"} <= document.keys():
        return _collective(document), "ddp_tests"
    if {"world", "improved"} <= document.keys():
        return _training(document), "ddp_training"
    if "compute" in document or isinstance(document.get("failures"), list):
        return _gpu(document), "gpu_tests"
    if any("returncode" in object_of(document.get(run)) for run in _RUNS):
        return _summary(document), "summary"
    return document, ""


def _service(document: Mapping[str, Any], head: str, kind: str) -> Mapping[str, Any]:
    info = object_of(document.get(head))
    return {**document, "test_info": {"test_type": f"tensor_service.{kind}", **info}}


def _skipped(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    what = name.removesuffix(".json").removesuffix("_skipped")
    what = _NAMES.get(what, "unknown")
    reason = text_of(document.get("reason"))
    return _document(what, {}, [_test(what, "SKIP", reason, reason)])


def _collective(document: Mapping[str, Any]) -> Mapping[str, Any]:
    wrong = "the sum over all ranks is wrong"
    test = _verdict("all_reduce", document.get("ok") is True, "wrong_result", wrong)
    metrics = [{"name": "time", "value": document.get("time"), "unit": "s", "dir": "lower"}]
    details = {key: document[key] for key in ("iters", "numel") if key in document}
    return _document("ddp_tests", document, [{**test, "details": details, "metrics": metrics}])


def _training(document: Mapping[str, Any]) -> Mapping[str, Any]:
    test = _verdict(
        "train", document.get("improved") is True, "no_progress", "the loss did not fall"
    )
    metrics = [
        {"name": key, "value": document.get(key), "unit": ""} for key in ("loss_start", "loss_end")
    ]
    return _document("ddp_training", document, [{**test, "metrics": metrics}])


def _gpu(document: Mapping[str, Any]) -> Mapping[str, Any]:
    failures = [text_of(failure) for failure in list_of(document.get("failures"))]
    tests = [_test("gpu_tests", "FAIL", failure, "failed") for failure in failures]
    told = [name for name in ("compute", "training") if name in document]
    tests += [_verdict(n, document[n] is True, "failed", f"{n} failed") for n in told]
    return _document("gpu_tests", document, tests)


def _summary(document: Mapping[str, Any]) -> Mapping[str, Any]:
    tests = []
    for run in _RUNS:
        code = whole_of(object_of(document.get(run)).get("returncode"))
        if run in document:
            tests.append(_verdict(run, code == 0, "exit_code", f"exit code {code}"))
    return _document("run_all", document, tests)


def _document(what: str, document: Mapping[str, Any], tests: list[Any]) -> Mapping[str, Any]:
    info = {"test_type": what, "world": {"size": document.get("world")}}
    return {"test_info": info, "env": document.get("env"), "tests": tests}


def _verdict(name: str, passed: bool, code: str, reason: str) -> dict[str, Any]:  # noqa: FBT001
    return _test(name, "PASS") if passed else _test(name, "FAIL", reason, code)


def _test(name: str, status: str, reason: str = "", code: str = "") -> dict[str, Any]:
    return {"name": name, "status": status, "reason": reason, "code": code}
