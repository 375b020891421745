"""Write scripts on Hugging Face's Trainer: batches, adapters, arguments, files."""

from __future__ import annotations

import json
from collections.abc import Mapping

from planner.base.enums import AttentionKind
from planner.base.training_aliases import (
    names_feed_forward,
    parse_adapter_targets,
    transformers_name,
)
from planner.documents.yaml_writer import yaml_text
from planner.launch.model_shape import config_json, family_of
from planner.launch.option_table import (
    MutableQuantities,
    OptionTable,
    OptionTexts,
    ParameterNote,
    Quantities,
    Quantity,
)
from planner.launch.target import CommandWords, LaunchJob, LaunchOutputFile, ShellVariable
from planner.question.terms import terms_about

CONFIG_FILE = "config.json"
FSDP_FILE = "fsdp_config.json"
SECTION = "fsdp_config."
"""Options of this prefix are keys of the file that ``--fsdp_config`` names."""

_SFT = ("-m", "trl.scripts.sft")
_DATASET = ShellVariable(name="DATASET", meaning="data set: a name on Hugging Face, or a folder")
OUTPUT = ShellVariable(
    name="OUTPUT_DIR", meaning="where checkpoints go", default="output", is_output=True
)
RATE = ShellVariable(name="LEARNING_RATE", meaning="learning rate")
_MODEL = ShellVariable(name="MODEL_PATH", meaning="folder of the model's weights and config.json")
_TOKENIZER = ShellVariable(name="TOKENIZER", meaning="ORG/NAME or folder of the tokenizer")
_RUN_CLM = ShellVariable(name="RUN_CLM", meaning="path of run_clm.py of transformers' examples")
# Names of embedding and logits in most models of Transformers.
_ENDS = ("embed_tokens", "lm_head")
_LISTS = ("lora_target_modules", "lora_modules_to_save")

# Names of the matrices: queries and values, the rest of attention, feed-forward.
_DEFAULT_MODULES = (
    ("q_proj", "v_proj"),
    ("k_proj", "o_proj"),
    ("gate_proj", "up_proj", "down_proj"),
)
_MODULES_BY_FAMILY = {
    "gpt2": (("c_attn",), ("attn.c_proj",), ("c_fc", "mlp.c_proj")),
    "bloom": (("query_key_value",), ("dense",), ("dense_h_to_4h", "dense_4h_to_h")),
    "gpt_neox": (("query_key_value",), ("dense",), ("dense_h_to_4h", "dense_4h_to_h")),
    "opt": (("q_proj", "v_proj"), ("k_proj", "out_proj"), ("fc1", "fc2")),
}


def recomputes_in_fsdp(job: LaunchJob, *, is_sharded: bool) -> bool:
    """Whether FSDP recomputes layers in its own units; the script's option would gather twice."""
    return is_sharded and job["recompute"] == "full" and not job["recompute_num_layers"]


def offloaded_activations(job: LaunchJob) -> str | None:
    """``activations`` if an option of TRL's script offloads activations to the host, else None."""
    offloads = "activations" in job["offload"] and is_supervised(job)
    return "activations" if offloads else None


def is_supervised(job: LaunchJob) -> bool:
    """Return whether TRL's SFT script trains the model; False: ``run_clm.py`` from scratch.

    A model without a public name has no weights to start from, unless an adapter is trained.
    """
    return job.hub_name is not None or has_adapter(job)


def has_adapter(job: LaunchJob) -> bool:
    """Whether an adapter of frozen weights is trained."""
    return (job["adapter"] or "none") != "none"


def lora_modules(job: LaunchJob) -> tuple[str, ...]:
    """Return Transformers' names of the matrices with LoRA adapters."""
    targets = parse_adapter_targets(str(job["lora_targets"]))
    attention = job.model.layer_groups[-1].attention
    query_value, other_attention, feed_forward = _MODULES_BY_FAMILY.get(
        family_of(job.model) or "", _DEFAULT_MODULES
    )
    if attention is not None and attention.kind is AttentionKind.LATENT:
        query_value, other_attention = (
            ("q_b_proj" if attention.q_lora_rank else "q_proj", "kv_b_proj"),
            ("o_proj",),
        )
    if targets == "query_value":
        return query_value
    if targets != "all_linear":
        return (*query_value, *other_attention)
    if not job.model.num_experts or _adapts_experts(job):
        return (*query_value, *other_attention, *feed_forward)
    if names_shared_experts(job):
        return (*query_value, *other_attention, *(f"shared_expert.{name}" for name in feed_forward))
    return (*query_value, *other_attention)


