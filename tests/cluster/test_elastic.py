#!/usr/bin/env python3
"""`trireme train` under `trireme run` on several nodes: whatever happens to workers, agents and
cables, training goes on from the last checkpoint, with the losses of an undisturbed run.

usage: test_elastic.py BUILD_FOLDER              CLUSTER=all: also the slow checks
"""
import os
import signal
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import lab
import runs
import samples

os.environ.pop("TRIREME_STORE", None)
SOON = 60  # seconds for what takes a few on a machine that is not busy
# An epoch ends with a smaller step.
COUNT, STEPS = 803, 51
MLP = [*runs.SYNTHETIC, "data.shape=[1,8,8]", f"data.samples={COUNT}", "data.test_samples=40",
       "batch.global=16", "batch.micro=2", "optimizer.momentum=0.9", "checkpoint.every_n_steps=5",
       "trainer.max_epochs=1", "trainer.deterministic=true", "log.samples=true",
       "log.progress=false"]


class Job:
    """A run, started node by node, each with two workers."""
    jobs = 0

    def __init__(self, folder, *settings):
        Job.jobs += 1
        self.run_dir = os.path.join(folder, f"job{Job.jobs}")
        self.port = 29500 + 10 * Job.jobs
        self.words = runs.train("mlp-jax", self.run_dir, *MLP, *settings)
        self.words[2] = os.path.abspath(self.words[2]) # nsenter(1) changes the folder
        self.agents = {}

    def start(self, node, *flags, nodes="2", static=False):
        at = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"node1:{self.port}"]
        if static:
            at = ["--node-rank", str(node - 1), "--master-addr", "node1", "--master-port",
                  str(self.port)]
        self.agents[node] = runs.start(lab.on_node(
            node, runs.TRIREME, "run", "--nnodes", nodes, "--nproc-per-node", "2", *at,
            "--rdzv-id", f"elastic-{Job.jobs}", *flags, *self.words))

    def reach(self, step):
        """Waits until that step has been done."""
        def done():
            for node, agent in self.agents.items():
                if agent.poll() is not None:
                    raise AssertionError(f"the agent of node{node} has ended: "
                                         f"{runs.finish(agent, 1)}")
            return max(runs.losses(self.run_dir), default=0) >= step
        runs.wait_for(done, f"step {step}", SOON)

    def process(self, node, rank=None):
        """The process of a rank on a node, or of the node's agent."""
        uts = os.readlink(f"/proc/{lab.pid_in(f'node{node}.pid')}/ns/uts")
        for pid in programs():
            names = runs.read_of(pid, "environ").split(b"\0")
            command = runs.read_of(pid, "cmdline").split(b"\0")
            own = [int(n[5:]) for n in names if n.startswith(b"RANK=")]
            if command[0].decode() == runs.TRIREME and self.run_dir.encode() in command and \
                    own == ([] if rank is None else [rank]) and \
                    os.readlink(f"/proc/{pid}/ns/uts") == uts:
                return pid
        raise AssertionError(f"node{node} has no such process")

    def kill(self, node, rank=None, number=signal.SIGKILL):
        os.kill(self.process(node, rank), number)

    def wait_for_replicas(self, count):
        """Waits until so many ranks have been training for some steps."""
        def done():
            line = samples.last_line(self.run_dir, 0)
            return line and line["replicas"] == count and line["step"] > line["from"] + 12
        runs.wait_for(done, f"{count} ranks", SOON)

    def end(self, node, code, *texts, seconds=240):
        _, err, found = runs.finish(self.agents.pop(node), seconds)
        assert found == code, f"node {node}: exit code {found}, not {code}: {err}"
        for text in texts:
            assert text in err, f"node {node}: {text} is not in: {err}"
        return err


def programs():
    """The agents and ranks that still live; the nodes live on."""
    found = [pid for pid, command in runs.processes().items() if command.startswith(runs.TRIREME)]

    def is_guardian(pid):
        """An agent's child that is no rank."""
        parent = int(runs.read_of(pid, "stat").rsplit(b")", 1)[1].split()[1] or 0)
        return parent in found and b"\0RANK=" not in runs.read_of(pid, "environ")
    return [pid for pid in found if runs.alive(pid) and not is_guardian(pid)]


def check_run(job, one, epochs, replicas):
    """Every step has the bits of one rank's loss, and its samples, each epoch sees every sample
    once, and so many ranks ran in turn."""
    runs.check_same(runs.losses(job.run_dir), runs.losses(one.run_dir), "losses")
    wanted, _ = samples.check_exactly_once(one.run_dir, COUNT, STEPS, epochs)
    got, ran = samples.check_exactly_once(job.run_dir, COUNT, STEPS, epochs)
    assert got == wanted, "a step took other samples than one rank's"
    assert ran == replicas, f"{ran} ranks, not {replicas}"
    runs.wait_for(lambda: not programs(), "the end of all workers", SOON)


def one_rank(folder, epochs):
    job = Job(folder, f"trainer.max_epochs={epochs}")
    runs.run(job.words)
    return job


def check_undisturbed(folder):
    """The nodes started by hand, with numbers and without, and by one srun."""
    one = one_rank(folder, 1)
    for static in False, True:
        job = Job(folder)
        for node in (2, 1):
            job.start(node, static=static)
        for node in (1, 2):
            job.end(node, 0)
        check_run(job, one, 1, [4])
    by_srun = Job(folder)
    done = runs.run(lab.on_head(
        "srun", "--mpi=none", "-N2", "--ntasks-per-node=1", runs.TRIREME, "run", "--nnodes", "2",
        "--nproc-per-node", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint",
        f"node1:{by_srun.port}", *by_srun.words))
    assert "node 1 of 2: ranks 2 to 3 of 4" in done.stderr, done.stderr
    check_run(by_srun, one, 1, [4])
    runs.check_same(runs.losses(by_srun.run_dir), runs.losses(job.run_dir), "by srun")


