"""Files of reference values: what would silently hold for nothing, or for anything, is refused."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from rv.accept.baselines import Baselines, golden, load
from rv.accept.measurements import Measurement, measurements
from rv.errors import ErrorKind, RvError
from rv.payloads.contract.references import GPUS, METHOD_VERSION
from tests.unit.accept.made_results import of_rates

NONE = Path("/nonexistent")
LAYERS = ("user", "site", "golden")
OURS = """\
method_version: 2
references:
  ours:
    of: {payload: check, test: matmul.bf16, metric: tflops, unit: TFLOPS}
    values:
      h200: {value: 600, source: measured here}
"""


def loaded(path: Path, layer: str = "user") -> Baselines:
    """Load a file, named baselines.yaml, as one of the layers."""
    assert path.name == "baselines.yaml"
    golden_files = [path] if layer == "golden" else []
    return load(
        path.parent if layer == "user" else NONE, golden_files, path if layer == "site" else NONE
    )


def read(tmp_path: Path, text: str, layer: str = "user") -> Baselines:
    path = tmp_path / "baselines.yaml"
    path.write_text(text)
    return loaded(path, layer)


def refused(tmp_path: Path, text: str, layer: str = "user") -> tuple[str, str]:
    """Return the message, less the folder, and the hint."""
    with pytest.raises(RvError) as caught:
        read(tmp_path, text, layer)
    assert caught.value.kind is ErrorKind.CONFIG
    return caught.value.message.removeprefix(f"{tmp_path}/"), caught.value.hint


def measured(value: float, **more: object) -> Measurement:
    (found,) = measurements(of_rates(value), "r", "c", 0.0)
    return replace(found, **more)


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("value", ["0", "0.0", "-0.0", "-1", ".nan", ".inf", "-.inf", "1e400"])
def test_a_value_that_every_rate_reaches_is_refused(tmp_path: Path, value: str, layer: str) -> None:
    """It hid the built-in one, and whatever was measured was a PASS."""
    message, hint = refused(tmp_path, OURS.replace("600", value), layer)

    assert message.startswith("baselines.yaml:6: value must be a number greater than 0, not ")
    assert hint == "where you know none, leave the GPU out"


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize(
    ("text", "line", "key"),
    [
        (OURS + "      h200: {value: 1}\n", 7, "h200"),
        (OURS.replace("value: 600", "value: 600, value: 1"), 6, "value"),
        (OURS + "references: {}\n", 7, "references"),
        ('{"gpus": {"x": {"peaks": {"bf16": 1, "bf16": 2}}}}', 1, "bf16"),
        ("gpus: {x: {sizes_gb: [{a: 1, a: 2}]}}", 1, "a"),
    ],
    ids=["a GPU", "a value", "at the top", "of JSON", "in a list"],
)
def test_a_key_that_stands_twice_is_refused(
    tmp_path: Path, text: str, line: int, key: str, layer: str
) -> None:
    """The last one won, and nobody was told."""
    message, _ = refused(tmp_path, text, layer)

    why = f"the key {key!r} stands twice in one mapping: remove one of them"
    assert message == f"baselines.yaml:{line}: {why}"


def test_a_key_that_replaces_a_merged_one_stands_there_once(tmp_path: Path) -> None:
    """`<<` is there to be overridden, and an alias is no second key."""
    text = """\
gpus:
  one: &one {memory_gb: 16, sms: 10}
  two: {<<: *one, memory_gb: 32}
  three: *one
