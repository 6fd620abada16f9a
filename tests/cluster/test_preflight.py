#!/usr/bin/env python3
"""trireme preflight on several nodes: go where all is well, however the ranks are started; and a
node that sees another folder or is behind a slow cable, two nodes that do not reach each other, and
a node that is missing are named.

usage: test_preflight.py BUILD_FOLDER              CLUSTER=all: also mpirun, PMIx and four nodes
"""
import json
import os
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import lab
import runs

ALL = os.environ.get("CLUSTER") == "all"
# Nodes share the cores of this machine with other programs: arithmetic and latency differ.
CALM = ["compute_fraction=0", "link_ms=1000", "link_fraction=0.1", "link_gb_s=0.001",
        "memory_gb=0", "sum_fraction=0.01"]
MPI = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
       "OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_btl_tcp_if_include": "eth0"}


def words(folder, *more):
    return [runs.TRIREME, "preflight", "--json", "--run-dir", folder, *CALM, *more]


def first(nodes):
    """Options for the first nodes; Slurm would take others while these end an earlier job."""
    return [f"-N{nodes}", "-w", f"node[1-{nodes}]"]


def srun(nodes, ranks, command):
    return lab.on_head("srun", "--mpi=none", *first(nodes), f"-n{ranks}", *command)


def srun_pmix(nodes, ranks, command):
    return lab.on_head("srun", "--mpi=pmix", *first(nodes), f"-n{ranks}", *command)


def mpirun(nodes, ranks, command):
    hosts = ",".join(f"node{i}:{ranks // nodes}" for i in range(1, nodes + 1))
    return lab.on_head("salloc", *first(nodes), f"-n{ranks}", "-Q", "mpirun", "-n", str(ranks),
                       "--host", hosts, *command)


