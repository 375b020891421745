"""Vision towers: what they hold, keep and take in training and in serving."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import planner
from planner.errors import SpecError
from planner.estimators.training.flops import model_flops_per_token
from planner.estimators.training.training_estimate import Estimate
from planner.layers.model import count_parameters, tower_parameters
from planner.show.presenters.json_files import save_plan
from planner.specs.catalogue import load_model
from planner.specs.spec_paths import SpecKind, spec_folders
from planner.workloads.saved_plan import SavedPlan

TOWER = 676_550_144
"""Qwen2.5-VL-7B: 8,292,166,656 parameters less the 7,615,616,512 of Qwen2.5-7B."""
LAYERS = 32 * 19_702_200
PROJECTOR = 1280 + 5120 * 5121 + 5121 * 3584
PATCHES = 4 * 27**2
"""Of an image of 768 x 768 pixels, of which 28 x 28 become a token."""
SETTINGS = {"zero_stage": 3, "recompute": "full", "micro_batch_size": 2}


def trained(**request: Any) -> Estimate:
    asked = {
        "model": "qwen2.5-vl-7b",
        "num_gpus": 8,
        "gpu": "h100",
        "framework": "fsdp",
        "sequence_length": 4096,
        "global_batch_size": 64,
        "settings": SETTINGS,
    }
    estimate: Estimate = planner.estimate(**{**asked, **request}).estimate
    return estimate


def served(**request: Any) -> dict[str, Any]:
    asked = {
        "workload": "serve",
        "model": "qwen2.5-vl-7b",
        "num_gpus": 1,
        "gpu": "h100",
        "engine": "vllm",
        "input_tokens": 2048,
        "output_tokens": 128,
        "settings": {"concurrency": 1},
    }
    return planner.estimate(**{**asked, **request}).candidates.row


def part(estimate: Estimate, name: str) -> float:
    return float(np.ravel(getattr(estimate.memory.fullest, name))[0])


def seconds(estimate: Estimate, name: str) -> float:
    return float(np.ravel(estimate.time.parts()[name])[0])


def test_tower_and_language_model_are_the_whole_checkpoint() -> None:
    """Totals of model cards, 21 of 25 of them to the last 10,000 parameters."""
    names = [
        path.stem
        for folder in spec_folders(SpecKind.MODELS)
        for path in folder.glob("*.toml")
        if "[vision_tower]" in path.read_text()
    ]
    towers = {name: load_model(name).vision_tower for name in names}
    published = {name: one for name, one in towers.items() if one and one.published_parameters}
    assert len(published) >= 25
    for name, tower in published.items():
        assert tower.source
        whole = count_parameters(load_model(name)).total + tower_parameters(tower)
        assert whole == pytest.approx(tower.published_parameters, rel=2e-3), name


def test_the_tower_of_qwen2_5_vl_is_that_of_its_checkpoint() -> None:
    tower = load_model("qwen2.5-vl-7b").vision_tower
    assert tower is not None
    assert tower_parameters(tower) == TOWER == LAYERS + 1176 * 1280 + PROJECTOR
    assert tower.tokens_per_image == 27**2


QWEN3_5 = {
    # layers, width, width of the MLPs, width of the language model
    "qwen3.5-0.8b": (12, 768, 3072, 1024),
    "qwen3.5-2b": (24, 1024, 4096, 2048),
    "qwen3.5-4b": (24, 1024, 4096, 2560),
    "qwen3.5-9b": (27, 1152, 4304, 4096),
    "qwen3.5-27b": (27, 1152, 4304, 5120),
    "qwen3.5-35b-a3b": (27, 1152, 4304, 2048),
    "qwen3.5-122b-a10b": (27, 1152, 4304, 3072),
    "qwen3.5-397b-a17b": (27, 1152, 4304, 4096),
}


@pytest.mark.parametrize("name", QWEN3_5)
def test_a_tower_of_qwen3_5_has_the_weights_of_its_blocks_and_one_merger(name: str) -> None:
    """huggingface/transformers, modeling_qwen3_5.py: two norms, qkv, proj, two of an MLP."""
    depth, h, inner, out = QWEN3_5[name]
    block = 4 * h * (h + 1) + 2 * h * inner + inner + h + 4 * h
    patches = 3 * 2 * 16**2 * h + h + 2304 * h
    merger = 2 * h + 4 * h * (4 * h + 1) + (4 * h + 1) * out
    tower = load_model(name).vision_tower
    assert tower is not None
    assert tower_parameters(tower) == depth * block + patches + merger


@pytest.mark.parametrize(("name", "width"), [("gemma-4-31b", 5376), ("gemma-4-26b-a4b", 2816)])
def test_the_tower_of_gemma_4_is_that_of_its_checkpoint(name: str, width: int) -> None:
    """569,550,384 parameters (rnagabh/gemma4-vision-encoder: that of gemma-4-31B-it), and the
    matrix between it and the language model."""
    tower = load_model(name).vision_tower
    assert tower is not None
    assert tower_parameters(tower) == 569_550_384 + 1152 * width
    assert tower.tokens_per_image == 256


def test_a_trained_tower_is_sharded_with_all_its_states() -> None:
    """FSDP keeps 4 bytes of a weight, 4 of a gradient, 8 of moments."""
    text, seeing = trained(), trained(images_per_sample=2)
    for name, width in (("weights", 4), ("gradients", 4), ("optimizer_states", 8)):
        more = part(seeing, name) - part(text, name)
        assert more == pytest.approx(width * TOWER / 8), name


def test_a_frozen_tower_has_weights_alone_and_no_backward_pass() -> None:
    text, frozen = trained(), trained(images_per_sample=2, freeze_vision_tower=True)
    assert part(frozen, "weights") - part(text, "weights") == pytest.approx(2 * TOWER / 8)
    for name in ("gradients", "optimizer_states", "activations"):
        assert part(frozen, name) == part(text, name), name
    for name in ("backward", "recompute", "optimizer"):
        assert seconds(frozen, name) == seconds(text, name), name
    assert seconds(frozen, "forward") > 1.1 * seconds(text, "forward")


def test_beside_an_adapter_the_tower_is_frozen() -> None:
    asked = {"adapter": "lora", "framework": "hf-trainer"}
    text, seeing = trained(**asked), trained(**asked, images_per_sample=2)
    assert part(seeing, "weights") - part(text, "weights") == pytest.approx(2 * TOWER / 8)
    assert seconds(seeing, "backward") == seconds(text, "backward")


def test_a_trained_tower_keeps_the_inputs_of_its_layers() -> None:
    """Full recomputation: 2 bytes for each of 1,280 numbers of the patches of 2 x 2 images."""
    text, seeing = trained(), trained(images_per_sample=2)
    kept = 32 * 2 * 1280 * PATCHES * 4
    assert part(seeing, "activations") - part(text, "activations") == pytest.approx(kept)


@pytest.mark.parametrize(("freeze", "passes"), [(False, 3), (True, 1)])
def test_flops_of_images_are_those_of_patches(freeze: bool, passes: int) -> None:
    """28 layers attend to windows of 64 patches, 4 to all of an image."""
    setting = trained(images_per_sample=2, freeze_vision_tower=freeze).inputs
    text = trained().inputs
    each = 2 * (LAYERS + 1176 * 1280) + 4 * 1280 * (28 * 64 + 4 * PATCHES)
    image = PATCHES * each + 27**2 * 2 * PROJECTOR
    more = model_flops_per_token(setting.model, 4096, setting)
    more -= model_flops_per_token(text.model, 4096, text)
    assert more == pytest.approx(passes * 2 * image / 4096)


def test_images_take_at_least_what_their_flops_take_at_the_peak() -> None:
    text, seeing = trained(), trained(images_per_sample=2, freeze_vision_tower=True)
    flops = 2 * 64 / 8 * (PATCHES * 2 * LAYERS + 27**2 * 2 * PROJECTOR)
    more = seconds(seeing, "forward") - seconds(text, "forward")
    assert flops / 989e12 < more < 3 * flops / 989e12


def test_the_tower_stands_on_the_first_stage() -> None:
    settings = {"pipeline_parallel": 2, "micro_batch_size": 1, "recompute": "full"}
    asked = {"framework": "megatron-lm", "settings": settings}
    text, seeing = trained(**asked), trained(**asked, images_per_sample=1)
    first, last = (np.ravel(seeing.time.stage_times[k])[0] for k in (0, -1))
    usual = [np.ravel(text.time.stage_times[k])[0] for k in (0, -1)]
    assert first > 1.05 * usual[0]
    assert last == pytest.approx(usual[1])


def test_serving_keeps_the_tower_beside_the_language_model() -> None:
    held = served()["memory_weights_gib"] * 2**30
    assert held == pytest.approx(2 * 8_292_166_656, rel=1e-6)


def test_the_first_token_waits_for_the_images_of_the_prompt() -> None:
    one, two = served(images_per_sample=1), served(images_per_sample=2)
    flops = PATCHES * 2 * LAYERS + 27**2 * 2 * PROJECTOR
    more = two["time_to_first_token_s"] - one["time_to_first_token_s"]
    assert flops / 989e12 < more < 4 * flops / 989e12
    assert one["time_per_output_token_s"] == pytest.approx(served()["time_per_output_token_s"])


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ({"images_per_sample": 20}, "14,580 of the 4,096 tokens"),
        ({"model": "llama-3.1-8b", "images_per_sample": 1}, "is a text model"),
        ({"adapter": "lora", "freeze_vision_tower": False}, "is frozen with an adapter"),
        ({"tokens_per_image": 100}, "images_per_sample"),
    ],
)
def test_images_that_cannot_be_are_refused(request_: dict[str, Any], said: str) -> None:
    with pytest.raises((SpecError, planner.errors.SearchSpaceError), match=re.escape(said)):
        trained(**request_)


def test_a_plan_of_images_is_read_again_as_it_was(tmp_path: Path) -> None:
    one = planner.estimate(
        model="qwen2.5-vl-7b", num_gpus=8, gpu="h100", framework="fsdp", sequence_length=4096,
        global_batch_size=64, images_per_sample=2, freeze_vision_tower=True, settings=SETTINGS,
    )  # fmt: skip
    path = tmp_path / "plan.toml"
    save_plan(path, one.plan, one.candidates)
    assert "freeze_vision_tower = true" in path.read_text()
    again = SavedPlan.read(path)
    assert again.answers["images_per_sample"] == 2
