#!/usr/bin/env python3
"""Training over a slow link, over a long one, and over one that loses packets: no rank is taken for
dead, the losses are those of an undisturbed run, and the summary says how long the ranks waited.

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
MLP = ["trainer.limit_val_batches=1", "batch.global=32",
       "batch.micro=16", "trainer.deterministic=true", *runs.SYNTHETIC]
FALSE_ALARMS = "lost", "dead", "silent", "stuck", "timed out", "does not move"
SRUN = ["srun", "--mpi=none", "-N2", "-n2"]
AGENTS = [*SRUN, runs.TRIREME, "run", "--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend",
          "c10d", "--rdzv-endpoint", "node1:29421", "--rdzv-id", "slow"]


def train(folder, name, *flags, start=SRUN, steps=STEPS):
    """Two nodes of one rank. Returns the losses and what was said."""
    run_dir = os.path.join(folder, name)
    words = runs.train("mlp-jax", run_dir, *flags, *MLP, f"trainer.max_steps={steps}")
    begin = time.monotonic()
    done = runs.run(lab.on_head(*start, *words))
    for alarm in FALSE_ALARMS:
        assert alarm not in done.stderr, done.stderr
    losses = runs.losses(run_dir)
    assert len(losses) == steps, done.stderr
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


def check_delay(folder):
    """200 ms in each direction: a round trip takes 400 ms, and TCP needs several of them for each
    large message, because it begins slowly after each pause. A step takes about eight seconds."""
    steps = 3
    wanted, _ = train(folder, "near", steps=steps)
    with lab.delay_packets(2, 0.2):
        for name, start in ("far-srun", SRUN), ("far-run", AGENTS):
            begin = time.monotonic()
            got, said = train(folder, name, start=start, steps=steps)
            assert time.monotonic() - begin > 2 * steps * 0.2, "nothing was delayed"
            runs.check_same(got, wanted, "200 ms of delay")
            assert "\nwaiting: " in said, said


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
    checks = [check_slow_link, check_delay, check_lost_packets]
    checks = [check for check in checks if len(sys.argv) < 3 or check.__name__ in sys.argv]
    with tempfile.TemporaryDirectory() as folder, lab.cluster(2):
        failed = runs.check_all(checks, folder)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
