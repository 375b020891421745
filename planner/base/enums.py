"""Enumerations that configurations, specs and results share."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, StrEnum

# Checkpoints and engines name the format, the method or its authors' library: by word all names.
_NAMES: Mapping[str, Mapping[str, str]] = {
    "Quantization": {
        "w16a16": "bf16 fp16 bfloat16 float16 half 16bit none",
        "w8a8": "int8 w8a8_int8 smoothquant",
        "w8a16": "int8_weight_only gptq_int8 awq_int8 bnb_8bit bnb_int8 bitsandbytes_8bit "
                 "llm_int8 eetq",
        "w4a16": "int4 int4_weight_only awq awq_int4 awq_marlin gptq gptq_int4 gptq_marlin marlin "
                 "nf4 bnb bnb_4bit bnb_nf4 bitsandbytes bitsandbytes_4bit hqq auto_round",
        "w4a8": "qserve qoq w4afp8",
        "fp8": "fp8_e4m3 float8 w8a8_fp8 fp8_w8a8 fp8_tensor fp8_dynamic fbgemm_fp8 ptpc_fp8 "
               "modelopt modelopt_fp8",
        "fp8_block": "deepseek_fp8 blockwise_fp8 fp8_blockwise",
        "nvfp4": "fp4 modelopt_fp4 w4a4_nvfp4",
        # Formats of GGUF files, including dynamic ones.
        "q8_0": "q8 q8_1 q8_k q8_k_xl",
        "q6_k": "q6 q6_k_l q6_k_xl",
        "q5_k_m": "q5 q5_k q5_k_l q5_k_xl",
        "q4_k_m": "q4 q4_k q4_k_l q4_k_xl",
        "q4_0": "q4_0_4_4 q4_0_4_8 q4_0_8_8",
        "q3_k_m": "q3 q3_k",
        "q3_k_l": "q3_k_xl",
        "q2_k": "q2 q2_k_l q2_k_xl",
    },
    "ComputePrecision": {
        "bf16": "bfloat16",
        "fp16": "float16 half",
        "fp8": "float8 fp8_e4m3",
        "fp4": "nvfp4",
        "fp32": "float32 single 32",
        "int8": "w8a8 int8_mixed_precision",
    },
    "Fp8Recipe": {
        "tensorwise": "current per_tensor",
        "blockwise": "subchannel block",
    },
    "AttentionKernel": {
        "fa2": "flash_attention_2 flash_attn_2 flash_attn2",
        "fa3": "flash_attention_3 flash_attn_3 flash_attn3",
        "fa4": "flash_attention_4 flash_attn_4 flash_attn4",
        "triton": "flex flex_attention",
        "eager": "unfused dot_product",
        "cudnn": "cudnn_flash_te cudnn_flash_jax fused",
    },
    "ExpertCompute": {
        "grouped": "grouped_mm grouped_gemm",
        "loop": "eager sequential",
    },
    "TorchCompile": {
        "false": "0 no off none eager",
        "true": "1 yes on inductor compiled",
    },
    "LossKernel": {
        "linear": "liger fused_linear linear_fused cce cut_cross_entropy",
        "fused": "te liger_cross_entropy",
    },
    # Policies of MaxText (src/maxtext/layers/decoders.py at e591f30, get_remat_policy).
    "KeptTensors": {
        "none": "full remat",
        "out_proj": "save_out_proj",
        "qkv_proj": "save_qkv_proj qkv_proj_offloaded",
        "qkv_proj+out_proj": "save_dot_except_mlp",
        "qkv_proj+context+out_proj": "save_dot_with_context_except_mlp",
        "qkv_proj+out_proj+mlpwo": "save_dot_except_mlpwi",
        "qkv_proj+out_proj+mlpwi+mlpwo": "minimal minimal_offloaded",
        "qkv_proj+context+out_proj+mlpwi+mlpwo": "minimal_with_context minimal_flash",
    },
    # Levels of llm-analysis, activation functions as NeMo and llm-analysis have them.
    "RecomputedModules": {
        "attention": "attn self_attention self_attn",
        "attention+layernorm": "norm_attention_norm norm_attn_norm",
        "core_attn": "attn_compute attention_core",
        "mlp_act+moe_act": "gelu swiglu activation_function",
        "mlp+moe": "feed_forward",
    },
    "OptimizerKind": {
        "adam": "adamw",
    },
    "PipelineSchedule": {
        "one_forward_one_backward": "1f1b",
        "interleaved": "interleaved_1f1b",
        "zero_bubble": "zb_h1 zb1p zbh1",
    },
    "TokenDispatcher": {
        "flex": "deepep hybridep",
    },
    "ContextExchange": {
        "p2p": "ring",
        "a2a": "ulysses all_to_all",
    },
    "CacheType": {
        "bf16": "fp16 bfloat16 float16 half 16bit auto",
        "fp8": "fp8_e4m3 fp8_e5m2 float8",
    },
}  # fmt: skip
ALIASES: Mapping[str, Mapping[str, str]] = {
    kind: {name: word for word, names in words.items() for name in names.split()}
    for kind, words in _NAMES.items()
}


class Precision(StrEnum):
    """Number formats; the value is the word in TOML, columns and output."""

    FP32 = "fp32"
    TF32 = "tf32"
    FP16 = "fp16"
    BF16 = "bf16"
    FP8 = "fp8"
    INT8 = "int8"
    INT4 = "int4"
    FP4 = "fp4"


class CodeEnum(IntEnum):
    """An integer code inside arrays, a lower-case word outside."""

    @property
    def word(self) -> str:
        return self.name.lower()

    @classmethod
    def listed(cls) -> str:
        """The words as a list in a sentence."""
        return ", ".join(cls.words())

    @classmethod
    def words(cls) -> list[str]:
        return [member.word for member in cls]

    @classmethod
    def usual(cls) -> list[str]:
        """Words that ``all`` stands for."""
        return cls.words()

    @classmethod
    def aliases(cls) -> Mapping[str, str]:
        """Aliases in common use, with the word of each."""
        return ALIASES.get(cls.__name__, {})

    @classmethod
    def canonical_word(cls, text: str) -> str:
        """The canonical word of a text in any case, with hyphens or underscores.

        >>> (Quantization.canonical_word("AWQ"), Quantization.canonical_word("w4a16"),
        ... Quantization.canonical_word("bf61"))
        ('w4a16', 'w4a16', 'bf61')
        """
        spelled = text.lower().replace("-", "_")
        return cls.aliases().get(spelled, spelled)


class ComputePrecision(CodeEnum):
    """Precision of the matrix multiplications of training, as an array code.

    ``FP4`` is nvfp4: 4 bits, and a scale of 8 bits for 16 of them. ``INT8``: operands of matrix
    products are rounded to integers with a scale per row, as torchao's int8 mixed-precision
    training does. ``TF32``, ``FP32``: all numbers have 32 bits; the first multiplies them on tensor
    cores.
    """

    BF16 = 0
    FP16 = 1
    FP8 = 2
    FP4 = 3
    INT8 = 4
    TF32 = 5
    FP32 = 6

    @classmethod
    def usual(cls) -> list[str]:
        """Precisions in which language models are trained today."""
        return [code.word for code in cls if code <= cls.FP4]


class Fp8Recipe(CodeEnum):
    """Scaling of 8-bit products in training.

    ``AUTO``: as the framework does on the GPU. ``DELAYED``: one factor per tensor, from steps
    before; ``TENSORWISE``: one, from the tensor itself; ``ROWWISE``: one per row; ``BLOCKWISE``:
    one per 128 x 128 weights and per 128 numbers of a token; ``MXFP8``: one per 32 numbers.
    """

    AUTO = 0
    DELAYED = 1
    TENSORWISE = 2
    ROWWISE = 3
    BLOCKWISE = 4
    MXFP8 = 5


class Quantization(CodeEnum):
    """Types of the weights and of the activations that a matrix multiplication reads.

    ``W8A8`` is int8, ``W4A4`` int4; ``W4A8`` computes in 8 bit, the ``A16`` ones in 16 bit.
    ``MXFP4`` weights compute in 16 bit, and so do the types of GGUF files, from ``Q8_0`` on.
    """

    W16A16 = 0
    W8A8 = 1
    W8A16 = 2
    W4A16 = 3
    W4A8 = 4
    W4A4 = 5
    FP8 = 6
    FP8_BLOCK = 7
    NVFP4 = 8
    MXFP4 = 9
    Q8_0 = 10
    Q6_K = 11
    Q5_K_M = 12
    Q5_K_S = 13
    Q5_1 = 14
    Q5_0 = 15
    Q4_1 = 16
    Q4_K_M = 17
    Q4_K_S = 18
    Q4_0 = 19
    IQ4_NL = 20
    IQ4_XS = 21
    Q3_K_L = 22
    Q3_K_M = 23
    Q3_K_S = 24
    IQ3_M = 25
    IQ3_S = 26
    IQ3_XS = 27
    IQ3_XXS = 28
    Q2_K = 29
    Q2_K_S = 30
    IQ2_M = 31
    IQ2_S = 32
    IQ2_XS = 33
    IQ2_XXS = 34
    IQ1_M = 35
    IQ1_S = 36

    @classmethod
    def usual(cls) -> list[str]:
        """All words but the GGUF types, since the smallest of these would always be the fastest."""
        return [code.word for code in cls if code <= cls.MXFP4]


class CacheType(CodeEnum):
    """Number format of the key-value cache; ``NONE`` keeps none and computes all again."""

    NONE = 0
    BF16 = 1
    FP8 = 2
    INT8 = 3
    INT4 = 4


class Recompute(CodeEnum):
    """Activation recomputation: what the backward pass recomputes instead of storing it.

    ``SELECTIVE`` recomputes the attention core alone (arXiv:2205.05198); a fused kernel does so by
    itself, so with flash attention it changes nothing, except where a framework repeats other cheap
    parts: see ``selective_share`` and ``selective_outputs`` of its profile, or except where modules
    are named (``RecomputedModules``). ``FEED_FORWARD`` repeats the feed-forward blocks, dense or of
    experts, from their norm to their output, and saves the output of attention (Megatron-Core's
    modules mlp and moe).
    """

    NONE = 0
    SELECTIVE = 1
    FULL = 2
    FEED_FORWARD = 3


class ZeroStage(CodeEnum):
    """Tensors that data-parallel ranks shard: none, optimizer states, gradients, weights."""

    NONE = 0
    OPTIMIZER = 1
    GRADIENTS = 2
    WEIGHTS = 3


class Offload(CodeEnum):
    """Tensors of a training step that are stored in host memory while unused.

    ``OPTIMIZER``: its states, and the gradients where the host itself computes the update.
    ``OPTIMIZER_WEIGHTS``: the weights too. ``ACTIVATIONS``: tensors saved for the backward
    pass; further members add them to the first two. ``NVME``: on drives of the host.
    """

    NONE = 0
    OPTIMIZER = 1
    OPTIMIZER_WEIGHTS = 2
    ACTIVATIONS = 3
    OPTIMIZER_ACTIVATIONS = 4
    OPTIMIZER_WEIGHTS_ACTIVATIONS = 5
    OPTIMIZER_NVME = 6
    OPTIMIZER_WEIGHTS_NVME = 7

    @property
    def of_states(self) -> bool:
        """Whether optimizer states leave the GPU."""
        return "OPTIMIZER" in self.name

    @property
    def of_weights(self) -> bool:
        """Whether weights leave the GPU."""
        return "WEIGHTS" in self.name

    @property
    def of_activations(self) -> bool:
        """Whether activations leave the GPU."""
        return "ACTIVATIONS" in self.name

    @property
    def to_drives(self) -> bool:
        """Whether offloaded tensors are stored on drives instead of host memory."""
        return "NVME" in self.name

    @property
    def parts(self) -> tuple[str, ...]:
        """Words of the single offloads that a combined one consists of."""
        if not (self.of_activations and self.of_states):
            return (self.word,)
        return self.word.removesuffix("_activations"), Offload.ACTIVATIONS.word


class OptimizerKind(CodeEnum):
    """The optimizer. ``SGD`` keeps no state, ``MOMENTUM`` one number per weight."""

    ADAM = 0
    SGD = 1
    MOMENTUM = 2
    LION = 3
    ADAFACTOR = 4
    MUON = 5


class StatePrecision(CodeEnum):
    """Format of the optimizer's moments; ``FRAMEWORK``: as the framework keeps them."""

    FRAMEWORK = 0
    FP32 = 1
    BF16 = 2
    FP8 = 3
    INT8 = 4


