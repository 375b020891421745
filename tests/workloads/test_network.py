"""The network between nodes in a user's words."""

from __future__ import annotations

import pytest
from rows import each

from planner import estimate
from planner.errors import SearchSpaceError
from planner.specs.catalogue import Catalogue
from planner.specs.hardware import default_cluster
from planner.workloads.priced_hardware import with_network

_GBIT = 1e9 / 8
_WORDS = [  # words, Gbit/s of each of 8 GPUs of a node, GPUs that share a port
    ("10GbE per node", 10 / 8, 8),
    ("10 GbE per node", 10 / 8, 8),
    ("10 Gbit/s per node", 10 / 8, 8),
    ("10Gbps/node", 10 / 8, 8),
    ("10G per host", 10 / 8, 8),
    ("10 gigabit ethernet per node", 10 / 8, 8),
    ("2x 25GbE per server", 50 / 8, 4),
    ("100 Gbit/s per GPU", 100, 1),
    ("100 Gb/s per GPU", 100, 1),
    ("12.5 GB/s per GPU", 100, 1),
    ("12.5GB/s/gpu", 100, 1),
    ("3200 Gbit/s per node", 400, 1),
    ("3.2 Tbit/s per node", 400, 1),
    ("8x NDR per node", 400, 1),
    ("8 x 400G InfiniBand NICs per node", 400, 1),
    ("HDR InfiniBand per node", 25, 8),
    ("NDR per GPU", 400, 1),
    ("100 Mbit/s each node", 0.1 / 8, 8),
]


def _cluster(gpu="rtx4090"):
    return default_cluster(Catalogue(None).load_gpu(gpu).spec)


@each("words, rate, sharing", _WORDS)
def test_words_of_a_network(words, rate, sharing):
    out = with_network(_cluster(), words).scale_out
    assert out.bandwidth == pytest.approx(rate * _GBIT)
    assert out.gpus_per_nic == sharing


@each("words", ["10GbE", "fast", "10 parsecs per node", "0 Gbit/s per node", "per node",
                "10 GbE per rack", "10GiB per node", "", "-10 Gbit/s per node"])  # fmt: skip
def test_other_words_say_how_to_write_it(words):
    with pytest.raises(SearchSpaceError, match="10GbE per node"):
        with_network(_cluster(), words)


def test_without_words_it_is_that_of_the_cluster():
    assert with_network(_cluster(), None) == _cluster()


def test_a_slow_network_slows_what_crosses_nodes_alone():
    asked = {"model": "llama-3.1-8b", "gpu": "rtx4090", "sequence_length": 2048}
    asked |= {"global_batch_size": 16, "framework": "fsdp"}
    settings = {"zero_stage": 3, "recompute": "full", "micro_batch_size": 1}

    def found(num_gpus, network):
        return estimate(**asked, num_gpus=num_gpus, network=network, settings=settings)

    times = {
        key: found(*key).candidates.row["step_time_s"]
        for key in ((8, None), (8, "10GbE per node"), (16, "100GbE per node"),
                    (16, "10GbE per node"))
    }  # fmt: skip
    assert times[8, None] == times[8, "10GbE per node"]
    # Gathers and a scatter of 16 GB of weights leave each node at 1.25 GB/s.
    slow, fast = times[16, "10GbE per node"], times[16, "100GbE per node"]
    assert slow > 3 * fast
    assert slow > 2 * 16e9 / 1.25e9
    notes = found(16, "10GbE per node").plan.defaults
    assert "1.25 Gbit/s per GPU" in notes["cluster"]
