#!/usr/bin/env python3
"""Unusual runs have one rank's result too: steps and evaluations of one sample, replicas that never
have a sample, frozen stages, half types with a loss scale, blocks without parameters, values that
skip stages, branches, weights that three stages share, a hundred values between two stages, pools
and gates, layers of images, parameters of the model's own, indices that go from stage to stage.

usage: test_odd.py BUILD_FOLDER
"""
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tensors  # noqa: E402
from runs import (SYNTHETIC, TRIREME, check_close, last, losses, on_ranks, run,  # noqa: E402
                  timed)

LOSS_LIMIT, WEIGHT_LIMIT = 2e-5, 1e-4
HALF_LIMIT = 1e-3  # of a half type; that there is no more is for test_matrix.py
SGD = "optimizer.name=sgd optimizer.lr=0.05 trainer.max_epochs=2 checkpoint.every_n_epochs=0 "
PIPELINE, FSDP = "strategy.name=pipeline ", "strategy.name=fsdp strategy.persistent_bytes=0 "
BUBBLES = PIPELINE + "strategy.schedule=zero-bubble "
LOOPED = PIPELINE + "strategy.schedule=looped strategy.stages_per_rank="
INTERLEAVED = PIPELINE + "strategy.schedule=interleaved strategy.stages_per_rank="
TINY = "data.shape=[1,12,12] " + SGD
CNN = "recipes/mnist-cnn.yaml", "model.dropout=0.2 " + SGD
MODELS = ("odd", "branches", "early", "wide", "pools", "functions", "layers", "own",
          "indexing")  # NAME_net.c
FREEZE_FIRST, FREEZE_LAST = "optimizer.freeze=['conv*'] ", "optimizer.freeze=['fc*'] "
FREEZE_ALL_BUT_ONE = "optimizer.freeze=['conv1.*','conv2.weight','fc*'] "
GROUPS = ('optimizer.momentum=0.9 optimizer.weight_decay=0.1 optimizer.groups=['
          '{"match":["conv1.weight","fc2.bias"],"frozen":true},{"match":"*.bias","weight_decay":0},'
          '{"match":"fc*","lr_factor":0.25,"weight_decay":0.5}] ')

