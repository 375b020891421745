"""Programs of NeMo 2: its recipes with changed values, and its trainer, strategy and data.

Those of Megatron-Bridge have recipes alone.

Source: NVIDIA/NeMo at 8cfedd7, ``scripts/performance/helpers.py``, ``scripts/llm``,
``nemo/collections/llm/recipes``, ``nemo/lightning/pytorch/strategies/megatron_strategy.py``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from planner.documents.python_calls import Call, UnknownValue, Value
from planner.launch.option_table import option_aliases

_BENCHMARK_CALL = "set_primary_perf_configs"
_RECIPE_CALLS = ("pretrain_recipe", "finetune_recipe")
_DEGREES = (
    *("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size"),
    *("virtual_pipeline_model_parallel_size", "expert_model_parallel_size", "sequence_parallel"),
    "expert_tensor_parallel_size",
)
_DATA = ("global_batch_size", "micro_batch_size", "seq_length")
_MODEL_CLASS = re.compile(r"(?P<family>[A-Z]\w*?)Config(?P<size>\d+\w*)")
_CHANGE = (
    r"(?m)^\s*{name}\.(?P<key>(?:trainer|data|model|optim|train|dataset|ddp|optimizer|peft)\.[\w.]+)"
    r"\s*=\s*(?P<value>[^=\n#]+)"
)
_OVERRIDING, _OVERRIDES = "process_config_with_overrides", "the overrides that the program reads"
# Functions of NVIDIA-NeMo/Megatron-Bridge, src/megatron/bridge/recipes.
_BRIDGE_RECIPE = re.compile(r"(?:.*\.)?(?P<name>\w+_(?:pretrain|finetune|sft|peft)_config)")


def nemo_configurations(
    calls: Sequence[Call], text: str
) -> Iterator[tuple[Mapping[str, Value], int]]:
    """Yield the options of each training that a program of NeMo 2 or Bridge starts, with its line.

    Parameters
    ----------
    calls : calls of the program
    text : text of the program
    """
    recipes = [
        call
        for call in calls
        if call.ends(*_RECIPE_CALLS)
        or (call.module == "megatron" and _BRIDGE_RECIPE.fullmatch(call.name))
    ]
    benchmarks = [call for call in calls if call.ends(_BENCHMARK_CALL)]
    for call in benchmarks:
        yield _benchmark(call, recipes, calls), call.line
    if benchmarks:
        return
    for call in recipes:
        if call.module == "nemo" or ".llm." in f".{call.name}":
            yield _recipe(call, calls, text), call.line
        elif call.module == "megatron" and (match := _BRIDGE_RECIPE.fullmatch(call.name)):
            values = {"--recipe": match["name"], **_changes(call, text)}
            if any(each.ends(_OVERRIDING) for each in calls):
                values[_OVERRIDES] = "a file"
            yield values, call.line
    strategy = next((call for call in calls if call.ends("MegatronStrategy")), None)
    if not recipes and strategy is not None and strategy.module == "nemo":
        yield _objects(strategy, calls), strategy.line


def _benchmark(call: Call, recipes: Sequence[Call], calls: Sequence[Call]) -> dict[str, Value]:
    """Return the options of a NeMo benchmark: its recipe and changed values."""
    values: dict[str, Value] = {
        option: call.keywords.get(key) for key, option in option_aliases("nemo").items()
    }
    tensor_parallel = call.keywords.get("tp_size")
    values["model.sequence_parallel"] = isinstance(tensor_parallel, int) and tensor_parallel > 1
    if recipes:
        values["--recipe"] = recipes[0].name.rpartition(".")[0].rpartition(".")[2] or None
        values["--seq_length"] = recipes[0].keywords.get("seq_length")
        values |= _adapter(recipes[0], calls)
    return values


def _adapter(recipe: Call, calls: Sequence[Call]) -> dict[str, Value]:
    """Return the adapter of a recipe for fine-tuning, which is LoRA unless it is switched off."""
    scheme = recipe.keywords.get("peft_scheme", "lora")
    if not recipe.ends("finetune_recipe") or scheme != "lora":
        return {}
    keywords = next((call.keywords for call in calls if call.ends("LoRA")), {})
    return {"--mode": "lora", "peft.dim": keywords.get("dim", 16)}


def _recipe(call: Call, calls: Sequence[Call], text: str) -> dict[str, Value]:
    """Return the options of a recipe by its name, with the values that the program changes."""
    aliases = {"num_nodes": "trainer.num_nodes", "num_gpus_per_node": "trainer.devices"}
    values = {option: call.keywords.get(key) for key, option in aliases.items()}
    name = call.name.rpartition(".")[0].rpartition(".")[2]
    values["--factory"] = f"{name}_finetune" if call.ends("finetune_recipe") else name or None
    values["--seq_length"] = call.keywords.get("seq_length")
    return values | _adapter(call, calls) | _changes(call, text)


def _changes(call: Call, text: str) -> dict[str, Value]:
    """Return the values that a program sets in what a recipe returned."""
    line = text.split("\n")[call.line - 1] if call.line else ""
    assigned = re.match(r"\s*(\w+)\s*=", line)
    pattern = _CHANGE.format(name=assigned[1] if assigned else "recipe")
    changes = re.finditer(pattern, text)
    return {change["key"]: _constant(change["value"].strip()) for change in changes}


def _constant(text: str) -> Value:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return UnknownValue(why=f"{text} is known only when it runs")


def _objects(strategy: Call, calls: Sequence[Call]) -> dict[str, Value]:
    """Return the options of a program that builds strategy, trainer, data and model itself."""
    values = {f"--{name}": strategy.keywords.get(name) for name in _DEGREES}
    trainer = next((call for call in calls if call.ends("Trainer") and call.module == "nemo"), None)
    if trainer is not None:
        values["trainer.devices"] = trainer.keywords.get("devices")
        values["trainer.num_nodes"] = trainer.keywords.get("num_nodes", 1)
        values["--max_steps"] = trainer.keywords.get("max_steps")
    data = next((call for call in calls if {*_DATA[:2]} <= {*call.keywords}), None)
    if data is not None:
        values |= {f"--{name}": data.keywords.get(name) for name in _DATA}
    for call in calls:
        if match := _MODEL_CLASS.fullmatch(call.name.rpartition(".")[2]):
            values["--model"] = f"{match['family']}_{match['size']}".lower()
    precision = next((call for call in calls if call.ends("MegatronMixedPrecision")), None)
    if precision is not None:
        values["mixed_precision"] = str(precision.keywords.get("precision", "")).replace("-", "_")
    if adapter := next((call for call in calls if call.ends("LoRA")), None):
        values |= {"--mode": "lora", "peft.dim": adapter.keywords.get("dim", 32)}
    return values
