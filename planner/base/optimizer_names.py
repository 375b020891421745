"""What launch files and tables of runs call optimizers."""

from __future__ import annotations

import re
from collections.abc import Mapping

from planner.base.enums import OptimizerKind, StatePrecision

_KINDS = {
    OptimizerKind.ADAM: ("adam", "adamw"),
    OptimizerKind.SGD: ("sgd",),
    OptimizerKind.MOMENTUM: ("momentum", "sgd_momentum"),
    OptimizerKind.LION: ("lion",),
    OptimizerKind.ADAFACTOR: ("adafactor",),
    OptimizerKind.MUON: ("muon", "dist_muon"),
}
_BY_NAME = {name: kind for kind, names in _KINDS.items() for name in names}
_FORMATS = {
    **dict.fromkeys(("8bit", "8_bit", "int8"), StatePrecision.INT8),
    "fp8": StatePrecision.FP8,
    **dict.fromkeys(("bf16", "bfloat16"), StatePrecision.BF16),
    **dict.fromkeys(("32bit", "fp32"), StatePrecision.FP32),
}
# Words of an implementation; states of paged ones are on the GPU while they fit.
_IMPLEMENTATIONS = re.compile(
    r"^(paged|fused|cpu|deepspeed|ao)_|_(torch|hf|bnb|apex|fused|xla|npu|torchao)$"
)


_OF_TRANSFORMERS = {
    ("adam", "int8"): "adamw_8bit",
    ("lion", "framework"): "lion_32bit",
    ("lion", "fp32"): "lion_32bit",
    ("lion", "int8"): "lion_8bit",
    ("adafactor", "framework"): "adafactor",
    ("sgd", "framework"): "sgd",
}


_PAGED = {"adam": "paged_adamw", "lion": "paged_lion"}


def transformers_name(optimizer: str, state_precision: str, *, paged: bool = False) -> str | None:
    """What Transformers' ``optim`` calls it; None where that is its default, or has no such.

    >>> transformers_name("adam", "int8", paged=True), transformers_name("adam", "fp32", paged=True)
    ('paged_adamw_8bit', 'paged_adamw_32bit')
    """
    if paged and optimizer in _PAGED:
        return f"{_PAGED[optimizer]}_{'8bit' if state_precision == 'int8' else '32bit'}"
    return _OF_TRANSFORMERS.get((optimizer, state_precision))


def settings_of(name: str) -> Mapping[str, str]:
    """The settings that an optimizer of a library's name is; none of an unknown one.

    >>> settings_of("paged_adamw_8bit")
    {'optimizer': 'adam', 'optimizer_state_precision': 'int8', 'paged_optimizer': 'true'}
    """
    known = optimizer_of(name)
    if known is None:
        return {}
    told = {
        parameter: code.word
        for parameter, code in known.items()
        if code or parameter == "optimizer"
    }
    return told | ({"paged_optimizer": "true"} if is_paged(name) else {})


def is_paged(name: str) -> bool:
    """Whether the states of an optimizer of this name are in unified memory."""
    return name.strip().lower().startswith("paged_")


def optimizer_of(name: str) -> Mapping[str, OptimizerKind | StatePrecision] | None:
    """What a name means, as parameters of training; None where it is not known.

    >>> optimizer_of("paged_adamw_8bit")["optimizer_state_precision"].word
    'int8'
    >>> optimizer_of("adamw_torch_fused")["optimizer"].word
    'adam'
    >>> optimizer_of("lbfgs")
    """
    text, found = re.sub(r"[\s-]+", "_", name.strip().lower()), StatePrecision.FRAMEWORK
    while text not in _BY_NAME:
        shorter = _IMPLEMENTATIONS.sub("", text)
        for word, code in _FORMATS.items():
            if shorter.endswith("_" + word):
                shorter, found = shorter.removesuffix("_" + word), code
                break
        if shorter == text:
            return None
        text = shorter
    return {"optimizer": _BY_NAME[text], "optimizer_state_precision": found}
