#!/usr/bin/env python3
"""`trireme bench kernels` adds its rows up by op and kernel, what could be saved the most first. It
shows the direct algorithm beside Winograd's.

usage: test_bench_kernels.py BUILD_FOLDER
"""
import json
import os
import subprocess
import sys

TRIREME = os.path.join(os.path.abspath(sys.argv[1]), "bin", "trireme")
RECIPE = os.path.join(os.path.dirname(__file__), "..", "..", "recipes", "mnist-cnn.yaml")


def run(*words, isa=None):
    command = [TRIREME, "bench", "kernels", *words, "--seconds", "0.01"]
    env = dict(os.environ)
    for limit in ("TRIREME_CPU_ISA", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"):
        env.pop(limit, None)
    if isa:
        env["TRIREME_CPU_ISA"] = isa
    return subprocess.run(command, capture_output=True, text=True, check=True, env=env).stdout


def rows_of(*words, isa=None):
    lines = [json.loads(line) for line in run(*words, "--json", isa=isa).splitlines()]
    return [line for line in lines if "op" in line], [line for line in lines if "all_of" in line]


def check_sums():
    rows, sums = rows_of("mlp-jax")
    saved = [s["saved_us"] for s in sums]
    assert saved and saved == sorted(saved, reverse=True), saved
    for s in sums:
        same = [r["time_us"] for r in rows if (r["op"], r["kernel"]) == (s["all_of"], s["kernel"])]
        assert len(same) == s["count"] and abs(sum(same) - s["time_us"]) < 0.1, (s, same)
    assert sum(s["count"] for s in sums) == len(rows), (sums, rows)
    text = run("mlp-jax")
    assert "\nby op: " in text and "linear_grad_weight" in text, text
    assert "by the direct algorithm" not in text, text


# Of mnist-cnn, Winograd's algorithm computes the second convolution and its two gradients, where
# the CPU has the instructions.
def check_direct(isa, has_winograd, direct):
    rows, _ = rows_of("mnist-cnn", isa=isa)
    both = [r for r in rows if "direct_time_us" in r]
    ops = sorted(r["op"] for r in both)
    wanted = ["conv2d", "conv2d_grad_input", "conv2d_grad_weight"] if has_winograd else []
    assert ops == wanted, both
    for r in both:
        assert r["layer"] == "conv2" and r["kernel"] == "winograd", r
        assert r["direct_kernel"] == direct and r["direct_time_us"] > 0, r
        assert r["direct_share"] is None or r["direct_share"] > 0, r
    lines = run("mnist-cnn", isa=isa).splitlines()
    below = [i for i, line in enumerate(lines) if "by the direct algorithm" in line]
    assert len(below) == len(wanted), lines
    for i in below:
        assert " winograd " in lines[i - 1] and direct in lines[i], lines[i - 1 : i + 1]
        assert "times as long" in lines[i], lines[i]


# Without Winograd's algorithm there is nothing to show beside it.
def check_direct_only():
    for words, isa in ((("mnist-cnn",), "base"), ((RECIPE, "trainer.convolution=direct"), None)):
        rows, _ = rows_of(*words, isa=isa)
        assert rows and not [r for r in rows if "direct_time_us" in r], rows


def main():
    check_sums()
    with open("/proc/cpuinfo") as info:
        flags = info.read()
    avx2, avx512 = " avx2 " in flags and " fma " in flags, "avx512bw" in flags
    check_direct("avx2", avx2, "onednn-plain")
    check_direct(None, avx2, "onednn-blocked" if avx512 else "onednn-plain")
    check_direct_only()


if __name__ == "__main__":
    main()
