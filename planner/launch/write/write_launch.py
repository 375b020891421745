"""Launch files of a plan: writing them with their headings, and reading their plan back."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import wrap
from typing import cast

import numpy as np

from planner.base.atomic_write import write_atomically
from planner.base.formatting import (
    format_count,
    format_fit_probability,
    format_limit,
    printable,
)
from planner.base.read_files import read_bytes, read_json
from planner.base.records import record
from planner.base.units import DAY, GIB
from planner.base.version import __version__
from planner.configurations.configuration_tables import TrainingConfigurations, format_value
from planner.configurations.training_rules import unsupported
from planner.errors import LaunchError, OutputError, PlannerError, SpecError
from planner.launch import MANIFEST, SCRIPT
from planner.launch.option_table import option_aliases, shipped_rows
from planner.launch.target import (
    LaunchDraft,
    LaunchJob,
    LaunchOutputFile,
    LaunchTarget,
    Process,
    ShellVariable,
)
from planner.launch.targets import target_of
from planner.launch.wrappers import wrapper_of
from planner.optimize.result_columns import fit_probability
from planner.question.request import Request
from planner.question.terms import parameter_defaults, terms_about, terms_of
from planner.specs.catalogue import Catalogue
from planner.workloads.make_plan import evaluate, make_plan, make_single_plan
from planner.workloads.registry import workload_of
from planner.workloads.saved_plan import PLAN_FILE, SavedPlan

_PEFT_TARGETS = ("transformers", "deepspeed", "accelerate", "axolotl")
# Wrappers allowed for targets that write complete documents.
_DOCUMENT_WRAPPERS = (SCRIPT, "kubernetes")


@record(kw_only=True)
class WrittenLaunch:
    """Files that start a plan with a tool.

    Parameters
    ----------
    target : framework or engine of the files
    wrapper : ``script``, ``slurm``, ``kubernetes`` or ``kserve``
    job : plan with its model and hardware
    draft : processes and options before they are written
    files : files with their texts; the last is the plan
    """

    target: LaunchTarget
    wrapper: str
    job: LaunchJob
    draft: LaunchDraft
    files: tuple[LaunchOutputFile, ...]

    @property
    def starts(self) -> tuple[str, ...]:
        """Commands that start the plan, in order."""
        return tuple(line for file in self.files for line in file.start.splitlines())


def make_launch(request: Request, target: str, wrapper: str) -> WrittenLaunch:
    """Return the files that start a request's single configuration with a program and wrapper.

    Raises SpecError, SearchSpaceError or InfeasibleError if a name is unknown, the request has
    several configurations, or cannot run; LaunchError if target or wrapper is unknown, or cannot
    start the plan.
    """
    tool, make_files = target_of(target), wrapper_of(wrapper)
    job = LaunchJob.of(request)
    if job.learns_preferences:
        raise LaunchError(
            f"No launch file of {job['training_objective']} is written: start from one of yours, "
            "`planner estimate --from FILE --write`."
        )
    default_adapters = str(getattr(job.profile, "expert_adapters", "none"))
    if (
        tool.name not in _PEFT_TARGETS
        and (job["expert_adapters"] or default_adapters) != default_adapters
    ):
        raise LaunchError(
            f"{tool.title}: expert_adapters {job['expert_adapters']} is not written, its "
            "default is "
            f"{default_adapters}: leave it out, or start from a file of yours."
        )
    draft = tool.make_draft(job)
    if not draft.processes:  # the target writes complete documents
        if wrapper not in _DOCUMENT_WRAPPERS:
            raise LaunchError(
                f"{tool.title} starts its own documents on Kubernetes: leave --wrapper {wrapper} "
                "out, or choose the target of the engine."
            )
        make_files = wrapper_of(SCRIPT)
    plan = LaunchOutputFile(name=PLAN_FILE, text=job.saved_plan.to_toml(), meaning="the plan")
    files = (*make_files(tool, job, draft), plan)
    return WrittenLaunch(target=tool, wrapper=wrapper, job=job, draft=draft, files=files)


def restrict_to_target(request: Request, target: str) -> Request:
    """Return the request restricted to plans that the target can start.

    Unless the request names frameworks or engines, it gets the target's, else the nearest.
    Parameters take only values that the target has options for.
    """
    tool = target_of(target)
    profiles = tool.profiles or tool.nearest
    profile_kind = workload_of(request.workload).profile_kind
    if request.workload not in tool.workloads:
        return request
    if getattr(request, profile_kind) is None and request.space is None and profiles:
        profile_names = profiles if len(profiles) > 1 else profiles[0]
        is_framework = profile_kind == "framework"
        request = (
            replace(request, framework=profile_names)
            if is_framework
            else replace(request, engine=profile_names)
        )
    request = tool.narrowed(request)
    return replace(request, settings={**request.settings, **_values_with_options(request, tool)})


def _values_with_options(request: Request, tool: LaunchTarget) -> dict[str, list[str | float]]:
    """Return the values that the target can express, by parameter.

    A parameter is left out if the target can express all of its values, or none.
    """
    expressible = {}
    meshes = [
        source.mesh for source in make_plan(request).problem.sources if source.mesh is not None
    ]
    names = {*tool.table.parameters}.intersection(*(mesh.kind.names() for mesh in meshes))
    for name in sorted(names):
        numbers = {float(number) for mesh in meshes for number in mesh.values(name)}
        values = [format_value(name, number) for number in sorted(numbers)]
        expressed = [value for value in values if tool.table.can_express(name, value)]
        if 0 < len(expressed) < len(values):
            expressible[name] = expressed
    return expressible


def translate_request(request: Request, target: str) -> Request:
    """Return the request with the target's framework or engine in place of another.

    Layout, batch, precision and memory stay; the release of an engine is dropped, a missing ZeRO
    stage becomes the framework's next one, and unsupported tuning parameters are dropped.
    """
    tool, profile_kind = target_of(target), workload_of(request.workload).profile_kind
    profiles = tool.profiles or tool.nearest
    # Whether it fits does not matter here: the target may need less memory.
    plan = make_single_plan(request)
    evaluation = evaluate(plan)
    job = LaunchJob.of_plan(plan, evaluation)
    job_profile = job.profile
    is_same = job_profile.name in profiles or tool.is_of_release(job_profile)
    if is_same or not profiles or request.workload not in tool.workloads:
        return request
    if profile_kind == "engine":
        return replace(request, engine=profiles[0], engine_version=None)
    profile = Catalogue(request.specs).load_framework(profiles[0]).spec
    configurations = evaluation.candidates.configurations
    unsupported_parameters = unsupported(cast(TrainingConfigurations, configurations), profile)
    unsupported_names = {
        name for name, is_unsupported in unsupported_parameters.items() if np.any(is_unsupported)
    }
    settings, stage = dict(request.settings), int(job["zero_stage"] or 0)
    stages = profile.zero_stages
    if int(job["pipeline_parallel"]) > 1 and profile.pipeline_parallel:
        stages = profile.pipeline_zero_stages
    if "zero_stage" in unsupported_names:
        settings["zero_stage"] = min(
            (stage_option for stage_option in stages if stage_option > stage), default=max(stages)
        )
    for name in unsupported_names.intersection(terms_about("tuning")):
        settings.pop(name, None)
    return replace(request, framework=profiles[0], settings=settings)


def save_launch(folder: Path, launch: WrittenLaunch) -> tuple[Path, ...]:
    """Write the files of a launch into a directory, which is created if needed.

    An existing file is replaced only if planner wrote it and it is unchanged.

    Raises OutputError if a file of the user would be replaced, or the directory cannot be
    written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        written = {
            name: digest
            for name, digest in written_files(folder).items()
            if not Path(name).is_absolute() and ".." not in Path(name).parts
        }
        _refuse_user_files(folder, launch.files, written)
        for file in launch.files:
            _write(folder / file.name, file)
        manifest = {
            "version": __version__,
            "target": launch.target.name,
            "target_version": launch.target.version,
            "wrapper": launch.wrapper,
            "files": {file.name: _digest(file.text) for file in launch.files},
        }
        _write(
            folder / MANIFEST,
            LaunchOutputFile(name=MANIFEST, text=json.dumps(manifest, indent=1) + "\n"),
        )
    except OSError as error:
        raise OutputError(f"{folder}: cannot be written ({error.strerror or error}).") from error
    for name in set(written) - {file.name for file in launch.files}:
        path = folder / name
        if os.path.isfile(path) and _digest(_read_text(path)) == written[name]:
            path.unlink()
    return tuple(folder / file.name for file in launch.files)


