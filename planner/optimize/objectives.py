"""What a search can optimize."""

from __future__ import annotations

from collections.abc import Iterable

from planner.base.records import record
from planner.errors import SearchSpaceError, did_you_mean
from planner.question.terms import terms_of

MAX_OBJECTIVES = 3


@record(kw_only=True)
class Objective:
    """An attribute of candidates; ``sign`` is 1 to minimize it, -1 to maximize it."""

    name: str
    sign: int


def objectives(workload: str, names: Iterable[str]) -> tuple[Objective, ...]:
    """Objectives by name, one to three of those of a workload.

    Raises
    ------
    SearchSpaceError
        A name is unknown or repeated, or there are none or too many.
    """
    known, words = terms_of(workload, "objective"), list(names)
    for word in words:
        if word not in known:
            hint = did_you_mean(word, known)
            raise SearchSpaceError(f"Unknown objective {word!r}.{hint} Known: {', '.join(known)}.")
    if not 1 <= len(words) <= MAX_OBJECTIVES or len(set(words)) < len(words):
        raise SearchSpaceError(
            f"Give one to {MAX_OBJECTIVES} different objectives, not {', '.join(words) or 'none'}."
        )
    return tuple(Objective(name=word, sign=known[word].sign) for word in words)
