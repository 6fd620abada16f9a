#!/usr/bin/env python3
"""The number of ranks never changes the result: the same run on 1, 2 and 3 ranks.

Dropout is on, the last steps of epochs are smaller, with and without batch.micro. Every step's loss
is the same within 1e-5, evaluations are exact, whole runs of Adadelta within a point of accuracy.

usage: test_ranks.py BUILD_FOLDER
"""
import json
import os
import shutil
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import (DATA, SYNTHETIC, TRIREME, check_close, check_refused, check_same,  # noqa: E402
                  entries, last, losses, on_ranks, run, timed, train)

LIMIT = 1e-5
SGD = ["optimizer.name=sgd", "optimizer.lr=0.01"]
TWENTY = ["trainer.max_steps=20", "trainer.max_epochs=-1"]
TEST_SAMPLES = 101

# Recipe, batches, further settings. 133 samples: every fourth step or so is a tail that
# no number of ranks divides; a tail of 5 leaves ranks without samples, one of 1 most of them.
CASES = [
    ("mnist-cnn", 32, 0, 133, ["model.dropout=0.3"]),
    ("mnist-cnn", 32, 8, 133, ["model.dropout=0.3"]),
    ("mnist-cnn", 32, 5, 33, ["model.dropout=0.5", "trainer.gradient_clip_val=0.5"]),
    ("mnist-cnn", 12, 4, 49, ["optimizer.momentum=0.9", "optimizer.weight_decay=0.01"]),
    ("mlp-jax", 32, 0, 133, []),
    ("mlp-jax", 32, 7, 130, []),
    ("autoencoder", 32, 0, 133, []),
    ("autoencoder", 32, 8, 129, []),
    # At a larger rate, rounding grows by flips of ReLU and pooling behind batch norm: to 1e-5 and
    # more in 20 steps for one seed in eight, with any sums of the gradients.
    # With the default seed one such flip moves a bias of batch norm by 1e-7, a thousandth of it.
    ("mnist-convnet", 24, 4, 133, ["optimizer.lr=0.001", "seed=2"]),
    ("mnist-convnet", 24, 8, 73, ["optimizer.lr=0.001"]),
]


def settings(case):
    recipe, size, micro, samples, more = case
    shape = [] if recipe == "autoencoder" else ["data.shape=[1,16,16]"]
    return recipe, [*SYNTHETIC, *shape, *SGD, *TWENTY, f"data.samples={samples}",
                    f"data.test_samples={TEST_SAMPLES}", f"batch.global={size}",
                    f"batch.micro={micro}", "batch.eval=16", *more]


def compare_weights(a, b, what):
    """Weights, running statistics and counters at the end, each tensor by its relative L2."""
    done = run([TRIREME, "checkpoint", "diff", last(a), last(b), "--json"], None)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) >= 4, done.stdout + done.stderr
    for line in lines:
        assert line["relative_l2"] <= 1e-4, f"{what}: {line}"


def check_case(folder, number, case, ranks=(2, 3)):
    recipe, words = settings(case)
    alone = os.path.join(folder, f"{number}-1")
    run(train(recipe, alone, *words))
    wanted = losses(alone)
    assert sorted(wanted) == list(range(1, 21)), f"{recipe}: steps {sorted(wanted)}"
    assert len(set(wanted.values())) == 20, f"{recipe}: the loss does not move"
    worst = 0.0
    for count in ranks:
        several = os.path.join(folder, f"{number}-{count}")
        run(on_ranks(count, train(recipe, several, *words)))
        what = f"{recipe}, global {case[1]}, micro {case[2]}, {count} ranks"
        worst = max(worst, check_close(losses(several), wanted, LIMIT, what))
        check_close(losses(several, "val"), losses(alone, "val"), LIMIT, what + ", val")
        for mine, other in zip(entries(several, "val"), entries(alone, "val")):
            assert mine["samples"] == other["samples"] == TEST_SAMPLES, f"{what}: {mine}"
            assert mine.get("accuracy") == other.get("accuracy"), f"{what}: {mine} {other}"
        assert entries(several, "train")[-1]["samples"] == entries(alone, "train")[-1]["samples"]
        compare_weights(alone, several, what)
    print(f"  {recipe}, global {case[1]}, micro {case[2]}: worst {worst:.1e}", flush=True)


