"""Things that one file starts as one launch: copies, nodes of a server, two kinds of workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from planner.launch.imported import Imported
from planner.launch.understood import REPLICAS

_NODE_RANK = "--node-rank"
_OF_POOLS = "prefill_"


def distinct(found: Sequence[Imported]) -> list[tuple[Imported, int]]:
    """Those that mean different things, each with how many mean it: one for each node, copies."""
    kept: list[tuple[Imported, int]] = []
    for one in found:
        same = next(
            (
                at
                for at, (other, _) in enumerate(kept)
                if one.target is other.target
                and one.values == other.values
                and one.found.deployment == other.found.deployment
            ),
            None,
        )
        if same is None:
            kept.append((one, 1))
            continue
        rank = one.found.options.get(_NODE_RANK)
        if rank is None or rank.texts in (("0",), (None,)):
            kept[same] = (kept[same][0], kept[same][1] + 1)
        # else it is of a later node of a server that another command leads
    return kept


def joined(found: Sequence[tuple[Imported, int]]) -> list[Imported]:
    """Prefill and decode workers of one deployment as one launch.

    Where a file has workers for several models, or several deployments of one, a kind of prefill
    workers goes with the decode workers of its model that stand at the same place among these.
    """
    pools: dict[object, tuple[list[int], list[int]]] = {}
    for at, (one, _) in enumerate(found):
        kinds = [name in one.values for name in REPLICAS]
        if kinds.count(True) == 1:
            pools.setdefault(one.values.get("model"), ([], []))[kinds.index(True)].append(at)
    pairs = [
        both
        for decode, prefill in pools.values()
        if len(decode) == len(prefill)
        for both in zip(prefill, decode, strict=True)
    ]
    several = [pair(found[first], found[second]) for first, second in pairs]
    done = {at for both in pairs for at in both}
    return [*several, *(one for at, (one, _) in enumerate(found) if at not in done)]


def pair(prefill: tuple[Imported, int], decode: tuple[Imported, int]) -> Imported:
    """One deployment of both kinds of workers, each so many times."""
    (first, num_first), (second, num_second) = prefill, decode
    own = {name: v for name, v in first.values.items() if name.startswith(_OF_POOLS)}
    values = {**second.values, **own, "mode": "disaggregated"}
    values["prefill_replicas"] = num_first * int(first.values["prefill_replicas"])
    values["replicas"] = num_second * int(second.values["replicas"])
    each = [int(one.values.get("num_gpus") or 0) for one in (first, second)]
    if all(each):
        values["num_gpus"] = num_first * each[0] + num_second * each[1]
    every = dict.fromkeys((*first.lines, *second.lines))
    return replace(
        second,
        values=values,
        lines=tuple(sorted(every, key=lambda line: (line.line, line.option))),
        notes=tuple(dict.fromkeys((*first.notes, *second.notes))),
    )
