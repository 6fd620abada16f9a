#!/usr/bin/env python3
"""Ranks that read copies of their own, as on hosts' own disks: where the copies differ, all ranks
end with code 2 before the first step, and one line says which rank it was, and in what.

usage: test_own_copies.py BUILD_FOLDER
"""
import os
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import TRIREME, check_all, on_ranks, run  # noqa: E402

HERE = os.getcwd()
RECIPE = """name: copies
model: {name: mlp-jax, num_classes: 4}
data: {name: synthetic, shape: [1, 4, 4], classes: 4, samples: 8, test_samples: 4, workers: 0}
batch: {global: 4}
trainer: {max_steps: 1}
log: {tensorboard: false}
"""
TASK = """#include <trireme/trireme.h>
static void build(tri_graph *g, const tri_batch *batch) {
    tri_value x = tri_linear(g, "fc", tri_flatten(g, batch->images), 4);
    tri_loss(g, tri_cross_entropy(g, x, batch->labels));
}
static const tri_task task = {.name = "small", .build = build};
TRI_EXPORT_TASK(task)
"""


def on_copies(words, code=0):
    """Rank 0 works in the folder copy-0, rank 1 in copy-1."""
    return run(on_ranks(2, ["sh", "-c", 'cd copy-$RANK && exec "$@"', "sh", TRIREME, *words]), code)


def check_differs(words, *parts):
    done = on_copies(words, 2)
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and "rank 1 (host " in lines[0] and "rank 0" in lines[0], lines
    assert all(part in lines[0] for part in parts), f"no {parts} in {lines}"


def train(*words):
    return ["train", f"{os.getcwd()}/r.yaml", f"--run-dir={os.getcwd()}/run", "--resume=never",
            *words]


def begin():
    """Two equal copies of an empty folder; no run."""
    for name in "copy-0", "copy-1", "run":
        shutil.rmtree(name, ignore_errors=True)
    os.makedirs("copy-0")
    os.makedirs("copy-1")
    with open("r.yaml", "w", encoding="ascii") as file:
        file.write(RECIPE)


def give(rank, name, text=None, copy=None):
    """Puts a file into the copy of one rank."""
    if copy:
        shutil.copyfile(copy, f"copy-{rank}/{name}")
        return
    with open(f"copy-{rank}/{name}", "w", encoding="utf-8") as file:
        file.write(text)


def check_weights():
    begin()
    for seed in 1, 2:
        run([TRIREME, "checkpoint", "init", "r.yaml", "--out", f"{seed}.safetensors",
             f"seed={seed}"])
    give(0, "w.safetensors", copy="1.safetensors")
    give(1, "w.safetensors", copy="2.safetensors")
    check_differs(train("init=w.safetensors"), "init", "w.safetensors")
    check_differs(["eval", f"{os.getcwd()}/r.yaml", "--checkpoint", "w.safetensors"],
                  "--checkpoint", "w.safetensors")
    give(1, "w.safetensors", copy="1.safetensors")
    on_copies(train("init=w.safetensors"))


def check_model():
    """The code of a model: two builds that load alike."""
    begin()
    with open("m.c", "w", encoding="ascii") as file:
        file.write(TASK)
    subprocess.run(["cc", "-shared", "-fPIC", "-I", f"{HERE}/include", "m.c", "-o", "m.so"],
                   check=True)
    give(0, "m.so", copy="m.so")
    give(1, "m.so", copy="m.so")
    words = train("model={name: ./m.so}")
    with open("copy-1/m.so", "ab") as file:
        file.write(b"\0")
    check_differs(words, "m.so")
    give(1, "m.so", copy="m.so")
    on_copies(words)


def images(rank, names):
    """An image folder of two images for each class."""
    for number, name in enumerate(names):
        os.makedirs(f"copy-{rank}/i/{name}")
        for i in range(2):
            with open(f"copy-{rank}/i/{name}/{i}.pgm", "wb") as file:
                file.write(b"P5 4 4 255\n" + bytes([60 * number + i]) * 16)


def check_data():
    """An incomplete copy, one of which a class has another name, and one with other bytes."""
    rows = [f"{i % 5},{i % 3},{'abcd'[i % 4]}" for i in range(16)]
    table = "\n".join(["x,y,label", *rows]) + "\n"
    cases = [("t.csv", "\n".join(["x,y,label", *rows[:15]]) + "\n", "15 samples, not 16"),
             ("t.csv", table.replace("d\n", "e\n"), "names"),
             ("t.csv", table.replace("x,y", "y,x"), "names"),
             ("t.csv", table.replace("4,", "3,"), "files")]
    for name, other, part in cases:
        begin()
        give(0, name, table)
        give(1, name, other)
        words = train("data={name: csv, train: t.csv, workers: 0}")
        check_differs(words, "training data", part)
    give(1, "t.csv", table)
    on_copies(words)
    for names, part in (["ant", "bee", "cat", "dog"], ""), (["ant", "bee", "cat", "emu"], "names"):
        begin()
        images(0, ["ant", "bee", "cat", "dog"])
        images(1, names)
        words = train("data={name: imagefolder, train: i, workers: 0, transform: "
                      "[{resize: [4, 4]}]}")
        if part:
            check_differs(words, "training data", part)
        else:
            on_copies(words)


def check_recipe():
    begin()
    done = run(on_ranks(2, ["sh", "-c", 'exec "$@" seed=$RANK', "sh", TRIREME, *train()]), 2)
    assert "differs from rank 0" in done.stderr and "recipe" in done.stderr, done.stderr


def main():
    with tempfile.TemporaryDirectory(prefix="trireme-copies-") as folder:
        os.chdir(folder)
        sys.exit(check_all([check_weights, check_model, check_data, check_recipe]))


if __name__ == "__main__":
    main()
