"""Every configuration of a search space: checked values as an open mesh in blocks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import groupby, product
from typing import Generic, TypeAlias, TypeVar

import numpy as np

from planner.base.arrays import BoolArray, FloatArray, Values, sorted_unique
from planner.base.records import record
from planner.configurations.configuration_tables import ConfigurationTable, TrainingConfigurations
from planner.errors import SearchSpaceError
from planner.question.parse_values import LARGEST, parse_value, suggest_term
from planner.question.request import Settings
from planner.question.terms import glossary, terms_about, terms_of
from planner.specs.search_space import Dense, Divisors, Multiples, PowersOfTwo, SearchSpace, expand


def refuse_unknown(
    space: SearchSpace,
    settings: Settings,
    parameter_names: Sequence[str],
    derived: Sequence[str],
) -> None:
    """Refuse names in the space or the user's settings that are no parameters.

    Raises SearchSpaceError if a name is no parameter; the message names the space if the name is
    set there.
    """
    for name in (*space.parameters, *settings):
        if name in parameter_names and name != "num_gpus":
            continue
        where = "" if name in settings else f"Search space {space.name}: "
        if name == "num_gpus":
            problem = "num_gpus is not a parameter of a space: give --gpus."
        elif name in derived:
            degrees = "the number of GPUs and the other degrees"
            problem = f"{name} follows from {degrees}; set those instead."
        elif name in glossary() and "question" in glossary()[name].kind:
            problem = f"{name} is not a parameter of a space: give {glossary()[name].option_name}."
        else:
            names = [parameter for parameter in parameter_names if parameter != "num_gpus"]
            hint = suggest_term(name, {parameter: glossary()[parameter] for parameter in names})
            problem = f"Unknown parameter {name!r}.{hint} Known: {', '.join(names)}."
        raise SearchSpaceError(where + problem)


def as_values(choice: object, bases: Mapping[str, int]) -> list[object]:
    """The values of a space's choice, or of one or several values that a user sets."""
    if isinstance(choice, PowersOfTwo | Divisors | Multiples | Dense):
        return [*expand(choice, bases)]
    return list(choice) if isinstance(choice, list | tuple) else [choice]


def coded_values(name: str, values: Iterable[object]) -> list[float]:
    """Values of a parameter as codes, flags or numbers, without repetitions.

    Raises SearchSpaceError if a value is not one of the parameter's, or there is none.
    """
    term = glossary()[name]
    least = int(term.least) if term.type == "count" else LARGEST + 1
    codes = list(
        dict.fromkeys(
            # Thousands of numbers, as spaces have, are read at once.
            value if type(value) is int and least <= value <= LARGEST else _coded(name, value)
            for value in values
        )
    )
    if not codes:
        raise SearchSpaceError(f"There is no value for {name}.")
    if term.type in ("count", "share", "number"):
        codes.sort()
    return codes


def _coded(name: str, value: object) -> float:
    if isinstance(value, str | int | float) and type(value) in (str, int, float, bool):
        return _cached_code(name, value)
    return _read(name, value)


@lru_cache(maxsize=4096, typed=True)
def _cached_code(name: str, value: str | float) -> float:
    """The code of a word or number, cached: the spaces of all frameworks share most values."""
    return _read(name, value)


def _read(name: str, value: object) -> float:
    term = glossary()[name]
    code: float = term.encode(parse_value(term, value))
    return code


Table = TypeVar("Table", bound=ConfigurationTable)
Factor: TypeAlias = Mapping[str, Values]

# Parameters that appear in the same formulas share an axis: what a formula does not depend
# on costs it nothing. A stage's time does not depend on the global batch size, which therefore
# has its own. Pipeline and micro-batch come last, as most large arrays have both: numpy then
# runs over them in one inner loop.
AXES: tuple[tuple[str, ...], ...] = tuple(
    tuple(name for _, name in axis)
    for _, axis in groupby(
        sorted((term.axis, name) for name, term in terms_of("train", "parameter").items()),
        key=lambda place: place[0][0],
    )
)

# A block costs some milliseconds of Python whatever its size, and some bytes per row.
_BLOCK_ROWS = 2**22


