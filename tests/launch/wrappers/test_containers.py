from __future__ import annotations

from pathlib import Path

import pytest
from make_public_launches import FOLDER

from planner.documents.shell.edits import ParsedOption, apply_edits
from planner.errors import LaunchError
from planner.launch.read.read_launch import parse_launches
from planner.launch.wrappers.read_containers import Container, script_of
from planner.launch.wrappers.read_nested_commands import nested_containers
from planner.launch.wrappers.read_server_objects import containers_of


def _read(name: str) -> tuple[str, tuple[Container, ...]]:
    (path,) = (path for path in (FOLDER / name).iterdir() if path.suffix == ".yaml")
    text = path.read_text(encoding="utf-8")
    return text, containers_of(text, path.name)


def _words(text: str, container: Container) -> list[str | None]:
    return [word.text for word in script_of(container, text, "file").commands[-1].words]


def _number(given: ParsedOption | None) -> str | None:
    return None if given is None else given.texts[0]


def test_a_group_of_pods_has_a_leader_and_a_size() -> None:
    text, (leader, worker) = _read("lws-vllm-405b")

    assert not leader.is_follower
    assert worker.is_follower
    assert (_number(leader.resources.num_nodes), _number(leader.resources.gpus_per_node)) == (
        "2",
        "8",
    )
    assert _number(leader.resources.copies) == "2"
    assert _words(text, leader)[-2:] == ["--pipeline_parallel_size", "2"]


def test_variables_of_the_controller_are_known_or_named() -> None:
    text, (leader, _) = _read("lws-sglang-8b")
    words = _words(text, leader)

    assert words[words.index("--nnodes") + 1] == "2"
    assert words[words.index("--node-rank") + 1] is None
    assert "$(LWS_WORKER_INDEX)" in leader.words[words.index("--node-rank") + 1].unknown


def test_a_value_is_edited_where_it_stands() -> None:
    text, (container,) = _read("sts-sglang-two-nodes")
    command = script_of(container, text, "file").commands[0]
    size = command.words[[w.text for w in command.words].index("--tensor-parallel-size") + 1]

    assert size.span is not None
    changed = apply_edits(text, {size.span: "8"})
    assert "--tensor-parallel-size 8 \\\n" in changed
    assert text.splitlines()[size.line - 1].strip() == "--tensor-parallel-size 16 \\"
    assert _number(container.resources.num_nodes) == "2"
    assert container.resources.copies is None


def test_the_environment_of_a_container_is_put_in() -> None:
    text, (container,) = _read("k8s-vllm-llama-l4")

    assert "--model=meta-llama/Llama-3.1-8B-Instruct" in _words(text, container)
    assert container.resources.gpu == "nvidia-l4"


def test_workers_of_a_graph_have_roles_and_a_shell() -> None:
    text, (prefill, decode) = _read("dynamo-llama-70b-disaggregated")

    assert (prefill.role, _number(prefill.resources.copies)) == ("prefill", "2")
    assert (decode.role, _number(decode.resources.gpus_per_node)) == ("decode", "4")
    words = _words(text, decode)
    assert words[:4] == ["python3", "-m", "dynamo.vllm", "--model"]
    assert "models--RedHatAI--Llama-3.3-70B-Instruct-FP8-dynamic" in str(words[4])


def test_a_service_of_kserve_tells_its_options_by_keys() -> None:
    text, (container,) = _read("kserve-deepseek-r1-dp-ep")

    words = _words(text, container)
    assert words[:3] == ["vllm", "serve", "deepseek-ai/DeepSeek-R1-0528"]
    assert words[words.index("--data-parallel-size") + 1] == "32"
    assert {"--enable-expert-parallel", "--enforce-eager"} <= {*words}


@pytest.mark.parametrize(
    ("name", "words", "gpus"),
    [
        ("sglang-compose-8b", ["python3", "-m", "sglang.launch_server", "--model-path"], "1"),
        ("vllm-compose-70b", ["python3", "-m", "vllm.entrypoints.openai.api_server"], "8"),
    ],
)
def test_a_service_of_compose_starts_what_its_image_does(
    name: str, words: list[str], gpus: str
) -> None:
    text, (container,) = _read(name)

    assert _words(text, container)[: len(words)] == words
    assert _number(container.resources.gpus_per_node) == gpus


