"""What scripts start inside wrappers, on what, and where that stands."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rows import each

from planner.documents.shell.edits import ParsedOption, apply_edits, shell_word
from planner.errors import LaunchError
from planner.launch.wrappers.read_programs import StartedProgram, inner_commands, read_script

PROGRAM = ["vllm", "serve", "org/model", "--tensor-parallel-size", "8", "--x=a b"]
WRAPPERS = [
    "env A=b", "nohup", "timeout -k 5 30m", "numactl --cpunodebind 0 -m 0", "srun -N4 --exclusive",
    "srun --ntasks=1 -p main --container-image i.sqsh --container-mounts /a:/b", "uv run --no-sync",
    "docker run --gpus all -it --rm -v /a:/b --shm-size 1g -e X=1 vllm/vllm-openai:v0.33.0",
    "apptainer exec --nv -B /a:/b image.sif", "singularity run --nv image.sif", "conda run -n e",
    "mpirun -np 1 --allow-run-as-root -x PATH --mca btl self,tcp", "exec", "sudo -E A=1",
    "taskset -c 0-3", "nsys profile -o out -t cuda", "stdbuf -oL", "kubectl exec -it pod -n x --",
    "ray job submit --address http://a:1 --", "trtllm-llmapi-launch", "time", "nice -n 5",
    "podman run --device nvidia.com/gpu=all --rm i:1", "poetry run", "ssh -p 22 host",
]  # fmt: skip


def inner(text: str, **environment: str) -> tuple[StartedProgram, ...]:
    return inner_commands(read_script(text, environment, "run.sh"))


def only(text: str, **environment: str) -> StartedProgram:
    found = [one for one in inner(text, **environment) if len(one.words) > 1]
    assert len(found) == 1, found
    return found[0]


def texts(one: StartedProgram) -> list[str | None]:
    return [word.text for word in one.words]


def value(one: ParsedOption | None) -> str | None:
    return None if one is None else one.texts[0]


@given(st.lists(st.sampled_from(WRAPPERS), max_size=4), st.booleans(), st.booleans())
def test_any_stack_of_wrappers_comes_off(stack: list[str], quoted: bool, login: bool) -> None:
    command = " ".join(map(shell_word, PROGRAM))
    if quoted:
        command = f"bash {'-lc' if login else '-x -c'} {shell_word(command)}"
    one = only(" ".join([*stack, command]))
    assert texts(one) == PROGRAM


@given(st.lists(st.text(max_size=8).filter(lambda text: "\0" not in text), max_size=3))
def test_words_in_quotes_are_those_of_the_inner_shell(words: list[str]) -> None:
    command = " ".join(map(shell_word, ["train.py", "x", *words]))
    assert texts(only(f"srun bash -c {shell_word(command)}")) == ["train.py", "x", *words]


@each(
    ("text", "words"),
    [
        ("python -u train.py --a 1", ["train.py", "--a", "1"]),
        ("python3.11 -m vllm.entrypoints.openai.api_server --tp 1",
         ["-m", "vllm.entrypoints.openai.api_server", "--tp", "1"]),
        ("torchrun --nnodes 2 --standalone -m titan.train --a", ["-m", "titan.train", "--a"]),
        ("python -m torch.distributed.launch --nproc_per_node=8 train.py -x", ["train.py", "-x"]),
        ("accelerate launch --config_file a.yaml train.py --b",
         ["accelerate", "launch", "--config_file", "a.yaml", "train.py", "--b"]),
        ("python -m accelerate.commands.launch --num_processes 8 t.py",
         ["accelerate", "launch", "--num_processes", "8", "t.py"]),
        ("deepspeed --include localhost:0,1 --master_port 1 main.py --deepspeed c.json",
         ["main.py", "--deepspeed", "c.json"]),
        ("docker run vllm/vllm-openai:v1 org/m --tp 2", ["vllm", "serve", "org/m", "--tp", "2"]),
        ("docker run --gpus 8 vllm/vllm-openai:v1 --model m",
         ["-m", "vllm.entrypoints.openai.api_server", "--model", "m"]),
        ("docker run --entrypoint vllm i:1 serve m", ["vllm", "serve", "m"]),
        ("docker run --gpus all ghcr.io/ggml-org/llama.cpp:server-cuda -m a.gguf",
         ["llama-server", "-m", "a.gguf"]),
        ("cat > job.sh <<'EOF'\nsrun vllm serve m\nEOF\nsbatch job.sh", ["vllm", "serve", "m"]),
        ("sbatch <<EOF\n#SBATCH -N 2\nsrun vllm serve m\nEOF", ["vllm", "serve", "m"]),
        ("A='vllm serve m'\neval $A", ["vllm", "serve", "m"]),
        ("export C='vllm serve m'\nsrun bash -c 'exec $C'", ["vllm", "serve", "m"]),
        ("$RUN vllm serve m", ["vllm", "serve", "m"]),
        ("torchrun $LAUNCH train.py --a", ["train.py", "--a"]),
        ('python "$(pwd)/pretrain_gpt.py" --a', ["pretrain_gpt.py", "--a"]),
    ],
)  # fmt: skip
def test_programs(text: str, words: list[str]) -> None:
    assert texts(only(text)) == words


@each(
    ("text", "nodes", "each", "total", "gpu"),
    [
        ("#SBATCH --nodes=4\n#SBATCH --gres=gpu:h100:8\nsrun vllm serve m", "4", "8", None, "h100"),
        ("#SBATCH -N 4\n#SBATCH --gpus-per-node=a100:4\nsrun vllm serve m", "4", "4", None, "a100"),
        ("#SBATCH -N 2 --gpus=16\nsrun vllm serve m", "2", None, "16", None),
        ("#SBATCH -C 'ib&v100-32g' -N 2\nsrun vllm serve m", "2", None, None, "v100-32g"),
        ("srun --constraint=ib --gpus-per-node=a100:4 vllm serve m", None, "4", None, "a100"),
        ("#PBS -l select=3:ngpus=4\nvllm serve m", "3", "4", None, None),
        ("#SBATCH -N 9\nsrun -N2 --gpus-per-node 8 vllm serve m", "2", "8", None, None),
        ("#SBATCH -N 2 --ntasks-per-node=8\nsrun python train.py x", "2", "8", None, None),
        ("torchrun --nnodes=2 --nproc-per-node 8 train.py x", "2", "8", None, None),
        ("torchrun --nnodes=1:4 --nproc-per-node auto train.py x", None, None, None, None),
        ("deepspeed --num_nodes 2 --num_gpus 8 train.py x", "2", "8", None, None),
        ("deepspeed --include a@b:0,1 train.py x", "2", None, None, None),
        ("deepspeed --include a:0,1@b:2,3 train.py x", "2", "2", None, None),
        ("accelerate launch --num_machines 2 --num_processes 16 train.py", "2", None, "16", None),
        ("mpirun -np 32 --map-by ppr:8:node python train.py x", None, "8", None, None),
        ("mpirun -np 32 python train.py x", None, None, "32", None),
        ("cat > hosts <<'E'\na slots=4\nb slots=4  # c\nE\ndeepspeed --hostfile hosts train.py x",
         "2", "4", None, None),
        ("mpirun -H a:8,b:8,c:8 python train.py x", "3", "8", None, None),
        ("docker run --gpus '\"device=0,3\"' i vllm serve m", None, "2", None, None),
        ("CUDA_VISIBLE_DEVICES=0,1,2 vllm serve m", None, "3", None, None),
        ("#SBATCH -N 3\n#SBATCH --gpus-per-node 4\ntorchrun --nnodes $SLURM_NNODES "
         "--nproc-per-node $SLURM_GPUS_ON_NODE train.py x", "3", "4", None, None),
    ],
)  # fmt: skip
def test_worlds(
    text: str, nodes: str | None, each: str | None, total: str | None, gpu: str | None
) -> None:
    world = only(text).resources
    assert (value(world.num_nodes), value(world.gpus_per_node)) == (nodes, each)
    assert (value(world.num_gpus), world.gpu) == (total, gpu)


def test_places_are_those_of_the_file() -> None:
    text = (
        "#SBATCH --nodes=4 --gres=gpu:h100:8\nexport TP=16\nARGS='--pp 2'\n"
        "srun --label bash -c \"vllm serve 'm' --tp $TP \\\n   $ARGS\"\n"
    )
    one = only(text)
    assert texts(one) == ["vllm", "serve", "m", "--tp", "16", "--pp", "2"]
    edits = {}
    for word in one.words[2:]:
        assert word.span is not None
        assert text[word.span.start : word.span.end] == word.text
        edits[word.span] = word.text.upper() if word.text != "16" else "32"
    for told, new in ((one.resources.num_nodes, "7"), (one.resources.gpus_per_node, "5")):
        assert told is not None
        assert told.spans[0] is not None
        edits[told.spans[0]] = new
    again = only(apply_edits(text, edits))
    assert texts(again)[2:] == ["M", "--TP", "32", "--PP", "2"]
    assert value(again.resources.num_nodes) == "7"
    assert value(again.resources.gpus_per_node) == "5"
    assert [word.line for word in one.words[2:]] == [4, 4, 2, 3, 3]


def test_what_is_not_known_inside_quotes_says_why() -> None:
    one = only("srun bash -c \"vllm serve '$MODEL' --tp $TP --host $(hostname)\"")
    model, tp, host = one.words[2], one.words[4], one.words[6]
    assert (model.text, tp.text, host.text) == (None, None, None)
    assert "$MODEL is set by nothing in this file" in model.unknown
    assert "$TP is set by nothing" in tp.unknown
    assert "untold" not in repr([(word.raw, word.unknown, word.text) for word in one.words])


def test_variables_for_a_container_and_of_the_script_are_known() -> None:
    one = only("export A=1\ndocker run -e B=2 --env C=3 i env D=4 vllm serve m")
    assert {name: word.text for name, word in one.environment.items()} == dict(
        zip("ABCD", "1234", strict=True)
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("#SBATCH -N 1 --gpus-per-node=8\nsrun torchrun --nproc-per-node 128 train.py x",
         "run.sh: line 2: --nproc-per-node 128 is more than the 8 GPUs of a node of "
         "--gpus-per-node on line 1."),
        ("#SBATCH --nodes=2\ntorchrun --nnodes 4 t.py x", "--nnodes 4 is more than the 2 nodes"),
        ("#SBATCH -N 2 --gpus-per-node=8\naccelerate launch --num_processes 32 t.py",
         "--num_processes 32 is more than the 16 GPUs"),
        ("#SBATCH -N 1 --ntasks-per-node=128 --gpus-per-node=8\npython train.py x",
         "--ntasks-per-node 128"),
    ],
)  # fmt: skip
def test_contradictions_are_refused(text: str, told: str) -> None:
    with pytest.raises(LaunchError) as error:
        only(text).require_agreement("run.sh")
    assert told in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        "#SBATCH -N 4 --gpus-per-node=8\nsrun -N1 torchrun --nproc-per-node 4 train.py x",
        "#SBATCH -N 4 --gpus-per-node=8 --ntasks-per-node=1\nsrun torchrun --nnodes 4 train.py x",
        "torchrun --nproc-per-node 128 train.py x",
    ],
)
def test_what_fits_is_not_refused(text: str) -> None:
    only(text).require_agreement("run.sh")


def test_what_the_scheduler_sets_is_known() -> None:
    text = (
        "#SBATCH -N 2 --ntasks-per-node=4\nvllm serve m $SLURM_NNODES $SLURM_NTASKS $SLURM_JOB_ID"
    )
    assert texts(only(text))[3:] == ["2", "8", None]
    assert texts(only(text, SLURM_NNODES="3"))[3:] == ["3", "8", None]


def test_nesting_ends() -> None:
    text = "vllm serve m"
    for _ in range(6):
        text = f"bash -c {shell_word(text)}"
    assert inner(text)
    text = f"bash -c {shell_word(text)}"
    with pytest.raises(LaunchError, match=r"run.sh:1: commands inside commands"):
        inner(text)


def test_what_is_only_said_starts_nothing() -> None:
    assert not inner("echo vllm serve m\ncat vllm serve m\nread vllm serve m")


def test_rounds_with_devices_of_their_own_run_at_once() -> None:
    text = "for g in 0 1 2 3; do {}vllm serve m {}\ndone\n"
    for devices, end, copies in (
        ("CUDA_VISIBLE_DEVICES=$g ", "&", "4"),
        ("CUDA_VISIBLE_DEVICES=$g ", "", None),
        ("", "&", None),
    ):
        (one,) = inner_commands(read_script(text.format(devices, end), {}, "run.sh"))
        told = one.resources.copies
        assert (told.single if told else None) == copies


def test_a_document_that_is_appended_to_has_both_parts() -> None:
    text = "cat > a.yaml <<EOF\na: $X\nEOF\ncat <<EOF >> a.yaml\nb: 2\nEOF\n"

    assert read_script(text, {"X": "1"}, "run.sh").files["a.yaml"].text == "a: 1\nb: 2\n"
