#!/usr/bin/env python3
"""Writes goldens/averages.json: the averages that torch.optim.swa_utils makes of the weights.

usage: make_average_goldens.py

Needs a torch of PyPI (2.x), because older ones have no get_ema_multi_avg_fn. As in make_goldens.py,
everything is computed in double precision, and again in single precision to learn the rounding.
"""
import json
import os

import torch
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn

import formula
import make_goldens


def averaged_model(net, average):
    if average["name"] == "swa":
        return AveragedModel(net)
    return AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(average["decay"]))


def counts(average, step):
    """Whether the weights after the step (from 1) count."""
    if average["name"] == "swa":
        return step > average["start"] * formula.STEPS
    return step > average["start_step"] and step % average["every_n_steps"] == 0


def train(case, weights, data, dtype, shuffled=False):
    model, average = case["model"], case["average"]
    net = make_goldens.build(model, weights).to(dtype)
    optimizer = make_goldens.make_optimizer(net, formula.OPTIMIZERS[case["optimizer"]])
    averaged, constant = averaged_model(net, average), None
    losses = []
    for step, batch in enumerate(make_goldens.batches(model, data, dtype, shuffled), 1):
        if counts(average, step) and "lr" in average and not constant:
            constant = SWALR(optimizer, average["lr"], anneal_epochs=0)
        optimizer.zero_grad()
        loss = make_goldens.loss_of(model, net, batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if counts(average, step):
            averaged.update_parameters(net)
    return losses, make_goldens.tensors_of(averaged.module)


def golden(case):
    model = case["model"]
    weights, data = formula.initial_weights(model), formula.data_set(model)
    losses, tensors = train(case, weights, data, torch.float64)
    torch.manual_seed(0)
    singles = [train(case, weights, data, torch.float32, shuffled=i > 0)
               for i in range(make_goldens.SINGLES)]
    found = {}
    for name, values in tensors.items():
        rounding = max(make_goldens.distance(values, single[name]) for _, single in singles)
        moved = make_goldens.distance(values, weights[name][2])
        found[name] = {"sketch": formula.sketch(values), "moved": moved, "rounding": rounding}
    noisy = formula.NOISE_ONLY.get(model, ())
    worst = max(t["rounding"] / max(t["moved"], 1e-30) for name, t in found.items()
                if name not in noisy and t["moved"])
    rounding = max(abs(a - b) / abs(b) for single, _ in singles for a, b in zip(single, losses))
    print(f"{model} {case['optimizer']} {case['average']['name']}: rounding: losses "
          f"{rounding:.1e}, tensors {worst:.1e} of how far they moved")
    return {**case, "torch": torch.__version__, "losses": losses,
            "rounding": {"losses": rounding, "tensors": worst}, "tensors": found}


def main():
    found = make_goldens.rounded([golden(case) for case in formula.AVERAGES])
    path = os.path.join(make_goldens.HERE, "goldens", "averages.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(found, f, separators=(",", ":"))
        f.write("\n")


if __name__ == "__main__":
    main()
