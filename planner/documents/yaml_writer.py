"""Values of YAML and JSON: written so that they read back, and set in a document of others."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from planner.base.read_files import UncheckedTable
from planner.documents.shell.edits import (
    Changes,
    EditResult,
    Span,
    Texts,
    after_change,
    apply_edits,
    first_that_reads,
)
from planner.documents.yaml_tree import (
    EditPosition,
    Leaf,
    Node,
    Tree,
    key_path,
    path_keys,
    read_trees,
)
from planner.errors import LaunchError

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ufeff\u2028\u2029\ud800-\udfff\ufffe\uffff]")
_PLAIN_SCALAR = re.compile(r"[A-Za-z_/][A-Za-z0-9_./+-]*")
# Words that YAML 1.1 or 1.2 does not read as text.
_NOT_TEXT = re.compile(r"(?i)~|null|none|true|false|yes|no|on|off|y|n|nan|inf")

Scalar = str | int | float | bool | None


def yaml_scalar(value: Scalar) -> str:
    """Write a value on one line of YAML 1.1 or 1.2 so that it reads back unchanged.

    >>> print(*map(yaml_scalar, (8, True, None, 1e-5, "bf16", "no", "1e5", "a: b #c")))
    8 true null 1.0e-05 bf16 "no" "1e5" "a: b #c"
    """
    if not isinstance(value, str):
        return _number(value)
    if _PLAIN_SCALAR.fullmatch(value) and not _NOT_TEXT.fullmatch(value):
        return value
    quoted = json.dumps(value, ensure_ascii=False)
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", quoted)


def json_scalar(value: Scalar) -> str:
    """Write a value as JSON.

    Raises LaunchError for infinity and not-a-number, which JSON does not have.
    """
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        raise LaunchError(f"JSON has no number {value}.") from None


def _number(value: float | None) -> str:
    """Return a number, boolean or null as YAML 1.1 text."""
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
    document: UncheckedTable, notes: Mapping[str, str] | None = None, *, list_by: str = "  "
) -> str:
    """Write a document of mappings, lists and scalars as YAML, with optional comments.

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


def documents(objects: Iterable[UncheckedTable]) -> str:
    """A stream of documents."""
    return "".join(f"---\n{yaml_text(value, list_by='')}" for value in objects)


def _lines(value: object, notes: Mapping[str, str], path: str, list_by: str) -> list[str]:
    """Return a mapping's or list's lines without indent; ``notes`` become comments by path."""
    if isinstance(value, Mapping):
        pairs = ((str(key), part) for key, part in value.items())
        return [line for key, part in pairs for line in _pair(key, part, notes, path, list_by)]
    parts = value if isinstance(value, list | tuple) else ()
    return [line for part in parts for line in _item(part, notes, list_by)]


def _pair(key: str, value: object, notes: Mapping[str, str], path: str, list_by: str) -> list[str]:
    """Return the lines of a key with its value, with its note as a comment."""
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
    """Return the lines of a scalar or an empty container; a text of several lines as a block."""
    if isinstance(value, Mapping):
        return ["{}"]
    if isinstance(value, list | tuple):
        return ["[]"]
    if isinstance(value, str) and "\n" in value and _is_block(value):
        return ["|", *(f"  {line}" if line else "" for line in value[:-1].split("\n"))]
    return [yaml_scalar(value if isinstance(value, Scalar) else str(value))]


def _is_block(text: str) -> bool:
    """Return whether a YAML block would preserve the text's blanks and line feeds."""
    lines = text[:-1].split("\n")
    return (
        text.endswith("\n")
        and bool(lines[0])
        and bool(lines[-1])
        and not lines[0].startswith((" ", "\t"))
        and all(line.isprintable() for line in lines)
    )


_JSON_PLAIN = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")
_YAML_PLAIN = re.compile(r"[-+]?\.?\d[\w.+-]*|true|false|null|~|yes|no|on|off", re.I)
_REST_OF_LINE = re.compile(r"[ \t]*(?:#[^\n]*)?(?:\r?\n|$)")
_COMMA_BEHIND = re.compile(r"\s*,[ \t]*(?:\r?\n[ \t]*)?")
_COMMA_BEFORE = re.compile(r",\s*$")
_STEP = "  "