def check_initial_weights(folder):
    """A learning rate of 0 leaves the initial weights as they were: those of `checkpoint init`."""
    for recipe in ("mnist-cnn", "autoencoder"):
        words = [*SYNTHETIC, "optimizer.name=sgd", "optimizer.lr=0", "data.samples=12", "seed=7",
                 "data.test_samples=4", "batch.global=12", "trainer.max_steps=1"]
        first = os.path.join(folder, f"{recipe}.safetensors")
        run([TRIREME, "checkpoint", "init", f"recipes/{recipe}.yaml", *words, "--out", first])
        for count in (1, 2, 3):
            several = os.path.join(folder, f"{recipe}-init-{count}")
            run(on_ranks(count, train(recipe, several, *words)))
            run([TRIREME, "checkpoint", "diff", first, last(several)])


def check_statistics(folder):
    """After one step the running mean of the first batch norm is that of the whole step, however
    the step was cut: a mean of means weighted by their sizes."""
    words = [*SYNTHETIC, *SGD, "data.samples=22", "data.test_samples=4", "batch.global=22",
             "trainer.max_steps=1"]
    whole = os.path.join(folder, "statistics")
    run(train("mnist-convnet", whole, *words))
    for micro, ranks in ((8, 1), (5, 1), (8, 2), (3, 3)):
        cut = os.path.join(folder, f"statistics-{micro}-{ranks}")
        run(on_ranks(ranks, train("mnist-convnet", cut, *words, f"batch.micro={micro}")))
        done = run([TRIREME, "checkpoint", "diff", last(cut), last(whole), "--json"], 1)
        found = [line for line in map(json.loads, done.stdout.splitlines())
                 if line["name"] == "layer1.1.running_mean"]
        assert len(found) == 1 and found[0]["relative_l2"] <= 1e-5, f"micro {micro}: {found}"
    # An evaluation reads them, so that it needs no setting to be the same on several ranks.
    found = [json.loads(run(on_ranks(ranks, [TRIREME, "eval", "--checkpoint", whole, "--json"]))
                        .stdout) for ranks in (1, 3)]
    assert found[0]["samples"] == found[1]["samples"] == 4
    assert abs(found[0]["loss"] - found[1]["loss"]) < 1e-6, found


def check_same_ranks_same_bits(folder):
    """A second run on the same number of ranks, after that of check_case: every digit and every
    weight."""
    recipe, words = settings(CASES[0])
    a, b = (os.path.join(folder, name) for name in ("0-2", "bits"))
    run(on_ranks(2, train(recipe, b, *words)))
    check_same(losses(a), losses(b), "the same run twice")
    run([TRIREME, "checkpoint", "diff", last(a), last(b)])


def check_reference(folder):
    """`ref` and `cpu` train alike."""
    for recipe, samples, more in (("autoencoder", 40, []), ("mnist-convnet", 20, ["batch.micro=4"]),
                                  ("mnist-cnn", 10, ["model.dropout=0.3"])):
        words = [*SYNTHETIC, *SGD, f"data.samples={samples}", "data.test_samples=5",
                 "batch.global=8", "trainer.max_steps=6", "trainer.convolution=direct", *more]
        ref, cpu = (os.path.join(folder, f"{recipe}-{name}") for name in ("ref", "cpu"))
        run(train(recipe, ref, *words, "--device", "ref"))
        run(train(recipe, cpu, *words, "--device", "cpu"))
        worst = check_close(losses(cpu), losses(ref), 1e-4, f"{recipe}: cpu and ref")
        check_close(losses(cpu, "val"), losses(ref, "val"), 1e-4, f"{recipe}: val of cpu and ref")
        several = os.path.join(folder, f"{recipe}-ref-2")
        run(on_ranks(2, train(recipe, several, *words, "--device", "ref")))
        check_close(losses(several), losses(ref), LIMIT, f"{recipe}: ref on 2 ranks")
        print(f"  {recipe}: cpu and ref, worst {worst:.1e}", flush=True)


