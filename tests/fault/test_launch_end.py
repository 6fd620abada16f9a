#!/usr/bin/env python3
"""`trireme run` ends when its workers have ended, whatever they leave behind, and with a documented
exit code, whenever a signal comes.

usage: test_launch_end.py BUILD_FOLDER
"""
import os
import random
import signal
import socket
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import (SOON, SYNTHETIC, TRIREME, check_all, check_nothing_left, finish,  # noqa: E402
                  last, losses, on_ranks, processes, start, train, wait_for)

ENDLESS = [*SYNTHETIC, "data.samples=512", "data.test_samples=16", "batch.global=32",
           "log.progress=false", "trainer.max_epochs=100000", "checkpoint.every_n_steps=5"]


def launch(script, *flags, ranks=2):
    return start([TRIREME, "run", "--standalone", "--nproc-per-node", str(ranks), *flags, "sh",
                  "-c", script])


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="utf-8") as file:
        return [int(word) for word in file.read().split()]


def ended(child, code):
    out, err, found = finish(child, SOON)
    assert found == code, f"{found}, not {code}: {out}{err}"
    return out, err


def check_guardian_suspended(folder):
    """The launcher ends although its guardian is suspended, as by a `kill -STOP` of all processes
    of that name. The guardian is the process that kills the workers if the launcher is killed."""
    go = os.path.join(folder, "go")
    child = launch(f"until test -e {go}; do sleep 0.1; done", ranks=2)
    wait_for(lambda: len(children(child.pid)) == 3, "two workers and the guardian", child=child)
    guardian = min(children(child.pid))
    os.kill(guardian, signal.SIGSTOP)
    with open(go, "w", encoding="utf-8"):
        ended(child, 0)


def check_grandchild(folder):
    """The launcher ends although a worker's child still runs, which is in another process group and
    keeps the worker's output open."""
    def grandchildren():
        return [pid for pid, command in processes().items() if command.startswith("sleep 300")]

    for code, flags in ((0, ["--tee", "3"]), (3, ["--tee", "3"]), (0, ["--redirects", "3"])):
        go = os.path.join(folder, f"go-{code}-{flags[0]}")
        child = launch(f"setsid sleep 300 & until test -e {go}; do sleep 0.1; done; exit {code}",
                       "--log-dir", folder, *flags)
        wait_for(lambda: len(grandchildren()) == 2, "the workers' children", child=child)
        with open(go, "w", encoding="utf-8"):
            ended(child, 1 if code else 0)
        for pid in grandchildren():
            os.kill(pid, signal.SIGKILL)
    check_nothing_left()


def state(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return file.read().rpartition(")")[2].split()[0]


def check_suspended(folder):
    """Ctrl-Z suspends the launcher with its workers, and `fg` continues all of them."""
    run_dir = os.path.join(folder, "suspended")
    child = start(on_ranks(2, train("mlp-jax", run_dir, *ENDLESS)))
    wait_for(lambda: losses(run_dir), "a step", child=child)
    workers = sorted(children(child.pid))[1:]  # behind the guardian
    child.send_signal(signal.SIGTSTP)
    wait_for(lambda: all(state(pid) == "T" for pid in [child.pid, *workers]), "the suspension",
             child=child)
    before = len(losses(run_dir))
    child.send_signal(signal.SIGCONT)
    wait_for(lambda: len(losses(run_dir)) > before, "more steps", child=child)
    child.send_signal(signal.SIGTERM)
    _, err = ended(child, 75)
    assert "does not move" not in err and "silent" not in err, err


def check_left_group(_):
    """A worker that has moved to another process group gets the launcher's signals, too."""
    child = launch("exec python3 -c 'import os, time; os.setpgid(0, os.getpgid(os.getppid())); "
                   "time.sleep(300)'")
    # The guardian has a group of its own.
    wait_for(lambda: [os.getpgid(pid) for pid in children(child.pid)].count(os.getpgid(child.pid))
             == 2, "the workers in the launcher's group", child=child)
    child.send_signal(signal.SIGTERM)
    ended(child, 128 + signal.SIGTERM)


def check_no_handler(_):
    """The launcher passes on a signal that it gets. If this ends a worker that has no handler for
    it, the run ends with the exit code of that signal, and is not restarted."""
    for number in (signal.SIGUSR1, signal.SIGXCPU, signal.SIGTERM):
        for script in ("exec sleep 300", "test $RANK = 0 || exec sleep 300; trap '' USR1 XCPU; "
                                         "while :; do sleep 0.1; done"):
            child = launch(script, "--max-restarts", "2")
            # Both workers are where the signal meets them: the second one's first child sleeps.
            wait_for(lambda: sum(words.startswith("sleep ") for words in processes().values()) == 2,
                     "the workers", child=child)
            child.send_signal(number)
            _, err = ended(child, 128 + number)
            assert "restart 1" not in err and "root cause" not in err, err
    # If a worker gets the signal from another process than the launcher, the worker has failed.
    child = launch("test $RANK = 0 && kill -USR1 $$; sleep 300")
    _, err = ended(child, 1)
    assert "ended by SIGUSR1" in err, err


def check_signal_before_round(folder):
    """An agent (the launcher of one node) gets a signal while it waits for the other agents. The
    serving agent, which decides for all, learns of it only after the others have started their
    workers. All agents then stop, with the exit code of the signal."""
    os.environ["TRIREME_TOKEN"] = "a token of this test"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    agents = []

    def agent(rank):
        agents.append(start([TRIREME, "run", "--nnodes", "3", "--node-rank", str(rank),
                             "--nproc-per-node", "1", "--master-addr", "127.0.0.1",
                             "--master-port", str(port), "sh", "-c",
                             f"touch {folder}/began-{rank}; exec sleep 100"]))
        return agents[-1]

    def began(rank):
        return os.path.exists(f"{folder}/began-{rank}")

    try:
        agent(0)
        waiting = agent(1)
        time.sleep(2)  # until the agent has joined the first one, which nothing shows
        waiting.send_signal(signal.SIGSTOP)
        waiting.send_signal(signal.SIGTERM)
        agent(2)
        wait_for(lambda: began(0) and began(2), "the round", child=agents[2])
        waiting.send_signal(signal.SIGCONT)
        for child in agents:
            _, err, code = finish(child, SOON)
            assert code == 128 + signal.SIGTERM, f"{code}: {err}"
    finally:
        for child in agents:
            if child.poll() is None:
                child.kill()
    check_nothing_left()


def check_two_agents(folder):
    """Two agents on one host, as in two containers that share its name: their ranks train as one
    run of one host, whether they meet or are numbered."""
    os.environ["TRIREME_TOKEN"] = "a token of this test"
    for kind in ("meet", "numbered"):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        run_dir = os.path.join(folder, f"two-agents-{kind}")
        words = train("mlp-jax", run_dir, *SYNTHETIC, "data.samples=64", "data.test_samples=16",
                      "batch.global=32", "trainer.max_epochs=1")
        meet = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}"]
        numbered = ["--master-addr", "127.0.0.1", "--master-port", port, "--node-rank"]
        agents = [start([TRIREME, "run", "--nnodes", "2", "--nproc-per-node", "1",
                         *(meet if kind == "meet" else [*numbered, str(i)]), *words])
                  for i in range(2)]
        for child in agents:
            ended(child, 0)
        assert len(losses(run_dir)) == 2


