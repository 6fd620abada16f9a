#!/usr/bin/env python3
"""Checks that Trireme can start from the weights of a PyTorch state_dict, and that PyTorch can load
the weights that Trireme saves.

usage: test_torch_weights.py BUILD_FOLDER

Skipped where PyTorch is not installed (Debian: python3-torch python3-numpy). PyTorch initialises
each model by its own rules; Trireme trains ten steps from these weights with a learning rate too
small to move any of them. Its losses have to be PyTorch's. The weights that it saves have to be the
same numbers as before, and load_state_dict(strict=True) has to accept them. What `trireme predict`
writes has to be what PyTorch's network returns.
"""
import itertools
import os
import subprocess
import sys
import tempfile

os.environ.setdefault("OMP_NUM_THREADS", "1")  # others would mostly wait for each other

import formula
import test_parity

SYSTEM_PYTHON = "/usr/bin/python3"  # where Debian's PyTorch lives, whatever comes first in PATH
try:
    import torch
    import make_goldens
except ImportError as missing:
    if os.path.realpath(sys.executable) != os.path.realpath(SYSTEM_PYTHON):
        os.execv(SYSTEM_PYTHON, [SYSTEM_PYTHON, *sys.argv])
    print(f"PyTorch is not installed ({missing}): apt-get install python3-torch python3-numpy")
    sys.exit(77)

STILL = {"name": "sgd", "lr": 1e-30}
OUTPUT_LIMIT = 1e-5  # of outputs in F32, as a fraction of the largest
STILL_LIMIT = 1e-20  # only weights that are exactly zero can move by so small a learning rate


def watch(model, weights, data, dtype):
    """What make_goldens.train returns if the learning rate is too small to move a weight: without
    the gradients, which nothing depends on. Without running statistics, whose history counts, each
    epoch has the losses of the first."""
    net = make_goldens.build(model, weights).to(dtype)
    steps = formula.STEPS if next(net.buffers(), None) is not None else formula.STEPS_PER_EPOCH
    with torch.no_grad():
        losses = [make_goldens.loss_of(model, net, batch).item() for batch in
                  itertools.islice(make_goldens.batches(model, data, dtype), steps)]
    return losses * (formula.STEPS // steps), make_goldens.tensors_of(net)


def check_outputs(program, model, net, data, folder):
    """Compares what `trireme predict` writes with what the network returns for the same data in
    F64, whose loss has to be finite. Returns what is wrong, in words."""
    path = f"{folder}/outputs.safetensors"
    done = subprocess.run([program, "predict", "--checkpoint", f"{folder}/run", "--out", path,
                           f"data.test={folder}/data.safetensors", "batch.eval=8"],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return [f"predict: exit code {done.returncode}: {done.stderr.strip()}"]
    fields = {"denoise-cnn": "inputs", **{name: "input_ids" for name in formula.LLAMA}}
    batch = {name: make_goldens.to_torch(entry) for name, entry in data.items()}
    batch = {name: t.double() if t.is_floating_point() else t for name, t in batch.items()}
    with torch.no_grad():
        wide = net.double()(batch[fields.get(model, "images")])
        loss = make_goldens.loss_of(model, lambda _: wide, batch)
    (name, entry), = formula.read_safetensors(path).items()
    found = make_goldens.to_torch(entry).double()
    wrong = []
    if not torch.isfinite(loss):
        wrong.append("PyTorch's loss with the saved weights is not finite")
    if name != ("outputs" if model in ("denoise-cnn", "autoencoder") else "logits"):
        wrong.append(f"the output is called {name}")
    if found.shape != wide.shape:
        wrong.append(f"the {name} are {list(found.shape)}, not {list(wide.shape)}")
    elif not (found - wide).abs().max() <= OUTPUT_LIMIT * wide.abs().max():
        wrong.append(f"the {name} differ by {(found - wide).abs().max():.3g}")
    return wrong


def check(program, model, folder):
    """Runs this model in both programs. Returns what is wrong, in words."""
    torch.manual_seed(7)
    weights = {name: make_goldens.from_torch(tensor)
               for name, tensor in make_goldens.MODELS[model]().state_dict().items()}
    data = formula.data_set(model)
    formula.write_safetensors(f"{folder}/init.safetensors", weights)
    formula.write_safetensors(f"{folder}/data.safetensors", data)
    lines, saved = test_parity.run(program, model, STILL, folder, f"{folder}/run")
    losses, trained = watch(model, weights, data, torch.float64)
    single, rounded = watch(model, weights, data, torch.float32)
    limit = formula.loss_limit(max(abs(a - b) / abs(b) for a, b in zip(single, losses)))
    wrong = []
    found = [line["loss"] for line in lines if line["kind"] == "train"]
    for step, (loss, right) in enumerate(zip(found, losses), 1):
        if not abs(loss - right) <= limit * abs(right):
            wrong.append(f"step {step}: loss {loss} should be {right:.9g}")
    if len(found) != len(losses):
        wrong.append(f"{len(found)} losses instead of {len(losses)}")
    for name, (_, _, values) in weights.items():
        if "running" in name or name.endswith("num_batches_tracked"):
            apart = make_goldens.distance(trained[name], rounded[name])
            golden = {"sketch": formula.sketch(trained[name])}
            if not formula.error(saved[name][2], golden) <= formula.TIMES_ROUNDING * apart:
                wrong.append(f"{name} is not what PyTorch's is")
        elif any(abs(a - b) > STILL_LIMIT for a, b in zip(saved[name][2], values)):
            wrong.append(f"{name} changed")
    net = make_goldens.build(model, saved).eval()  # fails if a name or shape differs
    return wrong + check_outputs(program, model, net, data, folder)


def main():
    program = os.path.join(sys.argv[1], "bin", "trireme")
    if not os.path.exists(program):
        print(f"there is no {program}: build it first")
        return 1
    failed = 0
    for model in make_goldens.MODELS:
        with tempfile.TemporaryDirectory(prefix="trireme-torch-") as folder:
            try:
                wrong = check(program, model, folder)
            except (RuntimeError, OSError, ValueError, KeyError) as error:
                wrong = [f"{type(error).__name__}: {error}"]
        print(f"{model:14} {'FAILED' if wrong else 'ok'}", flush=True)
        for line in wrong[:12]:
            print(f"    {line}")
        failed += bool(wrong)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
