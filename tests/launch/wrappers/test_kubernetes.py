"""Manifests: valid YAML of known fields whose pods start what the plan says."""

from __future__ import annotations

import csv
import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from launched import TARGET, job_of, process, run

from planner.documents.yaml_writer import documents
from planner.errors import LaunchError
from planner.launch.target import (
    MASTER_ADDR,
    NODE_RANK,
    CommandWords,
    LaunchDraft,
    LaunchJob,
    LaunchOutputFile,
    ShellVariable,
)
from planner.launch.wrappers import wrapper_of, write_kubernetes
from planner.launch.wrappers.read_kustomizations import read_kustomization
from planner.question.request import Request

ODD = ["it's", "$(touch hit)", 'a "b"', "one\ntwo", "  x", "- y: z", "#", "a\u2028b", "tab\there ",
       "$(HF_TOKEN)", "$$(HF_TOKEN)", "$$$", "a$$b"]  # fmt: skip
PORT = ShellVariable(name="PORT", meaning="")


@cache
def serving(gpu: str = "h100-sxm") -> LaunchJob:
    return LaunchJob.of(
        Request(
            workload="serve", model="llama-3-8b", gpu=gpu, num_gpus=8, engine="vllm",
            settings={"tensor_parallel": 2, "concurrency": 8},
        )
    )  # fmt: skip


def objects(
    draft: LaunchDraft, job: LaunchJob | None = None, wrapper: str = "kubernetes"
) -> list[Any]:
    files = wrapper_of(wrapper)(TARGET, job or serving(), draft)
    found = list(yaml.safe_load_all(files[0].text))
    for one in found:
        check(one, one["kind"], one["kind"])
    return found


@cache
def fields() -> dict[str, dict[str, str]]:
    path = Path(__file__).with_name("kubernetes_fields.tsv")
    rows = csv.DictReader(path.read_text().splitlines(), delimiter="\t")
    return {
        row["type"]: dict((*name.split(":"), "")[:2] for name in row["fields"].split())
        for row in rows
    }


def check(value: Any, kind: str, where: str) -> None:
    """Every field is one that the API has, and lists are where it has lists."""
    if kind == "Texts":
        assert all(isinstance(each, str | int) for each in value.values()), where
        return
    known = fields()[kind]
    for name, part in value.items():
        assert name in known, f"{where}.{name}"
        inner = known[name].removesuffix("[]")
        parts = part if known[name].endswith("[]") else [part]
        assert isinstance(parts, list), where
        for each in parts:
            if inner:
                check(each, inner, f"{where}.{name}")


def one(found: list[Any], kind: str) -> Any:
    (each,) = (each for each in found if each["kind"] == kind)
    return each


def script_of(pod: Any) -> str:
    (container,) = pod["containers"]
    assert container["command"] == ["/bin/bash", "-c"]
    (text,) = container["args"]
    text = expanded(text, {"HF_TOKEN": "leaked"})
    assert subprocess.run(["bash", "-n"], input=text.encode()).returncode == 0
    return str(text)


def expanded(text: str, values: dict[str, str]) -> str:
    """Arguments as Kubernetes gives them to a container."""

    def replaced(found: re.Match[str]) -> str:
        return "$" if found[0] == "$$" else values.get(found[1], found[0])

    return re.sub(r"\$\$|\$\(([^)]*)\)", replaced, text)


def started(folder: Path, pod: Any, **environment: str) -> list[Any]:
    (folder / "pod.sh").write_text(script_of(pod), encoding="utf-8")
    said, ended = run(folder, "pod.sh", ["serve", "torchrun", "train"], environment)
    assert ended.returncode == 0, ended.stderr
    return said[-1:]