_BITS_8 = 8


def adapter_quantities(job: LaunchJob) -> MutableQuantities:
    """Return the option values of peft's LoRA adapters; all None without an adapter."""
    names = ("lora_rank", "lora_modules", "saved_modules", "double_quantization")
    if job["lora_rank"] is None or not has_adapter(job):
        return dict.fromkeys(names)
    saves_embeddings = job["modules_to_save"] == "embeddings"
    is_8_bit = job["quantization_bits"] == _BITS_8
    return {
        **({"adapter": "lora", "quantization_bits": _BITS_8} if is_8_bit else {}),
        "lora_rank": job["lora_rank"],
        "lora_modules": " ".join(lora_modules(job)),
        "saved_modules": " ".join(_ENDS) if saves_embeddings else None,
        "double_quantization": (
            job["double_quantization"] is not False
            if job["adapter"] == "qlora" and not is_8_bit
            else None
        ),
    }


def fill_quantities(job: LaunchJob) -> MutableQuantities:
    """Quantities of packing or padding of sequences."""
    padding = job["padding"] or "packed"
    return {"packing": True} if padding == "packed" else {"padding": padding}


def _adapts_experts(job: LaunchJob) -> bool:
    """Return whether routed experts have LoRA adapters; default: if feed-forward is named."""
    expert_adapters = job["expert_adapters"]
    return expert_adapters == "each" or (
        expert_adapters is None and names_feed_forward(str(job["lora_targets"]))
    )


def names_shared_experts(job: LaunchJob) -> bool:
    """Whether shared experts can have adapters without the routed ones."""
    return family_of(job.model) == "qwen2_moe"


def expert_adapter_notes(job: LaunchJob) -> tuple[ParameterNote, ...]:
    """Return a note if peft cannot adapt all linear layers except routed experts; else ()."""
    adapts_all = (
        has_adapter(job) and parse_adapter_targets(str(job["lora_targets"])) == "all_linear"
    )
    if (
        not adapts_all
        or not job.model.num_experts
        or names_shared_experts(job)
        or _adapts_experts(job)
    ):
        return ()
    note = (
        "peft 0.21.2 also adapts routed experts if feed-forward matrices are named; "
        "the file names only those of attention"
    )
    return (ParameterNote(parameter="lora_targets", value="all_linear", note=note),)


def script_quantities(job: LaunchJob) -> Quantities:
    """Return the script's option values, without parallelism, which its launcher sets."""
    is_trl, sequence_length = is_supervised(job), job["sequence_length"]
    bf16_or_fp16 = "float16" if job["precision"] == "fp16" else "bfloat16"
    has_16_bit_weights = job.profile.name.endswith("bf16")
    return {
        **{name: job[name] for name in terms_about("training_script")},
        "gradient_accumulation_steps": job.accumulation_steps,
        "trl_length": sequence_length if is_trl else None,
        **(fill_quantities(job) if is_trl else {}),
        "block_length": None if is_trl else sequence_length,
        "training_steps": job.training_steps,
        # DeepSpeed keeps further weights in other formats.
        "weights_type": bf16_or_fp16 if has_adapter(job) or has_16_bit_weights else "float32",
        "flash_attention": job["flash_attention"] if is_trl else None,
        "attention_kernel": job["attention_kernel"] if is_trl else None,
        "trl_loss": "nll" if is_trl and job["loss_kernel"] in ("auto", "eager") else None,
        **adapter_quantities(job),
        "fused_kernels": job.profile.name in ("HF Trainer Triton", "Unsloth"),
        "optimizer_name": optimizer_name(job),
        "unnamed_optimizer": unnamed_optimizer(job),
    }


def unnamed_optimizer(job: LaunchJob) -> str | None:
    """Return the optimizer if Transformers has no name for it; None if default or named."""
    optimizer, states = job["optimizer"], job["optimizer_state_precision"]
    if (optimizer, states) == ("adam", "framework") or optimizer_name(job):
        return None
    return str(optimizer) if states == "framework" else f"{optimizer} with states in {states}"


def optimizer_name(job: LaunchJob) -> str | None:
    """The name of the optimizer in Transformers' ``optim``; None where it is the default."""
    optimizer, states = job["optimizer"], job["optimizer_state_precision"]
    return transformers_name(optimizer, states, paged=job["paged_optimizer"])


