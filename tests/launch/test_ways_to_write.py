"""The same server and training, written in the ways that people write them, read the same."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from commands import Command
from draws import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import LaunchError
from planner.launch.read.incomplete import undecided_options
from planner.launch.read.read_launch import read_launch

MODEL = "Qwen/Qwen2.5-7B-Instruct"
NAMES = ("model", "tensor_parallel", "max_model_len", "gpu_memory_utilization", "quantization")
IMAGE = "vllm/vllm-openai:v0.10.0"
PAIRS = (
    ("--model", MODEL),
    ("--tensor-parallel-size", "2"),
    ("--max-model-len", "8192"),
    ("--gpu-memory-utilization", "0.85"),
)
WORDS = [word for pair in PAIRS for word in pair]
PROGRAM = "python3 -m vllm.entrypoints.openai.api_server"


def values_of(folder: Path, name: str, text: str) -> dict[str, str]:
    """What is read of a file with this text, of the parameters that the commands set."""
    (folder / name).write_text(text)
    values = read_launch(folder / name).values
    return {key: str(values[key]) for key in NAMES if key in values}


def shell(words: list[str]) -> str:
    return f"{PROGRAM} {shlex.join(words)}"


def shell_array(words: list[str]) -> str:
    return f'ARGS=({shlex.join(words)})\n{PROGRAM} "${{ARGS[@]}}"'


def shell_appended(words: list[str]) -> str:
    half = len(words) // 4 * 2
    return (
        f"ARGS=({shlex.join(words[:half])})\nARGS+=({shlex.join(words[half:])})\n"
        f'if [ -n "$API_KEY" ]; then ARGS+=(--api-key "$API_KEY"); fi\n{PROGRAM} "${{ARGS[@]}}"'
    )


def shell_defaults(words: list[str]) -> str:
    pairs = [(words[n], words[n + 1]) for n in range(0, len(words), 2)]
    lines = [f'V{n}="${{{n + 1}:-{value}}}"' for n, (_, value) in enumerate(pairs)]
    options = " ".join(f'{option} "$V{n}"' for n, (option, _) in enumerate(pairs))
    return "\n".join([*lines, f"{PROGRAM} {options}"])


def slurm(words: list[str]) -> str:
    return (
        "#!/bin/bash\n#SBATCH --gres=gpu:2\nmodule purge\nmodule load CUDA/12.1\n"
        f"srun -lu {PROGRAM} {shlex.join(words)}"
    )


def powershell(words: list[str]) -> str:
    listed = ",\n    ".join(f'"{word}"' for word in words)
    return (
        f"$vllmArgs = @(\n    {listed}\n)\nif ($env:API_KEY) {{\n"
        '    $vllmArgs += @("--api-key", $env:API_KEY)\n}\n'
        f"docker run --gpus all {IMAGE} @vllmArgs"
    )


def powershell_continued(words: list[str]) -> str:
    lines = " `\r\n  ".join(f"{words[n]} {words[n + 1]}" for n in range(0, len(words), 2))
    return f"# starts a server\r\ndocker run --gpus all `\r\n  {IMAGE} `\r\n  {lines}\r\n"


def powershell_parameters(words: list[str]) -> str:
    parameters = ",\n".join(f'  [string]$P{n} = "{value}"' for n, value in enumerate(words[1::2]))
    options = " ".join(f"{option} $P{n}" for n, option in enumerate(words[::2]))
    return f"param(\n{parameters}\n)\n& docker run {IMAGE} {options}"


def batch(words: list[str]) -> str:
    lines = " ^\n  ".join(f"{words[n]} {words[n + 1]}" for n in range(2, len(words), 2))
    return f"@echo off\nset MODEL={words[1]}\n{PROGRAM} --model %MODEL% ^\n  {lines}\npause\n"


def dockerfile(words: list[str]) -> str:
    return f"FROM {IMAGE}\nENV HF_HOME=/cache\nCMD {json.dumps(words)}\n"


def dockerfile_shell(words: list[str]) -> str:
    start = f'ENTRYPOINT ["sh", "-c", "{PROGRAM} --model $M {shlex.join(words[2:])}"]'
    return f"FROM nvidia/cuda:12.1 AS base\nENV M={words[1]}\n{start}\n"


def pod(words: list[str]) -> str:
    options = "".join(f"        - {json.dumps(word)}\n" for word in ["--model", "$(M)", *words[2:]])
    return (
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\ndata:\n"
        f"  m: {words[1]}\n---\napiVersion: apps/v1\nkind: Deployment\nspec:\n  template:\n"
        f"    spec:\n      containers:\n      - image: {IMAGE}\n        args:\n{options}"
        "        env:\n        - name: M\n          valueFrom:\n            configMapKeyRef:\n"
        "              name: settings\n              key: m\n"
    )


WAYS = {
    "a.sh": shell,
    "b.sh": shell_array,
    "c.sh": shell_appended,
    "d.sh": shell_defaults,
    "e.sbatch": slurm,
    "f.ps1": powershell,
    "g.ps1": powershell_continued,
    "h.ps1": powershell_parameters,
    "i.bat": batch,
    "Dockerfile": dockerfile,
    "Dockerfile.vllm": dockerfile_shell,
    "j.yaml": pod,
}


@pytest.mark.few(6)
@pytest.mark.parametrize("name", WAYS)
@settings(max_examples=examples(100, 4), deadline=None)
@given(
    order=st.permutations(PAIRS[1:]),
    tensor_parallel=st.sampled_from(["1", "2", "4"]),
    length=st.integers(1024, 32768).map(str),
)
def test_a_server_is_read_the_same_in_every_way_to_write_it(
    name: str,
    order: list[tuple[str, str]],
    tensor_parallel: str,
    length: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    changed = {"--tensor-parallel-size": tensor_parallel, "--max-model-len": length}
    words = ["--model", MODEL]
    words += [word for option, value in order for word in (option, changed.get(option, value))]
    folder = tmp_path_factory.mktemp("ways")

    read = values_of(folder, name, WAYS[name](words))

    assert read == values_of(folder, "plain.sh", shell(words))
    assert (read["tensor_parallel"], read["max_model_len"]) == (tensor_parallel, length)
    assert not undecided_options(read_launch(folder / name))


LOOPS = (
    'for arg in "$@"; do case $arg in --tp=*) TP="${arg#*=}" ;; esac; done',
    'while (( "$#" )); do case "$1" in --tp) TP="$2"; shift 2 ;; esac; done',
    'while [[ $# -gt 0 ]]; do case "$1" in --tp) TP="$2"; shift 2 ;; esac; done',
)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_script_is_read_as_started_without_arguments(loop: str, tmp_path: Path) -> None:
    (tmp_path / "s.sh").write_text(
        f"{loop}\nTP=${{TP:-2}}\nvllm serve {MODEL} --tensor-parallel-size $TP\n"
    )
    assert str(read_launch(tmp_path / "s.sh").values["tensor_parallel"]) == "2"


BRANCHES = """
if [[ "$FAST" == 1 ]]; then
  TP=8
