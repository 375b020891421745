"""How values are written in YAML and JSON so that they read back as they are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

from planner.errors import LaunchError

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ufeff\u2028\u2029\ud800-\udfff\ufffe\uffff]")
_PLAIN_SCALAR = re.compile(r"[A-Za-z_/][A-Za-z0-9_./+-]*")
# Read as something else than text by YAML 1.1 or 1.2.
_NOT_TEXT = re.compile(r"(?i)~|null|none|true|false|yes|no|on|off|y|n|nan|inf")

Scalar = str | int | float | bool | None


def yaml_scalar(value: Scalar) -> str:
    """A value on one line of YAML 1.1 or 1.2, block or flow, that reads back as it is.

    >>> print(*map(yaml_scalar, (8, True, None, 1e-5, "bf16", "no", "1e5", "a: b #c")))
    8 true null 1.0e-05 bf16 "no" "1e5" "a: b #c"
    """
    if not isinstance(value, str):
        return _number(value)
    if _PLAIN_SCALAR.fullmatch(value) and not _NOT_TEXT.fullmatch(value):
        return value
    quoted = json.dumps(value, ensure_ascii=False)
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", quoted)


def json_scalar(value: Scalar) -> str:
    """A value of JSON.

    Raises LaunchError for infinity and not-a-number, which JSON does not have.
    """
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        raise LaunchError(f"JSON has no number {value}.") from None


def _number(value: float | None) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    text = repr(float(value))
    if text in ("inf", "-inf", "nan"):
        return text.replace("inf", ".inf").replace("nan", ".nan")
    # YAML 1.1 reads an exponent without a point as text.
    return text if "." in text or "e" not in text else text.replace("e", ".0e")


def yaml_text(
    document: Mapping[str, object], notes: Mapping[str, str] | None = None, *, list_by: str = "  "
) -> str:
    """A document of sections, lists and scalars; texts of several lines are written as blocks.

    ``notes`` by dotted key become comments behind their lines; ``list_by`` is how much further to
    the right the items of a list are than its key.

    >>> print(yaml_text({"a": {"b": [1, "x"]}, "c": None}, {"c": "unknown"}), end="")
    a:
      b:
        - 1
        - x
    c: null  # unknown
    """
    return "".join(f"{line}\n" for line in _lines(document, notes or {}, "", list_by))


def documents(objects: Iterable[Mapping[str, object]]) -> str:
    """A stream of documents."""
    return "".join(f"---\n{yaml_text(one, list_by='')}" for one in objects)


def _lines(value: object, notes: Mapping[str, str], path: str, list_by: str) -> list[str]:
    if isinstance(value, Mapping):
        pairs = ((str(key), part) for key, part in value.items())
        return [line for key, part in pairs for line in _pair(key, part, notes, path, list_by)]
    parts = value if isinstance(value, list | tuple) else ()
    return [line for part in parts for line in _item(part, notes, list_by)]


def _pair(key: str, value: object, notes: Mapping[str, str], path: str, list_by: str) -> list[str]:
    note, name = notes.get(f"{path}{key}"), yaml_scalar(key)
    remark = f"  # {note}" if note else ""
    if isinstance(value, Mapping | list | tuple) and value:
        by = "  " if isinstance(value, Mapping) else list_by
        inner = _lines(value, notes, f"{path}{key}.", list_by)
        return [f"{name}:{remark}", *(by + line if line else line for line in inner)]
    head, *rest = _scalar(value)
    return [f"{name}: {head}{remark}", *rest]


def _item(value: object, notes: Mapping[str, str], list_by: str) -> list[str]:
    is_several = isinstance(value, Mapping | list | tuple) and bool(value)
    head, *rest = _lines(value, notes, "", list_by) if is_several else _scalar(value)
    return [f"- {head}", *(f"  {line}" if is_several and line else line for line in rest)]


def _scalar(value: object) -> list[str]:
    if isinstance(value, Mapping):
        return ["{}"]
    if isinstance(value, list | tuple):
        return ["[]"]
    if isinstance(value, str) and "\n" in value and _is_block(value):
        return ["|", *(f"  {line}" if line else "" for line in value[:-1].split("\n"))]
    return [yaml_scalar(value if isinstance(value, Scalar) else str(value))]


def _is_block(text: str) -> bool:
    """Whether a block gives the text back: it ends with one line feed and begins with no blank."""
    lines = text[:-1].split("\n")
    return (
        text.endswith("\n")
        and bool(lines[0])
        and bool(lines[-1])
        and not lines[0].startswith((" ", "\t"))
        and all(line.isprintable() for line in lines)
    )
