"""train and train_fsdp: what they print and leave behind when all is well."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rv.payloads._training.models import HUB_TEXT
from tests.payloads.starting import Launcher, python, torchrun


def test_the_seeds_command_line_passes(tmp_path: Path) -> None:
    """One epoch of ten steps on two ranks, under the real torchrun, with its JSON file."""
    pytest.importorskip("torch")
    words = ["--device", "cpu", "--train-smoke", "--epochs", "1", "--steps", "10"]

    done = torchrun("train", tmp_path, *words, RV_CHECKPOINT_DIR=str(tmp_path / "kept"))

    assert done.code == 0, done.out + done.err
    assert "[DDP] rank 1/2 -> node 0 " in done.out
    assert "[TRAIN] cpu: world=2 ranks counted=2 loss " in done.out
    statuses = {test["name"]: test["status"] for test in done.result["tests"]}
    wanted = (
        "layout", "gradients", "replicas", "sums", "updates", "train", "communication", "checkpoint",
    )  # fmt: skip
    assert statuses == {f"ddp.{name}": "PASS" for name in wanted}
    alias = json.loads((tmp_path / "ddp_training_result.json").read_text())
    assert (alias["world"], alias["epochs"], alias["steps"]) == (2, 1, 10)
    assert alias["improved"] is True
    assert alias["loss_end"] < 0.8 * alias["loss_start"]
    assert (tmp_path / "kept" / "train.pt").stat().st_size > 100_000


def test_every_world_sees_the_same_batches(launch: Launcher, tmp_path: Path) -> None:
    """The losses do not depend on the number of ranks, but for the order of sums."""
    short = ["--quick", "--epochs", "2", "--steps", "5", "--batch-size", "256"]
    losses = []
    for world in (1, 2):
        folder = tmp_path / str(world)
        folder.mkdir()
        words = ["--device", "cpu", *short]
        done = launch("train", folder, *words, world=world)
        assert done.code == 0, done.out + done.err
        losses.append(done.test("ddp.train")["details"]["losses"])

    assert len(losses[0]) == 10
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_sharded_training_passes(tmp_path: Path) -> None:
    """Under the real torchrun: half of the parameters each, gradients equal, checkpoint too."""
    pytest.importorskip("torch")
    done = torchrun("train_fsdp", tmp_path, "--device", "cpu", "--steps", "10")

    assert done.code == 0, done.out + done.err
    tests = {(test["name"], test["rank"]): test for test in done.result["tests"]}
    for name in ("gradients", "shard", "sums", "updates", "train", "checkpoint"):
        assert [tests[f"fsdp.{name}", rank]["status"] for rank in (0, 1)] == ["PASS", "PASS"]
    assert tests["fsdp.shard", 0]["details"]["share"] == pytest.approx(0.5, abs=0.1)
    assert tests["fsdp.gradients", 1]["details"]["relative_difference"] < 1e-4
    assert tests["fsdp.checkpoint", 0]["details"]["bytes"] > 100_000
    assert not (tmp_path / "train_fsdp.dcp").exists()


@pytest.mark.parametrize("kind", ["GPT2", "Llama"])
def test_a_hub_model_is_sharded_layer_by_layer(launch: Launcher, tmp_path: Path, kind: str) -> None:
    """Two architectures that name their layers differently; tiny, and from a folder."""
    tiny_model(kind, tmp_path / "model")
    words = ["--device", "cpu", "--hf-model", tmp_path / "model", "--steps", "10"]

    done = launch("train_fsdp", tmp_path, *words, world=2, HF_HUB_OFFLINE="1")

    assert done.last.startswith("[RESULT] PASS: 2 ranks: "), done.out + done.err
    assert done.test("fsdp.shard")["details"]["share"] == pytest.approx(0.5, abs=0.1)


def tiny_model(kind: str, folder: Path) -> None:
    """Save a model of two layers, with a tokenizer of whole words."""
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    words = Tokenizer(models.WordLevel(unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.train_from_iterator([HUB_TEXT], trainers.WordLevelTrainer(special_tokens=["?"]))
    transformers.PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(folder)
    sizes = {"vocab_size": words.get_vocab_size(), "bos_token_id": 0, "eos_token_id": 0}
    layers = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    layers["intermediate_size"] = 64  # Llama's own is 11,008
    config = getattr(transformers, f"{kind}Config")(**sizes, **layers)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)


def test_hub_models_need_transformers(tmp_path: Path) -> None:
    """Without the package that is said, and it is no failure of the node."""
    pytest.importorskip("torch")
    (tmp_path / "transformers.py").write_text("raise ImportError('hidden')\n")
    words = ["--device", "cpu", "--hf-model", "some/model"]

    done = python("train_fsdp", tmp_path, *words, PYTHONPATH=str(tmp_path))

    assert done.code == 99
    assert done.last.startswith("[RESULT] ERROR: --hf-model needs the package transformers")


@pytest.mark.parametrize(("dtype", "wrong"), [("bfloat16", 1), ("float32", 1), ("bfloat16", 0)])
def test_one_wrong_element_of_a_gradient_is_found(dtype: str, wrong: int) -> None:
    """In bfloat16 it is lost in the length of all, whose rounding is larger."""
    torch: Any = pytest.importorskip("torch")
    from _training import models, sums

    batch = models.tokens(7, 8)(0)
    compared = sums.Sums(models.decoder(7), "cpu", [0])
    model = models.decoder(7).to(getattr(torch, dtype))
    if dtype == "bfloat16":
        compared.round_to(torch.bfloat16)
    models.loss_of(model(batch[0]), batch[1]).backward()
    parameters = list(model.parameters())
    for parameter in parameters[-1:][:wrong]:
        usual = parameter.grad.abs().sort().indices[parameter.numel() // 2]
        parameter.grad[usual] *= -1
    compared.before(0, parameters)

    compared.after(0, parameters, [batch])

    assert bool(compared._wrong()) == bool(wrong), compared.elements
    assert (compared.differences[0] <= compared.gate) == (dtype == "bfloat16")


def test_an_update_is_adamws() -> None:
    """The formula is torch's; and a parameter that had no gradient is not to change."""
    torch: Any = pytest.importorskip("torch")
    from _harness.inject import Faults
    from _training.updates import Updates

    weights = [torch.nn.Parameter(torch.randn(5, 3)), torch.nn.Parameter(torch.randn(4))]
    optimizer = torch.optim.AdamW(weights, lr=0.1)
    session: Any = SimpleNamespace(faults=Faults([], 0))
    updates = Updates(session, optimizer)
    updates.most = 4  # so that the first one is compared in four parts, in turn
    for step in range(8):
        updates.before(step)
        weights[0].grad = torch.randn(5, 3)
        weights[1].grad = torch.randn(4) if step % 2 else None
        optimizer.step()
        updates.after(step)
    assert (updates.found, updates.steps) == ([], 8)
    assert (updates.compared, updates.elements) == (8 * 4 + 2 * 15, 8 * (4 + 15))
    assert 0 < updates.worst < 0.5

    updates.before(8)
    weights[1].grad = None
    optimizer.step()
    weights[1].data[2] += 1e-4
    updates.after(8)

    assert updates.found == ["step 8: weights or moments are not what AdamW makes of them"]


