#!/usr/bin/env python3
"""A run whose threads share a core with other programs prints how much of it they got.

usage: test_shared_cores.py BUILD_FOLDER
"""
import os
import re
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import SYNTHETIC, finish, run, start, timed, train  # noqa: E402

WORDS = [*SYNTHETIC, "data.samples=4096", "data.test_samples=16", "batch.global=64",
         "trainer.limit_val_batches=0", "trainer.max_epochs=-1",
         "trainer.max_time=4s"]


def check_end_line(folder):
    if not os.path.exists("/proc/self/task/self/schedstat") and not os.path.exists(
            f"/proc/self/task/{os.getpid()}/schedstat"):
        print("skipped: the system does not tell how long threads wait for a core")
        sys.exit(77)
    core = min(os.sched_getaffinity(0))
    apart = {"preexec_fn": lambda: os.sched_setaffinity(0, {core}),
             "env": {**os.environ, "OMP_NUM_THREADS": "2"}}
    # Two runs of two threads on one core.
    other = start(train("mnist-cnn", os.path.join(folder, "other"), *WORDS), **apart)
    done = run(train("mnist-cnn", os.path.join(folder, "run"), *WORDS), **apart)
    finish(other)
    first = done.stdout.splitlines()[0]
    assert re.search(r"; 2 threads got 0\.\d of a core$", first), done.stdout


with tempfile.TemporaryDirectory(prefix="trireme-cores-") as temporary:
    timed(check_end_line, temporary)
