#!/usr/bin/env python3
"""What follows a monitored metric: early stopping, and the schedule plateau.

usage: test_monitors.py BUILD_FOLDER
"""
import math
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import TRIREME, check_all, on_ranks, run  # noqa: E402
from tiny_runs import (RECIPE, TENSORS, TINY, folder, metrics, put_samples, refused,  # noqa: E402
                       train)

STILL = ["optimizer.lr=0", "trainer.max_epochs=9", "trainer.early_stopping.monitor=val_loss"]


def check_early_stopping():
    run_dir, done = train(*STILL, "trainer.early_stopping.patience=2")
    assert len(metrics(run_dir, "val")) == 3 and "has not improved" in done.stderr, done.stderr
    assert metrics(run_dir, "end")[0]["status"] == "completed"
    reason = metrics(run_dir, "end")[0]["reason"]
    assert "has not improved" in reason and f"stopped early: {reason}\n" in done.stdout, done.stdout
    _, done = train(*STILL, "trainer.early_stopping.patience=2", run_dir=run_dir)
    assert "complete already" in done.stdout and "patience" in done.stdout, done.stdout
    train(*STILL, "trainer.early_stopping.patience=4", run_dir=run_dir)
    assert len(metrics(run_dir, "val")) == 5, "it goes on where the patience was raised"
    # A run that ends before its first evaluation says so. Those of a run's end in mid-epoch are not
    # counted when it goes on.
    for steps in (1, 2, 3, 50):
        pieces, done = train(*STILL, "trainer.early_stopping.patience=2",
                             f"trainer.max_steps={steps}",
                             **({} if steps == 1 else {"run_dir": pieces}))
        assert done.stderr.count("early_stopping has no effect") == (steps < 4), done.stderr
    assert metrics(pieces, "val")[-1]["step"] == 12, metrics(pieces, "val")
    learning = ["trainer.max_epochs=5", "trainer.overfit_batches=2",
                "trainer.early_stopping.patience=1"]
    for monitor, more, epochs in (("val_loss", [], 5), ("val_loss", ["min_delta=9"], 2),
                                  ("val_loss", ["mode=max"], 2), ("train_loss", ["mode=min"], 5)):
        run_dir, _ = train(*learning, "trainer.early_stopping.monitor=" + monitor,
                           *(f"trainer.early_stopping.{key}" for key in more))
        assert len(metrics(run_dir, "val")) == epochs, (monitor, more)
    # Without evaluations the epochs' ends count, and a run in pieces stops where one in a piece
    # does.
    epochs = ["trainer.early_stopping.monitor=train_loss", "trainer.early_stopping.patience=2",
              "trainer.limit_val_batches=0", "trainer.early_stopping.min_delta=9",
              "trainer.max_epochs=9"]
    for pieces in ([50], [3, 4, 9, 50]):
        run_dir = None
        for most in pieces:
            run_dir, done = train(*epochs, f"trainer.max_steps={most}", run_dir=run_dir)
            assert done.stderr.count("early_stopping has no effect") == (most < 4), done.stderr
        assert metrics(run_dir, "train")[-1]["step"] == 12 and "2 epochs" in done.stderr, done
    # Values of another metric, or of other samples, are not compared.
    for words in (["monitor=val_accuracy"],
                  ["monitor=val_loss", "trainer.limit_val_batches=1"]):
        run_dir, _ = train("trainer.early_stopping.monitor=val_loss",
                           "trainer.early_stopping.patience=9", "optimizer.lr=0")
        change = "trainer.early_stopping." + words[0]
        _, done = train(change, *words[1:], "trainer.early_stopping.patience=2", "optimizer.lr=0",
                        "trainer.max_epochs=9", run_dir=run_dir)
        assert "early_stopping begins again" in done.stderr, done.stderr
        assert len(metrics(run_dir, "val")) == 2 + 3, (words, metrics(run_dir, "val"))
    # A value that is not finite is no improvement, also as the first one.
    put_samples("whole", 16)
    put_samples("nan", 16, float("nan"))
    files = ["data.name=tensors", f"data.train={folder}/whole", f"data.test={folder}/nan"]
    run_dir, done = train(*files, *STILL, "trainer.early_stopping.patience=2", base=TENSORS)
    assert len(metrics(run_dir, "val")) == 2 and "no finite value" in done.stderr, done.stderr
    refused("trainer.early_stopping.monitor=val_los", part="val_loss, val_accuracy")
    refused("trainer.early_stopping.monitor=val_loss", "trainer.limit_val_batches=0",
            part="no evaluation")


