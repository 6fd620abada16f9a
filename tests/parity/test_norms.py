#!/usr/bin/env python3
"""Compares training of layers that normalise with PyTorch's: batch norm whose running statistics
are means over all steps, instance norm with running statistics, and norms that lack parameters.
Losses, weights and statistics are PyTorch's on any number of ranks and after a resume, as is the
evaluation, which reads the statistics. norms_net.c is the model.

usage: test_norms.py BUILD_FOLDER, or, with PyTorch, test_norms.py --golden > norms.json
"""
import array
import json
import math
import os
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import formula  # noqa: E402

SAMPLES, BATCH, EPOCHS, LR, STEPS = 19, 8, 2, 0.2, 6  # steps of 8, 8 and 3 samples
LOSS_LIMIT, WEIGHT_LIMIT, HALF_LIMIT = 5e-6, 2e-5, 2e-2  # largest allowed relative differences
WEIGHTS = [("in.weight", (2,), 1), ("in.bias", (2,), 1), ("conv.weight", (4, 2, 2, 2), 0.4),
           ("conv.bias", (4,), 0.4), ("ln.weight", (12,), 1), *formula.linear("wide", 16, 12),
           *formula.linear("fc", 12, 3)]
# Batch norm is over a whole step, as in PyTorch: in one micro-batch, or over all replicas.
WHOLE, SHARED = "batch.micro=8 ", "trainer.sync_batchnorm=true "
WAYS = [(1, WHOLE), (3, SHARED), (2, SHARED + "strategy.name=fsdp strategy.persistent_bytes=0"),
        (2, WHOLE + "strategy.name=pipeline"), (2, SHARED + "strategy.name=zero2"),
        (2, WHOLE + "strategy.mesh.tensor=2"), (2, WHOLE + "strategy.mesh.pipeline=2")]


def data_set():
    """Images of two channels, and labels of three classes."""
    images = [2 * u - 1 for u in formula.uniform("norms/images", SAMPLES * 18)]
    labels = [int(3 * u) for u in formula.uniform("norms/labels", SAMPLES)]
    return {"images": ("F32", (SAMPLES, 2, 3, 3), formula.floats(images)),
            "labels": ("I64", (SAMPLES,), array.array("q", labels))}


def weights():
    return {name: ("F32", shape, formula.floats((2 * u - 1) * bound for u in formula.uniform(
        f"norms/{name}", math.prod(shape)))) for name, shape, bound in WEIGHTS}


def golden():
    """PyTorch's losses, evaluation and final tensors, in double precision."""
    import torch
    import torch.nn.functional as F

    def tensor(entry):
        kind = torch.float64 if entry[0] == "F32" else torch.int64
        return torch.tensor(list(entry[2]), dtype=kind).reshape(entry[1])

    data = {name: tensor(entry) for name, entry in data_set().items()}
    p = {name: tensor(entry).requires_grad_() for name, entry in weights().items()}
    kept = {"in": torch.nn.InstanceNorm2d(2, momentum=0.3, track_running_stats=True).double(),
            "plain": torch.nn.InstanceNorm2d(4, momentum=None, track_running_stats=True).double(),
            "bn": torch.nn.BatchNorm1d(12, affine=False, momentum=None).double()}
    updates = 0

    def loss_of(images, labels):
        # Its momentum=None is that of batch norm, but for an error in some versions.
        if kept["plain"].training:
            kept["plain"].momentum = 1 / updates
        x = kept["in"](images) * p["in.weight"].reshape(2, 1, 1) + p["in.bias"].reshape(2, 1, 1)
        x = F.relu(kept["plain"](F.conv2d(x, p["conv.weight"], p["conv.bias"])))
        x = kept["bn"](F.linear(x.flatten(1), p["wide.weight"], p["wide.bias"]))
        x = F.layer_norm(torch.tanh(x), (12,), p["ln.weight"])
        x = F.linear(x, p["fc.weight"], p["fc.bias"])
        x = x * (x.square().mean(-1, keepdim=True) + 2.0 ** -23).rsqrt()
        return F.cross_entropy(x, labels)

    optimizer = torch.optim.SGD(p.values(), lr=LR)
    losses = []
    for _ in range(EPOCHS):
        for first in range(0, SAMPLES, BATCH):
            updates += 1
            optimizer.zero_grad()
            loss = loss_of(*(data[name][first:first + BATCH] for name in ("images", "labels")))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    for module in kept.values():
        module.eval()
    tensors = {f"{name}.{kind}": getattr(module, kind) for name, module in kept.items()
               for kind in ("running_mean", "running_var")}
    json.dump({"torch": torch.__version__, "losses": losses,
               "val": loss_of(data["images"], data["labels"]).item(),
               "tensors": {name: t.flatten().tolist() for name, t in {**p, **tensors}.items()}},
              sys.stdout, separators=(",", ":"))
    print()


