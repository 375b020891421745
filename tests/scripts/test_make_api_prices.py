"""Which models providers' names mean, and which of several prices are kept."""

from __future__ import annotations

import csv

import pytest
from make_api_prices import FILE, compiled, keys_of, known_models, model_of, release_of
from rows import each

from planner.specs.operating_terms import COLUMNS

KNOWN = known_models()


@each(
    ("name", "model"),
    [
        ("meta-llama/Llama-3.3-70B-Instruct", "llama-3.3-70b"),
        ("@cf/meta/llama-3.3-70b-instruct-fp8-fast", "llama-3.3-70b"),
        ("us.meta.llama4-scout-17b-instruct-v1:0", "llama-4-scout-17b-16e"),
        ("Meta-Llama-3_3-70B-Instruct", "llama-3.3-70b"),
        ("llama3-70b-8192", "llama-3-70b"),
        ("openai.gpt-oss-120b-1:0", "gpt-oss-120b"),
        ("accounts/fireworks/models/kimi-k2p6", "kimi-k2.5"),
        ("moonshotai/Kimi-K2-Thinking", "kimi-k2-thinking"),
        ("Qwen/Qwen3-235B-A22B-Thinking-2507-fast", "qwen3-235b-a22b-2507"),
        ("deepseek.v3.2", "deepseek-v3.2"),
        ("us.deepseek.r1-v1:0", "deepseek-v3"),
        ("mistralai/mistral-large-2512", "mistral-large-3-675b"),
        ("glm-4.6v", "glm-4.5v"),
        # Other models, names that have meant several, and what planner does not know.
        ("z-ai/glm-5-turbo", None),
        ("mistral-large-latest", None),
        ("mistral-large", None),
        ("qwen/qwen3-coder-plus", None),
        ("intfloat/e5-mistral-7b-instruct", None),
        ("deepseek/deepseek-v9-pro", None),
        ("deepseek-chat", None),
    ],
)
def test_names_of_providers(name: str, model: str | None) -> None:
    assert model_of(name, KNOWN) == model


@pytest.mark.parametrize(
    ("name", "release"),
    [
        ("deepseek-ai/DeepSeek-R1-0528", "deepseek-r1-0528"),
        ("deepseek/deepseek-r1-turbo", "deepseek-r1"),
        ("deepseek.v3-v1:0", "deepseek-v3.1"),
        ("deepseek-ai/DeepSeek-V3-1", "deepseek-v3.1"),
        ("accounts/fireworks/models/kimi-k2p6", "kimi-k2.6"),
        ("zai-org/GLM-4.7-FP8", "glm-4.7"),
        ("Qwen/Qwen3-235B-A22B-Thinking-2507-TEE", "qwen3-235b-a22b-thinking-2507"),
        ("mistralai/devstral-2512", "devstral-2-123b"),
        ("llama-3.3-70b-versatile", "llama-3.3-70b"),
    ],
)
def test_releases_of_one_architecture_are_told_apart(name: str, release: str) -> None:
    model = model_of(name, KNOWN)
    assert model is not None
    assert release_of(name, model, KNOWN) == release


def test_every_shipped_name_still_means_its_model() -> None:
    with FILE.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert list(rows[0]) == list(COLUMNS)
    assert [row for row in rows if model_of(row["served_as"], KNOWN) != row["model"]] == []


def test_a_name_loses_what_says_how_it_is_served_step_by_step() -> None:
    assert keys_of("org/Some-7B-Instruct-FP8-fast") == [
        "some-7b-instruct-fp8-fast",
        "some-7b-instruct-fp8",
        "some-7b-instruct",
        "some-7b",
    ]


def row(provider: str, name: str, cost: str, date: str, cached: str = "") -> dict[str, str]:
    return {
        "provider": provider,
        "model": name,
        "input_usd_per_mtok": cost,
        "cached_input_usd_per_mtok": cached,
        "output_usd_per_mtok": cost,
        "source": "notes of 2026-09-25",
        "date": date,
    }


def test_the_newest_certain_price_of_an_offer_is_kept_and_the_hosts_own_before_a_routers() -> None:
    name = "openai/gpt-oss-20b"
    rows, unknown = compiled(
        [
            row("novita", name, "0.4", "<=2026-08-21"),
            row("novita-ai", "gpt-oss-20b", "0.1", "2026-07-02", cached="0"),
            row("novita", name, "0.7", "2025-07-02"),
            row("huggingface/novita", name, "0.3", "2026-09-01"),
            row("huggingface/nscale", name, "0.2", "2026-08-01"),
            row("openrouter (cheapest host)", name, "0.5", ""),
            row("x", "no-such-model", "1", "2026-08-01"),
        ]
    )
    kept = [(made["provider"], made["input_usd_per_mtok"], made["date"]) for made in rows]
    assert kept == [
        ("novita", "0.1", "2026-07-02"),
        ("nscale", "0.2", "2026-08-01"),
        ("openrouter", "0.5", "2026-09-25"),
    ]
    assert rows[0]["cached_input_usd_per_mtok"] == ""
    assert unknown == ["no-such-model"]