# Recipe (or one of MODELS), what all share, and ways to divide it: ranks and settings.
CASES = {
    "one sample in all": (*CNN, "data.samples=1 data.test_samples=1 batch.global=6", [
        (3, ""), (3, FSDP), (2, PIPELINE + "batch.micro=2"), (4, BUBBLES + "batch.micro=1"),
        (4, FSDP + "strategy.mesh.pipeline=2 batch.micro=2")]),
    "fewer rounds than stages": (*CNN, "data.samples=9 data.test_samples=2 batch.global=4", [
        (4, PIPELINE + "batch.micro=4"), (2, INTERLEAVED + "2 batch.micro=4"),
        (2, LOOPED + "2 batch.micro=3"), (4, BUBBLES + "batch.micro=3")]),
    "one step": (*CNN, "data.samples=30 data.test_samples=3 batch.global=12 trainer.max_steps=1", [
        (7, FSDP), (5, "strategy.name=zero1 batch.micro=2"), (4, BUBBLES + "batch.micro=5"),
        (6, "strategy.name=zero2 strategy.mesh.pipeline=2 batch.micro=3")]),
    "passes of one sample": (*CNN, "data.samples=12 data.test_samples=8 batch.global=6 "
                             "batch.eval=1",
                             [(5, FSDP), (3, PIPELINE + "batch.micro=2"),
                              (4, "strategy.name=zero2 strategy.mesh.pipeline=2 batch.micro=3")]),
    "fewer tests than replicas": (*CNN, "data.samples=12 data.test_samples=2 batch.global=6", [
        (5, FSDP), (4, "strategy.mesh.pipeline=2 batch.micro=2")]),
    "nothing to evaluate": (*CNN, "data.samples=30 data.test_samples=2 batch.global=8 "
                            "trainer.limit_val_batches=0",
                            [(3, FSDP + "strategy.prefetch=100"), (3, PIPELINE + "batch.micro=2")]),
    "frozen first stages": (*CNN, FREEZE_FIRST + "data.samples=20 data.test_samples=2 "
                            "batch.global=8",
                            [(2, PIPELINE + "batch.micro=2"), (4, BUBBLES + "batch.micro=2"),
                             (3, FSDP), (2, FSDP + "strategy.offload=parameters"),
                             (4, FSDP + "strategy.mesh.pipeline=2 batch.micro=2")]),
    "frozen last stages": (*CNN, FREEZE_LAST + "data.samples=20 data.test_samples=2 batch.global=8",
                           [(2, PIPELINE + "batch.micro=2"), (4, BUBBLES + "batch.micro=2"),
                            (3, FSDP), (3, "strategy.name=zero1"),
                            (2, LOOPED + "2 batch.micro=2")]),
    "groups of parameters": (*CNN, GROUPS + "data.samples=20 data.test_samples=2 batch.global=8", [
        (2, PIPELINE + "batch.micro=2"), (7, FSDP), (2, FSDP + "strategy.offload=parameters"),
        (3, "strategy.name=zero1 strategy.offload_step=host strategy.offload=optimizer"),
        (2, "strategy.mesh.tensor=2"), (2, "strategy.name=zero2 --device far")]),
    "groups of parameters in bf16": (
        *CNN, GROUPS + "data.samples=20 data.test_samples=2 batch.global=8 "
        "trainer.precision=bf16-mixed", [(3, FSDP), (4, BUBBLES + "batch.micro=2")]),
    "one bias trained": (*CNN, FREEZE_ALL_BUT_ONE + "data.samples=20 data.test_samples=2 "
                         "batch.global=8 trainer.gradient_clip_val=0.01",
                         [(4, BUBBLES + "batch.micro=2"), (3, FSDP), (4, "strategy.name=zero2"),
                          (2, FSDP + "strategy.recompute=block")]),
    "16-mixed": (*CNN, "trainer.precision=16-mixed data.samples=30 data.test_samples=2 "
                 "batch.global=8", [(3, FSDP), (2, BUBBLES + "batch.micro=2"),
                                    (2, "strategy.name=zero1 strategy.offload=optimizer")]),
    "bf16-true": (*CNN, "trainer.precision=bf16-true data.samples=30 data.test_samples=2 "
                  "batch.global=8", [(3, FSDP), (2, PIPELINE + "batch.micro=2"),
                                     (2, "strategy.name=zero2 strategy.offload=parameters")]),
    "an odd model": ("odd", TINY, "data.samples=21 data.test_samples=5 batch.global=12", [
        (3, ""), (3, FSDP), (5, "strategy.name=zero2 batch.micro=2"),
        (2, PIPELINE + "batch.micro=3"), (8, PIPELINE + "batch.micro=2"),
        (5, BUBBLES + "batch.micro=1"), (2, INTERLEAVED + "4 batch.micro=3"),
        (4, LOOPED + "2 batch.micro=2"), (2, FSDP + "strategy.recompute=block"),
        (3, BUBBLES + "batch.micro=2 strategy.recompute=block"),
        (4, FSDP + "strategy.mesh.pipeline=2 batch.micro=2 strategy.offload=parameters"),
        (8, FSDP + "strategy.mesh.replicate=2 strategy.mesh.pipeline=2 batch.micro=2 "
         "strategy.stages=[head]"),
        (2, PIPELINE + "batch.micro=2 strategy.stages=[first]"),
        (3, PIPELINE + "batch.micro=2 strategy.stages=[third,loss]")]),
    "branches": ("branches", TINY, "data.samples=9 data.test_samples=4 batch.global=5 "
                 "batch.micro=1 batch.eval=1", [
                     (2, INTERLEAVED + "2 strategy.stages=[long1,short,loss]"),
                     (2, LOOPED + "2 strategy.stages=[long1,short,loss]"),
                     (2, LOOPED + "3 --device far"), (2, INTERLEAVED + "3 batch.micro=2"),
                     (3, INTERLEAVED + "2 strategy.recompute=block"), (2, PIPELINE),
                     (4, PIPELINE + "strategy.schedule=gpipe"), (4, BUBBLES),
                     (4, PIPELINE + "strategy.stages=[short,loss,penalty]")]),
    "an early exit": ("early", TINY, "data.samples=21 data.test_samples=5 batch.global=12 "
                      "batch.micro=2", [
                          (3, FSDP), (2, "strategy.name=zero2"), (2, PIPELINE),
                          (3, BUBBLES + "strategy.recompute=block"), (2, INTERLEAVED + "2"),
                          (2, "trainer.deterministic=true strategy.name=fsdp")]),
    "an exit at the end": ("early", TINY, "model.early=2 data.samples=21 data.test_samples=5 "
                           "batch.global=12 batch.micro=2", [
                               (3, FSDP), (3, PIPELINE), (2, BUBBLES),
                               (4, FSDP + "strategy.mesh.pipeline=2"), (2, LOOPED + "2")]),
    "an odd model in bf16": ("odd", TINY, "data.samples=21 data.test_samples=5 batch.global=12 "
                             "trainer.precision=bf16-mixed",
                             [(3, FSDP), (4, BUBBLES + "batch.micro=2"),
                              (2, INTERLEAVED + "4 batch.micro=3 strategy.recompute=block")]),
    "a wide model": ("wide", TINY, "data.samples=21 data.test_samples=5 batch.global=12", [
        (2, PIPELINE + "batch.micro=3 strategy.stages=[up]"), (3, BUBBLES + "batch.micro=2"),
        (2, FSDP)]),
    "pools and gates": ("pools", TINY, "data.samples=21 data.test_samples=5 batch.global=12", [
        (3, FSDP), (4, BUBBLES + "batch.micro=2"), (2, "strategy.mesh.tensor=2"),
        (2, PIPELINE + "batch.micro=3 strategy.recompute=block")]),
    "pools and gates in bf16": ("pools", TINY, "data.samples=21 data.test_samples=5 "
                                "batch.global=12 trainer.precision=bf16-mixed",
                                [(3, FSDP), (2, "strategy.mesh.tensor=2"),
                                 (2, PIPELINE + "batch.micro=3")]),
    "functions": ("functions", TINY, "data.samples=21 data.test_samples=5 batch.global=12", [
        (3, FSDP + "strategy.recompute=block"), (4, BUBBLES + "batch.micro=2"),
        (2, "strategy.mesh.tensor=2"),
        (2, PIPELINE + "batch.micro=3 --device far")]),
    "functions in bf16": ("functions", TINY, "data.samples=21 data.test_samples=5 "
                          "batch.global=12 trainer.precision=bf16-mixed",
                          [(3, FSDP), (2, PIPELINE + "batch.micro=3")]),
    "layers": ("layers", TINY, "data.samples=21 data.test_samples=5 batch.global=12", [
        (3, FSDP + "strategy.recompute=block"), (4, BUBBLES + "batch.micro=2"),
        (2, "strategy.mesh.tensor=2"), (2, PIPELINE + "batch.micro=3 --device far")]),
    "layers in bf16": ("layers", TINY, "data.samples=21 data.test_samples=5 batch.global=12 "
                       "trainer.precision=bf16-mixed",
                       [(3, FSDP), (2, PIPELINE + "batch.micro=3")]),
    "parameters of its own": ("own", TINY, "data.samples=21 data.test_samples=5 batch.global=12 "
                              'optimizer.groups=[{"match":"scale","lr_factor":2}]', [
        (3, FSDP + "strategy.recompute=block"), (3, BUBBLES + "batch.micro=2"),
        (2, "strategy.mesh.tensor=2"), (2, FSDP + "strategy.offload=parameters --device far")]),
    "parameters of its own in bf16": ("own", TINY, "data.samples=21 data.test_samples=5 "
                                      "batch.global=12 trainer.precision=bf16-mixed",
                                      [(3, FSDP), (2, PIPELINE + "batch.micro=3")]),
    "weights of classes": ("own", TINY, "model.alone=true data.samples=21 data.test_samples=5 "
                           "batch.global=12", [
        (3, "strategy.name=zero2 batch.micro=1"), (2, PIPELINE + "batch.micro=3")]),
    "indexing": ("indexing", TINY, "data.samples=21 data.test_samples=5 batch.global=12", [
        (3, FSDP + "strategy.recompute=block"), (4, BUBBLES + "batch.micro=2"),
        (2, "strategy.mesh.tensor=2"), (2, PIPELINE + "batch.micro=3 --device far")]),
    "functions that mix samples": ("functions", TINY, "model.centre=true data.samples=21 "
                                   "data.test_samples=4 batch.global=12 batch.micro=3 batch.eval=2",
                                   [(3, FSDP), (2, PIPELINE)]),
}


