"""What a scheduler takes by default follows the GPU and the release."""

from __future__ import annotations

import pytest
from rows import each

import planner
from planner.specs.catalogue import load_gpu
from planner.specs.software_profile import engine_on, load_engine, scheduler_default

# GPU, release, sequences, tokens of a server, tokens of a program.
KNOWN = [
    ("h100-sxm-80gb", "", 1024, 8192, 16384),
    ("h200-sxm-141gb", "0.11.0", 1024, 8192, 16384),
    ("mi300x-192gb", "0.11.0", 1024, 8192, 16384),
    ("b200-sxm-180gb", "0.27.1", 1024, 8192, 16384),
    ("b200-sxm-180gb", "0.28.0", 1024, 16384, 16384),
    ("b200-sxm-180gb", "", 1024, 16384, 16384),
    ("a800-sxm-80gb", "0.11.0", 1024, 8192, 16384),
    ("a100-sxm-80gb", "", 256, 2048, 8192),
    ("a100-sxm-80gb", "0.9.0", 256, 2048, 8192),
    ("a100-sxm-80gb", "0.8.5", 1024, 8192, 16384),
    ("a100-sxm-40gb", "0.8.5", 256, 2048, 8192),
    ("l40s-48gb", "0.11.0", 256, 2048, 8192),
    ("rtx4090-24gb", "", 256, 2048, 8192),
    ("mi250", "0.11.0", 256, 2048, 8192),
    ("tpu-v6e", "0.11.0", 256, 1024, 2048),
    ("epyc-9654-2s", "0.11.0", 128, 2048, 4096),
]


@each("gpu, release, seqs, served, offline", KNOWN)
def test_the_defaults_of_vllm_follow_the_gpu_and_the_release(
    gpu: str, release: str, seqs: int, served: int, offline: int
) -> None:
    engine, silicon = load_engine("vllm").spec, load_gpu(gpu)
    server = engine_on(engine, silicon, release)
    program = engine_on(engine, silicon, release, offline=True)
    tokens = [one.scheduler.max_num_batched_tokens for one in (server, program)]
    assert (server.scheduler.max_num_seqs, *tokens) == (seqs, served, offline)
    assert server.memory.profiled_seqs == seqs


# chunked_prefill_size of python/sglang/srt/server_args.py at each release.
CHUNKS = [
    ("rtx4080-16gb", "0.5.9", 2048),
    ("rtx4090-24gb", "0.3.6", 2048),
    ("rtx4090-24gb", "", 2048),
    ("rtx5090-32gb", "0.5.9", 2048),
    ("rtx5090-32gb", "0.5.2", 2048),
    ("rtx5090-32gb", "0.4.6.post5", 8192),
    ("a100-sxm-40gb", "0.4.6.post5", 8192),
    ("a100-sxm-40gb", "0.5.2", 8192),
    ("a100-sxm-40gb", "0.5.3", 4096),
    ("l40s-48gb", "", 4096),
    ("a100-sxm-80gb", "", 8192),
    ("h100-sxm-80gb", "0.3.6", 8192),
    ("h100-sxm-80gb", "", 8192),
    ("h20-96gb", "0.5.9", 8192),
    ("h200-sxm-141gb", "0.4.8", 8192),
    ("h200-sxm-141gb", "", 8192),
    ("b200-sxm-180gb", "0.4.6.post5", 8192),
    ("b200-sxm-180gb", "0.4.8", 16384),
    ("mi300x-192gb", "0.5.9", 16384),
]


@each("gpu, release, tokens", CHUNKS)
def test_the_step_of_sglang_follows_the_gpu_and_the_release(
    gpu: str, release: str, tokens: int
) -> None:
    engine, silicon = load_engine("sglang").spec, load_gpu(gpu)
    for is_offline in (False, True):
        scheduler = engine_on(engine, silicon, release, offline=is_offline).scheduler
        assert scheduler.max_num_batched_tokens == tokens
        assert scheduler.max_num_seqs == 2048


def test_an_unknown_gpu_has_the_defaults_of_a_small_one() -> None:
    found = scheduler_default(load_engine("vllm").spec, None)
    assert found is not None
    assert (found.max_num_seqs, found.max_num_batched_tokens) == (256, 2048)


def test_profiles_of_one_engine_have_its_defaults_and_others_their_own() -> None:
    tables = {name: load_engine(name).spec.scheduler.defaults for name in ("vllm", "vllm-rocm")}
    assert tables["vllm"] == tables["vllm-rocm"] == load_engine("vllm-0.8").spec.scheduler.defaults
    lmdeploy = load_engine("lmdeploy").spec
    assert engine_on(lmdeploy, load_gpu("a100-sxm-80gb")) is lmdeploy


@pytest.mark.parametrize(
    ("gpu", "version", "tokens"),
    [("a100-sxm-80gb", None, 2048), ("a100-sxm-80gb", "0.8.5", 8192), ("h100", None, 8192)],
)
def test_flags_have_the_defaults_of_the_gpu(gpu: str, version: str | None, tokens: int) -> None:
    found = planner.estimate(
        workload="serve", model="llama-3.1-8b", gpu=gpu, num_gpus=1, engine="vllm",
        engine_version=version, settings={"tensor_parallel": 1, "concurrency": 8},
    )  # fmt: skip
    assert float(found.candidates.configurations.max_num_batched_tokens[0]) == tokens
