"""The interface of a workload and its quantities, used by search, estimate and reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

import numpy as np

from planner.base.arrays import FloatArray, Numeric, Values, broadcast_flat, rank_values
from planner.base.csv_cells import Row, Value
from planner.base.records import record
from planner.configurations.configuration_tables import ConfigurationTable, format_value
from planner.optimize.result_columns import full_columns
from planner.optimize.source import Candidates, Columns, Source
from planner.question.request import Request
from planner.question.terms import glossary
from planner.specs.catalogue import Catalogue
from planner.specs.engine import EngineProfile
from planner.specs.framework import FrameworkProfile
from planner.specs.model import ModelSpec
from planner.specs.search_space import SearchSpace
from planner.workloads.assumptions import Assumption, EvaluatedChoice, PlanNotes
from planner.workloads.priced_hardware import PricedHardware
from planner.workloads.timed_steps import TimedStep

if TYPE_CHECKING:
    import pandas as pd

    from planner.estimators.inference.burst import Burst


@record(kw_only=True)
class WorkloadQuestion:
    """The hardware-independent part of a request: the model, the work, the numbers of GPUs.

    ``space`` and ``profile`` are names of specs and, if assumed, their origin; a profile of None is
    that of the space. ``counts`` is empty if the numbers of GPUs follow from other values.
    ``compared``: answers that several questions of the search differ in.
    """

    request: Request
    model: ModelSpec
    work: Any
    counts: tuple[int, ...]
    space: tuple[str, str | None]
    profile: tuple[str | None, str] = (None, "of the space")
    compared: tuple[str, ...] = ()


@record(kw_only=True)
class HardwareScenario:
    """A question with one GPU and one framework or engine.

    ``place`` has the GPU and its cluster, ``others`` the workload's further GPUs by question.
    """

    question: WorkloadQuestion
    space: SearchSpace
    profile: Any
    place: PricedHardware
    others: Mapping[str, PricedHardware]


@record(kw_only=True, repr=False)
class Evaluation:
    """One configuration with its predictions.

    Parameters
    ----------
    candidates : evaluated configuration
    rejected_by : rule or limit that rejects the configuration; empty: feasible
    more : result columns in addition to those of ``candidates``
    detail : times of a burst of requests; None: no burst
    """

    candidates: Candidates
    rejected_by: str = ""
    more: Columns = field(default_factory=dict)
    detail: Burst | None = None

    def __repr__(self) -> str:
        text = f"rejected by {self.rejected_by}" if self.rejected_by else "feasible"
        return f"<{type(self).__name__}: {text}; {self.candidates!r}>"

    @property
    def source(self) -> Source:
        """The source of the configuration."""
        return self.candidates.source

    @property
    def estimate(self) -> Any:
        """The estimate behind the candidates; None: they have none."""
        return getattr(self.candidates, "estimate", None)

    def table(self) -> Columns:
        """Result columns of the configuration, one row."""
        return {**self.candidates.columns(), **self.more, "rejected_by": [self.rejected_by]}

    def to_frame(self) -> pd.DataFrame:
        """Result columns as a pandas frame of one row, with intervals and the question."""
        import pandas as pd

        return pd.DataFrame(full_columns(self.table(), [self.source]))


@record(kw_only=True)
class ResultWording:
    """The texts and columns of a workload's results.

    Parameters
    ----------
    noun : name of a configuration
    question_lines : lines that describe the question of a setting
    format_short : a row's configuration in a few words
    broken_rule_text : the part of a configuration that breaks a rule
    room : note on a row that does not fit, with the highest concurrency that would
    layout : a row's layout as a column of the front, in place of the parameters ``in_layout``;
        ``legend`` explains it
    results : further columns of the front, for the numbers of GPUs
    of_objective : columns that show an objective, by objective, if not the column of its name
    of_unlike : columns by objective, if models or adapters are compared
    from_end_to_end : whether a long front shows rows along all of it, not only its first ones
    shown_columns : columns of the performance and cost of a plan; memory is shown, too
    format_brief : a row's configuration in the notation of users, in place of ``format_short``
    degrees : parameters that a short front shows as one column, without ``layout``
    unusual : lines about unusual properties of a setting, shown for every model
    """

    noun: str
    question_lines: Callable[[Any], Sequence[str]]
    format_short: Callable[[Row], str]
    broken_rule_text: Callable[[Candidates, str], str]
    results: Callable[[Sequence[int]], tuple[str, ...]]
    of_objective: Mapping[str, str]
    of_unlike: Mapping[str, str] = field(default_factory=dict)
    from_end_to_end: bool = False
    room: Callable[[Row, int], str] = lambda *_: ""
    layout: Callable[[Row], str] | None = None
    in_layout: tuple[str, ...] = ()
    shown_columns: tuple[str, ...] = ()
    format_brief: Callable[[Row], str] | None = None
    degrees: tuple[str, ...] = ()
    legend: Callable[[Mapping[str, Sequence[object]]], str] = lambda _: ""
    unusual: Callable[[Any], Sequence[str]] = lambda _: ()


@record(kw_only=True)
class Workload:
    """A kind of work to plan.

    Parameters
    ----------
    name : name of the workload in the table of terms, with its parameters, questions, limits and
        objectives
    profile_kind : ``framework`` or ``engine``: the kind of profile in its spaces
    single : the space of one configuration
    ask : reads the question of a request; notes assumed values
    sources : the sources to search in a scenario; raises an error if its parts do not fit together
    objectives : default objectives
    limits : limits that follow from the request and the first source
    tried : values by parameter that a space chooses from and that are worth a note
    front_factor : largest factor of the first objective of the front over its best value
    assumed : assumed bounds of limits that the request does not set
    ideal : a profile without losses
    evaluate_once : evaluates the one configuration of a source, or a burst of requests
    open_values : values of open parameters that ``evaluate_once`` chooses from
    reproducing_answers : answers that reproduce a plan of a source
    fitting : settings that fit in memory, for a configuration of a source that does not
    advice_rows : number of configurations that may be evaluated for suggestions
    fitted : a scenario with the choices that depend on its GPUs and profile
    usual : notes on defaults of a scenario's profile
    unset_defaults : defaults of a source that differ from the table's defaults
    hardware_notes : notes on choices that depend on GPU and profile, of a scenario
    others : alternative settings by description, of a source and a row
    other_gpus : questions that name further GPUs
    precision : the parameter of the precision of matrix products
    adapters : supported kinds of adapters, ``none`` included
    suits : whether a profile supports a question, for profiles that the request does not name
    comparison_columns : result columns that plans on different GPUs are compared by; less is better
    open_facts : assumptions of a chosen plan, each with evaluated alternatives
    ties : objectives with differences that published runs confirm only beyond a factor
    timed : the steps of one configuration, by kind, with the parts of their time
    lengths : the questions that set lengths of sequences
    longest : the questions that set the longest length, if others: memory bounds them
    batch : the parameter of the batch size; empty if lengths determine it
    """

    name: str
    profile_kind: str
    single: str
    ask: Callable[[Request, Catalogue, PlanNotes], WorkloadQuestion]
    sources: Callable[[HardwareScenario], list[Source]]
    objectives: Callable[[WorkloadQuestion], tuple[str, ...]]
    ideal: Callable[[Any], FrameworkProfile | EngineProfile]
    reproducing_answers: Callable[[Source], Mapping[str, Value]]
    wording: ResultWording
    evaluate_once: Callable[[Source, int | None], Evaluation]
    limits: Callable[[WorkloadQuestion, Source], Mapping[str, float]] = lambda *_: {}
    tried: Callable[[WorkloadQuestion, SearchSpace], Mapping[str, Sequence[str]]] = lambda *_: {}
    front_factor: Callable[[WorkloadQuestion], float] = lambda _: float("inf")
    assumed: Callable[[WorkloadQuestion], Mapping[str, float]] = lambda _: {}
    open_values: Callable[[Request, int | None], Mapping[str, Sequence[float]]] = lambda *_: {}
    fitting: Callable[[Source, ConfigurationTable], Mapping[str, float]] = lambda *_: {}
    advice_rows: int = 1_500_000
    fitted: Callable[[HardwareScenario], HardwareScenario] = lambda scene: scene
    usual: Callable[[HardwareScenario], Mapping[str, str]] = lambda _: {}
    unset_defaults: Callable[[Source], Mapping[str, Value]] = lambda _: {}
    hardware_notes: Callable[[HardwareScenario], Mapping[str, str]] = lambda _: {}
    others: Callable[[Source, Row], Mapping[str, dict[str, str]]] = lambda *_: {}
    other_gpus: tuple[str, ...] = ()
    precision: str = "precision"
    adapters: tuple[str, ...] = ("none",)
    suits: Callable[[WorkloadQuestion, Any], bool] = lambda *_: True
    open_facts: Callable[[EvaluatedChoice], Sequence[Assumption]] = lambda _: ()
    ties: tuple[str, ...] = ()
    timed: Callable[[Candidates], Mapping[str, TimedStep]] = lambda _: {}
    lengths: tuple[str, ...] = ()
    longest: tuple[str, ...] = ()
    batch: str = "concurrency"
    comparison_columns: tuple[str, ...] = ("num_gpus",)


def as_single_table(source: Source) -> ConfigurationTable:
    """All configurations of a source as one flat table."""
    if source.mesh is None:
        raise ValueError("The source has no mesh.")
    return source.mesh.flat()


def evaluate_single(source: Source, _: int | None = None) -> Evaluation:
    """Evaluate the one configuration of a source."""
    return Evaluation(candidates=source.judged(as_single_table(source)))


Item = TypeVar("Item")


def term_columns(names: Iterable[str], *holders: object) -> dict[str, FloatArray]:
    """Columns of terms in their display units, from the first holder that has each attribute.

    An attribute that is None has no column.
    """
    columns = {}
    for name in names:
        holder = next(
            candidate
            for candidate in holders
            if name in vars(candidate) or hasattr(type(candidate), name)
        )
        values = getattr(holder, name)
        term = glossary()[glossary()[name].result or name]
        if values is not None:
            columns[term.column] = values if term.scale == 1 else values / term.scale
    return columns


def repeated(values: Mapping[str, Item], shape: tuple[int, ...]) -> dict[str, list[Item]]:
    """Columns with the same value in each row of a table of this shape."""
    number = int(np.prod(shape))
    return {name: [value] * number for name, value in values.items()}


def format_parameter_column(name: str, values: Values, shape: tuple[int, ...]) -> list[str | float]:
    """The values of a parameter as shown in tables, as a list."""
    listed = broadcast_flat(values, shape)
    if listed.size and (listed == listed[0]).all():
        return [format_value(name, listed[0])] * listed.size
    distinct, which = rank_values(listed)
    texts = np.array([format_value(name, value) for value in distinct], dtype=object)
    shown: list[str | float] = texts[which].tolist()
    return shown


def floats(value: object, shape: tuple[int, ...]) -> FloatArray:
    """The values as one float per row."""
    return broadcast_flat(np.asarray(value, dtype=np.float64), shape)


def counts(value: Numeric, shape: tuple[int, ...]) -> list[int]:
    """The values as one integer per row."""
    return [int(number) for number in broadcast_flat(np.asarray(value), shape)]


Judged = TypeVar("Judged")


class Quantity(Generic[Judged]):
    """A read-only attribute of candidates with the name of a term, in SI units.

    Parameters
    ----------
    of : function from the candidates to the values
    """

    def __init__(self, of: Callable[[Judged], FloatArray]) -> None:
        self._of = of

    def __set_name__(self, owner: type[Judged], name: str) -> None:
        self.__doc__ = glossary()[name].description

    @overload
    def __get__(self, candidates: None, owner: type[Judged]) -> Self: ...
    @overload
    def __get__(self, candidates: Judged, owner: type[Judged]) -> FloatArray: ...
    def __get__(self, candidates: Judged | None, owner: type[Judged]) -> Self | FloatArray:
        return self if candidates is None else self._of(candidates)

    def __set__(self, candidates: Judged, value: FloatArray) -> None:
        raise AttributeError("Predictions cannot be changed.")
