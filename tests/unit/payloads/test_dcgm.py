"""What DCGM's diagnosis says, of two versions, and how far each of its results is a fault."""

import json
from pathlib import Path

import pytest

from rv.payloads.contract.dcgm import (
    Diagnosis,
    Result,
    judge_result,
    judged,
    parse_diag,
    parse_discovery,
    passed,
    untold,
)

DATA = Path(__file__).parents[2] / "data" / "dcgm"


def read(name: str) -> str:
    return (DATA / f"documented.{name}").read_text()


def found(diagnosis: Diagnosis) -> list[tuple[str, int | None, str, str]]:
    """Test, GPU, status and code of each result that is not well."""
    return [(result.test, result.gpu, *finding[:2]) for result, finding in judged(diagnosis)]


def test_version_3() -> None:
    """Texts as warnings, several GPUs in one result, a setting that is no fault of the GPU."""
    diagnosis = parse_diag(read("v3.json"))
    assert (diagnosis.version, diagnosis.error) == ("3.3.5", "")
    assert found(diagnosis) == [
        ("Persistence Mode", None, "WARN", "dcgm_setup"), ("PCIe", 1, "FAIL", "dcgm_failed"),
    ]  # fmt: skip
    assert [each.gpu for each in diagnosis.results if each.test == "GPU Memory"] == [0, 1]
    assert passed(diagnosis) == [
        "CUDA Main Library", "Denylist", "GPU Memory", "PCIe", "Page Retirement/Row Remap",
    ]  # fmt: skip


def test_version_4() -> None:
    """By severity: isolate is a fault, configuration is none, monitor is a word of warning."""
    diagnosis = parse_diag("Successfully ran diagnostic for group.\n" + read("v4.json") + "\n")
    assert (diagnosis.version, diagnosis.error) == ("4.2.3", "")
    assert found(diagnosis) == [
        ("software", 0, "WARN", "dcgm_setup"), ("memory", 1, "FAIL", "dcgm_failed"),
        ("pcie", 1, "WARN", "dcgm_warned"),
    ]  # fmt: skip
    assert [each.gpu for each in diagnosis.results if each.test == "nvbandwidth"] == [None]


@pytest.mark.parametrize(
    ("result", "verdict"),
    [
        (Result("Persistence Mode", "fail"), ("WARN", "dcgm_setup")),
        (Result("Inforom", "fail"), ("FAIL", "dcgm_failed")),
        (Result("memory", "fail", 0, "", (5, 2)), ("FAIL", "dcgm_failed")),
        (Result("memory", "fail", 0, "", (6,)), ("FAIL", "dcgm_failed")),
    ],
)
def test_what_fails_is_a_fault_unless_it_is_known_not_to_be(
    result: Result, verdict: tuple[str, str]
) -> None:
    found = judge_result(result)
    assert found is not None
    assert found[:2] == verdict


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "no JSON"),
        ("Error: unable to establish a connection to the specified host: localhost\n", "Error: unable to establish a connection to the specified host: localhost"),
        ('{"DCGM Diagnostic": {"test_categories": [', "its JSON is cut short"),
        ('{"DCGM Diagnostic": {"runtime_error": "The diagnostic \\u001bdied"}}', "The diagnostic ?died"),
        ('{"DCGM GPU Diagnostic": {"test_categories": []}}', "no test in its JSON"),
        ('{"DCGM GPU Diagnostic": []}', "no diagnosis in its JSON"),
    ],
)  # fmt: skip
def test_what_did_not_run_says_why(text: str, error: str) -> None:
    assert parse_diag(text) == Diagnosis(error=error)


def test_gpus_have_numbers_of_dcgms_own() -> None:
    found = parse_discovery(read("discovery.txt"))
    assert {uuid[-2:]: number for uuid, number in found.items()} == {"04": 0, "05": 1}
    assert parse_discovery("Error: unable to establish a connection\n") == {}


def diagnosis_of(
    *results: dict[str, object], summary: dict[str, object] | None = None
) -> Diagnosis:
    """A run of one test in the form of version 4."""
    test = {"name": "memory", "results": list(results), "test_summary": summary}
    document = {"DCGM Diagnostic": {"test_categories": [{"tests": [test]}]}}
    return parse_diag(json.dumps(document))


