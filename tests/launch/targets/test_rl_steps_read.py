"""What files of programs that train on generated answers say of their whole step."""

from functools import partial
from pathlib import Path

import pytest
from rows import each

import planner
from planner.decide.suggestions.changes import allowed_changes, best_changes
from planner.errors import PlannerError
from planner.launch.read.import_launch import ImportedLaunch
from planner.launch.read.launch_file import LaunchFile, evaluate_launch, full_row
from planner.launch.read.option_lines import Status
from planner.launch.read.read_launch import read_launch
from planner.launch.write.rewrite_launch import can_express
from planner.show.presenters.search import estimate_command
from planner.sweeps.find_plan import read_request_of_file

_VERL = (
    "actor_rollout_ref.model.path=Qwen/Qwen2-7B-Instruct algorithm.adv_estimator=grpo "
    "trainer.n_gpus_per_node=8 trainer.nnodes=2 actor_rollout_ref.rollout.n=8 "
    "data.train_batch_size=512 actor_rollout_ref.actor.ppo_mini_batch_size=64 "
    "data.max_prompt_length=1024 data.max_response_length=8192 "
    "actor_rollout_ref.actor.use_dynamic_bsz=True "
)
_MAIN = "python3 -m verl.trainer.main_ppo "
_STREAMED = "python3 -m verl.experimental.fully_async_policy.fully_async_main "


def read(folder: Path, text: str, name: str = "run.sh") -> ImportedLaunch:
    (folder / name).write_text(text)
    return read_launch(folder / name, workload="rl")


def told(found: ImportedLaunch, *names: str) -> list[str]:
    return [str(found.values.get(name)) for name in names]


def test_a_step_of_verl(tmp_path: Path) -> None:
    """512 prompts x 8 answers; an update of 64 prompts is one of 512 answers."""
    words = (
        "actor_rollout_ref.rollout.tensor_model_parallel_size=4 "
        "actor_rollout_ref.rollout.gpu_memory_utilization=0.6 "
        "actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.actor.ppo_epochs=2 "
        "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=18432 "
    )
    found = read(tmp_path, _MAIN + _VERL + words)
    names = ("prompts_per_step", "samples_per_prompt", "global_batch_size", "num_gpus")
    assert told(found, *names) == ["512", "8", "512", "16"]
    lengths = ("input_tokens", "output_cap", "output_tokens", "micro_batch_tokens")
    assert told(found, *lengths) == ["1024", "8192", "2048", "18432"]
    engine = ("rollout_tensor_parallel", "rollout_gpu_memory", "update_epochs", "max_num_seqs")
    assert told(found, *engine) == ["4", "0.6", "2", "256"]
    assert told(found, "algorithm", "reference_model", "critic") == ["grpo", "True", "False"]
    assert told(found, "framework", "placement") == ["verl", "colocated"]
    assert not found.lines_with_status(Status.UNKNOWN)


def test_what_verl_has_where_a_file_is_silent(tmp_path: Path) -> None:
    found = read(tmp_path, _MAIN + "actor_rollout_ref.model.path=Qwen/Qwen2-7B-Instruct")
    names = ("prompts_per_step", "samples_per_prompt", "input_tokens", "output_cap")
    assert told(found, *names) == ["1024", "1", "512", "512"]
    names = ("rollout_tensor_parallel", "rollout_gpu_memory", "algorithm", "critic")
    assert told(found, *names) == ["2", "0.5", "ppo", "True"]
    assert {*names[:3], "prompts_per_step"} <= {*found.defaults}


def test_counts_that_text_does_not_tell_are_asked_for(tmp_path: Path) -> None:
    words = "data.train_batch_size=$PROMPTS data.max_response_length=$LONGEST"
    found = read(tmp_path, _MAIN + _VERL + words)
    assert {"prompts_per_step", "output_cap"} <= {*found.missing_terms({})}
    words = "actor_rollout_ref.rollout.n=$N actor_rollout_ref.rollout.max_num_seqs=$PLACES"
    assert "samples_per_prompt" in read(tmp_path, f"{_STREAMED}{_VERL}{words}").missing_terms({})


