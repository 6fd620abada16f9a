#!/usr/bin/env python3
"""Ranks that share layers, and replicas with synchronised batch norm, have one rank's result:
losses, evaluation and weights, alone and with other strategies, also if saved on one mesh and
resumed on another.

usage: test_tensor.py BUILD_FOLDER
"""
import json
import os
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import (SYNTHETIC, TRIREME, check_close, check_refused, entries, last,  # noqa: E402
                  losses, on_ranks, run, timed, train)

LIMIT = 1e-5
HALF_LIMIT = 1e-4
STEPS = 5
ADAMW = ["optimizer.name=adamw", "optimizer.lr=0.001", "trainer.gradient_clip_val=0.5"]
LLAMA = ["data.sequence=32", "data.limit=38", "batch.global=8", "trainer.max_epochs=1",
         "trainer.log_every_n_steps=1", "log.tensorboard=false", "trainer.limit_val_batches=2",
         "batch.eval=4", "model.num_hidden_layers=2", "model.hidden_size=64",
         "model.intermediate_size=96", "model.dropout=0.1", *ADAMW]
IMAGES = [*SYNTHETIC, *ADAMW, "batch.global=32", "data.samples=133", "data.test_samples=21",
          "batch.eval=8", "trainer.max_epochs=1"]
GPT2 = ["data.path=recipes/data/tiny-shakespeare", "data.train=train.txt",
        "data.test=validation.txt", "data.sequence=32", "data.limit=38", "batch.global=8",
        "batch.micro=0", "batch.eval=4", "model.vocab_size=256", "model.n_positions=32",
        "model.n_embd=64", "model.n_layer=2", "model.n_head=4", "model.dropout=0.1",
        "trainer.precision=32-true", "trainer.max_epochs=1",
        "trainer.log_every_n_steps=1", "trainer.limit_val_batches=2", "log.tensorboard=false",
        "optimizer.groups=[]", "schedule.name=constant", *ADAMW]
VIT = [*IMAGES, "data.shape=[3,32,32]", "model.image_size=32", "model.patch_size=8",
       "model.num_layers=2", "model.num_heads=4", "model.hidden_dim=32", "model.mlp_dim=64",
       "model.num_classes=10", "model.dropout=0.1", "optimizer.name=sgd", "optimizer.lr=0.01"]
TENSOR = "strategy.mesh.tensor=2"
SEQUENCE = "strategy.sequence_parallel=true"

# Recipe, its settings, and what they are compared with: ranks and further settings.
CASES = [
    ("llama-tiny", LLAMA, [
        (2, [TENSOR]),
        (4, ["strategy.mesh.tensor=4", SEQUENCE]),  # more ranks than heads of keys
        (2, [TENSOR, SEQUENCE, "strategy.recompute=block"]),
        (2, [TENSOR, "strategy.tensor={'*.mlp.*': none, lm_head: none}"]),
        (4, [TENSOR, "batch.micro=2"]),
        (4, [TENSOR, SEQUENCE, "strategy.name=fsdp"]),
        (4, [TENSOR, SEQUENCE, "strategy.name=pipeline", "batch.micro=2",
             "strategy.schedule=zero-bubble"]),
        (8, [TENSOR, "strategy.mesh.shard=2", "strategy.mesh.pipeline=2", "strategy.name=zero2",
             "batch.micro=2"]),
    ]),
    ("llama-tiny", [*LLAMA, "model.tie_word_embeddings=true"], [
        (2, [TENSOR, SEQUENCE]),
        (4, [TENSOR, "strategy.name=pipeline", "batch.micro=2"]),
    ]),
    ("mnist-cnn", IMAGES, [
        (2, [TENSOR]),
        (4, [TENSOR, "strategy.tensor={fc2: column}", "strategy.name=zero1"]),
    ]),
    ("autoencoder", IMAGES, [
        (2, [TENSOR, "strategy.tensor={encoder.0: column, encoder.2: row, 'decoder.*': column}"]),
    ]),
    # A bias before batch norm, as that of attention's keys, has no gradient but rounding noise, of
    # which Adam makes whole steps.
    ("mnist-convnet", [*IMAGES, "optimizer.name=sgd", "optimizer.lr=0.01",
                       "trainer.sync_batchnorm=true"], [
        (2, []),
        (3, []),
        (2, ["strategy.name=fsdp"]),
        (4, [TENSOR, "strategy.tensor={fc: row}"]),
    ]),
    # Queries, keys and values are one layer; GPT-2's weights are transposed in files.
    ("gpt2-small", GPT2, [
        (2, [TENSOR]),
        (2, [TENSOR, "strategy.tensor={'*.mlp.*': none}"]),
        (2, ["strategy.name=fsdp"]),
        (4, [TENSOR, SEQUENCE, "strategy.name=fsdp"]),
        (4, ["strategy.mesh.tensor=4", "batch.micro=3"]),
        (4, [TENSOR, "strategy.name=pipeline", "batch.micro=2"]),
    ]),
    ("vit-b16", VIT, [
        (2, [TENSOR]),
        (4, ["strategy.mesh.tensor=4"]),
    ]),
]


