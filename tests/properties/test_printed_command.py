"""The command that a search prints shows the very same plan, whatever was asked."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from draws import examples
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from planner.__main__ import run
from planner.errors import InfeasibleError, SearchSpaceError, SpecError
from planner.question.request import Request
from planner.show.presenters.search import estimate_command
from planner.specs.catalogue import find
from planner.workloads.make_plan import Plan, make_plan

SOME = settings(
    max_examples=examples(16, 2),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # to shrink one takes minutes
)
Words = tuple[str, ...]


def changed(path: Path, kind: str, name: str, *replaced: tuple[str, str]) -> None:
    """A shipped spec as a file of one's own, with texts replaced."""
    text = find(kind, name).read_text(encoding="utf-8")
    for old, new in replaced:
        assert old in text
        text = text.replace(old, new, 1)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@pytest.fixture(scope="module", autouse=True)
def _own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A working directory with files and a folder of one's own; names differ from the files'."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("own"))
        card = ('name = "h100-sxm-80gb"', 'name = "my card"'), ("3350", "3000")
        changed(Path("my gpu.toml"), "gpus", "h100-sxm-80gb", *card, ("aliases = [", "notes2 = ["))
        text = Path("my gpu.toml").read_text(encoding="utf-8")
        kept = [line for line in text.splitlines() if not line.startswith("notes2")]
        Path("my gpu.toml").write_text("\n".join(kept) + "\n", encoding="utf-8")
        software = (
            ('name = "vLLM"', 'name = "My Engine"'),
            ("request_overhead = { value = ", "request_overhead = { value = 1"),
        )
        changed(Path("engine.toml"), "engines", "vllm", *software)
        changed(
            Path("fw.toml"), "frameworks", "megatron-lm", ('name = "Megatron-LM"', 'name = "X"')
        )
        changed(
            Path("llm.toml"),
            "models",
            "llama-7b",
            ("num_hidden_layers = 32", "num_hidden_layers = 24"),
        )
        slower = ("value = 3350", "value = 3333")
        changed(Path("specs/gpus/h100-sxm-80gb.toml"), "gpus", "h100-sxm-80gb", slower)
        Path("specs/prices.csv").write_text("gpu,price,source\nh100-sxm-80gb,9,me\n")
        Path("our prices.csv").write_text(
            "gpu,price,currency,usd_per_unit,contract,provider\n"
            "h100,2.9,XYZ,1.1,,us\na100,1.1,,,spot,us\n"
        )
        yield


def one_of(name: str, *values: str) -> st.SearchStrategy[Words]:
    """An option with one of these values, or left out."""
    return st.sampled_from([(), *((name, value) for value in values)])


def of(always: Words, *parts: st.SearchStrategy[Words]) -> st.SearchStrategy[Words]:
    """A command of words that are always there and of drawn ones."""
    return st.tuples(*parts).map(lambda found: sum(found, always))


PRICE = of(
    (),
    one_of("--price", "0", "0.1", "2.123456789012345", "h100=1.9,b200=4.25"),
    one_of("--contract", "spot", "owned", "reserved-1y"),
    one_of("--prices", "our prices.csv"),
    one_of("--provider", "lambda"),
)
SPECS = one_of("--specs", "specs")
IDEAL = st.sampled_from([(), (), ("--ideal",)])
MEMORY = one_of("--memory-efficiency", "0.7", "1.1 TB/s")

