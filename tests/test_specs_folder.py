"""The folder of own specs belongs to a request: others in the same process do not see it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import planner
from planner.base.enums import (
    LinkKind,
)
from planner.errors import SpecError
from planner.question.request import Request
from planner.specs.catalogue import Catalogue, find
from planner.validation.spec_library import Library, replacing
from planner.workloads.make_plan import make_plan

GPU = "a100-sxm-80gb"


def changed(folder: Path, kind: str, name: str, old: str, new: str) -> None:
    """A shipped spec in ``folder``, with a text replaced."""
    text = find(kind, name).read_text(encoding="utf-8")
    assert old in text
    (folder / kind).mkdir(parents=True, exist_ok=True)
    (folder / kind / f"{name}.toml").write_text(text.replace(old, new), encoding="utf-8")


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A folder in which everything that a request can name is another one."""
    changed(tmp_path, "gpus", GPU, "value = 80, ", "value = 40, ")
    changed(tmp_path, "models", "llama-7b", "num_hidden_layers = 32", "num_hidden_layers = 16")
    changed(tmp_path, "spaces", "small", 'description = "', 'description = "My ')
    for kind, name in (("frameworks", "megatron-lm"), ("engines", "vllm")):
        changed(tmp_path, kind, name, "[memory]", "[memory]\n# mine")
    changed(tmp_path, "reliability", "published", "value = 50700, ", "value = 50000, ")
    power = Path(__file__).parents[1] / "hardware_specs" / "power.toml"
    (tmp_path / "power.toml").write_text(f"# mine\n{power.read_text(encoding='utf-8')}")
    (tmp_path / "prices.csv").write_text(f"gpu,price,source\n{GPU},9,me\n")
    return tmp_path


def training(folder: Path | None) -> Request:
    return Request(model="llama-7b", num_gpus=8, space="small", specs=folder)


def serving(folder: Path | None) -> Request:
    return Request(workload="serve", model="llama-7b", num_gpus=8, gpu=GPU, specs=folder)


def test_everything_of_a_training_plan_comes_from_the_folder(mine: Path) -> None:
    own, shipped = make_plan(training(mine)), make_plan(training(None))
    setting = own.problem.inputs
    assert setting.machine.gpu.memory_capacity == 40 * 2**30
    assert setting.model.num_hidden_layers == 16
    assert own.space.description.startswith("My ")
    assert own.problem.sources[0].site.price == pytest.approx(9 / 3600)
    assert own.problem.sources[0].site.reliability.gpu_time("interruption", "typical") == 18e7
    assert all(own.digests[name] != digest for name, digest in shipped.digests.items())
    assert own.digests.keys() == shipped.digests.keys()
    assert setting.machine.catalogue == Catalogue(mine)


def test_everything_of_a_serving_plan_comes_from_the_folder(mine: Path) -> None:
    own, shipped = make_plan(serving(mine)), make_plan(serving(None))
    for source in own.problem.sources:
        assert source.inputs.machine.gpu.memory_capacity == 40 * 2**30
        assert source.inputs.machine.catalogue == Catalogue(mine)
        assert source.site.price == pytest.approx(9 / 3600)
    differ = {name for name, text in shipped.digests.items() if own.digests[name] != text}
    assert differ == {
        *("model LLaMA 7B", f"gpu {GPU}", "engine vLLM"),
        *("price lists", "power published"),
    }


def test_fabrics_and_kernels_come_from_the_folder_of_the_machine(mine: Path) -> None:
    text = find("efficiency", "network").read_text(encoding="utf-8")
    (mine / "efficiency").mkdir()
    own_text = text.replace("base_latency = { value = ", "base_latency = { value = 1")
    (mine / "efficiency" / "network.toml").write_text(own_text, encoding="utf-8")
    gpu = Catalogue().load_gpu(GPU).spec
    (mine / "kernels").mkdir()
    rows = [f"{m},{n},{k},1.0" for m in (1, 2) for n in (1, 2) for k in (1, 2)]
    table = "\n".join(["rows,columns,depth,share", *rows])
    (mine / "kernels" / f"{gpu.efficiency.gemm_table}.csv").write_text(table)
    for use in (Catalogue(mine), Catalogue(), Catalogue(mine)):
        latency = use.collectives(gpu, LinkKind.NETWORK)["all_reduce"].base_latency
        kernels = use.gemm_table(gpu)
        assert kernels is not None
        machine = make_plan(training(use.folder)).problem.inputs.machine
        assert (latency > 1e-4) == (kernels.work.size == 8) == (use.folder == mine)
        assert machine.kernels.gemm_table is not None
        assert machine.kernels.gemm_table.work.size == kernels.work.size


def step_time(folder: Path | None) -> float:
    """Seconds of a step of one configuration."""
    found = planner.estimate(model="llama-7b", num_gpus=8, global_batch_size=8, specs=folder)
    return float(found.estimate.step_time[0])


@pytest.mark.slow
def test_requests_in_threads_do_not_meet(mine: Path) -> None:
    folders = [mine, None] * 4
    alone = {folder: step_time(folder) for folder in (mine, None)}
    assert alone[mine] < 0.6 * alone[None]  # half of the layers
    found: dict[int, list[float]] = {}
    start = threading.Barrier(len(folders))

    def ask(number: int) -> None:
        start.wait()
        found[number] = [step_time(folders[number]) for _ in range(5)]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(folders))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: [alone[folder]] * 5 for number, folder in enumerate(folders)}


def test_a_library_reads_its_catalogue(mine: Path) -> None:
    own = Library(catalogue=Catalogue(mine))
    for library, capacity, layers in ((own, 40, 16), (Library(), 80, 32)):
        gpu, model = library.gpu(GPU), library.model("llama-7b")
        assert gpu is not None
        assert model is not None
        assert (gpu.memory_capacity, model.num_hidden_layers) == (capacity * 2**30, layers)
    profile = mine / "profile.toml"
    profile.write_text(find("engines", "vllm").read_text(encoding="utf-8"), encoding="utf-8")
    assert replacing(profile, Catalogue(mine)).catalogue == Catalogue(mine)


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    for request in (training, serving):
        with pytest.raises(SpecError, match="no such folder"):
            make_plan(request(tmp_path / "nowhere"))


def test_the_folder_may_be_a_text(mine: Path) -> None:
    assert Catalogue(str(mine)) == Catalogue(mine)  # type: ignore[arg-type]
