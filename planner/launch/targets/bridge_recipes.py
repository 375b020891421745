"""Performance scripts of Megatron-Bridge: what the recipe of a model on some GPUs says.

Source: NVIDIA-NeMo/Megatron-Bridge at 067f987, ``scripts/performance`` (``argument_parser.py``,
``utils/utils.py``) and the functions of ``src/megatron/bridge/perf_recipes``, whose values
``models/megatron-bridge.csv`` has by their names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from planner.base.records import record
from planner.documents.shell.text import Given, stated
from planner.launch.launchers.world import gpu_called
from planner.launch.option_table import shipped_rows

SCRIPTS = ("run_script.py", "setup_experiment.py", "custom_setup_experiment.py")
_MODEL, _GPU, _FORMAT, _GPUS, _TASK = (
    ("--model_recipe_name", "-mr"),
    ("--gpu", "-g"),
    ("--compute_dtype", "-c"),
    ("--num_gpus", "-ng"),
    ("--task",),
)
OPTIONS = frozenset(
    (*_MODEL, *_GPU, *_FORMAT, *_GPUS, *_TASK, "--model_family_name", "-m", "--gpus_per_node",
     "-gn", "--config_variant", "-cv", "--model_name", "--model_size", "-s", "--fp8_recipe")
)  # fmt: skip
"""Their own names, beside short ones of arguments of Megatron-LM."""
IGNORED = frozenset(
    ("--container_image", "-i", "--offline", "--account", "-a", "--partition", "-p", "--log_dir",
     "--time_limit", "-t", "--packager", "--hf_token", "--custom_mounts", "-cm", "--enable_vboost",
     "--cuda_graph_impl", "--cuda_graph_scope", "--list_config_variants", "--detach", "--data",
     "--additional_slurm_params", "--enable_pct_binding", "--enable_nsys", "--moe_a2a_overlap")
)  # fmt: skip
"""Where and how it starts, and graphs of kernels, which the profile has as its runs had them."""
_NAME = re.compile(r"(?P<kind>.+)_(?P<gpus>\d+)gpu_(?P<rest>.+)")
# Of several numbers of GPUs the largest, but for these: _DEFAULT_GPU_COUNT_OVERRIDES.
_FEWEST = ("llama3_8b", "qwen3_30b_a3b")


@record(kw_only=True)
class Recipe:
    """Values of a recipe by option; the GPUs that it is for, and those of the job, if told."""

    name: str
    given: Mapping[str, Given]
    gpus: int
    num_gpus: int | None
    gpu: str | None


@cache
def _shipped() -> Mapping[tuple[str, str], Mapping[int, Mapping[str, str]]]:
    """The recipes by model and task, GPU and format, then by number of GPUs."""
    found: dict[tuple[str, str], dict[int, Mapping[str, str]]] = {}
    for row in shipped_rows("models/megatron-bridge.csv"):
        if (name := _NAME.fullmatch(row["recipe"])) is not None:
            found.setdefault((name["kind"], name["rest"]), {})[int(name["gpus"])] = row
    return found


def model_of(given: Mapping[str, Given]) -> str | None:
    """The model of a performance script, in its earlier options too."""
    if (name := _told(given, *_MODEL)) is not None:
        return name
    family, size = _told(given, "--model_name", "-m"), _told(given, "--model_size", "-s")
    return f"{family}_{size}" if family and size else None


def recipe_of(given: Mapping[str, Given], gpu: str | None) -> Recipe | None:
    """The recipe that options choose, for a GPU that is known otherwise where they tell none.

    None where they are of another program, or no recipe is of what they name.
    """
    model, kind = model_of(given), _told(given, *_GPU)
    word = kind or (gpu or "").partition("-")[0]
    if model is None or not word:
        return None
    count = _told(given, *_GPUS) or ""
    task = _told(given, *_TASK) or "pretrain"
    precision = _told(given, *_FORMAT) or "bf16"
    if precision == "fp8":
        precision += _told(given, "--fp8_recipe") or "cs"
    known = _shipped().get((f"{model}_{task}", f"{word}_{precision.replace('_', '')}"))
    if known is None:
        return None
    num_gpus = int(count) if count.isdecimal() and int(count) else None
    usual = min(known) if model.startswith(_FEWEST) else max(known)
    gpus = num_gpus if num_gpus is not None and num_gpus in known else usual
    row = known[gpus]
    texts = {key: text for key, text in row.items() if text and key != "recipe"}
    return Recipe(
        name=row["recipe"],
        given={key: stated(key, text) for key, text in texts.items()},
        gpus=gpus,
        num_gpus=num_gpus,
        gpu=gpu_called(word) if kind else None,
    )


def _told(given: Mapping[str, Given], *names: str) -> str | None:
    texts = (given[name].single for name in names if name in given)
    return next((text.lower() for text in texts if text), None)
