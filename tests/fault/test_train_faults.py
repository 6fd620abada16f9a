#!/usr/bin/env python3
"""Ranks of a training run that are killed or stopped, files that cannot grow, losses that explode:
the failure is noticed and named, nothing is left behind, and the run can be resumed.

usage: test_train_faults.py BUILD_FOLDER
"""
import json
import os
import random
import resource
import signal
import struct
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import (SOON, SYNTHETIC, TRIREME, alive, check_nothing_left, check_same,  # noqa: E402
                  end_all, entries, finish, last, losses, on_ranks, run, sharing, start,
                  start_ranks, timed, train, wait_for)

ENDLESS = [*SYNTHETIC, "data.samples=512", "data.test_samples=16", "batch.global=32",
           "trainer.max_epochs=10000", "trainer.limit_val_batches=0",
           "checkpoint.every_n_epochs=0"]


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def descendants(pid):
    found = []
    for child in children(pid):
        found += [child, *descendants(child)]
    return found


def workers(launcher):
    """The pids of the ranks, in their order: the launcher's descendants that have a RANK."""
    found = {}
    for pid in descendants(launcher):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                words = dict(w.split(b"=", 1) for w in file.read().split(b"\0") if b"=" in w)
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if b"train" not in file.read().split(b"\0"):
                    continue
        except OSError:
            continue
        if b"RANK" in words:
            found[int(words[b"RANK"])] = pid
    return [found[rank] for rank in sorted(found)]


def after_steps(place, count, what, child=None):
    assert wait_for(lambda: len(losses(place)) >= count, what, child=child), f"{what}: it ended"
    time.sleep(random.random() * 0.05)


def check_lost_rank(folder, count, victim, number):
    """A rank is killed or stopped in mid-step: the others end, and name that rank and an action."""
    place = os.path.join(folder, f"lost-{count}-{victim}-{number}")
    ranks = start_ranks(train("mlp-jax", place, *ENDLESS), count)
    try:
        after_steps(place, 5, "steps of ranks started by hand", ranks[0])
        assert sharing() == {child.pid for child in ranks}, f"{sharing()} share memory"
        ranks[victim].send_signal(number)
        begin = time.monotonic()
        for rank, child in enumerate(ranks):
            if rank == victim:
                continue
            _, err, code = finish(child, SOON)
            took = time.monotonic() - begin
            what = f"rank {rank} of {count}, rank {victim} sent {number}, {took:.1f} s: {err}"
            assert code == 1, f"code {code}: {what}"
            assert f"rank {victim}" in err, f"it does not name the rank: {what}"
            assert "REDUCE" in err or "NORM" in err, f"it does not name the action: {what}"
        print(f"  rank {victim} of {count}, {signal.Signals(number).name}: left after {took:.1f} s")
    finally:
        end_all(ranks)
    check_nothing_left()
    run([TRIREME, "checkpoint", "list", place], None)


def check_lost_ranks(folder):
    for count, victim, number in ((2, 1, signal.SIGKILL), (2, 0, signal.SIGKILL),
                                  (3, 1, signal.SIGKILL), (2, 1, signal.SIGSTOP),
                                  (3, 0, signal.SIGSTOP)):
        timed(check_lost_rank, folder, count, victim, number)


def check_under_the_launcher(folder):
    """The launcher ends with 1, names the rank, and leaves no process and no shared memory."""
    for victim in (0, 1):
        place = os.path.join(folder, f"launched-{victim}")
        launcher = start(on_ranks(2, train("mlp-jax", place, *ENDLESS)))
        after_steps(place, 5, "steps under the launcher", launcher)
        family, ranks = descendants(launcher.pid), workers(launcher.pid)
        assert len(ranks) == 2, ranks
        assert sharing() == set(ranks), f"{sharing()} share memory, not {ranks}"
        os.kill(ranks[victim], signal.SIGKILL)
        _, err, code = finish(launcher, SOON)
        assert code == 1, f"{code}: {err}"
        assert f"rank {victim}" in err and "SIGKILL" in err, err
        left = [pid for pid in family if alive(pid)]
        assert not left, f"processes left: {left}"
        check_nothing_left()
        assert not os.listdir(os.environ["TMPDIR"]), os.listdir(os.environ["TMPDIR"])


