#!/usr/bin/env python3
"""`trireme run` over several nodes of the virtual cluster: who has which number, restarts after
failures of workers, agents, nodes and cables, nodes that come later, and the token.

usage: test_nodes.py BUILD_FOLDER (CLUSTER=all: also the slow checks)
"""
import glob
import json
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import lab
import runs

WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "nodes_worker.py")
os.environ.pop("TRIREME_STORE", None)
SOON = runs.SOON


class Job:
    """A run, started node by node."""
    jobs = 0

    def __init__(self, folder, mode="plain"):
        Job.jobs += 1
        self.folder, self.mode = os.path.join(folder, str(Job.jobs)), mode
        self.port = 29400 + Job.jobs
        self.agents = {}
        os.mkdir(self.folder)

    def start(self, node, *flags, backend="c10d", workers=2, nodes="2", program=None, **more):
        at = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"node1:{self.port}"]
        if backend == "static":
            at = ["--node-rank", str(more.pop("number", node - 1)), "--master-addr", "node1",
                  "--master-port", str(self.port)]
        self.agents[node] = runs.start(
            lab.on_node(node, runs.TRIREME, "run", "--nnodes", nodes, "--nproc-per-node",
                        str(workers), *at, "--rdzv-id", f"job-{Job.jobs}", *flags,
                        *(program or [WORKER, self.folder, self.mode])), **more)
        return self.agents[node]

    def said(self, generation=0):
        found = {}
        for path in glob.glob(os.path.join(self.folder, f"g{generation}-r*")):
            if path.endswith(".new"):
                continue
            with open(path, encoding="utf-8") as file:
                found[int(path.rsplit("-r", 1)[1])] = json.load(file)
        return found

    def wait_for_ranks(self, count, generation=0, seconds=SOON):
        def done():
            if any(agent.poll() is not None for agent in self.agents.values()):
                texts = [runs.finish(agent, 1) for agent in self.agents.values()
                         if agent.poll() is not None]
                raise AssertionError(f"an agent has ended: {texts}")
            return len(self.said(generation)) == count
        runs.wait_for(done, f"{count} ranks of generation {generation}", seconds)
        return self.said(generation)

    def go(self):
        with open(os.path.join(self.folder, "go"), "w", encoding="utf-8"):
            pass

    def kill(self, process, number=9, code=0):
        """Signals a process of the job, by what a rank has said."""
        said, which = process
        node = int(said["host"].removeprefix("node"))
        runs.run(lab.on_node(node, "kill", f"-{number}", str(said[which])), code)

    def end(self, node, code, *texts, seconds=SOON):
        _, err, found = runs.finish(self.agents.pop(node), seconds)
        assert found == code, f"node {node}: exit code {found}, not {code}: {err}"
        for text in texts:
            assert text in err, f"node {node}: {text} is not in: {err}"
        return err


def check_ranks(said, order, workers):
    """All of torchrun's numbers, with the nodes in this order."""
    assert sorted(said) == list(range(len(order) * workers)), sorted(said)
    for rank, one in said.items():
        group = rank // workers
        wanted = {"RANK": rank, "LOCAL_RANK": rank % workers, "GROUP_RANK": group,
                  "ROLE_RANK": rank, "WORLD_SIZE": len(said), "LOCAL_WORLD_SIZE": workers,
                  "GROUP_WORLD_SIZE": len(order), "ROLE_WORLD_SIZE": len(said),
                  "MASTER_ADDR": "node1"}
        for name, value in wanted.items():
            assert one[name] == str(value), f"rank {rank}: {name}={one[name]}, not {value}"
        assert one["host"] == f"node{order[group]}", one
        for name in ("MASTER_PORT", "TRIREME_NONCE", "TRIREME_STORE", "TORCHELASTIC_RUN_ID"):
            assert one[name] == said[0][name], f"rank {rank}: another {name}"


def check_static(folder):
    job = Job(folder)
    for node in (3, 1, 2):
        job.start(node, nodes="3", backend="static")
    for node in (1, 2, 3):
        job.end(node, 0)
    check_ranks(job.said(), [1, 2, 3], 2)


def check_c10d(folder):
    """The node of the endpoint is the first, the others are in the order in which they joined."""
    job = Job(folder)
    for node in (2, 1):
        job.start(node)
    for node in (1, 2):
        job.end(node, 0, f"ranks {2 * node - 2} to {2 * node - 1} of 4")
    check_ranks(job.said(), [1, 2], 2)


