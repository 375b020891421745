from ray import serve
from ray.serve.llm import LLMConfig, LLMServingArgs, build_openai_app

TP = 8

config = LLMConfig(
    model_loading_config={
        "model_id": "my-r1",
        "model_source": "deepseek-ai/DeepSeek-R1",
    },
    accelerator_type="H100",
    deployment_config={
        "autoscaling_config": {"min_replicas": 2, "max_replicas": 4},
        "max_ongoing_requests": 24,
    },
    engine_kwargs={
        "tensor_parallel_size": TP,
        "pipeline_parallel_size": 2,
        "gpu_memory_utilization": 0.92,
        "max_num_seqs": 40,
        "max_model_len": 16384,
        "enable_prefix_caching": True,
        "trust_remote_code": True,
    },
)

serve.run(build_openai_app(LLMServingArgs(llm_configs=[config])))
