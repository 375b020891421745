"""Recipes of Megatron-Bridge and NeMo 2: their options by name, or by model, task, GPU and format.

Source: NVIDIA-NeMo/Megatron-Bridge at 067f987, ``src/megatron/bridge/perf_recipes`` and
``scripts/performance/argument_parser.py``; ``models/megatron-bridge.csv`` has the values.
``models/named-recipes.csv`` has those of ``src/megatron/bridge/recipes`` there, with their older
names, and of NVIDIA/NeMo at 8cfedd7, ``nemo/collections/llm/recipes`` (``pretrain_recipe``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from planner.base.records import record
from planner.documents.shell.edits import ParsedOption, implied_option
from planner.launch.option_table import shipped_rows
from planner.launch.wrappers.read_resources import parse_gpu_name

_RECIPE_NAME = re.compile(r"(?P<kind>.+)_(?P<gpus>\d+)gpu_(?P<rest>.+)")
# Models with the smallest GPU count of a recipe as default: _DEFAULT_GPU_COUNT_OVERRIDES.
_SMALLEST_BY_DEFAULT = ("llama3_8b", "qwen3_30b_a3b")
_FACTORY_SIZE = re.compile(r"(num_nodes|num_gpus_per_node)\s*=\s*(\d+)")


@record(kw_only=True)
class Recipe:
    """Options of a recipe for ``default_num_gpus`` GPUs; ``num_gpus`` and ``gpu`` are the job's,
    ``model`` is the checkpoint that a recipe known by its name trains.
    """

    name: str
    options: Mapping[str, ParsedOption]
    default_num_gpus: int
    num_gpus: int | None
    gpu: str | None = None
    model: str | None = None


def _recipe_of_name(options: Mapping[str, ParsedOption], has_gpus: bool) -> Recipe | None:
    """Return the recipe that ``--recipe`` or ``--factory`` names; None if it is not known.

    A job takes the recipe's number of GPUs unless it sets one.
    """
    # A NeMo factory may have arguments: llama3_70b(num_nodes=16, name='x').
    name, _, arguments = (_first_text(options, "--recipe", "--factory") or "").partition("(")
    tool = "nemo" if "--factory" in options or not name.endswith("_config") else "bridge"
    name = name.removesuffix("_config")
    rows = {
        (row["tool"], alias): row
        for row in shipped_rows("models/named-recipes.csv")
        for alias in (row["recipe"], *row["aliases"].split())
    }
    row = rows.get((tool, name)) or rows.get(("bridge", name))
    if row is None:
        return None
    size = {key: int(count) for key, count in _FACTORY_SIZE.findall(arguments)}
    of_size = size.get("num_nodes", 1) * size.get("num_gpus_per_node", 8)
    count = of_size if size else int(row["num_gpus"])
    texts = {key: text for key, text in row.items() if "." in key or key == "mixed_precision"}
    texts |= {} if has_gpus else {"--num_gpus": str(count)}
    return Recipe(
        name=row["recipe"], options=_implied(texts), default_num_gpus=count, num_gpus=count,
        model=row["model"] or None,
    )  # fmt: skip


def model_of_recipe(options: Mapping[str, ParsedOption]) -> str | None:
    """Return the model that a performance script's options name; None if no option does."""
    name = _first_text(options, "--model_recipe_name", "-mr")
    family = _first_text(options, "--model_name", "-m")
    size = _first_text(options, "--model_size", "-s")
    return name or (f"{family}_{size}" if family and size else None)


def choose_recipe(
    options: Mapping[str, ParsedOption], gpu: str | None, *, has_gpus: bool
) -> Recipe | None:
    """Return the recipe that options choose; ``gpu`` is used if no option names a GPU.

    ``has_gpus``: the job sets its number of GPUs. None where the options are of another program,
    or no recipe has their model, GPU and format.
    """
    if (named := _recipe_of_name(options, has_gpus)) is not None:
        return named
    model, gpu_option = model_of_recipe(options), _first_text(options, "--gpu", "-g")
    gpu_name = gpu_option or (gpu or "").partition("-")[0]
    if model is None or not gpu_name:
        return None
    count = _first_text(options, "--num_gpus", "-ng") or ""
    precision = _first_text(options, "--compute_dtype", "-c") or "bf16"
    if precision == "fp8":
        precision += _first_text(options, "--fp8_recipe") or "cs"
    kind = f"{model}_{_first_text(options, '--task') or 'pretrain'}"
    # The recipes of this model, task, GPU and number format, by their number of GPUs.
    recipes = {
        int(parts["gpus"]): row
        for row in shipped_rows("models/megatron-bridge.csv")
        if (parts := _RECIPE_NAME.fullmatch(row["recipe"])) is not None
        if (parts["kind"], parts["rest"]) == (kind, f"{gpu_name}_{precision.replace('_', '')}")
    }
    if not recipes:
        return None
    num_gpus = int(count) if count.isdecimal() and int(count) else None
    default = min if model.startswith(_SMALLEST_BY_DEFAULT) else max
    gpus = num_gpus if num_gpus in recipes else default(recipes)
    texts = {**recipes[gpus]}
    return Recipe(
        name=texts.pop("recipe"), options=_implied(texts), default_num_gpus=gpus, num_gpus=num_gpus,
        gpu=parse_gpu_name(gpu_name) if gpu_option else None,
    )  # fmt: skip


def _implied(texts: Mapping[str, str]) -> Mapping[str, ParsedOption]:
    return {key: implied_option(key, text) for key, text in texts.items() if text}


def _first_text(options: Mapping[str, ParsedOption], *names: str) -> str | None:
    """The first value of several options, in lower case; None where none is set."""
    texts = (options[name].single for name in names if name in options)
    return next((text.lower() for text in texts if text), None)