def check_everything_killed(folder):
    """The launcher itself is killed: its ranks end, and with them their shared memory."""
    place = os.path.join(folder, "orphans")
    launcher = start(on_ranks(2, train("mlp-jax", place, *ENDLESS)))
    after_steps(place, 5, "steps under the launcher", launcher)
    family = descendants(launcher.pid)
    launcher.kill()
    launcher.communicate()
    wait_for(lambda: not any(alive(pid) for pid in family), "the ranks' end")
    check_nothing_left()


def check_restart(folder):
    """A rank is killed under --max-restarts: the run goes on from its checkpoint, with the losses
    of a run in which no rank was killed. --resume never is for the first start."""
    words = [*SYNTHETIC, "data.samples=600", "data.test_samples=16", "batch.global=32",
             "batch.micro=8", "trainer.max_epochs=6", "checkpoint.every_n_steps=7",
             "optimizer.name=adam", "optimizer.lr=1e-3"]
    whole, killed = (os.path.join(folder, kind) for kind in ("whole", "killed"))
    run(on_ranks(2, train("mnist-convnet", whole, *words)))
    launcher = start(on_ranks(2, train("mnist-convnet", killed, *words, "--resume", "never"),
                            "--max-restarts", "1"))
    after_steps(killed, 12, "steps before the kill", launcher)
    wait_for(lambda: os.path.exists(last(killed)), "a checkpoint written behind them", 60, launcher)
    ranks = workers(launcher.pid)
    assert len(ranks) == 2, "the run was over before the kill"
    os.kill(ranks[1], signal.SIGKILL)
    _, err, code = finish(launcher)
    assert code == 0, f"{code}: {err}"
    assert "restart 1 of 1" in err and "resuming from" in err, err
    check_same(losses(killed), losses(whole), "restarted by the launcher")
    run([TRIREME, "checkpoint", "diff", last(killed), last(whole)])
    assert [e["status"] for e in entries(killed, "end")][-1] == "completed"


def check_no_room(folder):
    """If files cannot grow, training goes on with a warning, and committed checkpoints stay
    whole."""
    words = [*SYNTHETIC, "data.samples=64", "data.test_samples=8", "batch.global=16",
             "trainer.max_epochs=2"]
    place = os.path.join(folder, "room")
    run(train("mlp-jax", place, *words, "trainer.max_epochs=1"))
    first = os.path.realpath(last(place))

    def small_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    done = run(train("mlp-jax", place, *words), 1, preexec_fn=small_files)
    assert max(losses(place)) == 8, "training did not go on"
    assert "training continues" in done.stderr and "File too large" in done.stderr, done.stderr
    assert os.path.realpath(last(place)) == first
    assert not [n for n in os.listdir(os.path.join(place, "checkpoints")) if n.startswith(".")]
    run([TRIREME, "checkpoint", "verify", place])
    done = run(train("mlp-jax", place, *words))
    assert f"resuming from {first}" in done.stderr, done.stderr


def check_not_finite(folder):
    """If the loss is not finite, the run ends with code 1, and one line names the loss or the
    parameter whose gradient is not finite."""
    for ranks in (1, 2):
        for recipe in ("mlp-jax", "mnist-cnn", "autoencoder"):
            place = os.path.join(folder, f"explodes-{ranks}-{recipe}")
            words = [*SYNTHETIC, "data.samples=64", "data.test_samples=8", "batch.global=16",
                     "optimizer.name=sgd"]
            done = run(on_ranks(ranks, train(recipe, place, *words, "optimizer.lr=1e6")), 1)
            said = [line for line in done.stderr.splitlines()
                    if line.startswith("trireme: step ") and "optimizer.lr" in line]
            # A rank that learns of it from another rank may print the same line again.
            assert len(set(said)) == 1 and len(said) <= ranks, done.stderr
            assert "the loss is" in said[0] or "the gradient of" in said[0], said
            *before, _last = losses(place).values()  # the step that ends the run has its line
            for loss in before:
                assert abs(float(loss)) < 1e300, loss
            assert entries(place, "end")[-1]["status"] == "failed"


