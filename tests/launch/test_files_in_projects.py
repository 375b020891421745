"""Files as they stand in their projects: containers, programs and documents beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.launch.read.import_launch import ImportedLaunch
from planner.launch.read.incomplete import undecided_options
from planner.launch.read.read_launch import read_launch


def _read(folder: Path, files: dict[str, str]) -> ImportedLaunch:
    """Write files, and read the first."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return read_launch(folder / next(iter(files)))


# Containers that may not run as they are read


def _pod(image: str, key: str, words: str) -> str:
    return (
        "kind: Deployment\nspec:\n  template:\n    spec:\n      containers:\n"
        f"      - image: {image}\n        {key}: [{words}]\n"
        "        resources: {limits: {nvidia.com/gpu: 1}}\n"
    )


@pytest.mark.parametrize(
    ("image", "key", "doubts"),
    [
        ("vllm/vllm-openai:latest", "args", []),
        ("vllm/vllm-openai:latest", "command", ["command in place of args"]),
    ],
)
def test_options_of_a_pod_are_read_in_either_key(
    tmp_path: Path, image: str, key: str, doubts: list[str]
) -> None:
    words = "--model, Qwen/Qwen3-8B, --max-model-len, '4096'"

    launch = _read(tmp_path, {"pod.yaml": _pod(image, key, words)})

    assert (launch.values["model"], launch.values["max_model_len"]) == ("Qwen/Qwen3-8B", 4096)
    assert undecided_options(launch) == doubts


@pytest.mark.parametrize("tag", ["server", "server-b6000", "server@sha256:1f", "server-cuda"])
def test_an_image_for_the_host_alone_is_named(tmp_path: Path, tag: str) -> None:
    image = f"${{IMAGE:-ghcr.io/ggml-org/llama.cpp:{tag}}}"
    words = '["--model", "/models/Qwen3-8B-Q4_K_M.gguf", "--n-gpu-layers", "99"]'
    compose = f"services:\n  llm:\n    image: {image}\n    command: {words}\n"

    launch = _read(tmp_path, {"compose.yaml": compose})

    assert bool(undecided_options(launch)) == (tag != "server-cuda")


def test_an_image_of_an_unknown_version_is_known(tmp_path: Path) -> None:
    image = "ghcr.io/huggingface/text-generation-inference:${TGI_VERSION}"
    compose = f"services:\n  llm:\n    image: {image}\n    command: --model-id Qwen/Qwen3-8B\n"

    assert _read(tmp_path, {"compose.yaml": compose}).target.name == "tgi"


@pytest.mark.parametrize("number", [1, 2])
def test_ollama_on_one_gpu_uses_one(tmp_path: Path, number: int) -> None:
    text = _pod("ollama/ollama:latest", "args", "serve").replace("gpu: 1", f"gpu: {number}")

    num_gpus = _read(tmp_path, {"pod.yaml": text}).values.get("num_gpus")

    assert num_gpus == (1 if number == 1 else None)


# Programs beside scripts


@pytest.mark.parametrize("option", ["", " --lora_r 16"])
def test_a_program_names_what_it_adapts(tmp_path: Path, option: str) -> None:
    program = (
        "from peft import LoraConfig\nfrom transformers import Trainer\n"
        "config = LoraConfig(r=8, target_modules='all-linear')\n"
    )
    script = f"python train.py --model_name_or_path Qwen/Qwen3-8B --output_dir o{option}\n"
    batch = " --per_device_train_batch_size 1"

    launch = _read(tmp_path, {"run.sh": script.replace("\n", f"{batch}\n"), "train.py": program})

    assert launch.values["lora_targets"] == "all_linear"


def test_a_folder_names_no_objective_of_a_document(tmp_path: Path) -> None:
    text = "distributed_type: DEEPSPEED\nnum_processes: 1\ndeepspeed_config:\n  zero_stage: 2\n"

    launch = _read(tmp_path, {"reward_learning/configs/zero2.yaml": text})

    assert "training_objective" not in launch.values


@pytest.mark.parametrize("own", ["", "system_prompt: x\n"])
@pytest.mark.parametrize("checkpointing", ["", "gradient_checkpointing: true\n"])
def test_a_document_with_keys_of_its_own_has_a_program(
    tmp_path: Path, own: str, checkpointing: str
) -> None:
    text = "model_name_or_path: Qwen/Qwen3-8B\nper_device_train_batch_size: 1\nbf16: true\n"

    launch = _read(tmp_path, {"sft.yaml": f"{text}model_max_length: 512\n{own}{checkpointing}"})

    is_open = "the program that reads it" in undecided_options(launch)
    assert is_open == (own != "" and checkpointing == "")


_PEFT = """\
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer
peft_config = LoraConfig(r=16, target_modules="all-linear", layers_to_transform=[30, 31])
args = SFTConfig(output_dir="o", max_length=2048, packing=True)
trainer = SFTTrainer(model="Qwen/Qwen3-8B", args=args, peft_config=peft_config)
trainer.train()
"""
_UNSLOTH = """\
from trl import SFTConfig, SFTTrainer
from unsloth import FastLanguageModel
model, _ = FastLanguageModel.from_pretrained("unsloth/Qwen3-8B", max_seq_length=2048)
model = FastLanguageModel.get_peft_model(model, r=16, layers_to_transform=[30, 31])
trainer = SFTTrainer(model=model, args=SFTConfig(max_steps=60, output_dir="o"))
trainer.train()
"""
_AXOLOTL = "base_model: Qwen/Qwen3-8B\nsequence_len: 8192\nmicro_batch_size: 1\nnum_epochs: 1\n"


