"""How fast and in how much memory logs are read: 10 MB, 100 MB and 1 GB, one metrics line in ten.

    python -m benchmarks.records [--sizes 10 100 1000]

Writes benchmarks/results/records.json. Each size is read in a process of its own, so that its peak memory is its own.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
METRICS = (
    "(APIServer pid=1) INFO 02-03 12:00:10 [metrics.py:100] SpecDecoding metrics: Mean acceptance length: {:.2f}, Accepted "
    "throughput: {:.2f} tokens/s, Drafted throughput: 123.00 tokens/s, Accepted: {} tokens, Drafted: 1230 tokens, "
    "Per-position acceptance rate: {}, Avg Draft acceptance rate: {:.1f}%\n"
)
OTHER = '(APIServer pid=1) INFO:     127.0.0.1:{} - "POST /v1/chat/completions HTTP/1.1" 200 OK, request {} of the load test\n'
CHILD = """
import json, resource, sys, time
from specgain.records.read import read
began, cpu = time.perf_counter(), time.process_time()
record = read([sys.argv[1]])
print(json.dumps({"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - cpu, "rounds": record.rounds,
                  "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
"""


def write_log(path, megabytes):
    """Write a log of that size; return the number of its metrics lines, each of 410 rounds."""
    block, lines = [], 0
    for i in range(1000):
        counts = [410 - 41 * (i % 3) - 82 * place for place in range(3)]
        rates = ", ".join(f"{n / 410:.3f}" for n in counts)
        accepted = sum(counts)
        block.append(METRICS.format(1 + accepted / 410, accepted / 10, accepted, rates, 100 * accepted / 1230))
        block += [OTHER.format(40000 + j, 9 * i + j) for j in range(9)]
    text, size = "".join(block).encode(), 0
    with open(path, "wb") as file:
        while size < megabytes * 1e6:
            file.write(text)
            size, lines = size + len(text), lines + 1000
    return lines


def measure(megabytes):
    """Return {megabytes, seconds, mb_per_s, peak_mb} of reading one log in a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "server.log"
        lines, size = write_log(path, megabytes), path.stat().st_size / 1e6
        child = subprocess.run([sys.executable, "-c", CHILD, str(path)], capture_output=True, text=True, check=True)
    found = json.loads(child.stdout)
    if found["rounds"] != 410 * lines:
        raise AssertionError(f"{found['rounds']} rounds read, {410 * lines} written")
    return {
        "megabytes": round(size, 1), "seconds": round(found["seconds"], 2), "cpu_seconds": round(found["cpu_seconds"], 2),
        "mb_per_cpu_second": round(size / found["cpu_seconds"], 1), "peak_mb": round(found["peak_mb"], 1),
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[10, 100, 1000], help="megabytes")
    rows = [measure(megabytes) for megabytes in parser.parse_args().sizes]
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "records.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
