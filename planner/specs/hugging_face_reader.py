"""Reads the values of a ``config.json`` and collects all errors instead of stopping.

Parameters
----------
key : key of ``config.json``
least : smallest valid value
supported : supported value
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.base.read_files import UncheckedTable
from planner.specs.model import MOST_LAYERS

LARGEST = 10**9

# Names of the same value in different model families and versions of transformers.
_SYNONYMS = (
    ("hidden_size", "n_embd", "n_embed", "d_model"),
    ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads"),
    ("max_position_embeddings", "n_positions", "max_seq_len"),
    ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
    (
        "num_experts_per_tok",
        "num_experts_per_token",
        "top_k_experts",
        "moe_topk",
        "moe_top_k",
        "moe_k",
    ),
    ("n_group", "num_expert_group", "num_expert_groups"),
    ("topk_group", "num_limited_groups"),
    ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts"),
)
# By transformers, and by the code of InternVL and of DeepSeek-VL2.
_TEXT_PARTS = ("text_config", "llm_config", "language_config")
_NAMES = {name: (name, *group) for group in _SYNONYMS for name in group}


class ConfigReader:
    """One JSON object; an invalid value is noted in ``errors``, and a valid one returned."""

    def __init__(self, values: UncheckedTable, errors: list[str], prefix: str = "") -> None:
        self.values = values
        self.errors = errors
        self.prefix = prefix

    def add_error(self, key: str, text: str) -> None:
        """Record that ``key`` is wrong, with the reason.

        Parameters
        ----------
        text : predicate of the error message
        """
        error = f"{self.prefix}{key} {text}."
        if error not in self.errors:
            self.errors.append(error)

    def size(self, key: str, default: int | None = None, least: int = 1) -> int:
        """Return an integer; record an error if missing (or null) without default.

        Parameters
        ----------
        default : value if the key is missing; None: a missing key is an error
        """
        size = self.optional_size(key, least)
        if size is not None:
            return size
        if default is not None:
            return default
        if all(self.values.get(name) is None for name in _NAMES.get(key, (key,))):
            self.add_error(key, "is missing")
        return max(least, 1)

    def optional_size(self, key: str, least: int = 1) -> int | None:
        """Return an integer; None if missing, null or invalid."""
        present = {
            name: self.values[name]
            for name in _NAMES.get(key, (key,))
            if self.values.get(name) is not None
        }
        numbers = {name: self._number(name, value, least) for name, value in present.items()}
        if len({number for number in numbers.values() if number is not None}) > 1:
            pairs = " and ".join(f"{name} = {number}" for name, number in numbers.items())
            self.add_error(key, f"contradicts itself: {pairs}")
        return next(iter(numbers.values()), None)

    def layers(self) -> int:
        """Return the number of layers; record an error if too many."""
        layers = self.size("num_hidden_layers")
        if layers > MOST_LAYERS:
            self.add_error("num_hidden_layers", f"{layers} is more than {MOST_LAYERS}")
            return 1
        return layers

    def flag(self, key: str, default: bool) -> bool:
        """Return a boolean; the default if missing or null.

        Parameters
        ----------
        default : value if the key is missing
        """
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.add_error(key, f"must be true or false, not {_short(value)}")
            return default
        return value

    def refuse(self, key: str, supported: bool) -> None:
        """Record an error if a flag differs from the supported value."""
        if self.flag(key, supported) != supported:
            self.add_error(key, f"must be {str(supported).lower()}: the other way is not supported")

    def demand(self, key: str, supported: object, why: str, silent: object = None) -> None:
        """Record an error if ``key`` differs from ``supported``.

        Parameters
        ----------
        why : predicate of the error message
        silent : value if the key is missing
        """
        value = self.values.get(key)
        effective = silent if value is None else value
        if effective is not None and effective != supported:
            self.add_error(key, f"other than {supported} is not supported: {why}")

    def sequence(self, key: str, length: int | None = None) -> Sequence[object] | None:
        """Return a list, of ``length`` if specified; None if missing.

        Parameters
        ----------
        length : number of items; None: any
        """
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, list):
            self.add_error(key, f"must be a list, not {_short(value)}")
            return None
        if length is not None and len(value) != length:
            self.add_error(key, f"has {len(value)} entries for {length} layers")
            return None
        return value

    def table(self, key: str) -> ConfigReader:
        """Return the object under ``key``; an empty one if missing."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, dict):
            self.add_error(key, f"must be an object, not {_short(value)}")
        inner = value if isinstance(value, dict) else {}
        return ConfigReader(inner, self.errors, f"{self.prefix}{key}.")

    def with_defaults(self, defaults: UncheckedTable) -> ConfigReader:
        """Return a copy with ``defaults`` for missing keys and nulls.

        Parameters
        ----------
        defaults : value of each key that is missing or null
        """
        present = {key: value for key, value in self.values.items() if value is not None}
        return ConfigReader({**defaults, **present}, self.errors, self.prefix)

    def names(self, key: str) -> bool:
        """Return whether the object has ``key``, even with a null value."""
        return any(name in self.values for name in _NAMES.get(key, (key,)))

    def completed(self, defaults: UncheckedTable) -> ConfigReader:
        """Return a copy with ``defaults`` for missing keys; null stays null.

        Parameters
        ----------
        defaults : value of each key that is missing
        """
        return self.replaced({key: value for key, value in defaults.items() if not self.names(key)})

    def replaced(self, values: UncheckedTable) -> ConfigReader:
        """Return a copy with ``values`` replaced.

        Parameters
        ----------
        values : new value of each key
        """
        return ConfigReader({**self.values, **values}, self.errors, self.prefix)

    def text(self) -> ConfigReader:
        """The part of the language model in a multimodal config, or this config."""
        parts = (key for key in _TEXT_PARTS if self.values.get(key) is not None)
        return next(map(self.table, parts), self)

    def _number(self, key: str, value: object, least: int) -> int | None:
        """Return an integer of at least ``least``; else record an error and return None."""
        if isinstance(value, bool) or not isinstance(value, int):
            self.add_error(key, f"must be a whole number, not {_short(value)}")
        elif not least <= value <= LARGEST:
            self.add_error(key, f"must be from {least} to {LARGEST}, not {_short(value)}")
        else:
            return value
        return None


def _short(value: object) -> str:
    """Return a value as text of at most 40 characters for an error message."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    if isinstance(value, int) and abs(value) > 10**18:
        return "a number of more than 18 digits"
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
