#!/usr/bin/env python3
"""Ranks and nodes that are lost while several nodes train: the others end in time, and say which
rank on which host it was. Started again, the run goes on with the losses of an undisturbed one.

usage: test_lost.py BUILD_FOLDER     CLUSTER=all: also jobs that lose a node and are requeued
"""
import contextlib
import os
import signal
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import lab
import runs

ALL = os.environ.get("CLUSTER") == "all"
MLP = ["trainer.max_epochs=-1", "trainer.limit_val_batches=0", "batch.global=64",
       "checkpoint.every_n_steps=20", *runs.SYNTHETIC]


def start(run_dir, steps):
    """Two nodes with one rank each; rank 0 is on node1. Without Slurm's way of ending the rest."""
    words = runs.train("mlp-jax", run_dir, *MLP, f"trainer.max_steps={steps}")
    return runs.start(lab.on_head("srun", "--mpi=none", "--kill-on-bad-exit=0", "-N2", "-n2",
                                  *words))


def rank_on(node):
    """The process of the rank on a node, as this machine numbers it."""
    for pid in runs.processes():
        names = runs.read_of(pid, "environ").split(b"\0")
        if f"SLURMD_NODENAME=node{node}".encode() in names and \
                runs.read_of(pid, "cmdline").startswith(runs.TRIREME.encode()):
            return pid
    return 0


def begun(folder, name):
    run_dir = os.path.join(folder, name)
    job = start(run_dir, 1000000)
    runs.wait_for(lambda: len(runs.losses(run_dir)) >= 30, "30 steps", 60, job)
    return run_dir, job


def ended(job, since, *texts):
    out, err, code = runs.finish(job, runs.SOON)
    took = time.monotonic() - since
    assert code != 0, f"code {code} after {took:.1f} s: {out}{err}"
    for text in texts:
        assert text in err, f"{text} is not in: {err}"
    print(f"  ended after {took:.1f} s")


def check_resumes(run_dir):
    """To the same losses as without any loss, from the newest checkpoint on."""
    at = int(os.path.basename(os.path.realpath(runs.last(run_dir))).split("-")[1])
    job = start(run_dir, at + 10)
    out, err, code = runs.finish(job)
    assert code == 0 and f"step {at}" in err, f"{out}{err}"
    whole = f"{run_dir}-whole"
    job = start(whole, at + 10)
    out, err, code = runs.finish(job)
    assert code == 0, f"{out}{err}"
    got = {s: l for s, l in runs.losses(run_dir).items() if s <= at + 10}
    runs.check_same(got, runs.losses(whole), "resumed")


def check_killed(folder):
    run_dir, job = begun(folder, "killed")
    since = time.monotonic()
    os.kill(rank_on(2), signal.SIGKILL)
    ended(job, since, "rank 1", "node2")
    check_resumes(run_dir)


def check_suspended(folder):
    """A process that stands still is as lost as one on a node that is silent."""
    _, job = begun(folder, "suspended")
    since = time.monotonic()
    pid = rank_on(2)
    os.kill(pid, signal.SIGSTOP)
    runs.wait_for(lambda: not rank_on(1), "the end of rank 0")
    print(f"  rank 0 ended after {time.monotonic() - since:.1f} s")
    os.kill(pid, signal.SIGKILL)
    ended(job, since, "rank 1", "node2")


def check_cable(folder):
    run_dir, job = begun(folder, "cable")
    since = time.monotonic()
    lab.cut(2)
    runs.wait_for(lambda: not rank_on(1), "the end of rank 0")
    runs.wait_for(lambda: not rank_on(2), "the end of rank 1")
    print(f"  both ended after {time.monotonic() - since:.1f} s")
    lab.heal(2)
    ended(job, since, "node2")
    check_resumes(run_dir)


def check_requeued(folder):
    """A job loses a node, with the batch script and rank 0 or with another rank: Slurm requeues it,
    and it goes on from its last checkpoint on the nodes that are left."""
    steps = 500
    for lost in 2, 1:
        run_dir = os.path.join(folder, f"requeued-{lost}")
        done = runs.run(lab.on_head(
            runs.TRIREME, "submit", os.path.abspath("recipes/mlp-jax.yaml"), *MLP,
            f"trainer.max_steps={steps}", "--run-dir", run_dir, "--site", "generic", "--nodes", "2",
            "--ranks-per-node", "1", "--time", "00:10:00"), cwd=folder)
        runs.wait_for(lambda at=run_dir: len(runs.losses(at)) >= 30, "30 steps", 60)
        lab.power_off(lost)  # of three nodes, the job has the first two
        since = time.monotonic()
        runs.wait_for(lambda at=run_dir: any(
            end["status"] == "completed" for end in runs.entries(at, "end")),
            "the end of a requeued job", 180)
        print(f"  node{lost}: the job ended after {time.monotonic() - since:.1f} s")
        lab.boot(lost)
        with open(os.path.join(folder, f"mlp-jax-{done.stdout.split()[-1]}.log"),
                  encoding="utf-8") as log:
            said = log.read()
        assert said.count("resuming from ") == 1, said
        whole = start(f"{run_dir}-whole", steps)
        out, err, code = runs.finish(whole)
        assert code == 0, f"{out}{err}"
        runs.check_same(runs.losses(run_dir), runs.losses(f"{run_dir}-whole"), "requeued")


def main():
    build = os.path.dirname(os.path.dirname(runs.TRIREME))
    if not os.path.exists(os.path.join(build, "lib", "trireme", "ucx.so")):
        print("skipped: the module ucx is not built here")
        return 77
    checks = [check_killed, check_suspended, check_cable] + ([check_requeued] if ALL else [])
    checks = [check for check in checks if len(sys.argv) < 3 or check.__name__ in sys.argv]
    with tempfile.TemporaryDirectory() as folder, lab.cluster(3 if ALL else 2):
        failed = runs.check_all(checks, folder)
        for pid in runs.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
