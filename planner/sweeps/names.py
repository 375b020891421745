"""The names that results have for what a question of a sweep means."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from planner.specs.catalogue import Catalogue

_NAMES: Mapping[str, Callable[[Catalogue, str], str]] = {
    "gpu": lambda catalogue, word: catalogue.load_gpu(word).spec.name,
    "framework": lambda catalogue, word: catalogue.load_framework(word).spec.name,
    "engine": lambda catalogue, word: catalogue.load_engine(word).spec.name,
    "model": lambda catalogue, word: catalogue.load_model(word).name,
}


def name_of(catalogue: Catalogue, question: str, word: str) -> str | None:
    """The name of the spec that a word means; None where a question is not about specs.

    Raises
    ------
    PlannerError
        There is no such spec, or it has faults.

    >>> name_of(Catalogue(), "gpu", "H100"), name_of(Catalogue(), "num_gpus", "64")
    ('h100-sxm-80gb', None)
    """
    return _NAMES[question](catalogue, word) if question in _NAMES else None