@each(
    ("words", "name", "value"),
    [
        ("algorithm.adv_estimator=rloo", "algorithm", "rloo"),
        ("algorithm.adv_estimator=reinforce_plus_plus", "algorithm", "rloo"),
        ("algorithm.filter_groups.enable=True", "algorithm", "dapo"),
        ("algorithm.rollout_correction.bypass_mode=True", "old_logprob", "False"),
        ("actor_rollout_ref.rollout.name=sglang", "engine", "sglang"),
        ("actor_rollout_ref.model.use_fused_kernels=True", "loss_kernel", "linear"),
        ("actor_rollout_ref.model.use_fused_kernels=False", "loss_kernel", "auto"),
        ("actor_rollout_ref.actor.entropy_coeff=0.001", "loss_kernel", "eager"),
        ("actor_rollout_ref.actor.entropy_coeff=0", "loss_kernel", "None"),
        (
            "actor_rollout_ref.actor.entropy_coeff=0.001 "
            "actor_rollout_ref.model.use_fused_kernels=True",
            "loss_kernel",
            "linear",
        ),
        (
            "actor_rollout_ref.actor.calculate_entropy=True "
            "actor_rollout_ref.actor.entropy_from_logits_with_chunking=True",
            "loss_kernel",
            "None",
        ),
        ("actor_rollout_ref.rollout.free_cache_engine=False", "offload_rollout", "false"),
        ("actor_rollout_ref.actor.fsdp_config.param_offload=True", "offload_train", "False"),
        (
            "actor_rollout_ref.actor.fsdp_config.param_offload=True "
            "actor_rollout_ref.actor.fsdp_config.optimizer_offload=True",
            "offload_train",
            "True",
        ),
        ("actor_rollout_ref.actor.strategy=megatron", "framework", "verl Megatron"),
        # Ranks that share a sequence share the budget: 16,384 tokens on each of two.
        ("actor_rollout_ref.actor.ulysses_sequence_parallel_size=2", "micro_batch_tokens", "32768"),
        # Two sequences of 1,024 + 8,192 tokens; four of 1,024 + a quarter of 8,192.
        (
            "actor_rollout_ref.actor.use_dynamic_bsz=False "
            "actor_rollout_ref.model.use_remove_padding=False "
            "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2",
            "micro_batch_tokens",
            "18432",
        ),
        (
            "actor_rollout_ref.actor.use_dynamic_bsz=False "
            "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4",
            "micro_batch_tokens",
            "12288",
        ),
    ],
)
def test_words_of_verl(tmp_path: Path, words: str, name: str, value: str) -> None:
    assert told(read(tmp_path, _MAIN + _VERL + words), name) == [value]


@pytest.mark.parametrize(
    ("program", "words", "split"),
    [
        (_MAIN, "actor_rollout_ref.hybrid_engine=False rollout.n_gpus_per_node=4",
         ["separate", "16", "20", "None", "None"]),
        ("python3 -m recipe.one_step_off_policy.async_main_ppo ", "rollout.nnodes=1",
         ["one_step_off", "16", "24", "1", "None"]),
        # Batches that are generated ahead are how old weights are; the threshold drops answers.
        (_MAIN, "trainer.v1.trainer_mode=colocate_async "
         "trainer.v1.separate_async.num_warmup_batches=3",
         ["colocated", "None", "16", "1", "True"]),
        (_MAIN, "trainer.v1.trainer_mode=colocate_async "
         "trainer.v1.colocate_async.num_warmup_batches=0",
         ["colocated", "None", "16", "0", "False"]),
        (_MAIN, "trainer.v1.trainer_mode=separate_async actor_rollout_ref.rollout.nnodes=3 "
         "trainer.v1.separate_async.num_warmup_batches=2 "
         "trainer.v1.sampler.max_off_policy_threshold=6",
         ["async", "16", "40", "2", "True"]),
        (_STREAMED, "rollout.nnodes=2 async_training.staleness_threshold=0.5",
         ["async", "16", "32", "1", "True"]),
        (_STREAMED, "rollout.nnodes=2 async_training.staleness_threshold=0",
         ["async", "16", "32", "0", "False"]),
    ],
)  # fmt: skip
def test_placements_of_verl(tmp_path: Path, program: str, words: str, split: list[str]) -> None:
    found = read(tmp_path, program + _VERL + words)
    names = ("placement", "train_gpus", "num_gpus", "staleness", "partial_rollout")
    assert told(found, *names) == split


