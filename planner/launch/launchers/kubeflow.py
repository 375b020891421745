"""Jobs of Kubeflow Trainer that torchtune trains, as the command that its runtime starts.

Source: kubeflow/trainer at 8c0f505, ``pkg/runtime/framework/plugins/torch/torchtune.go`` (recipe
and configuration) and ``manifests/base/runtimes/torchtune`` (two GPUs); kubeflow/sdk at 02adc8e,
``kubeflow/trainer/types/types.py`` (``TorchTuneConfig``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from planner.documents.python import Call, Untold, Value

_USUAL_GPUS = 2
_ADAPTED, _QUANTIZED = "model.lora_attn_modules", "model.quantize_base"
_MODULES = ("q_proj", "v_proj", "output_proj")
_GPUS = ("gpu", "nvidia.com/gpu")


def command_of(runtime: str, arguments: Sequence[str], gpus: str | None) -> tuple[str, ...]:
    """The words that a runtime starts; none of one that is not torchtune's.

    >>> " ".join(command_of("torchtune-llama3.2-1b", ["batch_size=4"], "1"))
    'full_finetune_single_device --config llama3_2/1B_full_single_device batch_size=4'
    """
    parts = runtime.split("-")
    if len(parts) != 3 or parts[0] != "torchtune":
        return ()
    texts = [text.lower() for text in arguments]
    kind = "lora" if any(text.startswith(_ADAPTED) for text in texts) else "full"
    ending = "qlora" if f"{_QUANTIZED}=true" in texts else kind
    recipe = "lora" if ending == "qlora" else kind
    is_one = gpus == "1"
    where = "single_device" if is_one else "distributed"
    config = f"{parts[1].replace('.', '_')}/{parts[2].upper()}_{ending}"
    words = (f"{recipe}_finetune_{where}", "--config", f"{config}_{where}" if is_one else config)
    launched = () if is_one else ("tune", "run", "--nproc_per_node", gpus or str(_USUAL_GPUS))
    return (*launched, *words, *arguments)


def commands_of(calls: Sequence[Call]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The commands of the jobs that a program starts with ``TrainerClient``, each with its line."""
    for call in calls:
        runtime, trainer = call.given.get("runtime"), call.given.get("trainer")
        config = trainer.given.get("config") if isinstance(trainer, Call) else None
        if not (call.ends("train") and isinstance(config, Call)):
            continue
        if not isinstance(runtime, str):  # client.get_runtime("...")
            named = (one for one in calls if one.ends("get_runtime") and one.positional)
            runtime = next((one.positional[0] for one in named), None)
        resources = config.given.get("resources_per_node")
        given = resources if isinstance(resources, dict) else {}
        gpus = next((str(given[key]) for key in _GPUS if key in given), None)
        if isinstance(runtime, str) and (
            words := command_of(runtime, [*_arguments(config.given)], gpus)
        ):
            yield call.line, words


def _arguments(given: Mapping[str, Value]) -> Iterator[str]:
    """What a configuration overrides, as the client puts it."""
    for key in ("batch_size", "epochs"):
        if given.get(key) is not None:
            yield f"{key}={given[key]}"
    dtype = given.get("dtype")
    if dtype is not None:  # DataType.FP32, of a class that stands elsewhere
        text = (dtype.why if isinstance(dtype, Untold) else str(dtype)).lower()
        yield f"dtype={'fp32' if 'fp32' in text else 'bf16'}"
    adapter = given.get("peft_config")
    if isinstance(adapter, Call):
        modules = adapter.given.get("lora_attn_modules", [*_MODULES])
        listed = modules if isinstance(modules, list) else []
        yield f"{_ADAPTED}=[{','.join(map(str, listed))}]"
        for key, value in adapter.given.items():
            if key != "lora_attn_modules" and value is not None:
                yield f"model.{key}={value}"
