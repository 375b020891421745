"""Kinds of files of which drawn ones were misread or refused: what is read, asked and named."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import Command

from planner.errors import LaunchError
from planner.launch.option_table import OptionTable, matches_option
from planner.launch.read.harmless import vouches
from planner.launch.read.import_launch import ImportedLaunch
from planner.launch.read.incomplete import undecided_options
from planner.launch.read.launch_file import LaunchFile
from planner.launch.read.read_launch import read_launch

DOCKER = "docker run -d --gpus all -e TOKEN=$TOKEN vllm/vllm-openai --model Qwen/Qwen3-8B"
MANIFEST = """# a comment
apiVersion: apps/v1
kind: Deployment
metadata: {name: vllm}
spec:
  template:
    spec:
      nodeSelector: {cloud.google.com/gke-accelerator: nvidia-l4}
      containers:
        - name: vllm
          image: vllm/vllm-openai:latest
          args: [--model, Qwen/Qwen3-8B, --max-model-len, "8192"]
          resources: {limits: {nvidia.com/gpu: 1}}
"""
TRAIN = "--model_name_or_path Qwen/Qwen3-8B --per_device_train_batch_size 2 --output_dir x"


def _read(folder: Path, files: dict[str, str]) -> ImportedLaunch:
    """Write files, and read the first."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return read_launch(folder / next(iter(files)))


# What is read


@pytest.mark.parametrize(
    "script",
    [
        f'CMD="{DOCKER}"\nssh root@host "$CMD"\n',
        f'TOKEN=$(ask x)\nCMD=$(cat <<EOF\nset -e\n{DOCKER}\nEOF\n)\nssh $OPTIONS a@$HOST "$CMD"\n',
        f'ssh $OPTIONS -i key "$HOST" "cd x && {DOCKER}"\n',
        f"ssh host <<'EOF'\n{DOCKER}\nEOF\n",
    ],
)
def test_the_text_that_ssh_runs_is_read(tmp_path: Path, script: str) -> None:
    assert _read(tmp_path, {"run.sh": script}).values["model"] == "Qwen/Qwen3-8B"


@pytest.mark.parametrize("name", ["x.yaml.tpl", "x.yml.j2", "x.yaml.example", "deployment"])
def test_a_template_has_the_format_of_what_it_makes(tmp_path: Path, name: str) -> None:
    found = _read(tmp_path, {name: MANIFEST})

    assert (found.values["gpu"], int(found.values["max_model_len"])) == ("l4-24gb", 8192)


@pytest.mark.parametrize(
    ("options", "quantization"),
    [
        ("-hf ggml-org/Qwen2.5-Coder-3B-Q8_0-GGUF", "q8_0"),
        ("-hf unsloth/Qwen3-8B-GGUF", "w4a16"),
        ("-hf unsloth/Qwen3-8B-GGUF:Q6_K", "q6_k"),
        ("-m Qwen3-8B-i1-Q5_K_M.gguf", "q5_k_m"),
    ],
)
def test_the_type_of_weights_in_a_name(tmp_path: Path, options: str, quantization: str) -> None:
    found = _read(tmp_path, {"run.sh": f"llama-server {options} -fa -c 8192\n"})

    assert found.values["quantization"] == quantization
    assert undecided_options(found) == []  # -fa alone is on, as in older releases


def test_a_folder_of_the_cache_of_modelscope_names_its_model(tmp_path: Path) -> None:
    command = "swift sft --model_id_or_path /path/to/your/Qwen2-1___5B-Instruct --sft_type full"
    found = _read(tmp_path, {"run.sh": f"{command} --dataset x --max_length 512 --batch_size 4\n"})

    assert (found.values["model"], int(found.values["micro_batch_size"])) == ("qwen2-1.5b", 4)


# What is asked


def test_a_name_of_ollama_without_a_size_is_asked(tmp_path: Path) -> None:
    assert _read(tmp_path, {"run.sh": "ollama run llama3.2-vision\n"}).values["model"] == (
        "llama-3.2-11b-vision"
    )
    with pytest.raises(LaunchError, match="does not specify the model"):
        LaunchFile(path=_file(tmp_path, "ollama run some-model\n"), answers={}).question()


def test_a_model_beside_ollama_has_the_format_of_its_library(tmp_path: Path) -> None:
    path = _file(tmp_path, "ollama run some-model\n")

    found = LaunchFile(path=path, answers={"model": "qwen3-8b"}).question().imported

    assert found.values["quantization"] == "q4_k_m"


def _file(folder: Path, text: str) -> Path:
    path = folder / "run.sh"
    path.write_text(text)
    return path


# What is named


