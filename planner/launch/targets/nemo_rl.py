"""NeMo-RL: the training step of a run, from its YAML and those that ``defaults`` names beside it.

Source: NVIDIA-NeMo/RL, ``examples/configs/grpo_math_1B.yaml`` (00294d9) for what a file leaves to
the one that it begins from, which is taken where that is not beside it; ``nemo_rl/utils/config.py``
(7ea279a) for ``add``, ``mul``, ``div`` and ``max`` beside OmegaConf's ``${section.key}``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod

from planner.base.software_enums import Placement
from planner.base.training_aliases import Algorithm, TrainingObjective
from planner.documents.shell.edits import ParsedOption
from planner.documents.yaml_writer import yaml_text
from planner.errors import LaunchError
from planner.launch.hf_trainer.option_sources import TEACHER
from planner.launch.hf_trainer.write_script import nested
from planner.launch.import_launch import MODEL_SPLITS
from planner.launch.option_table import OptionTexts, ParameterNote, Quantities
from planner.launch.parsed_launch import (
    NOTHING,
    LaunchSettings,
    OptionReader,
    ParsedCommand,
    SettingsBuilder,
    flag,
    number,
    option_text,
    with_unknown_options,
)
from planner.launch.target import (
    CommandWords,
    LaunchDraft,
    LaunchJob,
    LaunchOutputFile,
    LaunchTarget,
    ShellVariable,
    option_texts,
    override,
)
from planner.launch.targets.rl_reader_writer import (
    OUTPUT,
    put_lengths,
    put_redrawn,
    put_split,
    reader_of_steps,
    step_draft,
    step_words,
    words_of_fsdp,
)
from planner.launch.targets.training_reader import (
    fsdp_profile,
    note_updates,
    put_lora,
    put_megatron_split,
    put_objective,
    put_plain,
    put_token_budget,
    require_ranks,
    unread_of_sections,
)
from planner.question.request import Request
from planner.specs.catalogue import Catalogue

_PROGRAM = re.compile(r"run_(vlm_)?(grpo|sft|dpo|rm|ppo|distillation)\w*\.py")
_OTHERS = ("sft", "dpo", "rm")
_DTENSOR, _MEGATRON = "policy.dtensor_cfg.", "policy.megatron_cfg."
_BY_TOKENS = {"policy.sequence_packing": True, "policy.dynamic_batching": False}
"""Whether grpo_math_1B.yaml has them."""
_ALGORITHMS = ("grpo.", "ppo.", "distillation.", "sft.", "dpo.", "rm.")
_CHANGED = (*_ALGORITHMS, "policy.", "cluster.")
_SECTIONS = (
    *(*_CHANGED, "loss_fn.", "data.", "env.", "logger.", "checkpointing.", "defaults", "--config"),
    *("teacher.", "value.", "value_loss_fn.", "async_rl.", "data_plane."),
)


def matches_command(words: Sequence[str]) -> bool:
    """Whether a command starts NeMo-RL."""
    return any(_PROGRAM.fullmatch(word.rpartition("/")[2]) for word in words[:3])


def matches_document(values: Mapping[str, object]) -> bool:
    """Whether a document is a configuration of NeMo-RL, or what one changes of another.

    >>> is_of({"policy.model_name": "Qwen/Qwen2.5-1.5B", "cluster.num_nodes": 1})
    True
    >>> is_of({"defaults": "grpo_math_1B.yaml", "cluster.num_nodes": 4})
    True
    """
    if "defaults" in values and any(name.startswith(_CHANGED) for name in values):
        return True
    return "policy.model_name" in values


def read_settings(reading: OptionReader) -> LaunchSettings:
    """What the update of the policy is; see the module.

    Raises LaunchError if the GPUs cannot be split as it says.
    """
    file, absent = _merge_config_files(reading.command)
    reading = replace(reading, command=file)
    found = option_texts(reading, "NeMo-RL")
    values = found.values
    precision = "fp8" if flag(reading, "policy.megatron_cfg.fp8_cfg.enabled") else "bf16"
    put_plain(found, precision)
    model = reading.text("policy.model_name") or ""
    found.require("model", None if model.lower() in NOTHING else model)
    if absent:
        names = " and ".join(absent)
        found.notes.append(f"{names} not found: the values of grpo_math_1B.yaml are used.")
    is_megatron = flag(reading, f"{_MEGATRON}enabled")
    (_on_megatron if is_megatron else _on_dtensor)(reading, found)
    length = number(reading, "policy.max_total_sequence_length")
    batch = number(reading, "policy.train_global_batch_size")
    micro = number(reading, "policy.train_micro_batch_size")
    for term, told_value, usual in (
        ("sequence_length", length, 512),
        ("global_batch_size", batch, 512),
        ("micro_batch_size", micro, 4),
    ):
        found.set(term, told_value)
        found.assume(term, usual, f"{usual} is that of grpo_math_1B.yaml")
    _gpus(reading, found)
    if "num_gpus" in values:  # with packing it counts the tokens of so many sequences
        ranks = int(values["num_gpus"]) // prod(int(values[name]) for name in MODEL_SPLITS)
        most = max(int(values["global_batch_size"]) // max(ranks, 1), 1)
        values["micro_batch_size"] = min(int(values["micro_batch_size"]), most)
    other = next((name for name in _OTHERS if _has_section(reading, name)), None)
    if other is not None:
        values["training_objective"] = other
    elif _has_section(reading, "distillation"):
        values["training_objective"] = str(TrainingObjective.SFT)
        found.notes.append(TEACHER)
    else:
        penalty = reading.amount("loss_fn.reference_policy_kl_penalty")
        skips = flag(reading, *(f"{one}{_SKIPS}" for one in _ALGORITHMS[:2]))
        has_reference = not skips and (penalty is None or penalty > 0)
        put_objective(found, has_reference, has_critic=_has_section(reading, "ppo"))
        _updates(reading, found)
    used = TARGET.table.used
    return found.build(used_options=used, **unread_of_sections(reading, _SECTIONS, used))


_SKIPS = "skip_reference_policy_logprobs_calculation"


def _merge_config_files(command: ParsedCommand) -> tuple[ParsedCommand, list[str]]:
    """With the configuration that a command names, and those that they begin from.

    Also the names of those that are not here.
    """
    absent: list[str] = []
    command = with_unknown_options(command)
    options = _inherited(command, absent)

    def value(key: str) -> str | None:
        return None if key not in options else options[key].single

    for key, option in options.items():
        if (text := option.single) and (told := interpolated(text, value)) not in (None, text):
            options[key] = replace(option, texts=(told,))
    return replace(command, options=options), absent


def _inherited(command: ParsedCommand, absent: list[str]) -> dict[str, ParsedOption]:
    """The options of a document over those that it begins from, the last of which is used.

    A section with ``_override_`` (``nemo_rl/utils/config.py``), and null, replace the whole one.
    """
    options: dict[str, ParsedOption] = {}
    for key in ("defaults", "--config"):
        given = command.options.get(key)
        for name in filter(None, () if given is None else given.texts):
            if name in command.files:
                options |= _inherited(command.files[name], absent)
            else:
                absent.append(name)
    ends = "._override_"
    over = tuple(
        name.removesuffix(ends[1:]) if name.endswith(ends) else f"{name}."
        for name in command.options
    )
    kept = {
        name: option for name, option in options.items() if not (over and name.startswith(over))
    }
    return {**kept, **command.options}


def _has_section(reading: OptionReader, name: str) -> bool:
    return any(option.startswith(f"{name}.") for option in reading.command.options)


def _on_dtensor(reading: OptionReader, settings: SettingsBuilder) -> None:
    """Sharded by FSDP2, which also splits tensors and sequences."""
    values = settings.values
    if flag(reading, f"{_DTENSOR}lora_cfg.enabled"):
        rank = number(reading, f"{_DTENSOR}lora_cfg.dim") or _RANK
        is_all = flag(reading, f"{_DTENSOR}lora_cfg.match_all_linear", default=True)
        named = [] if is_all else [f"{_DTENSOR}lora_cfg.target_modules"]
        put_lora(reading, settings, rank, *named)
    values["tensor_parallel"] = number(reading, f"{_DTENSOR}tensor_parallel_size") or 1
    values["context_parallel"] = number(reading, f"{_DTENSOR}context_parallel_size") or 1
    values["pipeline_parallel"] = 1
    if experts := number(reading, f"{_DTENSOR}expert_parallel_size"):
        values["expert_parallel"] = experts
    values["framework"] = fsdp_profile(values)
    values["zero_stage"] = 3
    values["sequence_parallel"] = flag(reading, f"{_DTENSOR}sequence_parallel")
    is_away = flag(reading, f"{_DTENSOR}cpu_offload")
    values["offload"] = "optimizer_weights" if is_away else "none"
    values["recompute"] = "full" if flag(reading, f"{_DTENSOR}activation_checkpointing") else "none"


_RANK = 8


def _on_megatron(reading: OptionReader, settings: SettingsBuilder) -> None:
    """Tensors, stages, sequences and experts split by Megatron-Core."""
    values = settings.values
    values["framework"] = "Megatron-Bridge"
    if flag(reading, f"{_MEGATRON}peft.enabled"):
        rank = number(reading, f"{_MEGATRON}peft.dim") or _RANK
        put_lora(reading, settings, rank, f"{_MEGATRON}peft.target_modules")
    put_megatron_split(reading, settings, _MEGATRON)
    if values.get("expert_parallel", 1) == 1:
        values.pop("expert_parallel", None)
        values.pop("expert_tensor_parallel", None)
    else:
        values.setdefault("expert_tensor_parallel", 1)
    values["sequence_parallel"] = flag(reading, f"{_MEGATRON}sequence_parallel")
    sharded = flag(reading, f"{_MEGATRON}optimizer.use_distributed_optimizer", default=True)
    values["zero_stage"] = 1 if sharded else 0
    is_away = flag(reading, f"{_MEGATRON}optimizer.optimizer_cpu_offload")
    values["offload"] = "optimizer" if is_away else "none"
    repeats = flag(reading, f"{_MEGATRON}activation_checkpointing")
    kind = option_text(reading, f"{_MEGATRON}recompute_granularity") or "full"
    values["recompute"] = kind if repeats else "none"


def _gpus(reading: OptionReader, settings: SettingsBuilder) -> None:
    """Those of the cluster that train: all, or but for those that generate alone."""
    values = settings.values
    each, nodes = (number(reading, f"cluster.{name}") for name in ("gpus_per_node", "num_nodes"))
    if each is None:
        settings.mark_missing("num_gpus")
        return
    total = each * (nodes or 1)
    if not flag(reading, "policy.generation.colocated.enabled", default=True):
        resources = "policy.generation.colocated.resources."
        apart = number(reading, f"{resources}gpus_per_node") or each
        apart *= number(reading, f"{resources}num_nodes") or 1
        if apart < total:
            settings.notes.append(f"Of {total} GPUs {apart} generate alone: {total - apart} train.")
            total -= apart
    values["num_gpus"] = total
    _token_budget(reading, settings, total // require_ranks(reading, settings, total))


def _token_budget(reading: OptionReader, settings: SettingsBuilder, copies: int) -> None:
    """Tokens of a micro-batch where sequences are packed, or batched by their lengths."""
    for way, usual in _BY_TOKENS.items():
        tokens = number(reading, f"{way}.train_mb_tokens")
        if tokens and flag(reading, f"{way}.enabled", default=usual):
            batch = int(settings.values["global_batch_size"])
            put_token_budget(settings, tokens, None if batch % copies else batch // copies)


def _updates(reading: OptionReader, settings: SettingsBuilder) -> None:
    """How many updates a step of its own is, and tokens of all of them."""
    sections = _ALGORITHMS[:3]
    prompts = number(reading, *(f"{section}num_prompts_per_step" for section in sections))
    each = number(reading, *(f"{section}num_generations_per_prompt" for section in sections))
    batch = settings.values["global_batch_size"]
    note_updates(settings, "NeMo-RL", (prompts or 0) * (each or 0), int(batch))


_GENERATION = "policy.generation."
_ASYNC = ("grpo.async_grpo.", "ppo.async_ppo.")
_CONTROLLED, _SAMPLER, _ORDERED = "async_rl.", "async_rl.sampler.", "in_order"
"""Of its single controller, whose weights change while answers are generated."""


def _put_step(reading: OptionReader, update: LaunchSettings, settings: SettingsBuilder) -> None:
    """What of a whole step is no row of the table: lengths, micro-batches, who runs where."""
    values = settings.values
    is_megatron = flag(reading, f"{_MEGATRON}enabled")
    values["framework"] = "NeMo-RL" if is_megatron else "NeMo-RL DTensor"
    divides = flag(reading, "grpo.normalize_rewards", default=True)
    values["algorithm"] = str(Algorithm.GRPO if divides else Algorithm.RLOO)
    if flag(reading, "grpo.use_dynamic_sampling"):
        put_redrawn(settings)
    if _has_section(reading, "ppo"):
        values["algorithm"] = str(Algorithm.PPO)
    length = int(update.values["sequence_length"])
    prompt = number(reading, "data.max_input_seq_length")
    is_own = prompt is not None and prompt < length  # the recipe has that of the whole sequence
    put_lengths(
        settings,
        length,
        number(reading, f"{_GENERATION}max_new_tokens"),
        prompt if is_own else None,
    )
    values["micro_batch_tokens"] = (number(reading, "policy.train_micro_batch_size") or 4) * length
    for way, usual in _BY_TOKENS.items():
        tokens = number(reading, f"{way}.train_mb_tokens")
        if tokens and flag(reading, f"{way}.enabled", default=usual):
            values["micro_batch_tokens"] = tokens
    steps = number(reading, "grpo.max_num_steps")
    settings.set("max_steps", None if steps == _UNBOUND else steps)
    _put_placement(reading, update, settings)


_UNBOUND = 1_000_000
"""``max_num_steps`` of grpo_math_1B.yaml: epochs bound it."""


def _put_placement(
    reading: OptionReader, update: LaunchSettings, settings: SettingsBuilder
) -> None:
    """Where trainer and engine run, and how old the weights of answers may be."""
    values = settings.values
    if values.get("engine") == "sglang":
        share = reading.amount(f"{_GENERATION}sglang_cfg.mem_fraction_static")
        settings.set("rollout_gpu_memory", share)
    is_apart = not flag(reading, f"{_GENERATION}colocated.enabled", default=True)
    age = number(reading, *(f"{one}max_trajectory_age_steps" for one in _ASYNC)) or 1
    goes_on = flag(reading, *(f"{one}in_flight_weight_updates" for one in _ASYNC))
    streams = any(flag(reading, f"{one}enabled") for one in _ASYNC)
    if any(name.startswith(_CONTROLLED) for name in reading.command.options):
        ordered = (option_text(reading, f"{_SAMPLER}name") or _ORDERED) == _ORDERED
        window = "max_lookahead_versions" if ordered else "max_staleness_versions"
        lead = reading.number(f"{_SAMPLER}{window}")
        age = 1 if lead is None else lead
        streams = goes_on = age > 0
    apart = Placement.ASYNC if streams else Placement.SEPARATE
    if streams:
        values |= {"staleness": age, "partial_rollout": goes_on}
    train = update.values.get("num_gpus")
    each, nodes = (number(reading, f"cluster.{name}") for name in ("gpus_per_node", "num_nodes"))
    rollout = (each or 0) * (nodes or 1) - int(train or 0)
    put_split(settings, apart if is_apart else Placement.COLOCATED, train, rollout)


CONFIG = "grpo.yaml"
_CHECKOUT, _FOLDER = "NEMO_RL", "/opt/nemo-rl"
"""Where its containers have it."""
_EXAMPLES = f"${{oc.env:{_CHECKOUT},{_FOLDER}}}/examples"
_DIVERGENCE = 0.01
"""``reference_policy_kl_penalty`` of grpo_math_1B.yaml."""


def _quantities(job: LaunchJob) -> Quantities:
    """What its words need that the plan has otherwise.

    Raises LaunchError if it cannot be told so.
    """
    words = step_words(job)
    if not str(job["engine"]).startswith("vllm"):
        raise LaunchError(
            f"NeMo-RL with {job['engine']} is read and not written: leave --engine out for vLLM."
        )
    if job["algorithm"] == Algorithm.PPO:
        raise LaunchError(
            "NeMo-RL's PPO, with a critic that has layouts of its own, is read and not written: "
            "--algorithm grpo, rloo or dapo."
        )
    streams = bool(words["streams"])
    if streams and job["algorithm"] == Algorithm.DAPO:
        raise LaunchError(
            "NeMo-RL draws no prompts again (dapo) in asynchronous steps: --set "
            "placement=colocated, or --algorithm grpo --no-reference-model."
        )
    samples = int(job["prompts_per_step"]) * int(job["samples_per_prompt"])
    if not job["old_logprob"] and job["global_batch_size"] != samples:
        raise LaunchError(
            "NeMo-RL computes old log-probabilities where a step has several updates: leave "
            f"--no-old-logprob out, or give --global-batch-size {samples}."
        )
    nodes, each = words.get("rollout_nodes"), words.get("rollout_each")
    if nodes is not None and job.num_nodes > 1 and each != job.gpus_per_node:
        near = max(round(int(job["train_gpus"]) / job.gpus_per_node), 1) * job.gpus_per_node
        raise LaunchError(
            f"NeMo-RL splits several nodes by whole ones alone: nearest: --set train_gpus={near}."
        )
    is_megatron = job.profile.name == "NeMo-RL"
    words |= {
        **({} if is_megatron else words_of_fsdp(job, "nemo-rl", _MEGATRON)),
        "recipe": f"{_EXAMPLES}/configs/grpo_math_1B{'_megatron' if is_megatron else ''}.yaml",
        "has_megatron": is_megatron,
        "has_dtensor": not is_megatron,
        "prompt_file": f"{_EXAMPLES}/prompts/cot.txt",
        "model_path": job.hub_name or "MODEL",
        "divergence": _DIVERGENCE if job["reference_model"] else 0,
        "corrects": streams or job["rollout_quantization"] == "fp8",
        "longest_prompt": job["input_tokens"],
        "streams": streams,
        **({} if streams else {"partial_rollout": None}),
    }
    return words


def _draft(job: LaunchJob, settings: OptionTexts) -> LaunchDraft:
    options = {each.option: each.text for each in settings.options}
    notes = {each.option: each.note for each in settings.options if each.note}
    text = yaml_text(nested(options), notes)
    checkout = ShellVariable(name=_CHECKOUT, meaning="the checkout of NeMo-RL 0.7", default=_FOLDER)
    arguments = (
        CommandWords(words=("uv", "run", "--project", checkout)),
        CommandWords(words=(replace(checkout, suffix="/examples/run_grpo.py"),)),
        CommandWords(words=("--config", CONFIG)),
        override("checkpointing.checkpoint_dir", OUTPUT.name, OUTPUT.meaning, OUTPUT.default),
    )
    file = LaunchOutputFile(name=CONFIG, text=text, meaning="what NeMo-RL trains, and how")
    return step_draft(job, "nemo-rl", arguments, files=(file,), left=_LEFT)


_LEFT = (
    ParameterNote(
        parameter="data",
        value="",
        note=f"those of the recipe: yours go into data and env of {CONFIG}",
    ),
    ParameterNote(
        parameter="learning rate",
        value="",
        note="lr of policy.megatron_cfg.optimizer or policy.optimizer, and its scheduler: yours; "
        "no effect on time or memory",
    ),
)


_DTENSOR_PROFILE = "NeMo-RL DTensor"


def _narrowed(request: Request) -> Request:
    """Experts are split by Megatron-Core alone: the recipe of DTensor has no key for it."""
    catalogue, several = Catalogue(request.specs), request.framework
    names = (request.model,) if isinstance(request.model, str) else request.model
    if several is None or not any(catalogue.load_model(name).num_experts for name in names):
        return request
    if isinstance(several, tuple):
        return replace(request, framework=tuple(one for one in several if one != _DTENSOR_PROFILE))
    if catalogue.load_framework(several).spec.name != _DTENSOR_PROFILE:
        return request
    return replace(request, settings={"expert_parallel": 1, **request.settings})


TARGET = reader_of_steps(
    LaunchTarget.of(
        "nemo-rl",
        answers=read_settings,
        starts=matches_command,
        is_of=matches_document,
        inherits=True,
        narrowed=_narrowed,
    ),
    profiles=("NeMo-RL", "NeMo-RL DTensor"),
    put=_put_step,
    whole=lambda found: _merge_config_files(found)[0],
    version="NeMo-RL 0.7",
    quantities=_quantities,
    draft=_draft,
    accepted=("nemo-rl-0.7.0",),
)


_INNERMOST = re.compile(r"\$\{([^${}]*)\}")
_CALLED = re.compile(r"(\w+):\s*([\d.]+)\s*,\s*([\d.]+)\s*")
_RESOLVERS: Mapping[str, Callable[[float, float], float]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "max": max,
}
_MOST = 32


def interpolated(text: str, value: Callable[[str], str | None]) -> str | None:
    """The text with what it refers to in place; None where that is not told.

    ``value`` is what a key has, None of one that is not there.

    >>> interpolated("${mul:${a.b}, 16}", {"a.b": "64"}.get)
    '1024'
    >>> interpolated("${oc.env:HOME}", {}.get)
    """
    for _ in range(_MOST):
        place = _INNERMOST.search(text)
        if place is None:
            return text
        inside = _told(place[1].strip(), value)
        if inside is None:
            return None
        text = text[: place.start()] + inside + text[place.end() :]
    return None


def _told(inside: str, value: Callable[[str], str | None]) -> str | None:
    called = _CALLED.fullmatch(inside)
    if called is None:
        return value(inside)
    resolver = _RESOLVERS.get(called[1])
    try:
        number = None if resolver is None else resolver(float(called[2]), float(called[3]))
    except (ValueError, ZeroDivisionError):
        return None
    if number is None:
        return None
    return str(int(number)) if number.is_integer() else str(number)
