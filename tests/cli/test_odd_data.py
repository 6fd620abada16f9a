#!/usr/bin/env python3
"""Data sets and settings that do not fit together, and plans for evaluation passes that are larger
than training's.

usage: test_odd_data.py BUILD_FOLDER
"""
import json
import os
import struct
import subprocess
import sys
import tempfile

TRIREME = os.path.join(os.path.abspath(sys.argv[1]), "bin", "trireme")


def run(*arguments):
    return subprocess.run([TRIREME, *arguments], capture_output=True, text=True, timeout=60)


def write_tensors(path, tensors):
    """A safetensors file of zeros: name -> (type, bytes of an element, shape)."""
    header, end = {}, 0
    for name, (kind, width, shape) in tensors.items():
        size = width
        for length in shape:
            size *= length
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + bytes(end))


def check_fields(folder):
    """Test samples with fewer fields than training's are bad input, in one line."""
    images, labels = ("F32", 4, [8, 1, 28, 28]), ("I64", 8, [8])
    write_tensors(os.path.join(folder, "train"), {"images": images, "labels": labels})
    write_tensors(os.path.join(folder, "test"), {"images": images})
    for train, test in (("train", "test"), ("test", "train")):
        done = run("train", "recipes/mlp-jax.yaml", "data.name=tensors", f"data.path={folder}",
                   f"data.train={train}", f"data.test={test}", "--run-dir",
                   os.path.join(folder, "run"))
        assert done.returncode == 2, done
        assert len(done.stderr.splitlines()) == 1 and "fields" in done.stderr, done.stderr
        assert not os.path.exists(os.path.join(folder, "run"))


def check_plan():
    """The peak is that of the larger passes."""
    def peak(size):
        done = run("plan", "recipes/mnist-cnn.yaml", "batch.global=8", f"batch.eval={size}", "--json")
        return json.loads(done.stdout)["memory"]["activations"]
    assert peak(256) > 4 * peak(8)


with tempfile.TemporaryDirectory() as temporary:
    check_fields(temporary)
    check_plan()
