#!/usr/bin/env python3
"""Ranks of several nodes that are stuck, suspended, lost or slow, or call another operation than
the others: the messages name the rank that is the cause, its node and what it does, on every node.

usage: test_names.py BUILD_FOLDER                  CLUSTER=all: also what takes more than seconds
"""
import contextlib
import os
import re
import shlex
import shutil
import signal
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import lab
import runs

ALL = os.environ.get("CLUSTER") == "all"
WINDOW = 50   # steps over which ranks are compared
PROGRAM = os.path.join(os.path.dirname(runs.TRIREME), "fault_victim")
SETTINGS = ["trainer.max_epochs=-1", "trainer.limit_val_batches=0", "batch.global=48",
            "data.samples=4096", *runs.SYNTHETIC]


def srun(ranks, words, *flags):
    """On two nodes, without Slurm's way of ending the rest."""
    return lab.on_head("srun", "--mpi=none", "--kill-on-bad-exit=0", "-N2", f"-n{ranks}", *flags,
                       *words)


def start(folder, name, ranks, *words, victim=None, recipe="mlp-jax"):
    run_dir = os.path.join(folder, name)
    command = runs.train(recipe, run_dir, *SETTINGS, *words)
    if victim:
        os.environ["VICTIM"] = victim
        command[0] = PROGRAM
    try:
        return run_dir, runs.start(srun(ranks, command, "-l"))
    finally:
        os.environ.pop("VICTIM", None)


def said_by(err):
    """By rank: the lines that it wrote to standard error; srun puts the rank in front."""
    found = {}
    for line in err.splitlines():
        rank, colon, text = line.partition(": ")
        if colon and rank.strip().isdigit():
            found.setdefault(int(rank), []).append(text)
    return found


def check_cause(err, ranks, pattern):
    """Every rank that says how it ended gives this cause."""
    said = said_by(err)
    causes = {rank: [line for line in lines if line.startswith("trireme: ")]
              for rank, lines in said.items()}
    assert sum(len(lines) for lines in causes.values()) > 0, err
    for rank, lines in causes.items():
        for line in lines:
            assert re.search(pattern, line), f"rank {rank} of {ranks}: {line}\nnot {pattern}"


def of_ranks():
    """The processes of the ranks, as this machine numbers them."""
    found = {}
    for pid in runs.processes():
        names = dict(name.partition(b"=")[::2] for name in
                     runs.read_of(pid, "environ").split(b"\0"))
        if b"SLURM_PROCID" in names and \
                runs.read_of(pid, "cmdline").split(b"\0")[0].decode() in (runs.TRIREME, PROGRAM):
            found[int(names[b"SLURM_PROCID"])] = pid
    return found


def check_stuck(folder):
    """Two ranks a node are a hierarchy: most ranks wait for one that waits for another one. Three
    ranks are none."""
    for ranks, victim in (4, 3), (4, 2), (3, 2):
        _, job = start(folder, f"stuck-{ranks}-{victim}", ranks, "comm.timeout_s=3",
                       "trainer.max_steps=1000000", victim=f"{victim},loading data,3,0")
        runs.wait_for(lambda: len(of_ranks()) == ranks, "all ranks", child=job)
        runs.wait_for(lambda: len(of_ranks()) <= 2, "the end of the others", child=job)
        with contextlib.suppress(KeyError, ProcessLookupError):
            os.kill(of_ranks()[victim], signal.SIGKILL)  # it would end some seconds later
        _, err, _ = runs.finish(job, 60)
        check_cause(err, ranks, rf"rank {victim} \(host node2, pid \d+\) did not join in 3 s "
                                r"\(comm.timeout_s\); it is in loading data of step \d+.*sequence")


def check_disagree(folder):
    """One rank calls another operation, length or type."""
    usual = ["--op", "all_reduce", "--sizes", "64K", "--type", "f32"]
    others = [(["--op", "all_gather"], r"all_reduce '.*' of 16384 F32", r"all_gather '.*'"),
              (["--sizes", "128K"], r"alloc of 65\d+ bytes", r"alloc of 131\d+ bytes"),
              (["--type", "f64"], r"all_reduce '.*' of 16384 F32", r"all_reduce '.*' of 8192 F64")]
    for more, ours, theirs in others:
        words = ' '.join([runs.TRIREME, "bench", "comm", *usual])
        script = f'[ $SLURM_PROCID = 2 ] && exec {words} {" ".join(more)} || exec {words}'
        done = runs.run(srun(4, ["bash", "-c", script], "-l"), None)
        assert done.returncode != 0
        one = rf"rank 2 \(host node2\) calls {theirs}"
        other = rf"rank (0|3) \(host node\d\) calls {ours}"
        check_cause(done.stderr, 4, rf"({one}.*, {other})|({other}.*, {one})")


