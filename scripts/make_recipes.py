"""Make docs/reference/recipes.md: layouts that vendors tuned beside those that a search recommends.

Run it after a change of estimator, rules, spaces or the order of simplicity; a test fails
while the file is not what it makes:

    python scripts/make_recipes.py

The layouts are those of `planner/validation/recipes.csv`, reasons for what differs are in
`scripts/published/recipe_reasons.csv`: shell patterns of recipes, and a text.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

import planner
from planner.optimize.result import SearchResult
from planner.specs.catalogue import load_model

ROOT = Path(planner.__file__).parents[1]
FILE = ROOT / "docs" / "reference" / "recipes.md"
RECIPES = ROOT / "planner" / "validation" / "recipes.csv"
REASONS = ROOT / "scripts" / "published" / "recipe_reasons.csv"
MUCH = 0.1
"""A claimed gain above this needs a reason."""

_SIZES = {
    "tensor_parallel": "tp",
    "context_parallel": "cp",
    "pipeline_parallel": "pp",
    "virtual_pipeline": "vp",
    "expert_parallel": "ep",
    "micro_batch_size": "mbs",
}
_SCALED = {"fp8cs": "tensorwise", "fp8sc": "blockwise", "fp8mx": "mxfp8"}
_HEAD = """# Vendors' layouts and ours

Made by `python scripts/make_recipes.py`. {recipes} layouts that NVIDIA tuned
(`{source}`) are
compared with the plan that a search recommends. `planner/validation/recipes.csv` has them. The
search has the recipe's framework, model, GPUs, length, batch, precision and 8-bit scaling. It may
hide the exchange of tokens between experts where the recipe does.

*Gain* is the predicted throughput of the recommended plan over that of the vendor's layout, less 1.
It is a claim, because no published run has both. Plans within a factor of {factor:.2f} are ties.

| of {recipes} layouts | |
|---|--:|
| the rules accept | {accepted} |
| and are said to fit the memory | {fitting} |
| recommended itself | {same} |
| recommended, or a tie of what is | {tied} |
| gain of at most {much:.0%} either way | {near} |
| gain above {much:.0%}, each with its reason | {claims} |

The module *mlp* of `recompute_modules` is that of dense layers; Megatron-Core calls the other one
*moe*. Models with experts repeat only what costs little. *Peak* is the predicted share of the GPU's
memory. A size of 1 is not written. The last column is the number of the reason below.

| recipe | vendor's layout | peak | recommended | peak | gain | |
|---|---|--:|---|--:|--:|---|
"""
_NOTES = """
| | reason |
|--:|---|
"""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """A vendor's layout and what is recommended in its place, as result columns of one row.

    ``broken`` is what rejects the vendor's layout, ``factor`` that of ties, ``usable`` the memory
    of the GPU in GiB. Nothing is recommended where nothing fits.
    """

    recipe: Mapping[str, str]
    vendor: Mapping[str, Any]
    broken: str
    usable: float
    recommended: Mapping[str, Any] | None
    factor: float

    @property
    def name(self) -> str:
        """The recipe's, without what all of them have in common."""
        return self.recipe["recipe"].replace("_pretrain", "").removesuffix("_config")

    @property
    def is_possible(self) -> bool:
        """Whether the vendor's layout breaks no rule, whether or not it is said to fit."""
        return self.broken in ("", "out_of_memory")

    @property
    def gain(self) -> float:
        """Throughput of the recommended plan over the vendor's, less 1; NaN where one lacks."""
        if self.recommended is None or not self.is_possible:
            return float("nan")
        return float(self.vendor["step_time_s"] / self.recommended["step_time_s"]) - 1

    @property
    def is_same(self) -> bool:
        """Whether the vendor's layout is the one that is recommended."""
        ours = self.recommended
        names = (*_SIZES, "recompute")
        return ours is not None and all(ours[name] == self.vendor[name] for name in names)

    @property
    def is_tied(self) -> bool:
        """Whether the two are the same, or published runs do not tell them apart."""
        return self.is_same or 1 / self.factor <= 1 + self.gain <= self.factor

    @property
    def needs_reason(self) -> bool:
        """Whether the vendor's layout is refused, or much slower than the recommended one."""
        return bool(self.broken) or not self.gain <= MUCH


def compared() -> list[Compared]:
    """All recipes, by name of the model, then of the recipe."""
    return [_compared(recipe) for recipe in recipes()]


def recipes() -> list[Mapping[str, str]]:
    """The rows of the table, by name of the model, then of the recipe."""
    with RECIPES.open(encoding="utf-8", newline="") as file:
        return sorted(csv.DictReader(file), key=lambda row: (row["model"], row["recipe"]))


def reasons() -> list[tuple[str, str]]:
    """Patterns of recipes and the reason of each."""
    with REASONS.open(encoding="utf-8", newline="") as file:
        return [(row["recipes"], row["reason"]) for row in csv.DictReader(file)]


def reason_of(one: Compared) -> list[int]:
    """Numbers, from 1, of the reasons for a recipe that needs one."""
    if not one.needs_reason:
        return []
    texts = list(dict.fromkeys(reason for _, reason in reasons()))
    mine = [reason for pattern, reason in reasons() if fnmatch(one.name, pattern)]
    return [texts.index(reason) + 1 for reason in dict.fromkeys(mine)]


