#!/usr/bin/env python3
"""`trireme bench kernels` adds its rows up by op and kernel, what could be saved the most first.

usage: test_bench_kernels.py BUILD_FOLDER
"""
import json
import os
import subprocess
import sys

TRIREME = os.path.join(os.path.abspath(sys.argv[1]), "bin", "trireme")


def run(*words):
    command = [TRIREME, "bench", "kernels", "mlp-jax", "--seconds", "0.01", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def main():
    lines = [json.loads(line) for line in run("--json").splitlines()]
    sums = [line for line in lines if "all_of" in line]
    rows = [line for line in lines if "op" in line]
    saved = [s["saved_us"] for s in sums]
    assert saved and saved == sorted(saved, reverse=True), saved
    for s in sums:
        same = [r["time_us"] for r in rows if (r["op"], r["kernel"]) == (s["all_of"], s["kernel"])]
        assert len(same) == s["count"] and abs(sum(same) - s["time_us"]) < 0.1, (s, same)
    assert sum(s["count"] for s in sums) == len(rows), (sums, rows)
    text = run()
    assert "by op: what perfect kernels would save" in text and "linear_grad_weight" in text, text


if __name__ == "__main__":
    main()
