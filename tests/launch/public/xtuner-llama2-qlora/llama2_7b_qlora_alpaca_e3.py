import torch
from datasets import load_dataset
from mmengine.optim import AmpOptimWrapper
from peft import LoraConfig
from torch.optim import AdamW
from transformers import AutoModelForCausalLM, BitsAndBytesConfig
from xtuner.dataset import process_hf_dataset
from xtuner.engine.runner import TrainLoop
from xtuner.model import SupervisedFinetune

# PART 1  Settings
pretrained_model_name_or_path = "meta-llama/Llama-2-7b-hf"
use_varlen_attn = False
alpaca_en_path = "tatsu-lab/alpaca"
max_length = 2048
pack_to_max_length = True
sequence_parallel_size = 1
batch_size = 1
accumulative_counts = 16
accumulative_counts *= sequence_parallel_size
max_epochs = 3
optim_type = AdamW
lr = 2e-4

# PART 2  Model
model = dict(
    type=SupervisedFinetune,
    use_varlen_attn=use_varlen_attn,
    llm=dict(
        type=AutoModelForCausalLM.from_pretrained,
        pretrained_model_name_or_path=pretrained_model_name_or_path,
        torch_dtype=torch.float16,
        quantization_config=dict(
            type=BitsAndBytesConfig,
            load_in_4bit=True,
            bnb_4bit_compute_dtype=torch.float16,
            bnb_4bit_use_double_quant=True,
        ),
    ),
    lora=dict(type=LoraConfig, r=64, lora_alpha=16, lora_dropout=0.1, bias="none"),
)

# PART 3  Dataset
alpaca_en = dict(
    type=process_hf_dataset,
    dataset=dict(type=load_dataset, path=alpaca_en_path),
    max_length=max_length,
    pack_to_max_length=pack_to_max_length,
)
train_dataloader = dict(
    batch_size=batch_size,
    num_workers=0,
    dataset=alpaca_en,
    sampler=dict(type="DefaultSampler", shuffle=True),
)

# PART 4  Optimizer
optim_wrapper = dict(
    type=AmpOptimWrapper,
    optimizer=dict(type=optim_type, lr=lr),
    clip_grad=dict(max_norm=1, error_if_nonfinite=False),
    accumulative_counts=accumulative_counts,
    loss_scale="dynamic",
    dtype="float16",
)
train_cfg = dict(type=TrainLoop, max_epochs=max_epochs)