"""
    models = read(tmp_path, text).models

    found = {name: (models[name].memory_gb, models[name].sms) for name in ("one", "two", "three")}
    assert found == {"one": (16, 10), "two": (32, 10), "three": (16, 10)}


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize(
    ("written", "model"),
    [("H200", "h200"), ("H200 NVL", "h200-nvl"), ("A100_SXM4_80GB", "a100-sxm4-80gb")],
)
def test_a_model_in_capitals_is_the_built_in_one(
    tmp_path: Path, written: str, model: str, layer: str
) -> None:
    """It was another model of the same name, and all other tests lost their references."""
    known = read(tmp_path, OURS.replace("h200", written), layer)
    product = f"NVIDIA {written}".replace("_", "-")
    own = known.find(measured(1, gpu=product), None)

    assert known.model_of(product) == model
    assert own is not None
    assert (own.value, own.kind) == (600, layer)
    assert known.models[model].sms == GPUS[model]["sms"]
    builtin = {(b.payload, b.test) for b in load(NONE, [], NONE).of_model(model)}
    assert {(b.payload, b.test) for b in known.of_model(written)} == builtin | {
        ("check", "matmul.bf16")
    }


def test_what_a_file_says_of_a_model_in_capitals_is_of_that_model(tmp_path: Path) -> None:
    """Of `gpus` too."""
    known = read(tmp_path, "gpus: {H200: {sms: 7}}\n")
    assert (known.models["h200"].sms, "H200" in known.models) == (7, False)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (OURS + "      H200: {value: 1}\n", 7),
        ("gpus:\n  h200: {}\n  H200: {}\n", 3),
    ],
    ids=["values", "gpus"],
)
def test_a_model_that_stands_twice_is_refused(tmp_path: Path, text: str, line: int) -> None:
    """In two spellings, of which one would win."""
    message, hint = refused(tmp_path, text)

    assert message == f"baselines.yaml:{line}: 'H200' is the model h200, which stands here twice"
    assert hint == "remove one of them"


def test_builtin_models_are_spelled_as_those_of_files_are_read() -> None:
    """Else a file could not name them."""
    assert set(load(NONE, [], NONE).models) == set(GPUS)


@pytest.mark.parametrize("layer", ["user", "site"])
@pytest.mark.parametrize(
    ("payload", "hint"), [("chek", "did you mean check?"), ("zz", "one of: check, membw, ")]
)
def test_an_unknown_payload_is_refused(tmp_path: Path, payload: str, hint: str, layer: str) -> None:
    """Its values held for nothing."""
    message, found = refused(tmp_path, OURS.replace("check", payload), layer)

    assert message == f"baselines.yaml:4: unknown payload {payload!r}"
    assert found.startswith(hint)


@pytest.mark.parametrize("layer", LAYERS)
def test_values_of_a_newer_method_are_refused(tmp_path: Path, layer: str) -> None:
    """They held for nothing; those of an older one still hold for older results."""
    newer = METHOD_VERSION + 1
    written = f"method_version: {newer}"
    message, hint = refused(tmp_path, OURS.replace("method_version: 2", written), layer)

    why = f"method_version {newer}: this rv knows those up to {METHOD_VERSION}"
    assert message == f"baselines.yaml:1: {why}"
    assert hint == "a newer rv wrote the file: update this one, or move the file away"
    older = read(tmp_path, OURS.replace("method_version: 2", "method_version: 1"), layer)
    assert older.find(measured(1, method_version=1), None) is not None


def test_what_is_made_of_the_history_can_be_read(tmp_path: Path) -> None:
    """Of other suites' payloads too; not of a newer rv's methods, nor of rates of 0."""
    about = {"payload": "a suite of ours", "gpu": "Other (GPU)"}
    nodes = [replace(measured(700, **about), node=f"n{number}") for number in range(3)]
    newer = [replace(each, method_version=METHOD_VERSION + 1, test="new") for each in nodes]
    still = [replace(each, value=0.0, test="still") for each in nodes]

    text, count = golden([*nodes, *newer, *still], load(NONE, [], NONE), set(), 0.0)
    known = read(tmp_path, text, "golden")

    assert (count, json.loads(text)["method_version"]) == (1, METHOD_VERSION)
    found = known.find(nodes[0], None)
    assert found is not None
    assert (found.value, found.kind) == (700, "golden")


@pytest.mark.parametrize("layer", LAYERS)
def test_what_is_in_a_files_place_and_no_file_is_refused(tmp_path: Path, layer: str) -> None:
    """A dangling link, a folder, a link to a folder: they were as good as no file."""
    for number, make in enumerate((
        lambda path: path.symlink_to("/gone/baselines.yaml"),
        lambda path: path.mkdir(),
        lambda path: path.symlink_to(tmp_path),
        lambda path: path.symlink_to("/dev/null"),
        lambda path: path.symlink_to(path),
    )):  # fmt: skip
        path = tmp_path / str(number) / "baselines.yaml"
        path.parent.mkdir()
        make(path)
        with pytest.raises(RvError) as caught:
            loaded(path, layer)
        what = (
            "is a link to /gone/baselines.yaml, which is not there", "is a folder", "is a folder",
            "is no regular file", "cannot be read: ",
        )[number]  # fmt: skip
        assert caught.value.kind is ErrorKind.CONFIG
        assert caught.value.message.startswith(f"{path}: {what}")
        assert number == 4 or caught.value.hint == "put a file of baselines there, or remove it"


@pytest.mark.parametrize("layer", LAYERS)
def test_a_file_that_is_not_there_is_none_and_a_link_to_one_is_read(
    tmp_path: Path, layer: str
) -> None:
    """Nor is one below what is no folder."""
    builtin = load(NONE, [], NONE)
    (tmp_path / "plain").touch()
    assert loaded(tmp_path / "baselines.yaml", layer) == builtin
    assert loaded(tmp_path / "plain" / "baselines.yaml", layer) == builtin

    (tmp_path / "ours.yaml").write_text(OURS)
    (tmp_path / "baselines.yaml").symlink_to("ours.yaml")
    assert len(loaded(tmp_path / "baselines.yaml", layer).values) == len(builtin.values) + 1
