#!/usr/bin/env python3
"""A run folder belongs to one living run. A second run is refused with a line that names the first;
commands that only read the folder are not refused. The lock of a killed process stops no later run.

usage: test_run_lock.py BUILD_FOLDER
"""
import json
import os
import shutil
import signal
import socket
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import (SYNTHETIC, TRIREME, check_all, entries, finish, last, losses,  # noqa: E402
                  on_ranks, run, start, train, wait_for)

ENDLESS = [*SYNTHETIC, "data.samples=512", "data.test_samples=16", "batch.global=32",
           "trainer.max_epochs=100000", "checkpoint.every_n_steps=5"]


def holder(place):
    with open(os.path.join(place, ".lock"), encoding="utf-8") as file:
        return json.load(file)


def begin(place, ranks=1, *flags):
    """Starts an endless run and waits for a checkpoint. Returns the process and rank 0's pid."""
    before = max(losses(place), default=0)
    child = start(on_ranks(ranks, train("mlp-jax", place, *ENDLESS), *flags))
    assert wait_for(lambda: max(losses(place), default=0) > before + 10 and
                    os.path.exists(last(place)), "steps", child=child), finish(child)
    return child, holder(place)["pid"]


def end(child, code=75):
    child.send_signal(signal.SIGTERM)
    _, err, found = finish(child)
    assert found == code, f"{found}: {err}"


def check_second(folder):
    """A second run ends with code 2 and one line that has the first run's pid and host, by
    whichever path it names the folder. The first run continues."""
    place, link = os.path.join(folder, "second"), os.path.join(folder, "way")
    os.symlink(place, link)
    for ranks in (1, 2):
        child, pid = begin(place, ranks)
        for words in (train("mlp-jax", place, *ENDLESS),
                      train("mlp-jax", link, *ENDLESS, "--resume", last(place))):
            done = run(words, 2)
            line, = done.stderr.splitlines()
            assert f"in use by pid {pid} on {socket.gethostname()};" in line, line
        done = run(on_ranks(2, train("mlp-jax", place, *ENDLESS)), 2)
        assert f"in use by pid {pid} on" in done.stderr, done.stderr
        assert child.poll() is None, finish(child)
        end(child)
        steps = [entry["step"] for entry in entries(place, "train")]
        assert steps == sorted(set(steps)), "steps are there twice"
        run([TRIREME, "checkpoint", "verify", place])
        assert not os.path.exists(os.path.join(place, ".lock"))


def check_lost(folder):
    """If the folder is removed or renamed in mid-run, it is made again for a checkpoint with its
    recipe, which a line says, and the run ends with the code of one that is to be started again."""
    for ranks in (1, 2):
        place, other = os.path.join(folder, f"lost-{ranks}"), os.path.join(folder, f"found-{ranks}")
        child, _ = begin(place, ranks)
        if ranks == 1:
            os.rename(place, other)
        else:
            os.rename(place, other)  # at once; the run writes in it while it is removed
            shutil.rmtree(other)
        _, err, code = finish(child)
        assert code == 75, f"{code}: {err}"
        where = f"in {other}" if ranks == 1 else "lost"
        assert err.count(f"{place}: was removed or renamed") == 1 and where in err, err
        assert "because its folder" in err, err
        run([TRIREME, "eval", "--checkpoint", place])
        assert "step-" in os.path.realpath(last(place))
    # Of a run that ends meanwhile, and saves nothing, too.
    place = os.path.join(folder, "lost-end")
    child = start(train("mlp-jax", place, *ENDLESS, "checkpoint.every_n_steps=0",
                        "checkpoint.every_n_epochs=0", "checkpoint.save_last=false",
                        "trainer.max_epochs=-1", "trainer.max_time=2"))
    assert wait_for(lambda: losses(place), "steps", child=child), finish(child)
    shutil.rmtree(place)
    _, err, code = finish(child)
    assert code in (1, 75) and "removed or renamed" in err, f"{code}: {err}"