def test_a_step_of_verl_that_streams_is_what_it_trains_between_transfers(tmp_path: Path) -> None:
    """4 updates of 2 x 64 prompts, whatever data.train_batch_size says."""
    words = "async_training.require_batches=2 async_training.trigger_parameter_sync_step=4 "
    words += "data.train_batch_size=0"
    found = read(tmp_path, _STREAMED + _VERL + words)
    assert told(found, "prompts_per_step", "global_batch_size") == ["512", str(2 * 64 * 8)]
    assert told(found, "old_logprob") == ["False"]


@each(("words", "places"), [("", "128"), ("concurrent_samples_per_replica=40", "256")])
def test_prompts_that_verl_streams_at_once_bound_the_places(
    tmp_path: Path, words: str, places: str
) -> None:
    """16 prompts with 8 answers each in an engine; verl's max_num_seqs is 256."""
    found = read(tmp_path, f"{_STREAMED}{_VERL}async_training.{words or 'require_batches=1'}")
    assert told(found, "max_num_seqs") == [places]


@pytest.mark.parametrize(
    ("words", "exchange"),
    [
        (_MAIN + _VERL + "actor_rollout_ref.actor.ulysses_sequence_parallel_size=2", "a2a"),
        (
            "python3 -m openrlhf.cli.train_ppo_ray --pretrain Qwen/Qwen2-7B-Instruct "
            "--train.colocate_all --zero_stage 3 --ring_attn_size 2 "
            "--vllm_gpu_memory_utilization 0.5 --advantage_estimator group_norm "
            "--gradient_checkpointing",
            "p2p",
        ),
    ],
)
def test_ranks_that_share_sequences_are_predicted(
    tmp_path: Path, words: str, exchange: str
) -> None:
    """verl's trade tokens for heads, OpenRLHF's send keys round a ring."""
    file = tmp_path / "run.sh"
    file.write_text(words)
    request = (
        LaunchFile(path=file, answers={"gpu": "h100-sxm-80gb"}, workload="rl").question().request
    )
    _, found, _ = evaluate_launch(request)
    assert not found.rejected_by
    assert full_row(found)["cp_comm_type"] == exchange
    assert full_row(found)["context_parallel"] == 2


def test_a_program_that_is_told_as_verl_is_read_so_and_named(tmp_path: Path) -> None:
    found = read(tmp_path, "python3 -m recipe.partial_rollout.start " + _VERL)
    assert told(found, "prompts_per_step", "framework") == ["512", "verl"]
    assert "recipe.partial_rollout.start is read as verl" in " ".join(found.notes)


def test_a_step_is_predicted_and_answers_beside_the_file_count(tmp_path: Path) -> None:
    file = tmp_path / "run.sh"
    file.write_text(_MAIN + _VERL)
    asked = {"gpu": "h100-sxm-80gb", "output_tokens": "3000"}
    question = LaunchFile(path=file, answers=asked, workload="rl").question()
    request = question.request
    assert request.workload == "rl"
    assert (request.prompts_per_step, request.output_cap) == (512, 8192)
    _, found, _ = evaluate_launch(request)
    (step,) = found.candidates.step_time.ravel()
    assert step > 0


def test_without_the_word_the_update_is_read_and_the_step_is_offered(tmp_path: Path) -> None:
    file = tmp_path / "run.sh"
    file.write_text(_MAIN + _VERL)
    found = read_launch(file)
    assert found.workload == "train"
    assert "--workload rl" in " ".join(found.notes)