@pytest.mark.parametrize(
    ("target", "sections"),
    [
        ("gpt-neox", [""]),
        ("llm-foundry", ["model.", "optimizer.", "fsdp_config."]),
        ("nanotron", ["model.", "optimizer.", "parallelism.tp_"]),
        ("nemo-automodel", [""]),
        ("nemo-rl", ["policy.", "cluster.", "grpo."]),
        ("openrlhf", ["--"]),
        ("prime-rl", ["trainer.", "inference.", "deployment."]),
        ("torchtune", ["optimizer.", "loss.", "tensor_parallel_plan."]),
        ("verl", ["actor_rollout_ref.rollout.", "actor_rollout_ref.actor.megatron.", "trainer."]),
        ("xtuner", ["model_cfg.", "fsdp_cfg.", "optim_cfg."]),
    ],
)
def test_a_wildcard_hides_no_option_that_may_decide(target: str, sections: list[str]) -> None:
    names = OptionTable.load(target).unread

    for option in (f"{section}own_degree" for section in sections):
        assert matches_option(option, names)
        assert not vouches(names, option, ["4"], ["train"])


@pytest.mark.parametrize(
    ("files", "named"),
    [
        (
            {"run.sh": "#SBATCH --gres=gpu:a100l:1\nvllm serve Qwen/Qwen3-8B\n"},
            ["the GPU a100l"],
        ),
        (
            {
                "run.sh": f"accelerate launch --config_file a.yaml t.py {TRAIN} --block_size 512\n",
                "a.yaml": "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\n"
                "deepspeed_config: {deepspeed_config_file: z.json}\nnum_processes: 4\n",
            },
            ["z.json (not found)"],
        ),
        (
            {"run.sh": f"CUDA_VISIBLE_DEVICES=0,1 python t.py {TRAIN} --block_size 512\n"},
            ["the one process on 2 GPUs"],
        ),
        (
            {"run.sh": f"python train_sft.py {TRAIN} --finetuning_type lora --block_size 512\n"},
            ["the rank of the adapters of train_sft.py"],
        ),
        (
            {
                "run.sh": "python3 -m openrlhf.cli.train_ppo_ray --pretrain Qwen/Qwen3-8B "
                "--actor_per_node_gpus 1 --packing_samples --actor_num_gpus_per_node 4\n"
            },
            ["--actor_per_node_gpus"],
        ),
    ],
)
def test_what_is_not_read_is_named(tmp_path: Path, files: dict[str, str], named: list[str]) -> None:
    assert undecided_options(_read(tmp_path, files)) == named


@pytest.mark.parametrize(
    ("option", "is_named"),
    [
        ("--run_config_file x", True),
        ("--draft_model_path x", True),
        ("--notes_file x", False),
        ("--my_quant_type nf4", False),
    ],
)
def test_the_name_of_a_file_is_harmless_unless_it_decides(
    tmp_path: Path, option: str, is_named: bool
) -> None:
    found = _read(tmp_path, {"run.sh": f"torchrun t.py {TRAIN} --block_size 512 {option}\n"})

    assert undecided_options(found) == [option.partition(" ")[0]] * is_named


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("python tools/run_text_generation_server.py", "starts nothing that is supported"),
        ("deepspeed tasks/eval_harness/evaluate.py --deepspeed", "an evaluation"),
        ("torchrun pretrain_bert.py", "no decoder of text"),
        ("deepspeed pretrain_gpt.py --deepspeed --num-experts 32 64", "different numbers"),
    ],
)
def test_what_is_no_training_of_a_decoder_is_refused(
    tmp_path: Path, command: str, message: str
) -> None:
    sizes = "--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024"
    sizes += " --max-position-embeddings 1024 --micro-batch-size 4 --temperature 1"
    with pytest.raises(LaunchError, match=message):
        _read(tmp_path, {"run.sh": f"{command} {sizes}\n"})


def test_an_assumed_length_is_named_on_the_screen(planner: Command, tmp_path: Path) -> None:
    script = _file(tmp_path, f"torchrun --nproc_per_node 2 finetune.py {TRAIN}\n")

    out = " ".join(planner("estimate", "--from", script, "--gpu", "h200").out.split())

    assert out.startswith("Incomplete reading, the length of its sequences may change this.")


def test_a_program_is_not_of_trl_by_the_end_of_its_name(tmp_path: Path) -> None:
    text = f"python train_sft.py {TRAIN} --max_steps 5\n"

    assert "sequence_length" not in _read(tmp_path, {"run.sh": text}).values
    text = text.replace("train_sft.py", "sft.py")
    assert _read(tmp_path, {"run.sh": text}).values["sequence_length"] == 1024
