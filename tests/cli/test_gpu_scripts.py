#!/usr/bin/env python3
"""The scripts for a GPU, tests/gpu/test-gpu and bench/gpu, on the emulated GPU: limits of time,
results that are kept, sanitizers, and which programs of PyTorch a row is compared with.

usage: test_gpu_scripts.py BUILD_FOLDER
"""
import json
import os
import signal
import subprocess
import sys
import tempfile

BUILD = os.path.realpath(sys.argv[1])
EMULATED = {**os.environ, "TRIREME_MODULES": f"{BUILD}/lib/emulated"}
TEST_GPU = ["tests/gpu/test-gpu", "--prefix", BUILD, "--small"]


def write_script(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write("#!/bin/sh\n" + text)
    os.chmod(path, 0o755)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def check_limit(folder):
    """Once the time is up, items are skipped, and the kept results are those that are printed."""
    kept = f"{folder}/results.json"
    done = subprocess.run([*TEST_GPU, "--minutes", "0", "--results", kept, "device", "kill"],
                          env=EMULATED, check=True, stdout=subprocess.PIPE, text=True)
    last = done.stdout.splitlines()[-1]
    assert read(kept).strip() == last, done.stdout
    items = json.loads(last)["items"]
    assert [items[name]["result"] for name in ("device", "kill")] == ["SKIP", "SKIP"], last
    assert not os.path.exists(f"{kept}.new")


def check_stopped(folder):
    """An item that SIGTERM stops is not among the results; those before it are printed and kept."""
    kept = f"{folder}/stopped.json"
    with subprocess.Popen([*TEST_GPU, "--results", kept, "machine", "losses"], env=EMULATED,
                          stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline().startswith("PASS machine")
        process.send_signal(signal.SIGTERM)
        said = process.stdout.read()
    assert process.returncode == 128 + signal.SIGTERM, said
    assert said == read(kept), said
    assert list(json.loads(said)["items"]) == ["machine"], said


def check_sanitizer(folder):
    """A sanitizer sees none of the libraries' kernels."""
    os.mkdir(f"{folder}/bin")
    write_script(f"{folder}/bin/compute-sanitizer",
                 'echo "[       OK ] $TRIREME_CUDA_LIBRARIES"\n')
    done = subprocess.run([*TEST_GPU, "sanitizer-racecheck"], check=True, stdout=subprocess.PIPE,
                          env={**EMULATED, "PATH": f"{folder}/bin:{os.environ['PATH']}"}, text=True)
    assert done.stdout.startswith("PASS sanitizer-racecheck"), done.stdout
    assert done.stdout.splitlines()[0].endswith(": none"), done.stdout


def check_rows(folder):
    """A row is compared with programs of PyTorch in its own precision. Ours fails at once, because
    it has no module, and PYTHON is a script that tells what it was called with."""
    called = f"{folder}/called"
    write_script(f"{folder}/python", f'echo "$@" >> "{called}"\necho \'{{"samples_per_s": 1}}\'\n')
    done = subprocess.run(["bench/gpu", "--prefix", BUILD, "--small", "--seconds", "0.1",
                           "mnist-cnn", "mnist-cnn-tf32", "mnist-cnn-mixed"], check=False,
                          env={**EMULATED, "PYTHON": f"{folder}/python", "TRIREME_MODULES": folder},
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    modes = {row: [line["program"].split("+") for line in lines
                   if line["row"] == row and line["program"] != "trireme"]
             for row in ("mnist-cnn", "mnist-cnn-tf32", "mnist-cnn-mixed")}
    assert all(len(found) == 3 for found in modes.values()), done.stdout
    for row, word in (("mnist-cnn-tf32", "tf32"), ("mnist-cnn-mixed", "autocast")):
        for other, found in modes.items():
            assert all((word in mode) == (other == row) for mode in found), done.stdout
    asked = [line.split()[1:3] for line in read(called).splitlines() if "gpu_bench.py" in line]
    assert asked == [["mnist-cnn", "+".join(mode)] for found in modes.values() for mode in found]


def main():
    with tempfile.TemporaryDirectory(prefix="trireme-gpu-scripts-") as folder:
        check_limit(folder)
        check_stopped(folder)
        check_sanitizer(folder)
        check_rows(folder)


if __name__ == "__main__":
    main()
