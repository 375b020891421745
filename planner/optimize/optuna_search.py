"""Search by Optuna: ask a sampler for a batch, evaluate it at once, tell the outcomes."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from planner.base.arrays import CodeArray, FloatArray, IndexArray, Numeric
from planner.base.csv_cells import Value
from planner.configurations.configuration_tables import ConfigurationTable, format_value
from planner.errors import SearchSpaceError, did_you_mean
from planner.optimize.collector import Collector, group_by_cell
from planner.optimize.exhaustive import (
    Progress,
    StopSearch,
    search_source,
    search_with_relaxed_limits,
)
from planner.optimize.problem import MEMORIES, Problem
from planner.optimize.result import SearchResult
from planner.optimize.source import Candidates, Mesh

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial


_SMALLEST = 1e-12


def violations(problem: Problem, candidates: Candidates, codes: CodeArray) -> FloatArray:
    """The distance of each row to being feasible; 0: feasible.

    A missed limit counts (0, 1] and exceeded memory (1, 2], both by relative excess; a broken rule
    counts more than 2, less for later rules. ``codes``: see
    `planner.optimize.problem.Problem.codes`.
    """
    soft, codes = problem.first_soft, np.ravel(codes)
    graded = np.where((codes > 0) & (codes < soft), 3 - codes / soft, 0.0)
    for number in range(soft, len(problem.rejections) + 1):
        rows = np.flatnonzero(codes == number)
        if rows.size:
            value, _, bound = problem.value_and_bound(number, candidates)
            is_memory = number < soft + len(MEMORIES)
            graded[rows] = (
                relative_excess(candidates.at(value, rows), candidates.at(bound, rows)) + is_memory
            )
    return graded


def relative_excess(value: FloatArray, bound: Numeric) -> FloatArray:
    """The distance to the bound, divided by distance plus bound; 1 if unknown."""
    distance = np.abs(value - bound)
    with np.errstate(invalid="ignore"):
        share = distance / (distance + np.abs(bound))
    return np.asarray(np.maximum(np.nan_to_num(share, nan=1.0), _SMALLEST))


Direction: TypeAlias = Literal["minimize", "maximize"]
Outcomes: TypeAlias = tuple[FloatArray, FloatArray]

# Worse than any rule of a configuration that exists.
_NOT_OF_THE_SOURCE = 4.0


class SampledSpace:
    """Parameters with allowed values, and a function that judges rows and collects them.

    ``parameters`` maps each parameter to its values by word (text, number or flag), in an order
    where neighbours are alike; what can only be chosen together is one parameter. Several
    sources are the parameter ``source``; what only some of them have is infeasible for the
    others, and counted for none. Sources without a mesh are not sampled.
    """

    def __init__(self, problem: Problem, collectors: Sequence[Collector]) -> None:
        """Join the parameter values of all sources that have a mesh into one space."""
        self._problem = problem
        pairs = zip(problem.sources, problem.cells, collectors, strict=True)
        meshed = [
            (source, source.mesh, cell, collector)
            for source, cell, collector in pairs
            if source.mesh is not None
        ]
        self._sources = [(source, mesh, collector) for source, mesh, _, collector in meshed]
        self._cells = [cell for _, _, cell, _ in meshed]
        entries_by_source = [_factor_entries(mesh) for _, mesh, _ in self._sources]
        joint = {
            name: list(
                dict.fromkeys(value for entries in entries_by_source for value in entries[name])
            )
            for name in entries_by_source[0]
        }
        names = [" ".join(map(str, cell.values())) for cell in self._cells]
        self.parameters: Mapping[str, Sequence[Value]] = {"source": names, **joint}
        self._entries = [
            [_entry_positions(entries[name], values) for name, values in joint.items()]
            for entries in entries_by_source
        ]

    @property
    def objectives(self) -> Mapping[str, Direction]:
        """The direction of each objective."""
        return {o.name: "minimize" if o.sign > 0 else "maximize" for o in self._problem.objectives}

    @property
    def num_rows(self) -> int:
        """Number of combinations of the parameters' values."""
        return int(np.prod([len(values) for values in self.parameters.values()], dtype=object))

    def evaluate(self, rows: IndexArray) -> Outcomes:
        """Predict configurations and add them to the collectors.

        ``rows`` has a line per configuration and a column per parameter: the positions of its
        values. Returns the objectives, minimized, as columns, and per row the distance to being
        feasible; 0: feasible. A row must be evaluated only once.
        """
        objectives = np.full((len(rows), len(self._problem.objectives)), np.nan)
        violation = np.full(len(rows), _NOT_OF_THE_SOURCE)
        for number, (source, mesh, collector) in enumerate(self._sources):
            places = [
                table[rows[:, axis]] for axis, table in enumerate(self._entries[number], start=1)
            ]
            of_source = np.flatnonzero((rows[:, 0] == number) & (np.min(places, axis=0) >= 0))
            if not of_source.size:
                continue
            candidates = source.judged(
                _configurations_at(mesh, [place[of_source] for place in places])
            )
            collector.add(candidates)
            objectives[of_source] = self._problem.values(candidates, np.arange(of_source.size))
            codes = self._problem.codes(candidates)
            violation[of_source] = violations(self._problem, candidates, codes)
        return objectives, violation