def check_cannot_start(folder):
    """One rank lacks the module, cannot open it, or has another setting: none waits for it."""
    words = runs.train("mlp-jax", os.path.join(folder, "none"), *SETTINGS, "trainer.max_steps=2")
    train = shlex.join(words)
    cases = [(2, "TRIREME_MODULES=/nowhere", "", r"rank 2 \(host node2\): .*module ucx is not"),
             (3, "UCX_TLS=none", "", r"rank 3: cannot open ucx: "),
             (2, "TRIREME_HIERARCHY=0", "", r"rank 2 \(host node2\) has arrangement of ranks "
                                            r"flat, and rank 0 \(host node1\) has in hosts: "),
             (1, "", "comm.backend=mpi", r"rank 1 \(host node1\) has comm.backend mpi, and rank 0 "
                                         r"\(host node1\) has auto: ")]
    for rank, variable, word, cause in cases:
        script = f"[ $SLURM_PROCID = {rank} ] && exec env {variable} {train} {word} || exec {train}"
        since = time.monotonic()
        done = runs.run(srun(4, ["bash", "-c", script], "-l"), None)
        took = time.monotonic() - since
        assert done.returncode != 0 and took < runs.SOON, f"{took:.1f} s: {done.stderr}"
        check_cause(done.stderr, 4, cause)
        print(f"  {variable}{word}: {took:.1f} s: {min(done.stderr.splitlines())}")


def check_no_network(folder):
    """Every rank opens its end of UCX, but between the nodes nothing passes: all ranks end soon,
    and the message names ranks, nodes, and what to do."""
    advice = r"; name .*UCX_NET_DEVICES, .*firewalls"
    pair = r"rank \d \(host node\d\) does not reach rank \d \(host node\d\) over ucx"
    words = runs.train("mlp-jax", os.path.join(folder, "no-network"), *SETTINGS,
                       "trainer.max_steps=2")

    def check(name, cause, *more):
        since = time.monotonic()
        done = runs.run(srun(4, [*more, *words], "-l"), None)
        took = time.monotonic() - since
        assert done.returncode != 0 and took < runs.SOON, f"{name}: {took:.1f} s: {done.stderr}"
        check_cause(done.stderr, 4, cause)
        print(f"  {name}: {took:.1f} s: {min(done.stderr.splitlines())}")

    check("no device", pair + ".*" + advice, "env", "UCX_NET_DEVICES=none0",
          "UCX_WARN_UNUSED_ENV_VARS=n")
    if not shutil.which("iptables"):
        print("  a firewall is not tested: needs the package iptables")
        return
    for node in (1, 2):
        lab.close_ports(node)
    try:
        words.append("comm.timeout_s=4")
        check("a firewall", pair + r" within 4 s" + advice)
        words.pop()
        if ALL:  # comm.timeout_s is five minutes
            check("a firewall, usual limit", pair + r" within 15 s" + advice)
    finally:
        for node in (1, 2):
            lab.close_ports(node, False)


def check_killed(folder):
    run_dir, job = start(folder, "killed", 4, "trainer.max_steps=1000000")
    runs.wait_for(lambda: len(runs.losses(run_dir)) >= 10, "10 steps", 60, job)
    os.kill(of_ranks()[3], signal.SIGKILL)
    _, err, _ = runs.finish(job, 60)
    check_cause(err, 4, r"rank 3 \(host node2, pid \d+\) died (in|after) ")


def check_suspended(folder):
    """The others on its node notice it by its heartbeats, the other node by them or the store."""
    for ranks in 2, 4:
        run_dir, job = start(folder, f"suspended-{ranks}", ranks, "trainer.max_steps=1000000")
        runs.wait_for(lambda: len(runs.losses(run_dir)) >= 10, "10 steps", 60, job)
        time.sleep(2)  # it tells what it does every second, to the store only
        pid, since = of_ranks()[ranks - 1], time.monotonic()
        os.kill(pid, signal.SIGSTOP)
        runs.wait_for(lambda: len(of_ranks()) == 1, "the end of the others")
        print(f"  {ranks} ranks: after {time.monotonic() - since:.1f} s")
        os.kill(pid, signal.SIGKILL)
        _, err, _ = runs.finish(job, 60)
        # A rank that was not suspended in a wait is also named after ten seconds, by a warning.
        check_cause(err, ranks, rf"rank {ranks - 1} \((host node2, pid \d+\) (has been silent|does "
                                r"not move)|node2\) does not move for).* in .*\(sequence \d+\)")


