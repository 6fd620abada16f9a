#!/usr/bin/env python3
"""Makes tests/parity/goldens/*.json with PyTorch (Debian: python3-torch, python3-numpy).

usage: /usr/bin/python3 tests/parity/make_goldens.py [MODEL …]

Every run is done in double precision, from the single-precision data and weights of formula.py,
and that is what the golden holds: PyTorch's result without its rounding. It is done again in
single precision; the distance of the two ("rounding") says how far apart two correct programs may
be, and a golden whose distance comes near the test's limits is refused.
"""
import array
import json
import os
import sys

import torch
import torch.nn.functional as F
from torch import nn

import formula

HERE = os.path.dirname(os.path.abspath(__file__))
MAX_LOSS_ROUNDING = 2e-5    # a fifth of what test_parity.py allows
MAX_WEIGHT_ROUNDING = 2e-4


class MnistCnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        return F.log_softmax(self.fc2(F.relu(self.fc1(torch.flatten(x, 1)))), 1)


class MnistConvnet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = self.layer(1, 16)
        self.layer2 = self.layer(16, 32)
        self.fc = nn.Linear(1568, 10)

    @staticmethod
    def layer(channels_in, channels_out):
        return nn.Sequential(nn.Conv2d(channels_in, channels_out, 5, padding=2),
                             nn.BatchNorm2d(channels_out), nn.ReLU(), nn.MaxPool2d(2))

    def forward(self, x):
        return self.fc(torch.flatten(self.layer2(self.layer1(x)), 1))


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 3))
        self.decoder = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 784))

    def forward(self, x):
        return self.decoder(self.encoder(torch.flatten(x, 1)))


class DenoiseCnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv_in = self.layer(1, 64)
        self.conv_hidden = nn.ModuleList([self.layer(64, 64) for _ in range(3)])
        self.conv_out = self.layer(64, 1)

    @staticmethod
    def layer(channels_in, channels_out):
        return nn.Sequential(nn.Conv2d(channels_in, channels_out, 3, padding=1), nn.LeakyReLU())

    def forward(self, x):
        x = self.conv_in(x)
        for layer in self.conv_hidden:
            x = layer(x)
        return self.conv_out(x)


class MlpJax(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(784, 512)
        self.fc2 = nn.Linear(512, 512)
        self.fc3 = nn.Linear(512, 10)

    def forward(self, x):
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(torch.flatten(x, 1))))))


MODELS = {"mnist-cnn": MnistCnn, "mnist-convnet": MnistConvnet, "autoencoder": Autoencoder,
          "denoise-cnn": DenoiseCnn, "mlp-jax": MlpJax}
CLASSES = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW,
           "adadelta": torch.optim.Adadelta}


def to_torch(entry):
    dtype, shape, values = entry
    return torch.tensor(values, dtype={"F32": torch.float32, "I64": torch.int64}[dtype]) \
        .reshape(shape)


def from_torch(tensor):
    flat = tensor.detach().reshape(-1).contiguous()
    dtype = "I64" if flat.dtype == torch.int64 else "F32"
    values = array.array("q" if dtype == "I64" else "f", flat.tolist())
    return dtype, tuple(tensor.shape), values


def build(model, weights):
    """The model with the given weights; a name too many or too few is an error."""
    net = MODELS[model]()
    net.load_state_dict({name: to_torch(entry) for name, entry in weights.items()}, strict=True)
    return net


def loss_of(model, net, batch):
    if model == "denoise-cnn":
        return F.mse_loss(net(batch["inputs"]), batch["targets"])
    if model == "autoencoder":
        return F.mse_loss(net(batch["images"]), torch.flatten(batch["images"], 1))
    loss = F.nll_loss if model == "mnist-cnn" else F.cross_entropy
    return loss(net(batch["images"]), batch["labels"])


def train(model, options, weights, data, dtype):
    """The losses before each step, and the tensors after the last."""
    net = build(model, weights).to(dtype)
    options = dict(options)
    optimizer = CLASSES[options.pop("name")](net.parameters(), **options)
    data = {name: to_torch(entry) for name, entry in data.items()}
    data = {name: t.to(dtype) if t.is_floating_point() else t for name, t in data.items()}
    losses = []
    for step in range(formula.STEPS):
        begin = step % formula.STEPS_PER_EPOCH * formula.BATCH[model]
        batch = {name: t[begin:begin + formula.BATCH[model]] for name, t in data.items()}
        optimizer.zero_grad()
        loss = loss_of(model, net, batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {name: t.reshape(-1).tolist() for name, t in net.state_dict().items()}


def golden(model, optimizer, weights, data):
    options = formula.OPTIMIZERS[optimizer]
    losses, tensors = train(model, options, weights, data, torch.float64)
    single_losses, single_tensors = train(model, options, weights, data, torch.float32)
    excused = formula.NOISE_ONLY.get(model, ()) if options["name"].startswith("adam") else ()
    found, worst = {}, 0.0
    for name, values in tensors.items():
        found[name] = {"norm": formula.norm(values), "sketch": formula.sketch(values)}
        error = formula.relative_error(single_tensors[name], found[name])
        if name in excused:
            del found[name]
        else:
            worst = max(worst, error)
            if error > MAX_WEIGHT_ROUNDING:
                sys.exit(f"{model} {optimizer}: {name} differs by {error:.1e} in single precision")
    loss_error = max(abs(a - b) / abs(b) for a, b in zip(single_losses, losses))
    if loss_error > MAX_LOSS_ROUNDING:
        sys.exit(f"{model} {optimizer}: a loss differs by {loss_error:.1e} in single precision")
    print(f"{model:14} {optimizer:9} loss {losses[0]:.6f} -> {losses[-1]:.6f}   rounding: "
          f"losses {loss_error:.1e}, weights {worst:.1e}", flush=True)
    return {"model": model, "optimizer": options, "torch": torch.__version__, "losses": losses,
            "rounding": {"losses": loss_error, "weights": worst}, "tensors": found}


def rounded(value):
    """Ten digits: a hundred times finer than single precision."""
    if isinstance(value, float):
        return float(f"{value:.10g}")
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list) else value


def main():
    torch.manual_seed(0)
    os.makedirs(os.path.join(HERE, "goldens"), exist_ok=True)
    for model in sys.argv[1:] or MODELS:
        weights, data = formula.initial_weights(model), formula.data_set(model)
        for optimizer in formula.OPTIMIZERS:
            result = rounded(golden(model, optimizer, weights, data))
            path = os.path.join(HERE, "goldens", f"{model}-{optimizer}.json")
            with open(path, "w", encoding="utf-8") as f:
                json.dump(result, f, separators=(",", ":"))
                f.write("\n")


if __name__ == "__main__":
    main()
