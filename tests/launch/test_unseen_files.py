"""Kinds of files that public repositories have: what is read, and when a reading is incomplete."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import Command

from planner.errors import LaunchError
from planner.launch.read.import_launch import ImportedLaunch
from planner.launch.read.incomplete import undecided_options
from planner.launch.read.read_launch import read_launch


def _read(folder: Path, files: dict[str, str]) -> ImportedLaunch:
    """Write files, and read the first."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return read_launch(folder / next(iter(files)))


SERVE = "vllm serve Qwen/Qwen3-8B"


# Incomplete readings


@pytest.mark.parametrize(
    ("text", "undecided"),
    [
        (f"{SERVE} --tensor-parallel-size $TP\n", ["--tensor-parallel-size"]),
        (f"{SERVE} --max-tool-turns 4\n", ["--max-tool-turns"]),
        (f"{SERVE} --wandb-name x --prompt-file y\n", []),
        (f"{SERVE} $EXTRA_ARGS\n", []),
        (f"{SERVE} --prefill-context-parallel-size 2\n", []),
        ("trtllm-serve Qwen/Qwen3-8B --tp_size 2 --gpus_per_node 1\n", ["--gpus_per_node"]),
        ("axolotl train path/32b-qlora.yaml\n", ["path/32b-qlora.yaml (not found)"]),
        (f'if [ -z "$X" ]; then A="--a 1"; else A="--b 2"; fi\n{SERVE} $A\n', ["$A"]),
        (f"# on a slice 1g.10gb\n{SERVE}\n", ["MIG slice 1g.10gb"]),
        (f'mapfile -t A < <(python a.py)\n{SERVE} "${{A[@]}}"\n', ['"${A[@]}"']),
    ],
)
def test_what_may_decide_the_verdict_is_named(
    tmp_path: Path, text: str, undecided: list[str]
) -> None:
    assert undecided_options(_read(tmp_path, {"run.sh": text})) == undecided


