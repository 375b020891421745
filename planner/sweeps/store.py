"""The directory of a sweep: what is done stays done, whatever ends the program."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from planner.errors import OutputError
from planner.report.files import TEMPORARY, written_bytes, written_whole
from planner.sweeps.identity import check_same, identity
from planner.sweeps.parts import Part, is_whole, parts_of
from planner.sweeps.plan import SweepPlan

PLAN, MANIFEST, PARTS, LOCK = "plan.json", "manifest.json", "parts", ".lock"
TABLES = SCENARIOS, FRONTS, FRONT = "scenarios", "fronts", "front"
_AGAIN = "give another --output, or --fresh to begin again"


@dataclass
class Store:
    """A directory that belongs to one plan: ``parts`` not yet done, and files of results.

    ``done`` counts scenarios of parts that were found.
    """

    folder: Path
    plan: SweepPlan
    done: int = 0
    is_complete: bool = False
    parts: list[Part] = field(default_factory=list)

    @classmethod
    @contextmanager
    def opened(cls, folder: Path, plan: SweepPlan, *, fresh: bool = False) -> Iterator[Store]:
        """The directory, made where there is none, for this process alone.

        Raises
        ------
        OutputError
            It cannot be written, is of another plan, version or specs, or in use.
        """
        _make(folder / PARTS)
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

    def finish(self, manifest: Mapping[str, Any]) -> None:
        """Write the manifest, with which the sweep is complete, and remove its parts."""
        with written_whole(self.folder / MANIFEST) as file:
            file.write(json.dumps(manifest, indent=1, allow_nan=False) + "\n")
        self._remove_parts()

    def _begin(self, fresh: bool) -> None:
        mine = {"identity": identity(self.plan), "digest": self.plan.digest}
        if fresh and (self.folder / PLAN).is_file():
            self._remove_results()
        self._remove_unfinished()
        before = self._before()
        if before is None:
            self._refuse_others()
            with written_whole(self.folder / PLAN) as file:
                asked = {**mine, "plan": self.plan.to_dict()}
                file.write(json.dumps(asked, indent=1) + "\n")
        elif before.get("digest") != mine["digest"]:
            raise OutputError(f"{self.folder}: holds the sweep of another plan: {_AGAIN}.")
        else:
            try:
                check_same(identity(self.plan), before["identity"], f"{self.folder}: it")
            except OutputError as error:
                raise OutputError(f"{str(error).rstrip('.')}; {_AGAIN}.") from error
        self.is_complete = (self.folder / MANIFEST).is_file()
        if self.is_complete:
            self.done = self.plan.num_scenarios
            return
        for part in parts_of(self.plan.num_scenarios):
            if is_whole(self.path(part), part):
                self.done += part.end - part.first
            else:
                self.parts.append(part)

    def _before(self) -> dict[str, Any] | None:
        """What an earlier run wrote of its plan."""
        path = self.folder / PLAN
        try:
            found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise OutputError(f"{path}: is not that of a sweep ({error}); {_AGAIN}.") from error
        return found

    def _refuse_others(self) -> None:
        """A directory with files of somebody else is left alone."""
        own = {PARTS, LOCK, PLAN, MANIFEST}
        others = sorted(entry.name for entry in self.folder.iterdir() if entry.name not in own)
        if others:
            raise OutputError(
                f"{self.folder}: has files that are no sweep's, such as {others[0]}: give a new "
                "directory."
            )

    def _remove_results(self) -> None:
        """Everything of an earlier sweep, what says that it is one last."""
        self._remove_parts()
        names = [f"{table}.{kind}" for table in TABLES for kind in ("csv", "parquet")]
        for name in (MANIFEST, *names, PLAN):
            (self.folder / name).unlink(missing_ok=True)

    def _remove_parts(self) -> None:
        for path in (self.folder / PARTS).glob("*.jsonl.gz"):
            path.unlink(missing_ok=True)

    def _remove_unfinished(self) -> None:
        """What a killed program left half-written."""
        for folder in (self.folder, self.folder / PARTS):
            for path in folder.glob(TEMPORARY):
                path.unlink(missing_ok=True)


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


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    path = folder / LOCK
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise OutputError(f"{folder}: another sweep is being written there.") from error
        try:
            yield
        finally:
            with suppress(OSError):
                path.unlink()
