"""Files of 41 plans through the real parsers: what they derive is what the plan says.

The written scripts are run by bash with programs that only record how they were started.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from real import derive, missing
from real.plans import CONFIGS, HF, MEGATRON, SERVING, TITAN, Plan
from real.written import NUMBERS, Started, commands
from worked.asked import job as job_of
from worked.plans import PLANS

from planner.launch.model_shape import config_json
from planner.launch.option_table import shipped_rows
from planner.launch.target import LaunchDraft, LaunchJob, Process, ShellVariable
from planner.launch.targets import target_of
from planner.launch.write.write_launch import make_launch
from planner.layers.model import count_parameters
from planner.question.request import Request

pytestmark = pytest.mark.launch

Written = tuple[LaunchJob, list[Started], Path]


def written(
    target: str, plans: dict[str, Plan], folder: Path, *, measuring: bool = False
) -> dict[str, Written]:
    """What the scripts of a target start for each plan, with its job and its folder."""
    profile = target_of(target).profiles[0]
    found = {}
    for name, plan in plans.items():
        kind = "framework" if plan["workload"] == "train" else "engine"
        launch = make_launch(Request(**{kind: profile, **plan}), target, "script")
        place = folder / name.replace(" ", "-")
        started = list(commands(launch, place, sys.executable, measuring=measuring))
        found[name] = (launch.job, started, place)
    return found


total_parameters = cache(lambda model: count_parameters(model).total)


def answered(parser: str, cases: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Answers by name; every one must be accepted."""
    if why := missing(parser):
        pytest.skip(why)
    found = dict(zip(cases, derive(parser, list(cases.values())), strict=True))
    refused = {name: answer["error"] for name, answer in found.items() if "error" in answer}
    assert not refused
    return found


