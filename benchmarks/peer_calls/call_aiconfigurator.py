"""AIConfigurator, or AISimulate that replaces it: one `cli_estimate` for each row."""

from __future__ import annotations

import logging
import re
import warnings
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from answer import Row, answer, installed

NAME = "aiconfigurator" if installed("aiconfigurator") else "aisimulate"
SYSTEMS = {
    "a100-sxm-80gb": "a100_sxm",
    "h100-sxm-80gb": "h100_sxm",
    "h200-sxm-141gb": "h200_sxm",
    "b200-sxm-180gb": "b200_sxm",
    "b300-sxm": "b300_sxm",
    "gb200-nvl72": "gb200",
    "gb300-nvl72": "gb300",
    "l40s-48gb": "l40s",
}


def _plain(model: str) -> str:
    """A model's name without its owner and the words that publishers add or leave out."""
    return re.sub(r"^meta-|-instruct$", "", model.rpartition("/")[2].lower())


def _models() -> dict[str, str]:
    """The models whose configuration the peer brings along, by plain name."""
    package = find_spec(f"{NAME}_core")
    folders = package.submodule_search_locations if package else None
    files = Path(folders[0]).glob("model_configs/*_config.json") if folders else ()
    names = [file.name.removesuffix("_config.json").replace("--", "/") for file in files]
    return {_plain(name): name for name in sorted(names)}


def main() -> None:
    """Answer with seconds to the first token and per output token of servers of one pool."""
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    api, models = import_module(f"{NAME}.cli.api"), _models()

    def predict(row: Row) -> dict[str, float]:
        found = api.cli_estimate(
            models.get(_plain(row["model"]), row["model"]),
            SYSTEMS[row["gpu"]],
            mode="agg",
            backend_name=row["engine"],
            isl=row["input_tokens"],
            osl=row["output_tokens"],
            batch_size=row["batch_size"],
            tp_size=row["tensor_parallel"],
            pp_size=row["pipeline_parallel"],
            attention_dp_size=row["attention_data_parallel"],
            moe_tp_size=row["expert_tensor_parallel"],
            moe_ep_size=row["expert_parallel"],
            gemm_quant_mode=row["gemm_precision"],
            moe_quant_mode=row["expert_precision"],
        )
        return {
            "time_to_first_token_s": found.ttft / 1e3,
            "time_per_output_token_s": found.tpot / 1e3,
        }

    answer(installed(NAME), predict)


if __name__ == "__main__":
    main()
