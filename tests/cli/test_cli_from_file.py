"""``planner estimate --from``: users' launch files, judged and improved."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

SCRIPT = """#!/bin/bash
#SBATCH --nodes=8
#SBATCH --gpus-per-node=8
TP=${TP:-8}
ARGS=(
  --num-layers 80 --hidden-size 8192 --num-attention-heads 64 --group-query-attention
  --num-query-groups 8
  --ffn-hidden-size 28672 --swiglu --normalization RMSNorm --position-embedding-type rope
  --disable-bias-linear --untie-embeddings-and-output-weights --vocab-size 128256
  --seq-length 8192 --max-position-embeddings 8192
  --micro-batch-size 1 --global-batch-size 256
  --tensor-model-parallel-size $TP  # as the node is
  --pipeline-model-parallel-size 4 --sequence-parallel
  --use-distributed-optimizer --bf16 --no-such-option 3
  --recompute-granularity full --recompute-method uniform --recompute-num-layers 1
  --attention-dropout 0 --hidden-dropout 0 --train-iters 1000 --lr 1e-4
)
srun torchrun --nproc_per_node 8 --nnodes $SLURM_NNODES pretrain_gpt.py "${ARGS[@]}"
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "run.sh"
    path.write_text(SCRIPT)
    path.chmod(0o755)
    return path


def test_a_users_file_is_judged(planner, script) -> None:
    done = planner("estimate", "--from", script, "--gpu", "h100")
    assert done.exit_code == 0
    for words in (
        "Read as: Megatron-LM, framework Megatron-LM, tp 8, pp 4",
        "recompute full",
        "--no-such-option",
        "Llama 3 70B",
        "64 x h100-sxm-80gb",
        "step time",
        "% likely",
        "recomputation",
        "Best change: `",
        "`without --recompute-granularity`",
    ):
        assert words in " ".join(done.out.split()), words


def test_a_users_file_gives_the_estimate_of_its_options(planner, script, tmp_path) -> None:
    one, other = tmp_path / "one.json", tmp_path / "other.json"
    assert planner(
        "estimate", "--from", script, "--gpu", "h100", "--json", one, "--quiet"
    ).exit_code == 0  # fmt: skip
    planner(
        "estimate", "--model", "llama-3-70b", "--gpu", "h100", "--gpus", "64", "--framework",
        "megatron-lm", "--set", "tp=8", "--set", "pp=4", "--set", "sp=true", "--set", "zero=1",
        "--set", "recompute=full", "--global-batch-size", "256", "--sequence-length", "8192",
        "--json", other, "--quiet",
    )  # fmt: skip
    rows = [json.loads(path.read_text())["rows"][0] for path in (one, other)]
    assert rows[0]["step_time_s"] == rows[1]["step_time_s"]
    assert rows[0]["peak_memory_gib"] == rows[1]["peak_memory_gib"]


def test_options_beside_the_file_replace_what_it_says(planner, script) -> None:
    done = planner("estimate", "--from", script, "--gpu", "h100", "--gpus", "128", "--set", "tp=4")
    assert done.exit_code == 0
    assert "128 x h100" in done.out
    assert "tp4 pp4 dp8" in done.out


def test_what_does_nothing_on_so_few_gpus_is_no_fault(planner, script) -> None:
    """Megatron takes a distributed optimizer of one rank, planner's rules do not."""
    done = planner("estimate", "--from", script, "--gpu", "h100", "--gpus", "32")
    assert "zero_stage" not in done.err
    assert "tp8 pp4 mbs1" in done.out or "does not fit" in done.err


def test_the_model_is_asked_for(planner, tmp_path) -> None:
    path = tmp_path / "ds_config.json"
    path.write_text('{"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2}}')
    done = planner("estimate", "--from", path)
    assert done.exit_code == 6
    assert "does not specify the model (--model). Set it together with --from." in done.err


@pytest.mark.slow
def test_the_best_change_is_made_in_the_file(planner, script) -> None:
    before = script.read_text()
    shown = planner("estimate", "--from", script, "--gpu", "h100", "--full")
    assert script.read_text() == before
    done = planner("estimate", "--from", script, "--gpu", "h100", "--write")
    assert done.exit_code == 0
    after = script.read_text()
    assert (script.parent / "run.sh.orig").read_text() == before
    assert script.stat().st_mode & 0o777 == 0o755
    removed = [line[1:] for line in shown.out.splitlines() if line.startswith("-  ")]
    assert removed
    for line in removed:
        assert line in before.splitlines()
        assert line not in after.splitlines()
    assert "--recompute-method" not in after
    faster = planner("estimate", "--from", script, "--gpu", "h100")
    assert "recompute full" not in faster.out
    assert planner("estimate", "--from", script, "--gpu", "h100", "--write").exit_code == 0


