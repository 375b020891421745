"""One operator of a layer with its seconds and FLOPs, for training and for serving."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace

import numpy as np

from planner.base.arrays import FloatArray, Numeric
from planner.base.records import record
from planner.estimators.kernel_work import KernelWork, Ledger
from planner.layers.operators import LayerOperator

_ZERO = np.zeros(())


def _zero() -> FloatArray:
    return _ZERO


@record(kw_only=True)
class Operator:
    """One operator of one layer on one GPU: of a micro-batch in training, of a step of an engine.

    ``forward`` and ``backward`` are seconds (of a communication: exposed seconds), ``flops`` those
    of the forward pass; an engine has no backward pass. ``part`` is ``compute`` or the parallelism
    that communicates. ``works``: what its seconds are made of, where that is recorded.

    The backward pass runs the forward again under full recomputation if ``repeatable``, all but the
    share ``spared``; where modules are repeated by themselves, all of it by one ``repeated_by``, a
    part by those of ``parts``, and the share ``selective`` where a framework has no modules but
    shares. ``weights``: seconds of the backward pass that make gradients of weights, which nothing
    waits for.
    """

    name: str
    module: str
    forward: FloatArray
    backward: FloatArray = field(default_factory=_zero)
    flops: FloatArray = field(default_factory=_zero)
    part: str = "compute"
    works: tuple[KernelWork, ...] = ()
    repeatable: bool = True
    selective: Numeric = 0.0
    repeated_by: tuple[str, ...] = ()
    parts: Mapping[str, Numeric] = field(default_factory=dict)
    spared: Numeric = 0.0
    weights: FloatArray | float = 0.0


def make_operator(
    op: LayerOperator,
    forward: FloatArray,
    backward: FloatArray = _ZERO,
    flops: FloatArray = _ZERO,
    *,
    part: str = "compute",
    selective: Numeric = 0.0,
    parts: Mapping[str, Numeric] | None = None,
    weights: FloatArray | float = 0.0,
) -> Operator:
    """Return the `Operator` with forward and backward seconds of a layer operator."""
    return Operator(
        name=op.name,
        module=op.module,
        forward=forward,
        backward=backward,
        flops=flops,
        part=part,
        repeatable=op.repeatable,
        selective=selective,
        repeated_by=op.repeated_by,
        parts=parts or {},
        weights=weights,
    )


def attribute_work(ledger: Ledger | None, operators: Iterable[Operator]) -> Iterator[Operator]:
    """Yield operators, with the recorded work of their forward seconds if there is a ledger."""
    if ledger is None:
        yield from operators
        return
    ledger.drain()
    for operator in operators:
        yield replace(operator, works=ledger.of(operator.forward))
