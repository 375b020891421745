"""The models that torchtitan ships, and the configuration of a plan that needs one of its own."""

from __future__ import annotations

from typing import Any

from planner.base.enums import AttentionKind
from planner.base.records import record
from planner.errors import LaunchError
from planner.launch.config_json import config_json, without_modules
from planner.launch.job import Job
from planner.specs.model import ModelSpec
from planner.specs.model_catalogue import load_model

MODULE = "planned_config"
_BASES = {
    "llama3": "llama3_8b",
    "qwen3": "qwen3_1_7b",
    "deepseek_v3": "deepseek_v3_671b",
    "gpt_oss": "gpt_oss_20b",
}
SUFFIXES = {"fp8": "_float8", "fp4": "_nvfp4"}
_MXFP8 = ("blackwell",)


@record(kw_only=True)
class Shipped:
    """A model of torchtitan 0.3.0; ``config`` is its function in 16 bits, empty without one."""

    module: str
    flavor: str
    model: str
    config: str = ""


SHIPPED = (
    Shipped(module="llama3", flavor="1B", model="llama-3.2-1b"),
    Shipped(module="llama3", flavor="3B", model="llama-3.2-3b"),
    Shipped(module="llama3", flavor="8B", model="llama-3.1-8b", config="llama3_8b"),
    Shipped(module="llama3", flavor="70B", model="llama-3.1-70b", config="llama3_70b"),
    Shipped(module="llama3", flavor="405B", model="llama-3.1-405b"),
    Shipped(module="qwen3", flavor="0.6B", model="qwen3-0.6b", config="qwen3_0_6b"),
    Shipped(module="qwen3", flavor="1.7B", model="qwen3-1.7b", config="qwen3_1_7b"),
    Shipped(module="qwen3", flavor="4B", model="qwen3-4b"),
    Shipped(module="qwen3", flavor="8B", model="qwen3-8b"),
    Shipped(module="qwen3", flavor="14B", model="qwen3-14b", config="qwen3_14b"),
    Shipped(module="qwen3", flavor="32B", model="qwen3-32b", config="qwen3_32b"),
    Shipped(module="qwen3", flavor="30B-A3B", model="qwen3-30b-a3b", config="qwen3_30b_a3b"),
    Shipped(module="qwen3", flavor="235B-A22B", model="qwen3-235b-a22b"),
    Shipped(module="deepseek_v3", flavor="16B", model="deepseek-v2-lite", config="deepseek_v3_16b"),
    Shipped(module="deepseek_v3", flavor="236B", model="deepseek-v2"),
    Shipped(module="deepseek_v3", flavor="671B", model="deepseek-v3", config="deepseek_v3_671b"),
    Shipped(module="gpt_oss", flavor="20b", model="gpt-oss-20b", config="gpt_oss_20b"),
    Shipped(module="gpt_oss", flavor="120b", model="gpt-oss-120b", config="gpt_oss_120b"),
)


def shipped(model: ModelSpec) -> Shipped | None:
    """The shipped model of the same sizes."""
    plain = without_modules(model)
    for one in SHIPPED:
        spec = load_model(one.model)
        same = ("hidden_size", "vocab_size", "layer_groups", "tie_word_embeddings")
        if all(getattr(spec, name) == getattr(plain, name) for name in same):
            return one
    return None


def function_of(job: Job) -> str:
    """What the plan's own function is called: the model, and the precision as torchtitan does."""
    words = "".join(c if c.isalnum() else "_" for c in job.model.name.lower()).strip("_")
    name = words if words[:1].isalpha() else f"model_{words}"
    return name + SUFFIXES.get(job["precision"], "")


def own_config(job: Job, parts: list[list[str]] | None) -> str:
    """The module that has the plan's function; ``parts`` are the modules of each stage.

    Raises
    ------
    LaunchError
        Torchtitan has no model whose sizes could be those of the plan.
    """
    found = shipped(job.model)
    module = "llama3" if found is None else found.module
    shape = _shape(job.model) if found is None else ""
    base = _BASES[module]
    converters = _converters(job)
    lines = [
        '"""The plan\'s configuration, for torchtitan 0.3.0: what overrides cannot say."""',
        "",
        *_imports(module, base, bool(shape), converters),
        "",
        "",
        *([shape, "", ""] if shape else []),
        f"def {function_of(job)}():",
        f"    config = {base}()",
    ]
    joined = "".join(f"\n        {each}," for each in converters)
    listed = f"[{joined}\n    ]" if converters else "[]"
    if shape:
        lines += [
            "    model = _model()",
            f"    for converter in {listed}:",
            "        model = converter.build().convert(model)",
            f'    spec = replace(model_registry("8B"), flavor="{function_of(job)}", model=model)',
        ]
    else:
        flavor = found.flavor if found else ""
        lines += [f'    spec = model_registry("{flavor}", converters={listed})']
    lines += [
        "    config.model_spec = spec",
        "    config.loss = ChunkedLossWrapper.Config(",
        "        loss_fn=CrossEntropyLoss.Config(global_vocab_size=decoder_vocab_size(spec)),",
        "    )",
    ]
    if parts is not None:
        stages = "".join(f"\n        {part!r}," for part in parts)
        lines += [f"    config.parallelism.module_fqns_per_model_part = [{stages}\n    ]"]
    return "\n".join([*lines, "    return config", ""])


