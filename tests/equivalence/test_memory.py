#!/usr/bin/env python3
"""A rank takes the memory that the plan says. The kernel counts it while the rank trains (its own,
and its part of shared memory): never more than the plan's peak, and at most 5% less.

usage: test_memory.py BUILD_FOLDER
"""
import json
import os
import signal
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import runs  # noqa: E402

STEPS = 1  # after one nothing more is allocated
TEXT = tempfile.NamedTemporaryFile(suffix=".txt")  # letters at random, for no longer than the test
LLAMA = ["recipes/llama-tiny.yaml", f"data.train={TEXT.name}", f"data.test={TEXT.name}",
         "batch.eval=1", "data.workers=1"]
MNIST = ["recipes/mnist-cnn.yaml", *runs.SYNTHETIC[:4], "batch.eval=1", "batch.global=1024"]
WIDE = [*LLAMA, "model.hidden_size=512", "model.intermediate_size=1536",
        "model.num_attention_heads=8", "model.num_key_value_heads=8"]

# Name, ranks, recipe and settings.
CELLS = [
    ("mnist-cnn on one rank", 1, MNIST),
    ("mnist-cnn, ddp", 2, MNIST),
    ("llama on one rank", 1, [*WIDE, "batch.global=8"]),
    ("llama, recomputed", 1, [*WIDE, "batch.global=8", "strategy.recompute=block"]),
    ("llama, loss in chunks", 1, [*WIDE, "batch.global=8", "model.vocab_size=8192"]),
    ("llama, zero1", 2, [*WIDE, "batch.global=8", "strategy.name=zero1"]),
    ("llama, fsdp", 2, [*WIDE, "batch.global=8", "strategy.name=fsdp"]),
    ("llama, states offloaded", 1, [*WIDE, "batch.global=8", "strategy.offload=optimizer"]),
    ("llama, fsdp, all offloaded", 2, [*WIDE, "batch.global=8", "strategy.name=fsdp",
                                       "strategy.offload=parameters"]),
    ("llama, pipeline", 2, [*WIDE, "batch.global=8", "batch.micro=2", "strategy.name=pipeline"]),
]


def resident_bytes(pid):
    """The process's own memory, and its part of memory that several have mapped; files that
    are mapped are left out, since they can be read again. Nothing is saved meanwhile: a snapshot
    for a checkpoint comes and goes, and is taken only where there is room."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as lines:
        found = {words[0]: int(words[1]) for words in map(str.split, lines) if len(words) == 3}
    return 1024 * (found["Pss_Anon:"] + found["Pss_Shmem:"])


def measure(ranks, words, folder):
    run_dir = os.path.join(folder, "run")
    command = [runs.TRIREME, "train", *words, "--run-dir", run_dir, "log.tensorboard=false",
               "trainer.log_every_n_steps=1", "trainer.max_epochs=1000",
               "trainer.limit_val_batches=0", "checkpoint.every_n_epochs=0"]
    children = runs.start_ranks(command, ranks)
    try:
        runs.wait_for(lambda: len(runs.entries(run_dir, "train")) >= STEPS, "steps", 120,
                      children[0])
        return max(resident_bytes(child.pid) for child in children)
    finally:
        for child in children:
            child.send_signal(signal.SIGKILL)
        for child in children:
            child.communicate()


def check(name, ranks, words):
    planned = json.loads(runs.run([runs.TRIREME, "plan", *words, "--ranks", str(ranks),
                                   "--json"]).stdout)["memory"]
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        measured = measure(ranks, words, folder)
    ratio = measured / planned["peak"]
    print(f"{name}: {planned['peak'] / 1e6:.1f} MB planned, {measured / 1e6:.1f} MB taken, "
          f"{ratio:.3f} of it, {time.monotonic() - begin:.1f} s", flush=True)
    return 0.95 <= ratio <= 1


if __name__ == "__main__":
    TEXT.write(os.urandom(1 << 20))
    TEXT.flush()
    bad = [cell[0] for cell in CELLS if not check(*cell)]
    assert not bad, bad
