"""Steps of reinforcement learning: how placements differ, and what their parts are."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from planner.base.enums import AdapterKind, AdapterTargets, Quantization
from planner.base.software_enums import Placement, WeightSync
from planner.base.training_aliases import AdapterSync, SavedModules
from planner.configurations.rl import RlConfigurations
from planner.estimators.machine import Machine
from planner.estimators.rl.rl_inputs import RlInputs
from planner.estimators.rl.rl_step import MEMORY_PHASES, evaluate_rl
from planner.estimators.timeline.step_timelines import rl_timeline
from planner.specs.catalogue import Catalogue
from planner.specs.hardware import default_cluster
from planner.specs.training_workload import RlWorkload, transfers

CATALOGUE = Catalogue()
LAYOUT = {"tensor_parallel": 2, "sequence_parallel": True, "micro_batch_size": 1, "zero_stage": 1}
WORK = RlWorkload(
    prompts_per_step=64,
    samples_per_prompt=16,
    input_tokens=128,
    output_tokens=1000,
    output_variation=0.8,
    output_cap=4096,
)


def machine_of(name):
    gpu = CATALOGUE.load_gpu(name).spec
    return Machine(gpu=gpu, cluster=default_cluster(gpu), catalogue=CATALOGUE)


def setting_of(work=WORK, model="llama-3.1-8b", framework="nemo-rl"):
    return RlInputs(
        machine=machine_of("h100"),
        model=CATALOGUE.load_model(model),
        framework=CATALOGUE.load_framework(framework).spec,
        engine=CATALOGUE.load_engine("vllm").spec,
        workload=work,
    )


def step_of(work=WORK, framework="nemo-rl", **values):
    plain = {"num_gpus": [16.0], "global_batch_size": 512, **LAYOUT}
    setting = setting_of(work, framework=framework)
    return evaluate_rl(setting, RlConfigurations.of(**{**plain, **values}))


def test_phases_of_colocated_ones_add_up_to_the_step():
    step = step_of()
    whole = sum(step.times.values()) + step.inputs.rollouts.step_overhead
    assert step.total == pytest.approx(whole)
    assert sum(step.shown_times().values()) == pytest.approx(step.total[0])


def test_shown_phases_add_up_to_the_step_where_sides_work_together():
    step = step_of(placement=Placement.ONE_STEP_OFF, train_gpus=8)
    assert sum(step.shown_times().values()) == pytest.approx(step.total[0])


def test_separate_sides_lack_the_switch_alone():
    colocated, separate = step_of(), step_of(placement=Placement.SEPARATE, train_gpus=8)
    assert separate.times["switch"] == 0
    assert colocated.times["switch"] > 0
    assert separate.times["generate"] > colocated.times["generate"]
    assert separate.trainer_idle > 0.3


def test_one_step_off_takes_the_longer_side():
    step = step_of(placement=Placement.ONE_STEP_OFF, train_gpus=8)
    longer = np.maximum(step.generate, step.trains)
    assert step.total == pytest.approx(longer + step.times["sync"])


def test_async_takes_turns_without_staleness_and_with_one_step_is_one_step_off():
    one = step_of(placement=Placement.ONE_STEP_OFF, train_gpus=8)
    other = step_of(placement=Placement.ASYNC, train_gpus=8, staleness=1)
    assert other.total == pytest.approx(one.total)
    none = step_of(placement=Placement.ASYNC, train_gpus=8)
    assert none.total == pytest.approx(step_of(placement=Placement.SEPARATE, train_gpus=8).total)
    assert sum(none.shown_times().values()) == pytest.approx(none.total[0])


def test_more_staleness_leaves_less_of_the_tail():
    steps = [
        step_of(placement=Placement.ASYNC, train_gpus=8, staleness=k, partial_rollout=True)
        for k in (1, 2, 8)
    ]
    times = [float(step.generate[0]) for step in steps]
    assert times[0] > times[1] > times[2] > float(steps[0].rollout.steady[0])


def test_a_step_that_takes_what_is_done_meets_no_tail():
    of = {"placement": Placement.ASYNC, "train_gpus": 8, "staleness": 1, "partial_rollout": True}
    waits, takes = step_of(**of), step_of(framework="verl-megatron", **of)
    assert waits.tail_share == 1
    assert takes.tail_share == 0
    assert takes.generate == pytest.approx(takes.rollout.steady)


def test_experts_wait_for_the_host_in_each_micro_batch():
    setting = setting_of(model="qwen3-30b-a3b")
    layout = RlConfigurations.of(
        num_gpus=[16.0], global_batch_size=512, expert_parallel=8, recompute=1, zero_stage=1
    )
    execution = replace(setting.framework.execution, expert_host_wait=0.0)
    none = replace(setting, framework=replace(setting.framework, execution=execution))
    steps = [evaluate_rl(one, layout) for one in (setting, none)]
    assert float(steps[0].times["update"][0]) > 1.5 * float(steps[1].times["update"][0])


def test_partial_rollouts_cut_the_tail_off_and_compute_prefixes_again():
    plain, partial = step_of(), step_of(partial_rollout=True)
    assert partial.generate < plain.generate
    assert partial.generate > plain.rollout.steady


def test_a_pass_takes_less_than_an_update_and_more_models_more():
    step = step_of()
    assert 0 < step.trainer.one_pass < step.trainer.update / 2
    ppo = step_of(replace(WORK, critic=True))
    assert ppo.times["values"] == pytest.approx(ppo.trainer.one_pass + ppo.trainer.update)
    assert step_of(replace(WORK, old_logprob=False)).times["old_logprob"] == 0


def test_longer_answers_and_redrawn_prompts_take_longer():
    plain = step_of().generate
    assert step_of(replace(WORK, output_cap=8192)).generate > plain
    assert step_of(replace(WORK, flat_groups=0.5)).generate > plain
    assert step_of(replace(WORK, samples_per_prompt=32)).generate > plain


def test_equal_answers_leave_no_lane_idle():
    work = replace(WORK, output_cap=1000)
    assert step_of(work).rollout.lanes_idle == pytest.approx(0, abs=0.01)
    assert step_of().rollout.lanes_idle > 0.5


def test_weights_are_handed_over_by_the_method():
    known, size = transfers(), 2 * 8.03e9
    for method in (WeightSync.NCCL, WeightSync.HOST, WeightSync.PACKED):
        step = step_of(weight_sync=method)
        expected = known[method].start + size / known[method].rate
        assert step.times["sync"] == pytest.approx(expected, rel=0.01)
    half = step_of(rollout_quantization=Quantization.FP8, weight_sync=WeightSync.NCCL)
    assert half.times["sync"] < step_of(weight_sync=WeightSync.NCCL).times["sync"]
    assert step_of().method == WeightSync.IPC


def test_weights_of_a_7b_reach_the_engine_on_the_same_gpus_in_a_second():
    """verl pull request 1609: 0.95 s; NeMo-RL issue 959: 4 to 8 s of an 8B with its refit."""
    sync = evaluate_rl(
        setting_of(model="qwen2-7b", framework="verl"),
        RlConfigurations.of(num_gpus=[8.0], global_batch_size=512, zero_stage=3),
    ).times["sync"]
    assert float(np.max(sync)) == pytest.approx(0.95, abs=0.3)
    assert 2.5 < step_of().times["sync"] < 8


def test_what_stays_on_the_gpu_is_no_longer_free():
    away, stays = step_of(), step_of(offload_train=False)
    generate, update = (MEMORY_PHASES.index(name) for name in ("generate", "update"))
    assert stays.phase_memory[generate] > away.phase_memory[generate] + 2**30
    assert stays.times["switch"] < away.times["switch"]
    assert stays.host_memory < away.host_memory
    awake = step_of(offload_rollout=False)
    assert awake.phase_memory[update] > away.phase_memory[update] + 2**30


@pytest.mark.parametrize("offload", [True, False])
def test_each_phase_holds_what_both_sides_have_of_the_gpu(offload):
    step = step_of(offload_train=offload, offload_rollout=offload)
    trainer, memory = step.trainer, step.rollout.memory
    generate, wake_up, update, *_ = step.phase_memory
    told = np.maximum(memory.usable, step.rollout.needed)
    reference = 0.0 if offload else trainer.reference
    stays = trainer.reserved + reference + (0.0 if offload else trainer.states)
    assert generate == pytest.approx(told + stays)
    left = memory.reserved if offload else told
    assert update == pytest.approx(trainer.peak_memory + reference + left)
    both = memory.weights + memory.reserved + trainer.weights + trainer.reserved
    assert wake_up == pytest.approx(both + 2 * 2**30)
    apart = step_of(placement=Placement.SEPARATE, train_gpus=8, offload_train=offload)
    group = apart.inputs.framework.memory.communication_buffer
    received = 2 * 2**30 + group
    assert apart.phase_memory[0] == pytest.approx(apart.rollout.memory.usable + received)
    assert apart.phase_memory[1] == 0
    assert apart.phase_memory[2] == pytest.approx(apart.trainer.peak_memory + reference)


def test_a_reference_model_waits_where_the_trainer_does():
    alone = replace(WORK, reference_model=False)
    for offload, on_gpu in ((True, 0.0), (False, 8.03e9)):
        kept = [step_of(work, offload_train=offload) for work in (WORK, alone)]
        update = MEMORY_PHASES.index("update")
        extra = kept[0].phase_memory[update] - kept[1].phase_memory[update]
        assert extra == pytest.approx(on_gpu, rel=0.1, abs=1e6)
        assert kept[0].host_memory - kept[1].host_memory == pytest.approx(
            8.03e9 - on_gpu, rel=0.1, abs=1e9
        )


def test_answers_of_linear_attention_are_padded_where_they_are_not_packed():
    def updates(model, framework):
        layout = RlConfigurations.of(num_gpus=[16.0], global_batch_size=512, **LAYOUT)
        step = evaluate_rl(setting_of(model=model, framework=framework), layout)
        return float(step.times["update"][0])

    padded, packed = (updates("qwen3.5-9b", name) for name in ("verl-megatron", "slime"))
    assert padded / packed > 2
    alike = [updates("llama-3.1-8b", name) for name in ("verl-megatron", "slime")]
    assert alike[0] / alike[1] == pytest.approx(1, abs=0.2)


def test_a_micro_batch_has_no_more_than_a_rank_has():
    full = replace(WORK, micro_batch_tokens=65536)
    small = [step_of(full, global_batch_size=size).trainer.peak_memory for size in (64, 128, 512)]
    assert small[0] < small[1] < small[2]


def test_the_balanced_split_balances():
    step = step_of(num_gpus=[64.0], placement=Placement.ONE_STEP_OFF, train_gpus=8)
    trains = np.round(step.balanced_train_gpus / 2) * 2
    other = step_of(num_gpus=[64.0], placement=Placement.ONE_STEP_OFF, train_gpus=trains)
    assert other.imbalance < step.imbalance


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"partial_rollout": True, "staleness": 1},
        {"placement": Placement.SEPARATE, "train_gpus": 8},
        {"placement": Placement.ASYNC, "train_gpus": 8},
        {"placement": Placement.ASYNC, "train_gpus": 8, "staleness": 1},
    ],
)
def test_lanes_of_a_step_are_full(values):
    step = step_of(**values)
    line = rl_timeline(step)
    for lane in (0, 1):
        spans = [*line.of_lane(lane)]
        assert sum(line.seconds(lane).values()) == pytest.approx(float(step.total[0]))
        for before, after in pairwise(spans):
            assert after.start == pytest.approx(before.end)
    idle = line.seconds(0).get("idle", 0.0) / line.makespan
    if not step.configurations.colocated:
        assert idle == pytest.approx(float(step.trainer_idle[0]), abs=0.01)


ADAPTED = replace(WORK, adapter=AdapterKind.LORA, lora_targets=AdapterTargets.ALL_LINEAR)


def test_adapters_need_less_memory_in_each_place():
    """No gradients and states of frozen weights, and no reference model beside them."""
    whole, adapted = (step_of(work, "verl", offload_train=True) for work in (WORK, ADAPTED))
    assert adapted.trainer.states < 0.5 * whole.trainer.states
    assert adapted.trainer.reference == 0 < whole.trainer.reference
    assert adapted.phase_memory[2] < whole.phase_memory[2]
    assert adapted.host_memory < whole.host_memory
    assert adapted.times["switch"] < whole.times["switch"]
    assert adapted.times["update"] < whole.times["update"]


def test_the_reference_is_a_pass_with_the_adapters_switched_off():
    none = step_of(replace(ADAPTED, reference_model=False), "verl")
    one = step_of(ADAPTED, "verl")
    assert none.times["reference"] == 0 < one.times["reference"]
    assert none.peak_memory == pytest.approx(one.peak_memory)


def test_the_engine_is_given_adapters_alone_or_all_weights():
    """Of rank 16, 2 x 16 numbers for each row and column of the seven matrices of a layer."""
    whole, alone = step_of(framework="verl"), step_of(ADAPTED, "verl")
    merged = step_of(replace(ADAPTED, adapter_sync=AdapterSync.MERGED), "verl")
    start = transfers()[WeightSync.IPC].start
    assert merged.times["sync"] == pytest.approx(whole.times["sync"])
    rows = 2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 14336)
    rate = transfers()[WeightSync.IPC].rate
    assert alone.times["sync"] == pytest.approx(start + 2 * 32 * 16 * rows / rate)
    assert alone.memory_parts[1]["bucket"] == pytest.approx(2 * 32 * 16 * rows)
    assert merged.times["generate"] == pytest.approx(whole.times["generate"])
    assert alone.times["generate"] > merged.times["generate"]


def test_modules_that_are_trained_whole_are_given_whole():
    saved = replace(ADAPTED, modules_to_save=SavedModules.EMBEDDINGS)
    assert step_of(saved, "verl").times["sync"] == pytest.approx(
        step_of(framework="verl").times["sync"]
    )


def test_an_engine_that_a_framework_gives_merged_weights_is_given_them():
    asked = setting_of(ADAPTED, framework="verl")
    assert asked.serves_adapter
    sglang = replace(asked, engine_word="sglang")
    assert not sglang.serves_adapter
    told = replace(ADAPTED, adapter_sync=AdapterSync.ADAPTER)
    assert replace(sglang, workload=told).serves_adapter


APART = {"placement": Placement.SEPARATE, "train_gpus": 8, "offload_train": False}


def step_on(rollout_gpu, layout=APART, **values):
    """A step whose engine is on 8 GPUs of another type."""
    setting = replace(setting_of(), rollout_machine=machine_of(rollout_gpu))
    plain = {"num_gpus": [16.0], "global_batch_size": 512, **LAYOUT, **layout}
    return evaluate_rl(setting, RlConfigurations.of(**{**plain, **values}))


def test_each_side_has_the_speed_and_memory_of_its_gpu():
    """The same type is one type; a slower engine slows generation alone; memory is by side."""
    one, same, h20 = step_of(**APART), step_on("h100"), step_on("h20")
    assert same.total == pytest.approx(one.total)
    assert h20.trains == pytest.approx(one.trains)
    assert h20.phase_memory[2] == pytest.approx(one.phase_memory[2])
    large, room = step_on("mi300x"), machine_of("mi300x").gpu.allocatable_memory
    assert large.phase_memory[0] > one.inputs.machine.gpu.allocatable_memory
    trainer_room = one.inputs.machine.gpu.allocatable_memory - large.phase_memory[2]
    assert large.headroom == pytest.approx(min(room - large.phase_memory[0], trainer_room))
    a100 = step_on("a100")
    assert a100.generate > 1.2 * one.generate


@pytest.mark.parametrize(("rate", "least"), [(10e9 / 8, 12.0), (400e9 / 8, 0.0)])
def test_new_weights_cross_the_slower_network(rate, least):
    """16 GB pass 8 cards of 10 Gbit/s in no less than 1.6 s, one card alone in 12.8 s."""
    machine = machine_of("h20")
    slow = replace(
        machine, cluster=replace(machine.cluster, scale_out=replace(
            machine.cluster.scale_out, bandwidth=rate, efficiency=1.0))
    )  # fmt: skip
    layout = RlConfigurations.of(num_gpus=[16.0], global_batch_size=512, **LAYOUT, **APART)
    packed, single = (
        evaluate_rl(replace(setting_of(), rollout_machine=slow),
                    replace(layout, weight_sync=np.int8(method))).times["sync"][0]
        for method in (WeightSync.PACKED, WeightSync.NCCL)
    )  # fmt: skip
    assert single >= max(least, packed)
    assert packed >= least / 8


def test_vendors_exchange_weights_through_files():
    assert step_on("mi300x").method == WeightSync.STORE
    assert step_on("h20").method == WeightSync.PACKED


def test_models_with_gpus_of_their_own_work_besides_the_policy():
    """A reference on as many GPUs is as fast as old log-probabilities: nobody waits for it."""
    shared = step_of(framework="openrlhf", **APART)
    apart = step_of(framework="openrlhf", num_gpus=[24.0], reference_gpus=8.0, **APART)
    assert apart.configurations.rollout_gpus == 8
    assert apart.times["reference"] == pytest.approx(0.0, abs=1e-9) != shared.times["reference"]
    freed = shared.phase_memory[2] - apart.phase_memory[2]
    assert freed == pytest.approx(shared.trainer.reference)
    assert 0 < apart.phase_memory[3] < shared.phase_memory[2]
    few = step_of(framework="openrlhf", num_gpus=[18.0], reference_gpus=2.0, **APART)
    assert few.times["reference"] > 2 * shared.times["reference"]
    assert few.phase_memory[3] > 0


def test_a_critic_with_gpus_of_its_own_frees_the_trainer():
    work = replace(WORK, critic=True)
    shared = step_of(work, "openrlhf", **APART)
    apart = step_of(work, "openrlhf", num_gpus=[24.0], critic_gpus=8.0, **APART)
    assert apart.times["values"] < 0.1 * shared.times["values"]
    assert apart.phase_memory[2] == pytest.approx(shared.phase_memory[2] - shared.trainer.states)


@pytest.mark.parametrize(("share", "most"), [(0.95, 0.0), (0.9, 4.0)])
def test_weights_arrive_beside_a_cache_that_fills_the_card(share, most):
    """GRPO of a 70B ran out with OpenRLHF's engine on 95 % of 8 A800: OpenRLHF/OpenRLHF#776."""
    step = evaluate_rl(
        replace(
            setting_of(model="llama-3.1-70b", framework="openrlhf"), machine=machine_of("a800")
        ),
        RlConfigurations.of(
            num_gpus=[40.0], global_batch_size=128, zero_stage=3, placement=Placement.SEPARATE,
            train_gpus=32, rollout_tensor_parallel=8, rollout_gpu_memory=share,
        ),
    )  # fmt: skip
    free = (step.capacities[0] - float(np.max(step.phase_memory[0]))) / 2**30
    assert most - 2 < free < most
