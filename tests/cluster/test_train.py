#!/usr/bin/env python3
"""Training on several nodes: however the ranks are started and however the model is divided, the
losses are those of one rank.

usage: test_train.py BUILD_FOLDER    CLUSTER=all: also four nodes, every strategy, and all axes
"""
import os
import re
import shlex
import shutil
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import lab
import runs

ALL = os.environ.get("CLUSTER") == "all"
LIMIT = 2e-5
MLP = ["trainer.max_steps=4", "trainer.limit_val_batches=1", "batch.global=64", "batch.micro=8",
       *runs.SYNTHETIC]
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
       "OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_btl_tcp_if_include": "eth0"}


def module(name):
    build = os.path.dirname(os.path.dirname(runs.TRIREME))
    return os.path.exists(os.path.join(build, "lib", "trireme", f"{name}.so"))


def wait_for_nodes():
    """The nodes of a job that has ended are free only when Slurm has cleared it away."""
    until = time.monotonic() + 60
    while runs.run(lab.on_head("squeue", "-h")).stdout.strip() and time.monotonic() < until:
        time.sleep(0.1)


def srun(nodes, ranks, words):
    """UCX carries what goes between hosts."""
    return lab.on_head("srun", "--mpi=none", f"-N{nodes}", f"-n{ranks}", *words)


def srun_pmix(nodes, ranks, words):
    return lab.on_head("srun", "--mpi=pmix", f"-N{nodes}", f"-n{ranks}", *words, "comm.backend=mpi")


def mpirun(nodes, ranks, words):
    names = [f"node{i}" for i in range(1, nodes + 1)]
    hosts = ",".join(f"{name}:{ranks // nodes}" for name in names)
    return lab.on_head("salloc", f"-n{ranks}", f"--ntasks-per-node={ranks // nodes}", "-w",
                       ",".join(names), "-Q", "mpirun", "-n",
                       str(ranks), "--host", hosts, *words, "comm.backend=mpi")


def check(folder, one, start, nodes, ranks, *settings):
    run_dir = os.path.join(folder, "run")
    words = runs.train("mlp-jax", run_dir, *MLP, *settings)
    done = runs.run(start(nodes, ranks, words), env={**os.environ, **MPI})
    what = f"{start.__name__}, {nodes} nodes, {ranks} ranks, {' '.join(settings)}"
    assert len(runs.losses(run_dir)) == 4, f"{what}: {done.stdout}{done.stderr}"
    worst = runs.check_close(runs.losses(run_dir), one, LIMIT, what)
    print(f"  {what}: {worst:.1e}")
    shutil.rmtree(run_dir)
    return done


TENSOR = "strategy.tensor={fc1: column, fc2: row}"
STRATEGIES = [["strategy.name=ddp"], ["strategy.name=zero1"], ["strategy.name=zero2"],
              ["strategy.name=fsdp"], ["strategy.mesh.tensor=2", TENSOR],
              ["strategy.mesh.pipeline=2"], ["trainer.deterministic=true"]]
PRODUCT = ["strategy.name=fsdp", "strategy.mesh.replicate=2", "strategy.mesh.shard=2",
           "strategy.mesh.tensor=2", TENSOR, "strategy.mesh.pipeline=2"]


def losses_of_one(folder):
    run_dir = os.path.join(folder, "one")
    runs.run(runs.train("mlp-jax", run_dir, *MLP))
    found = runs.losses(run_dir)
    assert len(found) == 4
    return found


def check_ucx(folder):
    one = losses_of_one(folder)
    for settings in STRATEGIES if ALL else [STRATEGIES[0], STRATEGIES[3], STRATEGIES[-1]]:
        check(folder, one, srun, 2, 4, *settings)
    check(folder, one, srun, 2, 2, "strategy.name=fsdp")
    if ALL:
        for settings in STRATEGIES:
            check(folder, one, srun, 4, 8, *settings)
        check(folder, one, srun, 4, 16, *PRODUCT)


def check_flat(folder):
    """The same ranks with and without the hierarchy: with trainer.deterministic the same bits."""
    losses = []
    for wanted, name in ("1", "pair"), ("0", "ucx"):
        env = {**os.environ, "TRIREME_HIERARCHY": wanted}
        words = [runs.TRIREME, "bench", "comm", "--json", "--sizes", "128K"]
        said = runs.run(srun(2, 4, words), env=env).stdout
        assert f'"backend":"{name}"' in said, said
        run_dir = os.path.join(folder, f"arranged-{wanted}")
        words = runs.train("mlp-jax", run_dir, *MLP, "trainer.deterministic=true")
        runs.run(srun(2, 4, words), env=env)
        losses.append(runs.losses(run_dir))
    assert len(losses[0]) == 4
    runs.check_same(*losses, "without the hierarchy")


