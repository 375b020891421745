"""Search by Optuna: ask a sampler for a batch, evaluate it at once, tell the outcomes."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from planner.base.arrays import IndexArray
from planner.errors import SearchSpaceError, did_you_mean
from planner.optimize.exhaustive import Progress, StopSearch, search_source
from planner.optimize.groups import grouped
from planner.optimize.met import Met
from planner.optimize.problem import Problem
from planner.optimize.relaxing import relaxing
from planner.optimize.result import SearchResult
from planner.optimize.samples import Samples
from planner.optimize.study_file import StudyFile

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial

BATCH = 50
# NSGA-II soon repeats itself among categories; TPE learns from a repeated trial.
_ATTEMPTS = {"nsga2": 4 * BATCH, "tpe": 0}
# Trials that a sampler learns from beside the best: a bounded number, as is then its time.
_RECENT = {"nsga2": BATCH, "tpe": 3 * BATCH}
SAMPLERS = tuple(_ATTEMPTS)
_GENERATION = "NSGAIISampler:generation"
_VIOLATION = "constraints:violation"


def optuna_search(
    problem: Problem, *, progress: Progress | None = None, **how: Any
) -> SearchResult:
    """Search spaces that are too large to enumerate; sources without a mesh are searched whole.

    ``how`` are the other arguments of `sample`, and so is what it raises. ``progress`` may
    raise `planner.optimize.exhaustive.StopSearch`. Limits that are assumed are widened where no
    plan that was tried keeps them.
    """
    return relaxing(problem, lambda given: _searched(given, progress, how))


def _searched(problem: Problem, progress: Progress | None, how: Mapping[str, Any]) -> SearchResult:
    """Search with the limits as they are."""
    started, interrupted = time.perf_counter(), False
    groups, collectors = grouped(problem)
    try:
        if any(source.mesh is not None for source in problem.sources):
            sample(Samples(problem, collectors), progress=progress, **how)
        for source, collector in zip(problem.sources, collectors, strict=True):
            if source.mesh is None:
                search_source(problem, source, collector)
    except StopSearch:
        interrupted = True
    return SearchResult.of(problem, groups, started, interrupted)


def sample(
    samples: Samples,
    *,
    trials: int = 2000,
    seed: int = 0,
    sampler: str = "nsga2",
    storage: str | None = None,
    study_name: str | None = None,
    progress: Progress | None = None,
) -> None:
    """Evaluate a coarse sub-mesh, then trials of Optuna and what is next to the best of them.

    Whatever is evaluated beside the trials is counted among the configurations evaluated.

    Parameters
    ----------
    samples : the problem; it gathers what is evaluated
    trials : configurations to try in the whole study; TPE may try one again
    sampler : ``"nsga2"`` or ``"tpe"``
    storage : path of an SQLite file that keeps the study; a later call continues it, and
        ends like a call that was never interrupted
    study_name : which study of the file; by default one per problem
    progress : is told the trials done after each batch

    Raises
    ------
    SearchSpaceError
        An argument is impossible, or the study belongs to another problem.
    OutputError
        The file cannot be read or written.
    """
    _check(trials, seed, sampler)
    with _quiet():
        search = _Search(samples, sampler, seed)
        file = None if storage is None else StudyFile(storage, samples, study_name)
        stored = [] if file is None else search.rows(file.trials())
        search.resume(stored)
        while search.done < trials and not search.met.exhausted:
            finished = search.batch(trials)
            if file is not None:
                file.append(finished)
            if progress is not None:
                progress(search.done)
        search.evaluate()


class _Search:
    """A study as a fold over whole batches of trials.

    Each batch follows from the trials of the batches before it alone, whichever process made
    them. Optuna is shown the best and the latest of these, in a new study for each batch.
    """

    def __init__(self, samples: Samples, sampler: str, seed: int) -> None:
        from optuna.distributions import CategoricalDistribution

        self._sampler, self._seed = sampler, seed
        words = {name: tuple(values) for name, values in samples.parameters.items()}
        self._words = words
        self._positions = {
            name: {value: place for place, value in enumerate(values)}
            for name, values in words.items()
        }
        self._distributions: dict[str, BaseDistribution] = {
            name: CategoricalDistribution(values)
            for name, values in words.items()
            if len(values) > 1
        }
        self._directions = list(samples.objectives.values())
        self._signs = [1 if way == "minimize" else -1 for way in self._directions]
        self._pool: list[FrozenTrial] = []
        self._recent: list[FrozenTrial] = []
        self._batch: list[IndexArray] = []
        self._tried: set[bytes] = set()
        self._whole = 0
        self.met = Met(samples)

    @property
    def done(self) -> int:
        """Finished trials."""
        return self._whole + len(self._batch)

    def rows(self, trials: Sequence[FrozenTrial]) -> list[IndexArray]:
        """Stored trials as positions of values."""
        return [self._row(trial.params) for trial in trials]

    def resume(self, rows: Sequence[IndexArray]) -> None:
        """Take over finished trials; their configurations are evaluated again."""
        self.met.explore()
        for start in range(0, len(rows), BATCH):
            self._batch = list(rows[start : start + BATCH])
            self._end_whole()

    def batch(self, trials: int) -> list[FrozenTrial]:
        """Ask and evaluate up to the end of the batch or of all trials; returns the new ones.

        A batch that was cut off is asked for from its beginning: that gives its trials again.
        """
        size = min(BATCH, trials - self._whole)
        fresh = self._ask(size)[len(self._batch) :]
        self._batch += fresh
        self.evaluate()
        finished = [self._trial(row) for row in fresh]
        self._end_whole()
        return finished

    def evaluate(self) -> None:
        """Evaluate the trials of the batch that was begun."""
        if self._batch:
            self.met.evaluate(np.stack(self._batch))

    def _end_whole(self) -> None:
        """Put a whole batch behind; one that was begun stays as it is."""
        if len(self._batch) < BATCH:
            return
        self.evaluate()
        batch = [self._trial(row, {_GENERATION: 0}) for row in self._batch]
        best, recent = self._best_of_pool(), self._recent + batch
        self._recent = recent[-_RECENT[self._sampler] :]
        known = {id(trial) for trial in self._recent}
        self._pool = [trial for trial in best if id(trial) not in known] + self._recent
        self._tried.update(row.tobytes() for row in self._batch)
        self._whole += BATCH
        self._batch = []
        self.met.explore()

    def _best_of_pool(self) -> list[FrozenTrial]:
        if not self._pool:
            return []
        from optuna.samplers import NSGAIISampler

        study = self._study()
        selection = NSGAIISampler(seed=0, population_size=BATCH)
        return [self._pool[t.number] for t in selection.get_parent_population(study, 1)]

    def _study(self) -> Study:
        import optuna

        study = optuna.create_study(directions=self._directions)
        study.add_trials(self._pool)
        return study

    def _ask(self, size: int) -> list[IndexArray]:
        """Proposals: the best of what is not a trial yet, then the sampler's.

        Known ones of the sampler are dropped and asked anew, up to a number of attempts.
        """
        from optuna.trial import TrialState

        study = self._study()
        study.sampler = _sampler(self._sampler, self._seed, self._whole)
        promising = [row for row in self.met.best() if row.tobytes() not in self._tried]
        for row in promising:
            study.enqueue_trial(self._parameters(row))
        asked: list[IndexArray] = []
        met: set[bytes] = set()
        attempts = _ATTEMPTS[self._sampler]
        while len(asked) < size:
            trial = study.ask(self._distributions)
            row = self._row(trial.params)
            is_known = len(asked) >= len(promising) and (row in self.met or row.tobytes() in met)
            if is_known and attempts:
                attempts -= 1
                study.tell(trial, state=TrialState.FAIL)
                continue
            met.add(row.tobytes())
            asked.append(row)
        return asked

    def _trial(self, row: IndexArray, attributes: Mapping[str, Any] | None = None) -> FrozenTrial:
        """A finished trial of an evaluated row."""
        from optuna.trial import create_trial

        objectives, violation = self.met.outcome(row)
        return create_trial(
            params=self._parameters(row),
            distributions=self._distributions,
            values=[sign * value for sign, value in zip(self._signs, objectives, strict=True)],
            system_attrs={_VIOLATION: violation, **(attributes or {})},
        )

    def _parameters(self, row: IndexArray) -> dict[str, Any]:
        named = zip(self._words, row, strict=True)
        return {name: self._words[name][at] for name, at in named if name in self._distributions}

    def _row(self, parameters: Mapping[str, Any]) -> IndexArray:
        """Positions of values; a parameter of one value is not among the parameters."""
        places = (
            self._positions[name][parameters[name]] if name in parameters else 0
            for name in self._words
        )
        return np.fromiter(places, dtype=np.intp, count=len(self._words))


def _check(trials: int, seed: int, sampler: str) -> None:
    if sampler not in SAMPLERS:
        hint = did_you_mean(sampler, SAMPLERS)
        raise SearchSpaceError(f"Unknown sampler {sampler!r}.{hint} Known: {', '.join(SAMPLERS)}.")
    if trials < 1:
        raise SearchSpaceError(f"The number of trials must be at least 1, not {trials}.")
    if seed < 0:
        raise SearchSpaceError(f"The seed must be at least 0, not {seed}.")


def _sampler(name: str, seed: int, done: int) -> BaseSampler:
    """A sampler whose choices follow from the trials so far: a resumed study goes the same way."""
    from optuna.samplers import NSGAIISampler, TPESampler

    state = int(np.random.SeedSequence((seed, done)).generate_state(1)[0])
    if name == "tpe":
        return TPESampler(seed=state, n_startup_trials=BATCH, multivariate=True, constant_liar=True)
    return NSGAIISampler(seed=state, population_size=BATCH)


@contextmanager
def _quiet() -> Iterator[None]:
    """No log lines and no warnings about experimental parts from Optuna."""
    import optuna

    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(verbosity)
