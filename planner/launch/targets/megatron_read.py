"""What the arguments of Megatron-LM, of its versions and of its forks say of a plan."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from planner.base.adapter_names import ExpertAdapters, targets_of
from planner.base.optimizer_names import optimizer_of
from planner.base.software_enums import MODULES, RecomputedModules
from planner.errors import LaunchError, SpecError
from planner.launch.dialect import Dialect
from planner.launch.option_table import OptionTable
from planner.launch.targets.megatron_shape import shape_read, stages_of, told_layout
from planner.launch.trainer.said import objective_of_word
from planner.launch.understood import Answers, Found, Reading, gpus_of, require_split
from planner.shell.text import Given, stated

_AS_THEY_ARE = (
    *("tensor_parallel", "context_parallel", "pipeline_parallel", "expert_parallel"),
    *("sequence_parallel", "micro_batch_size", "global_batch_size", "sequence_length"),
    *("zero_stage", "data_parallel_replicas", "offload", "precision", "flash_attention"),
    *("attention_kernel", "loss_kernel"),
    "mtp_num_layers",
)
_NUMBERS = (*_AS_THEY_ARE[:4], "micro_batch_size")
_ASKED = ("num_gpus", "global_batch_size", "sequence_length")
_TOLD = ("zero_stage", "flash_attention", "sequence_parallel")
"""Whose defaults are worth a word."""
_USED = OptionTable.load("megatron-lm").used
_EQUAL_STAGES = ("Megatron-LM", "Megatron-Bridge", "NeMo")
_OTHER_SPLITS = (
    "--pipeline-model-parallel-layout",
    "--decoder-first-pipeline-num-layers",
    "--decoder-last-pipeline-num-layers",
)
# Each counts as a layer of its stage.
_COUNTED = (
    "--account-for-embedding-in-pipeline-split",
    "--account-for-loss-in-pipeline-split",
)
_NEEDED = ("num_hidden_layers", "hidden_size", "num_attention_heads")
# What selective recomputation stands for where nobody names modules: of experts the last two.
_USUAL_MODULES = ("core_attn", "layernorm+moe_act", "layernorm+mla_up_proj+moe_act")
_DROPOUT = 0.1
# What "auto" of each profile is: the way that its runs went.
_OWN_DISPATCHER = {"Megatron-LM": "alltoall", "Megatron-Bridge": "flex", "NeMo": "flex"}
_DISPATCHER, _USUAL_DISPATCHER = "--moe-token-dispatcher-type", "allgather"


_OF_DEEPSPEED = ("--deepspeed", "--deepspeed_config", "--zero-stage", "--no-pipeline-parallel")


def is_deepspeed(words: Sequence[str]) -> bool:
    """Whether arguments of Megatron are those of a fork with DeepSpeed."""
    return any(word.partition("=")[0] in _OF_DEEPSPEED for word in words)


def plain_answers(reading: Reading) -> Answers:
    """What a command of Megatron-LM says."""
    return read_megatron(reading, framework="Megatron-LM")


_NARROW = "--grad-reduce-in-bf16"
_IN_8_BITS = "--fp8-param-gather"
_BOTH_OFFLOADS = ("--optimizer-cpu-offload", "--fine-grained-activation-offloading")


def read_megatron(reading: Reading, framework: str) -> Answers:
    """What arguments that Megatron-LM and its forks share say.

    Raises
    ------
    LaunchError
        They contradict each other, or the number of GPUs.
    """
    _refuse_contradictions(reading)
    said = {name: _whole(name, reading.value(name)) for name in _AS_THEY_ARE}
    values: dict[str, Any] = {name: text for name, text in said.items() if text is not None}
    values["framework"] = framework
    shape, notes = shape_read(reading)
    _set(values, "virtual_pipeline", _chunks(reading, shape, notes))
    _set(values, "precision", "bf16" if "precision" not in values else None)
    values |= _recomputation(reading, values)
    if all(map(reading.has, _BOTH_OFFLOADS)):
        values["offload"] = "optimizer_activations"
    values |= _optimizer(reading)
    if "dist_muon" in (reading.text("--optimizer") or ""):
        values["zero_stage"] = "1"  # its states are sharded without another option
    _set(values, "pipeline_layout", told_layout(reading, values, shape["num_hidden_layers"]))
    values["dropout"] = _dropout(reading)
    defaults = {
        name: f"{said[name]}, as {framework} does without an option"
        for name in _TOLD
        if name in reading.meanings and not reading.meanings[name].options
    }
    num_gpus = gpus_of(reading)
    _set(values, "num_gpus", num_gpus)
    sizes = {name: int(values.get(name) or 1) for name in _AS_THEY_ARE[:3]}
    require_split(reading, num_gpus, **sizes)
    _split_experts(reading, shape, values, defaults, sizes["tensor_parallel"])
    _require_experts(reading, num_gpus, values, sizes)
    _set(values, "token_dispatcher", _dispatcher(reading, framework, values, defaults))
    _require_stages(reading, shape["num_hidden_layers"], sizes["pipeline_parallel"], framework)
    _set(values, "global_batch_size", _batch(reading, values, sizes, num_gpus, defaults))
    _set(values, "total_tokens", _tokens(reading, values))
    if reading.value("precision") is None:
        notes.append("Neither --bf16 nor --fp16 is there: Megatron-LM then computes in 32 bit,")
        notes[-1] += " which is not planned; bf16 is taken."
    if reading.value("hybrid_pattern") is not None:
        shape["num_hidden_layers"] = None
        notes.append("Layers of several kinds (--hybrid-layer-pattern) are not read: the model is")
        notes[-1] += " asked for."
    if framework == "Megatron-LM" and reading.has(_IN_8_BITS):
        # Weights that lie in 8 bits alone are how NeMo trains; gradients stay Megatron-LM's.
        values = {"main_grads_precision": "fp32", **values, "framework": "NeMo"}
        notes.append(f"{_IN_8_BITS}: predicted as NeMo, whose weights lie in 8 bits alone, too.")
    is_whole = all(shape[name] for name in _NEEDED)
    asked = [name for name in (*_ASKED, *_NUMBERS) if name not in values]
    asked += ["model"] * (not is_whole)
    if is_whole and not shape["vocab_size"]:
        notes.append("The vocabulary is the tokenizer's, and the file names none that is known.")
        asked.append("model")
    return Answers(
        workload="train",
        values=values,
        shape=shape if is_whole else None,
        used=_USED | {name for name in reading.found.options if name.startswith(_ALSO_USED)},
        defaults=defaults,
        asked=tuple(asked),
        notes=tuple(notes),
    )


def _set(values: dict[str, Any], name: str, value: Any) -> None:
    if value is not None:
        values[name] = value


def _whole(name: str, text: str | None) -> str | None:
    """The text of a value; None where a number is none that text alone tells."""
    is_number = name in (*_NUMBERS, *_ASKED) and text is not None
    if is_number and not str(text).replace("_", "").isdecimal():
        return None
    return text


def _split_experts(
    reading: Reading,
    shape: Mapping[str, Any],
    values: dict[str, Any],
    defaults: dict[str, str],
    tensor: int,
) -> None:
    """Split experts as an option says, or as other matrices are.

    NVIDIA/Megatron-LM, megatron/core/parallel_state.py and megatron/training/arguments.py:
    ``expert_tensor_parallel_size`` that is None becomes ``tensor_model_parallel_size``.
    """
    is_sparse = shape.get("num_experts") or int(values.get("expert_parallel", 1)) > 1
    if not is_sparse:
        return
    if reading.has("--expert-tensor-parallel-size"):
        _set(values, "expert_tensor_parallel", reading.number("--expert-tensor-parallel-size"))
        return
    if tensor == 1:
        return
    values["expert_tensor_parallel"] = tensor
    defaults["expert_tensor_parallel"] = f"{tensor}, the tensor parallelism of the rest"


def _require_experts(
    reading: Reading, num_gpus: int | None, values: dict[str, Any], sizes: dict[str, int]
) -> None:
    """Refuse GPUs that cannot hold the experts of every stage."""
    experts = int(values.get("expert_parallel", 1))
    split = reading.number("--expert-tensor-parallel-size") or sizes["tensor_parallel"]
    if experts > 1:
        stages = sizes["pipeline_parallel"]
        names = {"pipeline_parallel": stages, "expert_parallel": experts}
        require_split(reading, num_gpus, **names, expert_tensor_parallel=split)


def _require_stages(reading: Reading, layers: int | None, stages: int, framework: str) -> None:
    """Refuse layers that are no equal stages where the file says no other split."""
    if framework not in _EQUAL_STAGES or not layers or any(map(reading.has, _OTHER_SPLITS)):
        return
    layers += sum(map(reading.has, _COUNTED))
    if layers % stages:
        raise LaunchError(
            f"{reading.found.name}:{reading.found.line}: {layers} layers are no {stages} equal "
            f"stages, which {framework} refuses: add --pipeline-model-parallel-layout, or count "
            "the embedding and the loss (--account-for-embedding-in-pipeline-split)."
        )


def _refuse_contradictions(reading: Reading) -> None:
    pairs = (
        ("--bf16", "--fp16"),
        ("--num-layers-per-virtual-pipeline-stage", "--num-virtual-stages-per-pipeline-rank"),
        ("--pipeline-model-parallel-layout", "--num-virtual-stages-per-pipeline-rank"),
        ("--pipeline-model-parallel-layout", "--num-layers-per-virtual-pipeline-stage"),
        ("--train-iters", "--train-samples"),
    )
    for one, other in pairs:
        if reading.has(one) and reading.has(other):
            lines = sorted(reading.found.options[name].line for name in (one, other))
            raise LaunchError(
                f"{reading.found.name}:{lines[1]}: {one} and {other} are both there (line "
                f"{lines[0]}): Megatron-LM refuses that; remove one of them."
            )


def _chunks(reading: Reading, shape: dict[str, Any], notes: list[str]) -> int | None:
    """Chunks of each stage."""
    stages = reading.number("--pipeline-model-parallel-size") or 1
    told = reading.number("--num-virtual-stages-per-pipeline-rank")
    layout = reading.text("--pipeline-model-parallel-layout")
    each = reading.number("--num-layers-per-virtual-pipeline-stage")
    layers: int | None = shape["num_hidden_layers"]
    if layout:
        chunks = stages_of(layout)
        if len(chunks) % stages:
            raise LaunchError(
                f"{reading.found.name}: --pipeline-model-parallel-layout has {len(chunks)} "
                f"chunks, which {stages} stages do not share."
            )
        return len(chunks) // stages
    if told or not each or not layers:
        return told
    places = layers + sum(map(reading.has, _COUNTED))
    if places % (stages * each):
        notes.append(f"{layers} layers are no multiple of {stages} stages x {each} layers.")
    return max(places // (stages * each), 1)


def _optimizer(reading: Reading) -> dict[str, Any]:
    """The optimizer and the formats of its states, where options tell them."""
    known = optimizer_of(reading.text("--optimizer") or "adam")
    kind = None if known is None else known["optimizer"].word
    if kind == "sgd":
        kind = "momentum"
    found = {"optimizer": kind}
    if reading.has("--use-precision-aware-optimizer"):
        found["optimizer_state_precision"] = reading.text("--exp-avg-dtype")
    if reading.has(_NARROW):
        found["main_grads_precision"] = "bf16"
    return {name: word for name, word in found.items() if word not in (None, "adam", "fp16")}


def _dispatcher(
    reading: Reading, framework: str, values: dict[str, Any], defaults: dict[str, str]
) -> str | None:
    """How tokens get to their experts; None where that is the profile's own way."""
    own, told = _OWN_DISPATCHER.get(framework), reading.text(_DISPATCHER)
    if own is None or not reading.number("--num-experts"):
        return None
    if told is None and framework == "Megatron-LM" and int(values.get("expert_parallel") or 1) > 1:
        told = _USUAL_DISPATCHER
        defaults["token_dispatcher"] = f"{told}, as Megatron-LM does without an option"
    # alltoall_seq of older releases sends the same.
    word = (told or own).removesuffix("_seq")
    return None if word == own else word


