"""What verl's programs read: {"argv": [...]}, behind `python3 -m`.

Hydra composes the configuration of the program and refuses keys that it does not have.
"""

from __future__ import annotations

from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

VERL = Path(str(next(iter(find_spec("verl").submodule_search_locations))))  # type: ignore[union-attr, arg-type]
CONFIGS = VERL / "trainer" / "config"


def answer(case: dict[str, Any]) -> dict[str, Any]:
    module, *words = case["argv"]
    options = dict(pairwise(words))
    named = {
        option: options[option]
        for option in ("--config-path", "--config-name")
        if option in options
    }
    overrides = [word for word in words if word not in (*named, *named.values())]
    program = VERL.joinpath(*module.split(".")[1:-1])
    folder = program / "config"
    if folder != CONFIGS:  # as its configurations do in a checkout
        overrides.append(f"hydra.searchpath=[file://{CONFIGS}]")
    with initialize_config_dir(str(folder), version_base=None):
        config = compose(named.get("--config-name", "ppo_trainer"), overrides=overrides)
    OmegaConf.to_container(config, resolve=True)
    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    return {
        "global_batch_size": actor.ppo_mini_batch_size * rollout.n,
        "samples_per_prompt": rollout.n,
        "rollout_tensor_parallel": rollout.tensor_model_parallel_size,
        "train_gpus": config.trainer.nnodes * config.trainer.n_gpus_per_node,
        "missing": sorted(OmegaConf.missing_keys(config)),
    }
