#!/usr/bin/env python3
"""The built-in models against the modules of torchvision and transformers whose names they have
(models.py, make_model_goldens.py).

usage: test_models.py BUILD_FOLDER [MODEL …]

PyTorch is not needed. Names and shapes of parameters have to be the module's. On the same weights,
the outputs that `trireme predict` writes have to agree with double precision within 1e-5 of the
largest one (bf16-mixed: 2e-2), and the losses of ten steps within 1e-4.
"""
import json
import os
import subprocess
import sys
import tempfile

import formula
import models

FORWARD_LIMIT = {"32-true": 1e-5, "bf16-mixed": 2e-2}
LOSS_LIMIT = 1e-4


def write_recipe(model, folder):
    options, fields, _, batch, lr = models.MODELS[model]
    path = os.path.join(folder, "recipe.yaml")
    if "config" in options:
        with open(f"{folder}/config.json", "w", encoding="utf-8") as f:
            json.dump(options["config"], f)
        options = {"config": "config.json"}  # beside the recipe
    with open(path, "w", encoding="utf-8") as f:
        json.dump({  # JSON is YAML
            "name": model, "model": options, "init": f"{folder}/init.safetensors",
            "data": {"name": "tensors", "train": f"{folder}/data.safetensors",
                     "test": f"{folder}/test.safetensors", "shuffle": False,
                     "shapes": {name: list(shape) for name, shape in fields.items()}},
            "batch": {"global": batch},
            "optimizer": {"name": "sgd", "lr": lr, "momentum": 0.9},
            "trainer": {"max_epochs": 1, "log_every_n_steps": 1, "convolution": "direct"}}, f)
    return path


def trireme(build, *words):
    subprocess.run([os.path.join(build, "bin", "trireme"), *words], check=True,
                   stdout=subprocess.DEVNULL)


def check_parameters(build, model, golden, recipe, folder):
    """Names, shapes and order of the initial weights."""
    trireme(build, "checkpoint", "init", recipe, "init=null", "--out", f"{folder}/fresh")
    found = {name: shape for name, (_, shape, _) in
             formula.read_safetensors(f"{folder}/fresh").items()}
    wanted = {name: tuple(shape) for name, shape, _ in golden["parameters"]}
    assert found == wanted, f"{model}: {sorted(set(found.items()) ^ set(wanted.items()))[:6]}"


def check_outputs(build, model, golden, recipe, folder):
    for precision, limit in FORWARD_LIMIT.items():
        out = f"{folder}/{precision}.safetensors"
        trireme(build, "predict", recipe, "--checkpoint", f"{folder}/init.safetensors", "--out",
                out, f"trainer.precision={precision}")
        (_, shape, values), = formula.read_safetensors(out).values()
        assert list(shape) == golden["shape"], f"{model}: {shape}"
        wanted = golden["output"]
        found = formula.sketch(values)
        error = formula.norm([a - b for a, b in zip(found, wanted)]) / formula.norm(wanted)
        print(f"{model}, {precision}: outputs differ by {error:.1e}", flush=True)
        assert error <= limit, f"{model}, {precision}: outputs differ by {error:.1e}, not {limit}"


def check_losses(build, model, golden, recipe, folder):
    trireme(build, "train", recipe, "--run-dir", f"{folder}/run")
    with open(f"{folder}/run/metrics.jsonl", encoding="utf-8") as f:
        lines = [json.loads(line) for line in f]
    losses = [line["loss"] for line in lines if line["kind"] == "train"]
    errors = [abs(a - b) / abs(b) for a, b in zip(losses, golden["losses"], strict=True)]
    print(f"{model}: losses differ by {max(errors):.1e}", flush=True)
    assert max(errors) <= LOSS_LIMIT, f"{model}: losses differ by {max(errors):.1e}: {losses}"


def main():
    build = os.path.abspath(sys.argv[1])
    for model in sys.argv[2:] or models.MODELS:
        golden = models.read_golden(model)
        batch = models.MODELS[model][3]
        with tempfile.TemporaryDirectory() as folder:
            recipe = write_recipe(model, folder)
            data = models.data_set(model)
            formula.write_safetensors(f"{folder}/data.safetensors", data)
            formula.write_safetensors(f"{folder}/test.safetensors", {
                name: (dtype, (batch, *shape[1:]), values[:len(values) // shape[0] * batch])
                for name, (dtype, shape, values) in data.items()})
            formula.write_safetensors(f"{folder}/init.safetensors", models.weights(golden))
            check_parameters(build, model, golden, recipe, folder)
            check_outputs(build, model, golden, recipe, folder)
            check_losses(build, model, golden, recipe, folder)


main()
