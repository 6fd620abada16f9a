#!/usr/bin/env python3
"""Environment variables that take a number or one of several words: any other value is refused with
one line that names the variable, whatever the command, and by ranks once for all. The manual page
lists every variable that the sources read.

usage: test_variables.py BUILD_FOLDER
"""
import os
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import TRIREME, check_all, end_all, finish, run, start_ranks  # noqa: E402

SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "src")
WRONG = {"BIND": "moon", "CPU_ISA": "sse", "PEAK_FLOPS": "abc", "PEAK_BANDWIDTH": "0",
         "GENERATION": "-1", "HIERARCHY": "2", "NCCL": "yes", "CUDA_GRAPHS": "on",
         "DEBUG": "3", "FAR_DELAY_US": "1000001", "FAR_SEED": "1e3", "LIBC": "musl"}
# Set by the launcher for its own workers.
INTERNAL = {"TRIREME_NONCE"}


def check_wrong():
    for name, value in WRONG.items():
        env = {**os.environ, f"TRIREME_{name}": value}
        done = run([TRIREME, "version"], 2, env=env)
        lines = done.stderr.splitlines()
        assert len(lines) == 1 and f"TRIREME_{name} is '{value}'" in lines[0], done.stderr
        assert not done.stdout, done.stdout


def check_ranks():
    words = ["env", "TRIREME_PEAK_FLOPS=fast", TRIREME, "train", "recipes/mnist-cnn.yaml"]
    ranks = start_ranks(words, 2)
    try:
        ended = [finish(child, 30) for child in ranks]
    finally:
        end_all(ranks)
    lines = "".join(err for _, err, _ in ended).splitlines()
    assert [code for _, _, code in ended] == [2, 2] and len(lines) == 1, ended
    assert "TRIREME_PEAK_FLOPS is 'fast'" in lines[0], lines


def check_right():
    """Empty counts as not set."""
    env = {**os.environ, "TRIREME_PEAK_FLOPS": "1.1e11", "TRIREME_PEAK_BANDWIDTH": "18G",
           "TRIREME_BIND": "", "TRIREME_CPU_ISA": "avx2", "TRIREME_FAR_SEED": "0"}
    run([TRIREME, "version"], env=env)


def check_manual():
    known = set(re.findall(r"TRIREME_[A-Z_]+", run([TRIREME, "manual"]).stdout))
    read = set()
    for folder, _, names in os.walk(SOURCES):
        for name in names:
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                read |= set(re.findall(r'"(TRIREME_[A-Z_]+)"', file.read()))
    assert read and not read - known - INTERNAL, read - known - INTERNAL
    assert {f"TRIREME_{name}" for name in WRONG} <= known, known


sys.exit(check_all([check_wrong, check_ranks, check_right, check_manual]))