def check_restart(folder):
    """A worker of the other node is killed."""
    job = Job(folder, "hold")
    for node in (1, 2):
        job.start(node, "--max-restarts", "1")
    first = job.wait_for_ranks(4)
    job.kill((first[3], "pid"))
    second = job.wait_for_ranks(4, 1)
    assert second[0]["TORCHELASTIC_RESTART_COUNT"] == "1", second[0]
    assert second[0]["TRIREME_NONCE"] != first[0]["TRIREME_NONCE"]
    for name in ("TRIREME_STORE", "TRIREME_JOB"): # one store for the whole run
        assert second[0][name] == first[0][name] != "", f"{first[0]} {second[0]}"
    job.kill((second[2], "pid"))
    job.end(1, 1, "restart 1 of 1", "attempt 2 of 2", "rank 2 (local rank 0) on node2",
            "ended by SIGKILL")
    err = job.end(2, 1, "rank 2 on node2 was the first")
    assert "root cause" not in err, err


def check_bad_input(folder):
    job = Job(folder, "bad")
    with open(os.path.join(job.folder, "bad"), "w", encoding="utf-8") as file:
        file.write("3\n2\n")
    for node in (1, 2):
        job.start(node, "--max-restarts", "3")
    for node in (1, 2):
        err = job.end(node, 2, "rank 3")
        assert "restart 1" not in err, err


def check_stopped(folder):
    """The workers of one node end with a checkpoint: so does the run."""
    job = Job(folder, "wait")
    for node in (1, 2):
        job.start(node)
    said = job.wait_for_ranks(4)
    job.kill((said[2], "agent"), 15)
    for node in (1, 2):
        job.end(node, 75)


def check_disagreement(folder):
    job = Job(folder)
    job.start(1, workers=2)
    time.sleep(0.5)
    job.start(2, workers=3)
    for node in (1, 2):
        job.end(node, 2, "--nproc-per-node: node1 has 2 workers and node2 has 3")
    job = Job(folder)
    for node in (1, 2):
        job.start(node, backend="static", number=0 if node == 1 else 1, nodes="3")
    time.sleep(0.5)
    job.start(3, backend="static", number=1, nodes="3")
    for node in (1, 2, 3):
        job.end(node, 2, "--node-rank: node", "both say 1")


def check_token(folder):
    job = Job(folder)
    job.start(1, "--rdzv-conf", "join_timeout=4")
    job.start(2, "--rdzv-conf", "join_timeout=3",
              env={**os.environ, "TRIREME_TOKEN": "the token of somebody else"})
    job.end(2, 1, "was not reached within 3 s", "another token")
    job.end(1, 1, "1 of 2 nodes joined within 4 s: node1", "this job's token")
    assert not job.said()


def check_absent(folder):
    job = Job(folder)
    begun = time.monotonic()
    job.start(2, "--rdzv-conf", "join_timeout=2")
    job.end(2, 1, "node1:", "was not reached within 2 s")
    assert time.monotonic() - begun < SOON


def check_serving_agent(folder):
    """It is killed: the others end their workers and say why."""
    job = Job(folder, "hold")
    for node in (1, 2):
        job.start(node, "--max-restarts", "3")
    said = job.wait_for_ranks(4)
    begun = time.monotonic()
    job.kill((said[0], "agent"))
    job.end(2, 1, "agent", " at node1:", "was lost: its connection")
    assert time.monotonic() - begun < SOON
    job.agents.pop(1).communicate()


def check_lost_agent(folder):
    """2:3 with three nodes, one of which loses its agent: the others go on."""
    job = Job(folder, "hold")
    for node in (1, 2, 3):
        job.start(node, nodes="2:3")
    said = job.wait_for_ranks(6)
    lost = next(node for node in (2, 3) if said[5]["host"] == f"node{node}")
    job.kill((said[5], "agent"))
    job.agents.pop(lost).communicate()
    second = job.wait_for_ranks(4, 1)
    check_ranks(second, [1, 5 - lost], 2)
    assert second[0]["TORCHELASTIC_RESTART_COUNT"] == "0", second[0]
    job.go()
    job.end(1, 0, f"node node{lost} was lost")
    job.end(5 - lost, 0)


