#!/usr/bin/env python3
"""Tries every option of the trainer, of schedules and of checkpoints once.

usage: test_trainer.py BUILD_FOLDER
"""
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import SECONDS, SOON, TRIREME, check_all, on_ranks, run  # noqa: E402
from tiny_runs import (RECIPE, TENSORS, TINY, checkpoints, folder, metrics,  # noqa: E402
                       put_samples, refused, steps, train, weights)

# The learning rates of 8 updates from 0.2, as torch.optim.lr_scheduler of PyTorch 1.13 has them:
# StepLR, LinearLR, PolynomialLR, CosineAnnealingLR, CosineAnnealingWarmRestarts and OneCycleLR with
# these arguments, stepped after every update or, where `every` is epoch, after every fourth.
# inverse_sqrt is get_inverse_sqrt_schedule of transformers 4.
RATES = {
    "name=step gamma=0.5 step_size=3 every=step": [0.2, 0.2, 0.2, 0.1, 0.1, 0.1, 0.05, 0.05],
    "name=step gamma=0.7": [0.2, 0.2, 0.2, 0.2, 0.14, 0.14, 0.14, 0.14],
    "name=linear start_factor=0.25 end_factor=0.75 total_iters=5":
        [0.05, 0.07, 0.09, 0.11, 0.13, 0.15, 0.15, 0.15],
    "name=linear": [0.2, 0.175, 0.15, 0.125, 0.1, 0.075, 0.05, 0.025],
    "name=polynomial": [0.2, 0.175, 0.15, 0.125, 0.1, 0.075, 0.05, 0.025],
    "name=polynomial power=2 total_iters=5": [0.2, 0.128, 0.072, 0.032, 0.008, 0, 0, 0],
    "name=cosine_restarts T_0=3 eta_min=0.01 every=step":
        [0.2, 0.1525, 0.0575, 0.2, 0.1525, 0.0575, 0.2, 0.1525],
    "name=cosine_restarts T_0=2 T_mult=2 every=step":
        [0.2, 0.1, 0.2, 0.170710678, 0.1, 0.0292893219, 0.2, 0.192387953],
    "name=cosine_restarts T_0=2": [0.2, 0.2, 0.2, 0.2, 0.1, 0.1, 0.1, 0.1],
    "name=inverse_sqrt warmup_steps=2":
        [0.1, 0.2, 0.2, 0.163299316, 0.141421356, 0.126491106, 0.115470054, 0.106904497],
    "name=inverse_sqrt timescale=4":
        [0.2, 0.178885438, 0.163299316, 0.151185789, 0.141421356, 0.133333333, 0.126491106,
         0.120604538],
    "name=plateau patience=0 threshold=9 factor=0.5": [0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2],
    "name=cosine T_max=5 eta_min=0.01 every=step":
        [0.2, 0.181856614, 0.134356614, 0.0756433855, 0.0281433855, 0.01, 0.0281433855,
         0.0756433855],
    "name=cosine": [0.2, 0.2, 0.2, 0.2, 0.1, 0.1, 0.1, 0.1],
    "name=onecycle max_lr=0.4":
        [0.016, 0.327710042, 0.388776711, 0.324698262, 0.222393606, 0.113224399, 0.0306566375,
         1.6e-06],
    "name=onecycle max_lr=0.4 pct_start=0.5 div_factor=10 final_div_factor=100 "
    "anneal_strategy=linear": [0.04, 0.16, 0.28, 0.4, 0.3001, 0.2002, 0.1003, 0.0004],
    # PyTorch has no scheduler for warm-up: it rises evenly to the schedule's first value,
    # and the schedule begins after it.
    "name=constant": [0.2] * 8,
    "name=constant warmup_steps=4": [0.05, 0.1, 0.15, 0.2, 0.2, 0.2, 0.2, 0.2],
    "name=constant warmup_steps=0.5": [0.05, 0.1, 0.15, 0.2, 0.2, 0.2, 0.2, 0.2],
    "name=linear warmup_steps=4": [0.05, 0.1, 0.15, 0.2, 0.2, 0.15, 0.1, 0.05],
    "name=step gamma=0.5 step_size=2 every=step warmup_steps=2":
        [0.1, 0.2, 0.2, 0.2, 0.1, 0.1, 0.05, 0.05],
    # ... also where the run ends before the warm-up does.
    "name=cosine every=step eta_min=0.02 warmup_steps=10":
        [0.02, 0.04, 0.06, 0.08, 0.1, 0.12, 0.14, 0.16],
    "name=onecycle warmup_steps=8":
        [0.001, 0.002, 0.003, 0.004, 0.005, 0.006, 0.007, 0.008],
}

