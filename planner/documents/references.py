"""References of OmegaConf in the values of a YAML file: ``${section.key}``, and its functions.

Source: NVIDIA-NeMo/RL, ``nemo_rl/utils/config.py`` (7ea279a), for ``add``, ``mul``, ``div`` and
``max``.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from planner.documents.shell.edits import ParsedOption

_INNERMOST = re.compile(r"\$\{([^${}]*)\}")
_CALL = re.compile(r"(\w+):\s*([\d.]+)\s*,\s*([\d.]+)\s*")
_FUNCTIONS: Mapping[str, Callable[[float, float], float]] = {
    "add": operator.add,
    "mul": operator.mul,
    "div": operator.truediv,
    "max": max,
}
_MOST_REFERENCES = 32


def resolve_references(options: Mapping[str, ParsedOption]) -> dict[str, ParsedOption]:
    """Return options with values in place of references; a value with an unknown one stays."""
    resolved = dict(options)
    for name, option in options.items():
        text = option.single or ""
        value = interpolate(text, lambda key: resolved[key].single if key in resolved else None)
        if value not in (None, text):
            resolved[name] = replace(option, texts=(value,))
    return resolved


def interpolate(text: str, value: Callable[[str], str | None]) -> str | None:
    """Resolve the references in a text; None if one has no value.

    ``value`` returns the text of a key, None if it is not set.

    >>> interpolate("${mul:${a.b}, 16}", {"a.b": "64"}.get)
    '1024'
    >>> interpolate("${oc.env:HOME}", {}.get)
    """
    for _ in range(_MOST_REFERENCES):
        match = _INNERMOST.search(text)
        if match is None:
            return text
        call = _CALL.fullmatch(match[1].strip())
        result = value(match[1].strip()) if call is None else _call(*call.groups())
        if result is None:
            return None
        text = text[: match.start()] + result + text[match.end() :]
    return None


def _call(name: str, first: str, second: str) -> str | None:
    """Return a function of two numbers as text; None if it is unknown, or not defined for them."""
    try:
        number = float(_FUNCTIONS[name](float(first), float(second)))
    except (KeyError, ValueError, ZeroDivisionError):
        return None
    return str(int(number)) if number.is_integer() else str(number)
