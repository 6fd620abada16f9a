#!/usr/bin/env python3
"""Writes tests/grad/metric_tables.h: metrics as torchmetrics and scikit-learn compute them.

usage: make_metric_tables.py > metric_tables.h
Needs torchmetrics and scikit-learn. grad/test_metrics makes the same predictions and targets.
"""
import math
import random
import textwrap
import warnings

import numpy as np
import torch
import torchmetrics.functional as tm
import torchmetrics.functional.classification as tc
from sklearn import metrics as sk

warnings.simplefilter("ignore")
IGNORED = -100
AVERAGES = {"MICRO": "micro", "MACRO": "macro", "WEIGHTED": "weighted", "NONE": None}
OUTPUTS = {"MICRO": None, "MACRO": "uniform_average", "WEIGHTED": "variance_weighted",
           "NONE": "raw_values"}


def noise(index, seed):
    """A whole number below 2^32."""
    x = ((index + 1) * 2654435761 + seed * 97) % 2 ** 32
    x ^= x >> 15
    x = x * 2246822519 % 2 ** 32
    return x ^ x >> 13


def make(case):
    """Scores are multiples of 1/8, so that there are ties; class `absent` is never a label."""
    rows, width, seed = case["rows"], case["width"], case["seed"]
    x = np.array([(noise(i, seed) % 41 - 20) / 8 for i in range(rows * width)])
    count = rows if case["of"] == "LABELS" else rows * width
    y = np.array([noise(i, seed + 1) for i in range(count)])
    ignored = np.array([noise(i, seed + 2) % 8 < case["ignored"] for i in range(count)])
    if case["of"] == "NUMBERS":
        return x.reshape(rows, width), (y % 37 / 4).reshape(rows, width)
    if case["of"] == "TARGETS":
        y = np.where(ignored, IGNORED, y % 2)
        return x.reshape(rows, width), y.reshape(rows, width)
    y = y % width
    y = np.where(y == case["absent"], (y + 1) % width, y)
    return x.reshape(rows, width), np.where(ignored, IGNORED, y)


def same(got, wanted, case):
    assert np.allclose(got, wanted, rtol=1e-5, atol=1e-6, equal_nan=True), (case, got, wanted)


def auc(truth, scores):
    """NaN where there is no positive or no negative sample."""
    return sk.roc_auc_score(truth, scores) if 0 < truth.sum() < len(truth) else math.nan


def mean_of(each, average):
    """The mean of pairs (value, weight), of which NaN is left out."""
    if average is None:
        return [value for value, _ in each]
    known = [(v, w if average == "weighted" else 1) for v, w in each if not math.isnan(v)]
    return sum(v * w for v, w in known) / sum(w for _, w in known) if known else math.nan


def of_labels(case, x, y):
    kind, average, k, width = case["kind"], case["average"], case["k"], case["width"]
    keep = y != IGNORED
    scores, labels = x[keep], y[keep]
    if len(labels) == 0:
        return None
    found, classes = scores.argmax(1), range(width)
    if kind == "CONFUSION":
        value = sk.confusion_matrix(labels, found, labels=classes)
        same(tc.multiclass_confusion_matrix(torch.tensor(found), torch.tensor(labels), width),
             value, case)
        return value
    if kind == "BALANCED_ACCURACY":
        return sk.balanced_accuracy_score(labels, found)
    if kind == "PERPLEXITY":
        return tm.perplexity(torch.tensor(x)[None], torch.tensor(y)[None], ignore_index=IGNORED)
    if kind == "AUC":
        p = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
        p = p.round(12)  # what differs by its rounding alone is equal
        each = [(auc(labels == c, p[:, c]), (labels == c).sum()) for c in classes]
        if average is not None and width > 2 and len(set(labels)) == width:
            same(mean_of(each, average),
                 sk.roc_auc_score(labels, p, multi_class="ovr", average=average), case)
        return mean_of(each, average)
    function = {"ACCURACY": tc.multiclass_accuracy, "PRECISION": tc.multiclass_precision,
                "RECALL": tc.multiclass_recall, "F1": tc.multiclass_f1_score}[kind]
    apart = torch.tensor(x - 1e-6 * np.arange(width))  # of equal scores, the first
    value = function(apart, torch.tensor(y), width, average=average, top_k=k,
                     ignore_index=IGNORED).numpy()
    if k == 1 and kind != "ACCURACY":
        other = {"PRECISION": sk.precision_score, "RECALL": sk.recall_score, "F1": sk.f1_score}
        present = sorted(set(labels) | set(found))
        chosen = list(classes) if average in (None, "weighted", "micro") else present
        same(other[kind](labels, found, labels=chosen, average=average, zero_division=0), value,
             case)
    return value


