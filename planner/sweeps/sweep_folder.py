"""Writes and reads the directory of a sweep; finished parts survive any interruption."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO

import numpy as np

from planner.base.atomic_write import (
    lock_file,
    remove_unfinished,
    write_atomically,
    write_bytes_atomically,
)
from planner.base.csv_cells import Row, Value, cell_value, number_or_nan
from planner.base.read_files import (
    RESULT,
    TABLE,
    open_regular_file,
    read_bytes,
    read_csv,
    read_json,
    require_table,
)
from planner.base.records import record
from planner.base.version import __version__
from planner.errors import OutputError, SearchSpaceError, SpecError
from planner.optimize.pareto import front_of_many
from planner.question.parse_values import cell_reader
from planner.question.renamed import current_name
from planner.question.terms import terms_of
from planner.show.presenters.row_tables import Manifest
from planner.specs.file_cache import cache_by_files, stamp
from planner.specs.spec_paths import data_files
from planner.sweeps.plan import SweepPlan, work_columns
from planner.sweeps.scenario_batches import (
    RERUN_HINT,
    ScenarioBatch,
    is_complete_part,
    parts_of,
    read_head,
    read_rows,
)
from planner.workloads.registry import workload_names, workload_of

if TYPE_CHECKING:
    import pandas as pd

    from planner.sweeps.summary import Summary


_PACKAGE = Path(__file__).resolve().parents[1]
_VERSIONS = ("version", "numpy")


def identity(plan: SweepPlan) -> dict[str, str]:
    """Return versions and digests of the program, its specs and the files that the plan names.

    Results can differ slightly between versions of numpy.
    """
    return {
        "version": __version__,
        "numpy": np.__version__,
        "program": _digest(sorted(_PACKAGE.rglob("*.py"))),
        "specs": _digest(data_files(plan.specs)),
        "files": _digest(_files_in_plan(plan)),
    }


def check_same(expected: Mapping[str, str], other: Mapping[str, object], subject: str) -> None:
    """Raise OutputError if two identities differ; the message names the differences."""
    if differ := differences(expected, other):
        raise OutputError(f"{subject} has a different {differ}: results would be inconsistent.")


def differences(expected: Mapping[str, str], other: Mapping[str, object]) -> str:
    """Name the entries in which two identities of a sweep differ; empty: they are equal."""
    return " and ".join(
        f"{name} ({other.get(name, 'none')}, here {value})" if name in _VERSIONS else name
        for name, value in expected.items()
        if other.get(name) != value
    )


def _files_in_plan(plan: SweepPlan) -> Iterator[Path]:
    """Yield the existing files that a plan names: models, GPUs, search spaces, prices."""
    for work in plan.works:
        answers = [answer for values in work.axes.values() for answer in values]
        for value in (*answers, *work.settings.values()):
            if not isinstance(value, str | Path):
                continue
            config_path = os.path.join(value, "config.json")  # of a model's folder
            yield from (Path(path) for path in (value, config_path) if os.path.isfile(path))


def _digest(paths: Iterable[Path]) -> str:
    """Return the digest of names (without folders) and contents of files."""
    digest = hashlib.sha256()
    for path in paths:
        try:
            content = _content(path)
        except SpecError:
            continue
        digest.update(os.fsencode(path.name) + b"\0" + content)
    return digest.hexdigest()[:16]


@cache_by_files
def _content(path: Path) -> bytes:
    """The digest of a file, cached until the file changes."""
    stamp(path)
    return hashlib.sha256(read_bytes(path, TABLE)).digest()


PLAN, MANIFEST, PARTS = "plan.json", "manifest.json", "parts"
LOCK = ".planner-sweep.lock"
TABLES = SCENARIOS, FRONTS, FRONT = "scenarios", "fronts", "front"
_RESTART_HINT = "give another --output, or --fresh to start again"


@dataclass
class Store:
    """The directory of a sweep for writing: ``parts`` to run, and files of results.

    ``done`` counts finished scenarios; ``identity`` is from the start of this run.
    """

    folder: Path
    plan: SweepPlan
    done: int = 0
    is_complete: bool = False
    parts: list[ScenarioBatch] = field(default_factory=list)
    identity: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    @contextmanager
    def opened(cls, folder: Path, plan: SweepPlan, *, fresh: bool = False) -> Iterator[Store]:
        """Open the folder of a sweep exclusively for this process; create it if missing.

        Raises OutputError if it cannot be written, is in use, or has another plan, version or
        specs.
        """
        _make_writable(folder)
        with _lock(folder):
            store = cls(folder=folder, plan=plan)
            store._begin(fresh)
            yield store

    @property
    def parts_folder(self) -> Path:
        """The folder of the part files."""
        return self.folder / PARTS

    def path(self, part: ScenarioBatch) -> Path:
        """The file of a part."""
        return self.parts_folder / part.name

    def write_part(self, part: ScenarioBatch, content: bytes) -> None:
        """Write a part atomically."""
        with write_bytes_atomically(self.path(part)) as file:
            file.write(content)

    def all_parts(self) -> Iterator[Path]:
        """The files of all parts, in order."""
        yield from map(self.path, parts_of(self.plan.num_scenarios))

    def finish(self, manifest: Manifest) -> None:
        """Write the manifest, with which the sweep is complete, and remove its parts."""
        with write_atomically(self.folder / MANIFEST) as file:
            file.write(json.dumps(manifest, indent=1, allow_nan=False) + "\n")
        self._remove_parts()

    def remove_parts(self) -> None:
        """Remove all finished parts, because they are inconsistent."""
        self._remove_parts()

    def _begin(self, fresh: bool) -> None:
        """Prepare the folder to start or continue the sweep; ``fresh`` removes earlier results."""
        self.identity = identity(self.plan)
        for folder in (self.folder, self.folder / PARTS):
            remove_unfinished(folder)
        earlier = self._read_earlier()
        if earlier is None:
            self._refuse_others()
        if earlier is None or fresh:
            # Its plan is removed last, because it identifies the directory of a sweep.
            for path in (self.folder / MANIFEST, *self.tables()):
                path.unlink(missing_ok=True)
            self._remove_parts()
            (self.folder / PLAN).unlink(missing_ok=True)
            _make_writable(self.folder / PARTS)
            with write_atomically(self.folder / PLAN) as file:
                content = {
                    "identity": self.identity,
                    "digest": self.plan.digest,
                    "plan": self.plan.to_dict(),
                }
                file.write(json.dumps(content, indent=1) + "\n")
        elif earlier[0] != self.plan.digest:
            raise OutputError(f"{self.folder}: has the sweep of another plan: {_RESTART_HINT}.")
        else:
            try:
                check_same(self.identity, earlier[1], f"{self.folder}: it")
            except OutputError as error:
                raise OutputError(f"{str(error).rstrip('.')}; {_RESTART_HINT}.") from error
        self.is_complete = os.path.isfile(self.folder / MANIFEST)
        if self.is_complete:
            self._check_tables()
            self.done = self.plan.num_scenarios
            self._remove_parts()  # a killed process may have left some
            return
        for part in parts_of(self.plan.num_scenarios):
            if is_complete_part(self.path(part), part):
                self.done += part.end - part.first
            else:
                self.parts.append(part)

    def _check_tables(self) -> None:
        """Raise OutputError if a table of a complete sweep was changed."""
        try:
            manifest = require_table(read_json(self.folder / MANIFEST, RESULT), MANIFEST)
            digests = require_table(manifest["files"], "files").items()
            changed = [name for name, was in digests if file_digest(self.folder / name) != was]
        except (SpecError, OSError, KeyError, TypeError, AttributeError) as error:
            raise OutputError(f"{self.folder}: is damaged ({error}); {_RESTART_HINT}.") from error
        if changed:
            raise OutputError(f"{self.folder / changed[0]}: was changed; {_RESTART_HINT}.")

    def _read_earlier(self) -> tuple[object, Mapping[str, object]] | None:
        """Return plan digest and identity that an earlier run wrote; None: there is none."""
        path = self.folder / PLAN
        if not os.path.lexists(path):
            return None
        try:
            table = require_table(read_json(path, RESULT), PLAN)
            return table["digest"], require_table(table["identity"], "identity")
        except (SpecError, KeyError, TypeError) as error:
            raise OutputError(
                f"{path}: is not a file of a sweep ({type(error).__name__}: {error}): give another "
                "--output."
            ) from error

    def _refuse_others(self) -> None:
        """Raise OutputError if the folder has files that belong to no sweep."""
        paths = [*self.folder.iterdir(), *self.folder.glob(f"{PARTS}/*")]
        others = sorted(str(path.relative_to(self.folder)) for path in paths)
        others = [name for name in others if name not in (PARTS, LOCK)]
        if others:
            raise OutputError(
                f"{self.folder}: has files that do not belong to a sweep, such as {others[0]}: "
                "give a new directory."
            )

    def tables(self, name: str | None = None) -> list[Path]:
        """The existing files of a table, or of all tables."""
        names = TABLES if name is None else (name,)
        files = [self.folder / f"{table}.{kind}" for table in names for kind in ("csv", "parquet")]
        return [path for path in files if os.path.exists(path)]

    def _remove_parts(self) -> None:
        for path in (self.folder / PARTS).glob("*.jsonl.gz"):
            path.unlink(missing_ok=True)


def file_digest(path: Path) -> str:
    """SHA-256 digest of the content of a file."""
    with open_regular_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _make_writable(folder: Path) -> None:
    """Create a folder and write a probe file; raises OutputError if that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".planner-probe-{os.getpid()}.tmp"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise OutputError(
            f"{folder.parent}: cannot be written ({error.strerror}): give another --output."
        ) from error


