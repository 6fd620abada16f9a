#!/usr/bin/env python3
"""A run that was interrupted and resumed has the losses of an uninterrupted one, to the last bit.

Signals and kills come at random moments within an epoch, and at chosen places of a run (in an
evaluation, in a save, before the first step), on one rank and on two. With another number of ranks
losses agree within 1e-5. What a resume refuses, and what a completed run prints.

usage: test_resume.py BUILD_FOLDER
"""
import json
import os
import random
import signal
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import (SYNTHETIC, TRIREME, check_close, check_same, entries, finish,  # noqa: E402
                  last, losses, on_ranks, run, start, timed, train, wait_for)

# On a busy machine a run may be over before this test sends a signal to it. Such a run has to have
# the losses of the others too; another one begins.
ATTEMPTS = 20
# Three epochs of seven steps, the last of them a tail; evaluation at each epoch's end.
LAST = 21
COMMON = [*SYNTHETIC, "data.samples=200", "data.test_samples=40", "batch.global=32",
          "trainer.max_epochs=3", "schedule.name=step", "schedule.gamma=0.7",
          "schedule.every=epoch"]
RUNS = {
    "dropout and adadelta": ("mnist-cnn", ["model.dropout=0.3", "batch.eval=40"]),
    "batch norm, accumulation and adam": (
        "mnist-convnet", ["batch.micro=8", "optimizer.name=adam", "optimizer.lr=1e-3",
                          "trainer.gradient_clip_val=0.5", "checkpoint.every_n_steps=4"]),
    "momentum": ("mlp-jax", ["optimizer.momentum=0.9", "optimizer.nesterov=true",
                             "checkpoint.every_n_steps=2"]),
    # The first gradients overflow, so that there are fewer updates, which set lr, than steps.
    "16-mixed": ("mlp-jax", ["trainer.precision=16-mixed", "trainer.loss_scale.initial=1e9",
                             "trainer.loss_scale.hysteresis=1", "schedule.every=step",
                             "checkpoint.every_n_steps=2"]),
}


def rates(run_dir):
    """Learning rate by step, as text."""
    return {entry["step"]: str(entry["lr"]) for entry in entries(run_dir, "train")}


def check_end(got, whole, what):
    """Every loss, the learning rates, the evaluations and every bit of weights and optimizer
    states."""
    assert sorted(losses(whole)) == list(range(1, LAST + 1)), sorted(losses(whole))
    check_same(losses(got), losses(whole), what)
    check_same(rates(got), rates(whole), f"{what}, lr")
    check_same(losses(got, "val"), losses(whole, "val"), f"{what}, val")
    run([TRIREME, "checkpoint", "diff", last(got), last(whole)])


def interrupt(words, place, number, step):
    """Starts the run and sends the signal once that step is logged. Its exit code; None: too late,
    the run was over."""
    before = len(entries(place, "train"))
    child = start(words)

    def reached():
        return any(entry["step"] >= step for entry in entries(place, "train")[before:])
    seen = wait_for(reached, f"step {step}", child=child)
    if seen:
        time.sleep(random.random() * 0.005)
        child.send_signal(number)
    err, code = finish(child)[1:]
    if code == 0:
        assert losses(place)[LAST]
        return None
    if number != signal.SIGKILL:
        assert code == 75, f"signal {number} at step {step}: exit code {code}: {err}"
        assert "checkpoint" in err, err
        assert os.path.exists(last(place)), "75 without a checkpoint"
    else:
        assert code == -signal.SIGKILL, f"exit code {code}: {err}"
    return code


