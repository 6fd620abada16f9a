"""Runs of a few steps of a small model, each in a folder of its own, for the tests of the trainer.
Import it with the tests' build folder as the first argument of the program (runs.py)."""
import json
import os
import subprocess
import tempfile

from runs import SECONDS, TRIREME
import tensors

RECIPE = "recipes/mlp-jax.yaml"
# Four steps an epoch, the last one of 8 samples; three evaluation batches.
TINY = ["data.name=synthetic", "data.samples=56", "data.test_samples=24", "data.classes=10",
        "data.shape=[1,28,28]", "data.workers=0", "batch.global=16", "batch.eval=8",
        "optimizer.name=sgd", "optimizer.lr=0.2", "trainer.max_epochs=2",
        "trainer.log_every_n_steps=1", "log.tensorboard=false", "checkpoint.save_top_k=0"]

# The same for samples of a file.
TENSORS = [word for word in TINY if not word.startswith("data.")] + ["data.workers=0"]

made = tempfile.TemporaryDirectory(prefix="trireme-trainer-")  # goes with the process
folder = made.name
runs = 0


def put_samples(name, count, extra=0.5):
    """Writes images for TENSORS, of which one pixel is `extra`."""
    pixels = [0.25] * (count * 28 * 28 - 1) + [extra]
    tensors.write(os.path.join(folder, name), {"images": ("F32", [count, 1, 28, 28], pixels),
                                               "labels": ("I64", [count], [1] * count)})


def train(*overrides, run_dir=None, code=0, base=None):
    """Runs a new run (or goes on with run_dir); the run folder and what it printed."""
    global runs
    runs += 1
    run_dir = run_dir or os.path.join(folder, str(runs))
    done = subprocess.run([TRIREME, "train", RECIPE, *(base or TINY), *overrides, "--run-dir",
                           run_dir], capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == code, f"{overrides}: {done.returncode}: {done.stderr}"
    return run_dir, done


def metrics(run_dir, kind):
    with open(os.path.join(run_dir, "metrics.jsonl"), encoding="utf-8") as lines:
        return [entry for entry in map(json.loads, lines) if entry["kind"] == kind]


def steps(*overrides):
    return [entry["step"] for entry in metrics(train(*overrides)[0], "train")]


def refused(*overrides, part):
    _, done = train(*overrides, code=2)
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and part in lines[0], f"{overrides}: {done.stderr}"


def weights(path):
    return {name: tensors.numbers(tensor) for name, tensor in tensors.read(path).items()}


def checkpoints(run_dir):
    home = os.path.join(run_dir, "checkpoints")
    names = sorted(os.listdir(home)) if os.path.isdir(home) else []
    links = {name: int(os.readlink(os.path.join(home, name))[5:])
             for name in names if name in ("last", "best")}
    return [int(name[5:]) for name in names if name.startswith("step-")], links