def test_defaults_of_variables_count_in_compose() -> None:
    text, (container,) = _read("vllm-compose-70b")
    words = _words(text, container)

    size = container.words[words.index("--tensor-parallel-size") + 1]
    assert size.text == "2"
    assert size.span is not None
    assert "${TP:-4}" in apply_edits(text, {size.span: "4"})


def test_a_shell_is_no_model() -> None:
    text = """kind: Pod
spec:
  containers:
  - {name: it, image: "vllm/vllm-openai:v1", command: [/bin/bash, -c], args: [vllm serve a/b]}
"""
    (container,) = containers_of(text, "pod.yaml")

    assert _words(text, container) == ["vllm", "serve", "a/b"]


def test_what_is_not_known_of_a_pod_is_named() -> None:
    text = """kind: Pod
apiVersion: v1
spec:
  containers:
  - name: it
    image: vllm/vllm-openai
    args: [org/model, --port, $(PORT), --key, $(KEY)]
    env: [{name: KEY, valueFrom: {secretKeyRef: {name: a, key: b}}}]
"""
    (container,) = containers_of(text, "pod.yaml")

    assert [word.text for word in container.words] == [
        *("vllm", "serve", "org/model", "--port", None, "--key", None)
    ]
    assert "$(PORT) is set by nothing" in container.words[4].unknown
    assert "line 8" in container.words[6].unknown


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1\n", "file.yaml:2"),
        ("a: &a [*a]\n", "contains itself"),
        ("".join(f"a{i}: &a{i} [{f'*a{i - 1}, ' * 9}]\n" for i in range(1, 9)).replace("*a0", "0"),
         "aliases counted"),
        ("[" * 100_000 + "]" * 100_000, "nested"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused(text: str, message: str) -> None:
    with pytest.raises(LaunchError, match=message):
        containers_of(text, "file.yaml")


def test_other_documents_have_no_containers() -> None:
    assert containers_of("num_processes: 8\n", "accelerate.yaml") == ()
    assert containers_of("", "empty.yaml") == ()


def _first(text: str) -> list[str | None]:
    (container,) = containers_of(text, "values.yaml")
    return [word.text for word in container.words]


def test_workers_of_llm_d_that_are_not_created_leave_an_ordinary_server() -> None:
    # llm-d-incubation/llm-d-modelservice, values.yaml: decode serves alone without prefill.
    text = (
        "modelArtifacts: {uri: hf://Qwen/Qwen3-8B}\n"
        "decode: {replicas: 2, parallelism: {tensor: 2}, "
        "containers: [{args: [--max-model-len, 8k]}]}\n"
        "prefill: {create: false, replicas: 1}\n"
    )
    (container,) = containers_of(text, "values.yaml")

    assert container.role == ""
    words = ["vllm", "serve", "Qwen/Qwen3-8B", "--max-model-len", "8k"]
    assert _first(text) == [*words, "--tensor-parallel-size", "2"]


def test_an_engine_of_kubeai_that_is_not_vllm_starts_nothing_here() -> None:
    spec = "spec: {url: hf://a/b, engine: OLlama}"

    assert _first(f"apiVersion: kubeai.org/v1\nkind: Model\n{spec}\n") == []


def test_a_folder_is_named_by_what_is_mounted_there() -> None:
    text = (
        "services:\n  vllm:\n    image: vllm/vllm-openai:latest\n"
        "    volumes: [/data/Qwen3-32B:/mnt/model:ro, /cache:/root]\n"
        "    command: --model /mnt/model/ --download-dir /mnt/models\n"
    )
    (container,) = containers_of(text, "compose.yaml")
    told = [word.text for word in container.words]

    assert told[-4:] == ["--model", "Qwen3-32B", "--download-dir", "/mnt/models"]


def test_a_task_of_skypilot_says_its_gpus_in_each_of_their_forms() -> None:
    for asked in ("H100:8", "{H100: 8}", "[H100:8, A100-80GB:8]"):
        task = f"resources:\n  accelerators: {asked}\nrun: |\n  vllm serve a/b\n"
        (container,) = nested_containers(task, "task.yaml")

        assert container.resources.gpu == "H100", asked
        assert container.resources.gpus_per_node is not None
        assert container.resources.gpus_per_node.texts == ("8",)


def test_workers_of_a_pytorch_job_are_nodes_of_its_one_job() -> None:
    pod = "template: {spec: {containers: [{name: c, image: i, command: [vllm, serve, a/b]}]}}"
    job = f"kind: PyTorchJob\nspec:\n  pytorchReplicaSpecs:\n    Worker: {{replicas: 4, {pod}}}\n"
    (alone,) = containers_of(job, "job.yaml")
    both = f"{job}    Master: {{replicas: 1, {pod}}}\n"

    assert not alone.is_follower
    assert alone.resources.num_nodes is not None
    assert alone.resources.num_nodes.texts == ("4",)
    worker, master = containers_of(both, "job.yaml")
    assert worker.is_follower
    assert not master.is_follower
    assert master.resources.num_nodes is not None
    assert master.resources.num_nodes.texts == ("5",)


def test_a_train_job_says_its_nodes_and_the_gpus_of_each() -> None:
    """As Kubeflow's trainer.kubeflow.org/v1alpha1 has them; processes where no GPUs are asked."""
    spec = "numNodes: 2, command: [torchrun, train.py]"
    job = "kind: TrainJob\nspec:\n  trainer: {{{}, {}}}\n"
    asked = "numProcPerNode: 4, resourcesPerNode: {limits: {nvidia.com/gpu: 8}}"
    for words, each in ((asked, "8"), ("numProcPerNode: 4", "4")):
        (container,) = containers_of(job.format(spec, words), "job.yaml")

        world = container.resources
        assert world.num_nodes is not None
        assert world.gpus_per_node is not None
        assert (world.num_nodes.texts, world.gpus_per_node.texts) == (("2",), (each,))


NESTED = [
    ("recipe: {cmd: vllm serve a/b}", ["vllm", "serve", "a/b"], {}),
    (
        '{"steps": [{"launch_command": ["sglang", "serve", "a/b"], "num_gpus": 8}]}',
        ["sglang", "serve", "a/b"],
        {"gpus_per_node": "8"},
    ),
    (
        "serve: {resources: {gpu: {name: H200, count: 4}}, replicas: 2, "
        "job: {commands: [pip install x, vllm serve a/b --tp 4]}}",
        ["vllm", "serve", "a/b", "--tp", "4"],
        {"gpus_per_node": "4", "gpu": "H200", "copies": "2"},
    ),
    (
        "nodes: 2\nsettings: {instance_type: p5.48xlarge, anything: torchrun train.py}",
        ["torchrun", "train.py"],
        {"gpus_per_node": "8", "num_nodes": "2"},
    ),
    ("resources: {gpu: 80GB}\nrun: vllm serve a/b", ["vllm", "serve", "a/b"], {"gpu": None}),
    (
        "env: {TP: 8}\nbox: {image: x, command: [vllm, serve], args: [a/b, --tp, $(TP)]}",
        ["vllm", "serve", "a/b", "--tp", None],
        {},
    ),
]


@pytest.mark.parametrize(("text", "words", "resources"), NESTED)
def test_a_command_is_found_anywhere_with_the_resources_around_it(
    text: str, words: list[str | None], resources: dict[str, str | None]
) -> None:
    (container,) = nested_containers(text, "any.yaml")

    assert _words(text, container) == words
    found = vars(container.resources)
    for name, number in resources.items():
        value = found[name]
        assert (_number(value) if isinstance(value, ParsedOption) else value) == number


@pytest.mark.parametrize(
    "text", ["note: start vllm 'today", "a: {b: [1, 2]}", "model: vllm", "- torchrun"]
)
def test_other_texts_are_no_commands(text: str) -> None:
    assert [*nested_containers(text, "any.yaml")] == []


@pytest.mark.parametrize("name", ["job.json", "job.yaml"])
def test_a_file_of_an_unknown_kind_is_read_by_the_command_in_it(name: str) -> None:
    text = '{"job": {"gpus": 4, "cmd": "vllm serve a/b --tensor-parallel-size 4"}}'

    (command,) = parse_launches(Path(name), text)

    assert command.target == "vllm"
    assert _number(command.options["--tensor-parallel-size"]) == "4"
    assert _number(command.resources.gpus_per_node) == "4"