def _write(path: Path, file: LaunchOutputFile) -> None:
    """Write a file of a launch and its parent folders; set its executable bit if needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(path) as stream:
        stream.write(file.text)
    if file.is_executable:
        path.chmod(path.stat().st_mode | 0o111)


def _refuse_user_files(
    folder: Path, files: Sequence[LaunchOutputFile], written: dict[str, str]
) -> None:
    """Raise OutputError if a file to replace was written or changed by the user.

    ``written`` has digests of the files that planner wrote, by name.
    """
    for file in files:
        path = folder / file.name
        if not os.path.exists(path):
            continue
        text = _read_text(path)
        if text != file.text and written.get(file.name) != _digest(text):
            raise OutputError(
                f"{path}: was changed since planner wrote it: nothing is written. Move it, or give "
                "another --output."
            )


def _read_text(path: Path) -> str:
    """Return the text of a file; empty if it cannot be read."""
    try:
        return read_bytes(path).decode(errors="replace")
    except SpecError:
        return ""


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", errors="replace")).hexdigest()


def settings_of_plan_file(
    path: Path, names: Iterable[str]
) -> tuple[Mapping[str, object], list[str]]:
    """Return values of ``names`` from the plan file in the folder of a launch file, and a note.

    Empty for files of others: `save_launch` keeps a list of its files.
    """
    try:
        is_ours = path.name in written_files(path.parent)
        plan = SavedPlan.read(path.parent / PLAN_FILE) if is_ours else None
    except PlannerError:
        plan = None
    if plan is None:
        return {}, []
    values = {**plan.answers, **plan.parameters}
    settings = {name: values[name] for name in names if values.get(name)}
    label = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in settings.items())
    return settings, [f"From {PLAN_FILE} in the same folder: {label}."] if settings else []


def written_files(folder: Path) -> dict[str, str]:
    """Return digests of the files that planner wrote into a folder, by name; empty if none."""
    try:
        table = read_json(folder / MANIFEST)
    except SpecError:
        return {}
    listed = table.get("files") if isinstance(table, dict) else None
    names = listed if isinstance(listed, dict) else {}
    return {name: digest for name, digest in names.items() if isinstance(digest, str)}


# Below this share of the activations, fragmentation means segments without gaps. [1]
_MAX_FRAGMENTATION = 0.02
_NOT_PYTORCH = ("maxtext", "llama-server", "llama-cpp")
_SEGMENTS = "expandable_segments:True"
_TARGET_REASON = "as this version needs it"


@record(kw_only=True)
class EnvironmentDefault:
    """A variable with the reason for its value.

    ``is_shell``: ``text`` is an expression of the shell, evaluated on the node.
    """

    name: str
    text: str
    reason: str
    is_shell: bool = False


def process_environment(
    target: LaunchTarget, job: LaunchJob, process: Process
) -> tuple[EnvironmentDefault, ...]:
    """Return the environment variables that the prediction assumes for a process, with reasons.

    Variables of the process come first, and replace others of the same name.

    References
    ----------
    .. [1] PyTorch, "CUDA semantics", memory management: segments that grow leave no gaps.
    .. [2] PyTorch, torchrun: OMP_NUM_THREADS is 1 for each of several processes of a node.
    """
    reasons = option_aliases("environment reason")
    target_variables = [
        EnvironmentDefault(name=name, text=text, reason=reasons.get(name, _TARGET_REASON))
        for name, text in process.environment.items()
    ]
    set_names = set(process.environment)
    defaults = [*_allocator_defaults(target, job), *_thread_defaults(job, process)]
    return (*target_variables, *(default for default in defaults if default.name not in set_names))


def link_lines(job: LaunchJob) -> tuple[str, ...]:
    """Return lines about the assumed bandwidth [GB/s] between GPUs; empty for one GPU."""
    if job.num_gpus == 1:
        return ()
    scale_up, scale_out = job.cluster.scale_up, job.cluster.scale_out
    link_type = str(scale_up.kind.value).upper() if scale_up.domain_size > 1 else "no link"
    lines = [
        f"{_format_bandwidth(scale_up.bandwidth)} per GPU and direction among "
        f"{scale_up.domain_size} GPUs "
        f"({link_type})"
    ]
    if job.num_gpus > scale_up.domain_size:
        share = f"{100 * scale_out.efficiency:.0f} % of it is reached"
        lines.append(
            f"{_format_bandwidth(scale_out.bandwidth)} per GPU and direction between them, {share}"
        )
        lines.append(
            "nccl-tests' all_reduce_perf measures both; NCCL_SOCKET_IFNAME and NCCL_IB_HCA name "
            "the interfaces where NCCL does not find them"
        )
    return tuple(lines)


def _allocator_defaults(target: LaunchTarget, job: LaunchJob) -> list[EnvironmentDefault]:
    """Return PyTorch's variable for expandable segments; empty if the plan assumes more gaps."""
    # Engines that release memory to a training cannot have expandable segments.
    if job.workload != "train" or target.name in _NOT_PYTORCH:
        return []
    memory = job.profile.memory
    if memory.fragmentation > _MAX_FRAGMENTATION:
        return []
    share = f"{100 * memory.fragmentation:.0f} % of the activations"
    platform = "HIP" if job.gpu.vendor == "AMD" else "CUDA"
    reason = f"the plan loses {share} to gaps: without it the allocator may lose more"
    return [
        EnvironmentDefault(name=f"PYTORCH_{platform}_ALLOC_CONF", text=_SEGMENTS, reason=reason)
    ]


