"""The specs that runs refer to, each read once; the model and the cluster of a run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path

from planner.base.enums import AttentionKind, LinkKind, PositionEmbedding
from planner.base.units import UNITS, ceil_div
from planner.confidence.error_classes import has_experts
from planner.errors import SpecError
from planner.specs.attention import AttentionSpec
from planner.specs.catalogue import Catalogue, default_cluster
from planner.specs.engine import EngineProfile
from planner.specs.framework import FrameworkProfile
from planner.specs.gpu import ClusterSpec, GpuSpec, ScaleUp
from planner.specs.model import FeedForwardSpec, LayerGroup, ModelSpec
from planner.specs.software_profile import kind_of_profile
from planner.specs.spec_files import read_toml
from planner.specs.spec_paths import SpecKind
from planner.validation.run_tables import Run, is_path, model_rule

_VARIANT = re.compile(
    r"[-.](?:base|pt|instruct|chat|it|hf|sft|dpo|thinking|reasoning|preview|q?lora"
    r"|bf16|fp16|fp8|nvfp4|mxfp4|fp4(?:-v\d)?|int8|int4|w\d+a\d+|quantized|dynamic|block"
    r"|[48]-?bit|bnb|awq|gptq.*|gguf|kv|\d{4})$"
)


@dataclass(kw_only=True)
class Library:
    """Caches of specs by name; ``profiles`` and ``engines`` replace shipped ones of equal names."""

    catalogue: Catalogue = field(default_factory=Catalogue)
    profiles: Mapping[str, FrameworkProfile] = field(default_factory=dict)
    engines: Mapping[str, EngineProfile] = field(default_factory=dict)
    _gpus: dict[str, GpuSpec | None] = field(default_factory=dict, init=False)
    _frameworks: dict[str, FrameworkProfile] = field(default_factory=dict, init=False)
    _engines: dict[str, EngineProfile] = field(default_factory=dict, init=False)

    def gpu(self, name: str) -> GpuSpec | None:
        """Return the GPU of a name or alias; None: the catalogue lacks it. Opens no file."""
        if name not in self._gpus:
            if is_path(name):
                return None
            try:
                self.catalogue.find(SpecKind.GPUS, name)
            except SpecError:
                self._gpus[name] = None
            else:
                self._gpus[name] = self.catalogue.load_gpu(name).spec
        return self._gpus[name]

    def framework(self, name: str) -> FrameworkProfile:
        """Return the framework profile with this name."""
        if name in self.profiles:
            return self.profiles[name]
        if name not in self._frameworks:
            self._frameworks[name] = self.catalogue.load_framework(name).spec
        return self._frameworks[name]

    def engine(self, name: str) -> EngineProfile:
        """Return the engine profile with this name."""
        if name in self.engines:
            return self.engines[name]
        if name not in self._engines:
            self._engines[name] = self.catalogue.load_engine(name).spec
        return self._engines[name]

    def model(self, name: str) -> ModelSpec | None:
        """A built-in model by its name, alias or ORG/NAME in any spelling, if there is one."""
        return self._models.get(spelled(name))

    @cached_property
    def _models(self) -> dict[str, ModelSpec]:
        """Load all models by each spelling of their names and aliases."""
        models: dict[str, ModelSpec] = {}
        for name in self.catalogue.names(SpecKind.MODELS):
            model = self.catalogue.load_model(name)
            for word in (name, model.name, *model.aliases):
                models.setdefault(spelled(word), model)
        return {**_shortened(models), **models}


def _shortened(models: Mapping[str, ModelSpec]) -> dict[str, ModelSpec]:
    """Return models by name without release or format, if only one model has this name."""
    by_short_name: dict[str, list[ModelSpec]] = {}
    for word, model in models.items():
        while word := without_variant(word):
            same_name = by_short_name.setdefault(word, [])
            if not any(model is other for other in same_name):
                same_name.append(model)
    return {word: same_name[0] for word, same_name in by_short_name.items() if len(same_name) == 1}


def replacing(path: Path, catalogue: Catalogue) -> Library:
    """Return a library that uses the profile of a file in place of the built-in one.

    Raises SpecError if the file has errors, or no shipped profile has its name.
    """
    if kind_of_profile(path, catalogue.folder) is SpecKind.ENGINES:
        engine = catalogue.load_engine(str(path)).spec
        stem = _stem(engine.name, SpecKind.ENGINES, path, catalogue)
        return Library(catalogue=catalogue, engines={stem: engine})
    profile = catalogue.load_framework(str(path)).spec
    stem = _stem(profile.name, SpecKind.FRAMEWORKS, path, catalogue)
    return Library(catalogue=catalogue, profiles={stem: profile})


def _stem(name: str, kind: SpecKind, path: Path, catalogue: Catalogue) -> str:
    """Return the file stem of the built-in profile with this name; raises SpecError."""
    for stem in catalogue.names(kind):
        if read_toml(catalogue.find(kind, stem)).get("name") == name:
            return stem
    raise SpecError(f"{path}: no shipped profile is named {name!r}; keep its name.")


def without_variant(name: str) -> str:
    """A spelled name without the last word of its release or its format; empty if it has none."""
    shorter = _VARIANT.sub("", name)
    return shorter if shorter != name else ""


@cache
def spelled(name: str) -> str:
    """A name in lower case, its parts joined by dashes, without owner and brackets."""
    bare = re.sub(r"\(.*?\)", "", name.lower()).rpartition("/")[2]
    return re.sub(r"[\s_-]+", "-", bare).strip("-")


# Defaults of a run: GPT-2's vocabulary as Megatron-LM pads it, LLaMA's vocabulary, heads of 128.
_GPT_VOCABULARY = 51200
_LLAMA_VOCABULARY = 32000
_HEAD_DIM = 128
_WIDEST = 10**6
OF_COLUMNS = "columns of the run"
"""The source of a model that is made of the columns of a row."""


class NotPredicted(Exception):
    """A run that cannot be predicted; the text is the reason."""


def model_of(run: Run, library: Library) -> ModelSpec:
    """Return the model of a training run: a built-in one, or one built from its columns.

    Raises NotPredicted if its kind is not modelled, or its shape is unknown or impossible.
    """
    rule = model_rule(run.text("model"))
    if rule is not None and rule.reason:
        raise NotPredicted(rule.reason)
    try:
        model = _built_in(run, library, rule.model if rule else "") or _from_columns(run)
    except ValueError as error:
        raise NotPredicted(f"impossible architecture: {error}") from error
    return model


def _built_in(run: Run, library: Library, rule_name: str) -> ModelSpec | None:
    """Return the built-in model with the run's name, unless columns contradict it; else None."""
    name = spelled(rule_name or run.text("model"))
    described = run.count("hidden_size") is not None
    while name:
        model = library.model(name)
        if model is not None and _agrees(run, model):
            # The model with the run's vocabulary and number of layers.
            vocabulary = run.count("vocab_size") or model.vocab_size
            layers = run.count("num_hidden_layers") or model.num_hidden_layers
            if vocabulary == model.vocab_size and layers == model.num_hidden_layers:
                return model
            groups = _reduced(model, layers)
            return replace(model, vocab_size=vocabulary, layer_groups=groups)
        name = name.rpartition("-")[0] if described else without_variant(name)
    return None


