"""What the real parsers are known to derive and to refuse, so that their answers can be trusted."""

from __future__ import annotations

from typing import Any

import pytest
from real import derive, missing
from worked.asked import job
from worked.plans import PLANS

from planner.launch.targets import target_of

pytestmark = pytest.mark.launch

ONE_CONNECTION = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}


def answers(parser: str, cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if why := missing(parser):
        pytest.skip(why)
    return derive(parser, cases)


def megatron(shape: str, layout: str, world: int, **more: Any) -> dict[str, Any]:
    """A case of a model without biases, as public scripts write it."""
    common = "--swiglu --bf16 --disable-bias-linear --normalization RMSNorm --lr 1e-4 "
    common += "--untie-embeddings-and-output-weights --position-embedding-type rope "
    common += "--make-vocab-size-divisible-by 1 --train-iters 10 --micro-batch-size 1 "
    argv = f"{common} {shape} {layout}".split()
    return {"argv": argv, "world": world, "environment": ONE_CONNECTION, **more}


LLAMA_65B = "--num-layers 80 --hidden-size 8192 --num-attention-heads 64 --ffn-hidden-size 22016 "
LLAMA_65B += "--vocab-size 32000 --seq-length 2048 --max-position-embeddings 2048"
LLAMA_405B = "--num-layers 126 --hidden-size 16384 --num-attention-heads 128 "
LLAMA_405B += "--ffn-hidden-size 53248 --vocab-size 128256 --seq-length 8192 "
LLAMA_405B += "--max-position-embeddings 8192 --group-query-attention --num-query-groups 8"
MIXTRAL = "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --ffn-hidden-size 14336 "
MIXTRAL += "--vocab-size 32000 --seq-length 4096 --max-position-embeddings 4096 "
MIXTRAL += "--group-query-attention --num-query-groups 8 --num-experts 8 --moe-router-topk 2 "
MIXTRAL += "--moe-token-dispatcher-type alltoall --moe-grouped-gemm"
DEEPSEEK = "--num-layers 61 --hidden-size 7168 --num-attention-heads 128 --ffn-hidden-size 18432 "
DEEPSEEK += "--vocab-size 129280 --seq-length 4096 --max-position-embeddings 4096 "
DEEPSEEK += "--num-experts 256 --moe-router-topk 8 --moe-ffn-hidden-size 2048 "
DEEPSEEK += "--moe-shared-expert-intermediate-size 2048 --moe-layer-freq ([0]*3+[1]*58) "
DEEPSEEK += "--multi-latent-attention --q-lora-rank 1536 --kv-lora-rank 512 --qk-head-dim 128 "
DEEPSEEK += "--qk-pos-emb-head-dim 64 --v-head-dim 128 --qk-layernorm --moe-grouped-gemm "
DEEPSEEK += "--moe-router-score-function sigmoid --moe-router-enable-expert-bias"
SPLIT = "--tensor-model-parallel-size {} --pipeline-model-parallel-size {} --global-batch-size {} "


def test_megatron_counts_the_parameters_of_published_models() -> None:
    dense = SPLIT.format(8, 16, 2048) + "--sequence-parallel"
    even = "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split"
    experts = SPLIT.format(1, 4, 256) + "--expert-model-parallel-size 8"
    stages = "--pipeline-model-parallel-layout Et*3|(tt|)*29|L --expert-model-parallel-size 64"
    found = answers(
        "megatron",
        [
            megatron(LLAMA_65B, dense, 2048, parameters=True),
            megatron(LLAMA_405B, f"{dense} {even}", 2048, parameters=True),
            megatron(MIXTRAL, experts, 64, parameters=True),
            megatron(DEEPSEEK, SPLIT.format(1, 16, 15360) + stages, 2048, parameters=True),
        ],
    )
    assert [round(x["parameters"] / 1e9, 2) for x in found] == [65.29, 405.85, 46.70, 671.03]
    assert [x["data_parallel_size"] for x in found] == [16, 16, 16, 128]
    assert found[1]["layers"] == [[7], *[[8]] * 14, [7]]
    assert found[2]["expert_data_parallel_size"] == 2
    assert found[3]["layers"][0] == [3, 2]


def test_megatron_refuses_what_does_not_divide() -> None:
    experts = SPLIT.format(1, 4, 256) + "--expert-model-parallel-size 8"
    chunks = SPLIT.format(8, 4, 2048) + "--num-virtual-stages-per-pipeline-rank 3"
    uneven, too_few, uncut, unknown, variable = answers(
        "megatron",
        [
            megatron(LLAMA_405B, SPLIT.format(8, 16, 2048), 2048),
            megatron(MIXTRAL, experts, 8),
            megatron(LLAMA_65B, chunks, 2048),
            megatron(LLAMA_65B, SPLIT.format(1, 1, 8) + "--fp8-dot-product-attention", 8),
            megatron(LLAMA_65B, SPLIT.format(8, 1, 8), 8, environment={}),
        ],
    )
    assert "Number of layers should be divisible" in uneven["error"]
    assert "not divisible by expert_tensor_model_pipeline_parallel" in too_few["error"]
    assert "should be divisible by vp_size 3" in uncut["error"]
    assert "--fp8-dot-product-attention" in unknown["error"]
    assert "CUDA_DEVICE_MAX_CONNECTIONS" in variable["error"]


def test_megatron_accepts_too_few_micro_batches() -> None:
    """Two micro-batches for four stages in 20 chunks: our own rule refuses it before."""
    layout = SPLIT.format(8, 4, 2) + "--num-virtual-stages-per-pipeline-rank 20"
    (found,) = answers("megatron", [megatron(LLAMA_65B, layout, 32)])
    assert found["num_microbatches"] == 2


def titan(model: str, config: str, world: int, layout: str, **more: Any) -> dict[str, Any]:
    words = " ".join(f"--parallelism.{x}" for x in layout.split(", ") if x).split()
    argv = ["--module", model, "--config", config, *words, "--training.disable_cuda_graphs"]
    return {"argv": argv, "world": world, **more}


def test_torchtitan_counts_parameters_and_stages() -> None:
    pipeline = "tensor_parallel_degree 8, pipeline_parallel_degree 16"
    dense, experts = answers(
        "torchtitan",
        [
            titan("llama3", "llama3_405b", 2048, pipeline, parameters=True),
            titan("deepseek_v3", "deepseek_v3_671b", 512, "expert_parallel_degree 64",
                  parameters=True),
        ],
    )  # fmt: skip
    assert round(dense["parameters"] / 1e9, 2) == 405.85
    assert round(experts["parameters"] / 1e9, 2) == 671.03
    assert (dense["data_parallel"], experts["dp_shard"]) == (16, 512)
    assert sum(map(sum, dense["layers"])) == 126


def test_torchtitan_refuses_a_layout_of_another_size_and_unknown_options() -> None:
    size, unknown = answers(
        "torchtitan",
        [
            titan("llama3", "llama3_8b", 8, "tensor_parallel_degree 3"),
            titan("llama3", "llama3_8b", 8, "tensors_parallel_degree 2"),
        ],
    )
    assert "8" in size["error"]
    assert "tensors_parallel_degree" in unknown["error"]


def test_deepspeed_divides_batches_and_passes_over_misspelt_keys() -> None:
    batch = {"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2}
    zero = {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}
    good, split, wrong, inside, outside = answers(
        "deepspeed",
        [
            {"config": {**batch, **zero, "bf16": {"enabled": True}}, "world": 8},
            {"config": {**batch, "sequence_parallel_size": 4}, "world": 8},
            {"config": {**batch, "train_batch_size": 65}, "world": 8},
            {"config": {**batch, "zero_optimization": {"stages": 3}}, "world": 8},
            {"config": {**batch, "zero_optimisation": {"stage": 3}}, "world": 8},
        ],
    )
    assert (good["data_parallel"], good["gradient_accumulation"], good["zero_stage"]) == (8, 4, 3)
    assert good["offload_optimizer"] == "cpu"
    assert good["bf16"]
    assert good["unread"] == []
    assert split["data_parallel"] == 2
    assert "65 != 2 * 4 * 8" in wrong["error"]
    assert "zero" in inside["error"].lower()
    assert outside["unread"] == ["zero_optimisation"]


ACCELERATE = """\
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
mixed_precision: bf16
num_machines: 2
num_processes: 16
machine_rank: 0
main_process_ip: 10.0.0.1
main_process_port: 29500
fsdp_config:
  fsdp_version: 2
  fsdp_reshard_after_forward: true
parallelism_config:
  parallelism_config_dp_replicate_size: 2
  parallelism_config_dp_shard_size: 4
  parallelism_config_tp_size: 2
"""


def test_accelerate_takes_a_layout_and_refuses_keys_of_the_top_level() -> None:
    good, key, size = answers(
        "accelerate",
        [
            {"yaml": ACCELERATE},
            {"yaml": ACCELERATE + "use_parallelism_config: true\n"},
            {"yaml": ACCELERATE.replace("num_processes: 16", "num_processes: 24")},
        ],
    )
    assert good["parallelism"]["dp_shard_size"] == 4
    assert good["parallelism"]["total_size"] == good["num_processes"] == 16
    assert good["fsdp"]["reshard_after_forward"] == "True"
    assert "use_parallelism_config" in key["error"]
    assert "16" in size["error"]


def test_accelerate_takes_ranks_that_trade_heads() -> None:
    """8 shards x 4 ranks of a sequence on 32 GPUs, of DeepSpeed alone."""
    written = target_of("accelerate").make_draft(job(PLANS["accelerate"]["heads"])).files
    (answer,) = answers("accelerate", [{"yaml": written[0].text}])
    sizes = answer["parallelism"]
    assert (sizes["dp_shard_size"], sizes["sp_size"], sizes["total_size"]) == (8, 4, 32)
    assert (answer["use_deepspeed"], answer["deepspeed"]["zero_stage"]) == (True, 3)


def test_peft_counts_what_an_adapter_trains() -> None:
    config = {**LLAMA, "hidden_size": 5120, "intermediate_size": 13824, "num_hidden_layers": 40}
    config |= {"num_attention_heads": 40, "num_key_value_heads": 40, "vocab_size": 32000}
    good, wrong = answers(
        "peft",
        [
            {"config": config, "lora": {"r": 16, "target_modules": ["q_proj", "v_proj"]}},
            {"config": config, "lora": {"r": 16, "target_modules": ["query"]}},
        ],
    )
    assert good["trainable"] == 13_107_200
    assert good["parameters"] == 13_015_864_320
    assert "query" in wrong["error"]


def test_training_arguments_refuse_unknown_keys() -> None:
    good, wrong = answers(
        "transformers",
        [
            {"argv": ["--per_device_train_batch_size", "2", "--bf16", "true"]},
            {"arguments": {"per_gpu_batch": 2}},
        ],
    )
    assert (good["per_device_train_batch_size"], good["bf16"]) == (2, True)
    assert "per_gpu_batch" in wrong["error"]


def test_vllm_says_its_world_and_refuses_what_does_not_run(tmp_path: Any) -> None:
    import json

    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    given = ["--tensor-parallel-size 4 --data-parallel-size 2 --max-num-seqs 64 --quantization fp8 "
             "--kv-cache-dtype fp8 --max-num-batched-tokens 4096 --max-model-len 8192"]  # fmt: skip
    given += ["--tensor-parallel-size 3", "--tensor-parallel-size 16", "--swap-spaces 4"]
    given += ["--gpu-memory-utilization 1.2", "--tensor-parallel-size 8 --max-num-seqs 0"]
    given += ["--max-model-len 200000"]
    good, *refused = answers("vllm", [{"argv": [str(tmp_path), *words.split()]} for words in given])
    assert (good["world"], good["max_num_seqs"], good["max_num_batched_tokens"]) == (8, 64, 4096)
    assert (good["quantization"], good["kv_cache_dtype"]) == ("fp8", "fp8")
    for answer, words in zip(
        refused,
        ["attention heads", "World size (16)", "--swap-spaces", "gpu_memory_utilization",
         "max_num_seqs", "max_model_len"],
        strict=True,
    ):  # fmt: skip
        assert words in answer["error"]


def test_sglang_divides_the_chunk_by_attention_data_parallel(tmp_path: Any) -> None:
    import json

    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    given = ["--tp-size 8 --mem-fraction-static 0.85 --max-running-requests 256"]
    given[0] += " --chunked-prefill-size 8192"
    given += ["--tp-size 8 --attn-dp-size 4 --chunked-prefill-size 8192", "--tp-sizes 8"]
    # Accepted though it cannot run: our own rule refuses it before.
    given += ["--tp-size 3"]
    plain, divided, unknown, heads = answers(
        "sglang", [{"argv": ["--model-path", str(tmp_path), *x.split()]} for x in given]
    )
    assert plain["mem_fraction_static"] == 0.85
    assert (plain["chunked_prefill_size"], plain["max_running_requests"]) == (8192, 256)
    assert divided["chunked_prefill_size"] == 2048
    assert "--tp-sizes" in unknown["error"]
    assert heads["tensor_parallel"] == 3
