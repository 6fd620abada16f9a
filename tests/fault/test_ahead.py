#!/usr/bin/env python3
"""On an asynchronous device, the next step is already in flight while the results of a step are
read. Whatever ends or changes a run then (an overflow, a loss that is not finite, a signal, a
limit, a lost rank, data that cannot be read), its metrics and checkpoints are those of a run on the
CPU, to the last bit.

usage: test_ahead.py BUILD_FOLDER
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
from runs import (SOON, SYNTHETIC, TRIREME, check_nothing_left, check_same,  # noqa: E402
                  check_saved, end_all, entries, finish, last, losses, on_ranks, run, start,
                  start_ranks, timed, train, wait_for)

PROGRAM = os.path.join(os.path.dirname(TRIREME), "fault_victim")
SHORT = [*SYNTHETIC, "data.samples=200", "data.test_samples=16", "batch.global=16",
         "batch.micro=8", "optimizer.name=adamw", "optimizer.lr=0.001"]
FIELDS = ("step", "loss", "lr", "grad_norm", "samples")


def command(device, place, *words, ranks=1, recipe="mnist-cnn"):
    return on_ranks(ranks, train(recipe, place, *SHORT, *words, "--device", device))


def rows(place):
    """The FIELDS of each step in metrics.jsonl. If a step was repeated, its last line counts."""
    return {entry["step"]: [entry[name] for name in FIELDS] for entry in entries(place, "train")}


def said(done, text):
    return sorted({line for line in done.stderr.splitlines() if text in line})


def both(folder, name, *words, code=0, ranks=1):
    """Runs a training on the CPU and on the asynchronous device `far`, and checks that their
    metrics are equal. Returns the two run folders and the two ended processes."""
    places, done = [], []
    for device in ("cpu", "far"):
        places.append(os.path.join(folder, f"{name}-{ranks}-{device}"))
        done.append(run(command(device, places[-1], *words, ranks=ranks), code))
    assert rows(places[0]), f"{name}: no steps"
    assert rows(places[1]) == rows(places[0]), f"{name}: {rows(places[1])}, not {rows(places[0])}"
    check_same(losses(places[1], "val"), losses(places[0], "val"), f"{name}, evaluation")
    return places, done


def check_same_checkpoint(places):
    run([TRIREME, "checkpoint", "diff", last(places[1]), last(places[0])])
    states = []
    for place in places:
        with open(os.path.join(last(place), "state.json"), encoding="utf-8") as file:
            found = json.load(file)
            states.append([found["training"], found["files"]])
    assert states[0] == states[1], f"{states[1]}, not {states[0]}"


def check_overflow(folder):
    """A step whose gradients overflow makes no update. On both devices the loss scale, the learning
    rate and Adam's bias correction then depend on the updates that were made, not on the steps."""
    words = ["trainer.precision=16-mixed", "trainer.loss_scale.initial=67108864",
             "trainer.loss_scale.window=4", "trainer.loss_scale.hysteresis=1",
             "schedule.name=cosine", "schedule.warmup_steps=5", "trainer.max_epochs=2",
             "checkpoint.every_n_steps=7"]
    for ranks in (1, 2):
        places, done = both(folder, "overflow", *words, ranks=ranks)
        overflows = said(done[0], "loss scale is now")
        assert len(overflows) > 3, done[0].stderr
        assert overflows == said(done[1], "loss scale is now"), done[1].stderr
        check_same_checkpoint(places)


def check_exhausted(folder):
    words = ["trainer.precision=16-mixed", "trainer.loss_scale.initial=67108864",
             "trainer.loss_scale.minimum=33554432", "trainer.loss_scale.hysteresis=1"]
    _, done = both(folder, "exhausted", *words, code=1)
    assert said(done[0], "smallest loss scale"), done[0].stderr
    assert said(done[0], "smallest loss") == said(done[1], "smallest loss"), done[1].stderr


def check_not_finite(folder):
    """If the loss is not finite, both devices name the same step and the same parameter, and a run
    that is resumed ends with the same message."""
    for ranks in (1, 2):
        words = ["optimizer.name=sgd", "optimizer.lr=200", "checkpoint.every_n_steps=2"]
        places, done = both(folder, "explodes", *words, code=1, ranks=ranks)
        assert said(done[0], "optimizer.lr"), done[0].stderr
        assert said(done[0], "optimizer.lr") == said(done[1], "optimizer.lr"), done[1].stderr
        if os.path.exists(last(places[0])):
            check_same_checkpoint(places)
        again = run(command("far", places[1], *words, ranks=ranks), 1)
        assert said(again, "optimizer.lr") == said(done[0], "optimizer.lr"), again.stderr


def check_early_stopping(folder):
    words = ["trainer.max_epochs=9", "optimizer.lr=0", "trainer.early_stopping.monitor=val_loss",
             "trainer.early_stopping.patience=2"]
    places, done = both(folder, "early", *words)
    assert max(rows(places[0])) == 13 * 3, rows(places[0]).keys()
    assert all("has not improved" in one.stderr for one in done), done[1].stderr
    check_same_checkpoint(places)


