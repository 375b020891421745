"""Model families as rows of a table: what their code fixes and what their configs may change.

A row is a `Decoder`. A field of a model table is there a constant, or a `Value` that reads it
from the config; a `Rule` says of which layers something holds where the config is silent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, NamedTuple

from planner.base.records import record
from planner.specs import hugging_face_layers as layers
from planner.specs.hugging_face_layers import Table
from planner.specs.hugging_face_reader import ConfigReader

Value = Callable[[ConfigReader], Any]
Fields = Mapping[str, Any]
Rule = Callable[[ConfigReader, int], bool]
Family = Callable[[ConfigReader], Table]

_MIXERS = {
    "full": ("full_attention", "attention"),
    "window": ("sliding_attention", "chunked_attention"),
    "linear": ("linear_attention",),
    "mamba2": ("linear_attention", "mamba"),
}
_STATES = ("linear", "mamba2")
_FEED_FORWARDS = {"dense": False, "sparse": True}


class Kind(NamedTuple):
    """What tells one layer from another."""

    mixer: str
    has_experts: bool
    own: str


def flag(key: str, default: bool = False) -> Value:
    """True or false, as the config says."""
    return lambda config: config.flag(key, default)


def size(key: str, default: int | None = None, least: int = 1) -> Value:
    """A whole number of the config."""
    return lambda config: config.size(key, default, least)


def times(number: str, width: str, default: int | None = None, least: int = 0) -> Value:
    """The width of ``number`` equal parts of ``width``, such as shared experts."""
    return lambda config: config.size(number, default, least) * config.size(width)


def always(_: ConfigReader, __: int) -> bool:
    """Hold of all layers."""
    return True


def never(_: ConfigReader, __: int) -> bool:
    """Hold of no layer."""
    return False


def all_but_last_of(number: int, key: str = "sliding_window_pattern") -> Rule:
    """Hold of all but one layer in ``number``, or in what the config says: the last of them.

    It may say a number, 0 for no layer, or letters, L for those of which it holds.
    """

    def rule(config: ConfigReader, layer: int) -> bool:
        pattern = config.values.get(key)
        if isinstance(pattern, str) and pattern:
            return pattern[layer % len(pattern)] == "L"
        return (layer + 1) % (config.size(key, number, least=0) or 1) != 0

    return rule


def all_but_first_of(number: int) -> Rule:
    """Hold of all but one layer in ``number``, the first of them."""
    return lambda _, layer: layer % number != 0


def all_but_every_from_last(number: int) -> Rule:
    """Hold of all but one layer in ``number``, counted back from the last layer."""
    return lambda config, layer: (config.layers() - 1 - layer) % number != 0


def after(key: str, default: int) -> Rule:
    """Hold of all layers but the first ones, whose number is ``key``."""
    return lambda config, layer: layer >= config.size(key, default, least=0)


def among_experts(config: ConfigReader, layer: int) -> bool:
    """Hold of the layers that Qwen's keys do not make dense."""
    dense = config.sequence("mlp_only_layers") or ()
    return layer not in dense and (layer + 1) % config.size("decoder_sparse_step", 1) == 0


@record(kw_only=True)
class Only:
    """The only supported value of a key, and what the others would mean."""

    key: str
    value: Any
    why: str
    default: Any = None


BIASED: Fields = {"qkv_bias": flag("attention_bias"), "output_bias": flag("attention_bias")}
ALL_BIASES: Fields = {"qkv_bias": True, "output_bias": True}
DENSE: Fields = {"intermediate_size": size("intermediate_size")}
TIED: Fields = {"tie_word_embeddings": flag("tie_word_embeddings", True)}


def experts(width: str = "moe_intermediate_size", **fields: Any) -> Fields:
    """A mixture of experts that are each ``width`` wide."""
    return {
        "num_experts": size("num_experts"),
        "num_experts_per_tok": size("num_experts_per_tok"),
        "moe_intermediate_size": size(width),
        **fields,
    }


