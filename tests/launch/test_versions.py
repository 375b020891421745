"""The version that a file names chooses the profile that is predicted, and is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from planner.launch.read.parsed_launch import ParsedCommand, StatedVersion, version_of
from planner.launch.read.read_launch import read_launch
from planner.launch.write.write_launch import translate_request
from planner.question.request import Request
from planner.specs.catalogue import Catalogue

SERVE = "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 8192\n"
POD = """kind: Pod
metadata: {{name: llama}}
spec:
  containers:
  - name: server
    image: {image}
    resources: {{limits: {{nvidia.com/gpu: "1"}}}}
    args: [--model=meta-llama/Llama-3.1-8B-Instruct, --max-model-len=8192]
  nodeSelector: {{cloud.google.com/gke-accelerator: nvidia-h100-80gb}}
"""


def read(text: str, line: int = 1) -> str | None:
    version = version_of("vllm", ParsedCommand(target="vllm", name="x", text=text, line=line))
    return None if version is None else version.number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("image: vllm/vllm-openai:v0.6.3", "0.6.3"),
        ("image: vllm/vllm-openai:v0.6.3.post1@sha256:ab", "0.6.3"),
        ("image: public.ecr.aws/q9t5s3a7/vllm-ci:0.9.2", "0.9.2"),
        ("image:\n  repository: vllm/vllm-openai\n  tag: 'v0.10.1'", "0.10.1"),
        ("pip install 'vllm[audio]==0.7.2' torch", "0.7.2"),
        ("# tried with vLLM 0.8.5 on two nodes", "0.8.5"),
        ("# vllm version: v0.12.0", "0.12.0"),
        ("image: vllm/vllm-openai:latest", None),
        ("image: nvcr.io/nvidia/ai-dynamo/vllm-runtime:0.4.0", None),
        ("pip install 'vllm>=0.6'", None),
        ("# torch 2.5.1", None),
    ],
)
def test_a_version_is_read(text: str, number: str | None) -> None:
    assert read(text) == number


def test_an_image_counts_before_a_pin_and_that_before_words() -> None:
    assert read("# as of vllm 0.5.0\npip install vllm==0.6.0\nimage: vllm/vllm-openai:v0.9.0") == (
        "0.9.0"
    )
    assert read("# as of vllm 0.5.0\npip install vllm==0.6.0") == "0.6.0"


def test_of_several_the_nearest_counts() -> None:
    text = "pip install vllm==0.6.0\n\n\n\n\npip install vllm==0.9.0\nvllm serve m\n"
    assert (read(text, line=2), read(text, line=7)) == ("0.6.0", "0.9.0")


@pytest.mark.parametrize(
    ("number", "vendor", "profile"),
    [
        ("0.4.3", None, "vllm-v0-paged"),
        ("0.6.3", "NVIDIA", "vllm-v0"),
        ("0.7.3", "NVIDIA", "vllm-0.7"),
        ("0.7.3", "AMD", None),
        ("0.8", "AMD", "vllm-0.8"),
        ("0.16.1", None, "vllm-0.8"),
        ("0.17.0", None, "vllm-0.17"),
        ("0.27.1", None, "vllm"),
    ],
)
def test_a_version_has_the_profile_of_the_last_release_before_it(
    number: str, vendor: str | None, profile: str | None
) -> None:
    assert StatedVersion(tool="vllm", number=number, line=1).profile(Catalogue(), vendor) == profile


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("tag", "profile"), [("v0.6.3", "vllm-v0"), ("v0.9.0", "vllm-0.8"), ("v0.27.1", "vllm")]
)
def test_the_image_of_a_pod_is_told_and_predicted(
    planner: Any, tmp_path: Any, tag: str, profile: str
) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text(POD.format(image=f"vllm/vllm-openai:{tag}"))
    short = " ".join(planner("estimate", "--from", path).out.split())
    assert f"Read as: vLLM {tag[1:]}, engine {profile}," in short
    ran = planner("estimate", "--from", path, "--full")
    told = " ".join(ran.out.split())
    assert ran.exit_code == 0
    assert f"vLLM {tag[1:]}, read as vLLM 0.33.0" in told
    assert f"Version read: {tag[1:]} (line 6): profile {profile}." in told
    assert f"engine {profile}," in told
    assert ("by default before 0.8" in told) == (profile == "vllm-v0")
    assert ("Prefix caching is on" in told) == (profile != "vllm-v0")


@pytest.mark.slow
def test_without_a_version_or_with_that_of_the_target_the_profile_is_the_usual_one(
    planner: Any, tmp_path: Any
) -> None:
    untold = "No run of 0.33 is published; the nearest runs are of 0.21."
    for image in ("vllm/vllm-openai:latest", "vllm/vllm-openai:v0.33.0"):
        path = tmp_path / "pod.yaml"
        path.write_text(POD.format(image=image))
        told = " ".join(planner("estimate", "--from", path, "--full").out.split())
        assert "Version read" not in told
        assert "engine vllm," in told.replace("vLLM,", "vllm,")
        assert "vLLM, read as" in told
        assert (untold in told) == (image[-1] == "0")


def test_a_file_of_another_release_is_written_anew(planner: Any, tmp_path: Any) -> None:
    path = tmp_path / "serve.sh"
    path.write_text(f"pip install vllm==0.11.2\n{SERVE.strip()} --max-num-seqs 8\n")
    words = ("launch", "vllm", "--from", path, "--gpu", "h100", "--output", tmp_path / "new")
    ran = planner(*words)
    assert ran.exit_code == 0
    assert "predicted as for vLLM 0.8" in " ".join(ran.out.split())


def test_what_a_profile_extends_gives_it_no_release() -> None:
    assert Catalogue().load_engine("vllm-v0-xpu").spec.since == ""
    assert Catalogue().load_engine("vllm-v0").spec.since == "vllm 0.5"


def test_a_copy_of_a_profile_is_not_taken_for_it(tmp_path: Any) -> None:
    (tmp_path / "engines").mkdir()
    copy = tmp_path / "engines" / "vllm-mine.toml"
    text = Catalogue().find("engines", "vllm").read_text()
    copy.write_text(text.replace('name = "vLLM"', 'name = "Mine"'))
    catalogue = Catalogue(tmp_path)
    assert "vllm-mine" in catalogue.names("engines")
    assert StatedVersion(tool="vllm", number="0.27", line=1).profile(catalogue) == "vllm"


@pytest.mark.parametrize(
    ("tool", "text", "number"),
    [
        ("sglang", "image: lmsysorg/sglang:v0.4.6.post1-cu124", "0.4.6"),
        ("sglang", "pip install 'sglang[all]==0.5.3'", "0.5.3"),
        ("tensorrt-llm", "nvcr.io/nvidia/tensorrt-llm/release:1.1.0rc2.post2", "1.1.0"),
        ("tensorrt-llm", "pip3 install tensorrt-llm==1.0.0", "1.0.0"),
        ("tensorrt-llm", "nvcr.io/nvidia/tritonserver:25.04-trtllm-python-py3", None),
        ("llama-server", "ghcr.io/ggml-org/llama.cpp:server-cuda-b6123 -m x.gguf", "b6123"),
        ("llama-server", "ghcr.io/ggml-org/llama.cpp:server-cuda", None),
    ],
)
def test_other_engines_name_theirs(tool: str, text: str, number: str | None) -> None:
    version = version_of(tool, ParsedCommand(target=tool, name="x", text=text, line=1))
    assert (None if version is None else version.number) == number


@pytest.mark.parametrize(
    ("tool", "number", "told"),
    [
        ("vllm", "0.6.3", ""),
        ("vllm", "0.27.1", "No run of 0.27 is published; the nearest runs are of 0.21."),
        ("vllm", "0.7.3", "No run of 0.7 is published; the nearest runs are of 0.6."),
        ("sglang", "0.3.2", "No run of 0.3 is published; the nearest runs are of 0.4."),
        ("tensorrt-llm", "1.0.0", ""),
        ("llama-server", "b6123", ""),
    ],
)
def test_a_release_that_nobody_measured_is_told(tool: str, number: str, told: str) -> None:
    assert StatedVersion(tool=tool, number=number, line=1).unmeasured_message == told


def test_the_measured_releases_are_those_of_the_published_runs() -> None:
    from make_measured_versions import ARCHITECTURES, RELEASES, architectures, releases

    assert RELEASES.read_text(encoding="utf-8") == releases()
    assert ARCHITECTURES.read_text(encoding="utf-8") == architectures()


@pytest.mark.parametrize(
    ("image", "command", "told"),
    [
        (
            "lmsysorg/sglang:v0.3.2-cu121",
            "python3 -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B-Instruct",
            "Version read: 0.3.2 (line 1): profile sglang. No run of 0.3 is published",
        ),
        (
            "nvcr.io/nvidia/tensorrt-llm/release:1.0.0",
            "trtllm-serve meta-llama/Llama-3.1-8B-Instruct",
            "Version read: 1.0.0 (line 1): profile tensorrt-llm-1.0.",
        ),
    ],
)
def test_an_answer_says_the_version_of_its_file(planner, tmp_path, image, command, told) -> None:
    file = tmp_path / "run.sh"
    file.write_text(f"docker run --gpus all {image} {command}\n")
    asked = ("--from", file, "--gpu", "h100", "--input-tokens", "1024", "--output-tokens", "128")
    done = planner("estimate", *asked, "--full")
    assert done.exit_code == 0
    assert told in " ".join(done.out.split())


def test_a_request_of_the_target_keeps_its_release_and_others_get_its_engine() -> None:
    request = Request(
        workload="serve", model="llama-3.1-8b", gpu="h100", num_gpus=1, engine="sglang",
        engine_version="0.5.2", settings={"tensor_parallel": 1},
    )  # fmt: skip
    assert translate_request(request, "sglang") is request
    assert translate_request(request, "megatron-lm") is request
    other = translate_request(request, "vllm")
    assert (other.engine, other.engine_version) == ("vLLM", None)
    assert other.settings == request.settings


@pytest.mark.parametrize(
    ("command", "is_told"),
    [
        ("python3 -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B", True),
        ("trtllm-serve meta-llama/Llama-3.1-8B", False),
    ],
)
def test_a_share_in_the_cache_is_asked_where_it_counts(
    tmp_path: Path, command: str, is_told: bool
) -> None:
    script = tmp_path / "run.sh"
    script.write_text(f"{command}\n")
    told = " ".join(read_launch(script).answers.notes)
    assert ("Prefix caching is on" in told) == is_told
