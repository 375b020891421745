"""What the arguments of Megatron-LM, of its versions and of its forks say of a plan."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from planner.base.enums import AdapterTargets
from planner.base.software_enums import MODULES, RecomputedModules
from planner.base.training_aliases import ExpertAdapters, TrainingObjective, nearest_adapter_targets
from planner.documents.shell.edits import ParsedOption, implied_option
from planner.errors import LaunchError
from planner.launch.hf_trainer.derive_settings import ADAPTED_TOWER
from planner.launch.hf_trainer.option_sources import (
    DISTILLED,
    TEACHER,
    objective_of_word,
    refuse_unknown_training,
)
from planner.launch.option_table import (
    OptionAliasTable,
    OptionRole,
    OptionTable,
    ParserOptions,
    Quantity,
    is_command,
    is_document,
)
from planner.launch.parsed_launch import (
    LaunchSettings,
    OptionReader,
    ParsedCommand,
    SettingsBuilder,
    require_split,
    total_gpus,
)
from planner.launch.target import open_counts, option_texts
from planner.launch.targets.megatron_shape import layers_of, parse_layout, shape_read, stages_of

_TABLE = OptionTable.load("megatron-lm")
_OF_EXPERTS = {
    row.parameter
    for row in _TABLE.rows
    if "-moe-" in row.option and row.role is not OptionRole.READS
}
_EQUAL_STAGES = ("Megatron-LM", "Megatron-Bridge", "NeMo")
_LAYOUT, _CHUNKS = "--pipeline-model-parallel-layout", "--num-virtual-stages-per-pipeline-rank"
_LAYERS_OF_CHUNK = "--num-layers-per-virtual-pipeline-stage"
_OTHER_SPLITS = (_LAYOUT, *(f"--decoder-{end}-pipeline-num-layers" for end in ("first", "last")))
# Each counts as a layer of its stage.
_COUNTED = tuple(f"--account-for-{what}-in-pipeline-split" for what in ("embedding", "loss"))
_CONTRADICTIONS = (
    *(("--bf16", "--fp16"), (_LAYERS_OF_CHUNK, _CHUNKS), (_LAYOUT, _CHUNKS)),
    *((_LAYOUT, _LAYERS_OF_CHUNK), ("--train-iters", "--train-samples")),
)
_NEEDED = ("num_hidden_layers", "hidden_size", "num_attention_heads")
# What selective recomputation stands for where nobody names modules: of experts the last two.
_USUAL_MODULES = ("core_attn", "layernorm+moe_act", "layernorm+mla_up_proj+moe_act")
_AS_THE_REST = "the tensor parallelism of the rest"
_DROPOUT = 0.1
# What "auto" of each profile is: the way that its runs went.
_DEFAULT_DISPATCHER = {"Megatron-LM": "alltoall", "Megatron-Bridge": "flex", "NeMo": "flex"}
_DISPATCHER, _USUAL_DISPATCHER = "--moe-token-dispatcher-type", "allgather"


_OF_DEEPSPEED = ("--deepspeed", "--deepspeed_config", "--zero-stage", "--no-pipeline-parallel")


def is_deepspeed(words: Sequence[str]) -> bool:
    """Whether arguments of Megatron are those of a fork with DeepSpeed."""
    return any(word.partition("=")[0] in _OF_DEEPSPEED for word in words)


_IN_8_BITS, _NARROW = "--fp8-param-gather", "--grad-reduce-in-bf16"


def read_megatron(reading: OptionReader, framework: str) -> LaunchSettings:
    """What arguments that Megatron-LM and its forks share say.

    Raises LaunchError if they contradict each other, or the number of GPUs.
    """
    _refuse_contradictions(reading)
    found = option_texts(reading, framework)
    values = found.values
    values["framework"] = framework
    (shape, told), layers = shape_read(reading), layers_of(reading)
    found.notes += told
    values["virtual_pipeline"] = _chunks(reading, layers, found.notes)
    if values.setdefault("precision", "bf16") == "fp16" and not reading.has(_NARROW):
        values.pop("main_grads_precision", None)  # fp32, as its profile has them
    values |= _recomputation(reading, int(values["virtual_pipeline"] or 1))
    if "dist_muon" in (reading.text("--optimizer") or ""):
        values["zero_stage"] = "1"  # its states are sharded without another option
    layout = parse_layout(reading, values, layers)
    found.set("pipeline_layout", layout)
    # A layout deals modules of multi-token prediction, too: the model then has them.
    later = "".join(stages_of(layout)).count("m") if layout else 0
    if later and not reading.has("--mtp-num-layers"):
        values["mtp_num_layers"] = str(later)
    rates = map(reading.amount, ("--attention-dropout", "--hidden-dropout"))
    values["dropout"] = str(any((_DROPOUT if r is None else r) > 0 for r in rates)).lower()
    num_gpus = total_gpus(reading.command.resources)
    found.set("num_gpus", num_gpus)
    tensor = int(values.get("tensor_parallel") or 1)
    context = int(values.get("context_parallel") or 1)
    stages = int(values.get("pipeline_parallel") or 1)
    require_split(
        reading,
        num_gpus,
        tensor_parallel=tensor,
        context_parallel=context,
        pipeline_parallel=stages,
    )
    _split_experts(reading, shape, found, tensor)
    if (experts := int(values.get("expert_parallel", 1))) > 1:
        # The experts of every stage must find GPUs.
        held = {"pipeline_parallel": stages, "expert_parallel": experts}
        split = reading.number(_EXPERTS) or tensor
        require_split(reading, num_gpus, **held, expert_tensor_parallel=split)
    values["token_dispatcher"] = _dispatcher(reading, framework, found)
    _require_stages(reading, layers, stages, framework)
    ranks = (num_gpus or 0) // (tensor * context * stages)
    micro = reading.number("--micro-batch-size")
    if not reading.has("--global-batch-size") and num_gpus is not None and micro is not None:
        why = f"{micro * ranks}, a micro-batch of each data-parallel rank"
        found.assume("global_batch_size", micro * ranks, why)
    found.set("total_tokens", _tokens(reading))
    if reading.value("precision") is None:
        found.notes.append(
            "Neither --bf16 nor --fp16 is there: Megatron-LM then computes in 32 bit, which is not "
            "planned; bf16 is taken."
        )
    if reading.value("hybrid_pattern") is not None:
        shape["num_hidden_layers"] = None
        found.notes.append(
            "Layers of several kinds (--hybrid-layer-pattern) are not read: the model is asked for."
        )
    if framework == "Megatron-LM" and reading.has(_IN_8_BITS):
        # Weights that lie in 8 bits alone are how NeMo trains; gradients stay Megatron-LM's.
        values.setdefault("main_grads_precision", "fp32")
        values["framework"] = "NeMo"
        found.notes.append(
            f"{_IN_8_BITS}: predicted as NeMo, whose weights lie in 8 bits alone, too."
        )
    is_whole = all(shape[name] for name in _NEEDED)
    found.missing += ["num_gpus"] * (num_gpus is None) + open_counts(reading, _TABLE, values)
    if is_whole and not shape.get("num_experts"):
        found.values = without_experts(values)
    if not is_whole or not shape["vocab_size"]:
        found.mark_missing("model")
    also = {name for name in reading.command.options if name.startswith(_ALSO_USED)}
    found.values = {name: value for name, value in found.values.items() if value is not None}
    return found.build(shape=shape if is_whole else None, used_options=_TABLE.used | also)


def without_experts(values: Mapping[str, Quantity]) -> dict[str, Quantity]:
    """The values of a dense model: what options of experts say does nothing."""
    return {name: value for name, value in values.items() if name not in _OF_EXPERTS}


def _split_experts(
    reading: OptionReader, shape: Mapping[str, object], settings: SettingsBuilder, tensor: int
) -> None:
    """Split experts as an option says, or as other matrices are.

    NVIDIA/Megatron-LM, megatron/core/parallel_state.py and megatron/training/arguments.py:
    ``expert_tensor_parallel_size`` that is None becomes ``tensor_model_parallel_size``.
    """
    is_sparse = shape.get("num_experts") or int(settings.values.get("expert_parallel", 1)) > 1
    settings.values.pop("expert_tensor_parallel", None)
    if is_sparse and reading.has(_EXPERTS):
        settings.set("expert_tensor_parallel", reading.number(_EXPERTS))
    elif is_sparse and tensor > 1:
        settings.assume("expert_tensor_parallel", tensor, f"{tensor}, {_AS_THE_REST}")


def _require_stages(reading: OptionReader, layers: int | None, stages: int, framework: str) -> None:
    """Refuse layers that are no equal stages where the file says no other split."""
    if framework not in _EQUAL_STAGES or not layers or any(map(reading.has, _OTHER_SPLITS)):
        return
    layers += sum(map(reading.has, _COUNTED))
    if layers % stages:
        raise LaunchError(
            f"{reading.place}: {layers} layers are no {stages} equal "
            f"stages, which {framework} refuses: add --pipeline-model-parallel-layout, or count "
            "the embedding and the loss (--account-for-embedding-in-pipeline-split)."
        )


def _refuse_contradictions(reading: OptionReader) -> None:
    for one, other in _CONTRADICTIONS:
        if reading.has(one) and reading.has(other):
            lines = sorted(reading.command.options[name].line for name in (one, other))
            raise LaunchError(
                f"{reading.command.name}:{lines[1]}: {one} and {other} are both there (line "
                f"{lines[0]}): Megatron-LM refuses that; remove one of them."
            )


def _chunks(reading: OptionReader, layers: int | None, notes: list[str]) -> int | None:
    """Chunks of each stage."""
    stages = reading.number("--pipeline-model-parallel-size") or 1
    told, layout = reading.number(_CHUNKS), reading.text(_LAYOUT)
    each = reading.number(_LAYERS_OF_CHUNK)
    if layout:
        chunks = stages_of(layout)
        if len(chunks) % stages:
            raise LaunchError(
                f"{reading.command.name}: {_LAYOUT} has {len(chunks)} "
                f"chunks, which {stages} stages do not share."
            )
        return len(chunks) // stages
    if told or not each or not layers:
        return told
    places = layers + sum(map(reading.has, _COUNTED))
    if places % (stages * each):
        notes.append(f"{layers} layers are not a multiple of {stages} stages x {each} layers.")
    return max(places // (stages * each), 1)


def _dispatcher(reading: OptionReader, framework: str, settings: SettingsBuilder) -> str | None:
    """How tokens get to their experts; None where that is the profile's own way."""
    own, told = _DEFAULT_DISPATCHER.get(framework), reading.text(_DISPATCHER)
    if own is None or not (told or reading.number("--num-experts")):
        return None
    experts = int(settings.values.get("expert_parallel") or 1)
    if told is None and framework == "Megatron-LM" and experts > 1:
        told = _USUAL_DISPATCHER
        settings.defaults["token_dispatcher"] = f"{told}, Megatron-LM's default"
    # alltoall_seq of older releases sends the same.
    word = (told or own).removesuffix("_seq")
    return None if word == own else word


