#!/usr/bin/env python3
"""Runs that are saved on one mesh and resumed on another have the losses, and at the end the
weights and optimizer states, of a run that was not interrupted.

usage: test_checkpoint_mesh.py BUILD_FOLDER
"""
import json
import os
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import (SYNTHETIC, TRIREME, check_close, last, losses, on_ranks, run, timed,  # noqa: E402
                  train)

LIMIT = 2e-5
HALF, STEPS = 3, 6
LLAMA = ["model.num_hidden_layers=2", "model.hidden_size=48", "model.intermediate_size=80",
         "data.sequence=33", "data.limit=72", "batch.global=12", "batch.micro=2", "batch.eval=4",
         "optimizer.lr=0.001", "schedule.name=constant", "schedule.warmup_steps=0",
         "trainer.max_epochs=1", "trainer.limit_val_batches=1", "trainer.log_every_n_steps=1",
         "log.tensorboard=false", "checkpoint.every_n_steps=2"]
CONVNET = [*SYNTHETIC, "data.samples=96", "data.test_samples=16", "batch.global=16",
           "batch.micro=4", "batch.eval=16", "trainer.max_epochs=1", "optimizer.lr=0.01",
           "optimizer.momentum=0.9", "checkpoint.every_n_steps=2"]
PIPELINE = ["strategy.name=pipeline"]
HYBRID = ["strategy.name=fsdp", "strategy.mesh.replicate=2", "strategy.mesh.shard=2"]

# Recipe, its settings, and from where to where: ranks and further settings.
CASES = [
    ("llama-tiny", LLAMA, [
        ((2, []), (3, ["strategy.name=fsdp"])),
        ((4, ["strategy.name=fsdp"]), (2, PIPELINE)),
        ((2, [*PIPELINE, "strategy.schedule=interleaved"]), (1, [])),
        ((2, ["strategy.mesh.tensor=2"]), (2, ["strategy.name=zero1"])),
    ]),
    ("mnist-convnet", CONVNET, [
        ((2, ["strategy.name=zero1"]), (3, ["strategy.name=zero2"])),
        ((4, HYBRID), (1, [])),
    ]),
]


def compare_ends(a, b, what):
    done = run([TRIREME, "checkpoint", "diff", last(a), last(b), "--json"], None)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) >= 8, done.stdout + done.stderr
    for line in lines:
        # The momentum of a bias before batch norm is rounding noise.
        assert line["relative_l2"] <= 1e-3 or line["max_abs"] <= 1e-5, f"{what}: {line}"


def check_case(folder, recipe, words, pairs):
    whole = os.path.join(folder, recipe)
    run(train(recipe, whole, *words))
    wanted = losses(whole)
    assert sorted(wanted) == list(range(1, STEPS + 1)), wanted
    for number, ((ranks, more), (other_ranks, other)) in enumerate(pairs):
        place = os.path.join(folder, f"{recipe}-{number}")
        what = f"{recipe}, {ranks} ranks {' '.join(more)}, then {other_ranks} {' '.join(other)}"
        run(on_ranks(ranks, train(recipe, place, *words, *more, f"trainer.max_steps={HALF}")))
        assert sorted(losses(place)) == list(range(1, HALF + 1)), what
        run(on_ranks(other_ranks, train(recipe, place, *words, *other)))
        worst = check_close(losses(place), wanted, LIMIT, what)
        compare_ends(place, whole, what)
        print(f"  {what}: worst {worst:.1e}", flush=True)


def training_state(run_dir):
    with open(os.path.join(last(run_dir), "state.json"), encoding="utf-8") as file:
        return json.load(file)["training"]


def check_loss_scale(folder):
    """The loss scale and what it has seen go on too."""
    words = [*LLAMA, "trainer.precision=16-mixed", "trainer.loss_scale.window=2",
             "trainer.loss_scale.initial=1024"]
    whole, place = os.path.join(folder, "scale"), os.path.join(folder, "scale-resumed")
    run(train("llama-tiny", whole, *words))
    run(on_ranks(2, train("llama-tiny", place, *words, "strategy.name=fsdp",
                          f"trainer.max_steps={HALF}")))
    before = training_state(place)["loss_scale"]
    run(train("llama-tiny", place, *words))
    after, wanted = training_state(place)["loss_scale"], training_state(whole)["loss_scale"]
    assert after == wanted and after != before, f"{before}, then {after}; in one go {wanted}"
    check_close(losses(place), losses(whole), 2e-3, "16-mixed, 2 ranks fsdp, then 1")


def main():
    with tempfile.TemporaryDirectory(prefix="trireme-mesh-") as folder:
        for recipe, words, pairs in CASES:
            timed(check_case, folder, recipe, words, pairs)
        timed(check_loss_scale, folder)


if __name__ == "__main__":
    main()
