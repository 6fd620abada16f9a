#!/usr/bin/env python3
"""Runs on data of several sources: what is evaluated, which samples come, and what checks find.

usage: test_mixture.py BUILD_FOLDER
"""
import json
import os
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import check_all, check_refused, entries, run, train  # noqa: E402
import tensors  # noqa: E402

SIZES = {"a": 40, "b": 8, "c": 3}
folder = None


def path(name):
    return os.path.join(folder, name)


def put_tables():
    for name, count in SIZES.items():
        tensors.write(path(name), {"inputs": ("F32", [count, 2], [i / 9 for i in range(2 * count)]),
                                   "labels": ("I64", [count], [i % 2 for i in range(count)])})


def words(run_dir, *sources, model="mlp-jax"):
    entry = ", ".join(f"{{name: tensors, {source}}}" for source in sources)
    return train(model, path(run_dir), "data.name=mixture", f"data.path={folder}",
                 f"data.mix=[{entry}]", "log.tensorboard=false", "optimizer.name=sgd")


def check_evaluates():
    """The samples of the sources that name the split are evaluated, and no others."""
    for number, (first, second, kinds) in enumerate((
            (", val: b", ", val: c", {"val": 11}), ("", ", val: c", {"val": 3}),
            (", val: b, test: c", ", val: c", {"val": 11, "test": 3}),
            ("", ", test: c", {"val": 3}), ("", "", {}))):
        run_dir = f"evaluates-{number}"
        run([*words(run_dir, "train: a" + first, "train: b" + second), "trainer.max_epochs=1"])
        found = {kind: line["samples"] for kind in ("val", "test")
                 for line in entries(path(run_dir), kind)}
        assert found == kinds, (number, found)
    check_refused([*words("no", "train: a", "train: b"), "data.val=c"], path("no"), ["data.val"])


def check_order():
    """Fields have one order, whichever source a split begins with."""
    tensors.write(path("images"), {"images": ("U8", [5, 2, 4, 3], bytes(120)),
                                   "labels": ("I64", [5], [0] * 5)})
    file = os.path.abspath("tests/support/goldens/plain.h5")
    sources = [f"{{name: hdf5, train: '{file}', fields: {{labels: group/y, images: images}}}}",
               "{name: tensors, train: images, test: images}"]
    for number, order in enumerate((sources, sources[::-1])):
        run(train("mlp-jax", path(f"order-{number}"), "data.name=mixture",
                  f"data.path={folder}", f"data.mix=[{', '.join(order)}]",
                  "trainer.max_epochs=1", "log.tensorboard=false"))
        assert entries(path(f"order-{number}"), "val")[-1]["samples"] == 5


def check_overfits():
    """Epochs of the same few steps have the same samples, which the log names by their number."""
    run([*words("overfit", "weight: 1, train: a", "weight: 9, train: b"), "batch.global=5",
         "trainer.overfit_batches=2", "trainer.max_epochs=3", "optimizer.lr=1e-12",
         "log.samples=true", "trainer.log_every_n_steps=1"])
    with open(path("overfit/logs/samples-rank-0.jsonl"), encoding="utf-8") as file:
        taken = [json.loads(line)["samples"] for line in file]
    assert len(taken) == 6 and taken == taken[:2] * 3, taken
    assert sum(sample < SIZES["a"] for sample in taken[0]) == 5, taken
    losses = [line["loss"] for line in entries(path("overfit"), "train")]
    evaluated = [line["loss"] for line in entries(path("overfit"), "val")]
    assert losses == losses[:2] * 3 and evaluated == evaluated[:1] * 3, (losses, evaluated)


def check_padding():
    """A sample that no epoch but a late one has is checked at the start."""
    tokens = 6
    for name, count, bad in (("good", 5, None), ("bad", 40, 30)):
        masks = [[1] * tokens for _ in range(count)]
        if bad:
            masks[bad][-2:] = [0, 0]
        tensors.write(path(name), {
            "input_ids": ("I64", [count, tokens], [1] * (count * tokens)),
            "labels": ("I64", [count, tokens], [1] * (count * tokens)),
            "attention_mask": ("F32", [count, tokens], [x for mask in masks for x in mask])})
    small = ["model.hidden_size=16", "model.intermediate_size=16", "model.num_hidden_layers=1",
             "model.num_attention_heads=2", "model.vocab_size=8", "trainer.max_epochs=1"]
    for weights in ((9, 1), (1, 9)):
        check_refused([*words("no", f"weight: {weights[0]}, train: good",
                              f"weight: {weights[1]}, train: bad", model="llama-tiny"), *small],
                      path("no"), ["attention_mask", "35"])


def main():
    global folder
    with tempfile.TemporaryDirectory(prefix="trireme-mixture-") as folder:
        put_tables()
        failed = check_all((check_evaluates, check_order, check_overfits, check_padding))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