def _configurations_at(mesh: Mesh, places: Sequence[IndexArray]) -> ConfigurationTable:
    """The flat table of the entries at ``places`` of each factor of a mesh."""
    columns = {
        name: values[place]
        for factor, place in zip(mesh.factors, places, strict=True)
        for name, values in factor.items()
    }
    return mesh.kind(**columns)


def _factor_entries(mesh: Mesh) -> dict[str, list[str | float]]:
    """The entries of each factor of a mesh as texts or numbers, by parameter names."""
    entries: dict[str, list[str | float]] = {}
    for factor in mesh.factors:
        texts = {name: [format_value(name, v) for v in values] for name, values in factor.items()}
        if len(texts) == 1:
            entries.update(texts)
            continue
        lines = zip(*texts.values(), strict=True)
        entries[" ".join(texts)] = [" ".join(str(text) for text in line) for line in lines]
    return entries


def _entry_positions(source_entries: Sequence[object], all_entries: Sequence[object]) -> IndexArray:
    """The position of each of all entries among those of one source; -1: not present."""
    places = {entry: place for place, entry in enumerate(source_entries)}
    return np.array([places.get(entry, -1) for entry in all_entries], dtype=np.intp)


_LARGEST_SHARE = 1 / 16
_MOST_ROWS = 2**13
_CLOSE = 4


def coarse_mesh(sizes: Sequence[int]) -> IndexArray:
    """Rows of evenly spread value positions of each parameter, first and last included.

    Every parameter is refined in turn, while the rows stay few and a small share of the space.
    """
    max_rows = min(_MOST_ROWS, max(1, int(_LARGEST_SHARE * math.prod(sizes))))
    counts = [1] * len(sizes)
    grown = True
    while grown:
        grown = False
        for place, size in enumerate(sizes):
            finer = math.prod(counts) // counts[place] * (counts[place] + 1)
            if counts[place] < size and finer <= max_rows:
                counts[place] += 1
                grown = True
    spread = [
        np.unique(np.linspace(0, size - 1, count).round().astype(np.intp))
        for size, count in zip(sizes, counts, strict=True)
    ]
    # An array has fewer axes than a space may have parameters.
    varied = [place for place, values in enumerate(spread) if len(values) > 1]
    grids = np.meshgrid(*(spread[place] for place in varied), indexing="ij")
    mesh = np.zeros((grids[0].size if grids else 1, len(sizes)), dtype=np.intp)
    for place, grid in zip(varied, grids, strict=True):
        mesh[:, place] = grid.ravel()
    return mesh


def neighbours(row: IndexArray, sizes: Sequence[int], changes: int) -> IndexArray:
    """Rows that differ from ``row`` in exactly ``changes`` parameters, by nearby values."""
    moves = [_moves(int(here), size) for here, size in zip(row, sizes, strict=True)]
    tables = [np.empty((0, len(sizes)), dtype=np.intp)]
    for changed in combinations([p for p, move in enumerate(moves) if move.size], changes):
        grids = np.meshgrid(*(moves[place] for place in changed), indexing="ij")
        table = np.tile(row, (grids[0].size, 1))
        for place, grid in zip(changed, grids, strict=True):
            table[:, place] = grid.ravel()
        tables.append(table)
    return np.concatenate(tables)


