"""Parameters of an adapter: {"config": config.json, "lora": {...}}, on the meta device."""

from __future__ import annotations

from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM


def answer(case: dict[str, Any]) -> dict[str, Any]:
    given = dict(case["config"])
    config = AutoConfig.for_model(given.pop("model_type"), **given)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
        base = sum(x.numel() for x in model.parameters())
        adapted = get_peft_model(model, LoraConfig(**case["lora"]))
    trainable, _ = adapted.get_nb_trainable_parameters()
    names = {
        name.split(".lora_")[0].split(".")[-1]
        for name, _ in adapted.named_parameters()
        if ".lora_" in name
    }
    return {"parameters": base, "trainable": trainable, "modules": sorted(names)}
