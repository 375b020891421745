"""Optimizers and losses of torchtune's recipes, and names of optimizers that no reader knows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rows import each

from planner.launch.option_table import shipped_rows
from planner.launch.read.launch_file import LaunchFile, evaluate_launch, full_row
from planner.launch.read.read_launch import read_launch
from planner.specs.catalogue import load_model

CONFIG = """\
model: {_component_: torchtune.models.llama3.lora_llama3_8b, lora_attn_modules: [q_proj]}
tokenizer: {_component_: torchtune.models.llama3.llama3_tokenizer, max_seq_len: 8192}
batch_size: 1
gradient_accumulation_steps: 64
optimizer: {_component_: OPTIMIZER}
loss: {_component_: LOSS}
dtype: bf16
enable_activation_checkpointing: true
"""
LOSSES = "torchtune.modules.loss."
PAGED = [
    row["config"]
    for row in shipped_rows("models/torchtune.csv")
    if "Paged" in row["optimizer._component_"] and "vision" not in row["config"]
]


def _peak_gib(tmp_path: Path, loss: str) -> float:
    text = CONFIG.replace("OPTIMIZER", "torch.optim.AdamW").replace("LOSS", loss)
    (tmp_path / "t.yaml").write_text(text)
    asked = {"gpu": "rtx3090", "num_gpus": "1"}
    request = LaunchFile(path=tmp_path / "t.yaml", answers=asked).question().request
    _, judgement, _ = evaluate_launch(request)
    return float(str(full_row(judgement)["peak_memory_gib"]))


def test_a_loss_of_all_logits_needs_more_memory(tmp_path: Path) -> None:
    """Of 8,192 tokens and 128,256 words fp32 copies alone are 3.9 GiB (pytorch/torchtune#1390)."""
    chunked = _peak_gib(tmp_path, f"{LOSSES}CEWithChunkedOutputLoss")

    assert _peak_gib(tmp_path, "torch.nn.CrossEntropyLoss") > chunked + 3.9
    assert _peak_gib(tmp_path, f"{LOSSES}LinearCrossEntropyLoss") == chunked
    assert _peak_gib(tmp_path, f"{LOSSES}LigerLinearCrossEntropyLoss") < chunked


@pytest.mark.few(3)
@pytest.mark.parametrize("config", PAGED)
def test_recipes_with_a_paged_optimizer_are_possible(config: str, tmp_path: Path) -> None:
    """bitsandbytes' PagedAdamW keeps fp32 states in unified memory: stock recipes of one GPU."""
    (tmp_path / "t.sh").write_text(f"tune run full_finetune_single_device --config {config}\n")
    asked = {"gpu": "a100-sxm-80gb"}
    question = LaunchFile(path=tmp_path / "t.sh", answers=asked).question()
    _, judgement, _ = evaluate_launch(question.request)

    assert question.imported.values["optimizer_state_precision"] in ("fp32", "int8")
    assert judgement.rejected_by in ("", "out_of_memory")


def _with_optimizer(tmp_path: Path, name: str) -> tuple[str, str, str]:
    (tmp_path / "t.yaml").write_text(
        CONFIG.replace("OPTIMIZER", name).replace("LOSS", f"{LOSSES}LinearCrossEntropyLoss")
    )
    launch = read_launch(tmp_path / "t.yaml")
    states = str(launch.values.get("optimizer_state_precision", "framework"))
    return str(launch.values.get("optimizer", "adam")), states, " ".join(launch.notes)


@each(
    "name, kind, states",
    [
        ("torch.optim.AdamW", "adam", "framework"),
        ("torch.optim.SGD", "sgd", "framework"),
        ("bitsandbytes.optim.AdamW8bit", "adam", "int8"),
        ("bitsandbytes.optim.PagedAdamW", "adam", "fp32"),
        ("bitsandbytes.optim.PagedAdamW8bit", "adam", "int8"),
        ("bitsandbytes.optim.PagedLion8bit", "lion", "int8"),
        ("torchao.optim.AdamWFp8", "adam", "fp8"),
    ],
)
def test_an_optimizer_is_read_by_its_class(
    name: str, kind: str, states: str, tmp_path: Path
) -> None:
    read = _with_optimizer(tmp_path, name)
    assert read[:2] == (kind, states)
    assert "not understood" not in read[2]


UNKNOWN = ("torchao.optim.AdamW4bit", "my.optim.AdamWPlus", "galore_torch.GaLoreAdamW", "x.Shampoo")


@each("name", UNKNOWN)
def test_an_unknown_optimizer_is_never_silently_adam(name: str, tmp_path: Path) -> None:
    assert f"The optimizer {name} is not understood" in _with_optimizer(tmp_path, name)[2]


OTHERS = {
    "llm-foundry": (
        "t.yaml",
        "global_train_batch_size: 8\ndevice_train_microbatch_size: 1\nmax_seq_len: 2048\n"
        "model: {name: hf_causal_lm, pretrained_model_name_or_path: meta-llama/Llama-3.1-8B}\n"
        "optimizer: {name: NAME}\n",
    ),
    "nemo-automodel": (
        "t.yaml",
        "model: {_target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained, "
        "pretrained_model_name_or_path: meta-llama/Llama-3.1-8B}\n"
        "step_scheduler: {global_batch_size: 8, local_batch_size: 1}\n"
        "optimizer: {_target_: torch.optim.NAME}\n",
    ),
    "transformers": (
        "t.sh",
        "python train.py --model_name_or_path meta-llama/Llama-3.1-8B --output_dir o "
        "--per_device_train_batch_size 1 --optim NAME\n",
    ),
}


@each("tool", list(OTHERS))
def test_other_readers_report_an_unknown_optimizer_too(tool: str, tmp_path: Path) -> None:
    file, text = OTHERS[tool]
    (tmp_path / file).write_text(text.replace("NAME", "AdamW4bit"))
    launch = read_launch(tmp_path / file)

    assert launch.target.name == tool
    assert any(
        "AdamW4bit is not understood" in note.replace("adamw4bit", "AdamW4bit")
        for note in launch.notes
    )


@pytest.mark.parametrize(
    ("ranks", "batch"), [("--nproc_per_node 8", 8 * 2 * 4), ("--nnodes 2", None)]
)
def test_the_batch_is_that_of_all_ranks_where_they_are_known(
    tmp_path: Path, ranks: str, batch: int | None
) -> None:
    (tmp_path / "c.yaml").write_text(
        "model: {_component_: torchtune.models.llama3_1.llama3_1_8b}\nbatch_size: 2\n"
        "tokenizer: {max_seq_len: 2048}\ngradient_accumulation_steps: 4\n"
    )
    (tmp_path / "t.sh").write_text(f"tune run {ranks} full_finetune_distributed --config c.yaml\n")
    found = read_launch(tmp_path / "t.sh")
    assert found.values.get("global_batch_size") == batch
    assert ("global_batch_size" in found.answers.missing) == (batch is None)


def test_the_builder_of_each_shipped_configuration_has_a_known_model() -> None:
    models = {row["builder"]: row["model"] for row in shipped_rows("models/torchtune-builders.csv")}
    for row in shipped_rows("models/torchtune.csv"):
        variant = row["model._component_"].rpartition(".")[2]
        builder = re.sub(r"^(q?lora|q?dora)_|_(instruct|base)$", "", variant)
        assert load_model(models[builder]).num_hidden_layers, variant
