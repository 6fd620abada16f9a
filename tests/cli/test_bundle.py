#!/usr/bin/env python3
"""`make bundle`: an archive that runs where it is unpacked, whatever the machine has.

usage: test_bundle.py BUILD_FOLDER

Two builds of one tree give the same bytes. Unpacked in a folder with a blank in its name, on roots
without any library, with an older C library than it was built for, with the same one, and with
libstdc++ too, a user without rights trains on one rank and on two, and has the losses of the build
folder. On this machine nothing of it is loaded from outside the bundle but the C library and
libstdc++, whichever of both is new enough. HOSTS=bullseye,trixie tries these Debians too, from the
network.
"""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.getcwd(), "tests", "support"))
from bundle import (BUILD, NAME, NOBODY, can_mount, in_root, losses_in,  # noqa: E402
                    losses_of_build, make, make_root, run, system_files, write_recipe)

SITE = re.compile(r"lib(mpi|pmix|ibverbs|mlx5|rdmacm|cuda|cudart|cublas\w*|cudnn\w*|nccl)\.so")
INIT = re.compile(r"calling init: (.*)")  # of LD_DEBUG=libs
HOME = "/users/a user"
# What a host has: C library, libstdc++; and where both come from there.
HOSTS = {"nothing": ("carried", "carried"), "old": ("carried", "host"),
         "libc": ("host", "carried"), "libstdc++": ("host", "host")}


def check_same(folder):
    """The same bytes in another folder, and under another umask."""
    first = make(f"{folder}/1")
    old = os.umask(0o077)
    second = make(f"{folder}/2")
    os.umask(old)
    subprocess.run(["cmp", first, second], check=True)
    return first


# Modules with large libraries of which a job has no need, or which only PyPI has.
LEFT_OUT = {"download.so", "parquet.so"}


def check_files(bundle):
    files = [os.path.relpath(os.path.join(at, name), bundle)
             for at, _, names in os.walk(bundle) for name in names]
    wanted = ["bin/trireme", "libexec/trireme", "lib/libdnnl.so.2", "lib/libc/libc.so.6", "README",
              "LICENSE", "include/trireme/trireme.h", "share/man/man1/trireme.1",
              "share/trireme/recipes/mnist-cnn.yaml", "share/trireme/sites/lumi-g.yaml",
              "share/bash-completion/completions/trireme", "share/doc/trireme/docs/clusters.md",
              "share/licenses/libc6", "share/licenses/libssl-dev", "share/licenses/PACKAGES"]
    modules = {os.path.basename(path) for path in glob.glob(f"{BUILD}/lib/trireme/*.so")}
    wanted += [f"lib/trireme/{name}" for name in modules - LEFT_OUT]
    wanted += ["tests/test-gpu", "tests/unit_test_cuda_ops", "bench/gpu"]
    if os.path.exists(f"{BUILD}/lib/trireme/cuda.so"):
        wanted.append("share/licenses/cuda-runtime")
    assert not set(wanted) - set(files), set(wanted) - set(files)
    assert not [path for path in files if SITE.search(path)], "carries a library of the site"
    for path in files:
        with open(os.path.join(bundle, path), "rb") as f:
            assert os.getcwd().encode() not in f.read(), f"{path} names the tree"
    with open(f"{bundle}/README", encoding="utf-8") as f:
        assert len(f.read().strip().split("\n")) == 5


# ---- roots


def make_host(root, host, archive):
    packages = {"nothing": [], "libc": ["libc6"]}.get(host, ["libc6", "libstdc++6", "libgcc-s1"])
    make_root(root, *packages)
    if host == "old":
        rename_versions(f"{root}/lib/x86_64-linux-gnu/libc.so.6",
                        rb"\0GLIBC_2\.(29|[34]\d)(?=\0)")
    unpack(root, archive)


def rename_versions(path, pattern):
    """Makes an older library of a library: it defines no version any more that matches."""
    with open(path, "rb") as f:
        data = f.read()
    data, count = re.subn(pattern, lambda found: b"\0" + b"X" * (len(found.group()) - 1), data)
    assert count, path
    with open(path, "wb") as f:
        f.write(data)


def unpack(root, archive):
    home = root + HOME
    os.makedirs(home)
    subprocess.run(["tar", "-xf", archive, "-C", home], check=True)
    write_recipe(home)
    subprocess.run(["chown", "-R", NOBODY, home], check=True)


def check_root(root, host, losses):
    home = HOME
    program = f"{home}/{NAME}/bin/trireme"
    assert in_root(root, program, "version") == "trireme 0.1.0\n"
    loaded = dict(reversed(path.rsplit("/", 1)) for path in
                  INIT.findall(in_root(root, program, "version", LD_DEBUG="libs")))
    for name, where in zip(("libc.so.6", "libstdc++.so.6"), HOSTS.get(host, ())):
        assert loaded[name].startswith(home) == (where == "carried"), (host, loaded)
    alone = f"{home}/{NAME}/libexec/trireme"
    if host == "old":  # else this root proves nothing
        assert "GLIBC_" in in_root(root, alone, "version", code=1)
    if host not in ("old", "libstdc++"):
        in_root(root, program, "train", f"{home}/small.yaml", "--run-dir", f"{home}/one")
        assert losses_in(f"{root}{home}/one") == losses
        assert "lumi-g" in in_root(root, program, "submit", "--list")
    two = ["run", "--standalone", "--nproc-per-node", "2", "trireme", "train",
           f"{home}/small.yaml"]
    in_root(root, program, *two, "--run-dir", f"{home}/two")
    assert losses_in(f"{root}{home}/two") == losses
    if host == "nothing" and os.path.exists(f"{BUILD}/lib/trireme/ucx.so"):
        in_root(root, program, *two, "comm.backend=ucx", "--run-dir", f"{home}/ucx")
        assert losses_in(f"{root}{home}/ucx") == losses
    if host == "nothing" and os.path.exists(f"{BUILD}/lib/trireme/mpi.so"):
        said = in_root(root, program, *two, "comm.backend=mpi", "--run-dir", f"{home}/m", code=2)
        assert re.search(r"mpi cannot be loaded: libmpi.so\S+: .*LD_LIBRARY_PATH", said), said


