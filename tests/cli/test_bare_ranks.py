#!/usr/bin/env python3
"""Launchers that set the rank and the number of ranks, but not which or how many are on this host,
or that are wrong about it.

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


def bare(rank, **more):
    return {"RANK": rank, "WORLD_SIZE": RANKS, "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": 20000 + os.getpid() % 10000, **more}


LAUNCHERS = {
    "bare": bare,
    "no local size": lambda rank: bare(rank, LOCAL_RANK=rank),
    "no local rank": lambda rank: bare(rank, LOCAL_WORLD_SIZE=RANKS),
    "permuted": lambda rank: bare(rank, LOCAL_RANK=RANKS - 1 - rank, LOCAL_WORLD_SIZE=RANKS),
    "virtual": lambda rank: bare(rank, LOCAL_RANK=0, LOCAL_WORLD_SIZE=RANKS,
                                 CUDA_VISIBLE_DEVICES=rank),
    "two launchers": lambda rank: bare(rank, LOCAL_RANK=0, LOCAL_WORLD_SIZE=1),
    "flux": lambda rank: {"FLUX_TASK_RANK": rank, "FLUX_JOB_SIZE": RANKS,
                          "FLUX_TASK_LOCAL_ID": rank, "FLUX_JOB_ID": f"f{os.getpid()}"},
}


# What each says, and what the message has to name: what was said, and what is.
LIARS = {
    "two of rank 0": (lambda rank: bare(rank, LOCAL_RANK=0),
                      ["local rank 0", "of the host's 2 ranks it is number 1"]),
    "too many": (lambda rank: bare(rank, LOCAL_RANK=rank + 1),
                 ["rank 0", "local rank 1", "2 ranks", "number 0"]),
    "too few": (lambda rank: bare(rank, LOCAL_WORLD_SIZE=1),
                ["has 1 of", "has 2"]),
}


def start_ranks(place, variables):
    return [start(train("mnist-cnn", place, *WORDS),
                  env={**os.environ, **{k: str(v) for k, v in variables(rank).items()}})
            for rank in range(RANKS)]


def check_liar(folder, name):
    variables, texts = LIARS[name]
    place = os.path.join(folder, name)
    messages = ""
    for child in start_ranks(place, variables):
        _, err, code = finish(child, 60)
        assert code == 2, f"{name}: code {code}: {err}"
        messages += err
    assert all(text in messages for text in texts), f"{name}: {messages}"
    assert not os.path.exists(place), "a refused run left a folder"


def check_launcher(folder, name, wanted):
    place = os.path.join(folder, name)
    for child in start_ranks(place, LAUNCHERS[name]):
        _, err, code = finish(child, 60)
        assert code == 0, f"{name}: code {code}: {err}"
    assert entries(place, "end")[0]["status"] == "completed"
    check_same(losses(place), wanted, name)


def check_too_many(folder):
    """Every rank of a run that is too large ends at once; one of them says why."""
    place, said = os.path.join(folder, "large"), {}
    for rank in 0, 1, 4096:
        variables = {k: str(v) for k, v in bare(rank, WORLD_SIZE=4097).items()}
        words = [*WORDS, "batch.global=4097", "data.samples=4097", "batch.micro=1"]
        done = run(train("mnist-cnn", place, *words), 2, env={**os.environ, **variables})
        said[rank] = done.stderr
    assert "4097 ranks" in said[0] and said[0].count("\n") == 1, said
    assert said[1] == said[4096] == "", said
    assert not os.path.exists(place), "a refused run left a folder"


with tempfile.TemporaryDirectory(prefix="trireme-bare-") as temporary:
    timed(check_too_many, temporary)
    told = os.path.join(temporary, "told")
    run(on_ranks(RANKS, train("mnist-cnn", told, *WORDS)))
    for launcher in LAUNCHERS:
        timed(check_launcher, temporary, launcher, losses(told))
    for liar in LIARS:
        timed(check_liar, temporary, liar)
