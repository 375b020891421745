"""References in documents: ``${section.key}``, ``${oc.env:NAME,default}``, ``{{ name }}``.

OmegaConf resolves those to keys of the document and to variables of the environment; NeMo-RL adds
functions of two numbers. ``${NAME:-default}`` and ``${NAME:default}`` are those of shells and
Primus. A value that is a reference without a known value is unknown, never a text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from planner.documents.shell.edits import ParsedOption

_INNERMOST_REFERENCE = re.compile(r"\$\{([^${}]*)\}")
_RESOLVER_CALL = re.compile(r"(\w+):\s*([\d.]+)\s*,\s*([\d.]+)\s*")
_VARIABLE = re.compile(
    r"(?:oc\.env:|env:)\s*\w+\s*(?:,\s*(?P<default>.*))?|[A-Z_]\w*:-?(?P<other>.*)"
)
_RESOLVERS: Mapping[str, Callable[[float, float], float]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "max": max,
}
_MAX_REFERENCES = 32
_PLACEHOLDER = re.compile(r"\$\{[^{}]*\}|\{\{[^{}]*\}\}|\$[A-Za-z_]\w*")
"""A value that something outside of the document sets."""


def resolve_references(options: Mapping[str, ParsedOption]) -> dict[str, ParsedOption]:
    """Return options with references replaced by the values that the options or defaults have.

    A value that is nothing but a reference without a value is unknown. Resolved values have no
    positions for changes.
    """

    def value(key: str) -> str | None:
        return None if key not in options else options[key].single

    return {name: _resolve_option(option, value) for name, option in options.items()}


def _resolve_option(option: ParsedOption, value: Callable[[str], str | None]) -> ParsedOption:
    texts = tuple(text and _resolve_text(text, value) for text in option.texts)
    if texts == option.texts:
        return option
    unknown = [text for text, new in zip(option.texts, texts, strict=True) if text and new is None]
    reason = f"{unknown[0]} has no value in this file" if unknown else ""
    return replace(
        option, texts=texts, spans=(None,) * len(texts), unknown=option.unknown or reason
    )


def _resolve_text(text: str, value: Callable[[str], str | None]) -> str | None:
    """Return a text with its references resolved; None if it is one reference without a value."""
    if "$" not in text and "{{" not in text:
        return text
    resolved = interpolate(text, value)
    text = text if resolved is None else resolved
    return None if _PLACEHOLDER.fullmatch(text) else text


def interpolate(text: str, value: Callable[[str], str | None]) -> str | None:
    """Resolve the ``${...}`` references in a text; None if one has no value.

    ``value`` returns the text of a key, None if it is not set.

    >>> interpolate("${mul:${a.b}, 16}", {"a.b": "64"}.get)
    '1024'
    >>> interpolate("${oc.env:HOME}", {}.get)
    >>> interpolate("${oc.env:TP,4}", {}.get)
    '4'
    """
    for _ in range(_MAX_REFERENCES):
        match = _INNERMOST_REFERENCE.search(text)
        if match is None:
            return text
        resolved = _resolve(match[1].strip(), value)
        if resolved is None:
            return None
        text = text[: match.start()] + resolved + text[match.end() :]
    return None


def _resolve(expression: str, value: Callable[[str], str | None]) -> str | None:
    """Return the value of one reference: a key, or a function of two numbers; None if unknown."""
    call = _RESOLVER_CALL.fullmatch(expression)
    if call is None:
        variable = _VARIABLE.fullmatch(expression)
        return value(expression) if variable is None else variable["default"] or variable["other"]
    resolver = _RESOLVERS.get(call[1])
    try:
        number = None if resolver is None else resolver(float(call[2]), float(call[3]))
    except (ValueError, ZeroDivisionError):
        return None
    if number is None:
        return None
    return str(int(number)) if number.is_integer() else str(number)
