"""calculon (calculon-ai/calculon): one `llm` calculation for each row on its own systems.

Its own limits of memory are lifted: times are compared, not what fits.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

import calculon as package
from answer import Row, answer, installed
from calculon.llm import Llm
from calculon.system import System

SYSTEMS = {
    "a100-sxm-80gb": "a100_80e",
    "a100-sxm-40gb": "a100_80e",
    "h100-sxm-80gb": "h100_80g_nvl8",
}
_RECOMPUTE = {"none": "none", "selective": "attn_only", "full": "full"}
_FOLDER = Path(package.__file__).parents[1] / "systems"
_NODE = 8


def predict(row: Row) -> dict[str, float]:
    """Seconds of a step."""
    text = json.loads((_FOLDER / f"{SYSTEMS[row['gpu']]}.json").read_text())
    text["mem1"]["GiB"] = text["mem2"]["GiB"] = 10**9
    tensor, pipeline, data = (
        row["tensor_parallel"],
        row["pipeline_parallel"],
        row["data_parallel"],
    )
    application = Llm.Application(
        {
            "hidden": row["hidden_size"],
            "feedforward": row["intermediate_size"],
            "seq_size": row["sequence_length"],
            "attn_heads": row["num_attention_heads"],
            "attn_size": row["head_dim"],
            "num_blocks": row["num_hidden_layers"],
        }
    )
    execution = Llm.Execution.from_json(
        {
            "num_procs": tensor * pipeline * data,
            "tensor_par": tensor,
            "pipeline_par": pipeline,
            "data_par": data,
            "tensor_par_net": 0,
            "data_par_net": int(tensor * data > _NODE),
            "pipeline_par_net": int(tensor * data * pipeline > _NODE),
            "batch_size": row["global_batch_size"],
            "microbatch_size": row["micro_batch_size"],
            "datatype": "float16",
            "fused_activation": True,
            "attention_type": "multihead",
            "activation_recompute": _RECOMPUTE[row["recompute"]],
            "pipeline_interleaving": row["virtual_pipeline"],
            "optimizer_sharding": row["zero_stage"] > 0 and data > 1,
            "tensor_par_comm_type": "rs_ag" if row["sequence_parallel"] and tensor > 1 else "ar",
            "tensor_par_overlap": "none",
            "seq_par_ag_redo": False,
            "data_par_overlap": row["overlaps_gradients"] and data > 1,
            "weight_offload": False,
            "activations_offload": False,
            "optimizer_offload": False,
            "training": True,
        }
    )
    system = System(text)
    model = Llm(application, logging.getLogger())
    model.compile(system, execution)
    model.run(system)
    return {"step_time_s": model.get_total_time()}


if __name__ == "__main__":
    answer(installed("calculon-llm"), predict)
