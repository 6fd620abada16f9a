#!/usr/bin/env python3
"""Ranks that see each other's processes under other pids or not at all, as in one container per
rank: no rank is declared dead while it lives, and a rank that dies is still noticed.

usage: test_namespaces.py BUILD_FOLDER
"""
import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import (SOON, SYNTHETIC, TRIREME, end_all, entries, finish, losses,  # noqa: E402
                  start_ranks, timed, train, wait_for)

PROGRAM = os.path.join(os.path.dirname(TRIREME), "fault_victim")
WORDS = [*SYNTHETIC, "data.samples=48", "data.test_samples=16", "batch.global=24"]
# Commands that start a process in a PID namespace of its own: with a /proc of its own, as in a
# container, and with a /proc that still shows the processes outside.
APART = [["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"],
         ["unshare", "--pid", "--fork", "--kill-child"]]
USER = ["--user", "--map-root-user"]


def start(place, apart, *more, **environment):
    """Starts two ranks, rank 1 by the command `apart` in a PID namespace of its own."""
    words = [PROGRAM, *train("mnist-cnn", place, *WORDS, *more)[1:]]
    return [start_ranks(words, 2, only=[0], port=port(place), **environment)[0],
            start_ranks([*apart, *words], 2, only=[1], port=port(place), **environment)[0]]


def port(place):
    return 20000 + hash(place) % 10000


def check_lives(place, apart):
    """Rank 0 waits for rank 1 longer than a rank may be without a heartbeat, and still does not
    declare it dead, because rank 1's heartbeats arrive."""
    ranks = start(place, apart, "trainer.max_epochs=1", VICTIM="1,FORWARD,3,-6")
    try:
        for rank, child in enumerate(ranks):
            _, err, code = finish(child, 120)
            assert code == 0, f"{apart}: code {code} of rank {rank}: {err}"
        assert entries(place, "end")[0]["status"] == "completed"
    finally:
        end_all(ranks)


def check_dies(place, apart):
    ranks = start(place, apart, "trainer.max_steps=100000", "trainer.max_epochs=-1",
                  "trainer.limit_val_batches=0", "checkpoint.every_n_epochs=0")
    try:
        assert wait_for(lambda: len(losses(place)) > 3, "steps", child=ranks[0])
        begin = time.monotonic()
        ranks[1].kill()  # kills the command `unshare`, and so (--kill-child) rank 1, its child
        _, err, code = finish(ranks[0], SOON)
        assert code == 1, f"{apart}: code {code}: {err}"
        assert re.search(r"rank 1 \(host .* does not move: no heartbeat", err), err
    finally:
        end_all(ranks)
    print(f"  noticed after {time.monotonic() - begin:.1f} s")


def main():
    with tempfile.TemporaryDirectory(prefix="trireme-namespaces-") as folder:
        ways = []
        for apart in APART:
            for flags in ([], USER):
                way = [*apart[:1], *flags, *apart[1:]]
                if subprocess.run([*way, "true"], capture_output=True, check=False).returncode == 0:
                    ways.append(way)
                    break
        if len(ways) < len(APART):
            print("skipped: unshare may not make PID namespaces here")
            sys.exit(77)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            done = [pool.submit(timed, check, os.path.join(folder, f"{check.__name__}{i}"), way)
                    for i, way in enumerate(ways) for check in (check_lives, check_dies)]
            for one in done:
                one.result()


if __name__ == "__main__":
    main()