def check_interruptions(folder, name, ranks):
    """Each of the signals interrupts a run."""
    recipe, more = RUNS[name]
    words = [*COMMON, *more]
    whole = os.path.join(folder, f"{name}-{ranks}-whole")
    run(on_ranks(ranks, train(recipe, whole, *words)))
    if name == "16-mixed":  # else it would show nothing
        assert len(set(rates(whole).values())) < LAST - 3, rates(whole)
    numbers = [signal.SIGTERM, signal.SIGKILL, signal.SIGUSR1, signal.SIGINT]
    if ranks > 1:  # of a launcher: its workers end with it, tests/fault has that
        numbers.remove(signal.SIGKILL)
    for attempt in range(ATTEMPTS):
        cut = os.path.join(folder, f"{name}-{ranks}-cut-{attempt}")
        command = on_ranks(ranks, train(recipe, cut, *words))
        steps = sorted(random.sample(range(1, LAST - 3), len(numbers)))
        for step in steps:
            if interrupt(command, cut, numbers[0], step) is None:
                break
            numbers.pop(0)
        run(command)
        check_end(cut, whole, f"{name}, {ranks} ranks, interrupted at {steps}")
        if not numbers:
            return
    raise AssertionError(f"{name}: {ATTEMPTS} runs were over before {numbers}")


def check_all_interruptions(folder):
    for name in RUNS:
        timed(check_interruptions, folder, name, 1)
    timed(check_interruptions, folder, "batch norm, accumulation and adam", 2)


# A run of two epochs of ten steps, evaluated after each fifth step in four batches, with a
# checkpoint at each epoch's end.
VICTIM = os.path.join(os.path.dirname(TRIREME), "fault_victim")
PLACED = [*SYNTHETIC, "data.samples=200", "data.test_samples=40", "batch.global=20",
          "batch.eval=10", "trainer.max_epochs=2", "trainer.val_check_interval=0.5",
          "trainer.num_sanity_val_steps=1", "optimizer.momentum=0.9", "checkpoint.async=false",
          "trainer.early_stopping.monitor=train_loss", "trainer.early_stopping.patience=100"]
# By place: an action, its number on one rank and on two, and what the message has.
PLACES = {
    "the sanity evaluation": ("loading data", 3, 2, "at step 0"),
    "an evaluation within an epoch": ("loading data", 4 + 5 + 3, 2 + 5 + 2, "at step 5"),
    "an epoch's evaluation": ("loading data", 8 + 10 + 3, 4 + 10 + 2, "at step 10"),
    "the last evaluation": ("loading data", 16 + 20 + 3, 8 + 20 + 2, "at step 20"),
    "a save": ("SAVE", 2, 2, "at step 10"),
}


def result(place):
    """What a run has brought: its evaluations and, of its last checkpoint, the training state and
    the monitored value; the best checkpoint."""
    with open(os.path.join(last(place), "state.json"), encoding="utf-8") as file:
        state = json.load(file)
    return {"val": {entry["step"]: entry for entry in entries(place, "val")},
            "training": state["training"], "monitor": state["monitor"],
            "best": os.readlink(os.path.join(place, "checkpoints", "best"))}


def stop_at(command, wishes, code):
    """Runs the command; ranks do what the program fault_victim has read in `wishes`: send
    themselves a signal when they begin an action."""
    words = [VICTIM if word == TRIREME else word for word in command]
    return run(words, code, env={**os.environ, "VICTIM": wishes})


def check_place(folder, whole, ranks, what, sent):
    action, alone, shared, where = PLACES[what]
    place = os.path.join(folder, f"{what} {ranks} {sent}")
    command = on_ranks(ranks, train("mlp-jax", place, *PLACED))
    number = shared if ranks > 1 else alone
    wishes = f"-1,{action},{number},{int(sent)}"
    if sent == signal.SIGKILL:
        stop_at(command, wishes, None)
        run([TRIREME, "checkpoint", "verify", place])
    else:
        if action == "loading data":  # a rank that goes on with the evaluation dies
            wishes += f";-1,{action},{number + 1},{int(signal.SIGKILL)}"
        done = stop_at(command, wishes, 75)
        assert where in done.stderr, f"{what}: {done.stderr}"
        said = "Ctrl-C: waiting for " in done.stderr
        assert said == (sent == signal.SIGINT), f"{what}: {done.stderr}"
        with open(os.path.join(last(place), "state.json"), encoding="utf-8") as file:
            state = json.load(file)
        is_due = "evaluation_due" in state["training"]
        assert is_due == (what != "the sanity evaluation"), (what, state["training"])
    for early in ("planning", "restoring the state"):  # before the first step of a resumed run
        done = stop_at(command, f"-1,{early},1,{int(signal.SIGTERM)}", 75)
        assert "before a step" in done.stderr, done.stderr
    run(command)
    check_same(losses(place), losses(whole), what)
    got, wanted = result(place), result(whole)
    assert got == wanted, f"{what}, {ranks} ranks: {got}, not {wanted}"
    run([TRIREME, "checkpoint", "diff", last(place), last(whole)])