_lock_files: set[TextIO] = set()


def _close_locks() -> None:
    """Close the parent's locks in a worker process, so that the parent can lock again."""
    for file in _lock_files:
        file.close()
    _lock_files.clear()


if hasattr(os, "register_at_fork"):  # not on Windows, which forks no process
    os.register_at_fork(after_in_child=_close_locks)


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Hold the lock file of a sweep folder while the context is open, then remove the file."""
    path = folder / LOCK
    with _exclusive_lock(path) as file:
        _lock_files.add(file)
        try:
            yield
        finally:
            _lock_files.discard(file)
            with suppress(OSError):
                path.unlink()


def _exclusive_lock(path: Path) -> TextIO:
    """Open and lock a file; raises OutputError if another process holds the lock."""
    while True:
        try:
            file = path.open("a")
            try:
                lock_file(file.fileno())
                if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                    return file
            except BaseException:
                file.close()
                raise
            file.close()  # its owner removed it just now
        except BlockingIOError as error:
            raise OutputError(f"{path.parent}: another sweep is writing there.") from error
        except FileNotFoundError as error:
            if not os.path.isdir(path.parent):
                raise OutputError(f"{path.parent}: was removed just now.") from error
        except OSError as error:
            raise OutputError(f"{path}: cannot be locked ({error.strerror}).") from error


class CsvRow(Mapping[str, Value]):
    """A line of a table; cells are parsed on access.

    Raises SpecError if there is no such column, or a cell is invalid for its column.
    """

    __slots__ = ("_at", "_cells", "_place")

    def __init__(
        self, at: Mapping[str, int], cells: Sequence[str], place: tuple[Path, int]
    ) -> None:
        self._at, self._cells, self._place = at, cells, place

    def __getitem__(self, name: str) -> Value:
        if name not in self._at:
            raise self._fault(f"there is no column {name}")
        return self.get(name)

    def get(self, name: str, default: Value = None) -> Value:  # type: ignore[override]
        """Return the value of a cell; ``default`` if there is no such column."""
        index = self._at.get(name)
        if index is None:
            return default
        try:
            return cell_reader(name)(cell_value(self._cells[index]))
        except SearchSpaceError as error:
            raise self._fault(str(error).rstrip(".")) from error

    def __contains__(self, name: object) -> bool:
        return name in self._at

    def __iter__(self) -> Iterator[str]:
        return iter(self._at)

    def __len__(self) -> int:
        return len(self._at)

    def _fault(self, reason: str) -> SpecError:
        path, line = self._place
        return SpecError(f"{path}:{line}: {reason}. {RERUN_HINT}")


class PartRow(dict[str, Value]):
    """A scenario of an unfinished sweep; raises SpecError as `CsvRow`."""

    def __init__(self, row: Row, path: Path) -> None:
        """Parse the cells of a row of a part file; raises SpecError if a cell is invalid."""
        try:
            super().__init__({name: cell_reader(name)(value) for name, value in row.items()})
        except SearchSpaceError as error:
            raise SpecError(f"{path}: {error} {RERUN_HINT}") from error
        self.path = path

    def __missing__(self, name: str) -> NoReturn:
        raise SpecError(f"{self.path}: a scenario has no {name}. {RERUN_HINT}")


@record()
class Sweep:
    """Results of a sweep in a directory; of an unfinished sweep, the scenarios that are done.

    Raises SpecError if the directory does not exist, has no sweep, or cannot be read.

    Parameters
    ----------
    folder : directory of the results
    """

    folder: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", Path(self.folder))
        _ = self.plan

    @cached_property
    def plan(self) -> SweepPlan:
        """Read the plan of the sweep from its folder."""
        table = self._plan_file
        try:
            return SweepPlan.of_dict(table["plan"])
        except SearchSpaceError as error:
            raise self._damaged_error(PLAN, error) from error

    @property
    def version(self) -> str:
        """Return the version of planner that started the sweep."""
        try:
            return str(require_table(self._plan_file["identity"], "identity")["version"])
        except (KeyError, SpecError) as error:
            raise self._damaged_error(PLAN, error) from error

    @cached_property
    def _plan_file(self) -> dict[str, object]:
        """Read the plan file of the sweep; raises SpecError if the folder has none."""
        if not os.path.isdir(self.folder):
            raise SpecError(f"{self.folder}: the directory does not exist.")
        if not os.path.lexists(self.folder / PLAN):
            raise SpecError(
                f"{self.folder}: is no directory of a sweep, it has no {PLAN}: give the "
                "--output of planner sweep."
            )
        table = read_json(self.folder / PLAN, RESULT)
        if not isinstance(table, dict) or "plan" not in table:
            raise self._damaged_error(PLAN, "it has no plan")
        return table

    @cached_property
    def is_complete(self) -> bool:
        """Whether every scenario is done and in the tables."""
        return os.path.isfile(self.folder / MANIFEST)

    @cached_property
    def done(self) -> int:
        """The number of scenarios with results."""
        if self.is_complete:
            return self.plan.num_scenarios
        return sum(part.end - part.first for part, _ in self._parts())

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Return the names of the columns of the scenarios, in order."""
        if self.is_complete:
            _, names = next(read_csv(self._path(SCENARIOS)), (1, []))
            return tuple(current_name("column", name) for name in names)
        heads = (read_head(path)["rows"] for _, path in self._parts())
        return tuple(dict.fromkeys(name for head in heads for name in head))

    def rows(self) -> Iterator[Row]:
        """Yield the rows of all finished scenarios from disk, in constant memory."""
        parts = (PartRow(row, path) for _, path in self._parts() for row in read_rows(path))
        rows = self._table(SCENARIOS) if self.is_complete else parts
        number = 0
        for number, row in enumerate(islice(rows, self.done + 1), start=1):  # noqa: B007
            yield self._checked(row)
        if number != self.done:
            raise self._damaged_error(
                f"{SCENARIOS}.csv" if self.is_complete else PARTS,
                f"has {number:,} of {self.done:,} scenarios: it was changed",
            )

    def front_rows(self) -> Iterator[Row]:
        """Yield the scenarios on the Pareto front of each work and model."""
        if self.is_complete:
            yield from self._table(FRONT)
            return
        numbers = front_across(self.rows(), self.plan)
        yield from (row for row in self.rows() if row["scenario"] in numbers)

    def scenarios(self) -> pd.DataFrame:
        """All scenarios as a pandas frame; units are in the names of its columns."""
        return _frame(self.rows(), self.columns)

    def front(self) -> pd.DataFrame:
        """The scenarios on the Pareto front of each work and model as a pandas frame."""
        return _frame(self.front_rows(), self.columns)

    def summary(self) -> Summary:
        """The cheapest and the fastest scenarios, ties, and scenarios without a plan."""
        from planner.sweeps.summary import summarize

        return summarize(self.rows(), self.plan)

    def _parts(self) -> Iterator[tuple[ScenarioBatch, Path]]:
        for part in parts_of(self.plan.num_scenarios):
            path = self.folder / PARTS / part.name
            if os.path.isfile(path):
                yield part, path

    def _checked(self, row: Row) -> Row:
        """Return the row; raises SpecError if it is not of the plan or lacks parameters."""
        number, workload = row["scenario"], row["workload"]
        if not isinstance(number, int) or not 0 <= number < self.plan.num_scenarios:
            raise self._damaged_error(f"{SCENARIOS}.csv", f"there is no scenario {number}")
        if workload not in workload_names():
            raise self._damaged_error(f"{SCENARIOS}.csv", f"there is no workload {workload}")
        if row["work"] not in self._works:
            raise self._damaged_error(f"{SCENARIOS}.csv", f"there is no work {row['work']}")
        if row["feasible"]:
            for name in self._parameters[str(workload)]:
                if row[name] is None:
                    reason = f"scenario {number} has no {name}"
                    raise self._damaged_error(f"{SCENARIOS}.csv", reason)
        return row

    @cached_property
    def _works(self) -> frozenset[str]:
        return frozenset(work.name for work in self.plan.works)

    @cached_property
    def _parameters(self) -> Mapping[str, Sequence[str]]:
        """Return, by workload, the parameters that are columns of the sweep."""
        return {
            workload: [name for name in terms_of(workload, "parameter") if name in self.columns]
            for workload in workload_names()
        }

    def _table(self, name: str) -> Iterator[Row]:
        """Yield the rows of a CSV table of the sweep; raises an error if a row is damaged."""
        path = self._path(name)
        lines = read_csv(path)
        _, names = next(lines, (1, []))
        indices = {current_name("column", name): index for index, name in enumerate(names)}
        for line, cells in lines:
            if len(cells) != len(names):
                reason = f"line {line} has {len(cells)} cells, not {len(names)}"
                raise self._damaged_error(path.name, reason)
            yield CsvRow(indices, cells, (path, line))

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.csv"

    def _damaged_error(self, name: str, reason: object) -> SpecError:
        return SpecError(f"{self.folder / name}: is not a file of a sweep ({reason}). {RERUN_HINT}")