def _imports(module: str, base: str, has_shape: bool, converters: list[str]) -> list[str]:
    names = sorted({each.partition(".")[0] for each in converters})
    lines = ["from dataclasses import replace", ""] if has_shape else []
    lines += ["from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss"]
    if names:
        lines += [f"from torchtitan.components.quantization import {', '.join(names)}"]
    if has_shape:
        lines += ["from torchtitan.models import llama3"]
        lines += ["from torchtitan.models.common import ComplexRoPE, Embedding, Linear, RMSNorm"]
    return [
        *lines,
        "from torchtitan.models.common.config_utils import decoder_vocab_size",
        f"from torchtitan.models.{module} import model_registry",
        f"from torchtitan.models.{module}.config_registry import {base}",
    ]


def _converters(job: Job) -> list[str]:
    """What makes matrix products of 8 or 4 bits."""
    has_experts = bool(job.model.num_experts)
    compiled = "model_compile_enabled=True"
    if job["precision"] == "fp4":
        return [f'NVFP4LinearConverter.Config(fqns=["layers"], {compiled})']
    if job["precision"] != "fp8":
        return []
    usual = "mxfp8" if job.gpu.architecture in _MXFP8 else "tensorwise"
    if (usual if job["fp8_recipe"] == "auto" else job["fp8_recipe"]) == "mxfp8":
        linear = f"MXFP8LinearConverter.Config({compiled})"
        experts = f"MXFP8GroupedExpertsConverter.Config({compiled})"
    else:
        kept = '["lm_head", "router.gate"]' if has_experts else '["lm_head"]'
        linear = f"Float8LinearConverter.Config(filter_fqns={kept}, {compiled})"
        experts = f"Float8GroupedExpertsConverter.Config({compiled})"
    return [linear, experts] if has_experts else [linear]


def _shape(model: ModelSpec) -> str:
    """A function that builds a model of the shape of Llama's, of other sizes."""
    config: dict[str, Any] = config_json(model) or {}
    attention = model.layer_groups[0].attention
    plain = config.get("model_type") == "llama" and not config["attention_bias"]
    if not plain or attention is None or attention.kind is not AttentionKind.STANDARD:
        raise LaunchError(
            f"{model.name}: torchtitan 0.3.0 ships no model of its kind; it has Llama 3, Qwen3, "
            "DeepSeek-V3 and gpt-oss, and sizes of Llama's kind can be written: choose another "
            "target."
        )
    heads, hidden = attention.num_attention_heads, model.hidden_size
    if attention.head_dim * heads != hidden:
        raise LaunchError(
            f"{model.name}: torchtitan's Llama has heads of hidden size / heads = "
            f"{hidden / heads:g}, the plan's have {attention.head_dim}: choose another target."
        )
    values = {
        "LAYERS": model.num_hidden_layers,
        "HIDDEN": hidden,
        "HEADS": heads,
        "KEY_VALUE_HEADS": attention.num_key_value_heads,
        "FEED_FORWARD": config["intermediate_size"],
        "VOCABULARY": model.vocab_size,
        "POSITIONS": config.get("max_position_embeddings", 131072),
        "TIED": model.tie_word_embeddings,
    }
    constants = "\n".join(f"{name} = {value!r}" for name, value in values.items())
    return f"{constants}\n{_MODEL}"


# The initializers are those of the shipped models.
_MODEL = """ROPE_BASE = 10000.0  # the model's own: it changes no time and no memory


def _model():
    rope = ComplexRoPE.Config(
        dim=HIDDEN // HEADS, max_seq_len=POSITIONS, theta=ROPE_BASE, scaling="none"
    )
    embedding = llama3._EMBEDDING_SKIP_INIT if TIED else llama3._EMBEDDING_INIT
    return llama3.Llama3Model.Config(
        dim=HIDDEN,
        vocab_size=VOCABULARY,
        enable_weight_tying=TIED,
        tok_embeddings=Embedding.Config(
            num_embeddings=VOCABULARY, embedding_dim=HIDDEN, param_init=embedding
        ),
        norm=RMSNorm.Config(normalized_shape=HIDDEN, param_init=llama3._NORM_INIT),
        lm_head=Linear.Config(
            in_features=HIDDEN,
            out_features=VOCABULARY,
            param_init=llama3._output_linear_init(HIDDEN),
        ),
        layers=llama3._build_llama3_layers(
            n_layers=LAYERS,
            dim=HIDDEN,
            n_heads=HEADS,
            n_kv_heads=KEY_VALUE_HEADS,
            hidden_dim=FEED_FORWARD,
            rope=rope,
            attn_backend="flex",
        ),
    )"""
