"""Search by Optuna: ask a sampler for a batch, evaluate it at once, tell the outcomes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from planner.configurations.enumerate import Mesh
from planner.configurations.table import word
from planner.configurations.training import NAMES, TrainingConfigurations
from planner.errors import SearchSpaceError, did_you_mean
from planner.optimize.collector import Collector
from planner.optimize.exhaustive import Progress
from planner.optimize.problem import Problem, judge, values
from planner.optimize.result import SearchResult
from planner.optimize.study_file import StudyFile, directions
from planner.optimize.violations import violations

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial, Trial

BATCH = 50
# NSGA-II soon repeats itself among categories; TPE learns from a repeated trial.
_ATTEMPTS = {"nsga2": 4 * BATCH, "tpe": 0}
_GENERATION = "NSGAIISampler:generation"
SAMPLERS = tuple(_ATTEMPTS)
_WARM_START: Mapping[str, Sequence[float]] = {
    "tensor_parallel": (0, 0.5, 1),
    "pipeline_parallel": (0, 0.5, 1),
    "recompute": (0, 1),
    "context_parallel": (0,),
    "virtual_pipeline": (0,),
    "micro_batch_size": (0,),
}

Parameters = Mapping[str, Any]
Outcome = tuple[list[float], float]


def optuna_search(
    problem: Problem,
    *,
    trials: int = 2000,
    seed: int = 0,
    sampler: str = "nsga2",
    storage: str | None = None,
    study_name: str | None = None,
    progress: Progress | None = None,
) -> SearchResult:
    """Search a space that is too large to enumerate.

    Parameters
    ----------
    trials : configurations to try in the whole study; TPE may try one again
    sampler : ``"nsga2"`` or ``"tpe"``
    storage : path of an SQLite file that keeps the study; a later call continues it
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
        search = _Search(problem)
        file = None if storage is None else StudyFile(storage, problem, study_name)
        if file is not None:
            search.resume(file.trials())
        while search.done < trials and not search.exhausted:
            finished = search.batch(min(BATCH, trials - search.done), sampler, seed)
            if file is not None:
                file.append(finished)
            if progress is not None:
                progress(search.done)
        return search.collector.result()


