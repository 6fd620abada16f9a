#!/usr/bin/env python3
"""MPICH instead of Open MPI: the module mpi, built as a site builds it for its own MPI, carries
training under mpiexec.hydra. The ranks are on this host: between hosts that are network namespaces,
MPICH 4.0 over UCX often does not return from MPI_Finalize, in programs of a few lines too.

usage: test_mpich.py BUILD_FOLDER
"""
import os
import shutil
import signal
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import runs
import test_names
import test_train

NEEDS = {"mpicc.mpich": "libmpich-dev", "mpiexec.hydra": "mpich", "cmake": "cmake"}


def build_module(folder):
    """As docs/clusters.md says it."""
    build = os.path.join(folder, "mpich")
    runs.run(["cmake", "-S", ".", "-B", build, "-DCMAKE_BUILD_TYPE=Release", "-DTRIREME_TESTS=OFF",
              "-DMPI_C_COMPILER=mpicc.mpich"])
    runs.run(["cmake", "--build", build, "--target", "module_mpi"])
    return os.path.join(build, "lib", "trireme")


def hydra(_, ranks, words):
    return ["mpiexec.hydra", "-n", str(ranks), *words, "comm.backend=mpi"]


def check_losses(folder):
    one = test_train.losses_of_one(folder)
    for ranks, name in (2, "ddp"), (4, "fsdp"), (4, "zero2"):
        done = test_train.check(folder, one, hydra, 1, ranks, f"strategy.name={name}")
        # MPICH over UCX complains of messages that are left when MPI ends.
        assert "not matched" not in done.stderr, done.stderr


def check_killed(folder):
    """Hydra ends the other ranks, and says that one has ended badly."""
    run_dir = os.path.join(folder, "killed")
    words = runs.train("mlp-jax", run_dir, *test_names.SETTINGS, "trainer.max_steps=1000000")
    job = runs.start(hydra(1, 4, words))
    runs.wait_for(lambda: len(runs.losses(run_dir)) >= 5, "5 steps", 60, job)
    begun = time.monotonic()
    os.kill(find_rank(3), signal.SIGKILL)
    out, err, code = runs.finish(job, 60)
    took = time.monotonic() - begun
    assert code and "BAD TERMINATION" in out, f"{code} {out}{err}"
    assert took < runs.SOON and not runs.processes(), f"{took:.1f} s: {runs.processes()}"


def find_rank(rank):
    wanted = f"PMI_RANK={rank}".encode()
    for pid in runs.processes():
        if runs.read_of(pid, "cmdline").split(b"\0")[0].decode() == runs.TRIREME and \
                wanted in runs.read_of(pid, "environ").split(b"\0"):
            return pid
    raise AssertionError(f"no process of rank {rank}")


def check_other_mpi(folder):
    """The module that was built against Open MPI does not know Hydra's ranks."""
    words = runs.train("mlp-jax", os.path.join(folder, "other"), *test_train.MLP)
    env = {key: value for key, value in os.environ.items() if key != "TRIREME_MODULES"}
    done = runs.run(hydra(1, 2, words), None,
                    env={**env, **test_train.MPI})
    assert done.returncode and "launcher" in done.stderr and "this MPI" in done.stderr, done.stderr


def main():
    missing = sorted({package for tool, package in NEEDS.items() if not shutil.which(tool)})
    if missing:
        print(f"skipped: needs the packages {' '.join(missing)}")
        return 77
    checks = [check_losses, check_killed]
    checks += [check_other_mpi] if test_train.module("mpi") else []
    checks = [check for check in checks if len(sys.argv) < 3 or check.__name__ in sys.argv]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRIREME_MODULES"] = build_module(folder)
        failed = runs.check_all(checks, folder)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
