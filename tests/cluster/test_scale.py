#!/usr/bin/env python3
"""`trireme scale` inside one allocation: hosts fill up one after the other, however Slurm numbers
the ranks, and more ranks than there are get simulated.

usage: test_scale.py BUILD_FOLDER
"""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import lab
import runs

SCALE = [runs.TRIREME, "scale", "recipes/mlp-jax.yaml", "data.name=synthetic", "data.samples=500",
         "data.shape=[1,28,28]", "data.classes=10", "data.workers=0", "batch.global=48",
         "--seconds", "0.2"]


def srun(*words):
    return lab.on_head("srun", "--mpi=none", "-N2", "-n4", *words)


def check_hosts(_):
    for order, words, wanted in ("cyclic", ["--ranks", "1,2,3,64", "batch.global=64"], [1, 2, 3]), \
                                ("block", ["--weak", "--ranks", "2,4"], [2, 4]):
        done = runs.run(srun("-m", order, *SCALE, *words, "--json"))
        found = json.loads(done.stdout)
        points = found["points"]
        measured = [p for p in points if p["from"] == "measured"]
        assert [p["ranks"] for p in measured] == wanted, points
        assert [p["hosts"] for p in points] == [(p["ranks"] + 1) // 2 for p in points], points
        for p in measured:
            assert 0 < p["efficiency"] and p["measured"]["samples_per_s"] > 0, p
        assert found["simulation"]["link_hosts"] == 2, found
        assert found["simulation"]["link_ranks"] == wanted[-1], found


def check_refused(_):
    """One line for all ranks, beside those of srun."""
    for word in "strategy.mesh.tensor=2", "batch.global=3":
        done = runs.run(srun(*SCALE, "--ranks", "1,4", word), 2)
        lines = [line for line in done.stderr.splitlines() if not line.startswith("srun:")]
        assert len(lines) == 1 and done.stdout == "", done.stderr


if __name__ == "__main__":
    with lab.cluster(2):
        failed = runs.check_all([check_hosts, check_refused], None)
    sys.exit(1 if failed else 0)