def check_places(folder):
    for ranks in (1, 2):
        whole = os.path.join(folder, f"placed-{ranks}")
        run(on_ranks(ranks, train("mlp-jax", whole, *PLACED)))
        for what in PLACES:
            sent = signal.SIGINT if what == "a save" else signal.SIGTERM
            check_place(folder, whole, ranks, what, sent)
    check_place(folder, os.path.join(folder, "placed-1"), 1, "an epoch's evaluation",
                signal.SIGKILL)
    # Before there is a checkpoint, a signal ends the process at once, which then waits for nothing.
    # A job script starts it again, a user who has pressed Ctrl-C does not.
    early = os.path.join(folder, "early")
    for number, code in ((signal.SIGTERM, 75), (signal.SIGINT, -signal.SIGINT)):
        for ranks in (1, 2) if code > 0 else (1,):
            done = stop_at(on_ranks(ranks, train("mlp-jax", early, *PLACED)),
                           f"-1,planning,1,{int(number)}", code)
            assert "waiting" not in done.stderr, done.stderr
            assert done.stderr.count("nothing is saved yet") == (code > 0), done.stderr
    assert not os.path.exists(early)


def check_one_told(folder):
    """A signal that reaches one rank alone, as it begins an epoch's evaluation: this rank computes
    nothing more, but takes part in what the ranks exchange, and all end alike."""
    words = [*PLACED, "batch.micro=10"]
    for name, more in (("ddp", []), ("fsdp", ["strategy.name=fsdp"]),
                       ("pipeline", ["strategy.name=pipeline"]),
                       ("tensor", ["strategy.mesh.tensor=2",
                                   "strategy.tensor={fc1: column, fc2: row}"])):
        place, whole = (os.path.join(folder, f"{name} {kind}") for kind in ("told", "whole"))
        for kind in (place, whole):
            command = on_ranks(2, train("mlp-jax", kind, *words, *more))
            if kind == place:
                done = stop_at(command, f"1,evaluation,3,{int(signal.SIGUSR1)}", 75)
                assert "at step 10" in done.stderr, done.stderr
            run(command)
        assert result(place) == result(whole), name


def check_kills(folder):
    """Killed again and again; what was not saved is computed again, the same."""
    recipe, more = RUNS["momentum"]
    words = [*COMMON, *more]
    whole, kills = os.path.join(folder, "kills-whole"), []
    run(train(recipe, whole, *words))
    while max(kills, default=0) < 4:
        assert len(kills) < ATTEMPTS, f"kills of each run: {kills}"
        cut = os.path.join(folder, f"kills-cut-{len(kills)}")
        codes = [interrupt(train(recipe, cut, *words), cut, signal.SIGKILL, step)
                 for step in (1, 2, 5, 7, 8, 13, 14, 18)]
        kills.append(sum(code is not None for code in codes))
        run(train(recipe, cut, *words))
        check_end(cut, whole, f"killed {kills[-1]} times")
        run([TRIREME, "checkpoint", "verify", cut])


def check_other_ranks(folder):
    """Each part on another number of ranks."""
    for recipe, more in (("mnist-convnet", ["batch.micro=8"]),
                         ("mnist-cnn", ["optimizer.name=sgd", "optimizer.lr=0.01"])):
        words = [*COMMON, *more, "checkpoint.every_n_steps=5"]
        whole, moved = (os.path.join(folder, f"{recipe}-{kind}") for kind in ("alone", "moved"))
        run(train(recipe, whole, *words))
        for ranks, until in ((2, 5), (1, 10), (3, LAST)):
            run(on_ranks(ranks, train(recipe, moved, *words, f"trainer.max_steps={until}")))
        worst = check_close(losses(moved), losses(whole), 1e-5, f"{recipe} on 2, 1 and 3 ranks")
        evaluated = losses(moved, "val")
        for end in (5, 10):  # the results of the parts that ended there
            evaluated.pop(end)
        check_close(evaluated, losses(whole, "val"), 1e-5, f"{recipe}, val")
        print(f"  {recipe} on 2, 1 and 3 ranks in turn: worst {worst:.1e}", flush=True)


