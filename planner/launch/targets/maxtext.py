"""MaxText: ``maxtext.trainers.pre_train.train`` with a configuration and overrides of its keys."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from math import gcd, prod

from planner.base.software_enums import (
    LAYER_INPUT,
    TENSORS,
)
from planner.errors import LaunchError
from planner.launch.model_shape import find_model_of_name, shape_of
from planner.launch.option_table import (
    MutableQuantities,
    OptionTexts,
    Quantities,
    shipped_rows,
)
from planner.launch.read.expression_rows import apply_read_rows
from planner.launch.read.parsed_launch import LaunchSettings, OptionReader, parse_int, total_gpus
from planner.launch.target import (
    MASTER_ADDR,
    NODE_RANK,
    NUM_NODES,
    CommandWords,
    LaunchDraft,
    LaunchJob,
    LaunchTarget,
    ShellVariable,
    option_texts,
    overrides,
    user_arguments,
)
from planner.launch.write.benchmark import training_draft
from planner.specs.model import ModelSpec

AXES = ("tensor", "tensor_sequence", "context", "expert", "fsdp", "data", "pipeline")
"""Mesh axes, those with the most communication first: they are placed within a node."""
_REST_OF_GPUS = -1


def mesh_axes(job: LaunchJob) -> dict[str, int]:
    """Return the GPUs of each axis of MaxText's mesh, within a node and across nodes.

    Raises LaunchError if experts do not divide the data-parallel GPUs, copies do not divide the
    shards, or the axes do not fill whole nodes.
    """
    expert_parallel, data_parallel = int(job["expert_parallel"]), int(job["data_parallel"])
    if data_parallel % expert_parallel:
        raise LaunchError(
            "MaxText splits experts over data-parallel GPUs: "
            f"expert_parallel {expert_parallel} does not divide data_parallel "
            f"{data_parallel}. Plan another expert_parallel."
        )
    shards, zero_stage = data_parallel // expert_parallel, int(job["zero_stage"])
    copies = (
        int(job["data_parallel_replicas"] or 1) if zero_stage > 2 else shards
    )  # only with ZeRO-3
    if shards % copies:
        raise LaunchError(
            f"MaxText replicates its fsdp axes: data_parallel_replicas {copies} does not divide "
            f"the {shards} data-parallel GPUs of each expert. Plan another data_parallel_replicas."
        )
    tensor_parallel = int(job["tensor_parallel"])
    sizes = {
        "tensor": 1 if job["sequence_parallel"] else tensor_parallel,
        "tensor_sequence": tensor_parallel if job["sequence_parallel"] else 1,
        "context": int(job["context_parallel"]),
        "expert": expert_parallel,
        "fsdp": shards // copies,
        "data": copies,
        "pipeline": int(job["pipeline_parallel"]),
    }
    remaining, axes = job.gpus_per_node, dict[str, int]()
    for name in AXES:
        within = gcd(sizes[name], remaining)
        remaining //= within
        axes |= {f"within_{name}": within, f"across_{name}": sizes[name] // within}
    if remaining > 1:
        raise LaunchError(
            f"The axes of MaxText's mesh cannot fill nodes of {job.gpus_per_node} GPUs with "
            f"{', '.join(f'{name} {size}' for name, size in sizes.items() if size > 1)}."
        )
    return axes


def _fill_axes(
    kind: str, number: Callable[[str], int | None], available: int | None, rest_axis: str
) -> tuple[dict[str, int], bool]:
    """Return the sizes of the ``ici`` or ``dcn`` axes; True: they are determined.

    Raises LaunchError if they do not fill the available GPUs, or two axes are -1.
    """
    keys = {name: f"{kind}_{name}_parallelism" for name in AXES}
    defaults = {name: _REST_OF_GPUS if name == rest_axis else 1 for name in AXES}
    sizes = {name: number(key) or defaults[name] for name, key in keys.items()}
    open_axes = [name for name, size in sizes.items() if size == _REST_OF_GPUS]
    product = prod(size for size in sizes.values() if size != _REST_OF_GPUS)
    if not open_axes:
        if available is not None and product != available:
            raise LaunchError(
                f"The {kind} axes have {product} places, but the file starts {available}: their "
                "product must be equal."
            )
        return sizes, True
    if len(open_axes) > 1:
        raise LaunchError(f"{' and '.join(keys[axis] for axis in open_axes)} are -1: one may be.")
    if available is not None and available % product:
        raise LaunchError(
            f"The {kind} axes have {product} places, which do not divide {available}."
        )
    is_determined = available is not None
    sizes[open_axes[0]] = available // product if available is not None else 1
    return sizes, is_determined


_ROWS = shipped_rows("models/maxtext.csv")
# Models by names of MaxText that no rule of spelling connects.
_MODELS_BY_NAME = {row["name"]: row["model"] for row in _ROWS if row["model"]}


def maxtext_name(model: ModelSpec) -> str | None:
    """Return MaxText's name of a model; None if it ships no configuration of it."""
    squeezed = _squeeze_name(model.name)
    for name in (row["name"] for row in _ROWS if row["is_shipped"] == "true"):
        if squeezed in (_squeeze_name(name), _squeeze_name(_MODELS_BY_NAME.get(name, ""))):
            return name
    return None


