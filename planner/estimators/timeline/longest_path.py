"""When works start that wait for others: the longest path through what depends on what."""

from __future__ import annotations

from collections.abc import Sequence


def in_order(waits: Sequence[Sequence[int]]) -> list[int]:
    """Works so that each comes after those that it waits for.

    Raises
    ------
    ValueError
        Some wait for each other.
    """
    left = [len(each) for each in waits]
    waited_by: list[list[int]] = [[] for _ in waits]
    for work, each in enumerate(waits):
        for other in each:
            waited_by[other].append(work)
    found = [work for work, number in enumerate(left) if number == 0]
    for work in found:
        for other in waited_by[work]:
            left[other] -= 1
            if left[other] == 0:
                found.append(other)
    if len(found) < len(waits):
        raise ValueError("Works wait for each other.")
    return found


def starts(
    order: Sequence[int],
    before: Sequence[int],
    waits: Sequence[Sequence[int]],
    durations: Sequence[float],
    share: float,
) -> tuple[list[float], list[float]]:
    """When each work starts, and how fast that grows with ``share``.

    A work starts when the one ``before`` it on its rank ends (-1: none), and when ``share`` of the
    duration of each that it ``waits`` for has passed since that started.
    """
    begin, slope = [0.0] * len(durations), [0.0] * len(durations)
    for work in order:
        start, grows = 0.0, 0.0
        previous = before[work]
        if previous >= 0:
            start, grows = begin[previous] + durations[previous], slope[previous]
        for other in waits[work]:
            ready = begin[other] + share * durations[other]
            if ready > start:
                start, grows = ready, slope[other] + durations[other]
        begin[work], slope[work] = start, grows
    return begin, slope