def _recomputation(reading: OptionReader, chunks: int) -> dict[str, Quantity | None]:
    """What is repeated, of how many layers of a stage."""
    kind = reading.value("recompute")
    found: dict[str, Quantity | None] = {"recompute_modules": None, "recompute_num_layers": None}
    if kind == "selective":
        modules = set((reading.value("recompute_modules") or "core_attn").split()) & {*MODULES}
        if modules and modules <= {"mlp", "moe"}:
            return {**found, "recompute": "feed_forward"}
        word = RecomputedModules.meant("+".join(sorted(modules or {"core_attn"})))
        return found if word in _USUAL_MODULES else {**found, "recompute_modules": word}
    layers = reading.number("--recompute-num-layers")
    if kind == "full" and layers and reading.value("recompute_method") == "block":
        found["recompute_num_layers"] = layers * chunks
    return found


def _tokens(reading: OptionReader) -> float | None:
    """Tokens of the whole run."""
    length, steps, sequences, batch = map(
        reading.number, ("--seq-length", "--train-iters", "--train-samples", "--global-batch-size")
    )
    if sequences is None and steps is not None and batch is not None:
        sequences = steps * batch
    return None if sequences is None or length is None else float(sequences * length)


_ALSO_USED = (
    *("--use-", "--data-parallel-", "--moe-", "--qk-", "--account-for-", "--recompute-"),
    *("--tokenizer-", "--train-", "--vocab-", "--num-", "--fp8-"),
)
"""How options begin that told something beside those of the table."""