_ADAPTED = ("adapter", "lora_rank", "lora_targets", "adapter_sync")


@each(
    ("words", "sync"),
    [
        ("lora_rank=32", "None"),
        ("lora.rank=32", "None"),
        ("lora_rank=32 actor_rollout_ref.model.lora.merge=True", "merged"),
    ],
)
def test_adapters_of_verl(tmp_path: Path, words: str, sync: str) -> None:
    found = read(tmp_path, f"{_MAIN}{_VERL}actor_rollout_ref.model.{words}")
    assert told(found, *_ADAPTED) == ["lora", "32", "all_linear", sync]


@each(
    ("given", "targets"),
    [
        ("all-linear", "all_linear"),
        ("null", "all_linear"),
        ("[q_proj,v_proj]", "q_proj,v_proj"),
        ('\'["k_proj","o_proj"]\'', "k_proj,o_proj"),
        ("[linear_qkv,linear_proj,linear_fc1,linear_fc2]", "all_linear"),
        ("[*.layers.0.*.linear_qkv,x_proj]", "attention"),
    ],
)
def test_modules_that_get_adapters(tmp_path: Path, given: str, targets: str) -> None:
    """Names that are all known stay, others are the nearest set."""
    words = f"lora_rank=8 actor_rollout_ref.model.target_modules={given}"
    found = read(tmp_path, f"{_MAIN}{_VERL}actor_rollout_ref.model.{words}")
    assert told(found, "lora_targets") == [targets]


@each(
    ("words", "targets"),
    [
        ("target_modules: [q_proj]", "all_linear"),
        ("match_all_linear: false, target_modules: [q_proj]", "q_proj"),
    ],
)
def test_modules_of_nemo_rl_are_read_where_not_all_match(
    tmp_path: Path, words: str, targets: str
) -> None:
    trainer = f"dtensor_cfg: {{enabled: true, lora_cfg: {{enabled: true, {words}}}}}"
    text = _NEMO.replace("megatron_cfg: {enabled: true}", trainer)
    assert told(read(tmp_path, text, "a.yaml"), "lora_targets") == [targets]


def test_a_step_of_verl_without_adapters_says_nothing_of_them(tmp_path: Path) -> None:
    found = read(tmp_path, _MAIN + _VERL + "actor_rollout_ref.model.lora.merge=True")
    assert told(found, *_ADAPTED) == ["None", "None", "None", "None"]


def test_adapters_of_a_program_that_has_none_on_answers_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "run.sh"
    file.write_text(
        "python3 -m openrlhf.cli.train_ppo_ray --pretrain Qwen/Qwen2.5-7B-Instruct "
        "--actor_num_nodes 1 --actor_num_gpus_per_node 8 --lora_rank 16"
    )
    question = LaunchFile(path=file, answers={"gpu": "h100-sxm-80gb"}, workload="rl").question()
    with pytest.raises(PlannerError, match="OpenRLHF trains no adapters on generated answers"):
        evaluate_launch(question.request)


def test_a_budget_below_the_longest_answer_is_refused_as_in_a_question(tmp_path: Path) -> None:
    file = tmp_path / "run.sh"
    file.write_text(_MAIN + _VERL + "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=4096")
    question = LaunchFile(path=file, answers={"gpu": "h100-sxm-80gb"}, workload="rl").question()
    with pytest.raises(PlannerError, match="no room for the longest"):
        evaluate_launch(question.request)


_NEMO = (
    "policy:\n  model_name: Qwen/Qwen2.5-1.5B\n  max_total_sequence_length: 4096\n"
    "  train_micro_batch_size: 2\n  megatron_cfg: {enabled: true}\n"
    "cluster: {gpus_per_node: 8, num_nodes: 4}\n"
)


def _nemo(generation: str = "", grpo: str = "") -> str:
    """With more of two of its sections, as flow mappings."""
    part = f"  generation: {{{generation}}}\n" if generation else ""
    whole = _NEMO.replace("cluster:", f"{part}cluster:")
    return whole + (f"grpo: {{{grpo}}}\n" if grpo else "")


