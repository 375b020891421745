"""SimuMax (MooreThreads/SimuMax): one estimate for each row on a system that it ships."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import simumax as package
from answer import Row, answer, installed
from simumax.core.config import ModelConfig, StrategyConfig, SystemConfig
from simumax.core.perf_llm import PerfLLM

SYSTEMS = {"b200-sxm-180gb": "b200_bf16_ceperm"}
_FOLDER = Path(package.__file__).parents[1] / "configs" / "system"
_MODEL, _STRATEGY = (Path(tempfile.mkdtemp()) / name for name in ("model.json", "strategy.json"))


def predict(row: Row) -> dict[str, float]:
    """Seconds of a step, GiB of the fullest GPU."""
    moe = row["num_experts"] > 0
    model = {
        "model_type": "moe" if moe else "dense",
        "model_name": row["id"],
        "hidden_size": row["hidden_size"],
        "head_num": row["num_attention_heads"],
        "kv_head_num": row["num_key_value_heads"],
        "head_size": row["head_dim"],
        "intermediate_size": row["intermediate_size"],
        "layer_num": row["num_hidden_layers"],
        "vocab_size": row["vocab_size"],
        "use_swiglu": row["gated"],
    }
    if moe:
        model |= {"expert_num": row["num_experts"], "topk": row["num_experts_per_tok"]}
    micro = row["global_batch_size"] // (row["data_parallel"] * row["micro_batch_size"])
    strategy = {
        "seq_len": row["sequence_length"],
        "micro_batch_size": row["micro_batch_size"],
        "micro_batch_num": micro,
        "dtype": "bf16",
        "world_size": row["num_gpus"],
        "tp_size": row["tensor_parallel"],
        "pp_size": row["pipeline_parallel"],
        "ep_size": row["expert_parallel"],
        "etp_size": row["expert_tensor_parallel"],
        "enable_sequence_parallel": row["sequence_parallel"],
        "interleaving_size": row["virtual_pipeline"],
        "zero_state": row["zero_stage"],
        "use_flash_sdp": row["flash_attention"],
        "use_math_sdp": not row["flash_attention"],
        "enable_recompute": row["recompute"] == "full",
        "recompute_granularity": "full_block" if row["recompute"] == "full" else None,
        "recompute_layer_num": row["num_hidden_layers"] if row["recompute"] == "full" else 0,
    }
    _MODEL.write_text(json.dumps(model))
    _STRATEGY.write_text(json.dumps(strategy))
    estimate = PerfLLM()
    estimate.configure(
        strategy_config=StrategyConfig.init_from_config_file(str(_STRATEGY)),
        model_config=ModelConfig.init_from_config_file(str(_MODEL)),
        system_config=SystemConfig.init_from_config_file(
            str(_FOLDER / f"{SYSTEMS[row['gpu']]}.json")
        ),
    )
    estimate.run_estimate()
    tokens = estimate.analysis(None, console_log=False)["TGS_per_gpu"]
    step = row["sequence_length"] * row["global_batch_size"] / row["num_gpus"]
    return {"step_time_s": step / tokens}


if __name__ == "__main__":
    answer(installed("simumax"), predict)
