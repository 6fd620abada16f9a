#!/usr/bin/env python3
"""Ranks get disjoint CPUs: under trireme run with --numa-binding auto, and by themselves where srun
or mpirun let every rank see all of them. --show-binding tells which. (Which cores are near which
GPU: unit/test_launch_bind.)

usage: test_bind.py BUILD_FOLDER
"""
import os
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import (SYNTHETIC, TRIREME, check_all, entries, run, train,  # noqa: E402
                  wait_for)

OWN = os.sched_getaffinity(0)
NO_THREADS = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
TWO = [TRIREME, "run", "--standalone", "--nproc-per-node", "2"]
# One write for each line: two workers write to one pipe, and print writes word by word if
# PYTHONUNBUFFERED is set.
PRINT = ["python3", "-c", """import os
line = f"{os.environ['LOCAL_RANK']} {os.environ.get('OMP_NUM_THREADS')} "
os.write(1, f"{line}{sorted(os.sched_getaffinity(0))}\\n".encode())"""]


def numbers(text):
    """The CPUs of "0-3,8"."""
    found = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def rows(text):
    """Rank -> CPUs, as the table and the masks both say."""
    table = {int(line.split()[0]): numbers(line.split()[-1])
             for line in text.splitlines() if re.match(r"\d+ ", line)}
    masks = re.search(r"^masks: (\S+)$", text, re.M).group(1).split(",")
    for rank, mask in enumerate(masks):
        assert table[rank] == {i for i in range(int(mask, 16).bit_length())
                               if int(mask, 16) >> i & 1}, text
    assert len(masks) == len(table), text
    return table


def check_table(_):
    shown = rows(run([*TWO, "--show-binding"]).stdout)
    assert not shown[0] & shown[1] and shown[0] | shown[1] <= OWN, shown
    done = run([*TWO, "--numa-binding", "auto", "--show-binding", *PRINT], env=NO_THREADS)
    for line in done.stdout.splitlines():
        rank, threads, cpus = line.split(" ", 2)
        assert threads == "None", "a bound worker has a thread for each core"
        assert set(map(int, re.findall(r"\d+", cpus))) == rows(done.stderr)[int(rank)], done
    assert len(done.stdout.splitlines()) == 2, done
    unbound = run([*TWO, *PRINT], env=NO_THREADS).stdout
    assert unbound.count(f" 1 {sorted(OWN)}") == 2, unbound


def check_too_many(_):
    done = run([TRIREME, "run", "--nproc-per-node", str(len(OWN) + 1), "--numa-binding", "auto",
                "true"], None)
    assert done.returncode and f"{len(OWN) + 1} workers" in done.stderr, done
    assert "free here" in done.stderr and len(done.stderr.splitlines()) == 1, done


def start(folder, rank, steps=2, **more):
    """A rank as srun starts it, where it does not bind."""
    environment = NO_THREADS | {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank),
                                "SLURM_NTASKS": "2", "SLURM_STEP_ID": "0",
                                "SLURM_JOB_ID": str(os.getpid()),
                                "SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_TASKS_PER_NODE": "2",
                                **more}
    words = train("mlp-jax", os.path.join(folder, "run" + "".join(more)), *SYNTHETIC,
                  f"trainer.max_steps={steps}", "batch.global=64")
    return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def finish(*ranks, code=0):
    said = [rank.communicate(timeout=120) for rank in ranks]
    assert all(rank.returncode == code for rank in ranks), said
    return said[0][1]


def check_ranks_of_srun(folder):
    # While hwloc looks, it moves a process from CPU to CPU: what it has while it trains counts.
    ranks = [start(folder, rank, steps=10**9) for rank in (0, 1)]
    trains = wait_for(lambda: entries(os.path.join(folder, "run"), "train"), "a step",
                      child=ranks[0])
    bound = [os.sched_getaffinity(rank.pid) for rank in ranks] if trains else None
    for rank in ranks:
        rank.terminate()
    said = finish(*ranks, code=75)
    assert not bound[0] & bound[1] and bound[0] | bound[1] <= OWN, bound
    assert said.count("TRIREME_BIND=none") == 1, said
    said = finish(*[start(folder, rank, TRIREME_BIND="none") for rank in (0, 1)])
    assert "bound" not in said, said
    wrong = start(folder, 0, TRIREME_BIND="moon")
    said = wrong.communicate(timeout=60)[1]
    assert wrong.returncode == 2 and "TRIREME_BIND" in said and "moon" in said, said


if __name__ == "__main__":
    os.environ.pop("TRIREME_BIND", None)
    if len(OWN) < 2:
        print("skipped: needs two CPUs")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="trireme-bind-") as place:
        sys.exit(check_all([check_table, check_too_many, check_ranks_of_srun], place))
