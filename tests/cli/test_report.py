#!/usr/bin/env python3
"""What a run reports: the table of its model, the norm of its gradients, its result as JSON. And
`eval` finds the recipe of the run that made the checkpoint.

usage: test_report.py BUILD_FOLDER
"""
import json
import math
import os
import sys
import tempfile

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
sys.path.insert(0, os.path.join(HERE, "..", "parity"))
import formula  # noqa: E402
from runs import (TRIREME, check_all, entries, last, losses, on_ranks, run)  # noqa: E402

TINY = ["data.name=synthetic", "data.samples=48", "data.test_samples=16", "data.classes=10",
        "data.shape=[1,28,28]", "data.workers=0", "batch.global=16", "trainer.max_epochs=1",
        "trainer.log_every_n_steps=1", "log.tensorboard=false"]
folder = None


def train(name, recipe, *words, ranks=1):
    place = os.path.join(folder, name)
    return place, run(on_ranks(ranks, [TRIREME, "train", f"recipes/{recipe}.yaml", "--run-dir",
                                       place, *TINY, *words]))


def check_summary():
    """Blocks, their outputs and parameters, once for all ranks."""
    for ranks in 1, 2:
        _, done = train(f"summary{ranks}", "mnist-cnn", "optimizer.freeze=[conv1.*, fc2.bias]",
                        ranks=ranks)
        for line in ("block  output                    parameters",
                     "conv1  [N, 32, 26, 26]                  320  frozen",
                     "conv2  [N, 64, 12, 12]               18,496\n",
                     "fc1    [N, 128]                   1,179,776\n",
                     "fc2    [N, 10]                        1,290  partly frozen",
                     "total: 1,199,882 parameters, 330 frozen, 4.8 MB"):
            assert done.stderr.count(line) == 1, f"{line}\n{done.stderr}"
        assert "parameters" not in done.stdout


def check_long_summary():
    _, done = train("long", "llama-tiny", "data.vocabulary=256", "data.classes=0", "data.shape=[]",
                    "data.sequence=8", "model.num_hidden_layers=40", "model.hidden_size=16",
                    "model.intermediate_size=16", "trainer.max_steps=1")
    table = done.stderr[done.stderr.index("  block"):done.stderr.index("  total:")]
    rows = table.splitlines()[1:]
    assert len(rows) == 24 and sum("more blocks" in row for row in rows) == 1, table
    left_out = next(int(row.split()[1]) for row in rows if "more blocks" in row)
    assert left_out + 23 == 42, table  # the embedding, 40 layers, the head
    assert "[N, 8, 16]" in rows[1], table
    assert rows[-1].split()[0] == "head" and "[N, 8, 256]" in rows[-1], table  # not its labels


def check_quiet():
    _, done = train("quiet", "mlp-jax", "--quiet")
    assert done.stderr == "" and "3 steps" in done.stdout, done.stderr
    _, done = train("plain", "mlp-jax", "log.summary=false")
    assert "total:" not in done.stderr and "completed" in done.stderr
    done = run([TRIREME, "train", "recipes/mlp-jax.yaml", "--quiet", "no.key=1"], 2)
    assert done.stderr.count("\n") == 1


def check_norm():
    """Of one step of plain descent: the length of the step over the learning rate; before clipping,
    and whatever ranks there are."""
    start = os.path.join(folder, "start.safetensors")
    run([TRIREME, "checkpoint", "init", "recipes/mlp-jax.yaml", *TINY, "--out", start])
    begin = formula.read_safetensors(start)
    norms = []
    for name, ranks, words in (("one", 1, []), ("two", 2, []),
                               ("clipped", 1, ["trainer.gradient_clip_val=0.001"])):
        place, _ = train(name, "mlp-jax", "trainer.max_steps=1", "optimizer.lr=1", *words,
                         ranks=ranks)
        norms.append(float(entries(place, "train")[0]["grad_norm"]))
        end = formula.read_safetensors(os.path.join(last(place), "model.safetensors"))
        moved = formula.norm([a - b for key in begin for a, b in zip(begin[key][2], end[key][2])])
        wanted = moved if name != "clipped" else norms[0]
        assert abs(norms[-1] / wanted - 1) < 1e-4, (name, norms, moved)
    assert norms[0] > 0.1 and abs(moved / 0.001 - 1) < 1e-3


def check_json():
    place, done = train("json", "mlp-jax", "--json")
    result, line = json.loads(done.stdout), entries(place, "train")[-1]
    for key in "loss", "grad_norm":
        assert math.isclose(result[key], float(line[key]), rel_tol=1e-8), (result, line)
    val = entries(place, "val")[-1]
    assert math.isclose(result["val_loss"], float(val["loss"]), rel_tol=1e-8)
    assert math.isclose(result["val_accuracy"], float(val["accuracy"]), rel_tol=1e-8)
    assert result["steps"] == 3 and result["epochs"] == 1 and result["samples"] == 48
    _, done = train("json", "mlp-jax", "--json")
    result = json.loads(done.stdout)
    assert result["status"] == "was complete" and "loss" not in result and "val_loss" in result


def evaluate(*words, code=0):
    done = run([TRIREME, "eval", *words], code)
    return json.loads(done.stdout) if code == 0 else done.stderr


def check_eval():
    place, _ = train("eval", "mlp-jax", "trainer.max_epochs=2", "optimizer.lr=0.5")
    wanted = min(map(float, losses(place, "val").values()))
    best = os.path.realpath(f"{place}/checkpoints/best")
    for path in (f"{place}/checkpoints/best", best, f"{best}/model.safetensors"):
        assert abs(evaluate("--checkpoint", path, "--json")["loss"] / wanted - 1) < 1e-6, path
    assert evaluate("--checkpoint", place, "--json")["samples"] == 16
    assert evaluate("data.test_samples=4", "--checkpoint", best, "--json")["samples"] == 4
    # The recipe by name, as ever.
    found = evaluate("recipes/mlp-jax.yaml", *TINY, "--checkpoint", best, "--json")
    assert abs(found["loss"] / wanted - 1) < 1e-6
    # A file that no run keeps.
    lone = os.path.join(folder, "lone.safetensors")
    run([TRIREME, "checkpoint", "export", place, "--out", lone])
    for words, text in ((["--checkpoint", lone], "RECIPE --checkpoint PATH"),
                        (["--checkpoint", lone + "x"], lone + "x"),
                        (["--checkpoint", best, "no.key=1"], "no.key"),
                        ([], "--checkpoint is missing")):
        error = evaluate(*words, code=2)
        assert text in error and error.count("\n") == 1, error
    assert evaluate("recipes/mlp-jax.yaml", *TINY, "--checkpoint", lone, "--json")["loss"] > 0


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="trireme-report-") as folder:
        sys.exit(1 if check_all([check_summary, check_long_summary, check_quiet, check_norm,
                                 check_json, check_eval]) else 0)
