"""What a run's sample log (log.samples) says: which samples each step took."""
import collections
import glob
import json
import os


def lines(run_dir):
    found = []
    for path in sorted(glob.glob(os.path.join(run_dir, "logs", "samples-rank-*.jsonl"))):
        with open(path, encoding="utf-8") as file:
            for line in file:
                if line.endswith("\n"): # else the process was killed while it wrote this line
                    found.append(json.loads(line))
    return found


def last_line(run_dir, rank):
    """The latest line of a rank, without reading the others; None: it has none yet."""
    path = os.path.join(run_dir, "logs", f"samples-rank-{rank}.jsonl")
    if not os.path.exists(path):
        return None
    with open(path, "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
        whole = [line for line in file.read().split(b"\n")[:-1] if line.startswith(b"{")]
    return json.loads(whole[-1]) if whole else None


def last_attempts(run_dir, steps):
    """By step up to `steps`: the lines of the latest attempt that took the step. A run that is
    started again repeats the steps after the last checkpoint, and only the last repetition
    counts."""
    latest = {}
    for line in lines(run_dir):
        if line["step"] > steps:
            continue
        of_step = latest.setdefault(line["step"], [])
        if of_step and line["attempt"] != of_step[0]["attempt"]:
            if line["attempt"] < of_step[0]["attempt"]:
                continue
            of_step.clear()
        of_step.append(line)
    return latest


def check_counts(seen, parts):
    """Checks that each sample of a source comes as often as the others, or once more."""
    counts, first = collections.Counter(seen), 0
    for samples, part in parts:
        often = [counts[i] for i in range(first, first + samples)]
        assert sum(often) == part and max(often) - min(often) <= 1, (samples, part, often)
        first += samples
    assert len(seen) == sum(part for _, part in parts), len(seen)


def check_exactly_once(run_dir, samples, steps_per_epoch, epochs, parts=None):
    """Checks that the lines of a step agree on the number of replicas, and that every epoch saw
    each sample exactly once or, of a mixture, each source its part: `parts` are the samples of
    each source and how many an epoch has of them. Returns the samples of each step, and the
    numbers of replicas in the order in which they changed."""
    latest = last_attempts(run_dir, epochs * steps_per_epoch)
    assert sorted(latest) == list(range(1, epochs * steps_per_epoch + 1)), "steps are missing"
    replicas, by_step = [], {}
    for step in sorted(latest):
        counts = {line["replicas"] for line in latest[step]}
        assert len(counts) == 1, f"step {step} was run by {counts} replicas"
        if not replicas or counts != {replicas[-1]}:
            replicas += counts
        by_step[step] = sorted(i for line in latest[step] for i in line["samples"])
    for epoch in range(epochs):
        seen = []
        for step in range(epoch * steps_per_epoch + 1, (epoch + 1) * steps_per_epoch + 1):
            assert {line["epoch"] for line in latest[step]} == {epoch}, f"step {step}"
            seen += by_step[step]
        check_counts(seen, parts or [(samples, samples)])
    return by_step, replicas
