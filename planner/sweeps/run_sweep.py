"""Runs the open scenarios of a sweep, in this process, on cores or on Dask; writes its tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TypeAlias, TypeVar

from planner.base.atomic_write import write_atomically, write_bytes_atomically
from planner.base.csv_cells import Row, Value
from planner.base.formatting import format_count
from planner.base.signals import is_stop_requested
from planner.base.worker_processes import TRIES, WorkersEnded, run_on_workers
from planner.errors import OutputError, WorkersLost
from planner.optimize.exhaustive import StopSearch
from planner.optimize.result import FewestGpus, insert_scaling_efficiency
from planner.question.terms import columns_about, term_of_column
from planner.show.presenters.row_files import csv_cell
from planner.sweeps.plan import SweepPlan
from planner.sweeps.scenario_batches import (
    ScenarioBatch,
    joint_kind,
    read_head,
    read_results,
    read_rows,
    run_part,
)
from planner.sweeps.sweep_folder import (
    FRONT,
    FRONTS,
    SCENARIOS,
    TABLES,
    Store,
    differences,
    file_digest,
    front_across,
    identity,
)

Item = TypeVar("Item")
Kinds = Mapping[str, str]
Block = Mapping[str, Sequence[Value]]

# Blocks of rows are small, because Python values need much memory. Row groups of Parquet are
# larger, because each describes every column.
_ROWS_PER_BLOCK, _ROWS_PER_GROUP = 256, 4096
_FIRST_COLUMNS = (
    "scenario",
    "work",
    "workload",
    *columns_about("scenario_columns"),
    "feasible",
    "reason",
)


def has_parquet() -> bool:
    """Whether the library for Parquet is installed."""
    from importlib.util import find_spec

    return find_spec("pyarrow") is not None


def write_tables(store: Store, front: Collection[int], fewest: FewestGpus | None) -> dict[str, str]:
    """Write all tables of a sweep in one pass; return the name and digest of each file.

    ``front`` has the numbers of the scenarios on the Pareto front. Scenarios of ``fewest`` get
    their scaling relative to the fewest GPUs.
    """
    rows, fronts = _kinds(store, "rows"), _kinds(store, "fronts")
    if fewest is not None:
        rows = insert_scaling_efficiency(rows, "number")
    with ExitStack() as stack:
        add_scenario, add_front, add_best = (
            stack.enter_context(_table_writer(store.folder, name, kinds))
            for name, kinds in ((SCENARIOS, rows), (FRONTS, fronts), (FRONT, rows))
        )
        for key, (row, plans) in _with_series(store, read_results):
            scaled = row if fewest is None else fewest.scaled(key, row)
            columns = {name: [value] for name, value in scaled.items()}
            add_scenario(columns)
            add_front(plans)
            if row["scenario"] in front:
                add_best(columns)
    return {path.name: file_digest(path) for name in TABLES for path in store.tables(name)}


def _kinds(store: Store, table: str) -> dict[str, str]:
    """Return the type of each column in all part files; columns of the question come first."""
    kinds: dict[str, str] = {}
    for path in store.all_parts():
        for name, kind in read_head(path)[table].items():
            kinds[name] = joint_kind(kinds.get(name, ""), kind)
    for name in (name for name, kind in kinds.items() if not kind):  # results are numbers
        term = term_of_column(name)
        is_number = term is not None and "result" in term.kind and not term.is_word
        kinds[name] = "number" if is_number else ""
    first = {name: kinds[name] for name in _FIRST_COLUMNS if name in kinds}
    return {**first, **kinds}


def _with_series(
    store: Store, read: Callable[[Path], Iterator[Item]]
) -> Iterator[tuple[int, Item]]:
    """Yield what ``read`` finds of each scenario in the parts, in order, with its series.

    The series is the same for scenarios that differ only in the number of GPUs.
    """
    scenarios = store.plan.scenarios(range(store.plan.num_scenarios))
    items = (item for path in store.all_parts() for item in read(path))
    for scenario, item in zip(scenarios, items, strict=False):
        others = [(name, str(v)) for name, v in scenario.values.items() if name != "num_gpus"]
        yield hash((scenario.work.name, *others)), item


@contextmanager
def _table_writer(folder: Path, name: str, kinds: Kinds) -> Iterator[Callable[[Block], None]]:
    """Open the CSV file, and Parquet if available, of a table; yields a function to add rows."""
    with ExitStack() as stack:
        text = stack.enter_context(write_atomically(folder / f"{name}.csv"))
        text.write(",".join(map(csv_cell, kinds)) + "\n")
        add_columns = None
        if has_parquet() and kinds:
            add_columns = stack.enter_context(_parquet_writer(folder / f"{name}.parquet", kinds))
        waiting: dict[str, list[Value]] = {column: [] for column in kinds}
        number = 0

        def write(rows: int) -> None:
            nonlocal number
            block = {column: values[:rows] for column, values in waiting.items()}
            cells = [_cells(block[column], kind) for column, kind in kinds.items()]
            text.writelines([",".join(row) + "\n" for row in zip(*cells, strict=True)])
            if add_columns is not None:
                add_columns(block)
            for values in waiting.values():
                del values[:rows]
            number -= rows

        def add(block: Block) -> None:
            nonlocal number
            rows = len(next(iter(block.values()), ()))
            number += rows
            missing = [None] * rows
            for column, values in waiting.items():
                values += block.get(column) or missing
            while number >= _ROWS_PER_BLOCK:
                write(_ROWS_PER_BLOCK)

        yield add
        if number:
            write(number)


@contextmanager
def _parquet_writer(path: Path, kinds: Kinds) -> Iterator[Callable[[Block], None]]:
    """Open a Parquet file with typed columns; yields a function to add rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {"flag": pa.bool_(), "count": pa.int64(), "number": pa.float64()}
    schema = pa.schema([(name, types.get(kind, pa.string())) for name, kind in kinds.items()])
    with write_bytes_atomically(path) as file, pq.ParquetWriter(file, schema) as writer:
        waiting: list[pa.Table] = []

        def write() -> None:
            writer.write_table(pa.concat_tables(waiting).combine_chunks())
            waiting.clear()

        def add(block: Block) -> None:
            columns = {name: _convert_column(block[name], kind) for name, kind in kinds.items()}
            waiting.append(pa.table(columns, schema=schema))
            if sum(table.num_rows for table in waiting) >= _ROWS_PER_GROUP:
                write()

        yield add
        if waiting:
            write()


