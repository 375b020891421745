from torchtitan.distributed.activation_checkpoint import FullAC
from torchtitan.models.llama3.config_registry import llama3_8b
from torchtitan.trainer import Trainer


def llama3_8b_fsdp32_cp4() -> Trainer.Config:
    config = llama3_8b()
    config.parallelism.data_parallel_shard_degree = 8
    config.parallelism.context_parallel_degree = 4
    config.training.max_context_length = 32768
    config.training.num_tokens_per_microbatch_per_dp_rank = 32768
    config.training.num_tokens_per_train_step = 64 * 32768
    config.activation_checkpoint = FullAC.Config()
    return config