def _moves(here: int, size: int) -> IndexArray:
    """Nearby positions of one parameter: at distances 1 to 3 and powers of two, and both ends."""
    steps = [*range(1, _CLOSE), *(2**power for power in range(2, max(size, 2).bit_length()))]
    near = {here + sign * step for step in steps for sign in (-1, 1)} | {0, size - 1}
    return np.array(sorted(p for p in near if 0 <= p < size and p != here), dtype=np.intp)


_BEST = 8
_MOST_PAIRS = 2**13

Outcome = tuple[list[float], float]


class TrialStore:
    """Evaluates rows, each once, and keeps the best few by each objective.

    Between batches of trials, `explore` evaluates the neighbourhoods of the best rows.
    """

    def __init__(self, samples: SampledSpace) -> None:
        """Start without evaluated rows."""
        self._samples = samples
        self._sizes = [len(values) for values in samples.parameters.values()]
        self._outcomes: dict[bytes, Outcome] = {}
        self._expanded: set[tuple[bytes, int]] = set()
        width, objectives = len(self._sizes), len(samples.objectives)
        self._best = [np.empty((0, width), dtype=np.intp) for _ in range(objectives)]
        self._best_values = [np.empty((0, 2)) for _ in range(objectives)]

    def __contains__(self, row: IndexArray) -> bool:
        return row.tobytes() in self._outcomes

    @property
    def exhausted(self) -> bool:
        """Whether every configuration of the space has been evaluated."""
        return len(self._outcomes) == self._samples.num_rows

    def outcome(self, row: IndexArray) -> Outcome:
        """Objectives, minimized, and the violation of a row that was evaluated."""
        return self._outcomes[row.tobytes()]

    def evaluate(self, rows: IndexArray) -> None:
        """Predict the rows that have not been evaluated yet, in one call."""
        fresh = {row.tobytes(): place for place, row in enumerate(rows)}
        positions = [place for key, place in fresh.items() if key not in self._outcomes]
        if not positions:
            return
        rows = rows[positions]
        objectives, violation = self._samples.evaluate(rows)
        violation = np.maximum(violation, np.isnan(objectives).any(axis=1))
        # Samplers compare rejected trials by their violation alone, but accept no NaN.
        finite_objectives = np.nan_to_num(objectives, nan=0.0, posinf=0.0, neginf=0.0)
        keys = (row.tobytes() for row in rows)
        pairs = zip(finite_objectives.tolist(), violation.tolist(), strict=True)
        self._outcomes.update(zip(keys, pairs, strict=True))
        for number, column in enumerate(finite_objectives.T):
            self._keep_best(number, rows, np.stack([violation, column], axis=1))

    def explore(self) -> None:
        """Evaluate a coarse mesh, then rows near the best ones until none improves.

        Near rows differ in one parameter; near the very best row in two parameters, too.
        """
        if not self._outcomes:
            self.evaluate(coarse_mesh(self._sizes))
        for number in range(len(self._best)):
            while self._expand(number):
                pass

    def best(self) -> list[IndexArray]:
        """The best rows by each objective in turn, without repetitions."""
        rows = [row for rank in range(_BEST) for table in self._best for row in table[rank:][:1]]
        return list({row.tobytes(): row for row in rows}.values())

    def _expand(self, number: int) -> bool:
        """Evaluate rows near the best ones by objective ``number``; True if there were any."""
        for changes, max_rows in ((1, _BEST), (2, 1)):
            around = [
                row for row in self._best[number][:max_rows] if self._is_new(row.tobytes(), changes)
            ]
            if around:
                self.evaluate(np.concatenate([self._next_to(row, changes) for row in around]))
                return True
        return False

    def _next_to(self, row: IndexArray, changes: int) -> IndexArray:
        rows = neighbours(row, self._sizes, changes)
        # Evenly thinned, so that a space of many long parameters costs no more than others.
        return rows[:: math.ceil(max(len(rows), 1) / _MOST_PAIRS)]

    def _is_new(self, key: bytes, changes: int) -> bool:
        was_expanded = (key, changes) in self._expanded
        self._expanded.add((key, changes))
        return not was_expanded

    def _keep_best(self, number: int, rows: IndexArray, ranks: FloatArray) -> None:
        """Merge rows into the best by objective ``number``; ties are ordered by position."""
        rows = np.concatenate([self._best[number], rows])
        ranks = np.concatenate([self._best_values[number], ranks])
        order = np.lexsort((*rows.T[::-1], ranks[:, 1], ranks[:, 0]))[:_BEST]
        self._best[number], self._best_values[number] = rows[order], ranks[order]


