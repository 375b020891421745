"""What launch files leave open is assumed and said: GPU, number of GPUs, degrees."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from commands import Command

from planner.errors import LaunchError
from planner.launch.read.launch_file import DEFAULT_GPUS, LaunchFile
from planner.launch.read.read_launch import read_launch
from planner.launch.wrappers.read_resources import INSTANCES, gpus_in_text, parse_gpu_name
from planner.specs.catalogue import Catalogue

FULL = "accelerate launch train.py --model_name_or_path {} --per_device_train_batch_size 1 "


def asked(path: Path, text: str, **answers: object) -> LaunchFile:
    path.write_text(text, encoding="utf-8")
    return LaunchFile(path=path, answers=answers)


@pytest.mark.parametrize(
    ("word", "gpu"),
    [
        ("NVIDIA-H100-80GB-HBM3", "h100-sxm-80gb"),
        ("NVIDIA A100-SXM4-40GB", "a100-sxm-40gb"),
        ("A100-SXM4-80GB", "a100-sxm-80gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("Tesla V100-SXM2-16GB", "v100-sxm-16gb"),
        ("NVIDIA GeForce RTX 4090", "rtx4090-24gb"),
        ("nvidia-tesla-t4", "t4-16gb"),
        ("AMD Instinct MI300X", "mi300x-192gb"),
        ("p4d.24xlarge", "a100-sxm-40gb"),
        ("nothing-9000", None),
    ],
)
def test_words_of_drivers_labels_and_clouds_mean_gpus(word: str, gpu: str | None) -> None:
    assert parse_gpu_name(word) == gpu


@pytest.mark.parametrize(
    ("text", "gpu"),
    [
        ("# on 8xH100 80GB\n", "h100-sxm-80gb"),
        ("# once a h200, twice A100-40GB: A100 40GB\n", "a100-sxm-40gb"),
        ("node.kubernetes.io/instance-type: p5en.48xlarge\n", "h200-sxm-141gb"),
        ("image: rocm/vllm:latest\n", "mi300x-192gb"),
        ("vllm serve Llama-4 --port 4090  # v4\n", None),
    ],
)
def test_a_text_names_the_gpu_that_stands_there_most(text: str, gpu: str | None) -> None:
    named = gpus_in_text(text, Path("run.sh"))

    assert next((one.gpu for one in named), None) == gpu


def test_the_section_of_a_command_names_its_gpu_before_the_rest_of_a_page() -> None:
    text = "MI300X, MI325X, MI300X\n## Serving on 8xH200\nvllm serve m\n"
    named = gpus_in_text(text, Path("page.md"), near="## Serving on 8xH200\n")

    assert [one.gpu for one in named] == ["h200-sxm-141gb", "mi300x-192gb", "mi325x"]


def test_of_gpus_in_a_page_the_first_that_has_room_counts(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(
        "# DeepSeek\nThe L4 is small.\n## Serving\nNo GPU.\n```bash\n"
        "vllm serve meta-llama/Llama-3.3-70B-Instruct --tensor-parallel-size 4 "
        "--max-model-len 8192\n```\n## Benchmark\nL4, and the H100.\n"
    )

    asked = LaunchFile(path=path, answers={}).question()

    assert asked.imported.values["gpu"] == "h100-sxm-80gb"


def test_the_folder_names_a_gpu_where_the_text_does_not() -> None:
    (named,) = gpus_in_text("vllm serve m", Path("recipes/h200/run.sh"))

    assert (named.gpu, named.word) == ("h200-sxm-141gb", "h200")


def test_machines_of_clouds_have_gpus_that_are_known() -> None:
    catalogue = Catalogue()
    for name, instance in INSTANCES.items():
        assert catalogue.load_gpu(instance.gpu).spec.name == instance.gpu, name
        assert 1 <= instance.gpus <= 16, name


def test_training_takes_the_fewest_whole_nodes_on_which_it_fits(tmp_path: Path) -> None:
    """70B: 16 bytes x 70.6 billion over 16 GPUs are 66 GiB of states alone."""
    text = FULL.format("meta-llama/Llama-3.1-70B") + "--fsdp 'full_shard auto_wrap' --bf16 "
    text += "--gradient_checkpointing --max_seq_length 2048\n"
    found = asked(tmp_path / "run.sh", text).question()

    assert found.imported.assumed.keys() >= {"gpu", "num_gpus"}
    assert found.imported.values["gpu"] == DEFAULT_GPUS[0]
    assert found.imported.values["num_gpus"] == found.request.num_gpus == 32
    assert [one.num_gpus for one in found.other_counts] == [16, 64, 128]
    assert [bool(one.rejected_by) for one in found.other_counts] == [True, False, False]


def test_a_layout_takes_multiples_of_its_groups(tmp_path: Path) -> None:
    """tp 4 x pp 6 divides 24 GPUs, three nodes."""
    text = (
        "torchrun pretrain_gpt.py --tensor-model-parallel-size 4 "
        "--pipeline-model-parallel-size 6 --num-layers 48 --hidden-size 2048 "
        "--num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 "
        "--micro-batch-size 1 --global-batch-size 48 --vocab-size 50257 --bf16\n"
    )
    found = asked(tmp_path / "run.sh", text).question()

    assert found.request.num_gpus == 24


def test_a_server_starts_with_one_gpu(tmp_path: Path) -> None:
    found = asked(tmp_path / "s.sh", "llama-server -m Llama-3.1-8B-Instruct-Q4_K_M.gguf\n")
    question = found.question()

    assert question.request.num_gpus == 1


def test_what_the_environment_sets_is_the_fastest_that_fits(tmp_path: Path) -> None:
    """141 GB of weights do not fit one H100, nor two with a cache; they do on four."""
    text = "vllm serve meta-llama/Llama-3.1-70B-Instruct --tensor-parallel-size $TP "
    text += "--max-num-seqs 16\n"
    found = asked(tmp_path / "s.sh", text, gpu="h100").question()

    assert found.request.num_gpus == found.imported.values["tensor_parallel"] == 4
    assert "tensor_parallel" in found.imported.assumed


def test_a_small_model_takes_one_gpu_where_the_environment_sets_the_degree(tmp_path: Path) -> None:
    """16 GB of weights on 80 GB need no second GPU."""
    text = "vllm serve Qwen/Qwen3-8B --tensor-parallel-size $TP --max-num-seqs 16\n"
    found = asked(tmp_path / "s.sh", text, gpu="h100").question()

    assert found.request.num_gpus == found.imported.values["tensor_parallel"] == 1


def test_where_no_gpu_is_named_the_first_that_has_room_is_taken(tmp_path: Path) -> None:
    """685 GB of fp8 weights over 8 GPUs: 80 GiB each are more than an H100 has."""
    text = "vllm serve deepseek-ai/DeepSeek-V3.1 --tensor-parallel-size 8\n"
    found = asked(tmp_path / "s.sh", text).question()

    assert found.imported.values["gpu"] == "h200-sxm-141gb"
    assert "does not run on h100-sxm-80gb" in found.imported.assumed["gpu"]


def test_a_gpu_without_the_format_of_the_file_is_passed_over(tmp_path: Path) -> None:
    """FP8 is only there on the MI300 series, says the page that names both."""
    text = "# MI250, MI300X\nvllm serve Qwen/Qwen3-8B --kv-cache-dtype fp8 --quantization fp8\n"
    found = asked(tmp_path / "s.sh", text).question()

    assert found.imported.values["gpu"] == "mi300x-192gb"
    assert "does not run on mi250" in found.imported.assumed["gpu"]


def test_answers_of_the_user_come_first(tmp_path: Path) -> None:
    text = "vllm serve deepseek-ai/DeepSeek-V3.1 --tensor-parallel-size 8  # on H200\n"
    found = asked(tmp_path / "s.sh", text, gpu="b200").question()

    assert found.request.gpu == "b200"
    assert not found.imported.assumed


def test_the_model_alone_is_asked_for(planner: Command, tmp_path: Path) -> None:
    path = tmp_path / "zero3.json"
    path.write_text('{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}')

    ran = planner("estimate", "--from", path)
    assert ran.exit_code == 6
    assert ran.err.strip().endswith(
        "does not specify the model (--model). Set it together with --from."
    )
    assert planner("estimate", "--from", path, "--model", "llama-3.2-1b").exit_code == 0


@pytest.mark.slow
def test_an_answer_says_what_it_assumes_and_shows_other_numbers(
    planner: Command, tmp_path: Path
) -> None:
    path = tmp_path / "lora.yaml"
    path.write_text(
        "base_model: meta-llama/Llama-3.1-8B\nadapter: lora\nlora_r: 16\n"
        "lora_target_linear: true\nsequence_len: 2048\nmicro_batch_size: 1\n"
        "gradient_accumulation_steps: 1\nbf16: true\ngradient_checkpointing: true\n"
    )
    short = " ".join(planner("estimate", "--from", path).out.split())
    out = " ".join(planner("estimate", "--from", path, "--full").out.split())

    assert "assumed: gpu h100-sxm-80gb, num gpus 8" in short
    assert "assumes gpu h100-sxm-80gb (neither its text nor its path names one), num gpus 8" in out
    assert "On other numbers of GPUs 1: fits," in out
    assert " 16: fits," in out
    told = json.loads(planner("estimate", "--from", path, "--json", "-").out)
    assert told["launch_file"]["assumed"].keys() == {"gpu", "num_gpus"}


@pytest.mark.parametrize(
    ("start", "stage", "num_gpus"),
    [
        # 16 bytes x 7.616 billion are 113 GiB on each GPU unsharded, 14 over eight.
        ("trl sft --bf16", 3, 8),
        ("accelerate launch train.py --bf16 --gradient_checkpointing", 3, 8),
        ("accelerate launch --config_file my/deepspeed_zero2.yaml train.py --bf16", 2, 8),
        ("trl sft --bf16 --accelerate_config fsdp2", 3, 8),
        # What starts these reads no configuration of accelerate, or was told not to shard.
        ("torchrun --nproc_per_node 8 train.py --bf16", 0, 8),
        ("accelerate launch --multi_gpu train.py --bf16", 0, 8),
        ("python train.py --bf16", 0, 1),
    ],
)
def test_what_is_sharded_stands_elsewhere_where_accelerate_is_told_nothing(
    tmp_path: Path, start: str, stage: int, num_gpus: int
) -> None:
    text = f"{start} --model_name_or_path Qwen/Qwen2.5-7B --per_device_train_batch_size 1"
    found = asked(tmp_path / "run.sh", f"{text} --max_seq_length 2048\n").question()

    assert (found.imported.values["zero_stage"], found.request.num_gpus) == (stage, num_gpus)
    why = found.imported.assumed.get("zero_stage", "")
    is_open = (
        start.startswith(("trl sft --bf16", "accelerate launch train")) and "config" not in start
    )
    assert ("unsharded they do not fit" in why) == is_open


def test_what_fits_unsharded_stays_so(tmp_path: Path) -> None:
    """16 bytes x 1.236 billion are 18 GiB."""
    text = "trl sft --model_name_or_path meta-llama/Llama-3.2-1B --per_device_train_batch_size 1\n"
    imported = asked(tmp_path / "run.sh", text).question().imported

    assert imported.values["zero_stage"] == 0
    assert "no file sets the sharding of the states" in imported.defaults["zero_stage"]


@pytest.mark.parametrize(
    ("around", "num_gpus"),
    [
        ("python {}", 1),
        ("bash -c 'python3 -u {}'", 1),
        ("CUDA_VISIBLE_DEVICES=0,1 python {}", 2),
        ("srun python {}", None),
        ("$START python {}", None),
        ("torchrun {}", None),
    ],
)
def test_python_alone_starts_one_process(tmp_path: Path, around: str, num_gpus: int | None) -> None:
    command = "train.py --model_name_or_path Qwen/Qwen3-0.6B --per_device_train_batch_size 1"
    path = tmp_path / "run.sh"
    path.write_text(around.format(command) + "\n")

    assert read_launch(path).values.get("num_gpus") == num_gpus


def test_a_micro_batch_that_nothing_tells_is_one_and_the_batch_follows(tmp_path: Path) -> None:
    text = '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}'
    found = asked(tmp_path / "z3.json", text, model="llama-3.2-1b", gpu="h100").question()

    assert found.imported.values["micro_batch_size"] == 1
    assert found.imported.values["global_batch_size"] == found.request.num_gpus == 8
    assert found.imported.values["total_tokens"] == 1e9


def test_what_does_not_fit_is_told_in_a_few_lines(planner: Command, tmp_path: Path) -> None:
    """Full fine-tuning of 8B on one H100: 16 bytes x 8.03 billion are 120 GiB."""
    path = tmp_path / "full.yaml"
    path.write_text(
        "base_model: meta-llama/Llama-3.1-8B\nsequence_len: 2048\nmicro_batch_size: 1\n"
        "gradient_accumulation_steps: 1\nbf16: true\ngradient_checkpointing: true\n"
    )
    ran = planner("estimate", "--from", path, "--gpus", "1", "--gpu", "h100")

    assert ran.exit_code == 4
    assert re.match(r"Does not fit: peak [\d.]+ of 79\.1 GiB", ran.out)
    assert "optimizer states" in ran.out
    assert "Best change: " in ran.out
    assert len(ran.out.splitlines()) < 25
    assert len(ran.err.splitlines()) == 1


def test_of_several_things_the_first_is_read_and_the_others_are_named(tmp_path: Path) -> None:
    text = "vllm serve Qwen/Qwen3-8B\npython -m sglang.launch_server --model-path Qwen/Qwen3-32B\n"
    first = asked(tmp_path / "both.sh", text).question().imported
    path = tmp_path / "both.sh"
    second = LaunchFile(path=path, answers={}, number=2).question().imported

    assert (first.target.name, second.target.name) == ("vllm", "sglang")
    assert any("--row 2 is SGLang, line 2 of both.sh" in note for note in first.notes)
    with pytest.raises(LaunchError, match="has 2 entries, not 3:"):
        LaunchFile(path=path, answers={}, number=3).question()


TEXT = """Serve it:

