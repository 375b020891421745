"""Make hardware_specs/api_prices.csv: published prices per token of models that planner knows.

    python scripts/make_api_prices.py INPUT

INPUT is a list of prices in long form: provider, model, input_usd_per_mtok,
cached_input_usd_per_mtok, output_usd_per_mtok, source, date. A row is kept where its name is that
of a model of planner, or of one of its aliases, but for what only says how it is served: a
precision, a faster or cheaper tier, a provider's own prefix, a version of the listing. Names that
have meant several models (``mistral-large-latest``) are left out, as are other fine-tunes. Of
several rows of a provider for the same offer the one with the newest certain date is kept.
"""

from __future__ import annotations

import csv
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import planner
from planner.specs.operating_terms import COLUMNS
from planner.specs.spec_paths import SpecKind, aliases_of, names

FILE = Path(planner.__file__).parents[1] / "hardware_specs" / "api_prices.csv"

# The same provider under two names.
_PROVIDERS = {
    "amazon-bedrock": "aws",
    "fireworks-ai": "fireworks",
    "moonshot-ai": "moonshotai",
    "novita-ai": "novita",
    "togetherai": "together",
    "openrouter (cheapest host)": "openrouter",
}
# A router's price of a host is the host's own.
_ROUTER = "huggingface/"
_OWNERS = re.compile(
    r"^(?:us\.)?(?:meta|minimax|mistral|moonshotai|moonshot|openai|qwen|zai)\."
    r"|^(?:alibaba|databricks|openai|zai)-(?=\w)"
)
# What says how a model is served, or which listing of it this is, but not which model it is.
_SERVED = re.compile(
    r"-(?:fp8|nvfp4|bf16|fp8-dynamic|turbo|fast|lite|tput|tee|maas|instruct|it|hf|basic|us"
    r"|versatile|instant|specdec|highspeed|chat|thinking|preview|8192|32768|v?\d:\d)$"
)
# Other models than their names without the ending, and names that have meant several models.
_OF_THEIR_OWN = re.compile(
    r"glm-5v?-turbo|.*-latest|kimi-k2-turbo-preview|ministral-[38]b|mistral-large|mistral-7b"
    r"|mistral-7b-instruct"
)
# Models of planner that several releases have the architecture of.
_SEVERAL = {
    "deepseek-v3", "deepseek-v3.2", "glm-4.6", "glm-5", "kimi-k2.5", "llama-3.1-405b",
    "llama-3.1-70b", "minimax-m2.5", "mistral-7b", "mistral-nemo-12b", "mistral-small-3.1-24b",
    "qwen2.5-32b", "qwen2.5-3b", "qwen2.5-7b", "qwen3-235b-a22b-2507", "qwen3-30b-a3b-2507",
    "qwen3-4b-2507", "qwen3-8b", "qwen3-next-80b-a3b", "qwen3.5-27b", "qwen3.5-35b-a3b",
}  # fmt: skip
# Their releases where names follow no rule.
_RELEASES = {
    "deepseek-3.2": "deepseek-v3.2",
    "deepseek-chat-v3-0324": "deepseek-v3-0324",
    "deepseek-chat-v3.1": "deepseek-v3.1",
    "deepseek-v3-1": "deepseek-v3.1",
    "kimi-k2-6": "kimi-k2.6",
    "mistral-nemo-12b": "mistral-nemo",
    "mistral-nemo-instruct-2407": "mistral-nemo",
    "mistral-small-2506": "mistral-small-3.2-24b",
    "mistral-small-3.2-24b-instruct-2506": "mistral-small-3.2-24b",
    "open-mistral-nemo": "mistral-nemo",
    "qwen3-235b-a22b-2507": "qwen3-235b-a22b-instruct-2507",
}
# The API of a cloud tells it by another number.
_OF_CLOUDS = {"deepseek.v3-v1:0": "deepseek-v3.1"}
# Names that follow no rule.
_NAMES = {
    "deepseek-3.2": "deepseek-v3.2",
    "deepseek-chat-v3-0324": "deepseek-v3",
    "deepseek-chat-v3.1": "deepseek-v3",
    "deepseek-r1": "deepseek-v3",
    "deepseek-v3-1": "deepseek-v3",
    "devstral-2512": "devstral-2-123b",
    "devstral-small-2505": "mistral-small-3.1-24b",
    "devstral-small-2507": "mistral-small-3.1-24b",
    "kimi-k2-0711": "kimi-k2",
    "kimi-k2-0905": "kimi-k2-0905",
    "kimi-k2-6": "kimi-k2.5",
    "llama-4-maverick-17b": "llama-4-maverick-17b-128e",
    "llama-4-scout-17b": "llama-4-scout-17b-16e",
    "ministral-14b-2512": "ministral-3-14b",
    "ministral-3b-2512": "ministral-3-3b",
    "ministral-8b-2512": "ministral-3-8b",
    "mistral-3-14b": "ministral-3-14b",
    "mistral-7b-instruct-v0:2": "mistral-7b-v0.2",
    "mistral-large-2512": "mistral-large-3-675b",
    "mistral-medium-2604": "mistral-medium-3.5-128b",
    "mistral-nemo": "mistral-nemo-12b",
    "mistral-small-2506": "mistral-small-3.1-24b",
    "mistral-small-2603": "mistral-small-4-119b",
    "mistral-small-3.2-24b": "mistral-small-3.1-24b",
    "open-mistral-nemo": "mistral-nemo-12b",
    "open-mixtral-8x22b": "mixtral-8x22b",
    "open-mixtral-8x7b": "mixtral-8x7b",
}