def check_evaluation(folder):
    """All 10,000 test images once, whatever the ranks and the size of a pass."""
    words = [f"data.path={DATA}", "data.limit=100", "batch.global=50", "trainer.max_epochs=1",
             "log.tensorboard=false"]
    place = os.path.join(folder, "evaluated")
    run(train("mlp-jax", place, *words))
    results = []
    for count, size in ((1, 0), (2, 0), (3, 0), (1, 9999), (3, 64), (2, 10000), (3, 3333), (1, 1)):
        done = run(on_ranks(count, [TRIREME, "eval", "recipes/mlp-jax.yaml", "--checkpoint", place,
                                    *words, f"batch.eval={size}", "--json"]))
        results.append(json.loads(done.stdout.splitlines()[-1]))
        first, now = results[0], results[-1]
        what = f"{count} ranks, {size} a pass: {now}, first {first}"
        assert now["samples"] == 10000 and now["accuracy"] == first["accuracy"], what
        assert abs(now["loss"] - first["loss"]) <= LIMIT * first["loss"], what
    val = entries(place, "val")[-1]
    assert val["samples"] == 10000 and abs(float(val["loss"]) - results[0]["loss"]) <= 1e-5


def check_whole_runs(folder):
    """Adadelta at 1.0 makes steps of rounding noise: whole runs end within a point of accuracy."""
    words = [f"data.path={DATA}", "data.limit=6020", "trainer.max_epochs=2", "seed=3",
             "trainer.check_val_every_n_epoch=2", "log.tensorboard=false",
             "trainer.limit_val_batches=0.25"]  # check_evaluation counts all of them
    found = []
    for count in (1, 3):
        place = os.path.join(folder, f"adadelta-{count}")
        run(on_ranks(count, train("mnist-cnn", place, *words)))
        val = entries(place, "val")
        assert [v["samples"] for v in val] == [2500], val
        found.append(float(val[-1]["accuracy"]))
    print(f"  accuracy on 1 and 3 ranks: {found}", flush=True)
    assert min(found) > 0.7 and max(found) - min(found) <= 0.01, found


def check_reduced_types(folder):
    """Gradients that travel as half types: rounded, and no more than that; a rank alone rounds
    none, and nobody does while runs have to be the same on any number of ranks."""
    words = [*settings(CASES[0])[1], "trainer.max_steps=10"]
    types = {"float32": LIMIT, "bfloat16": 2e-3, "float16": 5e-4}
    alone, *rounded = (os.path.join(folder, f"reduced-{name}") for name in ("alone", *types))
    run(train("mnist-cnn", alone, *words, "strategy.reduce_dtype=bfloat16"))
    for strategy, ranks in (("ddp", 2), ("zero2", 3), ("fsdp", 2)):
        for place, (name, limit) in zip(rounded, types.items()):
            shutil.rmtree(place, ignore_errors=True)
            run(on_ranks(ranks, train("mnist-cnn", place, *words, f"strategy.name={strategy}",
                                      f"strategy.reduce_dtype={name}")))
            check_close(losses(place), losses(alone), limit, f"{strategy}, {name}")
        kept, *others = (list(losses(place).values()) for place in rounded)
        assert kept not in others and others[0] != others[1], f"{strategy}: nothing was rounded"
    done = run(train("mnist-cnn", os.path.join(folder, "no"), *words, "trainer.deterministic=true",
                     "strategy.reduce_dtype=bfloat16"), 2)
    assert "strategy.reduce_dtype: float32" in done.stderr, done.stderr


def check_refusals(folder):
    """What would make the result depend on the ranks is refused, with what would do."""
    place = os.path.join(folder, "refused")
    for recipe, ranks, more, parts in (
            ("mnist-convnet", 2, [], ("batch.micro", "sync_batchnorm")),
            ("mnist-cnn", 3, ["batch.global=2"], ("batch.global",)),
            ("mnist-cnn", 3, ["batch.global=32", "batch.micro=16"], ("batch.micro",))):
        words = [*SYNTHETIC, "data.samples=40", "data.test_samples=4", *more]
        check_refused(on_ranks(ranks, train(recipe, place, *words)), place, parts)


def main():
    with tempfile.TemporaryDirectory(prefix="trireme-ranks-") as folder:
        timed(check_refusals, folder)
        timed(check_initial_weights, folder)
        for number, case in enumerate(CASES):
            timed(check_case, folder, number, case)
        for check in (check_statistics, check_reduced_types, check_same_ranks_same_bits,
                      check_reference, check_evaluation, check_whole_runs):
            timed(check, folder)


if __name__ == "__main__":
    main()
