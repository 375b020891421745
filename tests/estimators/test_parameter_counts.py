"""Parameter counts of the built-in models against what their authors publish."""

import pytest
from rows import each

from planner.layers.model import count_parameters, layer_parameters
from planner.specs.catalogue import load_model

CHECKPOINTS = {
    "llama-7b": 6_738_415_616,
    "llama-13b": 13_015_864_320,
    "llama-33b": 32_528_943_616,
    "llama-65b": 65_285_660_672,
    "llama-2-7b": 6_738_415_616,
    "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-7b": 7_615_616_512,
    "gemma-7b": 8_537_680_896,
    "gemma-2-9b": 9_241_705_984,
    "phi-2": 2_779_683_840,
    "falcon-7b": 6_921_720_704,
    "bloom-176b": 176_247_271_424,
    "mpt-7b": 6_649_286_656,
    "gpt-j-6b": 6_050_882_784,
    "gpt-neox-20b": 20_554_567_680,
    "tinyllama-1.1b": 1_100_048_384,
    "gemma-3-1b": 999_885_952,
    "mistral-small-24b": 23_572_403_200,
    "mistral-large-2-123b": 122_610_069_504,
    "olmo-2-7b": 7_298_617_344,
    "olmo-2-13b": 13_716_198_400,
    "olmo-2-32b": 32_234_279_936,
    "olmoe-1b-7b": 6_919_161_856,
    "granite-3.3-8b": 8_170_864_640,
    "granite-4.0-micro": 3_402_836_480,
    "starcoder-15b": 15_517_456_384,
    "smollm3-3b": 3_075_098_624,
    "seed-oss-36b": 36_151_104_512,
    "phi-4": 14_659_507_200,
    "deepseek-moe-16b": 16_375_728_128,
    "qwen2.5-vl-7b": 7_615_616_512,
}

# Of the language model in the class that transformers 5.23 builds from the config.
TRANSFORMERS = {
    "gemma-3-4b": 3_880_263_168,
    "gemma-3-12b": 11_766_034_176,
    "gemma-3-27b": 27_009_346_304,
    "glm-4.5": 352_797_829_024,
    "glm-4.5-air": 106_852_251_264,
    "glm-4.6": 352_797_829_024,
    "glm-4.7-flash": 29_943_393_920,
    "glm-4-32b": 32_566_081_536,
    "ministral-3-3b": 3_429_006_336,
    "starcoder2-7b": 7_173_923_840,
    "starcoder2-15b": 15_957_889_024,
    "phi-3.5-moe": 41_873_153_344,
    "dbrx": 131_596_523_520,
    "command-a-111b": 111_057_580_032,
    "command-r7b": 8_028_033_024,
    "exaone-4.0-32b": 32_003_216_384,
    "ernie-4.5-300b-a47b": 299_484_163_264,
    "ernie-4.5-21b-a3b": 21_825_437_888,
    "hunyuan-a13b": 80_393_183_232,
    "qwen2.5-vl-72b": 72_706_203_648,
    "qwen3-vl-30b-a3b": 30_532_122_624,
    "qwen3-vl-235b-a22b": 235_093_634_560,
    "dots.llm1": 142_774_381_696,
}

