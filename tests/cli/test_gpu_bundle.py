#!/usr/bin/env python3
"""A bundle brings its own tests for a GPU: `tests/test-gpu` and `make test-gpu` run them where
nothing is but the C library, Python and make, for a user without rights. A short selection, on an
emulated GPU in the place of the driver's.

usage: test_gpu_bundle.py BUILD_FOLDER
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.getcwd(), "tests", "support"))
from bundle import BUILD, NAME, NOBODY, can_mount, in_root, make, make_root  # noqa: E402

HOME = "/users/a user"
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
ITEMS = ("machine", "device", "graphs", "failure", "losses-mnist-convnet", "repeats-llama-tiny",
         "trap", "trap-op", "trap-refused", "nccl", "ranks-fsdp", "strategy-fsdp",
         "sanitizer-memcheck")


def add_tools(root):
    """Python as it is installed here, make, and the programs that start them."""
    os.makedirs(f"{root}/usr/bin")
    os.makedirs(f"{root}/bin")
    shutil.copy(f"/usr/bin/{PYTHON}", f"{root}/usr/bin/python3")
    for program in ("/usr/bin/env", "/usr/bin/make", "/bin/sh"):
        shutil.copy(program, root + program)
    shutil.copytree(f"/usr/lib/{PYTHON}", f"{root}/usr/lib/{PYTHON}", symlinks=True,
                    ignore=shutil.ignore_patterns("__pycache__", "config-*", "test", "*-packages"))


def add_tree(folder):
    """What of a checkout `make test-gpu` needs."""
    for name in ("tests/gpu", "tests/parity", "tests/support", "bench"):
        shutil.copytree(name, f"{folder}/{name}", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy("Makefile", folder)


def check_items(said, wanted):
    """The last line says what the lines before it say."""
    lines = said.strip().splitlines()
    summary = json.loads(lines[-1])
    results = {name: item["result"] for name, item in summary["items"].items()}
    assert results == wanted, said
    assert [line.split()[:2] for line in lines[:-1]] == [[wanted[name], name] for name in wanted]
    assert summary["fail"] == 0 and summary["pass"] == list(wanted.values()).count("PASS"), said
    return summary["items"]


def check_bench():
    """Without PyTorch, bench/gpu says so and measures the rest, if the machine is quiet enough."""
    done = subprocess.run(["bench/gpu", "--prefix", BUILD, "--small", "--seconds", "0.1",
                           "llama-1b"], text=True, stdout=subprocess.PIPE, check=False,
                          env={**os.environ, "PYTHON": "/bin/false",
                               "TRIREME_MODULES": f"{BUILD}/lib/emulated"})
    said, line, *table = done.stdout.splitlines()
    assert said.endswith("/bin/false has no PyTorch: only Trireme is measured"), done.stdout
    row = json.loads(line)
    assert (row["row"], row["program"]) == ("llama-1b", "trireme"), row
    if row["samples_per_s"] is None:
        assert "other programs" in row["why"], row
    assert (done.returncode == 0) == (row["samples_per_s"] is not None), done.stdout
    assert table[2].split() == ["row", "program", "samples/s", "ratio", "MFU", "GPU", "MB"], table


def main():
    if not can_mount():
        print("skipped: needs root, and mounts of its own, to make a bare root")
        return 77
    if not os.path.exists(f"{BUILD}/lib/trireme/cuda.so"):
        print("without the module cuda: it was not built (TRIREME_CUDA)")
    with tempfile.TemporaryDirectory(prefix="trireme-gpu-bundle-") as folder:
        os.chmod(folder, 0o755)
        archive = make(f"{folder}/made")
        root = f"{folder}/root"
        make_root(root, "libc6", "libexpat1", "zlib1g")
        add_tools(root)
        add_tree(root + HOME)
        shutil.copytree(f"{BUILD}/lib/emulated", f"{root}/emulated")
        subprocess.run(["tar", "-xf", archive, "-C", root + HOME], check=True)
        subprocess.run(["chown", "-R", NOBODY, root + HOME], check=True)
        bundle = f"{HOME}/{NAME}"
        said = in_root(root, f"{bundle}/tests/test-gpu", code=77, PATH="/usr/bin:/bin")
        assert said == "test-gpu: skipped: this machine has no NVIDIA driver\n", said
        emulated = {"PATH": "/usr/bin:/bin", "TRIREME_MODULES": "/emulated"}
        wanted = {name: "SKIP" if "sanitizer" in name else "PASS" for name in ITEMS}
        found = check_items(in_root(root, f"{bundle}/tests/test-gpu", "--small", *ITEMS,
                                    **emulated), wanted)
        assert "not installed" in found["sanitizer-memcheck"]["why"]
        said = in_root(root, "/usr/bin/make", "-s", "-C", HOME, "test-gpu",
                       f"PREFIX_GPU={bundle}", "TEST_GPU=--small device", **emulated)
        check_items(said, {"device": "PASS"})
        assert "there is no item speed" in in_root(root, f"{bundle}/tests/test-gpu", "speed",
                                                   code=2, **emulated)
        done = subprocess.run(["tests/gpu/test-gpu", "--prefix", archive, "--small", "device"],
                              env={**os.environ, "TRIREME_MODULES": f"{BUILD}/lib/emulated"},
                              check=True, stdout=subprocess.PIPE, text=True)
        check_items(done.stdout, {"device": "PASS"})
        check_bench()
    return 0


if __name__ == "__main__":
    sys.exit(main())
