"""Adapters served beside a model, in the words of launch files."""

from __future__ import annotations

from collections.abc import Mapping

from planner.base.adapter_names import served_targets, targets_of
from planner.base.enums import AdapterTargets
from planner.launch.job import Job
from planner.launch.served import Told, whole
from planner.launch.target import Argument

_OPTION = "--lora-target-modules"
_ALL = "all"
_MODULES: Mapping[AdapterTargets, tuple[str, ...]] = {
    AdapterTargets.QUERY_VALUE: ("q_proj", "v_proj"),
    AdapterTargets.ATTENTION: ("q_proj", "k_proj", "v_proj", "o_proj"),
}


def target_modules(job: Job, *, says_all: bool) -> list[Argument]:
    """The option that says which matrices have adapters; ``says_all``: of all of them, too."""
    targets = served_targets(job["lora_targets"])
    words = _MODULES.get(targets, (_ALL,) if says_all else ())
    return [Argument(words=(_OPTION, *words))] if job["lora_rank"] and words else []


def put_adapters(told: Told, slots: str, default_rank: int) -> None:
    """Adapters that a command serves; ``slots`` is its option for those of a step."""
    reading = told.reading
    told.values["lora_rank"] = whole(reading.text("--max-lora-rank")) or default_rank
    if number := whole(reading.text(slots)):
        told.values["max_loras"] = number
    given = reading.found.options.get(_OPTION)
    names = [text for text in given.texts if text] if given is not None else []
    if names:
        told.values["lora_targets"] = str(targets_of(names))
    told.take("--enable-lora", "--max-lora-rank", slots, _OPTION)
    told.notes.append("All requests are taken to use an adapter, as many different ones as fit.")