def check_mpi(folder):
    """How ranks start and how they divide the model have nothing to do with each other."""
    one = losses_of_one(folder)
    for start, usual in (srun_pmix, STRATEGIES[3]), (mpirun, STRATEGIES[0]):
        for settings in STRATEGIES if ALL else [usual]:
            check(folder, one, start, 2, 4, *settings)
        if ALL:
            check(folder, one, start, 4, 16, *PRODUCT)


def check_bare_script(folder):
    """A batch script without srun would be rank 0 of 4 and wait for ever: it is refused."""
    run_dir = os.path.join(folder, "bare")
    script = os.path.join(folder, "bare.sh")
    with open(script, "w", encoding="utf-8") as file:
        file.write(f"#!/bin/bash\n{' '.join(runs.train('mlp-jax', run_dir))}\necho code $?\n")
    runs.run(lab.on_head("sbatch", "-N2", "-n4", "--wait", "-o", f"{script}.out", script), None)
    with open(f"{script}.out", encoding="utf-8") as file:
        said = file.read()
    assert "srun" in said and "code 2" in said, said


def check_bad_input(folder):
    """One line for all ranks, beside those of srun, and no run folder."""
    run_dir = os.path.join(folder, "bad")
    for word in "data.path=/nowhere", "strategy.mesh.tensor=3":
        done = runs.run(srun(2, 4, runs.train("mlp-jax", run_dir, word)), 2)
        lines = [line for line in done.stderr.splitlines() if not line.startswith("srun:")]
        assert len(lines) == 1 and not os.path.exists(run_dir), done.stderr


def agents(nodes, ranks, words):
    """`trireme run` on each node."""
    run = [runs.TRIREME, "run", "--nnodes", str(nodes), "--nproc-per-node", str(ranks // nodes),
           "--rdzv-backend", "c10d", "--rdzv-endpoint", "node1:29411", "--rdzv-id", "bad"]
    return lab.on_head("srun", "--mpi=none", "-w", "node1,node2", f"-n{nodes}", *run, *words)


def check_bad_input_of_one(folder):
    """What only one rank finds, before the ranks have met or after it, ends all within seconds, and
    one line names it."""
    good = runs.train("mlp-jax", os.path.join(folder, "bad"), *MLP)
    with open("recipes/mlp-jax.yaml", encoding="utf-8") as file:
        text = file.read()
    odd = os.path.join(folder, "odd.yaml")
    with open(odd, "w", encoding="utf-8") as file:
        file.write(text.replace("name: mlp-jax", "nam: mlp-jax", 1))
    others = [([odd if word.endswith(".yaml") else word for word in good], "odd.yaml:"),
              ([word.replace("mlp-jax.yaml", "none.yaml") for word in good], "none.yaml"),
              ([*good, "data.samples=4000"], "differs from rank 0 (host node"),
              ([*[word for word in good if not word.startswith("data.")], "data.path=/nowhere"],
               "/nowhere")]
    rank = "${RANK:-${OMPI_COMM_WORLD_RANK:-$SLURM_PROCID}}"
    starts = [srun, agents] + ([mpirun] if module("mpi") else [])
    for start in starts:
        for other, part in others if ALL or start is srun else others[1:2]:
            script = f"[ {rank} = 3 ] && exec {shlex.join(other)}; exec {shlex.join(good)}"
            words = start(2, 4, ["bash", "-c", script])
            if start is mpirun:
                words.remove("comm.backend=mpi")
            wait_for_nodes()
            begun = time.monotonic()
            done = runs.run(words, None, env={**os.environ, **MPI})
            lines = [line for line in done.stderr.splitlines() if line.startswith("trireme: ")
                     and "ranks" not in line and "warning" not in line]
            took = time.monotonic() - begun
            what = f"{start.__name__}, {part}, {took:.1f} s: {done.stderr}"
            assert done.returncode and took < runs.SOON, what
            assert len(lines) == 1 and part in lines[0], what
            assert re.search(r"rank 3 \(host node\d\)", lines[0]), what
            print(f"  {start.__name__}: {took:.1f} s: {lines[0]}")


def main():
    with tempfile.TemporaryDirectory() as folder, lab.cluster(4 if ALL else 2):
        checks = [check_bare_script]
        checks += [check_bad_input, check_bad_input_of_one, check_ucx,
                   check_flat] if module("ucx") else []
        checks += [check_mpi] if module("mpi") else []
        checks = [c for c in checks if len(sys.argv) < 3 or c.__name__ in sys.argv]
        failed = runs.check_all(checks, folder)
    for name in "ucx", "mpi":
        if not module(name):
            print(f"[  SKIPPED ] {name}: the module is not built here")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
