#!/usr/bin/env python3
"""Ranks on emulated GPUs, whose data a double of NCCL carries, come to the losses of one rank; a
failure of NCCL, or NCCL that is demanded and is not there, ends the run with its cause; plans count
the memory of communicators.

usage: test_nccl.py BUILD_FOLDER
"""
import json
import os
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import (SYNTHETIC, TRIREME, check_refused, check_same, losses,  # noqa: E402
                  on_ranks, run, timed, train)

BUILD = sys.argv[1]
SHARED = [*SYNTHETIC, "data.samples=64", "data.test_samples=16", "batch.global=16", "batch.micro=4",
          "trainer.max_steps=4", "trainer.deterministic=true", "--device", "cuda"]
PIPELINE = ["strategy.name=pipeline", "strategy.mesh.pipeline=2"]
FSDP = ["strategy.name=fsdp", "strategy.persistent_bytes=0"]
CASES = [
    ("ddp", 2, []),
    ("fsdp", 2, FSDP),
    ("pipeline", 2, PIPELINE),
    ("zero-bubble", 3, ["strategy.name=pipeline", "strategy.schedule=zero-bubble"]),
    ("pipelines", 4, [*PIPELINE, "strategy.mesh.replicate=2"]),
]


def train_on(folder, name, ranks, words, code=0):
    place = os.path.join(folder, name)
    return place, run(on_ranks(ranks, train("mlp-jax", place, *SHARED, *words)), code=code)


def check_case(name, ranks, words, folder, wanted):
    place, _ = train_on(folder, name, ranks, [*words, "comm.backend=nccl"])
    check_same(losses(place), wanted, name)


def check_interleaved(folder):
    """Two stages on each of two ranks: they send to each other in both directions of a lane."""
    words = [*SYNTHETIC, "data.shape=[1,16,16]", "data.samples=16", "data.test_samples=4",
             "batch.global=8", "batch.micro=2", "trainer.max_steps=2",
             "trainer.deterministic=true", "--device", "cuda"]
    places = [os.path.join(folder, f"cnn-{ranks}") for ranks in (1, 2)]
    run(train("mnist-cnn", places[0], *words))
    run(on_ranks(2, train("mnist-cnn", places[1], *words, *PIPELINE, "comm.backend=nccl",
                          "strategy.schedule=interleaved")))
    check_same(losses(places[1]), losses(places[0]), "interleaved")


def check_failure(folder):
    os.environ["EMULATED_NCCL"] = "error:1:3"
    _, failed = train_on(folder, "failure", 2, [], code=None)
    del os.environ["EMULATED_NCCL"]
    assert failed.returncode != 0
    assert "remote process exited or there was a network error" in failed.stderr, failed.stderr


def check_demand(folder):
    """comm.backend=nccl is refused on other devices, and where a rank has no NCCL."""
    place = os.path.join(folder, "cpu")
    words = [*SYNTHETIC, "comm.backend=nccl", "--device", "cpu"]
    check_refused(on_ranks(2, train("mlp-jax", place, *words)), place,
                  ["comm.backend: nccl", "device is cpu", "--device cuda", "comm.backend: auto"])
    os.environ["EMULATED_NCCL_VERSION"] = "2.10.3"
    _, failed = train_on(folder, "old", 2, ["comm.backend=nccl"], code=None)
    place, _ = train_on(folder, "host", 2, [])  # without the demand, through the host
    del os.environ["EMULATED_NCCL_VERSION"]
    assert failed.returncode != 0 and losses(place)
    assert "comm.backend: nccl: host " in failed.stderr, failed.stderr
    assert "libnccl.so is version 2.10.3, which has no nccl" in failed.stderr, failed.stderr


def plan(*words):
    command = [TRIREME, "plan", "recipes/mlp-jax.yaml", "--json", "--device", "cuda:h200", *words]
    return json.loads(run(command).stdout)["memory"]


def check_plan():
    """A plan for GPUs that are not here counts what communicators take: of groups 16 MiB or 1 MiB,
    and by estimate 320 MiB of NCCL for each, and 160 MiB for each way of a pipeline."""
    mib = 1 << 20
    one, ddp = plan("--ranks", "1"), plan("--ranks", "2")
    assert "nccl_estimate" not in one
    # Of all ranks, of the copies, and of the replicas.
    assert ddp["communication"] - one["communication"] == (16 + 1 + 1) * mib, (one, ddp)
    assert ddp["nccl_estimate"] == 3 * 320 * mib, ddp
    parts = ["parameters", "gradients", "optimizer", "activations", "workspace", "communication",
             "nccl_estimate"]
    assert ddp["peak"] == sum(ddp[part] for part in parts), ddp
    # Of all ranks; activations to the other rank and gradients from it.
    pipeline = plan("--ranks", "2", "batch.micro=4", *PIPELINE)
    assert pipeline["nccl_estimate"] == (320 + 2 * 160) * mib, pipeline


timed(check_plan)
if "NCCL_INCLUDE:PATH=NCCL_INCLUDE-NOTFOUND" \
        in open(os.path.join(BUILD, "CMakeCache.txt"), encoding="utf-8").read():
    print("skipped: the emulated GPU was built without nccl.h")
    sys.exit(77)
os.environ["TRIREME_MODULES"] = os.path.join(os.path.abspath(BUILD), "lib", "emulated")
with tempfile.TemporaryDirectory(prefix="trireme-nccl-") as temporary:
    one, _ = train_on(temporary, "one", 1, [])
    assert losses(one)
    for case in CASES:
        timed(check_case, *case, temporary, losses(one))
    timed(check_interleaved, temporary)
    timed(check_failure, temporary)
    timed(check_demand, temporary)