class MainPrecision(CodeEnum):
    """Format of the weights that are updated, or of the gradients that are added up."""

    FRAMEWORK = 0
    FP32 = 1
    BF16 = 2


class PipelineSchedule(CodeEnum):
    """Order of forward and backward chunks on a pipeline stage."""

    ONE_FORWARD_ONE_BACKWARD = 0
    INTERLEAVED = 1
    ZERO_BUBBLE = 2
    DUALPIPE = 3


class TokenDispatcher(CodeEnum):
    """How tokens reach their experts: by the framework's default or a named dispatcher."""

    AUTO = 0
    ALLGATHER = 1
    ALLTOALL = 2
    FLEX = 3


class ContextExchange(CodeEnum):
    """Exchange of keys between context-parallel ranks: a ring, or tokens traded for heads."""

    P2P = 0
    A2A = 1


class AdapterKind(StrEnum):
    """Trained weights: all, or an adapter of frozen ones (4-bit for qlora).

    Low-rank adapters; ``PROMPT``: embeddings of virtual tokens before each sequence; ``PREFIX``:
    keys and values of virtual tokens in each layer.
    """

    NONE = "none"
    LORA = "lora"
    QLORA = "qlora"
    PROMPT = "prompt"
    PREFIX = "prefix"

    @property
    def is_low_rank(self) -> bool:
        """Whether matrices have adapters of a rank."""
        return self in (AdapterKind.LORA, AdapterKind.QLORA)