def check_replaced(folder):
    """If another run begins in the place of a renamed folder, both keep what is theirs: the first
    ends with a line that names the folder's new place and the other run."""
    place, moved = os.path.join(folder, "replaced"), os.path.join(folder, "moved")
    first, _ = begin(place)
    os.kill(holder(place)["pid"], signal.SIGSTOP)  # until the other run has begun
    os.rename(place, moved)
    second, pid = begin(place)
    os.kill(holder(moved)["pid"], signal.SIGCONT)
    _, err, code = finish(first)
    assert code == 1 and f"is in {moved}, and step " in err and "taken over" not in err, err
    assert f"in use by pid {pid}" in err, f"{code}: {err}"
    assert holder(place)["pid"] == pid and second.poll() is None, finish(second)
    end(second)
    steps = [entry["step"] for entry in entries(place, "train")]
    assert steps == sorted(set(steps)), "steps are there twice"


def check_at_once(folder):
    """Of several runs that create the same folder at the same moment, one trains; the others are
    refused."""
    for turn in range(3):
        place = os.path.join(folder, f"at-once-{turn}")
        children = [start(train("mlp-jax", place, *ENDLESS, "trainer.max_epochs=2",
                                "data.samples=256")) for _ in range(3)]
        codes = []
        for child in children:
            _, err, code = finish(child)
            codes.append(code)
            assert code == 0 or "in use by pid" in err or "another process has just" in err, err
        assert 0 in codes and set(codes) <= {0, 2}, codes
        steps = [entry["step"] for entry in entries(place, "train")]
        assert steps == list(range(1, 17)), steps


def check_readers(folder):
    place = os.path.join(folder, "read")
    child, _ = begin(place)
    run([TRIREME, "eval", "recipes/mlp-jax.yaml", *ENDLESS, "--checkpoint", last(place)], None)
    run([TRIREME, "checkpoint", "list", place])
    run([TRIREME, "train", "recipes/mlp-jax.yaml", *ENDLESS, "trainer.fast_dev_run=true",
         "--run-dir", place])
    assert child.poll() is None, finish(child)
    end(child)


def check_killed(folder):
    """After kill -9 the next run starts at once, even before the killed process was reaped."""
    place = os.path.join(folder, "killed")
    for ranks in (1, 2, 1):
        child, pid = begin(place, ranks)
        os.kill(pid, signal.SIGKILL)
        words = train("mlp-jax", place, *ENDLESS, "trainer.max_steps=1")
        done = run(words)
        assert "is complete already" in done.stdout, done.stdout + done.stderr
        finish(child)


def check_leftovers(folder):
    """Temporary files that a killed process had not renamed yet are removed; other files with
    similar names stay."""
    place = os.path.join(folder, "leftovers")
    kept = ["recipe.yaml.tmp", "recipe.yaml.bak", "my-recipe.yaml.0123456789abcdef.tmp"]
    child, pid = begin(place)
    os.kill(pid, signal.SIGKILL)
    finish(child)
    for name in (*kept, "recipe.yaml.0123456789abcdef.tmp", ".lock.0123456789abcdef.tmp"):
        with open(os.path.join(place, name), "w", encoding="utf-8"):
            pass
    child, _ = begin(place)
    end(child)
    left = {name for name in os.listdir(place) if "tmp" in name or "recipe.yaml." in name}
    assert left == set(kept), left


def check_restart(folder):
    """The launcher starts rank 0 again in the folder that the killed rank 0 had locked."""
    place = os.path.join(folder, "restart")
    child, pid = begin(place, 2, "--max-restarts", "2")
    for _ in range(2):
        os.kill(pid, signal.SIGKILL)

        def is_back(old=pid):
            try:
                return holder(place)["pid"] != old
            except (OSError, ValueError):
                return False
        assert wait_for(is_back, "the restart", 60, child), finish(child)
        pid = holder(place)["pid"]
    reached = max(losses(place))
    wait_for(lambda: max(losses(place)) > reached + 5, "steps of the last start", 60, child)
    end(child)


def check_refused_input(folder):
    """A run with bad input leaves an existing folder as it was."""
    place = os.path.join(folder, "empty")
    os.mkdir(place)
    run(train("mlp-jax", place, *ENDLESS, "init=/nowhere"), 2)
    assert os.listdir(place) == []


def main():
    with tempfile.TemporaryDirectory(prefix="trireme-lock-") as folder:
        sys.exit(check_all((check_second, check_lost, check_replaced, check_at_once, check_readers,
                            check_killed, check_leftovers, check_restart,
                            check_refused_input), folder))


if __name__ == "__main__":
    main()
