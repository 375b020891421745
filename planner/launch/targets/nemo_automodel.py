"""NeMo AutoModel: the YAML of a recipe that ``automodel`` or ``torchrun`` starts, read-only.

Source: NVIDIA-NeMo/Automodel at 36044ad, ``nemo_automodel/recipes/_dist_utils.py``,
``components/distributed`` (``config.py``, ``mesh_utils.py``, ``pipelining``, ``parallelizer.py``),
``components/training/step_scheduler.py``, ``components/_peft`` and ``cli/app.py``. Equal chunks of
a pipeline may lack up to three layers: embedding and logits count as that many.
"""

from __future__ import annotations

from collections.abc import Mapping

from planner.documents.shell.edits import ParsedOption
from planner.errors import LaunchError
from planner.launch.read.hf_trainer.derive_settings import UNPACKED
from planner.launch.read.parsed_launch import (
    OptionReader,
    ParsedCommand,
    SettingsBuilder,
    number,
    option_text,
)
from planner.launch.targets.training_reader import (
    RowsHook,
    make_reader_target,
    published_layers,
    strip_dashes,
)
from planner.launch.wrappers.read_resources import parse_gpu_name

_MODELS = ("model.pretrained_model_name_or_path", "model.config.pretrained_model_name_or_path",
           "model.config.name_or_path", "model.config")  # fmt: skip
_MICRO_BATCHES = ("distributed.pipeline.pp_microbatch_size", "autopipeline.pp_microbatch_size")
_PACKED = ("packed_sequence.packed_sequence_size", "packed_sequence.pack_size", "dataset.seq_len")


def _add_unlisted_settings(
    reading: OptionReader, settings: SettingsBuilder, apply_rows: RowsHook
) -> None:
    """Apply the rows to the model and its layers, the GPUs of a cloud and the adapted modules."""
    model = next((reading.text(name) for name in _MODELS if option_text(reading, name)), None)
    gpu, _, count = (option_text(reading, "skypilot.accelerators") or "").partition(":")
    target_modules = reading.command.options.get("peft.target_modules")
    texts = target_modules.texts if target_modules else ()
    modules = [text.rpartition(".")[2] for text in texts if text]
    apply_rows(
        {
            "named_model": model,
            "published_layers": published_layers(model),
            "cloud_gpu": parse_gpu_name(gpu) if gpu else None,
            "cloud_gpus": (int(count) if count.isdecimal() else 1) if gpu else None,
            "adapted_modules": None if {*modules} & {"*_proj", "*"} else ",".join(modules),
            # Modules of experts are no linear layers: only a pattern that matches all covers them.
            "adapts_experts": "*" in modules,
        }
    )
    values = settings.values
    if values.get("precision") != "fp8":
        values.pop("fp8_recipe", None)
    if int(values["pipeline_parallel"]) > 1:
        values["micro_batch_size"] = number(reading, *_MICRO_BATCHES) or 1
    length = values.get("sequence_length")
    if length is None or not number(reading, *_PACKED):
        option = "the assumed length" if length is None else "that"
        settings.notes.append(UNPACKED.format(option=option))


def _merge_config_files(command: ParsedCommand) -> Mapping[str, ParsedOption]:
    """Return the options of the configuration file, overridden by the command's options.

    Raises LaunchError if that file is missing.
    """
    options: dict[str, ParsedOption] = {
        strip_dashes(option.option): option for option in command.unknown
    }
    options |= command.options
    config_options = [
        options[name] for name in ("--config", "-c", "c", "config") if name in options
    ]
    if not command.positional and not config_options:
        return options
    texts = [option.single for option in (*config_options, *command.positional)]
    config_names = [word for word in texts if word and word.endswith((".yaml", ".yml"))]
    document = next((command.files[name] for name in config_names if name in command.files), None)
    if document is None:
        name = config_names[0] if config_names else "its YAML"
        raise LaunchError(
            f"{command.name}:{command.line}: {name} sets what NeMo AutoModel trains and is not in "
            "this folder. Put it there, or use that file with --from."
        )
    return {**document.options, **options}


TARGET = make_reader_target("nemo-automodel", _merge_config_files, _add_unlisted_settings)