def check_early_ends():
    """One line tells that the default of max_epochs ends the run before max_steps, and one that a
    schedule ends long before the run."""
    def warnings(*words, part):
        done = train(*words)[1]
        return [line for line in done.stderr.splitlines() if "warning" in line and part in line]
    recipe = os.path.join(folder, "default.yaml")
    with open(RECIPE, encoding="utf-8") as file, open(recipe, "w", encoding="utf-8") as own:
        own.writelines(line for line in file if "max_epochs" not in line)
    words = [word for word in TINY if "max_epochs" not in word]
    done = subprocess.run([TRIREME, "train", recipe, *words, "trainer.max_steps=20", "--run-dir",
                           os.path.join(folder, "default")],
                          capture_output=True, text=True, timeout=SECONDS)
    lines = [line for line in done.stderr.splitlines() if "trainer.max_steps=20" in line]
    assert done.returncode == 0 and len(lines) == 1 and "12 steps" in lines[0], done
    assert not warnings("trainer.max_steps=20", part="max_epochs")
    for name, key in (("onecycle", "total_steps"), ("warmup-decay", "total_steps"),
                      ("linear", "total_iters")):
        lines = warnings(f"schedule.name={name}", f"schedule.{key}=6", part="the schedule ends")
        assert len(lines) == 1 and "6 updates" in lines[0] and key in lines[0], (name, lines)
        assert not warnings(f"schedule.name={name}", f"schedule.{key}=8", part="the schedule ends")
    assert not warnings("schedule.name=linear", "schedule.total_iters=5",
                        "schedule.end_factor=0.5", part="the schedule ends")
    cosine = ["schedule.name=cosine", "schedule.every=step"]
    for length, most in ((3, 0.2), (5, 0.1 - 0.1 * math.cos(2 * math.pi / 5)), (7, 0), (8, 0)):
        lines = warnings(*cosine, f"schedule.T_max={length}", part="the schedule ends")
        assert len(lines) == bool(most), (length, lines)
        assert not most or f"rises again to {most:g}; schedule.T_max=0" in lines[0], lines
    assert len(warnings("schedule.name=cosine", "schedule.T_max=1", "trainer.max_epochs=3",
                        part="the schedule ends after 4 updates")) == 1
    # A schedule of epochs does not change the rate of a run within the first one.
    short = "trainer.max_epochs=1"
    for words, is_told in ((["schedule.name=cosine", short], True),
                           (["schedule.name=cosine", "trainer.max_steps=3"], True),
                           (["schedule.name=linear", "schedule.every=epoch", short], True),
                           ([*cosine, short], False), (["schedule.name=cosine"], False),
                           (["schedule.name=step", short], False)):
        lines = warnings(*words, part="schedule.every=step")
        assert len(lines) == is_told and all("0.2" in line for line in lines), (words, lines)