# ---- on this machine


def loaded_by(bundle, *words, **environment):
    """What the loader loads for the program, as paths by name."""
    said = run(f"{bundle}/bin/trireme", *words, LD_DEBUG="libs", **environment)
    return {os.path.basename(path): os.path.realpath(path) for path in INIT.findall(said)}


def check_loaded(folder, bundle, losses):
    """Only the C library and libstdc++ are this machine's, and none if the user says so."""
    train = ["train", write_recipe(folder), "--run-dir"]
    loaded = loaded_by(bundle, *train, f"{folder}/host")
    assert losses_in(f"{folder}/host") == losses
    outside = {name for name, path in loaded.items() if not path.startswith(f"{bundle}/")}
    common = set(os.listdir(f"{bundle}/lib/libc")) | set(os.listdir(f"{bundle}/lib/gcc"))
    assert {"libc.so.6", "libstdc++.so.6"} <= outside <= common, outside - common
    loaded = loaded_by(bundle, *train, f"{folder}/carried", TRIREME_LIBC="carried")
    assert losses_in(f"{folder}/carried") == losses
    assert {"libc.so.6", "libstdc++.so.6", "libdnnl.so.2"} <= set(loaded)
    outside = {name for name, path in loaded.items() if not path.startswith(f"{bundle}/")}
    assert not outside, outside


def check_library_path(folder, bundle):
    """In LD_LIBRARY_PATH, a new enough libstdc++ is used, an older one is not, and nothing takes
    the place of the bundle's own libraries."""
    other = f"{folder}/other"
    os.mkdir(other)
    shutil.copy(system_files("libstdc++6")[0], f"{other}/libstdc++.so.6")
    with open(f"{other}/libjansson.so.4", "w", encoding="utf-8") as f:
        f.write("not a library")
    loaded = loaded_by(bundle, "version", LD_LIBRARY_PATH=other)
    assert loaded["libstdc++.so.6"] == f"{other}/libstdc++.so.6", loaded
    rename_versions(f"{other}/libstdc++.so.6", rb"\0GLIBCXX_3\.4\.(29|3\d)(?=\0)")
    loaded = loaded_by(bundle, "version", LD_LIBRARY_PATH=other)
    assert loaded["libstdc++.so.6"] == f"{bundle}/lib/gcc/libstdc++.so.6", loaded
    assert not loaded["libc.so.6"].startswith(bundle), loaded


def check_mpi(folder, bundle, losses):
    """This machine's MPI, also with the carried C library."""
    if not os.path.exists(f"{BUILD}/lib/trireme/mpi.so") or not shutil.which("mpirun"):
        print("without MPI: mpirun or the module mpi is not installed")
        return
    for choice in ("host", "carried"):
        run("/usr/bin/mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", "-x",
            "TRIREME_LIBC", f"{bundle}/bin/trireme", "train", f"{folder}/small.yaml",
            "comm.backend=mpi", "--run-dir", f"{folder}/mpi-{choice}", TRIREME_LIBC=choice,
            PATH=os.environ["PATH"], HOME=folder, TRIREME_BIND="none")
        assert losses_in(f"{folder}/mpi-{choice}") == losses


def check_names(folder, bundle):
    """A folder that the loader cannot search is refused by one line, where it has to."""
    odd = f"{folder}/a:b"
    os.rename(bundle, odd)
    assert run(f"{odd}/bin/trireme", "version") == "trireme 0.1.0\n"
    said = run(f"{odd}/bin/trireme", "version", code=126, TRIREME_LIBC="carried")
    assert said.count("\n") == 1 and "move it" in said, said


def check_debian(folder, suite, archive, losses):
    root = f"{folder}/{suite}"
    mirror = subprocess.run(["sh", "-c", "apt-get indextargets --format '$(REPO_URI)' "
                             "'Created-By: Packages' 'Label: Debian' | head -n 1"], check=True,
                            text=True, stdout=subprocess.PIPE).stdout.strip()
    subprocess.run(["debootstrap", "--variant=minbase", suite, root, mirror], check=True,
                   stdout=subprocess.DEVNULL)
    unpack(root, archive)
    check_root(root, suite, losses)


def main():
    if not can_mount():
        print("skipped: needs root, and mounts of its own, to make a bare root")
        return 77
    with tempfile.TemporaryDirectory(prefix="trireme-bundle-test-") as folder:
        folder = os.path.realpath(folder)
        os.chmod(folder, 0o755)
        archive = check_same(folder)
        subprocess.run(["tar", "-xf", archive, "-C", folder], check=True)
        bundle = f"{folder}/{NAME}"
        check_files(bundle)
        losses = losses_of_build(folder)
        for host in HOSTS:
            make_host(f"{folder}/{host}", host, archive)
            check_root(f"{folder}/{host}", host, losses)
        for suite in filter(None, os.environ.get("HOSTS", "").split(",")):
            check_debian(folder, suite, archive, losses)
        check_loaded(folder, bundle, losses)
        check_library_path(folder, bundle)
        check_mpi(folder, bundle, losses)
        check_names(folder, bundle)
    return 0


if __name__ == "__main__":
    sys.exit(main())
