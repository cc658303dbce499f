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


def as_current(document: Mapping[str, Any], name: str) -> tuple[Mapping[str, Any], str]:
    """Give the document as `rv.accept/1` has it and the legacy format's name, "" for none.

    `name` is the file's name, which alone says what payload was skipped.
    """
    for head, kind in _HEADS.items():
        if isinstance(document.get(head), Mapping) and isinstance(document.get("tests"), list):
            return _service(document, head, kind), head
    if document.get("skipped") is True:
        return _skipped(document, name), "skipped"
    for fields, read, legacy_format in (
        ({"world", "ok"}, _collective, "ddp_tests"),
        ({"world", "improved"}, _training, "ddp_training"),
        ({"compute"}, _gpu, "gpu_tests"),
    ):
        if fields <= document.keys():
            return read(document), legacy_format
    if isinstance(document.get("failures"), list):
        return _gpu(document), "gpu_tests"
    if any("returncode" in object_of(document.get(run)) for run in _RUNS):
        return _summary(document), "summary"
    return document, ""


def _service(document: Mapping[str, Any], head: str, kind: str) -> Mapping[str, Any]:
    info = object_of(document.get(head))
    return {**document, "test_info": {"test_type": f"tensor_service.{kind}", **info}}


def _skipped(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    payload = name.removesuffix(".json").removesuffix("_skipped")
    if payload not in _PAYLOADS:
        payload = "unknown"
    reason = text_of(document.get("reason"))
    return _document(payload, {}, [_test(payload, "SKIP", reason, reason)])


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
    names = [name for name in ("compute", "training") if name in document]
    tests += [_verdict(n, document[n] is True, "failed", f"{n} failed") for n in names]
    return _document("gpu_tests", document, tests)


def _summary(document: Mapping[str, Any]) -> Mapping[str, Any]:
    tests = []
    for run in _RUNS:
        code = whole_of(object_of(document.get(run)).get("returncode"))
        if run in document:
            tests.append(_verdict(run, code == 0, "exit_code", f"exit code {code}"))
    return _document("run_all", document, tests)


def _document(payload: str, document: Mapping[str, Any], tests: list[Any]) -> Mapping[str, Any]:
    info = {"test_type": payload, "world": {"size": document.get("world")}}
    return {"test_info": info, "env": document.get("env"), "tests": tests}


def _verdict(name: str, passed: bool, code: str, reason: str) -> dict[str, Any]:  # noqa: FBT001
    return _test(name, "PASS") if passed else _test(name, "FAIL", reason, code)


def _test(name: str, status: str, reason: str = "", code: str = "") -> dict[str, Any]:
    return {"name": name, "status": status, "reason": reason, "code": code}
