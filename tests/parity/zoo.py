#!/usr/bin/env python3
"""Networks from PyTorch's libraries, small, each exported by torch.export and trained four steps of
SGD by the program: the losses are those of PyTorch within 1e-4. Writes the page docs/networks.md.

usage: zoo.py BUILD_FOLDER [--page FILE] [--jobs N] [NETWORK or LIBRARY ...]
Needs PyTorch 2.9 or later, torchvision, transformers and timm. Rates of dropout and of stochastic
depth are 0, for random numbers differ.
"""
import argparse
import collections
import copy
import json
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import torch  # noqa: E402
from torch import nn  # noqa: E402
import zoo_networks  # noqa: E402
import tensors  # noqa: E402

BATCH, STEPS, TOLERANCE, SECONDS = 4, 4, 1e-4, 120
TYPES = {torch.float32: "F32", torch.int64: "I64"}
# The first step changes the loss by about this much: batch norm over few values of few samples
# multiplies rounding errors, and larger steps of such networks are chaos.
CHANGE = 0.02
RECIPE = """model: {{name: torch, program: {0}/net.pt2, dropout: 0}}
data: {{name: tensors, train: {0}/data, shuffle: false, workers: 1, extra_fields: {4}}}
batch: {{global: {1}}}
loss: {2}
optimizer: {{name: sgd, lr: {3}}}
trainer: {{max_epochs: 1, log_every_n_steps: 1}}
checkpoint: {{every_n_epochs: 0, save_last: false}}
log: {{tensorboard: false}}
"""
LOSSES = {"cross_entropy": "{name: cross_entropy, target: labels, class_axis: last}",
          "mse": "{name: mse, target: targets}"}
Verdict = collections.namedtuple("Verdict", "name library ops parameters result line")


class First(nn.Module):
    """A network whose result is the first tensor of what `net` returns, classes last."""

    def __init__(self, net, keys, pick=None):
        super().__init__()
        self.net, self.keys, self.pick = net, keys, pick

    def forward(self, *values):
        out = self.net(*values) if not self.keys else self.net(**dict(zip(self.keys, values)))
        out = self.pick(out) if self.pick else out
        while not isinstance(out, torch.Tensor):
            out = out[0] if isinstance(out, (tuple, list)) else next(iter(out.values()))
        return out


def without_dropout(net):
    """Sets every rate of dropout and of stochastic depth to 0."""
    for module in net.modules():
        for key, value in list(vars(module).items()):
            if isinstance(value, float) and re.search("drop|^p$", key):
                setattr(module, key, 0.0)


def loss_of(net, fields, target, step):
    rows = slice(step * BATCH, (step + 1) * BATCH)
    out, wanted = net(*(field[rows] for field in fields)), target[rows]
    if target.dtype == torch.int64:
        return nn.functional.cross_entropy(out.reshape(-1, out.shape[-1]), wanted.reshape(-1))
    return nn.functional.mse_loss(out, wanted)


def losses_of(net, fields, target):
    """The rate, and the losses of each step of SGD by PyTorch."""
    weights = [p for p in net.parameters() if p.requires_grad]
    losses, rate = [], None
    for step in range(STEPS):
        loss = loss_of(net, fields, target, step)
        gradients = torch.autograd.grad(loss, weights, allow_unused=True)
        if rate is None:
            square = sum((g.double() ** 2).sum().item() for g in gradients if g is not None)
            rate = float(f"{min(CHANGE / square, 1):.3g}")
        with torch.no_grad():
            for weight, gradient in zip(weights, gradients):
                if gradient is not None:
                    weight -= rate * gradient
        losses.append(loss.item())
    return rate, losses


def raw(tensor):
    return (TYPES[tensor.dtype], tensor.shape, tensor.contiguous().numpy().tobytes())


def export(net, fields):
    batch = torch.export.Dim("batch", min=1, max=1024)
    shapes = ([{0: batch} for _ in fields],)
    sample = tuple(field[:2] for field in fields)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.export.export(net, sample, dynamic_shapes={"values": tuple(shapes[0])},
                                   strict=False)


def train(program, folder, loss, more, rate):
    """The losses of the program, or the line by which it refuses."""
    recipe = os.path.join(folder, "zoo.yaml")
    with open(recipe, "w", encoding="ascii") as file:
        file.write(RECIPE.format(folder, BATCH, LOSSES[loss], rate, more))
    run = os.path.join(folder, "run")
    done = subprocess.run([program, "train", recipe, "--run-dir", run], capture_output=True,
                          text=True, timeout=SECONDS, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.strip().split("\n") if line]
        return None, f"code {done.returncode}: " + (lines[-1] if lines else "")
    with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
        entries = [json.loads(line) for line in file]
    return [entry["loss"] for entry in entries if "loss" in entry and "lr" in entry], ""