BATCH = 50
# NSGA-II soon repeats itself among categories; TPE learns from a repeated trial.
_ATTEMPTS = {"nsga2": 4 * BATCH, "tpe": 0}
# Number of latest trials that a sampler learns from, besides the best; it bounds its time.
_RECENT = {"nsga2": BATCH, "tpe": 3 * BATCH}
SAMPLERS = tuple(_ATTEMPTS)
_GENERATION = "NSGAIISampler:generation"
_VIOLATION = "constraints:violation"


def optuna_search(
    problem: Problem, *, progress: Progress | None = None, **options: object
) -> SearchResult:
    """Search large spaces with Optuna; sources without a mesh are searched exhaustively.

    ``options`` are the other arguments of `run_trials`, which may raise its errors. ``progress``
    may raise `planner.optimize.exhaustive.StopSearch`. Assumed limits are widened if no evaluated
    plan meets them.
    """
    return search_with_relaxed_limits(
        problem, lambda relaxed: _search_once(relaxed, progress, options)
    )


def _search_once(
    problem: Problem, progress: Progress | None, how: Mapping[str, Any]
) -> SearchResult:
    """Search with Optuna, with the limits unchanged."""
    started, interrupted = time.perf_counter(), False
    groups, collectors = group_by_cell(problem)
    try:
        if any(source.mesh is not None for source in problem.sources):
            run_trials(SampledSpace(problem, collectors), progress=progress, **how)
        for source, collector in zip(problem.sources, collectors, strict=True):
            if source.mesh is None:
                search_source(problem, [(source, [(source, collector)])])
    except StopSearch:
        interrupted = True
    return SearchResult.of(problem, groups, started, interrupted)


def run_trials(
    samples: SampledSpace,
    *,
    trials: int = 2000,
    seed: int = 0,
    sampler: str = "nsga2",
    progress: Progress | None = None,
) -> None:
    """Evaluate a coarse mesh, then Optuna trials and rows near the best ones.

    Configurations evaluated in addition to the trials count as evaluated.

    Raises SearchSpaceError if an argument is impossible.

    Parameters
    ----------
    samples : the problem; it gathers what is evaluated
    trials : configurations to try; TPE may try one again
    sampler : ``"nsga2"`` or ``"tpe"``
    progress : receives the number of trials done after each batch
    """
    if sampler not in SAMPLERS:
        hint = did_you_mean(sampler, SAMPLERS)
        raise SearchSpaceError(f"Unknown sampler {sampler!r}.{hint} Known: {', '.join(SAMPLERS)}.")
    if trials < 1:
        raise SearchSpaceError(f"The number of trials must be at least 1, not {trials}.")
    if seed < 0:
        raise SearchSpaceError(f"The seed must be at least 0, not {seed}.")
    with _silence_optuna():
        search = _TrialSearch(samples, sampler, seed)
        search.trials.explore()
        while search.done < trials and not search.trials.exhausted:
            search.add_batch(min(BATCH, trials - search.done))
            if progress is not None:
                progress(search.done)