else
  TP=4
fi
"""


@pytest.mark.slow
def test_the_choices_of_a_branch_are_named_and_answered(planner: Command, tmp_path: Path) -> None:
    model = "Qwen/Qwen2.5-72B-Instruct"
    (tmp_path / "s.sh").write_text(f"{BRANCHES}vllm serve {model} --tensor-parallel-size $TP\n")
    asked = planner("estimate", "--from", tmp_path / "s.sh", "--gpu", "h100")
    answered = planner("estimate", "--from", tmp_path / "s.sh", "--gpu", "h100", "--set", "tp=8")

    assert "--tensor-parallel-size (8 or 4) may change this" in " ".join(asked.out.split())
    assert answered.exit_code == 0
    assert "Incomplete reading" not in answered.out
    assert "on 8 x h100" in answered.out
    assert "tp8" in answered.out


@pytest.mark.parametrize(
    ("appended", "named"),
    [('--api-key "$KEY"', ()), ("--quantization fp8", ("--quantization (in some branches)",))],
)
def test_only_decisive_options_of_a_branch_stand_in_the_first_line(
    appended: str, named: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "s.sh").write_text(
        f"A=({shlex.join(WORDS)})\n"
        f'if [ -n "$KEY" ]; then A+=({appended}); fi\n{PROGRAM} "${{A[@]}}"\n'
    )
    assert tuple(undecided_options(read_launch(tmp_path / "s.sh"))) == named


TRAINING = """torchrun --nproc_per_node 2 run_clm.py \\
  --model_name_or_path Qwen/Qwen2.5-7B \\
  --output_dir out \\{blank}
  --per_device_train_batch_size 4 --bf16
