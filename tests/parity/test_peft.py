#!/usr/bin/env python3
"""Loads adapters that `trireme checkpoint export --lora` has written into peft.

usage: test_peft.py BUILD_FOLDER

Skipped where peft and transformers are not installed (pip install peft torchvision). On the base
model of transformers, the adapter has to give the outputs that `trireme predict` writes of the run,
and what peft merges has to be what `--merged` has written.
"""
import os
import sys
import tempfile

try:
    import peft
    import torch
    import make_model_goldens as plain
except ImportError as missing:
    print(f"peft is not installed ({missing}): pip install peft transformers torchvision")
    sys.exit(77)

import formula
import models
import test_models

LIMIT = 1e-5


def distance(a, b):
    return ((a - b).norm() / b.norm()).item()


def main():
    build = os.path.abspath(sys.argv[1])
    for name, (model, _) in models.ADAPTERS.items():
        golden = models.read_golden(name)
        with tempfile.TemporaryDirectory() as folder:
            recipe = models.prepare(name, folder)
            run, merged = f"{folder}/run", f"{folder}/merged.safetensors"
            test_models.trireme(build, "train", recipe, "--run-dir", run)
            test_models.trireme(build, "checkpoint", "export", run, "--lora", f"{folder}/adapter")
            test_models.trireme(build, "checkpoint", "export", run, "--merged", "--out", merged)
            shape, values = test_models.predict(build, recipe, run, folder)
            decoder = plain.Decoder(models.MODELS[model][0]).double()
            decoder.load_state_dict({key: plain.to_torch(value) for key, value in
                                     models.weights(golden).items() if ".lora_" not in key})
            net = peft.PeftModel.from_pretrained(decoder.net, f"{folder}/adapter").double()
            ids = plain.to_torch(models.data_set(model)["input_ids"])[:shape[0]]
            with torch.no_grad():
                output = net(input_ids=ids, use_cache=False).logits
            wanted = torch.tensor(values, dtype=torch.float64).reshape(shape)
            error = distance(output, wanted)
            print(f"{name}: outputs differ by {error:.1e}", flush=True)
            assert error <= LIMIT, f"{name}: outputs differ by {error:.1e}"
            state = net.merge_and_unload().state_dict()
            for key, value in formula.read_safetensors(merged).items():
                error = distance(plain.to_torch(value), state[key])
                assert error <= LIMIT, f"{name}: {key} differs by {error:.1e}"


main()