class _Search:
    """A study in memory, and the outcome of every configuration it has met."""

    def __init__(self, problem: Problem) -> None:
        import optuna

        self._problem = problem
        self._choices = _choices(problem.mesh)
        self._distributions: dict[str, BaseDistribution] = {
            name: optuna.distributions.CategoricalDistribution(tuple(choices))
            for name, choices in self._choices.items()
            if len(choices) > 1
        }
        self._outcomes: dict[tuple[Any, ...], Outcome] = {}
        self.collector = Collector(problem)
        self.study: Study = optuna.create_study(directions=directions(problem))
        self.done = 0

    @property
    def exhausted(self) -> bool:
        """Whether every configuration of the space has been evaluated."""
        return len(self._outcomes) == self._problem.mesh.num_rows

    def resume(self, trials: Sequence[FrozenTrial]) -> None:
        """Take over finished trials; their configurations are evaluated again, at once."""
        self.study.add_trials(trials)
        self._evaluate([trial.params for trial in trials])
        self.done = len(trials)

    def batch(self, size: int, sampler: str, seed: int) -> list[FrozenTrial]:
        """Ask, evaluate and tell one batch; returns its finished trials."""
        if self.done == 0:
            for parameters in _warm_start(self._choices)[:size]:
                self.study.enqueue_trial(parameters)
        self.study.sampler = _sampler(self.study, sampler, seed, self.done)
        asked = self._ask(size, _ATTEMPTS[sampler])
        self._evaluate([trial.params for trial in asked])
        self.done += size
        return [self._tell(trial) for trial in asked]

    def _ask(self, size: int, attempts: int) -> list[Trial]:
        """Proposals; repeated ones are dropped and asked anew, up to ``attempts`` of them."""
        from optuna.trial import TrialState

        asked: list[Trial] = []
        met = set(self._outcomes)
        while len(asked) < size:
            trial = self.study.ask(self._distributions)
            key = self._key(trial.params)
            if key in met and attempts:
                attempts -= 1
                self.study.tell(trial, state=TrialState.FAIL)
                continue
            met.add(key)
            asked.append(trial)
        return asked

    def _evaluate(self, proposals: Sequence[Parameters]) -> None:
        """Judge the configurations that are new, each once, in one call."""
        table = {self._key(parameters): parameters for parameters in proposals}
        fresh = {key: table[key] for key in table if key not in self._outcomes}
        if fresh:
            self._judge(fresh)

    def _judge(self, fresh: Mapping[tuple[Any, ...], Parameters]) -> None:
        evaluation = judge(self._problem, self._configurations(list(fresh.values())))
        self.collector.add(evaluation)
        predicted = values(self._problem, evaluation.estimate)
        unknown = np.isnan(predicted).any(axis=1)
        violation = np.maximum(violations(self._problem, evaluation), unknown)
        signs = [objective.sign for objective in self._problem.objectives]
        # Samplers compare rejected trials by their violation alone, but accept no NaN.
        told = np.nan_to_num(predicted * signs, nan=0.0, posinf=0.0, neginf=0.0)
        self._outcomes.update(
            zip(fresh, zip(told.tolist(), violation.tolist(), strict=True), strict=True)
        )

    def _tell(self, trial: Trial) -> FrozenTrial:
        objectives, violation = self._outcomes[self._key(trial.params)]
        trial.set_constraint("violation", violation)
        return self.study.tell(trial, objectives)

    def _key(self, parameters: Parameters) -> tuple[Any, ...]:
        return tuple(parameters[name] for name in self._distributions)

    def _configurations(self, table: Sequence[Parameters]) -> TrainingConfigurations:
        columns = {}
        for name in NAMES:
            choices = self._choices[name]
            only = next(iter(choices))
            columns[name] = [choices[parameters.get(name, only)] for parameters in table]
        return TrainingConfigurations.of(**columns)


def _check(trials: int, seed: int, sampler: str) -> None:
    if sampler not in SAMPLERS:
        hint = did_you_mean(sampler, SAMPLERS)
        raise SearchSpaceError(f"Unknown sampler {sampler!r}.{hint} Known: {', '.join(SAMPLERS)}.")
    if trials < 1:
        raise SearchSpaceError(f"The number of trials must be at least 1, not {trials}.")
    if seed < 0:
        raise SearchSpaceError(f"The seed must be at least 0, not {seed}.")


def _choices(mesh: Mesh) -> dict[str, dict[Any, Any]]:
    """Per parameter, the values of the mesh by the words that users read."""
    return {name: {word(name, value): value for value in mesh.values[name]} for name in NAMES}


def _warm_start(choices: Mapping[str, Mapping[Any, Any]]) -> list[dict[str, Any]]:
    """A coarse sub-mesh of layouts; the sampler fills in the other parameters."""
    coarse = {}
    for name, fractions in _WARM_START.items():
        words = list(choices[name])
        if len(words) > 1:
            picked = [words[round(fraction * (len(words) - 1))] for fraction in fractions]
            coarse[name] = list(dict.fromkeys(picked))
    return [dict(zip(coarse, picked, strict=True)) for picked in product(*coarse.values())]


def _sampler(study: Study, name: str, seed: int, done: int) -> BaseSampler:
    """A sampler whose choices follow from the trials so far: a resumed study goes the same way."""
    from optuna.samplers import NSGAIISampler, TPESampler

    state = int(np.random.SeedSequence((seed, done)).generate_state(1)[0])
    if name == "tpe":
        return TPESampler(seed=state, n_startup_trials=BATCH, multivariate=True, constant_liar=True)
    sampler = NSGAIISampler(seed=state, population_size=BATCH)
    # Oldest first: Optuna would otherwise find the parents of a resumed study by recursion.
    attributes = (trial.system_attrs for trial in study.get_trials(deepcopy=False))
    for generation in range(max((a.get(_GENERATION, 0) for a in attributes), default=0)):
        sampler.get_parent_population(study, generation)
    return sampler


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
