"""Traces of requests: the published formats, own files, and what is wrong with a file."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from planner.errors import SpecError
from planner.logs.traces import read_trace

FORMATS = {
    "azure.csv": """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.5000000,4808,10
2023-11-16 18:17:04.0000000,3180,8
2023-11-16 18:17:05.5000000,110,27
""",
    "burstgpt.csv": """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,4808,10,4818,Conversation log
5.5,ChatGPT,3180,8,3188,Conversation log
6,GPT-4,900,0,900,API log
7,GPT-4,110,27,137,API log
""",
    "mooncake.jsonl": """{"timestamp": 0, "input_length": 4808, "output_length": 10, "x": [0]}
{"timestamp": 500, "input_length": 3180, "output_length": 8}

{"timestamp": 2000, "input_length": 110, "output_length": 27}
""",
    "bailian.jsonl": """{"chat_id": 1, "timestamp": 61.0, "input_length": 4808, "output_length": 10}
{"chat_id": 2, "timestamp": 61.5, "input_length": 3180, "output_length": 8}
{"chat_id": 1, "timestamp": 63.0, "input_length": 110, "output_length": 27}
""",
    "own.csv": """\ufeffid,Arrival Time (ms),prompt_tokens,completion_tokens
a,1000,4808,10
b,1500,3180,8
c,3000,110,27
""",
    "zoned.csv": """arrived_at,input_len,output_len
