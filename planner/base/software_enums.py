"""Enumerations of the options of training software."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Self

from planner.base.enums import ALIASES, CodeEnum

if TYPE_CHECKING:
    from planner.base.arrays import BoolArray, CodeArray


class AttentionKernel(CodeEnum):
    """Kernels of the attention core in training.

    ``AUTO``: those of the framework. ``EAGER``: products and a softmax of their own; ``SDPA``:
    what PyTorch's scaled_dot_product_attention chooses on the GPU; ``FA2``, ``FA3``, ``FA4``:
    FlashAttention's generations; ``CUDNN``: NVIDIA's; ``TRITON``: FlexAttention's and others that
    are written for no one GPU; ``MASKED``: PyTorch's memory-efficient kernel, which SDPA takes
    under a mask, as of padding. It scores all pairs of tokens, those above the diagonal too.
    """

    AUTO = 0
    EAGER = 1
    SDPA = 2
    FA2 = 3
    FA3 = 4
    FA4 = 5
    CUDNN = 6
    TRITON = 7
    MASKED = 8


class LossKernel(CodeEnum):
    """Kernel of the loss, which sets how many copies of the logits exist.

    ``AUTO``: as the framework does. ``EAGER``: kernels of its own for each operation, in fp32;
    ``COMPILED``: what a compiler makes of these; ``FUSED``: one kernel; ``CHUNKED``: fp32 copies of
    a part of the tokens at a time; ``LINEAR``: logits of a part of the tokens at a time, too, fused
    with their matrix (Liger, cut cross-entropy, TRL's chunked_nll).
    """

    AUTO = 0
    EAGER = 1
    COMPILED = 2
    FUSED = 3
    CHUNKED = 4
    LINEAR = 5


class ExpertCompute(CodeEnum):
    """Computation of the experts of a GPU.

    ``AUTO``: as the framework does; ``GROUPED``: all in one grouped product; ``LOOP``: one after
    the other, each with kernels of its own, as Transformers before 5 does.
    """

    AUTO = 0
    GROUPED = 1
    LOOP = 2


class TorchCompile(CodeEnum):
    """Whether PyTorch compiles a model, so that what stands between matrix products is fused.

    ``AUTO``: as the framework's published runs; ``FALSE``: eager, a kernel for each operation;
    ``TRUE``: under torch.compile.
    """

    AUTO = 0
    FALSE = 1
    TRUE = 2


LAYER_INPUT, QKV_PROJ, CONTEXT, OUT_PROJ, MLPWI, MLPWO = TENSORS = (
    *("layer_input", "qkv_proj", "context", "out_proj", "mlpwi", "mlpwo"),
)
"""Tensors of a layer that full recomputation may keep, in the words of MaxText: what enters the
layer; queries, keys and values; what attention makes of them; its output projection; the outputs of
the first matrices of the feed-forward, and of its last."""


class _AllSets(type):
    """The interface of an enumeration for classes whose members are all sets of some names.

    There are hundreds of members; each is created on first use.
    """

    def __len__(cls) -> int:
        return 1 << len(cls._names)

    def __iter__(cls) -> Iterator[NameSet]:
        return map(cls, range(len(cls)))

    def __getitem__(cls, name: str) -> NameSet:
        """Return the set of a name such as "A+B" or "NONE"; KeyError for any other name."""
        members = [] if name == "NONE" else name.lower().split("+")
        code = sum(1 << bit for bit, member in enumerate(cls._names) if member in members)
        name_set: NameSet = cls(code)
        if name_set.name != name:
            raise KeyError(name)
        return name_set

    _names: tuple[str, ...] = ()


class NameSet(int, metaclass=_AllSets):
    """Sets of names, each a bit of the code; a word joins them by +. Else as `Code`."""

    def __new__(cls, code: int) -> Self:
        if not 0 <= code < len(cls):
            raise ValueError(f"{code!r} is not a valid {cls.__name__}")
        return super().__new__(cls, code)

    @property
    def name(self) -> str:
        """The word in upper case."""
        return self.word.upper()

    @property
    def word(self) -> str:
        """The names of the set, joined."""
        members = [name for bit, name in enumerate(self.names()) if self >> bit & 1]
        return "+".join(members) or "none"

    def __repr__(self) -> str:
        return f"<{type(self).__name__}.{self.name}: {int(self)}>"

    __str__ = int.__repr__

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Names that a set may contain, in bit order."""
        return cls._names

    @classmethod
    def words(cls) -> list[str]:
        """The empty set, and each name as a set."""
        return ["none", *cls.names()]

    @classmethod
    def usual(cls) -> list[str]:
        """Words that ``all`` stands for."""
        return cls.words()

    @classmethod
    def aliases(cls) -> Mapping[str, str]:
        """Aliases in common use, with the word of each."""
        return {**ALIASES[cls.__name__], **{name: name for name in cls.names()}}

    @classmethod
    def listed(cls) -> str:
        """The words as a list in a sentence."""
        return f"{', '.join(cls.words())}, or several joined by +"

    @classmethod
    def canonical_word(cls, text: str) -> str:
        """The canonical word of a set in any order, or of an alias.

        >>> (KeptTensors.canonical_word("out_proj+qkv_proj"),
        ... KeptTensors.canonical_word("save_qkv_proj"))
        ('qkv_proj+out_proj', 'qkv_proj')
        >>> RecomputedModules.canonical_word("norm_attention_norm")
        'attention+layernorm'
        """
        aliases = cls.aliases()
        spelled = text.lower().replace("-", "_")
        parts = [part.strip() for part in aliases.get(spelled, spelled).split("+")]
        names = {name for part in parts for name in aliases.get(part, part).split("+")}
        ordered = [name for name in cls.names() if name in names]
        return "+".join(ordered) if ordered and len(ordered) == len(names) else "+".join(parts)

    @classmethod
    def has(cls, codes: CodeArray, name: str) -> BoolArray:
        """Return a mask: True where a set (bit code) contains ``name``.

        >>> KeptTensors.has(KeptTensors["QKV_PROJ+CONTEXT"], "context")
        True
        """
        is_member: BoolArray = (codes >> cls.names().index(name)) & 1 == 1
        return is_member


MODULES = (
    *("core_attn", "attention", "layernorm", "mla_up_proj"),
    *("mlp", "moe", "shared_experts", "mlp_act", "moe_act"),
)
"""Modules of a layer that may be recomputed one by one, named as in Megatron-Core, and two more
(``attention`` and ``mlp_act``): ``core_attn`` scores, softmax and weighted values; ``attention``
from its normed input to its output projection; ``layernorm`` the norms; ``mla_up_proj`` from
latents to heads; ``mlp`` dense feed-forwards, ``moe`` those of experts, each with the norm before
it; ``shared_experts`` these alone; ``mlp_act`` and ``moe_act`` the functions inside
feed-forwards."""


class KeptTensors(NameSet):
    """The sets of such tensors, as array codes: which a configuration keeps, or moves to the host.

    >>> len(KeptTensors), KeptTensors(6), KeptTensors(0).word
    (64, <KeptTensors.QKV_PROJ+CONTEXT: 6>, 'none')
    """

    _names = TENSORS


class RecomputedModules(NameSet):
    """The sets of such modules, as array codes."""

    _names = MODULES


class Placement(CodeEnum):
    """Placement of trainer and engine in reinforcement learning.

    ``COLOCATED``: on the same GPUs, one after the other. ``SEPARATE``: each on its own, one after
    the other. ``ONE_STEP_OFF``: answers of the next step are generated while the previous step
    trains. ``ASYNC``: neither waits, within the staleness that is allowed.
    """

    COLOCATED = 0
    SEPARATE = 1
    ONE_STEP_OFF = 2
    ASYNC = 3


class WeightSync(CodeEnum):
    """Transfer of new weights from the trainer to the engine.

    ``AUTO``: as the framework does in the placement. ``IPC``: handed over on the same GPU.
    ``NCCL``: gathered and broadcast by one rank. ``RESHARD``: from each rank to those that need
    its part. ``HOST``: in buckets through pinned host memory. ``DELTA``: what has changed alone.
    ``STORE``: through files or objects. ``PACKED``: gathered by all ranks at once and broadcast in
    large buckets.
    """

    AUTO = 0
    IPC = 1
    NCCL = 2
    RESHARD = 3
    HOST = 4
    DELTA = 5
    STORE = 6
    PACKED = 7