def trireme_run(nodes, ranks, command):
    """An agent on each node, under one srun."""
    return lab.on_head("srun", "--mpi=none", *first(nodes), f"-n{nodes}", runs.TRIREME, "run",
                       "--nnodes", str(nodes), "--nproc-per-node", str(ranks // nodes),
                       "--rdzv-backend", "c10d", "--rdzv-endpoint", "node1:29400", *command)


def measure(start, nodes, ranks, folder, *more, code=0):
    """The checks by name, and the lines on standard error by check."""
    begin = time.monotonic()
    done = runs.run(start(nodes, ranks, words(folder, *more)), None, env=MPI)
    took = time.monotonic() - begin
    assert (done.returncode == 0) == (code == 0), f"{done.stdout}{done.stderr}"
    report = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    assert report["go"] == (code == 0) and report["ranks"] == ranks, report
    checks = {check["name"]: check for check in report["checks"]}
    said = {}
    for name, check in checks.items():
        said[name] = [line for line in done.stderr.splitlines() if f"trireme: {name}: " in line]
        assert len(said[name]) == (check["verdict"] == "no-go"), f"{name}: {done.stderr}"
    print(f"  {start.__name__}, {nodes} nodes, {ranks} ranks: {took:.1f} s")
    return report, checks


def failed(checks, name, *parts):
    """This check alone says no-go, and names these."""
    no_go = [check["name"] for check in checks.values() if check["verdict"] == "no-go"]
    assert no_go == [name], checks
    for part in parts:
        assert part in checks[name]["failure"], f"'{part}' is not in: {checks[name]['failure']}"
    return checks[name]["failure"]


def check_go(folder):
    for start in (srun, trireme_run, srun_pmix, mpirun) if ALL else (srun,):
        report, checks = measure(start, 2, 4, folder)
        assert report["hosts"] == ["node1", "node2"], report
        assert all(check["verdict"] == "go" for check in checks.values()), checks
        (link,) = checks["links"]["values"]
        assert (link["a"], link["b"]) == ("node1", "node2") and link["gb_s"] > 0.001, link
        clock = checks["clock"]["values"][1]
        assert clock["host"] == "node2" and abs(clock["ahead_s"]) <= \
            clock["uncertainty_s"] + 1e-3, clock # the nodes have one clock
        assert os.listdir(folder) == [], os.listdir(folder)


def check_other_folder(folder):
    """Node 2 has a file system of its own at that path."""
    runs.run(lab.on_node(2, "mount", "-t", "tmpfs", "tmpfs", folder))
    try:
        _, checks = measure(srun, 2, 3, folder, "seen_s=1", "space_gb=0", "link_gb_s=0", code=1)
    finally:
        runs.run(lab.on_node(2, "umount", folder))
    failed(checks, "same-files", folder, "rank 2 (node2)", "rank 0 (node1)")
    assert checks["same-files"]["values"]["other_folder"] == [2], checks["same-files"]
    assert "node2 tmpfs" in checks["run-folder"]["summary"], checks["run-folder"]


def check_slow_link(folder):
    """100 Mbit/s in both directions, of node 2."""
    lab.shape_traffic(2, "tbf", "rate", "100mbit", "burst", "32kb", "latency", "50ms")
    try:
        _, checks = measure(srun, 2, 2, folder, "link_gb_s=0.05", code=1)
    finally:
        lab.shape_traffic(2)
    failed(checks, "links", "node1 and node2", "GB/s")
    (link,) = checks["links"]["values"]
    assert 0.002 < link["gb_s"] < 0.02, link # 0.0125 are 100 Mbit/s


def check_slow_node(folder):
    """Of three nodes one is slow, by comparison alone."""
    lab.shape_traffic(3, "tbf", "rate", "10mbit", "burst", "16kb", "latency", "50ms")
    try:
        _, checks = measure(srun, 3, 3, folder, "link_gb_s=0", "link_fraction=0.5", code=1)
    finally:
        lab.shape_traffic(3)
    said = failed(checks, "links", "node3 reaches")
    assert "node1" not in said and "node2" not in said, said


def check_unreachable(folder):
    """Node 2 has no way to node 3, and both reach node 1, where the store is."""
    way = ["ip", "route", "add", "blackhole", f"{lab.NETWORK}.13/32"]
    runs.run(lab.on_node(2, *way))
    begin = time.monotonic()
    try:
        done = runs.run(srun(3, 3, words(folder)), None)
    finally:
        runs.run(lab.on_node(2, "ip", "route", "del", *way[3:]))
    assert time.monotonic() - begin < runs.SOON, "a transport would try for minutes"
    said = [line for line in done.stderr.splitlines() if line.startswith("trireme: ")]
    assert len(said) == 1 and "meeting: ranks on node2 and node3 cannot" in said[0], done.stderr
    assert not json.loads(done.stdout)["go"] and done.returncode, done


def check_missing_node(folder):
    """The cable of node 2 is cut: its ranks cannot be reached."""
    # A rank of node 2 does not hear of it either, so it is only waited for.
    lab.cut(2)
    try:
        done = runs.run(lab.on_node(1, "env", "SLURM_JOB_ID=1", "SLURM_STEP_ID=0",
                                    "SLURM_PROCID=0", "SLURM_NTASKS=2", "SLURM_LOCALID=0",
                                    "SLURM_STEP_NODELIST=node[1-2]", "SLURM_STEP_NUM_NODES=2",
                                    "SLURM_STEP_TASKS_PER_NODE=1(x2)", "SLURM_NODEID=0",
                                    *words(folder, "--timeout", "2")), 1)
    finally:
        lab.heal(2)
    assert done.stderr.count("\n") == 1 and "meeting: " in done.stderr, done
    assert "rank 1 of 2" in done.stderr, done
    report = json.loads(done.stdout)
    assert not report["go"] and report["checks"][0]["verdict"] == "no-go", report


def check_four_nodes(folder):
    """Every pair is measured; a slow node is named also where its host has several ranks."""
    report, checks = measure(srun, 4, 8, folder)
    assert report["hosts"] == [f"node{i}" for i in range(1, 5)], report
    pairs = {(link["a"], link["b"]) for link in checks["links"]["values"]}
    assert len(pairs) == 6, checks["links"]
    check_slow_node(folder)


def main():
    build = os.path.dirname(os.path.dirname(runs.TRIREME))
    if not os.path.exists(os.path.join(build, "lib", "trireme", "ucx.so")):
        print("skipped: the module ucx is not built here")
        return 77
    with tempfile.TemporaryDirectory() as folder, lab.cluster(4 if ALL else 3):
        checks = [check_go, check_other_folder, check_slow_link, check_slow_node,
                  check_unreachable, check_missing_node]
        return runs.check_all(checks + [check_four_nodes] * ALL, folder)


if __name__ == "__main__":
    sys.exit(main())
