"""What may be wrong with a file: its bytes, its words and numbers, its tables."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any

ODD: list[Any] = [
    None, True, False, 0, -1, 1, 7, 10**9, 10**18, 10**19, 10**40, 10**400, -(10**400), 0.5, -0.5,
    1e-300, 1e300, float("nan"), float("inf"), "", " ", "x", "8", "-1", "nan", "1e999", "true",
    "none", "auto", "8 GiB", "9" * 400, "x" * 300, "x" * 5000, "a/b", "\0", "\ud800", "٣", "=1+1",
    "../..", "/dev/null", "[", [], {}, [[]], [1, 2], ["x"], {"a": 1}, [None], {"": {}},
]  # fmt: skip
NUMBERS = ["0", "-1", "1", "0.5", "1e308", "1e999", "-0", "nan", "inf", "9" * 19, "9" * 400,
           "1000000000000", "1_0", "0x10", "1e-320", "٣", "007", "1.", "2048k"]  # fmt: skip
CHUNKS = [
    "\0", "\ufeff", "\u2028", "\x85", "\x1b[31m", '"', "'", "`", "$(", "${", "\\", "\\\n", "\r",
    "\n\n", "\t", "#", "%", "&a ", "*a ", "<<: ", "!!python/object ", "---\n", "<<EOF\n", "😀", ",",
    ";", "|", ">", "()", "[" * 10_000, "{" * 10_000, '{"a":' * 10_000, "a." * 5000, "x" * 70_000,
]  # fmt: skip
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_WORD = re.compile(r"[A-Za-z_][\w.-]*")
_ENCODINGS = ("utf-16", "utf-8-sig", "utf-32", "latin-1", "utf-16-be")


def changed_bytes(draw: Random, content: bytes) -> bytes:
    """Other bytes: some flipped, cut off, twice, of another encoding."""
    if draw.random() < 0.15:
        text = content.decode(errors="replace")
        return text.encode(draw.choice(_ENCODINGS), errors="replace")
    found = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 8))):
        at = draw.randrange(len(found) + 1)
        kind = draw.randrange(4)
        if kind == 0 and at < len(found):
            found[at] ^= 1 << draw.randrange(8)
        elif kind == 1:
            del found[at:]
        elif kind == 2:
            found[at:at] = bytes(draw.randrange(256) for _ in range(draw.randrange(1, 9)))
        else:
            end = min(len(found), at + draw.randrange(1, 200))
            found[at:end] = b"" if draw.random() < 0.5 else found[at:end] * 2
    return bytes(found)


def changed_text(draw: Random, text: str) -> str:
    """Other words, numbers and lines."""
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        text = draw.choice(_TEXTS)(draw, text)
    return text


def _other_number(draw: Random, text: str) -> str:
    found = [*_NUMBER.finditer(text)]
    if not found:
        return text
    one = draw.choice(found)
    return text[: one.start()] + draw.choice(NUMBERS) + text[one.end() :]


def _other_word(draw: Random, text: str) -> str:
    found = [*_WORD.finditer(text)]
    if not found:
        return text
    one, other = draw.choice(found), draw.choice(found)[0]
    word = draw.choice([other, other, "", "none", "true", "x" * 300, *NUMBERS[:3]])
    return text[: one.start()] + word + text[one.end() :]


def _other_lines(draw: Random, text: str) -> str:
    lines = text.splitlines(keepends=True)
    if not lines:
        return text
    at = draw.randrange(len(lines))
    kind = draw.randrange(4)
    if kind == 0:
        del lines[at]
    elif kind == 1:
        lines.insert(at, draw.choice(lines))
    elif kind == 2:
        other = draw.randrange(len(lines))
        lines[at], lines[other] = lines[other], lines[at]
    else:
        lines[at] = lines[at] * draw.choice((2, 300))
    return "".join(lines)


def _chunk(draw: Random, text: str) -> str:
    at = draw.randrange(len(text) + 1)
    return text[:at] + draw.choice(CHUNKS) + text[at:]


_TEXTS: tuple[Callable[[Random, str], str], ...] = (
    _other_number, _other_number, _other_word, _other_word, _other_lines, _chunk,
)  # fmt: skip


def changed_tree(draw: Random, tree: Any) -> Any:
    """A copy with other values: dropped, renamed, exchanged, deep, of other types."""
    tree = json.loads(json.dumps(tree, default=str))
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        tree = _changed_once(draw, tree)
    return tree


def _changed_once(draw: Random, tree: Any) -> Any:
    places = [*_places(tree)]
    if not places or draw.random() < 0.02:
        return draw.choice(ODD)
    holder, key = draw.choice(places)
    kind = draw.randrange(8)
    if kind == 0:
        del holder[key]
    elif kind == 1:
        value = holder[key]
        holder[key] = draw.choice(([value], {"x": value}, [value, value], str(value), [[value]]))
    elif kind == 2:
        other, place = draw.choice(places)
        holder[key] = deepcopy(other.get(place) if isinstance(other, dict) else None)
    elif kind == 3 and isinstance(holder, dict):
        holder[draw.choice(("x", "", "a.b", f"{key} ", str(key).upper()))] = holder.pop(key)
    elif kind == 4:
        deep: Any = holder[key]
        for _ in range(draw.choice((50, 150, 250))):
            deep = [deep] if draw.random() < 0.5 else {"a": deep}
        holder[key] = deep if draw.random() < 0.3 else draw.choice(ODD)
    else:
        holder[key] = draw.choice(ODD)
    return tree


def _places(tree: Any) -> Any:
    waiting = [tree] if isinstance(tree, dict | list) else []
    while waiting:
        found = waiting.pop()
        keys = [*found] if isinstance(found, dict) else [*range(len(found))]
        for key in keys[:200]:
            yield found, key
            if isinstance(found[key], dict | list):
                waiting.append(found[key])


def json_text(tree: Any) -> str:
    """JSON of any depth; a text where there is none."""
    try:
        return json.dumps(tree)
    except (RecursionError, ValueError):  # a tree too deep
        return "[" * 5000 + "]" * 5000


def toml_text(tree: Any) -> str:
    """TOML of a tree; what TOML has not becomes a text."""
    if not isinstance(tree, dict):
        return f"x = {_inline(tree, 0)}\n"
    lines = [f"{_key(name)} = {_inline(v, 0)}" for name, v in tree.items() if not _is_table(v)]
    for name, value in tree.items():
        for table in value if isinstance(value, list) else [value]:
            if _is_table(value):
                brackets = "[[{}]]" if isinstance(value, list) else "[{}]"
                lines.append(brackets.format(_key(name)))
                lines += [f"{_key(key)} = {_inline(inner, 0)}" for key, inner in table.items()]
    return "\n".join(lines) + "\n"


def _is_table(value: Any) -> bool:
    listed = value if isinstance(value, list) and value else [value]
    return all(isinstance(one, dict) for one in listed)


def _key(name: str) -> str:
    return json.dumps(str(name))


def _inline(value: Any, depth: int) -> str:
    if depth > 200:
        return "0"
    if isinstance(value, dict):
        return (
            "{" + ", ".join(f"{_key(k)} = {_inline(v, depth + 1)}" for k, v in value.items()) + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(_inline(one, depth + 1) for one in value) + "]"
    if isinstance(value, bool | str) or value is None:
        return json.dumps("null" if value is None else value)
    return str(value)


def changed_cells(draw: Random, text: str) -> str:
    """A table of CSV with other cells, columns or rows."""
    rows = [*csv.reader(io.StringIO(text))]
    for _ in range(draw.choice((1, 1, 2, 5))):
        row = draw.choice(rows) if rows else []
        if not row:
            continue
        at = draw.randrange(len(row))
        kind = draw.randrange(5)
        if kind == 0:
            del row[at]
        elif kind == 1:
            for one in rows:
                del one[at : at + 1]
        elif kind == 2:
            row[at] = draw.choice(draw.choice(rows) or [""])
        else:
            row[at] = draw.choice([*NUMBERS, *(str(one) for one in ODD), ""])
    out = io.StringIO()
    csv.writer(out, lineterminator="\n", escapechar="\\").writerows(rows)
    return out.getvalue()