def model_of_maxtext(name: str) -> str | None:
    """Return the model of a name or configuration file of MaxText; None if unknown."""
    stem = name.rpartition("/")[2].removesuffix(".yml").removesuffix(".yaml")
    if stem in ("base", "default", "sft", ""):
        return None
    return find_model_of_name(_MODELS_BY_NAME.get(stem, stem))


def _squeeze_name(text: str) -> str:
    return re.sub(r"[^a-z0-9.]", "", text.lower())


_TENSORS = shipped_rows("models/maxtext-tensors.csv")
KEYS = tuple(
    key for column in ("keys", "fused_keys") for row in _TENSORS for key in row[column].split()
)
"""The keys of base.yml that place a tensor."""
_POLICIES = {row["policy"]: row for row in shipped_rows("models/maxtext-policies.csv")}
"""Remat policies by name; ``nearest`` is the recomputation of a plan that none is closer to."""


def policy_quantities(job: LaunchJob) -> MutableQuantities:
    """Return the remat policy of a plan, or ``custom`` with where each tensor is stored."""
    recompute = str(job["recompute"])
    saved, offloaded = (
        _split_tensors(job[name]) for name in ("saved_tensors", "offloaded_tensors")
    )
    nearest = next((row for row in _POLICIES.values() if row["nearest"] == recompute), None)
    if "activations" in str(job["offload"]):
        remaining = saved if nearest is None else _split_tensors(nearest["saved"])
        saved, offloaded = frozenset(), remaining | {LAYER_INPUT}
    elif nearest is not None:
        return {"remat_policy": nearest["policy"]}
    for policy, row in _POLICIES.items():
        named = saved if row["offloaded"] else saved - {LAYER_INPUT}
        tensors = tuple(_split_tensors(row[column]) for column in ("saved", "offloaded"))
        if row["is_written"] and (named, offloaded) == tensors:
            return {"remat_policy": policy}
    quantities: MutableQuantities = {"remat_policy": "custom"}
    keys = {row["tensor"]: row["keys"].split() for row in _TENSORS}
    for names, place in ((saved, "device"), (offloaded, "offload")):
        quantities |= {f"place_{key}": place for name in names for key in keys[name]}
    return quantities


