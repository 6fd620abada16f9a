#!/usr/bin/env python3
"""Shapes of samples: `plan` and `checkpoint init` describe the model that `train` trains, or name
the key that is missing.

usage: test_shapes.py BUILD_FOLDER
"""
import json
import math
import os
import re
import struct
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import DATA, TRIREME, check_all, run  # noqa: E402
import tensors  # noqa: E402

RECIPE = "recipes/mlp-jax.yaml"
folder = None


CLASSES = 10  # of the data, as many as the model has outputs


def write_tensors(path, shape, count=8):
    tensors.write(path, {"labels": ("I64", [count], [0] * (count - 1) + [CLASSES - 1]),
                         "images": ("F32", [count, *shape], bytes(4 * count * math.prod(shape)))})


def write_idx(prefix, height, width, count=8):
    with open(prefix + "-images-idx3-ubyte", "wb") as file:
        head = struct.pack(">IIII", 0x803, count, height, width)
        file.write(head + bytes(count * height * width))
    with open(prefix + "-labels-idx1-ubyte", "wb") as file:
        file.write(struct.pack(">II", 0x801, count) + bytes(count - 1) + bytes([CLASSES - 1]))


def planned(*words):
    return json.loads(run([TRIREME, "plan", RECIPE, *words, "--json"]).stdout)["parameters"]


def trained(name, *words, steps=1):
    done = run([TRIREME, "train", RECIPE, *words, "batch.global=4", f"trainer.max_steps={steps}",
                "optimizer.lr=0", "optimizer.name=sgd", "log.tensorboard=false",
                "--run-dir", os.path.join(folder, name)])
    return int(re.search(r"(\d+) parameters", done.stderr.replace(",", "")).group(1)), done


def refused(command, *words, parts):
    done = run([TRIREME, *command, RECIPE, *words], code=2)
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and all(part in lines[0] for part in parts), (command, done.stderr)


def shapes_of(*words):
    """What data check says to write."""
    done = run([TRIREME, "data", "check", RECIPE, *words])
    return re.search(r"data\.shapes: (\{.*\})", done.stdout).group(1)


def check_tensors():
    write_tensors(os.path.join(folder, "tensors"), [3, 8, 8])
    words = ["data.name=tensors", f"data.train={folder}/tensors"]
    out = os.path.join(folder, "init")
    for command in (["plan"], ["checkpoint", "init", "--out", out], ["bench", "kernels"]):
        refused(command, *words, parts=["data.shapes", "[3, 32, 32]", "data check"])
    assert not os.path.exists(out)
    shapes = shapes_of(*words)
    assert shapes == "{images: [3, 8, 8], labels: []}", shapes
    stated = [*words, "data.shapes=" + shapes]
    count, done = trained("tensors-run", *stated)
    assert count == planned(*stated) == 192 * 512 + 512 + 512 * 512 + 512 + 512 * 10 + 10
    assert "warning" not in done.stderr, done.stderr
    assert trained("unstated", *words)[0] == count
    run([TRIREME, "checkpoint", "init", RECIPE, *stated, "--out", out])
    run([TRIREME, "checkpoint", "diff", out, os.path.join(folder, "tensors-run")])
    # The same run, whether or not the recipe states what the data say.
    trained("tensors-run", *words, steps=2)
    # Nothing lies there, and the plan is the same.
    assert planned("data.name=tensors", "data.train=/nowhere", "data.shapes=" + shapes) == count
    for command in (["train", "--run-dir", os.path.join(folder, "no")], ["data", "check"]):
        refused(command, *words, "data.shapes={images: [3, 8, 9], labels: []}",
                parts=["[3, 8, 9]", "[3, 8, 8]"])
        refused(command, *words, "data.shapes={images: [3, 8, 8]}", parts=["labels"])
    assert not os.path.exists(os.path.join(folder, "no"))
    # Transforms act on what is stated.
    crop = "data.transform=[{random_crop: {size: 4}}]"
    assert planned(*stated, crop) == trained("crop", *stated, crop)[0] < count


def check_idx():
    """28 x 28 unless the recipe says otherwise; a training run says so when that is not true."""
    write_idx(os.path.join(folder, "train"), 6, 5)
    write_idx(os.path.join(folder, "t10k"), 6, 5)
    count, done = trained("small", f"data.path={folder}")
    warnings = [line for line in done.stderr.splitlines() if "warning" in line]
    assert len(warnings) == 1 and "data.shapes: {images: [1, 6, 5], labels: []}" in warnings[0]
    stated = [f"data.path={folder}", "data.shapes={labels: [], images: [1, 6, 5]}"]
    again, done = trained("small", *stated, steps=2)
    assert again == count == planned(*stated) and "warning" not in done.stderr
    if os.path.isdir(DATA):
        count, done = trained("plain", "data.limit=8", "trainer.limit_val_batches=1")
        assert count == planned() and "warning" not in done.stderr, done.stderr
        crop = ["data.transform=[{random_crop: {size: 20}}]"]
        assert planned(*crop) == planned("data.shapes={images: [1, 20, 20], labels: []}")


def check_settings():
    for value, part in (("[1]", "a map"), ("{}", "a map"), ("{images: 3}", "a list"),
                        ("{images: [0, 1, 1]}", "from 1"), ("{images: [x]}", "from 1"),
                        ("{images: [1, 99999999999, 1]}", "from 1"),
                        ("{imges: [1, 2, 3]}", "images"), ("{images: [4, 4]}", "[N, C, H, W]"),
                        ("{inputs: [1,1,1,1,1,1,1,1,1,1,1,1]}", "sizes"),
                        ("{inputs: [1000000, 1000000]}", "elements per sample")):
        refused(["plan"], "data.name=tensors", f"data.shapes={value}",
                parts=["data.shapes", part])


def main():
    global folder
    with tempfile.TemporaryDirectory(prefix="trireme-shapes-") as folder:
        failed = check_all((check_tensors, check_idx, check_settings))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