def check_thresholds():
    """A metric that is good enough, or bad enough, ends the run, and ends it again when it is
    resumed."""
    for key, value, word in (("stopping_threshold", 1e9, "has reached"),
                             ("divergence_threshold", 1e-9, "has diverged")):
        words = [*STILL, f"trainer.early_stopping.{key}={value}"]
        run_dir, done = train(*words)
        assert len(metrics(run_dir, "val")) == 1 and word in done.stderr, done.stderr
        _, done = train(*words, run_dir=run_dir)
        assert "complete already" in done.stdout and f"{key}=null" in done.stdout, done.stdout
        train(*STILL, "trainer.max_epochs=2", run_dir=run_dir)
        assert len(metrics(run_dir, "val")) == 2, "it goes on without the threshold"
        # Values count that are no improvement by min_delta, too.
        run_dir, _ = train(*words, "trainer.early_stopping.min_delta=1e8")
        assert len(metrics(run_dir, "val")) == 1, key
        other = 0 if value > 1 else 1e9
        run_dir, _ = train(*STILL, "trainer.max_epochs=2", f"trainer.early_stopping.{key}={other}")
        assert len(metrics(run_dir, "val")) == 2, key
    put_samples("infinite", 16, float("inf"))
    files = ["data.name=tensors", f"data.train={folder}/whole", f"data.test={folder}/infinite"]
    put_samples("whole", 16)
    run_dir, done = train(*files, *STILL, "trainer.early_stopping.divergence_threshold=9",
                          base=TENSORS)
    assert len(metrics(run_dir, "val")) == 1 and "not finite" in done.stderr, done.stderr
    refused("trainer.early_stopping.stopping_threshold=low", part="stopping_threshold")


PLATEAU = ["schedule.name=plateau", "schedule.patience=0", "schedule.factor=0.5",
           "schedule.threshold=9", "schedule.threshold_mode=abs", "trainer.max_epochs=5"]


def rates(run_dir):
    """By epoch: its rates."""
    found = {}
    for entry in metrics(run_dir, "train"):
        found.setdefault(entry["epoch"], set()).add(entry["lr"])
    return [found[epoch] for epoch in sorted(found)]


def check_plateau():
    """The rate falls after the evaluations that are no improvement, also where the run is cut just
    before such an evaluation, or is resumed; and on several ranks."""
    wanted = [{0.2}, {0.2}, {0.1}, {0.05}, {0.025}]
    run_dir, done = train(*PLATEAU)
    assert rates(run_dir) == wanted, rates(run_dir)
    assert done.stderr.count("learning rate") == 4, done.stderr
    pieces = None
    for most in (3, 8, 10, 50):
        pieces, _ = train(*PLATEAU, f"trainer.max_steps={most}", run_dir=pieces)
    assert rates(pieces) == wanted, rates(pieces)
    place = os.path.join(folder, "two ranks")
    run(on_ranks(2, [TRIREME, "train", RECIPE, *TINY, *PLATEAU, "--run-dir", place]))
    assert rates(place) == wanted, rates(place)
    few = [*PLATEAU, "schedule.patience=1", "schedule.cooldown=1", "trainer.max_epochs=7"]
    assert rates(train(*few)[0]) == [{0.2}] * 3 + [{0.1}] * 3 + [{0.05}], rates(train(*few)[0])
    floor = [*PLATEAU, "schedule.min_lr=0.08"]
    assert rates(train(*floor)[0]) == [{0.2}, {0.2}, {0.1}, {0.08}, {0.08}]
    losses = [*PLATEAU, "schedule.monitor=train_loss", "trainer.limit_val_batches=0"]
    assert rates(train(*losses)[0]) == wanted
    # What improves keeps its rate: the mode follows the metric's name.
    best = ["schedule.threshold=1e-9", "trainer.max_epochs=3", "trainer.overfit_batches=2"]
    assert rates(train(*PLATEAU, *best)[0]) == [{0.2}] * 3
    assert len(set.union(*rates(train(*PLATEAU, *best, "schedule.mode=max")[0]))) == 2
    # Another factor holds from then on, and another schedule forgets.
    run_dir, _ = train(*PLATEAU, "trainer.max_epochs=3")
    train(*PLATEAU, "--resume-with", "schedule.factor=0.1", run_dir=run_dir)
    got = [min(epoch) for epoch in rates(run_dir)]
    assert all(math.isclose(a, b) for a, b in zip(got, [0.2, 0.2, 0.1, 0.05, 0.005])), got
    refused("schedule.name=plateau", "schedule.monitor=val_los", part="schedule.monitor")
    refused("schedule.name=plateau", "trainer.limit_val_batches=0", part="no evaluation")


def main():
    os.environ["OMP_NUM_THREADS"] = "1"
    return 1 if check_all((check_early_stopping, check_thresholds, check_plateau)) else 0


if __name__ == "__main__":
    sys.exit(main())
