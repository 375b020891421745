"""What a workload registers; search, estimate, files and reports are written once over it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from planner.base.arrays import FloatArray, Numeric, Values, broadcast_flat, rank_values
from planner.base.csv_cells import Value
from planner.base.records import record
from planner.configurations.configuration_tables import ConfigurationTable, format_value
from planner.estimators.kernel_work import KernelWork, Ledger
from planner.optimize.result_columns import full_columns
from planner.optimize.source import Candidates, Columns, Setting, Source
from planner.question.request import Request
from planner.question.terms import glossary
from planner.specs.catalogue import Catalogue
from planner.specs.engine import EngineProfile
from planner.specs.framework import FrameworkProfile
from planner.specs.model import ModelSpec
from planner.specs.search_space import SearchSpace
from planner.workloads.assumptions import Assumption, EvaluatedChoice, PlanNotes
from planner.workloads.priced_hardware import PricedHardware

if TYPE_CHECKING:
    import pandas as pd

    from planner.estimators.inference.burst import Burst


ALL_MODULES = ""
"""The module of parts that belong to none."""


@record(kw_only=True)
class RepeatedWork:
    """Work of one kind that a part does, ``times`` over, all that shows of it, in a step."""

    work: KernelWork
    times: float

    def figure(self, name: str) -> float:
        """One of its figures, in SI units."""
        return at_longest(self.work, self.work.figures[name])

    @property
    def once(self) -> float:
        """Seconds of the work once."""
        return at_longest(self.work, self.work.time)

    @property
    def at_peak(self) -> float:
        """Seconds of the work once if silicon and links reached their peaks."""
        return at_longest(self.work, self.work.at_peak)

    @property
    def terms(self) -> dict[str, float]:
        """Seconds of each of its bounds alone, once."""
        seconds_by_term = {
            name: at_longest(self.work, term) for name, term in self.work.terms.items()
        }
        return {name: seconds for name, seconds in seconds_by_term.items() if seconds > 0}


@record(kw_only=True)
class TimedPart:
    """An operator, or a part of a step that belongs to none, on the slowest GPU.

    ``seconds`` are those of a step; ``terms`` the same by the term of the step's time that they
    belong to. ``done`` is the work behind them, whose seconds add up to them; ``like`` the kind of
    step whose kernels are behind them, where no work is recorded of their own.
    """

    name: str
    module: str
    seconds: float
    terms: Mapping[str, float]
    part: str = "compute"
    done: tuple[RepeatedWork, ...] = ()
    like: str = ""

    @classmethod
    def of(
        cls,
        name: str,
        module: str,
        terms: Mapping[str, float],
        works: Sequence[KernelWork],
        **more: str,
    ) -> TimedPart:
        """A part that takes the seconds of its terms, with the work behind them."""
        seconds = sum(terms.values())
        working = [work for work in works if at_longest(work, work.time) > 0]
        once = sum(at_longest(work, work.time) for work in working)
        done = tuple(RepeatedWork(work=work, times=seconds / once) for work in working)
        shown = {term: value for term, value in terms.items() if value}
        return cls(name=name, module=module, seconds=seconds, terms=shown, done=done, **more)


@record(kw_only=True)
class TimedStep:
    """A step of one kind: its ``seconds``, and the parts that add up to them.

    ``software``: the name of the profile that tells its efficiencies, where it is not the plan's.
    """

    seconds: float
    parts: tuple[TimedPart, ...] = field(default_factory=tuple)
    software: str = ""


def at_longest(work: KernelWork, values: Numeric) -> float:
    """The value where the work takes longest: pipeline stages may differ."""
    time = np.asarray(work.time)
    if np.size(time) == np.size(values) == 1:
        return float(np.ravel(values)[0])
    shape = np.broadcast_shapes(time.shape, np.shape(values))
    longest = int(np.argmax(np.broadcast_to(time, shape)))
    return float(np.ravel(np.broadcast_to(values, shape))[longest])


def merged(parts: Iterable[TimedPart]) -> tuple[TimedPart, ...]:
    """Parts of a name and module as one each; those without time are left out."""
    merged_parts: dict[tuple[str, str, str], TimedPart] = {}
    for part in parts:
        key = (part.module, part.name, part.part)
        before = merged_parts.get(key)
        merged_parts[key] = part if before is None else _sum(before, part)
    return tuple(part for part in merged_parts.values() if part.seconds)


def with_ledger(setting: Setting) -> Setting:
    """A setting whose predictions tell what is behind them."""
    return replace(setting, machine=replace(setting.machine, ledger=Ledger()))


def _sum(first: TimedPart, second: TimedPart) -> TimedPart:
    names = dict.fromkeys((*first.terms, *second.terms))
    return replace(
        first,
        seconds=first.seconds + second.seconds,
        terms={name: first.terms.get(name, 0.0) + second.terms.get(name, 0.0) for name in names},
        done=_alike((*first.done, *second.done)),
    )


def _alike(done: Iterable[RepeatedWork]) -> tuple[RepeatedWork, ...]:
    """The same work once, as often as all together."""
    distinct: list[RepeatedWork] = []
    for addition in done:
        position = next(
            (index for index, existing in enumerate(distinct) if _is_same(existing, addition)), None
        )
        if position is None:
            distinct.append(addition)
        else:
            distinct[position] = replace(addition, times=distinct[position].times + addition.times)
    return tuple(distinct)


def _is_same(first: RepeatedWork, second: RepeatedWork) -> bool:
    if (first.work.formula, first.work.key) != (second.work.formula, second.work.key):
        return False
    if first.work.figures.keys() != second.work.figures.keys() or first.once != second.once:
        return False
    return all(first.figure(name) == second.figure(name) for name in first.work.figures)


@record(kw_only=True)
class WorkloadQuestion:
    """What is asked, whatever the hardware: the model, the work, the numbers of GPUs.

    ``space`` and ``profile`` are names of specs and, where nobody gave them, where they come
    from; a profile of None is that of the space. ``counts`` is empty where the numbers of GPUs
    follow from other things. ``compares_drafts``: it is one of several that differ in the number of
    drafted tokens.
    """

    request: Request
    model: ModelSpec
    work: Any
    counts: tuple[int, ...]
    space: tuple[str, str | None]
    profile: tuple[str | None, str] = (None, "of the space")
    compares_drafts: bool = False


@record(kw_only=True)
class HardwareScenario:
    """One GPU and one framework or engine that the question is asked for.

    ``place`` has the GPU and its cluster, ``others`` those of the workload's further GPUs.
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
    candidates : judged configuration
    rejected_by : rule or limit that rejects the configuration; empty: feasible
    more : result columns in addition to those of ``candidates``
    detail : times of a burst of requests; None: no burst
    """

    candidates: Candidates
    rejected_by: str = ""
    more: Columns = field(default_factory=dict)
    detail: Burst | None = None

    def __repr__(self) -> str:
        words = f"rejected by {self.rejected_by}" if self.rejected_by else "feasible"
        return f"<{type(self).__name__}: {words}; {self.candidates!r}>"

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
    """How results of a workload are told.

    Parameters
    ----------
    noun : what a configuration is called
    question_lines : lines about what is asked of a setting
    in_short : a row's configuration in a few words
    blamed : of one configuration and the rule that it breaks, what breaks it
    room : of a row that does not fit, and the most requests at once that would, how it is told
    layout : a row's layout as a column of the front, in place of the parameters ``in_layout``;
        ``legend`` explains it
    results : for so many numbers of GPUs, the columns of the front beside the configuration's
    of_objective : the columns that tell objectives whose own name is no column, or tells less
    of_unlike : the same where models or adapters are compared
    from_end_to_end : of a long front rows all along it are shown, not its first ones
    shown_columns : the columns that say in short what a plan reaches and costs, its memory beside
        them
    brief : a row's configuration as its users write it, in place of ``in_short``
    degrees : the parameters that a short front shows as one column, where there is no ``layout``
    unusual : lines about what is unusual of a setting, told of every model
    """

    noun: str
    question_lines: Callable[[Any], Sequence[str]]
    in_short: Callable[[Mapping[str, object]], str]
    blamed: Callable[[Candidates, str], str]
    results: Callable[[Sequence[int]], tuple[str, ...]]
    of_objective: Mapping[str, str]
    of_unlike: Mapping[str, str] = field(default_factory=dict)
    from_end_to_end: bool = False
    room: Callable[[Mapping[str, object], int], str] = lambda *_: ""
    layout: Callable[[Mapping[str, object]], str] | None = None
    in_layout: tuple[str, ...] = ()
    shown_columns: tuple[str, ...] = ()
    brief: Callable[[Mapping[str, object]], str] | None = None
    degrees: tuple[str, ...] = ()
    legend: Callable[[Mapping[str, Sequence[object]]], str] = lambda _: ""
    unusual: Callable[[Any], Sequence[str]] = lambda _: ()


@record(kw_only=True)
class Workload:
    """A kind of work to plan.

    Parameters
    ----------
    name : of the workload in the table of terms, which has its parameters, questions, limits and
        objectives
    profile_kind : ``framework`` or ``engine``: what its spaces name
    single : the space of one configuration
    ask : reads a request's question; notes what nobody gave
    sources : what is to be searched in a scene; an error where its parts do not go together
    objectives : what plans are chosen by where the request does not say
    limits : limits that follow from the request and the first source
    tried : values by parameter that a space chooses among and a user would want to know of
    furthest : how many times worse than the best the first objective of plans of the front may be
    assumed : bounds that are assumed where the request has no such limits
    ideal : a profile without losses
    once : judges the one configuration of a source; of a burst of so many requests too
    free : values of parameters that ``once`` chooses among, where the request leaves them open
    settled : answers to the request's questions that a plan of this source was made with
    fitting : for a source and a configuration that is too large for it, settings that are not
    advice_rows : configurations that may be judged to find out what would help
    fitted : a scene with what its GPUs and its profile decide of the question
    usual : of a scene, what its profile does by default, where that is told
    unset : of a source, values that differ from plain ones where nothing sets them
    differs : of a scene, what was chosen of the question by its GPUs and its profile
    others : of a source and a row, settings that are worth trying instead, by what they change
    other_gpus : questions that name further GPUs
    precision : the parameter that is the precision of the matrices
    adapters : the kinds of adapters that it knows, none of them among them
    suits : whether a profile can do what is asked, where nobody named it
    weighed : result columns that plans on different GPUs are weighed by, all the better the less
    open_facts : what a chosen plan assumes, each fact with the plan as it else might be
    ties : objectives that published runs tell apart only beyond a factor
    timed : the steps of one configuration, by kind, with what their time is made of
    lengths : the questions that are lengths of what is computed
    longest : those that say how long it may become, where these are others: what memory bounds
    batch : the parameter that says how much is computed together; empty where lengths say it
    """

    name: str
    profile_kind: str
    single: str
    ask: Callable[[Request, Catalogue, PlanNotes], WorkloadQuestion]
    sources: Callable[[HardwareScenario], list[Source]]
    objectives: Callable[[WorkloadQuestion], tuple[str, ...]]
    ideal: Callable[[Any], FrameworkProfile | EngineProfile]
    settled: Callable[[Source], Mapping[str, Value]]
    wording: ResultWording
    once: Callable[[Source, int | None], Evaluation]
    limits: Callable[[WorkloadQuestion, Source], Mapping[str, float]] = lambda *_: {}
    tried: Callable[[WorkloadQuestion, SearchSpace], Mapping[str, Sequence[str]]] = lambda *_: {}
    furthest: Callable[[WorkloadQuestion], float] = lambda _: float("inf")
    assumed: Callable[[WorkloadQuestion], Mapping[str, float]] = lambda _: {}
    free: Callable[[Request, int | None], Mapping[str, Sequence[float]]] = lambda *_: {}
    fitting: Callable[[Source, ConfigurationTable], Mapping[str, float]] = lambda *_: {}
    advice_rows: int = 1_500_000
    fitted: Callable[[HardwareScenario], HardwareScenario] = lambda scene: scene
    usual: Callable[[HardwareScenario], Mapping[str, str]] = lambda _: {}
    unset: Callable[[Source], Mapping[str, Value]] = lambda _: {}
    differs: Callable[[HardwareScenario], Mapping[str, str]] = lambda _: {}
    others: Callable[[Source, Mapping[str, object]], Mapping[str, dict[str, str]]] = lambda *_: {}
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
    weighed: tuple[str, ...] = ("num_gpus",)


def as_single_table(source: Source) -> ConfigurationTable:
    """The configurations of a small source as one flat table."""
    if source.mesh is None:
        raise ValueError("The source has no mesh.")
    return source.mesh.flat()


def evaluate_single(source: Source, _: int | None = None) -> Evaluation:
    """The one configuration of a source."""
    return Evaluation(candidates=source.judged(as_single_table(source)))


Item = TypeVar("Item")


def term_columns(names: Iterable[str], *holders: object) -> dict[str, FloatArray]:
    """Columns of terms, in their units, of what the first holder that knows one has of its name.

    What a holder knows as None has no column.
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
    """Columns of the same value in every row of a table of this shape."""
    number = int(np.prod(shape))
    return {name: [value] * number for name, value in values.items()}


def format_parameter_column(
    name: str, values: Values, shape: tuple[int, ...], of: str | None = None
) -> list[str | float]:
    """The values of the parameter ``of``, or of this name, as they are shown."""
    listed = broadcast_flat(values, shape)
    if listed.size == 1:
        return [format_value(of or name, listed[0])]
    each, which = rank_values(listed)
    words = np.array([format_value(of or name, value) for value in each], dtype=object)
    shown: list[str | float] = words[which].tolist()
    return shown


def floats(value: object, shape: tuple[int, ...]) -> FloatArray:
    """Numbers, one per row."""
    return broadcast_flat(np.asarray(value, dtype=np.float64), shape)


def counts(value: Numeric, shape: tuple[int, ...]) -> list[int]:
    """Whole numbers, one per row."""
    return [int(number) for number in broadcast_flat(np.asarray(value), shape)]
