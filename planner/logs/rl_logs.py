"""Log formats of reinforcement learning trainers: a step with its phases.

Source: volcengine/verl 0.7 (console of ``timing_s/*``); NVIDIA-NeMo/RL, ``nemo_rl/algorithms/
grpo.py`` (its block "Timing"); OpenRLHF/OpenRLHF 021d1b0, ``openrlhf/trainer/ppo_trainer.py``;
THUDM/slime at 624b824, ``slime/observability/train_metric_utils.py``; huggingface/trl at f2cd577,
``trl/trainer/grpo_trainer.py``, whose phases are not on the console.
"""

from __future__ import annotations

import re

from planner.logs.training_logs import TrainerLogFormat, patterns

LOGPROBS, REFIT = "time_logprobs_s", "time_refit_s"
"""Phases that logs print as a sum: old and reference log-probabilities and values together, and
the hand-over of GPUs and weights."""

_NUMBER = r"(?:np\.float\d+\()?'?([\d.]+(?:e[+-]?\d+)?)"
_VERL = {
    "time_generate_s": "gen",
    "time_reward_s": "reward",
    "time_old_logprob_s": "old_log_prob",
    "time_reference_s": "(?:ref|RefPolicy)",
    "time_values_s": "(?:values|update_critic)",
    "time_update_s": "update_actor",
    "time_sync_s": "(?:update_weights|sync_rollout_weights)",
}
_NEMO = {
    "time_generate_s": "(?:exposed_)?generation",
    "time_reward_s": "reward_calculation",
    LOGPROBS: "policy_and_reference_logprobs",
    "time_update_s": "policy_training",
    REFIT: "(?:prepare_for_generation/total|weight_sync)",
}
_OPENRLHF = {
    "time_generate_s": "generation",
    LOGPROBS: "make_experience",
    "time_update_s": "ppo_train",
    REFIT: "broadcast",
}
_SLIME = {
    "time_generate_s": "rollout",
    "time_old_logprob_s": "log_probs",
    "time_reference_s": "ref_log_probs",
    "time_update_s": "actor_train",
    "time_sync_s": "update_weights",
}


def _dictionary(prefix: str, name: str) -> str:
    """A number of a dictionary of Python that a line prints."""
    return rf"'{prefix}{name}': {_NUMBER}"


def _step(text: str) -> re.Pattern[str]:
    return re.compile(text.replace(_NUMBER, _NUMBER.replace("([", "(?P<value>[")))


ROLLOUT_TRAINERS = (
    TrainerLogFormat(
        name="verl",
        title="verl",
        on_rollouts=True,
        needle="timing_s/step:",
        step=_step(rf"\bstep:(?P<step>\d+) - .*timing_s/step:{_NUMBER}"),
        facts=patterns(
            input_tokens=rf"\bprompt_length/mean:{_NUMBER}",
            output_tokens=rf"\bresponse_length/mean:{_NUMBER}",
        ),
        phases=patterns(**{name: rf"timing_s/{key}:{_NUMBER}" for name, key in _VERL.items()}),
    ),
    TrainerLogFormat(
        name="nemo-rl",
        title="NeMo-RL",
        on_rollouts=True,
        needle="Total step time:",
        step=_step(rf"Total step time: {_NUMBER}s"),
        facts=patterns(output_tokens=rf"Mean Generation Length: {_NUMBER}"),
        phases=patterns(**{name: rf"\s{key}: {_NUMBER}s \(" for name, key in _NEMO.items()}),
        phase_needle="s (",
        counted=False,
    ),
    TrainerLogFormat(
        name="openrlhf",
        title="OpenRLHF",
        on_rollouts=True,
        needle="'timing/step_total'",
        step=_step(rf"Global step (?P<step>\d+): .*{_dictionary('timing/', 'step_total')}"),
        facts=patterns(output_tokens=_dictionary("", "(?:response|generated)_length")),
        phases=patterns(**{n: _dictionary("timing/", key) for n, key in _OPENRLHF.items()}),
    ),
    TrainerLogFormat(
        name="slime",
        title="slime",
        on_rollouts=True,
        needle="'perf/step_time'",
        step=_step(rf"\bperf (?P<step>\d+): .*{_dictionary('perf/', 'step_time')}"),
        facts=patterns(output_tokens=_dictionary("rollout/", "response_len/mean")),
        phases=patterns(**{n: _dictionary("perf/", f"{key}_time") for n, key in _SLIME.items()}),
        phase_needle="'perf/",
    ),
    TrainerLogFormat(
        name="trl",
        title="TRL",
        on_rollouts=True,
        per_update=True,
        needle="'step_time'",
        step=_step(rf"'completions/.*{_dictionary('', 'step_time')}"),
        facts=patterns(output_tokens=_dictionary("completions/", "mean_length")),
        counted=False,
    ),
)
