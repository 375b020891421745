"""Sound in prompts: tokens by the second, the encoder's parameters, time and memory."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import planner
from planner.errors import PlannerError
from planner.layers.model import tower_parameters
from planner.show.presenters.json_files import save_plan
from planner.specs.catalogue import load_model
from planner.specs.image_processing import audio_tokens
from planner.workloads.saved_plan import SavedPlan

LAYERS = 32 * (4 * 1280 * 1281 + 2 * 1280 * 5120 + 5120 + 1280 + 4 * 1280)
STEM = 3 * 128 * 1280 + 3 * 1280 * 1280
ASKED: dict[str, Any] = {
    "workload": "serve",
    "model": "qwen2-audio-7b",
    "gpu": "h100",
    "num_gpus": 1,
    "engine": "vllm",
    "output_tokens": 64,
    "settings": {"concurrency": 4},
}


def served(**more: Any) -> dict[str, Any]:
    return planner.estimate(**{**ASKED, **more}).candidates.row


def test_a_token_is_40_ms_of_sound() -> None:
    """arXiv:2407.10759, section 2: 30 s are 750 tokens; so of Qwen2.5-Omni (arXiv:2503.20215)."""
    for name in ("qwen2-audio-7b", "qwen2.5-omni-7b", "qwen2.5-omni-3b"):
        tower = load_model(name).audio_tower
        assert tower is not None
        assert (audio_tokens(tower, 30), audio_tokens(tower, 0.5)) == (750, 12)


def test_the_encoder_is_that_of_whisper_large_v3() -> None:
    """Two convolutions of three over 128 mel bands, and 32 layers of 1,280."""
    tower = load_model("qwen2-audio-7b").audio_tower
    assert tower is not None
    assert tower_parameters(tower) == STEM + LAYERS + 1280 * 4096 + 4096
    weights = served(audio_seconds=1)["memory_weights_gib"] * 2**30
    assert weights == pytest.approx(2 * 8.4e9, rel=0.01)  # "8.2B" in the paper


def test_sound_is_filled_up_to_30_seconds_where_the_encoder_does() -> None:
    short, half = (
        served(audio_seconds=5, input_tokens=2048),
        served(audio_seconds=30, input_tokens=2048),
    )
    assert short["encoder_time_s"] == half["encoder_time_s"] > 0
    two = served(audio_seconds=31, input_tokens=2048)["encoder_time_s"]
    assert 1.5 < two / half["encoder_time_s"] <= 2
    flops = 2 * 1500 * (LAYERS + STEM)
    assert flops / 989e12 < half["encoder_time_s"] < 6 * flops / 989e12
    omni = {"model": "qwen2.5-omni-7b", "input_tokens": 4096}
    times = [served(**omni, audio_seconds=n)["encoder_time_s"] for n in (20, 120)]
    assert times[1] > 3 * times[0]


def test_a_prompt_has_its_text_and_its_sound(tmp_path: Path) -> None:
    row = served(audio_seconds="30s")
    assert row == served(audio_seconds=30, input_tokens=1024 + 750)
    later = row["time_to_first_token_s"] - served(input_tokens=1774)["time_to_first_token_s"]
    assert later >= row["encoder_time_s"]
    assert row["encoder_share"] == pytest.approx(row["requests_per_s"] * row["encoder_time_s"])


def test_a_plan_of_sound_is_read_again_as_it_was(tmp_path: Path) -> None:
    one = planner.estimate(**ASKED, audio_seconds=30)
    save_plan(tmp_path / "plan.toml", one.plan, one.candidates)
    assert SavedPlan.read(tmp_path / "plan.toml").answers["audio_seconds"] == 30


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"audio_seconds": 30, "input_tokens": 700}, "are 750 tokens of the 700 of a prompt"),
        ({"audio_seconds": 5, "model": "llama-3.1-8b"}, "has no audio tower"),
        ({"audio_seconds": "5"}, "needs a unit, as in 5s"),
        ({"audio_seconds": -5}, "audio_seconds"),
    ],
)
def test_sound_that_cannot_be_is_refused(more: dict[str, Any], said: str) -> None:
    with pytest.raises(PlannerError, match=re.escape(said)):
        served(**more)
