"""docs/reference/llm_analysis.md has every argument of cli99/llm-analysis."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from planner.cli.app import command_line
from planner.configurations.enumerate import FOLLOWING, coded_values
from planner.question.terms import terms_of

_PAGE = Path(__file__).parent.parent / "docs" / "reference" / "llm_analysis.md"
_TITLE = "## Arguments of llm-analysis"

# Of the functions train() and infer() at commit d841e40.
_OF_BOTH = """
model_name gpu_name dtype_name log_level batch_size_per_gpu ds_zero dp_size tp_size pp_size sp_size
seq_len layernorm_dtype_bytes achieved_tflops flops_efficiency hbm_memory_efficiency
intra_node_memory_efficiency inter_node_memory_efficiency output_dir output_file_prefix
output_file_suffix
"""
_OF_TRAIN = """
gradient_accumulation_steps global_batch_size total_num_tokens activation_recomputation fwd_prefetch
bwd_prefetch ep_size total_num_gpus master_weights_dtype_bytes other_op_bytes flash_attn
softmax_dropout mlp_activation_quant_bits mlp_1linear_quant_bits mlp_gelu_input_quant_bits
mlp_2linear_quant_bits mlp_recompute_gelu num_gpus_per_node
"""
_OF_INFER = """
num_tokens_to_generate use_kv_cache kv_cache_dtype_bytes achieved_memory_bandwidth_GBs
cost_per_gpu_hour
"""


def _rows() -> list[tuple[list[str], dict[str, str]]]:
    """Arguments of each row, and what says them by workload."""
    section = _PAGE.read_text().partition(_TITLE)[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    names = ("train", "inference")
    return [
        (re.findall(r"`(\w+)`", first), dict(zip(names, others, strict=True)))
        for first, *others in cells
    ]


def test_every_argument_has_a_row_of_the_functions_that_have_it() -> None:
    said: dict[str, set[str]] = {"train": set(), "inference": set()}
    for arguments, cells in _rows():
        for workload, cell in cells.items():
            said[workload].update(arguments if cell else [])
    both = set(_OF_BOTH.split())
    assert said["train"] == both | set(_OF_TRAIN.split())
    assert said["inference"] == both | set(_OF_INFER.split())


def test_every_option_of_the_table_is_one_of_the_command() -> None:
    commands: Any = command_line()
    parameters = commands.commands["estimate"].built.params
    known = {option for parameter in parameters for option in parameter.opts}
    cells = [cell for _, of in _rows() for cell in of.values()]
    named = [option for cell in cells for option in re.findall(r"`(--[a-z-]+)", cell)]
    assert len(named) > 40
    assert set(named) <= known


def test_every_parameter_of_the_table_takes_its_value() -> None:
    pairs = [
        (workload, *pair)
        for _, cells in _rows()
        for workload, cell in cells.items()
        for pair in re.findall(r"`--set (\w+)=(\w+)`", cell)
    ]
    assert len(pairs) > 20
    for workload, name, value in pairs:
        assert name in terms_of(workload, "parameter") or name in FOLLOWING
        coded_values(name, [value])
