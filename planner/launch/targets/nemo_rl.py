"""NeMo-RL: the training step of a run, from its YAML and the files that ``defaults`` names.

Source: NVIDIA-NeMo/RL, ``examples/configs/grpo_math_1B.yaml`` (00294d9) for defaults where the file
of ``defaults`` is missing.
"""

from __future__ import annotations

from dataclasses import replace

from planner.documents.shell.edits import ParsedOption
from planner.launch.option_table import OptionTexts, Quantities
from planner.launch.read.hf_trainer.write_script import yaml_file
from planner.launch.read.parsed_launch import ParsedCommand, with_unknown_options
from planner.launch.read.references import resolve_references
from planner.launch.target import (
    CommandWords,
    LaunchDraft,
    LaunchJob,
    LaunchTarget,
    ShellVariable,
    models_of,
    user_arguments,
    without_framework,
)
from planner.launch.targets.rl_reader_writer import fsdp_quantities, reader_of_steps
from planner.launch.targets.training_reader import make_update_reader
from planner.launch.write.benchmark import training_draft
from planner.question.request import Request
from planner.specs.catalogue import Catalogue

_MEGATRON = "policy.megatron_cfg."
_MCORE, _DTENSOR = "NeMo-RL", "NeMo-RL DTensor"


def _merge_config_files(command: ParsedCommand) -> ParsedCommand:
    """Return the command with options of its configuration files, and a note on missing files."""
    missing: list[str] = []
    options = resolve_references(_merge_inherited(with_unknown_options(command), missing))
    note = f"{' and '.join(missing)} not found: the values of grpo_math_1B.yaml are used."
    notes = (*command.notes, *([note] if missing else []))
    return replace(command, options=options, unknown=(), notes=notes)


def _merge_inherited(command: ParsedCommand, missing_files: list[str]) -> dict[str, ParsedOption]:
    """Merge a document's options over those of the files it extends; later files win.

    A section with ``_override_`` (``nemo_rl/utils/config.py``), or null, replaces all its keys.
    Adds the names of missing files to ``missing_files``.
    """
    options: dict[str, ParsedOption] = {}
    for key in ("defaults", "--config"):
        base = command.options.get(key)
        for name in filter(None, () if base is None else base.texts):
            if name in command.files:
                options |= _merge_inherited(command.files[name], missing_files)
            else:
                missing_files.append(name)
    marker = "._override_"
    overridden = tuple(
        name.removesuffix(marker[1:]) if name.endswith(marker) else f"{name}."
        for name in command.options
    )
    inherited = {
        name: option
        for name, option in options.items()
        if not (overridden and name.startswith(overridden))
    }
    return {**inherited, **command.options}


CONFIG = "grpo.yaml"


def _quantities(job: LaunchJob) -> Quantities:
    """Return the values of DTensor's options for a planned job; {} for those of Megatron-Core."""
    return {} if job.profile.name == _MCORE else fsdp_quantities(job, "nemo-rl", _MEGATRON)


def _draft(job: LaunchJob, settings: OptionTexts) -> LaunchDraft:
    """Build the NeMo-RL command of a reinforcement-learning job and its YAML file."""
    # The folder of the checkout in NeMo-RL's containers.
    folder, meaning = "/opt/nemo-rl", "the checkout of NeMo-RL 0.7"
    checkout = ShellVariable(name="NEMO_RL", meaning=meaning, default=folder)
    arguments = (
        CommandWords(words=("uv", "run", "--project", checkout)),
        CommandWords(words=(replace(checkout, suffix="/examples/run_grpo.py"),)),
        CommandWords(words=("--config", CONFIG)),
        *user_arguments("nemo-rl-step", job),
    )
    files = (yaml_file(CONFIG, settings, "the training settings of NeMo-RL"),)
    return training_draft(job, "nemo-rl", arguments, launcher="ray", files=files)


def _narrow_request(request: Request) -> Request:
    """Remove expert parallelism of DTensor from the request: only Megatron-Core has a key."""
    frameworks = request.framework
    if frameworks is None or not any(model.num_experts for model in models_of(request)):
        return request
    if isinstance(frameworks, tuple):
        return without_framework(request, _DTENSOR)
    if Catalogue(request.specs).load_framework(frameworks).spec.name != _DTENSOR:
        return request
    return replace(request, settings={"expert_parallel": 1, **request.settings})


TARGET = reader_of_steps(
    LaunchTarget.of(
        "nemo-rl",
        answers=make_update_reader("nemo-rl", _merge_config_files),
        inherits=True,
        narrowed=_narrow_request,
    ),
    profiles=(_MCORE, _DTENSOR),
    complete_command=_merge_config_files,
    version="NeMo-RL 0.7",
    quantities=_quantities,
    draft=_draft,
    accepted=("nemo-rl-0.7.0",),
)
