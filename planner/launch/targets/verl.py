"""verl: the training step of a run on rollouts, from the hydra words of ``main_ppo``.

Source: volcengine/verl 0.7, ``verl/trainer/config/_generated_ppo_trainer.yaml`` and
``_generated_ppo_megatron_trainer.yaml`` for defaults; ``verl/workers/actor/dp_actor.py``: budgets
of tokens are of a rank and count its sequence-parallel ranks. For supervised fine-tuning
``verl/trainer/fsdp_sft_trainer.py`` with ``config/sft_trainer.yaml``, and the later
``sft_trainer.py`` with ``config/sft_trainer_engine.yaml``. For whole steps
``verl/trainer/config/rollout/rollout.yaml``, and in ``docs/advance`` one_step_off.md,
fully_async.md with ``fully_async_ppo_trainer.yaml``, and the page of the V1 async trainer.
"""

from __future__ import annotations

from dataclasses import replace

from planner.base.software_enums import Placement
from planner.base.training_aliases import Algorithm
from planner.launch.option_table import OptionTexts, Quantities
from planner.launch.target import (
    CommandWords,
    LaunchDraft,
    LaunchJob,
    LaunchTarget,
    overrides,
    user_arguments,
)
from planner.launch.targets.rl_reader_writer import (
    MODEL,
    fsdp_quantities,
    reader_of_steps,
)
from planner.launch.targets.training_reader import make_update_reader
from planner.launch.write.benchmark import STEPS, training_draft

_ACTOR = "actor_rollout_ref.actor."
_MEGATRON = f"{_ACTOR}megatron."
_CRITIC = {_MEGATRON: "critic.megatron.", f"{_ACTOR}fsdp_config.": "critic.fsdp."}
_SEPARATED_PACKAGE = "verl.experimental"
_PROGRAMS_BY_PLACEMENT = {
    Placement.COLOCATED.word: ("verl.trainer.main_ppo", "ppo"),
    Placement.ONE_STEP_OFF.word: (
        f"{_SEPARATED_PACKAGE}.one_step_off_policy.main_ppo",
        "one_step_off_ppo",
    ),
    Placement.ASYNC.word: (
        f"{_SEPARATED_PACKAGE}.fully_async_policy.fully_async_main",
        "fully_async_ppo",
    ),
}
"""Programs of verl 0.9 by placement, each with the prefix of its configurations."""


def _program_of(job: LaunchJob) -> tuple[str, str]:
    """Return the Python module that starts a planned job and the name of its configuration."""
    module, stem = _PROGRAMS_BY_PLACEMENT.get(str(job["placement"]), ("", ""))
    config_suffix = "megatron_trainer" if job.profile.name == "verl Megatron" else "trainer"
    return module, f"{stem}_{config_suffix}"


def _quantities(job: LaunchJob) -> Quantities:
    """Return what rows of verl's table compute from, for a planned job."""
    is_megatron = job.profile.name == "verl Megatron"
    has_config = job["placement"] != Placement.COLOCATED.word or is_megatron
    return {
        "program_config": _program_of(job)[1] if has_config else None,
        **({} if is_megatron else fsdp_quantities(job, "verl", _MEGATRON)),
    }


def _draft(job: LaunchJob, settings: OptionTexts) -> LaunchDraft:
    """Build the verl command of a job, with the critic's options if the algorithm is PPO."""
    module, _ = _program_of(job)
    options = overrides(settings.options)
    is_ppo = job["algorithm"] == Algorithm.PPO
    if job.hub_name is None:
        names = ["actor_rollout_ref.model.path", *(["critic.model.path"] if is_ppo else [])]
        options[:0] = [CommandWords(words=(replace(MODEL, prefix=f"{key}="),)) for key in names]
    if is_ppo:  # the critic is split as the policy
        options += overrides(
            replace(option, option=option.option.replace(actor, critic), note="")
            for option in settings.options
            for actor, critic in _CRITIC.items()
            if option.option.startswith(actor)
        )
    arguments = (
        CommandWords(words=("python3", "-m", module)),
        *options,
        *user_arguments("verl-step", job),
    )
    benchmark_prompts = STEPS * int(job["prompts_per_step"])
    benchmark_words = (
        [f"rollout.total_rollout_steps={benchmark_prompts}"] if "fully_async" in module else []
    )
    return training_draft(job, "verl", arguments, launcher="ray", extra=benchmark_words)


TARGET = reader_of_steps(
    LaunchTarget.of(
        "verl",
        answers=make_update_reader("verl"),
    ),
    profiles=("verl", "verl Megatron"),
    version="verl 0.9",
    quantities=_quantities,
    draft=_draft,
    accepted=("verl-0.9.0",),
)