def test_a_step_of_nemo_rl(tmp_path: Path) -> None:
    """Sequences of 4,096 tokens: an eighth of each is a prompt, the rest an answer at its most."""
    engine = "vllm_cfg: {tensor_parallel_size: 4, gpu_memory_utilization: 0.7, precision: fp8}"
    grpo = "num_prompts_per_step: 64, num_generations_per_prompt: 32"
    found = read(tmp_path, _nemo(engine, grpo), "a.yaml")
    assert told(found, "prompts_per_step", "samples_per_prompt", "num_gpus") == ["64", "32", "32"]
    lengths = ("input_tokens", "output_cap", "output_tokens", "micro_batch_tokens")
    assert told(found, *lengths) == ["512", "3584", "896", str(2 * 4096)]
    names = ("rollout_tensor_parallel", "rollout_gpu_memory", "rollout_quantization")
    assert told(found, *names) == ["4", "0.7", "fp8"]
    assert told(found, "framework", "placement") == ["NeMo-RL", "colocated"]
    assert told(found, "algorithm", "reference_model") == ["grpo", "True"]
    assert "input_tokens" in found.defaults


@each(
    ("generation", "grpo", "name", "value"),
    [
        ("backend: sglang, sglang_cfg: {mem_fraction_static: 0.55}", "", "engine", "sglang"),
        (
            "backend: sglang, sglang_cfg: {mem_fraction_static: 0.55}, "
            "vllm_cfg: {gpu_memory_utilization: 0.9}",
            "",
            "rollout_gpu_memory",
            "0.55",
        ),
        ("max_new_tokens: 1000", "", "output_cap", "1000"),
        ("refit_transport: nccl_reshard", "", "weight_sync", "reshard"),
        ("vllm_cfg: {enforce_eager: true}", "", "enforce_eager", "true"),
        ("", "use_dynamic_sampling: true", "algorithm", "dapo"),
    ],
)
def test_words_of_nemo_rl(
    tmp_path: Path, generation: str, grpo: str, name: str, value: str
) -> None:
    assert told(read(tmp_path, _nemo(generation, grpo), "a.yaml"), name) == [value]


@pytest.mark.parametrize(
    ("grpo", "split"),
    [
        ("", ["separate", "24", "32", "None", "None"]),
        ("async_grpo: {enabled: true}", ["async", "24", "32", "1", "False"]),
        ("async_grpo: {enabled: true, max_trajectory_age_steps: 3, in_flight_weight_updates: true}",
         ["async", "24", "32", "3", "True"]),
        ("}\nppo: {async_ppo: {enabled: true, max_trajectory_age_steps: 2}",
         ["async", "24", "32", "2", "False"]),
        ("}\nasync_rl: {sampler: {name: windowed, max_staleness_versions: 4, "
         "max_lookahead_versions: 1}",
         ["async", "24", "32", "4", "True"]),
        ("}\nasync_rl: {sampler: {name: in_order, max_lookahead_versions: 0}",
         ["separate", "24", "32", "None", "None"]),
    ],
)  # fmt: skip
def test_placements_of_nemo_rl(tmp_path: Path, grpo: str, split: list[str]) -> None:
    """Of four nodes one generates alone."""
    apart = "colocated: {enabled: false, resources: {num_nodes: 1}}"
    found = read(tmp_path, _nemo(apart, grpo), "a.yaml")
    names = ("placement", "train_gpus", "num_gpus", "staleness", "partial_rollout")
    assert told(found, *names) == split


def test_a_step_of_nemo_rl_begins_from_the_file_that_it_names(tmp_path: Path) -> None:
    """Also where a number refers to others: 3 x 1,024 tokens of a micro-batch."""
    packed = "sequence_packing: {enabled: true, train_mb_tokens: '${mul:${policy.length}, 3}'}"
    base = _NEMO.replace("  model_name", f"  length: 1024\n  {packed}\n  model_name")
    (tmp_path / "base.yaml").write_text(f"{base}grpo: {{num_prompts_per_step: 48}}\n")
    over = "defaults: base.yaml\npolicy: {max_total_sequence_length: 2048}\n"
    found = read(tmp_path, over, "a.yaml")
    names = ("prompts_per_step", "samples_per_prompt", "micro_batch_tokens", "num_gpus")
    assert told(found, *names) == ["48", "16", "3072", "32"]


