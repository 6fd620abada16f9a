#!/usr/bin/env python3
"""Soft labels train the built-in classification models: those that are 1 at one class and 0 at the
others as labels do, on any number of ranks, and a row of zeros as the label -100. Mixed samples
(mixup, cutmix) do not depend on the number of ranks either.

usage: test_soft_labels.py BUILD_FOLDER
"""
import json
import os
import random
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import TRIREME, check_all, check_close, losses, on_ranks, run  # noqa: E402
import tensors  # noqa: E402

SAMPLES, CLASSES, PIXELS = 22, 10, 28 * 28
folder = None


def write(name, fields):
    """A safetensors file. fields: name, type, shape of a sample and values."""
    tensors.write(os.path.join(folder, name), {key: (kind, [SAMPLES, *shape], values)
                                               for key, kind, shape, values in fields})


def write_data():
    draw = random.Random(5)
    for part in ("train", "test"):
        labels = [draw.randrange(CLASSES) for _ in range(SAMPLES)]
        labels[3] = labels[11] = -100
        images = ("images", "U8", [1, 28, 28],
                  [draw.randrange(256) for _ in range(SAMPLES * PIXELS)])
        soft = [float(k == label) for label in labels for k in range(CLASSES)]
        smooth = [0.9 * value + 0.01 if any(soft[i // CLASSES * CLASSES:][:CLASSES]) else 0
                  for i, value in enumerate(soft)]
        write(part, [images, ("labels", "I64", [], labels)])
        write("smooth-" + part, [images, ("soft_labels", "F32", [CLASSES], smooth)])
        write("soft-" + part, [images, ("soft_labels", "F32", [CLASSES], soft)])
        write("both-" + part, [images, ("labels", "I64", [], labels),
                               ("soft_labels", "F32", [CLASSES], soft)])


def train(name, model, data, ranks=1, *words, code=0):
    place = os.path.join(folder, name)
    done = run([*on_ranks(ranks, [TRIREME, "train", os.path.join(folder, "soft.yaml"), "--run-dir",
                                  place, f"data.path={folder}", f"data.train={data}train",
                                  f"data.test={data}test", f"model.name={model}", *words])],
               code=code)
    if code:
        return done.stderr.splitlines()
    with open(os.path.join(place, "metrics.jsonl"), encoding="utf-8") as file:
        accuracy = [(line["accuracy"], line["samples"]) for line in map(json.loads, file)
                    if "accuracy" in line]
    return losses(place), accuracy


def check_like_labels():
    for model in ("mnist-cnn", "mnist-convnet", "mlp-jax"):
        hard, soft = train(model + "-hard", model, ""), train(model + "-soft", model, "soft-")
        assert len(hard[0]) == 8 and hard[1], hard
        check_close(soft[0], hard[0], 2e-5, model)
        assert soft[1] == hard[1], (model, soft, hard)


def check_ranks():
    alone = train("alone", "mnist-cnn", "soft-")
    for name, ranks, words in (
            ("ddp", 2, ["batch.micro=2"]), ("bf16", 1, ["trainer.precision=bf16-mixed"]),
            ("tensor", 2, ["strategy.mesh.tensor=2"]), ("far", 1, ["--device", "far"])):
        found = train("ranks-" + name, "mnist-cnn", "soft-", ranks, *words)
        check_close(found[0], alone[0], 2e-2 if name == "bf16" else 2e-5, name)


def check_smoothed():
    """loss.label_smoothing trains and evaluates with labels of which all classes share a part: on
    labels, soft labels and mixed ones, on any ranks, also where they share the classes."""
    key = "loss.label_smoothing=0.1"
    for model in ("mnist-cnn", "mlp-jax"):
        wanted = train(model + "-by-hand", model, "smooth-")
        for data in ("", "soft-"):
            found = train(f"{model}-{data}smoothed", model, data, 1, key)
            check_close(found[0], wanted[0], 2e-5, model)
            assert found[1] == wanted[1], (model, data)
    place = os.path.join(folder, "mnist-cnn-smoothed"), os.path.join(folder, "mnist-cnn-by-hand")
    check_close(*(losses(each, "test") for each in place), 2e-5, "evaluation")
    for name, ranks, words in (("ddp", 2, ["batch.micro=2"]), ("far", 1, ["--device", "far"])):
        found = train("smoothed-" + name, "mlp-jax", "", ranks, key, *words)
        check_close(found[0], wanted[0], 2e-5, name)
    words = ["data.transform=[mixup: {alpha: 0.4, classes: 10}]", key]
    check_close(train("smoothed-mix-2", "mlp-jax", "", 2, "batch.micro=1", *words)[0],
                train("smoothed-mix", "mlp-jax", "", 1, *words)[0], 2e-5, "mixed")
    texts = ["data={name: synthetic, vocabulary: 40, sequence: 8, samples: 12}",
             "model.vocab_size=40", "model.hidden_size=16", "model.num_attention_heads=2",
             "model.intermediate_size=16", "model.num_hidden_layers=2", key]
    alone = train("llama-smoothed", "llama", "", 1, *texts)[0]
    for name, ranks, words in (("tensor", 2, ["strategy.mesh.tensor=2"]),
                               ("pipeline", 2, ["strategy.name=pipeline", "batch.micro=2"])):
        found = train("llama-" + name, "llama", "", ranks, *texts, *words)
        check_close(found[0], alone, 2e-5, name)
    lines = train("no-labels", "autoencoder", "", 1, key, code=2)
    assert len(lines) == 1 and "loss.label_smoothing" in lines[0], lines


def check_mixed():
    """Mixed samples are the same on any number of ranks and after a resume."""
    mix = ["data.transform=[mixup: {alpha: 0.4, classes: 10}, cutmix: {alpha: 1}]"]
    plain = train("unmixed", "mnist-cnn", "")
    alone = train("mixed", "mnist-cnn", "", 1, *mix)
    for step, loss in alone[0].items():
        assert abs(float(loss) - float(plain[0][step])) > 1e-4, (alone, plain)
    for name, ranks, words in (("ranks", 2, ["batch.micro=1"]), ("uneven", 3, ["batch.micro=2"]),
                               ("threads", 1, ["data.workers=0"])):
        found = train("mixed-" + name, "mnist-cnn", "", ranks, *mix, *words)
        check_close(found[0], alone[0], 2e-5, name)
    train("cut", "mnist-cnn", "", 1, *mix, "trainer.max_steps=5")
    check_close(train("cut", "mnist-cnn", "", 1, *mix)[0], alone[0], 2e-5, "resumed")


def check_refused():
    """Data with both fields are refused: the model would read only one of them."""
    lines = train("both", "mlp-jax", "both-", code=2)
    assert len(lines) == 1 and "'soft_labels'" in lines[0], lines
    lines = train("ten", "mlp-jax", "soft-", 1, "model.num_classes=7", code=2)
    assert len(lines) == 1 and "[2, 7]" in lines[0] and "[2, 10]" in lines[0], lines


def main():
    global folder
    with tempfile.TemporaryDirectory(prefix="trireme-soft-") as folder:
        with open(os.path.join(folder, "soft.yaml"), "w", encoding="ascii") as file:
            file.write("data: {name: tensors}\nbatch: {global: 6}\noptimizer: {name: sgd, lr: "
                       "0.02}\ntrainer: {max_epochs: 2, log_every_n_steps: 1}\n"
                       "log: {tensorboard: false}\n")
        write_data()
        return 1 if check_all((check_like_labels, check_ranks, check_smoothed, check_mixed,
                                check_refused)) else 0


if __name__ == "__main__":
    sys.exit(main())