def check_killed_worker(folder):
    """In mid-training: all begin again at the last checkpoint, and nothing of it shows in the
    losses."""
    one = one_rank(folder, 2)
    job = Job(folder, "trainer.max_epochs=2")
    for node in (1, 2):
        job.start(node, "--max-restarts", "1")
    job.reach(25)
    job.kill(2, rank=3)
    for node in (1, 2):
        job.end(node, 0, "restart 1 of 1")
    begun = sorted({line["from"] for line in samples.lines(job.run_dir)})
    assert len(begun) == 2 and begun[1] >= 10, begun
    check_run(job, one, 2, [4])


def check_same_bits(folder):
    """Two kills, of the last rank and of rank 0: the bits of a run without them."""
    whole, job = (Job(folder, "trainer.max_epochs=4") for _ in range(2))
    for one in whole, job:
        for node in (1, 2):
            one.start(node, "--max-restarts", "2")
        if one is whole:
            for node in (1, 2):
                one.end(node, 0)
    job.reach(40)
    job.kill(2, rank=3)
    job.reach(90)
    job.kill(1, rank=0)
    for node in (1, 2):
        job.end(node, 0, "restart 2 of 2")
    runs.check_same(runs.losses(job.run_dir), runs.losses(whole.run_dir), "killed workers")
    check_run(job, whole, 4, [4])


def check_lost_agent(folder):
    """Its workers end with it. Training goes on with the other node, and again with both when it
    is back."""
    one = one_rank(folder, 8)
    job = Job(folder, "trainer.max_epochs=8")
    for node in (1, 2):
        job.start(node, nodes="1:2")
    job.reach(20)
    ranks = [job.process(2, rank) for rank in (2, 3)]
    job.kill(2)
    runs.wait_for(lambda: not any(runs.alive(rank) for rank in ranks), "the workers' end")
    job.agents.pop(2).communicate()
    job.wait_for_replicas(2)
    job.start(2, nodes="1:2")
    job.end(1, 0, "node node2 was lost", "node2 joins")
    job.end(2, 0)
    check_run(job, one, 8, [4, 2, 4])


def check_cable(folder):
    """A node is cut off, and comes back by itself: one generation at a time trains and saves."""
    one = one_rank(folder, 30)
    job = Job(folder, "trainer.max_epochs=30", "comm.silence_s=3")
    for node in (1, 2):
        job.start(node, "--rdzv-conf", "keep_alive_interval=1,keep_alive_max_attempt=3",
                  nodes="1:2")
    job.reach(20)
    lab.cut(2)
    job.wait_for_replicas(2)
    lab.heal(2)
    job.end(1, 0, "node node2 was lost: it was silent", "node2 joins")
    job.end(2, 0, "joins again")
    check_run(job, one, 30, [4, 2, 4])
    runs.check_saved(job.run_dir)


def check_partition(folder):
    """The node of rank 0 and of the store is cut off from the other, and too small to go on alone:
    nothing is committed until the network has healed, and then one run goes on."""
    one = one_rank(folder, 4)
    job = Job(folder, "trainer.max_epochs=4", "comm.silence_s=3")
    for node in (1, 2):
        job.start(node, "--max-restarts", "1", "--rdzv-conf",
                  "keep_alive_interval=1,keep_alive_max_attempt=3")
    job.reach(40)
    lab.cut(1)
    runs.wait_for(lambda: len(programs()) == 2, "the workers' end on both sides", SOON)
    saved = os.readlink(runs.last(job.run_dir))
    newest = max(runs.losses(job.run_dir))
    time.sleep(2)  # nothing happens meanwhile
    assert os.readlink(runs.last(job.run_dir)) == saved, "a checkpoint was committed"
    assert len(programs()) == 2, runs.processes()
    assert max(runs.losses(job.run_dir)) == newest, "a part of the run has gone on"
    lab.heal(1)
    job.end(1, 0, "node node2 was lost: it was silent", "restart 1 of 1")
    job.end(2, 0, "joins again")
    check_run(job, one, 4, [4])


def check_signal(folder):
    """SIGTERM to all agents, as scancel sends it, and to one of them: a checkpoint is committed,
    all end with 75, and the same commands go on."""
    one = one_rank(folder, 2)
    for nodes in (1, 2), (2,):
        job = Job(folder, "trainer.max_epochs=2")
        for node in (1, 2):
            job.start(node)
        job.reach(20)
        for node in nodes:
            job.kill(node, number=signal.SIGTERM)
        for node in (1, 2):
            job.end(node, 75)
        runs.check_saved(job.run_dir)
        for node in (1, 2):
            job.start(node)
        for node in (1, 2):
            job.end(node, 0)
        begun = sorted({line["from"] for line in samples.lines(job.run_dir)})
        assert len(begun) == 2 and begun[1] >= 20, begun
        check_run(job, one, 2, [4])


FAST = [check_killed_worker]
SLOW = [check_undisturbed, check_lost_agent, check_same_bits, check_cable, check_partition,
        check_signal]


def main():
    build = os.path.dirname(os.path.dirname(runs.TRIREME))
    if not os.path.exists(os.path.join(build, "lib", "trireme", "ucx.so")):
        print("skipped: the module ucx is not built here")
        return 77
    checks = FAST + (SLOW if os.environ.get("CLUSTER") == "all" else [])
    only = os.environ.get("CHECKS", "").split()
    with tempfile.TemporaryDirectory() as folder, lab.cluster(2):
        failed = runs.check_all([c for c in checks + SLOW * bool(only)
                                 if not only or c.__name__ in only], folder)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