2026-01-01T00:00:00Z,4808,10
2026-01-01T00:00:00.5Z,3180,8
2026-01-01T00:00:02Z,110,27
""",
}  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_published_formats_and_own_files_tell_the_same_requests(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(FORMATS[name], encoding="utf-8")
    trace = read_trace(path)
    assert trace.times.tolist() == pytest.approx([0.0, 0.5, 2.0])
    assert trace.input_tokens.tolist() == [4808, 3180, 110]
    assert trace.output_tokens.tolist() == [10, 8, 27]
    assert trace.unanswered == (1 if name == "burstgpt.csv" else 0)
    assert trace.request_rate == 1.5
    assert trace.lengths["input_tokens"] == 2699
    assert trace.lengths["output_variation"] == round(float(np.std([10, 8, 27])) / 15, 3)


def test_packed_files_and_lengths_without_times_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"input_tokens,output_tokens\n10,5\n30,15\n"))
    trace = read_trace(path)
    assert (trace.request_rate, trace.format_summary()) == (None, "2 requests")
    assert (trace.lengths["input_tokens"], trace.lengths["input_variation"]) == (20, 0.5)


TIMES = {
    "time": ("0", "1.5"),
    "time_ms": ("7", "1507"),
    "arrival_us": ("0", "1500000"),
    "timestamp": ("1700158546680", "1700158548180"),
    "start_time": ("1700158546680000000", "1700158548180000000"),
    "TIMESTAMP": ("2023-11-16 18:15:46.6805900", "2023-11-16 18:15:48.1805900"),
    "arrived_at": ("2023-11-16T18:15:46.5Z", "2023-11-16T20:15:48.0+02:00"),
    "request_time": ("2023-11-16 18:15:46-0730", "2023-11-17 01:45:47.5Z"),
}


@pytest.mark.parametrize("name", TIMES)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_times_in_any_unit_are_seconds_from_the_first(name: str, end: str, tmp_path: Path) -> None:
    path, (first, last) = tmp_path / "a.csv", TIMES[name]
    lines = [f"\ufeff{name},input_tokens,output_tokens", f"{first},10,5", f"{last},20,5"]
    path.write_text(end.join(lines), encoding="utf-8", newline="")
    np.testing.assert_allclose(read_trace(path).times, [0.0, 1.5], atol=1e-6)


def test_what_is_packed_is_told_by_its_content(tmp_path: Path) -> None:
    packed = gzip.compress(b"time,input_tokens,output_tokens\n0,10,5\n1,30,15\n" * 9)
    path = tmp_path / "a.csv"
    for content in (packed[:40], packed[:12] + b"\xff" * 20 + packed[32:]):
        path.write_bytes(content)
        with pytest.raises(SpecError, match=r"a.csv: cannot be read"):
            read_trace(path)
    plain = tmp_path / "a.gz"
    plain.write_bytes(gzip.decompress(packed)[:46])
    path.write_bytes(gzip.compress(plain.read_bytes()))
    assert read_trace(plain).request_rate == read_trace(path).request_rate == 2


OBJECT = '{"timestamp": 1, "input_length": 1, "output_length": 1}'
FAULTS = {
    "": "is empty",
    "input_tokens,output_tokens\n": "has no requests",
    "time,input_tokens\n1,2\n": "has no column of output_tokens",
    "time,input_tokens,output_tokens\n2,1,1\n1,1,1\n": r":3: comes before the request above it",
    "time,input_tokens,output_tokens\n1,-5,1\n": ":2: input_tokens is '-5', not a number of tokens",
    "time,input_tokens,output_tokens\n1,many,1\n": ":2: input_tokens is 'many'",
    "time,input_tokens,output_tokens\n1,2.5,1\n": ":2: input_tokens is '2.5'",
    "time,input_tokens,output_tokens\n1,inf,1\n": ":2: input_tokens is 'inf'",
    "time,input_tokens,output_tokens\nnan,1,1\n": ":2: time is 'nan', not a time",
    "time,input_tokens,output_tokens\n1,1\n": ":2: has 2 values, not 3",
    "time,input_tokens,output_tokens\n1,1,0\n": "has no request with an answer",
    "time,input_tokens,output_tokens\n2023-13-45,1,1\n": "a time is not a date",
    f'{OBJECT}\n{{"timestamp"': ":2: is not valid JSON",
    f"{OBJECT}\n[1]": ":2: is not the object",
    OBJECT.replace("1}", f"{10**400}}}"): ":1: output_tokens is 1000",
    "[" * 10**5 + "]" * 10**5: "is a list of JSON: write an object a line",
    "time;input_tokens;output_tokens\n1;2;3\n": "has ';' between columns",
    "time,input_tokens,output_tokens\n2023-11-16,1,1\n5,1,1\n": ":3: time is '5', not a date",
    "time,input_tokens,output_tokens\n11/16/2023,1,1\n": ":2: time is '11/16/2023', not a time: a",
    "time,input_tokens,output_tokens\n1,,1\n": ":2: input_tokens is ''",
    '{"a":' + "[" * 10**5: ":1: is not valid JSON",
    f'{OBJECT}\n{{"timestamp": 2}}': "input_tokens is None",
}  # fmt: skip


@pytest.mark.parametrize("content", FAULTS, ids=range(len(FAULTS)))
def test_what_is_wrong_with_a_trace_is_said_with_its_place(content: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(SpecError, match=FAULTS[content]) as failure:
        read_trace(path)
    assert str(failure.value).startswith(str(path))


@pytest.mark.parametrize("size", [16, 512])
@pytest.mark.parametrize("ending", ["jsonl", "csv"])
def test_blocks_of_prompts_are_read_from_their_end(size: int, ending: str, tmp_path: Path) -> None:
    path, prompts = tmp_path / f"a.{ending}", (5 * size, 9 * size - 3, 4 * size + 1)
    names = [[*range(-(-prompt // size))] for prompt in prompts]
    if ending == "csv":
        lines = ["time,input_tokens,output_tokens,hash_ids"]
        lines += [f'{n},{a},1,"{b}"' for n, (a, b) in enumerate(zip(prompts, names, strict=True))]
    else:
        lines = [
            json.dumps({"time": n, "input_length": a, "output_length": n, "hash_ids": b})
            for n, (a, b) in enumerate(zip(prompts, names, strict=True))
        ]
    path.write_text("\n".join(lines), encoding="utf-8")
    trace = read_trace(path)
    kept = names if ending == "csv" else names[1:]  # the first has no answer
    assert trace.block_tokens == size
    assert trace.blocks_of_each == kept
    assert trace.blocks[0] == kept[0][-1]
    path.write_text("\n".join([*lines, lines[-1].replace("[", "[x")]), encoding="utf-8")
    with pytest.raises(SpecError, match="a.csv:5: the blocks of" if ending == "csv" else "JSON"):
        read_trace(path)