def _recomputation(reading: Reading, values: dict[str, Any]) -> dict[str, Any]:
    kind = reading.value("recompute")
    if kind == "selective":
        modules = set((reading.value("recompute_modules") or "core_attn").split())
        modules &= {*MODULES}
        if modules and modules <= {"mlp", "moe"}:
            return {"recompute": "feed_forward"}
        word = RecomputedModules.meant("+".join(sorted(modules or {"core_attn"})))
        if word in _USUAL_MODULES:
            return {"recompute": "selective"}
        return {"recompute": "selective", "recompute_modules": word}
    if kind != "full":
        return {} if kind is None else {"recompute": kind}
    layers = reading.number("--recompute-num-layers")
    if reading.value("recompute_method") != "block" or not layers:
        return {"recompute": "full"}
    chunks = int(values.get("virtual_pipeline") or 1)
    return {"recompute": "full", "recompute_num_layers": layers * chunks}


def _dropout(reading: Reading) -> str:
    rates = (reading.text("--attention-dropout"), reading.text("--hidden-dropout"))
    return str(any(_number(rate, _DROPOUT) > 0 for rate in rates)).lower()


def _number(text: str | None, default: float) -> float:
    try:
        return default if text is None else float(text)
    except ValueError:
        return default


def _batch(
    reading: Reading,
    values: dict[str, Any],
    sizes: dict[str, int],
    num_gpus: int | None,
    defaults: dict[str, str],
) -> int | None:
    """The global batch where none is given: a micro-batch of each data-parallel rank."""
    if "global_batch_size" in values or reading.has("--global-batch-size"):
        return None
    micro = reading.number("--micro-batch-size")
    if num_gpus is None or micro is None:
        return None
    ranks = num_gpus
    for size in sizes.values():
        ranks //= size
    defaults["global_batch_size"] = f"{micro * ranks}, a micro-batch of each data-parallel rank"
    return micro * ranks