def test_a_section_of_nemo_rl_that_is_null_leaves_nothing_of_the_one_before(tmp_path: Path) -> None:
    """The single controller's recipes take async_grpo away so."""
    apart = "colocated: {enabled: false, resources: {num_nodes: 1}}"
    (tmp_path / "base.yaml").write_text(_nemo(apart, "async_grpo: {enabled: true}"))
    found = read(tmp_path, "defaults: base.yaml\ngrpo: {async_grpo: null}\n", "a.yaml")
    assert told(found, "placement", "staleness") == ["separate", "None"]


@each(
    ("words", "framework"),
    [
        ("megatron_cfg: {enabled: true}", "NeMo-RL"),
        ("dtensor_cfg: {enabled: true}", "NeMo-RL DTensor"),
    ],
)
def test_the_trainer_of_nemo_rl(tmp_path: Path, words: str, framework: str) -> None:
    text = _NEMO.replace("megatron_cfg: {enabled: true}", words)
    assert told(read(tmp_path, text, "a.yaml"), "framework") == [framework]


_OPEN = "python3 -m openrlhf.cli.train_ppo_ray --pretrain Qwen/Qwen2-7B-Instruct "


@pytest.mark.parametrize(
    "words",
    [
        "--rollout_batch_size 256 --n_samples_per_prompt 8 --train_batch_size 1024 "
        "--vllm_tensor_parallel_size 2 --vllm_gpu_memory_utilization 0.6 --colocate_all_models "
        "--vllm_enable_sleep --deepspeed_enable_sleep --enforce_eager --max_epochs 2 "
        "--advantage_estimator group_norm --prompt_max_len 512 --generate_max_len 3584 "
        "--use_dynamic_batch --train_max_tokens_per_gpu 8192",
        "--rollout.batch_size 256 --rollout.n_samples_per_prompt 8 --train.batch_size 1024 "
        "--vllm.tensor_parallel_size 2 --vllm.gpu_memory_utilization 0.6 --train.colocate_all "
        "--vllm.enable_sleep --ds.enable_sleep --vllm.enforce_eager --train.max_epochs 2 "
        "--algo.advantage.estimator group_norm --data.max_len 4096 --rollout.max_new_tokens 3584 "
        "--train.dynamic_batch_enable --train.max_tokens_per_gpu 8192",
    ],
)
def test_a_step_of_openrlhf_in_older_and_newer_words(tmp_path: Path, words: str) -> None:
    """256 prompts x 8 answers, two updates of 1,024; sequences of 512 + 3,584 tokens."""
    found = read(tmp_path, _OPEN + words)
    names = ("prompts_per_step", "samples_per_prompt", "global_batch_size", "num_gpus")
    assert told(found, *names) == ["256", "8", "1024", "8"]
    lengths = ("input_tokens", "output_cap", "output_tokens", "micro_batch_tokens")
    assert told(found, *lengths) == ["512", "3584", "896", "8192"]
    engine = ("rollout_tensor_parallel", "rollout_gpu_memory", "enforce_eager", "update_epochs")
    assert told(found, *engine) == ["2", "0.6", "true", "2"]
    assert told(found, "offload_train", "offload_rollout") == ["true", "true"]
    assert told(found, "algorithm", "reference_model", "critic") == ["grpo", "True", "False"]
    assert told(found, "framework", "placement") == ["OpenRLHF", "colocated"]
    assert not found.lines_with_status(Status.UNKNOWN)