def _thread_defaults(job: LaunchJob, process: Process) -> list[EnvironmentDefault]:
    """Return OMP_NUM_THREADS for an optimizer on the host; empty without such an optimizer. [2]"""
    if not job.is_training or job["offload"] != "optimizer" or not process.gpus_per_node:
        return []
    text = f"${{OMP_NUM_THREADS:-$(($(nproc) / {process.gpus_per_node}))}}"
    reason = "the optimizer runs on all cores of the host; launchers give each process one"
    return [EnvironmentDefault(name="OMP_NUM_THREADS", text=text, reason=reason, is_shell=True)]


def _format_bandwidth(bandwidth: float) -> str:
    return f"{bandwidth / 1e9:,.4g} GB/s"


WRITTEN_BY = "Written by planner"
"""First words of a line in each written file."""

_WIDTH = 96
_MEMORY = "peak_memory"
_PREDICTED_ROWS = shipped_rows("options/predicted.csv")
"""Results in a heading, by workload, in order."""
_SUFFIXES = {"s": "_s", "d": "_days", "GiB": "_gib", "USD": "_usd"}
_SCALES = {"_gib": GIB, "_days": DAY}
WRAPPER_VARIABLES = frozenset(
    {"NODE_RANK", "NUM_NODES", "MASTER_ADDR", "MASTER_PORT", "PORT", "COPY", "HOST_ADDRESS"}
)
"""Variables that wrappers set themselves."""