def _tokens(reading: Reading, values: dict[str, Any]) -> float | None:
    """Tokens of the whole run."""
    length = reading.number("--seq-length")
    steps, sequences = reading.number("--train-iters"), reading.number("--train-samples")
    batch = reading.number("--global-batch-size")
    if sequences is None and steps is not None and batch is not None:
        sequences = steps * batch
    return None if sequences is None or length is None else float(sequences * length)


_ALSO_USED = (
    *("--use-", "--data-parallel-", "--moe-", "--qk-", "--account-for-", "--recompute-"),
    *("--tokenizer-", "--train-", "--vocab-", "--num-", "--fp8-"),
)
"""How options begin that told something beside those of the table."""


_COMMANDS = ("sft", "pt", "rlhf")
_CONVERTED = re.compile(r"[-_](mcore|megatron)$", re.IGNORECASE)
_SHORT = "--model-parallel-size"
_EXPERTS = "--expert-tensor-parallel-size"
_KINDS = ("tuner_type", "train_type")
_DIALECT = Dialect.load("megatron-swift")


def starts_swift(words: Sequence[str]) -> bool:
    """Whether a command trains by it.

    >>> starts_swift(["megatron", "sft"]), starts_swift(["megatron", "export"])
    (True, False)
    """
    return len(words) > 1 and words[0] == "megatron" and words[1] in _COMMANDS


