"""How a result came to be, so that it can be had again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.base import text
from planner.pages.document import numbers
from planner.show.page import Block, Code, Pairs, Section

_TOLD = ("version", "created", "driver", "trials", "seed", "sampler", "confidence", "objectives")
_COUNTS = {
    "configurations_evaluated": "configurations",
    "configurations_predicted": "of them predicted",
    "configurations_feasible": "feasible",
}


def manifest_section(manifest: Mapping[str, Any], **more: str) -> Section:
    """The command, versions, counts and specs of a manifest, and what there is ``more``."""
    pairs = {name: _words(manifest[name]) for name in _TOLD if manifest.get(name)}
    pairs |= {words: _words(manifest[name]) for name, words in _COUNTS.items() if name in manifest}
    blocks: list[Block] = [Pairs(pairs={**pairs, **more})]
    if command := manifest.get("command"):
        blocks.append(Code(text=str(command)))
    rejected = manifest.get("rejected_by")
    if isinstance(rejected, Mapping) and rejected:
        ordered = sorted(rejected.items(), key=lambda one: -sum(numbers([one[1]])))
        named = {f"rejected: {name.replace('_', ' ')}": _words(n) for name, n in ordered}
        blocks.append(Pairs(pairs=named))
    specs = manifest.get("specs")
    if isinstance(specs, Mapping) and specs:
        blocks.append(Pairs(pairs={f"digest of {name}": str(one) for name, one in specs.items()}))
    return Section(title="How this was made", blocks=blocks, is_folded=True)


def _words(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return text.value(value)
