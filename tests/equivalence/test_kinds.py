#!/usr/bin/env python3
"""Every kind of data: a run that ends within an epoch goes on with other numbers of ranks and of
loader threads; its log of samples shows each sample once in every epoch, and its losses are those
of one rank.

usage: test_kinds.py BUILD_FOLDER
"""
import os
import random
import struct
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import runs
import samples
import tensors

COUNT, EPOCHS = 103, 2
COMMON = ["batch.micro=1", f"trainer.max_epochs={EPOCHS}",
          "optimizer.momentum=0.9", "trainer.deterministic=true", "log.samples=true",
          "trainer.log_every_n_steps=1", "log.tensorboard=false", "log.progress=false"]
GOLDENS = os.path.abspath("tests/support/goldens")


def put_tensors(path, field, kind, shape, values):
    """A safetensors file of COUNT samples, with classes that are all there."""
    labels = [i * i % 7 % 4 if i > 9 else i for i in range(COUNT)]
    tensors.write(path, {field: (kind, [COUNT, *shape], values),
                         "labels": ("I64", [COUNT], labels)})


def converted(folder, kind, source):
    """The settings that read the data of `source` as another kind."""
    out = os.path.join(folder, kind)
    done = runs.run([runs.TRIREME, "data", "convert", "recipes/mlp-jax.yaml", "data.name=tensors",
                     f"data.train={source}", "--to", kind, "--out", out])
    lines = (line.strip().partition(": ") for line in done.stdout.splitlines()[1:])
    return [f"data.{key}={value}" for key, _, value in lines]


def check_kind(folder, name, words, count=COUNT, size=8):
    one, many = (os.path.join(folder, f"{name}-{run}") for run in ("one", "many"))
    steps = -(-count // size)
    words = [*COMMON, f"batch.global={size}", *words]
    runs.run(runs.train("mlp-jax", one, *words))
    wanted, _ = samples.check_exactly_once(one, count, steps, EPOCHS)
    half = steps // 2
    for ranks, workers, more in ((3, 0, [f"trainer.max_steps={half}"]),
                                 (1, 3, [f"trainer.max_steps={steps + half}"]), (2, 2, [])):
        runs.run(runs.on_ranks(ranks, runs.train("mlp-jax", many, *words,
                                                 f"data.workers={workers}", *more)))
    got, replicas = samples.check_exactly_once(many, count, steps, EPOCHS)
    assert replicas == [3, 1, 2], replicas
    assert got == wanted, f"{name}: a step took other samples than one rank's"
    runs.check_same(runs.losses(many), runs.losses(one), name)
    print(f"  {name}")


def main():
    source = random.Random(1)
    with tempfile.TemporaryDirectory(prefix="trireme-kinds-") as folder:
        images, table = (os.path.join(folder, name) for name in ("images.st", "table.st"))
        put_tensors(images, "images", "U8", [3, 4, 5], source.randbytes(COUNT * 60))
        put_tensors(table, "inputs", "F32", [6],
                    struct.pack(f"<{6 * COUNT}f", *(source.random() for _ in range(6 * COUNT))))
        checks = [(folder, "tensors", ["data.name=tensors", f"data.train={images}"])]
        for kind in ("npy", "hdf5"):
            checks.append((folder, kind, converted(folder, kind, images)))
        for kind in ("webdataset", "imagefolder", "lmdb"):
            checks.append((folder, kind, [*converted(folder, kind, images),
                                          "data.transform=[resize: [4, 5]]"]))
        checks.append((folder, "csv", converted(folder, "csv", table)))
        sources = ", ".join("{weight: %d, name: %s, path: %s, train: '%s'}" % (
            weight, kind, os.path.join(folder, kind), train) for weight, kind, train in (
                (1, "hdf5", "train.h5"), (2, "webdataset", "train-000000.tar")))
        checks.append((folder, "mixture", ["data.name=mixture", f"data.mix=[{sources}]",
                                       "data.transform=[resize: [4, 5]]"], 2 * COUNT))
        module = os.path.join(os.path.dirname(runs.TRIREME), "../lib/trireme/parquet.so")
        if os.path.exists(module):
            checks.append((folder, "parquet", ["data.name=parquet",
                                               f"data.train={GOLDENS}/images-*.parquet",
                                               "data.transform=[resize: [4, 5]]"], 14, 3))
        else:
            print("Parquet is left out: this build is without Arrow's library")
        failed = False
        for check in checks:
            failed |= bool(runs.check_all([check_kind], *check))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
