"""Bytes per parameter of weights and optimizer states under the options of a layout."""

from __future__ import annotations

from scalar_machine import Layout, World, of_gradients

MOMENTS = {"adam": 2, "sgd": 0, "momentum": 1, "lion": 1, "adafactor": 0}
BYTES = {"fp32": 4, "bf16": 2, "fp8": 1, "int8": 1 + 4 / 256}


def copy_of_weights(world: World, layout: Layout) -> float:
    states, told = world.framework.states, layout.main_params_precision
    if told == "framework":
        return states.main_weight
    return 4 if told == "fp32" and states.weight < 4 else 0


def state_bytes(world: World, layout: Layout) -> float:
    """Moments, and the copy of the weights that they update."""
    states, told = world.framework.states, layout.optimizer_state_precision
    own = (states.optimizer - states.main_weight) / 2
    if layout.main_params_precision == "bf16" and not states.main_weight:
        own = min(own, 2)
    copy = copy_of_weights(world, layout)
    return copy + MOMENTS[layout.optimizer] * BYTES.get(told, own)


def stored_bytes(world: World, layout: Layout, in_layer: bool) -> float:
    """A weight between steps: as its product reads it in both passes, if in 4 bits."""
    states = world.framework.states
    frozen = world.workload.adapter != "none"
    if in_layer and states.cached_weights and layout.precision in ("fp8", "fp4") and not frozen:
        each = 0.5625 if layout.precision == "fp4" else 1
        usual = min(states.weight, 2) if layout.main_params_precision == "bf16" else states.weight
        return usual + each * (1 if _has_one_copy(world, layout) else 2)
    if in_layer and states.quantized_weights and layout.precision == "fp4" and not frozen:
        return 2 * 0.5625
    if in_layer and states.quantized_weights and not frozen and _has_one_copy(world, layout):
        return 1.0
    return min(states.weight, 2) if layout.main_params_precision == "bf16" else states.weight


def _has_one_copy(world: World, layout: Layout) -> bool:
    """In 8 bits with one scale for a matrix, on GPUs whose products take either orientation."""
    if layout.precision != "fp8" or not world.gpu.scales_groups:
        return False
    framework = world.framework
    own = framework.fp8_recipe_of_groups or framework.fp8_recipe
    recipe = own if layout.fp8_recipe == "auto" else layout.fp8_recipe
    return recipe in ("delayed", "tensorwise")


def update_traffic(world: World, layout: Layout) -> float:
    """What an update reads and writes: states both, gradients once."""
    states = world.framework.states
    more = 2 * (state_bytes(world, layout) - states.optimizer)
    usual = Layout(num_gpus=layout.num_gpus, precision=layout.precision)
    more += of_gradients(world, layout, "gradient") - of_gradients(world, usual, "gradient")
    return states.optimizer_traffic + more


def update_temporary(world: World, layout: Layout) -> float:
    """Optimizers in 8 bit and Adafactor take one parameter after the other."""
    memory, own = world.framework.memory, 0.0
    if layout.optimizer != "adafactor" and layout.optimizer_state_precision not in ("fp8", "int8"):
        own = float(memory.optimizer_temporary)
    if not memory.step_gradients:
        return own
    gone = of_gradients(world, layout, "gradient") * (1 if layout.zero_stage == 3 else 2)
    return max(memory.step_gradients, memory.step_gradients - gone + own)