"""


@pytest.mark.parametrize(("blank", "batch"), [("", 4), (" ", 8), (" # a comment", 8)])
def test_options_behind_a_broken_continuation_are_not_read_and_told(
    blank: str, batch: int, tmp_path: Path
) -> None:
    (tmp_path / "t.sh").write_text(TRAINING.format(blank=blank))
    launch = read_launch(tmp_path / "t.sh")

    assert int(launch.values["micro_batch_size"]) == batch
    told = any("the options from line 4 on" in name for name in undecided_options(launch))
    assert told == bool(blank)


@pytest.mark.parametrize(
    "command",
    [
        "accelerate launch app.py --model_name_or_path gpt2 --max_new_tokens 200",
        "deepspeed --num_gpus 2 inference.py --model_name_or_path gpt2 --deepspeed",
        "torchrun --nproc_per_node 2 run_glue.py --model_name_or_path gpt2 --output_dir out",
        "vllm serve gpt2 --device cpu",
    ],
)
def test_what_trains_nothing_or_runs_elsewhere_is_refused(command: str, tmp_path: Path) -> None:
    (tmp_path / "t.sh").write_text(f"{command}\n")
    with pytest.raises(LaunchError):
        read_launch(tmp_path / "t.sh")


def test_a_batch_that_nothing_sets_stands_in_the_first_line(tmp_path: Path) -> None:
    command = "accelerate launch --num_processes 4 train.py --model_name_or_path gpt2"
    (tmp_path / "t.sh").write_text(command)
    (tmp_path / "u.sh").write_text(f"{command} --output_dir out --gradient_accumulation_steps 2")

    assert "the batch of train.py" in undecided_options(read_launch(tmp_path / "t.sh"))
    assert "the batch of train.py" not in undecided_options(read_launch(tmp_path / "u.sh"))


ACCELERATORS = {
    "google.com/tpu": ("cloud.google.com/gke-tpu-accelerator: tpu-v6e-slice", "tpu-v6e"),
    "habana.ai/gaudi": ("other: label", "gaudi2"),
    "aws.amazon.com/neuron": ("other: label", "inferentia2-32gb"),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("resource", ACCELERATORS)
def test_a_pod_of_another_vendor_is_not_judged_on_a_gpu_of_nvidia(
    resource: str, planner: Command, tmp_path: Path
) -> None:
    label, gpu = ACCELERATORS[resource]
    (tmp_path / "pod.yaml").write_text(
        "apiVersion: apps/v1\nkind: Deployment\nspec:\n  template:\n    spec:\n"
        f"      nodeSelector:\n        {label}\n      containers:\n"
        "      - image: example/vllm\n        command: [vllm, serve, Qwen/Qwen2.5-7B-Instruct]\n"
        f"        resources:\n          limits:\n            {resource}: 4\n"
    )
    result = planner("estimate", "--from", tmp_path / "pod.yaml")
    assert gpu in result.out + result.err
    assert "h100" not in result.out


GROUP = """apiVersion: ome.io/v1beta1
kind: ClusterServingRuntime
spec:
  engineConfig:
    leader:
      runner:
        image: lmsysorg/sglang:v0.5.0
        command: [python3, -m, sglang.launch_server, --model-path, deepseek-ai/DeepSeek-V3,
                  --tp-size, $(PARALLELISM_SIZE), --nnodes, $(LWS_GROUP_SIZE)]
        resources:
          limits:
            nvidia.com/gpu: 8
    worker:
      size: {workers}
      runner:
        image: lmsysorg/sglang:v0.5.0
        command: [python3, -m, sglang.launch_server, --model-path, deepseek-ai/DeepSeek-V3,
                  --tp-size, $(PARALLELISM_SIZE), --nnodes, $(LWS_GROUP_SIZE)]
        resources:
          limits:
            nvidia.com/gpu: 8
"""


@pytest.mark.parametrize("workers", [1, 3])
def test_a_group_of_ome_has_its_controllers_sizes(workers: int, tmp_path: Path) -> None:
    (tmp_path / "runtime.yaml").write_text(GROUP.replace("{workers}", str(workers)))
    values = read_launch(tmp_path / "runtime.yaml").values

    assert int(values["num_gpus"]) == int(values["tensor_parallel"]) == 8 * (workers + 1)


def test_a_runtime_that_is_elsewhere_is_told(tmp_path: Path) -> None:
    (tmp_path / "service.yaml").write_text(
        "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nspec:\n  predictor:\n"
        "    model:\n      modelFormat:\n        name: vLLM\n      runtime: my-runtime\n"
        "      storageUri: oci://registry.example/modelcar-granite-3-3-8b-instruct:1.5\n"
    )
    launch = read_launch(tmp_path / "service.yaml")

    assert launch.values["model"] == "granite-3.3-8b"
    assert "runtime" in undecided_options(launch)
