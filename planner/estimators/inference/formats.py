"""Bytes that a weight takes, by the format of a configuration and the part of a layer."""

from __future__ import annotations

import numpy as np

from planner.base.arrays import CodeArray, FloatArray
from planner.base.enums import Quantization
from planner.base.records import record
from planner.estimators.inference.setting import ServingSetting
from planner.layers.model import Layer
from planner.specs.checkpoint import Checkpoint
from planner.specs.quantization import FORMATS, SIXTEEN_BIT_BYTES


@record(kw_only=True)
class WeightFormats:
    """Bytes per weight by code of `planner.base.enums.Quantization`, as a checkpoint stores them.

    ``kept``: by part, whether a code leaves it in 16 bit; ``whole_layers``: share of the layers
    of which it leaves all matrices.
    """

    weight: FloatArray
    kept: dict[str, FloatArray]
    whole_layers: FloatArray

    def bytes_of(self, part: str, code: CodeArray) -> FloatArray:
        """Bytes per weight of a part of a layer, the mean of all layers."""
        own = self.weight[code]
        if part in self.kept:
            own = np.where(self.kept[part][code] > 0, SIXTEEN_BIT_BYTES, own)
        whole = self.whole_layers[code]
        return np.asarray(whole * SIXTEEN_BIT_BYTES + (1 - whole) * own)


def dense_part(layer: Layer) -> str:
    """What the matrices of a feed-forward that every token passes are called."""
    return "shared_experts" if layer.experts else "feed_forward"


def weight_formats(setting: ServingSetting) -> WeightFormats:
    """The formats that the engine is served of the model: published ones where there are."""
    codes = list(Quantization)
    weight = np.array([FORMATS[code].weight for code in codes])
    whole = np.zeros(len(codes))
    kept: dict[str, FloatArray] = {}
    for number, code in enumerate(codes):
        found = served_checkpoint(setting, code)
        if found is None:
            continue
        weight[number] = _stored(found, code)
        whole[number] = min(found.sixteen_bit_layers / setting.model.num_hidden_layers, 1.0)
        for part in found.sixteen_bit:
            kept.setdefault(part, np.zeros(len(codes)))[number] = 1.0
    return WeightFormats(weight=weight, kept=kept, whole_layers=whole)


def served_checkpoint(setting: ServingSetting, code: Quantization) -> Checkpoint | None:
    """The first published checkpoint of a format that the engine is served on these GPUs."""
    engine, vendor = setting.engine.name, setting.machine.gpu.vendor
    served = (
        one
        for one in setting.model.checkpoints
        if one.quantization == code.word and one.is_served(engine, vendor)
    )
    return next(served, None)


def _stored(checkpoint: Checkpoint, code: Quantization) -> float:
    """Bytes of a weight with its share of a group's scale and zero point."""
    usual = FORMATS[code].weight
    if checkpoint.group_size is None:
        return usual
    bare = 0.5 if usual < 1.0 else float(np.floor(usual))
    return bare + (checkpoint.scale_bytes + checkpoint.zero_point_bytes) / checkpoint.group_size