# Model, published billions, half a unit of the last digit that is printed, source.
ROUNDED = [
    ("megatron-1.7b", 1.7, 0.05, "arXiv:2104.04473-table-1"),
    ("megatron-3.6b", 3.6, 0.05, "arXiv:2104.04473-table-1"),
    ("megatron-7.5b", 7.5, 0.05, "arXiv:2104.04473-table-1"),
    ("megatron-18b", 18.4, 0.05, "arXiv:2104.04473-table-1"),
    ("megatron-39b", 39.1, 0.05, "arXiv:2104.04473-table-1"),
    ("megatron-76b", 76.1, 0.05, "arXiv:2104.04473-table-1"),
    ("megatron-145b", 145.6, 0.05, "arXiv:2104.04473-table-1"),
    ("megatron-175b", 174.6, 0.05, "arXiv:2104.04473-table-2"),
    ("megatron-310b", 310.1, 0.05, "arXiv:2104.04473-table-1"),
    ("megatron-530b", 529.6, 0.05, "arXiv:2104.04473-table-1"),
    ("megatron-1t", 1008.0, 0.05, "arXiv:2104.04473-table-1"),
    ("megatron-22b", 22, 0.5, "arXiv:2205.05198-table-3"),
    ("gpt-3-175b", 175, 0.5, "arXiv:2005.14165-table-2.1"),
    ("mt-nlg-530b", 530, 0.5, "arXiv:2201.11990-abstract"),
    ("opt-175b", 175, 0.5, "arXiv:2205.01068-table-1"),
    ("mpt-70b", 64.8624, 0.00005, "llm-foundry-benchmarking"),
    ("mpt-13b", 12.854, 0.0005, "llm-foundry-benchmarking"),
    ("mixtral-8x22b", 140.6, 0.05, "mistral-model-weights"),
    ("deepseek-v2", 236, 0.5, "arXiv:2405.04434-abstract"),
    ("deepseek-v2-lite", 15.7, 0.05, "arXiv:2405.04434-appendix-B"),
    ("deepseek-v3", 671, 0.5, "arXiv:2412.19437-abstract"),
    ("deepseek-v3.2", 671, 1, "config_671B_v3.2.json"),
    ("glm-5", 744, 0.5, "arXiv:2602.15763-table-of-the-architecture"),
    ("qwen3-next-80b-a3b", 80, 0.5, "model-card"),
    ("qwen3.5-397b-a17b", 397, 1, "model-card-with-the-vision-tower"),
    ("qwen3-30b-a3b", 30.5, 0.05, "model-card"),
    ("qwen3-235b-a22b", 235, 0.5, "model-card"),
    ("qwen2-57b-a14b", 57.4, 0.05, "model-card"),
    ("gpt-oss-120b", 116.83, 0.005, "arXiv:2508.10925-table-1"),
    ("gpt-oss-20b", 20.91, 0.005, "arXiv:2508.10925-table-1"),
    ("nemotron-4-340b", 341.0, 0.05, "arXiv:2406.11704-table-1"),
    ("llama-4-scout-17b-16e", 107.8, 0.05, "model-card-text-part"),
    ("qwen3.5-27b", 27, 0.5, "model-card"),
    ("qwen3.5-35b-a3b", 35, 0.5, "model-card"),
    ("nemotron-h-8b", 8.1, 0.05, "arXiv:2504.03624"),
    ("nemotron-h-47b", 47, 0.5, "arXiv:2504.03624-abstract"),
    ("nemotron-h-56b", 56, 0.5, "arXiv:2504.03624-abstract"),
    ("nemotron-nano-9b-v2", 8.89, 0.005, "arXiv:2508.14444"),
    ("nemotron-nano-12b-v2", 12.31, 0.005, "arXiv:2508.14444"),
    ("nemotron-3-nano-30b-a3b", 31.6, 0.05, "arXiv:2512.20848"),
    ("nemotron-3-super-120b-a12b", 120.6, 0.1, "arXiv:2604.12374"),
    ("nemotron-3-ultra-550b-a55b", 550, 1, "name-of-the-model"),
]