def test_nothing_but_known_good_words_is_well() -> None:
    """A failure that only the summary tells of, and a status that nobody knows, are findings."""
    good = {"entity_group": "GPU", "entity_id": 0, "status": "Pass"}
    bad = {"status": "Fail", "warnings": [{"warning": "broken", "error_severity": 2}]}
    assert [found[1] for _, found in judged(diagnosis_of(good, summary=bad))] == ["dcgm_failed"]
    assert [found[1] for _, found in judged(diagnosis_of({**good, "status": "Error"}))] == [
        "dcgm_warned"
    ]
    assert judged(diagnosis_of(good, summary={"status": "Pass"})) == []
    twice = {**good, **bad}
    assert len(judged(diagnosis_of(twice, summary=bad))) == 1


def test_a_gpu_that_no_test_spoke_of_is_named() -> None:
    """Of two that were asked for; skipping is not speaking."""
    good = {"entity_group": "GPU", "entity_id": 0, "status": "Pass"}
    assert untold(diagnosis_of(good), [0, 1]) == [1]
    assert untold(diagnosis_of(good, {**good, "entity_id": 1, "status": "Skip"}), [0, 1]) == [1]
    assert untold(diagnosis_of({"status": "Pass"}), [0, 1]) == []  # of the node


def software_of_3_3(*warnings: tuple[str, int], gpu: int) -> Diagnosis:
    """A test of the software as `dcgmi` 3.3 writes it: its warnings' text is called `warnings`."""
    told = [
        {"warnings": text, "error_id": 1, "error_category": 1, "error_severity": severity}
        for text, severity in warnings
    ]
    test = {"name": "Inforom", "results": [{"gpu_id": gpu, "status": "Fail", "warnings": told}]}
    root = {"test_categories": [{"category": "Deployment", "tests": [test]}]}
    document = {"version": "3.3.9", "Driver Version Detected": "550", "DCGM GPU Diagnostic": root}
    return parse_diag(json.dumps(document))


def test_version_3_3_tells_its_version_beside_and_its_texts_elsewhere() -> None:
    """A warning of no GPU has the number -1, which is not GPU 1; of several GPUs, the last one's."""
    one = software_of_3_3(("GPU 1 has a corrupt InfoROM", 4), gpu=1)
    assert (one.version, [(each.gpu, each.text) for each in one.results]) == (
        "3.3.9", [(1, "GPU 1 has a corrupt InfoROM")],
    )  # fmt: skip
    node = software_of_3_3(("libcuda is missing", 5), gpu=-1)
    assert found(node) == [("Inforom", None, "WARN", "dcgm_setup")]
    both = software_of_3_3(("GPU 0: corrupt", 4), ("GPU 2: corrupt", 4), gpu=2)
    assert [(each.gpu, each.text) for each in both.results] == [
        (None, "GPU 0: corrupt; GPU 2: corrupt")
    ]


def test_a_summary_says_what_no_gpus_result_does() -> None:
    """Warnings of no entity beside a GPU's own; since 4.5 it repeats those."""
    setting = {"warning": "persistence mode is off", "error_severity": 5}
    broken = {"warning": "the fabric is broken", "error_severity": 2}
    of_gpu = {"entity_group": "GPU", "entity_id": 0, "status": "Fail", "warnings": [setting]}
    for told in ([broken], [setting, broken]):
        diagnosis = diagnosis_of(of_gpu, summary={"status": "Fail", "warnings": told})
        assert found(diagnosis) == [
            ("memory", 0, "WARN", "dcgm_setup"), ("memory", None, "FAIL", "dcgm_failed"),
        ]  # fmt: skip
    repeated = diagnosis_of(of_gpu, summary={"status": "Fail", "warnings": [setting]})
    assert found(repeated) == [("memory", 0, "WARN", "dcgm_setup")]


def test_a_pass_with_a_warning_is_told() -> None:
    """And a GPU that the diagnosis could not reach has no result at all, but words in a summary."""
    passing = {"entity_group": "GPU", "entity_id": 0, "status": "Pass"}
    warned = {**passing, "warnings": [{"warning": "hot", "error_severity": 1}]}
    assert found(diagnosis_of(warned)) == [("memory", 0, "WARN", "dcgm_warned")]
    gone = {
        "status": "Pass",
        "warnings": [{"warning": "GPU 1 is inaccessible.", "error_severity": 3}],
    }
    assert found(diagnosis_of(passing, summary=gone)) == [("memory", None, "WARN", "dcgm_warned")]
    assert untold(diagnosis_of(passing, summary=gone), [0, 1]) == [1]
