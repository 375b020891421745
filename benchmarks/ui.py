"""Many people at once ask `planner ui`: how long they wait, and whether memory stays flat.

    python benchmarks/ui.py [AT_ONCE [ROUNDS]]

Each of AT_ONCE (50) clients asks ROUNDS (4) searches, each a question of its own, of one server
with a worker for each core.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
import time
from urllib.request import urlopen

import psutil

MODELS = ("llama-7b", "llama-13b", "llama-65b", "gpt-3-175b", "mixtral-8x7b")
MIB = 2**20


def main() -> None:
    """Start a server, ask, and print a table."""
    at_once, rounds = (int(word) for word in [*sys.argv[1:], "50", "4"][:2])
    command = [sys.executable, "-m", "planner", "ui", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            address = server.stderr.readline().split()[3]
            print(f"{'round':>5} {'answers':>8} {'median s':>9} {'p90 s':>6} {'/s':>6} {'MiB':>6}")
            for number in range(rounds):
                seconds, elapsed = ask_all(address, at_once, number)
                p90 = statistics.quantiles(seconds, n=10)[-1]
                print(
                    f"{number + 1:>5} {len(seconds):>8} {statistics.median(seconds):>9.2f} "
                    f"{p90:>6.2f} {len(seconds) / elapsed:>6.1f} {memory(server.pid):>6.0f}"
                )
        finally:
            server.terminate()


def ask_all(address: str, at_once: int, number: int) -> tuple[list[float], float]:
    """Seconds until each of so many clients has its answer, and until all have."""
    seconds: list[float] = []

    def ask(client: int) -> None:
        model = MODELS[client % len(MODELS)]
        batch = 2048 + 8 * (client + 1000 * number)
        query = f"model={model}&num_gpus=256&global_batch_size={batch}&space=pretrain_dense"
        started = time.perf_counter()
        with urlopen(f"{address}api/search?{query}", timeout=600) as answer:
            found = json.load(answer)
        assert found["rows"], query
        seconds.append(time.perf_counter() - started)

    threads = [threading.Thread(target=ask, args=(client,)) for client in range(at_once)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seconds, time.perf_counter() - started


def memory(pid: int) -> float:
    """MiB that the server and its workers hold alone."""
    server = psutil.Process(pid)
    processes = [server, *server.children(recursive=True)]
    return sum(one.memory_full_info().uss for one in processes) / MIB


if __name__ == "__main__":
    main()
