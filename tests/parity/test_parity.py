#!/usr/bin/env python3
"""Ten steps of every model with every optimizer against PyTorch's goldens (make_goldens.py).

usage: test_parity.py BUILD_FOLDER [MODEL[-OPTIMIZER] …]

PyTorch is not needed. Each loss and each tensor of the final checkpoint has to agree within ten
times the error of PyTorch's own single precision (L2, estimated over all elements by
formula.sketch; errors of tensors are relative to how far the tensor moved).
"""
import json
import math
import os
import subprocess
import sys
import tempfile

import formula

HERE = os.path.dirname(os.path.abspath(__file__))
# Models that are also run on the device ref (plain C), with sgd. Others would take too long there.
ALSO_ON_REF = ("mnist-convnet", "autoencoder", "mlp-jax", "llama-small")


def overrides(section, options):
    return [f"{section}.{key}={json.dumps(value) if not isinstance(value, str) else value}"
            for key, value in options.items()]


def run(program, model, options, files, run_dir, more=()):
    """Trains for ten steps, and returns the lines of metrics.jsonl and the final tensors."""
    recipe = "llama-tiny" if model in formula.LLAMA else model
    command = [program, "train", f"recipes/{recipe}.yaml", "data.name=tensors",
               f"data.train={files}/data.safetensors", "data.shuffle=false", "data.drop_last=true",
               f"init={files}/init.safetensors", f"batch.global={formula.BATCH[model]}",
               *overrides("optimizer", options), *overrides("model", formula.LLAMA.get(model, {})),
               "schedule.name=constant", "model.dropout=0", "trainer.gradient_clip_val=0",
               f"trainer.max_steps={formula.STEPS}", "trainer.max_epochs=100",
               "trainer.log_every_n_steps=1", "trainer.convolution=direct",
               "--run-dir", run_dir, "--resume", "never", *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"exit code {done.returncode}: {done.stderr.strip()}\n"
                           f"  of {' '.join(command)}")
    with open(os.path.join(run_dir, "metrics.jsonl"), encoding="utf-8") as f:
        lines = [json.loads(line) for line in f]
    weights = os.path.join(run_dir, "checkpoints", "last", "model.safetensors")
    return lines, formula.read_safetensors(weights)


def compare(golden, lines, tensors, expected):
    """Compares a run with its golden. Returns what is wrong, in words, and the largest error of a
    loss and of a tensor, as fractions of their limits. `expected` has the names, types and shapes
    of all tensors."""
    wrong, worst_loss, worst_tensor = [], 0.0, 0.0
    losses = {line["step"]: line["loss"] for line in lines if line["kind"] == "train"}
    if sorted(losses) != list(range(1, formula.STEPS + 1)):
        wrong.append(f"the steps logged are {sorted(losses)}")
    limit = formula.loss_limit(golden["rounding"]["losses"])
    for step, loss in enumerate(golden["losses"], 1):
        error = abs(losses.get(step, math.nan) - loss) / abs(loss)
        worst_loss = max(worst_loss, error / limit)
        if not error <= limit:
            wrong.append(f"step {step}: loss {losses.get(step)} should be {loss:.9g} "
                         f"({error:.1e} of {limit:.1e})")
    shapes = {name: (dtype, shape) for name, (dtype, shape, _) in expected.items()}
    found = {name: (dtype, shape) for name, (dtype, shape, _) in tensors.items()}
    if found != shapes:
        odd = sorted(set(found.items()) ^ set(shapes.items()))
        wrong.append(f"the checkpoint's tensors differ from PyTorch's: {odd[:4]}")
    for name, entry in golden["tensors"].items():
        if name not in tensors:
            continue
        error = formula.error(tensors[name][2], entry)
        if entry["moved"] == 0:
            error = formula.norm([a - b for a, b in zip(tensors[name][2], expected[name][2])])
        limit = formula.tensor_limit(golden, name)
        worst_tensor = max(worst_tensor, error / limit if limit else float(error > 0))
        if not error <= limit:
            wrong.append(f"{name}: error {error / max(entry['moved'], 1e-30):.1e} of how far it "
                         f"moved, more than {limit / max(entry['moved'], 1e-30):.1e}")
    return wrong, worst_loss, worst_tensor


def self_test():
    """Checks that formula.error, which compares sketches, finds an error in one element of many,
    and its size."""
    values = [2 * u - 1 for u in formula.uniform("self-test", 5000)]
    golden = {"sketch": formula.sketch(values)}
    assert formula.error(values, golden) == 0
    one = list(values)
    one[4321] += 1
    assert abs(formula.error(one, golden) - 1) < 1e-9
    noise = [v + 0.01 * (u - 0.5) for v, u in zip(values, formula.uniform("noise", 5000))]
    true = formula.norm([a - b for a, b in zip(noise, values)])
    assert 0.75 < formula.error(noise, golden) / true < 1.25


GROUPS = formula.OPTIMIZERS["groups"]["groups"]
# For each optimizer wrong values of its options. The comparison must notice each of them.
MISTAKES = {
    "sgd": ({"lr": 0.01001}, {"momentum": 0.899}, {"nesterov": True}, {"weight_decay": 1e-4}),
    "nesterov": ({"momentum": 0.899}, {"weight_decay": 4e-4}, {"nesterov": False}),
    "adam": ({"lr": 1.001e-3}, {"betas": [0.899, 0.999]}, {"betas": [0.9, 0.998]},
             {"eps": 2e-8}, {"weight_decay": 9e-4}),
    "adamw": ({"lr": 1.001e-3}, {"betas": [0.899, 0.95]}, {"betas": [0.9, 0.949]}, {"eps": 2e-8},
              {"weight_decay": 0.09}),
    "groups": tuple({"groups": [{**g, **wrong} if g is group else g for g in GROUPS]}
                    for group, wrong in zip(GROUPS, ({"frozen": False}, {"weight_decay": 0.01},
                                                     {"lr_factor": 4.01}))),
    "adadelta": ({"lr": 1.001}, {"rho": 0.899}, {"eps": 1.1e-6}, {"weight_decay": 1e-4}),
}
MISTAKEN = "mlp-jax"  # the model for this: it is fast and has a golden for every optimizer