def read_remat_policy(reading: OptionReader) -> dict[str, str]:
    """Read recomputation, saved and offloaded tensors from the remat policy (``full`` if unset).

    Raises LaunchError if there is no such policy, or no such place of a tensor.
    """
    policy = (reading.text("remat_policy") or "full").lower()
    if policy == "none":
        return {"recompute": "none"}
    if policy == "custom":
        places = {key: (reading.text(key) or "").lower() for key in KEYS}
        for key, place in places.items():
            if place not in ("", "device", "offload", "remat"):
                problem = f"{key} is device, offload or remat, not {place}."
                raise LaunchError(f"{reading.position}: {problem}")
        # A tensor counts if all of its parts that the file places are in that place.
        saved, offloaded = (
            frozenset(
                row["tensor"]
                for row in _TENSORS
                if {places[key] for key in f"{row['keys']} {row['fused_keys']}".split()} - {""}
                == {place}
            )
            for place in ("device", "offload")
        )
        return _remat_values(saved - offloaded - {LAYER_INPUT}, offloaded)
    row = _POLICIES.get(policy)
    if row is None:
        policies = ", ".join(name for name, row in _POLICIES.items() if row["is_written"])
        raise LaunchError(
            f"{reading.position}: remat_policy {policy} is not one of {policies}, custom."
        )
    return _remat_values(*(_split_tensors(row[column]) for column in ("saved", "offloaded")))


def _remat_values(saved: Iterable[str], offloaded: Iterable[str]) -> dict[str, str]:
    values = {"saved_tensors": _join_tensors(saved), "offloaded_tensors": _join_tensors(offloaded)}
    return {"recompute": "full", **{name: text for name, text in values.items() if text}}


def _split_tensors(text: object) -> frozenset[str]:
    return frozenset(filter(None, str(text).split("+"))) - {"none"}


def _join_tensors(names: Iterable[str]) -> str:
    present = set(names)
    return "+".join(name for name in TENSORS if name in present)


_GPUS_PER_NODE = 8


def _read_settings(reading: OptionReader) -> LaunchSettings:
    """Read the settings of a command or configuration of MaxText.

    Raises LaunchError if the axes of its mesh do not fill its GPUs.
    """
    mesh, settings, model = _read_mesh(reading), option_texts(reading, "MaxText"), _name_of(reading)
    settings.values |= read_remat_policy(reading)
    quantities: MutableQuantities = {**mesh, "named_model": model}
    shape = apply_read_rows(reading, TARGET.table, settings, quantities)
    unknown_options = {option.option for option in reading.command.unknown}
    return settings.build(
        shape=shape if model is None else None,
        used_options=frozenset(
            name
            for name in unknown_options
            if name.strip("\"'").endswith((f"/configs/{_CONFIG}", f"/configs/{_ADAPTER_CONFIG}"))
        ),
    )


def _read_mesh(reading: OptionReader) -> dict[str, int | None]:
    """Return the GPUs of each axis of a file's mesh, and of all; None: the file leaves it open.

    An axis of -1 takes the remaining GPUs. Raises LaunchError if the axes do not fill the GPUs that
    start it, or two of them take the rest.
    """
    resources = reading.command.resources
    launched_gpus = total_gpus(resources)
    gpus_per_node = parse_int(resources.gpus_per_node)
    num_nodes = parse_int(resources.num_nodes) or (
        launched_gpus // gpus_per_node if launched_gpus and gpus_per_node else None
    )

    def integer(key: str) -> int | None:
        text = reading.text(key) or ""
        return int(text) if text.removeprefix("-").isdecimal() else None

    if launched_gpus and num_nodes is None and gpus_per_node is None:
        # One slice of TPUs has all chips of the ici axes; GPU nodes have eight GPUs.
        across = prod(max(integer(f"dcn_{name}_parallelism") or 1, 1) for name in AXES)
        is_gpu = "gpu" in (reading.text("hardware") or "")
        num_nodes = (
            across
            if across > 1 or not is_gpu
            else launched_gpus // gcd(launched_gpus, _GPUS_PER_NODE)
        )
        gpus_per_node = launched_gpus // num_nodes if launched_gpus % num_nodes == 0 else None
    try:
        ici, has_ici = _fill_axes("ici", integer, gpus_per_node, "fsdp")
        dcn, has_dcn = _fill_axes("dcn", integer, num_nodes, "data")
    except LaunchError as error:
        requested = resources.requested_gpus
        hint = (
            "" if requested is None else f" With --gpus {requested} the axes must be changed, too."
        )
        raise LaunchError(f"{reading.position}: {error}{hint}") from error
    sizes = {f"{name}_axes": ici[name] * dcn[name] for name in AXES}
    return {**sizes, "mesh_gpus": prod(sizes.values()) if has_ici and has_dcn else None}