def page(found: Sequence[Compared]) -> str:
    """The text of the page."""
    head = _HEAD.format(
        recipes=len(found),
        source=found[0].recipe["source"],
        factor=max(one.factor for one in found),
        much=MUCH,
        accepted=sum(one.is_possible for one in found),
        fitting=sum(not one.broken for one in found),
        same=sum(one.is_same for one in found),
        tied=sum(one.is_tied for one in found),
        near=sum(abs(one.gain) <= MUCH for one in found),
        claims=sum(one.gain > MUCH for one in found),
    )
    texts = dict.fromkeys(reason for _, reason in reasons())
    notes = (f"| {number} | {text} |" for number, text in enumerate(texts, start=1))
    return head + "\n".join(map(_row, found)) + "\n" + _NOTES + "\n".join(notes) + "\n"


def _compared(recipe: Mapping[str, str]) -> Compared:
    question = question_of(recipe)
    found = planner.estimate(**question, settings=layout_of(recipe))
    overlaps = layout_of(recipe)["overlap_expert_parallel"]
    told = (recipe["precision"], _scaled(recipe["recipe"]), overlaps)
    result = _searched(tuple(question.items()), *told)
    best, machine = result.recommended, found.candidates.estimate.inputs.machine
    sure = result.problem.sources[0].confidence(question["num_gpus"])
    table = found.table()
    return Compared(
        recipe=recipe,
        vendor={name: values[0] for name, values in table.items()},
        broken=found.rejected_by,
        usable=machine.gpu.allocatable_memory / 2**30,
        recommended=None if best is None else {k: v[0] for k, v in best.columns().items()},
        factor=1.0 if sure is None else sure.layout_tie_factor,
    )


@cache
def _searched(
    question: tuple[tuple[str, Any], ...], precision: str, scaled: str, overlaps: bool
) -> SearchResult:
    """The recommended plan may hide the exchange of experts' tokens where the recipe does."""
    settings: dict[str, Any] = {"fp8_recipe": scaled} if scaled else {}
    settings["overlap_expert_parallel"] = [False, True] if overlaps else [False]
    return planner.search(**dict(question), precision=precision, settings=settings)


def question_of(recipe: Mapping[str, str]) -> dict[str, Any]:
    """What a recipe trains on what, as fields of a request."""
    words = {name: recipe[name] for name in ("model", "gpu", "framework")}
    counts = ("num_gpus", "sequence_length", "global_batch_size")
    return {**words, **{name: int(recipe[name]) for name in counts}}


def layout_of(recipe: Mapping[str, str]) -> dict[str, Any]:
    """The configuration of a recipe, as settings of a request."""
    sizes = {name: int(recipe[name]) for name in (*_SIZES, "recompute_num_layers")}
    own = sizes["tensor_parallel"] * sizes["pipeline_parallel"]
    return {
        **sizes,
        "recompute": _recompute(recipe),
        "precision": recipe["precision"],
        **({"fp8_recipe": scaled} if (scaled := _scaled(recipe["recipe"])) else {}),
        "sequence_parallel": recipe["sequence_parallel"] == "True",
        "overlap_expert_parallel": recipe["overlap_expert_parallel"] == "True",
        "zero_stage": 1 if int(recipe["num_gpus"]) > own else 0,
    }


def _scaled(name: str) -> str:
    """How a recipe in 8 bit scales, by its name: current scaling, or groups of 32."""
    return next((word for part, word in _SCALED.items() if part in name), "")


def _recompute(recipe: Mapping[str, str]) -> str:
    """The recipe's word, less blocks of experts where only those of dense layers are repeated."""
    modules = recipe["recompute_modules"].split(",")
    dense_alone = "mlp" in modules and "moe" not in modules
    if dense_alone and load_model(recipe["model"]).num_experts:
        return "selective"
    return recipe["recompute"]


def _row(one: Compared) -> str:
    ours = one.recommended
    numbers = ", ".join(map(str, reason_of(one)))
    gain = "" if one.gain != one.gain else f"{one.gain:+.0%}"
    cells = (
        one.name,
        _short(one.vendor),
        _peak(one, one.vendor) if one.is_possible else "refused",
        "nothing fits" if ours is None else "the same" if one.is_same else _short(ours),
        "" if ours is None else _peak(one, ours),
        gain,
        numbers,
    )
    return "| " + " | ".join(cells) + " |"


def _peak(one: Compared, row: Mapping[str, Any]) -> str:
    return f"{row['peak_memory_gib'] / one.usable:.0%}"


def _short(row: Mapping[str, Any]) -> str:
    return " ".join(_words(row)) or "data parallel alone"


def _words(row: Mapping[str, Any]) -> Iterator[str]:
    for name, short in _SIZES.items():
        if row[name] > 1:
            yield f"{short}{row[name]:.0f}"
    if row["recompute"] != "none":
        yield str(row["recompute"]).replace("_", " ")


def main() -> None:
    """Write the page."""
    FILE.write_text(page(compared()), encoding="utf-8")


if __name__ == "__main__":
    main()
