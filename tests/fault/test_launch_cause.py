#!/usr/bin/env python3
"""What `trireme run` prints about a failure: each text once, and the cause, not its consequences.

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


def write_error(is_printed):
    error = {"message": {"message": f"TRI_IO: {SENTENCE}", "errorCode": 1,
                         "extraInfo": {"timestamp": "2000000000", "said": is_printed}}}
    return f"printf %s '{json.dumps(error)}' >$TORCHELASTIC_ERROR_FILE; "


def check_one_sentence(_):
    """A worker prints the text; the launcher does so only if none did, or not on the console."""
    aloud = f"echo '{SENTENCE}' >&2; {write_error(True)}"
    silent = write_error(False)
    several = f"if test $RANK = 1; then {aloud} else trap '' TERM; sleep 0.3; {silent} fi; "
    for script, flags in ((several, ()), (silent, ()), (aloud, ("--redirects", "2")),
                          (several, ("--redirects", "2")), (several, ("--tee", "2")),
                          (several, ("--local-ranks-filter", "0"))):
        err = workers(script + "exit 1", *flags)
        assert err.count(SENTENCE) == 1, f"{flags} {script}: {err}"


def check_printed_by_another(folder):
    """A cause that did not print its text, as another worker did, refers to the lines above."""
    ready = os.path.join(folder, "ready")  # rank 1 ignores the launcher's SIGTERM
    script = (f"if test $RANK = 1; then trap '' TERM; touch {ready}; sleep 0.5; "
              f"echo '{SENTENCE}' >&2; {write_error(True)} else "
              f"while ! test -e {ready}; do sleep 0.05; done; {write_error(False)} fi; exit 1")
    err = workers(script, ranks=2)
    assert "rank 0" in cause(err) and "see the message above" in cause(err), err
    assert err.count(SENTENCE) == 1, err


def check_suspended(_):
    """The suspended rank is the cause, not the one whose wait for it timed out."""
    err = workers("if test $RANK = 1; then kill -STOP $$; fi; sleep 1; " + write_error(False) +
                  "test $RANK = 0 || sleep 60; exit 3")
    assert "rank 1 (local rank 1)" in cause(err) and "suspended by a signal" in cause(err), err
    assert "rank 0" not in cause(err), err


def check_killed(_):
    """The killed rank is the cause, not the rank that first reported that it is gone."""
    err = workers("if test $RANK = 2; then sleep 0.5; kill -KILL $$; fi; trap '' TERM; sleep 0.7; "
                  "exit 1")
    assert "rank 2 (local rank 2)" in cause(err) and "SIGKILL" in cause(err), err


def check_consequence(_):
    """The rank with bad input is the cause, not one that ended first because that rank gave up."""
    error = {"message": {"message": f"TRI_BAD_INPUT: {SENTENCE}", "errorCode": 2,
                         "extraInfo": {"timestamp": "2000000000", "said": True}}}
    lost = json.dumps(error).replace("TRI_BAD_INPUT", "TRI_PEER_LOST")
    err = workers("trap '' TERM; if test $RANK = 1; then printf %s "
                  f"'{json.dumps(error)}' >$TORCHELASTIC_ERROR_FILE; sleep 1; exit 2; fi; "
                  f"sleep 0.3; printf %s '{lost}' >$TORCHELASTIC_ERROR_FILE; exit 1", code=2)
    assert "rank 1 (local rank 1)" in cause(err) and "exit code 2" in cause(err), err


def check_training(folder):
    """Bad input, or a loss that is not finite, prints one line for any number of ranks."""
    words = [*SYNTHETIC, "data.samples=64", "data.test_samples=8", "batch.global=16"]
    run_dir = os.path.join(folder, "run")
    for more, code, sentence in (
            (["init=/nowhere/at/all"], 2, "/nowhere/at/all: cannot open"),
            (["optimizer.name=sgd", "optimizer.lr=1e6"], 1, "try a smaller optimizer.lr"),
            (["optimizer.lr=-1"], 2, "'optimizer.lr' has to be")):
        done = run([TRIREME, "run", "--standalone", "--nproc-per-node", "3",
                    *train("mlp-jax", run_dir, *words, *more)], code)
        assert done.stderr.count(sentence) == 1, done.stderr


def main():
    with tempfile.TemporaryDirectory(prefix="trireme-cause-") as folder:
        sys.exit(check_all((check_one_sentence, check_printed_by_another, check_suspended,
                            check_killed, check_consequence, check_training),
                           folder))


if __name__ == "__main__":
    main()