def test_a_collective_that_does_nothing_is_seen_by_who_counts() -> None:
    """What it was to find out about the ranks is what it was to carry."""
    torch: Any = pytest.importorskip("torch")
    from _training import checks
    from contract.verdicts import NotPassed
    from train import count

    dist = SimpleNamespace(all_gather=lambda *_: None, all_reduce=lambda *_: None)
    ranks = SimpleNamespace(rank=0, world=2)
    group: Any = SimpleNamespace(dist=dist, ranks=ranks, torch=torch, device="cpu", hosts=["a"] * 2)

    with pytest.raises(NotPassed, match="a one from each of 2 ranks adds up to 1"):
        count(group)
    with pytest.raises(NotPassed, match="delivered other parts than the ranks gave"):
        checks.require_equal(torch.nn.Linear(3, 3), group, 0)
    # Each rank's own part in place of the others'.
    dist.all_gather = lambda every, own: [each.copy_(own) for each in every]
    with pytest.raises(NotPassed, match="delivered other parts than the ranks gave"):
        checks.require_equal(torch.nn.Linear(3, 3), group, 0)


@given(world=st.integers(1, 40), shapes=st.lists(st.tuples(st.integers(1, 20), st.integers(1, 5))))
def test_no_rank_holds_more_than_fsdp_gives_one(world: int, shapes: list[tuple[int, int]]) -> None:
    """Eight experts over seven ranks are two for one of them: 1.7 times its even share."""
    torch = pytest.importorskip("torch")
    from _training.shards import share_of

    def held(rank: int) -> list[Any]:
        parts = []
        for shape in shapes:
            chunks = torch.zeros(shape).chunk(world)
            part = chunks[rank] if rank < len(chunks) else torch.zeros(0)
            whole = SimpleNamespace(shape=shape, dim=lambda: 2, numel=lambda n=shape: n[0] * n[1])
            whole.to_local = lambda part=part: part
            parts.append(whole)
        return parts

    assert all(share_of(held(rank), world).is_right for rank in range(world))
    whole = [torch.zeros(8, 4)]
    assert share_of(whole, world).is_right is (world == 1)