def test_a_search_says_what_the_users_plan_loses(planner, script) -> None:
    done = planner("search", "--from", script, "--gpu", "h100", "--framework", "megatron-lm")
    assert done.exit_code == 0
    assert "Yours: tp8 pp4 dp2" in done.out
    assert re.search(r"Yours: [^%]* % worse$", done.out, re.MULTILINE)


HOSTILE = {
    "too large.sh": ("echo\n" * 1_000_000, "is larger than 4 MiB"),
    "binary.sh": (b"\x7fELF\xff\xfe\x00", "is not UTF-8 text"),
    "nothing.sh": ("echo hello\n", "starts nothing that is supported"),
    "explodes.yaml": (
        "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
        + "".join(
            f"{name}: &{name} [{','.join([f'*{before}'] * 10)}]\n"
            for before, name in zip("abcdef", "bcdefg", strict=True)
        ),
        "aliases",
    ),
    "python.yaml": ("model: !!python/object/apply:os.system ['touch ran']\n", "python"),
    "twice.json": ('{"zero_optimization": {}, "zero_optimization": {}}', "zero_optimization"),
    "open.sh": ('torchrun pretrain_gpt.py --num-layers "8', "quote"),
    "none.yaml": ("apiVersion: v1\nkind: Secret\n", "is not a file of a supported tool"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_and_nothing_runs(planner, tmp_path, monkeypatch, name) -> None:
    monkeypatch.chdir(tmp_path)
    content, said = HOSTILE[name]
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    done = planner("estimate", "--from", path, "--gpu", "h100")
    assert done.exit_code == 6
    assert said in done.err
    assert [one.name for one in tmp_path.iterdir()] == [name]


def test_a_script_that_computes_its_values_is_asked_about(planner, tmp_path) -> None:
    path = tmp_path / "computed.sh"
    path.write_text(
        SCRIPT.replace("TP=${TP:-8}", f"TP=$(touch {tmp_path}/ran; nvidia-smi -L | wc -l)")
    )
    done = planner("estimate", "--from", path, "--gpu", "h100")
    assert not (tmp_path / "ran").exists()
    assert done.exit_code == 6 or "--tensor-model-parallel-size" in done.out


def test_an_option_that_stands_twice_is_told(planner, script) -> None:
    text = script.read_text().replace(
        "--sequence-parallel\n", "--sequence-parallel --micro-batch-size 2\n"
    )
    script.write_text(text)
    done = planner("estimate", "--from", script, "--gpu", "h100")
    told = "--micro-batch-size is set in line 11 and again in line 13"
    assert told in " ".join(done.out.split())
    assert "mbs2" in done.out


def test_line_ends_of_a_file_stay(planner, script) -> None:
    script.write_bytes(script.read_text().replace("\n", "\r\n").encode())
    assert planner("estimate", "--from", script, "--gpu", "h100", "--write").exit_code == 0
    written = script.read_bytes()
    assert written.count(b"\r\n") == written.count(b"\n") > 10


def test_a_change_is_one_that_the_target_can_say(planner, tmp_path) -> None:
    """DeepSpeed splits matrices, but not the sequence beside them."""
    path = tmp_path / "ds_config.json"
    path.write_text(
        json.dumps(
            {
                "train_micro_batch_size_per_gpu": 2,
                "gradient_accumulation_steps": 4,
                "bf16": {"enabled": True},
                "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}},
            },
            indent=2,
        )
    )
    asked = ("--model", "llama-3.1-8b", "--gpu", "a100", "--gpus", "8", "--sequence-length", "4096")
    done = planner("estimate", "--from", path, *asked, "--full")
    assert "The best change" in done.out
    assert "cannot be said" not in done.out
    assert "sequence_parallel" not in done.out.partition("The best change")[2]
    assert '+  "train_batch_size"' not in done.out  # the file leaves it to DeepSpeed


def test_workers_of_one_kind_are_served_by_others_like_them(planner, tmp_path) -> None:
    folder = tmp_path / "pools"
    asked = ("--model", "llama-3.1-8b", "--gpu", "h100", "--gpus", "4", "--mode", "disaggregated")
    planner("launch", "vllm", *asked, "--output", folder, "--quiet")
    alone = planner("estimate", "--from", folder / "decode.sh", "--gpu", "h100")
    assert alone.exit_code == 0
    assert "starts decode workers only" in alone.out
    whole = planner("estimate", "--from", folder)
    assert whole.exit_code == 0
    assert "on 4 x h100" in whole.out


def test_half_a_change_is_not_written(planner, tmp_path) -> None:
    """Recomputation is an argument of the script, which is not in DeepSpeed's document."""
    path = tmp_path / "z3.json"
    path.write_text('{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}')
    before = path.read_text()
    asked = ("--from", path, "--gpu", "h100", "--gpus", "8", "--model", "llama-3.1-8b")
    short = planner("estimate", *asked)
    assert "The file cannot express all of it." in " ".join(short.out.split())
    assert "---" not in short.out
    done = planner("estimate", *asked, "--full")
    assert "The file cannot express the whole change" in " ".join(done.out.split())
    assert "Options of the target: gradient_checkpointing true." in done.out
    told = done.out.partition("The best change")[2].split("\n\n")[0]
    assert re.search(r"Lost in each step: recomputation \d\d %.*\nOr .* instead of", told)
    assert "On other numbers of GPUs" not in told
    refused = planner("estimate", *asked, "--write")
    assert refused.exit_code == 6
    assert "nothing was written" in refused.err
    assert path.read_text() == before
    assert [one.name for one in tmp_path.iterdir()] == ["z3.json"]


def test_a_stage_changes_in_the_document_that_the_script_names(planner, tmp_path) -> None:
    """Two files of which the Trainer refuses numbers that differ; the rest is the script's."""
    script, config = tmp_path / "run.sh", tmp_path / "z3.json"
    script.write_text(
        "torchrun --nproc_per_node 8 train.py --model_name_or_path Qwen/Qwen-7B --bf16 \\\n"
        "    --per_device_train_batch_size 1 --gradient_accumulation_steps 4 \\\n"
        "    --model_max_length 512 --deepspeed z3.json --gradient_checkpointing True\n"
    )
    config.write_text(
        '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"},\n'
        ' "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": "auto"}\n'
    )
    done = planner("estimate", "--from", script, "--gpu", "h100", "--write")
    assert "`zero_optimization.stage 2`" in " ".join(done.out.split())
    assert '"stage": 2}' in config.read_text()
    assert '"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": "auto"' in (
        config.read_text()
    )
    assert "--per_device_train_batch_size 4 --gradient_accumulation_steps 1" in script.read_text()
    assert "--gradient_checkpointing false" in script.read_text()
    assert {one.name for one in tmp_path.iterdir()} == {
        *("run.sh", "run.sh.orig", "z3.json", "z3.json.orig")
    }


def test_a_batch_that_the_file_leaves_open_can_be_set(planner, tmp_path) -> None:
    path = tmp_path / "ds_config.json"
    path.write_text('{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}}')
    asked = ("--model", "llama-2-7b", "--gpu", "a100", "--gpus", "8", "--sequence-length", "2048")
    done = planner("estimate", "--from", path, *asked)
    settled = planner("estimate", "--from", path, *asked, "--set", "micro_batch_size=2")
    assert "mbs1 zero2" in done.out
    assert "mbs2 zero2" in settled.out


def test_a_list_of_arguments_is_read(planner, tmp_path) -> None:
    path = tmp_path / "arguments.txt"
    path.write_text(
        "--tensor-model-parallel-size 2 --num-layers 32 --hidden-size 4096 --swiglu\n"
        "--num-attention-heads 32 --ffn-hidden-size 11008 --normalization RMSNorm\n"
        "--disable-bias-linear --untie-embeddings-and-output-weights --vocab-size 32000\n"
        "--position-embedding-type rope --seq-length 2048 --max-position-embeddings 4096\n"
        "--micro-batch-size 1 --global-batch-size 128 --bf16 --sequence-parallel\n"
    )
    done = planner("estimate", "--from", path, "--gpu", "h100", "--gpus", "8")
    assert done.exit_code == 0
    assert "Megatron-LM" in done.out
    assert "tp2 dp4 mbs1" in done.out
    (tmp_path / "other.txt").write_text("--colour blue --size 7 --swiglu --depth 3\n")
    refused = planner("estimate", "--from", tmp_path / "other.txt", "--gpu", "h100")
    assert refused.exit_code == 6


def test_a_gpu_without_a_price_is_judged(planner, script) -> None:
    done = planner("estimate", "--from", script, "--gpu", "h800")
    assert done.exit_code == 0
    assert "unknown: give --price" in done.out


def test_more_tokens_per_second_are_not_called_faster(planner, tmp_path) -> None:
    """A fuller server makes each request wait longer: its times stand beside the gain."""
    path = tmp_path / "serve.sh"
    path.write_text(
        "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-num-batched-tokens 512 --enforce-eager "
        "--max-num-seqs 512\n"
    )
    alike = ("--input-variation", 0, "--output-variation", 0)
    done = planner("estimate", "--from", path, "--gpu", "h100", *alike, "--full")
    said = best_change(done)
    assert "more tokens/s" in said
    assert "faster" not in said
    assert "TPOT" in said


def best_change(done) -> str:
    return " ".join(done.out.partition("The best change")[2].partition("---")[0].split())


LENGTHS = ("--input-tokens", "1000", "--output-tokens", "1000")


@pytest.mark.parametrize(
    ("own", "beside", "is_free"),
    [
        ("", (), True),
        (" --max-num-seqs 8", (), False),
        ("", ("--set", "concurrency=8"), False),
        ("", ("--request-rate", "2"), False),
    ],
)
def test_no_change_raises_the_load_that_was_given(planner, tmp_path, own, beside, is_free) -> None:
    path = tmp_path / "serve.sh"
    path.write_text(f"vllm serve meta-llama/Llama-3.2-1B-Instruct{own}\n")
    done = planner("estimate", "--from", path, "--gpu", "a100", *LENGTHS, *beside, "--full")
    assert done.exit_code == 0
    assert ("concurrency" in best_change(done)) == is_free


def test_a_file_is_written_anew(planner, script, tmp_path) -> None:
    folder = tmp_path / "new"
    done = planner("launch", "megatron-lm", "--from", script, "--gpu", "h100", "--output", folder)
    assert done.exit_code == 0
    text = (folder / "train.sh").read_text()
    assert "--tensor-model-parallel-size 8" in text
    assert "--num-query-groups 8" in text


def test_an_option_that_goes_with_another_is_understood(planner, tmp_path) -> None:
    """8 bit needs both: --bf16 for what is no matrix product, and the format of those that are."""
    folder = tmp_path / "run"
    asked = ("--model", "llama-2-7b", "--gpu", "h100", "--gpus", "8", "--precision", "fp8")
    planner("launch", "megatron-lm", *asked, "--output", folder, "--quiet")
    done = planner("estimate", "--from", folder / "train.sh")
    assert done.exit_code == 0
    assert "precision fp8" in " ".join(done.out.split())
    assert "The file alone does not say" not in done.out


@pytest.mark.slow
def test_samples_that_nothing_packs_may_be_as_long_as_fits(planner, tmp_path):
    """hiyouga/LLaMA-Factory issue 7197 ran so on molecules of some hundred tokens."""
    path = tmp_path / "lf.yaml"
    path.write_text(
        "model_name_or_path: meta-llama/Llama-3.1-8B-Instruct\nstage: sft\nfinetuning_type: lora\n"
        "lora_target: all\nlora_rank: 16\ncutoff_len: 2048\npacking: false\nbf16: true\n"
        "per_device_train_batch_size: 4\ngradient_accumulation_steps: 4\n"
    )
    asked = ("estimate", "--from", path, "--gpu", "rtx4090", "--gpus", "7")
    said = " ".join(planner(*asked).out.split())
    longest = int(re.search(r"the plan fits if none is longer than ([\d,]+) tokens", said)[1])
    assert planner(*asked, "--sequence-length", str(longest)).exit_code == 0
    assert planner(*asked, "--sequence-length", str(longest + 1)).exit_code == 4
    path.write_text(path.read_text().replace("packing: false", "packing: true"))
    assert "not packed" not in planner(*asked).out


def test_copies_of_fsdp1_go_in_its_own_word(planner, tmp_path):
    script, config = tmp_path / "run.sh", tmp_path / "fsdp.yaml"
    config.write_text(
        "distributed_type: FSDP\nfsdp_config:\n"
        "  fsdp_sharding_strategy: HYBRID_SHARD  # copies on each node\n"
        "  fsdp_activation_checkpointing: true\nmixed_precision: bf16\n"
    )
    script.write_text(
        "accelerate launch --config_file fsdp.yaml --num_processes 32 --num_machines 4 train.py "
        "--model_name_or_path Qwen/Qwen2.5-32B --per_device_train_batch_size 1 "
        "--gradient_accumulation_steps 4 --max_seq_length 8192 --bf16\n"
    )
    done = planner("estimate", "--from", script, "--gpu", "a100", "--write")
    assert "`fsdp_config.fsdp_sharding_strategy FULL_SHARD`" in " ".join(done.out.split())
    assert "fsdp_sharding_strategy: FULL_SHARD  # copies on each node" in config.read_text()
    assert planner("estimate", "--from", script, "--gpu", "a100").exit_code == 0
