"""Files that a script writes by ``echo`` and ``printf``."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.documents.shell import read_shell
from planner.launch.read.read_launch import read_launch

YAML = "enable_attention_dp: true\nkv_cache_config:\n  free_gpu_memory_fraction: 0.7\n"
_ONE = YAML.strip().replace("\n", "\\n")
FILE = "extra.yml"
WRITTEN = {
    "escapes": f'echo -e "{_ONE}" > {FILE}',
    "quotes": f"echo '{YAML.strip()}' > {FILE}",
    "lines": "\n".join(
        f'echo "{line}" {">>" if number else ">"} {FILE}'
        for number, line in enumerate(YAML.splitlines())
    ),
    "printf": f'printf "{_ONE}\\n" > {FILE}',
    "each": f"printf '%s\\n' 'enable_attention_dp: true' 'kv_cache_config:' "
    f"'  free_gpu_memory_fraction: 0.7' > {FILE}",
    "variable": f'NAME={FILE}\necho -e "{_ONE}" > $NAME',
    "here": f"cat > {FILE} <<END\n{YAML}END",
    "tee": f"tee {FILE} <<END\n{YAML}END",
}


@pytest.mark.parametrize("way", WRITTEN)
def test_a_file_has_what_is_printed_into_it(way: str) -> None:
    assert read_shell(WRITTEN[way] + "\n").files[FILE].text == YAML


@pytest.mark.parametrize("way", WRITTEN)
def test_an_engine_reads_the_file_that_its_script_prints(way: str, tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    serve = "trtllm-serve Qwen/Qwen3-30B-A3B --tp_size 4 --extra_llm_api_options"
    path.write_text(f"{WRITTEN[way]}\n{serve} {FILE}\n", encoding="utf-8")
    values = read_launch(path).values
    assert int(values["attention_data_parallel"]) == 4
    assert values["gpu_memory_utilization"] == "0.7"


def test_formats_of_printf_are_not_read() -> None:
    assert FILE not in read_shell(f"printf 'a: %d\\n' 5 > {FILE}\n").files


def test_what_is_not_known_stays_unknown() -> None:
    written = read_shell(f'echo "a: $UNSET" > {FILE}\n').files[FILE]
    assert written.unknown
