"""Recipes of NeMo AutoModel at 36044ad: how it shards, what it refuses, what is not predicted."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.errors import LaunchError
from planner.launch.read.read_launch import read_launch

_YAML = """
recipe: {recipe}
step_scheduler: {{global_batch_size: {batch}, local_batch_size: 4}}
model:
  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained
  pretrained_model_name_or_path: Qwen/Qwen3-30B-A3B
distributed: {{{distributed}}}
skypilot: {{accelerators: H100:8, num_nodes: 2}}
"""


def _read(
    folder: Path,
    distributed: str = "",
    batch: int = 64,
    recipe: str = "TrainFinetuneRecipeForNextTokenPrediction",
) -> dict[str, object]:
    path = folder / "x.yaml"
    path.write_text(_YAML.format(recipe=recipe, batch=batch, distributed=distributed))
    return dict(read_launch(path).values)


# components/distributed/parallelizer.py and moe/parallelizer.py: layers of stages and experts
# stay gathered unless they are told otherwise.
@pytest.mark.parametrize(
    ("distributed", "stage"),
    [
        ("strategy: fsdp2", 3),
        ("reshard_after_forward: false", 2),
        ("ep_size: 8", 2),
        ("ep_size: 8, moe: {reshard_after_forward: true}", 3),
        ("pp_size: 2, pipeline: {}", 2),
        ("strategy: ddp", 0),
        ("strategy: megatron_fsdp", 3),
    ],
)
def test_what_is_sharded(tmp_path: Path, distributed: str, stage: int) -> None:
    assert _read(tmp_path, distributed)["zero_stage"] == stage


def test_a_cloud_tells_gpus(tmp_path: Path) -> None:
    found = _read(tmp_path)

    assert (found["num_gpus"], found["gpu"]) == (16, "h100-sxm-80gb")


def test_a_batch_that_its_ranks_do_not_divide_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=r"48 is not a multiple of local_batch_size 4 x .* = 64"):
        _read(tmp_path, batch=48)


def test_gpus_that_the_layout_does_not_divide_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=r"starts on 16 GPUs, but pipeline_parallel 128 takes"):
        _read(tmp_path, "pp_size: 128")


@pytest.mark.parametrize(
    ("layers_per_stage", "rounding", "chunks"),
    [(6, "up", 4), (6, "down", 4), (5, "up", 5), (7, "down", 3), (12, "up", 2)],
)
def test_chunks_of_a_pipeline_of_48_layers(
    tmp_path: Path, layers_per_stage: int, rounding: str, chunks: int
) -> None:
    pipeline = f"pp_schedule: interleaved1f1b, layers_per_stage: {layers_per_stage}"
    rounded = f"round_virtual_stages_to_pp_multiple: {rounding}"
    found = _read(tmp_path, f"pp_size: 2, pipeline: {{{pipeline}, {rounded}}}")
    assert (found["virtual_pipeline"], found["micro_batch_size"]) == (chunks, 1)


def test_distillation_is_not_predicted(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=r"recipe KnowledgeDistillationRecipe.* is not predicted"):
        _read(tmp_path, recipe="KnowledgeDistillationRecipeForNextTokenPrediction")


@pytest.mark.parametrize(
    ("recipe", "more", "frozen"),
    [
        ("TrainFinetuneRecipeForNextTokenPrediction", "", None),
        ("FinetuneRecipeForVLM", "", True),
        ("FinetuneRecipeForVLM", "freeze_config: {freeze_vision_tower: false}", False),
    ],
)
def test_only_recipes_with_images_freeze_a_tower(
    tmp_path: Path, recipe: str, more: str, frozen: bool | None
) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(_YAML.format(recipe=recipe, batch=64, distributed="") + more)
    assert read_launch(path).values.get("freeze_vision_tower") is frozen


def test_a_command_needs_its_file(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("automodel finetune llm -c gone.yaml --nproc-per-node 8")

    with pytest.raises(LaunchError, match=r"gone\.yaml .* is not in this folder"):
        read_launch(tmp_path / "run.sh")
