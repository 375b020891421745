"""Recipes of Megatron-Bridge and NeMo 2: their options by name, or by model, task, GPU and format.

Source: NVIDIA-NeMo/Megatron-Bridge at 067f987, ``src/megatron/bridge/perf_recipes`` and
``scripts/performance/argument_parser.py``; ``models/megatron-bridge.csv`` has the values.
``models/named-recipes.csv`` has those of ``src/megatron/bridge/recipes`` there, with their older
names, and of NVIDIA/NeMo at 8cfedd7, ``nemo/collections/llm/recipes`` (``pretrain_recipe``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from planner.base.records import record
from planner.documents.shell.edits import ParsedOption, implied_option
from planner.launch.option_table import shipped_rows
from planner.launch.wrappers.read_resources import parse_gpu_name

_MODEL_OPTIONS, _GPU_OPTIONS, _PRECISION_OPTIONS, _NUM_GPUS_OPTIONS, _TASK_OPTIONS = (
    ("--model_recipe_name", "-mr"),
    ("--gpu", "-g"),
    ("--compute_dtype", "-c"),
    ("--num_gpus", "-ng"),
    ("--task",),
)
_RECIPE_NAME = re.compile(r"(?P<kind>.+)_(?P<gpus>\d+)gpu_(?P<rest>.+)")
# Models with the smallest GPU count of a recipe as default: _DEFAULT_GPU_COUNT_OVERRIDES.
_SMALLEST_BY_DEFAULT = ("llama3_8b", "qwen3_30b_a3b")


@record(kw_only=True)
class Recipe:
    """Options of a recipe for ``default_num_gpus`` GPUs; ``num_gpus`` and ``gpu`` of the job.

    ``model`` is the checkpoint that a recipe known by its name trains.
    """

    name: str
    options: Mapping[str, ParsedOption]
    default_num_gpus: int
    num_gpus: int | None
    gpu: str | None
    model: str | None = None


_NAMES = ("--recipe", "--factory")
# Of a NeMo factory: llama3_70b(num_nodes=16, name='x').
_FACTORY = re.compile(r"(?P<name>[\w.]+)(?:\((?P<arguments>.*)\))?", re.DOTALL)
_FACTORY_NODES = re.compile(r"num_nodes\s*=\s*(\d+)")
_FACTORY_GPUS = re.compile(r"num_gpus_per_node\s*=\s*(\d+)")


@cache
def named_recipes() -> Mapping[tuple[str, str], Mapping[str, str]]:
    """Return the rows of recipes by tool and name, also by their older names."""
    rows: dict[tuple[str, str], Mapping[str, str]] = {}
    for row in shipped_rows("models/named-recipes.csv"):
        for name in (row["recipe"], *row["aliases"].split()):
            rows[row["tool"], name] = row
    return rows


def _recipe_of_name(options: Mapping[str, ParsedOption], has_gpus: bool) -> Recipe | None:
    """Return the recipe that ``--recipe`` or ``--factory`` names; None if it is not known.

    A job takes the recipe's number of GPUs unless it sets one.
    """
    match = _FACTORY.fullmatch(_first_text(options, *_NAMES) or "")
    if match is None:
        return None
    tool = "nemo" if "--factory" in options or not match["name"].endswith("_config") else "bridge"
    name = match["name"].removesuffix("_config")
    row = named_recipes().get((tool, name)) or named_recipes().get(("bridge", name))
    if row is None:
        return None
    arguments = match["arguments"] or ""
    nodes, per_node = _FACTORY_NODES.search(arguments), _FACTORY_GPUS.search(arguments)
    count = int(row["num_gpus"])
    if nodes or per_node:
        count = int(nodes[1] if nodes else 1) * int(per_node[1] if per_node else 8)
    texts = {key: text for key, text in row.items() if text and "." in key}
    texts["mixed_precision"] = {"fp8cs": "bf16_with_fp8", "fp8mx": "bf16_with_mxfp8"}.get(
        row["precision"], row["precision"]
    )
    if not has_gpus:
        texts["--num_gpus"] = str(count)
    return Recipe(
        name=row["recipe"],
        options={key: implied_option(key, text) for key, text in texts.items()},
        default_num_gpus=count,
        num_gpus=count,
        gpu=None,
        model=row["model"] or None,
    )


@cache
def shipped_recipes() -> Mapping[tuple[str, str], Mapping[int, Mapping[str, str]]]:
    """Return recipes by (model and task, GPU and number format), then by number of GPUs."""
    recipes: dict[tuple[str, str], dict[int, Mapping[str, str]]] = {}
    for row in shipped_rows("models/megatron-bridge.csv"):
        if (name := _RECIPE_NAME.fullmatch(row["recipe"])) is not None:
            recipes.setdefault((name["kind"], name["rest"]), {})[int(name["gpus"])] = row
    return recipes


def model_of_recipe(options: Mapping[str, ParsedOption]) -> str | None:
    """Return the model that a performance script's options name; None if no option does."""
    if (name := _first_text(options, *_MODEL_OPTIONS)) is not None:
        return name
    family, size = (
        _first_text(options, "--model_name", "-m"),
        _first_text(options, "--model_size", "-s"),
    )
    return f"{family}_{size}" if family and size else None


def choose_recipe(
    options: Mapping[str, ParsedOption], gpu: str | None, *, has_gpus: bool
) -> Recipe | None:
    """Return the recipe that options choose; ``gpu`` is used if no option names a GPU.

    ``has_gpus``: the job sets its number of GPUs. None where the options are of another program,
    or no recipe has their model, GPU and format.
    """
    model, gpu_option = model_of_recipe(options), _first_text(options, *_GPU_OPTIONS)
    if (named := _recipe_of_name(options, has_gpus)) is not None:
        return named
    gpu_name = gpu_option or (gpu or "").partition("-")[0]
    if model is None or not gpu_name:
        return None
    count = _first_text(options, *_NUM_GPUS_OPTIONS) or ""
    task = _first_text(options, *_TASK_OPTIONS) or "pretrain"
    precision = _first_text(options, *_PRECISION_OPTIONS) or "bf16"
    if precision == "fp8":
        precision += _first_text(options, "--fp8_recipe") or "cs"
    recipes = shipped_recipes().get((f"{model}_{task}", f"{gpu_name}_{precision.replace('_', '')}"))
    if recipes is None:
        return None
    num_gpus = int(count) if count.isdecimal() and int(count) else None
    default_gpus = min(recipes) if model.startswith(_SMALLEST_BY_DEFAULT) else max(recipes)
    gpus = num_gpus if num_gpus is not None and num_gpus in recipes else default_gpus
    row = recipes[gpus]
    texts = {key: text for key, text in row.items() if text and key != "recipe"}
    return Recipe(
        name=row["recipe"],
        options={key: implied_option(key, text) for key, text in texts.items()},
        default_num_gpus=gpus,
        num_gpus=num_gpus,
        gpu=parse_gpu_name(gpu_name) if gpu_option else None,
    )


def _first_text(options: Mapping[str, ParsedOption], *names: str) -> str | None:
    """The first value of several options, in lower case; None where none is set."""
    texts = (options[name].single for name in names if name in options)
    return next((text.lower() for text in texts if text), None)