def of_targets(case, x, y):
    kind, average, width = case["kind"], case["average"], case["width"]
    found = (x > case["threshold"]).astype(int)
    if average == "micro" and kind != "EXACT_MATCH" or width == 1:
        keep = y != IGNORED
        t, p, s = y[keep], found[keep], x[keep]
        if kind == "CONFUSION":
            return sk.confusion_matrix(t, p, labels=[0, 1])
        if kind == "AUC":
            return auc(t, s)
        other = {"ACCURACY": sk.accuracy_score, "PRECISION": sk.precision_score,
                 "RECALL": sk.recall_score, "F1": sk.f1_score}
        if len(t) == 0:
            return None
        given = {} if kind == "ACCURACY" else {"zero_division": 0}
        return other[kind](t, p, **given)
    if kind == "AUC":
        columns = [(y[y[:, c] != IGNORED, c], x[y[:, c] != IGNORED, c]) for c in range(width)]
        return mean_of([(auc(t, s), t.sum()) for t, s in columns], average)
    if (y != IGNORED).sum(0).min() == 0:
        return None
    if kind == "EXACT_MATCH":
        if (y == IGNORED).any():
            return None
        value = sk.accuracy_score(y, found)
        same(tc.multilabel_exact_match(torch.tensor(found), torch.tensor(y), width), value, case)
        return value
    function = {"ACCURACY": tc.multilabel_accuracy, "PRECISION": tc.multilabel_precision,
                "RECALL": tc.multilabel_recall, "F1": tc.multilabel_f1_score}[kind]
    return function(torch.tensor(found), torch.tensor(y), width, average=average,
                    ignore_index=IGNORED).numpy()


def of_numbers(case, x, y):
    kind, outputs = case["kind"], OUTPUTS[case["name"]]
    if outputs is None:
        x, y, outputs = x.reshape(-1), y.reshape(-1), "uniform_average"
    if kind == "R2":
        if len(y) < 2:
            return math.nan if case["average"] is not None else [math.nan] * y.shape[-1]
        return sk.r2_score(y, x, multioutput=outputs)
    if kind == "MAE":
        return sk.mean_absolute_error(y, x, multioutput=outputs)
    square = sk.mean_squared_error(y, x, multioutput="raw_values")
    value = np.sqrt(square) if kind == "RMSE" else square
    return value if outputs == "raw_values" else value.mean()


def cases():
    draw = random.Random(7)
    kinds = {"LABELS": ["ACCURACY", "ACCURACY", "BALANCED_ACCURACY", "PRECISION", "RECALL", "F1",
                        "CONFUSION", "AUC", "PERPLEXITY"],
             "TARGETS": ["ACCURACY", "EXACT_MATCH", "PRECISION", "RECALL", "F1", "CONFUSION",
                         "AUC"],
             "NUMBERS": ["MAE", "MSE", "RMSE", "R2"]}
    for of, names in kinds.items():
        for kind in names:
            for turn in range(10):
                average = draw.choice(list(AVERAGES))
                width = draw.choice([2, 3, 6] if of == "LABELS" else [1, 2, 5])
                fixed = {"BALANCED_ACCURACY": "MACRO", "EXACT_MATCH": "MACRO",
                         "CONFUSION": "MICRO", "PERPLEXITY": "MICRO"}
                average = fixed.get(kind, average)
                if (of, kind, average) == ("LABELS", "AUC", "MICRO"):
                    average = "MACRO"
                if kind in ("MAE", "MSE", "RMSE") and average == "WEIGHTED":
                    average = "NONE"
                if kind == "EXACT_MATCH" and width == 1:
                    width = 2
                takes_k = of == "LABELS" and kind in ("ACCURACY", "RECALL")
                yield {"of": of, "kind": kind, "name": average, "average": AVERAGES[average],
                       "width": width, "rows": 1 if turn == 0 else draw.choice([2, 5, 37, 150]),
                       "seed": draw.randrange(10 ** 6), "ignored": draw.choice([0, 0, 2, 5]),
                       "absent": draw.choice([-1, 0, 1]),
                       "k": draw.choice([1, 1, 2]) if takes_k else 1,
                       "threshold": draw.choice([0, 0.5])}


def main():
    print("// Written by make_metric_tables.py: metrics as torchmetrics and scikit-learn have "
          "them.\n#ifndef TRIREME_TESTS_METRIC_TABLES_H\n#define TRIREME_TESTS_METRIC_TABLES_H\n\n"
          "#include <math.h>\n#include <trireme/metrics.h>\n\n"
          "enum { OF_LABELS, OF_TARGETS, OF_NUMBERS };\n\n"
          "// clang-format off\nstatic const struct {\n"
          "    int of;\n    tri_metric_kind kind;\n    tri_metric_average average;\n"
          "    int rows, width, seed, ignored, absent, k;\n    double threshold;\n"
          "    int figures;\n    double wanted[36];\n} metric_cases[] = {")
    for case in cases():
        x, y = make(case)
        function = {"LABELS": of_labels, "TARGETS": of_targets, "NUMBERS": of_numbers}[case["of"]]
        value = function(case, x, y)
        if value is None:
            continue
        value = np.asarray(value, dtype=float).reshape(-1)
        figures = ", ".join("NAN" if math.isnan(v) else f"{v:.9g}" for v in value)
        row = (f"{{OF_{case['of']}, TRI_METRIC_{case['kind']}, TRI_AVERAGE_{case['name']}, "
              f"{case['rows']}, {case['width']}, {case['seed']}, {case['ignored']}, "
              f"{case['absent']}, {case['k']}, {case['threshold']}, {len(value)}, {{{figures}}}}},")
        print("\n".join(textwrap.wrap(row, 99, initial_indent="    ", subsequent_indent="     ")))
    print("};\n// clang-format on\n\n#endif")


if __name__ == "__main__":
    main()
