"""NeMo-RL: the training step of a run, from its YAML and the files that ``defaults`` names.

Source: NVIDIA-NeMo/RL, ``examples/configs/grpo_math_1B.yaml`` (00294d9) for defaults where the file
of ``defaults`` is missing; ``nemo_rl/utils/config.py`` (7ea279a) for ``add``, ``mul``, ``div`` and
``max``, which extend OmegaConf's ``${section.key}``.
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
    user_arguments,
)
from planner.launch.targets.rl_reader_writer import (
    fsdp_quantities,
    reader_of_steps,
    step_draft,
)
from planner.launch.targets.training_reader import make_update_reader
from planner.question.request import Request
from planner.specs.catalogue import Catalogue

_MEGATRON = "policy.megatron_cfg."


def _merge_config_files(command: ParsedCommand) -> ParsedCommand:
    """Return the command with options of its configuration files, and a note on missing files."""
    missing_files: list[str] = []
    command = with_unknown_options(command)
    options = _merge_inherited(command, missing_files)
    notes = command.notes
    if missing_files:
        names = " and ".join(missing_files)
        notes = (*notes, f"{names} not found: the values of grpo_math_1B.yaml are used.")
    return replace(command, options=resolve_references(options), notes=notes)


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
_CHECKOUT, _CHECKOUT_FOLDER = "NEMO_RL", "/opt/nemo-rl"
"""The folder of the checkout in NeMo-RL's containers."""


def _quantities(job: LaunchJob) -> Quantities:
    """Return the values of DTensor's options for a planned job; {} for those of Megatron-Core."""
    return {} if job.profile.name == "NeMo-RL" else fsdp_quantities(job, "nemo-rl", _MEGATRON)


def _draft(job: LaunchJob, settings: OptionTexts) -> LaunchDraft:
    """Build the NeMo-RL command of a reinforcement-learning job and its YAML file."""
    checkout = ShellVariable(
        name=_CHECKOUT, meaning="the checkout of NeMo-RL 0.7", default=_CHECKOUT_FOLDER
    )
    arguments = (
        CommandWords(words=("uv", "run", "--project", checkout)),
        CommandWords(words=(replace(checkout, suffix="/examples/run_grpo.py"),)),
        CommandWords(words=("--config", CONFIG)),
        *user_arguments("nemo-rl-step", job),
    )
    file = yaml_file(CONFIG, settings, "the training settings of NeMo-RL")
    return step_draft(job, "nemo-rl", arguments, files=(file,))


_DTENSOR_PROFILE = "NeMo-RL DTensor"


def _narrow_request(request: Request) -> Request:
    """Remove expert parallelism of DTensor from the request: only Megatron-Core has a key."""
    catalogue, frameworks = Catalogue(request.specs), request.framework
    names = (request.model,) if isinstance(request.model, str) else request.model
    if frameworks is None or not any(catalogue.load_model(name).num_experts for name in names):
        return request
    if isinstance(frameworks, tuple):
        return replace(
            request,
            framework=tuple(framework for framework in frameworks if framework != _DTENSOR_PROFILE),
        )
    if catalogue.load_framework(frameworks).spec.name != _DTENSOR_PROFILE:
        return request
    return replace(request, settings={"expert_parallel": 1, **request.settings})


TARGET = reader_of_steps(
    LaunchTarget.of(
        "nemo-rl",
        answers=make_update_reader("nemo-rl", _merge_config_files),
        inherits=True,
        narrowed=_narrow_request,
    ),
    profiles=("NeMo-RL", "NeMo-RL DTensor"),
    complete_command=_merge_config_files,
    version="NeMo-RL 0.7",
    quantities=_quantities,
    draft=_draft,
    accepted=("nemo-rl-0.7.0",),
)
