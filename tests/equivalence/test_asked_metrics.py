#!/usr/bin/env python3
"""The recipe's `metrics` of a built-in classifier: computed here from the logits that `predict`
writes, they are what metrics.jsonl and `eval` say, on one rank and on several, with ignored labels,
a last pass that is smaller, bf16, and the names of an image folder's classes. Decoders report their
perplexity.

usage: test_asked_metrics.py BUILD_FOLDER
"""
import json
import math
import os
import random
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tensors  # noqa: E402
from runs import TRIREME, check_refused, entries, last, on_ranks, run  # noqa: E402

SAMPLES, CLASSES, SIDE, IGNORED = 61, 10, 28, -100
ASKED = "metrics=[top3, perplexity, f1, balanced_accuracy, per_class, confusion_matrix]"
WAYS = [(1, "batch.eval=7"), (2, "batch.eval=5"), (3, "strategy.name=fsdp batch.eval=4"),
        (3, "strategy.name=pipeline batch.micro=3 batch.eval=9"),
        (2, "strategy.mesh.tensor=2 strategy.tensor.fc1=column strategy.tensor.fc2=row")]


def mean(values):
    return sum(values) / len(values) if values else 0


def ratio(a, b):
    return a / b if b else 0


def wanted_of(logits, labels):
    pairs = [(row, label) for row, label in zip(logits, labels) if label != IGNORED]
    matrix = [[0] * CLASSES for _ in range(CLASSES)]
    for row, label in pairs:
        matrix[label][row.index(max(row))] += 1
    hits = [matrix[k][k] for k in range(CLASSES)]
    labelled = [sum(row) for row in matrix]
    guessed = [sum(row[k] for row in matrix) for k in range(CLASSES)]
    f1s = [ratio(2 * h, a + b) for h, a, b in zip(hits, labelled, guessed)]
    recalls = [ratio(h, a) for h, a in zip(hits, labelled)]
    seen = [k for k in range(CLASSES) if labelled[k] + guessed[k]]
    return {"accuracy": sum(hits) / len(pairs),
            "top3": mean([label in sorted(range(CLASSES), key=lambda k, r=row: -r[k])[:3]
                          for row, label in pairs]),
            "perplexity": math.exp(mean([math.log(sum(map(math.exp, row))) - row[label]
                                         for row, label in pairs])),
            "f1": mean([f1s[k] for k in seen]),
            "balanced_accuracy": mean([recalls[k] for k in range(CLASSES) if labelled[k]]),
            "class_precision": [ratio(h, b) for h, b in zip(hits, guessed)],
            "class_recall": recalls, "class_f1": f1s, "class_samples": labelled,
            "confusion_matrix": matrix}


def flat(value):
    return [x for part in value for x in flat(part)] if isinstance(value, list) else [value]


def check(got, wanted, limit, what):
    for name, value in wanted.items():
        assert len(flat(got[name])) == len(flat(value)), (what, name, got)
        for a, b in zip(map(float, flat(got[name])), flat(value)):
            assert abs(a - b) <= limit * (1 + abs(b)), (what, name, got[name], value)


