#!/usr/bin/env python3
"""The virtual cluster itself: nodes have names, addresses and cables of their own, and can be lost.
The ranks of one of its nodes train as on any host.

usage: test_lab.py BUILD_FOLDER
"""
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import lab
import runs

MLP = ["trainer.max_steps=3", "trainer.limit_val_batches=1", "batch.global=64",
       *runs.SYNTHETIC]


def check_nodes(_folder):
    said = runs.run(lab.on_head("srun", "-N2", "-n4", "hostname")).stdout
    assert sorted(said.split()) == ["node1", "node1", "node2", "node2"], said


def check_one_node(folder):
    one, two = os.path.join(folder, "one"), os.path.join(folder, "two")
    runs.run(runs.train("mlp-jax", one, *MLP))
    runs.run(lab.on_head("srun", "-N1", "-n2", *runs.train("mlp-jax", two, *MLP)))
    assert len(runs.losses(one)) == 3
    runs.check_close(runs.losses(two), runs.losses(one), 1e-5, "two ranks of a Slurm step")


def reaches(node, other):
    # One packet to a port where nothing listens: refused at once, or lost.
    script = f"exec 3<>/dev/tcp/{lab.NETWORK}.{10 + other}/9"
    done = runs.run(lab.on_node(node, "timeout", "2", "bash", "-c", script), None)
    return "refused" in done.stderr


def check_cable(_folder):
    assert reaches(1, 2)
    lab.cut(2)
    assert not reaches(1, 2)
    lab.heal(2)
    runs.wait_for(lambda: reaches(1, 2), "a healed cable")


def check_lost_node(_folder):
    lab.power_off(2)
    assert not lab.pid_in("node2.pid")
    lab.boot(2)
    runs.wait_for(lambda: lab.pid_in("node2.pid"), "a node that boots")


def main():
    with tempfile.TemporaryDirectory() as folder, lab.cluster(2):
        failed = runs.check_all([check_nodes, check_one_node, check_cable, check_lost_node], folder)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
