#!/usr/bin/env python3
"""A run is interrupted within an epoch and goes on with another number of ranks, 4, then 3, then 4:
its log of samples shows that the epoch saw every sample exactly once, and each step has the loss of
one rank.

usage: test_sample_log.py BUILD_FOLDER
"""
import os
import signal
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import runs
import samples

# The last step of an epoch is smaller. A step on 3 ranks has 8 micro-batches, which not all have
# the same number of.
COUNT, STEPS, EPOCHS = 1603, 101, 2
COMMON = [*runs.SYNTHETIC, "data.shape=[1,8,8]", f"data.samples={COUNT}", "data.test_samples=40",
          "batch.global=16", "batch.micro=2", f"trainer.max_epochs={EPOCHS}",
          "optimizer.momentum=0.9", "checkpoint.every_n_steps=5", "trainer.deterministic=true",
          "log.samples=true", "log.progress=false"]


def interrupt(words, run_dir, step, number, code):
    child = runs.start(words)
    runs.wait_for(lambda: max(runs.losses(run_dir), default=0) >= step, f"step {step}", 60, child)
    child.send_signal(number)
    out, err, found = runs.finish(child)
    assert found == code, f"exit code {found}, not {code}: {out}{err}"
    runs.check_nothing_left()


def check_interrupted(folder):
    one, run_dir = (os.path.join(folder, name) for name in ("one", "many"))
    runs.run(runs.train("mlp-jax", one, *COMMON))
    wanted, replicas = samples.check_exactly_once(one, COUNT, STEPS, EPOCHS)
    assert replicas == [1]
    words = runs.train("mlp-jax", run_dir, *COMMON)
    # The launcher is killed, and its ranks with it; what they did since the checkpoint is repeated.
    interrupt(runs.on_ranks(4, words), run_dir, 30, signal.SIGKILL, -signal.SIGKILL)
    interrupt(runs.on_ranks(3, words), run_dir, 60, signal.SIGTERM, 75)
    done = runs.run(runs.on_ranks(4, words))
    begun = sorted({line["from"] for line in samples.lines(run_dir)})
    assert len(begun) == 3 and begun[0] == 0 < begun[1] < begun[2] < STEPS, \
        f"the run was to be interrupted within its first epoch: {begun}\n{done.stderr}"
    got, replicas = samples.check_exactly_once(run_dir, COUNT, STEPS, EPOCHS)
    assert replicas == [4, 3, 4], replicas
    assert got == wanted, "a step took other samples than one rank's"
    runs.check_same(runs.losses(run_dir), runs.losses(one), "4, 3, 4 ranks")
    print(f"  4 ranks to step {begun[1]}, 3 to {begun[2]}, 4 to {STEPS * EPOCHS}")


def check_same_beginning(folder):
    """Attempts that begin at the same step, or at an earlier one than the attempt before, on other
    numbers of ranks: killed before the first checkpoint, and resumed again from one checkpoint."""
    run_dir = os.path.join(folder, "again")
    words = runs.train("mlp-jax", run_dir, *COMMON, "checkpoint.every_n_steps=50",
                       "checkpoint.save_top_k=-1", "checkpoint.save_last=false",
                       "trainer.limit_val_batches=0")
    interrupt(runs.on_ranks(4, words), run_dir, 3, signal.SIGKILL, -signal.SIGKILL)
    for ranks, steps in (3, 60), (2, 75), (4, 110), (2, 120):
        runs.run(runs.on_ranks(ranks, [*words, f"trainer.max_steps={steps}"]))
    step_50 = os.path.join(run_dir, "checkpoints", "step-00000050")
    runs.run(runs.on_ranks(4, [*words, "--resume", step_50]))
    begun = {line["attempt"]: line["from"] for line in samples.lines(run_dir)}
    assert begun == {1: 0, 2: 0, 3: 50, 4: 50, 5: 101, 6: 50}, begun
    _, replicas = samples.check_exactly_once(run_dir, COUNT, STEPS, EPOCHS)
    assert replicas == [3, 4], replicas