class _TrialSearch:
    """Batches of trials, each from a new study with the best and the latest trials."""

    def __init__(self, samples: SampledSpace, sampler: str, seed: int) -> None:
        """Set up the Optuna distributions of all parameters with several values."""
        from optuna.distributions import CategoricalDistribution

        self._sampler, self._seed = sampler, seed
        values_by_name = {name: tuple(values) for name, values in samples.parameters.items()}
        self._values_by_name = values_by_name
        self._positions = {
            name: {value: place for place, value in enumerate(values)}
            for name, values in values_by_name.items()
        }
        self._distributions: dict[str, BaseDistribution] = {
            name: CategoricalDistribution(values)
            for name, values in values_by_name.items()
            if len(values) > 1
        }
        self._directions = list(samples.objectives.values())
        self._signs = [1 if way == "minimize" else -1 for way in self._directions]
        self._pool: list[FrozenTrial] = []
        self._recent: list[FrozenTrial] = []
        self._tried: set[bytes] = set()
        self.done = 0
        self.trials = TrialStore(samples)

    def add_batch(self, size: int) -> None:
        """Evaluate a batch of proposed rows, then explore near the best rows."""
        rows = self._propose_rows(size)
        self.trials.evaluate(np.stack(rows))
        self.done += size
        if size < BATCH:  # the last batch
            return
        best, recent = self._best_of_pool(), self._recent + [self._trial(row) for row in rows]
        self._recent = recent[-_RECENT[self._sampler] :]
        recent_ids = {id(trial) for trial in self._recent}
        self._pool = [trial for trial in best if id(trial) not in recent_ids] + self._recent
        self._tried.update(row.tobytes() for row in rows)
        self.trials.explore()

    def _best_of_pool(self) -> list[FrozenTrial]:
        """The best trials of the pool by NSGA-II, at most one batch; empty if the pool is empty."""
        if not self._pool:
            return []
        from optuna.samplers import NSGAIISampler

        study = self._study()
        selection = NSGAIISampler(seed=0, population_size=BATCH)
        return [self._pool[t.number] for t in selection.get_parent_population(study, 1)]

    def _study(self) -> Study:
        """A new Optuna study with the trials of the pool."""
        import optuna

        study = optuna.create_study(directions=self._directions)
        study.add_trials(self._pool)
        return study

    def _propose_rows(self, size: int) -> list[IndexArray]:
        """The next rows to evaluate: the best that are no trials yet, then the sampler's.

        Rows of the sampler that were evaluated before are replaced, up to a number of attempts.
        """
        from optuna.trial import TrialState

        study = self._study()
        study.sampler = _sampler(self._sampler, self._seed, self.done)
        promising = [row for row in self.trials.best() if row.tobytes() not in self._tried]
        for row in promising:
            study.enqueue_trial(self._parameters(row))
        proposals: list[IndexArray] = []
        proposed: set[bytes] = set()
        attempts = _ATTEMPTS[self._sampler]
        while len(proposals) < size:
            trial = study.ask(self._distributions)
            row = self._row(trial.params)
            was_tried = len(proposals) >= len(promising) and (
                row in self.trials or row.tobytes() in proposed
            )
            if was_tried and attempts:
                attempts -= 1
                study.tell(trial, state=TrialState.FAIL)
                continue
            proposed.add(row.tobytes())
            proposals.append(row)
        return proposals

    def _trial(self, row: IndexArray) -> FrozenTrial:
        """A finished Optuna trial with the outcome of an evaluated row."""
        from optuna.trial import create_trial

        objectives, violation = self.trials.outcome(row)
        return create_trial(
            params=self._parameters(row),
            distributions=self._distributions,
            values=[sign * value for sign, value in zip(self._signs, objectives, strict=True)],
            system_attrs={_VIOLATION: violation, _GENERATION: 0},
        )

    def _parameters(self, row: IndexArray) -> dict[str, Value]:
        """The Optuna parameters of a row of positions, without those of a single value."""
        named = zip(self._values_by_name, row, strict=True)
        return {
            name: self._values_by_name[name][position]
            for name, position in named
            if name in self._distributions
        }

    def _row(self, parameters: Mapping[str, Value]) -> IndexArray:
        """The value positions of a trial's parameters; 0 for parameters with a single value."""
        places = (
            self._positions[name][parameters[name]] if name in parameters else 0
            for name in self._values_by_name
        )
        return np.fromiter(places, dtype=np.intp, count=len(self._values_by_name))


def _sampler(name: str, seed: int, done: int) -> BaseSampler:
    """A new Optuna sampler, seeded from ``seed`` and the number of trials ``done``."""
    from optuna.samplers import NSGAIISampler, TPESampler

    state = int(np.random.SeedSequence((seed, done)).generate_state(1)[0])
    if name == "tpe":
        return TPESampler(seed=state, n_startup_trials=BATCH, multivariate=True, constant_liar=True)
    return NSGAIISampler(seed=state, population_size=BATCH)


@contextmanager
def _silence_optuna() -> Iterator[None]:
    """Suppress log lines and experimental warnings of Optuna in this context."""
    import optuna

    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(verbosity)