def check_numbers(folder):
    draw = random.Random(5)
    images = [draw.random() for _ in range(SAMPLES * SIDE * SIDE)]
    labels = [IGNORED if i % 7 == 3 else draw.choice([0, 1, 2, 4, 5, 9]) for i in range(SAMPLES)]
    data = os.path.join(folder, "data.safetensors")
    tensors.write(data, {"images": ("F32", [SAMPLES, 1, SIDE, SIDE], images),
                         "labels": ("I64", [SAMPLES], labels)})
    place = os.path.join(folder, "run")
    recipe = ["recipes/mlp-jax.yaml", "data.name=tensors", f"data.train={data}",
              f"data.test={data}", "data.workers=0", "batch.global=12", "trainer.max_epochs=2"]
    run([TRIREME, "train", *recipe, ASKED, "checkpoint.monitor=val_top3", "--run-dir", place])
    out = os.path.join(folder, "out.safetensors")
    run([TRIREME, "predict", *recipe, "--checkpoint", last(place), "--out", out])
    numbers = tensors.numbers(tensors.read(out)["logits"])
    logits = [numbers[i * CLASSES:(i + 1) * CLASSES] for i in range(SAMPLES)]
    wanted = wanted_of(logits, labels)
    check(entries(place, "val")[-1], wanted, 1e-5, "metrics.jsonl")
    for ranks, words in WAYS:
        got = run(on_ranks(ranks, [TRIREME, "eval", *recipe, ASKED, "--checkpoint", last(place),
                                   "--json", *words.split()])).stdout
        check(json.loads(got), wanted, 1e-5, words)
    # In bf16 the scores are others: the counts still belong together.
    got = json.loads(run([TRIREME, "eval", *recipe, ASKED, "--checkpoint", last(place), "--json",
                          "trainer.precision=bf16-mixed"]).stdout)
    matrix, counted = got["confusion_matrix"], sum(label != IGNORED for label in labels)
    assert sum(map(sum, matrix)) == counted and list(map(sum, matrix)) == got["class_samples"], got
    assert abs(sum(matrix[k][k] for k in range(CLASSES)) / counted - got["accuracy"]) < 1e-6, got
    shown = run([TRIREME, "eval", *recipe, ASKED, "--checkpoint", last(place)]).stdout.splitlines()
    assert "top3" in shown[0] and shown[1].split()[-1] == "class_samples", shown
    assert len(shown) < 30 and any("is taken for" in line for line in shown), shown
    refused = os.path.join(folder, "refused")
    for word, texts in (("tpo5", ["'tpo5'", "top5", "confusion_matrix"]),
                        ("top10", ["top10", "always 1"])):
        check_refused([TRIREME, "train", *recipe, f"metrics=[{word}]"], refused, texts)
    check_refused([TRIREME, "train", *recipe, ASKED, "checkpoint.monitor=val_confusion_matrix"],
                  refused, ["val_confusion_matrix", "100 figures", "val_top3"])
    check_refused([TRIREME, "train", "recipes/autoencoder.yaml", *recipe[1:], "metrics=[f1]"],
                  refused, ["metrics", "f1", "autoencoder"])


def check_names(folder):
    """Classes have their folders' names; TensorBoard's tags, too."""
    draw = random.Random(7)
    for name in ("cat", "dog", "owl"):
        os.makedirs(os.path.join(folder, "images", name))
        for i in range(4):
            with open(os.path.join(folder, "images", name, f"{i}.pgm"), "wb") as file:
                file.write(b"P5 28 28 255\n" + draw.randbytes(SIDE * SIDE))
    place = os.path.join(folder, "named")
    run([TRIREME, "train", "recipes/mlp-jax.yaml", "data.name=imagefolder", "data.workers=0",
         f"data.path={folder}/images", "data.train=.", "data.test=.", "batch.global=4",
         "data.transform=[{resize: [28, 28]}]", "trainer.max_epochs=1", "metrics=[per_class]",
         "--run-dir", place])
    line = entries(place, "val")[-1]
    assert line["classes"] == ["cat", "dog", "owl"] and line["class_samples"][:3] == [4, 4, 4], line
    events = b"".join(open(os.path.join(place, "tensorboard", name), "rb").read()
                      for name in os.listdir(os.path.join(place, "tensorboard")))
    assert b"val/class_recall/owl" in events and b"val/class_recall/3" in events, len(events)
    shown = run([TRIREME, "eval", "--checkpoint", last(place)]).stdout
    assert "\ncat " in shown and "\nowl " in shown, shown


def check_decoders(folder):
    """They report their perplexity unasked, also if ranks divide the vocabulary."""
    place = os.path.join(folder, "decoder")
    words = ["recipes/llama-tiny.yaml", "data.name=synthetic", "data.samples=8",
             "data.test_samples=5", "data.sequence=9", "data.vocabulary=64", "data.workers=0",
             "model.vocab_size=64", "model.hidden_size=32", "model.num_hidden_layers=1",
             "model.intermediate_size=64", "batch.global=4", "trainer.max_steps=2"]
    run([TRIREME, "train", *words, "--run-dir", place])
    line = entries(place, "val")[-1]
    for ranks, more in ((1, "batch.eval=5"), (2, "strategy.mesh.tensor=2"),
                        (2, "strategy.name=pipeline batch.micro=2")):
        got = json.loads(run(on_ranks(ranks, [TRIREME, "eval", *words, "--checkpoint", last(place),
                                              "--json", *more.split()])).stdout)
        for found in (got, line):
            loss, perplexity = float(found["loss"]), float(found["perplexity"])
            assert abs(perplexity / math.exp(loss) - 1) < 1e-6, (more, found)
        assert abs(got["loss"] - float(line["loss"])) < 1e-5, (more, got, line)


def main():
    with tempfile.TemporaryDirectory(prefix="trireme-asked-") as folder:
        check_numbers(folder)
        check_names(folder)
        check_decoders(folder)


if __name__ == "__main__":
    main()