def _agrees(run: Run, model: ModelSpec) -> bool:
    """Return True if the model has the layers, widths, heads and experts that the run states."""
    layers = run.count("num_hidden_layers")
    standard = [a for a in model.attentions if a.kind is AttentionKind.STANDARD]
    model_counts = {
        "hidden_size": {model.hidden_size},
        "num_attention_heads": {attention.num_attention_heads for attention in model.attentions},
        "num_key_value_heads": {attention.num_key_value_heads for attention in standard},
        "num_experts": {mlp.num_experts for mlp in model.feed_forwards},
        "moe_intermediate_size": {mlp.moe_intermediate_size for mlp in model.feed_forwards},
    }
    if not has_experts(model):
        model_counts["intermediate_size"] = {mlp.intermediate_size for mlp in model.feed_forwards}
    run_counts = {name: run.count(name) for name in model_counts}
    same = all(
        run_counts[name] in (None, *values) for name, values in model_counts.items() if values
    )
    return same and (layers is None or layers <= model.num_hidden_layers)


def _reduced(model: ModelSpec, layers: int) -> tuple[LayerGroup, ...]:
    """Return layer groups with ``layers`` layers in total, in about the same mix."""
    groups: list[LayerGroup] = []
    left, all_layers = layers, model.num_hidden_layers
    for number, group in enumerate(model.layer_groups):
        others = len(model.layer_groups) - number - 1
        share = max(1, round(group.num_hidden_layers * layers / all_layers))
        count = left if others == 0 else max(0, min(share, left - others))
        if count:
            groups.append(replace(group, num_hidden_layers=count))
        left -= count
    return tuple(groups)


def _from_columns(run: Run) -> ModelSpec:
    """Build a model from the sizes in the columns of a run; raises NotPredicted without these."""
    layers, hidden = run.count("num_hidden_layers"), run.count("hidden_size")
    if layers is None or hidden is None:
        raise NotPredicted("unknown architecture: no layers or hidden size, and no such model")
    gated = run.flag("gated_mlp") is not False
    tied = run.flag("tie_word_embeddings")
    group = LayerGroup(
        num_hidden_layers=layers,
        attention=_attention(run, hidden, biased=not gated),
        feed_forward=_feed_forward(run, hidden, gated),
        norm_bias=not gated,
    )
    return ModelSpec(
        name=run.text("model") or "unnamed",
        hidden_size=hidden,
        vocab_size=run.count("vocab_size") or (_LLAMA_VOCABULARY if gated else _GPT_VOCABULARY),
        layer_groups=(group,),
        source=OF_COLUMNS,
        tie_word_embeddings=not gated if tied is None else tied,
        position_embedding=PositionEmbedding.ROTARY if gated else PositionEmbedding.LEARNED,
        max_position_embeddings=run.count("sequence_length"),
        final_norm_bias=not gated,
    )