def check(program, name, library, make):
    torch.manual_seed(1)
    given = make()
    net = First(given.net, list(given.fields) if given.named else None, given.pick).train()
    fields = list(given.fields.values())
    without_dropout(net)
    parameters = sum(p.numel() for p in net.parameters())
    try:
        exported = export(net, fields)
    except Exception as error:  # pylint: disable=broad-except
        line = str(error).strip().split("\n")[0][:160]
        return Verdict(name, library, 0, parameters, "not exported", line)
    ops = len({str(node.target) for node in exported.graph.nodes if node.op == "call_function"})
    with torch.no_grad():
        sizes = list(copy.deepcopy(net).eval()(*(field[:2] for field in fields)).shape)
    shape = [STEPS * BATCH, *sizes[1:]]
    is_labels = given.loss == "cross_entropy"
    target = torch.randint(sizes[-1], shape[:-1]) if is_labels else torch.randn(shape)
    with tempfile.TemporaryDirectory(prefix="trireme-zoo-") as folder:
        torch.export.save(exported, os.path.join(folder, "net.pt2"))
        rate, wanted = losses_of(copy.deepcopy(net), fields, target)
        data = {argument: raw(field) for argument, field in zip(names_of(exported), fields)}
        more = {argument: entry[0].lower() for argument, entry in data.items()}
        data["labels" if is_labels else "targets"] = raw(target)
        tensors.write(os.path.join(folder, "data"), data)
        losses, line = train(program, folder, given.loss, json.dumps(more).replace('"', ""),
                             rate)
    if losses is None:
        return Verdict(name, library, ops, parameters, "refused", line)
    worst = max(abs(a - b) / max(1, abs(b)) for a, b in zip(losses, wanted))
    same = len(losses) == STEPS and worst <= TOLERANCE
    text = "" if same else " ".join(f"{a:.6f}/{b:.6f}" for a, b in zip(losses, wanted))
    return Verdict(name, library, ops, parameters, "trains" if same else "differs",
                   text or f"{worst:.1e}")


def names_of(exported):
    return [spec.arg.name for spec in exported.graph_signature.input_specs
            if spec.kind.name == "USER_INPUT"]


def examine(program, library, name):
    torch.set_num_threads(1)
    start = time.time()
    try:
        verdict = check(program, name, library, zoo_networks.LIBRARIES[library][name])
    except Exception as error:  # pylint: disable=broad-except
        line = f"{type(error).__name__}: {error}".split("\n", maxsplit=1)[0]
        verdict = Verdict(name, library, 0, 0, "failed", line[:300])
    print(f"{name:20} {verdict.ops:3} {verdict.result:12} {time.time() - start:5.1f} s "
          f"{verdict.line}", flush=True)
    return verdict


PAGE = """# Networks that are known to train

Made by `tests/parity/zoo.py` with PyTorch {torch}; do not edit it. Each network is a small one of
its kind, exported by `torch.export` in training mode with a dynamic batch, and trained four steps
of SGD by `model: {{name: torch}}`. *trains*: every loss is PyTorch's within 1e-4, with all rates of
dropout and of stochastic depth 0. The last column is the largest difference, or why the network is
refused. How to export your own: [guide/your-network.md](guide/your-network.md); how fast they are
beside PyTorch: [performance.md](performance.md#exported-networks).

{trained} of {count} networks train.
"""


def write_page(path, verdicts):
    trained = sum(v.result == "trains" for v in verdicts)
    text = PAGE.format(torch=torch.__version__.split("+", maxsplit=1)[0], trained=trained,
                       count=len(verdicts))
    for library in zoo_networks.LIBRARIES:
        rows = [v for v in verdicts if v.library == library]
        text += f"\n## {library}\n\n| network | parameters | operations | result | |\n"
        text += "|---|---|---|---|---|\n" if rows else ""
        for v in rows:
            line = re.sub(r"^code 2: trireme: |(model torch: )?/\S*?net\.pt2: |, /\S+:\d+", "",
                          v.line).replace("|", "\\|")
            text += f"| {v.name} | {v.parameters:,} | {v.ops} | {v.result} | {line} |\n"
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--page")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("networks", nargs="*")
    given = parser.parse_intermixed_args()
    program = os.path.join(os.path.abspath(given.build), "bin", "trireme")
    wanted = [(program, library, name)
              for library, networks in zoo_networks.LIBRARIES.items() for name in networks
              if not given.networks or name in given.networks or library in given.networks]
    with multiprocessing.get_context("spawn").Pool(given.jobs) as pool:
        verdicts = pool.starmap(examine, wanted, chunksize=1)
    results = collections.Counter(v.result for v in verdicts)
    print(", ".join(f"{count} {result}" for result, count in results.items()))
    if given.page:
        write_page(given.page, verdicts)
    return 1 if results["differs"] or results["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