def one_line(text: str) -> str:
    """A text on one line, which cannot end a comment."""
    return " ".join(printable(text).split())


def comment(lines: Iterable[str]) -> list[str]:
    """Return lines as comments of a shell script or YAML file, folded; keep empty lines."""
    comment_lines = []
    for line in lines:
        indent = " " * (len(line) - len(line.lstrip(" ")))
        folded = wrap(
            one_line(line),
            _WIDTH,
            initial_indent=indent,
            subsequent_indent=indent + "  " * bool(indent),
            break_long_words=False,
            break_on_hyphens=False,
        )
        comment_lines += [f"# {part}" for part in folded] or ["#"]
    return comment_lines


def heading_lines(
    target: LaunchTarget,
    job: LaunchJob,
    draft: LaunchDraft,
    processes: Sequence[Process],
    start_lines: Sequence[str],
    extra: Sequence[str] = (),
) -> list[str]:
    """Return comment lines of a file: plan, predictions, unexpressed parameters, user's steps.

    ``start_lines`` say how to start the file, ``extra`` has further settings of the user.
    """
    lines = [
        f"{job.model.name} on {format_count(job.num_gpus)} x {job.gpu.name}, started by "
        f"{target.title}.",
        f"{WRITTEN_BY} {__version__} for {target.version}; plan.toml in the same folder is "
        "the plan.",
    ]
    lines += _section("Plan", [_settings_text(job)])
    lines += _section(
        "Predicted, with the interval that holds 90 % of published runs", _prediction_lines(job)
    )
    lines += _section("Links assumed", link_lines(job))
    lines += _section(f"{target.title} cannot express", map(str, draft.unexpressed))
    lines += _section("Left to you or the framework", map(str, draft.left))
    notes = (*draft.notes, *(note for process in processes for note in process.notes))
    lines += _section("Notes", dict.fromkeys(notes))
    variables = [
        f"{variable.name}: {variable.meaning}"
        + ("" if variable.default is None else f" ({variable.default} by default)")
        for variable in user_variables(processes)
    ]
    lines += _section("What you set", [*variables, *extra])
    lines += ["", *start_lines] if start_lines else []
    return comment(lines)


