"""prime-rl: the TOML of its ``rl`` command, with trainer, orchestrator and engine.

Source: PrimeIntellect-ai/prime-rl at 559b447, ``packages/prime-rl-configs/src/prime_rl/configs``
(``rl.py``, ``trainer.py``, ``orchestrator.py``, ``inference.py``), and the keys of its first
releases: ``inference.parallel.tp``, ``rollouts_per_example``, lists of GPUs.
"""

from __future__ import annotations

from planner.launch.target import LaunchTarget
from planner.launch.targets.rl_reader_writer import reader_of_steps
from planner.launch.targets.training_reader import make_update_reader

TARGET = reader_of_steps(
    LaunchTarget.of("prime-rl", answers=make_update_reader("prime-rl")), profiles=("prime-rl",)
)
