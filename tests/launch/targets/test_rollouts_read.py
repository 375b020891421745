"""What files of programs that train on generated answers say of the update of the policy."""

from dataclasses import replace
from pathlib import Path

import pytest

from planner.launch.read.import_launch import ImportedLaunch
from planner.launch.read.launch_file import LaunchFile
from planner.launch.read.option_lines import Status
from planner.launch.read.read_launch import read_launch
from planner.question.request import Request
from planner.workloads.make_plan import make_single_plan

_VERL = (
    "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen2-7B-Instruct "
    "trainer.n_gpus_per_node=8 trainer.nnodes=2 actor_rollout_ref.rollout.n=8 "
    "data.train_batch_size=512 actor_rollout_ref.actor.ppo_mini_batch_size=64 "
)
_OPEN = "python3 -m openrlhf.cli.train_ppo_ray --pretrain Qwen/Qwen2-7B-Instruct "
_NEMO = "policy:\n  model_name: Qwen/Qwen2.5-1.5B\ncluster:\n  gpus_per_node: 8\n  num_nodes: 2\n"


def read(folder: Path, text: str, name: str = "run.sh") -> ImportedLaunch:
    (folder / name).write_text(text)
    return read_launch(folder / name)


@pytest.mark.parametrize(
    ("words", "micro"),
    [
        ("actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2", 2),
        ("actor_rollout_ref.actor.ppo_micro_batch_size=64", 64 // 16),
        ("actor_rollout_ref.actor.use_dynamic_bsz=True", 16384 // 1024),
        (
            "actor_rollout_ref.actor.use_dynamic_bsz=True "
            "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=3072",
            2,  # 3 fit, and each rank's 32 sequences are not a multiple of 3
        ),
    ],
)
def test_a_micro_batch_of_verl(tmp_path: Path, words: str, micro: int) -> None:
    """64 prompts x 8 answers of 512 + 512 tokens, verl's, on 16 GPUs: 32 sequences on each."""
    found = read(tmp_path, _VERL + words).values
    assert (found["global_batch_size"], found["sequence_length"]) == (512, 1024)
    assert found["micro_batch_size"] == micro


@pytest.mark.parametrize(
    ("words", "objective"),
    [
        ("", "dapo"),
        ("actor_rollout_ref.actor.use_kl_loss=True", "grpo"),
        ("algorithm.use_kl_in_reward=True", "grpo"),
        ("actor_rollout_ref.actor.use_kl_loss=False", "dapo"),
    ],
)
def test_a_reference_model_of_verl(tmp_path: Path, words: str, objective: str) -> None:
    assert read(tmp_path, _VERL + words).values["training_objective"] == objective


def test_a_step_of_verl_is_several_updates_and_its_critic_is_told(tmp_path: Path) -> None:
    notes = " ".join(read(tmp_path, _VERL).notes)
    assert "A step of verl has 8 such updates" in notes
    assert "critic" in notes
    assert "critic" not in " ".join(read(tmp_path, _VERL + "algorithm.adv_estimator=grpo").notes)


def test_what_verl_moves_between_phases_is_on_the_gpu_in_the_update(tmp_path: Path) -> None:
    words = "actor_rollout_ref.actor.fsdp_config.param_offload=True"
    found = read(tmp_path, _VERL + words)
    assert found.values["offload"] == "none"
    assert "between the phases" in " ".join(found.notes)


def test_sizes_that_text_does_not_tell_are_asked_for(tmp_path: Path) -> None:
    found = read(tmp_path, _VERL + "trainer.nnodes=$NODES data.max_response_length=$LONGEST")
    assert {"num_gpus", "sequence_length", "micro_batch_size"} <= {*found.missing_terms({})}


@pytest.mark.parametrize(
    "words",
    [
        "--train_batch_size 256 --init_kl_coef 0 --zero_stage 3 --generate_max_len 3072",
        "--train.batch_size 256 --algo.kl.init_coef 0 --ds.zero_stage 3 "
        "--rollout.max_new_tokens 3072",
    ],
)
def test_older_and_newer_words_of_openrlhf_say_the_same(tmp_path: Path, words: str) -> None:
    found = read(tmp_path, _OPEN + words)
    told = ("global_batch_size", "training_objective", "zero_stage", "sequence_length", "num_gpus")
    assert [str(found.values[name]) for name in told] == ["256", "dapo", "3", "4096", "8"]
    assert not list(found.lines_with_status(Status.UNKNOWN))


def test_nodes_of_nemo_rl_that_generate_alone_do_not_train(tmp_path: Path) -> None:
    apart = "  generation:\n    colocated:\n      enabled: false\n      resources:\n"
    text = _NEMO.replace("cluster:", apart + "        num_nodes: 1\ncluster:")
    assert read(tmp_path, _NEMO, "a.yaml").values["num_gpus"] == 16
    assert read(tmp_path, text, "b.yaml").values["num_gpus"] == 8


@pytest.mark.parametrize(
    ("lines", "micro"),
    [
        ("  train_micro_batch_size: 2\n", 2),
        ("  sequence_packing:\n    enabled: true\n    train_mb_tokens: 4096\n", 4096 // 512),
        ("  dynamic_batching:\n    enabled: true\n    train_mb_tokens: 1536\n", 2),  # of 32
        ("  sequence_packing:\n    enabled: false\n    train_mb_tokens: 4096\n", 4),
    ],
)
def test_a_micro_batch_of_nemo_rl(tmp_path: Path, lines: str, micro: int) -> None:
    """512 sequences of 512 tokens on 16 GPUs, where a file says nothing."""
    text = _NEMO.replace("cluster:", f"{lines}cluster:")
    assert read(tmp_path, text, "a.yaml").values["micro_batch_size"] == micro


def test_answers_without_padding_are_told(tmp_path: Path) -> None:
    micro = "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2"
    bare = "actor_rollout_ref.model.use_remove_padding=True "
    assert "Padding is removed" in " ".join(read(tmp_path, _VERL + bare + micro).notes)
    assert "Padding is removed" not in " ".join(read(tmp_path, _VERL + micro).notes)


def test_a_file_of_nemo_rl_whose_first_is_not_beside_it_says_so(tmp_path: Path) -> None:
    found = read(tmp_path, f"defaults: grpo_math_1B.yaml\n{_NEMO}", "a.yaml")
    assert "grpo_math_1B.yaml not found" in " ".join(found.notes)
    assert found.values["sequence_length"] == 512


def test_a_recipe_begins_from_files_that_begin_from_others(tmp_path: Path) -> None:
    """Each names its own from its own folder, as load_config_with_inheritance of NeMo-RL does."""
    recipes = tmp_path / "recipes" / "llm"
    recipes.mkdir(parents=True)
    (tmp_path / "base.yaml").write_text(
        f"{_NEMO}grpo: {{num_prompts_per_step: 32, num_generations_per_prompt: 16}}\n"
        "env: {gone: 1}\n"
    )
    (tmp_path / "middle.yaml").write_text(
        "defaults: base.yaml\npolicy:\n  max_total_sequence_length: 2048\n"
        "  train_global_batch_size: "
        "${mul:${grpo.num_prompts_per_step}, ${grpo.num_generations_per_prompt}}\n"
    )
    whole = "defaults: ../../middle.yaml\ncluster:\n  num_nodes: 4\n"
    found = read(recipes, whole, "recipe.yaml")
    told = ("model", "num_gpus", "sequence_length", "global_batch_size")
    values = ["Qwen/Qwen2.5-1.5B", "32", "2048", "512"]
    assert [str(found.values[name]) for name in told] == values
    assert not [note for note in found.notes if "not found" in note]

    (tmp_path / "middle.yaml").write_text("defaults: [gone.yaml, ../recipes/llm/recipe.yaml]\n")
    with_cycle = read(recipes, f"{whole}{_NEMO.partition('cluster')[0]}", "recipe.yaml")
    assert "gone.yaml" in " ".join(with_cycle.notes)


def test_a_section_that_overrides_leaves_nothing_of_the_first(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(
        _NEMO.replace("cluster:", "  dtensor_cfg: {tensor_parallel_size: 4}\ncluster:")
    )
    text = "defaults: base.yaml\npolicy:\n  dtensor_cfg: {OVER cpu_offload: true}\n"
    kept = read(tmp_path, text.replace("OVER ", ""), "a.yaml")
    over = read(tmp_path, text.replace("OVER ", "_override_: true, "), "b.yaml")
    assert [str(one.values["tensor_parallel"]) for one in (kept, over)] == ["4", "1"]


@pytest.mark.parametrize(
    ("more", "note", "objective"),
    [
        ("ppo: {num_prompts_per_step: 4}\n", "critic", "grpo"),
        ("distillation: {num_prompts_per_step: 4}\n", "teacher", "sft"),
    ],
)
def test_what_is_trained_or_asked_beside_the_policy_is_told(
    tmp_path: Path, more: str, note: str, objective: str
) -> None:
    found = read(tmp_path, _NEMO + more, "a.yaml")
    assert note in " ".join(found.notes)
    assert found.values["training_objective"] == objective


def test_experts_that_fsdp_deals_out_are_of_automodel(tmp_path: Path) -> None:
    text = _NEMO.replace("cluster:", "  dtensor_cfg: {expert_parallel_size: 8}\ncluster:")
    found = read(tmp_path, text, "a.yaml")
    assert (found.values["framework"], found.values["expert_parallel"]) == ("NeMo AutoModel", 8)


def test_a_micro_batch_is_no_more_than_a_rank_has(tmp_path: Path) -> None:
    batch = "  train_global_batch_size: 32\n  train_micro_batch_size: 4\ncluster:"
    found = read(tmp_path, _NEMO.replace("cluster:", batch), "a.yaml")
    assert found.values["micro_batch_size"] == 32 // 16


def test_a_sentence_in_place_of_a_model_leaves_the_name_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "grpo-deepseek-v3-64n8g.yaml"
    sentence = '"Follow instructions in https://example.org/deepseek.md"'
    path.write_text(_NEMO.replace("Qwen/Qwen2.5-1.5B", sentence))
    question = LaunchFile(path=path, answers={"gpu": "h200"}).question()
    assert question.imported.values["model"] == "deepseek-v3"
    assert "name of the file" in question.imported.assumed["model"]


def test_an_update_is_like_no_published_run() -> None:
    """Runs of FSDP on H100 are measured, those of this objective are not among them."""
    request = Request(
        model="qwen2.5-7b", gpu="h100", num_gpus=8, framework="fsdp", settings={"zero_stage": 3}
    )
    found = {}
    for objective in ("pretrain", "grpo"):
        plan = make_single_plan(replace(request, training_objective=objective))
        sure = plan.problem.sources[0].confidence(8)
        assert sure is not None
        found[objective] = sure.basis
    assert found["grpo"].startswith("transferred")
    assert found["pretrain"].startswith("measured")