class Listener(threading.Thread):
    """Reads what a process says."""

    def __init__(self, child):
        super().__init__(daemon=True)
        self.child, self.lines = child, []

    def run(self):
        for line in self.child.stderr:
            self.lines.append(line.strip())

    def find(self, pattern):
        return [line for line in self.lines if re.search(pattern, line)]


def end(job):
    for pid in of_ranks().values():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    job.wait()


def check_named(folder):
    """A rank that does not move, at the default settings: rank 0 says so."""
    for victim in 1, 3:
        _, job = start(folder, f"named-{victim}", 4, "trainer.max_steps=1000000",
                       victim=f"{victim},loading data,3,0")
        heard, begin = Listener(job), time.monotonic()
        heard.start()
        line = rf"0: .*rank {victim} \(node{victim // 2 + 1}\) does not move for \d+ s: it is in " \
            r"loading data of step \d+.*; rank \d waits .*sequence"
        runs.wait_for(lambda: heard.find(line), f"{line}")
        print(f"  after {time.monotonic() - begin:.1f} s: {heard.find(line)[0]}")
        assert len(heard.find("does not move")) == 1, heard.find("warning")
        end(job)


def core_times(pid):
    """The seconds for which a process has computed, and for which it has waited for a core."""
    computed, waited = runs.read_of(pid, "schedstat").split()[:2]
    return 1e-9 * int(computed), 1e-9 * int(waited)


class Brake(threading.Thread):
    """Makes a process at least three times slower than others, whatever else this machine does:
    after each moment in which it computes, it stands still for six times as long as the others take
    for as much. They take longer than it, because they wait for cores more often."""

    def __init__(self, pid, others):
        super().__init__(daemon=True)
        self.pid, self.others, self.over = pid, others, threading.Event()

    def slowness(self, since):
        """How many seconds the others have taken for each that they have computed."""
        times = [core_times(pid) for pid in self.others]
        computed, waited = (sum(now[i] for now in times) - sum(then[i] for then in since)
                            for i in (0, 1))
        return times, 1 + waited / computed if computed > 0 else 1

    def run(self):
        since, slowness = self.slowness([(0, 0)])
        before, _ = core_times(self.pid)
        while not self.over.is_set():
            time.sleep(0.01)
            os.kill(self.pid, signal.SIGSTOP)
            if sum(now for now, _ in since) + 0.1 < sum(core_times(p)[0] for p in self.others):
                since, slowness = self.slowness(since)
            # The kernel counts what a process has just computed some milliseconds later.
            now, _ = core_times(self.pid)
            time.sleep(6 * slowness * (now - before))
            before = now
            os.kill(self.pid, signal.SIGCONT)

    def end(self):
        self.over.set()
        self.join()


def check_straggler(folder):
    """A rank of the other node that is at least three times slower."""
    started = time.monotonic()
    run_dir, job = start(folder, "straggler", 4, "trainer.max_steps=1000000", "batch.global=96",
                         recipe="mnist-cnn")

    def step():
        return max(runs.losses(run_dir), default=0)

    heard = Listener(job)
    heard.start()
    runs.wait_for(lambda: step() >= WINDOW + 20, "steps", 120, job)
    pids, begin, begun = of_ranks(), step(), time.monotonic()
    print(f"  {begin} steps in {begun - started:.1f} s")
    brake = Brake(pids.pop(3), list(pids.values()))
    brake.start()
    name = r"rank 3 on host node2 is \d+\.\d times slower than the median"
    try:
        runs.wait_for(lambda: heard.find(name) or step() > begin + 2 * WINDOW, name, 180)
    finally:
        brake.end()
    took, steps = time.monotonic() - begun, step() - begin
    assert heard.find(name), f"{steps} steps, {took:.1f} s: {heard.find('warning')}"
    print(f"  after {steps} steps, {took:.1f} s: {heard.find(name)[0]}")
    # What rank 0 knows of the other node is up to a second old: a beat.
    assert steps <= WINDOW + 10 + steps / took, heard.find("warning")
    runs.wait_for(lambda: heard.find("rank 3 on host node2 keeps pace again"), "its end", 120)
    end(job)


def main():
    build = os.path.dirname(os.path.dirname(runs.TRIREME))
    if not os.path.exists(os.path.join(build, "lib", "trireme", "ucx.so")):
        print("skipped: the module ucx is not built here")
        return 77
    checks = [check_stuck, check_disagree, check_cannot_start, check_no_network, check_killed]
    if ALL:
        checks += [check_suspended, check_named, check_straggler]
    if len(sys.argv) > 2:
        checks = [check for check in checks if check.__name__ in sys.argv]
    with tempfile.TemporaryDirectory() as folder, lab.cluster(2):
        failed = runs.check_all(checks, folder)
        for pid in runs.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
