#!/usr/bin/env python3
"""Offloading never changes the result: every loss and every weight has the same bits, with each
strategy, also if saved with strategy.offload and resumed without it or the reverse. The memory of
a run falls by what the plan says. The file is gone afterwards, whatever happens.

usage: test_offload.py BUILD_FOLDER
"""
import contextlib
import glob
import json
import os
import signal
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import (SYNTHETIC, TRIREME, check_same, finish, last, losses, on_ranks,  # noqa: E402
                  run, start, timed, train, wait_for)

STEPS = 6
COMMON = ["batch.global=16", "batch.micro=4", "trainer.max_epochs=-1", "optimizer.name=adamw",
          "optimizer.lr=0.001", "strategy.persistent_bytes=256"]
MODELS = {
    "mnist-cnn": [*SYNTHETIC, *COMMON, "data.samples=64", "data.test_samples=10"],
    "llama-tiny": [*COMMON, "model.hidden_size=48", "model.intermediate_size=80",
                   "data.sequence=33", "data.limit=144", "trainer.limit_val_batches=1",
                   "log.tensorboard=false", "trainer.log_every_n_steps=1",
                   "trainer.gradient_clip_val=0.5"],
}
STRATEGIES = [("single", 1), ("ddp", 2), ("zero1", 2), ("fsdp", 2), ("pipeline", 2),
              ("fsdp strategy.prefetch=2 strategy.reshard_after_forward=false", 2)]


def train_to(place, recipe, ranks, steps, *words):
    run(on_ranks(ranks, train(recipe, place, *MODELS[recipe], f"trainer.max_steps={steps}",
                              *words)))


def check_end(got, wanted, what):
    """Losses, evaluations, weights and the optimizer's states."""
    assert sorted(losses(wanted)) == list(range(1, STEPS + 1)), sorted(losses(wanted))
    check_same(losses(got), losses(wanted), what)
    evaluated = losses(wanted, "val")  # a run in parts was evaluated at the end of each, too
    check_same({step: losses(got, "val").get(step) for step in evaluated}, evaluated,
               f"{what}, val")
    run([TRIREME, "checkpoint", "diff", last(got), last(wanted)])


def check_strategies(folder, recipe, precision):
    for name, ranks in STRATEGIES:
        words = [*f"strategy.name={name}".split(), f"trainer.precision={precision}"]
        places = {}
        for offload in ("none", "optimizer", "parameters"):
            places[offload] = os.path.join(folder, f"{recipe}-{name.replace(' ', '-')}-{offload}")
            train_to(places[offload], recipe, ranks, STEPS, *words, f"strategy.offload={offload}")
            if offload != "none":
                check_end(places[offload], places["none"], f"{recipe}, {name}, {offload}")


def check_resumed(folder):
    """Saved with, resumed without, and the other way round."""
    for name, ranks, precision in (("fsdp", 2, "32-true"), ("single", 1, "bf16-mixed")):
        words = [f"strategy.name={name}", f"trainer.precision={precision}"]
        whole = os.path.join(folder, f"{name}-whole")
        train_to(whole, "mnist-cnn", ranks, STEPS, *words)
        for first, then in (("none", "parameters"), ("parameters", "none")):
            place = os.path.join(folder, f"{name}-{first}-{then}")
            for steps, offload in ((3, first), (STEPS, then)):
                train_to(place, "mnist-cnn", ranks, steps, *words, f"strategy.offload={offload}")
            check_end(place, whole, f"{name}, {first} and then {then}")


def most_resident(words):
    """Bytes, of one process that has to succeed."""
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as child:
        err = child.stderr.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, err
    return usage.ru_maxrss * 1024


def check_memory(folder):
    """Half of what the run needs is states; two blocks' at a time are in memory."""
    words = [*MODELS["llama-tiny"], "model.hidden_size=384", "model.intermediate_size=768",
             "model.num_hidden_layers=8", "batch.global=1", "batch.micro=1",
             "strategy.name=single", "trainer.max_steps=2"]
    planned, taken = [], []
    for offload in ("none", "optimizer"):
        more = [*words, f"strategy.offload={offload}"]
        done = run([TRIREME, "plan", "recipes/llama-tiny.yaml", *more, "--json"])
        planned.append(json.loads(done.stdout)["memory"])
        place = os.path.join(folder, f"memory-{offload}")
        taken.append(most_resident(train("llama-tiny", place, *more)))
    saved, wanted = taken[0] - taken[1], planned[0]["peak"] - planned[1]["peak"]
    print(f"  states of {planned[0]['optimizer'] >> 20} MiB: {wanted >> 20} MiB less planned, "
          f"{saved >> 20} MiB less measured")
    assert planned[1]["offloaded"] == planned[0]["optimizer"] and planned[1]["optimizer"] == 0
    assert wanted > 0.6 * planned[0]["optimizer"], planned
    assert abs(saved - wanted) < 0.1 * wanted, f"{saved} bytes, not {wanted}"


def check_file(folder):
    """It has no name while the run goes on, and is gone when the run was killed."""
    place, store = os.path.join(folder, "killed"), os.path.join(folder, "some", "store")
    child = start(train("mnist-cnn", place, *MODELS["mnist-cnn"], "trainer.max_steps=100000",
                        "strategy.offload=optimizer", f"strategy.offload_path={store}"))
    wait_for(lambda: len(losses(place)) > 2, "a third step", child=child)
    files = []
    for path in glob.glob(f"/proc/{child.pid}/fd/*"):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            files.append(os.readlink(path))
    own = [path for path in files if path.startswith(os.path.join(store, "trireme-offload-0-"))]
    assert len(own) == 1 and own[0].endswith(" (deleted)"), files
    assert os.listdir(store) == []
    child.send_signal(signal.SIGKILL)
    assert finish(child)[2] == -signal.SIGKILL
    assert os.listdir(store) == []


def check_refusal(folder):
    place = os.path.join(folder, "refused")
    done = run(train("mnist-cnn", place, *MODELS["mnist-cnn"], "trainer.max_steps=1",
                     "strategy.offload=optimizer",
                     "strategy.offload_path=/proc/self/nowhere"), 2)
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and "strategy.offload" in lines[0], done.stderr
    assert "/proc/self/nowhere" in lines[0], done.stderr
    assert not os.path.exists(place), "a refused run left a folder"


def main():
    with tempfile.TemporaryDirectory(prefix="trireme-offload-") as folder:
        timed(check_refusal, folder)
        timed(check_file, folder)
        timed(check_memory, folder)
        timed(check_resumed, folder)
        timed(check_strategies, folder, "mnist-cnn", "32-true")
        timed(check_strategies, folder, "llama-tiny", "bf16-mixed")


if __name__ == "__main__":
    main()