@record(kw_only=True)
class OpenMesh(Generic[Table]):
    """All combinations of the entries of the factors of all ``axes``.

    A factor maps the parameters that are chosen together to equally long columns; an axis has
    one or several. Rows are numbered in C order of the axes and, in an axis, of its factors.
    """

    kind: type[Table]
    axes: Sequence[Sequence[Factor]]

    @property
    def factors(self) -> list[Factor]:
        """All factors, in the order of the parameters."""
        order = self.kind.names()
        flat = [factor for axis in self.axes for factor in axis]
        return sorted(flat, key=lambda factor: min(order.index(name) for name in factor))

    @property
    def num_rows(self) -> int:
        """Number of configurations."""
        return math.prod(_length(factor) for axis in self.axes for factor in axis)

    def values(self, name: str) -> Values:
        """The distinct values of a parameter, in increasing order."""
        (column,) = (factor[name] for axis in self.axes for factor in axis if name in factor)
        return sorted_unique(column)

    def blocks(self, max_rows: int = _BLOCK_ROWS) -> Iterator[Table]:
        """Yield parts of the mesh, each of at most about ``max_rows`` configurations."""
        # What has one value stays small: a formula that reads nothing else costs nothing.
        varied = [[factor for factor in axis if _length(factor) != 1] for axis in self.axes]
        single_factors = (f for axis in self.axes for f in axis if _length(f) == 1)
        axes = [cross_product(factors) for factors in varied]
        lengths = [math.prod(map(_length, factors)) for factors in varied]
        steps = block_steps(lengths, max_rows)
        ones = (1,) * len(lengths)
        single = {name: values.reshape(ones) for f in single_factors for name, values in f.items()}
        shapes = [(*ones[:axis], -1, *ones[axis + 1 :]) for axis in range(len(lengths))]
        for starts in product(*(range(0, n, step) for n, step in zip(lengths, steps, strict=True))):
            several = {
                name: values[start : start + step].reshape(shape)
                for columns, start, step, shape in zip(axes, starts, steps, shapes, strict=True)
                for name, values in columns.items()
            }
            yield self.kind(**single, **several)

    def has_other_axes_of(self, other: OpenMesh[Table]) -> bool:
        """True if all axes after the first are those of another mesh."""
        return all(
            np.array_equal(factor.get(name, ()), values)
            for axis, its_axis in zip(self.axes[1:], other.axes[1:], strict=True)
            for factor, its_factor in zip(axis, its_axis, strict=True)
            for name, values in its_factor.items()
        )

    def joined(self, others: Sequence[OpenMesh[Table]]) -> OpenMesh[Table]:
        """The configurations of this mesh, then those of others with another first axis."""
        axes = [cross_product(mesh.axes[0]) for mesh in (self, *others)]
        columns = {name: np.concatenate([axis[name] for axis in axes]) for name in axes[0]}
        single = {name: each[:1] for name, each in columns.items() if (each == each[0]).all()}
        several = {name: each for name, each in columns.items() if name not in single}
        first = [factor for factor in (several, single) if factor]
        return replace(self, axes=[first, *self.axes[1:]])

    def table(self) -> Table:
        """All configurations as one open mesh."""
        (block,) = self.blocks(max(self.num_rows, 1))
        return block

    def flat(self) -> Table:
        """All configurations as one flat table."""
        table = self.table()
        return table.rows(np.arange(table.size))


def training_mesh(values: Mapping[str, Sequence[object]]) -> OpenMesh[TrainingConfigurations]:
    """All combinations of the ``values`` of every training parameter, grouped as in ``AXES``."""
    kind = TrainingConfigurations
    return OpenMesh(
        kind=kind, axes=[[single_axis(kind, name, values[name]) for name in axis] for axis in AXES]
    )


def single_axis(kind: type[ConfigurationTable], name: str, values: Sequence[object]) -> Factor:
    """The column of one parameter, cast to its type."""
    return {name: kind.cast(name, values)}


def numbers(columns: Factor, name: str) -> FloatArray:
    """A column as floats."""
    return np.asarray(columns[name], dtype=np.float64)


def cross_product(factors: Sequence[Factor]) -> Factor:
    """Columns of all combinations of the entries of some factors; the last varies fastest."""
    columns, before, after = dict[str, Values](), 1, math.prod(map(_length, factors))
    for factor in factors:
        after //= max(_length(factor), 1)
        for name, values in factor.items():
            repeated = values if after == 1 else np.repeat(values, after)
            columns[name] = repeated if before == 1 else np.tile(repeated, before)
        before *= _length(factor)
    return columns


def _length(columns: Factor) -> int:
    return len(next(iter(columns.values())))


def block_steps(lengths: Sequence[int], max_rows: int) -> list[int]:
    """The number of entries of each axis in a block of at most ``max_rows`` rows."""
    steps = []
    rows_left = max_rows
    for length in reversed(lengths):
        step = max(1, min(length, rows_left))
        steps.append(step)
        rows_left //= step
    return steps[::-1]


FOLLOWING = ("data_parallel", "gradient_accumulation_steps")
_DEGREES = terms_about("model_parallel", "train")
# In larger spaces only the rule checks which combinations agree.
_MOST_LISTED = 2**22


