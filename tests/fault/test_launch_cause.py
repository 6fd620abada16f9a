#!/usr/bin/env python3
"""What `trireme run` prints of a failure: each sentence once, and the cause, not its victims.

usage: test_launch_cause.py BUILD_FOLDER
"""
import json
import os
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import (SYNTHETIC, TRIREME, check_all, run, train)  # noqa: E402

SENTENCE = "the disk is on fire"


def workers(script, *flags, ranks=3, code=1):
    words = [TRIREME, "run", "--standalone", "--nproc-per-node", str(ranks), *flags, "sh", "-c",
             script]
    return run(words, code).stderr


def cause(err):
    return err[err.index("root cause"):]


def says(is_said):
    error = {"message": {"message": f"TRI_IO: {SENTENCE}", "errorCode": 1,
                         "extraInfo": {"timestamp": "2000000000", "said": is_said}}}
    return f"printf %s '{json.dumps(error)}' >$TORCHELASTIC_ERROR_FILE; "


def check_one_sentence(_):
    """By a worker, or by the launcher where no worker has or nobody sees what it printed."""
    aloud = f"echo '{SENTENCE}' >&2; {says(True)}"
    silent = says(False)
    several = f"if test $RANK = 1; then {aloud} else trap '' TERM; sleep 0.3; {silent} fi; "
    for script, flags in ((several, ()), (silent, ()), (aloud, ("--redirects", "2")),
                          (several, ("--redirects", "2")), (several, ("--tee", "2")),
                          (several, ("--local-ranks-filter", "0"))):
        err = workers(script + "exit 1", *flags)
        assert err.count(SENTENCE) == 1, f"{flags} {script}: {err}"


def check_stopped(_):
    """The rank that stood still is the cause, not the one that gave up waiting for it."""
    err = workers("if test $RANK = 1; then kill -STOP $$; fi; sleep 1; " + says(False) +
                  "test $RANK = 0 || sleep 60; exit 3")
    assert "rank 1 (local rank 1)" in cause(err) and "stood still" in cause(err), err
    assert "rank 0" not in cause(err), err


def check_killed(_):
    """Nor is it the rank that wrote down first that another one is gone."""
    err = workers("if test $RANK = 2; then sleep 0.5; kill -KILL $$; fi; trap '' TERM; sleep 0.7; "
                  "exit 1")
    assert "rank 2 (local rank 2)" in cause(err) and "SIGKILL" in cause(err), err


def check_training(folder):
    """Bad input and a loss that explodes: one line, however many ranks."""
    words = [*SYNTHETIC, "data.samples=64", "data.test_samples=8", "batch.global=16"]
    place = os.path.join(folder, "run")
    for more, code, sentence in (
            (["init=/nowhere/at/all"], 2, "/nowhere/at/all: cannot open"),
            (["optimizer.name=sgd", "optimizer.lr=1e6"], 1, "try a smaller optimizer.lr"),
            (["optimizer.lr=-1"], 2, "'optimizer.lr' has to be")):
        done = run([TRIREME, "run", "--standalone", "--nproc-per-node", "3",
                    *train("mlp-jax", place, *words, *more)], code)
        assert done.stderr.count(sentence) == 1, done.stderr


def main():
    with tempfile.TemporaryDirectory(prefix="trireme-cause-") as folder:
        sys.exit(check_all((check_one_sentence, check_stopped, check_killed, check_training),
                           folder))


if __name__ == "__main__":
    main()