def edit_document(text: str, name: str, changes: Changes, number: int = 0) -> EditResult:
    """Change values of a YAML or JSON text by path; return the text and the unwritten changes.

    Texts that read as numbers or truth values are written as these, unless the old value was in
    quotes; several texts, or those of a list, become a list. ``number`` is the index of the
    document in a file of several. Changes that would affect other values are not made, and are in
    ``unwritten``. Raises `LaunchError` if the text cannot be read.
    """
    unwritten: dict[str, tuple[str, ...] | None] = {}
    for path, texts in changes.items():
        tree = _tree(text, name, number)
        old = _texts(tree)
        if old.get(path) == texts:
            continue
        if path in tree.places:
            candidates = _removed(tree, path) if texts is None else _changed(tree, path, texts)
        elif texts is None:
            continue
        else:
            candidates = _added(tree, path, texts)
        wanted = after_change(old, path, texts)
        edited = first_that_reads(
            candidates, wanted, lambda candidate: _texts(_tree(candidate, name, number))
        )
        if edited is None:
            unwritten[path] = texts
        else:
            text = edited
    return EditResult(text=text, unwritten=unwritten)


def _tree(text: str, name: str, number: int) -> Tree:
    trees = read_trees(text, name)
    if number >= len(trees):
        raise LaunchError(f"{name} has no document {number + 1}.")
    return trees[number]


def _texts(tree: Tree) -> dict[str, Texts]:
    """Return the texts of all values by path; a list of scalars is one value."""
    return {
        path: leaf.texts
        for path, leaf in tree.values.items()
        if not (isinstance(leaf.value, list) and not leaf.texts)
        and tree.places[path].parent not in tree.values
    }


# Setting


def _changed(tree: Tree, path: str, texts: tuple[str, ...]) -> Iterator[str]:
    """Yield texts of the document with a new value: in place, else as a flow list."""
    leaf, position = tree.values.get(path), tree.places[path]
    is_list = leaf is None or isinstance(leaf.value, list) or len(texts) != 1
    spans = [span for span in (leaf.spans if leaf else ()) if span is not None]
    if leaf is not None and len(spans) == len(texts):
        new = [_like(tree, leaf, text) for text in texts]
        changes = {
            span: _placed(tree.text, span, new_text)
            for span, new_text in zip(spans, new, strict=True)
        }
        yield apply_edits(tree.text, changes)
    if is_list and position.key is not None:
        start = tree.text.find(":", position.key.end) + 1
        written = f" [{', '.join(_as_scalar(tree, text) for text in texts)}]"
        end = max(position.node.end, start)
        newline = "\n" if tree.text[start:end].endswith("\n") else ""
        yield tree.text[:start] + written + newline + tree.text[end:]


def _like(tree: Tree, leaf: Leaf, text: str) -> str:
    """Write a new value in quotes if the old value was a number in quotes, else plain."""
    old = leaf.texts[0] if leaf.texts else None
    values = leaf.value if isinstance(leaf.value, list) else [leaf.value]
    if old and values and isinstance(values[0], str) and _YAML_PLAIN.fullmatch(old):
        return json_scalar(text) if tree.is_json else yaml_scalar(text)
    return _as_scalar(tree, text)


def _as_scalar(tree: Tree, text: str) -> str:
    if tree.is_json:
        return text if _JSON_PLAIN.fullmatch(text) else json_scalar(text)
    return text if _YAML_PLAIN.fullmatch(text) else yaml_scalar(text)


def _placed(text: str, span: Span, new: str) -> str:
    """A value with the text it needs around: a blank after the colon, the end of a block."""
    blank = " " if span.start == span.end and text[span.start - 1 : span.start] in ":-" else ""
    return f"{blank}{new}" + ("\n" if text[span.start : span.end].endswith("\n") else "")


# Removing


def _removed(tree: Tree, path: str) -> Iterator[str]:
    """Yield texts without the value, then without parents that would become empty."""
    step: str | None = path
    while step:
        position = tree.places[step]
        parent = tree.places.get(position.parent or "")
        if parent is None:
            return
        if position.key is not None or parent.node.kind == "list":
            yield from _cut(tree.text, position, parent.node)
        step = position.parent


def _cut(text: str, position: EditPosition, parent: Node) -> Iterator[str]:
    """Yield texts without a value and its comma or line, candidates for the edit."""
    start = position.key.start if position.key is not None else position.node.start
    end = max(position.node.end, position.key.end + 1 if position.key is not None else 0)
    if parent.style == "flow":
        if behind := _COMMA_BEHIND.match(text, end):
            yield text[:start] + text[behind.end() :]
        if before := _COMMA_BEFORE.search(text[:start]):
            yield text[: before.start()] + text[end:]
        yield text[:start] + text[end:]
        return
    rest = _REST_OF_LINE.match(text, end)
    stop = end if text[:end].endswith("\n") or rest is None else rest.end()
    line = text.rfind("\n", 0, start) + 1
    if not text[line:start].strip(" \t") or re.fullmatch(r"[ \t]*-[ \t]+", text[line:start]):
        if not text[line:start].strip(" \t") or position.key is None:
            yield text[:line] + text[stop:]
        # The first key after a dash: the next key moves there.
        following = len(text[stop:]) - len(text[stop:].lstrip(" \t"))
        yield text[:start] + text[stop + following :]


