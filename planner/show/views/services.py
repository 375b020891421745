"""Several services on GPUs that they share: where each runs, what it would cost elsewhere."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from planner.base import text
from planner.base.units import HOUR
from planner.decide.sizing.services import Placement, Pool, SharedFleet, peak_of
from planner.show.page import GAP, TOTAL, Block, Cell, Column, Table, Title, fitted, said
from planner.show.views.documents import question_manifest
from planner.show.views.rows import RowFiles, blocks
from planner.show.views.told import layout_of
from planner.workloads.registry import workload_of

_PLACED, _POOLS = "Where each service runs", "GPUs that they share"
_RANKS = {"service": 0, "gpu": 0, "number": 1, "a_day": 1, "model": 2, "plan": 3}


def services_blocks(fleet: SharedFleet) -> Iterator[Block]:
    """The answer in words, where each service runs, and the GPUs of each type."""
    title, *lines = answer_lines(fleet)
    yield said(title, mark=TOTAL, indent="")
    yield GAP
    yield said(*lines)
    yield Title(text=_PLACED)
    yield placed_table(fleet.placements)
    yield Title(text=_POOLS)
    yield pools_table(fleet.pools)


def answer_lines(fleet: SharedFleet) -> list[str]:
    """How many GPUs all take, what they cost, and where the next best type is no choice."""
    pools = ", ".join(f"{text.count(pool.most)} {pool.gpu}" for pool in fleet.pools)
    lines = [f"{len(fleet.placements)} services on {pools}"]
    if math.isfinite(fleet.cost):
        lines.append(
            f"{text.count(fleet.cost)} USD a day, {text.count(fleet.cost_per_month)} a month."
        )
    for pool in fleet.pools:
        if pool.of_peaks > pool.most:
            lines.append(
                f"{pool.gpu}: the peaks of its services add up to {text.count(pool.of_peaks)} "
                f"GPUs, {text.count(pool.most)} are needed at once."
            )
        if pool.held and pool.terms.base_contract != pool.terms.hourly_contract:
            lines.append(
                f"{pool.gpu}: {text.count(pool.held)} held all day {pool.terms.base_contract} at "
                f"{text.dollars(pool.terms.base * HOUR)} an hour, beyond them "
                f"{pool.terms.hourly_contract} at {text.dollars(pool.terms.hourly * HOUR)}."
            )
    for one in fleet.placements:
        known = {gpu: cost for gpu, cost in one.alone.items() if math.isfinite(cost)}
        best = min(known, key=known.__getitem__)
        if best not in one.gpus:
            lines.append(
                f"{one.service.name}: alone {best} would be cheaper, {text.count(known[best])} USD "
                f"a day; others use it, or its stock is too small."
            )
    if not fleet.is_proven:
        lines.append("Too many ways to look at all: another may cost less.")
    return lines


def placed_table(placements: Sequence[Placement]) -> Table:
    """A line for each service and type that it runs on, and what others would cost."""
    workload = workload_of("serve")
    pairs = [(one, part) for one in placements for part in one.parts]
    peaks = [part.share * one.service.peak for one, part in pairs]
    rows = [part.peak.row for _, part in pairs]
    columns = [
        Column("service", [one.service.name for one, _ in pairs], numeric=False),
        Column("model", [str(row["model"]) for row in rows], numeric=False),
        Column("peak", [Cell(text=f"{peak:g}", number=peak) for peak in peaks], "requests /s"),
        Column("gpu", [part.gpu for _, part in pairs], "GPU", numeric=False),
        Column("number", [_count(part.peak.num_gpus) for _, part in pairs], "GPUs"),
        Column("a_day", [_count(one.alone[part.gpu]) for one, part in pairs], "all here USD/day"),
        Column("others", [_others(one) for one, _ in pairs], "all there USD/day", numeric=False),
        Column(
            "plan", [f"{row['engine']} {layout_of(workload, row)}" for row in rows], numeric=False
        ),
    ]
    return fitted(columns, lambda name: _RANKS.get(name, 2))


def _others(one: Placement) -> str:
    """What all of the service would take on other types: ``b200 16: 1,200``."""
    found = []
    for gpu, size in one.sizes.items():
        if gpu in one.gpus:
            continue
        cost = one.alone[gpu]
        told = (
            f" {text.count(peak_of(size).num_gpus)}: {text.count(cost)}" if size.fewest else ": no"
        )
        found.append(f"{gpu}{told}")
    return "; ".join(found)


def pools_table(pools: Sequence[Pool]) -> Table:
    """A line for each type of GPU."""
    columns = [
        Column("gpu", [pool.gpu for pool in pools], "GPU", numeric=False),
        Column("stock", [_count(pool.stock) for pool in pools]),
        Column("most", [_count(pool.most) for pool in pools], "most GPUs"),
        Column("held", [_count(pool.held) for pool in pools], "held all day"),
        Column("gpu_hours", [_count(pool.gpu_hours) for pool in pools], "GPU-hours"),
        Column("a_day", [_count(pool.cost) for pool in pools], "USD /day"),
    ]
    return fitted(columns, lambda name: int(name == "gpu_hours"))


def _count(number: float) -> Cell:
    return Cell(text=text.count(number) if math.isfinite(number) else "-", number=number)


def add_services(files: RowFiles, fleet: SharedFleet, command: Sequence[str]) -> None:
    """A row for each service on each type, with the answer in words and the pools."""
    files.add(blocks(fleet.table))
    pools = [
        {
            "gpu": pool.gpu,
            "stock": pool.stock if math.isfinite(pool.stock) else None,
            "most_gpus": pool.most,
            "base_gpus": pool.held,
            "gpu_hours": pool.gpu_hours,
            "cost_usd": pool.cost if math.isfinite(pool.cost) else None,
            "base_contract": pool.terms.base_contract,
            "hourly_contract": pool.terms.hourly_contract,
        }
        for pool in fleet.pools
    ]
    files.finish(question_manifest(fleet.request, command), answer=answer_lines(fleet), pools=pools)
