#!/usr/bin/env python3
"""Metrics are those of the whole data, however it is divided: computed here from the weights, they
are what metrics.jsonl and `eval` say, on one rank and on several, in passes of any size.

usage: test_metrics.py BUILD_FOLDER
"""
import json
import math
import os
import random
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tensors  # noqa: E402
from runs import TRIREME, check_refused, entries, last, on_ranks, run  # noqa: E402

os.environ["TRIREME_MODULES"] = os.path.join(os.path.abspath(sys.argv[1]), "lib", "emulated")
SAMPLES, FIELDS, CLASSES, OUTPUTS = 53, 5, 4, 3
IGNORED = -100
# Ranks and settings; batch.eval decides how many passes an evaluation has.
WAYS = [(1, "batch.eval=7"), (2, "batch.eval=5"), (3, "strategy.name=fsdp batch.eval=4"),
        (2, "strategy.mesh.tensor=2 batch.eval=6"), (3, "strategy.name=pipeline batch.eval=9"),
        (2, "strategy.name=pipeline --device far"),
        (1, "trainer.deterministic=true batch.eval=1"), (2, "--device cuda batch.eval=9")]
COUNTED = "correct", "top2_accuracy", "recalls", "f1", "confusion", "label_f1", "exact_match"


def make_data(folder):
    """Class 2 is never a label, and every seventh label is left out."""
    draw = random.Random(3)
    inputs = [draw.gauss(0, 1) for _ in range(SAMPLES * FIELDS)]
    labels = [IGNORED if i % 7 == 3 else draw.choice([0, 1, 3]) for i in range(SAMPLES)]
    targets = [draw.gauss(0.2, 1) for _ in range(SAMPLES * OUTPUTS)]
    tensors.write(os.path.join(folder, "data.safetensors"), {
        "inputs": ("F32", [SAMPLES, FIELDS], inputs), "labels": ("I64", [SAMPLES], labels),
        "targets": ("F32", [SAMPLES, OUTPUTS], targets)})
    data = tensors.read(os.path.join(folder, "data.safetensors"))
    return {name: tensors.numbers(value) for name, value in data.items()}


def linear(rows, weights, name):
    shape = weights[name + ".weight"][1]
    weight, bias = (tensors.numbers(weights[f"{name}.{kind}"]) for kind in ("weight", "bias"))
    return [[bias[o] + sum(row[i] * weight[o * shape[1] + i] for i in range(shape[1]))
             for o in range(shape[0])] for row in rows]


def relu(rows):
    return [[max(x, 0) for x in row] for row in rows]


def mean(values):
    return sum(values) / len(values)


def f1_of(pairs):
    """Of pairs (is positive, is predicted)."""
    hits = sum(a and b for a, b in pairs)
    return 2 * hits / (sum(a for a, _ in pairs) + sum(b for _, b in pairs)) if hits else 0


def auc_of(pairs):
    """Of pairs (is positive, score)."""
    ones, zeros = ([s for a, s in pairs if a == which] for which in (True, False))
    if not ones or not zeros:
        return math.nan
    return mean([(s > z) + (s == z) / 2 for s in ones for z in zeros])


def of_labels(scores, labels):
    kept = [(row, label) for row, label in zip(scores, labels) if label != IGNORED]
    guesses = [(row.index(max(row)), label) for row, label in kept]
    sums = [math.log(sum(map(math.exp, row))) for row, _ in kept]
    recalls = [mean([g == k for g, t in guesses if t == k] or [0]) for k in range(CLASSES)]
    seen = [k for k in range(CLASSES) if any(k in pair for pair in guesses)]
    aucs = [auc_of([(t == k, row[k] - math.log(sum(math.exp(x) for i, x in enumerate(row)
                                                    if i != k))) for row, t in kept])
            for k in range(CLASSES)]
    return {"correct": mean([g == t for g, t in guesses]),
            "top2_accuracy": mean([t in sorted(range(CLASSES), key=lambda k: -row[k])[:2]
                                   for row, t in kept]),
            "recalls": recalls,
            "f1": mean([f1_of([(t == k, g == k) for g, t in guesses]) for k in seen]),
            "confusion": [[sum((t, g) == (a, b) for g, t in guesses) for b in range(CLASSES)]
                          for a in range(CLASSES)],
            "auc": mean([a for a in aucs if not math.isnan(a)]),
            "perplexity": math.exp(mean([s - row[t] for s, (row, t) in zip(sums, kept)]))}