def check_unknown_attempt(folder):
    """Samples that could not be told from those of an earlier attempt are not logged."""
    run_dir = os.path.join(folder, "unknown")
    os.makedirs(run_dir)
    with open(os.path.join(run_dir, ".attempts"), "w", encoding="utf-8") as file:
        file.write("many")
    words = runs.train("mlp-jax", run_dir, *COMMON, "trainer.max_steps=5")
    done = runs.run(runs.on_ranks(2, words))
    assert done.stderr.count("are not logged") == 1, done.stderr
    assert samples.lines(run_dir) == [] and len(runs.losses(run_dir)) == 5


def check_shared_replicas(folder):
    """Ranks that share the layers of a replica read the same samples, and one of them logs."""
    run_dir = os.path.join(folder, "tensor")
    words = runs.train("mlp-jax", run_dir, *COMMON, "trainer.max_epochs=1",
                       "strategy.mesh.tensor=2", "strategy.tensor={fc1: column, fc2: row}",
                       "trainer.deterministic=false")
    runs.run(runs.on_ranks(4, words))
    _, replicas = samples.check_exactly_once(run_dir, COUNT, STEPS, 1)
    assert replicas == [2] and sorted(os.listdir(os.path.join(run_dir, "logs"))) == [
        f"samples-rank-{rank}.jsonl" for rank in (0, 2)], os.listdir(os.path.join(run_dir, "logs"))


def check_unwritable(folder):
    """A log that cannot be written is given up with one warning, and the run goes on."""
    run_dir = os.path.join(folder, "unwritable")
    os.makedirs(run_dir)
    with open(os.path.join(run_dir, "logs"), "w", encoding="utf-8"):
        pass
    done = runs.run(runs.train("mlp-jax", run_dir, *COMMON, "trainer.max_steps=5"))
    assert done.stderr.count("are not logged") == 1, done.stderr
    assert len(runs.losses(run_dir)) == 5


def check_torn_line(folder):
    """What is left of a line is removed before the next process appends its own."""
    run_dir = os.path.join(folder, "torn")
    runs.run(runs.train("mlp-jax", run_dir, *COMMON, "trainer.max_steps=5"))
    whole = samples.lines(run_dir)
    path = os.path.join(run_dir, "logs", "samples-rank-0.jsonl")
    with open(path, "a", encoding="utf-8") as file:
        file.write('{"step":6,"epoch":0,"repl')
    done = runs.run(runs.train("mlp-jax", run_dir, *COMMON, "trainer.max_steps=10"))
    assert f"{path}: removed its last 25 bytes" in done.stderr, done.stderr
    now = samples.lines(run_dir)
    assert now[:len(whole)] == whole and {line["step"] for line in now[len(whole):]} == {
        6, 7, 8, 9, 10}, now[len(whole):]


def check_pipe(folder):
    """A pipe, which nobody may ever read, does not stop the run."""
    run_dir = os.path.join(folder, "pipe")
    os.makedirs(os.path.join(run_dir, "logs"))
    os.mkfifo(os.path.join(run_dir, "logs", "samples-rank-0.jsonl"))
    done = runs.run(runs.train("mlp-jax", run_dir, *COMMON, "trainer.max_steps=5"))
    assert done.stderr.count("pipe or socket") == 1, done.stderr


def check_held_back(folder):
    """Numbers are those in the files, from which validation samples are taken anywhere."""
    run_dir = os.path.join(folder, "held-back")
    runs.run(runs.train("mlp-jax", run_dir, *COMMON, "data.samples=64", "data.val_fraction=0.5",
                        "trainer.max_epochs=1", "trainer.limit_val_batches=0"))
    numbers = [number for line in samples.lines(run_dir) for number in line["samples"]]
    assert len(set(numbers)) == 32 and max(numbers) in range(33, 64), numbers


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as where:
        sys.exit(1 if runs.check_all([check_interrupted, check_same_beginning,
                                      check_unknown_attempt, check_shared_replicas,
                                      check_unwritable, check_torn_line, check_pipe,
                                      check_held_back], where) else 0)
