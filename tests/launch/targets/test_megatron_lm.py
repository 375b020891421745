"""Megatron-LM's arguments: what is written, what is told, and the way back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from draws import examples
from hypothesis import HealthCheck, given, settings
from round_trip import found_of, job_of, lost, round_trip, stated, training_jobs
from rows import each

from planner.errors import LaunchError
from planner.estimators.training.sharding import chunk_split
from planner.launch.model_shape import model_of, shape_of
from planner.launch.read.parsed_launch import JobResources, LaunchSettings, ParsedCommand
from planner.launch.target import LaunchJob, ShellVariable
from planner.launch.targets import target_of
from planner.launch.targets.megatron_shape import chunks_of_layout, expert_layers, format_layout

TARGET = target_of("megatron-lm")
SOME = settings(max_examples=examples(60, 8), suppress_health_check=list(HealthCheck))


def job(model: str, num_gpus: int, **more: Any) -> LaunchJob:
    named = {"gpu": "h100-sxm", "sequence_length": 2048, "global_batch_size": 1536}
    asked = {name: more.pop(name) for name in list(more) if name in (*named, "mtp_num_layers")}
    made = job_of(
        workload="train",
        framework="megatron-lm",
        model=model,
        num_gpus=num_gpus,
        settings=more,
        **{**named, **asked},
    )
    assert made is not None
    return made


def words(of: LaunchJob) -> dict[str, str]:
    """Each option of the job with its text."""
    return {each.option: each.text or "" for each in TARGET.settings(of).options}


def read(world: JobResources | None = None, **options: str | None) -> LaunchSettings:
    """What a command says with these options: `bf16=None` is `--bf16`."""
    named = {f"--{name.replace('_', '-')}": text for name, text in options.items()}
    found = ParsedCommand(
        target=TARGET.name,
        name="run.sh",
        text="",
        options={n: stated(n, *([] if t is None else [t])) for n, t in named.items()},
        resources=world or JobResources(),
    )
    return TARGET.read_settings(found)


@pytest.mark.parametrize(
    ("written", "read_as"), [("alltoall", None), ("flex", "flex"), (None, "allgather")]
)
def test_how_tokens_get_to_their_experts_is_read(written: str | None, read_as: str | None) -> None:
    experts = {"num_experts": "8", "moe_router_topk": "2", "expert_model_parallel_size": "8"}
    told = {"moe_token_dispatcher_type": written} if written else {}
    found = read(**GPT, **experts, **told)
    assert found.values.get("token_dispatcher") == read_as
    assert ("token_dispatcher" in found.defaults) == (written is None)
    assert "token_dispatcher" not in read(**GPT).values


def test_a_dispatcher_of_the_plan_comes_back() -> None:
    made = job("mixtral-8x7b", 8, expert_parallel=8, token_dispatcher="flex")
    answers = TARGET.read_settings(found_of(TARGET, TARGET.make_draft(made)))
    assert answers.values["token_dispatcher"] == "flex"
    assert lost(TARGET, made, answers) == {}


def test_muon_of_older_releases_shards_its_states() -> None:
    alone, distributed = read(**GPT, optimizer="muon"), read(**GPT, optimizer="dist_muon")
    assert (alone.values["optimizer"], alone.values["zero_stage"]) == ("muon", "0")
    assert (distributed.values["optimizer"], distributed.values["zero_stage"]) == ("muon", "1")


GPT = {
    "num_layers": "24",
    "hidden_size": "1024",
    "num_attention_heads": "16",
    "vocab_size": "50257",
}
RUN = {"micro_batch_size": "1", "global_batch_size": "64", "seq_length": "2048", "bf16": None}


@SOME
@given(made=training_jobs())
def test_a_plan_comes_back_from_its_arguments(made: LaunchJob) -> None:
    assert round_trip(TARGET, made) == {}


@SOME
@given(made=training_jobs())
def test_a_shape_comes_back_from_its_arguments(made: LaunchJob) -> None:
    shape = TARGET.read_settings(found_of(TARGET, TARGET.make_draft(made))).shape
    assert shape is not None
    wanted = {name: value for name, value in shape_of(made.model).items() if value}
    wanted.pop("max_position_embeddings", None)
    assert wanted.items() <= shape.items()


def test_what_is_lost_is_seen() -> None:
    made = job("llama-65b", 64, tensor_parallel=8, pipeline_parallel=2, sequence_parallel=True)
    answers = TARGET.read_settings(found_of(TARGET, TARGET.make_draft(made)))
    other = replace(answers, values={**answers.values, "tensor_parallel": "4"})
    assert lost(TARGET, made, other) == {"tensor_parallel": (8, 4)}


def test_layers_that_do_not_divide_account_for_both_ends() -> None:
    """126 layers in 16 stages are 7, 14 x 8, 7: Megatron refuses the plain split."""
    made = job("llama-3.1-405b", 128, tensor_parallel=8, pipeline_parallel=16,
               sequence_parallel=True)  # fmt: skip
    said = words(made)
    assert said["--account-for-embedding-in-pipeline-split"] == ""
    assert said["--account-for-loss-in-pipeline-split"] == ""
    assert "--pipeline-model-parallel-layout" not in said


def test_other_splits_are_a_layout_which_tells_the_chunks() -> None:
    made = job("deepseek-v3", 256, pipeline_parallel=16, expert_parallel=8, mtp_num_layers=1)
    said = words(made)
    chunks = chunks_of_layout(said["--pipeline-model-parallel-layout"])
    assert [chunk.count("t") + chunk.count("m") for chunk in chunks] == chunk_split(
        made.model, 16, 1
    )
    assert chunks[-1].endswith("mL")
    assert "--num-virtual-stages-per-pipeline-rank" not in said


@pytest.mark.parametrize(("stages", "chunks"), [(32, 2), (16, 1), (31, 2), (8, 2)])
def test_layers_of_later_tokens_are_counted_once(stages: int, chunks: int) -> None:
    """61 layers and a module behind them: Megatron-Core refuses a layout with any other number."""
    made = job(
        "deepseek-v3", 8 * stages, global_batch_size=2048 // 31 * stages * 8,
        pipeline_parallel=stages, virtual_pipeline=chunks, expert_parallel=8, mtp_num_layers=1,
    )  # fmt: skip
    found = chunks_of_layout(words(made)["--pipeline-model-parallel-layout"])
    assert sum(chunk.count("t") for chunk in found) == 61
    assert [chunk.count("t") + chunk.count("m") for chunk in found] == chunk_split(
        made.model, stages, chunks
    )
    behind = "".join(found).partition("m")[2]
    assert behind == "L"
    assert round_trip(TARGET, made) == {}


def test_later_tokens_of_several_chunks_are_refused() -> None:
    with pytest.raises(LaunchError, match="in several chunks"):
        format_layout([1, 1, 1, 1], 2)


def test_ends_that_lack_several_layers_are_a_layout() -> None:
    made = job("deepseek-v3", 64, pipeline_parallel=4, virtual_pipeline=4, mtp_num_layers=0)
    sizes = chunk_split(made.model, 4, 4)
    assert min(sizes) < max(sizes) - 1
    said = words(made)
    layout = chunks_of_layout(said["--pipeline-model-parallel-layout"])
    assert [chunk.count("t") for chunk in layout] == sizes
    assert "--account-for-loss-in-pipeline-split" not in said


def test_defaults_of_megatron_that_are_not_the_model_s_are_written() -> None:
    said = words(job("llama-2-70b", 64, tensor_parallel=8, sequence_parallel=True))
    assert said["--attention-dropout"] == said["--hidden-dropout"] == "0.0"
    assert said["--normalization"] == "RMSNorm"
    assert said["--num-query-groups"] == "8"
    assert said["--make-vocab-size-divisible-by"] == "32"  # 32000 = 8 x 32 x 125
    for flag in ("--group-query-attention", "--swiglu", "--disable-bias-linear"):
        assert said[flag] == ""
    assert said["--untie-embeddings-and-output-weights"] == ""
    assert said["--train-iters"] == "635783"  # 2e12 tokens / (1536 x 2048)


def test_no_sequence_parallelism_is_asked_of_one_rank() -> None:
    assert "--sequence-parallel" not in words(job("llama-2-7b", 8))


def test_experts_are_dispatched_as_predicted() -> None:
    said = words(job("mixtral-8x7b", 64, expert_parallel=8, tensor_parallel=2,
                     sequence_parallel=True))  # fmt: skip
    assert said["--moe-token-dispatcher-type"] == "alltoall"
    assert said["--expert-tensor-parallel-size"] == "1"
    assert said["--moe-ffn-hidden-size"] == "14336"


def test_dense_layers_come_before_experts() -> None:
    said = words(job("deepseek-v3", 256, pipeline_parallel=16, expert_parallel=8))
    assert said["--moe-layer-freq"] == "([0]*3+[1]*58)"
    assert said["--qk-layernorm"] == said["--multi-latent-attention"] == ""


def test_one_connection_is_of_split_layers() -> None:
    (split,) = TARGET.make_draft(job("llama-2-7b", 8, tensor_parallel=2)).processes
    (whole,) = TARGET.make_draft(job("llama-2-7b", 8)).processes
    assert split.environment["CUDA_DEVICE_MAX_CONNECTIONS"] == "1"
    assert "CUDA_DEVICE_MAX_CONNECTIONS" not in whole.environment


def test_scaling_of_8_bit_is_that_of_the_gpu() -> None:
    hopper = words(job("llama-2-7b", 8, precision="fp8"))
    blackwell = words(job("llama-2-7b", 8, precision="fp8", gpu="b200"))
    assert (hopper["--fp8-format"], hopper["--fp8-recipe"]) == ("hybrid", "delayed")
    assert (blackwell["--fp8-format"], blackwell["--fp8-recipe"]) == ("e4m3", "mxfp8")


def test_what_megatron_cannot_say_is_told() -> None:
    made = job("llama-2-7b", 8, precision="fp8", fp8_attention=True)
    assert [each.parameter for each in TARGET.make_draft(made).unexpressed] == ["fp8_attention"]
    uneven = job("llama-65b", 16, pipeline_parallel=4, virtual_pipeline=5, recompute="full",
                 recompute_num_layers=7)  # fmt: skip
    assert [each.parameter for each in TARGET.make_draft(uneven).unexpressed] == [
        "recompute_num_layers"
    ]
    parallel = TARGET.make_draft(job("falcon-7b", 8)).unexpressed
    assert "side by side" in " ".join(map(str, parallel))


def test_a_benchmark_ends_and_saves_nothing() -> None:
    (measured,) = TARGET.make_draft(job("llama-2-7b", 8)).benchmark
    options = [each.words[0] for each in measured.arguments]
    assert "--save" not in options
    assert "--load" not in options
    last = [each for each in measured.arguments if each.words[0] == "--train-iters"][-1]
    assert last.words[1] == "50"


def test_layouts() -> None:
    assert chunks_of_layout("Et*3|(tt|)*29,m|L") == ["Ettt", *["tt"] * 29, "m", "L"]
    sizes = [3, 4, 4, 0, 5]
    assert [chunk.count("t") for chunk in chunks_of_layout(format_layout(sizes))] == sizes
    for wrong in ("Ex|L", "(t|)*9999*9999*9999", "E" + "t*9999" * 20):
        with pytest.raises(LaunchError, match="layout"):
            chunks_of_layout(wrong)


def test_layers_with_experts() -> None:
    assert expert_layers("([1]*2+[0]*1)*2", 6) == [True, True, False] * 2
    assert expert_layers("'[0, 1]'", 2) == [False, True]
    assert expert_layers("__import__('os')", 2) is None


def test_layers_of_several_kinds_are_a_pattern_cut_at_the_stages() -> None:
    made = job("nemotron-h-8b", 64, tensor_parallel=4, pipeline_parallel=2, sequence_parallel=True)
    said = words(made)
    pattern = said["--hybrid-layer-pattern"]
    assert [len(part) for part in pattern.split("|")] == chunk_split(made.model, 2, 1)
    assert {symbol: pattern.count(symbol) for symbol in "M-*"} == {"M": 24, "-": 24, "*": 4}
    assert said["--mamba-num-heads"] == "128"
    for refused in ("--num-layers", "--num-virtual-stages-per-pipeline-rank"):
        assert refused not in said
    (process,) = TARGET.make_draft(made).processes
    (program,) = process.arguments[0].words
    assert isinstance(program, ShellVariable)
    assert program.suffix == "/pretrain_hybrid.py"


def test_a_layer_with_both_blocks_is_two_symbols() -> None:
    made = job("qwen3-next-80b-a3b", 64, expert_parallel=8, mtp_num_layers=0)
    pattern = words(made)["--hybrid-layer-pattern"]
    assert (pattern.count("GE"), pattern.count("*E")) == (36, 12)
    with_module = job("qwen3-next-80b-a3b", 64, expert_parallel=8, mtp_num_layers=1)
    with pytest.raises(LaunchError, match="--mtp-num-layers 0"):
        TARGET.make_draft(with_module)


def test_layers_with_a_window_between_those_without_come_back() -> None:
    made = job("gpt-oss-20b", 8, expert_parallel=4)
    said = words(made)
    assert (said["--window-size"], said["--window-attn-skip-freq"]) == ("127,0", "2")
    assert "--moe-router-enable-expert-bias" not in said  # a bias of the linear layer
    shape = TARGET.read_settings(found_of(TARGET, TARGET.make_draft(made))).shape
    assert shape is not None
    assert model_of(shape, "x", "x").layer_groups == made.model.layer_groups


def test_a_model_of_several_kinds_is_asked_for() -> None:
    answers = read(**RUN, hidden_size="1024", num_attention_heads="16",
                   hybrid_layer_pattern="M-M*")  # fmt: skip
    assert answers.shape is None
    assert "model" in answers.missing


def test_experts_that_the_gpus_do_not_hold_are_refused() -> None:
    world = JobResources(gpus_per_node=stated("--nproc_per_node", "8"))
    with pytest.raises(LaunchError, match="multiples of 32"):
        read(world, **GPT, **RUN, pipeline_model_parallel_size="4", num_experts="8",
             expert_model_parallel_size="8")  # fmt: skip


@pytest.mark.parametrize(
    ("tensor", "said", "told"), [("2", None, 2), ("2", "1", 1), ("4", "2", 2), ("1", None, None)]
)
def test_experts_are_split_as_the_rest(tensor: str, said: str | None, told: Any) -> None:
    """Megatron-LM, megatron/core/parallel_state.py: without an option of its own."""
    own = {} if said is None else {"expert_tensor_parallel_size": said}
    sizes = {**GPT, **RUN, "tensor_model_parallel_size": tensor, **own}
    assert read(**sizes, num_experts="8").values.get("expert_tensor_parallel") == told
    assert "expert_tensor_parallel" not in read(**sizes).values


def test_a_number_that_text_does_not_tell_is_asked() -> None:
    unknown = stated("--tensor-model-parallel-size", None)
    plain = {f"--{name.replace('_', '-')}": text for name, text in {**GPT, **RUN}.items()}
    options = {name: stated(name, *([] if t is None else [t])) for name, t in plain.items()}
    found = ParsedCommand(target=TARGET.name, name="run.sh", text="",
                  options={**options, unknown.option: unknown})  # fmt: skip
    assert "tensor_parallel" in TARGET.read_settings(found).missing


def test_what_is_not_said_is_what_megatron_does() -> None:
    answers = read(**GPT, **RUN)
    assert answers.shape is not None
    assert answers.shape["intermediate_size"] == 4096
    assert answers.shape["position_embedding"] == "learned"
    assert answers.shape["tie_word_embeddings"]
    assert answers.shape["norm_bias"]
    assert answers.shape["qkv_bias"]
    assert answers.shape["mlp_bias"]
    assert answers.values["dropout"] == "true"
    assert answers.values["zero_stage"] == "0"
    assert "zero_stage" in answers.defaults
    assert answers.missing == ("num_gpus",)


@each(
    ("options", "name", "value"),
    [
        ({"use_flash_attn": None}, "flash_attention", "true"),
        ({"attention_backend": "unfused"}, "flash_attention", "false"),
        ({"recompute_activations": None}, "recompute", "selective"),
        ({"checkpoint_activations": None}, "recompute", "full"),
        ({"recompute_granularity": "selective", "recompute_modules": "moe"},
         "recompute", "feed_forward"),
        ({"recompute_granularity": "selective", "recompute_modules": "mlp layernorm"},
         "recompute_modules", "layernorm+mlp"),
        ({"num_layers_per_virtual_pipeline_stage": "3", "pipeline_model_parallel_size": "2"},
         "virtual_pipeline", 4),
        ({"pipeline_model_parallel_layout": "Et*8|t*8|t*8|L", "pipeline_model_parallel_size": "2"},
         "virtual_pipeline", 2),
        ({"use_megatron_fsdp": None, "data_parallel_sharding_strategy": "optim_grads_params"},
         "zero_stage", "3"),
        ({"fp8_format": "e4m3"}, "precision", "fp8"),
        ({"attention_dropout": "0", "hidden_dropout": "0.0"}, "dropout", "false"),
        ({"train_iters": "100"}, "total_tokens", 100 * 64 * 2048.0),
    ],
)  # fmt: skip
def test_other_ways_to_say_it(options: dict[str, str | None], name: str, value: Any) -> None:
    assert read(**{**GPT, **RUN, **options}).values[name] == value


def test_a_vocabulary_that_the_tokenizer_has() -> None:
    without = {name: text for name, text in GPT.items() if name != "vocab_size"}
    gpt2 = read(**without, **RUN, tokenizer_type="GPT2BPETokenizer")
    llama = read(**without, **RUN, tokenizer_type="HuggingFaceTokenizer",
                 tokenizer_model="meta-llama/Meta-Llama-3-8B")  # fmt: skip
    unknown = read(**without, **RUN)
    assert gpt2.shape is not None
    assert gpt2.shape["vocab_size"] == 50257
    assert llama.shape is not None
    assert llama.shape["vocab_size"] == 128256
    assert "model" in unknown.missing


def test_gpus_that_the_split_does_not_divide_are_refused() -> None:
    world = JobResources(gpus_per_node=stated("--nproc_per_node", "8"))
    with pytest.raises(LaunchError, match="multiples of 128"):
        read(world, **GPT, **RUN, tensor_model_parallel_size="8",
             pipeline_model_parallel_size="16")  # fmt: skip


def test_contradictions_are_refused() -> None:
    with pytest.raises(LaunchError, match="--bf16 and --fp16"):
        read(**GPT, **RUN, fp16=None)


def test_no_batch_is_a_micro_batch_of_each_rank() -> None:
    world = JobResources(gpus_per_node=stated("--nproc_per_node", "8"),
                  num_nodes=stated("--nnodes", "2"))  # fmt: skip
    run = {name: text for name, text in RUN.items() if name != "global_batch_size"}
    answers = read(world, **GPT, **run, tensor_model_parallel_size="4")
    assert (answers.values["num_gpus"], answers.values["global_batch_size"]) == (16, 4)


def test_latent_attention_leaves_the_kernel_open() -> None:
    said = words(job("deepseek-v3", 256, pipeline_parallel=16, expert_parallel=8))
    assert said["--attention-backend"] == "auto"  # FlashAttention 2 would be refused
    assert words(job("llama-2-7b", 8))["--attention-backend"] == "flash"


def test_narrow_gradients_are_read() -> None:
    """Two bytes of each decide whether a plan fits."""
    reading = TARGET.make_reader(
        ParsedCommand(
            target="megatron-lm",
            name="run.sh",
            text="",
            options={
                "--num-layers": stated("--num-layers", "32"),
                "--bf16": stated("--bf16"),
                "--grad-reduce-in-bf16": stated("--grad-reduce-in-bf16"),
            },
        )
    )
    assert TARGET.answers(reading).values["main_grads_precision"] == "bf16"


@pytest.mark.parametrize(
    ("imbalance", "words"), [(1.0, "equal work for all experts"), (1.3, "1.3 x the mean on one")]
)
def test_the_work_of_experts_that_was_predicted_is_told(imbalance: float, words: str) -> None:
    made = job("mixtral-8x7b", 8, expert_parallel=8, expert_imbalance=imbalance)
    left = TARGET.make_draft(made).left
    assert any(words in remark.note for remark in left)
    assert "router" in [remark.parameter for remark in left]


def test_sizes_that_megatron_has_by_default() -> None:
    """NVIDIA/Megatron-LM, megatron/training/arguments.py: latent attention and chosen experts."""
    shape = read(**GPT, **RUN, multi_latent_attention=None, num_experts="8").shape
    assert shape is not None
    latent = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    assert [shape[name] for name in latent] == [32, 128, 64, 128]
    assert (shape["num_experts_per_tok"], shape["num_dense_layers"]) == (2, 0)
