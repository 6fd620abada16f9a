#!/usr/bin/env python3
"""If a rank is slower than the others, a line names it while the run continues, and a second line
says when it has caught up.

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
    """Collects the lines that a process prints to its standard error, each with the step at which
    the run was then."""

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
    """Suspends a process again and again, so that it runs for a quarter of the time."""

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
        # Other work on the machine may have slowed the rank down already: waits until that is over.
        wait_for(lambda: len(heard.find(name, 0)) == len(heard.find(over, 0)), "a quiet moment")
        brake, begin = Brake(ranks[VICTIM]), step()
        brake.start()
        # Ranks are compared over a window of steps, which moves on by a part of it at a time. Until
        # the line comes, a window passes, the steps up to the next comparison, and those until this
        # test reads the line.
        wait_for(lambda: heard.find(name, begin) or step() > begin + 2 * WINDOW, "the line")
        brake.release()
        found = heard.find(name, begin)
        assert found, f"not named in {step() - begin} steps: {heard.lines}"
        assert re.search(r"its [A-Z]+ takes [\d.]+ [mu]?s, theirs [\d.]+ [mu]?s; the others waited",
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