def test_training_on_several_nodes_is_an_indexed_job(tmp_path: Path) -> None:
    data = ShellVariable(name="DATA_PATH", meaning="data")
    nodes = process("train.py", data, launcher="torchrun", num_nodes=2)
    found = objects(LaunchDraft(processes=(nodes,)), job_of())
    job = one(found, "Job")
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    assert (spec["completions"], spec["parallelism"], spec["completionMode"]) == (2, 2, "Indexed")
    name = job["metadata"]["name"]
    service = one(found, "Service")
    assert service["spec"]["clusterIP"] == "None"
    assert service["metadata"]["name"] == pod["subdomain"] == name
    assert service["spec"]["selector"].items() <= spec["template"]["metadata"]["labels"].items()
    assert pod["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": 8}
    settings = one(found, "ConfigMap")
    assert settings["data"] == {"DATA_PATH": ""}
    reference = pod["containers"][0]["envFrom"][0]["configMapRef"]["name"]
    assert reference == settings["metadata"]["name"]
    (said,) = started(tmp_path, pod, JOB_COMPLETION_INDEX="1", DATA_PATH="/data/a b")
    rank = ["--node-rank", "1", "--master-addr", f"{name}-0.{name}", "--master-port", "29500"]
    world = ["--nnodes", "2", "--nproc-per-node", "8"]
    assert said["words"] == [*world, *rank, "train.py", "/data/a b"]


def test_output_goes_to_the_claim_and_programs_may_write_where_they_run(tmp_path: Path) -> None:
    output = ShellVariable(name="OUTPUT_DIR", meaning="checkpoints", default="out", is_output=True)
    files = (
        LaunchOutputFile(name="a.json", text="{}"),
        LaunchOutputFile(name="b/c.json", text="{}"),
    )
    found = objects(LaunchDraft(processes=(process("train", output),), files=files), job_of())
    pod = one(found, "Job")["spec"]["template"]["spec"]
    mounts = {each["name"]: each["mountPath"] for each in pod["containers"][0]["volumeMounts"]}
    (settings,) = (each["data"] for each in found if "OUTPUT_DIR" in each.get("data", {}))
    assert settings == {"OUTPUT_DIR": f"{mounts['data']}/out"}
    read_only, work = tmp_path / "mounted", tmp_path / "work"
    (read_only / "..data/b").mkdir(parents=True)
    for file in files:
        (read_only / "..data" / file.name).write_text(file.text)
        (read_only / file.name.split("/")[0]).symlink_to(f"..data/{file.name.split('/')[0]}")
    (text,) = pod["containers"][0]["args"]
    moved = text.replace("/tmp/launch", str(work)).replace(mounts["files"], str(read_only))
    pod["containers"][0]["args"] = [moved.replace("exec ", "touch new b/new; find -L * -type f #")]
    (tmp_path / "pod.sh").write_text(script_of(pod))
    _, ended = run(tmp_path, "pod.sh", [])
    assert sorted(ended.stdout.split()) == ["a.json", "b/c.json", "b/new", "new"]
    assert not (read_only / "new").exists()


def test_an_image_has_what_its_container_runs() -> None:
    known = replace(TARGET, name="vllm", version="vLLM 0.33.0")
    draft = LaunchDraft(
        processes=(
            process("vllm", "serve", name="server", port=8000),
            process("vllm-router", name="router", gpus_per_node=0, port=8001),
        )
    )
    text = write_kubernetes.make_files(known, serving(), draft)[0].text
    images = {
        each["metadata"]["name"].rpartition("-")[2]: each["spec"]["template"]["spec"]["containers"][
            0
        ]["image"]
        for each in yaml.safe_load_all(text)
        if each["kind"] == "Deployment"
    }
    assert images["server"] == "vllm/vllm-openai:v0.33.0"
    assert images["router"] == "vllm/vllm-router:<nightly tag>"
    head = " ".join(line.lstrip("# ") for line in text.splitlines() if line.startswith("#"))
    assert "image: vllm/vllm-router:<nightly tag> of router" in head


