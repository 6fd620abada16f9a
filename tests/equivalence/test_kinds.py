#!/usr/bin/env python3
"""Every kind of data: a run that ends within an epoch goes on with other numbers of ranks and of
loader threads; its log of samples shows each sample once in every epoch, and its losses are those
of one rank.

usage: test_kinds.py BUILD_FOLDER
"""
import gzip
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile

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


def packed_tars(folder):
    """The tar that `converted` has written, packed in both ways."""
    tar = os.path.join(folder, "webdataset", "train-000000.tar")
    with open(tar, "rb") as plain, gzip.open(tar + ".gz", "wb") as out:
        shutil.copyfileobj(plain, out)
    yield "webdataset, gzip", f"{tar}.gz"
    if shutil.which("zstd"):
        subprocess.run(["zstd", "-q", tar, "-o", tar + ".zst"], check=True)
        yield "webdataset, zstd", f"{tar}.zst"


def put(folder, name, data):
    with open(os.path.join(folder, name), "wb") as out:
        out.write(data)
    return os.path.join(folder, name)


def kinds_of_bytes(folder, source):
    """Files whose layout is fixed: IDX, CIFAR-10, CIFAR-100, and an archive of NumPy's arrays."""
    labels = bytes(i * i % 7 % 4 if i > 9 else i for i in range(COUNT))
    for split, count in ("train", COUNT), ("t10k", 8):
        put(folder, f"{split}-images-idx3-ubyte",
            struct.pack(">IIII", 0x803, count, 4, 5) + source.randbytes(count * 20))
        put(folder, f"{split}-labels-idx1-ubyte",
            struct.pack(">II", 0x801, count) + labels[:count])
    yield "idx", [f"data.path={folder}", "data.name=idx"]
    batches = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]
    for i, name in enumerate(batches):
        some = labels[i * 21:(i + 1) * 21] or labels[:8]
        put(folder, name, b"".join(bytes([label]) + source.randbytes(3072) for label in some))
    small = [f"data.path={folder}", "data.transform=[resize: [4, 5]]"]
    yield "cifar10", [*small, "data.name=cifar10"]
    for name, some in ("train.bin", labels), ("test.bin", labels[:8]):
        put(folder, name,
            b"".join(bytes([label % 2, label]) + source.randbytes(3072) for label in some))
    yield "cifar100", [*small, "data.name=cifar100", "model.num_classes=100"]
    with zipfile.ZipFile(os.path.join(folder, "all.npz"), "w") as out:
        for field in ("images", "labels"):
            out.write(os.path.join(folder, "npy", f"train-{field}.npy"), field + ".npy")
    yield "npz", ["data.name=npy", f"data.train={folder}/all.npz"]


def kinds_of_text(folder, source):
    """Text as tokens, and as documents: the words for a small Llama."""
    small = ["model.hidden_size=16", "model.intermediate_size=16", "model.num_hidden_layers=1",
             "model.num_attention_heads=2", "model.num_key_value_heads=2", "data.sequence=16",
             "optimizer.name=sgd", "data.test=null"]
    text = put(folder, "text", bytes(source.choices(b"abcdef \n", k=16 * COUNT)))
    yield "tokens", [*small, "data.name=tokens", f"data.train={text}"]
    tokenizer = os.path.join(folder, "tokenizer.json") # a token is a byte
    shutil.copy(os.path.join(GOLDENS, "tokenizers", "newer.json"), tokenizer)
    put(folder, "tokenizer_config.json", b'{"eos_token": "!"}')
    lines = [json.dumps({"text": "b" * 15}) for _ in range(COUNT)] # and an end mark
    path = put(folder, "text.jsonl", "\n".join(lines).encode())
    yield "jsonl", [*small, "model.vocab_size=300", "data.name=jsonl", f"data.train={path}",
                    f"data.tokenizer={tokenizer}"]


def check_kind(folder, name, words, count=COUNT, size=8, recipe="mlp-jax", parts=None):
    one, many = (os.path.join(folder, f"{name}-{run}") for run in ("one", "many"))
    steps = -(-count // size)
    words = [*COMMON, f"batch.global={size}", *words]
    runs.run(runs.train(recipe, one, *words))
    wanted, _ = samples.check_exactly_once(one, count, steps, EPOCHS, parts)
    half = steps // 2
    for ranks, workers, more in ((3, 0, [f"trainer.max_steps={half}"]),
                                 (1, 3, [f"trainer.max_steps={steps + half}"]), (2, 2, [])):
        runs.run(runs.on_ranks(ranks, runs.train(recipe, many, *words,
                                                 f"data.workers={workers}", *more)))
    got, replicas = samples.check_exactly_once(many, count, steps, EPOCHS, parts)
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
        resize = "data.transform=[resize: [4, 5]]"
        checks += [(folder, name, ["data.name=webdataset", f"data.train={tar}", resize])
                   for name, tar in packed_tars(folder)]
        checks += [(folder, *kind) for kind in kinds_of_bytes(folder, source)]
        checks += [(folder, name, words, COUNT, 8, "llama-tiny")
                   for name, words in kinds_of_text(folder, source)]
        sources = ", ".join("{weight: %d, name: %s, path: %s, train: '%s'}" % (
            weight, kind, os.path.join(folder, kind), train) for weight, kind, train in (
                (1, "hdf5", "train.h5"), (2, "webdataset", "train-000000.tar")))
        checks.append((folder, "mixture", ["data.name=mixture", f"data.mix=[{sources}]",
                                       "data.transform=[resize: [4, 5]]"], 2 * COUNT, 8,
                       "mlp-jax", [(COUNT, 2 * COUNT // 3 + 1), (COUNT, 4 * COUNT // 3)]))
        module = os.path.join(os.path.dirname(runs.TRIREME), "../lib/trireme/parquet.so")
        if os.path.exists(module):
            checks.append((folder, "parquet", ["data.name=parquet",
                                               f"data.train={GOLDENS}/images-*.parquet",
                                               "data.transform=[resize: [4, 5]]"], 14, 3))
        else:
            print("Parquet is left out: its module is not built")
        failed = False
        for check in checks:
            failed |= bool(runs.check_all([check_kind], *check))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
