"""Names that people give quantizations and caches, wherever they are given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rows import each

import planner
from planner.base.enums import (
    CacheType,
    ComputePrecision,
    Quantization,
)
from planner.configurations.enumerate import coded_values
from planner.errors import SearchSpaceError, SpecError
from planner.specs.quantization import GGUF_BITS, quantization_word

ONE: dict[str, Any] = {
    "workload": "serve", "model": "llama-3.1-8b", "gpu": "h100", "num_gpus": 1,
    "engine": "vllm",
}  # fmt: skip


@pytest.mark.parametrize("codes", [Quantization, CacheType, ComputePrecision])
def test_other_names_stand_for_words_and_hide_none(codes: Any) -> None:
    assert set(codes.aliases().values()) <= set(codes.words())
    assert not set(codes.aliases()) & set(codes.words())


@each(
    ("name", "word"),
    [
        ("bf16", "w16a16"), ("FP16", "w16a16"), ("fp8", "fp8"), ("fp8-block", "fp8_block"),
        ("fp4", "nvfp4"), ("int8", "w8a8"), ("int4", "w4a16"), ("AWQ", "w4a16"),
        ("gptq-int4", "w4a16"), ("nvfp4", "nvfp4"), ("w4a16", "w4a16"),
        ("awq_marlin", "w4a16"), ("gptq_marlin", "w4a16"), ("bnb", "w4a16"), ("bnb-nf4", "w4a16"),
        ("bitsandbytes", "w4a16"), ("bnb-8bit", "w8a16"), ("modelopt", "fp8"),
        ("fbgemm_fp8", "fp8"), ("q4_k_m", "q4_k_m"), ("Q8_0", "q8_0"), ("q4-k-m", "q4_k_m"),
        ("Q6_K_L", "q6_k"), ("q5", "q5_k_m"), ("IQ2_XXS", "iq2_xxs"),
        ("hqq", "w4a16"), ("eetq", "w8a16"),
    ],
)  # fmt: skip
def test_a_quantization_by_the_name_people_use(name: str, word: str) -> None:
    assert coded_values("quantization", [name]) == [int(Quantization[word.upper()])]
    assert quantization_word(name) == word


@pytest.mark.parametrize(
    ("parameter", "name", "word"),
    [
        ("pipeline_schedule", "1F1B", "one_forward_one_backward"),
        ("pipeline_schedule", "zb-h1", "zero_bubble"),
        ("token_dispatcher", "deepep", "flex"),
        ("cp_comm_type", "ring", "p2p"),
        ("cp_comm_type", "ulysses", "a2a"),
        ("optimizer", "adamw", "adam"),
    ],
)
def test_an_option_by_the_name_that_papers_and_frameworks_have(
    parameter: str, name: str, word: str
) -> None:
    assert coded_values(parameter, [name]) == coded_values(parameter, [word])


def test_all_types_are_all_but_those_of_files() -> None:
    of_files = {code.word for code in GGUF_BITS}
    assert set(Quantization.usual()) == set(Quantization.words()) - of_files
    asked: dict[str, Any] = {
        "workload": "inference", "model": "llama-3.1-70b", "gpu": "rtx4090", "num_gpus": 1,
        "engine": "llama-cpp",
        "settings": {"concurrency": 1, "weight_offload": 0.0, "kv_cache": "bf16"},
    }  # fmt: skip
    assert planner.search(**asked, precision="iq1_s").table["quantization"] == ["iq1_s"]
    assert not planner.search(**asked, precision="all").table


def test_names_of_one_type_are_one_value() -> None:
    assert len(coded_values("quantization", ["bf16", "fp16", "w16a16", "fp8"])) == 2


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        ("quantization", "bf61", "Did you mean bf16?"),
        ("quantization", "awk", "Did you mean awq?"),
        ("quantization", "q4_k_n", "Did you mean q4_k_m?"),
        ("quantization", "awq_marling", "Did you mean awq_marlin?"),
        ("kv_cache", "fp8_e4m4", "fp8_e4m3"),
    ],
)
def test_an_unknown_name_has_a_close_one(name: str, value: str, hint: str) -> None:
    with pytest.raises(SearchSpaceError, match=hint):
        coded_values(name, [value])


def test_in_python_and_in_a_space(tmp_path: Path) -> None:
    by_word = planner.estimate(**ONE, settings={"quantization": "w16a16", "concurrency": 8})
    by_name = planner.estimate(**ONE, settings={"quantization": "bf16", "concurrency": 8})
    assert by_name.table() == by_word.table()
    space = tmp_path / "own.toml"
    space.write_text(
        'name = "own"\ndescription = "own"\nengine = "vllm"\n[parameters]\n'
        'quantization = ["bf16", "int8"]\nkv_cache = "auto"\nconcurrency = 8\n'
    )
    found = planner.search(**ONE, space=str(space), mode="aggregated").problem.sources[0].mesh
    assert found is not None
    assert set(found.values("quantization")) == {Quantization.W16A16, Quantization.W8A8}
    assert set(found.values("kv_cache")) == {CacheType.BF16}


def test_of_published_weights(tmp_path: Path) -> None:
    shipped = Path(planner.__file__).parent / "model_specs" / "llama-3.1-8b.toml"
    own = tmp_path / "own.toml"
    own.write_text('quantization = "AWQ"\n' + shipped.read_text())
    found = planner.search(**{**ONE, "model": str(own)}, mode="aggregated")
    assert found.table["quantization"][0] == "w4a16"
    own.write_text('quantization = "awk"\n' + shipped.read_text())
    with pytest.raises(SpecError, match=r"Did you mean awq\?"):
        planner.search(**{**ONE, "model": str(own)})