def check_completed(folder):
    recipe, words = "mlp-jax", COMMON
    short, whole = (os.path.join(folder, kind) for kind in ("short", "at-once"))
    run(train(recipe, short, *words, "trainer.max_epochs=1"))
    before = sorted(os.walk(short))
    with open(os.path.join(short, "metrics.jsonl"), encoding="utf-8") as file:
        text = file.read()
    done = run(train(recipe, short, *words, "trainer.max_epochs=1"))
    assert "complete" in done.stdout, done.stdout
    assert sorted(os.walk(short)) == before, "a completed run changed its folder"
    with open(os.path.join(short, "metrics.jsonl"), encoding="utf-8") as file:
        assert file.read() == text, "a completed run wrote metrics"
    run(train(recipe, short, *words))  # three epochs
    run(train(recipe, whole, *words))
    check_end(short, whole, "max_epochs raised")
    assert [e["status"] for e in entries(short, "end")] == ["completed", "completed"]
    # Without its metrics, which a resume does not need.
    os.remove(os.path.join(short, "metrics.jsonl"))
    run(train(recipe, short, *words, "trainer.max_epochs=4"))
    assert min(losses(short)) == LAST + 1, sorted(losses(short))


def check_other_recipe(folder):
    """What defines the run may not change; how it is shown, how long it lasts, may."""
    recipe, words, place = "mlp-jax", [*COMMON, "trainer.max_epochs=1"], os.path.join(folder, "own")
    run(train(recipe, place, *words))
    before = {path: os.stat(path).st_mtime_ns for path, _, _ in os.walk(place)}
    for more, keys in ((["optimizer.lr=0.5"], ["optimizer.lr"]), (["seed=9"], ["seed"]),
                       (["batch.global=16", "seed=9"], ["batch.global", "seed"]),
                       (["data.samples=300"], ["data.samples"]),
                       (["optimizer.name=adam"], ["optimizer.name"]),
                       (["trainer.gradient_clip_val=1"], ["trainer.gradient_clip_val"]),
                       (["model.name=autoencoder"], ["model.name"])):
        for resume in ([], ["--resume", last(place)]):
            done = run(train(recipe, place, *words, *more, *resume), 2)
            lines = done.stderr.splitlines()
            assert len(lines) == 1 and all(key in lines[0] for key in keys), f"{more}: {lines}"
    done = run(train(recipe, place, *words, "--resume", "never"), 2)
    assert len(done.stderr.splitlines()) == 1 and place in done.stderr, done.stderr
    assert {path: os.stat(path).st_mtime_ns for path, _, _ in os.walk(place)} == before
    run(train(recipe, place, *words, "trainer.log_every_n_steps=3", "data.workers=2",
              "trainer.max_epochs=2"))


