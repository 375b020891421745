"""llm-analysis (cli99/llm-analysis): `train()` for each row, with each of ``EFFICIENCIES``.

It takes the share of the peak that a framework reaches from its user. The one share that suits all
rows best is chosen afterwards, which no user could do: figures are the best that it can have.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from answer import Row, answer, installed
from llm_analysis import analysis, config

EFFICIENCIES = [percent / 100 for percent in range(25, 85, 5)]
_RECOMPUTE = {"none": 0, "selective": 1, "full": 4}
_FOLDER = tempfile.mkdtemp()


def predict(row: Row) -> dict[str, float]:
    """Seconds of a step at each efficiency, by its name."""
    fields = {
        "name": row["id"],
        "num_layers": row["num_hidden_layers"],
        "n_head": row["num_attention_heads"],
        "num_key_value_heads": row["num_key_value_heads"],
        "hidden_dim": row["hidden_size"],
        "vocab_size": row["vocab_size"],
        "ffn_embed_dim": row["intermediate_size"],
        "max_seq_len": row["sequence_length"],
        "model_type": "llama" if row["gated"] else "gpt2",
    }
    if "mlp_gated_linear_units" in config.ModelConfig.__dataclass_fields__:
        fields["mlp_gated_linear_units"] = row["gated"]
    file = Path(_FOLDER) / "model.json"
    file.write_text(json.dumps(fields))
    found = {}
    for efficiency in EFFICIENCIES:
        config.model_configs.pop(row["id"], None)
        summary = analysis.train(
            model_name=str(file),
            gpu_name=row["gpu"],
            log_level="ERROR",
            batch_size_per_gpu=row["micro_batch_size"],
            global_batch_size=row["global_batch_size"],
            seq_len=row["sequence_length"],
            activation_recomputation=_RECOMPUTE[row["recompute"]],
            ds_zero=row["zero_stage"],
            dp_size=row["data_parallel"],
            tp_size=row["tensor_parallel"],
            pp_size=row["pipeline_parallel"],
            sp_size=row["tensor_parallel"] if row["sequence_parallel"] else 1,
            total_num_gpus=row["num_gpus"],
            flash_attn=row["flash_attention"],
            flops_efficiency=efficiency,
        )
        found[f"step_time_s@{efficiency:.2f}"] = summary["latency_per_iter"]
    return found


if __name__ == "__main__":
    answer(installed("llm-analysis"), predict)
