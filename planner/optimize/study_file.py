"""Optuna studies in an SQLite file: made, checked, read back and appended to."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from planner.errors import OutputError, SearchSpaceError
from planner.optimize.samples import Samples

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial

_DIGEST = "planner_problem"


class StudyFile:
    """The finished trials of one problem; the file is touched only to read or add them.

    Without a name, each problem has its own: a file holds the studies of many problems.

    Raises
    ------
    SearchSpaceError
        The named study belongs to another problem.
    OutputError
        The file cannot be read or written.
    """

    def __init__(self, path: str, samples: Samples, name: str | None = None) -> None:
        digest = samples.digest
        self._path = path
        name = name or f"{samples.name} {digest[:8]}"
        with _usable(path):
            _check_tables(path)
            self._study = _open(path, name, samples)
            known = self._study.user_attrs.get(_DIGEST)
            if known is None and not self._study.get_trials(deepcopy=False):
                self._study.set_user_attr(_DIGEST, digest)
                self._study.set_metric_names(list(samples.objectives))
                known = digest
        if known != digest:
            raise SearchSpaceError(
                f"Study {name!r} in {path} belongs to another problem: its model, hardware, "
                "space, workload, objectives, constraints or planner version differ. "
                "Choose another study name or file."
            )

    def trials(self) -> list[FrozenTrial]:
        """Finished trials, oldest first."""
        from optuna.trial import TrialState

        with _usable(self._path):
            return self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))

    def append(self, trials: Sequence[FrozenTrial]) -> None:
        """Write finished trials."""
        with _usable(self._path):
            self._study.add_trials(trials)


def _open(path: str, name: str, samples: Samples) -> Study:
    import optuna
    from sqlalchemy import event

    storage = optuna.storages.RDBStorage(f"sqlite:///{path}")
    # Optuna commits every attribute of a trial: waiting for the disk each time takes seconds.
    event.listen(storage.engine, "connect", lambda new, _: new.execute("PRAGMA synchronous=OFF"))
    storage.engine.dispose()
    return optuna.create_study(
        storage=storage,
        study_name=name,
        directions=list(samples.objectives.values()),
        load_if_exists=True,
    )


def _check_tables(path: str) -> None:
    """Refuse a database of another program before Optuna adds its tables to it."""
    if not os.path.exists(path):
        return
    with closing(sqlite3.connect(path)) as connection:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    if tables and "studies" not in tables:
        raise OutputError(f"{path} is a database of another program: choose another file.")


@contextmanager
def _usable(path: str) -> Iterator[None]:
    """Turn whatever a broken, locked or foreign file causes into one message."""
    from optuna.exceptions import OptunaError
    from sqlalchemy.exc import SQLAlchemyError

    faults = (OptunaError, SQLAlchemyError, sqlite3.Error, OSError)
    try:
        yield
    except (*faults, RuntimeError, ValueError, LookupError, AssertionError) as error:
        cause = error.__cause__ or error
        reason = str(getattr(cause, "orig", cause)).split("\n")[0].rstrip(".")
        raise OutputError(f"The study file {path} cannot be used: {reason}.") from error
