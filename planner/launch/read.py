"""From a user's launch file to what it means; nothing of it is ever run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from planner.base import reading
from planner.errors import LaunchError
from planner.launch.imported import Imported, imported
from planner.launch.launches import launches, nothing_found
from planner.launch.targets import target_of
from planner.launch.text import LARGEST, Given
from planner.launch.understood import Found, World

_NODE_RANK = "--node-rank"
_OF_POOLS = "prefill_"
_REPLICAS = ("replicas", "prefill_replicas")


def read_launch(
    path: Path,
    number: int | None = None,
    specs: Path | None = None,
    *,
    num_gpus: str | None = None,
    gpu: str | None = None,
) -> Imported:
    """The launch in a file; of several the one of this ``number``, counted from 1.

    ``num_gpus`` and ``gpu`` are those on which the user starts it, whatever the file says.

    Raises
    ------
    LaunchError
        It cannot be read, starts nothing that planner knows, or several things.
    """
    return read_text(path, text_of(path), number, specs, num_gpus=num_gpus, gpu=gpu)


def read_text(
    path: Path,
    text: str,
    number: int | None = None,
    specs: Path | None = None,
    *,
    num_gpus: str | None = None,
    gpu: str | None = None,
) -> Imported:
    """As `read_launch`, of a file with another text."""
    found = [
        imported(path, target_of(one.target), _on(one, num_gpus, gpu), specs)
        for one in launches(path, text)
    ]
    several = _joined(_distinct(found))
    if not several:
        raise LaunchError(nothing_found(path, text))
    if number is None and len(several) == 1:
        return _whole(several[0])
    if number is None or not 1 <= number <= len(several):
        listed = "".join(
            f"\n  {place}: line {one.found.line}, {one.target.title}"
            for place, one in enumerate(several, start=1)
        )
        raise LaunchError(
            f"{path}: starts {len(several)} different things: choose one with --row.{listed}"
        )
    return _whole(several[number - 1])


def _whole(one: Imported) -> Imported:
    """The launch, unless it starts one of two kinds of workers alone."""
    kinds = {name for name in _REPLICAS if name in one.values}
    if one.values.get("mode") == "disaggregated" and len(kinds) == 1:
        words = "decode" if _REPLICAS[0] in kinds else "prefill"
        raise LaunchError(
            f"{one.path}: starts the {words} workers of a disaggregated deployment alone: give "
            "a file that starts both, or the directory of a launch of planner."
        )
    return one


def _on(found: Found, num_gpus: str | None, gpu: str | None) -> Found:
    """The launch on so many GPUs of this kind, where the user says which."""
    world = found.world
    if num_gpus is not None:
        given = Given(option="num_gpus", texts=(num_gpus,), line=0, spans=(None,), whole=None)
        world = World(num_gpus=given, gpu=world.gpu)
    return replace(found, world=world if gpu is None else replace(world, gpu=gpu))


def text_of(path: Path) -> str:
    """The text of a launch file. Raises `LaunchError` where it is none, or too long."""
    return reading.read_text(path, LARGEST, LaunchError)


def _distinct(found: Sequence[Imported]) -> list[tuple[Imported, int]]:
    """Those that mean different things, each with how many mean it: one for each node, copies."""
    kept: list[tuple[Imported, int]] = []
    for one in found:
        same = next((at for at, (other, _) in enumerate(kept) if _same(one, other)), None)
        if same is None:
            kept.append((one, 1))
        elif not _follows(one):
            kept[same] = (kept[same][0], kept[same][1] + 1)
    return kept


def _follows(one: Imported) -> bool:
    """Whether a command is of a later node of a server that another command leads."""
    given = one.found.options.get(_NODE_RANK)
    return given is not None and given.texts not in (("0",), (None,))


def _same(one: Imported, other: Imported) -> bool:
    return one.target is other.target and one.values == other.values


def _joined(found: Sequence[tuple[Imported, int]]) -> list[Imported]:
    """Prefill and decode workers of one deployment as one launch."""
    prefill = [(one, n) for one, n in found if _REPLICAS[1] in one.values]
    decode = [(one, n) for one, n in found if _REPLICAS[0] in one.values]
    if len(prefill) != 1 or len(decode) != 1 or prefill == decode:
        return [one for one, _ in found]
    (first, num_first), (second, num_second) = prefill[0], decode[0]
    own = {name: v for name, v in first.values.items() if name.startswith(_OF_POOLS)}
    values = {**second.values, **own, "mode": "disaggregated"}
    values["prefill_replicas"] = num_first * int(first.values["prefill_replicas"])
    values["replicas"] = num_second * int(second.values["replicas"])
    each = [int(one.values.get("num_gpus") or 0) for one in (first, second)]
    if all(each):
        values["num_gpus"] = num_first * each[0] + num_second * each[1]
    every = dict.fromkeys((*first.lines, *second.lines))
    lines = tuple(sorted(every, key=lambda line: (line.line, line.option)))
    joined = replace(
        second,
        values=values,
        lines=lines,
        notes=tuple(dict.fromkeys((*first.notes, *second.notes))),
    )
    others = [one for one, _ in found if one not in (first, second)]
    return [joined, *others]