@record(kw_only=True)
class SpecifiedValues:
    """Values that the user specified for numbers that follow from others; empty: unspecified."""

    data_parallel: tuple[float, ...] = ()
    gradient_accumulation_steps: tuple[float, ...] = ()

    @classmethod
    def of(cls, settings: Settings) -> SpecifiedValues:
        """The user's values of parameters that follow from others, such as ``data_parallel``."""
        values_by_name = {
            name: as_values(settings[name], {}) for name in FOLLOWING if name in settings
        }
        return cls(
            **{name: tuple(coded_values(name, values)) for name, values in values_by_name.items()}
        )

    def is_broken(self, c: TrainingConfigurations) -> BoolArray:
        """True where a configuration differs from the values that the user specified."""
        violated = np.zeros((), dtype=np.bool_)
        if self.data_parallel:
            violated = violated | ~np.isin(c.data_parallel, self.data_parallel)
        if self.gradient_accumulation_steps:
            steps = self.gradient_accumulation_steps
            violated = violated | ~np.isin(c.num_micro_batches, steps)
        return np.asarray(violated)

    def check(self, values: Mapping[str, Sequence[float]]) -> None:
        """Refuse specified values that no combination of ``values`` (by parameter) results in.

        Raises SearchSpaceError if no combination agrees; the message shows the possible numbers.
        """
        if self.data_parallel:
            n, *degrees = np.ix_(*(_numbers(values, name) for name in ("num_gpus", *_DEGREES)))
            quotients = n / math.prod(degrees)
            if not np.any(np.isin(quotients, self.data_parallel)):
                expression = (
                    f"num_gpus {_format_values(values, 'num_gpus')} / "
                    f"{_format_product(values, _DEGREES)}"
                )
                raise _ConflictingCounts("data_parallel", self.data_parallel, expression, quotients)
        if self.gradient_accumulation_steps:
            copies = self.data_parallel or _copies(values)
            names = ("global_batch_size", "micro_batch_size")
            lengths = [len(values[name]) for name in names]
            if lengths[0] * lengths[1] * len(copies) > _MOST_LISTED:
                return
            b, m, d = np.ix_(*(_numbers(values, name) for name in names), np.asarray(copies))
            quotients = b / (m * d)
            steps = self.gradient_accumulation_steps
            if not np.any(np.isin(quotients, steps)):
                batches = _format_values(values, "global_batch_size")
                parts = (
                    f"(data_parallel {_format_numbers(copies)} x "
                    f"{_format_product(values, names[1:], '')})"
                )
                expression = f"global_batch_size {batches} / {parts}"
                raise _ConflictingCounts(
                    "gradient_accumulation_steps", steps, expression, quotients
                )


NOTHING_SPECIFIED = SpecifiedValues()


class _ConflictingCounts(SearchSpaceError):
    """A specified number that no combination of the other parameters gives."""

    def __init__(
        self, name: str, requested: Sequence[float], expression: str, quotients: FloatArray
    ) -> None:
        """Compose the message from the requested numbers and the possible quotients."""
        super().__init__(
            f"{name}={_format_numbers(requested)} is given, but {expression} is "
            f"{_format_numbers(sorted_unique(quotients))}: "
            "change one "
            f"of them, or leave out {name}, which follows from the others."
        )


def global_batch_of(
    settings: Settings, num_gpus: int, default_degree: int | None
) -> tuple[int, str]:
    """The global batch size [samples] from gradient accumulation steps, and a text on it.

    ``default_degree`` replaces missing degrees; None in a search, where degrees are open.
    Raises SearchSpaceError if a parameter that determines the batch is open.
    """
    specified = SpecifiedValues.of(settings)
    (steps, *further_steps) = specified.gradient_accumulation_steps
    sizes = {
        name: _single_value(settings, name, default_degree)
        for name in (*_DEGREES, "micro_batch_size")
    }
    copies: float | None = None
    if len(specified.data_parallel) == 1:
        copies = specified.data_parallel[0]
    elif all(sizes[name] is not None for name in _DEGREES):
        copies = num_gpus / math.prod(sizes[name] or 1 for name in _DEGREES)
    micro = sizes["micro_batch_size"]
    if further_steps or copies is None or micro is None or copies != int(copies):
        raise SearchSpaceError(
            "gradient_accumulation_steps sets no batch if data_parallel or micro_batch_size "
            "is open: give --global-batch-size."
        )
    batch = int(copies * micro * steps)
    return batch, f"{copies:,.0f} data-parallel x {micro:,} x {steps:,.0f} micro-batches"


def _single_value(settings: Settings, name: str, default: int | None) -> float | None:
    values = coded_values(name, as_values(settings[name], {})) if name in settings else [default]
    return values[0] if len(values) == 1 else None


def _copies(values: Mapping[str, Sequence[float]]) -> list[float]:
    """The possible numbers of model copies on the GPUs; whole numbers if there are any."""
    n, *degrees = np.ix_(*(_numbers(values, name) for name in ("num_gpus", *_DEGREES)))
    copies = sorted_unique(n / math.prod(degrees))
    whole_copies = copies[copies == np.floor(copies)]
    return [float(count) for count in (whole_copies if len(whole_copies) else copies)]


def _numbers(values: Mapping[str, Sequence[float]], name: str) -> FloatArray:
    return np.asarray(values[name], dtype=np.float64)


def _format_values(values: Mapping[str, Sequence[float]], name: str) -> str:
    return _format_numbers(values[name])


def _format_product(
    values: Mapping[str, Sequence[float]], names: Sequence[str], around: str = "()"
) -> str:
    factors = " x ".join(f"{name} {_format_values(values, name)}" for name in names)
    return f"{around[:1]}{factors}{around[1:]}"


def _format_numbers(numbers: Iterable[float]) -> str:
    """A list of numbers as text; of many numbers only the first and the last."""
    texts = [f"{float(number):,.6g}" for number in numbers]
    return ", ".join(texts) if len(texts) <= 4 else f"{texts[0]} to {texts[-1]}"
