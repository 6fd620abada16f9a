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
# Shell code with which a worker waits until the launcher asks it to end (by SIGTERM, see TRAP). The
# launcher does so after the first failure. So this worker's failure is a later one, however busy
# the machine is.
UNTIL_ASKED = "until test \"$asked\"; do sleep 0.05; done; "
TRAP = "trap 'asked=1' TERM; "


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


def until(condition):
    return f"until {condition}; do sleep 0.05; done; "


def check_one_sentence(_):
    """The text of an error is printed once: by a worker, or by the launcher if no worker has
    printed it or its output did not reach the console."""
    aloud = f"echo '{SENTENCE}' >&2; {write_error(True)}"
    silent = write_error(False)
    several = f"if test $RANK = 1; then {aloud} else {TRAP}{UNTIL_ASKED}{silent} fi; "
    for script, flags in ((several, ()), (silent, ()), (aloud, ("--redirects", "2")),
                          (several, ("--redirects", "2")), (several, ("--tee", "2")),
                          (several, ("--local-ranks-filter", "0"))):
        err = workers(script + "exit 1", *flags)
        assert err.count(SENTENCE) == 1, f"{flags} {script}: {err}"


def check_printed_by_another(folder):
    """If the worker that is the cause did not print its text, but another worker has printed the
    same text, the launcher refers to the message above."""
    ready = os.path.join(folder, "ready")
    script = (f"if test $RANK = 1; then {TRAP} touch {ready}; {UNTIL_ASKED}"
              f"echo '{SENTENCE}' >&2; {write_error(True)} else "
              f"{until(f'test -e {ready}')} {write_error(False)} fi; exit 1")
    err = workers(script, ranks=2)
    assert "rank 0" in cause(err) and "see the message above" in cause(err), err
    assert err.count(SENTENCE) == 1, err


def write_pid(path):
    return f"echo $$ >{path}.new; mv {path}.new {path}; "


def until_in_state(path, states):
    """Shell code that waits until the process that wrote its pid to the file is in one of the
    states, or is gone."""
    return (until(f"test -e {path}") + f"pid=$(cat {path}); " +
            until(f"grep -qs '^State:.[{states}]' /proc/$pid/status || ! test -e /proc/$pid"))


def check_suspended(folder):
    """The suspended rank is the cause, not the one whose wait for it timed out."""
    pid = os.path.join(folder, "suspended")
    err = workers(f"if test $RANK = 1; then {write_pid(pid)} kill -STOP $$; fi; "
                  f"{until_in_state(pid, 'T')} {write_error(False)}"
                  "test $RANK = 0 || sleep 60; exit 3")
    assert "rank 1 (local rank 1)" in cause(err) and "suspended by a signal" in cause(err), err
    assert "rank 0" not in cause(err), err


def check_killed(folder):
    """The killed rank is the cause, not the rank that first reported that it is gone."""
    pid, ready = (os.path.join(folder, name) for name in ("killed", "ignores"))
    err = workers(f"if test $RANK = 2; then {until(f'test -e {ready}0 -a -e {ready}1')} "
                  f"{write_pid(pid)} kill -KILL $$; fi; trap '' TERM; touch {ready}$RANK; "
                  f"{until_in_state(pid, 'ZX')} exit 1")
    assert "rank 2 (local rank 2)" in cause(err) and "SIGKILL" in cause(err), err


def check_consequence(folder):
    """The rank with bad input is the cause, not one that ended first because that rank gave up."""
    error = {"message": {"message": f"TRI_BAD_INPUT: {SENTENCE}", "errorCode": 2,
                         "extraInfo": {"timestamp": "2000000000", "said": False}}}
    lost = json.dumps(error).replace("TRI_BAD_INPUT", "TRI_PEER_LOST")
    gave_up = os.path.join(folder, "gave-up")
    err = workers(f"if test $RANK = 1; then {TRAP} printf %s '{json.dumps(error)}' "
                  f">$TORCHELASTIC_ERROR_FILE; touch {gave_up}; {UNTIL_ASKED} exit 2; fi; "
                  f"trap '' TERM; {until(f'test -e {gave_up}')} "
                  f"printf %s '{lost}' >$TORCHELASTIC_ERROR_FILE; exit 1", code=2)
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
        assert code != 2 or len(done.stderr.splitlines()) == 1, done.stderr


def main():
    with tempfile.TemporaryDirectory(prefix="trireme-cause-") as folder:
        sys.exit(check_all((check_one_sentence, check_printed_by_another, check_suspended,
                            check_killed, check_consequence, check_training),
                           folder))


if __name__ == "__main__":
    main()