def _name_of(reading: OptionReader) -> str | None:
    """Return the model that a file names; None if it names none that planner knows."""
    # The end of a path names the model, even if its beginning is unknown.
    words = [
        (text or option.option).strip("\"'")
        for option in (*reading.command.positional, *reading.command.unknown)
        for text in option.texts or (None,)
    ]
    files = [word for word in words if word.endswith((".yml", ".yaml"))]
    names = (reading.text("model_name"), reading.text("base_config"), *files, reading.command.name)
    return next(filter(None, map(model_of_maxtext, filter(None, names))), None)


_MODULE = "maxtext.trainers.pre_train.train"
_ADAPTER_MODULE = "maxtext.trainers.post_train.sft.train_sft"
_CONFIG, _ADAPTER_CONFIG = "base.yml", "post_train/sft.yml"
_PORT = "29500"


def _quantities(job: LaunchJob) -> Quantities:
    """Return the values of MaxText's keys that no row computes, by parameter name."""
    name = maxtext_name(job.model)
    return {
        **({} if name else shape_of(job.model)),
        "model_name": name,
        **mesh_axes(job),
        **policy_quantities(job),
        "per_device_batch": _sequences_per_gpu(job),
    }


def _sequences_per_gpu(job: LaunchJob) -> float:
    """Return the sequences per GPU in a step; MaxText rounds the sequences of all GPUs down."""
    steps = 1 if int(job["pipeline_parallel"]) > 1 else int(job["gradient_accumulation_steps"])
    sequences = int(job["global_batch_size"]) // steps
    per_device = sequences / job.num_gpus
    while int(per_device * job.num_gpus) < sequences:
        per_device = math.nextafter(per_device, math.inf)
    return per_device


def _draft(job: LaunchJob, settings: OptionTexts) -> LaunchDraft:
    """Build the MaxText command of a job; with LoRA adapters it starts another module."""
    is_adapted = job["adapter"] not in (None, "none")
    module = _ADAPTER_MODULE if is_adapted else _MODULE
    config = ShellVariable(
        name="MAXTEXT_PATH",
        meaning="folder of a checkout of MaxText",
        suffix=f"/src/maxtext/configs/{_ADAPTER_CONFIG if is_adapted else _CONFIG}",
    )
    return training_draft(
        job,
        "maxtext",
        (
            *_command(job, module),
            CommandWords(words=(config,)),
            *overrides(settings.options),
            *user_arguments("maxtext", job),
        ),
        launcher="",
    )


def _command(job: LaunchJob, module: str) -> list[CommandWords]:
    """Return the words that start the program; several nodes need the coordinator's address."""
    program = CommandWords(words=("python3", "-m", module))
    if job.num_nodes == 1:
        return [program]
    rendezvous = (
        ShellVariable(name=variable.name, meaning=variable.meaning, prefix=f"{name}=")
        for name, variable in (
            ("JAX_COORDINATOR_IP", MASTER_ADDR),
            ("NNODES", NUM_NODES),
            ("NODE_RANK", NODE_RANK),
        )
    )
    return [CommandWords(words=("env", f"JAX_COORDINATOR_PORT={_PORT}", *rendezvous)), program]


TARGET = LaunchTarget.of("maxtext", quantities=_quantities, draft=_draft, answers=_read_settings)