def check_mistakes(program, files):
    """Checks that the comparison notices wrong optimizers, and tensors that were not trained."""
    missed = []
    weights = formula.initial_weights(MISTAKEN)
    formula.write_safetensors(f"{files}/init.safetensors", weights)
    formula.write_safetensors(f"{files}/data.safetensors", formula.data_set(MISTAKEN))
    for optimizer, mistakes in MISTAKES.items():
        golden = read_golden(MISTAKEN, optimizer)
        for i, mistake in enumerate(mistakes):
            options = {**formula.OPTIMIZERS[optimizer], **mistake}
            lines, tensors = run(program, MISTAKEN, options, files, f"{files}/{optimizer}-{i}")
            if not compare(golden, lines, tensors, weights)[0]:
                missed.append(f"{optimizer} with {mistake}")
        for name, entry in golden["tensors"].items():
            if formula.group_of(name, formula.OPTIMIZERS[optimizer])["frozen"]:
                continue
            if formula.error(weights[name][2], entry) <= formula.tensor_limit(golden, name):
                missed.append(f"{optimizer} without training of {name}")
    assert not missed, f"not noticed: {missed}"
    print(f"{MISTAKEN}: {sum(map(len, MISTAKES.values()))} wrong optimizers and every untrained "
          "tensor are noticed", flush=True)


def read_golden(model, optimizer):
    """Reads a golden. Replaces its rounding by the largest of the model's goldens."""
    goldens = {}
    for name in formula.CHOICE.get(model, formula.OPTIMIZERS):
        with open(os.path.join(HERE, "goldens", f"{model}-{name}.json"), encoding="utf-8") as f:
            goldens[name] = json.load(f)
    worst = {key: max(golden["rounding"][key] for golden in goldens.values())
             for key in ("losses", "tensors")}
    return {**goldens[optimizer], "rounding": worst}


def check_initial(program, files):
    """Checks the initial weights of llama-tiny: they have the golden's names and shapes; the
    weights of norms are 1; all others are normally distributed with the standard deviation that the
    option initializer_range says."""
    path = f"{files}/fresh.safetensors"
    subprocess.run([program, "checkpoint", "init", "recipes/llama-tiny.yaml",
                    "model.initializer_range=0.05", "--out", path], check=True)
    fresh, wanted = formula.read_safetensors(path), formula.PARAMETERS["llama-tiny"]
    assert {name: entry[1] for name, entry in fresh.items()} == {row[0]: row[1] for row in wanted}
    for name, (_, _, values) in fresh.items():
        if name.endswith("norm.weight"):
            assert set(values) == {1.0}, name
            continue
        n = len(values)
        mean, deviation = math.fsum(values) / n, formula.norm(values) / math.sqrt(n)
        assert abs(mean) < 5 * 0.05 / math.sqrt(n), f"{name}: mean {mean}"
        assert abs(deviation / 0.05 - 1) < 5 / math.sqrt(2 * n), f"{name}: {deviation}"
        assert max(map(abs, values)) > 3 * 0.05, f"{name}: no tails"


def main():
    program = os.path.join(sys.argv[1], "bin", "trireme")
    chosen = sys.argv[2:] or list(formula.BATCH)
    self_test()
    if not os.path.exists(program):
        print(f"there is no {program}: build it first")
        return 1
    failed = 0
    with tempfile.TemporaryDirectory(prefix="trireme-parity-") as files:
        check_initial(program, files)
    if MISTAKEN in chosen:
        with tempfile.TemporaryDirectory(prefix="trireme-parity-") as files:
            check_mistakes(program, files)
    for model in formula.BATCH:
        wanted = [name for name in formula.CHOICE.get(model, formula.OPTIMIZERS)
                  if model in chosen or f"{model}-{name}" in chosen]
        if not wanted:
            continue
        with tempfile.TemporaryDirectory(prefix="trireme-parity-") as files:
            weights = formula.initial_weights(model)
            formula.write_safetensors(f"{files}/init.safetensors", weights)
            formula.write_safetensors(f"{files}/data.safetensors", formula.data_set(model))
            for optimizer in wanted:
                golden = read_golden(model, optimizer)
                devices = ["auto"] + ["ref"] * (optimizer == "sgd" and model in ALSO_ON_REF)
                for device in devices:
                    run_dir = f"{files}/{optimizer}-{device}"
                    try:
                        lines, tensors = run(program, model, formula.OPTIMIZERS[optimizer], files,
                                             run_dir, ["--device", device])
                        wrong, loss, weight = compare(golden, lines, tensors, weights)
                    except (RuntimeError, OSError, ValueError, KeyError) as error:
                        wrong, loss, weight = [str(error)], math.nan, math.nan
                    print(f"{model:14} {optimizer:9} {device:4} {'FAILED' if wrong else 'ok':6} "
                          f"largest error: losses {loss:.2f}, tensors {weight:.2f} of the limit",
                          flush=True)
                    for line in wrong[:12]:
                        print(f"    {line}")
                    failed += bool(wrong)
    print(f"{failed} of the runs differ from PyTorch" if failed else "all runs agree with PyTorch")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
