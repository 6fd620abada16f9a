#!/usr/bin/env python3
"""`trireme lr-find` and `trireme batch-find`: what they suggest, on one rank and on two, by rules
that this file has too; that nothing is left behind; what they refuse.

usage: test_finders.py BUILD_FOLDER
"""
import json
import math
import os
import shlex
import sys
import tempfile
import xml.etree.ElementTree

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import SYNTHETIC, TRIREME, check_all, on_ranks, run, train  # noqa: E402

ROOT = os.getcwd()
RECIPE = os.path.join(ROOT, "recipes", "mlp-jax.yaml")
DATA = [*SYNTHETIC, "data.samples=500", "data.workers=0", "batch.global=48", "optimizer.name=sgd"]


def find(command, *words, ranks=1, code=0):
    """Runs a finder in an empty folder, and checks that the folder is as empty afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        done = run(on_ranks(ranks, [TRIREME, command, RECIPE, *DATA, *words]), code, cwd=folder)
        assert not os.listdir(folder), os.listdir(folder)
    return done


def curve(*words, ranks=1):
    return json.loads(find("lr-find", *words, "--json", ranks=ranks).stdout)


def close(a, b, tolerance):
    return abs(a - b) <= tolerance * max(abs(a), abs(b))


def steepest(losses):
    """Lightning's rule up to 2.4: numpy's gradient without the first ten points and the last."""
    kept = losses[10:-1]
    inner = [(kept[i + 1] - kept[i - 1]) / 2 for i in range(1, len(kept) - 1)]
    slopes = [kept[1] - kept[0], *inner, kept[-1] - kept[-2]]
    return 10 + slopes.index(min(slopes))


def valley(losses, steps):
    """fastai's rule: the longest decreasing subsequence, and half of the way through it."""
    first = steps // 10
    kept = losses[first:-5]
    longest = []
    for i, loss in enumerate(kept):
        longest.append(1 + max((longest[k] for k in range(i) if loss < kept[k]), default=0))
    end = longest.index(max(longest))
    start = end - longest[end] if end else 0
    return first + max(start + (end - start) // 3 + (end - start) // 6, 0)


def unsmoothed(losses):
    """The losses whose means with the weights 1, 0.98, 0.98^2, … these are."""
    sums = [loss * (1 - 0.98 ** (i + 1)) / 0.02 for i, loss in enumerate(losses)]
    return [now - 0.98 * before for before, now in zip([0, *sums], sums)]


def check_rules(_):
    found = curve("optimizer.momentum=0.9")
    points = found["curve"]
    losses = [p["loss"] for p in points]
    assert len(points) == 100 and found["rule"] == "steepest" and not found["ended_early"], found
    for i, point in enumerate(points):
        assert close(point["lr"], 1e-8 * 1e8 ** (i / 99), 1e-12), (i, point)
    assert found["suggestion"] == points[steepest(losses)]["lr"], found["suggestion"]
    by_valley = curve("optimizer.momentum=0.9", "--rule", "valley")
    assert by_valley["curve"] == points, "the curve depends on the rule, or on chance"
    assert by_valley["suggestion"] == points[valley(losses, 100)]["lr"], by_valley["suggestion"]


def trained_losses(folder, *words):
    run(train("mlp-jax", folder, *DATA, "trainer.max_epochs=-1", "--quiet", *words))
    with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as file:
        return [line["loss"] for line in map(json.loads, file) if line["kind"] == "train"]


def check_losses(folder):
    """At a rate that hardly changes the losses are those of a run with that rate, whatever the
    recipe's own rate, schedule and length; also from the weights of init."""
    rate, steps = 0.05, 20
    first, second = os.path.join(folder, "first"), os.path.join(folder, "second")
    limits = ["--min", str(rate), "--max", str(rate * (1 + 1e-9)), "--steps", str(steps)]
    words = [f"optimizer.lr={rate}", f"trainer.max_steps={steps}"]
    for where, start in (first, []), (second, [f"init={first}/checkpoints/last"]):
        trained = trained_losses(where, *words, *start)
        found = curve(*limits, *start, "optimizer.lr=123", "schedule.name=cosine",
                      "schedule.warmup_steps=5", "trainer.max_steps=2")
        losses = unsmoothed([p["loss"] for p in found["curve"]])
        assert len(trained) == steps == len(losses), (len(trained), len(losses))
        assert all(close(a, b, 1e-5) for a, b in zip(trained, losses)), (trained, losses)


def check_ranks(_):
    alone, together = curve(), curve(ranks=2)
    assert len(alone["curve"]) == len(together["curve"])
    for a, b in zip(alone["curve"], together["curve"]):
        assert a["lr"] == b["lr"] and close(a["loss"], b["loss"], 1e-5), (a, b)


def check_divergence(_):
    found = curve("--max", "1e6", ranks=2)
    points = found["curve"]
    best = min(p["loss"] for p in points[:-1])
    assert found["ended_early"] and len(points) < 100, len(points)
    assert all(p["loss"] <= 4 * best for p in points[:-1]), points
    assert found["suggestion"] < points[-1]["lr"] and all(math.isfinite(p["loss"]) for p in points)
    refused = find("lr-find", "--min", "1e5", "--max", "1e6", code=2).stderr
    assert "a smaller --min" in refused and len(refused.splitlines()) == 1, refused


def check_half_types(_):
    """Steps whose gradients overflow at the first loss scales change nothing, so they are no
    points of the curve."""
    found = curve("trainer.precision=16-mixed", "trainer.loss_scale.initial=1e12",
                  "trainer.loss_scale.hysteresis=1", "--steps", "20")
    assert [p["lr"] for p in found["curve"]] == [p["lr"] for p in curve("--steps", "20")["curve"]]


def check_text(folder):
    picture = os.path.join(folder, "lr.svg")
    done = find("lr-find", "--svg", picture, "--steps", "30")
    lines = done.stdout.splitlines()
    suggestion = [line.split()[1] for line in lines if line.startswith("suggestion")][0]
    words = shlex.split([line for line in lines if line.startswith("next")][0])[1:]
    assert words[1:3] == ["train", RECIPE] and f"optimizer.lr={suggestion}" in words, words
    run([*words, "--run-dir", os.path.join(folder, "run"), "trainer.max_steps=1"])
    root = xml.etree.ElementTree.parse(picture).getroot()
    line = root.find("{http://www.w3.org/2000/svg}polyline").get("points").split()
    assert len(line) == 30 and all(0 < float(p.split(",")[1]) < 420 for p in line), line
    assert f"suggestion: {suggestion}" in [t.text for t in root.iter() if t.tag.endswith("title")]


def refused(command, words, *texts, ranks=1):
    said = find(command, *words, ranks=ranks, code=2).stderr
    own = [line for line in said.splitlines() if "trireme run" not in line]
    assert len(own) == 1 and all(text in own[0] for text in texts), said


def check_refusals(folder):
    refused("lr-find", ["--min", "0"], "--min", "'0'")
    refused("lr-find", ["--min", "1e-2x"], "1e-2x")
    refused("lr-find", ["--max", "nan"], "--max")
    refused("lr-find", ["--min", "2"], "--min", "--max")
    refused("lr-find", ["--steps", "19"], "--steps", "20")
    refused("lr-find", ["--rule", "slide"], "--rule")
    refused("lr-find", ["model.nme=x"], "nme")
    refused("lr-find", ["--svg", folder], "folder")
    refused("lr-find", ["--svg", os.path.join(folder, "none", "lr.svg")], "none", ranks=2)
    refused("batch-find", ["--seconds", "0"], "--seconds")
    refused("batch-find", ["batch.micro=-1"], "batch.micro")
    refused("batch-find", ["batch.global=1"], "batch.global", ranks=2)
    refused("batch-find", ["data.shape=[3,32,32]", "model.name=resnet"], "batch norm")
    assert run([TRIREME, "lr-find"], 2).stderr.count("\n") == 1


def micros(*words, ranks=1):
    found = json.loads(find("batch-find", "--seconds", "0.02", *words, "--json",
                            ranks=ranks).stdout)
    fit = {t["micro"]: t for t in found["trials"] if "refused" not in t}
    best = max(fit.values(), key=lambda t: t["samples_per_s"])
    assert found["batch"]["micro"] == best["micro"], found
    return found["batch"]["global"], [t["micro"] for t in found["trials"]], fit


def check_micros(_):
    whole, tried, fit = micros()
    assert whole == 48 and tried == [48, 24, 12, 6, 3, 1] == list(fit), (whole, tried)
    plan = json.loads(run([TRIREME, "plan", RECIPE, *DATA, "batch.micro=12", "batch.eval=12",
                           "--json"]).stdout)
    assert plan["memory"]["peak"] == fit[12]["memory_bytes"], (plan["memory"], fit[12])
    assert micros("batch.micro=5", ranks=2)[:2] == (48, [24, 12, 6, 5, 3, 1])
    # 45 samples cannot be shared equally: micro-batches divide the step.
    assert micros("batch.global=45", ranks=2)[1] == [15, 5, 1]


def check_memory(_):
    """What the plan's memory forbids is refused; a recipe that does not fit itself is no matter."""
    peaks = {micro: t["memory_bytes"] for micro, t in micros("batch.global=256")[2].items()}
    limit = (peaks[128] + peaks[64]) // 2
    _, tried, fit = micros("batch.global=256", f"strategy.memory={limit}")
    assert list(fit) == [m for m in tried if peaks[m] <= limit], (peaks, limit, list(fit))
    assert 128 not in fit and 64 in fit, (peaks, limit)
    said = find("batch-find", "strategy.memory=1M", ranks=2, code=2).stderr
    assert "of strategy.memory" in said, said


def check_rounds(folder):
    """The command that follows keeps the global batch of a recipe that gives the micro-batches of a
    step, and runs."""
    rounds = ["batch.global=auto", "batch.micro=8", "trainer.accumulate_grad_batches=6"]
    done = find("batch-find", "--seconds", "0.02", *rounds)
    words = shlex.split([line for line in done.stdout.splitlines() if line[:4] == "next"][0])[1:]
    pairs = [word.split("=", 1) for word in words if word.startswith(("batch.", "trainer.acc"))]
    given = {key: int(value) for key, value in pairs}
    assert len(pairs) == 3 and given["batch.global"] == 48, words
    assert given["batch.micro"] * given["trainer.accumulate_grad_batches"] == 48, words
    run([*words, "--run-dir", folder, "trainer.max_steps=1"])


CHECKS = (check_rules, check_losses, check_ranks, check_divergence, check_half_types, check_text,
          check_refusals, check_micros, check_memory, check_rounds)

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home:
        failed = []
        for one in CHECKS:
            with tempfile.TemporaryDirectory(dir=home) as empty:
                failed += [check_all([one], empty)]
    sys.exit(1 if any(failed) else 0)
