#!/usr/bin/env python3
"""What a start writes into the debug log: bench/startup finds the stages that it measures.

usage: test_startup.py BUILD_FOLDER
"""
import re
import sys

sys.argv[1:] = sys.argv[1:] or ["build/release"]
sys.path.insert(0, "tests/support")
sys.dont_write_bytecode = True
from runs import check_all, run  # noqa: E402

LINE = re.compile(r"^  (\S+(?: \S+)*) +([0-9.]+) ms \(", re.M)


def stages(only):
    done = run([sys.executable, "bench/startup", "--build", sys.argv[1], "--turns", "1", "--only",
                only])
    found = LINE.findall(done.stdout)
    times = [float(ms) for name, ms in found if name != "cpu"]
    assert times == sorted(times) and times[0] > 0, done.stdout
    return [name for name, _ in found]


def check_meeting(_):
    assert stages("run") == ["main", "met", "first barrier", "end", "cpu"], stages("run")


def check_training(_):
    found = stages("train")
    assert found == ["main", "met", "connected", "data opened", "planned", "engine made",
                     "first step", "end", "cpu"], found


if __name__ == "__main__":
    sys.exit(1 if check_all([check_meeting, check_training], None) else 0)