@each(
    ("words", "tokens"),
    [
        ("--ring_attn_size 2 --ds_tensor_parallel_size 2", "32768"),
        ("--generate_max_len 20000", "21024"),
    ],
)
def test_tokens_of_a_micro_batch_of_openrlhf(tmp_path: Path, words: str, tokens: str) -> None:
    """8,192 on each of four ranks that share sequences; a sequence of 1,024 + 20,000 is alone."""
    budget = "--use_dynamic_batch --train_max_tokens_per_gpu 8192"
    assert told(read(tmp_path, f"{_OPEN}{budget} {words}"), "micro_batch_tokens") == [tokens]


@each(("batch", "sequences"), [(96, 4), (100, 5)])
def test_sequences_of_a_micro_batch_divide_the_batch_of_a_rank(
    tmp_path: Path, batch: int, sequences: int
) -> None:
    """Five of 2,048 fit in 10,240 tokens: of the 12 of a rank four; all where 8 does not divide."""
    words = (
        "deepspeed --num_gpus 8 --module openrlhf.cli.train_sft --pretrain Qwen/Qwen2-7B-Instruct "
        f"--max_len 2048 --train_batch_size {batch} --zero_stage 3 --use_dynamic_batch "
        "--train_max_tokens_per_gpu 10240"
    )
    assert read(tmp_path, words).values["micro_batch_size"] == sequences


def test_what_openrlhf_has_where_a_file_is_silent(tmp_path: Path) -> None:
    found = read(tmp_path, _OPEN + "--train.colocate_all")
    names = ("prompts_per_step", "samples_per_prompt", "rollout_gpu_memory", "algorithm")
    assert told(found, *names) == ["1024", "1", "0.95", "ppo"]
    assert told(found, "offload_train", "offload_rollout", "critic") == ["false", "false", "True"]
    # Four sequences of 2,048 tokens.
    assert told(found, "global_batch_size", "micro_batch_tokens") == ["128", "8192"]


@pytest.mark.parametrize(
    ("words", "split"),
    [
        ("--vllm.num_engines 4 --vllm.tensor_parallel_size 2",
         ["separate", "8", "32", "None", "None"]),
        ("--vllm.num_engines 8 --ref.num_gpus_per_node 4", ["separate", "8", "28", "None", "None"]),
        ("--vllm.num_engines 8 --train.colocate_actor_ref",
         ["separate", "8", "24", "None", "None"]),
        ("--vllm.num_engines 2 --train.colocate_all --train.async_enable",
         ["async", "8", "10", "1", "False"]),
        ("--vllm.num_engines 8 --train.async_enable --train.async_queue_size 2 "
         "--train.partial_rollout_enable", ["async", "8", "32", "2", "True"]),
    ],
)  # fmt: skip
def test_placements_of_openrlhf(tmp_path: Path, words: str, split: list[str]) -> None:
    found = read(tmp_path, _OPEN + words)
    names = ("placement", "train_gpus", "num_gpus", "staleness", "partial_rollout")
    assert told(found, *names) == split


def test_a_file_that_generates_nothing_stays_a_plan_to_train(tmp_path: Path) -> None:
    words = "python3 -m openrlhf.cli.train_sft --pretrain Qwen/Qwen2-7B-Instruct"
    assert read(tmp_path, words).workload == "train"


def test_python_reads_a_step_too(tmp_path: Path) -> None:
    file = tmp_path / "run.sh"
    file.write_text(_MAIN + _VERL)
    request = planner.read_launch(file, gpu="h100-sxm-80gb", workload="rl", output_tokens=1500)
    assert (request.workload, request.output_tokens) == ("rl", 1500)
    assert planner.read_launch(file, gpu="h100-sxm-80gb").workload == "train"


def test_a_change_is_offered_for_a_step(tmp_path: Path) -> None:
    """Without recomputation the update does not fit beside its activations."""
    file = tmp_path / "run.sh"
    model = "actor_rollout_ref.model.path=Qwen/Qwen2.5-32B-Instruct "
    file.write_text(
        _MAIN + _VERL + model + "actor_rollout_ref.actor.strategy=megatron trainer.nnodes=4"
    )
    question = LaunchFile(path=file, answers={"gpu": "h100-sxm-80gb"}, workload="rl").question()
    plan, found, _ = evaluate_launch(question.request)
    assert found.rejected_by
    imported = question.imported
    may_be = allowed_changes(
        question.request, full_row(found), partial(can_express, imported), imported.defaults
    )
    changes = best_changes(plan, found, may_be)
    assert changes
    assert all(change.row["step_time_s"] > 0 for change in changes)


