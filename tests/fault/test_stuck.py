#!/usr/bin/env python3
"""A rank that lives but does not move, because it reads from an empty pipe. The others name it soon
with what it does, and the run ends at comm.timeout_s. A rank that is only slow is named and lives.

usage: test_stuck.py BUILD_FOLDER
"""
import concurrent.futures
import os
import re
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import (SYNTHETIC, TRIREME, end_all, entries, finish, on_ranks, start,  # noqa: E402
                  start_ranks, timed, train)

# Within this time a rank that does not move is named, and a run ends. The line comes after 10 s,
# the end after comm.timeout_s and the time that the launcher leaves its workers; the rest is for a
# busy machine. At the default settings a run would end after 300 s.
ENDED_S = 60.0
HOST = os.uname().nodename
PROGRAM = os.path.join(os.path.dirname(TRIREME), "fault_victim")
WORDS = [*SYNTHETIC, "data.samples=48", "data.test_samples=16", "batch.global=24",
         "trainer.max_epochs=1", "trainer.limit_val_batches=1"]


def command(place, *more):
    return [PROGRAM, *train("mnist-cnn", place, *WORDS, *more)[1:]]


def first_line(child, pattern, seconds):
    """The lines on a process's standard error up to the first one that matches the pattern."""
    end, lines = time.monotonic() + seconds, []
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        while True:
            line = pool.submit(child.stderr.readline)
            try:
                lines.append(line.result(timeout=max(0.0, end - time.monotonic())))
            except concurrent.futures.TimeoutError:
                child.kill()
                raise AssertionError(f"no '{pattern}' in {seconds} s: {lines}") from None
            assert lines[-1], f"it ended without '{pattern}': {lines}"
            if re.search(pattern, lines[-1]):
                return lines


def check_named(place):
    """At default settings: a blocked read in the middle of the training."""
    ranks = start_ranks(command(place), 2, VICTIM="1,loading data,2,0")
    try:
        begin = time.monotonic()
        lines = first_line(ranks[0], r"rank 1 \(.*\) does not move", ENDED_S)
        line = lines[-1]
        for part in (f"rank 1 ({HOST}) does not move", "loading data of step 1", "rank 0 waits",
                     "300 s"):
            assert part in line, f"no '{part}' in: {line}"
        assert all(child.poll() is None for child in ranks), "ended long before its time"
    finally:
        end_all(ranks)
    return f"{time.monotonic() - begin:.1f} s"


def check_ended(place, what, place_in_text, launcher):
    """With a small comm.timeout_s the run ends, whatever action a rank is stuck in. The process of
    the stuck rank ends too."""
    more = ["comm.timeout_s=3"]
    begin = time.monotonic()
    if launcher:
        ranks = [start(on_ranks(2, command(place, *more)),
                       env={**os.environ, "VICTIM": f"1,{what},1,0"})]
    else:
        ranks = start_ranks(command(place, *more), 2, VICTIM=f"1,{what},1,0")
    try:
        _, err, code = finish(ranks[0], ENDED_S)
        assert code == 1, f"{what}: code {code}: {err}"
        cause = rf"rank 1 \(host {HOST}, pid \d+\) did not join in 3 s \(comm.timeout_s\); " \
                rf"it is in {place_in_text}"
        assert re.search(cause, err), f"{what}: no cause in: {err}"
        for child in ranks[1:]:
            _, err, code = finish(child, ENDED_S)
            assert code == 1, f"{what}: code {code} of the rank that stood still: {err}"
            assert re.search(cause, err), f"{what}: no cause in: {err}"
    finally:
        end_all(ranks)
    return f"{time.monotonic() - begin:.1f} s"


def check_all(place):
    """All ranks are stuck before the first step, so that no rank waits for another."""
    ranks = start_ranks(command(place, "comm.timeout_s=12"), 2, VICTIM="-1,opening data,1,0")
    try:
        for rank, child in enumerate(ranks):
            _, err, code = finish(child, ENDED_S)
            assert code == 1, f"code {code} of rank {rank}: {err}"
            line = rf"rank 0 \({HOST}\) does not move for 1\d s: it is in opening data,? .*no other"
            assert len(re.findall(line, err)) == (rank == 0), f"no '{line}' in: {err}"
            cause = rf"trireme: rank 0 \(host {HOST}, pid \d+\) did not move for 12 s .*opening"
            assert re.search(cause, err), f"no cause in: {err}"
        assert not os.path.exists(place), "a run folder was made"
    finally:
        end_all(ranks)


def check_absent(place):
    """One of the two ranks is never started: the other one names it."""
    for absent in range(2):
        where = os.path.join(place, str(absent))
        ranks = start_ranks(command(where, "comm.timeout_s=12"), 2, only=[1 - absent])
        try:
            _, err, code = finish(ranks[0], ENDED_S)
            assert code == 1, f"code {code}: {err}"
            line = rf"rank {absent} \({HOST}\) does not move: it has not arrived"
            assert len(re.findall(line, err)) == 1, f"no '{line}' in: {err}"
            advice = rf"{line}.*RANK={1 - absent} WORLD_SIZE=2 .*TRIREME_LAUNCHER=none"
            assert re.search(advice, err), f"no '{advice}' in: {err}"
            assert re.search(rf"rank {absent} of 2 did not arrive within 12 s", err), err
        finally:
            end_all(ranks)


def check_slow(place):
    """A rank that is stuck for less time than the limit is named, and the run is completed."""
    ranks = start_ranks(command(place), 2, VICTIM="1,FORWARD,3,-13")
    try:
        _, err, code = finish(ranks[0], 3 * ENDED_S)
        assert code == 0, f"code {code}: {err}"
        assert len(re.findall(rf"rank 1 \({HOST}\) does not move .* in FORWARD '", err)) == 1, err
        assert entries(place, "end")[0]["status"] == "completed"
    finally:
        end_all(ranks)


def check_rooms(folder):
    rows = [("loading data", "loading data", True), ("loading data", "loading data", False),
            ("FORWARD", "FORWARD '", False), ("STEP", "STEP '", False), ("SAVE", "SAVE '", False),
            ("evaluation", "evaluation", False), ("opening data", "opening data", False),
            ("writing metrics", "writing metrics", False), ("planning", "planning", False)]
    # All checks run at the same time, because they mostly wait.
    with concurrent.futures.ThreadPoolExecutor(len(rows) + 4) as pool:
        named = pool.submit(check_named, os.path.join(folder, "named"))
        absent = pool.submit(check_absent, os.path.join(folder, "absent"))
        slow = pool.submit(check_slow, os.path.join(folder, "slow"))
        still = pool.submit(check_all, os.path.join(folder, "all"))
        ended = [pool.submit(check_ended, os.path.join(folder, str(i)), *row)
                 for i, row in enumerate(rows)]
        for row, future in zip(rows, ended):
            print(f"  stuck in {row[0]}, a limit of 3 s: ended after {future.result()}")
        print(f"  named after {named.result()}")
        slow.result()
        still.result()
        absent.result()


with tempfile.TemporaryDirectory(prefix="trireme-stuck-") as temporary:
    timed(check_rooms, temporary)
