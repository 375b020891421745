"""Keys of an axolotl YAML file, read from the source of its schema without importing it.

A case is {"source": the folder of the unpacked package}. Keys of a section are written
`section.key`, those of the entries of a list `list[].key`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT_CLASS = "AxolotlInputConfig"
NO_DEFAULT = ""
Row = dict[str, str]


class Schema:
    """Classes of the schema and of the plugins that ship with axolotl, by name."""

    def __init__(self, folder: Path) -> None:
        self.classes: dict[str, ast.ClassDef] = {}
        self.plugins: list[str] = []
        for path in sorted((folder / "axolotl" / "integrations").glob("*/args.py")):
            self.plugins += self.read(path)
        for path in sorted((folder / "axolotl" / "utils" / "schemas").glob("*.py")):
            self.read(path)

    def read(self, path: Path) -> list[str]:
        """Take the classes of a file; their names."""
        body = ast.parse(path.read_text(encoding="utf-8")).body
        found = {node.name: node for node in body if isinstance(node, ast.ClassDef)}
        self.classes.update(found)
        return list(found)

    def fields(self, name: str) -> dict[str, ast.AnnAssign]:
        """Annotated names of a class and of its bases, the class's own winning."""
        node = self.classes.get(name)
        if node is None:
            return {}
        found: dict[str, ast.AnnAssign] = {}
        for base in reversed(node.bases):
            found.update(self.fields(ast.unparse(base)))
        for item in node.body:
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                found[item.target.id] = item
        return found

    def choices(self, annotation: str) -> str:
        """What a Literal or an enumeration allows, separated by bars."""
        also = ["true", "false"] if re.search(r"\bbool\b", annotation) else []
        literal = re.search(r"Literal\[(.*?)\]", annotation, re.DOTALL)
        if literal:
            found = [str(x) for x in ast.literal_eval(f"[{literal.group(1)}]")]
            return "|".join(found + also)
        for name in re.findall(r"\w+", annotation):
            node = self.classes.get(name)
            if node and any("Enum" in ast.unparse(base) for base in node.bases):
                values = [x.value for x in node.body if isinstance(x, ast.Assign)]
                found = [str(x.value) for x in values if isinstance(x, ast.Constant)]
                return "|".join(found + also)
        return ""

    def section(self, annotation: str) -> str:
        """The class that a field's value is an object of, or nothing."""
        for name in re.findall(r"\w+", annotation):
            if name in self.classes and self.fields(name):
                return name
        return ""


def default(value: ast.expr | None) -> str:
    """The default as text, `<required>` where there is none."""
    if value is None:
        return "<required>"
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "Field":
        given = {word.arg: word.value for word in value.keywords}
        if value.args:
            given.setdefault("default", value.args[0])
        if "default" in given:
            return default(given["default"])
        return NO_DEFAULT if "default_factory" in given else "<required>"
    if isinstance(value, ast.Constant):
        return str(value.value) if value.value is not ... else "<required>"
    return NO_DEFAULT


def type_name(annotation: str) -> str:
    """An annotation without what it validates; choices have their own column, `bool` is first."""
    plain = re.sub(r"Literal\[.*?\]", "str", annotation)
    plain = re.sub(r"Annotated\[(\w+(?:\[\w+\])?),.*", r"\1", plain)
    kinds = dict.fromkeys(plain.split(" | ")) if "[" not in plain else {plain: None}
    return " | ".join(sorted(kinds, key=lambda kind: kind != "bool"))


def alias(value: ast.expr | None) -> str:
    """Another spelling of the key that the schema reads."""
    if isinstance(value, ast.Call):
        for word in value.keywords:
            if word.arg in {"alias", "validation_alias"} and isinstance(word.value, ast.Constant):
                return str(word.value.value)
    return ""


def rows(schema: Schema, name: str, prefix: str = "", above: tuple[str, ...] = ()) -> Iterator[Row]:
    """A row of every key of a class, then those of its sections."""
    for key, field in schema.fields(name).items():
        annotation = ast.unparse(field.annotation)
        if key == "model_config" or "ClassVar" in annotation or key.startswith("_"):
            continue
        inner = schema.section(annotation)
        kind = re.sub(r"\s*\|\s*None|None\s*\|\s*", "", annotation)
        yield {
            "name": prefix + key,
            "type": type_name(kind),
            "choices": schema.choices(annotation),
            "default": default(field.value),
            "aliases": alias(field.value),
        }
        if inner and inner not in above:
            many = "[]" if re.search(r"(list|Sequence|MinLen)", annotation) else ""
            yield from rows(schema, inner, f"{prefix}{key}{many}.", (*above, name, inner))


def accepted(schema: Schema) -> Iterator[Row]:
    """Rows of the schema, then of plugins, whose keys stand at the top level too."""
    seen: set[str] = set()
    sections = {
        schema.section(ast.unparse(f.annotation))
        for n in schema.plugins
        for f in schema.fields(n).values()
    }
    for name in (ROOT_CLASS, *(n for n in schema.plugins if n not in sections)):
        for row in rows(schema, name):
            if row["name"] not in seen:
                seen.add(row["name"])
                yield row


def answer(case: dict[str, str]) -> list[Row]:
    return list(accepted(Schema(Path(case["source"]))))