def _frame(rows: Iterator[Row], columns: Sequence[str]) -> pd.DataFrame:
    """Return a pandas data frame of these columns; a missing cell is None."""
    import pandas as pd

    values: dict[str, list[Value]] = {name: [] for name in columns}
    for row in rows:
        for name, column in values.items():
            column.append(row.get(name))
    return pd.DataFrame(values)


# Only scenarios of one work and one model can be compared.
_GROUP_COLUMNS = ("work", "model", "adapter")


def front_across(rows: Iterable[Row], plan: SweepPlan) -> set[int]:
    """Return the numbers of the scenarios on the Pareto front of each work and model.

    Keeps only a few numbers of each row in memory. An unknown value is worse than any known value.
    """
    columns_by_work = {work.name: (*_GROUP_COLUMNS, *work_columns(work)) for work in plan.works}
    groups: dict[tuple[Value, ...], tuple[list[int], list[tuple[float, ...]]]] = {}
    for row in rows:
        if row["feasible"]:
            key = tuple(row.get(name) for name in columns_by_work[str(row["work"])])
            numbers, values = groups.setdefault(key, ([], []))
            numbers.append(int(str(row["scenario"])))
            weighed = workload_of(str(row["workload"])).comparison_columns
            values.append(
                tuple(
                    np.inf if row.get(name) is None else number_or_nan(row.get(name))
                    for name in weighed
                )
            )
    return {
        numbers[index]
        for numbers, values in groups.values()
        for index in front_of_many(np.array(values)).tolist()
    }