def of_numbers(values, targets):
    columns = [[(row[o], targets[i * OUTPUTS + o]) for i, row in enumerate(values)]
               for o in range(OUTPUTS)]
    pairs = [[(t > 0, v > 0) for v, t in column] for column in columns]
    r2s = [1 - sum((v - t) ** 2 for v, t in c) /
           sum((t - mean([t for _, t in c])) ** 2 for _, t in c) for c in columns]
    every = [pair for column in columns for pair in column]
    return {"label_f1": mean(list(map(f1_of, pairs))),
            "exact_match": mean([all(p[i][0] == p[i][1] for p in pairs) for i in range(SAMPLES)]),
            "label_aucs": [auc_of([(t > 0, v) for v, t in c]) for c in columns],
            "mae": mean([abs(v - t) for v, t in every]),
            "rmse": math.sqrt(mean([(v - t) ** 2 for v, t in every])),
            "r2": mean(r2s), "r2s": r2s}


def flat(value):
    return [x for part in value for x in flat(part)] if isinstance(value, list) else [value]


def check(got, wanted, what):
    """AUC is that of intervals."""
    for name, value in wanted.items():
        limit = 5e-3 if "auc" in name else 1e-4
        assert len(flat(got[name])) == len(flat(value)), (what, name, got[name])
        for a, b in zip(map(float, flat(got[name])), flat(value)):
            assert abs(a - b) <= limit * (1 + abs(b)), (what, name, got[name], value)


def main():
    with tempfile.TemporaryDirectory(prefix="trireme-metrics-") as folder:
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "metrics_net.c")
        library, recipe = (os.path.join(folder, name) for name in ("net.so", "metrics.yaml"))
        subprocess.run(["cc", "-Wall", "-Werror", "-shared", "-fPIC", "-Iinclude", source, "-o",
                        library], check=True)
        data = make_data(folder)
        with open(recipe, "w", encoding="ascii") as file:
            file.write(f"name: metrics\nmodel: {{name: {library}}}\n"
                       f"data: {{name: tensors, train: {folder}/data.safetensors, "
                       f"test: {folder}/data.safetensors}}\n"
                       "batch: {global: 18, micro: 3}\noptimizer: {name: sgd, lr: 0.05}\n"
                       "trainer: {max_epochs: 2}\ncheckpoint: {monitor: val_f1}\n")
        place = os.path.join(folder, "run")
        run([TRIREME, "train", recipe, "--run-dir", place])
        weights = tensors.read(os.path.join(last(place), "model.safetensors"))
        rows = [data["inputs"][i * FIELDS:(i + 1) * FIELDS] for i in range(SAMPLES)]
        values = linear(relu(linear(rows, weights, "up")), weights, "down")
        scores = linear(relu(linear(values, weights, "middle")), weights, "head")
        wanted = {**of_labels(scores, data["labels"]), **of_numbers(values, data["targets"])}
        check(entries(place, "val")[-1], wanted, "metrics.jsonl")
        first = None
        for ranks, words in WAYS:
            done = run(["timeout", "60", *on_ranks(ranks, [
                TRIREME, "eval", recipe, "--checkpoint", last(place), "--json", *words.split()])])
            got = json.loads(done.stdout)
            check(got, wanted, words)
            first = first or got
            for name in COUNTED:
                assert got[name] == first[name], (words, name, got[name], first[name])
        # A deterministic run has the same digits on any number of ranks.
        same = "trainer.deterministic=true batch.eval=4".split()
        one, three = (run(on_ranks(ranks, [TRIREME, "eval", recipe, "--checkpoint", last(place),
                                           "--json", *same])).stdout for ranks in (1, 3))
        assert one == three, (one, three)
        check_refused([TRIREME, "train", recipe, "checkpoint.monitor=val_recalls"],
                      os.path.join(folder, "refused"), ["checkpoint.monitor", "val_recalls"])


if __name__ == "__main__":
    main()
