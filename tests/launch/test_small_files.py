"""Small files as people write them: what they train, and the memory of it, worked by hand."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from commands import Command

from planner.launch.read.read_launch import read_launch

FILES = Path(__file__).parent / "small"
_GIB = 2**30


def row_of(planner: Command, name: str, num_gpus: int = 8) -> dict[str, Any]:
    """The row of an answer; of a configuration that does not fit what is printed of it."""
    asked = ("estimate", "--from", FILES / name, "--gpu", "h100-sxm", "--gpus", str(num_gpus))
    ran = planner(*asked, "--json", "-")
    if ran.out:
        row: dict[str, Any] = json.loads(ran.out)["rows"][0]
        return row
    out = planner(*asked, "--full").out
    said = read_launch(FILES / name).values
    parts = re.findall(r"^(weights|gradients|optimizer states) +([\d.]+)", out, re.MULTILINE)
    counts = re.findall(r"(\w+)=(\w+)", out)
    return {
        **{name: int(text) if text.isdecimal() else text for name, text in counts},
        **{f"memory_{part.replace(' ', '_')}_gib": float(text) for part, text in parts},
        "peak_memory_gib": float(re.findall(r"^peak +([\d.]+)", out, re.MULTILINE)[0]),
        "sequence_length": int(str(said["sequence_length"])),
        "adapter": said.get("adapter", "none"),
    }


# Batches are micro-batch x accumulated steps x ranks; the rest is what each program does with
# the file: TRL, LLaMA-Factory and ms-swift repeat every layer unless told, Transformers does not.
SAID = {
    "axolotl-dpo.yaml": (8, 2, 64, 2048, 0, "full", "qlora"),
    "axolotl-long.yaml": (8, 1, 8, 65536, 0, "full", "none"),
    "trainer-flag.sh": (8, 2, 64, 4096, 3, "full", "none"),
    "trainer-zero3.yaml": (8, 4, 64, 8192, 3, "none", "none"),
    "factory-dpo.yaml": (8, 1, 32, 2048, 3, "full", "none"),
    "factory-full.yaml": (8, 1, 32, 2048, 3, "full", "none"),
    "factory-qlora.yaml": (8, 1, 64, 2048, 0, "full", "qlora"),
    "factory-packing.yaml": (8, 1, 64, 2048, 0, "full", "qlora"),
    "megatron-experts.sh": (16, 1, 64, 4096, 1, "none", "none"),
    "swift-experts.sh": (8, 1, 16, 4096, 1, "full", "lora"),
    "swift.sh": (4, 1, 32, 4096, 2, "full", "lora"),
    "trl-dpo.sh": (8, 2, 64, 2048, 3, "full", "none"),
}
NAMES = (
    *("micro_batch_size", "global_batch_size", "sequence_length", "zero_stage", "recompute"),
    "adapter",
)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", SAID)
def test_a_file_is_estimated_as_its_program_runs_it(planner: Command, name: str) -> None:
    num_gpus, *wanted = SAID[name]
    row = row_of(planner, name, int(num_gpus))

    assert [row[each] for each in NAMES] == wanted
    assert row["precision"] == "bf16"


def test_preferences_are_told_from_answers() -> None:
    of_pairs = {name for name in SAID if "dpo" in name}
    for name in SAID:
        if name != "megatron-experts.sh":
            objective = read_launch(FILES / name).values["training_objective"]
            assert objective == ("dpo" if name in of_pairs else "sft")


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("name", "parameters", "gpus", "reference"),
    [
        ("trainer-flag.sh", 8.030e9, 8, 0),
        ("trainer-zero3.yaml", 8.030e9, 8, 0),
        ("factory-full.yaml", 14.77e9, 8, 0),
        ("factory-dpo.yaml", 14.77e9, 8, 2),
    ],
)
def test_all_parameters_take_16_bytes_and_those_of_a_reference_2(
    planner: Command, name: str, parameters: float, gpus: int, reference: int
) -> None:
    """Weights, gradients, Adam: 2 + 2 + 12 bytes under DeepSpeed, 4 + 4 + 8 under DDP's autocast.

    ZeRO-3 splits them over all ranks, a reference model's 16-bit weights too.
    """
    row = row_of(planner, name)
    parts = ("weights", "gradients", "optimizer_states")
    kept = sum(row[f"memory_{part}_gib"] for part in parts)

    assert kept == pytest.approx((16 + reference) * parameters / gpus / _GIB, rel=0.002)


@pytest.mark.few(1)
def test_gradients_under_fsdp_wait_whole_until_the_last_micro_batch(planner: Command) -> None:
    """Accelerator.no_sync: whole 16-bit gradients, no shards of them before they are scattered.

    Weights, a reference's and Adam take 4 + 2 + 8 bytes, split over 8 ranks.
    """
    row, parameters = row_of(planner, "trl-dpo.sh"), 7.616e9 / _GIB

    states = row["memory_weights_gib"] + row["memory_optimizer_states_gib"]
    assert states == pytest.approx((4 + 2 + 8) * parameters / 8, rel=0.002)
    assert row["memory_gradients_gib"] == 0
    assert 2 * parameters < row["memory_gathered_gib"] < 2.4 * parameters


@pytest.mark.parametrize(
    ("name", "trained"),
    [
        # rank x (inputs + outputs) of seven matrices: 32 layers of 4,096, 1,024 and 14,336.
        ("axolotl-dpo.yaml", 32 * 16 * (2 * 8192 + 2 * 5120 + 3 * 18432)),
        ("factory-qlora.yaml", 32 * 8 * (2 * 8192 + 2 * 5120 + 3 * 18432)),
        ("factory-packing.yaml", 32 * 8 * (2 * 8192 + 2 * 5120 + 3 * 18432)),
        # 28 layers of 3,584, 512 and 18,944.
        ("swift.sh", 28 * 8 * (2 * 7168 + 2 * 4096 + 3 * 22528)),
        # Megatron joins query, key, value, and gate and up: four matrices, two on each expert.
        ("swift-experts.sh", 48 * 8 * (7168 + 6144 + 128 * (3584 + 2816))),
    ],
)
def test_adapters_have_the_parameters_of_their_matrices(
    planner: Command, name: str, trained: int
) -> None:
    out = planner("estimate", "--from", FILES / name, "--gpu", "h100-sxm", "--gpus", "8").out

    assert f"{trained / 1e6:.4g} million parameters trained" in " ".join(out.split())


def test_a_key_that_states_the_default_changes_no_answer(planner: Command) -> None:
    plain, stated = (row_of(planner, f"factory-{name}.yaml") for name in ("qlora", "packing"))

    assert stated["peak_memory_gib"] == plain["peak_memory_gib"]
    assert plain["peak_memory_gib"] < 16


def test_experts_are_split_as_the_rest_is(planner: Command) -> None:
    """45.1 billion parameters of experts over 8 x 2 GPUs, 1.6 of the rest over 2, of 2 bytes."""
    row = row_of(planner, "megatron-experts.sh", 16)

    assert row["expert_tensor_parallel"] == 2
    experts, rest = 32 * 8 * 3 * 4096 * 14336, 1.604e9
    assert row["memory_weights_gib"] == pytest.approx(
        2 * (experts / 16 + rest / 2) / _GIB, rel=0.01
    )
    assert 70 < row["peak_memory_gib"] < 80


def test_a_length_beyond_the_positions_is_predicted_and_said(planner: Command) -> None:
    ran = planner("estimate", "--from", FILES / "axolotl-long.yaml", "--gpu", "h100", "--gpus", "8")

    assert "beyond the 40,960 positions" in " ".join(ran.out.split())
    assert row_of(planner, "axolotl-long.yaml")["peak_memory_gib"] > 80


@pytest.mark.slow
def test_a_change_of_zero_3_is_in_words_that_the_trainer_honours(planner: Command) -> None:
    """DeepSpeed reads no ``fsdp_config``: what repeats layers is the Trainer's own word."""
    ran = planner(
        "estimate", "--from", FILES / "trainer-zero3.yaml", "--gpu", "h100-sxm", "--gpus", "8",
        "--full",
    )  # fmt: skip

    assert "+gradient_checkpointing: true" in ran.out
    assert "fsdp_config" not in ran.out