def compare_weights(got, wanted, limit, what):
    done = run([TRIREME, "checkpoint", "diff", last(got), last(wanted), "--json"], None)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) >= 6, done.stdout + done.stderr
    for line in lines:
        assert line["relative_l2"] <= limit or line["max_abs"] <= limit / 100, f"{what}: {line}"


def execute(folder, name, ranks, case, words):
    recipe, base, own, _ = case
    place = os.path.join(folder, name)
    if recipe in MODELS:
        recipe = os.path.join(folder, recipe + ".yaml")
    run(["timeout", "120", *on_ranks(ranks, [
        TRIREME, "train", recipe, "--run-dir", place, *SYNTHETIC, *base.split(), *own.split(),
        *words.split()])])
    return place


def check_way(folder, what, number, alone):
    case = CASES[what]
    ranks, words = case[3][number]
    got = execute(folder, f"{what}-{number}".replace(" ", "_"), ranks, case, words)
    what = f"{what}: {ranks} ranks, {words}"
    half = "precision" in case[2]
    limit = HALF_LIMIT if half else LOSS_LIMIT
    check_close(losses(got), losses(alone), limit, what)
    check_close(losses(got, "val"), losses(alone, "val"), limit, what + ", val")
    compare_weights(got, alone, 20 * HALF_LIMIT if half else WEIGHT_LIMIT, what)


