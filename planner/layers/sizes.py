"""Sizes of operators: columns that tensor parallelism splits, and what the backward pass needs."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

import numpy as np

from planner.base.arrays import Numeric
from planner.base.enums import AdapterTargets
from planner.base.records import record


class Spread(StrEnum):
    """How the ranks of a tensor-parallel group share the numbers that a layer works on.

    ``TENSOR``: all tokens, a share of the columns. ``TOKENS``: all columns of the tokens whose
    residual stream a rank holds. ``EXPERTS``: all columns of those tokens, once per expert they
    visit.
    """

    TENSOR = "tensor"
    TOKENS = "tokens"
    EXPERTS = "experts"


class Element(StrEnum):
    """What a kept number is, from which a software's bytes per number follow.

    ``RESIDUAL``: of the stream between blocks, in 16 bit; ``SIXTEEN_BIT``: any other in 16 bit;
    ``FP32``. ``ATTENTION_INPUT``, ``FEED_FORWARD_INPUT``: what a matrix product of these blocks
    keeps for the gradient of its weights, ``DOWN_INPUT`` the last one of a feed-forward.
    ``ACTIVATION_INPUT``: of a non-linear function. ``EXPERT_OUTPUT``: an output of an expert,
    before it is weighted. ``DROPOUT_MASK``: a bit that takes a byte. ``SCORE``: a query's score of
    a key of the sequence, where no fused kernel makes it again. ``STATISTIC``: a fused kernel's one
    number per query and head, in fp32.
    """

    RESIDUAL = "residual"
    SIXTEEN_BIT = "sixteen_bit"
    FP32 = "fp32"
    ATTENTION_INPUT = "attention_input"
    FEED_FORWARD_INPUT = "feed_forward_input"
    DOWN_INPUT = "down_input"
    ACTIVATION_INPUT = "activation_input"
    EXPERT_OUTPUT = "expert_output"
    DROPOUT_MASK = "dropout_mask"
    SCORE = "score"
    STATISTIC = "statistic"


@record(kw_only=True)
class Part:
    """``count`` heads or columns of ``width`` numbers that belong together.

    With ``copied`` every tensor-parallel rank has one at least: key-value heads, fewer than
    ranks. ``adapter`` is the narrowest choice of targets that gives it an adapter, None where
    none does.
    """

    name: str
    count: int
    width: int = 1
    copied: bool = False
    adapter: AdapterTargets | None = None

    @property
    def columns(self) -> int:
        """Numbers of the whole part."""
        return self.count * self.width


@record()
class Columns:
    """The columns of a matrix or of a tensor, part by part."""

    parts: tuple[Part, ...]

    @property
    def whole(self) -> int:
        """Numbers of all parts."""
        return sum(part.columns for part in self.parts)

    @property
    def split(self) -> int:
        """Numbers of the parts that ranks divide evenly."""
        return sum(part.columns for part in self.parts if not part.copied)

    @property
    def copied(self) -> tuple[Part, ...]:
        """The parts of which every rank has one head at least."""
        return tuple(part for part in self.parts if part.copied)

    def on_rank(self, tensor_parallel: Numeric) -> Numeric:
        """Numbers on one of so many ranks."""
        local: Numeric = self.split / tensor_parallel
        for part in self.copied:
            local = local + heads_on_rank(part.count, tensor_parallel) * part.width
        return local


def heads_on_rank(heads: int, tensor_parallel: Numeric) -> Numeric:
    """Key-value heads on a rank; fewer heads than ranks are replicated."""
    return np.maximum(heads / np.asarray(tensor_parallel), 1.0)


def columns(*parts: Part) -> Columns:
    """The columns of these parts."""
    return Columns(parts)


def plain(width: int, name: str = "") -> Columns:
    """So many columns that ranks divide evenly."""
    return Columns((Part(name=name, count=width),))


@record(kw_only=True)
class Kept:
    """Numbers per token that a layer keeps for its backward pass.

    ``remade_by``: modules (``planner.base.software_enums``) whose recomputation makes them again.
    ``eager``: only kernels of one operation each keep them, beside what fused ones keep.
    """

    columns: Columns
    element: Element
    spread: Spread
    remade_by: tuple[str, ...] = ()
    eager: bool = False

    def also_by(self, *modules: str) -> Kept:
        """The same, which recomputation of these modules makes again, too."""
        return replace(self, remade_by=(*self.remade_by, *modules))


def kept(
    width: int | Columns,
    element: Element = Element.SIXTEEN_BIT,
    spread: Spread = Spread.TENSOR,
    remade_by: tuple[str, ...] = (),
    *,
    eager: bool = False,
) -> Kept:
    """So many numbers per token, of a kind, spread over the ranks in a way."""
    which = plain(width) if isinstance(width, int) else width
    return Kept(columns=which, element=element, spread=spread, remade_by=remade_by, eager=eager)