def test_what_the_user_must_set_ends_the_pod(tmp_path: Path) -> None:
    data = ShellVariable(name="DATA_PATH", meaning="where the data is")
    pod = one(objects(LaunchDraft(processes=(process("train", data),)), job_of()), "Job")
    (tmp_path / "pod.sh").write_text(script_of(pod["spec"]["template"]["spec"]))
    said, ended = run(tmp_path, "pod.sh", ["train"], {"DATA_PATH": ""})
    assert not said
    assert "where the data is" in ended.stderr


def test_servers_alike_are_a_deployment_behind_a_service() -> None:
    servers = process("serve", "--port", PORT, name="server", gpus_per_node=2, copies=4, port=8000)
    found = objects(LaunchDraft(processes=(servers,)))
    spec = one(found, "Deployment")["spec"]
    assert spec["replicas"] == 4
    assert spec["template"]["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": 2}
    service = one(found, "Service")["spec"]
    assert service["selector"] == spec["selector"]["matchLabels"]
    assert service["ports"][0]["port"] == 8000
    assert "clusterIP" not in service


def test_a_replica_of_several_nodes_is_a_group(tmp_path: Path) -> None:
    follower = (CommandWords(words=("--headless",)),)
    servers = process(
        "serve", NODE_RANK, MASTER_ADDR, name="server", num_nodes=2, copies=3, port=8000,
        follower_arguments=follower,
    )  # fmt: skip
    found = objects(LaunchDraft(processes=(servers,)))
    group = one(found, "LeaderWorkerSet")["spec"]
    assert group["replicas"] == 3
    template = group["leaderWorkerTemplate"]
    assert template["size"] == 2
    leader, worker = template["leaderTemplate"], template["workerTemplate"]
    service = one(found, "Service")["spec"]["selector"]
    assert service["role"] == leader["metadata"]["labels"]["role"]
    assert "ports" not in worker["spec"]["containers"][0]
    given = {"LWS_WORKER_INDEX": "1", "LWS_LEADER_ADDRESS": "server-0.server.x"}
    (said,) = started(tmp_path, worker["spec"], **given)
    assert said["words"] == ["1", "server-0.server.x", "--headless"]
    (said,) = started(tmp_path, leader["spec"], **{**given, "LWS_WORKER_INDEX": "0"})
    assert said["words"] == ["0", "server-0.server.x"]


def test_a_router_reaches_every_copy_by_name(tmp_path: Path) -> None:
    urls = [ShellVariable(name=f"DECODE_URL_{i}", meaning="") for i in range(2)]
    draft = LaunchDraft(
        processes=(
            process("serve", "d", name="decode", gpus_per_node=4, copies=2, port=8200),
            process("serve", *urls, name="router", gpus_per_node=0, port=8000),
        )
    )
    found = objects(draft)
    servers = one(found, "StatefulSet")
    name = servers["metadata"]["name"]
    assert servers["spec"]["serviceName"] == name
    services = {each["metadata"]["name"] for each in found if each["kind"] == "Service"}
    assert name in services
    router = one(found, "Deployment")["spec"]["template"]["spec"]
    assert "resources" not in router["containers"][0]
    (said,) = started(tmp_path, router)
    assert said["words"] == [f"http://{name}-{i}.{name}:8200" for i in range(2)]