def differences(found: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    """What a parser derives otherwise than the plan has it: (the parser's, the plan's)."""
    return {name: (found[name], x) for name, x in expected.items() if found[name] != x}


def test_megatron(tmp_path: Path) -> None:
    launches = written("megatron-lm", MEGATRON, tmp_path)
    cases = {
        name: {
            "argv": started.arguments,
            "world": started.world if started.words[0] == "torchrun" else 1,
            "environment": started.environment,
            "parameters": not is_hybrid(job),  # its kernels need a GPU
        }
        for name, (job, (started,), _) in launches.items()
    }
    wrong = {}
    for name, answer in answered("megatron", cases).items():
        job = launches[name][0]
        wrong |= {f"{name}: {k}": v for k, v in megatron_differences(answer, job).items()}
        assert cases[name]["world"] == job["num_gpus"]
    assert not wrong


def is_hybrid(job: LaunchJob) -> bool:
    return any(attention.has_state for attention in job.model.attentions)


def megatron_differences(answer: dict[str, Any], job: LaunchJob) -> dict[str, Any]:
    """Sizes that follow from the layout, layers of every stage, and parameters."""
    tp, pp, ep = job["tensor_parallel"], job["pipeline_parallel"], job["expert_parallel"]
    data = job["num_gpus"] // (tp * pp * job["context_parallel"])
    full = {"full": "full", "none": None}
    expected = {
        "data_parallel_size": data,
        "data_parallel_group": data,
        "num_microbatches": job["global_batch_size"] // (job["micro_batch_size"] * data),
        "global_batch_size": job["global_batch_size"],
        "micro_batch_size": job["micro_batch_size"],
        "seq_length": job["sequence_length"],
        "sequence_parallel": job["sequence_parallel"],
        "recompute_granularity": full.get(job["recompute"], "selective"),
        "use_distributed_optimizer": job["zero_stage"] > 0,
        "hidden_dropout": 0.0,
        "fp16": job["precision"] == "fp16",
        "fp8": "e4m3" if job["precision"] == "fp8" else None,
    }
    if answer["fp8"]:
        expected["fp8"] = answer["fp8"] if job["precision"] == "fp8" else None
    if ep > 1:
        etp = 1 if job["num_gpus"] % (ep * tp * pp) else answer["expert_tensor_parallel_size"]
        expected["expert_data_parallel_size"] = job["num_gpus"] // (ep * etp * pp)
    wrong = differences(answer, expected)
    if is_hybrid(job):
        return wrong
    stages = answer["layers"]
    # Modules of multi-token prediction are counted apart.
    num_layers = job.model.num_hidden_layers - (job["mtp_num_layers"] or 0)
    if sum(map(sum, stages)) != num_layers:
        wrong["layers"] = (stages, num_layers)
    if {len(stage) for stage in stages} != {job["virtual_pipeline"]} or len(stages) != pp:
        wrong["stages"] = (stages, (pp, job["virtual_pipeline"]))
    if answer["parameters"] != pytest.approx(total_parameters(job.model), rel=1e-4):
        wrong["parameters"] = (answer["parameters"], total_parameters(job.model))
    return wrong


def titan_cases(launches: dict[str, Written]) -> dict[str, dict[str, Any]]:
    """Words of torchtitan's own parser, with the function that they name."""
    cases = {}
    for name, (_, (started,), folder) in launches.items():
        words = started.words
        own = folder / "planned_config.py"
        cases[name] = {
            "argv": words[words.index("torchtitan.train") + 1 :],
            "world": started.world,
            "environment": started.environment,
            "file": str(own) if own.exists() else "",
            "parameters": True,
        }
    return cases


def test_torchtitan(tmp_path: Path) -> None:
    launches = written("torchtitan", TITAN, tmp_path)
    cases = titan_cases(launches)
    wrong = {}
    for name, answer in answered("torchtitan", cases).items():
        job = launches[name][0]
        assert cases[name]["world"] == job["num_gpus"]
        wrong |= {f"{name}: {k}": v for k, v in torchtitan_differences(answer, job).items()}
    assert not wrong


def torchtitan_differences(answer: dict[str, Any], job: LaunchJob) -> dict[str, Any]:
    """Sizes that follow from the layout, layers of every stage, and parameters."""
    tp, pp = job["tensor_parallel"], job["pipeline_parallel"]
    data = job["num_gpus"] // (tp * pp * job["context_parallel"])
    each = {"none": "", "full": "FullAC.Config", "selective": "SelectiveAC.Config"}
    expected = {
        "tensor_parallel": tp,
        "pipeline_parallel": pp,
        "expert_parallel": job["expert_parallel"],
        "data_parallel": data,
        "sequence_length": job["sequence_length"],
        "global_batch_size": job["global_batch_size"],
        "micro_batch_size": job["micro_batch_size"],
        "num_microbatches": job["global_batch_size"] // (job["micro_batch_size"] * data),
        "interleaved": job["virtual_pipeline"] > 1,
    }
    wrong = differences(answer, expected)
    if each[job["recompute"]] not in answer["activation_checkpoint"]:
        wrong["recompute"] = (answer["activation_checkpoint"], job["recompute"])
    stages, modules = answer["layers"], job["mtp_num_layers"] or 0
    if sum(map(sum, stages)) != job.model.num_hidden_layers - modules:
        wrong["layers"] = (stages, job.model.num_hidden_layers)
    if {len(stage) for stage in stages} != {job["virtual_pipeline"]} or len(stages) != pp:
        wrong["stages"] = (stages, (pp, job["virtual_pipeline"]))
    if answer["parameters"] != pytest.approx(total_parameters(job.model), rel=1e-4):
        wrong["parameters"] = (answer["parameters"], total_parameters(job.model))
    return wrong


TRAINER_WORDS = ("--deepspeed",)


def trainer_case(started: Started, folder: Path) -> dict[str, Any]:
    """Words of TRL's script without the DeepSpeed file, which has a parser of its own."""
    words = started.words
    words = words[words.index("trl.scripts.sft") + 1 :]
    for option in TRAINER_WORDS:
        if option in words:
            place = words.index(option)
            words = words[:place] + words[place + 2 :]
    return {"argv": words, "folder": str(folder), "environment": started.environment}


def trainer_differences(answer: dict[str, Any], job: LaunchJob) -> dict[str, Any]:
    """Batches, length and adapter of the words that the script takes."""
    gpus = job["num_gpus"]
    expected = {
        "per_device_train_batch_size": job["micro_batch_size"],
        "gradient_accumulation_steps": job["global_batch_size"] // (job["micro_batch_size"] * gpus),
        "max_length": job["sequence_length"],
        "bf16": job["precision"] == "bf16",
        "packing": True,
        "load_in_4bit": job["adapter"] == "qlora",
    }
    if job["adapter"] != "none":
        found = answer["lora"] or {}
        answer = {**answer, "lora_rank": found.get("r")}
        expected["lora_rank"] = job["lora_rank"]
    elif answer["lora"]:
        return {"lora": (answer["lora"], None)}
    return differences(answer, expected)


@pytest.mark.parametrize("target", ["deepspeed", "accelerate", "transformers"])
def test_words_of_the_trainer(target: str, tmp_path: Path) -> None:
    plans = {k: v for k, v in HF.items() if target != "accelerate" or k != "offload"}
    launches = written(target, plans, tmp_path)
    cases = {n: trainer_case(started, at) for n, (_, (started,), at) in launches.items()}
    wrong = {}
    for name, answer in answered("trl", cases).items():
        found = trainer_differences(answer, launches[name][0])
        wrong |= {f"{name}: {key}": value for key, value in found.items()}
    assert not wrong


def test_benchmarks_of_the_trainer(tmp_path: Path) -> None:
    launches = written("transformers", HF, tmp_path, measuring=True)
    cases = {n: trainer_case(started, at) for n, (_, (started,), at) in launches.items()}
    wrong = {}
    for name, answer in answered("trl", cases).items():
        found = trainer_differences(answer, launches[name][0])
        wrong |= {f"{name}: {key}": value for key, value in found.items()}
    assert not wrong


def test_benchmarks_of_torchtitan(tmp_path: Path) -> None:
    launches = written("torchtitan", TITAN, tmp_path, measuring=True)
    cases = titan_cases(launches)
    wrong = {}
    for name, answer in answered("torchtitan", cases).items():
        found = torchtitan_differences(answer, launches[name][0])
        wrong |= {f"{name}: {key}": value for key, value in found.items()}
    assert not wrong


def test_deepspeed_configurations(tmp_path: Path) -> None:
    launches = written("deepspeed", HF, tmp_path)
    cases = {
        name: {
            "config": json.loads((folder / "ds_config.json").read_text()),
            "world": job["num_gpus"],
        }
        for name, (job, _, folder) in launches.items()
    }
    wrong = {}
    for name, answer in answered("deepspeed", cases).items():
        job = launches[name][0]
        offload = {"none": (None, None), "optimizer": ("cpu", None)}[job["offload"]]
        expected = {
            "data_parallel": job["num_gpus"],
            "train_batch_size": job["global_batch_size"],
            "micro_batch_size": job["micro_batch_size"],
            "zero_stage": job["zero_stage"],
            "offload_optimizer": offload[0],
            "offload_param": offload[1],
            "bf16": job["precision"] == "bf16",
            "unread": [],
        }
        found = differences(answer, expected)
        wrong |= {f"{name}: {key}": value for key, value in found.items()}
    assert not wrong


def test_accelerate_configurations(tmp_path: Path) -> None:
    plans = {name: plan for name, plan in HF.items() if name != "offload"}
    launches = written("accelerate", plans, tmp_path)
    cases = {}
    for name, (_, (started,), folder) in launches.items():
        words = started.words[2 : started.words.index("-m")]
        place = words.index("--config_file")
        cases[name] = {
            "yaml": (folder / words[place + 1]).read_text(),
            "argv": words[:place] + words[place + 2 :],
        }
    wrong = {}
    for name, answer in answered("accelerate", cases).items():
        job = launches[name][0]
        expected = {"num_processes": job["num_gpus"], "mixed_precision": job["precision"]}
        found = differences(answer, expected)
        if job["num_gpus"] > 1 and job["zero_stage"] > 1:
            sharded = answer["fsdp"]["reshard_after_forward"] == "True"
            found |= {} if sharded == (job["zero_stage"] == 3) else {"reshard": (sharded,)}
            size = answer["parallelism"]["total_size"]
            found |= {} if size == job["num_gpus"] else {"size": (size, job["num_gpus"])}
        wrong |= {f"{name}: {key}": value for key, value in found.items()}
    assert not wrong


def served(
    launches: dict[str, Written], marker: list[str]
) -> dict[str, tuple[LaunchJob, list[str]]]:
    """Commands of servers by plan and pool, their model a folder with its config.json."""
    found = {}
    for name, (job, every, folder) in launches.items():
        model = folder / "model"
        model.mkdir()
        (model / "config.json").write_text(
            json.dumps(CONFIGS.get(job["model"]) or config_json(job.model))
        )
        for started in every:
            words = started.words
            if words[: len(marker)] != marker:
                continue
            words = words[len(marker) :]
            place = words.index("--model-path") + 1 if "--model-path" in words else 0
            words[place] = str(model)
            found[f"{name}{pool_of(words)}"] = (job, words)
    return found


def pool_of(words: list[str]) -> str:
    """Which pool a command is of, by what only its own has."""
    text = " ".join(words)
    if "kv_producer" in text or "--disaggregation-mode prefill" in text:
        return ", prefill"
    return ", decode" if "--disaggregation-mode decode" in text else ""


def pool_values(job: LaunchJob, name: str) -> dict[str, Any]:
    """Parameters of the pool that a command is of."""
    names = ("tensor_parallel", "pipeline_parallel", "attention_data_parallel", "expert_parallel")
    names += ("max_num_batched_tokens",)
    prefix = "prefill_" if name.endswith("prefill") else ""
    return {key: job[prefix + key] for key in names}


def takes_all(job: LaunchJob, name: str, gpus: int, requests: int) -> bool:
    """Whether the servers together take the plan's requests; those of prefill pools need not."""
    copies = 1 if job["mode"] == "disaggregated" else job["num_gpus"] // gpus
    return name.endswith("prefill") or requests * copies >= job["concurrency"]


def test_vllm(tmp_path: Path) -> None:
    launches = written("vllm", SERVING, tmp_path)
    commands_of = served(launches, ["vllm", "serve"])
    h200 = {"memory_gib": 141}
    cases = {
        name: {"argv": words, **(h200 if job.gpu.name.startswith("h200") else {})}
        for name, (job, words) in commands_of.items()
    }
    wrong = {}
    for name, answer in answered("vllm", cases).items():
        job, _ = commands_of[name]
        plan = pool_values(job, name)
        expected = {
            "tensor_parallel": plan["tensor_parallel"],
            "pipeline_parallel": plan["pipeline_parallel"],
            "data_parallel": plan["attention_data_parallel"],
            "world": plan["tensor_parallel"]
            * plan["pipeline_parallel"]
            * plan["attention_data_parallel"],
            "max_num_batched_tokens": plan["max_num_batched_tokens"],
            "expert_parallel": plan["expert_parallel"] > 1,
            "prefix_caching": False,
        }
        found = differences(answer, expected)
        if not takes_all(
            job, name, answer["world"], answer["max_num_seqs"] * expected["data_parallel"]
        ):
            found["max_num_seqs"] = (answer["max_num_seqs"], job["concurrency"])
        wrong |= {f"{name}: {key}": value for key, value in found.items()}
    assert not wrong


def test_sglang(tmp_path: Path) -> None:
    launches = written("sglang", SERVING, tmp_path)
    commands_of = served(launches, ["python3", "-m", "sglang.launch_server"])
    cases = {
        name: {"argv": words, "memory_gib": 141 if job.gpu.name.startswith("h200") else 80}
        for name, (job, words) in commands_of.items()
    }
    wrong = {}
    for name, answer in answered("sglang", cases).items():
        job, _ = commands_of[name]
        plan = pool_values(job, name)
        data = plan["attention_data_parallel"]
        expected = {
            "tensor_parallel": plan["tensor_parallel"] * data,
            "pipeline_parallel": plan["pipeline_parallel"],
            "attention_data_parallel": data,
            "expert_parallel": plan["expert_parallel"],
        }
        if not name.endswith("decode"):
            expected["chunked_prefill_size"] = plan["max_num_batched_tokens"]
        found = differences(answer, expected)
        gpus = answer["tensor_parallel"] * answer["pipeline_parallel"]
        if not takes_all(job, name, gpus, answer["max_running_requests"]):
            found["max_running_requests"] = (answer["max_running_requests"], job["concurrency"])
        wrong |= {f"{name}: {key}": value for key, value in found.items()}
    assert not wrong


# Programs whose words are asked as they are drafted, of the plans of the worked tables.


def words(process: Process) -> list[str]:
    """Words of a process, with a value for each variable of the user."""
    every = [word for argument in process.arguments for word in argument.words]
    return [
        f"{word.prefix}{NUMBERS.get(word.name, f'/of/{word.name}')}{word.suffix}"
        if isinstance(word, ShellVariable)
        else word
        for word in every
    ]


def drafts(target: str) -> Iterator[tuple[str, LaunchJob, LaunchDraft, Process]]:
    """Processes of a target's worked plans, with the benchmarks."""
    for name, plan in PLANS[target].items():
        job = job_of(plan)
        draft = target_of(target).make_draft(job)
        for process in (*draft.processes, *draft.benchmark):
            yield f"{name}, {process.name}", job, draft, process


def behind(process: Process, end: str) -> list[str]:
    """Words of a process from the first that ends so."""
    every = words(process)
    return every[next(number for number, word in enumerate(every) if word.endswith(end)) :]


def asked_otherwise(
    parser: str, cases: dict[str, Any], jobs: dict[str, LaunchJob], *names: str
) -> dict[str, Any]:
    """What a parser derives otherwise than the plans have it, of these names and what it lacks."""
    wrong = {}
    for case, answer in answered(parser, cases).items():
        expected = {name: jobs[case][name] for name in names}
        expected |= {name: [] for name in ("unknown", "warnings") if name in answer}
        wrong |= {f"{case}: {k}": v for k, v in differences(answer, expected).items()}
    return wrong


def test_maxtext() -> None:
    cases, jobs = {}, {}
    for name, job, _, process in drafts("maxtext"):
        cases[name] = {
            "argv": behind(process, ".yml"),
            "nodes": process.num_nodes,
            "gpus_per_node": process.gpus_per_node,
        }
        jobs[name] = job
    wrong = asked_otherwise("maxtext", cases, jobs, "global_batch_size", "sequence_length")
    adapted = {name for name, job in jobs.items() if job["adapter"] not in (None, "none")}
    answers = answered("maxtext", cases)
    assert {name for name, answer in answers.items() if answer["adapter"]} == adapted
    assert not wrong


def test_axolotl(tmp_path: Path) -> None:
    cases, jobs = {}, {}
    for number, (name, job, draft, process) in enumerate(drafts("axolotl")):
        folder = tmp_path / str(number)
        folder.mkdir()
        for file in draft.files:
            (folder / file.name).write_text(file.text)
        given = behind(process, ".yaml")[1:]
        options = {
            key.lstrip("-").replace("-", "_"): yaml.safe_load(value) if value != "no" else value
            for key, value in zip(given[::2], given[1::2], strict=True)
        }
        values = yaml.safe_load((folder / "axolotl.yaml").read_text()) | options
        cases[name] = {
            "values": values,
            "folder": str(folder),
            "gpus": job.num_gpus,
            "nodes": job.num_nodes,
        }
        jobs[name] = job
    assert not asked_otherwise(
        "axolotl_schema", cases, jobs, "micro_batch_size", "gradient_accumulation_steps",
        "sequence_length",
    )  # fmt: skip


@pytest.mark.parametrize("target", ["verl", "openrlhf"])
def test_steps_of_reinforcement_learning(target: str) -> None:
    cases, jobs = {}, {}
    for name, job, _, process in drafts(target):
        every = words(process)
        given = every[every.index("-m") + 1 :]
        cases[name] = {"argv": given if target == "verl" else given[1:]}
        jobs[name] = job
    names = ("global_batch_size", "samples_per_prompt", "rollout_tensor_parallel")
    assert not asked_otherwise(target, cases, jobs, *names)


def test_nemo_rl(tmp_path: Path) -> None:
    cases, jobs = {}, {}
    for number, (name, job, draft, _) in enumerate(drafts("nemo-rl")):
        (file,) = draft.files
        path = tmp_path / f"{number}.yaml"
        path.write_text(file.text)
        cases[name] = {"config": str(path)}
        jobs[name] = job
    names = ("global_batch_size", "samples_per_prompt", "prompts_per_step")
    assert not asked_otherwise("nemo_rl", cases, jobs, *names, "rollout_tensor_parallel")


def test_workers_of_dynamo() -> None:
    """Options that are left over are those of the engine, by the list of its own parser."""
    cases = {}
    for plan in PLANS["dynamo"]:
        (graph,) = target_of("dynamo").make_draft(job_of(PLANS["dynamo"][plan])).files
        for component in yaml.safe_load(graph.text)["spec"]["components"]:
            (container,) = component["podTemplate"]["spec"]["containers"]
            if "args" in container:
                argv = [container["command"][-1], *container["args"]]
                cases[f"{plan}, {component['name']}"] = {"argv": argv}
    stems = {"trtllm": (), "vllm": ("vllm-0.33.0",), "sglang": ("sglang-0.5.23",)}
    for name, answer in answered("dynamo", cases).items():
        engine = cases[name]["argv"][0].rpartition(".")[2]
        rows = [row for stem in stems[engine] for row in shipped_rows(f"accepted/{stem}.tsv", "\t")]
        aliases = {alias for row in rows for alias in (row["aliases"] or "").split("|")}
        assert {*answer["left"]} <= {row["name"] for row in rows} | aliases, name


def test_tensorrt_llm(tmp_path: Path) -> None:
    """click reads the words of `trtllm-serve`, the classes of `LlmArgs` its YAML."""
    cases, jobs = {}, {}
    for name, (job, every, folder) in written("tensorrt-llm", SERVING, tmp_path).items():
        for number, started in enumerate(every):
            program, *words = started.words
            assert program == "trtllm-serve"
            file = folder / started.after("--config")
            words[words.index("--config") + 1] = str(file)
            cases[f"{name} {number}"] = {"argv": words, "yaml": file.read_text()}
            jobs[f"{name} {number}"] = job
    wrong = {}
    for name, answer in answered("trtllm", cases).items():
        job = jobs[name]
        expected = {
            "tensor_parallel": job["tensor_parallel"] * job["attention_data_parallel"],
            "pipeline_parallel": job["pipeline_parallel"],
            "attention_dp": job["attention_data_parallel"] > 1,
            "kv_cache": "fp8" if job["kv_cache"] == "fp8" else "auto",
            "reuses_blocks": False,
        }
        found = differences(answer, expected)
        wrong |= {f"{name}: {key}": value for key, value in found.items()}
    assert not wrong