_CONVERTED = re.compile(r"[-_](mcore|megatron)$", re.IGNORECASE)
_SHORT = "--model-parallel-size"
_EXPERTS = "--expert-tensor-parallel-size"
_KINDS = ("tuner_type", "train_type")
_SECTION = "train."
_OTHER_SECTIONS = ("rollout.", "teacher.", "ref.", "colocate_groups")
_DIALECT = OptionAliasTable.load("megatron-swift")


def is_swift_document(values: Mapping[str, object]) -> bool:
    """Whether a document is one of ``megatron sft FILE``.

    >>> is_swift_document({"tuner_type": "lora", "micro_batch_size": 1, "global_batch_size": 4})
    True
    """
    own = {name.removeprefix(_SECTION): value for name, value in values.items()}
    return is_document("megatron-swift", own)


def _with_document(command: ParsedCommand) -> ParsedCommand:
    """The document of ms-swift as the command with its options, or a command with the one it names.

    What trains has a section of its own where Ray starts it. Source: modelscope/ms-swift,
    ``swift/cli/main.py`` (``parse_yaml_args``) and ``swift/ray``.
    """
    words = [given.single or "" for given in command.positional]
    files = (file for file in command.files.values() if is_swift_document(file.options))
    named = next(files, None)
    is_alone = not words and is_swift_document(command.options)
    if not (is_alone or (named and is_command("megatron-swift", words))):
        return command
    accepted = ParserOptions.of(("megatron-lm-0.19.2",), _TABLE)
    options: dict[str, ParsedOption] = {}
    unknown = [*command.unknown]
    told = command.options if named is None else named.options
    world = command.resources
    if gpu_of_each := told.get(f"{_SECTION}gpus"):
        world = replace(world, num_gpus=gpu_of_each)
    for own_name, given in told.items():
        name = own_name.removeprefix(_SECTION)
        option = accepted.find(f"--{name.replace('_', '-')}")
        if option is None:
            unknown.append(replace(given, option=f"--{name}"))
        elif not option.is_flag:
            options[option.name] = replace(given, option=option.name)
        elif given.single == "true":
            options[option.name] = replace(given, option=option.name, texts=(), spans=())
    positional = command.positional or tuple(
        implied_option("", word) for word in ("megatron", "sft")
    )
    own = {} if is_alone else command.options
    return replace(
        command,
        options={**options, **own},
        unknown=tuple(unknown),
        positional=positional,
        resources=world,
    )