def check_early_signals(folder):
    """A signal comes at a random moment of the start: the run ends with code 75, and a checkpoint
    unless it says that nothing is saved yet; or, before it looks for signals, with the exit code of
    the signal."""
    draw = random.Random(1)
    for i in range(12):
        place = os.path.join(folder, f"early-{i}")
        number = (signal.SIGUSR1, signal.SIGTERM)[i % 2]
        child = start(on_ranks(2, train("mlp-jax", place, *ENDLESS)))
        wait_for(lambda: len(children(child.pid)) == 3, "the workers", child=child)
        time.sleep(draw.random() * 0.6)
        child.send_signal(number)
        _, err, code = finish(child, SOON)
        if code == 75:
            assert os.path.exists(last(place)) != ("nothing is saved yet" in err), err
        else:
            assert code == 128 + number, f"{signal.Signals(number).name}: {code}: {err}"
    check_nothing_left()


def check_killed_ranks(folder):
    """Some of the ranks are killed at a random moment: the launcher ends soon after all ranks."""
    draw = random.Random(2)
    for i in range(6):
        place = os.path.join(folder, f"killed-{i}")
        child = start(on_ranks(4, train("mlp-jax", place, *ENDLESS, "checkpoint.async=false",
                                        "strategy.name=ddp")))
        wait_for(lambda: len(children(child.pid)) == 5, "the workers", child=child)
        workers = sorted(children(child.pid))[1:]
        time.sleep(draw.random() * 3)
        for pid in draw.sample(workers, draw.randint(1, 4)):
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not set(workers) & set(processes()), "the end of the workers")
        ended(child, 1)
    check_nothing_left()


def check_temporary_folder(folder):
    """If the folder that TMPDIR names does not exist, the command is refused in one line, and the
    folder is not created."""
    away = os.path.join(folder, "away")
    words = ["sh", "-c", "true"]
    offload = train("mlp-jax", os.path.join(folder, "offload"), *ENDLESS, "trainer.max_steps=2",
                    "strategy.offload=optimizer", "strategy.name=zero1", "optimizer.name=adam",
                    "optimizer.lr=0.001")
    for command, code in ((on_ranks(2, words), 2), (on_ranks(2, words, "--tee", "3"), 2),
                          (offload, 2)):
        child = start(command, env={**os.environ, "TMPDIR": away})
        _, err = ended(child, code)
        assert len(err.splitlines()) == 1 and "TMPDIR" in err, err
        assert not os.path.exists(away), err


def main():
    with tempfile.TemporaryDirectory(prefix="trireme-end-") as folder:
        sys.exit(check_all((check_guardian_suspended, check_grandchild, check_suspended,
                            check_left_group, check_no_handler, check_temporary_folder,
                            check_signal_before_round, check_two_agents, check_early_signals,
                            check_killed_ranks), folder))


if __name__ == "__main__":
    main()
