"""PyTorch's side of the comparisons: what each network is trained on, how, and with what batch."""

from dataclasses import dataclass
from typing import Callable

import torch
import torch.nn.functional as F

import fashion
import models


@dataclass
class Job:
    net: torch.nn.Module
    optimizer: Callable  # of parameters, and the options of its form
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


def fashion_mnist(batch, normalised):
    x, y = (torch.from_numpy(a) for a in fashion.load())
    x = x.view(-1, 1, 28, 28)
    if normalised:
        x.sub_(0.1307).div_(0.3081)
    steps = len(x) // batch

    def data(i):
        begin = i % steps * batch
        return x[begin : begin + batch], y[begin : begin + batch]

    return data


def turns(*batches):
    """The same few batches over and over."""
    return lambda i: tuple(t[i % len(t)] for t in batches)


def optimizer_of(kind, lr, **more):
    return lambda parameters, **form: kind(parameters, lr, **more, **form)


def sgd(lr, **more):
    return optimizer_of(torch.optim.SGD, lr, **more)


def adam(lr):
    return optimizer_of(torch.optim.Adam, lr)


def images_and_labels(batch, size, classes):
    return turns(torch.randn(4, batch, 3, size, size), torch.randint(0, classes, (4, batch)))


def make(name, optimizer=None, batch=None):
    torch.manual_seed(0)
    name = ALIASES.get(name, name)
    if name == "mnist-cnn":
        choices = {"sgd": sgd(0.01), "adadelta": optimizer_of(torch.optim.Adadelta, 1.0)}
        batch = batch or 64
        data = fashion_mnist(batch, True)
        return Job(models.MnistCNN(), choices[optimizer or "sgd"], data, batch)
    if name == "mnist-convnet":
        batch = batch or 100
        return Job(models.MnistConvnet(), sgd(1e-4), fashion_mnist(batch, False), batch)
    if name == "mlp-jax":
        batch = batch or 128
        return Job(models.mlp(), sgd(0.01), fashion_mnist(batch, False), batch)
    if name == "autoencoder":
        batch = batch or 64
        labelled = fashion_mnist(batch, False)

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
        adamw = optimizer_of(torch.optim.AdamW, 1e-3)
        return Job(models.ViT(), adamw, images_and_labels(8, 224, 1000), 8)
    if name == "llama-small":
        tokens = torch.randint(0, 32000, (4, 4, 257))
        adamw = optimizer_of(torch.optim.AdamW, 3e-4)

        def loss(output, target):
            return F.cross_entropy(output.flatten(0, 1), target.flatten())

        return Job(models.Llama(), adamw, turns(tokens[..., :-1], tokens[..., 1:]), 4, loss, 256)
    raise SystemExit(f"no such model: {name}")