def test_what_is_answered_beside_the_file_is_no_default(tmp_path: Path) -> None:
    file = tmp_path / "run.sh"
    file.write_text(_MAIN + _VERL)
    asked = {"gpu": "h100-sxm-80gb", "output_tokens": "3000"}
    found = LaunchFile(path=file, answers=asked, workload="rl").question().imported
    assert not {"output_tokens"} & {*found.defaults, *found.values}
    assert "max_num_seqs" in found.defaults


def test_the_command_of_a_step_says_what_is_switched_off(tmp_path: Path) -> None:
    file = tmp_path / "run.sh"
    file.write_text(_MAIN + _VERL)
    request = (
        LaunchFile(path=file, answers={"gpu": "h100-sxm-80gb"}, workload="rl").question().request
    )
    plan, found, _ = evaluate_launch(request)
    command = estimate_command(plan, full_row(found))
    assert "--no-reference-model" in command
    assert "--no-critic" in command
    assert "--old-logprob" not in command


def test_a_step_stands_beside_that_of_another_file(tmp_path: Path) -> None:
    """The other file is read as what it is compared with."""
    for name, degree in (("a.sh", 4), ("b.sh", 2)):
        words = f"actor_rollout_ref.rollout.tensor_model_parallel_size={degree}"
        (tmp_path / name).write_text(_MAIN + _VERL + words)
    asked = {"gpu": "h100-sxm-80gb"}
    own = LaunchFile(path=tmp_path / "a.sh", answers=asked, workload="rl").question().request
    other = read_request_of_file(tmp_path / "b.sh", None, {}, fallback=own)
    degrees = [str(one.settings["rollout_tensor_parallel"]) for one in (own, other)]
    assert (other.workload, degrees) == ("rl", ["4", "2"])


def test_the_entropy_in_the_update_decides_what_fits(planner, tmp_path: Path) -> None:
    """GRPO of a 14B on 8 H100 ran out: verl-project/verl issue 855, of release 0.3.0.rc0."""
    words = (
        "actor_rollout_ref.model.path=deepseek-ai/DeepSeek-R1-Distill-Qwen-14B "
        "algorithm.adv_estimator=grpo data.train_batch_size=1024 data.max_prompt_length=512 "
        "data.max_response_length=512 actor_rollout_ref.actor.ppo_mini_batch_size=512 "
        "actor_rollout_ref.actor.use_dynamic_bsz=True "
        "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=24000 "
        "actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.rollout.name=vllm "
        "actor_rollout_ref.rollout.tensor_model_parallel_size=8 "
        "actor_rollout_ref.rollout.gpu_memory_utilization=0.6 actor_rollout_ref.rollout.n=5 "
        "trainer.n_gpus_per_node=8 trainer.nnodes=1 "
    )
    path = tmp_path / "run.sh"
    path.write_text(f"{_MAIN}{words}actor_rollout_ref.actor.entropy_coeff=0")
    first = " ".join(planner("estimate", "--from", path, "--gpu", "h100-sxm-80gb").out.split()[:40])
    assert first.startswith("May not fit: ")
    assert "does not fit with it in the update, as before." in first
    path.write_text(f"{_MAIN}{words}actor_rollout_ref.actor.entropy_coeff=0.001")
    out = planner("estimate", "--from", path, "--gpu", "h100-sxm-80gb").out
    assert out.startswith("Does not fit: ")
    roomier = words.replace("utilization=0.6", "utilization=0.4").replace("24000", "44000")
    path.write_text(_MAIN + roomier)
    out = planner("estimate", "--from", path, "--gpu", "h200-sxm-141gb").out
    assert out.startswith("Fits: ")
    assert "most depends on entropy" in " ".join(out.split())
