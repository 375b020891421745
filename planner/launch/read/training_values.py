"""Words of training programs for precision, recomputation, optimizers and adapters, as values."""

from __future__ import annotations

import re

from planner.base.enums import AdapterTargets
from planner.base.training_aliases import nearest_adapter_targets, parse_adapter_targets
from planner.launch.option_table import OptionRole, OptionTable
from planner.launch.read.parsed_launch import NOTHING, OptionReader, SettingsBuilder
from planner.question.terms import terms_about

_PRECISIONS = {
    **dict.fromkeys(("bf16", "bfloat16", "torch.bfloat16", "amp_bf16", "bf16-mixed"), "bf16"),
    **dict.fromkeys(("fp16", "float16", "half", "torch.float16", "amp_fp16"), "fp16"),
    **dict.fromkeys(("fp32", "float32", "float", "torch.float32"), "fp32"),
    **dict.fromkeys(("fp8", "amp_fp8"), "fp8"),
}
_RECOMPUTATION: dict[object, str] = {
    **dict.fromkeys((True, "true"), "full"),
    **dict.fromkeys((False, "false", "off"), "none"),
}


def set_training_value(settings: SettingsBuilder, parameter: str, value: object) -> None:
    """Set a parameter from a word of any training program; unknown words stay for the error.

    A default of the program that an optimizer's name decides is no assumption.
    """
    if parameter == "optimizer":
        settings.values[parameter] = "adam"
        settings.set_optimizer(str(value).removesuffix("Config"))
        return
    if parameter == "precision":
        value = _PRECISIONS.get(str(value).lower(), value)
    elif parameter == "recompute":
        value = _RECOMPUTATION.get(value, value)
    settings.values[parameter] = value


def read_adapter_targets(text: str) -> str:
    """Return the LoRA target set of module names: the names if all are known, else the nearest set.

    >>> read_adapter_targets("[q_proj, v_proj]"), read_adapter_targets("self_attn")
    ('q_proj,v_proj', 'attention')
    >>> read_adapter_targets("linear_qkv,linear_fc1"), read_adapter_targets("")
    ('all_linear', 'all_linear')
    """
    modules = ",".join(_MODULE.findall(text))
    word = parse_adapter_targets(modules)
    if modules.lower() in NOTHING or word == AdapterTargets.ALL_LINEAR:
        return str(AdapterTargets.ALL_LINEAR)
    return modules if word in [*AdapterTargets] else str(nearest_adapter_targets([modules]))


_MODULE = re.compile(r"[\w.*-]+")


def set_unlisted_optimizer(
    reading: OptionReader, table: OptionTable, settings: SettingsBuilder
) -> None:
    """Set the optimizer of a word that the rows of a table do not have; note an unknown one."""
    options = [row.option for row in table.rows_of("optimizer", OptionRole.IS, OptionRole.READS)]
    if reading.value("optimizer") is None and (
        name := next(filter(None, map(reading.text, options)), None)
    ):
        settings.set_optimizer(name)


DEGREES = terms_about("parallel_degree", "train")
"""Degrees of parallelism; a missing one is 1."""


def model_degrees(settings: SettingsBuilder) -> dict[str, int]:
    """Return the degrees that split one copy of the model, by term; a missing one is 1."""
    names = terms_about("model_parallel", "train")
    return {name: int(settings.values.get(name) or 1) for name in names}
