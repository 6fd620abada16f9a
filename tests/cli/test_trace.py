#!/usr/bin/env python3
"""The trace of a run: JSON that loads, all ranks and lanes on one clock, actions that nest.

usage: test_trace.py BUILD_FOLDER
"""
import json
import os
import signal
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import (SYNTHETIC, TRIREME, finish, losses, on_ranks, run, start, timed,  # noqa: E402
                  train, wait_for)

SMALL = [*SYNTHETIC, "data.samples=240", "data.test_samples=16", "batch.global=24",
         "trainer.max_epochs=1"]


def load(path):
    """The actions by (rank, row), and the names of the rows, after checking their form."""
    with open(path, encoding="utf-8") as file:
        trace = json.load(file)
    rows, names, processes = {}, {}, {}
    for event in trace["traceEvents"]:
        key = event["pid"], event["tid"]
        if event["ph"] == "M":
            if event["name"] == "thread_name":
                names[key] = event["args"]["name"]
            if event["name"] == "process_name":
                processes[event["pid"]] = event["args"]["name"]
            continue
        assert event["ph"] == "X" and event["dur"] >= 0 and event["ts"] >= 0, event
        assert event["name"].startswith(event["cat"]), event
        rows.setdefault(key, []).append(event)
    ranks = trace["otherData"]["ranks"]
    assert sorted(processes) == list(range(ranks)), processes
    assert len(trace["otherData"]["dropped"]) == ranks
    for key in rows:
        assert key in names, f"row {key} has no name"
    return rows, names, trace["otherData"]


def check_nesting(events, row):
    """Within a row two actions lie one after the other or one inside the other."""
    open_ends = []
    for event in sorted(events, key=lambda e: (e["ts"], -e["dur"])):
        begin, end = event["ts"], event["ts"] + event["dur"]
        while open_ends and open_ends[-1] <= begin + 0.002:  # times have three decimals
            open_ends.pop()
        assert not open_ends or end <= open_ends[-1] + 0.002, f"row {row}: {event} sticks out"
        open_ends.append(end)


def check_ranks(folder, ranks):
    path = os.path.join(folder, f"trace-{ranks}.json")
    done = run(on_ranks(ranks, train("mlp-jax", os.path.join(folder, f"run-{ranks}"), *SMALL,
                                     "--trace", path)))
    assert f"{path} has " in done.stderr and f"of {ranks} rank" in done.stderr, done.stderr
    rows, names, other = load(path)
    assert other["ranks"] == ranks and other["dropped"] == [0] * ranks, other
    for row, events in rows.items():
        check_nesting(events, row)
    norms = []
    for rank in range(ranks):
        lanes = {names[key]: rows[key] for key in rows if key[0] == rank}
        compute = lanes["compute"]
        kinds = {event["cat"] for event in compute}
        assert {"FORWARD", "BACKWARD", "NORM", "STEP", "loading data"} <= kinds, kinds
        # What rank 0 alone does for a checkpoint is apart, so that ranks can be compared.
        assert "SAVE" in kinds and ("COMMIT" in kinds) == (ranks > 1 and rank == 0), (rank, kinds)
        steps = sum(event["cat"] == "NORM" for event in compute)
        assert steps == 10, steps
        assert all(event["args"]["round"] >= 0 for event in compute if event["cat"] == "FORWARD")
        if ranks == 1:
            continue
        sums = [event for event in lanes["world"] if event["cat"] == "all_reduce"]
        assert all(event["args"]["sequence"] > 0 and event["args"]["bytes"] > 0 for event in sums)
        norms.append([event for event in sums if event["name"] == "all_reduce NORM"])
        assert len(norms[-1]) >= steps, f"{len(norms[-1])} reductions in {steps} steps"
    # On one clock: no rank leaves a reduction before every rank has come to it.
    for same in zip(*norms):
        assert len({event["args"]["sequence"] for event in same}) == 1, same
        latest = max(event["ts"] for event in same)
        assert all(event["ts"] + event["dur"] >= latest - 0.002 for event in same), same


