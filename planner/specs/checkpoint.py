"""What published weights in a format have of their own."""

from __future__ import annotations

from typing import Annotated

from planner.base.enums import Quantization
from planner.errors import did_you_mean
from planner.specs.checked import After, Interval, MinLen, Strict, checked


def quantization_word(text: str) -> str:
    """The word of a type of weights, from any of its names."""
    word, known = Quantization.meant(text), Quantization.words()
    if word not in known:
        hint = did_you_mean(text, [*known, *Quantization.aliases()])
        raise ValueError(f"is one of {', '.join(known)}.{hint}")
    return word


PARTS = ("attention", "feed_forward", "shared_experts")


def known_parts(parts: tuple[str, ...]) -> tuple[str, ...]:
    """The parts, all of them known.

    Raises
    ------
    ValueError
        One of them is not known.
    """
    if unknown := [part for part in parts if part not in PARTS]:
        raise ValueError(f"{', '.join(unknown)}: the parts are {', '.join(PARTS)}")
    return parts


Bytes = Annotated[float, Interval(ge=0, le=8)]


@checked
class Checkpoint:
    """Weights in the format ``quantization``, as a publisher stores them.

    ``sixteen_bit``: parts of every layer that stay in 16 bit: ``attention``, ``feed_forward``
    (dense ones) and ``shared_experts``; embeddings, logits, routers and norms always do.
    ``sixteen_bit_layers``: layers, such as the first and the last, of which all matrices do.
    ``group_size``: weights that share a scale of ``scale_bytes``, and a zero point of
    ``zero_point_bytes``; without it scales are those of the format. ``repository``: of a checkpoint
    beside the one that ``ModelSpec.quantization`` is of. ``engines``, ``vendors``: the
    engine profiles and the vendors of GPUs that are served this checkpoint where only the format
    is named; all where none is given.
    """

    quantization: Annotated[str, After(quantization_word)]
    source: Annotated[str, MinLen(1)]
    sixteen_bit: Annotated[tuple[str, ...], After(known_parts)] = ()
    sixteen_bit_layers: Annotated[int, Strict(), Interval(ge=0, le=10**4)] = 0
    group_size: Annotated[int, Strict(), Interval(ge=1, le=10**6)] | None = None
    scale_bytes: Bytes = 2.0
    zero_point_bytes: Bytes = 0.0
    repository: str = ""
    engines: tuple[str, ...] = ()
    vendors: tuple[str, ...] = ()

    def is_served(self, engine: str, vendor: str) -> bool:
        """Whether this engine on GPUs of this vendor is served it."""
        return self._has(self.engines, engine) and self._has(self.vendors, vendor)

    @staticmethod
    def _has(names: tuple[str, ...], name: str) -> bool:
        return not names or name.lower() in {one.lower() for one in names}