def check_late_node(folder):
    """2:3 begins with two after the last call; the third is taken in."""
    job = Job(folder, "wait")
    flags = ["--rdzv-conf", "last_call_timeout=1"]
    for node in (1, 2):
        job.start(node, *flags, nodes="2:3")
    job.wait_for_ranks(4)
    job.start(3, *flags, nodes="2:3")
    check_ranks(job.wait_for_ranks(6, 1), [1, 2, 3], 2)
    # One leaves, and the others go on.
    job.kill((job.said(1)[5], "agent"), 15)
    job.end(3, 75, "without this node")
    check_ranks(job.wait_for_ranks(4, 2), [1, 2], 2)
    job.go()
    for node in (1, 2):
        job.end(node, 0, "node3 joins")


def check_cable(folder):
    """A short cut is survived; after a longer one both ends have noticed."""
    job = Job(folder, "hold")
    conf = ["--rdzv-conf", "keep_alive_interval=1,keep_alive_max_attempt=4,join_timeout=10"]
    for node in (1, 2):
        job.start(node, *conf)
    said = job.wait_for_ranks(4)
    lab.cut(2)
    time.sleep(2)  # longer than an interval
    lab.heal(2)
    time.sleep(4.5)  # longer than the silence that would end it
    assert all(agent.poll() is None for agent in job.agents.values()), "a cut of 2 s ended it"
    begun = time.monotonic()
    lab.cut(2)
    job.end(1, 1, "node node2: its agent was lost: it was silent for")
    job.end(2, 1, "was lost: it was silent for 4 s")
    assert time.monotonic() - begun < SOON, time.monotonic() - begun
    lab.heal(2)
    assert len(said) == 4


def check_store(folder):
    """A program of this library: its ranks find the store of the agent on the other node."""
    program = os.path.join(os.path.dirname(runs.TRIREME), "fault_test_launch")
    job = Job(folder)
    for node in (1, 2):
        job.start(node, program=[program, "whoami"])
    for node in (1, 2):
        out, err, code = runs.finish(job.agents.pop(node), SOON)
        wanted = [f"torchrun rank {2 * node - 2 + i} of 4, local {i} of 2, met 4" for i in (0, 1)]
        assert code == 0 and sorted(out.splitlines()) == wanted, f"{code}: {out}{err}"


def check_left_behind(folder):
    """A process of an earlier generation keeps its connection: it may not commit."""
    job = Job(folder)
    program = [os.path.join(os.path.dirname(runs.TRIREME), "cluster_left_behind"), job.folder]
    for node in (1, 2):
        job.start(node, "--max-restarts", "1", program=program)
    for node in (1, 2):
        job.end(node, 0, "rank 3 on node2 failed")
    with open(os.path.join(job.folder, "stale"), encoding="utf-8") as file:
        said = file.read()
    for part in "rank 3 on node2", "generation 0", "generation 1":
        assert part in said, said


def check_signal_to_all(folder):
    """As scancel sends it: programs that save end with 75, others with the signal."""
    for mode, code in (("wait", 75), ("hold", 128 + 15)):
        job = Job(folder, mode)
        for node in (1, 2):
            job.start(node, "--max-restarts", "3")
        said = job.wait_for_ranks(4)
        for rank in (0, 2):
            job.kill((said[rank], "agent"), 15, None) # the first may have ended both
        for node in (1, 2):
            err = job.end(node, code)
            assert "restart 1" not in err, err


def check_return(folder):
    """A node that was cut off joins again by itself when its cable is back."""
    job = Job(folder, "hold")
    conf = ["--rdzv-conf", "keep_alive_interval=1,keep_alive_max_attempt=2"]
    for node in (1, 2):
        job.start(node, *conf, nodes="1:2")
    job.wait_for_ranks(4)
    lab.cut(2)
    check_ranks(job.wait_for_ranks(2, 1), [1], 2)
    lab.heal(2)
    check_ranks(job.wait_for_ranks(4, 2), [1, 2], 2)
    job.go()
    job.end(1, 0, "node node2 was lost: it was silent", "node2 joins")
    job.end(2, 0, " at node1:", "joins again")


def check_partition(folder):
    """The serving agent is cut off from two of three nodes: no part goes on alone, and when the
    network has healed, there is one run again."""
    job = Job(folder, "hold")
    conf = ["--rdzv-conf", "keep_alive_interval=1,keep_alive_max_attempt=3"]
    for node in (1, 2, 3):
        job.start(node, *conf, nodes="2:3")
    job.wait_for_ranks(6)
    lab.cut(1)
    time.sleep(5)  # after 3 s of silence both parts may begin anything
    assert not job.said(1), job.said(1)
    lab.heal(1)
    runs.wait_for(lambda: max((len(job.said(g)) for g in range(1, 4))) == 6, "all three", SOON)
    # A second node may have come back after a round of two had begun.
    job.go()
    for node in (1, 2, 3):
        job.end(node, 0)


