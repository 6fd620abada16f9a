#!/usr/bin/env python3
"""The recipe cifar-resnet18 trains on 2,000 images in CIFAR's format along PyTorch's curve.

Both begin with the same weights and see the same images in the same order, without augmentation;
all else is the recipe's: normalisation, SGD with momentum and decay, and a learning rate that
rises and falls again, here within one epoch and to a tenth of the recipe's. The golden has the
losses of torchvision's ResNet-18 in double precision, and for each step how far PyTorch's own
single precision is from them.

That distance grows by a factor with every step, because a rounding turns units of ReLU on or off
and batch norm passes the difference on to all images. So a step may be ten times as far from the
golden as PyTorch's single precision was in this or an earlier step, but at least 1e-5.

The test runs the first steps, because 20 steps take half a minute of a core: CURVE=all runs all.

usage: test_cifar_curve.py BUILD_FOLDER | --golden    (--golden: needs torch and torchvision)
"""
import json
import os
import random
import subprocess
import sys
import tempfile

import formula
import models

HERE = os.path.dirname(os.path.abspath(__file__))
GOLDEN = os.path.join(HERE, "goldens", "cifar-curve.json")
IMAGES, BATCH, RATE, FIRST = 2000, 100, 0.01, 4
STEPS = IMAGES // BATCH
LEAST, TIMES = 1e-5, 10  # of the golden's loss; of PyTorch's own distance
MEAN, STD = (0.49139968, 0.48215841, 0.44653091), (0.24703223, 0.24348513, 0.26158784)


def write_images(path):
    """CIFAR's records: a byte with the class, then 3 × 32 × 32 bytes. Each class is a pattern of
    squares of 4 pixels, under three times as much noise."""
    source, squares = random.Random(1), 3 * 8 * 8
    patterns = [source.randbytes(squares) for _ in range(10)]
    noise = [source.randbytes(3072) for _ in range(97)]
    with open(path, "wb") as file:
        for i in range(IMAGES):
            label = source.randrange(10)
            wide = bytes(patterns[label][c * 64 + y // 4 * 8 + x // 4]
                         for c in range(3) for y in range(32) for x in range(32))
            own = noise[(i * 31 + label) % len(noise)]
            file.write(bytes([label]) + bytes((a + 3 * b) // 4 for a, b in zip(wide, own)))


def torch_losses(folder, double):
    import torch
    import torchvision
    net = torchvision.models.resnet18(num_classes=10)
    net.conv1 = torch.nn.Conv2d(3, 64, 3, 1, 1, bias=False)
    net.maxpool = torch.nn.Identity()
    kinds = {"F32": torch.float32, "I64": torch.int64}
    weights = models.weights(models.read_golden("resnet18"))
    net.load_state_dict({name: torch.tensor(values, dtype=kinds[dtype]).reshape(shape)
                         for name, (dtype, shape, values) in weights.items()})
    real = torch.float64 if double else torch.float32
    net.to(real)
    with open(os.path.join(folder, "train.bin"), "rb") as file:
        records = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).view(IMAGES, 3073)
    images = records[:, 1:].reshape(IMAGES, 3, 32, 32).to(real) / 255
    images = (images - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)
    optimizer = torch.optim.SGD(net.parameters(), RATE, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=STEPS,
                                                   cycle_momentum=False)
    losses = []
    for step in range(STEPS):
        part = slice(step * BATCH, (step + 1) * BATCH)
        loss = torch.nn.functional.cross_entropy(net(images[part].to(real)),
                                                 records[part, 0].long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        print(step + 1, losses[-1], flush=True)
    return losses


def make_golden():
    with tempfile.TemporaryDirectory() as folder:
        write_images(os.path.join(folder, "train.bin"))
        single, losses = (torch_losses(folder, double) for double in (False, True))
    distances = [abs(a - b) / b for a, b in zip(single, losses)]
    with open(GOLDEN, "w", encoding="utf-8") as file:
        json.dump({"losses": losses, "single_precision": distances}, file, indent=1)
        file.write("\n")


def main():
    build = os.path.abspath(sys.argv[1])
    with open(GOLDEN, encoding="utf-8") as file:
        golden = json.load(file)
    count = STEPS if os.environ.get("CURVE") == "all" else FIRST
    with tempfile.TemporaryDirectory() as folder:
        write_images(os.path.join(folder, "train.bin"))
        init = os.path.join(folder, "init.safetensors")
        formula.write_safetensors(init, models.weights(models.read_golden("resnet18")))
        place = os.path.join(folder, "run")
        subprocess.run([
            os.path.join(build, "bin", "trireme"), "train", "recipes/cifar-resnet18.yaml",
            "--run-dir", place, f"init={init}", f"data.path={folder}", "data.train=train.bin",
            "data.test=train.bin", "data.shuffle=false",
            f"data.transform=[normalize: {{mean: {list(MEAN)}, std: {list(STD)}}}]",
            f"batch.global={BATCH}", f"optimizer.lr={RATE}", f"schedule.total_steps={STEPS}",
            f"trainer.max_steps={count}", "trainer.limit_val_batches=0",
            "trainer.log_every_n_steps=1", "log.tensorboard=false", "log.progress=false",
            "checkpoint.save_last=false", "checkpoint.every_n_epochs=0",
            "checkpoint.save_top_k=0"], check=True, stdout=subprocess.DEVNULL)
        with open(os.path.join(place, "metrics.jsonl"), encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
    losses = [line["loss"] for line in lines if line["kind"] == "train"]
    assert len(losses) == count, losses
    limit = LEAST
    for step, (loss, wanted, own) in enumerate(zip(losses, *golden.values()), 1):
        limit = max(limit, TIMES * own)
        distance = abs(loss - wanted) / wanted
        print(f"step {step}: loss {loss:.6f}, off by {distance:.1e} of {limit:.1e}", flush=True)
        assert distance <= limit, f"step {step}: {loss}, not {wanted}"


if sys.argv[1:] == ["--golden"]:
    make_golden()
else:
    main()
