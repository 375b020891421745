"""Make the virtual environments of the real parsers of launch files, none of which needs a GPU.

    python scripts/make_launch_environments.py [DIRECTORY] [--torch-index URL]

DIRECTORY is that of PLANNER_LAUNCH_ENVIRONMENTS, else ~/.cache/planner/launch. `train` has
Megatron-LM, torchtitan, DeepSpeed, transformers, TRL, accelerate and peft, `serve` vLLM and SGLang,
`schemas` has MaxText, Axolotl, verl, OpenRLHF, NeMo-RL and Dynamo without torch. It takes minutes
and 5 GB, wants Python 3.11, git, a Rust compiler for vLLM, and goes on where it stopped: a step
that was done is not done again. Name an index of CPU builds of torch with --torch-index where pip
would find one with CUDA, of several GB. TensorRT-LLM is in no environment: PLANNER_TENSORRT_LLM
names a checkout, whose command and settings are read in `schemas`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import venv
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from launch_parsers import folder

TORCH = "torch==2.13.0"
VERSIONS = {
    "megatron-core": "0.19.2",
    "torchtitan": "0.3.0",
    "deepspeed": "0.19.8",
    "transformers": "5.23.0",
    "accelerate": "1.15.0",
    "peft": "0.21.2",
    "trl": "1.16.0",
    "torchao": "0.18.0",
    "axolotl": "0.21.0",
    "maxtext": "0.2.5",
    "verl": "0.9.0",
    "openrlhf": "0.11.0",
    "nemo-rl": "0.7.0",
    "ai-dynamo": "1.6.1",
    "vllm": "0.33.0",
    "sglang": "0.5.23",
}
# For packages that say they need a newer Python than they do.
FOR_312 = ("--no-deps", "--ignore-requires-python", "--python-version=3.12")
FOR_312 += ("--only-binary=:all:",)
LISTS = Path(__file__).parent / "launch_parsers"  # of what vLLM and SGLang import


@dataclass(frozen=True, kw_only=True)
class Step:
    """One call of `pip install`, with the variables that it needs; or the checkout of a tag."""

    arguments: Sequence[str]
    variables: dict[str, str] = field(default_factory=dict)
    target: str = ""  # "site": into site-packages; another name: a folder of the environment
    repository: str = ""  # of the checkout; `arguments` are its tag

    def key(self) -> str:
        lists = [
            Path(x.partition("=")[2]) for x in self.arguments if x.startswith("--requirement=")
        ]
        said = [path.read_text(encoding="utf-8") for path in lists]
        given = [x for x in self.arguments if not x.startswith("--requirement=")]
        text = json.dumps([given, said, self.variables, self.target])
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def pinned(*names: str) -> list[str]:
    return [f"{name}=={VERSIONS[name]}" for name in names]


STEPS = {
    "train": [
        Step(arguments=(TORCH, "numpy", "packaging", "einops", "setuptools", "wheel")),
        Step(arguments=(TORCH, *pinned("transformers", "accelerate", "peft"))),
        Step(arguments=(TORCH, *pinned("torchtitan"))),
        Step(arguments=("--no-deps", *pinned("trl", "torchao"))),
        Step(
            arguments=(TORCH, "--no-build-isolation", *pinned("deepspeed")),
            variables={"DS_BUILD_OPS": "0", "DS_ACCELERATOR": "cpu"},
        ),
        Step(arguments=(*FOR_312, *pinned("megatron-core")), target="site"),
        Step(arguments=(*FOR_312, *pinned("axolotl")), target="axolotl"),
    ],
    "serve": [
        Step(arguments=(TORCH, "setuptools<81", "setuptools_scm", "setuptools-rust", "cmake")),
        Step(arguments=("ninja", "wheel", "packaging", "jinja2")),
        Step(
            arguments=("--no-deps", "--no-build-isolation", "--no-binary=vllm", *pinned("vllm")),
            variables={
                "VLLM_TARGET_DEVICE": "empty",
                "VLLM_VERSION_OVERRIDE": VERSIONS["vllm"],
            },
        ),
        Step(arguments=("--no-deps", *pinned("sglang"))),
        Step(arguments=(TORCH, f"--requirement={LISTS / 'serving.txt'}")),
        Step(arguments=("--no-deps", f"--requirement={LISTS / 'serving_alone.txt'}")),
    ],
    "schemas": [
        Step(arguments=("hydra-core==1.3.2", "pydantic>=2.11", "jax==0.7.2", "flax", "jinja2")),
        Step(arguments=("addict", "annotated-types", "packaging", "pillow", "pyyaml")),
        Step(arguments=(*FOR_312, *pinned("maxtext", "axolotl", "verl")), target="site"),
        Step(arguments=(*FOR_312, *pinned("openrlhf")), target="openrlhf"),
        Step(arguments=(*FOR_312, *pinned("ai-dynamo")), target="site"),
        Step(arguments=("msgspec", "omegaconf", "click")),
        Step(
            arguments=(f"v{VERSIONS['nemo-rl']}",),
            repository="https://github.com/NVIDIA-NeMo/RL",
            target="nemo_rl",
        ),
    ],
}


def site_packages(environment: Path) -> Path:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return environment / "lib" / version / "site-packages"


def run(environment: Path, step: Step, index: str | None) -> str:
    """Do a step; nothing, or the last lines of what pip said where it failed."""
    command = [str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    command += [*step.arguments]
    if step.target:
        site = site_packages(environment)
        command += ["--target", str(site if step.target == "site" else environment / step.target)]
    if step.repository:
        command = ["git", "clone", "--quiet", "--depth=1", f"--branch={step.arguments[0]}"]
        command += [step.repository, str(environment / step.target)]
    if index and TORCH in step.arguments:
        command += ["--extra-index-url", index]
    done = subprocess.run(
        command, env={**os.environ, **step.variables}, capture_output=True, text=True
    )
    return "\n".join(done.stderr.splitlines()[-20:]) if done.returncode else ""


def make(environment: Path, steps: Sequence[Step], index: str | None) -> str:
    """Make one environment, from where it stopped; why it failed, or nothing."""
    if not (environment / "bin" / "python").exists():
        venv.create(environment, with_pip=True)
    marks = environment / "steps"
    marks.mkdir(exist_ok=True)
    for number, step in enumerate(steps, 1):
        words = " ".join(Path(x).name for x in step.arguments if not x.startswith("--no-"))
        if (marks / step.key()).exists():
            continue
        print(f"{environment.name} {number} of {len(steps)}: {words[:80]}", flush=True)
        fault = run(environment, step, index)
        if fault:
            return f"{environment.name}, step {number} ({words}) failed:\n{fault}"
        (marks / step.key()).touch()
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", nargs="?", type=Path, default=folder())
    parser.add_argument("--torch-index", help="index of torch's CPU builds")
    given = parser.parse_args()
    if sys.version_info[:2] != (3, 11):
        sys.exit("The pinned packages want Python 3.11: run this script by it.")
    given.directory.mkdir(parents=True, exist_ok=True)
    made = {name: make(given.directory / name, x, given.torch_index) for name, x in STEPS.items()}
    faults = [fault for fault in made.values() if fault]
    if faults:
        sys.exit("\n\n".join(faults) + "\n\nRun this again to go on from there.")
    print(f"{', '.join(STEPS)} are ready in {given.directory}")


if __name__ == "__main__":
    main()
