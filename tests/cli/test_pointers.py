#!/usr/bin/env python3
"""A file that is only a pointer of Git LFS, because its content was not fetched, is refused
wherever a file is read: one line that names it and `git lfs pull`, code 2, and nothing is written.

usage: test_pointers.py BUILD_FOLDER
"""
import io
import os
import shutil
import sys
import tarfile
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import TRIREME, check_all, run  # noqa: E402

RECIPES = os.path.abspath("recipes")
POINTER = ("version https://git-lfs.github.com/spec/v1\n"
           "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
           "size 12345\n")
IMAGES = ["train", f"{RECIPES}/mlp-jax.yaml"]
TOKENS = ["train", f"{RECIPES}/llama-tiny.yaml", "data.name=tokens", "data.path=."]
SMALL = ["data.name=synthetic", "data.shape=[1,28,28]", "data.classes=10", "data.samples=32",
         "data.test_samples=16", "batch.global=16", "optimizer.name=adam",
         "log.tensorboard=false"]


def refused(name, *words, runs=False):
    done = run([TRIREME, *words], 2)
    lines = done.stderr.splitlines()
    assert (runs or len(lines) == 1) and "`git lfs pull`" in lines[-1], (words, lines)
    assert name in lines[-1], (words, lines)
    assert runs or not os.path.exists("runs"), words


def check_readers():
    names = ["a.safetensors", "x.npy", "x.npz", "x.txt", "x.bin", "r.yaml", "ds.json", "net.so",
             "t.json"] + [f"{part}-{kind}-ubyte" for part in ("train", "t10k")
                          for kind in ("images-idx3", "labels-idx1")]
    for name in names:
        with open(name, "w", encoding="ascii") as file:
            file.write(POINTER)
    refused("-ubyte", *IMAGES, "data.name=idx", "data.path=.")
    refused("a.safetensors", *IMAGES, "data.name=tensors", "data.path=.",
            "data.train=a.safetensors", "data.test=a.safetensors")
    refused("x.npz", *IMAGES, "data.name=npy", "data.path=.", "data.train=x.npz", "data.test=x.npz")
    refused("x.npy", *IMAGES, "data.name=npy", "data.path=.",
            "data.train={images: x.npy, labels: x.npy}",
            "data.test={images: x.npy, labels: x.npy}")
    for name in ("x.txt", "x.bin"):
        refused(name, *TOKENS, f"data.train={name}", f"data.test={name}")
    refused("r.yaml", "train", "r.yaml")
    refused("ds.json", *IMAGES, *SMALL, "deepspeed=ds.json")
    refused("net.so", *IMAGES, *SMALL, "model.name=./net.so")
    refused("a.safetensors", *IMAGES, *SMALL, "init=a.safetensors")
    refused("a.safetensors", "eval", *IMAGES[1:], *SMALL, "--checkpoint", "a.safetensors")
    refused("a.safetensors", "checkpoint", "export", "a.safetensors", "--out", "b.safetensors")
    assert not os.path.exists("b.safetensors")
    refused("a.safetensors", "checkpoint", "list", "a.safetensors")
    refused("a.safetensors", *IMAGES, *SMALL, "--resume", "a.safetensors")
    refused("t.json", "trace", "t.json")


def write_image_folder(root, content):
    for split in "train", "test":
        for label in "0", "1":
            os.makedirs(f"{root}/{split}/{label}")
            for i in range(2):
                with open(f"{root}/{split}/{label}/{i}.ppm", "wb") as file:
                    file.write(content)


def check_images():
    """Image files, files of images, and images within files."""
    image = b"P6 6 6 255\n" + bytes(6 * 6 * 3) + bytes(64)
    pointer = POINTER.encode() + bytes(len(image) - len(POINTER))
    sizes = ["data.transform=[{resize: [4, 4]}]", "batch.global=2", "log.tensorboard=false",
             "optimizer.name=adam", "trainer.max_steps=1"]
    write_image_folder("bad", POINTER.encode())
    write_image_folder("good", image)
    words = [f"{RECIPES}/mlp-jax.yaml", "data.name=imagefolder", "data.path=bad", *sizes]
    refused("bad/train/0/0", "train", *words, "data.on_error=skip")
    with open("bad/train/0/0.ppm", "wb") as file:
        file.write(image)
    refused("bad/train/", "train", *words, "data.on_error=skip", runs=True)
    done = run([TRIREME, "data", "check", *words], 2)
    assert "`git lfs pull`" in done.stdout + done.stderr, done
    for kind in "cifar10", "cifar100":
        names = ["data_batch_1.bin", "test_batch.bin"] if kind == "cifar10" else ["train.bin",
                                                                                 "test.bin"]
        os.mkdir(kind)
        for name in names:
            with open(f"{kind}/{name}", "w", encoding="ascii") as file:
                file.write(POINTER)
        refused(names[0], *IMAGES, f"data.name={kind}", f"data.path={kind}", runs=True)
    # Arrow's library may be missing.
    module = os.path.join(os.path.dirname(TRIREME), "../lib/trireme/parquet.so")
    for kind in ["webdataset", "lmdb"] + ["parquet"] * os.path.exists(module):
        run([TRIREME, "data", "convert", words[0], words[1], "data.path=good", *sizes, "--to", kind,
             "--out", kind])
        for folder, _, names in os.walk(kind):
            for name in names:
                path = os.path.join(folder, name)
                with open(path, "rb") as file:
                    content = file.read()
                with open(path, "wb") as file:
                    file.write(content.replace(image, pointer))
        name = sorted(entry for entry in os.listdir(kind) if entry.startswith("train"))[0]
        refused(kind, "train", words[0], f"data.name={kind}", f"data.path={kind}",
                f"data.train={name}", f"data.test={name}", *sizes, "--run-dir", f"runs/{kind}",
                runs=True)
    with tarfile.open("labels.tar", "w") as archive:
        for name, content in ("a.ppm", image), ("a.cls", POINTER.encode()):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    refused("a.cls", "train", words[0], "data.name=webdataset", "data.path=.",
            "data.train=labels.tar", "data.test=labels.tar", *sizes, runs=True)


def check_checkpoints():
    words = [*IMAGES, *SMALL, "trainer.max_steps=2", "--run-dir", "runs/r"]
    run([TRIREME, *words])
    for name in "model.safetensors", "optimizer.safetensors", "state.json":
        path = f"runs/r/checkpoints/step-00000002/{name}"
        shutil.move(path, "kept")
        with open(path, "w", encoding="ascii") as file:
            file.write(POINTER)
        refused(name, "checkpoint", "verify", "runs/r/checkpoints/step-00000002", runs=True)
        refused(name, *words, "trainer.max_steps=3", runs=True)
        shutil.move("kept", path)
    run([TRIREME, *words, "trainer.max_steps=3"])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="trireme-pointers-") as place:
        os.chdir(place)
        sys.exit(check_all([check_readers, check_images, check_checkpoints]))
