#!/usr/bin/env python3
"""`trireme plan` prints what the whole run does: steps, epochs, checkpoints.

usage: test_plan_run.py BUILD_FOLDER
"""
import json
import math
import os
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import SYNTHETIC, TRIREME, check_all, last, run  # noqa: E402

SMALL = [*SYNTHETIC, "data.test_samples=8", "batch.global=16"]


def plan(*words, code=0):
    done = run([TRIREME, "plan", "recipes/mlp-jax.yaml", *words], code)
    return done.stdout if code == 0 else done.stderr


def check_length():
    for words, steps, each in (
            (["data.samples=100", "trainer.max_epochs=3"], 21, 7),
            (["data.samples=100", "trainer.max_epochs=3", "data.drop_last=true"], 18, 6),
            (["data.samples=100", "trainer.max_epochs=3", "trainer.max_steps=5"], 5, 7),
            (["data.samples=100", "data.limit=40", "trainer.max_epochs=2"], 6, 3),
            (["data.samples=100", "trainer.max_epochs=2",
              "trainer.limit_train_batches=0.5"], 6, 3),
            (["data.samples=100", "trainer.max_epochs=2", "trainer.overfit_batches=2"], 4, 2),
            (["data.samples=66", "trainer.max_epochs=2", "data.val_fraction=0.029"], 8, 4),
            (["data.samples=100", "trainer.fast_dev_run=3"], 3, 3)):
        found = json.loads(plan(*SMALL, *words, "--json"))
        length = found["run"]
        assert (length["steps"], length["steps_per_epoch"]) == (steps, each), (words, length)
        assert math.isclose(length["epochs"], steps / each)
        assert math.isclose(length["hours"], steps * found["estimate"]["step_s"] / 3600)
        with tempfile.TemporaryDirectory(prefix="trireme-plan-run-") as folder:
            done = run([TRIREME, "train", "recipes/mlp-jax.yaml", "--run-dir", folder, *SMALL,
                        *words, "--json"])
            assert json.loads(done.stdout)["steps"] == steps, words


def check_unknown():
    """Data that is not opened."""
    text = plan("trainer.max_epochs=2")
    assert "--samples N" in text and "a checkpoint:" in text, text
    length = json.loads(plan("trainer.max_epochs=2", "--json"))["run"]
    assert "steps" not in length and "hours" not in length, length
    length = json.loads(plan("trainer.max_epochs=2", "--samples", "60k", "--json"))["run"]
    assert length["steps"] == 2 * 469, length
    assert "938 steps" in plan("trainer.max_epochs=2", "--samples", "60k")
    for bad in ("0", "-3", "many"):
        assert "--samples" in plan("--samples", bad, code=2)


def check_disk():
    """The predicted sizes and numbers of checkpoints are those of the files."""
    for optimizer in "sgd", "adam":
        for top in 1, 2:
            words = [*SMALL, "data.samples=48", "trainer.max_epochs=6",
                     f"optimizer.name={optimizer}", f"checkpoint.save_top_k={top}"]
            length = json.loads(plan(*words, "--json"))["run"]
            with tempfile.TemporaryDirectory(prefix="trireme-plan-run-") as folder:
                run([TRIREME, "train", "recipes/mlp-jax.yaml", "--run-dir", folder, *words])
                size = sum(os.path.getsize(os.path.join(last(folder), name))
                           for name in ("model.safetensors", "optimizer.safetensors")
                           if os.path.exists(os.path.join(last(folder), name)))
                kept = [name for name in os.listdir(os.path.join(folder, "checkpoints"))
                        if name.startswith("step-")]
            assert abs(length["checkpoint_bytes"] - size) < 0.01 * size + 4096, (length, size)
            # While the next checkpoint is written, the kept ones are still there.
            assert len(kept) + 1 <= length["checkpoints"] == top + 3, (kept, length)


def check_all_kept():
    """Of a step for which several settings ask there is one checkpoint."""
    for more in ([], ["checkpoint.every_n_steps=2"], ["checkpoint.every_n_steps=4",
                 "checkpoint.every_n_epochs=2", "trainer.max_steps=11"]):
        words = [*SMALL, "data.samples=48", "trainer.max_epochs=6", "checkpoint.save_top_k=-1",
                 *more]
        length = json.loads(plan(*words, "--json"))["run"]
        with tempfile.TemporaryDirectory(prefix="trireme-plan-run-") as folder:
            run([TRIREME, "train", "recipes/mlp-jax.yaml", "--run-dir", folder, *words])
            kept = [name for name in os.listdir(os.path.join(folder, "checkpoints"))
                    if name.startswith("step-")]
        assert length["checkpoints"] == len(kept), (more, length, kept)


def check_layers():
    """Settings that have an effect only in a model with such layers."""
    drop, sync = "model.dropout", "trainer.sync_batchnorm"
    for model, key, value, warns in (("mlp-jax", drop, 0.5, True), ("mlp-jax", drop, 0, False),
                                     ("mnist-convnet", drop, 0.5, True),
                                     ("mnist-cnn", drop, 0.5, False),
                                     ("mlp-jax", sync, "true", True),
                                     ("mnist-convnet", sync, "true", False)):
        words = [f"recipes/{model}.yaml", *SMALL, "data.samples=16", f"{key}={value}"]
        for command in (["plan"], ["train", "trainer.fast_dev_run=1"]):
            done = run([TRIREME, command[0], *words, *command[1:]])
            found = [line for line in done.stderr.splitlines() if key in line]
            assert len(found) == warns, (words, command, done.stderr)
            assert not found or model in found[0], found


if __name__ == "__main__":
    sys.exit(1 if check_all([check_length, check_unknown, check_disk, check_all_kept,
                            check_layers]) else 0)
