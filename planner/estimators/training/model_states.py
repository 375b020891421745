"""Bytes per parameter of weights and optimizer states, by the options of a configuration."""

from __future__ import annotations

import numpy as np

from planner.base.arrays import BoolArray, CodeArray, FloatArray, Numeric, add, largest
from planner.base.enums import (
    ComputePrecision,
    Fp8Recipe,
    MainPrecision,
    OptimizerKind,
    StatePrecision,
    ZeroStage,
)
from planner.base.records import record
from planner.configurations.training import TrainingConfigurations
from planner.estimators.training.number_bytes import (
    WIDE_BYTES,
    Gradients,
    compute_bytes,
    is_narrow,
    is_wide,
)
from planner.estimators.training.sharding import StageParameters
from planner.estimators.training.share import Setting, recipe_of
from planner.formulas.memory import block_scaled_bytes, newton_schulz_flops
from planner.layers.model import Layer, layer_of
from planner.layers.operators import Experts, Product, Split
from planner.specs.framework import States

# Blocks of bitsandbytes and of torchao.
_BLOCK = 256
_STATE_BYTES = {
    StatePrecision.FP32: 4.0,
    StatePrecision.BF16: 2.0,
    StatePrecision.FP8: 1.0,
    StatePrecision.INT8: block_scaled_bytes(element_bytes=1, block=_BLOCK),
}
# Adafactor's second moment is a row and a column of each matrix. Muon's matrices have a momentum;
# embedding and logits beside them are Adam's.
_IN_LAYERS = {
    OptimizerKind.ADAM: 2,
    OptimizerKind.SGD: 0,
    OptimizerKind.MOMENTUM: 1,
    OptimizerKind.LION: 1,
    OptimizerKind.ADAFACTOR: 0,
    OptimizerKind.MUON: 1,
}
_LAYER_STATES = np.array([float(_IN_LAYERS[kind]) for kind in OptimizerKind])
_END_STATES = np.where([kind is OptimizerKind.MUON for kind in OptimizerKind], 2.0, _LAYER_STATES)


@record(kw_only=True)
class ModelStates:
    """Bytes per parameter of layers and of embedding and logits; ``traffic`` of one update.

    ``moments`` are those of the optimizer's states that are no copy of the weights.
    """

    weight: Numeric
    end_weight: Numeric
    optimizer: Numeric
    end_optimizer: Numeric
    moments: Numeric
    end_moments: Numeric
    traffic: Numeric

    @classmethod
    def of(cls, setting: Setting, c: TrainingConfigurations) -> ModelStates:
        """Those of every configuration."""
        states = setting.framework.states
        wide = is_wide(c.precision)
        if not (c.any_own_states or np.any(wide)):
            usual = states.optimizer
            return cls(
                weight=_stored_bytes(setting, c, states.weight),
                end_weight=states.weight,
                optimizer=usual,
                end_optimizer=usual,
                moments=usual - states.main_weight,
                end_moments=usual - states.main_weight,
                traffic=states.optimizer_traffic,
            )
        moment, copy = _moment_bytes(states, c), _copy_bytes(states, c)
        moments, of_end = (each[c.optimizer] * moment for each in (_LAYER_STATES, _END_STATES))
        optimizer = copy + moments
        gradients = Gradients.of(
            setting.framework, c.precision, c.main_grads_precision, c.main_params_precision
        )
        own = Gradients.of(setting.framework, c.precision)
        # What an update has beyond the framework's own is read and written, gradients are read.
        beyond = 2 * (optimizer - states.optimizer) + gradients.kept - own.kept
        # Weights that are updated themselves are as wide as the updated ones.
        narrow = c.main_params_precision == MainPrecision.BF16
        own_width = np.where(narrow, min(states.weight, 2.0), states.weight)
        weight = np.where(wide, WIDE_BYTES, own_width)
        if np.any(wide):
            in_sixteen = Gradients.of(setting.framework, setting.machine.sixteen_bit).kept
            of_gradients = np.asarray(own.kept) - in_sixteen
            # Of weights of 32 bits that are updated themselves no copy in 16 bits is written.
            updated = 0.0 if states.main_weight else states.weight
            copied = states.weight if states.main_weight else 0.0
            of_weights = 2 * (WIDE_BYTES - updated) - copied
            beyond = np.where(wide, beyond + of_gradients + of_weights, beyond)
        return cls(
            weight=_stored_bytes(setting, c, weight),
            end_weight=weight,
            optimizer=optimizer,
            end_optimizer=copy + of_end,
            moments=moments,
            end_moments=of_end,
            traffic=states.optimizer_traffic + beyond,
        )


def _moment_bytes(states: States, c: TrainingConfigurations) -> FloatArray:
    own = (states.optimizer - states.main_weight) / 2
    widths = np.array([_STATE_BYTES.get(code, own) for code in StatePrecision])
    told = c.optimizer_state_precision
    untold = is_wide(c.precision) & (told == StatePrecision.FRAMEWORK)
    return np.where(untold, max(own, WIDE_BYTES), widths[told])


