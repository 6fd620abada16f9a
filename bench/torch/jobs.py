"""PyTorch's side of the comparisons: what each network is trained on, how, and with what batch."""

import gzip
from dataclasses import dataclass
from typing import Callable

import numpy as np
import torch
import torch.nn.functional as F

import models

FASHION_MNIST = "/usr/share/datasets/fashion-mnist"  # Debian's dataset-fashion-mnist


@dataclass
class Job:
    net: torch.nn.Module
    optimizer: Callable  # of parameters
    data: Callable  # of the step's number: inputs and targets, already in memory
    batch: int
    loss: Callable = F.cross_entropy
    tokens: int = 1  # per sample


ALIASES = {
    "a": "mnist-cnn",
    "b": "cifar-resnet18",
    "c": "resnet50",
    "d": "vit-tiny",
    "e": "llama-small",
    "convnet": "mnist-convnet",
    "denoise": "denoise-cnn",
}


def fashion(batch, normalised):
    with gzip.open(f"{FASHION_MNIST}/train-images-idx3-ubyte.gz") as f:
        x = np.frombuffer(f.read(), np.uint8, offset=16).reshape(-1, 1, 28, 28)
    with gzip.open(f"{FASHION_MNIST}/train-labels-idx1-ubyte.gz") as f:
        y = np.frombuffer(f.read(), np.uint8, offset=8)
    x = torch.from_numpy(x.astype("float32")).div_(255)
    if normalised:
        x.sub_(0.1307).div_(0.3081)
    y = torch.from_numpy(y.astype("int64"))
    steps = len(x) // batch

    def data(i):
        begin = i % steps * batch
        return x[begin : begin + batch], y[begin : begin + batch]

    return data


def turns(*batches):
    """The same few batches over and over."""
    return lambda i: tuple(t[i % len(t)] for t in batches)


def sgd(lr, **more):
    return lambda parameters: torch.optim.SGD(parameters, lr, **more)


def adam(lr):
    return lambda parameters: torch.optim.Adam(parameters, lr)


def images_and_labels(batch, size, classes):
    return turns(torch.randn(4, batch, 3, size, size), torch.randint(0, classes, (4, batch)))


def make(name, optimizer=None, batch=None):
    torch.manual_seed(0)
    name = ALIASES.get(name, name)
    if name == "mnist-cnn":
        choices = {"sgd": sgd(0.01), "adadelta": lambda p: torch.optim.Adadelta(p, 1.0)}
        batch = batch or 64
        return Job(models.MnistCNN(), choices[optimizer or "sgd"], fashion(batch, True), batch)
    if name == "mnist-convnet":
        batch = batch or 100
        return Job(models.MnistConvnet(), sgd(1e-4), fashion(batch, False), batch)
    if name == "mlp-jax":
        batch = batch or 128
        return Job(models.mlp(), sgd(0.01), fashion(batch, False), batch)
    if name == "autoencoder":
        batch = batch or 64
        labelled = fashion(batch, False)

        def data(i):
            x = labelled(i)[0]
            return x, x.view(batch, 784)

        return Job(models.autoencoder(), adam(1e-3), data, batch, F.mse_loss)
    if name == "denoise-cnn":
        data = turns(torch.rand(4, 32, 1, 128, 128), torch.rand(4, 32, 1, 128, 128))
        return Job(models.DenoiseCNN(), adam(1e-3), data, 32, F.mse_loss)
    decay = sgd(0.01, momentum=0.9, weight_decay=5e-4)
    if name == "cifar-resnet18":
        net = models.ResNet(models.Basic, [2, 2, 2, 2], 10, True)
        return Job(net, decay, images_and_labels(64, 32, 10), 64)
    if name == "resnet50":
        net = models.ResNet(models.Bottle, [3, 4, 6, 3], 1000, False)
        return Job(net, decay, images_and_labels(8, 224, 1000), 8)
    if name == "vit-tiny":
        adamw = lambda p: torch.optim.AdamW(p, 1e-3)  # noqa: E731
        return Job(models.ViT(), adamw, images_and_labels(8, 224, 1000), 8)
    if name == "llama-small":
        tokens = torch.randint(0, 32000, (4, 4, 257))
        adamw = lambda p: torch.optim.AdamW(p, 3e-4)  # noqa: E731

        def loss(output, target):
            return F.cross_entropy(output.flatten(0, 1), target.flatten())

        return Job(models.Llama(), adamw, turns(tokens[..., :-1], tokens[..., 1:]), 4, loss, 256)
    raise SystemExit(f"no such model: {name}")
