"""What follows from other parameters of training, and is given beside them all the same."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from planner.base.arrays import BoolArray, FloatArray, distinct
from planner.base.records import record
from planner.configurations.enumerate import checked, listed
from planner.configurations.training import TrainingConfigurations
from planner.errors import SearchSpaceError
from planner.question.terms import terms_about

FOLLOWING = ("data_parallel", "gradient_accumulation_steps")
_DEGREES = terms_about("model_parallel", "train")
# Of a space with more, the rule alone says which agree.
_MOST_LISTED = 2**22


@record(kw_only=True)
class AsGiven:
    """Values of which a configuration has one each; none where nothing was given."""

    data_parallel: tuple[float, ...] = ()
    gradient_accumulation_steps: tuple[float, ...] = ()

    @classmethod
    def of(cls, settings: Mapping[str, object]) -> AsGiven:
        """Those of a user's settings."""
        given = {name: listed(settings[name], {}) for name in FOLLOWING if name in settings}
        return cls(**{name: tuple(checked(name, values)) for name, values in given.items()})

    def is_broken(self, c: TrainingConfigurations) -> BoolArray:
        """Where configurations have others."""
        violated = np.zeros((), dtype=np.bool_)
        if self.data_parallel:
            violated = violated | ~np.isin(c.data_parallel, self.data_parallel)
        if self.gradient_accumulation_steps:
            steps = self.gradient_accumulation_steps
            violated = violated | ~np.isin(c.num_micro_batches, steps)
        return np.asarray(violated)

    def check(self, values: Mapping[str, Sequence[float]]) -> None:
        """Refuse numbers that no combination of ``values`` (by parameter) agrees with.

        Raises
        ------
        SearchSpaceError
            With what the others make.
        """
        if self.data_parallel:
            n, *degrees = np.ix_(*(_numbers(values, name) for name in ("num_gpus", *_DEGREES)))
            found = n / (degrees[0] * degrees[1] * degrees[2])
            if not np.any(np.isin(found, self.data_parallel)):
                made = f"num_gpus {_all(values, 'num_gpus')} / {_product(values, _DEGREES)}"
                raise _Disagree("data_parallel", self.data_parallel, made, found)
        if self.gradient_accumulation_steps:
            copies = self.data_parallel or _copies(values)
            names = ("global_batch_size", "micro_batch_size")
            lengths = [len(values[name]) for name in names]
            if lengths[0] * lengths[1] * len(copies) > _MOST_LISTED:
                return
            b, m, d = np.ix_(*(_numbers(values, name) for name in names), np.asarray(copies))
            found = b / (m * d)
            steps = self.gradient_accumulation_steps
            if not np.any(np.isin(found, steps)):
                whole = _all(values, "global_batch_size")
                parts = f"(data_parallel {_text(copies)} x {_product(values, names[1:], '')})"
                made = f"global_batch_size {whole} / {parts}"
                raise _Disagree("gradient_accumulation_steps", steps, made, found)


NOTHING_GIVEN = AsGiven()


class _Disagree(SearchSpaceError):
    """A number that was given is none that the others make."""

    def __init__(self, name: str, given: Sequence[float], made: str, found: FloatArray) -> None:
        super().__init__(
            f"{name}={_text(given)} is given, but {made} is {_text(distinct(found))}: change one "
            f"of them, or leave out {name}, which follows from the others."
        )


def batch_of(settings: Mapping[str, object], num_gpus: int, plain: int | None) -> tuple[int, str]:
    """The global batch that accumulation steps say, and how; ``plain``: degrees left out.

    ``plain`` is None in a search, whose degrees are open.

    Raises
    ------
    SearchSpaceError
        What the batch follows from is open.
    """
    given = AsGiven.of(settings)
    (steps, *more) = given.gradient_accumulation_steps
    sizes = {name: _single(settings, name, plain) for name in (*_DEGREES, "micro_batch_size")}
    copies: float | None = None
    if len(given.data_parallel) == 1:
        copies = given.data_parallel[0]
    elif all(sizes[name] is not None for name in _DEGREES):
        copies = num_gpus / math.prod(sizes[name] or 1 for name in _DEGREES)
    micro = sizes["micro_batch_size"]
    if more or copies is None or micro is None or copies != int(copies):
        raise SearchSpaceError(
            "gradient_accumulation_steps says no batch where data_parallel or micro_batch_size "
            "are open: give --global-batch-size."
        )
    batch = int(copies * micro * steps)
    return batch, f"{copies:,.0f} data-parallel x {micro:,} x {steps:,.0f} micro-batches"


def _single(settings: Mapping[str, object], name: str, plain: int | None) -> float | None:
    values = checked(name, listed(settings[name], {})) if name in settings else [plain]
    return values[0] if len(values) == 1 else None


def _copies(values: Mapping[str, Sequence[float]]) -> list[float]:
    """Numbers of copies that the GPUs make, whole ones."""
    n, *degrees = np.ix_(*(_numbers(values, name) for name in ("num_gpus", *_DEGREES)))
    found = distinct(n / (degrees[0] * degrees[1] * degrees[2]))
    whole = found[found == np.floor(found)]
    return [float(one) for one in (whole if len(whole) else found)]


def _numbers(values: Mapping[str, Sequence[float]], name: str) -> FloatArray:
    return np.asarray(values[name], dtype=np.float64)


def _all(values: Mapping[str, Sequence[float]], name: str) -> str:
    return _text(values[name])


def _product(
    values: Mapping[str, Sequence[float]], names: Sequence[str], around: str = "()"
) -> str:
    made = " x ".join(f"{name} {_all(values, name)}" for name in names)
    return f"{around[:1]}{made}{around[1:]}"


def _text(numbers: Iterable[float]) -> str:
    """Few numbers as they are, of many the ends."""
    texts = [f"{float(one):,.6g}" for one in numbers]
    return ", ".join(texts) if len(texts) <= 4 else f"{texts[0]} to {texts[-1]}"
