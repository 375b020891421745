"""A vision tower as operators: embedding of patches, layers, projector.

References
----------
.. [1] A. Dosovitskiy et al., "An image is worth 16x16 words," 2020, arXiv:2010.11929, section 3.1.
.. [2] Qwen Team, "Qwen2.5-VL technical report," 2025, arXiv:2502.13923, section 2.1: windows, and
   four patches that an MLP makes one token of.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from planner.layers.model import Layer, describe
from planner.layers.operators import Holder, Op, Product, Split
from planner.layers.sizes import plain
from planner.specs.model import LayerGroup, VisionTower

_MODULE = "vision"


@lru_cache(maxsize=256)
def tower_layer(tower: VisionTower, group: LayerGroup) -> Layer:
    """One layer of a group of the tower."""
    return _named(describe(tower.hidden_size, group).operators)


@lru_cache(maxsize=256)
def patch_embedding(tower: VisionTower) -> Layer:
    """The product that makes a vector of each patch [1]_."""
    return _named(
        (
            Product(
                name="patch_embedding",
                module=_MODULE,
                depth=tower.patch_width,
                columns=plain(tower.hidden_size),
                split=Split.NONE,
                bias=tower.hidden_size if tower.patch_bias else 0,
                holder=Holder.EMBEDDING,
                reads="patches",
            ),
        )
    )


@lru_cache(maxsize=256)
def projector(tower: VisionTower) -> Layer:
    """What a token meets between tower and language model, as one product as large [2]_."""
    depth = tower.patches_per_token * tower.hidden_size
    return _named(
        (
            Product(
                name="projector",
                module=_MODULE,
                depth=depth,
                columns=plain(max(round(tower.projector_parameters / depth), 1)),
                split=Split.NONE,
                holder=Holder.EMBEDDING,
                reads="patches",
            ),
        )
    )


def _named(operators: tuple[Op, ...]) -> Layer:
    return Layer(
        operators=tuple(replace(op, name=f"vision_{op.name}", module=_MODULE) for op in operators)
    )