# The same for active parameters, by whether the authors count the input embedding; two
# sources cut the last digit instead of rounding it.
ACTIVE = [
    ("mixtral-8x7b", True, 12.9, 0.05, "mistral-model-weights"),
    ("mixtral-8x22b", True, 39, 0.5, "mistral-model-weights"),
    ("qwen3-30b-a3b", True, 3.3, 0.06, "model-card"),
    ("qwen3-235b-a22b", True, 22, 0.5, "model-card"),
    ("llama-4-scout-17b-16e", True, 17, 0.5, "model-card"),
    ("llama-4-maverick-17b-128e", True, 17, 0.5, "model-card"),
    ("deepseek-v2", False, 21, 0.5, "arXiv:2405.04434-abstract"),
    ("deepseek-v2-lite", False, 2.4, 0.06, "arXiv:2405.04434-appendix-B"),
    ("deepseek-v3", False, 37, 0.5, "arXiv:2412.19437-abstract"),
    ("gpt-oss-120b", False, 5.13, 0.005, "arXiv:2508.10925-table-1"),
    ("gpt-oss-20b", False, 3.61, 0.005, "arXiv:2508.10925-table-1"),
    ("kimi-k2", True, 32.6, 0.5, "arXiv:2507.20534-table-2"),
    ("glm-5", False, 40, 1, "model-card"),
    ("qwen3-next-80b-a3b", False, 3, 0.6, "model-card"),
    ("qwen3.5-397b-a17b", True, 17, 0.5, "model-card"),
    ("qwen3.5-35b-a3b", True, 3, 0.5, "model-card"),
    ("nemotron-3-nano-30b-a3b", False, 3.2, 0.05, "arXiv:2512.20848"),
    ("nemotron-3-nano-30b-a3b", True, 3.6, 0.05, "arXiv:2512.20848"),
    ("nemotron-3-super-120b-a12b", True, 12.7, 0.1, "arXiv:2604.12374"),
    ("nemotron-3-ultra-550b-a55b", False, 55, 0.5, "name-of-the-model"),
]


MODELS_OF_EVERY_KIND = [
    "deepseek-v3", "qwen2-57b-a14b", "gpt-oss-20b", "bloom-176b", "glm-5", "qwen3.5-397b-a17b",
    "nemotron-3-super-120b-a12b",
]  # fmt: skip


@each(
    ("name", "parameters"),
    [pytest.param(*item, id=f"{item[0]}-hugging-face-checkpoint") for item in CHECKPOINTS.items()],
)
def test_total_equals_the_checkpoint(name: str, parameters: int) -> None:
    assert count_parameters(load_model(name)).total == parameters


@each("name", TRANSFORMERS)
def test_total_equals_the_class_of_transformers(name: str) -> None:
    assert count_parameters(load_model(name)).total == TRANSFORMERS[name]


@each(
    ("name", "billions", "half_a_digit"),
    [pytest.param(*row[:3], id=f"{row[0]}-{row[3]}") for row in ROUNDED],
)
def test_total_rounds_to_the_published_one(name: str, billions: float, half_a_digit: float) -> None:
    total = count_parameters(load_model(name)).total
    assert total / 1e9 == pytest.approx(billions, abs=half_a_digit)


@each(
    ("name", "with_embedding", "billions", "tolerance"),
    [pytest.param(*row[:4], id=f"{row[0]}-{row[4]}") for row in ACTIVE],
)
def test_active_parameters(
    name: str, with_embedding: bool, billions: float, tolerance: float
) -> None:
    count = count_parameters(load_model(name))
    active = count.active_with_embedding if with_embedding else count.active
    assert active / 1e9 == pytest.approx(billions, abs=tolerance)


def test_a_dense_model_with_tied_weights_is_all_active() -> None:
    count = count_parameters(load_model("gemma-7b"))
    assert count.logits == 0
    assert count.active == count.active_with_embedding == count.total


def test_learned_positions_are_looked_up_only() -> None:
    count = count_parameters(load_model("gpt-3-175b"))
    assert count.looked_up == 2048 * 12288


@pytest.mark.parametrize("name", MODELS_OF_EVERY_KIND)
def test_the_layers_add_up_to_the_model(name: str) -> None:
    model = load_model(name)
    count = count_parameters(model)
    layers = sum(
        group.num_hidden_layers * layer_parameters(model.hidden_size, group).total
        for group in model.layer_groups
    )
    norms = (1 + model.final_norm_bias) * (1 + model.embedding_norm) * model.hidden_size
    assert layers + count.embedding + count.logits + norms == count.total


def test_parts_of_a_deepseek_v3_layer_arxiv_2412_19437_section_4_2() -> None:
    model = load_model("deepseek-v3")
    dense, sparse = (layer_parameters(model.hidden_size, group) for group in model.layer_groups)
    one_expert = 3 * 7168 * 2048
    assert dense.feed_forward == 3 * 7168 * 18432
    assert dense.experts == dense.router == 0
    assert sparse.feed_forward == one_expert
    assert sparse.experts == 256 * one_expert
    assert sparse.active_experts == 8 * one_expert
    assert sparse.router == 256 * 7168 + 256