def check_epochs_of_rates():
    """A schedule of epochs follows the epochs, whatever steps changed nothing; one of steps follows
    the updates."""
    half = ["trainer.precision=16-mixed", "trainer.loss_scale.initial=1e9", "schedule.name=step",
            "schedule.gamma=0.5", "trainer.max_epochs=6"]
    run_dir, done = train(*half, "schedule.step_size=2", "schedule.warmup_steps=3")
    skipped = done.stderr.count("gradients overflowed")
    assert 4 < skipped < 16, done.stderr
    rates = [entry["lr"] for entry in metrics(run_dir, "train")]
    assert rates[skipped + 3:] == [0.2 * 0.5**(s // 8) for s in range(skipped + 3, 24)], rates
    run_dir, _ = train(*half, "schedule.step_size=8", "schedule.every=step")
    rates = [entry["lr"] for entry in metrics(run_dir, "train")]
    assert rates == [0.2 * 0.5**(max(0, s - skipped) // 8) for s in range(24)], rates


def check_length():
    assert steps() == list(range(1, 9))
    assert steps("trainer.max_epochs=1") == [1, 2, 3, 4]
    assert steps("trainer.max_steps=6") == [1, 2, 3, 4, 5, 6]
    assert steps("trainer.max_steps=600") == list(range(1, 9)), "max_epochs comes first"
    assert steps("trainer.max_epochs=-1", "trainer.max_steps=9") == list(range(1, 10))
    start = time.monotonic()
    run_dir, _ = train("trainer.max_epochs=-1", "trainer.max_time=1")
    assert 1 <= time.monotonic() - start < SOON
    assert metrics(run_dir, "end")[0]["status"] == "completed"
    assert len(metrics(run_dir, "train")) > 8
    # A run that ends before its first evaluation is evaluated, too.
    run_dir, done = train("trainer.max_epochs=-1", "trainer.max_time=0.1",
                          "trainer.check_val_every_n_epoch=99999")
    assert [e["step"] for e in metrics(run_dir, "val")] == [metrics(run_dir, "end")[0]["steps"]]
    run_dir, done = train("trainer.max_steps=3", "checkpoint.save_top_k=1")
    assert [e["step"] for e in metrics(run_dir, "val")] == [3], done
    assert checkpoints(run_dir)[1] == {"best": 3, "last": 3}
    refused("trainer.max_epochs=-1", part="no end")
    # Without other limits max_time completes the run; else it only interrupts it.
    run_dir, done = train("trainer.max_epochs=1000000", "trainer.max_time=0.5", code=75)
    assert "trainer.max_time" in done.stderr and not done.stdout, done
    end = metrics(run_dir, "end")[0]
    assert end["status"] == "stopped" and checkpoints(run_dir)[1]["last"] == end["steps"], end


def check_limits():
    run_dir, _ = train("trainer.limit_train_batches=2")
    assert [e["epoch"] for e in metrics(run_dir, "train")] == [0, 0, 1, 1]
    assert len(steps("trainer.limit_train_batches=0.75")) == 6
    # Batch norm has too little for an epoch's last step alone, which a limit cuts off.
    source = os.path.join(folder, "norm.c")
    with open(source, "w", encoding="ascii") as file:
        file.write('''#include <trireme/trireme.h>
static void build(tri_graph *g, const tri_batch *batch) {
    tri_value x = tri_linear(g, "one", tri_flatten(g, batch->images), 10);
    x = tri_batch_norm(g, "norm", x, (tri_batch_norm_options){0});
    tri_loss(g, tri_cross_entropy(g, x, batch->labels));
}
static const tri_task task = {.name = "norm", .build = build};
TRI_EXPORT_TASK(task)
''')
    subprocess.run(["cc", "-shared", "-fPIC", "-Iinclude", source, "-o", f"{folder}/norm.so"],
                   check=True)
    short = [f"model.name={folder}/norm.so", "data.samples=33"]
    refused(*short, part="data.drop_last")
    for limit in ("limit_train_batches=2", "overfit_batches=2", "fast_dev_run=1"):
        train(*short, f"trainer.{limit}")
    for limit, samples in ((1, 8), (2, 16), ("0.5", 12), ("1.0", 24), (7, 24)):
        run_dir, _ = train(f"trainer.limit_val_batches={limit}")
        assert [e["samples"] for e in metrics(run_dir, "val")] == [samples] * 2, limit
    run_dir, _ = train("trainer.limit_val_batches=0")
    assert not metrics(run_dir, "val")
    run_dir, _ = train("trainer.val_check_interval=0.5")
    assert [e["step"] for e in metrics(run_dir, "val")] == [2, 4, 6, 8]
    run_dir, _ = train("trainer.val_check_interval=3")
    assert [e["step"] for e in metrics(run_dir, "val")] == [3, 7, 8], "the last is the result's"
    run_dir, _ = train("trainer.check_val_every_n_epoch=2")
    assert [e["step"] for e in metrics(run_dir, "val")] == [8]
    run_dir, _ = train("trainer.num_sanity_val_steps=2")
    assert [e["step"] for e in metrics(run_dir, "val")] == [4, 8]


def check_trials():
    run_dir, done = train("trainer.fast_dev_run=true")
    assert not os.path.exists(run_dir) and "completed after 1 step," in done.stderr, done.stderr
    assert "(8 samples)" in done.stdout, done.stdout
    run_dir, done = train("trainer.fast_dev_run=2")
    assert not os.path.exists(run_dir) and "completed after 2 steps" in done.stderr, done.stderr
    # One batch again and again: the evaluation is of that batch too, so an epoch's is the loss of
    # the next step.
    run_dir, _ = train("trainer.overfit_batches=1", "trainer.max_epochs=20")
    trained, evaluated = metrics(run_dir, "train"), metrics(run_dir, "val")
    assert len(trained) == 20 and trained[-1]["loss"] < 0.95 * trained[0]["loss"], trained[-1]
    for before, after in zip(evaluated, trained[1:]):
        assert before["samples"] == 16
        assert math.isclose(before["loss"], after["loss"], rel_tol=1e-5), (before, after)


def check_until_epoch():
    """A run that is cut after epochs has the rates and weights of an uncut one. Asked for what it
    has done, it makes no step."""
    cosine = ["schedule.name=cosine", "schedule.every=step", "trainer.max_epochs=3",
              "checkpoint.every_n_epochs=9"]
    whole, _ = train(*cosine)
    pieces = None
    for epochs, most, code in ((1, 4, 75), (1, 4, 75), (2, 8, 75), (3, 12, 0), (9, 12, 0)):
        pieces, done = train(*cosine, "--until-epoch", str(epochs), run_dir=pieces, code=code)
        assert metrics(pieces, "train")[-1]["step"] == most, (epochs, done.stderr)
        assert checkpoints(pieces)[1]["last"] == most, checkpoints(pieces)
        assert ("without --until-epoch" in done.stderr) == (code == 75), done.stderr
        assert len(metrics(pieces, "val")) == min(epochs, 3)
    assert ([entry["lr"] for entry in metrics(pieces, "train")] ==
            [entry["lr"] for entry in metrics(whole, "train")])
    last = "checkpoints/last/model.safetensors"
    assert weights(os.path.join(pieces, last)) == weights(os.path.join(whole, last))
    for value in ("0", "1.5", "x"):
        refused("--until-epoch", value, part="--until-epoch")


def check_other_length():
    """A run that goes on with data of another size trains as many epochs as max_epochs says."""
    files = ["data.name=tensors", f"data.train={folder}/some", f"data.test={folder}/some"]
    for first, second, steps in ((56, 24, [4, 4, 2, 2]), (24, 56, [2, 2, 4, 4])):
        put_samples("some", first)
        run_dir, _ = train(*files, base=TENSORS)
        put_samples("some", second)
        _, done = train(*files, "trainer.max_epochs=4", run_dir=run_dir, base=TENSORS)
        assert "samples, and had" in done.stderr, done.stderr
        epochs = [entry["epoch"] for entry in metrics(run_dir, "train")]
        assert epochs == [e for e, count in enumerate(steps) for _ in range(count)], epochs
        assert [entry["epoch"] for entry in metrics(run_dir, "val")] == [0, 1, 2, 3]


def check_group_patterns():
    """A pattern that matches nothing, beside others that do, is named; one that matches is not."""
    for pattern, count in (("*norm*", 1), ("*.weight", 0)):
        _, done = train("trainer.max_steps=1", "trainer.limit_val_batches=0", 'optimizer.groups='
                        f'[{{"match": ["*.bias", "{pattern}"], "weight_decay": 0}}]')
        lines = [line for line in done.stderr.splitlines() if "optimizer.groups: '*" in line]
        assert len(lines) == count and all(pattern in line for line in lines), done.stderr


def check_checkpoints():
    every = ["checkpoint.save_top_k=-1", "checkpoint.every_n_epochs=0"]
    run_dir, done = train(*every, "checkpoint.every_n_steps=3")
    found, links = checkpoints(run_dir)
    assert found == [3, 6, 8] and links == {"last": 8, "best": 8}, (found, links)
    assert "best: val_loss " in done.stdout, done.stdout
    # All that are due and no others: an evaluation saves none, so that there may be no best one.
    run_dir, done = train(*every, "checkpoint.every_n_steps=3", "checkpoint.save_last=false")
    found, links = checkpoints(run_dir)
    assert found == [3, 6] and "best" not in links, (found, links)
    assert "best: none" in done.stdout and "checkpoint.save_top_k" in done.stdout, done.stdout
    found, _ = checkpoints(train("checkpoint.save_top_k=-1", "trainer.max_epochs=5",
                                 "checkpoint.every_n_epochs=2")[0])
    assert found == [8, 16, 20], found
    run_dir, done = train(*every, "checkpoint.save_last=false")
    assert checkpoints(run_dir)[0] == [] and "writes no checkpoint" in done.stderr, done.stderr
    # The run of 8 steps, of 2 epochs, is too short for these; for the first of each kind it is not.
    for key, lengths in (("every_n_steps", (8, 9)), ("every_n_epochs", (2, 3)),
                         ("train_time_interval", (None, "1h")), ("save_top_k", (1, None))):
        for length in filter(None, lengths):
            more = ["checkpoint.save_last=false", f"checkpoint.{key}={length}"]
            if key == "save_top_k":
                more = [*more, "trainer.limit_val_batches=0"]
            none = key == "save_top_k" or length != lengths[0]
            run_dir, done = train("checkpoint.save_top_k=0", "checkpoint.every_n_epochs=0", *more)
            assert (checkpoints(run_dir)[0] == []) == none, (more, checkpoints(run_dir))
            assert done.stderr.count("writes no checkpoint") == none, (more, done.stderr)
    found, _ = checkpoints(train(*every, "checkpoint.train_time_interval=0.3", "trainer.max_time=1",
                                 "trainer.max_epochs=-1", "checkpoint.save_last=false")[0])
    assert 1 <= len(found) <= 4, found
    refused("checkpoint.monitor=accuracy", part="val_accuracy")
    monitor = ["checkpoint.monitor=val_accuracy", "trainer.limit_val_batches=0",
               "trainer.max_steps=1"]
    refused(*monitor, "checkpoint.save_top_k=1", part="checkpoint.monitor: the run has no eval")
    train(*monitor)  # nothing is ranked


def train_losses(run_dir):
    """By evaluated step, what train_loss is there: the mean over the samples since the epoch began
    or, if that is later, since the last evaluation."""
    evaluated = {e["step"] for e in metrics(run_dir, "val")}
    found, total, count, before = {}, 0, 0, 0
    for e in metrics(run_dir, "train"):
        if e["step"] % 4 == 1 or e["step"] - 1 in evaluated:
            total = count = 0
        samples = e["samples"] - before
        before = e["samples"]
        total, count = total + samples * e["loss"], count + samples
        found[e["step"]] = total / count
    return {step: value for step, value in found.items() if step in evaluated}


def check_train_loss():
    words = ["checkpoint.monitor=train_loss", "checkpoint.save_top_k=-1",
             "checkpoint.every_n_steps=1", "optimizer.lr=1.2"]
    for more, steps in (([], {4, 8}), (["trainer.val_check_interval=0.5"], {2, 4, 6, 8}),
                        (["trainer.check_val_every_n_epoch=2"], {8})):
        run_dir, _ = train(*words, *more)
        ranked = monitored(run_dir)
        means = train_losses(run_dir)
        assert set(ranked) == set(means) == steps, ranked
        for step, value in means.items():
            assert math.isclose(ranked[step], value, rel_tol=1e-6), (more, step, ranked, means)
    # What a checkpoint within an epoch has of the sum is added to, to the bit.
    train(*words, *more, "--resume", os.path.join(run_dir, "checkpoints", "step-00000006"),
          run_dir=run_dir)
    assert monitored(run_dir) == ranked
    # The evaluation of a run's end in mid-epoch has no mean that others could be compared with, and
    # does not begin that of a run that goes on. Without evaluations it is that of the epoch.
    whole, _ = train(*words, "trainer.limit_val_batches=0")
    pieces, _ = train(*words, "trainer.max_steps=6")
    assert set(monitored(pieces)) == {4} and 6 in {e["step"] for e in metrics(pieces, "val")}
    train(*words, run_dir=pieces)
    assert monitored(pieces) == monitored(whole) and set(monitored(whole)) == {4, 8}


def monitored(run_dir):
    """The values by which the checkpoints are ranked, by step."""
    home = os.path.join(run_dir, "checkpoints")
    found = {}
    for step in checkpoints(run_dir)[0]:
        with open(os.path.join(home, f"step-{step:08}", "state.json"), encoding="utf-8") as file:
            monitor = json.load(file)["monitor"]
            if monitor.get("value") is not None:
                found[step] = monitor["value"]
    return found


def check_best():
    for mode, pick in (("min", min), ("max", max)):
        run_dir, _ = train("trainer.max_epochs=6", f"checkpoint.mode={mode}",
                           "checkpoint.save_top_k=2")
        evaluated = {e["step"]: e["loss"] for e in metrics(run_dir, "val")}
        ranked = sorted(evaluated, key=evaluated.get, reverse=mode == "max")
        found, links = checkpoints(run_dir)
        assert links == {"best": ranked[0], "last": 24}, (links, evaluated)
        # The one before the last stays, for the case that the last is damaged.
        assert set(found) == {*ranked[:2], 20, 24}, (found, ranked, evaluated)
        assert pick(evaluated.values()) == evaluated[ranked[0]]
    run_dir, _ = train("checkpoint.save_top_k=1", "checkpoint.monitor=train_loss",
                       "checkpoint.every_n_steps=1")
    means = train_losses(run_dir)
    assert checkpoints(run_dir)[1] == {"best": min(means, key=means.get), "last": 8}

    # An evaluation between checkpoints saves what is among the best.
    for top_k in (1, 2):
        run_dir, _ = train("trainer.val_check_interval=0.3", f"checkpoint.save_top_k={top_k}",
                           "checkpoint.every_n_epochs=0", "trainer.max_epochs=3")
        evaluated = {e["step"]: e["loss"] for e in metrics(run_dir, "val")}
        assert sorted(evaluated) == list(range(1, 13)), evaluated
        ranked = sorted(evaluated, key=evaluated.get)
        found, links = checkpoints(run_dir)
        assert links == {"best": ranked[0], "last": 12}, (links, evaluated)
        assert set(ranked[:top_k]) <= set(found), (found, evaluated)
    # The mode follows the metric.
    run_dir, done = train("checkpoint.monitor=val_accuracy", "trainer.overfit_batches=2",
                          "trainer.max_epochs=9", "checkpoint.save_top_k=1",
                          "trainer.early_stopping.monitor=val_accuracy",
                          "trainer.early_stopping.patience=4")
    evaluated = {e["step"]: e["accuracy"] for e in metrics(run_dir, "val")}
    assert len(set(evaluated.values())) > 1, evaluated
    assert checkpoints(run_dir)[1]["best"] == max(evaluated, key=evaluated.get), evaluated
    with open(os.path.join(run_dir, "recipe.yaml"), encoding="utf-8") as file:
        assert not re.search(r"mode: (min|max)", file.read())


def check_best_of_samples():
    """The best checkpoint is the best of those that were evaluated on the present samples."""
    words = ["checkpoint.save_top_k=9", "optimizer.lr=0", "data.test_samples=40"]
    run_dir, _ = train(*words, "trainer.max_epochs=1", "trainer.limit_val_batches=1")
    train(*words, "trainer.max_epochs=3", run_dir=run_dir)
    assert checkpoints(run_dir)[1]["best"] == 8, checkpoints(run_dir)
    train(*words, "trainer.max_epochs=4", "trainer.limit_val_batches=1", run_dir=run_dir)
    assert checkpoints(run_dir)[1]["best"] == 4, checkpoints(run_dir)


def shown(value):
    return f"{value:.4f}" if abs(value) < 1e6 else f"{value:.6g}"


def check_result():
    """What a run prints at its end is of its final weights, and of its best checkpoint."""
    worse = 0  # how many runs end with weights that are worse than their best
    for more, last in ((["trainer.max_steps=6"], 6), (["trainer.val_check_interval=3"], 8),
                       (["trainer.check_val_every_n_epoch=2", "trainer.max_epochs=3"], 12)):
        run_dir, done = train("checkpoint.save_top_k=1", "optimizer.lr=5", *more)
        evaluated = {e["step"]: e for e in metrics(run_dir, "val")}
        best = min(evaluated, key=lambda step: evaluated[step]["loss"])
        assert last in evaluated, (more, evaluated)
        worse += best != last
        lines = done.stdout.splitlines()
        assert f"loss {shown(evaluated[last]['loss'])}," in lines[1], (lines, evaluated[last])
        assert "final weights" in lines[1], lines
        assert f"{shown(evaluated[best]['loss'])} at step {best} " in lines[2], (lines, best)
        _, done = train("checkpoint.save_top_k=1", "optimizer.lr=5", *more, "--json",
                        run_dir=run_dir)
        got = json.loads(done.stdout)
        assert got["status"] == "was complete" and got["val_step"] == last, got
        assert got["val_loss"] == evaluated[last]["loss"], got
        assert got["best"] == {"step": best, "val_loss": evaluated[best]["loss"]}, got
    assert worse > 0
    # A user's folder that lies where the link should be is not named as the best checkpoint.
    link = os.path.join(run_dir, "checkpoints", "best")
    os.remove(link)
    os.mkdir(link)
    _, done = train("checkpoint.save_top_k=1", "optimizer.lr=5", *more, run_dir=run_dir)
    assert f"(checkpoints/step-{best:08d})" in done.stdout, done.stdout
    assert "checkpoints/best" not in done.stdout, done.stdout


def run_into_closed_pipe(command):
    ends = os.pipe()
    os.close(ends[0])
    done = subprocess.run(command, stdout=ends[1], stderr=subprocess.PIPE, text=True,
                          timeout=SECONDS, check=False)
    os.close(ends[1])
    return done


def check_closed_pipe():
    """A complete run whose output nobody reads is complete. What only prints has failed, and says
    why."""
    for ranks in (1, 2):
        run_dir = os.path.join(folder, f"c{ranks}")
        command = [TRIREME, "train", RECIPE, *TINY, "--run-dir", run_dir]
        done = run_into_closed_pipe(on_ranks(ranks, command))
        assert done.returncode == 0 and "closed pipe" in done.stderr, done
    for words in (["eval", "--checkpoint", run_dir], ["checkpoint", "list", run_dir],
                  ["plan", RECIPE], ["data", "list"], ["version"]):
        done = run_into_closed_pipe([TRIREME, *words])
        assert done.returncode == 1 and done.stderr.count("closed pipe") == 1, done


def check_schedules():
    for schedule, wanted in RATES.items():
        settings = [f"schedule.{word}" for word in schedule.split()]
        found = [entry["lr"] for entry in metrics(train(*settings)[0], "train")]
        assert len(found) == len(wanted) and all(
            math.isclose(a, b, rel_tol=1e-7) for a, b in zip(found, wanted)), (schedule, found)
    for length, told in ((7, []), (8, ["ends with its warm-up"]), (9, ["ends before its warm-up"])):
        done = train("schedule.name=cosine", f"schedule.warmup_steps={length}")[1]
        lines = [line for line in done.stderr.splitlines() if "warm-up" in line]
        assert len(lines) == len(told) and all(map(str.__contains__, lines, told)), done.stderr
    done = train("schedule.name=cosine", "schedule.eta_min=0.3", "trainer.max_steps=1")[1]
    assert done.stderr.count("schedule.eta_min=0.3 is above 0.2,") == 1, done.stderr
    # A run that is interrupted has the same rates after it.
    whole = ["schedule.name=cosine", "schedule.every=step", "schedule.T_max=8"]
    run_dir, _ = train(*whole, "trainer.max_steps=3")
    train(*whole, run_dir=run_dir)
    found = [entry["lr"] for entry in metrics(run_dir, "train")]
    wanted = [entry["lr"] for entry in metrics(train(*whole)[0], "train")]
    assert found == wanted, (found, wanted)


def check_clipping():
    """The first update of SGD is lr times the gradient, whose norm is the clip value at most."""
    start = os.path.join(folder, "start")
    init = [TRIREME, "checkpoint", "init", RECIPE, "--out", start]
    subprocess.run(init, check=True, capture_output=True)
    before = weights(start)
    norms = []
    for clip in (0, 0.01, 1e6):
        run_dir, _ = train("trainer.max_steps=1", f"trainer.gradient_clip_val={clip}")
        after = weights(os.path.join(run_dir, "checkpoints", "last", "model.safetensors"))
        assert after.keys() == before.keys()
        norms.append(math.sqrt(sum((a - b) ** 2 for name in before
                                   for a, b in zip(after[name], before[name]))) / 0.2)
    assert norms[0] == norms[2] > 0.1, norms
    assert math.isclose(norms[1], 0.01, rel_tol=1e-3), norms


def check_accumulation():
    """Micro-batches of 4 samples that accumulate to 16 have the losses of one of 16."""
    whole, parts = train()[0], train("batch.micro=4")[0]
    stated = train("trainer.accumulate_grad_batches=4")[0]
    for a, b, c in zip(*(metrics(folder, "train") for folder in (whole, parts, stated))):
        assert math.isclose(a["loss"], b["loss"], rel_tol=1e-5), (a, b)
        assert b["loss"] == c["loss"], (b, c)
    evaluated = set()
    for ranks in (1, 2):
        place = os.path.join(folder, f"accumulated-{ranks}")
        words = [word for word in TINY if not word.startswith("batch.eval")]
        run(on_ranks(ranks, [TRIREME, "train", RECIPE, *words, "trainer.limit_val_batches=1",
                             "trainer.accumulate_grad_batches=2", "--run-dir", place]))
        evaluated.add(metrics(place, "val")[-1]["samples"])
    assert evaluated == {8}, evaluated


def check_refused():
    """A setting without effect is reported."""
    refused("trainer.accumulate_grad_batches=3", part="not a multiple of")
    refused("trainer.accumulate_grad_batches=2", "batch.micro=4", part="or leave one out")
    refused("trainer.limit_train_batches=0", part="limit_train_batches")
    refused("trainer.gradient_clip_val=-1", part="gradient_clip_val")
    refused("model.name=mnist-convnet", "trainer.sync_batchnorm=true", "batch.micro=4",
            part="exclude each other")
    train("model.name=mnist-convnet", "trainer.sync_batchnorm=true", "trainer.max_steps=1")


def main():
    os.environ["OMP_NUM_THREADS"] = "1"
    failed = check_all((check_length, check_until_epoch, check_epochs_of_rates, check_early_ends,
                        check_limits, check_trials, check_group_patterns, check_other_length,
                        check_checkpoints, check_train_loss, check_best, check_best_of_samples,
                        check_result, check_closed_pipe, check_schedules, check_clipping,
                        check_accumulation, check_refused))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