def test_an_incomplete_reading_says_so_in_its_first_line(planner: Command, tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(f"{SERVE} --max-tool-turns 4\n")

    out = " ".join(planner("estimate", "--from", script, "--gpu", "h100").out.split())

    assert out.startswith("Incomplete reading, --max-tool-turns may change this. Fits: peak ")


def test_one_of_several_launches_says_so_on_the_screen(planner: Command, tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(f"{SERVE} --port 1\nvllm serve Qwen/Qwen3-32B --port 2\n")

    assert "The file has 2 different launches" in planner("estimate", "--from", script).out


# Scripts


def test_a_sourced_file_sets_variables_and_arrays(tmp_path: Path) -> None:
    sourced = "TP=4\nexport LENGTH=${LENGTH:-8192}\nARGS=(--max-num-seqs 32)\nNAME=$UNSET\n"
    script = 'HERE=$(cd "$(dirname "$0")" && pwd)\nsource "$HERE/../lib/env.sh"\n' + (
        f'{SERVE} --tensor-parallel-size $TP --max-model-len $LENGTH "${{ARGS[@]}}"\n'
    )

    found = _read(tmp_path, {"scripts/run.sh": script, "lib/env.sh": sourced})

    assert found.values["tensor_parallel"] == 4
    assert found.values["max_model_len"] == "8192" or found.values["max_model_len"] == 8192
    assert int(found.values["concurrency"]) == 32


def test_scripts_that_source_each_other_end(tmp_path: Path) -> None:
    files = {
        "a.sh": f"source b.sh\n{SERVE} --tensor-parallel-size $TP\n",
        "b.sh": "source a.sh\nTP=2\n",
    }

    assert _read(tmp_path, files).values["tensor_parallel"] == 2


def test_a_program_stands_at_the_root_of_its_project(tmp_path: Path) -> None:
    program = "from vllm import LLM\nLLM('Qwen/Qwen3-8B', tensor_parallel_size=2)\n"

    found = _read(tmp_path, {"slurm/run.sh": "python src/serve.py\n", "src/serve.py": program})

    assert found.values["tensor_parallel"] == 2


def test_arguments_after_bash_c_are_those_of_its_script(tmp_path: Path) -> None:
    text = """services:
  a:
    image: vllm/vllm-openai:v0.22.0
    entrypoint:
      - /bin/bash
      - -c
      - exec vllm serve "$$@"
      - --
    command: [--model, Qwen/Qwen3-8B, --tensor-parallel-size, "${TP:-${GPUS:-4}}"]
"""

    assert _read(tmp_path, {"compose.yaml": text}).values["tensor_parallel"] == 4


@pytest.mark.parametrize(
    "command",
    [
        "python -m my.launcher --model-path Qwen/Qwen3-8B",
        "python -m my.launcher --model-path=Qwen/Qwen3-8B",
        "swift deploy --infer_backend vllm --model Qwen/Qwen3-8B --vllm_max_model_len 4096",
    ],
)
def test_other_programs_with_the_options_of_an_engine_start_it(
    tmp_path: Path, command: str
) -> None:
    options = "" if "swift" in command else " --max-model-len 4096 --gpu-memory-utilization 0.8"

    found = _read(tmp_path, {"run.sh": command + options + "\n"})

    assert (found.target.name, found.values["model"]) == ("vllm", "Qwen/Qwen3-8B")
    assert int(found.values["max_model_len"]) == 4096


def test_a_checkpoint_of_an_earlier_run_is_no_known_model(tmp_path: Path) -> None:
    assert "model" not in _read(tmp_path, {"run.sh": "vllm serve outputs/x/cold_start\n"}).values
    assert "model" not in _read(tmp_path, {"run.sh": "vllm serve merged-sft\n"}).values


# Programs


def test_a_program_sets_the_length_of_its_script(tmp_path: Path) -> None:
    # tatsu-lab/stanford_alpaca, train.py: 512 tokens without the option
    program = """from dataclasses import dataclass, field
import transformers
@dataclass
class Arguments(transformers.TrainingArguments):
    model_max_length: int = field(default=512)
transformers.HfArgumentParser((Arguments,))
"""
    script = (
        "torchrun --nproc_per_node=4 train.py --model_name_or_path facebook/opt-6.7b "
        "--bf16 True --per_device_train_batch_size 4\n"
    )

    found = _read(tmp_path, {"run.sh": script, "train.py": program})

    assert int(found.values["sequence_length"]) == 512


def test_keys_that_a_branch_adds_are_open(tmp_path: Path) -> None:
    text = """from vllm import LLM
kwargs = dict(model='Qwen/Qwen3-8B')
kwargs['max_model_len'] = 4096
if x:
    kwargs['tensor_parallel_size'] = 2
LLM(**kwargs)
"""

    found = _read(tmp_path, {"p.py": text})

    assert int(found.values["max_model_len"]) == 4096
    assert undecided_options(found) == ["--tensor-parallel-size"]


def test_an_engine_beside_dummy_training_arguments_serves(tmp_path: Path) -> None:
    # hiyouga/LLaMA-Factory, scripts/vllm_infer.py
    text = """from transformers import Seq2SeqTrainingArguments
from vllm import LLM
arguments = Seq2SeqTrainingArguments(output_dir='dummy_dir')
LLM(model='Qwen/Qwen3-8B')
"""

    assert _read(tmp_path, {"p.py": text}).target.name == "vllm"


# huggingface/trl 1.10, trl/trainer/base_config.py
@pytest.mark.parametrize("script", ["trl/scripts/dpo.py", "examples/scripts/orpo.py"])
def test_every_trainer_of_trl_computes_in_bf16_and_repeats_layers(
    tmp_path: Path, script: str
) -> None:
    command = f"python {script} --model_name_or_path Qwen/Qwen3-0.6B --output_dir x\n"

    values = _read(tmp_path, {"run.sh": command}).values

    assert (values["precision"], values["recompute"]) == ("bf16", "full")


# Documents


def test_options_of_an_engine_are_keys_of_any_document(tmp_path: Path) -> None:
    # FlagOpen/FlagScale, examples/qwen2_5/conf/serve
    text = """- serve_id: vllm_model
  engine_args:
    model: /models/Qwen2.5-7B-Instruct
    tensor_parallel_size: 2
    max_model_len: 32768
    enforce_eager: true
  resources:
    num_replicas: 4
"""

    values = _read(tmp_path, {"7b.yaml": text}).values

    assert (values["tensor_parallel"], values["num_gpus"]) == (2, 8)
    assert values["enforce_eager"] is True


def test_a_blueprint_of_oci_has_shape_nodes_and_arguments(tmp_path: Path) -> None:
    text = """{"recipe_image_uri": "iad.ocir.io/x:ray2430_vllmv083",
 "recipe_node_shape": "VM.GPU.A10.2", "recipe_nvidia_gpu_count": 2,
 "multinode_num_nodes_to_use_from_shared_pool": 2,
 "recipe_container_command_args": ["--model", "Qwen/Qwen3-8B", "--tensor-parallel-size", "2",
                                   "--pipeline-parallel-size", "2"]}"""

    values = _read(tmp_path, {"blueprint.json": text}).values

    assert (values["gpu"], values["num_gpus"]) == ("a10-24gb", 4)


def test_a_service_of_bentoml_has_the_arguments_of_its_project(tmp_path: Path) -> None:
    project = """[tool.bentoml.build.args]
model_id = "google/gemma-3-4b-it"
tp = 2
gpu_type = "nvidia-h100-80gb"
cli_args = ["--max-model-len", "4096"]
"""
    files = {"service.py": "import bentoml\n@bentoml.service()\nclass A: ...\n",
             "pyproject.toml": project}  # fmt: skip

    values = _read(tmp_path, files).values

    assert (values["tensor_parallel"], values["gpu"]) == (2, "h100-sxm-80gb")
    assert int(values["max_model_len"]) == 4096


POD = """apiVersion: apps/v1
kind: Deployment
metadata: {name: llm}
spec:
  template:
    spec:
      containers:
      - name: engine
        image: vllm/vllm-openai:v0.9.0
"""
BASE = POD + "        args: [--model, Qwen/Qwen3-8B, --max-model-len, '8192']\n"
PATCH = POD.replace("        image: vllm/vllm-openai:v0.9.0\n", "") + (
    "        args: [--model, Qwen/Qwen3-32B, --tensor-parallel-size, '2']\n"
)
KUSTOMIZATION = """resources: [../base]
images: [{name: vllm/vllm-openai, newTag: v0.10.0}]
patches:
- path: patch.yaml
- target: {kind: Deployment}
  patch: |-
    - {op: add, path: /spec/template/spec/nodeSelector, value: {accelerator: nvidia-h200}}
    - {op: replace, path: /spec/template/spec/containers/0/args/3, value: "4"}
"""
KUSTOMIZED = {
    "o/kustomization.yaml": KUSTOMIZATION,
    "o/patch.yaml": PATCH,
    "base/kustomization.yaml": "resources: [pod.yaml]\n",
    "base/pod.yaml": BASE,
}
# bentoml/BentoVLLM: options in a mapping that a loop sets
MAPPED = """MODEL = 'Qwen/Qwen3-32B'
ARGUMENTS = {'model': MODEL, 'max_model_len': 4096, 'tensor_parallel_size': 4}
@bentoml.service(resources={'gpu': 4, 'gpu_type': 'nvidia-h200'})
class Service: ...
for key, value in ARGUMENTS.items():
    setattr(args, key, value)
"""
MOUNTED = """kind: ConfigMap
data:
  serve.py: |
    from ray.serve.llm import LLMConfig
    app = LLMConfig(model_loading_config={'model_id': 'Qwen/Qwen3-32B'}, accelerator_type='H200',
                    engine_kwargs={'tensor_parallel_size': 4})
---
kind: RayService
spec: {serveConfigV2: "applications: [{import_path: 'serve:app'}]"}
"""
TRUSS = """model_metadata:
  repo_id: Qwen/Qwen3-32B
  engine_args: {max_model_len: 8192, tensor_parallel_size: 4}
resources: {accelerator: "H200:4"}
"""
# sgl-project/ome, config/runtimes/srt
RUNTIME = """kind: ClusterServingRuntime
metadata: {name: srt-qwen3-32b}
spec:
  engineConfig:
    runner:
      image: lmsysorg/sglang:v0.4.8
      command: [python3, -m, sglang.launch_server, --model-path=$(MODEL_PATH), --tp-size=4]
      nodeSelector: {accelerator: nvidia-h200}
"""


@pytest.mark.parametrize(
    "files",
    [
        KUSTOMIZED,
        {"o/patch.yaml": PATCH, **KUSTOMIZED},
        {"service.py": "import bentoml\n" + MAPPED},
        {"service.yaml": MOUNTED},
        {"model/model.py": "class Model: ...\n", "config.yaml": TRUSS},
        {"runtime.yaml": RUNTIME},
    ],
)
def test_a_server_is_described_by_several_parts(tmp_path: Path, files: dict[str, str]) -> None:
    values = _read(tmp_path, files).values

    assert (values["model"], values["tensor_parallel"], values["gpu"]) == (
        *("Qwen/Qwen3-32B" if "srt" not in str(files) else "qwen3-32b", 4),
        "h200-sxm-141gb",
    )


def test_a_base_that_is_not_there_is_listed(tmp_path: Path) -> None:
    files = {"kustomization.yaml": "resources: [https://x/y, pod.yaml]\n", "pod.yaml": BASE}

    assert undecided_options(_read(tmp_path, files)) == ["https://x/y (not found)"]


def test_the_chart_of_nim_has_image_and_gpus(tmp_path: Path) -> None:
    text = """image: {repository: nvcr.io/nim/meta/llama-3.1-8b-instruct}
resources: {limits: {nvidia.com/gpu: 1}}
replicaCount: 2
"""

    assert _read(tmp_path, {"values.yaml": text}).values["num_gpus"] == 2


def test_a_key_that_stands_twice_is_reported(tmp_path: Path) -> None:
    text = "base_model: Qwen/Qwen3-8B\nmicro_batch_size: 1\nadapter: lora\nmicro_batch_size: 4\n"
    found = _read(tmp_path, {"lora.yml": text})

    assert int(found.values["micro_batch_size"]) == 4
    assert any("line 2 and again in line 4" in note for note in found.notes)


OWN_PROGRAM = """import argparse
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, TrainingArguments
from peft import LoraConfig
parser = argparse.ArgumentParser()
parser.add_argument('--quantization', action='store_true')
parser.add_argument('--lora_enable', type=bool, default=False)
args = parser.parse_args()
bits = None
if args.quantization:
    bits = BitsAndBytesConfig(load_in_4bit=True)
model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen3-8B', quantization_config=bits)
if args.lora_enable:
    LoraConfig(r=128)
TrainingArguments(output_dir='x', per_device_train_batch_size=2, bf16=True)
"""
UNUSED = """from transformers import AutoModelForCausalLM, BitsAndBytesConfig, TrainingArguments
BitsAndBytesConfig(load_in_4bit=True)
AutoModelForCausalLM.from_pretrained('Qwen/Qwen3-8B')
TrainingArguments(output_dir='x', per_device_train_batch_size=2)
"""
SECTIONS = """model: {base_model: Qwen/Qwen3-8B}
lora: {r: 16, target_modules: [q_proj, v_proj]}
training: {per_device_train_batch_size: 2}
quantization: {load_in_4bit: true}
"""
MODULES = "--target_modules q_proj k_proj v_proj o_proj gate_proj up_proj down_proj"
SWIFT = f"swift sft --model Qwen/Qwen3-8B --train_type lora {MODULES}"


@pytest.mark.parametrize(
    ("files", "adapter", "targets"),
    [
        ({"run.sh": "python train.py\n", "train.py": OWN_PROGRAM}, "none", None),
        ({"run.sh": "python train.py --lora_enable True\n", "train.py": OWN_PROGRAM}, "lora", None),
        ({"train.py": UNUSED}, "none", None),
        ({"own.yaml": SECTIONS}, "qlora", "query_value"),
        ({"run.sh": f"python own.py\n{SWIFT}\n"}, "lora", "all_linear"),
        ({"run.sh": f"{SWIFT} --deepspeed zero2\n"}, "lora", "all_linear"),
    ],
)
def test_what_is_adapted_follows_the_program(
    tmp_path: Path, files: dict[str, str], adapter: str, targets: str | None
) -> None:
    values = _read(tmp_path, files).values

    assert values.get("adapter", "none") == adapter
    assert targets is None or values["lora_targets"] == targets


@pytest.mark.parametrize("words", ["--n_ctx 4096 --n_gpu_layers=33", "--config_file models.json"])
def test_the_server_of_llama_cpp_python_takes_one_request_at_once(
    tmp_path: Path, words: str
) -> None:
    model = "llama-2-7b.Q4_K_M.gguf"
    words = words if "json" in words else f"--model {model} {words}"
    document = f'{{"models": [{{"model": "{model}", "n_ctx": 4096, "n_gpu_layers": 33}}]}}'
    files = {"run.sh": f"python -m llama_cpp.server {words}\n", "models.json": document}

    values = _read(tmp_path, files).values

    assert (values["model"], int(values["max_model_len"])) == ("llama-2-7b", 4096)


def test_sizes_in_a_folder_of_another_architecture_name_no_model(tmp_path: Path) -> None:
    # FlagOpen/FlagScale, examples/rwkv
    text = """system: {tensor_model_parallel_size: 1, pipeline_model_parallel_size: 1}
model: {num_layers: 32, hidden_size: 4096, num_attention_heads: 32, seq_length: 2048,
        micro_batch_size: 1, global_batch_size: 8}
"""

    assert "model" in _read(tmp_path, {"dense/7b.yaml": text}).values
    assert "model" not in _read(tmp_path, {"rwkv/7b.yaml": text}).values


def test_layers_whose_activations_are_moved_are_read(tmp_path: Path) -> None:
    # AI-Hypercomputer/gpu-recipes, a4x/llama31_405b on 64 GPUs
    command = (
        "python run_script.py --model_family_name llama --model_recipe_name llama31_405b "
        "--num_gpus 64 --gpu gb200 --tensor_model_parallel_size 2 --activation_offload_layers {}\n"
    )
    offload = {
        number: _read(tmp_path, {"run.sh": command.format(number)}).values.get("offload")
        for number in (0, 95)
    }

    assert offload[95] == "activations"
    assert offload[0] in (None, "none")


def test_answers_of_a_fork_of_verl_count(tmp_path: Path) -> None:
    # PeterGriffinJin/Search-R1: n_agent answers to a prompt
    text = (
        "python -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen2.5-3B "
        "algorithm.adv_estimator=grpo actor_rollout_ref.rollout.n_agent=5\n"
    )
    (tmp_path / "run.sh").write_text(text)

    assert int(read_launch(tmp_path / "run.sh", workload="rl").values["samples_per_prompt"]) == 5


def test_placeholders_of_nodes_are_not_one_node(tmp_path: Path) -> None:
    text = (
        "export NODES=TO_BE_FILLED\npython -m verl.trainer.main_ppo trainer.nnodes=$NODES "
        "actor_rollout_ref.model.path=Qwen/Qwen2.5-3B\n"
    )

    assert "num_gpus" in _read(tmp_path, {"run.sh": text}).missing_terms({})


# Refusals


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("Makefile", "train:\n\tpython x.py\n", "is a Makefile.*Give the command"),
        ("export.yaml", "model_name_or_path: x\nexport_dir: y\n", "is an export of LLaMA-Factory"),
        ("ppo.sh", "python ppo_training.py --reward_model_path x\n", "is PPO with TRL's"),
        ("a.yaml", "strategy: fsdp\nppo_micro_batch_size: 4\n", "is a part of a configuration"),
        (
            "b.yaml",
            "run: torchrun --nproc_per_node=8 --nnodes=2 other.py\nname: Qwen/Qwen3-8B on h100\n",
            "planner estimate --model Qwen/Qwen3-8B --gpus 16 --gpu h100-sxm-80gb$",
        ),
    ],
)
def test_a_refusal_says_what_a_file_is_and_ends_with_a_command(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    with pytest.raises(LaunchError, match=message):
        _read(tmp_path, {name: text})


TMUX = """start() {
    local model="$1"
    local line="cd x; vllm serve \\"$model\\" --max-model-len $2"
    tmux send-keys -t "s:0" "$line" C-m
}
start Qwen/Qwen3-8B 4096
"""


@pytest.mark.parametrize(
    "text",
    [TMUX, "python -m trl.scripts.vllm_serve --model Qwen/Qwen3-8B --max_model_len 4096\n"],
)
def test_servers_start_in_sessions_and_by_modules_of_trl(tmp_path: Path, text: str) -> None:
    found = _read(tmp_path, {"run.sh": text})

    assert (found.target.name, found.values["model"]) == ("vllm", "Qwen/Qwen3-8B")
    assert int(found.values["max_model_len"]) == 4096


def test_the_configuration_of_deepspeed_may_stand_in_a_document(tmp_path: Path) -> None:
    text = """model_name_or_path: Qwen/Qwen3-8B
stage: sft
finetuning_type: full
per_device_train_batch_size: 1
deepspeed:
  zero_optimization: {stage: 2, offload_optimizer: {device: cpu}}
"""
    values = _read(tmp_path, {"sft.yaml": text}).values

    assert (int(values["zero_stage"]), values["offload"]) == (2, "optimizer")


def test_an_unknown_program_may_add_to_its_document(tmp_path: Path) -> None:
    document = '{"model_name_or_path": "Qwen/Qwen3-8B", "per_device_train_batch_size": 1}'
    files = {"run.sh": "deepspeed --num_gpus=2 own.py --args_file a.json\n", "a.json": document}

    found = _read(tmp_path, files)

    assert found.values["num_gpus"] == 2
    assert undecided_options(found) == ["the program"]


def test_assumed_lengths_fit_the_positions_of_the_model(planner: Command, tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("text-generation-launcher --model-id gpt2\n")

    assert "512 tokens in, 512 out" in planner("estimate", "--from", script, "--gpu", "h100").out


def test_names_of_variables_are_no_gpus(planner: Command, tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(f"export ENABLE_P40=1\n{SERVE}\n")

    assert "h100-sxm-80gb" in planner("estimate", "--from", script).out


OWN = {
    "sections": """model: {model_name: Qwen/Qwen3-8B}
sft_config: {per_device_train_batch_size: 1, max_length: 8192, max_grad_norm: 1.0}
dpo_config: {per_device_train_batch_size: 1, max_length: 2048, max_grad_norm: 1.0}
""",
    "bits": """model: {model_id: Qwen/Qwen3-8B, bnb_4bit_quant_type: nf4}
lora: {r: 8, target_modules: all-linear}
training: {per_device_train_batch_size: 2, max_length: 1024}
""",
    "names": """model_name_or_path: Qwen/Qwen3-8B
train_batch_size: 8
micro_train_batch_size: 2
max_len: 1024
zero_stage: 3
bf16: true
""",
}


def test_values_that_differ_between_sections_of_a_document_are_open(tmp_path: Path) -> None:
    found = _read(tmp_path, {"run.yaml": OWN["sections"]})

    assert "sequence_length" not in found.values
    assert "max_length" in undecided_options(found)


def test_settings_of_four_bits_mean_that_weights_have_four(tmp_path: Path) -> None:
    assert _read(tmp_path, {"run.yaml": OWN["bits"]}).values["adapter"] == "qlora"


def test_a_document_with_a_model_is_none_of_deepspeed(tmp_path: Path) -> None:
    found = _read(tmp_path, {"run.yaml": OWN["names"]})

    assert (found.target.name, found.values["model"]) == ("transformers", "Qwen/Qwen3-8B")
    assert [int(found.values[name]) for name in ("micro_batch_size", "sequence_length")] == [
        2,
        1024,
    ]
    assert undecided_options(found) == ["train_batch_size"]


def test_no_format_in_a_file_of_deepspeed_is_fp32(tmp_path: Path) -> None:
    off = '"bf16": {"enabled": false}, "fp16": {"enabled": false}'
    text = f'{{"zero_optimization": {{"stage": 3}}, {off}}}'

    assert _read(tmp_path, {"ds.json": text}).values["precision"] == "fp32"


def test_deepspeed_starts_no_layers_split_by_device_map(tmp_path: Path) -> None:
    model = "model_name_or_path: Qwen/Qwen3-8B\ndevice_map: auto\nper_device_train_batch_size: 1\n"
    files = {
        "run.sh": "deepspeed --num_gpus=2 own.py --args_file a.yaml\n",
        "a.yaml": f"{model}deepspeed: ds.json\n",
        "ds.json": '{"zero_optimization": {"stage": 3}}',
    }
    values = _read(tmp_path, files).values

    assert (int(values["zero_stage"]), "layer_split" in values) == (3, False)


def test_a_template_fills_parts_of_values(tmp_path: Path) -> None:
    text = """model: {_component_: torchtune.models.llama3_1.lora_llama3_1_8b, lora_rank: 8}
tokenizer: {max_seq_len: 1024}
checkpointer:
  checkpoint_dir:  {{model_dir}}/files
batch_size: 2
dtype: bf16
"""
    assert _read(tmp_path, {"lora.yaml": text}).values["model"] == "llama3.1-8b"


def test_a_comment_names_no_kind_of_file(tmp_path: Path) -> None:
    text = f"# the image vllm/vllm-cpu is for machines without GPUs\n{SERVE}\n"

    assert _read(tmp_path, {"run.sh": text}).values["model"] == "Qwen/Qwen3-8B"


def test_a_module_of_an_engine_is_a_command_in_any_document(tmp_path: Path) -> None:
    command = "python3 -m vllm.entrypoints.openai.api_server --model Qwen/Qwen3-8B"
    text = f'cli: "bash start.sh; {command}"\n'

    assert _read(tmp_path, {"values.yaml": text}).values["model"] == "Qwen/Qwen3-8B"


def test_programs_with_the_options_of_megatron_are_read_as_it(tmp_path: Path) -> None:
    text = (
        "torchrun --nproc_per_node 8 finetune.py --num-layers 24 --hidden-size 1024 --fp16 "
        "--num-attention-heads 16 --max-position-embeddings 2048 --seq-length 2048 "
        "--micro-batch-size 2 --global-batch-size 16 --own-heads 4\n"
    )
    found = _read(tmp_path, {"run.sh": text})

    assert (found.target.name, int(found.values["num_gpus"])) == ("megatron-lm", 8)
    assert undecided_options(found) == ["--own-heads"]


def test_an_unknown_option_that_is_left_to_its_program_refuses_nothing(tmp_path: Path) -> None:
    text = (
        "base_model: Qwen/Qwen3-8B\nsequence_len: 1024\nmicro_batch_size: 1\nown_lora_mlp: {}\n"
        "deepspeed: deepspeed_configs/zero2.json\n"
    )

    found = _read(tmp_path, {"a.yaml": text.format("auto")})
    assert undecided_options(found) == ["own_lora_mlp"]
    with pytest.raises(LaunchError, match="decides what is trained"):
        _read(tmp_path, {"a.yaml": text.format("true")})


def test_a_script_in_an_unknown_folder_is_near(tmp_path: Path) -> None:
    files = {"bench/run.sh": 'bash "$REPO/start.sh" 2\n', "start.sh": f"{SERVE} --port $1\n"}

    assert _read(tmp_path, files).values["model"] == "Qwen/Qwen3-8B"


def test_adapters_that_are_loaded_are_named(tmp_path: Path) -> None:
    text = (
        "swift sft --model Qwen/Qwen3-8B --adapters out/run --tuner_type lora --lora_rank 16 "
        "--per_device_train_batch_size 1 --max_length 1024 --dataset a\n"
    )

    assert undecided_options(_read(tmp_path, {"run.sh": text})) == ["--adapters"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("python run.py --do_predict --model_name_or_path Qwen/Qwen3-8B\n", "is an evaluation"),
        ("swift rlhf --rlhf_type ppo --model Qwen/Qwen3-8B --reward_model a\n", "is PPO with"),
    ],
)
def test_evaluations_and_ppo_with_a_value_model_are_named(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(LaunchError, match=message):
        _read(tmp_path, {"run.sh": text})


def test_modules_of_swift_are_its_commands(tmp_path: Path) -> None:
    text = (
        "torchrun --nproc_per_node 4 -m swift.cli.rlhf --rlhf_type dpo --model Qwen/Qwen3-8B "
        "--tuner_type lora --lora_rank 16 --per_device_train_batch_size 1 --max_length 1024\n"
    )
    values = _read(tmp_path, {"run.sh": text}).values

    assert (values["training_objective"], int(values["num_gpus"])) == ("dpo", 4)
