import os

from xtuner.v1.config import AdamWConfig, FSDPConfig, LRConfig
from xtuner.v1.datasets import FTDPTokenizeFnConfig
from xtuner.v1.datasets.config import DataloaderConfig, DatasetConfig
from xtuner.v1.float8.config import Float8Config, ScalingGranularity
from xtuner.v1.loss.ce_loss import CELossConfig
from xtuner.v1.model.moe.qwen3 import Qwen3MoE30BA3Config
from xtuner.v1.train import TrainerConfig

# torchrun --nproc-per-node 8 xtuner/v1/train/cli/sft.py --config sft_qwen3_moe.py
QWEN3_MOE_PATH = os.environ["QWEN3_MOE_PATH"]
pack_max_length = int(os.environ.get("PACK_MAX_LENGTH", "16384"))

float8_cfg = Float8Config(
    scaling_granularity_gemm=ScalingGranularity.TILEWISE,
    scaling_granularity_grouped_gemm=ScalingGranularity.TILEWISE,
)
moe_cfg = Qwen3MoE30BA3Config(float8_cfg=float8_cfg, compile_cfg=False)
moe_cfg.ep_size = 8
fsdp_cfg = FSDPConfig(cpu_offload=False, ep_size=moe_cfg.ep_size, recompute_ratio=0.5)
dataset_config = [
    {
        "dataset": DatasetConfig(name="alpaca", anno_path=os.environ["ALPACA_PATH"]),
        "tokenize_fn": FTDPTokenizeFnConfig(max_length=16386),
    },
]

trainer = TrainerConfig(
    load_from=QWEN3_MOE_PATH,
    model_cfg=moe_cfg,
    optim_cfg=AdamWConfig(lr=6e-05),
    fsdp_cfg=fsdp_cfg,
    dataset_cfg=dataset_config,
    dataloader_cfg=DataloaderConfig(pack_max_length=pack_max_length),
    lr_cfg=LRConfig(lr_type="cosine", lr_min=1e-6),
    loss_cfg=CELossConfig(mode="chunk", chunk_size=1024),
    tokenizer_path=QWEN3_MOE_PATH,
    global_batch_size=32,
    intra_layer_micro_batch=2,
    total_step=100,
)
