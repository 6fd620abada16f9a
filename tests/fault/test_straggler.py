#!/usr/bin/env python3
"""A rank that falls behind is named while the run continues, and again when it has caught up.

usage: test_straggler.py BUILD_FOLDER
"""
import os
import re
import signal
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import SYNTHETIC, losses, start_ranks, train, wait_for  # noqa: E402

VICTIM = 1
WINDOW = 50  # steps over which ranks are compared
ENDLESS = [*SYNTHETIC, "data.samples=4096", "data.test_samples=16", "batch.global=48",
           "trainer.max_epochs=10000", "trainer.limit_val_batches=0",
           "checkpoint.every_n_epochs=0"]


class Listener(threading.Thread):
    """Reads what a process says, with the step the run was at."""

    def __init__(self, child, step):
        super().__init__(daemon=True)
        self.child, self.step, self.lines = child, step, []

    def run(self):
        for line in self.child.stderr:
            self.lines.append((self.step(), line.strip()))

    def find(self, pattern, since):
        return [(step, line) for step, line in self.lines
                if step >= since and re.search(pattern, line)]


class Brake(threading.Thread):
    """Lets a process run a fourth of the time."""

    def __init__(self, child):
        super().__init__(daemon=True)
        self.child, self.over = child, threading.Event()

    def run(self):
        while not self.over.is_set():
            self.child.send_signal(signal.SIGSTOP)
            time.sleep(0.03)
            self.child.send_signal(signal.SIGCONT)
            time.sleep(0.01)

    def release(self):
        self.over.set()
        self.join()


def check(folder):
    place = os.path.join(folder, "run")
    ranks = start_ranks(train("mnist-cnn", place, *ENDLESS), 2)
    try:
        def step():
            return max(losses(place), default=0)

        heard = Listener(ranks[0], step)
        heard.start()
        assert wait_for(lambda: step() >= WINDOW + 20, "steps", child=ranks[0]), heard.lines
        name = rf"rank {VICTIM} on host \S+ is \d+\.\d times slower than the median"
        over = rf"rank {VICTIM} on host \S+ keeps pace again"
        # A machine that does other things may have slowed it down before us.
        wait_for(lambda: len(heard.find(name, 0)) == len(heard.find(over, 0)), "a quiet moment")
        brake, begin = Brake(ranks[VICTIM]), step()
        brake.start()
        # The window, a part of it before it is looked at, and steps before we read the line.
        wait_for(lambda: heard.find(name, begin) or step() > begin + 2 * WINDOW, "the line")
        brake.release()
        found = heard.find(name, begin)
        assert found, f"not named in {step() - begin} steps: {heard.lines}"
        assert re.search(r"its [A-Z]+ takes [\d.e+]+ ms, theirs [\d.e+]+; the others waited",
                         found[0][1]), found
        print(f"  after {found[0][0] - begin} steps: {found[0][1]}")
        assert found[0][0] - begin <= WINDOW + 10, found
        again = step()
        wait_for(lambda: heard.find(over, again) or step() > again + 20 * WINDOW, "its end")
        assert heard.find(over, again), heard.lines
        assert len(heard.find(name, begin)) == 1, f"said more than once: {heard.lines}"
    finally:
        for child in ranks:
            child.send_signal(signal.SIGKILL)
            child.wait()


with tempfile.TemporaryDirectory() as temporary:
    check(temporary)
