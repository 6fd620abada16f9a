#!/usr/bin/env python3
"""`trireme trace`: sums by action and rank, waiting and gaps, for a trace whose sums are known and
for a real one.

usage: test_trace_sums.py BUILD_FOLDER
"""
import json
import math
import os
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import SYNTHETIC, TRIREME, check_all, on_ranks, run, train  # noqa: E402

folder = None


def event(rank, thread, begin, length, name, **arguments):
    return {"ph": "X", "pid": rank, "tid": thread, "ts": begin, "dur": length,
            "cat": name.split()[0], "name": name, "args": arguments}


def lane(rank, thread, name):
    return {"ph": "M", "pid": rank, "tid": thread, "name": "thread_name", "args": {"name": name}}


def sums(path, *words, code=0):
    done = run([TRIREME, "trace", path, *words], code)
    return done.stdout if code == 0 else done.stderr


def write(name, content):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="ascii") as file:
        file.write(content if isinstance(content, str) else json.dumps(content))
    return path


def check_known():
    path = write("known.json", {"traceEvents": [
        lane(0, 0, "compute"), lane(0, 64, "shard"), lane(0, 65, "shard (2)"),
        lane(1, 0, "compute"),
        # Rank 0: 0 to 400 µs with a loading of 100 in it, a gap of 200, 600 to 1000.
        event(0, 0, 0, 400, "FORWARD a"), event(0, 0, 50, 100, "INPUT"),
        event(0, 0, 600, 400, "BACKWARD a"),
        event(0, 64, 100, 300, "REDUCE a", bytes=12), event(0, 65, 200, 300, "REDUCE b", bytes=30),
        # Rank 1: begins late, waits 700: 20 between actions, then in two WAITs. It waits another 60
        # inside BACKWARD.
        event(1, 0, 100, 100, "FORWARD a"), event(1, 0, 220, 80, "WAIT SEND"),
        event(1, 0, 300, 600, "WAIT RECV"), event(1, 0, 900, 100, "BACKWARD a"),
        event(1, 0, 920, 60, "WAIT NORM")]})
    found = json.loads(sums(path, "--json"))
    assert math.isclose(found["span_s"], 1e-3) and found["events"] == 10
    kinds = {(row["name"], row["lane"]): row for row in found["actions"]}
    for key, (count, seconds, moved) in {("BACKWARD", "compute"): (2, 440e-6, 0),
                                         ("FORWARD", "compute"): (2, 400e-6, 0),
                                         ("INPUT", "compute"): (1, 100e-6, 0),
                                         ("WAIT", "compute"): (3, 740e-6, 0),
                                         ("REDUCE", "shard"): (2, 600e-6, 42)}.items():
        row = kinds.pop(key)
        assert row["count"] == count and row["bytes"] == moved, row
        assert math.isclose(row["seconds"], seconds) and math.isclose(row["share"], seconds / 2e-3)
    assert not kinds
    assert {row["name"] for row in found["names"]} == {
        "FORWARD a", "BACKWARD a", "INPUT", "REDUCE a", "REDUCE b", "WAIT SEND", "WAIT RECV",
        "WAIT NORM"}
    assert [row["rank"] for row in found["ranks"]] == [0, 1]
    for row, busy in zip(found["ranks"], (800e-6, 140e-6)):
        assert math.isclose(row["busy_s"], busy) and math.isclose(row["waiting_s"], 1e-3 - busy)
    assert [(gap["rank"], gap["before"], gap["after"], gap["wait"]) for gap in found["gaps"]] == [
        (1, "FORWARD a", "BACKWARD a", "WAIT RECV"), (0, "FORWARD a", "BACKWARD a", ""),
        (1, "BACKWARD a", "BACKWARD a", "WAIT NORM")]
    assert math.isclose(found["gaps"][0]["seconds"], 700e-6)
    assert math.isclose(found["gaps"][1]["begin_s"], 400e-6)
    text = sums(path)
    assert "10 actions of 2 ranks in 1.00 ms" in text and "longest gaps" in text, text


def check_real():
    path = os.path.join(folder, "real.json")
    run(on_ranks(2, train("mlp-jax", os.path.join(folder, "run"), *SYNTHETIC, "data.samples=64",
                          "data.test_samples=8", "batch.global=16", "trainer.max_epochs=1",
                          "--trace", path)))
    found = json.loads(sums(path, "--json"))
    lanes = {}
    for row in found["actions"]:
        assert row["seconds"] >= 0
        lanes[row["lane"]] = lanes.get(row["lane"], 0) + row["share"]
    assert lanes and len(found["ranks"]) == 2
    for row in found["ranks"]:
        assert math.isclose(row["busy_s"] + row["waiting_s"], found["span_s"], rel_tol=1e-6)
    names = {row["name"] for row in found["actions"]}
    assert {"FORWARD", "BACKWARD", "NORM", "STEP"} <= names, names
    compute = next(row["lane"] for row in found["actions"] if row["name"] == "FORWARD")
    assert 0 < lanes[compute] <= 1 + 1e-6, lanes
    assert 0 < len(found["gaps"]) <= 10
    lengths = [gap["seconds"] for gap in found["gaps"]]
    assert lengths == sorted(lengths, reverse=True)


def check_many_gaps():
    """Of many gaps the ten longest are listed in order."""
    events, at = [lane(0, 0, "compute")], 0
    for i in range(40):
        events.append(event(0, 0, at, 10, f"STEP u{i}"))
        at += 10 + (7 * i) % 41
    found = json.loads(sums(write("gaps.json", {"traceEvents": events}), "--json"))
    wanted = sorted(((7 * i) % 41 for i in range(39)), reverse=True)[:10]
    assert [round(gap["seconds"] * 1e6) for gap in found["gaps"]] == wanted, found["gaps"]


def check_damaged():
    for content, part in (("", "is not a trace"), ("[1]", "is not a trace"),
                          ("{", "is not a trace"),
                          ({"traceEvents": []}, "no events"),
                          ({"traceEvents": [event(-1, 0, 0, 1, "A")]}, "event 0 is damaged"),
                          ({"traceEvents": [event(0, 0, 0, -1, "A")]}, "event 0 is damaged")):
        error = sums(write("bad.json", content), code=2)
        assert part in error and error.count("\n") == 1 and "bad.json" in error, error
    assert "none.json" in sums(os.path.join(folder, "none.json"), code=2)
    assert "which file" in run([TRIREME, "trace"], 2).stderr


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="trireme-sums-") as folder:
        sys.exit(1 if check_all([check_known, check_real, check_many_gaps, check_damaged]) else 0)
