"""Shell scripts: what they start, and that no name can be more than a word."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from launched import TARGET, job_of, process, run, write

from planner.errors import LaunchError
from planner.launch.option_table import ParameterNote
from planner.launch.target import (
    MASTER_ADDR,
    NODE_RANK,
    CommandWords,
    LaunchDraft,
    LaunchOutputFile,
    ShellVariable,
)
from planner.launch.wrappers.write_script import make_files

ODD = ["it's", "$(touch hit)", "`touch hit`", 'a "b"', "one\ntwo", "*", "", "-x", "é \\", "a;b#c"]
TORCHRUN = "--nnodes 2 --nproc-per-node 8 --node-rank 1 --master-addr n0 --master-port 29500"
DATA = ShellVariable(name="DATA_PATH", meaning='prefix of "$(touch hit)" `touch hit` {a} }')


def started(
    folder: Path, draft: LaunchDraft, name: str, **environment: str
) -> list[dict[str, object]]:
    files = make_files(TARGET, job_of(), draft)
    write(folder, files)
    programs = ["torchrun", "accelerate", "deepspeed", "mpirun", "serve", "route"]
    said, ended = run(folder, name, programs, environment)
    assert ended.returncode == 0, ended.stderr
    assert not (folder / "hit").exists()
    return said


@pytest.mark.parametrize("launcher", ["", "torchrun"])
def test_words_arrive_as_they_are(tmp_path: Path, launcher: str) -> None:
    program = "serve" if not launcher else "train.py"
    draft = LaunchDraft(processes=(process(program, *ODD, launcher=launcher),))
    (one,) = started(tmp_path, draft, "train.sh")
    assert one["words"][-len(ODD) :] == ODD


def test_comments_end_nothing(tmp_path: Path) -> None:
    note = "first\ntouch hit\r\ntouch hit\u2028touch hit"
    remark = ParameterNote(parameter="a\ntouch hit", value="b\x1b[31m", note=note)
    argument = CommandWords(words=("serve", "x"), note=note)
    one = replace(process(), arguments=(argument,), notes=(note,), environment={"ODD": note})
    draft = LaunchDraft(processes=(one,), unexpressed=(remark,), left=(remark,), notes=(note,))
    (said,) = started(tmp_path, draft, "train.sh")
    assert said["environment"]["ODD"] == note
    assert "\x1b" not in (tmp_path / "train.sh").read_text()


def test_head_tells_what_was_predicted_and_what_is_not_said(tmp_path: Path) -> None:
    draft = LaunchDraft(
        processes=(process("serve"),),
        unexpressed=(ParameterNote(parameter="fp8_attention", value="true", note="no option"),),
        left=(ParameterNote(parameter="", value="", note="the learning rate"),),
    )
    text = make_files(TARGET, job_of(), draft)[0].text
    for words in ("fp8_attention = true: no option", "the learning rate", "step_time: ", " to ",
                  "Trial", "trial 1.2", "tensor_parallel=8", "16 x h100-sxm-80gb"):  # fmt: skip
        assert words in text


def test_what_the_user_must_set_is_asked_for(tmp_path: Path) -> None:
    draft = LaunchDraft(processes=(process("serve", DATA),))
    write(tmp_path, make_files(TARGET, job_of(), draft))
    said, ended = run(tmp_path, "train.sh", ["serve"])
    assert not said
    assert ended.returncode != 0
    assert 'DATA_PATH: prefix of "$(touch hit)" `touch hit` {a} }' in ended.stderr
    (one,) = started(tmp_path, draft, "train.sh", DATA_PATH="/a b/$x")
    assert one["words"] == ["/a b/$x"]
    assert not (tmp_path / "hit").exists()


def test_a_default_stands_where_nobody_sets_it(tmp_path: Path) -> None:
    odd = ShellVariable(name="FOLDER", meaning="", default="a }b \"$(touch hit)\" 'c' \\")
    place = replace(MASTER_ADDR, name="WHERE", default="here", suffix=":29500")
    (one,) = started(tmp_path, LaunchDraft(processes=(process("serve", odd, place),)), "train.sh")
    assert one["words"] == [odd.default, "here:29500"]


def test_a_single_quote_ends_no_script(tmp_path: Path) -> None:
    hub = ShellVariable(name="HUB", meaning="", default="o'rg/$(touch hit);x")
    path = ShellVariable(name="DATA_PATH", meaning="the model's data")
    draft = LaunchDraft(processes=(process("serve", hub, path),))
    (one,) = started(tmp_path, draft, "train.sh", DATA_PATH="a")
    assert one["words"] == [hub.default, "a"]
    _, ended = run(tmp_path, "train.sh", ["serve"])
    assert "the model\u2019s data" in ended.stderr
    (*_, two) = started(tmp_path, draft, "train.sh", DATA_PATH="a", HUB="b")
    assert two["words"] == ["b", "a"]


def test_torchrun_on_one_node(tmp_path: Path) -> None:
    draft = LaunchDraft(processes=(process("train.py", "--a", launcher="torchrun"),))
    (one,) = started(tmp_path, draft, "train.sh")
    assert one["words"] == ["--standalone", "--nproc-per-node", "8", "train.py", "--a"]


@pytest.mark.parametrize(
    ("launcher", "words"),
    [
        ("torchrun", TORCHRUN),
        ("accelerate", "launch --num_machines 2 --num_processes 16 --machine_rank 1 "
         "--main_process_ip n0 --main_process_port 29500"),
        # A launcher that needs ssh and a list of hosts gives way to one that needs neither.
        ("deepspeed", TORCHRUN),
        ("mpirun", "-np 16"),
    ],
)  # fmt: skip
def test_several_nodes(tmp_path: Path, launcher: str, words: str) -> None:
    draft = LaunchDraft(processes=(process("train.py", launcher=launcher, num_nodes=2),))
    (one,) = started(tmp_path, draft, "train.sh", NODE_RANK="1", MASTER_ADDR="n0")
    assert one["words"] == [*words.split(), "train.py"]
    if launcher != "mpirun":
        said, ended = run(tmp_path, "train.sh", [launcher], {"MASTER_ADDR": "n0"})
        assert len(said) == 1
        assert "NODE_RANK" in ended.stderr


def test_later_nodes_get_words_of_their_own(tmp_path: Path) -> None:
    follower = (CommandWords(words=("--headless",)),)
    one = process("serve", NODE_RANK, MASTER_ADDR, num_nodes=2, follower_arguments=follower)
    draft = LaunchDraft(processes=(one,))
    first = started(tmp_path, draft, "train.sh", NODE_RANK="0", MASTER_ADDR="n0")
    both = started(tmp_path, draft, "train.sh", NODE_RANK="1", MASTER_ADDR="n0")
    assert first[0]["words"] == ["0", "n0"]
    assert both[1]["words"] == ["1", "n0", "--headless"]


def test_copies_share_a_node(tmp_path: Path) -> None:
    port = ShellVariable(name="PORT", meaning="")
    one = process("serve", "--port", port, name="server", gpus_per_node=2, copies=6, port=8000)
    draft = LaunchDraft(processes=(one,))
    said = started(tmp_path, draft, "server.sh", TOGETHER="4")
    found = {(each["environment"]["CUDA_VISIBLE_DEVICES"], each["words"][1]) for each in said}
    assert found == {("0,1", "8000"), ("2,3", "8001"), ("4,5", "8002"), ("6,7", "8003")}
    (tmp_path / "said.jsonl").unlink()
    said = started(tmp_path, draft, "server.sh", FIRST_COPY="4", TOGETHER="2")
    found = {(each["environment"]["CUDA_VISIBLE_DEVICES"], each["words"][1]) for each in said}
    assert found == {("0,1", "8004"), ("2,3", "8005")}


def test_the_hundredth_copy_has_a_port_of_its_own_too(tmp_path: Path) -> None:
    own = ShellVariable(name="COPY", meaning="", prefix="A=", times=10, plus=16000)
    one = process("serve", own, name="server", copies=110, port=8100)
    (*_, said) = started(tmp_path, LaunchDraft(processes=(one,)), "server.sh", FIRST_COPY="104")
    assert said["words"] == ["A=17040"]


def test_pools_and_their_router_start_on_one_node(tmp_path: Path) -> None:
    urls = [ShellVariable(name=name, meaning="") for name in ("PREFILL_URL_1", "DECODE_URL_0")]
    draft = LaunchDraft(
        processes=(
            process("serve", "p", name="prefill", gpus_per_node=1, copies=2, port=8100),
            process("serve", "d", name="decode", gpus_per_node=4, port=8200),
            process("route", *urls, name="router", gpus_per_node=0, port=8000),
        )
    )
    said = started(tmp_path, draft, "start.sh", TOGETHER="4")
    gpus = sorted(
        (each["words"][0], each["environment"]["CUDA_VISIBLE_DEVICES"])
        for each in said
        if each["program"] == "serve"
    )
    assert gpus == [("d", "2,3,4,5"), ("p", "0"), ("p", "1")]
    (router,) = (each for each in said if each["program"] == "route")
    assert router["words"] == ["http://127.0.0.1:8101", "http://127.0.0.1:8200"]


def test_on_several_nodes_each_has_its_command(tmp_path: Path) -> None:
    url, own = (
        ShellVariable(name="DECODE_URL_0", meaning=""),
        ShellVariable(name="HOST_ADDRESS", meaning=""),
    )
    draft = LaunchDraft(
        processes=(
            process("serve", "p", name="prefill", gpus_per_node=1, copies=12, port=8100),
            process("serve", "d", own, name="decode", gpus_per_node=4, port=8200),
            process("route", url, name="router", gpus_per_node=0, port=8000),
        )
    )
    texts = write(tmp_path, make_files(TARGET, job_of(), draft))
    assert "on node 0: bash prefill.sh" in texts["prefill.sh"]
    assert "on node 1: FIRST_COPY=8 bash prefill.sh" in texts["prefill.sh"]
    assert "on node 1: FIRST_GPU=4 bash decode.sh" in texts["decode.sh"]
    said = started(tmp_path, draft, "prefill.sh", FIRST_COPY="8", TOGETHER="4")
    assert sorted(e["environment"]["CUDA_VISIBLE_DEVICES"] for e in said) == list("0123")
    (tmp_path / "said.jsonl").unlink()
    said = started(tmp_path, draft, "prefill.sh", FIRST_GPU="6", TOGETHER="2")
    assert sorted(e["environment"]["CUDA_VISIBLE_DEVICES"] for e in said) == ["6", "7"]
    (*_, one) = started(tmp_path, draft, "decode.sh", FIRST_GPU="4", HOST_ADDRESS="me")
    assert (one["environment"]["CUDA_VISIBLE_DEVICES"], one["words"][1]) == ("4,5,6,7", "me")
    (*_, one) = started(tmp_path, draft, "router.sh", NODE_1="n1")
    assert one["words"] == ["http://n1:8200"]
    _, ended = run(tmp_path, "router.sh", ["route"])
    assert "NODE_1: address of node 1" in ended.stderr


def test_one_command_starts_what_fits_on_a_node() -> None:
    two = (process("serve", name="a", gpus_per_node=4), process("serve", name="b", gpus_per_node=4))
    assert starts(LaunchDraft(processes=two)) == ["bash start.sh"]
    far = (*two, process("serve", name="c", num_nodes=2))
    assert starts(LaunchDraft(processes=far)) == [
        "bash a.sh  # on node 0",
        "FIRST_GPU=4 bash b.sh  # on node 0",
        "NODE_RANK=0 MASTER_ADDR=NODE_1 bash c.sh  # on nodes 1 to 2, NODE_RANK=0 to 1",
    ]
    many = (process("serve", name="d", gpus_per_node=4, copies=3, port=1),)
    assert starts(LaunchDraft(processes=many)) == [
        "bash d.sh  # on node 0",
        "FIRST_COPY=2 bash d.sh  # on node 1",
    ]
    more = (process("serve", name="d", copies=12, port=1),)
    assert starts(LaunchDraft(processes=more))[-1] == "# and so on: see d.sh"
    one = process("train.py", launcher="torchrun", num_nodes=2)
    steps = replace(one, name="benchmark")
    others = "# on the first node; NODE_RANK=1 on the other"
    assert starts(LaunchDraft(processes=(one,), benchmark=(steps,))) == [
        f"NODE_RANK=0 MASTER_ADDR=$(hostname) bash train.sh  {others}",
        f"NODE_RANK=0 MASTER_ADDR=$(hostname) bash benchmark.sh  {others}",
    ]


def starts(draft: LaunchDraft) -> list[str]:
    files = make_files(TARGET, job_of(), draft)
    return [line for file in files for line in file.start.splitlines()]


def test_files_are_found_from_anywhere(tmp_path: Path) -> None:
    draft = LaunchDraft(
        processes=(process("cat", "a.json"),), files=(LaunchOutputFile(name="a.json", text="{}"),)
    )
    folder = tmp_path / "b c"
    folder.mkdir()
    write(folder, make_files(TARGET, job_of(), draft))
    elsewhere = tmp_path / "x.sh"
    elsewhere.write_text(f"bash '{folder}/train.sh'\n")
    _, ended = run(tmp_path, "x.sh", [])
    assert ended.stdout == "{}"


def test_an_unknown_launcher_is_refused() -> None:
    with pytest.raises(LaunchError, match="horovodrun is not a known launcher"):
        make_files(TARGET, job_of(), LaunchDraft(processes=(process("a", launcher="horovodrun"),)))
