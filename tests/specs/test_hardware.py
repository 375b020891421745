"""The shipped hardware files: complete, sourced, right, and checked when they are not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from draws import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rows import each

from planner.base.enums import (
    LinkKind,
    Precision,
)
from planner.base.units import GIB
from planner.errors import PlannerError, SpecError
from planner.specs.catalogue import (
    Catalogue,
    default_cluster,
    load_cluster_with_provenance,
    load_gpu,
    load_gpu_with_provenance,
    names,
)
from planner.specs.gpu import GpuSpec, collectives, gemm_key, is_measured, with_defaults
from planner.specs.spec_files import check_spec, provenance, read_toml
from planner.specs.spec_paths import spec_folders

GPUS = names("gpus")
CLUSTERS = names("clusters")
MEASURED = [
    "a100-sxm-80gb", "h100-sxm-80gb", "h200-sxm-141gb", "b200-sxm-180gb", "b300-sxm",
    "gb200-nvl72", "gb300-nvl72", "l40s-48gb", "rtx-pro-6000",
]  # fmt: skip
H100_TEXT = (spec_folders("gpus")[0] / "h100-sxm-80gb.toml").read_text(encoding="utf-8")


def numbers_without_source(table: Any, path: str = "") -> list[str]:
    """Keys of bare numbers, but for counts and years, which have no unit."""
    if isinstance(table, dict):
        if {"value", "unit", "source"} == set(table):
            return []
        keys = [key for key in table if key not in ("year", "num_multiprocessors")]
        return [
            fault for key in keys for fault in numbers_without_source(table[key], f"{path}.{key}")
        ]
    bare = isinstance(table, float) or (isinstance(table, int) and "bandwidth" in path)
    return [path] if bare else []


@pytest.mark.slow
@each("name", GPUS)
def test_gpu_file_loads_and_every_number_has_a_source(name: str) -> None:
    loaded = load_gpu_with_provenance(name)
    table = read_toml(loaded.path)
    assert loaded.spec.name == name
    assert numbers_without_source(table) == []
    assert "year" not in table or "year" in table["sources"]
    assert "num_multiprocessors" not in table or "num_multiprocessors" in table["sources"]
    assert all(text.strip() for text in loaded.provenance.values())
    assert {key.split(".")[1] for key in loaded.provenance if key.startswith("efficiency.")} >= {
        "gemm", "attention", "attention_decode", "grouped_gemm", "memory_bound", "collective",
        "sustained_compute_fraction",
    }  # fmt: skip


@each("name", GPUS)
def test_gpu_file_states_no_source_it_does_not_use(name: str) -> None:
    table = read_toml(spec_folders("gpus")[0] / f"{name}.toml")
    used = set(provenance(table).values()) | {"year", "num_multiprocessors"}
    assert set(table["sources"]) <= used


@each("name", GPUS)
def test_peaks_fall_with_the_width_of_the_format(name: str) -> None:
    peak = load_gpu(name).peak_flops
    assert Precision.BF16 in peak or Precision.FP16 in peak
    widths = [Precision.FP32, Precision.TF32, Precision.BF16, Precision.FP8, Precision.FP4]
    present = [peak[precision] for precision in widths if precision in peak]
    assert present == sorted(present)


@each("name", CLUSTERS)
def test_cluster_file_loads_and_its_gpu_exists(name: str) -> None:
    loaded = load_cluster_with_provenance(name)
    assert loaded.spec.name == name
    assert loaded.spec.gpu in GPUS
    assert numbers_without_source(read_toml(loaded.path)) == []
    assert loaded.spec.max_gpus is None or loaded.spec.max_gpus >= loaded.spec.gpus_per_node


@each(
    ("name", "bf16_tflops", "memory_gb_per_s", "memory_gib", "link_gb_per_s"),
    [
        pytest.param("a100-sxm-80gb", 312, 2039, 80, 300, id="NVIDIA-A100-datasheet"),
        pytest.param("a100-sxm-40gb", 312, 1555, 40, 300, id="NVIDIA-A100-40GB-datasheet"),
        pytest.param("h100-sxm-80gb", 989, 3350, 80, 450, id="NVIDIA-H100-datasheet"),
        pytest.param("h200-sxm-141gb", 989, 4800, 141, 450, id="NVIDIA-H200-datasheet"),
        pytest.param("b200-sxm-180gb", 2250, 8000, 180, 900, id="NVIDIA-DGX-B200-datasheet"),
        pytest.param("mi300x-192gb", 1307, 5300, 192, 448, id="AMD-MI300X-datasheet"),
        pytest.param("rtx4090-24gb", 165.2, 1008, 24, 32, id="NVIDIA-Ada-whitepaper"),
        pytest.param("tpu-v5e", 197, 819, 16, 200, id="Google-TPU-v5e-page"),
        pytest.param("mi250x-gcd-64gb", 191.5, 1638, 64, 200, id="AMD-MI250X-half"),
        pytest.param("inferentia2-32gb", 190, 880, 32, 103, id="AWS-Inferentia2-page"),
        pytest.param("max1550-128gb", 838.9, 3276.8, 128, 212, id="Intel-Max-1550-overview"),
        pytest.param("rtx4000ada-20gb", 81.9, 360, 20, 32, id="NVIDIA-RTX-4000-Ada-datasheet"),
        pytest.param("xeon-8480-2s", 229.4, 614.4, 512, 12.5, id="Intel-AMX-2-sockets"),
        pytest.param("epyc-9654-2s", 29.5, 921.6, 512, 12.5, id="AMD-Zen-4-2-sockets"),
        pytest.param("rtx3060", 25.4, 360, 12, 32, id="NVIDIA-RTX-3060-from-FP32"),
        pytest.param("rtx5080", 112.6, 960, 16, 64, id="NVIDIA-RTX-5080-from-FP32"),
        pytest.param("mi300a", 980.6, 5300, 128, 384, id="AMD-MI300A-data-sheet"),
        pytest.param("7900-xtx", 122.8, 960, 24, 32, id="AMD-RX-7900-XTX-page"),
        pytest.param("b60", 98.3, 456, 24, 32, id="Intel-Arc-Pro-B60-page"),
        pytest.param("strix-halo", 59.4, 256, 128, 1.25, id="AMD-40-units-at-2.9-GHz"),
        pytest.param("910c", 752, 3200, 128, 392, id="Huawei-CloudMatrix384-paper"),
        pytest.param("ironwood", 2307, 7380, 192, 600, id="Google-TPU7x-page"),
        pytest.param("trn3", 671, 4900, 144, 1280, id="AWS-Trainium3-page"),
    ],
)
def test_datasheet_figures(
    name: str, bf16_tflops: float, memory_gb_per_s: float, memory_gib: float, link_gb_per_s: float
) -> None:
    gpu = load_gpu(name)
    assert gpu.peak_flops[Precision.BF16] == pytest.approx(bf16_tflops * 1e12)
    assert gpu.memory_bandwidth == pytest.approx(memory_gb_per_s * 1e9)
    assert gpu.memory_capacity == pytest.approx(memory_gib * GIB)
    assert gpu.scale_up.bandwidth == pytest.approx(link_gb_per_s * 1e9)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("3060", "rtx3060-12gb"), ("RTX-3080", "rtx3080-10gb"), ("4060ti", "rtx4060ti-16gb"),
        ("5070-ti", "rtx5070ti-16gb"), ("l20", "l20-48gb"), ("h20-3e", "h20-141gb"),
        ("mi308x", "mi308x"), ("r9700", "r9700-32gb"), ("p40", "p40-24gb"),
        ("m3-ultra", "apple-m3ultra-80c-512gb"), ("m4-max", "apple-m4max-40c-128gb"),
        ("m5max", "apple-m5max-40c-128gb"), ("m3-max-128gb", "apple-m3max-40c-128gb"),
        ("m3-max", "apple-m3max-40c-64gb"), ("gb10", "gb10-128gb"), ("dgx-spark", "gb10-128gb"),
        ("ryzen-ai-max-395", "strix-halo-128gb"), ("910b", "ascend-910b-64gb"),
        ("v7x", "tpu-v7x"), ("trn3", "trainium3"), ("vr200", "vr200-nvl144"), ("mi455x", "mi455x"),
    ],
)  # fmt: skip
def test_what_people_type_is_found(typed: str, meant: str) -> None:
    assert load_gpu(typed).name == meant


def test_two_dies_of_a_package_add_up() -> None:
    die, package = load_gpu("mi250x-gcd"), load_gpu("mi250x")
    assert 2 * die.memory_capacity == package.memory_capacity
    assert 2 * die.memory_bandwidth == pytest.approx(package.memory_bandwidth, rel=2e-3)
    assert 2 * die.peak_flops[Precision.BF16] == pytest.approx(package.peak_flops[Precision.BF16])


@pytest.mark.parametrize(
    "name", ["m2-ultra", "apple-m1-7c-8gb", "agx-orin", "xeon-8480", "epyc-9654"]
)
def test_machines_of_one_device_reach_others_by_network(name: str) -> None:
    gpu = load_gpu(name)
    cluster = default_cluster(gpu)
    assert (cluster.gpus_per_node, cluster.scale_up.domain_size) == (1, 1)
    latency = collectives(gpu, LinkKind.NETWORK)["all_reduce"].base_latency
    assert latency == pytest.approx(gpu.efficiency.collective["all_reduce"].base_latency)
    assert latency > 10e-6


def test_precisions_a_gpu_lacks_are_absent() -> None:
    assert Precision.FP8 not in load_gpu("a100").peak_flops
    assert Precision.BF16 not in load_gpu("v100").peak_flops
    assert Precision.FP4 not in load_gpu("h100").peak_flops
    # Metal has bfloat from the Apple6 family on, which M1 is beyond; tensor units nobody.
    assert load_gpu("m1-max").peak_flops[Precision.BF16] == load_gpu("m1-max").peak_flops["fp32"]


@pytest.mark.parametrize("name", MEASURED)
def test_measured_gpus_are_told_from_those_on_defaults(name: str) -> None:
    origins = load_gpu_with_provenance(name).provenance
    assert is_measured(origins, "gemm.bf16")
    assert "default (" not in origins["efficiency.gemm.bf16.latency"]


@each("name", sorted(set(GPUS) - set(MEASURED)))
def test_defaults_are_marked_with_their_class(name: str) -> None:
    origins = load_gpu_with_provenance(name).provenance
    assert not is_measured(origins, "gemm.bf16")
    assert not is_measured(origins, "collective")
    assert origins["efficiency.gemm.bf16.latency"].startswith("default (")


def test_a_part_that_does_not_exist_is_not_measured() -> None:
    origins = load_gpu_with_provenance("h100").provenance
    assert is_measured(origins, "quantized_gemm.fp8")
    assert not is_measured(origins, "quantized_gemm.int4_weight_only")
    assert not is_measured(origins, "quantized")


def test_fitted_figures_of_a100_and_h100() -> None:
    a100, h100 = load_gpu("a100").efficiency, load_gpu("h100").efficiency
    assert a100.gemm["bf16"].compute_fraction == pytest.approx(0.779, abs=5e-4)
    assert h100.gemm["bf16"].latency == pytest.approx(3.4e-6, rel=1e-2)
    reduced = a100.collective["all_reduce"]
    assert reduced.bandwidth_fraction * 300 == pytest.approx(252, rel=5e-3)
    assert reduced.ramp_bytes == pytest.approx(5.76e6, rel=5e-3)
    assert h100.sustained_compute_fraction < a100.sustained_compute_fraction


def test_same_silicon_shares_figures_but_not_the_claim_of_measurement() -> None:
    a100, a800 = load_gpu_with_provenance("a100"), load_gpu_with_provenance("a800")
    assert a800.spec.efficiency == a100.spec.efficiency
    source = a800.provenance["efficiency.gemm.bf16.compute_fraction"]
    assert source.startswith("default (a100-sxm-80gb): form G4")


def test_cards_without_measurements_take_the_defaults_of_their_link() -> None:
    card, bridged = load_gpu("l4"), load_gpu("rtx3090")
    assert card.efficiency.collective["all_reduce"].bandwidth_fraction == 0.4
    own = collectives(bridged, LinkKind.PCIE)
    assert own is bridged.efficiency.collective
    assert collectives(bridged, LinkKind.NVLINK)["all_reduce"].bandwidth_fraction == 0.9
    assert collectives(bridged, LinkKind.ICI)["all_gather"].bandwidth_fraction == 0.8


def test_gemm_row_of_a_precision() -> None:
    assert [gemm_key(p) for p in (Precision.FP8, Precision.FP16, Precision.TF32)] == [
        "fp8", "bf16", "bf16",
    ]  # fmt: skip


def read_gpu(text: str, folder: Path) -> GpuSpec:
    path = folder / "gpu.toml"
    path.write_text(text, encoding="utf-8")
    table, _ = with_defaults(read_toml(path), str(path))
    return check_spec(GpuSpec, table, where=str(path))


def test_faults_come_together_with_file_and_key(tmp_path: Path) -> None:
    text = H100_TEXT.replace("memory_bandwidth =", "memory_bandwith =", 1)
    text = text.replace('value = 700, unit = "W"', 'value = 700, unit = "GiB"')
    text = text.replace('value = 80, unit = "GiB"', 'value = -80, unit = "GiB"')
    text = text.replace('unit = "GB/s", source = "link"', 'unit = "GB/s", source = "hearsay"')
    with pytest.raises(SpecError) as caught:
        read_gpu(text, tmp_path)
    lines = str(caught.value).splitlines()
    assert all(line.startswith(f"{tmp_path / 'gpu.toml'}: ") for line in lines)
    for part in (
        "memory_bandwidth is missing",
        "memory_bandwith is not a known key. Did you mean memory_bandwidth",
        "thermal_design_power unit 'GiB' is not a unit of watt",
        "memory_capacity must be greater than 0",
        "scale_up.bandwidth source 'hearsay' is not in the [sources] table",
    ):
        assert sum(part in line for line in lines) == 1, part
    assert len(lines) == 5


def test_own_figure_does_not_inherit_the_source_of_the_default(tmp_path: Path) -> None:
    text = H100_TEXT.replace('{ value = 0.919, unit = "1", source = "elementwise" }', "0.919")
    assert text != H100_TEXT
    with pytest.raises(SpecError, match=r"memory_bound\.bandwidth_fraction must be written"):
        read_gpu(text, tmp_path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('default_efficiency = "hoper"', "'hoper' is unknown. Did you mean hopper"),
        ("default_efficiency = 3", "must be a name or a list of names"),
        ("default_efficiency = [3]", "must be a name or a list of names"),
    ],
)
def test_wrong_defaults(line: str, message: str, tmp_path: Path) -> None:
    text = H100_TEXT.replace('default_efficiency = ["hopper", "nvlink"]', line)
    with pytest.raises(SpecError, match=message.replace("[", r"\[")):
        read_gpu(text, tmp_path)


def test_defaults_that_lead_back_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "hardware_specs" / "gpus"
    folder.mkdir(parents=True)
    (folder / "one.toml").write_text('default_efficiency = "two"', encoding="utf-8")
    (folder / "two.toml").write_text('default_efficiency = "one"', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SpecError, match="leads back to"):
        load_gpu("one")


LINES = H100_TEXT.splitlines()
ODD_VALUES = ["true", '"80"', "-1", "nan", "inf", "1e400", "1" * 400, "2024-01-01", "''"]
ODD = st.sampled_from([*ODD_VALUES, "[]", "{}", "[[1]]", "{ value = [], unit = {}, source = [] }"])


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """The H100 file with up to four lines deleted, cut, replaced or given odd values."""
    lines = list(LINES)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(lines) - 1))
        key, _, value = lines[at].partition(" = ")
        start = draw(st.integers(0, len(lines[at])))
        lines[at] = draw(
            st.one_of(
                st.just(""),
                ODD.map(lambda odd, key=key: f"{key} = {odd}"),
                ODD.map(lambda odd, key=key, value=value: f"{key} = {value}\n{odd} = {odd}"),
                st.just(lines[at][:start]),
                st.text(max_size=3).map(
                    lambda text, line=lines[at], start=start: line[:start] + text + line[start:]
                ),
                st.sampled_from(["[sources]", "[[peak_flops]]", "sources = 3", "efficiency = 1"]),
            )
        )
        part = draw(st.sampled_from([r"value = [\d.]+", r'unit = "[^"]*"', r'source = "[^"]*"']))
        odd = f"{part.split()[0]} = {draw(ODD)}"
        at = draw(st.integers(0, len(lines) - 1))
        lines[at] = re.sub(part, lambda _, odd=odd: odd, lines[at], count=1)
    return "\n".join(lines)


@settings(
    max_examples=examples(150, 25),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(text=damaged())
def test_a_damaged_file_reads_or_is_refused(text: str, tmp_path: Path) -> None:
    try:
        gpu = read_gpu(text, tmp_path)
    except PlannerError as error:
        refusal = str(error)
    else:
        refusal = ""
        assert gpu.memory_capacity > 0
        assert gpu.efficiency.gemm["bf16"].compute_fraction > 0
    assert not refusal or refusal.startswith(str(tmp_path / "gpu.toml"))


@pytest.mark.parametrize(
    "quantity",
    [
        pytest.param('{ value = 80, unit = "GiB", source = [] }', id="source-is-a-list"),
        pytest.param(f'{{ value = {"1" * 400}, unit = "GiB", source = "memory" }}', id="too-large"),
        pytest.param("1" * 5000, id="too-many-digits"),
        pytest.param("[" * 3000, id="too-deep"),
    ],
)
def test_values_no_reader_expects_are_refused(quantity: str, tmp_path: Path) -> None:
    text = H100_TEXT.replace('{ value = 80, unit = "GiB", source = "memory" }', quantity)
    with pytest.raises(SpecError):
        read_gpu(text, tmp_path)


def test_every_gpu_with_tensor_cores_for_bf16_has_tf32_at_half_its_rate() -> None:
    """NVIDIA's papers on Ampere, Ada, Hopper and Blackwell; CDNA 4 has none."""
    catalogue = Catalogue()
    for name in catalogue.names("gpus"):
        gpu = catalogue.load_gpu(name).spec
        peaks = gpu.peak_flops
        if gpu.vendor == "NVIDIA" and Precision.BF16 in peaks:
            assert peaks[Precision.TF32] == pytest.approx(peaks[Precision.BF16] / 2, rel=0.02), name
    assert Precision.TF32 not in load_gpu("mi355x").peak_flops
    assert load_gpu("a40").peak_flops[Precision.TF32] == 74.8e12  # NVIDIA A40 datasheet