def check_case(folder, pool, what):
    alone = execute(folder, f"{what}-alone".replace(" ", "_"), 1, CASES[what], "")
    assert losses(alone), what
    for done in [pool.submit(check_way, folder, what, number, alone)
                 for number in range(len(CASES[what][3]))]:
        done.result()


def check_mixing(folder):
    """Where the number of ranks would decide which samples are mixed, the run is refused."""
    place = os.path.join(folder, "mixing")
    for option in "centre", "across":
        command = on_ranks(2, [TRIREME, "train", os.path.join(folder, "functions.yaml"),
                               "--run-dir", place, *SYNTHETIC, *TINY.split(),
                               f"model.{option}=true", "data.samples=21", "batch.global=12"])
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 2 and "batch.micro" in done.stderr, done
        assert "heads" in done.stderr, done
        assert not os.path.exists(place), "a run folder was made"


def check_indices(folder):
    """An index that an axis does not have ends the run with one line, wherever it is found."""
    for device in "cpu", "far":
        command = [TRIREME, "train", os.path.join(folder, "indexing.yaml"), "--device", device,
                   "--run-dir", os.path.join(folder, "indices-" + device), *SYNTHETIC,
                   *TINY.split(), "model.offset=9", "data.samples=21", "batch.global=12"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = done.stderr.splitlines()
        found = [line for line in lines if "index" in line and "0 to 11" in line]
        assert done.returncode == 2 and len(found) == 1, done


def check_exits(folder):
    """A head of which only a metric reads the scores does not change what is trained."""
    own = "data.samples=21 data.test_samples=5 batch.global=12 batch.micro=2 model.early="
    wanted = None
    for where in 0, 1, 2:
        place = execute(folder, f"exit{where}", 1, ("early", TINY, own + str(where), []), "")
        got = losses(place), losses(place, "val")
        wanted = wanted or got
        assert got == wanted, (where, got, wanted)


def check_own(folder):
    """Checkpoints have parameters and buffers, not constants, which resume and evaluation have all
    the same. `init` may lack a buffer, and nothing else."""
    case = "own", TINY, "data.samples=21 data.test_samples=5 batch.global=12", []
    whole, halves = (execute(folder, name, 1, case, words) for name, words in (
        ("own-whole", ""), ("own-halves", "trainer.max_epochs=1")))
    saved = tensors.read(os.path.join(last(whole), "model.safetensors"))
    assert "class_token" in saved and "fixed" in saved and "waves" not in saved, list(saved)
    recipe = os.path.join(folder, "own.yaml")
    words = [recipe, *SYNTHETIC, *TINY.split(), *case[2].split()]
    done = run([TRIREME, "eval", *words, "--checkpoint", last(whole), "--json"], None)
    assert abs(json.loads(done.stdout)["loss"] - float(losses(whole, "val")[4])) < 1e-6, done.stdout
    execute(folder, "own-halves", 1, case, "")
    assert losses(halves) == losses(whole), (losses(halves), losses(whole))
    for ignored, code in (10, 0), (11, 2):  # of 11 labels of a model with 10 classes
        run([TRIREME, "train", *words, "data.classes=11", f"model.ignored={ignored}",
             "trainer.max_steps=1", "--run-dir", os.path.join(folder, f"ignored-{ignored}")], code)
    for lacks, code in ("fixed", 0), ("scale", 2):
        file = os.path.join(folder, lacks + ".safetensors")
        tensors.write(file, {name: saved[name] for name in saved if name != lacks})
        done = run([TRIREME, "train", *words, f"init={file}", "trainer.max_steps=1", "--run-dir",
                    os.path.join(folder, "own-" + lacks)], code)
        assert code == 0 or lacks in done.stderr, done.stderr


def make_model(folder, name):
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), name + "_net.c")
    library = os.path.join(folder, name + ".so")
    subprocess.run(["cc", "-Wall", "-Werror", "-shared", "-fPIC", "-Iinclude", source, "-o",
                    library], check=True)
    with open(os.path.join(folder, name + ".yaml"), "w", encoding="ascii") as file:
        file.write(f"name: {name}\nmodel: {{name: {library}}}\ndata: {{name: synthetic}}\n")


def main():
    workers = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(prefix="trireme-odd-") as folder, \
            concurrent.futures.ThreadPoolExecutor(workers) as pool:
        for name in MODELS:
            make_model(folder, name)
        for what in CASES:
            print(f"{what}: ", end="")
            timed(check_case, folder, pool, what)
        check_mixing(folder)
        check_indices(folder)
        check_exits(folder)
        check_own(folder)


if __name__ == "__main__":
    main()