class AdapterTargets(StrEnum):
    """Matrices with an adapter: queries and values, all of attention, or feed-forwards too.

    Whether routed experts have one too is a choice of its own; their router never has.
    """

    QUERY_VALUE = "query_value"
    ATTENTION = "attention"
    ALL_LINEAR = "all_linear"


class Padding(StrEnum):
    """How samples of different lengths fill sequences: packed or padded.

    ``PACKED``: several fill each; ``LONGEST``: padded to the longest of a micro-batch; ``FULL``:
    to the sequence; ``NONE``: one after the other without padding, each attends to itself alone.
    """

    PACKED = "packed"
    LONGEST = "longest"
    FULL = "full"
    NONE = "none"


class LinkKind(StrEnum):
    """Link between the GPUs of a node; ``NETWORK``: only the network between nodes."""

    NVLINK = "nvlink"
    PCIE = "pcie"
    XGMI = "xgmi"
    ROCE = "roce"
    ICI = "ici"
    NEURONLINK = "neuronlink"
    XE_LINK = "xe_link"
    NETWORK = "network"

    @property
    def reaches_memory(self) -> bool:
        """True if GPUs can write into each other's memory over this link.

        NVIDIA/TransformerEngine issue 1071: its buffers need CUDA multicast, which NVLink has;
        ROCm/TransformerEngine pull request 367 has them on Infinity Fabric.
        """
        return self not in (LinkKind.PCIE, LinkKind.NETWORK)