def keys_of(name: str) -> list[str]:
    """The names that a provider's name of a model may stand for, the longest first.

    >>> keys_of("us.meta.llama4-scout-17b-instruct-v1:0")[-1]
    'llama-4-scout-17b'
    """
    word = re.sub(r"[\s_]+", "-", name.strip().lower().rpartition("/")[2])
    word = _OWNERS.sub("", word)
    word = re.sub(r"^(?:us\.)?deepseek\.", "deepseek-", word)
    word = re.sub(r"(?<=\d)p(?=\d)", ".", word)
    word = re.sub(r"^(?:meta-)?llama-?(?=\d)", "llama-", word)
    word = re.sub(r"^llama-(\d)-(\d)-", r"llama-\1.\2-", word)
    word = re.sub(r"^qwen-(?=\d)", "qwen", word)
    found = [word]
    while not _OF_THEIR_OWN.fullmatch(word):
        shorter = _SERVED.sub("", word)
        if shorter == word:
            break
        found.append(word := shorter)
    return found


def known_models() -> dict[str, str]:
    """Models by every name that means them alone."""
    meant: dict[str, set[str]] = {}
    for model in names(SpecKind.MODELS):
        meant.setdefault(model, set()).add(model)
    for alias, model in aliases_of(SpecKind.MODELS).items():
        for key in keys_of(alias):
            meant.setdefault(key, set()).add(model)
    exact = {**aliases_of(SpecKind.MODELS), **{model: model for model in names(SpecKind.MODELS)}}
    alone = {key: next(iter(models)) for key, models in meant.items() if len(models) == 1}
    return {**alone, **exact, **_NAMES}


def model_of(name: str, known: Mapping[str, str]) -> str | None:
    """The model of planner that a provider's name means, None where it is none of them."""
    word = keys_of(name)
    if _OF_THEIR_OWN.fullmatch(word[0]):
        return None
    return next((known[key] for key in word if key in known), None)


def release_of(name: str, model: str, known: Mapping[str, str]) -> str:
    """Which release of a model a provider's name means: what is left without how it is served."""
    if model not in _SEVERAL:
        return model
    key = [key for key in keys_of(name) if known.get(key) == model][-1]
    return _OF_CLOUDS.get(name) or _RELEASES.get(key, key)


def compiled(rows: Iterable[Mapping[str, str]]) -> tuple[list[dict[str, str]], list[str]]:
    """The rows of the file, and the names that mean no model of planner."""
    known, unknown = known_models(), []
    best: dict[tuple[str, ...], dict[str, str]] = {}
    hosts: dict[tuple[str, ...], dict[str, str]] = {}
    for row in rows:
        model = model_of(row["model"], known)
        if model is None:
            unknown.append(row["model"])
            continue
        is_routed = row["provider"].startswith(_ROUTER)
        made = _made(row, model) | {"release": release_of(row["model"], model, known)}
        key = made["provider"], model, keys_of(row["model"])[0]
        place = hosts if is_routed else best
        if key not in place or _certain(made) > _certain(place[key]):
            place[key] = made
    own = {key[:2] for key in best}
    best |= {key: row for key, row in hosts.items() if key[:2] not in own}
    return [*_distinct(best.values())], unknown


def _distinct(rows: Iterable[dict[str, str]]) -> Iterable[dict[str, str]]:
    """Rows in order, one of those that differ in nothing but a spelling, a source or a date."""
    seen: dict[tuple[str, ...], dict[str, str]] = {}
    order = ("model", "provider", "served_as")
    same = ("model", "provider", "release", *(name for name in COLUMNS if name.endswith("mtok")))
    for row in sorted(rows, key=lambda row: tuple(row[name] for name in order)):
        key = tuple(row[name] for name in same)
        if key not in seen or _certain(row) > _certain(seen[key]):
            seen[key] = row
    return sorted(seen.values(), key=lambda row: tuple(row[name] for name in order))


def _made(row: Mapping[str, str], model: str) -> dict[str, str]:
    provider = row["provider"].removeprefix(_ROUTER)
    cached = row["cached_input_usd_per_mtok"]
    source, date = row["source"], row["date"] or _date_in(row["source"])
    return {
        "provider": _PROVIDERS.get(provider, provider),
        "model": model,
        "served_as": row["model"],
        "input_usd_per_mtok": row["input_usd_per_mtok"],
        # A list writes 0 where a provider says nothing of cached tokens.
        "cached_input_usd_per_mtok": cached if cached and float(cached) > 0 else "",
        "output_usd_per_mtok": row["output_usd_per_mtok"],
        "source": re.sub(r"(unnamed repository)-\d\d-\d\d$", r"\1", source),
        "date": date,
    }


def _date_in(source: str) -> str:
    found = re.search(r"\d{4}-\d\d-\d\d", source)
    return found.group() if found else ""


def _certain(row: Mapping[str, str]) -> tuple[bool, str]:
    """Newer dates are greater; ``<=`` says only that a price is not newer."""
    return not row["date"].startswith("<"), row["date"]


def main(arguments: Sequence[str]) -> None:
    """Compile a list into the shipped file, and say what was left out."""
    (path,) = arguments
    with Path(path).open(encoding="utf-8", newline="") as stream:
        given = list(csv.DictReader(stream))
    rows, unknown = compiled(given)
    with FILE.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    models = {row["model"] for row in rows}
    doubled = len(given) - len(unknown) - len(rows)
    print(f"{len(given)} prices: {len(rows)} of {len(models)} models kept,")
    print(f"{doubled} given by two sources or twice, {len(unknown)} of unknown models:")
    for name, number in sorted(Counter(unknown).items()):
        print(f"  {number} {name}")


if __name__ == "__main__":
    main(sys.argv[1:])
