"""Models from Hugging Face: their ``config.json``, never their code or weights."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from planner.base.read_files import parse_json
from planner.errors import MissingDependencyError, SpecError, did_you_mean
from planner.specs.hugging_face_families import FAMILIES, UNMODELLED
from planner.specs.hugging_face_reader import ConfigReader
from planner.specs.model import ModelSpec
from planner.specs.spec_files import check_spec, read_text

_BITS_OF_WEIGHTS: Mapping[float, str] = {4: "w4a16", 8: "w8a16"}
# quant_algo of ModelOpt, and the methods with the format in their name.
_ALGORITHMS = {
    "FP8": "fp8", "FP8_PER_CHANNEL_PER_TOKEN": "fp8", "FP8_PB_WO": "fp8_block", "NVFP4": "nvfp4",
    "NVFP4_AWQ": "nvfp4", "W4A16_AWQ": "w4a16", "W4A8_AWQ": "w4a8", "INT4_AWQ": "w4a16",
}  # fmt: skip
_METHODS = {"fbgemm_fp8": "fp8", "ptpc_fp8": "fp8", "eetq": "w8a16", "mxfp8": "fp8_block"}
# Groups that share a scale in formats of 4-bit floats: part of the format.
_GROUPED_FORMATS = ("nvfp4", "mxfp4")
_EXPERT_COUNTS = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")
_USUAL_GROUP = 128
_LAYER = re.compile(r"layers\.(\d+)(?:\.(\w+))?")
# Parts by patterns of the names of unquantized modules; expressions name no layer.
_PARTS = {
    "attention": re.compile(r"attn|attention"),
    "shared_experts": re.compile(r"shared_expert"),
    "feed_forward": re.compile(r"mlp|feed_forward|ffn"),
}
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def is_repository(name: str) -> bool:
    """Return whether ``name`` has the form ORG/NAME.

    Parameters
    ----------
    name : text to test
    """
    return _REPOSITORY.fullmatch(name) is not None


def read_config(path: Path, name: str | None = None) -> ModelSpec:
    """Read the model from a ``config.json``.

    Raises SpecError with one line per error: file, key and problem. The error for an unsupported
    model type names its features that are not modelled, or the supported types.

    Parameters
    ----------
    path : ``config.json``
    name : name of the model; None: that of the folder
    """
    values = parse_json(read_text(path), str(path), infinite=True)
    if not isinstance(values, dict):
        raise SpecError(f"{path}: must hold a JSON object.")
    family = values.get("model_type")
    if not isinstance(family, str) or family not in FAMILIES:
        raise SpecError(f"{path}: {_unsupported(family)}")
    errors: list[str] = []
    config = ConfigReader(values, errors)
    config.refuse("is_encoder_decoder", supported=False)
    table = FAMILIES[family](config)
    if errors:
        raise SpecError("\n".join(f"{path}: {error}" for error in errors))
    table["name"] = name or _name(values, path)
    table["source"] = f"config.json of {table['name']}"
    return check_spec(ModelSpec, {**table, **published_types(values)}, where=str(path))


def find_config(name: str) -> Path:
    """Return the path of a model's ``config.json``: cached, else downloaded.

    Raises SpecError if there is no such model, it needs permission, or the network is not
    reachable; MissingDependencyError if it is not in the cache, and huggingface-hub is not
    installed.

    Parameters
    ----------
    name : ORG/NAME of a repository
    """
    if not is_repository(name):
        raise SpecError(f"{name!r} is not of the form ORG/NAME.")
    return cached_config(name) or _download(name)


def cached_config(name: str) -> Path | None:
    """Return the path of a model's ``config.json`` in the local cache; None if not there.

    Parameters
    ----------
    name : ORG/NAME of a repository
    """
    for snapshot in _cached_snapshots(name):
        if os.path.isfile(snapshot / "config.json"):
            return snapshot / "config.json"
    return None


def _unsupported(family: object) -> str:
    """Return the error message for a model_type that is missing or not supported."""
    supported = f"Supported: {', '.join(FAMILIES)}."
    if family is None:
        return f"model_type is missing. {supported}"
    text = str(family)[:40]
    refused = f"model_type {text!r} is not supported"
    if text in UNMODELLED:
        return f"{refused}: not modelled are {UNMODELLED[text]}."
    return f"{refused}.{did_you_mean(text, FAMILIES) or f' {supported}'}"


def _name(values: Mapping[str, object], path: Path) -> str:
    repository = values.get("_name_or_path")
    if isinstance(repository, str) and repository.strip():
        return repository
    return Path(os.path.realpath(path)).parent.name or path.stem


def _cached_snapshots(name: str) -> Iterator[Path]:
    """Yield the snapshot folders of a model in the Hugging Face cache, the main revision first."""
    folder = _cache_folder() / f"models--{name.replace('/', '--')}"
    try:
        revision = read_text(folder / "refs" / "main").strip()
    except SpecError:
        revision = ""
    if revision:
        yield folder / "snapshots" / revision
    yield from sorted((folder / "snapshots").glob("*"))


def _cache_folder() -> Path:
    """Return the Hugging Face cache folder that the environment variables choose."""
    if cache := os.environ.get("HF_HUB_CACHE"):
        return Path(cache).expanduser()
    if home := os.environ.get("HF_HOME"):
        return Path(home).expanduser() / "hub"
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return Path(cache).expanduser() / "huggingface" / "hub"


def _download(name: str) -> Path:
    """Download the config.json of a model from Hugging Face; return its path or raise SpecError."""
    try:
        from huggingface_hub import constants, errors, hf_hub_download
    except ImportError as error:
        raise MissingDependencyError(
            f"{name} is neither a built-in model nor in the Hugging Face cache; downloading "
            "its config.json needs huggingface-hub: pip install 'llm-gpu-planner[hub]'."
        ) from error
    unreachable = (
        f"Hugging Face is not reachable and the config.json of {name} is not in the "
        "cache: go online, or pass the path of a config.json."
    )
    if _is_offline(constants.ENDPOINT):
        raise SpecError(unreachable)
    try:
        return Path(hf_hub_download(name, "config.json", cache_dir=_cache_folder()))
    except errors.GatedRepoError as error:
        raise SpecError(
            f"{name} needs permission: accept its terms on https://huggingface.co/{name} and "
            "log in with `hf auth login`, or pass a config.json you have."
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise SpecError(
            f"Hugging Face has no model {name}, or it is private: check the spelling, or log "
            "in with `hf auth login`."
        ) from error
    except errors.LocalEntryNotFoundError as error:
        raise SpecError(unreachable) from error
    except errors.EntryNotFoundError as error:
        raise SpecError(f"{name} on Hugging Face has no config.json.") from error
    except (OSError, ValueError) as error:
        raise SpecError(f"The config.json of {name} cannot be downloaded: {error}.") from error


def _is_offline(endpoint: str) -> bool:
    """Return whether the hub is certainly unreachable: no proxy and no DNS answer."""
    import socket
    from urllib.parse import urlsplit
    from urllib.request import getproxies

    if {"http", "https", "all"} & getproxies().keys():
        return False
    try:
        socket.getaddrinfo(urlsplit(endpoint).hostname, 443)
    except OSError:
        return True
    return False


def published_types(values: Mapping[str, object]) -> dict[str, object]:
    """Return quantization fields and ``checkpoints`` of a published model; {} for 16 bits.

    A method that leaves the attention of a mixture of experts in 16 bit counts as quantization of
    the experts only. Also empty for unknown methods.

    Parameters
    ----------
    values : object of ``config.json``
    """
    inner = values.get("text_config")
    of_text = inner if isinstance(inner, dict) else {}
    config = values.get("quantization_config") or of_text.get("quantization_config")
    if not isinstance(config, dict):
        return {}
    if config.get("quant_method") == "mxfp4":
        return {"expert_quantization": "mxfp4"}
    word = _word(config)
    if word is None:
        return {}
    shape = {**of_text, **values}
    names = config.get("ignore") or config.get("modules_to_not_convert") or []
    named = [str(name) for name in names] if isinstance(names, list) else []
    left_out = [name for name in named if "norm" not in name]
    words: dict[str, object] = {"quantization": word, "expert_quantization": word}
    if "fp4" in (config.get("expert_dtype"), shape.get("expert_dtype")):
        words["expert_quantization"] = "mxfp4"  # an 8-bit exponent per 32, as in DeepSeek-V4
    has_experts = any(shape.get(name) for name in _EXPERT_COUNTS)
    if has_experts and any(_PARTS["attention"].search(name) for name in left_out):
        words = {"expert_quantization": word}
    stored = _sixteen_bit_parts(left_out, shape.get("num_hidden_layers") or 0)
    if word not in _GROUPED_FORMATS:
        stored = _groups(config) | stored
    if stored:
        where = "quantization_config of the config.json"
        words["checkpoints"] = [{"quantization": word, "source": where, **stored}]
    return words


def _sixteen_bit_parts(left_out: list[str], num_layers: int) -> dict[str, object]:
    """Return fields for the parts that stay in 16 bits, and the 16-bit layers.

    A part that is named for some layers only does not count. Layers with a named dense part count
    as 16-bit layers.
    """
    parts: list[str] = []
    layers: set[str] = set()
    for part, pattern in _PARTS.items():
        named = [name for name in left_out if pattern.search(name)]
        if part == "feed_forward":
            others = (_PARTS["shared_experts"], re.compile(r"experts|\.gate$|router"))
            named = [name for name in named if not any(other.search(name) for other in others)]
        numbers = {match[1] for name in named if (match := _LAYER.search(name))}
        if named and (not numbers or len(numbers) >= num_layers):
            parts.append(part)
        elif part == "feed_forward":
            layers |= numbers
    layers |= {match[1] for name in left_out if (match := _LAYER.search(name)) and not match[2]}
    unquantized: dict[str, object] = {"sixteen_bit": parts} if parts else {}
    return unquantized | ({"sixteen_bit_layers": len(layers)} if layers else {})


def _groups(config: Mapping[str, object]) -> dict[str, object]:
    """Return the field for the quantization group size; {} for the default of 128."""
    weights: Mapping[str, object] = config
    if config.get("quant_method") == "mxfp8":  # of the kernels of blocks, with finer scales
        return {"group_size": 32, "scale_bytes": 1.0}
    if config.get("quant_method") == "compressed-tensors":
        group_weights = _first_group(config).get("weights")
        weights = group_weights if isinstance(group_weights, dict) else {}
    size = weights.get("group_size")
    has_zeros = bool(weights.get("zero_point")) or weights.get("symmetric") is False
    if not isinstance(size, int) or size <= 0 or (size == _USUAL_GROUP and not has_zeros):
        return {}
    return {"group_size": size} | ({"zero_point_bytes": 0.5} if has_zeros else {})


def _first_group(config: Mapping[str, object]) -> Mapping[str, object]:
    groups = config.get("config_groups")
    first = next(iter(groups.values()), None) if isinstance(groups, dict) else None
    return first if isinstance(first, dict) else {}


def _word(config: Mapping[str, object]) -> str | None:
    """Return the quantization word, such as "fp8", of a quantization_config; None if unknown."""
    method = config.get("quant_method")
    if method == "fp8":
        return "fp8_block" if config.get("weight_block_size") else "fp8"
    if method in ("awq", "gptq", "auto-round"):
        bits = config.get("bits") or config.get("w_bit")
        return _BITS_OF_WEIGHTS.get(bits) if isinstance(bits, int | float) else None
    if method == "bitsandbytes":
        return "w4a16" if config.get("load_in_4bit") else "w8a16"
    if str(method).startswith("modelopt"):
        return _ALGORITHMS.get(str(config.get("quant_algo")))
    if isinstance(method, str) and method in _METHODS:
        return _METHODS[method]
    if method == "compressed-tensors":
        return _compressed(_first_group(config))
    return None


def _compressed(group: Mapping[str, object]) -> str | None:
    """Return the quantization word of a compressed-tensors config group; None if unknown."""
    weights, inputs = group.get("weights"), group.get("input_activations")
    if not isinstance(weights, dict):
        return None
    bits = weights.get("num_bits")
    if bits == 4 and weights.get("type") == "float":
        return "mxfp4" if weights.get("group_size") == 32 else "nvfp4"
    if not isinstance(inputs, dict):
        return _BITS_OF_WEIGHTS.get(bits or 0)
    if bits == 8 and inputs.get("num_bits") == 8:
        if weights.get("strategy") == "block":
            return "fp8_block"
        return "fp8" if weights.get("type") == "float" else "w8a8"
    return "w4a8" if bits == 4 and inputs.get("num_bits") == 8 else None