def user_variables(processes: Iterable[Process]) -> tuple[ShellVariable, ...]:
    """Return the variables in the arguments of processes that the user sets, each once."""
    variables: dict[str, ShellVariable] = {}
    for process in processes:
        for argument in (
            *process.launcher_arguments, *process.arguments, *process.follower_arguments,
        ):  # fmt: skip
            for word in argument.words:
                if isinstance(word, ShellVariable) and not is_set_by_wrapper(word.name):
                    variables.setdefault(word.name, word)
    return tuple(variables.values())


def is_set_by_wrapper(name: str) -> bool:
    """Whether wrappers set a variable: ranks in the job and addresses of its processes."""
    stem, _, index = name.rpartition("_")
    return name in WRAPPER_VARIABLES or (index.isdecimal() and stem.endswith(("_URL", "_HOST")))


def _section(title: str, lines: Iterable[str]) -> list[str]:
    inside = [f"  {line}" for line in lines if line]
    return ["", f"{title}:", *inside] if inside else []


def _settings_text(job: LaunchJob) -> str:
    """Return parameters of a plan that differ from their defaults, as ``NAME=VALUE`` texts."""
    defaults = parameter_defaults(job.workload)
    settings = (
        f"{name}={_format_value(value)}"
        for name, value in job.saved_plan.parameters.items()
        if value is not None and value != defaults.get(name)
    )
    return " ".join(settings)


def _format_value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _prediction_lines(job: LaunchJob) -> list[str]:
    """Return predicted results of a plan with their ranges, and the probability that it fits."""
    terms = terms_of(job.workload, "result")
    numbers = []
    capacity_gib = float(job.gpu.allocatable_memory / GIB)
    for name in (row["result"] for row in _PREDICTED_ROWS if row["workload"] == job.workload):
        term = terms.get(name)
        if term is None:
            continue
        suffix = _SUFFIXES.get(term.unit, "")
        scale = _SCALES.get(suffix, 1.0)
        value, low, high = (job.row.get(f"{name}{part}{suffix}") for part in ("", "_low", "_high"))
        if value is None:
            continue
        text = f"{name}: {format_limit(float(value) * scale, term.type)}"
        if name == _MEMORY:
            text += f" of {format_limit(capacity_gib * GIB, term.type)}"
        if low is not None and high is not None and not (name == _MEMORY and high > capacity_gib):
            bounds = (format_limit(float(bound) * scale, term.type) for bound in (low, high))
            text += f" ({' to '.join(bounds)})"
        numbers.append(text)
    chance = fit_probability(job.row)
    if math.isfinite(chance):
        numbers.append(f"it {format_fit_probability(chance)}")
    return numbers
