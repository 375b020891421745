"""Functions of templates of charts: those of Go, Sprig and Helm that decide what is started.

Sources: pkg.go.dev/text/template (functions), masterminds.github.io/sprig, helm.sh/docs
(chart_template_guide/function_list). What only names or signs things is empty here.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import reduce
from typing import Any

from planner.base import reading
from planner.documents.writing import yaml_scalar, yaml_text
from planner.errors import PlannerError

Value = Any
"""A value of YAML: a mapping, a list, a text, a number, true, false or nothing."""
_MOST = 10_000


class Refused(Exception):
    """The chart does not take its values; the text is the chart's own."""


def is_true(value: Value) -> bool:
    """Whether a template takes a value as true: what is not empty, zero or nothing."""
    return bool(value)


def shown(value: Value) -> str:
    """A value as a template writes it.

    >>> shown(True), shown(None), shown(2.0), shown([1, "a"])
    ('true', '', '2', '[1 a]')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    if isinstance(value, Mapping):
        return f"map[{' '.join(f'{key}:{shown(value[key])}' for key in sorted(value, key=str))}]"
    if isinstance(value, list | tuple):
        return f"[{' '.join(map(shown, value))}]"
    return str(value)


def _yaml(value: Value) -> str:
    if isinstance(value, Mapping | list | tuple):
        empty = "{}" if isinstance(value, Mapping) else "[]"
        return yaml_text(value).rstrip("\n") if value else empty  # type: ignore[arg-type]
    return "" if value is None else yaml_scalar(value)


def _indented(number: int, text: Value) -> str:
    blanks = " " * min(int(number), _MOST)
    return "\n".join(blanks + line for line in shown(text).split("\n"))


def _number(value: Value) -> float | int:
    """A number as Sprig casts it: 0 of what is none."""
    try:
        number = float(value if value is not None else 0)
    except (TypeError, ValueError):
        return 0
    return int(number) if math.isfinite(number) and number.is_integer() else number


def _whole(value: Value) -> int:
    number = _number(value)
    return math.trunc(number) if math.isfinite(number) else 0


def _refuse(message: Value) -> Value:
    raise Refused(shown(message))


def _required(message: Value, value: Value = None) -> Value:
    return _refuse(message) if value in (None, "") else value


def _kind(value: Value) -> str:
    kinds = {bool: "bool", int: "int64", float: "float64", str: "string", list: "slice",
             tuple: "slice", dict: "map", type(None): "invalid"}  # fmt: skip
    return kinds.get(type(value), "string")


def _index(value: Value, *keys: Value) -> Value:
    for key in keys:
        if isinstance(value, Mapping):
            value = value.get(key)
        elif isinstance(value, list | tuple) and 0 <= int(key) < len(value):
            value = value[int(key)]
        else:
            return None
    return value


def _dug(*arguments: Value) -> Value:
    *keys, otherwise, value = arguments
    found = _index(value, *keys)
    return otherwise if found is None else found


def _set(table: Value, key: Value, value: Value) -> Value:
    table[key] = value
    return table


def _merged(over: bool, table: Value, *others: Value) -> Value:
    for other in others:
        for key, value in (other or {}).items():
            if isinstance(table.get(key), dict) and isinstance(value, Mapping):
                _merged(over, table[key], value)
            elif over or table.get(key) is None:
                table[key] = value
    return table


def _printed(form: Value, *arguments: Value) -> str:
    left = [*arguments]

    def one(found: re.Match[str]) -> str:
        if found[0] == "%%":
            return "%"
        value = left.pop(0) if left else None
        if found[2] == "q":
            return json.dumps(shown(value), ensure_ascii=False)
        if found[2] == "d":
            return f"{_whole(value):{'0' if found[1].startswith('0') else ''}{found[1] or ''}d}"
        if found[2] == "f":
            return f"{float(_number(value)):{found[1] or ''}f}"
        return shown(value)

    return re.sub(r"%(?:%|(0?\d{0,2}(?:\.\d)?)[+#]?([vsdqtf]))", one, shown(form))


def _until(start: Value, stop: Value = None, step: Value = 1) -> list[int]:
    first, last = (0, _whole(start)) if stop is None else (_whole(start), _whole(stop))
    return [*range(first, last, _whole(step) or 1)[:_MOST]]


def _divided(a: Value, b: Value) -> Value:
    return math.trunc(_whole(a) / _whole(b))


def _read(text: Value) -> Value:
    from planner.documents.yaml_places import documents

    try:
        found = documents(shown(text), "a text of the template")
    except PlannerError:
        return {}
    return found[0].plain if found else {}


def _cut(start: Value, end: Value, text: Value) -> str:
    return shown(text)[_whole(start) : None if _whole(end) < 0 else _whole(end)]


def _compared(test: Callable[[Any, Any], bool]) -> Callable[[Value, Value], bool]:
    def compare(a: Value, b: Value) -> bool:
        is_text = isinstance(a, str) and isinstance(b, str)
        return test(a, b) if is_text else test(_number(a), _number(b))

    return compare


def _same(a: Value, *others: Value) -> bool:
    return any(a == other and isinstance(a, bool) == isinstance(other, bool) for other in others)


def _first_of(values: Sequence[Value]) -> Value:
    return next((value for value in values if is_true(value)), values[-1] if values else None)


def _all_of(values: Sequence[Value]) -> Value:
    return next((value for value in values if not is_true(value)), values[-1] if values else None)


def _listed(value: Value) -> list[Value]:
    return [*value] if isinstance(value, list | tuple) else []


def _part(text: str, mark: str, at: int) -> str:
    return text.split(mark)[at] if mark else text


FUNCTIONS: Mapping[str, Callable[..., Value]] = {
    # of Go
    "and": lambda *values: _all_of(values),
    "or": lambda *values: _first_of(values),
    "not": lambda value: not is_true(value),
    "eq": _same,
    "ne": lambda a, b: not _same(a, b),
    "lt": _compared(lambda a, b: bool(a < b)),
    "le": _compared(lambda a, b: bool(a <= b)),
    "gt": _compared(lambda a, b: bool(a > b)),
    "ge": _compared(lambda a, b: bool(a >= b)),
    "index": _index,
    "len": lambda value: 0 if value is None else len(value),
    "print": lambda *values: "".join(map(shown, values)),
    "printf": _printed,
    "println": lambda *values: " ".join(map(shown, values)) + "\n",
    # of Helm
    "toYaml": _yaml,
    "toJson": lambda value: json.dumps(value, ensure_ascii=False),
    "toPrettyJson": lambda value: json.dumps(value, ensure_ascii=False, indent=2),
    "fromYaml": _read,
    "fromYamlArray": _read,
    "fromJson": lambda text: reading.json_of(shown(text), "a text of the template"),
    "required": _required,
    "fail": _refuse,
    "lookup": lambda *_: {},
    # defaults
    "default": lambda otherwise, value=None: value if is_true(value) else otherwise,
    "empty": lambda value: not is_true(value),
    "coalesce": lambda *values: _first_of(values),
    "ternary": lambda a, b, test: a if is_true(test) else b,
    "kindIs": lambda kind, value: _kind(value) == kind,
    "kindOf": _kind,
    "typeIs": lambda kind, value: _kind(value) == kind,
    "typeOf": _kind,
    # texts
    "quote": lambda *values: " ".join(json.dumps(shown(one), ensure_ascii=False)
                                      for one in values if one is not None),
    "squote": lambda *values: " ".join(f"'{shown(one)}'" for one in values if one is not None),
    "indent": _indented,
    "nindent": lambda number, text: "\n" + _indented(number, text),
    "lower": lambda text: shown(text).lower(),
    "upper": lambda text: shown(text).upper(),
    "title": lambda text: shown(text).title(),
    "trim": lambda text: shown(text).strip(),
    "trimAll": lambda marks, text: shown(text).strip(shown(marks)),
    "trimPrefix": lambda part, text: shown(text).removeprefix(shown(part)),
    "trimSuffix": lambda part, text: shown(text).removesuffix(shown(part)),
    "trunc": lambda number, text: (
        shown(text)[: int(number)] if int(number) >= 0 else shown(text)[int(number) :]
    ),
    "substr": _cut,
    "replace": lambda old, new, text: shown(text).replace(shown(old), shown(new)),
    "nospace": lambda text: "".join(shown(text).split()),
    "repeat": lambda number, text: (shown(text)[:_MOST] * min(_whole(number), _MOST))[:_MOST],
    "contains": lambda part, text: shown(part) in shown(text),
    "hasPrefix": lambda part, text: shown(text).startswith(shown(part)),
    "hasSuffix": lambda part, text: shown(text).endswith(shown(part)),
    "cat": lambda *values: " ".join(map(shown, values)),
    "join": lambda mark, values: shown(mark).join(map(shown, _listed(values))),
    "splitList": lambda mark, text: shown(text).split(shown(mark)),
    "toString": shown,
    "toStrings": lambda values: [*map(shown, _listed(values))],
    "base": lambda text: _part(shown(text).rstrip("/"), "/", -1),
    # numbers
    "int": _whole,
    "int64": _whole,
    "float64": lambda value: float(_number(value)),
    "atoi": _whole,
    "add": lambda *values: sum(map(_whole, values)),
    "add1": lambda value: _whole(value) + 1,
    "sub": lambda a, b: _whole(a) - _whole(b),
    "mul": lambda *values: math.prod(map(_whole, values)),
    "div": _divided,
    "mod": lambda a, b: _whole(a) % _whole(b),
    "max": lambda *values: max(map(_whole, values)),
    "min": lambda *values: min(map(_whole, values)),
    "addf": lambda *values: sum(map(_number, values)),
    "mulf": lambda *values: math.prod(map(_number, values)),
    "divf": lambda a, b: _number(a) / _number(b),
    "subf": lambda a, b: _number(a) - _number(b),
    "ceil": lambda value: float(math.ceil(_number(value))),
    "floor": lambda value: float(math.floor(_number(value))),
    "round": lambda value, digits=0: round(float(_number(value)), _whole(digits)),
    "until": lambda number: _until(number),
    "untilStep": _until,
    # mappings and lists
    "dict": lambda *pairs: dict(zip(pairs[::2], pairs[1::2], strict=True)),
    "list": lambda *values: [*values],
    "tuple": lambda *values: [*values],
    "get": lambda table, key: "" if table.get(key) is None else table[key],
    "hasKey": lambda table, key: isinstance(table, Mapping) and key in table,
    "set": _set,
    "unset": lambda table, key: {name: one for name, one in table.items() if name != key},
    "pick": lambda table, *keys: {key: table[key] for key in keys if key in table},
    "omit": lambda table, *keys: {key: one for key, one in table.items() if key not in keys},
    "keys": lambda *tables: [key for table in tables for key in table],
    "values": lambda table: [*table.values()],
    "merge": lambda table, *others: _merged(False, table, *others),
    "mergeOverwrite": lambda table, *others: _merged(True, table, *others),
    "deepCopy": deepcopy,
    "dig": _dug,
    "has": lambda value, values: value in _listed(values),
    "first": lambda values: next(iter(values or []), None),
    "last": lambda values: _listed(values)[-1] if values else None,
    "rest": lambda values: _listed(values)[1:],
    "initial": lambda values: _listed(values)[:-1],
    "append": lambda values, one: [*_listed(values), one],
    "prepend": lambda values, one: [one, *_listed(values)],
    "concat": lambda *lists: [one for values in lists for one in _listed(values)],
    "without": lambda values, *out: [one for one in _listed(values) if one not in out],
    "uniq": lambda values: reduce(
        lambda kept, one: kept if one in kept else [*kept, one], _listed(values), []
    ),
    "compact": lambda values: [one for one in _listed(values) if is_true(one)],
    "reverse": lambda values: _listed(values)[::-1],
    "sortAlpha": lambda values: sorted(map(shown, _listed(values))),
    # what only names and signs
    **dict.fromkeys(
        ("b64enc", "b64dec", "sha256sum", "sha1sum", "randAlphaNum", "randAlpha", "randNumeric",
         "now", "date", "htpasswd", "genCA", "uuidv4", "unixEpoch", "adler32sum"),
        lambda *_: "",
    ),
    "semverCompare": lambda *_: True,
}  # fmt: skip
"""By name, with arguments in the order of templates: what is piped comes last."""
