"""Where configurations come from and how they are judged: what a search knows of a workload."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import Field, replace
from functools import cached_property
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from planner.base.arrays import (
    BoolArray,
    CodeArray,
    FloatArray,
    IndexArray,
    Item,
    Numeric,
    Values,
    sorted_unique,
)
from planner.base.csv_cells import Row, Value, number_or_nan
from planner.base.records import record
from planner.confidence.intervals import FIXED, Confidence
from planner.configurations.configuration_tables import (
    ConfigurationTable,
    Reason,
    RowPicker,
)
from planner.configurations.enumerate import Factor
from planner.configurations.possible_parts import (
    ROWS_OF_A_PREDICTION,
    MeshCodes,
    Part,
    possible_parts,
    split_mesh,
)
from planner.estimators.machine import Machine
from planner.optimize.goals import Constraint, Objective
from planner.question.terms import glossary
from planner.specs.engine import EngineProfile
from planner.specs.framework import FrameworkProfile
from planner.specs.model import ModelSpec
from planner.specs.operating_terms import OperatingTerms
from planner.specs.serving_workload import ServingWorkload
from planner.specs.training_workload import RlWorkload, TrainingWorkload

# Predictions take some hundred bytes for each of them at once; rules take few.
_MAX_PREDICTED_ROWS = 5 * 2**16
_NOTHING_DROPPED: IndexArray = np.zeros((1, 1), dtype=np.intp)

Column: TypeAlias = Sequence[Value] | Values
InputsChange: TypeAlias = Callable[[Any], Any]
"""Returns changed inputs of a workload, of the same class."""
Columns: TypeAlias = Mapping[str, Column]
"""One list or array per result column; names of terms with the unit at the end."""


def to_python_values(values: Column) -> list[Value]:
    """The values of a column as Python strings, numbers and booleans."""
    return values.tolist() if isinstance(values, np.ndarray) else list(values)


def first_row(table: Columns) -> dict[str, Value]:
    """The first row of columns."""
    return {name: to_python_values(values[:1])[0] for name, values in table.items()}


Need: TypeAlias = tuple[FloatArray, Numeric]
"""Bytes that are needed, and those that may be used."""


class SearchInputs(Protocol):
    """Model, machine, software profile and workload of a source."""

    @property
    def machine(self) -> Machine: ...

    @property
    def model(self) -> ModelSpec: ...

    @property
    def profile(self) -> FrameworkProfile | EngineProfile: ...

    @property
    def workload(self) -> TrainingWorkload | ServingWorkload | RlWorkload: ...

    __dataclass_fields__: ClassVar[dict[str, Field[object]]]


class Mesh(Protocol):
    """All configurations of a source."""

    @property
    def num_rows(self) -> int: ...

    @property
    def kind(self) -> type[ConfigurationTable]: ...

    @property
    def factors(self) -> Sequence[Factor]: ...

    def values(self, name: str) -> Values: ...

    def blocks(self, max_rows: int) -> Iterator[ConfigurationTable]: ...

    def flat(self) -> ConfigurationTable: ...


class Candidates(ABC):
    """Configurations judged by the rules and the memory of one source.

    Every objective and every limit of the workload is an attribute of its name: an array in SI
    units that broadcasts to the configurations' shape. ``rejected_by`` is 0 or the one-based
    number of one of the source's rejections.
    """

    source: Source
    configurations: ConfigurationTable
    rejected_by: CodeArray

    @property
    @abstractmethod
    def memory(self) -> tuple[Need, Need]:
        """Needed and usable bytes of host memory per GPU, and of the fullest GPU's memory."""

    @abstractmethod
    def columns(self) -> Columns:
        """The result columns of all rows, flat."""

    @cached_property
    def row(self) -> Row:
        """The result columns of the first configuration."""
        return first_row(self.columns())

    @cached_property
    def saved_assumptions(self) -> list[Any]:
        """The plan and its assumptions that change predictions, once they are predicted."""
        return []

    @property
    def held(self) -> ConfigurationTable:
        """The configurations with the requests in memory at once, if some wait for KV cache."""
        return self.configurations

    @property
    def waits(self) -> bool:
        """True if some requests wait for KV cache."""
        return False

    @property
    def exceeds_capacity(self) -> bool:
        """True if the load exceeds the capacity of the first candidate; False without a load."""
        return False

    @property
    def output_tokens(self) -> float:
        """Mean tokens of an answer; 0 without answers."""
        return 0.0

    @property
    def fit_probability(self) -> FloatArray:
        """Fit probability: the probability that the memory is enough; NaN: unknown."""
        return np.asarray(np.nan)

    def fit_probability_at(self, rows: IndexArray) -> FloatArray:
        """Fit probability of rows at flat indices; NaN: unknown."""
        return np.asarray(self.at(self.fit_probability, rows))

    @property
    def complexity(self) -> IndexArray:
        """Complexity of each plan, which breaks ties: number of unusual choices, 0 is simplest."""
        return self.complexity_at(np.arange(math.prod(self.shape))).reshape(self.shape)

    def complexity_at(self, rows: IndexArray) -> IndexArray:
        """Complexity of rows at flat indices."""
        return np.zeros(rows.shape, dtype=np.intp)

    @cached_property
    def evidence_groups(self) -> IndexArray:
        """The group of evidence of each configuration; broadcasts to ``shape``."""
        return self.source.evidence_groups(self.configurations)

    def evidence_groups_at(self, rows: IndexArray) -> IndexArray:
        """The group of evidence of rows at flat indices."""
        return np.asarray(self.at(self.evidence_groups, rows))

    def unproven_at(self, rows: IndexArray) -> BoolArray:
        """True for rows at flat indices whose layout no published run of their software has."""
        number = max(self.source.counts, default=1)

        def is_unproven(group: int) -> bool:
            confidence = self.source.confidence(number, group)
            return confidence is not None and not confidence.is_proven

        return of_groups(self.evidence_groups_at(rows), is_unproven) > 0

    def moved(self, source: Any) -> Candidates:
        """The candidates of a source that differs only in prices and other operating terms."""
        judged: Candidates = source.judged(self.configurations)
        return judged

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the configurations."""
        return self.configurations.shape

    def __repr__(self) -> str:
        number = math.prod(self.shape)
        noun = "configuration" if number == 1 else "configurations"
        return f"<{type(self).__name__}: {number:,} {noun} of {self.source.description}>"

    def value(self, name: str) -> FloatArray:
        """The values of an objective or limit in SI units; they broadcast to ``shape``."""
        return np.asarray(getattr(self, name))

    def addends(self, name: str) -> Mapping[str, FloatArray]:
        """Addends of an objective or limit, by the term whose errors each addend has."""
        return {name: self.value(name)}

    def at(self, values: float | NDArray[Item], rows: IndexArray) -> NDArray[Item]:
        """The values at flat indices, of an array that broadcasts to ``shape``."""
        values = np.asarray(values)
        if not self.shape or values.shape == self.shape:
            return values.ravel()[rows]
        return RowPicker(rows, self.shape)(values)


def of_groups(groups: IndexArray, value: Callable[[int], float]) -> FloatArray:
    """A value of each group of evidence, for the groups of some rows."""
    values = np.zeros(groups.max(initial=0) + 1)
    for group in np.flatnonzero(np.bincount(groups)).tolist():
        values[group] = value(group)
    return values[groups]


def at_load(candidates: Candidates) -> Candidates:
    """The candidates at the specified load; unchanged without a load."""
    return getattr(candidates, "at_load", candidates)


@record(kw_only=True)
class Block:
    """A part of a source: possible candidates, rejection counts and the number of rows.

    ``dropped`` counts rows by the number of their rejection, from 0 on, for each index of the
    first axis of ``mesh``, if there is one.
    """

    candidates: Candidates | None
    dropped: IndexArray
    num_rows: int
    mesh: ConfigurationTable | None = None

    def dropped_on(self, num_gpus: float | None) -> IndexArray:
        """The counts of dropped rows on a number of GPUs; None: on any."""
        if num_gpus is None or self.mesh is None:
            return np.asarray(self.dropped.sum(axis=0))
        return np.asarray(self.dropped[_is_on(self.mesh, num_gpus)].sum(axis=0))


def _is_on(mesh: Any, num_gpus: float) -> BoolArray:
    """True for the indices of the first axis that have this number of GPUs."""
    return np.broadcast_to(np.ravel(mesh.num_gpus) == num_gpus, mesh.shape[:1])


def rows_on(candidates: Candidates, num_gpus: float | None) -> slice:
    """The flat indices of candidates on a number of GPUs, which the first axis has; None: all."""
    shape = candidates.shape
    if num_gpus is None:
        return slice(0, math.prod(shape))
    indices, inner = (
        np.flatnonzero(_is_on(candidates.configurations, num_gpus)),
        math.prod(shape[1:]),
    )
    return (
        slice(int(indices[0]) * inner, (int(indices[-1]) + 1) * inner)
        if indices.size
        else slice(0, 0)
    )


def with_prices(confidence: Confidence, sites: Sequence[OperatingTerms]) -> Confidence:
    """The intervals with the price range of the operating terms."""
    spreads = [site.offer.spread for site in sites if site.offer is not None] or [FIXED]
    price = min(low for low, _ in spreads), max(high for _, high in spreads)
    is_fixed = bool(sites) and not any(site.follows_time for site in sites)
    return replace(confidence, price=price, cost_is_fixed=is_fixed)


class _EncodedColumns:
    """Result columns as the arrays of configurations; what is missing is 0."""

    def __init__(self, table: Columns) -> None:
        self._table = table

    def __getattr__(self, name: str) -> FloatArray:
        term, values = glossary()[name], self._table.get(name, (None,))
        return np.array([0 if value is None else term.encode(value) for value in values])


class _MeshAxes:
    """The values of a mesh as arrays that broadcast to all combinations of those asked for."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh, self._asked = mesh, dict[str, FloatArray]()

    def __getattr__(self, name: str) -> FloatArray:
        if name not in self._asked:
            values = sorted_unique(np.asarray(self._mesh.values(name)))
            self._asked[name] = values.astype(np.float64).reshape(-1, *(1,) * len(self._asked))
        return self._asked[name]


