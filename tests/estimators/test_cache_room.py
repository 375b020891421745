"""Room for the cache as engines logged it at their start (``scripts/published/start_logs.csv``)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from memory_fits import Ending, fits, logged_endings
from rows import each
from serving_cases import replicas, serving_setting
from start_logs import layout_of, predicted, setting_of, start_logs

from planner.base.enums import Quantization
from planner.base.units import GIB
from planner.estimators.inference.serving_memory import (
    needed_to_start,
    sequence_bytes,
    serving_memory,
)
from planner.estimators.inference.weights import weight_bytes
from planner.launch.read.launch_file import evaluate_launch
from planner.launch.read.read_launch import read_launch
from planner.specs.software_profile import engine_on


def room_error(row: dict[str, str]) -> float:
    memory, measured = predicted(row)
    return float(memory.room.size[0]) / measured - 1


def plain_logs() -> list[dict[str, str]]:
    """Logs of servers without LMCache, whose own buffers on the GPU no option tells."""
    return [row for row in start_logs() if "LMCache" not in row["case"]]


def test_room_of_engines_that_share_a_model_between_gpus() -> None:
    rows = [row for row in plain_logs() if int(row["tensor_parallel"]) >= 4]
    rows = [row for row in rows if row["fitted"] == "0"]
    errors = {
        row["case"] + row["version"]: room_error(row)
        for row in rows
        if row["measured_kv_cache_gib"] or row["measured_kv_cache_tokens"]
    }
    assert len(errors) >= 6
    assert max(abs(error) for error in errors.values()) < 0.03, errors


def test_room_of_all_logs() -> None:
    errors = np.array([room_error(row) for row in plain_logs()])
    errors = np.abs(errors[np.isfinite(errors)])
    assert len(errors) >= 34
    assert np.median(errors) < 0.005
    assert np.mean(errors < 0.03) > 0.93


@each("row", [row for row in start_logs() if row["measured_weights_gib"]])
def test_weights_of_a_gpu(row: dict[str, str]) -> None:
    memory, _ = predicted(row)
    assert float(memory.weights[0]) / GIB == pytest.approx(
        float(row["measured_weights_gib"]), rel=0.02
    )


@pytest.mark.parametrize(
    ("gpu", "widths"), [("a100-sxm-80gb", (2944, 3072)), ("b200-sxm-180gb", (3072, 3072))]
)
def test_mxfp4_experts_are_padded_to_the_tiles_of_their_kernels(
    gpu: str, widths: tuple[int, int]
) -> None:
    """create_weights of vllm/model_executor/layers/quantization/mxfp4.py: 2,880 is no multiple."""
    row = next(row for row in start_logs() if row["case"] == "gpt-oss-120b")
    setting = setting_of({**row, "gpu": gpu})
    plain = replace(setting, engine=replace(setting.engine, mxfp4_padding_by_architecture={}))
    c = layout_of(row, setting)
    stored, counted = (float(weight_bytes(each, c).experts[0]) for each in (setting, plain))
    assert stored / counted == pytest.approx(widths[0] * widths[1] / 2880**2)
    # Half of the inner width, 1,440, is padded to 1,536 by both kernels.
    halves = layout_of({**row, "tensor_parallel": "2"}, setting)
    half = float(weight_bytes(setting, halves).experts[0])
    assert half / counted == pytest.approx(1536 * 3072 / 2880**2)


def test_a_sliding_window_holds_the_new_tokens_of_a_step_too() -> None:
    """github.com/vllm-project/vllm/issues/27508: gpt-oss-120b needs 4.54 GiB for 131,072 tokens."""
    row = next(row for row in start_logs() if row["case"] == "gpt-oss-120b")
    setting = setting_of(row)
    c = layout_of({**row, "max_num_batched_tokens": "1024"}, setting)
    needed = float(sequence_bytes(setting, c, 131_072)[0])
    assert needed / GIB == pytest.approx(4.54, rel=0.002)


def test_where_the_usual_sequences_leave_no_room_those_of_the_plan_do() -> None:
    row = next(row for row in start_logs() if row["case"] == "Qwen3 32B")
    setting = setting_of(row)
    one = layout_of(row, setting)
    few = serving_memory(setting, one)
    many = serving_memory(setting, replace(one, concurrency=np.array([14.0])))
    # 4.3 GiB remain where 1,024 sequences are sampled: 14 of 2,048 tokens need more.
    assert few.activations[0] > 2 * many.activations[0]
    assert few.room.size[0] < many.kv_cache[0] < many.room.size[0]


def test_peers_over_pcie_need_no_buffers() -> None:
    row = next(row for row in start_logs() if row["case"] == "Qwen3 32B tp 2")
    fast = predicted(row)[0].reserved[0]
    slow = predicted({**row, "gpu": "rtx4090-24gb"})[0].reserved[0]
    assert fast - slow == pytest.approx(0.41 * GIB)


def test_logs_say_how_sure_room_is() -> None:
    found = [one for one in logged_endings() if one.keys[-1][1] == "vLLM"]
    assert len(found) >= 10
    assert all(abs(one.error) < 0.06 for one in found)
    others = [Ending(keys=one.keys[:2], publisher="x", room=0.2, error=error, ran_out=False)
              for one, error in zip(found[:8], np.linspace(-0.2, 0.2, 8), strict=True)]  # fmt: skip
    made = fits([*others, *found])
    # They tell of their own engine alone.
    assert made["continuous", "", ""] == fits(others)["continuous", "", ""]
    assert made["continuous", "vLLM", ""][0][1] < made["continuous", "", ""][0][1]


@pytest.mark.parametrize(
    ("input_tokens", "bound", "tensor_parallel", "expected"),
    [
        # Gemma 2 9B has 256,000 words, states of 3,584, and 28,672 inner elements of a gated block:
        # 4 bytes of each logit, 4 of each state, 2 of what a layer needs at once.
        (1000, 4096, 1, 4096 * (4 * (256_000 + 3_584) + 2 * (4 * 3_584 + 28_672))),
        # A prompt is never cut; each of two ranks has its half of the logits beside all.
        (8000, 4096, 2, 8000 * (5 * 256_000 + 4 * 3_584 + 2 * (4 * 3_584 + 14_336))),
        (1000, 2048, 1, 2048 * (4 * (256_000 + 3_584) + 2 * (4 * 3_584 + 28_672))),
    ],
)
def test_a_warm_up_computes_the_logits_of_all_tokens_of_a_step(
    input_tokens: int, bound: int, tensor_parallel: int, expected: int
) -> None:
    """router/client and flash_causal_lm.py of Text Generation Inference, ``prefill_logprobs``."""
    setting = serving_setting("gemma-2-9b", "l4-24gb", engine="tgi-2", input_tokens=input_tokens)
    c = replicas(
        num_gpus=tensor_parallel, tensor_parallel=tensor_parallel, max_num_batched_tokens=bound
    )
    found = float(serving_memory(setting, c).activations)
    assert found == pytest.approx(expected, rel=1e-12)


@each(
    ("issue", "model", "gpu", "engine", "tensor_parallel", "bound", "tokens"),
    [
        (1831, "mistral-7b-v0.2", "a100-sxm-80gb", "tgi-2", 1, 32_768, 425_472),
        (2744, "llama-3.1-70b", "a100-sxm-80gb", "tgi-2", 2, 10_049, 30_816),
        (832, "llama-2-70b", "a100-sxm-80gb", "tgi-1", 4, 4096, 406_560),
        (653, "llama-2-7b", "a10g-24gb", "tgi-1", 1, 4096, 16_224),
    ],
)
def test_tokens_that_text_generation_inference_found_room_for(
    issue: int, model: str, gpu: str, engine: str, tensor_parallel: int, bound: int, tokens: int
) -> None:
    """Logged as "Setting max batch total tokens" in its issues on GitHub."""
    setting = serving_setting(model, gpu, engine=engine, input_tokens=1024)
    c = replicas(
        num_gpus=tensor_parallel, tensor_parallel=tensor_parallel, max_num_batched_tokens=bound
    )
    room = float(serving_memory(setting, c).room.size)
    of_token = float(sequence_bytes(setting, c, 4096)) / 4096
    assert room / of_token == pytest.approx(tokens, rel=0.08), issue


def test_the_newest_text_generation_inference_stays_within_its_share() -> None:
    """TGI_WIGGLE_ROOM of 3.x counts what is taken as well; 2.x leaves 5 % of what is free."""
    rooms = {}
    for engine in ("tgi", "tgi-2"):
        setting = serving_setting("llama-2-7b", "a100-sxm-80gb", engine=engine, input_tokens=1024)
        memory = serving_memory(setting, replicas(max_num_batched_tokens=4096))
        rooms[engine] = float(memory.room.size + memory.non_cache_bytes)
        free = setting.machine.gpu.allocatable_memory - float(memory.non_cache_bytes)
        assert engine == "tgi" or float(memory.room.size) == pytest.approx(0.95 * free)
    size = setting.machine.gpu.allocatable_memory
    assert rooms["tgi"] == pytest.approx(0.9 * size)
    assert rooms["tgi-2"] > 0.94 * size


@pytest.mark.parametrize(
    ("engine", "release", "is_expanded"),
    [("vllm-v0", "", True), ("vllm-0.7", "0.7.0", True), ("vllm-0.7", "0.7.1", False)],
)
def test_early_releases_cache_the_keys_and_values_of_latent_attention(
    engine: str, release: str, is_expanded: bool
) -> None:
    """github.com/vllm-project/vllm/pull/10927: 5,373 blocks of 16 tokens in 35.42 GiB."""
    setting = serving_setting("deepseek-v2-lite", "h100-sxm", engine)
    on_gpu = engine_on(setting.engine, setting.machine.gpu, release)
    room = 35.42 * GIB / sequence_bytes(replace(setting, engine=on_gpu), replicas(), 1024) * 1024
    assert float(np.ravel(room)[0]) == pytest.approx(
        5373 * 16 if is_expanded else 35.42 * GIB / 31_104, rel=0.01
    )


@pytest.mark.slow
def test_some_releases_want_the_cache_of_all_stages_on_each(tmp_path: Path) -> None:
    """github.com/vllm-project/vllm/issues/34076: 24 GiB for 262,144 tokens of 48 layers."""
    text = "vllm serve Qwen/Qwen3-Coder-30B-A3B-Instruct-FP8 --pipeline-parallel-size 2"
    path = tmp_path / "serve.sh"
    starts = {}
    for release in ("0.13.0", "0.15.1", "0.16.0"):
        path.write_text(f"# vLLM {release}\n{text} --max-model-len 200000\n")
        imported = read_launch(path, gpu="rtx5090")
        request = imported.request({"gpu": "rtx5090", "num_gpus": 2}, None)
        starts[release] = not evaluate_launch(request)[1].rejected_by
    assert starts == {"0.13.0": True, "0.15.1": False, "0.16.0": True}


def test_the_whole_cache_of_a_request_is_that_of_all_layers() -> None:
    setting = serving_setting("qwen3-30b-a3b", "rtx5090", "vllm-0.8", max_model_len=262_144)
    engine = engine_on(setting.engine, setting.machine.gpu, "0.15.1")
    c = replicas(num_gpus=2, pipeline_parallel=2)
    halves, whole = (
        needed_to_start(each, memory := serving_memory(each, c), c) - memory.non_cache_bytes
        for each in (setting, replace(setting, engine=engine))
    )
    assert float(np.ravel(whole)[0]) / GIB == pytest.approx(24.0, rel=1e-3)
    assert whole == pytest.approx(2 * halves, rel=1e-3)


def test_sglang_leaves_memory_by_the_tokens_and_graphs_of_a_step() -> None:
    """mem_fraction_static of python/sglang/srt/server_args.py 0.5.4: 0.5 + 12 + 0.5 + 1/8 GiB of an
    H100; then gpt-oss-120b runs 44 of 1,000 requests on average (GPUStack performance lab)."""
    lengths = {"input_tokens": 215, "output_tokens": 197}
    setting = serving_setting("gpt-oss-120b", "h100-sxm-80gb", "sglang", **lengths)
    c = replicas(concurrency=1000, expert_quantization=Quantization.MXFP4)
    memory = serving_memory(setting, c)
    kept = setting.machine.gpu.allocatable_memory / GIB - 0.5 - 12 - 0.5 - 0.125
    cache = float(memory.usable - memory.non_cache_bytes) / GIB
    assert cache == pytest.approx(kept - float(np.ravel(memory.weights)[0]) / GIB, abs=0.01)
    assert 44 < float(memory.most_sequences) < 100