def _copy_bytes(states: States, c: TrainingConfigurations) -> FloatArray:
    """Of the weights that the optimizer updates, where they are not the weights themselves."""
    in_32_bits = 0.0 if states.weight >= MAIN_BYTES[MainPrecision.FP32] else 4.0
    widths = np.array([states.main_weight, in_32_bits, 0.0])
    return np.where(is_wide(c.precision), 0.0, widths[c.main_params_precision])


def _stored_bytes(setting: Setting, c: TrainingConfigurations, usual: Numeric) -> Numeric:
    """Weights of layers as they lie there between steps.

    In 4 bits they lie in both orientations, as the products of both passes read them. In 8 bits
    with one scale for a matrix one is enough where products take either; Hopper and scales of
    groups need both, which are as many bytes as 16 bits. Transformer Engine caches these beside
    the 16-bit weights unless they are the weights themselves (2.x, ``pytorch/module/linear.py``,
    ``base.py`` ``get_weight_workspace``; Megatron-LM keeps the cache over micro-batches).
    """
    states = setting.framework.states
    if setting.workload.is_frozen:
        return usual
    if states.cached_weights:
        narrow = is_narrow(c.precision)
        return usual + np.where(narrow, _read_bytes(setting, c), 0.0)
    if not states.quantized_weights:
        return usual
    is_four = c.precision == ComputePrecision.FP4
    is_single = (c.precision == ComputePrecision.FP8) & _has_one_copy(setting, c)
    return np.where(is_four | is_single, _read_bytes(setting, c), usual)


def _read_bytes(setting: Setting, c: TrainingConfigurations) -> FloatArray:
    """What products of both passes read of a weight in fewer than 16 bits."""
    copies = np.where(_has_one_copy(setting, c), 1.0, 2.0)
    return np.asarray(copies * compute_bytes(c.precision))


def _has_one_copy(setting: Setting, c: TrainingConfigurations) -> BoolArray:
    """Whether products in 8 bits read a weight in one orientation."""
    if not setting.machine.gpu.scales_groups:
        return np.zeros(np.shape(c.precision), dtype=bool)
    recipe = recipe_of(setting, c)
    one_scale = (recipe == Fp8Recipe.TENSORWISE) | (recipe == Fp8Recipe.DELAYED)
    return np.asarray((c.precision == ComputePrecision.FP8) & one_scale)


MAIN_BYTES = {MainPrecision.FP32: 4.0, MainPrecision.BF16: 2.0}
"""Bytes of a weight or a gradient in each precision."""


def muon_time(
    setting: Setting, c: TrainingConfigurations, parameters: StageParameters
) -> FloatArray:
    """Seconds in which Muon makes updates orthogonal, on the stage with most work.

    Each rank does whole matrices as tensor parallelism leaves them, all of them where nothing is
    sharded.
    """
    if not np.any(c.optimizer == OptimizerKind.MUON):
        return np.zeros(())
    sharded = c.zero_stage >= ZeroStage.OPTIMIZER
    model = setting.model
    per_layer = []
    for group in model.layer_groups:
        dense, experts = _newton_schulz(layer_of(model, group), c)
        shares = (
            flops / np.where(sharded, ranks.size, 1.0)
            for flops, ranks in (
                (dense, parameters.dense_group),
                (experts, parameters.expert_group),
            )
        )
        per_layer.append(add(shares))
    counts = parameters.layers.counts
    stages = range(len(parameters.dense))
    most = largest(
        add(count * flops for count, flops in zip(counts[stage], per_layer, strict=True))
        for stage in stages
    )
    precision: CodeArray = setting.machine.sixteen_bit
    width = float(model.hidden_size)
    per_flop = setting.machine.gemm_time(width, width, width, precision) / (2 * width**3)
    return np.where(c.optimizer == OptimizerKind.MUON, most * per_flop, 0.0)


def _newton_schulz(layer: Layer, c: TrainingConfigurations) -> tuple[FloatArray, FloatArray]:
    """Operations for the matrices of one layer on one rank: of all, of routed experts."""
    t = c.tensor_parallel
    dense = [np.zeros(())]
    for product in layer.of(Product):
        split = product.split if product.sharded else Split.NONE
        rows = product.depth / np.where(split is Split.ROWS, t, 1.0)
        columns = product.columns.whole / np.where(split is Split.COLUMNS, t, 1.0)
        dense.append(newton_schulz_flops(rows=rows, columns=columns))
    experts = [np.zeros(())]
    for routed in layer.of(Experts):
        width = routed.width / c.expert_tensor_parallel
        each = newton_schulz_flops(rows=np.asarray(routed.depth), columns=width)
        experts.append(routed.matrices * routed.num_experts / c.expert_parallel * each)
    return add(dense), add(experts)
