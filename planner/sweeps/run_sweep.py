"""Runs the open scenarios of a sweep, in this process, on cores or on Dask; writes its tables."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from planner.base.atomic_write import write_atomically, write_bytes_atomically
from planner.base.csv_cells import Row, Value
from planner.base.formatting import format_count
from planner.base.records import record
from planner.base.signals import is_stop_requested
from planner.base.worker_processes import TRIES, WorkersEnded, run_on_workers
from planner.errors import OutputError, WorkersLost
from planner.optimize.exhaustive import StopSearch
from planner.optimize.result import FewestGpus, insert_scaling_efficiency
from planner.question.terms import columns_about, term_of_column
from planner.show.presenters.row_tables import csv_cell
from planner.sweeps.plan import SweepPlan
from planner.sweeps.scenario_batches import (
    ScenarioBatch,
    joint_kind,
    parts_of,
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
Columns = dict[str, list[Value]]
Progress: TypeAlias = Callable[[int], None]

# Row groups of Parquet are larger than parts, because each describes every column.
_ROWS_PER_GROUP = 4096
# Many small tables need far more memory than one of their rows.
_MOST_WAITING = 16
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


@record(kw_only=True)
class TableJob:
    """What every part needs to become rows of the tables.

    ``kinds`` has the type of each column by table, ``front`` the numbers of the scenarios on the
    Pareto front. Scenarios of ``fewest`` get their scaling relative to the fewest GPUs.
    """

    folder: Path
    plan: SweepPlan
    kinds: Mapping[str, Kinds]
    front: Collection[int]
    fewest: FewestGpus | None

    def blocks(self, part: ScenarioBatch) -> dict[str, tuple[str, bytes]]:
        """Return the CSV lines of a part and its Arrow stream by table; no stream: no Parquet."""
        tables: dict[str, Columns] = {name: {column: [] for column in self.kinds[name]}
                                      for name in TABLES}  # fmt: skip
        for series, (row, plans) in _with_series(self.plan, part, read_results(self.path(part))):
            scaled = row if self.fewest is None else self.fewest.scaled(series, row)
            columns = {name: [value] for name, value in scaled.items()}
            _append(tables[SCENARIOS], columns)
            _append(tables[FRONTS], plans)
            if row["scenario"] in self.front:
                _append(tables[FRONT], columns)
        return {
            name: (_csv_lines(columns, self.kinds[name]), _arrow_stream(columns, self.kinds[name]))
            for name, columns in tables.items()
        }

    def path(self, part: ScenarioBatch) -> Path:
        """The file of a part."""
        return self.folder / part.name


def write_tables(
    store: Store,
    front: Collection[int],
    fewest: FewestGpus | None,
    *,
    workers: int = 1,
    progress: Progress | None = None,
) -> dict[str, str]:
    """Write all tables of a sweep in one pass; return the name and digest of each file.

    The bytes of the files do not depend on ``workers``, processes that read parts and format rows.
    ``progress`` gets the number of written scenarios and may raise `StopSearch`.
    """
    rows, fronts = _kinds(store, "rows"), _kinds(store, "fronts")
    if fewest is not None:
        rows = insert_scaling_efficiency(rows, "number")
    kinds = {SCENARIOS: rows, FRONTS: fronts, FRONT: rows}
    job = TableJob(
        folder=store.parts_folder, plan=store.plan, kinds=kinds, front=front, fewest=fewest
    )
    with ExitStack() as stack:
        adders = {
            name: stack.enter_context(_table_writer(store.folder, name, kinds[name]))
            for name in TABLES
        }
        for part, blocks in _in_order(job, workers):
            for name, block in blocks.items():
                adders[name](*block)
            if progress is not None:
                progress(part.end)
    return {path.name: file_digest(path) for name in TABLES for path in store.tables(name)}


def _in_order(
    job: TableJob, workers: int
) -> Iterator[tuple[ScenarioBatch, Mapping[str, tuple[str, bytes]]]]:
    """Yield the parts and their blocks in order; few finished ones wait for those before them."""
    parts = parts_of(job.plan.num_scenarios)
    if workers == 1:
        yield from ((part, job.blocks(part)) for part in parts)
        return
    waiting: list[tuple[int, ScenarioBatch, Any]] = []
    following = 0
    for part, blocks in run_on_workers(partial(TableJob.blocks, job), parts, workers):
        heapq.heappush(waiting, (part.number, part, blocks))
        while waiting and waiting[0][0] == following:
            _, earliest, rows = heapq.heappop(waiting)
            following += 1
            yield earliest, rows


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


def rows_with_series(store: Store) -> Iterator[tuple[bytes, Row]]:
    """Yield the rows of all scenarios, in order, each with its series."""
    for part in parts_of(store.plan.num_scenarios):
        yield from _with_series(store.plan, part, read_rows(store.path(part)))


def _with_series(
    plan: SweepPlan, part: ScenarioBatch, items: Iterator[Item]
) -> Iterator[tuple[bytes, Item]]:
    """Yield what each scenario of a part has, in order, with its series.

    The series is the same for scenarios that differ only in the number of GPUs, and in every
    process.
    """
    scenarios = plan.scenarios(range(part.first, part.end))
    for scenario, item in zip(scenarios, items, strict=False):
        others = [(name, str(v)) for name, v in scenario.values.items() if name != "num_gpus"]
        yield blake2b(repr((scenario.work.name, others)).encode(), digest_size=8).digest(), item


def _append(table: Columns, block: Mapping[str, Sequence[Value]]) -> None:
    """Add rows to columns; columns that the rows lack get None."""
    missing = [None] * len(next(iter(block.values()), ()))
    for column, values in table.items():
        values += block.get(column) or missing


@contextmanager
def _table_writer(folder: Path, name: str, kinds: Kinds) -> Iterator[Callable[[str, bytes], None]]:
    """Open the CSV file, and Parquet if available, of a table; yields a function to add rows."""
    with ExitStack() as stack:
        text = stack.enter_context(write_atomically(folder / f"{name}.csv"))
        text.write(",".join(map(csv_cell, kinds)) + "\n")
        add_stream: Callable[[bytes], None] | None = None
        if has_parquet() and kinds:
            add_stream = stack.enter_context(_parquet_writer(folder / f"{name}.parquet", kinds))

        def add(lines: str, stream: bytes) -> None:
            text.write(lines)
            if add_stream is not None and lines:
                add_stream(stream)

        yield add


@contextmanager
def _parquet_writer(path: Path, kinds: Kinds) -> Iterator[Callable[[bytes], None]]:
    """Open a Parquet file with typed columns; yields a function to add rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with write_bytes_atomically(path) as file, pq.ParquetWriter(file, _schema(kinds)) as writer:
        waiting: list[pa.Table] = []

        def join() -> pa.Table:
            table = pa.concat_tables(waiting).combine_chunks()
            waiting.clear()
            return table

        def add(stream: bytes) -> None:
            waiting.append(pa.ipc.open_stream(stream).read_all())
            if sum(table.num_rows for table in waiting) >= _ROWS_PER_GROUP:
                writer.write_table(join())
            elif len(waiting) >= _MOST_WAITING:
                waiting.append(join())

        yield add
        if waiting:
            writer.write_table(join())


