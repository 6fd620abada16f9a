#!/usr/bin/env python3
"""Launchers that set the rank and the number of ranks, but not how many are on this host.

usage: test_bare_ranks.py BUILD_FOLDER
"""
import os
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import (SYNTHETIC, check_same, entries, finish, losses,  # noqa: E402
                  on_ranks, run, start, timed, train)

RANKS = 2
WORDS = [*SYNTHETIC, "data.samples=48", "data.test_samples=16", "batch.global=24",
         "trainer.max_epochs=1", "batch.micro=8"]
LAUNCHERS = {
    "bare": lambda rank: {"RANK": rank, "WORLD_SIZE": RANKS, "MASTER_ADDR": "127.0.0.1",
                          "MASTER_PORT": 20000 + os.getpid() % 10000},
    "flux": lambda rank: {"FLUX_TASK_RANK": rank, "FLUX_JOB_SIZE": RANKS,
                          "FLUX_TASK_LOCAL_ID": rank, "FLUX_JOB_ID": f"f{os.getpid()}"},
}


def check_launcher(folder, name, wanted):
    place = os.path.join(folder, name)
    ranks = [start(train("mnist-cnn", place, *WORDS),
                   env={**os.environ, **{k: str(v) for k, v in LAUNCHERS[name](rank).items()}})
             for rank in range(RANKS)]
    for child in ranks:
        _, err, code = finish(child, 60)
        assert code == 0, f"{name}: code {code}: {err}"
    assert entries(place, "end")[0]["status"] == "completed"
    check_same(losses(place), wanted, name)


with tempfile.TemporaryDirectory(prefix="trireme-bare-") as temporary:
    told = os.path.join(temporary, "told")
    run(on_ranks(RANKS, train("mnist-cnn", told, *WORDS)))
    for launcher in LAUNCHERS:
        timed(check_launcher, temporary, launcher, losses(told))