1. Start
   ```console
   $ vllm serve Qwen/Qwen3-8B \\
       --tensor-parallel-size 2
   ```

```python
x = "never closed
```
```bash
echo "it's
```
"""


def test_blocks_of_code_in_a_text_are_read_in_place(planner: Command, tmp_path: Path) -> None:
    found = asked(tmp_path / "guide.md", TEXT).question().imported

    assert (found.target.name, found.command.line) == ("vllm", 5)
    assert found.values["tensor_parallel"] == 2
    span = found.command.options["--tensor-parallel-size"].spans[0]
    assert span is not None
    assert TEXT[span.start : span.end] == "2"
    (tmp_path / "empty.md").write_text("Nothing `vllm serve` here.\n")
    ran = planner("estimate", "--from", tmp_path / "empty.md")
    assert "no code block starts anything supported" in ran.err


def test_files_of_a_folder_are_one_deployment(tmp_path: Path) -> None:
    role = '--kv-transfer-config \'{"kv_connector":"NixlConnector","kv_role":"kv_%s"}\'\n'
    for name, size, of in (("a.sh", 4, "producer"), ("b.sh", 8, "consumer")):
        text = f"vllm serve meta-llama/Llama-3.1-70B-Instruct --tensor-parallel-size {size} "
        (tmp_path / name).write_text(text + role % of)
    (tmp_path / "broken.yaml").write_text("a: [")
    found = LaunchFile(path=tmp_path, answers={}).question().imported

    assert (found.values["mode"], found.values["num_gpus"]) == ("disaggregated", 12)


def test_a_document_that_a_script_of_the_folder_reads_is_no_launch_of_its_own(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.json").write_text('{"zero_optimization": {"stage": 3}}')
    (tmp_path / "train.sh").write_text(FULL.format("Qwen/Qwen3-8B") + "--deepspeed a.json\n")
    found = LaunchFile(path=tmp_path, answers={}).question().imported

    assert found.path.name == "train.sh"
    assert found.values["zero_stage"] == 3
    assert not any("different things" in note for note in found.notes)


@pytest.mark.parametrize("number", ["16", "1_6", 16])
def test_a_number_of_gpus_is_read_however_it_is_written(tmp_path: Path, number: object) -> None:
    text = FULL.format("Qwen/Qwen3-8B") + "--fsdp full_shard --gradient_accumulation_steps 2\n"
    found = asked(tmp_path / "run.sh", text, num_gpus=number, gpu="h100").question()

    assert found.imported.values["num_gpus"] == 16
    assert found.imported.values["global_batch_size"] == 32


def test_a_label_of_a_node_tells_the_memory_of_its_gpu(tmp_path: Path) -> None:
    """A100-SXM4-40GB is no A100 of 80 GB."""
    path = tmp_path / "pod.yaml"
    path.write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n"
        "  nodeSelector: {nvidia.com/gpu.product: NVIDIA-A100-SXM4-40GB}\n"
        "  containers:\n  - name: v\n    image: vllm/vllm-openai:v0.10.0\n"
        "    args: [--model, Qwen/Qwen3-8B]\n    resources: {limits: {nvidia.com/gpu: 1}}\n"
    )
    found = LaunchFile(path=path, answers={}).question().imported

    assert found.values["gpu"] == "a100-sxm-40gb"
    assert not found.assumed


def test_a_short_name_of_a_gpu_is_one_with_its_maker_before_it() -> None:
    (of_maker, *_) = gpus_in_text("a free Tesla T4 instance; not a V100", Path("run.ipynb"))

    assert (of_maker.gpu, of_maker.word) == ("t4-16gb", "tesla t4")
    assert gpus_in_text("nodeSelector: nvidia-l4", Path("run.sh"))
    assert not gpus_in_text("a t4 b", Path("run.sh"))


def test_a_program_that_asks_for_bf16_computes_in_fp16_on_a_gpu_without_it(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(
        'model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")\n'
        "from transformers import TrainingArguments\n"
        "from unsloth import is_bfloat16_supported\n"
        "args = TrainingArguments(bf16=is_bfloat16_supported(), per_device_train_batch_size=1,\n"
        "    fp16=not is_bfloat16_supported(), max_steps=10)  # on a Tesla T4\n"
        'trainer = Trainer("Qwen/Qwen2.5-0.5B", args=args)\n'
    )

    older = LaunchFile(path=program, answers={"sequence_length": 512}).question().imported
    newer = LaunchFile(path=program, answers={"sequence_length": 512, "gpu": "l4-24gb"}).question()

    assert older.values["precision"] == "fp16"
    assert newer.imported.values["precision"] == "bf16"


def test_the_name_of_a_file_tells_the_model_where_nothing_else_does(tmp_path: Path) -> None:
    text = "train:\n  global_batch_size: 128\n  micro_batch_size: 2\npeft:\n  dim: 8\n"
    text += "model:\n  seq_length: 4096\n  tensor_model_parallel_size: 1\n"
    named = asked(tmp_path / "llama32_1b_finetune.yaml", text, num_gpus=8).question().imported
    other = asked(tmp_path / "conf.yaml", text, num_gpus=8)

    assert named.values["model"] == "llama-3.2-1b"
    assert named.values["dropout"] == "false"
    with pytest.raises(LaunchError, match="does not specify the model"):
        other.question()


def test_a_batch_smaller_than_a_node_is_taken_on_fewer_gpus(tmp_path: Path) -> None:
    text = 'model: "Qwen/Qwen3-30B-A3B"\ntuner_type: lora\nmicro_batch_size: 1\n'
    text += "global_batch_size: 4\nmax_length: 2048\nexpert_model_parallel_size: 4\n"
    found = asked(tmp_path / "sft.yaml", text + "recompute_granularity: full\n").question()

    assert found.imported.values["num_gpus"] == 4
    assert found.imported.values["adapter"] == "lora"


@pytest.mark.slow
def test_a_layout_from_outside_is_the_widest_where_none_fits(tmp_path: Path) -> None:
    """812 GB of weights are more than 8 H100 have; degrees up to 8 are tried."""
    text = "vllm serve meta-llama/Llama-3.1-405B-Instruct --tensor-parallel-size $TP\n"
    found = asked(tmp_path / "s.sh", text, gpu="h100").question()

    assert found.imported.values["tensor_parallel"] == 8
    assert found.request.num_gpus == 8
    assert "does not fit" in found.imported.assumed["num_gpus"]


@pytest.mark.slow
def test_of_a_format_without_kernels_the_layout_goes_with_its_gpus(tmp_path: Path) -> None:
    """TensorRT-LLM has no kernels of NVFP4 for Hopper: no layout runs, and one is shown."""
    text = "trtllm-serve nvidia/Qwen3.5-397B-A17B-NVFP4 --tp_size $TP --max_seq_len 8192\n"
    found = asked(tmp_path / "s.sh", text, gpu="h100").question()

    assert found.request.num_gpus == found.imported.values["tensor_parallel"]


def test_a_model_from_outside_is_the_one_that_the_text_names(tmp_path: Path) -> None:
    command = "vllm serve $MODEL_PATH --max-model-len 8192\n"
    one = asked(tmp_path / "s.sh", f"hf download Qwen/Qwen3-8B --local-dir /models/m\n{command}")
    two = asked(tmp_path / "t.sh", f"# Qwen/Qwen3-8B, Qwen/Qwen3-32B or a/b\n{command}")

    imported = one.question().imported
    assert imported.values["model"] == "Qwen/Qwen3-8B"
    assert "named in its text" in imported.assumed["model"]
    with pytest.raises(LaunchError, match=r"Its text names Qwen/Qwen3-8B, Qwen/Qwen3-32B\."):
        two.question()


def test_a_checkpoint_that_is_given_beside_a_file_has_its_own_types(tmp_path: Path) -> None:
    """DeepSeek-R1 is published in blocks of fp8; the file that names no model says nothing."""
    path = tmp_path / "s.sh"
    text = "vllm serve $MODEL --tensor-parallel-size 8\n"
    given = asked(path, text, gpu="h200", model="deepseek-ai/DeepSeek-R1").question()
    own = asked(
        tmp_path / "t.sh", f"{text[:-1]} --quantization fp8\n", gpu="h200", model="qwen3-32b"
    )

    assert "quantization" not in given.request.settings
    assert own.question().request.settings["quantization"] == "fp8"
    named = asked(tmp_path / "deepseek-r1.sh", text, gpu="h200").question()
    assert named.request.settings["quantization"] == "fp8_block"


def test_layers_that_one_process_places_start_with_one_gpu(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(
        "from transformers import *\nfrom peft import *\n"
        "m = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-7B', device_map='auto')\n"
        "m.gradient_checkpointing_enable()\nm = get_peft_model(m, LoraConfig(r=8))\n"
        "a = TrainingArguments(per_device_train_batch_size=1, bf16=True)\n"
    )
    counts = [
        LaunchFile(path=path, answers={"gpu": gpu}).question().imported.values["num_gpus"]
        for gpu in ("h100", "rtx4080-16gb")
    ]

    assert counts[0] == 1 < counts[1]
    notes = LaunchFile(path=path, answers={"gpu": "rtx4080-16gb"}).question().imported.notes
    assert "pipeline_parallel" not in " ".join(notes)


@pytest.mark.parametrize(
    ("more", "given", "length"),
    [
        ("", {}, 2048),
        ("--block_size 512 ", {}, 512),
        ("", {"sequence_length": 4096}, None),
        ("--stage pt ", {}, None),
    ],
)
def test_a_tuning_of_untold_length_is_not_as_long_as_pre_training(
    tmp_path: Path, more: str, given: dict[str, object], length: int | None
) -> None:
    text = FULL.format("meta-llama/Llama-3.1-8B") + more
    question = asked(tmp_path / "run.sh", text, gpu="h100", num_gpus=8, **given).question()

    assert question.imported.values.get("sequence_length") == length
    assert ("sequence_length" in question.imported.assumed) == (length == 2048)
