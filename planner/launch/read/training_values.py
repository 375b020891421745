"""Words of training programs for precision, recomputation and optimizers, as planner's values."""

from __future__ import annotations

from planner.launch.read.parsed_launch import SettingsBuilder

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
        settings.set_optimizer(str(value))
        return
    if parameter == "precision":
        value = _PRECISIONS.get(str(value).lower(), value)
    elif parameter == "recompute":
        value = _RECOMPUTATION.get(value, value)
    settings.values[parameter] = value
