"""Which published checkpoint is served where only the model is named."""

from typing import Any

import pytest

import planner
from planner.specs.catalogue import in_format, load_model
from planner.specs.spec_files import read_toml
from planner.specs.spec_paths import SpecKind, spec_folders


def served(model: str, gpu: str, **more: Any) -> Any:
    asked: dict[str, Any] = {
        "workload": "serve", "engine": "vllm", "num_gpus": 8, "input_tokens": 1024,
        "output_tokens": 1024, "settings": {"tensor_parallel": 8, "concurrency": 16}, **more,
    }  # fmt: skip
    return planner.estimate(model=model, gpu=gpu, **asked)


def types(found: Any) -> tuple[str, str]:
    row = found.table()
    return row["quantization"][0], row["expert_quantization"][0]


@pytest.mark.parametrize(
    ("model", "gpu", "expected"),
    [
        # Integers of 4 bit are unpacked everywhere; the model card of nvidia/Kimi-K2.5-NVFP4
        # quantizes experts alone, for Blackwell.
        ("kimi-k2.5", "gb300-nvl72", ("w16a16", "nvfp4")),
        ("kimi-k2-thinking", "b200-sxm-180gb", ("w16a16", "nvfp4")),
        ("kimi-k2.5", "h200-sxm-141gb", ("w16a16", "w4a16")),
        ("kimi-k2.5", "mi355x", ("w16a16", "w4a16")),
        # Who names a repository means its weights.
        ("moonshotai/Kimi-K2.5", "gb300-nvl72", ("w16a16", "w4a16")),
        ("nvidia/Kimi-K2.5-NVFP4", "gb300-nvl72", ("w16a16", "nvfp4")),
        # Blackwell multiplies fp8 as it is stored; 16 bit stay what they are.
        ("deepseek-v3", "b200-sxm-180gb", ("fp8_block", "fp8_block")),
        ("gpt-oss-120b", "b200-sxm-180gb", ("w16a16", "mxfp4")),
        ("llama-3.1-8b", "b200-sxm-180gb", ("w16a16", "w16a16")),
    ],
)
def test_the_checkpoint_is_the_one_that_the_gpu_multiplies(
    model: str, gpu: str, expected: tuple[str, str]
) -> None:
    assert types(served(model, gpu)) == expected


def test_types_that_are_set_stay() -> None:
    settings = {"tensor_parallel": 8, "concurrency": 16, "quantization": "w16a16",
                "expert_quantization": "w4a16"}  # fmt: skip
    found = served("kimi-k2.5", "gb300-nvl72", settings=settings)
    assert types(found) == ("w16a16", "w4a16")
    assert "quantization" not in found.plan.defaults


def test_the_answer_tells_what_else_is_published() -> None:
    def told(model: str, gpu: str) -> str:
        return str(served(model, gpu).plan.defaults["quantization"])

    chosen = told("kimi-k2.5", "gb300-nvl72")
    assert chosen.startswith(
        "w16a16, experts nvfp4 of nvidia/Kimi-K2.5-NVFP4, not w4a16 as published"
    )
    also = "published in nvfp4 as nvidia/Kimi-K2.5-NVFP4 too"
    assert also in told("moonshotai/Kimi-K2.5", "gb300-nvl72")
    assert "NVFP4" not in told("kimi-k2.5", "h200-sxm-141gb")
    assert "nvfp4 as nvidia/DeepSeek" in told("deepseek-v3", "b200-sxm-180gb")


def test_of_several_gpus_each_has_its_own() -> None:
    found = planner.search(
        workload="serve", model="kimi-k2.5", gpu=("h200-sxm-141gb", "gb300-nvl72"), num_gpus=8,
        engine="vllm", mode="aggregated", settings={"tensor_parallel": 8},
    )  # fmt: skip
    row = found.table
    pairs = set(zip(row["gpu"], row["expert_quantization"], strict=True))
    assert pairs <= {("h200-sxm-141gb", "w4a16"), ("gb300-nvl72", "nvfp4")}
    text = found.plan.defaults["quantization"]
    assert "w4a16 (published weights of Kimi K2.5) on h200-sxm-141gb; " in text
    assert text.endswith(" on gb300-nvl72")


def test_a_prefill_gpu_has_to_multiply_it_too() -> None:
    settings = {"replicas": 1, "prefill_replicas": 1, "tensor_parallel": 8, "concurrency": 16}
    found = served(
        "kimi-k2.5", "gb300-nvl72", num_gpus=16, mode="disaggregated",
        prefill_gpu="h200-sxm-141gb", settings=settings,
    )  # fmt: skip
    assert types(found) == ("w16a16", "w4a16")


def test_repositories_of_checkpoints_are_found_by_their_names() -> None:
    for path in sorted(spec_folders(SpecKind.MODELS)[-1].glob("*.toml")):
        for row in read_toml(path).get("checkpoints", []):
            if "repository" in row:
                by_name, model = load_model(row["repository"]), load_model(path.stem)
                assert by_name == in_format(model, row["quantization"]), path.stem