def compare_weights(a, b, what):
    done = run([TRIREME, "checkpoint", "diff", last(a), last(b), "--json"], None)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) >= 4, done.stdout + done.stderr
    for line in lines:
        assert line["relative_l2"] <= 1e-4, f"{what}: {line}"


def check_case(folder, cases, number):
    """A case is a recipe, words, and ranks with more words each, which give what one rank gives."""
    recipe, words, cells = cases[number]
    alone = os.path.join(folder, f"{number}")
    run(train(recipe, alone, *words))
    wanted = losses(alone)
    assert len(wanted) == STEPS and len(set(wanted.values())) == STEPS, wanted
    for count, (ranks, more) in enumerate(cells):
        several = os.path.join(folder, f"{number}-{count}")
        run(on_ranks(ranks, train(recipe, several, *words, *more)))
        what = f"{recipe} on {ranks} ranks, {' '.join(more)}"
        check_close(losses(several), wanted, LIMIT, what)
        check_close(losses(several, "val"), losses(alone, "val"), LIMIT, what + ", val")
        for mine, other in zip(entries(several, "val"), entries(alone, "val")):
            assert mine["samples"] == other["samples"], f"{what}: {mine} {other}"
            assert mine.get("accuracy") == other.get("accuracy"), f"{what}: {mine} {other}"
        compare_weights(alone, several, what)


def check_half_types(folder):
    """Sums over ranks are rounded once, where one rank rounds its own."""
    for number, (recipe, words, ranks, more) in enumerate((
            ("llama-tiny", LLAMA, 2, [TENSOR, SEQUENCE]),
            ("mnist-cnn", IMAGES, 2, [TENSOR]),
            ("mnist-convnet", [*CASES[4][1]], 2, []))):
        for precision in ("bf16-mixed", "bf16-true"):
            alone = os.path.join(folder, f"half-{number}-{precision}-1")
            several = os.path.join(folder, f"half-{number}-{precision}-2")
            half = [*words, f"trainer.precision={precision}"]
            run(train(recipe, alone, *half))
            run(on_ranks(ranks, train(recipe, several, *half, *more)))
            check_close(losses(several), losses(alone), HALF_LIMIT, f"{recipe}, {precision}")


def check_resume(folder, number):
    """Checkpoints hold whole tensors: each part of the run is on another mesh."""
    recipe, options, _ = CASES[number]
    place, alone = os.path.join(folder, f"resumed-{number}"), os.path.join(folder, f"{number}")
    for ranks, steps, more in ((2, 2, [TENSOR]), (1, 3, []),
                               (4, 4, [TENSOR, "strategy.name=fsdp", SEQUENCE]),
                               (2, -1, ["strategy.name=zero2"])):
        words = [*options, f"trainer.max_steps={steps}", *more]
        run(on_ranks(ranks, train(recipe, place, *words)))
    check_close(losses(place), losses(alone), LIMIT, "resumed on other meshes")
    compare_weights(alone, place, "resumed on other meshes")


def check_refusals(folder):
    """Exit code 2, a line that names what does not fit, and no folder."""
    place = os.path.join(folder, "refused")
    for recipe, ranks, more, parts in (
            ("mnist-cnn", 3, ["strategy.mesh.tensor=3"], ("fc1.weight", "[128, 9216]", "3 equal")),
            ("mnist-cnn", 1, ["strategy.tensor={fc3: row}"], ("'fc3' matches no layer",)),
            ("mnist-cnn", 1, ["strategy.tensor={fc1: up}"], ("none, column or row",)),
            ("mnist-cnn", 2, [TENSOR, "strategy.tensor={conv1: column}"], ("conv1.weight",)),
            ("mnist-convnet", 2, [TENSOR], ("strategy.mesh.tensor", "model is divided")),
            ("mnist-convnet", 3, ["trainer.sync_batchnorm=true", "data.samples=34"],
             ("data.drop_last", "2 samples for 3 replicas"))):
        check_refused(on_ranks(ranks, train(recipe, place, *IMAGES, *more)), place, parts)


def main():
    with tempfile.TemporaryDirectory(prefix="trireme-tensor-") as folder:
        timed(check_refusals, folder)
        for number in range(len(CASES)):
            timed(check_case, folder, CASES, number)
        timed(check_half_types, folder)
        for number, case in enumerate(CASES):
            if case[1] in (LLAMA, GPT2):
                timed(check_resume, folder, number)


if __name__ == "__main__":
    main()
