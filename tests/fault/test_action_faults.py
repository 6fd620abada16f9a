#!/usr/bin/env python3
"""Kills or stops a rank at each kind of action (FORWARD, GATHER, …: what a step's schedule
consists of). The other ranks end soon, with a line that names the rank, its host and that action.
No process and no shared memory is left behind, and saved checkpoints are intact.

usage: test_action_faults.py BUILD_FOLDER
"""
import concurrent.futures
import os
import re
import signal
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import matrix  # noqa: E402
from runs import (SOON, SYNTHETIC, TRIREME, check_nothing_left, check_saved,  # noqa: E402
                  end_all, finish, start_ranks, state, timed, train, wait_for)

PROGRAM = os.path.join(os.path.dirname(TRIREME), "fault_victim")
ENDLESS = ["trainer.max_steps=100000", "trainer.max_epochs=-1", "batch.global=24",
           "trainer.limit_val_batches=0", "checkpoint.every_n_steps=2", "optimizer.name=adamw",
           "optimizer.lr=0.001", "log.tensorboard=false"]
CNN = ["mnist-convnet", *SYNTHETIC, "data.samples=49", "data.test_samples=8", "batch.micro=4"]
TIED = ["llama-tiny", *matrix.MODELS["tied"][0].split()[1:], "data.workers=1", "data.limit=96",
        "batch.micro=4"]
FSDP = ["strategy.name=fsdp", "strategy.persistent_bytes=0"]
OFFLOAD = [*FSDP, "strategy.offload=parameters", "trainer.precision=bf16-mixed"]
STORED = [*OFFLOAD, "strategy.offload_step=device"]
ON_HOST = [*OFFLOAD, "strategy.offload_step=host", "--device", "far"]
PIPELINE = ["strategy.name=pipeline"]
BUBBLES = [*PIPELINE, "strategy.schedule=zero-bubble"]
RECOMPUTE = [*FSDP, "strategy.recompute=block"]

# In each row: a kind of action; how many ranks there are; which of them is killed; at which of its
# actions of this kind, counted from 1; the recipe with its settings.
KILLED = [
    ("GATHER", 3, 1, 150, [*CNN, *FSDP]),
    ("RELEASE", 2, 0, 150, [*CNN, *FSDP]),
    ("CLEAR", 3, 2, 4, [*CNN, *FSDP]),  # in an epoch's last step rank 2 has no sample
    ("SCATTER", 3, 2, 100, [*CNN, *FSDP]),
    ("TAKE", 2, 1, 60, CNN),
    ("FORWARD", 2, 1, 100, CNN),
    ("BACKWARD", 3, 0, 100, CNN),
    ("REDUCE", 2, 1, 60, CNN),
    ("NORM", 3, 1, 9, CNN),
    ("STEP", 2, 0, 30, CNN),
    ("RECOMPUTE", 2, 1, 60, [*CNN, *RECOMPUTE]),
    ("SEND", 3, 1, 80, [*CNN, *PIPELINE]),
    ("RECV", 3, 2, 80, [*CNN, *PIPELINE]),
    ("BACKWARD_INPUT", 2, 1, 80, [*CNN, *BUBBLES]),
    ("BACKWARD_WEIGHT", 2, 0, 80, [*CNN, *BUBBLES]),
    ("TIE", 2, 1, 6, [*TIED, *PIPELINE]),
    ("FETCH", 2, 1, 60, [*CNN, *STORED]),
    ("LOAD", 2, 0, 30, [*CNN, *STORED]),
    ("EVICT", 2, 1, 30, [*CNN, *STORED]),
    ("PREPARE", 2, 1, 30, [*CNN, *STORED]),
    ("DOWNLOAD", 2, 1, 30, [*CNN, *ON_HOST]),
    ("HOST_STEP", 2, 0, 30, [*CNN, *ON_HOST]),
    ("UPLOAD", 2, 1, 30, [*CNN, *ON_HOST]),
]
STOPPED = [
    ("GATHER", 2, 1, 150, [*CNN, *FSDP]),
    ("SEND", 3, 1, 80, [*CNN, *PIPELINE]),
    ("FORWARD", 3, 2, 100, CNN),
    ("REDUCE", 4, 0, 60, CNN),
]


def check_all_kinds():
    """Checks that KILLED has a row for every kind of action that a schedule can have."""
    with open("src/plan/schedule.h", encoding="utf-8") as file:
        kinds = set(re.findall(r'^ +X\(\w+, "(\w+)", TRI_LANE', file.read(), re.M))
    missing = kinds - {row[0] for row in KILLED}
    assert len(kinds) > 15 and not missing, f"no rank is killed at {missing} of {kinds}"


def check_row(folder, number, row):
    kind, ranks, victim, count, words = row
    place = os.path.join(folder, f"{kind}-{number}")
    words = [word.format(data=folder) for word in [*words, *ENDLESS]]
    command = [PROGRAM, *train(words[0], place, *words[1:])[1:]]
    children = start_ranks(command, ranks, VICTIM=f"{victim},{kind},{count},{int(number)}")
    what = f"rank {victim} of {ranks}, {number.name} at {kind}"
    try:
        if number == signal.SIGKILL:
            out, err, code = finish(children[victim], 60)
            assert code == -signal.SIGKILL, f"{what}: it was not reached: code {code}: {out}{err}"
        if number == signal.SIGSTOP:
            pid = children[victim].pid
            assert wait_for(lambda: state(pid) == "T", f"{what}: reached", child=children[victim])
        begin = time.monotonic()
        for rank, child in enumerate(children):
            if rank == victim:
                continue
            _, err, code = finish(child, SOON)
            took = time.monotonic() - begin
            assert code == 1, f"{what}: code {code} of rank {rank}: {err}"
            lines = [line for line in err.splitlines() if line.startswith("trireme: ")
                     and not line.startswith("trireme: warning: ")]
            assert len(lines) == 1, f"{what}: {err}"
            named = f"rank {victim} (host {os.uname().nodename}, pid {children[victim].pid})"
            assert named in lines[0], f"{what}: no '{named}' in: {lines[0]}"
            # On a device that works asynchronously, the rank only issues the action to it. Then the
            # line has "in ISSUE 'FORWARD fc1'".
            assert re.search(rf"in (ISSUE ')?{kind}\b", lines[0]), f"{what}: {lines[0]}"
    finally:
        end_all(children)
    check_saved(place)
    return took


def check_rows(folder):
    matrix.write_text(folder)
    rows = [(signal.SIGSTOP, row) for row in STOPPED] + [(signal.SIGKILL, row) for row in KILLED]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:  # 4 at once: ranks mostly wait
        done = [pool.submit(check_row, folder, number, row) for number, row in rows]
        for (number, row), future in zip(rows, done):
            print(f"  {number.name} at {row[0]}: the others left after {future.result():.1f} s")
    check_nothing_left()


def main():
    timed(check_all_kinds)
    with tempfile.TemporaryDirectory(prefix="trireme-actions-") as folder:
        timed(check_rows, folder)


if __name__ == "__main__":
    main()
