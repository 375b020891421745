"""A constant for each term that code imports, and a type of all groups, for `mypy`.

Made by `python scripts/make_terms.py` from `terms.csv` and `groups.csv`.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

MODEL: Final = "model"
GPU: Final = "gpu"
CLUSTER: Final = "cluster"
SPACE: Final = "space"
FRAMEWORK: Final = "framework"
ENGINE: Final = "engine"
PURCHASE_PRICE: Final = "purchase_price"
CONTRACT: Final = "contract"
TERM_UTILIZATION: Final = "term_utilization"
NUM_GPUS: Final = "num_gpus"
TENSOR_PARALLEL: Final = "tensor_parallel"
CONTEXT_PARALLEL: Final = "context_parallel"
PIPELINE_PARALLEL: Final = "pipeline_parallel"
EXPERT_PARALLEL: Final = "expert_parallel"
PRECISION: Final = "precision"
ATTENTION_KERNEL: Final = "attention_kernel"
EXPERT_COMPUTE: Final = "expert_compute"
TORCH_COMPILE: Final = "torch_compile"
CP_COMM_TYPE: Final = "cp_comm_type"
MODULES_TO_SAVE: Final = "modules_to_save"
DOUBLE_QUANTIZATION: Final = "double_quantization"
QUANTIZATION_BITS: Final = "quantization_bits"
VIRTUAL_TOKENS: Final = "virtual_tokens"
PADDING: Final = "padding"
MEAN_SAMPLE_LENGTH: Final = "mean_sample_length"
SAMPLE_LENGTH_DEVIATION: Final = "sample_length_deviation"
PIPELINE_SCHEDULE: Final = "pipeline_schedule"
SEQUENCE_LENGTH: Final = "sequence_length"
TOTAL_TOKENS: Final = "total_tokens"
STEP_TIME: Final = "step_time"
TOKENS_PER_S_PER_GPU: Final = "tokens_per_s_per_gpu"
PEAK_MEMORY: Final = "peak_memory"
LIMITS_PROBABILITY: Final = "limits_probability"
MODE: Final = "mode"
ATTENTION_DATA_PARALLEL: Final = "attention_data_parallel"
CONCURRENCY: Final = "concurrency"
MAX_NUM_BATCHED_TOKENS: Final = "max_num_batched_tokens"
QUANTIZATION: Final = "quantization"
TIME_TO_FIRST_TOKEN: Final = "time_to_first_token"
TIME_PER_OUTPUT_TOKEN: Final = "time_per_output_token"
REQUEST_LATENCY: Final = "request_latency"
TOKENS_PER_S_PER_USER: Final = "tokens_per_s_per_user"
REQUEST_RATE: Final = "request_rate"
LOAD: Final = "load"
STARTUP_TIME: Final = "startup_time"
BUDGET: Final = "budget"
PRICE_CHANGE: Final = "price_change"
SERVICES: Final = "services"
STOCK: Final = "stock"
REQUESTS_PER_S: Final = "requests_per_s"
CAPACITY_REQUESTS_PER_S_PER_GPU: Final = "capacity_requests_per_s_per_gpu"
OUTPUT_TOKENS_PER_S_PER_GPU: Final = "output_tokens_per_s_per_gpu"
MOST_SEQUENCES: Final = "most_sequences"
KV_CACHE_SIZE: Final = "kv_cache_size"
KV_CACHE_TOKENS: Final = "kv_cache_tokens"
MAX_CONCURRENCY: Final = "max_concurrency"
PRICE_OFFERS: Final = "price_offers"
PRICE_DATE: Final = "price_date"
PRICE_BASIS: Final = "price_basis"
PRICE_DOUBTS: Final = "price_doubts"
RENT_PER_GPU_HOUR: Final = "rent_per_gpu_hour"
GPUS_SOLD_TOGETHER: Final = "gpus_sold_together"
CONTRACT_TERM: Final = "contract_term"
PRICED_UTILIZATION: Final = "priced_utilization"
PLACEMENT: Final = "placement"
TRAIN_GPUS: Final = "train_gpus"
INPUT_TOKENS: Final = "input_tokens"
OUTPUT_TOKENS: Final = "output_tokens"
USERS: Final = "users"
REQUESTS_PER_USER: Final = "requests_per_user"
ACTIVE_SHARE: Final = "active_share"
DRAFT_TOKENS: Final = "draft_tokens"
DECODE_CONTEXT_PARALLEL: Final = "decode_context_parallel"
ROWS: Final = "rows"
COLUMNS: Final = "columns"
DEPTH: Final = "depth"
TENSORS: Final = "tensors"
NUM_BYTES: Final = "num_bytes"
OPERATOR: Final = "operator"
TIME: Final = "time"
TFLOPS: Final = "tflops"
BANDWIDTH_GB_PER_S: Final = "bandwidth_gb_per_s"
ALGORITHM_BANDWIDTH_GB_PER_S: Final = "algorithm_bandwidth_gb_per_s"
BUS_BANDWIDTH_GB_PER_S: Final = "bus_bandwidth_gb_per_s"
OF_PEAK: Final = "of_peak"
OF_ROOFLINE: Final = "of_roofline"
BOUND: Final = "bound"
GroupName: TypeAlias = Literal[
    "system", "spec", "software", "common_options", "required", "chosen_by_plan",
    "scenario_columns", "run_conditions", "sweep_measures", "scheduled", "error_key", "scaling_key",
    "row_specs", "purchase", "price_offer", "price_evidence", "parallel_degree", "model_parallel",
    "collective", "fully_sharded_degree", "layout", "layout_size", "layout_choice",
    "layout_problem", "dependent", "following", "tuning", "number_format", "training_script",
    "rare_number", "plan_purpose", "length", "length_variation", "run_length", "training_amount",
    "training_field", "sample_padding", "image", "low_rank", "request_sharing", "traffic",
    "user_habit", "session", "serving_memory", "rl_step", "learning_setting", "memory_phase",
    "logged", "higher_is_better", "throughput", "electricity", "measured", "speed", "rate",
    "latency", "service_level", "output_rate", "capacity", "prefix_cache", "training_results",
    "training_summary", "serving_summary", "training_target", "matrix_product", "attention",
    "message",
]  # fmt: skip