def check_no_return(folder):
    """The serving agent does not come back: the others have an end, too."""
    job = Job(folder, "hold")
    conf = ["--rdzv-conf", "keep_alive_interval=1,keep_alive_max_attempt=3,read_timeout=3"]
    for node in (1, 2):
        job.start(node, *conf, nodes="1:2")
    job.wait_for_ranks(4)
    begun = time.monotonic()
    lab.cut(1)
    job.end(2, 1, "it was silent for 3 s", "was not reached within 3 s")
    assert time.monotonic() - begun < SOON, time.monotonic() - begun
    lab.heal(1)
    job.go()
    job.end(1, 0, "node node2 was lost")


def check_serving_host(folder):
    """The host of the serving agent loses its power."""
    job = Job(folder, "hold")
    for node in (1, 2):
        job.start(node, nodes="1:2")
    said = job.wait_for_ranks(4)
    begun = time.monotonic()
    lab.power_off(1)
    job.end(2, 1, "agent", " at node1:", "was lost")
    assert time.monotonic() - begun < SOON, time.monotonic() - begun
    job.agents.pop(1).communicate()
    lab.boot(1)
    assert len(said) == 4


def check_always_crashing(folder):
    """Restarts end at --max-restarts, and the report names the first error of the last attempt."""
    job = Job(folder)
    for node in (1, 2):
        job.start(node, "--max-restarts", "2",
                  program=["sh", "-c", "sleep 0.$RANK; test $RANK != 1 || exit 7; sleep 60"])
    err = job.end(1, 1, "restart 1 of 2", "restart 2 of 2", "attempt 3 of 3", "root cause",
                  "rank 1 (local rank 1) on node1", "exit code 7")
    assert "restart 3" not in err, err
    job.end(2, 1, "rank 1 on node1 was the first")


def check_suspended(folder):
    """A suspended agent is as silent as a lost node; when it goes on, it ends."""
    job = Job(folder, "hold")
    conf = ["--rdzv-conf", "keep_alive_interval=1,keep_alive_max_attempt=3"]
    for node in (1, 2):
        job.start(node, *conf)
    said = job.wait_for_ranks(4)
    job.kill((said[2], "agent"), 19)
    job.end(1, 1, "its agent was lost: it was silent for")
    job.kill((said[2], "agent"), 18)
    job.agents[2].send_signal(18) # nsenter(1) suspends itself with what it has started
    job.end(2, 1, "this node was silent")


def check_pytorch(folder):
    """PyTorch's own ranks meet at the address and port that they are given."""
    python = "/usr/bin/python3"
    if runs.run([python, "-c", "import torch.distributed"], None).returncode:
        print("skipped: no python3 with torch (package python3-torch)")
        return
    job = Job(folder)
    script = os.path.join(job.folder, "sum.py")
    with open(script, "w", encoding="utf-8") as file:
        file.write("""import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(4) * (dist.get_rank() + 1)
dist.all_reduce(total)
print(f"rank {dist.get_rank()} has {total[0]:g}", flush=True)
""")
    for node in (1, 2):
        job.start(node, program=[script], env={**os.environ, "PYTHON_EXEC": python})
    for node in (1, 2):
        out, err, code = runs.finish(job.agents.pop(node), 60)
        assert code == 0, err
        wanted = [f"rank {2 * node - 2 + i} has 10" for i in (0, 1)]
        assert sorted(out.splitlines()) == wanted, out


FAST = [check_static, check_c10d, check_restart, check_bad_input, check_stopped, check_lost_agent,
        check_late_node, check_token, check_store, check_left_behind, check_signal_to_all,
        check_return, check_always_crashing]
SLOW = [check_disagreement, check_absent, check_serving_agent, check_cable, check_suspended,
        check_pytorch, check_partition, check_no_return, check_serving_host]


def main():
    checks = FAST + (SLOW if os.environ.get("CLUSTER") == "all" else [])
    only = os.environ.get("CHECKS", "").split()
    with tempfile.TemporaryDirectory() as folder, lab.cluster(3):
        failed = runs.check_all([c for c in checks + SLOW * bool(only)
                                 if not only or c.__name__ in only], folder)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
