"""The result files of older acceptance programs, by their names and with their keys."""

from __future__ import annotations

from typing import Any

Document = dict[str, Any]


def training_aliases(document: Document) -> Document:
    """Give `ddp_training_result.json`, or `ddp_training_skipped.json`."""
    if document["summary"]["status"] == "SKIP":
        return {"ddp_training_skipped.json": _skipped(document)}
    trained = [test for test in document["tests"] if test["name"] == "ddp.train"]
    keys = ("world", "epochs", "batch_size", "steps", "loss_start", "loss_end", "improved")
    details = trained[0]["details"] if trained else {}
    fields = {key: details.get(key) for key in keys}
    passed = document["summary"]["status"] in {"PASS", "WARN"}
    fields["improved"] = bool(fields["improved"]) and passed
    return {"ddp_training_result.json": fields}


def compute_aliases(document: Document) -> Document:
    """Give `gpu_tests_result.json`, or `gpu_tests_skipped.json`."""
    if document["summary"]["status"] == "SKIP":
        return {"gpu_tests_skipped.json": _skipped(document)}
    bad = [test for test in document["tests"] if test["status"] in ("FAIL", "ERROR")]
    if bad:
        failures = [f"{test['name']}: {test['reason']}" for test in bad]
        return {"gpu_tests_result.json": {"env": document["env"], "failures": failures}}
    return {"gpu_tests_result.json": {"env": document["env"], "compute": True}}


def _skipped(document: Document) -> Document:
    codes = [test["code"] for test in document["tests"] if test["status"] == "SKIP"]
    return {"skipped": True, "reason": codes[0]}