def check_device(folder):
    """A device that runs behind the host tells when it did its work; the host's lane shows when it
    was given the work."""
    path = os.path.join(folder, "trace-far.json")
    os.environ["TRIREME_FAR_DELAY_US"] = "300"
    run(on_ranks(2, train("mlp-jax", os.path.join(folder, "run-far"), *SMALL, "--trace", path,
                          "--device", "far")))
    del os.environ["TRIREME_FAR_DELAY_US"]
    rows, names, _ = load(path)
    for rank in range(2):
        lanes = {names[key]: rows[key] for key in rows if key[0] == rank}
        device, host = lanes["device"], lanes["compute"]
        check_nesting(device, "device")
        check_nesting(host, "compute")
        assert not any(event["cat"] in ("FORWARD", "BACKWARD", "STEP") for event in host)
        issued = [event for event in host if event["cat"] == "ISSUE"]
        assert len(issued) == len(device), f"{len(issued)} issued, {len(device)} done"
        kinds = {event["cat"] for event in device}
        assert {"FORWARD", "BACKWARD", "NORM", "STEP"} <= kinds, kinds
        issued.sort(key=lambda event: event["ts"])
        device.sort(key=lambda event: event["ts"])
        late = 0
        for one, other in zip(issued, device):
            assert other["ts"] >= one["ts"] - 0.002, (one, other)
            late += other["ts"] > one["ts"] + one["dur"]
        assert late > len(device) / 2, f"{late} of {len(device)} ran after they were issued"


def check_measure():
    """plan --measure takes the device's times, not those of issuing."""
    os.environ["TRIREME_FAR_DELAY_US"] = "20000"
    done = run([TRIREME, "plan", "recipes/mlp-jax.yaml", *SYNTHETIC, "--measure", "--json",
                "--device", "far"])
    del os.environ["TRIREME_FAR_DELAY_US"]
    step_s = json.loads(done.stdout)["estimate"]["step_s"]
    assert step_s > 0.01, f"a step of {step_s} s, although each kernel begins 10 ms late"


def check_bench(folder):
    path = os.path.join(folder, "bench.json")
    run(on_ranks(2, [TRIREME, "bench", "train", "recipes/mlp-jax.yaml", *SYNTHETIC,
                     "batch.global=32", "--seconds", "0.3", "--trace", path]))
    rows, names, _ = load(path)
    assert "compute" in names.values() and len(rows[0, 0]) > 100
    # The losses of a device that computes nothing are 0; the line is JSON whatever the name.
    done = run([TRIREME, "bench", "train", "recipes/mlp-jax.yaml", *SYNTHETIC, "batch.global=32",
                'name=a"b', "--seconds", "0.3", "--device", "null", "--json"], None)
    if done.returncode == 1 and "other programs" in done.stderr:
        print("  nothing was measured: the machine is in use")
        return
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["loss"], found["name"]) == (0, 'a"b'), done.stdout


def check_refused(folder):
    run_dir = os.path.join(folder, "refused")
    for ranks in 1, 2:
        done = run(on_ranks(ranks, train("mlp-jax", run_dir, *SMALL, "--trace",
                                         os.path.join(folder, "no", "such", "folder"))), 2)
        assert "cannot write" in done.stderr and "no/such/folder" in done.stderr, done.stderr
        assert not os.path.exists(run_dir), "something was created"


def check_lost_rank(folder):
    """When a rank is lost, rank 0's own actions are written."""
    path, place = os.path.join(folder, "lost.json"), os.path.join(folder, "lost")
    child = start(on_ranks(2, train("mlp-jax", place, *SMALL, "trainer.max_epochs=10000",
                                    "trainer.limit_val_batches=0", "checkpoint.every_n_epochs=0",
                                    "--trace", path)))
    assert wait_for(lambda: len(losses(place)) >= 5, "steps", child=child)
    with open(f"/proc/{child.pid}/task/{child.pid}/children", encoding="ascii") as file:
        victims = [int(word) for word in file.read().split()]
    for victim in victims:
        with open(f"/proc/{victim}/environ", "rb") as file:
            if b"RANK=1" in file.read().split(b"\0"):
                os.kill(victim, signal.SIGKILL)
    _, err, code = finish(child)
    assert code != 0 and "1 rank;" in err, err
    rows, _, other = load(path)
    assert other["ranks"] == 1 and len(rows[0, 0]) > 5


def bench_rate(samples):
    done = run(on_ranks(2, [TRIREME, "bench", "train", "recipes/mlp-jax.yaml", *SYNTHETIC,
                            f"data.samples={samples}", "data.test_samples=16", "batch.global=512",
                            "--seconds", "0.5", "--json"]))
    return json.loads(done.stdout)["samples_per_s"]


def check_tail():
    """A last step of one sample counts as one sample: such an epoch is no faster than a whole one.
    Other programs may disturb one measurement, but not three."""
    ratios = []
    while len(ratios) < 3 and (not ratios or ratios[-1] > 1.5):
        ratios.append(bench_rate(513) / bench_rate(512))
    assert ratios[-1] <= 1.5, ratios


with tempfile.TemporaryDirectory() as temporary:
    timed(check_refused, temporary)
    for count in 1, 3:
        timed(check_ranks, temporary, count)
    timed(check_device, temporary)
    timed(check_measure)
    timed(check_bench, temporary)
    timed(check_tail)
    timed(check_lost_rank, temporary)
