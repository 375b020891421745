"""Layers with a state in plain floats: Mamba-2 (arXiv:2405.21060), gated delta net (2412.06464)."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

from scalar_machine import Layout, World, fused_kernel, tokens

from planner.specs.attention import AttentionSpec


@dataclass(frozen=True, kw_only=True)
class State:
    """Groups of keys and their size, heads of values and theirs, taps of the convolution."""

    groups: int
    key: int
    heads: int
    value: int
    taps: int
    delta: bool

    @classmethod
    def of(cls, a: AttentionSpec) -> State:
        return cls(
            groups=a.linear_num_key_heads,
            key=a.linear_key_head_dim,
            heads=a.linear_num_value_heads,
            value=a.linear_value_head_dim,
            taps=a.linear_conv_kernel_dim,
            delta=a.kind == "linear",
        )

    @property
    def channels(self) -> int:
        """What the convolution mixes: queries (C), keys (B), values (x)."""
        return self.groups * self.key + self.groups * self.key + self.heads * self.value

    @property
    def inner(self) -> int:
        return self.heads * self.value

    @property
    def projected(self) -> int:
        """Channels, the gate z, and a step per head; the delta rule has a decay and a beta."""
        return self.channels + self.inner + self.heads + (self.heads if self.delta else 0)


def parameters(h: int, state: State) -> dict[str, int]:
    """A convolution bias, a skip D and a norm over all channels are Mamba's alone."""
    counts = {
        "in_projection": h * state.projected,
        "convolution": state.taps * state.channels,
        "A_log": state.heads,
        "dt_bias": state.heads,
        "out_projection": state.inner * h,
    }
    if state.delta:
        return counts | {"norm": state.value}
    return counts | {"convolution_bias": state.channels, "D": state.heads, "norm": state.inner}


def scan_flops_per_token(state: State) -> float:
    """Per chunk of C tokens, every product as 2 m n k; then the state is updated and read."""
    numbers = state.heads * state.key * state.value
    if state.delta:
        chunk, per_head = 64, 0.0
        per_head += 2 * chunk * state.key * 2  # keys with keys, queries with keys
        per_head += 2 * chunk * (state.key + state.value)  # what the chunk writes, twice solved
        per_head += 2 * chunk * state.value  # scores with values
        return state.heads * per_head + 3 * 2 * numbers
    chunk = 128
    scores = 2 * chunk * state.groups * state.key
    return scores + 2 * chunk * state.inner + 2 * 2 * numbers


def scan_bytes_per_token(state: State) -> float:
    """Channels in 16 bit read twice, outputs written, and the states between chunks."""
    numbers = state.heads * state.key * state.value
    states = (2 + 2) * numbers / 64 if state.delta else (4 + 4 + 2 + 2) * numbers / 128
    return 2 * 2 * state.channels + 2 * state.inner + states


def scan(world: World, layout: Layout, state: State) -> float:
    """Forward seconds, at the efficiency of attention kernels that are portable."""
    n, t = tokens(world, layout), layout.tensor_parallel
    kernel = SimpleNamespace(heads=state.heads / t, head_dim=state.value, kernels="portable")
    flops = n * scan_flops_per_token(state) / t
    return fused_kernel(world, layout, kernel, flops, n * scan_bytes_per_token(state) / t)