class Source(ABC):
    """The configurations of one GPU, one framework or engine, one mode.

    ``inputs`` has the machine, the model, the framework or engine, and the work. ``mesh`` has
    all configurations; a source without one is searched whole by every driver. ``counts`` are
    the numbers of GPUs asked for; none where they follow from other things. ``rules``, the same
    for all sources of a problem, end with running out of the host's memory and of the GPU's;
    ``num_rules`` of them come before that.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[object]]]
    mode: str
    site: OperatingTerms
    inputs: SearchInputs
    mesh: Mesh | None
    counts: tuple[int, ...]
    rules: ClassVar[tuple[Reason, ...]]
    num_rules: ClassVar[int]
    block_rows: ClassVar[int]
    joins_counts: ClassVar[bool] = False
    """True if sources that differ only in the number of GPUs can be predicted together."""
    profile_kind: ClassVar[str] = "engine"
    """What its profile is: a framework or an engine."""

    @property
    def rejections(self) -> tuple[str, ...]:
        """The names of the rules, in order."""
        return tuple(rule.name for rule in self.rules)

    @property
    def gpu(self) -> str:
        """Name of the GPU."""
        name: str = self.inputs.machine.gpu.name
        return name

    @property
    def gpus(self) -> tuple[str, ...]:
        """The names of all GPUs in plans of this source."""
        return (self.gpu,)

    def usable_memory(self, row: Row) -> float:
        """Usable bytes of the GPU that is fullest in a row of result columns."""
        return float(self.inputs.machine.gpu.allocatable_memory)

    @property
    def profile(self) -> str:
        """Name of the framework or engine."""
        name: str = self.inputs.profile.name
        return name

    @property
    def named(self) -> Mapping[str, str]:
        """Result columns with the same value in all plans of this source: model, GPU, software."""
        columns = {
            "model": self.inputs.model.name,
            "gpu": self.gpu,
            self.profile_kind: self.profile,
        }
        columns |= getattr(self.inputs, "named", {})
        if self.sites and self.site.is_compared:
            columns["contract"] = str(self.site.contract)
        return {"mode": self.mode, **columns} if self.mode else columns

    @property
    def description(self) -> str:
        """Model, GPU, software and mode as text."""
        return ", ".join(str(value) for value in self.named.values() if value != "none")

    @property
    def question_columns(self) -> Mapping[str, Value]:
        """Further columns with the same value in all plans: workload and prices."""
        return {}

    def confidence(self, num_gpus: float, group: int | None = None) -> Confidence | None:
        """The 90 % intervals of predictions on ``num_gpus`` GPUs, cached.

        ``group`` is one of `evidence_groups`; None: the first of `groups`. Returns None for
        roofline bounds and set efficiencies, or if no similar runs are published.
        """
        key = num_gpus, self.groups[0] if group is None else group
        if key not in self._confidence_by_group:
            confidence = self._confidence(*key)
            self._confidence_by_group[key] = confidence and with_prices(confidence, self.sites)
        return self._confidence_by_group[key]

    @cached_property
    def _confidence_by_group(self) -> dict[tuple[float, int], Confidence | None]:
        return {}

    def _confidence(self, num_gpus: float, group: int) -> Confidence | None:
        return None

    def with_rate_confidence(self, confidence: float) -> Source:
        """The source whose plans reach a specified request rate with this ``confidence``."""
        return self

    def evidence_groups(self, configurations: Any) -> IndexArray:
        """The group of evidence of each configuration (`planner.confidence.evidence`)."""
        return np.zeros((), dtype=np.intp)

    @cached_property
    def groups(self) -> tuple[int, ...]:
        """All groups of evidence of its configurations."""
        axes = None if self.mesh is None else _MeshAxes(self.mesh)
        return tuple(sorted_unique(self.evidence_groups(axes)).tolist())

    def evidence_groups_of(self, table: Columns) -> IndexArray:
        """The group of evidence of each row of result columns."""
        return np.broadcast_to(self.evidence_groups(_EncodedColumns(table)), len(table["num_gpus"]))

    def confidence_of(self, row: Row) -> Confidence | None:
        """The 90 % intervals of a row of result columns."""
        columns = {name: [value] for name, value in row.items()}
        return self.confidence(
            number_or_nan(row["num_gpus"]), int(self.evidence_groups_of(columns)[0])
        )

    @property
    def sites(self) -> tuple[OperatingTerms, ...]:
        """The operating terms of each kind of GPU; empty if terms do not apply."""
        site = getattr(self, "site", None)
        return () if site is None else (site,)

    @property
    def pace(self) -> Hashable:
        """A key of the operating terms that change more than costs and electricity."""
        return ()

    @property
    def run_length(self) -> Hashable:
        """A key of the length of a training run, which changes no step of it."""
        return ()

    @property
    def with_immediate_admission(self) -> Source:
        """The source in which all requests must fit in memory at once."""
        return self

    @property
    def num_rows(self) -> int:
        """Number of configurations; 0 without a mesh, where it is unknown before the search."""
        return 0 if self.mesh is None else self.mesh.num_rows

    def changed(self, change: InputsChange) -> Source:
        """The source with ``change`` applied to all its inputs."""
        return replace(self, inputs=change(self.inputs))

    @abstractmethod
    def broken(self, configurations: Any) -> CodeArray:
        """The one-based number of the first rule that each configuration breaks; 0: none."""

    @abstractmethod
    def judged(self, configurations: Any, broken: CodeArray | None = None) -> Candidates:
        """Predict time and memory of configurations; ``broken``: codes of broken rules or None."""

    def rejected(self, configurations: Any) -> CodeArray:
        """The one-based number of the rule or memory that rejects each configuration; 0: none."""
        return self.judged(configurations).rejected_by

    def rule_codes(self, configurations: Any) -> Sequence[CodeArray]:
        """Codes of broken rules in arrays of several shapes; the lowest are those of `broken`."""
        return (self.broken(configurations),)

    def may_fit(self, configurations: Any) -> bool:
        """False if what is known before any time is predicted rejects every configuration."""
        return True

    def possible(
        self, mesh: Any, least_saved: float = ROWS_OF_A_PREDICTION
    ) -> tuple[Sequence[Part], IndexArray]:
        """The parts of a mesh that rules leave, and the counts of what is left out.

        Leaving rows out before prediction saves time, since rules cost far less than predictions.
        See `planner.configurations.possible_parts.possible_parts`.
        """
        codes = MeshCodes.of_rules(mesh, self.rule_codes)
        return possible_parts(mesh, codes, len(self.rejections), least_saved)

    def blocks(
        self,
        goals: Sequence[Objective],
        limits: Sequence[Constraint],
        *,
        in_order: bool = False,
    ) -> Iterator[Block]:
        """Yield all configurations in blocks, predicted; a source may skip rows by ``goals``.

        ``in_order``: the rows come in the order of the mesh, which takes longer.
        """
        if self.mesh is None:
            raise NotImplementedError
        for mesh in self.mesh.blocks(self.block_rows):
            parts, dropped = self.possible(mesh, math.inf if in_order else ROWS_OF_A_PREDICTION)
            for table, broken in parts:
                for part, codes in split_mesh(table, broken, _MAX_PREDICTED_ROWS):
                    # No name holds the candidates: one block has gone before the next comes.
                    yield Block(
                        candidates=self.judged(part, codes),
                        dropped=_NOTHING_DROPPED,
                        num_rows=part.size,
                    )
            left_out = mesh.size - sum(table.size for table, _ in parts)
            yield Block(candidates=None, dropped=dropped, num_rows=left_out, mesh=mesh)