def close(got, wanted, limit, what):
    error = max(abs(float(a) - b) for a, b in zip(got, wanted)) / max(map(abs, wanted))
    assert len(got) == len(wanted) and error <= limit, f"{what}: {got}, not {wanted}: {error:.1e}"
    return error


def check_run(place, wanted, what):
    found = losses(place)
    assert list(found) == list(range(1, STEPS + 1)), what
    worst = close(list(found.values()), wanted["losses"], LOSS_LIMIT, what)
    close([losses(place, "val")[STEPS]], [wanted["val"]], LOSS_LIMIT, what + ", val")
    tensors = formula.read_safetensors(os.path.join(last(place), "model.safetensors"))
    counts = {f"{name}.num_batches_tracked" for name in ("in", "plain", "bn")}
    assert set(tensors) == set(wanted["tensors"]) | counts, sorted(tensors)
    for name in counts:
        assert list(tensors[name][2]) == [STEPS], (what, name)
    weight = max(close(list(tensors[name][2]), values, WEIGHT_LIMIT, f"{what}, {name}")
                 for name, values in wanted["tensors"].items())
    print(f"{what}: losses within {worst:.1e}, tensors {weight:.1e}", flush=True)


def check_half(folder):
    """In half types, the statistics of a first step are those of F32, but for what they are of."""
    tensors = []
    for precision in ("32-true", "bf16-mixed", "bf16-true"):
        place = f"{folder}/run-{precision}"
        run([TRIREME, "train", f"{folder}/task.yaml", "--run-dir", place, *WHOLE.split(),
             "trainer.max_steps=1", f"trainer.precision={precision}"])
        tensors.append(formula.read_safetensors(os.path.join(last(place), "model.safetensors")))
        for name in tensors[0]:
            if "running" in name:
                close(list(tensors[-1][name][2]), list(tensors[0][name][2]), HALF_LIMIT,
                      f"{precision}, {name}")


def main():
    with open(os.path.join(HERE, "norms.json"), encoding="ascii") as file:
        wanted = json.load(file)
    with tempfile.TemporaryDirectory(prefix="trireme-norms-") as folder:
        subprocess.run(["cc", "-Wall", "-Werror", "-shared", "-fPIC", "-Iinclude",
                        os.path.join(HERE, "norms_net.c"), "-o", f"{folder}/net.so"], check=True)
        formula.write_safetensors(f"{folder}/data.safetensors", data_set())
        formula.write_safetensors(f"{folder}/init.safetensors", weights())
        with open(f"{folder}/task.yaml", "w", encoding="ascii") as file:
            file.write(f"name: norms\nmodel: {{name: {folder}/net.so}}\n"
                       f"init: {folder}/init.safetensors\n"
                       f"data: {{name: tensors, train: {folder}/data.safetensors, shuffle: false, "
                       f"test: {folder}/data.safetensors, workers: 1}}\n"
                       f"batch: {{global: {BATCH}}}\noptimizer: {{name: sgd, lr: {LR}}}\n"
                       f"trainer: {{max_epochs: {EPOCHS}, log_every_n_steps: 1}}\n"
                       "log: {tensorboard: false}\n")
        for number, (ranks, words) in enumerate(WAYS):
            place = f"{folder}/run-{number}"
            run(on_ranks(ranks, [TRIREME, "train", f"{folder}/task.yaml", "--run-dir", place,
                                 *words.split()]))
            check_run(place, wanted, f"{ranks} ranks, {words}")
        # A run that ends after four steps, and another number of ranks for the rest.
        place = f"{folder}/run-resumed"
        words = [TRIREME, "train", f"{folder}/task.yaml", "--run-dir", place, *SHARED.split()]
        run([*words, "trainer.max_steps=4"])
        run(on_ranks(2, [*words, "--resume", last(place)]))
        check_run(place, wanted, "resumed on 2 ranks")
        check_half(folder)


if __name__ == "__main__":
    if sys.argv[1] == "--golden":
        golden()
    else:
        from runs import TRIREME, last, losses, on_ranks, run
        main()
