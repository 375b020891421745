"""What a result rests on: what nobody gave, what nobody measured, and where numbers come from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from planner.base import text
from planner.decide.explaining.explanation import Explanation
from planner.decide.open_facts import MovingFact
from planner.errors import PlannerError, SpecError
from planner.pages.document import Document, numbers
from planner.question.terms import terms_about
from planner.show.page import Block, Code, Page, Pairs, Section, grid, said
from planner.show.views.details import details_of
from planner.show.views.explanation import sensitivities_blocks
from planner.show.views.sure import moved_words
from planner.specs.catalogue import Catalogue
from planner.workloads.base import Wording
from planner.workloads.pinned import PinnedPlan
from planner.workloads.plan import evaluated, one_configuration

# A figure that nobody measured, or that its class of GPUs has.
_WITHOUT_SOURCE = ("assumed", "default (")
_MOST_FIGURES = 6

_LOADED = {*terms_about("source"), "cluster"} - {"model", "prefill_gpu"}


def assumptions(
    specs: Mapping[str, str], catalogue: Catalogue, manifest: Mapping[str, Any] | None = None
) -> Section:
    """What nobody gave and what has no source, by a manifest, and the sources of ``specs``.

    These are digests by kind and name, empty where a result does not tell them.
    """
    known = manifest or {}
    blocks: list[Block] = []
    if defaults := known.get("defaults"):
        rows = [(name.replace("_", " "), str(value)) for name, value in defaults.items()]
        caption = "Not given, assumed"
        table = grid(("question", "chosen"), rows, words=(0, 1), name="defaults", caption=caption)
        blocks.append(table)
    if line := text.assumed_in_short([*map(str, known.get("assumed") or ())]):
        blocks.append(said(f"Without a source, or a default of the GPU's class: {line}."))
    if sources := [*_sources(specs, catalogue)]:
        heads, caption = ("spec", "figures", "source"), "Where the figures come from"
        table = grid(heads, sources, words=range(3), name="sources", caption=caption)
        blocks.append(replace(table, is_small=False, is_folded=True))
    return Section(title="What does it rest on?", blocks=blocks)


def _sources(specs: Mapping[str, str], catalogue: Catalogue) -> Iterator[tuple[str, str, str]]:
    """The spec, figures and source of every number of specs that are still as they were."""
    for title, digest in specs.items():
        kind, _, name = title.partition(" ")
        try:
            if kind == "model":
                yield title, "architecture", catalogue.load_model(name).source
            elif kind in _LOADED:
                loaded = getattr(catalogue, f"load_{kind}")(name)
                if digest and loaded.digest != digest:
                    yield title, "-", "has changed since, or is not that of --specs"
                else:
                    yield from _by_source(title, loaded.provenance)
        except PlannerError:
            yield title, "-", "is not among the specs here: give its folder with --specs"


def _by_source(title: str, origins: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    found: dict[str, list[str]] = {}
    for figure, source in origins.items():
        if not source.startswith(_WITHOUT_SOURCE):
            found.setdefault(source, []).append(figure)
    for source, figures in found.items():
        more = len(figures) - _MOST_FIGURES
        words = ", ".join(figures[:_MOST_FIGURES])
        yield title, f"{words} and {more} more" if more > 0 else words, source


def specs_of_rows(rows: Iterable[Mapping[str, object]]) -> dict[str, str]:
    """The specs that rows name, of which no digest is known."""
    names = terms_about("source")
    found: dict[str, str] = {}
    for row in rows:
        for name in names:
            if row.get(name):
                found[f"{name.removeprefix('prefill_')} {row[name]}"] = ""
    return found


def used_specs(specs: Mapping[str, str], rows: Iterable[Mapping[str, object]]) -> dict[str, str]:
    """Of the specs of a manifest those that the rows are of, and those that are no choice."""
    used = specs_of_rows(rows)
    choices = ("model", "gpu", *terms_about("software"))
    return {
        title: digest
        for title, digest in specs.items()
        if title in used or title.partition(" ")[0] not in choices
    }


_TOLD = ("version", "created", "driver", "trials", "seed", "sampler", "confidence", "objectives")
_COUNTS = {
    "configurations_evaluated": "configurations",
    "configurations_predicted": "of them predicted",
    "configurations_feasible": "feasible",
}


def manifest_section(manifest: Mapping[str, object], **more: str) -> Section:
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
    return Section(title="How was this made?", blocks=blocks, is_folded=True)


def _words(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return text.value(value)


CHANGES = "What would change the answer?"
"""The title of the section of open facts and of what other hardware or questions would give."""

_NOTHING = "No assumption moves the answer by more than 10 %."
_HELD = "The intervals on this page include each of these, one at a time."
_OTHER_SPECS = "Specs have changed since, so nothing is predicted again here: planner explain does."


def facts_of(document: Document) -> list[MovingFact]:
    """The facts of a document.

    Raises
    ------
    SpecError
        They are damaged.
    """
    try:
        return [MovingFact.from_dict(one) for one in document.part("open_facts", list)]
    except (SpecError, TypeError, ValueError, AttributeError) as error:
        raise SpecError(f"{document.where}: its part open_facts is damaged ({error}).") from error


def facts_section(wording: Wording, facts: Sequence[MovingFact]) -> Section:
    """What was assumed, what else was tried, and what that moves, a row for each fact."""
    rows = [
        (fact.name, fact.assumed, ", ".join(fact.tried), "; ".join(moved_words(wording, fact)))
        for fact in facts
    ]
    heads, caption = ("unknown", "assumed", "tried", "effect"), "Not given, and relevant"
    table = grid(heads, rows, words=range(len(heads)), name="facts", caption=caption)
    held = [said(_HELD)] if any(fact.ends for fact in facts) else []
    return Section(title=CHANGES, blocks=[table if rows else said(_NOTHING), *held])


def predicted_anew(page: Page, pinned: PinnedPlan) -> Page:
    """The page with all that the plan reaches, and what 10 % of each fact, a node or another length
    would change.
    """
    in_full, changes = list[Section](), list[Block]()
    try:
        plan = one_configuration(pinned.request())
        if any(pinned.specs.get(name, digest) != digest for name, digest in plan.digests.items()):
            changes = [said(_OTHER_SPECS)]
        else:
            found, details = evaluated(plan), details_of(plan)
            speed = details.memory_and_speed(plan, found.candidates)
            blocks = [*speed, *details.more(plan, found)]
            in_full = [Section(title="What is the plan in full?", blocks=blocks, is_folded=True)]
            explained = Explanation(plan=plan, found=found)
            changes = [*sensitivities_blocks(explained, is_full=False)]
    except PlannerError as error:  # a file or a folder of specs is no longer there
        changes = [said(f"Not predicted again: {error}")]
    sections: list[Section] = []
    for one in page.sections:
        if one.title == CHANGES:
            sections += [*in_full, replace(one, blocks=[*one.blocks, *changes])]
        else:
            sections.append(one)
    return replace(page, sections=sections)
