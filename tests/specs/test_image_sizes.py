"""Tokens of images, against the processors of the models and what their publishers say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import planner
from planner.errors import PlannerError
from planner.show.presenters.json_files import save_plan
from planner.specs.catalogue import load_model
from planner.specs.image_processing import count_image_tokens
from planner.workloads.saved_plan import SavedPlan

SIZES = [
    # model, width, height, tiles, tokens
    # 28 pixels a token, rounded: 37 x 37, 23 x 17, 69 x 39; 4 to 16,384 tokens (the model's card)
    ("qwen2.5-vl-7b", 1024, 1024, 1, 1369),
    ("qwen2.5-vl-7b", 640, 480, 1, 23 * 17),
    ("qwen2.5-vl-7b", 1920, 1080, 1, 69 * 39),
    ("qwen2.5-vl-7b", 10, 10, 1, 4),
    ("qwen2.5-vl-7b", 8000, 6000, 1, 147 * 110),
    # 32 pixels a token; 64 to 16,384
    ("qwen3-vl-8b", 1024, 1024, 1, 32 * 32),
    ("qwen3-vl-8b", 100, 100, 1, 64),
    # 256 tokens of each image of 896 x 896 pixels (arXiv:2503.19786, section 2)
    ("gemma-3-27b", 1024, 1024, 1, 256),
    ("gemma-3-27b", 300, 2000, 1, 256),
    # 144 tokens of a tile of 336 pixels; 4 x 4 of them and the whole
    ("llama-4-scout-17b-16e", 1024, 1024, 17, 17 * 144),
    ("llama-4-scout-17b-16e", 336, 336, 1, 144),
    ("llama-4-scout-17b-16e", 640, 480, 5, 5 * 144),
    # 256 tokens of a tile of 448 pixels; 3 x 3, 4 x 3, 1 x 1
    ("internvl3-8b", 1024, 1024, 10, 10 * 256),
    ("internvl3-8b", 640, 480, 13, 13 * 256),
    ("internvl3-8b", 448, 448, 1, 256),
    # 28 pixels a token and one for each row; 55 rows of 55 at most
    ("mistral-small-3.1-24b", 1540, 1540, 1, 55 * 56),
    ("mistral-small-3.1-24b", 4000, 2000, 1, 55 * 28 + 28),
    ("mistral-small-3.1-24b", 300, 200, 1, 11 * 8 + 8),
    # as Qwen's, of two frames with 9,633,792 pixels together
    ("glm-4.1v-9b", 1024, 1024, 1, 37 * 37),
    ("glm-4.1v-9b", 8000, 6000, 1, 90 * 67),
]


@pytest.mark.parametrize(("model", "width", "height", "tiles", "tokens"), SIZES)
def test_an_image_has_the_tokens_of_its_processor(
    model: str, width: int, height: int, tiles: int, tokens: int
) -> None:
    tower = load_model(model).vision_tower
    assert tower is not None
    found = count_image_tokens(tower, width, height)
    assert found is not None
    assert (found.tiles, found.tokens) == (tiles, tokens)


ASKED: dict[str, Any] = {
    "workload": "serve",
    "model": "qwen2.5-vl-7b",
    "gpu": "h100",
    "num_gpus": 1,
    "engine": "vllm",
    "output_tokens": 64,
    "settings": {"concurrency": 8},
}


def served(**more: Any) -> dict[str, Any]:
    return planner.estimate(**{**ASKED, **more}).candidates.row


def test_a_prompt_has_its_text_and_its_images() -> None:
    row = served(images_per_sample=2, image_size="1024x1024")
    given = served(images_per_sample=2, tokens_per_image=1369, input_tokens=1024 + 2 * 1369)
    assert given == row
    assert row["encoder_time_s"] > 0
    share = row["requests_per_s"] * row["encoder_time_s"]
    assert row["encoder_share"] == pytest.approx(share)
    assert "encoder_time_s" not in served(input_tokens=3762)


def test_published_prompts_have_their_images() -> None:
    found = planner.estimate(
        **{k: v for k, v in ASKED.items() if k != "output_tokens"}, lengths="servegen-image"
    )
    work = found.plan.problem.inputs.workload
    assert (work.input_tokens, work.images_per_sample, work.tokens_per_image) == (1222, 1, 650)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_images_take_memory_beside_a_step(engine: str) -> None:
    """What they were made to is kept, beside the working set of the prompt: 16 bit of a token.

    vLLM has room for the largest image from its start on.
    """
    size = {"image_size": "4000x3000", "images_per_sample": 1, "engine": engine}
    text, seeing = served(input_tokens=16_000, engine=engine), served(**size, input_tokens=16_000)
    more = seeing["memory_activations_gib"] - text["memory_activations_gib"]
    kept = 2 * 15_301 * 3584 / 2**30  # more than the 8,192 tokens of a step
    assert more == 0 if engine == "vllm" else more > kept


def test_a_plan_has_the_tokens_beside_the_size(tmp_path: Path) -> None:
    asked = {**ASKED, "image_size": "1024x1024", "images_per_sample": 2}
    one = planner.estimate(**asked)
    save_plan(tmp_path / "plan.toml", one.plan, one.candidates)
    again = planner.estimate(base=SavedPlan.read(tmp_path / "plan.toml").request())
    assert again.candidates.row == one.candidates.row
    planner.write_launch(
        "vllm", tmp_path / "out", **{**asked, "model": "Qwen/Qwen2.5-VL-7B-Instruct"}
    )
    benchmark = (tmp_path / "out" / "benchmark.sh").read_text()
    assert "--random-input-len 1024" in benchmark
    assert "--random-mm-base-items-per-request 2" in benchmark
    assert "{(1024, 1024, 1): 1.0}" in benchmark


def test_tiles_do_not_see_each_other() -> None:
    """17 tiles take what 17 images of a tile take, whose patches attend to their own tile."""
    asked = {"model": "internvl3-8b", "input_tokens": 4096}
    tiled = served(**asked, images_per_sample=1, tokens_per_image=2560)
    apart = served(**asked, images_per_sample=10, tokens_per_image=256)
    assert tiled["encoder_time_s"] == pytest.approx(apart["encoder_time_s"])


def test_images_found_in_the_prefix_cache_are_not_seen_again() -> None:
    asked = {"images_per_sample": 1, "image_size": "1024x1024"}
    once, half = served(**asked), served(**asked, prefix_cache_hit_rate=0.5)
    assert half["encoder_time_s"] < 0.6 * once["encoder_time_s"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"image_size": "1024"}, "is width x height in pixels"),
        ({"image_size": "0x10"}, "is width x height in pixels"),
        ({"image_size": "10x10", "tokens_per_image": 5}, "do not agree: give one"),
        ({"image_size": "10x10", "model": "kimi-vl-a3b"}, "is not known: give tokens_per_image"),
        ({"image_size": "900x900", "input_tokens": 500}, "1,024 of the 500 tokens"),
        ({"image_size": "10x10", "images_per_sample": None}, "needs images_per_sample"),
    ],
)
def test_sizes_that_cannot_be_are_refused(more: dict[str, Any], said: str) -> None:
    with pytest.raises(PlannerError, match=re.escape(said)):
        served(**{"images_per_sample": 1, **more})
