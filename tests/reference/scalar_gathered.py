"""Whole weights and gradients that ZeRO-3 holds at once, one configuration at a time."""

from __future__ import annotations

from scalar_adapters import trained_in_end, trained_in_layer, trained_in_stages, weight_bytes
from scalar_machine import Layout, World
from scalar_offload import WEIGHTS
from scalar_parameters import end_parameters, layer_parameters, stage_parameters, stages


def whole_weights(world: World, layout: Layout, stage: int) -> float:
    """All weights of a stage on one GPU."""
    of_layer, of_end = weight_bytes(world, layout)
    ends = end_parameters(world.model, layout, stage)
    return (sum(stage_parameters(world, layout)[stage]) - ends) * of_layer + ends * of_end


def gathered(world: World, layout: Layout, stage: int) -> float:
    """Whole weights and gradients of the units alive; FSDP's stage 2 keeps all weights.

    FSDP behind a pipeline keeps all gradients until the last micro-batch.
    """
    model, states = world.model, world.framework.states
    on_host = layout.offload in WEIGHTS
    if layout.zero_stage < states.weights_sharded_from and not on_host:
        return 0.0
    held = {index: model.layer_groups[index] for index in stages(model, layout)[stage]}
    of_layer, of_end = weight_bytes(world, layout)
    matrix = model.vocab_size * model.hidden_size / layout.tensor_parallel
    together = world.framework.memory.gathered_layers
    layers = [sum(layer_parameters(model, group, layout)) for group in held.values()]
    weights = max(max(layers) * together * of_layer, matrix * of_end)
    if own := world.framework.memory.max_live_parameters:
        live = layout.stage3_max_live_parameters or own
        own_stage = sum(stage_parameters(world, layout)[stage])
        weights = max(weights, min(live / own_stage, 1) * whole_weights(world, layout, stage))
    trained = [sum(trained_in_layer(world, layout, group)) for group in held.values()]
    gradients = max(max(trained) * together, trained_in_end(world, layout)[0])
    if layout.zero_stage == 2 == states.weights_sharded_from:
        weights = whole_weights(world, layout, stage)
    in_turns = not layout.layer_split and layout.pipeline_parallel > 1
    if states.weights_sharded_from == 2 and in_turns:
        gradients = sum(trained_in_stages(world, layout)[stage])
    reduced = gradients * states.gradient_on_wire
    # Under no_sync every rank adds up its whole gradients until the last micro-batch.
    is_sharded = layout.zero_stage >= states.weights_sharded_from
    if is_sharded and layout.num_micro_batches > 1:
        whole = sum(trained_in_stages(world, layout)[stage])
        reduced = max(reduced, whole * states.unsynced_gradient)
    return weights + reduced