def check_resume_with(folder):
    """Keys that may change in a resume: state and position are kept, and so is the new value."""
    words = [*COMMON, "optimizer.momentum=0.9", "optimizer.lr=0.1", "batch.micro=16"]
    whole = os.path.join(folder, "unchanged")
    run(train("mlp-jax", whole, *words))
    for ranks in (1, 2):
        place = os.path.join(folder, f"changed-{ranks}")

        def resume(until, *more, code=0, ranks=ranks, place=place):
            return run(on_ranks(ranks, train("mlp-jax", place, *words, *more,
                                             f"trainer.max_steps={until}")), code)
        done = resume(6, "--resume-with", "optimizer.lr=0.2", code=2)
        assert len(done.stderr.splitlines()) == 1 and "--resume-with" in done.stderr, done.stderr
        assert not os.path.exists(place)
        resume(6)
        done = resume(9, "--resume-with", "seed=9", "optimizer.lr=0.2", code=2)
        assert len(done.stderr.splitlines()) == 1 and " seed;" in done.stderr, done.stderr
        assert "--resume-with cannot change seed," in done.stderr, done.stderr
        change = ["--resume-with", "optimizer.lr=0.2", "batch.micro=8",
                  "trainer.gradient_clip_val=0.5", "--device", "cpu"]
        resume(8, *change)
        resume(10, *change)  # as a requeued job does
        done = resume(12)
        assert "optimizer.lr is 0.2 since a --resume-with" in done.stderr, done.stderr
        resume(14, "--resume-with=optimizer.lr=0.3")
        resume(16)
        done = resume(18, "optimizer.lr=0.4", code=2)
        assert "optimizer.lr" in done.stderr and "seed" not in done.stderr, done.stderr
        check_close({step: loss for step, loss in losses(place).items() if step < 8},
                    {step: loss for step, loss in losses(whole).items() if step < 8}, 1e-5,
                    f"before the change has an effect, {ranks} ranks")
        assert losses(place)[8] != losses(whole)[8]
        # The schedule multiplies by 0.7 in the second epoch, from step 8 on, and in the third.
        wanted = {6: 0.1, 7: 0.2, 8: 0.14, 12: 0.14, 13: 0.21, 14: 0.21, 15: 0.147, 16: 0.147}
        found = rates(place)
        assert all(abs(float(found[s]) - lr) < 1e-6 for s, lr in wanted.items()), found
        changes = [(e["step"], e["key"], float(e["from"]), float(e["to"]))
                   for e in entries(place, "change")]
        assert changes == [(6, "optimizer.lr", 0.1, 0.2), (6, "batch.micro", 16, 8),
                           (6, "trainer.gradient_clip_val", 0, 0.5),
                           (12, "optimizer.lr", 0.2, 0.3)], changes
        with open(os.path.join(place, "recipe.yaml"), encoding="utf-8") as file:
            text = file.read()
        assert "  lr: 0.3\n" in text and "  optimizer.lr: 0.1\n" in text, text
        moved = f"{place}-moved"  # from a checkpoint of another folder
        run(train("mlp-jax", moved, *words, "trainer.max_steps=18", "--resume", last(place)))
        assert abs(float(rates(moved)[18]) - 0.147) < 1e-6, rates(moved)


def check_other_schedules(folder):
    """One schedule after another: of the one before only what was given stays, where it has a
    meaning."""
    place = os.path.join(folder, "schedules")
    words = [word for word in COMMON if not word.startswith("schedule.")]

    def resume(until, *changes, code=0):
        flag = ["--resume-with", *changes] if changes else []
        return run(train("mlp-jax", place, *words, f"trainer.max_steps={until}", *flag), code)

    resume(1)
    resume(2, "schedule.name=cosine", "schedule.eta_min=0.001", "schedule.warmup_steps=3")
    resume(3, "schedule.name=linear", "schedule.end_factor=0.5")
    resume(4, "schedule.name=linear")
    with open(os.path.join(place, "recipe.yaml"), encoding="utf-8") as file:
        text = file.read()
    for line in ("name: linear", "end_factor: 0.5", "warmup_steps: 3", "every: step"):
        assert f"\n  {line}\n" in text, text
    assert "eta_min" not in text.split("began_with")[0], text
    done = resume(5, "schedule.name=linear", "schedule.eta_min=0.1", code=2)
    assert "schedule.eta_min" in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert "schedule.name=none" in resume(5, "schedule.name=none", code=2).stderr


def main():
    seed = int(os.environ.get("TRIREME_TEST_SEED", random.randrange(1 << 30)))
    print(f"TRIREME_TEST_SEED={seed}")
    random.seed(seed)
    with tempfile.TemporaryDirectory(prefix="trireme-resume-") as folder:
        for check in (check_resume_with, check_other_schedules, check_other_recipe,
                      check_completed, check_other_ranks, check_places, check_one_told,
                      check_kills, check_all_interruptions):
            timed(check, folder)


if __name__ == "__main__":
    main()