def check_nan_in_weights(folder):
    """NaN in one bias of the initial weights ends a run, for every instruction set."""
    words = [*SYNTHETIC, "data.samples=64", "data.test_samples=8", "batch.global=16",
             "trainer.max_steps=1", "trainer.limit_val_batches=0"]
    place = os.path.join(folder, "weights")
    run(train("mnist-cnn", place, *words))
    with open(os.path.join(last(place), "model.safetensors"), "rb") as file:
        data = bytearray(file.read())
    size, = struct.unpack_from("<Q", data)
    begin, end = json.loads(data[8:8 + size])["conv1.bias"]["data_offsets"]
    for at in range(8 + size + begin, 8 + size + end, 4):
        struct.pack_into("<f", data, at, float("nan"))
    changed = os.path.join(folder, "changed.safetensors")
    with open(changed, "wb") as file:
        file.write(data)
    for isa, precision in (("bf16", "32-true"), ("bf16", "bf16-mixed"), ("avx512", "32-true"),
                           ("avx2", "32-true")):
        place = os.path.join(folder, f"nan-{isa}-{precision}")
        done = run(train("mnist-cnn", place, *words, f"init={changed}",
                         f"trainer.precision={precision}"), 1,
                   env={**os.environ, "TRIREME_CPU_ISA": isa})
        assert "step 1: the loss is nan" in done.stderr, f"{isa}, {precision}: {done.stderr}"


def check_shortened_data(folder):
    """If the file of training data is truncated during a run, the run ends with code 1 and a line
    that names the file."""
    for ranks in (1, 2):
        path = os.path.join(folder, f"tokens-{ranks}.txt")
        with open(path, "w", encoding="ascii") as file:
            file.write("the oars of every bank pull " * 4000)
        place = os.path.join(folder, f"shortened-{ranks}")
        words = ["model.hidden_size=16", "model.intermediate_size=16", "model.num_hidden_layers=1",
                 f"data.path={folder}", f"data.train={path}", f"data.test={path}",
                 "data.sequence=16", "data.workers=1", "batch.global=8", "log.tensorboard=false",
                 "trainer.max_epochs=10000", "trainer.limit_val_batches=0",
                 "trainer.log_every_n_steps=1", "schedule.warmup_steps=0"]
        child = start(on_ranks(ranks, train("llama-tiny", place, *words)))
        wait_for(lambda place=place: len(losses(place)) > 2, "training", child=child)
        os.truncate(path, 64)
        _, errors, code = finish(child)
        said = [line for line in errors.splitlines() if path in line]
        assert code == 1 and said and (ranks > 1 or len(said) == 1), f"{code}: {errors}"
        assert "was changed while" in said[0], said


def main():
    seed = int(os.environ.get("TRIREME_TEST_SEED", random.randrange(1 << 30)))
    print(f"TRIREME_TEST_SEED={seed}")
    random.seed(seed)
    with (tempfile.TemporaryDirectory(prefix="trireme-faults-") as folder,
          tempfile.TemporaryDirectory(prefix="trireme-tmp-") as temporary):
        os.environ["TMPDIR"] = temporary
        for check in (check_not_finite, check_nan_in_weights, check_shortened_data, check_no_room,
                      check_restart, check_under_the_launcher, check_everything_killed,
                      check_lost_ranks):
            timed(check, folder)


if __name__ == "__main__":
    main()