def test_what_is_no_document_of_a_tool_is_refused(planner: Command, tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text("tower: 3\nbricks: [1, 2]\n")
    ran = planner("estimate", "--from", tmp_path / "other.yaml", "--gpu", "h100", "--gpus", "8")

    assert ran.exit_code == 6
    assert "is not a file of a supported tool" in ran.err


def test_the_training_step_of_grpo_is_predicted_and_says_what_is_not(planner: Command) -> None:
    """8 GPUs x 8 sequences of 512 tokens of prompt, TRL's, and 2,048 of answer."""
    asked = ("estimate", "--from", FILES / "trl-grpo.sh", "--gpu", "h200-sxm", "--gpus", "8")
    assert "grpo: " in planner(*asked).out
    ran = planner(*asked, "--workload", "train", "--full")
    told = " ".join(ran.out.split() + ran.err.split())
    assert "gbs 64" in told
    assert "sequence length 2,560" in told
    assert "generation of answers (rollouts), reward and value models" in told
    assert "does not know" not in told


def test_a_vocabulary_that_is_not_told_is_assumed(planner: Command) -> None:
    """32 layers of attention, eight experts, router and norms; embedding and logits of 128,256."""
    attention, experts = 2 * 2560 * 2560 + 2 * 2560 * 640, 8 * 3 * 2560 * 8192
    layers = 32 * (attention + experts + 8 * 2560 + 2 * 2560)
    whole = layers + 2560 + 2 * 128_256 * 2560
    asked = ("estimate", "--from", FILES / "megatron-vocabulary.sh", "--gpu", "h100-sxm", "--full")
    ran = planner(*asked)
    assert ran.exit_code == 0, ran.err
    assert f"({whole / 1e9:.2f} billion parameters)" in ran.out
    assert "128,256, that of Llama 3, is assumed" in " ".join(ran.err.split() + ran.out.split())
