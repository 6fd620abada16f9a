#!/usr/bin/env python3
"""Every command that a run prints at its end works when it is pasted.

usage: test_hints.py BUILD_FOLDER
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import TRIREME, check_all, entries, losses, on_ranks, run  # noqa: E402

LINE = re.compile(r"^  (curves|evaluate|go on|all cores): +(\S.*)$", re.M)
TINY = ["data.name=synthetic", "data.samples=48", "data.test_samples=16", "data.classes=10",
        "data.shape=[1,28,28]", "data.workers=0", "batch.global=16", "trainer.max_epochs=1"]
CORES = len(os.sched_getaffinity(0))


def shell(command, threads=1):
    return subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=240,
                          check=False, env={**os.environ, "OMP_NUM_THREADS": str(threads)})


def train(folder, recipe, *words, ranks=1, threads=1, place="it's a run"):
    """The run's folder, and what its end offers by label."""
    place = os.path.join(folder, place)
    done = run(on_ranks(ranks, [TRIREME, "train", f"recipes/{recipe}.yaml", "--run-dir", place,
                                *TINY, *words]),
               env={**os.environ, "OMP_NUM_THREADS": str(threads)})
    assert done.stdout.count(f"run folder: {place}\n") == 1, done.stdout
    found = dict(LINE.findall(done.stdout))
    offered = done.stdout[done.stdout.index("run folder"):].count("\n  ")
    assert offered == len(found), f"a hint that is not tried: {done.stdout}"
    return place, found


def try_all(place, hints, threads=1):
    """Pastes each of them."""
    words = hints.pop("curves").split(" ", 2)
    assert words[:2] == ["tensorboard", "--logdir"]
    assert shell(f"ls {words[2]}/events.out.tfevents.*").returncode == 0, words
    if shutil.which("tensorboard"):
        assert shell(f"timeout 60 tensorboard --inspect --logdir {words[2]}").returncode == 0
    done = shell(hints.pop("evaluate") + " --json", threads)
    assert done.returncode == 0, done.stderr
    best = os.path.exists(f"{place}/checkpoints/best")
    val = [float(loss) for loss in losses(place, "val").values()]
    found = json.loads(done.stdout)["loss"]
    if val:
        wanted = min(val) if best else val[-1]
        assert abs(found - wanted) <= 1e-5 * wanted, (found, val)
    before = entries(place, "end")[-1]["steps"]
    done = shell(hints.pop("go on"), threads)
    assert done.returncode == 0, done.stderr
    assert entries(place, "end")[-1]["steps"] > before, done.stdout + done.stderr
    if "all cores" in hints:
        done = shell(hints.pop("all cores"), threads)
        assert done.returncode == 0, done.stderr
        assert f"on {CORES} ranks" in done.stdout, done.stdout
    assert not hints, hints


def check_alone(folder):
    """A folder that a shell would take apart; the best checkpoint is not the last one."""
    place, hints = train(folder, "mlp-jax", "trainer.max_epochs=3", "optimizer.lr=40")
    assert "/checkpoints/best" in hints["evaluate"]
    try_all(place, hints)


def check_last(folder):
    place, hints = train(folder, "mlp-jax", "checkpoint.save_top_k=0", "seed=2")
    assert "/checkpoints/last" in hints["evaluate"]
    try_all(place, hints)


def check_batch_norm(folder):
    place, hints = train(folder, "mnist-convnet")
    assert CORES == 1 or "sync_batchnorm=true" in hints["all cores"], hints
    try_all(place, hints)


def check_batch_norm_with_passes(folder):
    place, hints = train(folder, "mnist-convnet", "batch.micro=8")
    try_all(place, hints)


def check_busy(folder):
    """A rank that has all cores leaves none."""
    _, hints = train(folder, "mlp-jax", threads=CORES)
    assert "all cores" not in hints, hints


def check_ends(folder):
    """Runs that another bound than the epochs has ended go on, too."""
    place, hints = train(folder, "mlp-jax", "trainer.max_steps=2", "trainer.max_epochs=3")
    assert "trainer.max_epochs=3" in hints["go on"], hints
    try_all(place, hints)
    place, hints = train(folder, "mlp-jax", "trainer.early_stopping={monitor: val_loss, "
                         "patience: 1, min_delta: 1e9}", "trainer.max_epochs=9", place="early")
    assert entries(place, "end")[-1]["steps"] == 6
    assert "trainer.max_epochs=9" in hints["go on"], hints
    try_all(place, hints)
    place, hints = train(folder, "mlp-jax", "trainer.early_stopping.monitor=val_loss",
                         "trainer.early_stopping.patience=1",
                         "trainer.early_stopping.min_delta=1e9", "trainer.max_epochs=9",
                         place="early by keys")
    assert hints["go on"].count("patience") == 1, hints
    try_all(place, hints)


def check_ranks(folder):
    place, hints = train(folder, "mlp-jax", ranks=2)
    assert "--nproc-per-node 2" in hints["go on"] and "all cores" not in hints
    try_all(place, hints)


def check_recipe_with_steps(folder):
    """The recipe, not an override, says where the run ends; and it has options of the device."""
    with open("recipes/mlp-jax.yaml", encoding="utf-8") as file:
        text = file.read().replace("trainer:\n", "trainer:\n  max_steps: 2\n")
    assert "max_steps: 2" in text
    recipe = os.path.join(folder, "own recipe.yaml")
    with open(recipe, "w", encoding="utf-8") as file:
        file.write(text)
    place = os.path.join(folder, "run")
    done = run([TRIREME, "train", recipe, "--device", "ref", "--run-dir", place, *TINY])
    try_all(place, dict(LINE.findall(done.stdout)))


def check_nothing(folder):
    """A run that saves nothing offers nothing that needs it."""
    _, hints = train(folder, "mlp-jax", "checkpoint.save_top_k=0", "checkpoint.save_last=false",
                     "checkpoint.every_n_epochs=0", "log.tensorboard=false", threads=CORES)
    assert not hints, hints


CHECKS = (check_alone, check_last, check_batch_norm, check_batch_norm_with_passes, check_busy,
          check_ends, check_ranks, check_recipe_with_steps, check_nothing)


def alone(check):
    def in_folder():
        with tempfile.TemporaryDirectory(prefix="trireme-hints-") as folder:
            check(folder)
    in_folder.__name__ = check.__name__
    return in_folder


if __name__ == "__main__":
    sys.exit(1 if check_all([alone(check) for check in CHECKS]) else 0)