class AttentionKernels(StrEnum):
    """GPU generation that fused attention kernels are written for.

    ``NATIVE``: each architecture (cuDNN, FlashAttention-3); ``FLASH_ATTENTION_2``: Ampere and Ada;
    ``PORTABLE``: none in particular (Triton, FlashAttention-1).
    """

    NATIVE = "native"
    FLASH_ATTENTION_2 = "flash_attention_2"
    PORTABLE = "portable"


class AttentionKind(StrEnum):
    """Attention with keys and values per head, with a compressed latent, or with a state.

    ``COMPRESSED`` has one head for keys and values, and few entries for far tokens. ``LINEAR`` is
    the gated delta net, ``LIGHTNING`` linear attention whose decay is fixed, ``MAMBA1`` and
    ``MAMBA2`` are state-space layers, ``CONVOLUTION`` one over the last few tokens: they have a
    state of fixed size instead of keys and values.
    """

    STANDARD = "standard"
    LATENT = "latent"
    COMPRESSED = "compressed"
    LINEAR = "linear"
    LIGHTNING = "lightning"
    MAMBA1 = "mamba1"
    MAMBA2 = "mamba2"
    CONVOLUTION = "convolution"


class PositionEmbedding(StrEnum):
    """Position encoding of a model; only ``LEARNED`` has parameters."""

    ROTARY = "rotary"
    LEARNED = "learned"
    ALIBI = "alibi"
    NONE = "none"


class TemplateKind(StrEnum):
    """Kind of runs in a table that `planner validate` writes as a template."""

    TRAINING = "training"
    STATIC = "static"
    SERVING = "serving"
    RL = "rl"


class Contract(StrEnum):
    """On what terms a GPU is had; ``RESERVED`` is of another term, or of one that is not stated."""

    ON_DEMAND = "on-demand"
    SPOT = "spot"
    RESERVED_1Y = "reserved-1y"
    RESERVED_3Y = "reserved-3y"
    RESERVED_5Y = "reserved-5y"
    RESERVED = "reserved"
    CAPACITY_BLOCK = "capacity-block"
    OWNED = "owned"