def _attention(run: Run, hidden: int, biased: bool) -> AttentionSpec:
    """Build the attention of a layer; heads not stated by the run are about as wide as usual."""
    heads = run.count("num_attention_heads")
    if not heads:  # the size nearest to the usual one, of those that divide the width and the GPUs
        t = run.count("tensor_parallel") or 1
        fitting = [n for n in range(1, min(hidden, _WIDEST) + 1) if hidden % n == n % t == 0]
        fitting = fitting or [max(1, hidden // _HEAD_DIM)]
        heads = min(fitting, key=lambda n: abs(hidden / n - _HEAD_DIM))
    return AttentionSpec(
        num_attention_heads=heads,
        num_key_value_heads=run.count("num_key_value_heads") or heads,
        head_dim=hidden // heads if hidden % heads == 0 else _HEAD_DIM,
        qkv_bias=biased,
        output_bias=biased,
    )


def _feed_forward(run: Run, hidden: int, gated: bool) -> FeedForwardSpec:
    """Build the MLP or experts of a layer; a width that the run does not state is the usual one."""
    experts = run.count("num_experts")
    width = run.count("intermediate_size")
    if experts:
        return FeedForwardSpec(
            gated=gated,
            num_experts=experts,
            num_experts_per_tok=run.count("num_experts_per_tok") or min(2, experts),
            moe_intermediate_size=run.count("moe_intermediate_size") or width or 4 * hidden,
        )
    # A gated MLP of the usual cost is 8/3 as wide as the hidden size, in steps of 256.
    usual = ceil_div(8 * hidden, 768) * 256 if gated else 4 * hidden
    return FeedForwardSpec(intermediate_size=width or usual, gated=gated, bias=not gated)


_GIGABIT = UNITS["byte/s"]["Gbit/s"]
_GIGABYTE = UNITS["byte"]["GB"]
_PCIE_BANDWIDTH = 25e9
_LARGEST_NODE = 16


def run_cluster(run: Run, gpu: GpuSpec) -> ClusterSpec:
    """Build the cluster of a run: its node, links and network, else what is usual for the GPU.

    If the number of network interfaces of a node is unknown, each has the rate of the GPU's link.
    Raises NotPredicted if no cluster has such nodes or rates.
    """
    try:
        return _cluster(run, gpu)
    except ValueError as error:
        raise NotPredicted("impossible cluster: node size or network rate out of range") from error


def _cluster(run: Run, gpu: GpuSpec) -> ClusterSpec:
    """Build the cluster of a run; what the run does not state is usual for the GPU."""
    cluster = default_cluster(gpu)
    fabric = _fabric(run, gpu, cluster)
    per_node = run.count("gpus_per_node") or cluster.gpus_per_node
    if fabric.domain_size <= _LARGEST_NODE:
        fabric = replace(fabric, domain_size=max(per_node, 1))
    nic_bandwidth = cluster.scale_out.bandwidth
    bandwidth = _network(run, per_node) or nic_bandwidth
    nics = run.count("nics_per_node") or min(per_node * bandwidth / nic_bandwidth, per_node)
    return replace(
        cluster,
        gpus_per_node=per_node,
        host_memory_per_gpu=_host_memory(run) or cluster.host_memory_per_gpu,
        scale_up=fabric,
        scale_out=replace(
            cluster.scale_out,
            bandwidth=bandwidth,
            gpus_per_nic=max(round(per_node / max(nics, 1)), 1),
        ),
    )


def _fabric(run: Run, gpu: GpuSpec, cluster: ClusterSpec) -> ScaleUp:
    """Return the links within a node: PCIe if the run says so, else those of the cluster."""
    on_pcie = run.word("scale_up_link") == LinkKind.PCIE
    if not on_pcie or cluster.scale_up.kind is LinkKind.PCIE:
        return cluster.scale_up
    bandwidth = gpu.host.bandwidth if gpu.host is not None else None
    return replace(cluster.scale_up, kind=LinkKind.PCIE, bandwidth=bandwidth or _PCIE_BANDWIDTH)


def _host_memory(run: Run) -> float | None:
    """Host memory per GPU [bytes], if the run specifies that of the node; else None."""
    of_node = run.number("host_memory_gb")
    gpus = run.count("gpus_per_node") or run.count("num_gpus") or 1
    return of_node * _GIGABYTE / gpus if of_node else None


def _network(run: Run, gpus_per_node: int) -> float | None:
    """Return the stated network bandwidth per GPU [bytes/s]; None: not stated."""
    rate = run.number("scale_out_gbit_per_s")
    if not rate:
        return None
    return rate * _GIGABIT / (1 if run.flag("scale_out_per_gpu") else gpus_per_node)