def read_settings(reading: OptionReader) -> LaunchSettings:
    """What a command of Megatron-LM says, or one of ms-swift that trains by it.

    Raises LaunchError if options contradict each other, or the number of GPUs.
    Raises SpecError if it trains something that is not predicted.
    """
    given = reading.command
    command = _with_document(given)
    words = [text for one in command.positional for text in one.texts if text]
    if not is_command("megatron-swift", words):
        return read_megatron(reading, "Megatron-LM")
    is_document = command is not given
    found, model = _options(command)
    reading = OptionReader.of(found, _TABLE)
    own = {one.option.lstrip("-").replace("-", "_"): one for one in found.unknown}
    read = read_megatron(reading, "Megatron-LM")
    values, defaults = dict(read.values), dict(read.defaults)
    for row in _DIALECT.defaults:
        if not reading.has(row.into):
            values[row.term], defaults[row.term] = row.word, row.note
    values |= {"dropout": "false", **_trained(own, words[1], reading.command.name, defaults)}
    if length := _text(own, "max_length"):
        values["sequence_length"] = length
        objective = values.get("training_objective")
        on_rollouts = bool(objective) and TrainingObjective(str(objective)).needs_rollouts
        if on_rollouts and length.isdecimal():  # prompts alone
            answer = _text(own, "max_completion_length") or "512"
            values["sequence_length"] = int(length) + int(answer)
    # The folder of converted weights is called after the model.
    folder = (reading.text("--load") or "").rstrip("/").rpartition("/")[2]
    if model := model or _CONVERTED.sub("", folder):
        values["model"] = model
    notes = [note for note in read.notes if "--bf16" not in note]
    if values["adapter"] != "none":
        values["framework"] = "Megatron-Bridge"
        notes.append("Adapters on Megatron are predicted as Megatron-Bridge's.")
    asked = tuple(name for name in read.missing if name not in values)
    is_adapted = values["adapter"] != "none"
    if frozen := _text(own, "freeze_vit"):
        values["freeze_vision_tower"] = "true" if is_adapted else frozen
        notes += [ADAPTED_TOWER] * (is_adapted and frozen == "false")
    if is_adapted and str(values.get("mtp_num_layers", "0")) != "0":
        values["mtp_num_layers"] = "0"
        notes.append("Modules of multi-token prediction beside an adapter are not predicted.")
    if _text(own, "rlhf_type") == DISTILLED:
        notes.append(TEACHER)
    whole_model = {"freeze_llm"} if _text(own, "freeze_llm") == "false" else set()
    used = _also_bare(
        read.used_options | _named(own, _DIALECT.names("used")) | {"--load", "--model"}
    )
    ignored = _also_bare(
        read.ignored_options
        | _named(own, {*_DIALECT.names("ignored"), *whole_model})
        | {name for name in given.options if name.startswith(_OTHER_SECTIONS)}
    )
    return replace(
        read,
        values=values,
        defaults=defaults,
        missing=asked,
        notes=tuple(notes),
        used_options=used,
        ignored_options=ignored - used,
        unread=read.unread | {*(found.options if is_document else ())},
    )


