from mmengine.optim import AmpOptimWrapper
from torch.optim import AdamW
from transformers import AutoModelForCausalLM
from xtuner.dataset import process_hf_dataset
from xtuner.model import SupervisedFinetune

# deepspeed_zero3 on 16 GPUs: xtuner train internlm2_20b_full_finetune.py
pretrained_model_name_or_path = "internlm/internlm2-20b"
max_length = 32768
pack_to_max_length = True
batch_size = 1
accumulative_counts = 1
max_epochs = 1

model = dict(
    type=SupervisedFinetune,
    use_varlen_attn=True,
    llm=dict(
        type=AutoModelForCausalLM.from_pretrained,
        pretrained_model_name_or_path=pretrained_model_name_or_path,
        trust_remote_code=True,
    ),
)
train_dataset = dict(
    type=process_hf_dataset,
    max_length=max_length,
    pack_to_max_length=pack_to_max_length,
    use_varlen_attn=True,
)
train_dataloader = dict(
    batch_size=batch_size,
    dataset=train_dataset,
    sampler=dict(type="DefaultSampler", shuffle=True),
)
optim_wrapper = dict(
    type=AmpOptimWrapper,
    optimizer=dict(type=AdamW, lr=2e-5),
    accumulative_counts=accumulative_counts,
    loss_scale="dynamic",
)
train_cfg = dict(type="TrainLoop", max_epochs=max_epochs)
