"""The directory of a sweep: what is done stays done, whatever ends the program."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

import numpy as np

from planner.base.files import remove_unfinished, written_bytes, written_whole
from planner.base.reading import RESULT, TABLE, opened, read_bytes, read_json, table_of
from planner.base.version import __version__
from planner.errors import OutputError, SpecError
from planner.specs.cache import kept, stamp
from planner.specs.paths import data_files
from planner.sweeps.parts import Part, is_whole, parts_of
from planner.sweeps.plan import SweepPlan

_PACKAGE = Path(__file__).resolve().parents[1]
_VERSIONS = ("version", "numpy")


def identity(plan: SweepPlan) -> dict[str, str]:
    """The versions, and digests of the program, of all files of specs and of those named.

    Other versions of numpy round some results otherwise.
    """
    return {
        "version": __version__,
        "numpy": np.__version__,
        "program": _digest(sorted(_PACKAGE.rglob("*.py"))),
        "specs": _digest(data_files(plan.specs)),
        "files": _digest(_named(plan)),
    }


def check_same(mine: Mapping[str, str], other: Mapping[str, object], who: str) -> None:
    """Refuse to go on where something else would compute something else.

    Raises
    ------
    OutputError
        It says what differs.
    """
    if differ := differences(mine, other):
        raise OutputError(f"{who} has another {differ}: its results would not go together.")


def differences(mine: Mapping[str, str], other: Mapping[str, object]) -> str:
    """In words, in what something else differs from here; empty where in nothing."""
    return " and ".join(
        f"{name} ({other.get(name, 'none')}, here {value})" if name in _VERSIONS else name
        for name, value in mine.items()
        if other.get(name) != value
    )


def _named(plan: SweepPlan) -> Iterator[Path]:
    """The files that a plan names itself: own models, GPUs, spaces, prices."""
    for work in plan.works:
        answers = [one for values in work.axes.values() for one in values]
        for value in (*answers, *work.settings.values()):
            if not isinstance(value, str | Path):
                continue
            inside = os.path.join(value, "config.json")  # of a model's folder
            yield from (Path(path) for path in (value, inside) if os.path.isfile(path))


def _digest(paths: Iterable[Path]) -> str:
    """Of the names and contents of files; of what differs between machines nothing."""
    whole = hashlib.sha256()
    for path in paths:
        try:
            content = _content(path)
        except SpecError:
            continue
        whole.update(os.fsencode(path.name) + b"\0" + content)
    return whole.hexdigest()[:16]


@kept
def _content(path: Path) -> bytes:
    """The digest of a file, which is read again once it changed."""
    stamp(path)
    return hashlib.sha256(read_bytes(path, TABLE)).digest()


PLAN, MANIFEST, PARTS = "plan.json", "manifest.json", "parts"
LOCK = ".planner-sweep.lock"
TABLES = SCENARIOS, FRONTS, FRONT = "scenarios", "fronts", "front"
_AGAIN = "give another --output, or --fresh to start again"


@dataclass
class Store:
    """A directory that belongs to one plan: ``parts`` not yet done, and files of results.

    ``done`` counts scenarios of parts that were found; ``identity`` is that of the beginning.
    """

    folder: Path
    plan: SweepPlan
    done: int = 0
    is_complete: bool = False
    parts: list[Part] = field(default_factory=list)
    identity: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    @contextmanager
    def opened(cls, folder: Path, plan: SweepPlan, *, fresh: bool = False) -> Iterator[Store]:
        """The directory, made where there is none, for this process alone.

        Raises
        ------
        OutputError
            It cannot be written, is of another plan, version or specs, or in use.
        """
        _make(folder)
        with _locked(folder):
            store = cls(folder=folder, plan=plan)
            store._begin(fresh)
            yield store

    def path(self, part: Part) -> Path:
        """The file of a part."""
        return self.folder / PARTS / part.name

    def keep(self, part: Part, content: bytes) -> None:
        """Write a part: whole, or not at all."""
        with written_bytes(self.path(part)) as file:
            file.write(content)

    def all_parts(self) -> Iterator[Path]:
        """The files of all parts, in order."""
        yield from map(self.path, parts_of(self.plan.num_scenarios))

    def finish(self, manifest: Mapping[str, object]) -> None:
        """Write the manifest, with which the sweep is complete, and remove its parts."""
        with written_whole(self.folder / MANIFEST) as file:
            file.write(json.dumps(manifest, indent=1, allow_nan=False) + "\n")
        self._remove_parts()

    def forget(self) -> None:
        """Let go of what is done: it does not go together."""
        self._remove_parts()

    def _begin(self, fresh: bool) -> None:
        self.identity = identity(self.plan)
        for folder in (self.folder, self.folder / PARTS):
            remove_unfinished(folder)
        before = self._before()
        if before is None:
            self._refuse_others()
        if before is None or fresh:
            # Its plan goes last, by which the directory of a sweep is known.
            for path in (self.folder / MANIFEST, *self.tables()):
                path.unlink(missing_ok=True)
            self._remove_parts()
            (self.folder / PLAN).unlink(missing_ok=True)
            _make(self.folder / PARTS)
            with written_whole(self.folder / PLAN) as file:
                asked = {
                    "identity": self.identity,
                    "digest": self.plan.digest,
                    "plan": self.plan.to_dict(),
                }
                file.write(json.dumps(asked, indent=1) + "\n")
        elif before[0] != self.plan.digest:
            raise OutputError(f"{self.folder}: holds the sweep of another plan: {_AGAIN}.")
        else:
            try:
                check_same(self.identity, before[1], f"{self.folder}: it")
            except OutputError as error:
                raise OutputError(f"{str(error).rstrip('.')}; {_AGAIN}.") from error
        self.is_complete = os.path.isfile(self.folder / MANIFEST)
        if self.is_complete:
            self._check_tables()
            self.done = self.plan.num_scenarios
            self._remove_parts()  # a program that was killed then may have left some
            return
        for part in parts_of(self.plan.num_scenarios):
            if is_whole(self.path(part), part):
                self.done += part.end - part.first
            else:
                self.parts.append(part)

    def _check_tables(self) -> None:
        """The tables of a complete sweep are still those that were written."""
        try:
            manifest = table_of(read_json(self.folder / MANIFEST, RESULT), MANIFEST)
            digests = table_of(manifest["files"], "files").items()
            changed = [name for name, was in digests if file_digest(self.folder / name) != was]
        except (SpecError, OSError, KeyError, TypeError, AttributeError) as error:
            raise OutputError(f"{self.folder}: is damaged ({error}); {_AGAIN}.") from error
        if changed:
            raise OutputError(f"{self.folder / changed[0]}: was changed; {_AGAIN}.")

    def _before(self) -> tuple[object, Mapping[str, object]] | None:
        """The digest of the plan that an earlier run wrote, and its identity."""
        path = self.folder / PLAN
        if not os.path.lexists(path):
            return None
        try:
            found = table_of(read_json(path, RESULT), PLAN)
            return found["digest"], table_of(found["identity"], "identity")
        except (SpecError, KeyError, TypeError) as error:
            raise OutputError(
                f"{path}: is not that of a sweep ({type(error).__name__}: {error}): give another "
                "--output."
            ) from error

    def _refuse_others(self) -> None:
        """A directory with files of somebody else is left alone."""
        found = [*self.folder.iterdir(), *self.folder.glob(f"{PARTS}/*")]
        others = sorted(str(path.relative_to(self.folder)) for path in found)
        others = [name for name in others if name not in (PARTS, LOCK)]
        if others:
            raise OutputError(
                f"{self.folder}: has files that do not belong to a sweep, such as {others[0]}: "
                "give a new directory."
            )

    def tables(self, name: str | None = None) -> list[Path]:
        """The files of a table, or of all, that are there."""
        names = TABLES if name is None else (name,)
        files = [self.folder / f"{one}.{kind}" for one in names for kind in ("csv", "parquet")]
        return [path for path in files if os.path.exists(path)]

    def _remove_parts(self) -> None:
        for path in (self.folder / PARTS).glob("*.jsonl.gz"):
            path.unlink(missing_ok=True)


def file_digest(path: Path) -> str:
    """Of the content of a file."""
    with opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".planner-probe-{os.getpid()}.tmp"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise OutputError(
            f"{folder.parent}: cannot be written ({error.strerror}): give another --output."
        ) from error


_held: set[TextIO] = set()


def _let_go() -> None:
    """A worker process keeps no lock of its parent, which could not begin again else."""
    for file in _held:
        file.close()
    _held.clear()


os.register_at_fork(after_in_child=_let_go)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    path = folder / LOCK
    with _own(path) as file:
        _held.add(file)
        try:
            yield
        finally:
            _held.discard(file)
            with suppress(OSError):
                path.unlink()


def _own(path: Path) -> TextIO:
    """The lock, had by this process alone."""
    while True:
        try:
            file = path.open("a")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                    return file
            except BaseException:
                file.close()
                raise
            file.close()  # its owner removed it just now
        except BlockingIOError as error:
            raise OutputError(f"{path.parent}: another sweep is being written there.") from error
        except FileNotFoundError as error:
            if not os.path.isdir(path.parent):
                raise OutputError(f"{path.parent}: was removed just now.") from error
        except OSError as error:
            raise OutputError(f"{path}: cannot be locked ({error.strerror}).") from error