def _arrow_stream(columns: Columns, kinds: Kinds) -> bytes:
    """Return typed columns as an Arrow stream; empty if there is no Parquet, or no row."""
    if not has_parquet() or not any(columns.values()):
        return b""
    import pyarrow as pa

    values = {name: _convert_column(columns[name], kind) for name, kind in kinds.items()}
    table = pa.table(values, schema=_schema(kinds))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _schema(kinds: Kinds) -> object:
    """Return the schema of Arrow for typed columns."""
    import pyarrow as pa

    types = {"flag": pa.bool_(), "count": pa.int64(), "number": pa.float64()}
    return pa.schema([(name, types.get(kind, pa.string())) for name, kind in kinds.items()])


def _csv_lines(columns: Columns, kinds: Kinds) -> str:
    cells = [_cells(columns[column], kind) for column, kind in kinds.items()]
    return "".join([",".join(row) + "\n" for row in zip(*cells, strict=True)])


def _convert_column(values: Sequence[Value], kind: str) -> Sequence[Value]:
    if kind in ("flag", "count"):
        return values
    convert = float if kind == "number" else str
    return [None if value is None else convert(value) for value in values]


def _cells(values: Sequence[Value], kind: str) -> list[str]:
    """Format a column of values as CSV cells; None becomes empty."""
    if kind in ("flag", "count", "number"):
        cells = [*map(repr, values)]
        return ["" if cell == "None" else cell for cell in cells] if "None" in cells else cells
    texts = {value: csv_cell(value) for value in {*values} if isinstance(value, str)}
    return [texts[value] if isinstance(value, str) else csv_cell(value) for value in values]


Done: TypeAlias = tuple[ScenarioBatch, bytes]
IN_TABLES = "scenarios in tables"
"""Unit of the progress of the tables."""
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
            raise _workers_lost(error) from error

    return run


def _workers_lost(error: WorkersEnded) -> WorkersLost:
    """The error of a user for workers that ended: it names the first scenario without a result."""
    first = min(
        (part for part in error.tasks if isinstance(part, ScenarioBatch)),
        key=lambda part: part.number,
    )
    return WorkersLost(
        f"Workers ended {TRIES} times without a result, at scenario {first.first} "
        "or soon after it: give them more memory, or --workers 1. Finished scenarios "
        "are kept: run the same command to continue."
    )


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
    progress: Progress | None = None,
    tables_bar: Callable[[], Progress | None] = lambda: None,
    table_workers: int = 1,
) -> None:
    """Run all scenarios that the folder lacks and write the tables.

    ``progress`` gets the number of finished scenarios, and what ``tables_bar`` returns that of
    scenarios in the tables; both may raise `StopSearch`. ``table_workers`` processes make tables.

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
                f"{format_count(plan.num_scenarios)} scenarios: run the same command to continue."
            ) from stop
        now = identity(plan)
        if changed := differences(now, store.identity):
            store.remove_parts()
            raise OutputError(
                f"{folder}: {changed} changed during the run: start again with --fresh."
            )
        try:
            results = write_results(store, workers=table_workers, progress=tables_bar())
        except StopSearch as stop:
            raise Stopped(
                "Interrupted while the tables were written: run the same command to continue."
            ) from stop
        except WorkersEnded as error:
            raise _workers_lost(error) from error
        store.finish({**now, **results})


def write_results(
    store: Store, *, workers: int = 1, progress: Progress | None = None
) -> dict[str, object]:
    """Write the tables of a finished sweep; return the entries of its manifest."""
    plan, fewest = store.plan, FewestGpus()
    counts: Counter[str] = Counter(scenarios=0, feasible=0)

    def counted_rows() -> Iterator[Row]:
        for key, row in rows_with_series(store):
            counts["scenarios"] += 1
            counts["feasible"] += bool(row["feasible"])
            fewest.add(key, row)
            yield row

    numbers = front_across(counted_rows(), plan)
    is_scaled = any("num_gpus" in work.varied for work in plan.works)
    scaling = fewest if is_scaled else None
    files = write_tables(store, numbers, scaling, workers=workers, progress=progress)
    return {**counts, "digest": plan.digest, "plan": plan.to_dict(), "files": files}


def _report_progress(progress: Progress | None, done: int) -> None:
    if progress is not None:
        progress(done)
