#!/usr/bin/env python3
"""Averages of the weights under every strategy, over a resume on other ranks and after a kill; what
evaluations of a run and of its checkpoints use; which changes of a run are allowed.

usage: test_average.py BUILD_FOLDER
"""
import json
import math
import os
import signal
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tensors  # noqa: E402
from runs import (SYNTHETIC, TRIREME, check_close, check_refused, check_same, entries,  # noqa: E402
                  finish, last, losses, on_ranks, run, start, timed, train, wait_for)

STEPS = 8
COMMON = ["batch.global=16", "batch.micro=4", "trainer.max_epochs=1000", "optimizer.name=adamw",
          "optimizer.lr=0.001", "trainer.val_check_interval=2"]
MODELS = {
    "mlp-jax": [*SYNTHETIC, *COMMON, "data.samples=64", "data.test_samples=10"],
    "llama-tiny": [*COMMON, "model.hidden_size=32", "model.intermediate_size=48",
                   "model.num_hidden_layers=2", "model.num_attention_heads=2",
                   "model.num_key_value_heads=2", "data.sequence=17", "data.limit=144",
                   "trainer.limit_val_batches=1", "log.tensorboard=false",
                   "trainer.log_every_n_steps=1"],
}
EMA = ["average.name=ema", "average.decay=0.6"]
SWA = ["average.name=swa", "average.start=0.4", "average.lr=0.002"]
PLAIN = "average.evaluate=false"
HALF = "trainer.precision=bf16-mixed"


def train_to(place, recipe, ranks, steps, *words, code=0):
    return run(on_ranks(ranks, train(recipe, place, *MODELS[recipe], f"trainer.max_steps={steps}",
                                     *words)), code)


def read(*parts):
    """{name: values} of a safetensors file."""
    return {name: tensors.numbers(tensor)
            for name, tensor in tensors.read(os.path.join(*parts)).items()}


def saved(run_dir, name="average"):
    return read(last(run_dir), f"{name}.safetensors")


def check_near(got, wanted, what, limit=1e-5):
    assert got.keys() == wanted.keys(), what
    for name, values in wanted.items():
        assert math.dist(got[name], values) <= limit * math.hypot(*values) + 1e-6, f"{what}, {name}"


def check_strategies(folder):
    """Losses, evaluations of the averages, and the averages agree with those of one rank."""
    rows = [("mlp-jax", 2, EMA, ("ddp", "zero1", "zero2", "fsdp", "pipeline"), []),
            ("llama-tiny", 2, SWA, ("fsdp",), [HALF]),
            ("llama-tiny", 2, EMA, ("ddp strategy.mesh.tensor=2", "pipeline"), []),
            ("llama-tiny", 4, SWA, ("fsdp strategy.mesh.tensor=2",), [])]
    for recipe, ranks, average, strategies, more in rows:
        one = os.path.join(folder, f"{recipe}-{average[0]}-{len(more)}")
        if not os.path.exists(one):
            train_to(one, recipe, 1, STEPS, *average, *more)
        for name in strategies:
            place = f"{one}-{name.replace(' ', '-')}-{ranks}"
            train_to(place, recipe, ranks, STEPS, *average, *more, *f"strategy.name={name}".split())
            limit = 1e-3 if more else 1e-5
            what = f"{recipe} on {ranks} ranks, {name}"
            check_close(losses(place), losses(one), limit, what)
            check_close(losses(place, "val"), losses(one, "val"), limit, f"{what}, val")
            check_near(saved(place), saved(one), what, 0.05 if more else 1e-5)


