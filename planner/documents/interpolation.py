"""Values of YAML that stand for others: ``${section.key}`` of OmegaConf, and sums of such.

``add``, ``mul``, ``div`` and ``max`` are the resolvers that NVIDIA-NeMo/RL registers (7ea279a,
``nemo_rl/utils/config.py``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

_INNERMOST = re.compile(r"\$\{([^${}]*)\}")
_CALLED = re.compile(r"(\w+):\s*([\d.]+)\s*,\s*([\d.]+)\s*")
_RESOLVERS: Mapping[str, Callable[[float, float], float]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "max": max,
}
_MOST = 32


def interpolated(text: str, value: Callable[[str], str | None]) -> str | None:
    """The text with what it refers to in place; None where that is not told.

    ``value`` is what a key has, None of one that is not there.

    >>> interpolated("${mul:${a.b}, 16}", {"a.b": "64"}.get)
    '1024'
    >>> interpolated("${oc.env:HOME}", {}.get)
    """
    for _ in range(_MOST):
        place = _INNERMOST.search(text)
        if place is None:
            return text
        inside = _told(place[1].strip(), value)
        if inside is None:
            return None
        text = text[: place.start()] + inside + text[place.end() :]
    return None


def _told(inside: str, value: Callable[[str], str | None]) -> str | None:
    called = _CALLED.fullmatch(inside)
    if called is None:
        return value(inside)
    resolver = _RESOLVERS.get(called[1])
    try:
        number = None if resolver is None else resolver(float(called[2]), float(called[3]))
    except (ValueError, ZeroDivisionError):
        return None
    if number is None:
        return None
    return str(int(number)) if number.is_integer() else str(number)
