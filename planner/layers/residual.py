"""What stands around every block: the norm before it and the sum after it."""

from __future__ import annotations

from planner.layers.operators import Elementwise, Holder
from planner.layers.sizes import Element, Spread, kept, plain


def norm(name: str, width: int, sets: int, bias: bool, blocks: tuple[str, ...] = ()) -> Elementwise:
    """A norm with so many sets of weights in all, of one number per channel, or two with bias.

    RMS norms have no bias [1]_. A layer with more norms than blocks has several sets in one.
    ``blocks``: the feed-forward that it stands before, as recomputation calls it.

    References
    ----------
    .. [1] B. Zhang and R. Sennrich, "Root mean square layer normalization," 2019,
       arXiv:1910.07467, equation 4.
    """
    return Elementwise(
        name=name,
        module="norm",
        columns=plain(width),
        spread=Spread.TOKENS,
        forward=2,
        backward=3,
        weights=norm_weights(width, sets, bias),
        holder=Holder.NORMS,
        repeated_by=("layernorm", *blocks),
        in_feed_forward=bool(blocks),
        keeps=(kept(width, Element.RESIDUAL, Spread.TOKENS),) if sets else (),
    )


def norm_weights(width: int, sets: int, bias: bool) -> int:
    """Parameters of so many norms."""
    return sets * width * (2 if bias else 1)


def residual(name: str, width: int) -> Elementwise:
    """Adding what a block made to what it read, after dropout if there is one."""
    return Elementwise(
        name=name,
        module="residual",
        columns=plain(width),
        spread=Spread.TOKENS,
        forward=3,
        backward=3,
        keeps=(kept(width, Element.DROPOUT_MASK, Spread.TOKENS),),
    )
