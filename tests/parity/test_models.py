#!/usr/bin/env python3
"""The built-in models against the modules of torchvision and transformers whose names they have
(models.py, make_model_goldens.py), and low-rank adapters of them against peft's
(make_lora_goldens.py).

usage: test_models.py BUILD_FOLDER [MODEL …]

PyTorch is not needed. Names and shapes of parameters have to be the module's. On the same weights,
the outputs that `trireme predict` writes have to agree with double precision within 1e-5 of the
largest one (bf16-mixed: 2e-2), and the losses of ten steps within 1e-4 (with adapters: 1e-5). Of
adapters, what `trireme checkpoint export` writes for peft has to have its names and settings, and
weights into which they are merged have to give the same outputs.
"""
import json
import os
import subprocess
import sys
import tempfile

import formula
import models

FORWARD_LIMIT = {"32-true": 1e-5, "bf16-mixed": 2e-2}
LOSS_LIMIT, ADAPTER_LOSS_LIMIT = 1e-4, 1e-5


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


def predict(build, recipe, weights, folder, *words):
    out = f"{folder}/predictions.safetensors"
    trireme(build, "predict", recipe, "--checkpoint", weights, "--out", out, *words)
    (_, shape, values), = formula.read_safetensors(out).values()
    return shape, values


def check_outputs(build, model, golden, recipe, folder):
    for precision, limit in FORWARD_LIMIT.items():
        shape, values = predict(build, recipe, f"{folder}/init.safetensors", folder,
                                f"trainer.precision={precision}")
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
    limit = ADAPTER_LOSS_LIMIT if model in models.ADAPTERS else LOSS_LIMIT
    assert max(errors) <= limit, f"{model}: losses differ by {max(errors):.1e}: {losses}"


def check_export(build, name, golden, recipe, folder):
    """What the run's last checkpoint becomes as a folder of peft, and as one model."""
    run, adapter, merged = f"{folder}/run", f"{folder}/adapter", f"{folder}/merged.safetensors"
    trireme(build, "checkpoint", "export", run, "--lora", adapter)
    trireme(build, "checkpoint", "export", run, "--merged", "--out", merged)
    with open(f"{adapter}/adapter_config.json", encoding="utf-8") as f:
        config = json.load(f)
    found = {key: config[key] for key in golden["config"]}
    assert found == golden["config"], f"{name}: {found}"
    tensors = formula.read_safetensors(f"{adapter}/adapter_model.safetensors")
    assert sorted(tensors) == golden["saved"], f"{name}: {sorted(tensors)}"
    layers = [key.removeprefix("base_model.model.").rsplit(".", 2)[0] for key in tensors]
    for layer in {key.rsplit(".", 1)[0] for key, _, _ in golden["parameters"]}:
        is_target = any(layer == target or layer.endswith(f".{target}")
                        for target in config["target_modules"])
        assert is_target == (layer in layers), f"{name}: {config['target_modules']}, {layer}"
    _, beside = predict(build, recipe, run, folder)
    _, inside = predict(build, recipe, merged, folder, "lora=null")
    error = formula.norm([a - b for a, b in zip(beside, inside)]) / formula.norm(beside)
    print(f"{name}: merged, outputs differ by {error:.1e}", flush=True)
    assert 0 < error <= FORWARD_LIMIT["32-true"], f"{name}: merged, outputs differ by {error:.1e}"


def main():
    build = os.path.abspath(sys.argv[1])
    for name in sys.argv[2:] or [*models.MODELS, *models.ADAPTERS]:
        golden = models.read_golden(name)
        with tempfile.TemporaryDirectory() as folder:
            recipe = models.prepare(name, folder)
            check_parameters(build, name, golden, recipe, folder)
            check_outputs(build, name, golden, recipe, folder)
            check_losses(build, name, golden, recipe, folder)
            if name in models.ADAPTERS:
                check_export(build, name, golden, recipe, folder)


if __name__ == "__main__":
    main()
