#!/usr/bin/env python3
"""Training over a slow link, and over one that loses packets: no rank is taken for dead, the losses
are those of an undisturbed run, and the summary says how long the ranks waited. Packets that are
delayed on an idle link are not tested: that needs netem, which not every kernel has.

usage: test_slow_network.py BUILD_FOLDER              only with CLUSTER=all
"""
import json
import os
import shutil
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import lab
import runs

STEPS = 6
MLP = [f"trainer.max_steps={STEPS}", "trainer.limit_val_batches=1", "batch.global=32",
       "batch.micro=16", "trainer.deterministic=true", *runs.SYNTHETIC]
FALSE_ALARMS = "lost", "dead", "silent", "stuck", "timed out", "does not move"


def train(folder, name, *flags):
    """Two nodes of one rank. Returns the losses, what was said, and the seconds that it took."""
    run_dir = os.path.join(folder, name)
    words = runs.train("mlp-jax", run_dir, *flags, *MLP)
    begin = time.monotonic()
    done = runs.run(lab.on_head("srun", "--mpi=none", "-N2", "-n2", *words))
    for alarm in FALSE_ALARMS:
        assert alarm not in done.stderr, done.stderr
    losses = runs.losses(run_dir)
    assert len(losses) == STEPS, done.stderr
    print(f"  {name}: {time.monotonic() - begin:.1f} s")
    return losses, done.stdout


def check_slow_link(folder):
    """20 Mbit/s in both directions: a step takes about two seconds."""
    wanted, said = train(folder, "usual")
    assert "waiting: " not in said, said
    lab.shape_traffic(2, "tbf", "rate", "20mbit", "burst", "32kb", "latency", "50ms")
    try:
        got, said = train(folder, "slow")
        runs.check_same(got, wanted, "20 Mbit/s")
        assert "\nwaiting: " in said, said
        got, said = train(folder, "slow-json", "--json")
        runs.check_same(got, wanted, "20 Mbit/s, --json")
        assert json.loads(said)["waiting"] > 0.5, said
    finally:
        lab.shape_traffic(2)


def check_lost_packets(folder):
    """One packet of twenty is lost on its way to node 2."""
    wanted, _ = train(folder, "whole")
    lab.lose_packets(2, 0.05)
    try:
        got, _ = train(folder, "lossy")
        runs.check_same(got, wanted, "5% of the packets lost")
        assert lab.lost_packets(2) > 0
    finally:
        lab.lose_packets(2, 0)


def main():
    if os.environ.get("CLUSTER") != "all":
        print("skipped: only with CLUSTER=all")
        return 77
    if not os.path.exists(os.path.join(os.path.abspath(sys.argv[1]), "lib", "trireme", "ucx.so")):
        print("skipped: the module ucx is not built here")
        return 77
    if not shutil.which("iptables"):
        print("skipped: needs the package iptables")
        return 77
    with tempfile.TemporaryDirectory() as folder, lab.cluster(2):
        failed = runs.check_all([check_slow_link, check_lost_packets], folder)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
