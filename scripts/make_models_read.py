"""Make docs/reference/models_read.md: types of models that are read, and what others lack.

Run it after a change of `planner/specs/hugging_face_families.toml`; a test fails while the file is
not what it makes:

    python scripts/make_models_read.py
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from planner.specs.hugging_face_families import COMPOSITES, OTHER_NAMES, ROWS, UNMODELLED, Row

FILE = Path(__file__).parents[1] / "docs" / "reference" / "models_read.md"
RELEASE = "5.24.0"
"""The release of transformers each of whose types with a language model is here."""

_HEAD = f"""# Models that are read

Made by `python scripts/make_models_read.py`. Of every `model_type` of transformers {RELEASE} with
a language model, {{read}} are read from their `config.json`. Some need code outside
transformers. {{refused}} are refused, and the second table has the reasons. Counts of
parameters are those of transformers within 0.5 %, except under *counted otherwise*.

A model of a type that is not here can be described in a file of its own
([own specs](../how-to/specs.md#models)).

## Language models

| type | tokens meet in | then | counted otherwise |
|---|---|---|---|
"""
_REFUSED = """
## Refused

| missing | types |
|---|---|
"""
_SEVERAL = """
## Models of several modes

The language model is read. A vision tower that is described is counted, and answers name a tower
that is left out.

| language model | types |
|---|---|
"""
_OTHER = """
## Types of code beside transformers

| read as | types |
|---|---|
"""
_BASES = {"latent_attention": "latent attention", "compressed_attention": "compressed attention"}
_STATES = {
    "linear": "linear attention", "lightning": "lightning attention", "mamba1": "Mamba-1",
    "mamba2": "Mamba-2", "convolution": "short convolutions",
}  # fmt: skip


def page() -> str:
    """The text of the page."""
    lines = [_HEAD.format(read=len(ROWS) + len(COMPOSITES), refused=len(UNMODELLED))]
    for name, row in sorted(ROWS.items()):
        forward = "experts" if "experts" in row else "an MLP"
        then = "" if row.get("feed_forward", {}) is False else forward
        lines.append(f"| `{name}` | {', '.join(_mixers(row))} | {then} | {row.get('note', '')} |\n")
    for head, types in ((_REFUSED, UNMODELLED), (_SEVERAL, COMPOSITES), (_OTHER, OTHER_NAMES)):
        lines.append(head)
        quoted = "" if types is UNMODELLED else "`"
        for what, names in sorted(_grouped(types).items()):
            listed = ", ".join(f"`{name}`" for name in sorted(names))
            lines.append(f"| {quoted}{what}{quoted} | {listed} |\n")
    return "".join(lines)


def _mixers(row: Row) -> Iterator[str]:
    state = row.get("state", {}).get("kind")
    if row.get("feed_forward") is not False:
        yield _BASES.get(row.get("base", ""), "attention")
    if "windows" in row or "sliding_window" in row.get("attention", {}):
        yield "windows"
    if state:
        yield _STATES[state] + (" and attention" if row.get("hybrid") else "")


def _grouped(types: Mapping[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for name, what in types.items():
        found[what].append(name)
    return found


if __name__ == "__main__":
    FILE.write_text(page(), encoding="utf-8")
