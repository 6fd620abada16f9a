#!/usr/bin/env python3
"""Optimizers whose update is a formula: every strategy that shards their states, offload, groups
and a resume on other ranks train as one rank does.

usage: test_optimizers.py BUILD_FOLDER
"""
import os
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import (SYNTHETIC, check_close, check_same, last, losses, on_ranks, run,  # noqa: E402
                  timed, train)

STEPS = 6
COMMON = [*SYNTHETIC, "data.samples=64", "data.test_samples=8", "batch.global=16", "batch.micro=4",
          "trainer.max_epochs=1000", "trainer.limit_val_batches=0"]
OPTIMIZERS = {
    "rmsprop": ["optimizer.lr=0.001", "optimizer.momentum=0.9", "optimizer.centered=true"],
    "adagrad": ["optimizer.lr=0.01", "optimizer.lr_decay=0.1",
                "optimizer.initial_accumulator_value=0.1"],
    "adamax": ["optimizer.lr=0.002", "optimizer.weight_decay=0.1",
               'optimizer.groups=[{"match": ["*bias"], "weight_decay": 0, "lr_factor": 3}]'],
    "lion": ["optimizer.lr=0.0005", "optimizer.weight_decay=0.1"],
}


def train_to(place, name, ranks, steps, *words):
    run(on_ranks(ranks, train("mlp-jax", place, *COMMON, f"optimizer.name={name}",
                              *OPTIMIZERS[name], f"trainer.max_steps={steps}", *words)))


def model(run_dir):
    with open(os.path.join(last(run_dir), "model.safetensors"), "rb") as file:
        return file.read()


def check_strategies(folder):
    for name in OPTIMIZERS:
        one = os.path.join(folder, name)
        train_to(one, name, 1, STEPS)
        # Signs, and quotients of small numbers, carry a rounding on.
        limit = 1e-3 if name in ("lion", "rmsprop") else 1e-5
        for strategy in ("ddp", "fsdp"):
            place = f"{one}-{strategy}"
            train_to(place, name, 2, STEPS, f"strategy.name={strategy}")
            check_close(losses(place), losses(one), limit, f"{name}, {strategy}")
        pieces = f"{one}-pieces"
        train_to(pieces, name, 2, 3, "strategy.name=zero1")
        train_to(pieces, name, 1, STEPS)
        check_close(losses(pieces), losses(one), limit, f"{name}, resumed")


def check_offload(folder):
    """Bit for bit."""
    for name in OPTIMIZERS:
        whole = os.path.join(folder, name)
        for device in ("cpu", "far"):
            place = f"{whole}-offload-{device}"
            train_to(place, name, 1, STEPS, "strategy.offload=optimizer", "--device", device)
            check_same(losses(place), losses(whole), f"{name}, offload, {device}")
            assert model(place) == model(whole), f"{name}, offload, {device}"


def main():
    with tempfile.TemporaryDirectory(prefix="trireme-optimizers-") as folder:
        for check in (check_strategies, check_offload):
            timed(check, folder)


if __name__ == "__main__":
    main()
