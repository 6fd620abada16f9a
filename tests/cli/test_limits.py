#!/usr/bin/env python3
"""Limits of the system: few descriptors, a largest file size, a full or closed standard output. A
run works within them or ends with one line that says why.

usage: test_limits.py BUILD_FOLDER
"""
import ctypes
import os
import resource
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import SYNTHETIC, TRIREME, check_all, entries, last, on_ranks, run, train  # noqa: E402

SMALL = [*SYNTHETIC, "data.samples=32", "data.test_samples=8", "batch.global=16",
         "trainer.max_epochs=1"]


def bounded(kind, bound):
    return {"preexec_fn": lambda: resource.setrlimit(kind, (bound, bound))}


def check_few_descriptors():
    """Ranks meet although rank 0 may have fewer descriptors than a job may have ranks."""
    with tempfile.TemporaryDirectory(prefix="trireme-limits-") as folder:
        place = os.path.join(folder, "run")
        run(on_ranks(2, train("mlp-jax", place, *SMALL, "comm.timeout_s=60")),
            **bounded(resource.RLIMIT_NOFILE, 64))
        assert entries(place, "end")[-1]["status"] == "completed"


def check_largest_file():
    """A checkpoint over the file size limit is a failed write, reported with --quiet too, and does
    not end the run by a signal."""
    with tempfile.TemporaryDirectory(prefix="trireme-limits-") as folder:
        place = os.path.join(folder, "run")
        done = run(train("mlp-jax", place, *SMALL, "--quiet"), 1,
                   **bounded(resource.RLIMIT_FSIZE, 1 << 20))
        assert "warning: no checkpoint of step 2: " in done.stderr, done.stderr
        assert "File too large" in done.stderr, done.stderr
        assert entries(place, "train")[-1]["step"] == 2


def check_memory():
    """Too little memory is refused before it is used, and named as what it is."""
    with tempfile.TemporaryDirectory(prefix="trireme-limits-") as folder:
        place = os.path.join(folder, "run")
        words = train("mlp-jax", place, *SMALL, "batch.global=32768", "data.samples=32768")
        for command in (words, [TRIREME, "plan", *words[2:3], *words[5:]]):
            done = run(command, 2, **bounded(resource.RLIMIT_AS, 200 << 20))
            lines = done.stderr.splitlines()
            assert len(lines) == 1 and "ulimit -v" in lines[0], done.stderr
        assert not os.path.exists(place)
        done = run(train("mlp-jax", place, *SMALL, "strategy.memory=1", "batch.micro=1",
                         "batch.eval=1"), 2)
        assert "the least is" in done.stderr and not done.stderr.endswith("with \n"), done.stderr
        rows = [("cpu", mega) for mega in range(60, 140, 8)]
        for device, mega in [*rows, *(("far", mega) for mega in range(100, 320, 12))]:
            done = run(train("mlp-jax", place, *SMALL, "data.workers=8", "--device", device), None,
                       **bounded(resource.RLIMIT_AS, mega << 20))
            assert done.returncode in (0, 1, 2, 127), done  # 127: the libraries do not fit
            if done.returncode == 1 and "thread" in done.stderr.splitlines()[-1]:
                assert "ulimit -v" in done.stderr, done.stderr
            assert "internal" not in done.stderr and "TRI_INTERNAL" not in done.stderr, done.stderr


def check_stack():
    """A low limit of the stack is raised; one that may not be raised is refused."""
    def hold():
        """From here on not even root may raise a hard limit."""
        drop, resources = 24, 24  # PR_CAPBSET_DROP, CAP_SYS_RESOURCE
        ctypes.CDLL(None).prctl(drop, resources, 0, 0, 0)
        resource.setrlimit(resource.RLIMIT_STACK, (64 << 10, 64 << 10))

    with tempfile.TemporaryDirectory(prefix="trireme-limits-") as folder:
        place = os.path.join(folder, "run")
        words = train("mlp-jax", place, *SMALL)
        lines = run(words, 2, preexec_fn=hold).stderr.splitlines()
        assert len(lines) == 1 and "ulimit -s" in lines[0] and "128" in lines[0], lines
        assert not os.path.exists(place)
        hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
        run(words, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_STACK, (64 << 10, hard)))


def check_full_output():
    """Results that could not be printed are a failure with its reason."""
    for words in (["version"], ["--help"], ["train", "--keys"], ["data", "list"],
                  ["plan", "recipes/mlp-jax.yaml", *SMALL]):
        done = run(["sh", "-c", 'exec "$@" > /dev/full', "sh", TRIREME, *words], 1)
        lines = done.stderr.splitlines()
        assert len(lines) == 1, done.stderr
        assert lines[0].startswith("trireme: standard output: cannot write"), done.stderr


def check_closed_streams():
    """No file of the run takes the place of a closed stream and so gets what is printed."""
    with tempfile.TemporaryDirectory(prefix="trireme-limits-") as folder:
        place = os.path.join(folder, "run")
        run(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *train("mlp-jax", place, *SMALL)], 1)
        assert entries(place, "end")[-1]["status"] == "completed"
        run([TRIREME, "checkpoint", "verify", last(place)])
        for path, _, files in os.walk(place):
            for name in files:
                with open(os.path.join(path, name), "rb") as file:
                    assert b"completed after" not in file.read(), name


if __name__ == "__main__":
    sys.exit(check_all((check_few_descriptors, check_largest_file, check_memory, check_stack,
                        check_full_output, check_closed_streams)))