@each(
    "text,gpu",
    [
        ("NVIDIA H100 80GB HBM3", "h100-sxm-80gb"),
        ("NVIDIA H100 PCIe", "h100-pcie-80gb"),
        ("NVIDIA H200 NVL", "h200-nvl-141gb"),
        ("H100 94GB", "h100-nvl-94gb"),
        ("NVIDIA A100-SXM4-40GB", "a100-sxm-40gb"),
        ("NVIDIA GH200 144G HBM3e", "gh200-144gb"),
        ("NVIDIA GH200 480GB", "gh200-96gb"),
        ("Tesla T4", "t4-16gb"),
        ("Tesla V100-PCIE-32GB", "v100-pcie-32gb"),
        ("NVIDIA B300 SXM6 AC", "b300-sxm"),
        ("Quadro RTX 8000", "quadro-rtx8000-48gb"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx6000-ada"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000"),
        ("NVIDIA RTX PRO 5000 Blackwell", "rtx-pro-5000-48gb"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "rtx-pro-6000-max-q"),
        ("NVIDIA GeForce RTX 4070", "rtx4070-12gb"),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", "rtx4070tisuper-16gb"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "rtx4090-laptop-16gb"),
        ("NVIDIA Jetson Thor", "jetson-agx-thor-128gb"),
        ("AMD Instinct MI300X", "mi300x-192gb"),
        ("MI250X", "mi250x"),
        ("AMD Radeon RX 7900 XT", "rx7900xt-20gb"),
        ("Apple M4 Pro", "apple-m4pro-20c-64gb"),
        ("p5.48xlarge", "h100-sxm-80gb"),
        ("a3-highgpu-8g", "h100-sxm-80gb"),
        ("ND96isr_H100_v5", "h100-sxm-80gb"),
        ("BM.GPU.H200.8", "h200-sxm-141gb"),
        ("gpu_8x_h100_sxm5", "h100-sxm-80gb"),
        ("8xH100", "h100-sxm-80gb"),
        ("L40S-48C", "l40s-48gb"),
        ("DGX B200", "b200-sxm-180gb"),
        ("gfx942", "mi300x-192gb"),
    ],
)
def test_gpus_by_the_names_of_drivers_clouds_and_people(text: str, gpu: str) -> None:
    assert Catalogue().load_gpu(text).spec.name == gpu


@each("text", ["RTX 4090 48GB", "RTX 4090 Max-Q", "A100-SXM-64GB", "H100 80GB\0", "H9000"])
def test_other_cards_are_no_gpu_that_their_name_begins_with(text: str) -> None:
    with pytest.raises(SpecError, match="Unknown GPU"):
        Catalogue().load_gpu(text)


def test_the_only_link_of_a_machine_is_its_network() -> None:
    """NVIDIA DGX Spark user guide: ConnectX-7, 200 Gbit/s."""
    spark = Catalogue().load_gpu("dgx-spark").spec
    assert default_cluster(spark).scale_out.bandwidth == 25e9