def check_offload(folder):
    """Bit for bit, on the host's memory, in a file and on a device with memory of its own."""
    for precision in ("32-true", "bf16-mixed"):
        words = [*EMA, f"trainer.precision={precision}"]
        whole = os.path.join(folder, precision)
        train_to(whole, "mlp-jax", 1, STEPS, *words)
        for i, more in enumerate((["strategy.offload=optimizer"],
                                  ["strategy.offload=parameters", "strategy.name=fsdp"])):
            place = f"{whole}-{i}"
            train_to(place, "mlp-jax", 1, STEPS, *words, *more)
            check_same(losses(place, "val"), losses(whole, "val"), f"{precision}, {more}")
            run([TRIREME, "checkpoint", "diff", last(place), last(whole)])
    place = os.path.join(folder, "far")
    train_to(place, "mlp-jax", 1, STEPS, *EMA, "--device", "far")
    check_near(saved(place), saved(os.path.join(folder, "32-true")), "far")
    far_host = os.path.join(folder, "far-host")
    train_to(far_host, "mlp-jax", 1, STEPS, *EMA, "--device", "far", "strategy.offload=optimizer",
             "strategy.offload_step=host")
    check_near(saved(far_host), saved(place), "far, the optimizer on the host")


def check_formula(folder):
    """What the averages are: of steps whose weights checkpoints have; evaluations do not change
    what is trained."""
    kept = ["checkpoint.every_n_steps=1", "checkpoint.save_top_k=-1"]
    place = os.path.join(folder, "kept")
    train_to(place, "mlp-jax", 1, STEPS, "average.name=ema", "average.decay=0.6",
             "average.every_n_steps=2", "average.start_step=3", *kept)
    plain = os.path.join(folder, "plain")
    train_to(plain, "mlp-jax", 1, STEPS)
    check_same(losses(place), losses(plain), "evaluations by averages")
    average = {}
    for step in range(1, STEPS + 1):
        checkpoint = os.path.join(place, "checkpoints", f"step-{step:08}")
        is_there = os.path.exists(os.path.join(checkpoint, "average.safetensors"))
        assert is_there == (step >= 4), step
        weights = read(checkpoint, "model.safetensors")
        if step >= 4 and step % 2 == 0:
            average = {name: [a + 0.4 * (b - a) for a, b in zip(average.get(name, values), values)]
                       for name, values in weights.items()}
        if step == 4:  # begun as the weights are, bit for bit
            assert read(checkpoint, "average.safetensors") == weights
    check_near(saved(place), average, "the formula", 1e-6)


def evaluate(place, checkpoint, *words):
    done = run([TRIREME, "eval", "recipes/mlp-jax.yaml", "--checkpoint", checkpoint, "--json",
                *MODELS["mlp-jax"], *words])
    return json.loads(done.stdout.splitlines()[-1])["loss"]


def check_evaluations(folder):
    """A checkpoint's evaluation gives the figure that training has logged, and an export has the
    averages."""
    place, plain = os.path.join(folder, "averaged"), os.path.join(folder, "not")
    done = train_to(place, "mlp-jax", 1, STEPS, *EMA)
    assert "averaged" in done.stdout, done.stdout
    done = train_to(plain, "mlp-jax", 2, STEPS, *EMA, PLAIN)
    assert "averaged" not in done.stdout, done.stdout
    figures = {float(losses(run_dir, "val")[STEPS]) for run_dir in (place, plain)}
    assert len(figures) == 2, figures
    own, other = (os.path.join(last(place), f"{name}.safetensors") for name in ("average", "model"))
    for run_dir in (place, plain):
        assert abs(evaluate(run_dir, run_dir) - float(losses(run_dir, "val")[STEPS])) < 1e-6
    assert evaluate(place, place) == evaluate(place, own)
    assert evaluate(place, place, PLAIN) == evaluate(place, other) != evaluate(place, own)
    for run_dir, name in ((place, "average"), (plain, "model")):
        exported = os.path.join(folder, f"{name}.safetensors")
        run([TRIREME, "checkpoint", "export", run_dir, "--out", exported])
        assert read(exported) == saved(run_dir, name)
        whole = os.path.join(folder, f"{name}-folder")
        run([TRIREME, "checkpoint", "export", run_dir, "--huggingface", whole])
        assert read(os.path.join(whole, "model.safetensors")) == saved(run_dir, name)


