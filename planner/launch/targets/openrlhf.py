"""OpenRLHF: the training step of its command-line programs, on rollouts or on a data set.

Source: OpenRLHF/OpenRLHF 021d1b0, ``openrlhf/cli/train_ppo_ray.py``, whose options got dots in
0.10 (``--actor.num_nodes`` for ``--actor_num_nodes``); both are read.
"""

from __future__ import annotations

from planner.launch.option_table import OptionTexts
from planner.launch.target import (
    CommandWords,
    LaunchDraft,
    LaunchJob,
    LaunchTarget,
    overrides,
    user_arguments,
)
from planner.launch.targets.rl_reader_writer import MODEL, reader_of_steps
from planner.launch.targets.training_reader import make_update_reader
from planner.launch.write.benchmark import STEPS, training_draft


def _draft(job: LaunchJob, settings: OptionTexts) -> LaunchDraft:
    """Build the OpenRLHF command of a job; the benchmark limits the number of prompts."""
    options = overrides(settings.options)
    if job.hub_name is None:
        options.insert(0, CommandWords(words=("--actor.model_name_or_path", MODEL)))
    arguments = (
        CommandWords(words=("python3", "-m", "openrlhf.cli.train_ppo_ray")),
        *options,
        *user_arguments("openrlhf-step", job),
    )
    benchmark_prompts = STEPS * int(job["prompts_per_step"])
    benchmark_words = ("--data.max_samples", str(benchmark_prompts))
    return training_draft(job, "openrlhf", arguments, launcher="ray", extra=benchmark_words)


TARGET = reader_of_steps(
    LaunchTarget.of(
        "openrlhf",
        answers=make_update_reader("openrlhf"),
    ),
    profiles=("OpenRLHF",),
    version="OpenRLHF 0.11",
    draft=_draft,
    accepted=("openrlhf-0.11.0",),
)
