#!/usr/bin/env python3
"""Messages over UCX and MPI train to the bits of shared memory.

Two and three ranks, each strategy, a pipeline, tensor parallelism, a half type on the wire, and
trainer.deterministic: losses and final weights are the same to the last bit. UCX uses TCP, as
between hosts, and once what it likes best.

A network whose module is not built is left out with a line; if all are, the test is a skip.

usage: test_networks.py BUILD_FOLDER
"""
import os
import shutil
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import SYNTHETIC, TRIREME, check_same, losses, on_ranks, run, train  # noqa: E402

MODULES = os.path.join(os.path.abspath(sys.argv[1]), "lib", "trireme")
STEPS = ["trainer.max_steps=6", "trainer.max_epochs=-1", "batch.global=24", "data.samples=96",
         "checkpoint.every_n_epochs=0", "optimizer.name=adamw", "optimizer.lr=0.001"]
TENSOR = ["strategy.mesh.tensor=2", "strategy.tensor={fc1: column, fc2: row}"]
# Ranks, settings.
CASES = {
    "ddp": (2, []),
    "zero1": (3, ["strategy.name=zero1"]),
    "fsdp": (2, ["strategy.name=fsdp", "strategy.persistent_bytes=0"]),
    "pipeline": (2, ["strategy.name=pipeline", "batch.micro=6"]),
    "tensor": (2, TENSOR),
    "fsdp with tensor": (4, ["strategy.name=fsdp", *TENSOR]),
    "deterministic": (3, ["trainer.deterministic=true", "batch.micro=3", "strategy.name=fsdp"]),
    "bf16 on the wire": (2, ["trainer.precision=bf16-mixed", "strategy.name=zero2"]),
}
# More ranks than cores is what MPI refuses without being asked, and root as well.
MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none"]
ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def final_weights(place):
    folder = os.path.join(place, "checkpoints", "last")
    with open(os.path.join(folder, "model.safetensors"), "rb") as file:
        return file.read()


def execute(place, case, launch, *words, **environment):
    ranks, settings = CASES[case]
    command = train("mlp-jax", place, *SYNTHETIC, *STEPS, *settings, *words)
    run(["timeout", "120", *launch(ranks, command)], env={**os.environ, **environment})
    return losses(place), final_weights(place)


def under_run(ranks, command):
    return on_ranks(ranks, command)


def under_mpirun(ranks, command):
    return [*MPIRUN, "-n", str(ranks), *command]


# Name: module, launcher, environment, cases.
NETWORKS = {
    "ucx over tcp": ("ucx", under_run, {"UCX_TLS": "tcp"}, list(CASES)),
    "ucx": ("ucx", under_run, {}, ["ddp"]),
    "mpi": ("mpi", under_mpirun, ROOT, list(CASES)),
    "ucx under mpirun": ("ucx", under_mpirun, {**ROOT, "UCX_TLS": "tcp"}, ["ddp"]),
}


def missing(module, launch):
    if not os.path.exists(os.path.join(MODULES, f"{module}.so")):
        return f"{module}.so is not built"
    if launch is under_mpirun and not shutil.which("mpirun"):
        return "mpirun is not installed"
    return None


def main():
    ran = 0
    with tempfile.TemporaryDirectory() as folder:
        wanted = {}
        for name, (module, launch, environment, cases) in NETWORKS.items():
            why = missing(module, launch)
            if why:
                print(f"skip: {name}: {why}")
                continue
            for case in cases:
                if case not in wanted:
                    wanted[case] = execute(os.path.join(folder, f"shm-{case}".replace(" ", "-")),
                                           case, under_run, "comm.backend=shm")
                place = os.path.join(folder, f"{name}-{case}".replace(" ", "-"))
                got = execute(place, case, launch, f"comm.backend={module}", **environment)
                check_same(got[0], wanted[case][0], f"{name}, {case}")
                assert len(got[0]) == 6, f"{name}, {case}: {len(got[0])} steps"
                assert got[1] == wanted[case][1], f"{name}, {case}: other weights"
                print(f"{name}, {case}: the bits of shared memory", flush=True)
                ran += 1
    return 0 if ran else 77


if __name__ == "__main__":
    sys.exit(main())