def answers(reading: Reading) -> Answers:
    """What a command of Megatron-LM says, or one of ms-swift that trains by it.

    Raises
    ------
    LaunchError
        Options contradict each other, or the number of GPUs.
    SpecError
        It trains something that is not predicted.
    """
    words = [text for given in reading.found.positional for text in given.texts if text]
    if not starts_swift(words[:2]):
        return plain_answers(reading)
    found, model = _options(reading.found)
    reading = Reading.of(found, OptionTable.load("megatron-lm"))
    own = {one.option.lstrip("-").replace("-", "_"): one for one in found.unknown}
    read = plain_answers(reading)
    values, defaults = dict(read.values), dict(read.defaults)
    for row in _DIALECT.defaults:
        if not reading.has(row.into):
            values[row.term], defaults[row.term] = row.word, row.note
    values |= {"dropout": "false", **_trained(own, words[1], reading.found.name, defaults)}
    if length := _text(own, "max_length"):
        values["sequence_length"] = length
    if model := model or _converted(reading):
        values["model"] = model
    notes = [note for note in read.notes if "--bf16" not in note]
    if values["adapter"] != "none":
        values["framework"] = "Megatron-Bridge"
        notes.append("Adapters on Megatron are predicted as Megatron-Bridge's.")
    asked = tuple(name for name in read.asked if name not in values)
    return replace(
        read,
        values=values,
        defaults=defaults,
        asked=asked,
        notes=tuple(notes),
        used=read.used | _named(own, _DIALECT.names("used")) | {"--load"},
        ignored=read.ignored | _named(own, _DIALECT.names("ignored")),
    )