def check_interruptions(folder):
    """A run that a signal ends has a checkpoint. Resumed from it, the run has the same metrics and
    checkpoint as a run that was not interrupted."""
    words = ["trainer.max_epochs=4", "checkpoint.every_n_steps=5", "model.dropout=0.2"]
    for ranks in (1, 2):
        whole = os.path.join(folder, f"whole-{ranks}")
        run(command("cpu", whole, *words, ranks=ranks))
        counts = []
        while max(counts, default=0) < 2:  # a run may be over before this test sends a signal
            assert len(counts) < 20, f"interruptions of each run: {counts}"
            cut = os.path.join(folder, f"cut-{ranks}-{len(counts)}")
            counts.append(0)
            for number, step in ((signal.SIGTERM, 6), (signal.SIGUSR1, 17), (signal.SIGTERM, 31)):
                child = start(command("far", cut, *words, ranks=ranks))
                seen = wait_for(lambda s=step, at=cut: max(rows(at), default=0) >= s, "steps",
                                child=child)
                time.sleep(random.random() * 0.02)
                if seen:
                    child.send_signal(number)
                _, err, code = finish(child)
                assert code in (0, 75), f"{number} at {step}: code {code}: {err}"
                counts[-1] += code == 75
            run(command("far", cut, *words, ranks=ranks))
            assert rows(cut) == rows(whole), f"{ranks} ranks: {rows(cut)}, not {rows(whole)}"
            check_same_checkpoint((whole, cut))


def check_limits_of_time(folder):
    """With limits of time, the last step and the saved steps differ from run to run. All steps up
    to the last one have the same metrics as in a run that is limited to that number of steps."""
    words = ["trainer.limit_val_batches=0", "checkpoint.train_time_interval=0.2",
             "trainer.max_epochs=-1"]
    for ranks in (1, 2):
        again = os.path.join(folder, f"again-{ranks}")
        for seconds in (1, 5, 25):  # on a busy machine steps take longer
            place = os.path.join(folder, f"timed-{ranks}-{seconds}")
            run(command("far", place, f"trainer.max_time={seconds}", *words, ranks=ranks))
            steps = max(rows(place))
            if steps > 5:
                break
        assert steps > 5, steps
        run(command("cpu", again, f"trainer.max_steps={steps}", *words, ranks=ranks))
        assert rows(place) == rows(again), f"{rows(place)}, not {rows(again)}"
        check_same_checkpoint((again, place))


def check_lost_ranks(folder):
    """A rank is killed while steps are in flight. The other ranks end soon, and name it."""
    for kind, ranks, victim, count in (("ISSUE", 2, 1, 400), ("SCATTER", 3, 0, 60),
                                       ("ISSUE", 2, 0, 777), ("writing metrics", 2, 0, 7)):
        place = os.path.join(folder, f"lost-{kind}-{count}".replace(" ", "-"))
        words = train("mnist-cnn", place, *SHORT, "trainer.max_epochs=-1", "batch.micro=4",
                      "trainer.max_steps=100000", "trainer.limit_val_batches=0",
                      "checkpoint.every_n_steps=4", "strategy.name=zero2", "--device", "far")
        children = start_ranks([PROGRAM, *words[1:]], ranks, VICTIM=f"{victim},{kind},{count},9")
        try:
            out, err, code = finish(children[victim], 60)
            assert code == -signal.SIGKILL, f"{kind}: not reached: code {code}: {out}{err}"
            begin = time.monotonic()
            for rank, child in enumerate(children):
                if rank == victim:
                    continue
                _, err, code = finish(child, SOON)
                took = time.monotonic() - begin
                what = f"{kind}, rank {rank}, {took:.1f} s, code {code}: {err}"
                assert code == 1 and took < SOON, what
                assert f"rank {victim} (host" in err, what
        finally:
            end_all(children)
        check_saved(place)
    check_nothing_left()


def check_failing_data(folder):
    """The loader fails while the device still copies from the loader's memory: the run ends with
    code 1 and the loader's message."""
    path = os.path.join(folder, "tokens.txt")
    with open(path, "w", encoding="ascii") as file:
        file.write("the oars of every bank pull " * 4000)
    place = os.path.join(folder, "shortened")
    words = ["model.hidden_size=16", "model.intermediate_size=16", "model.num_hidden_layers=1",
             f"data.path={folder}", f"data.train={path}", f"data.test={path}", "data.sequence=16",
             "data.workers=1", "batch.global=8", "log.tensorboard=false",
             "trainer.max_epochs=10000", "trainer.limit_val_batches=0",
             "trainer.log_every_n_steps=1", "schedule.warmup_steps=0"]
    child = start(train("llama-tiny", place, *words, "--device", "far"))
    wait_for(lambda: len(losses(place)) > 2, "training", child=child)
    os.truncate(path, 64)
    _, errors, code = finish(child)
    assert code == 1 and "was changed while" in errors, f"{code}: {errors}"


def main():
    os.environ["TRIREME_FAR_DELAY_US"] = "60"
    with tempfile.TemporaryDirectory(prefix="trireme-ahead-") as folder:
        for check in (check_overflow, check_exhausted, check_not_finite, check_early_stopping,
                      check_interruptions, check_limits_of_time, check_lost_ranks,
                      check_failing_data):
            timed(check, folder)


if __name__ == "__main__":
    main()