def _convert_column(values: Sequence[Value], kind: str) -> Sequence[Value]:
    if kind in ("flag", "count"):
        return values
    convert = float if kind == "number" else str
    return [None if value is None else convert(value) for value in values]


def _cells(values: Sequence[Value], kind: str) -> list[str]:
    """Format a column of values as CSV cells; None becomes empty."""
    if kind in ("flag", "count", "number"):
        return ["" if value is None else repr(value) for value in values]
    texts = {value: csv_cell(value) for value in {*values} if isinstance(value, str)}
    return [texts[value] if isinstance(value, str) else csv_cell(value) for value in values]


Done: TypeAlias = tuple[ScenarioBatch, bytes]
Run: TypeAlias = Callable[[SweepPlan, Iterable[ScenarioBatch]], Iterator[Done]]
"""A function that runs parts of a plan, in any order."""


def in_this_process(plan: SweepPlan, parts: Iterable[ScenarioBatch]) -> Iterator[Done]:
    """Run one part after the other."""
    for part in parts:
        yield part, run_part(plan, part)


def on_cores(workers: int) -> Run:
    """Return a function that runs scenario batches in ``workers`` processes."""

    def run(plan: SweepPlan, parts: Iterable[ScenarioBatch]) -> Iterator[Done]:
        """Run the scenario batches of a sweep on local worker processes and yield each result."""
        try:
            yield from run_on_workers(partial(run_part, plan), parts, workers, _check_stop)
        except WorkersEnded as error:
            first = min(
                (part for part in error.tasks if isinstance(part, ScenarioBatch)),
                key=lambda part: part.number,
            )
            raise WorkersLost(
                f"Workers ended {TRIES} times without a result, at scenario {first.first} "
                "or soon after it: give them more memory, or --workers 1. Finished scenarios "
                "are kept: run the same command to continue."
            ) from error

    return run


def _check_stop() -> None:
    """Raise StopSearch if the user stopped the sweep."""
    if is_stop_requested():
        raise StopSearch


class Stopped(KeyboardInterrupt):
    """The user stopped the sweep; finished scenarios are kept."""


def run_sweep(
    plan: SweepPlan,
    folder: Path,
    *,
    run: Run = in_this_process,
    fresh: bool = False,
    progress: Callable[[int], None] | None = None,
) -> None:
    """Run all scenarios that the folder lacks and write the tables.

    ``progress`` gets the number of finished scenarios and may raise `StopSearch`.

    Raises OutputError if the directory cannot be written, or belongs to something else.
    """
    with Store.opened(folder, plan, fresh=fresh) as store:
        if store.is_complete:
            return
        try:
            _report_progress(progress, store.done)
            for part, content in run(plan, store.parts):
                store.write_part(part, content)
                store.done += part.end - part.first
                _report_progress(progress, store.done)
        except StopSearch as stop:
            raise Stopped(
                f"Interrupted after {format_count(store.done)} of "
                f"{format_count(plan.num_scenarios)} scenarios: "
                "run the same command to continue."
            ) from stop
        now = identity(plan)
        if changed := differences(now, store.identity):
            store.remove_parts()
            raise OutputError(
                f"{folder}: {changed} changed during the run: start again with --fresh."
            )
        store.finish({**now, **write_results(store)})


def write_results(store: Store) -> dict[str, object]:
    """Write the tables of a finished sweep; return the entries of its manifest."""
    plan, fewest = store.plan, FewestGpus()
    counts: Counter[str] = Counter(scenarios=0, feasible=0)

    def counted_rows() -> Iterator[Row]:
        for key, row in _with_series(store, read_rows):
            counts["scenarios"] += 1
            counts["feasible"] += bool(row["feasible"])
            fewest.add(key, row)
            yield row

    numbers = front_across(counted_rows(), plan)
    is_scaled = any("num_gpus" in work.varied for work in plan.works)
    files = write_tables(store, numbers, fewest if is_scaled else None)
    return {**counts, "digest": plan.digest, "plan": plan.to_dict(), "files": files}


def _report_progress(progress: Callable[[int], None] | None, done: int) -> None:
    if progress is not None:
        progress(done)