def check_resume(folder):
    """On other ranks, and after a kill."""
    whole = os.path.join(folder, "whole")
    words = [*EMA, "checkpoint.every_n_steps=2"]
    train_to(whole, "mlp-jax", 1, STEPS, *words)
    moved = os.path.join(folder, "moved")
    for steps, ranks, strategy in ((3, 2, "fsdp"), (5, 1, "single"), (STEPS, 2, "zero1")):
        train_to(moved, "mlp-jax", ranks, steps, *words, f"strategy.name={strategy}")
    check_close(losses(moved), losses(whole), 1e-5, "resumed on other ranks")
    check_near(saved(moved), saved(whole), "resumed on other ranks")
    killed = os.path.join(folder, "killed")
    command = train("mlp-jax", killed, *MODELS["mlp-jax"], *words, f"trainer.max_steps={STEPS}")
    child = start(command)
    wait_for(lambda: len(losses(killed, "val")) >= 2, "an evaluation", child=child)
    child.send_signal(signal.SIGKILL)
    finish(child)
    run(command)
    check_same(losses(killed, "val"), losses(whole, "val"), "killed")
    run([TRIREME, "checkpoint", "diff", last(killed), last(whole)])


def check_longer(folder):
    """The rate of swa, and what becomes of its averages if the run is made longer."""
    place = os.path.join(folder, "longer")
    train_to(place, "mlp-jax", 1, STEPS, *SWA)
    rates = [float(entry["lr"]) for entry in entries(place, "train")]
    assert rates == [0.001] * 3 + [0.002] * 5, rates
    before = saved(place)
    train_to(place, "mlp-jax", 1, 10, *SWA)  # begins after step 4, and has begun
    assert saved(place) != before and saved(place) != saved(place, "model")
    done = train_to(place, "mlp-jax", 1, 30, *SWA)  # begins after step 12
    assert "begin again after step 12" in done.stderr, done.stderr
    rates = [float(entry["lr"]) for entry in entries(place, "train")]
    assert rates == [0.001] * 3 + [0.002] * 7 + [0.001] * 2 + [0.002] * 18, rates
    endless = os.path.join(folder, "endless")
    check_refused(train("mlp-jax", endless, *MODELS["mlp-jax"], *SWA,
                        "trainer.max_epochs=-1", "trainer.max_time=60"),
                  endless, ["average.start", "no end"])


def check_changes(folder):
    """Averages begin, change and end in a run if the user says so."""
    place = os.path.join(folder, "changed")

    def resume(steps, *changes, code=0):
        flag = ["--resume-with", *changes] if changes else []
        return train_to(place, "mlp-jax", 1, steps, *flag, code=code)

    def averages():
        return os.path.exists(os.path.join(last(place), "average.safetensors"))
    resume(1)
    assert not averages()
    done = train_to(place, "mlp-jax", 1, 2, *EMA, code=2)
    assert len(done.stderr.splitlines()) == 1 and "average.name" in done.stderr, done.stderr
    resume(2, *EMA)  # begins as the weights are
    assert saved(place) == saved(place, "model")
    resume(3)
    assert saved(place) != saved(place, "model")
    resume(4, "average.name=swa", "average.start=0")  # begins again
    assert saved(place) == saved(place, "model")
    resume(5, "average.name=none")
    assert not averages()


def check_refusals(folder):
    place = os.path.join(folder, "refused")
    for words, texts in ((["average.name=ema", "average.decay=1.5"], ["average.decay", "1.5"]),
                         (["average.name=ema", "average.decay=1"], ["average.decay"]),
                         (["average.name=swa", "average.start=2"], ["average.start", "2"]),
                         (["average.name=swa", "average.start=1"], ["average.start"]),
                         (["average.name=swaa"], ["average.name", "swa"]),
                         (["average.decay=0.9"], ["average.decay", "none"])):
        done = run(train("mlp-jax", place, *MODELS["mlp-jax"], "trainer.max_steps=2", *words), 2)
        assert len(done.stderr.splitlines()) == 1 and not os.path.exists(place), done.stderr
        assert all(text in done.stderr for text in texts), done.stderr


def main():
    with tempfile.TemporaryDirectory(prefix="trireme-average-") as folder:
        for check in (check_refusals, check_formula, check_evaluations, check_resume, check_longer,
                      check_changes, check_offload, check_strategies):
            place = os.path.join(folder, check.__name__)
            os.mkdir(place)
            timed(check, place)


if __name__ == "__main__":
    main()