# Adding


def _added(tree: Tree, path: str, texts: tuple[str, ...]) -> Iterator[str]:
    """Yield texts with a new path in its deepest existing mapping or empty value."""
    keys = path_keys(path)
    for depth in range(len(keys) - 1, -1, -1):
        position = tree.places.get(".".join(map(key_path, keys[:depth])))
        if position is None:
            continue
        node = position.node
        target = node.target or node
        if target.kind == "mapping":
            yield from _in_mapping(tree, target, keys[depth:], texts)
        elif not target.text and not target.unknown:
            inner = _flow(tree, keys[depth:], texts)
            span = Span(node.start, node.end)
            yield apply_edits(tree.text, {span: _placed(tree.text, span, f"{{{inner}}}")})
        return


def _in_mapping(
    tree: Tree, node: Node, keys: Sequence[str], texts: tuple[str, ...]
) -> Iterator[str]:
    """Yield texts with new keys in a mapping: in braces, or as lines behind its last key."""
    text = tree.text
    if node.style == "flow" or tree.is_json:
        yield from _in_braces(tree, node, keys, texts)
    elif not node.items:
        yield (
            text + ("" if text.endswith("\n") or not text else "\n") + _block(keys, texts, "", tree)
        )
    else:
        first, last = node.items[0][0], _end(node)
        start = first.start if first is not None else node.start
        # An anchor or a question mark may precede the first key.
        columns = {at - (text.rfind("\n", 0, at) + 1) for at in (start, node.start)}
        rest = _REST_OF_LINE.match(text, last)
        stop = last if text[:last].endswith("\n") or rest is None else rest.end()
        newline = "" if text[:stop].endswith("\n") else "\n"
        for column in sorted(columns, reverse=True):
            written = newline + _block(keys, texts, " " * column, tree)
            yield text[:stop] + (written if text[:stop] else written.lstrip("\n")) + text[stop:]


def _end(node: Node) -> int:
    """End of the content of a node: that of its last entry."""
    while node.style != "flow" and node.items:
        node = node.items[-1][1]
    return node.end


def _block(keys: Sequence[str], texts: tuple[str, ...], indent: str, tree: Tree) -> str:
    lines = [f"{indent}{_STEP * depth}{yaml_scalar(key)}:\n" for depth, key in enumerate(keys[:-1])]
    last = _STEP * (len(keys) - 1)
    return "".join(lines) + f"{indent}{last}{yaml_scalar(keys[-1])}: {_value(tree, texts)}\n"


def _value(tree: Tree, texts: tuple[str, ...]) -> str:
    written = [_as_scalar(tree, text) for text in texts]
    return written[0] if len(written) == 1 else f"[{', '.join(written)}]"


def _flow(tree: Tree, keys: Sequence[str], texts: tuple[str, ...]) -> str:
    key = json_scalar(keys[0]) if tree.is_json else yaml_scalar(keys[0])
    inner = f"{{{_flow(tree, keys[1:], texts)}}}" if len(keys) > 1 else _value(tree, texts)
    return f"{key}: {inner}"


def _in_braces(
    tree: Tree, node: Node, keys: Sequence[str], texts: tuple[str, ...]
) -> Iterator[str]:
    """Yield the text with new keys in a mapping in braces, behind its last entry if it has any."""
    text, written = tree.text, _flow(tree, keys, texts)
    if not node.items:
        if text[node.start : node.start + 1] == "{":
            yield f"{text[: node.start + 1]}{written}{text[node.start + 1 :]}"
        else:
            yield f"{{{written}}}\n"
        return
    end = node.items[-1][1].end
    first = node.items[0][0]
    line = text.rfind("\n", 0, first.start if first is not None else node.start) + 1
    indent = text[line : first.start] if first is not None else ""
    is_multiline = not indent.strip(" \t") and "\n" in text[node.start : line + 1]
    yield f"{text[:end]},{chr(10) + indent if is_multiline else ' '}{written}{text[end:]}"