TRAINING = of(
    ("--space", "small"),
    st.sampled_from([("--model", name) for name in ("llama-7b", "llm.toml", "mixtral-8x7b")]),
    st.sampled_from([("--gpus", "8"), ("--gpus", "16,32")]),
    st.sampled_from(
        [(), ("--gpu", "h100"), ("--cluster", "dgx-h100"), ("--gpu", "my gpu.toml"),
         ("--gpu", "h100", "--cluster", "dgx-h100")]
    ),
    one_of("--framework", "nemo", "fw.toml"),
    SPECS, PRICE, IDEAL, MEMORY,
    st.sampled_from([(), ("--dropout",)]),
    one_of("--tokens", "300B", "123456789012.5"),
    one_of("--sequence-length", "1024"),
    one_of("--global-batch-size", "192"),
    one_of("--flops-efficiency", "0.41", "150 TFLOP/s"),
    one_of("--objective", "cost", "time_to_train,memory_headroom"),
    one_of("--set", "recompute=full", "tensor_parallel=2,4", "offload=optimizer"),
)  # fmt: skip
ADAPTERS = of(
    ("--space", "fine_tune", "--gpus", "4"),
    st.sampled_from([("--model", name) for name in ("llama-2-7b", "qwen3-8b")]),
    st.sampled_from([("--adapter", "lora"), ("--adapter", "qlora", "--lora-rank", "64")]),
    one_of("--lora-targets", "attention"),
    one_of("--gpu", "h100", "rtx4090"),
    SPECS, PRICE,
)  # fmt: skip
ENGINES = one_of("--engine", "sglang", "engine.toml", "engine.toml,vllm", "tgi,sglang")
INFERENCE = (
    st.sampled_from([("--model", name) for name in ("llama-7b", "llm.toml", "gpt-oss-20b")]),
    st.sampled_from(
        [("--gpu", "h100"), ("--gpu", "my gpu.toml"), ("--gpu", "my gpu.toml,h100"),
         ("--cluster", "dgx-h100")]
    ),
    ENGINES, SPECS, PRICE, IDEAL, MEMORY,
    one_of("--input-tokens", "300"),
    one_of("--output-tokens", "40"),
    one_of("--prefix-cache-hit-rate", "0.3"),
    st.sampled_from([(), ("--draft-tokens", "3", "--acceptance-rate", "0.7")]),
    one_of("--lora-rank", "8"),
    one_of("--set", "quantization=fp8", "kv_cache=fp8"),
)  # fmt: skip
STREAMS = of(
    ("--workload", "serve", "--set", "concurrency=1,8,32"),
    *INFERENCE,
    st.sampled_from([("--gpus", "4"), ("--gpus", "2,4"), ("--request-rate", "30")]),
    one_of("--mode", "aggregated", "disaggregated"),
)
POOLS = of(
    ("--workload", "serve", "--mode", "disaggregated", "--set", "concurrency=1,8,32"),
    *INFERENCE,
    st.sampled_from([("--gpus", "4"), ("--request-rate", "30")]),
    one_of("--prefill-gpu", "my gpu.toml", "a100"),
    one_of("--set", "prefill_tensor_parallel=2", "prefill_quantization=w16a16"),
)
BATCHES = of(("--workload", "inference", "--gpus", "4", "--set", "concurrency=1,8,32"), *INFERENCE)


def check(question: Words, capsys: pytest.CaptureFixture[str], data: st.DataObject) -> None:
    """The printed command, and that of any row of the front, give the row again."""
    capsys.readouterr()
    plans: list[Plan] = []

    def noted(request: Request) -> Plan:
        plans.append(make_plan(request))
        return plans[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("planner.commands.search.make_plan", noted)
        code = run(["search", *question, "--full", "--json", "found.json"])
    out = capsys.readouterr().out
    assume(code not in (InfeasibleError.exit_code, SpecError.exit_code, SearchSpaceError.exit_code))
    assert code == 0
    found = json.loads(Path("found.json").read_text(encoding="utf-8"))
    printed = re.search(r"^planner estimate (?:[^\\\n]|\\\n)*", out, re.MULTILINE)
    assert printed is not None
    Path("plan.json").write_text(json.dumps(found["recommended"]), encoding="utf-8")
    folder = [word for word in ("--specs", "specs") if "--specs" in question]
    recommended = found["recommended_row"]
    show(["planner", "estimate", "--plan", "plan.json", *folder], recommended)
    show(shlex.split(printed[0].replace("\\\n", "")), recommended)
    assert shlex.split(found["recommended_command"]) == shlex.split(printed[0].replace("\\\n", ""))
    any_row = data.draw(st.sampled_from(found["rows"]))
    show(shlex.split(estimate_command(plans[0], any_row)), any_row)


OF_A_SEARCH = ("limits_probability", "recommended", "rank", "tied")


def shown(command: list[str]) -> list[dict[str, Any]]:
    assert run([*command[1:], "--json", "again.json", "--quiet"]) == 0, command
    rows: list[dict[str, Any]] = json.loads(Path("again.json").read_text("utf-8"))["rows"]
    return rows


def show(command: list[str], row: dict[str, Any]) -> None:
    """It shows every column of a row but those that only a search knows."""
    (again,) = shown(command)
    plan = {name: value for name, value in row.items() if name not in OF_A_SEARCH}
    assert {name: again[name] for name in plan} == plan, command


@pytest.mark.slow
@SOME
@given(question=TRAINING | ADAPTERS, data=st.data())
def test_of_training(question: Words, data: st.DataObject, capsys: Any) -> None:
    check(question, capsys, data)


@pytest.mark.slow
@SOME
@given(question=STREAMS | POOLS | BATCHES, data=st.data())
def test_of_serving(question: Words, data: st.DataObject, capsys: Any) -> None:
    check(question, capsys, data)