def script_settings(job: LaunchJob, **quantities: Quantity | None) -> OptionTexts:
    """The script's options; ``quantities`` replace those of the job, None writes no option."""
    table = OptionTable.load("transformers")
    return table.write_options(job.option_values({**script_quantities(job), **quantities}))


def script_arguments(
    job: LaunchJob, settings: OptionTexts, *further_arguments: CommandWords
) -> tuple[CommandWords, ...]:
    """Return the script's arguments: program, model, the user's variables and options."""
    keys = [inputs for inputs in settings.options if inputs.option.startswith(SECTION)]
    options = [inputs for inputs in settings.options if inputs not in keys]
    option_words = []
    for option in options:
        text = option.text
        texts = () if text is None else text.split() if option.option in _LISTS else (text,)
        option_words.append(CommandWords(words=(f"--{option.option}", *texts), note=option.note))
    return (
        *_program(job),
        CommandWords(words=("--output_dir", OUTPUT)),
        CommandWords(words=("--learning_rate", RATE)),
        *option_words,
        *further_arguments,
        CommandWords(words=("--logging_steps", "1")),
    )


def _program(job: LaunchJob) -> tuple[CommandWords, ...]:
    """Return the first words of the command: TRL's SFT, or ``run_clm.py`` from scratch."""
    if is_supervised(job):
        name: str | ShellVariable = job.hub_name or _MODEL
        return (
            CommandWords(words=_SFT),
            CommandWords(words=("--model_name_or_path", name)),
            CommandWords(words=("--dataset_name", _DATASET)),
        )
    config: str | ShellVariable = _MODEL if config_json(job.model) is None else CONFIG_FILE
    return (
        CommandWords(words=(_RUN_CLM,)),
        CommandWords(words=("--config_name", config), note="trained from scratch"),
        CommandWords(words=("--tokenizer_name", _TOKENIZER)),
        CommandWords(words=("--dataset_name", _DATASET)),
        CommandWords(words=("--do_train", "true")),
    )


def adapter_notes(job: LaunchJob) -> tuple[str, ...]:
    """Return a note if the model joins queries, keys and values in one matrix; else ()."""
    if not has_adapter(job) or family_of(job.model) not in ("gpt2", "bloom", "gpt_neox"):
        return ()
    return (
        "Queries, keys and values of this model are one matrix with one adapter: it has fewer "
        "parameters than the three of the plan.",
    )


def script_files(job: LaunchJob) -> tuple[LaunchOutputFile, ...]:
    """``config.json`` of a model without a public name; empty for others."""
    config = None if is_supervised(job) else config_json(job.model)
    return () if config is None else (json_file(CONFIG_FILE, config, "the model's shape"),)


def json_file(name: str, values: Mapping[str, object], meaning: str) -> LaunchOutputFile:
    """A JSON file of the values."""
    text = json.dumps(values, indent=2, ensure_ascii=False) + "\n"
    return LaunchOutputFile(name=name, text=text, meaning=meaning)


def yaml_file(name: str, settings: OptionTexts, meaning: str) -> LaunchOutputFile:
    """A YAML file of options with dotted names, each with its note."""
    notes = {option.option: option.note for option in settings.options if option.note}
    document = nest_options({option.option: option.text for option in settings.options})
    return LaunchOutputFile(name=name, text=yaml_text(document, notes), meaning=meaning)


def nest_options(settings: Mapping[str, str | None]) -> dict[str, object]:
    """Convert options with dotted names to a nested document with typed values."""
    document: dict[str, object] = {}
    sections: dict[str, dict[str, str | None]] = {}
    for option, text in settings.items():
        section, dot, key = option.partition(".")
        document.setdefault(section, None if dot else parse_scalar(text))
        if dot:
            sections.setdefault(section, {})[key] = text
    return document | {section: nest_options(keys) for section, keys in sections.items()}


def parse_scalar(text: str | None) -> Quantity:
    """Convert a text to integer, float or boolean; other texts stay. None: True (a flag).

    >>> (parse_scalar("8"), parse_scalar("1.0"), parse_scalar("true"), parse_scalar("cpu"),
    ... parse_scalar(None))
    (8, 1.0, True, 'cpu', True)
    """
    if text is None or text in ("true", "false"):
        return text != "false"
    for number_type in (int, float):
        try:
            return number_type(text)
        except ValueError:
            continue
    return text
