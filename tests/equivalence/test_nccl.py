#!/usr/bin/env python3
"""Ranks on emulated GPUs, whose data a double of NCCL carries, come to the losses of one rank; a
failure of NCCL ends the run with its cause.

usage: test_nccl.py BUILD_FOLDER
"""
import os
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import SYNTHETIC, check_same, losses, on_ranks, run, timed, train  # noqa: E402

BUILD = sys.argv[1]
SHARED = [*SYNTHETIC, "data.samples=64", "data.test_samples=16", "batch.global=16", "batch.micro=4",
          "trainer.max_steps=4", "trainer.deterministic=true", "--device", "cuda"]
FSDP = ["strategy.name=fsdp", "strategy.persistent_bytes=0"]
CASES = [
    ("ddp", 2, []),
    ("fsdp", 2, FSDP),
    ("pipeline", 2, ["strategy.name=pipeline", "strategy.mesh.pipeline=2"]),
]


def train_on(folder, name, ranks, words, code=0):
    place = os.path.join(folder, name)
    return place, run(on_ranks(ranks, train("mlp-jax", place, *SHARED, *words)), code=code)


def check_case(name, ranks, words, folder, wanted):
    place, _ = train_on(folder, name, ranks, words)
    check_same(losses(place), wanted, name)


def check_failure(folder):
    os.environ["EMULATED_NCCL"] = "error:1:3"
    _, failed = train_on(folder, "failure", 2, [], code=None)
    del os.environ["EMULATED_NCCL"]
    assert failed.returncode != 0
    assert "remote process exited or there was a network error" in failed.stderr, failed.stderr


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
    timed(check_failure, temporary)