def test_a_pod_knows_its_address() -> None:
    own = ShellVariable(name="HOST_ADDRESS", meaning="")
    found = objects(LaunchDraft(processes=(process("serve", own, name="server", port=8000),)))
    container = one(found, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    (address,) = (each for each in container["env"] if each["name"] == "HOST_ADDRESS")
    assert address["valueFrom"] == {"fieldRef": {"fieldPath": "status.podIP"}}
    assert "ConfigMap" not in {each["kind"] for each in found}


def test_words_and_files_arrive_as_they_are(tmp_path: Path) -> None:
    files = tuple(LaunchOutputFile(name=f"a{i}/b.json", text=text) for i, text in enumerate(ODD))
    found = objects(LaunchDraft(processes=(process("serve", *ODD),), files=files), job_of())
    data = one(found, "ConfigMap")["data"]
    pod = one(found, "Job")["spec"]["template"]["spec"]
    (volume,) = (each["configMap"] for each in pod["volumes"] if "configMap" in each)
    texts = {each["path"]: data[each["key"]] for each in volume["items"]}
    assert texts == {file.name: file.text for file in files}
    (text,) = pod["containers"][0]["args"]
    pod["containers"][0]["args"] = [re.sub(r"(?m)^mkdir .*|^cd .*", "", text)]
    (said,) = started(tmp_path, pod)
    assert said["words"] == ODD
    assert not (tmp_path / "hit").exists()


def test_secrets_are_named_and_not_written() -> None:
    token = ShellVariable(name="API_TOKEN", meaning="token")
    servers = process("serve", token, name="server", port=8000)
    found = objects(LaunchDraft(processes=(servers,)))
    container = one(found, "Deployment")["spec"]["template"]["spec"]
    names = {each["name"] for each in container["containers"][0]["env"]}
    assert "API_TOKEN" in names
    assert "envFrom" not in container["containers"][0]
    assert "ConfigMap" not in {each["kind"] for each in found}


def test_the_resource_and_image_are_those_of_the_gpu() -> None:
    servers = LaunchDraft(processes=(process("serve", name="server", port=8000),))
    job = replace(serving(), gpu=replace_vendor(serving(), "AMD"))
    pod = one(objects(servers, job), "Deployment")["spec"]["template"]["spec"]
    assert pod["containers"][0]["resources"]["limits"] == {"amd.com/gpu": 8}
    known = replace(TARGET, name="vllm", version="vLLM 0.33.0")
    for each, image in (
        (serving(), "vllm/vllm-openai:v0.33.0"),
        (job, "rocm/vllm:<tag for 0.33.0>"),
    ):
        text = write_kubernetes.make_files(known, each, servers)[0].text
        (pod,) = (d for d in yaml.safe_load_all(text) if d["kind"] == "Deployment")
        assert pod["spec"]["template"]["spec"]["containers"][0]["image"] == image
        assert pod["spec"]["template"]["spec"]["containers"][0]["readinessProbe"]


def replace_vendor(job: LaunchJob, vendor: str) -> Any:
    return job.gpu.model_copy(update={"vendor": vendor}) if hasattr(job.gpu, "model_copy") else (
        replace(job.gpu, vendor=vendor)
    )  # fmt: skip


def test_kserve_serves_one_kind_on_a_node(tmp_path: Path) -> None:
    servers = process("serve", PORT, name="server", gpus_per_node=2, copies=4, port=8000)
    found = objects(LaunchDraft(processes=(servers,)), wrapper="kserve")
    predictor = one(found, "InferenceService")["spec"]["predictor"]
    assert (predictor["minReplicas"], predictor["maxReplicas"]) == (4, 4)
    assert predictor["containers"][0]["name"] == "kserve-container"
    (said,) = started(tmp_path, predictor)
    assert said["words"] == ["8000"]


@pytest.mark.parametrize(
    "changes", [{"num_nodes": 2}, {"port": 0}, {"arguments": (CommandWords(words=(ShellVariable(
        name="COPY", meaning=""),)),)}]
)  # fmt: skip
def test_kserve_refuses_what_it_cannot_say(changes: dict[str, Any]) -> None:
    servers = replace(process("serve", name="server", port=8000), **changes)
    with pytest.raises(LaunchError, match="--wrapper kubernetes"):
        wrapper_of("kserve")(TARGET, serving(), LaunchDraft(processes=(servers,)))


def test_training_is_not_served() -> None:
    with pytest.raises(LaunchError, match="does not train: choose --wrapper kubernetes"):
        wrapper_of("kserve")(TARGET, job_of(), LaunchDraft(processes=(process("train", port=1),)))


def test_a_benchmark_of_training_is_a_job_of_its_own(tmp_path: Path) -> None:
    rate = ShellVariable(name="LEARNING_RATE", meaning="rate")
    nodes = process("train.py", rate, launcher="torchrun", num_nodes=2)
    steps = replace(nodes, name="benchmark")
    long = replace(job_of(), model=replace(job_of().model, name="a" * 60))
    file = LaunchOutputFile(name="train.py", text="#")
    draft = LaunchDraft(processes=(nodes,), benchmark=(steps,), files=(file,))
    first, second = write_kubernetes.make_files(TARGET, long, draft)
    assert (second.name, second.start) == ("benchmark.yaml", "kubectl apply -f benchmark.yaml")
    both = [list(yaml.safe_load_all(each.text)) for each in (first, second)]
    names = [{(each["kind"], each["metadata"]["name"]) for each in found} for found in both]
    assert not names[0] & names[1]
    pod = one(both[1], "Job")["spec"]["template"]["spec"]
    (files,) = (each["configMap"]["name"] for each in pod["volumes"] if "configMap" in each)
    wanted = {pod["containers"][0]["envFrom"][0]["configMapRef"]["name"], files}
    assert wanted == {name for kind, name in names[1] if kind == "ConfigMap"}
    pod["containers"][0]["args"][0] = "\n".join(
        line for line in pod["containers"][0]["args"][0].splitlines() if "/launch" not in line
    )
    (said,) = started(tmp_path, pod, JOB_COMPLETION_INDEX="1", LEARNING_RATE="1")
    assert said["words"][-2:] == ["train.py", "1"]


def test_ranks_of_mpi_are_refused_on_several_nodes() -> None:
    with pytest.raises(LaunchError, match="--wrapper slurm"):
        objects(
            LaunchDraft(processes=(process("train", launcher="mpirun", num_nodes=2),)), job_of()
        )


_TEXT = st.text(max_size=12)
_SCALARS = st.none() | st.booleans() | st.integers() | _TEXT
_TREES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3)
)


