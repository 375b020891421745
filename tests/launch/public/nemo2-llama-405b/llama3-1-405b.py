# a4-highgpu-8g: python llama3-1-405b.py --factory "recipe()" trainer.num_nodes=16
import nemo_run as run
from nemo.collections import llm
from nemo.collections.llm.recipes import llama31_405b
from scripts.performance.helpers import set_primary_perf_configs


def recipe(profile_enabled: bool = False) -> run.Partial:
    pretrain = llama31_405b.pretrain_recipe(performance_mode=True)

    num_nodes = 16
    num_gpus_per_node = 8
    mbs = 1
    gbs = 128
    tp_size = 8
    pp_size = 8
    cp_size = 1
    vp_size = 2
    ep_size = 1
    compute_dtype = "fp8"
    use_mcore_fsdp = False

    pretrain = set_primary_perf_configs(
        pretrain,
        "pre_train",
        num_nodes=num_nodes,
        num_gpus_per_node=num_gpus_per_node,
        mbs=mbs,
        gbs=gbs,
        max_steps=30,
        tp_size=tp_size,
        pp_size=pp_size,
        cp_size=cp_size,
        vp_size=vp_size,
        ep_size=ep_size,
        compute_dtype=compute_dtype,
        use_mcore_fsdp=use_mcore_fsdp,
    )
    pretrain.trainer.limit_val_batches = 0.0
    return pretrain


if __name__ == "__main__":
    run.cli.main(llm.pretrain, default_factory=recipe)