def _also_bare(names: Collection[str]) -> frozenset[str]:
    """Options as commands and as documents spell them."""
    bare = [name.lstrip("-").replace("-", "_") for name in names]
    return frozenset((*names, *bare, *(f"{_SECTION}{name}" for name in (*bare, "gpus"))))


def _trained(
    own: dict[str, ParsedOption], command: str, name: str, defaults: dict[str, str]
) -> dict[str, str]:
    """All weights, or adapters with those of each expert."""
    found: dict[str, str] = {}
    if word := _text(own, "rlhf_type"):
        found["training_objective"] = str(objective_of_word(word, name))
    elif command == "sft":
        found["training_objective"] = "sft"
    kind = next((text for one in _KINDS if (text := _text(own, one))), "full")
    refuse_unknown_training(kind, name)
    if kind == "full":
        return {**found, "adapter": "none"}
    rank = _text(own, "lora_rank")
    if rank is None:
        defaults["lora_rank"] = "no lora_rank: 8 is ms-swift's"
    modules, each = (_text(own, "target_modules") or "all-linear").split(), str(ExpertAdapters.EACH)
    return {
        **found,
        "adapter": "lora",
        "lora_rank": rank or "8",
        "lora_targets": str(targets := nearest_adapter_targets(modules)),
        **({"expert_adapters": each} if targets is AdapterTargets.ALL_LINEAR else {}),
    }


def _options(command: ParsedCommand) -> tuple[ParsedCommand, str | None]:
    """The options as ms-swift's parser has them, and the model.

    Experts are whole where nothing splits them; its flags take a word, which Megatron-LM's own do
    not; and there its ``--model`` is the short form of another option.
    """
    named = command.options.get(_SHORT)
    off = {
        name
        for name, option in command.options.items()
        if not option.texts
        and re.search(rf"--{name[2:].replace('-', '[-_]')}[\s\\=]+false\b", command.text)
    }
    left = {name: option for name, option in command.options.items() if name not in {*off, _SHORT}}
    if _EXPERTS not in left:
        left[_EXPERTS] = implied_option(_EXPERTS, "1", command.line)
    return replace(command, options=left), None if named is None else named.texts[0]


def _text(own: dict[str, ParsedOption], name: str) -> str | None:
    given = own.get(name)
    texts = [text for text in given.texts if text] if given is not None else []
    return " ".join(texts) or None


def _named(own: dict[str, ParsedOption], names: Collection[str]) -> set[str]:
    return {given.option for name, given in own.items() if name in names}