@record(kw_only=True)
class Decoder:
    """One family: the fields of its model table, part by part.

    ``attention`` are those of all layers that attend; ``in_windows`` what differs where layers
    attend within a window, ``windows`` which do; ``state`` and ``states`` likewise of the layers
    that keep a state instead, ``experts`` and ``sparse`` of those with experts.
    ``sparse_layer`` is what ``layer`` is there. ``base`` makes the attention table.
    ``defaults`` has what transformers' code has where the config is silent, ``only`` what is not
    supported otherwise. ``modern`` gives a config of a checkpoint the keys of transformers 5;
    ``note`` says what is counted otherwise than in transformers.
    """

    attention: Fields = field(default_factory=dict)
    base: Callable[..., Table] = layers.attention
    in_windows: Fields = field(default_factory=dict)
    windows: Rule | None = None
    state: Fields = field(default_factory=dict)
    states: Rule | None = None
    feed_forward: Fields = field(default_factory=lambda: DENSE)
    experts: Fields = field(default_factory=dict)
    sparse: Rule = always
    layer: Fields = field(default_factory=dict)
    sparse_layer: Fields = field(default_factory=dict)
    model: Fields = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    only: tuple[Only, ...] = ()
    modern: Callable[[ConfigReader], ConfigReader] | None = None
    note: str = ""

    def __call__(self, config: ConfigReader) -> Table:
        """The model table of ``config``."""
        config = config.completed(self.defaults)
        config = self.modern(config) if self.modern else config
        for one in self.only:
            config.demand(one.key, one.value, one.why, one.default)
        own, config = _apart(config)
        kinds = self._kinds(config, own)
        groups = layers.groups(kinds, lambda kind: self._group(config, kind))
        table = layers.decoder(config, groups, **_filled(self.model, config))
        return table | ({"notes": self.note} if self.note else {})

    def _kinds(self, config: ConfigReader, own: Mapping[int, str]) -> list[Kind]:
        mixers, has_experts = self._mixers(config), self._sparse(config)
        return [
            Kind(mixer, sparse, own.get(layer, ""))
            for layer, (mixer, sparse) in enumerate(zip(mixers, has_experts, strict=True))
        ]

    def _mixers(self, config: ConfigReader) -> list[str]:
        rules = {"window": self.windows, self.state.get("kind", ""): self.states}
        known_rules = {kind: rule for kind, rule in rules.items() if rule}
        if not known_rules:
            return ["full"] * config.layers()
        known = {word: kind for kind in ("full", *known_rules) for word in _MIXERS[kind]}

        def default(layer: int) -> str:
            holds = (kind for kind, rule in known_rules.items() if rule(config, layer))
            return next(holds, "full")

        mixers = layers.told_apart(config, "layer_types", known, default)
        if config.optional_size("sliding_window") is None:
            return ["full" if mixer == "window" else mixer for mixer in mixers]
        return mixers

    def _sparse(self, config: ConfigReader) -> list[bool]:
        if not self.experts:
            return [False] * config.layers()
        return layers.told_apart(
            config, "mlp_layer_types", _FEED_FORWARDS, lambda layer: self.sparse(config, layer)
        )

    def _group(self, config: ConfigReader, kind: Kind) -> Table:
        config = config.replaced(json.loads(kind.own)) if kind.own else config
        extra = self.sparse_layer if kind.has_experts else {}
        feed_forward = _filled(self.experts if kind.has_experts else self.feed_forward, config)
        return {
            "attention": self._attention(config, kind.mixer),
            **({"feed_forward": feed_forward} if feed_forward else {}),
            **_filled({**self.layer, **extra}, config),
        }

    def _attention(self, config: ConfigReader, mixer: str) -> Table:
        if mixer in _STATES:
            return layers.attention(config, **_filled(self.state, config))
        windowed = {**self.in_windows, "sliding_window": size("sliding_window")}
        fields = {**self.attention, **(windowed if mixer == "window" else {})}
        return self.base(config, **_filled(fields, config))


def _filled(fields: Fields, config: ConfigReader) -> Table:
    return {name: value(config) if callable(value) else value for name, value in fields.items()}


def _apart(config: ConfigReader) -> tuple[dict[int, str], ConfigReader]:
    """What single layers have of their own (``per_layer_config``), and the rest of the config."""
    table = config.table("per_layer_config").values
    own: dict[int, str] = {}
    for layer, values in table.items():
        if not layer.isdecimal() or len(layer) > 5 or not isinstance(values, dict):
            config.fault("per_layer_config", "must hold an object for each number of a layer")
        elif values:
            own[int(layer)] = json.dumps(values, sort_keys=True)
    return own, config.replaced({"per_layer_config": None})