@pytest.mark.slow
@example({"a": " b\nc\n"})
@example({"a": "\nc\n", "b": "c\n\n", "d": "c \n", "e": ["x\ny\n", {"f": "g\nh\n"}]})
@given(st.dictionaries(_TEXT, _TREES, min_size=1, max_size=3))
def test_every_tree_reads_back(tree: dict[str, Any]) -> None:
    assert list(yaml.safe_load_all(documents([tree]))) == [tree]


KUSTOMIZED = {
    "resources": ["base.yaml"],
    "replicas": [{"name": "served", "count": 2}],
    "images": [{"name": "vllm/vllm-openai", "newTag": "v0.11.0"}],
    "patches": [
        {"patch": "- {op: add, path: /spec/replicas, value: 3}", "target": {"kind": "Job"}}
    ],
    "configMapGenerator": [{"name": "set", "literals": ["A=1"], "envs": ["absent"]}],
}
BASE = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "served"}, "spec": {}}


def odd_values(tree: Any) -> Iterator[Any]:
    """Copies of a document with one value replaced by one of another kind."""
    yield from (None, 7, "x", [7], {"y": 7})
    for key, value in tree.items() if isinstance(tree, dict) else ():
        yield from ({**tree, key: changed} for changed in odd_values(value))
    for index, value in enumerate(tree if isinstance(tree, list) else ()):
        yield from ([*tree[:index], each, *tree[index + 1 :]] for each in odd_values(value))


def test_whatever_a_kustomization_says_is_built_or_refused(tmp_path: Path) -> None:
    built, base = tmp_path / "kustomization.yaml", tmp_path / "base.yaml"
    for file, other, trees in (
        (built, base, odd_values(KUSTOMIZED)),
        (base, built, odd_values(BASE)),
    ):
        other.write_text(json.dumps(BASE if other is base else KUSTOMIZED), encoding="utf-8")
        for tree in trees:
            file.write_text(json.dumps(tree), encoding="utf-8")
            with suppress(LaunchError):
                read_kustomization(built, lambda _, text: iter(()))
