"""What LLM Foundry's YAML says of adapters."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.launch.read.read_launch import read_launch

_YAML = """
variables: {max_seq_len: 2048}
model:
  name: hf_causal_lm
  pretrained_model_name_or_path: meta-llama/Llama-2-7b-hf
  peft_config: {peft_type: LORA, task_type: CAUSAL_LM, r: 16%s}
train_loader: {name: finetuning, dataset: {max_seq_len: 2048}}
max_seq_len: 2048
global_train_batch_size: 64
device_train_microbatch_size: 1
precision: amp_bf16
fsdp_config: {sharding_strategy: FULL_SHARD}
"""


@pytest.mark.parametrize(
    ("named", "targets"),
    [("", "query_value"), (", target_modules: [q_proj, up_proj]", "all_linear")],
)
def test_adapters_are_where_peft_puts_them(tmp_path: Path, named: str, targets: str) -> None:
    path = tmp_path / "finetune.yaml"
    path.write_text(_YAML % named)
    values = read_launch(path).values

    assert (values["adapter"], values["lora_targets"]) == ("lora", targets)
    assert str(values["lora_rank"]) == "16"


_MPT = """
model:
  {name: mpt_causal_lm, d_model: 2048, n_heads: 16, n_layers: 24, expansion_ratio: 4,
   max_seq_len: 2048, vocab_size: 50368, attn_config: {attn_impl: %s}}
train_loader: {name: text}
max_seq_len: 2048
global_train_batch_size: 64
device_train_microbatch_size: 1
precision: amp_bf16
"""


@pytest.mark.parametrize(("kernel", "value"), [("torch", "false"), ("flash", "true")])
def test_attention_of_mpt_is_read(tmp_path: Path, kernel: str, value: str) -> None:
    """mosaicml/llm-foundry, llmfoundry/models/layers/attention.py: torch keeps the scores."""
    path = tmp_path / "pretrain.yaml"
    path.write_text(_MPT % kernel)
    assert str(read_launch(path).values["flash_attention"]) == value