def _trained(
    own: dict[str, Given], command: str, name: str, defaults: dict[str, str]
) -> dict[str, Any]:
    """All weights, or adapters with those of each expert."""
    found: dict[str, Any] = {}
    if word := _text(own, "rlhf_type"):
        found["training_objective"] = str(objective_of_word(word, name))
    elif command == "sft":
        found["training_objective"] = "sft"
    kind = next((text for one in _KINDS if (text := _text(own, one))), "full")
    if kind not in ("full", "lora"):
        raise SpecError(
            f"{name}: ms-swift's train_type {kind} is not predicted, as it trains or keeps other "
            "parameters: lora and full are."
        )
    if kind == "full":
        return {**found, "adapter": "none"}
    rank = _text(own, "lora_rank")
    if rank is None:
        defaults["lora_rank"] = "no lora_rank: 8 is ms-swift's"
    modules = (_text(own, "target_modules") or "all-linear").split()
    return {
        **found,
        "adapter": "lora",
        "lora_rank": rank or "8",
        "lora_targets": str(targets_of(modules)),
        "expert_adapters": str(ExpertAdapters.EACH),
    }


def _converted(reading: Reading) -> str | None:
    """The model by the folder of converted weights that ``--load`` names."""
    folder = (reading.text("--load") or "").rstrip("/").rpartition("/")[2]
    return _CONVERTED.sub("", folder) or None


def _options(found: Found) -> tuple[Found, str | None]:
    """The options as ms-swift's parser has them, and the model.

    Experts are whole where nothing splits them; its flags take a word, which Megatron-LM's own do
    not; and there its ``--model`` is the short form of another option.
    """
    named = found.options.get(_SHORT)
    off = {
        name
        for name, given in found.options.items()
        if not given.texts
        and re.search(rf"--{name[2:].replace('-', '[-_]')}[\s\\=]+false\b", found.text)
    }
    left = {name: one for name, one in found.options.items() if name not in {*off, _SHORT}}
    if _EXPERTS not in left:
        left[_EXPERTS] = stated(_EXPERTS, "1", found.line)
    return replace(found, options=left), None if named is None else named.texts[0]


def _text(own: dict[str, Given], name: str) -> str | None:
    given = own.get(name)
    texts = [text for text in given.texts if text] if given is not None else []
    return " ".join(texts) or None


def _named(own: dict[str, Given], names: Collection[str]) -> set[str]:
    return {given.option for name, given in own.items() if name in names}