@pytest.mark.parametrize(
    ("name", "text", "key"),
    [
        ("train.py", _PEFT, "layers_to_transform"),
        ("train.py", _UNSLOTH, "layers_to_transform"),
        ("a.yaml", f"{_AXOLOTL}adapter: lora\npeft_layers_to_transform: [30]\n", "peft_layers"),
        ("a.yaml", f"{_AXOLOTL}tiled_mlp: true\ntiled_mlp_num_shards: 4\n", "tiled_mlp"),
    ],
)
def test_adapters_of_some_layers_and_tiled_blocks_are_named(
    tmp_path: Path, name: str, text: str, key: str
) -> None:
    """Under gradient checkpointing PEFT lets gradients reach all layers, whichever are adapted.

    peft_model.py, _prepare_model_for_gradient_checkpointing: enable_input_require_grads.
    """
    launch = _read(tmp_path, {name: text})

    assert any(key in option for option in undecided_options(launch))


@pytest.mark.parametrize(
    ("modules", "trained", "is_open"),
    [
        ("embed_tokens lm_head", "embeddings", False),
        ("score mtp.norm", None, True),
        ("lm_head score", "embeddings", True),
    ],
)
def test_modules_that_are_trained_in_full_are_read_or_named(
    tmp_path: Path, modules: str, trained: str | None, is_open: bool
) -> None:
    script = f"swift sft --model Qwen/Qwen3-8B --train_type lora --modules_to_save {modules}\n"

    launch = _read(tmp_path, {"run.sh": script})

    assert launch.values.get("modules_to_save") == trained
    assert ("modules_to_save" in undecided_options(launch)) == is_open


@pytest.mark.parametrize("encoder", ["frozen", "lora", "full"])
@pytest.mark.parametrize("decoder", ["frozen", "lora", "full"])
def test_parts_of_a_model_that_torchtune_trains_are_read_or_named(
    tmp_path: Path, decoder: str, encoder: str
) -> None:
    text = (
        "model:\n  _component_: torchtune.models.llama3_2_vision.lora_llama3_2_vision_11b\n"
        f"  decoder_trainable: {decoder}\n  encoder_trainable: {encoder}\n"
        "  fusion_trainable: lora\n  lora_attn_modules: ['q_proj']\nbatch_size: 1\n"
    )

    undecided = undecided_options(_read(tmp_path, {"lora.yaml": text}))

    assert ("model.decoder_trainable" in undecided) == (decoder != "lora")
    assert ("model.encoder_trainable" in undecided) == (encoder != "frozen")


@pytest.mark.parametrize("folder", ['"${HERE}/config', "$(dirname $0)/config", '"$UNKNOWN/config'])
@pytest.mark.parametrize("is_there", [True, False])
def test_a_known_end_of_a_path_names_its_document(
    tmp_path: Path, folder: str, is_there: bool
) -> None:
    quote = '"' if folder.startswith('"') else ""
    here = 'HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"\n'
    script = f"{here}FILE={folder}/sft.yaml{quote}\nllamafactory-cli train $FILE\n"
    config = "model_name_or_path: Qwen/Qwen3-8B\nstage: sft\nper_device_train_batch_size: 4\n"
    files = {"scripts/run.sh": script} | ({"config/sft.yaml": config} if is_there else {})

    launch = _read(tmp_path, files)

    assert launch.values.get("model") == ("Qwen/Qwen3-8B" if is_there else None)
    missing = [name for name in undecided_options(launch) if "config/sft.yaml (not" in name]
    assert bool(missing) != is_there


@pytest.mark.parametrize("batch", [2, 8])
def test_a_document_that_a_program_reads_counts_before_its_defaults(
    tmp_path: Path, batch: int
) -> None:
    program = (
        "from trl import DPOConfig, DPOTrainer\n"
        "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen3-8B')\n"
        "args = DPOConfig(per_device_train_batch_size=4, max_length=512, bf16=True)\n"
        "DPOTrainer(model=model, args=args)\n"
    )
    config = f"model_name_or_path: Qwen/Qwen3-4B\nper_device_train_batch_size: {batch}\n"
    script = "torchrun --nproc_per_node=1 train.py --config dpo.yaml\n"

    launch = _read(tmp_path, {"run.sh": script, "train.py": program, "dpo.yaml": config})

    values = launch.values
    assert (values["model"], values["micro_batch_size"]) == ("Qwen/Qwen3-4B", batch)
    assert (values["sequence_length"], values["training_objective"]) == (512, "dpo")
    assert "the program" in undecided_options(launch)


@pytest.mark.parametrize("build", [".", "{context: image, dockerfile: gpu.Dockerfile}"])
@pytest.mark.parametrize("length", [None, 2048])
def test_a_service_starts_what_its_dockerfile_does(
    tmp_path: Path, build: str, length: int | None
) -> None:
    dockerfile = (
        "FROM vllm/vllm-openai:v0.9.0\nENV MODEL=Qwen/Qwen3-8B LENGTH=4096\nENTRYPOINT []\n"
        'CMD ["sh", "-c", "vllm serve $MODEL --max-model-len $LENGTH"]\n'
    )
    compose = f"services:\n  llm:\n    build: {build}\n    environment: {{A: b}}\n"
    if length is not None:
        compose = compose.replace("A: b", f"LENGTH: '{length}'")
    name = "Dockerfile" if build == "." else "image/gpu.Dockerfile"

    launch = _read(tmp_path, {"compose.yaml": compose, name: dockerfile})

    assert launch.values["model"] == "Qwen/Qwen3-8B"
    assert launch.values["max_model_len"] == (length or 4096)
