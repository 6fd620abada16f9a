#!/usr/bin/env python3
"""`make install` installs everything that is needed, and it works wherever it lies.

usage: test_install.py BUILD_FOLDER

Installed with PREFIX alone and with DESTDIR, then moved: a user's program in C finds the library
by pkg-config alone, shared and static, and runs. A tree that was copied with its build folder
builds and installs itself, never the tree that it was copied from.
"""
import os
import shutil
import subprocess
import sys
import tempfile

BUILD = os.path.abspath(sys.argv[1])
SOURCE = os.getcwd()
PROGRAM = r"""
#include <stdio.h>
#include <string.h>
#include <trireme/trireme.h>

static void net(tri_graph *g, const tri_batch *batch) {
    tri_block(g, "head");
    tri_value x = tri_linear(g, "fc", tri_flatten(g, batch->images), 10);
    tri_loss(g, tri_cross_entropy(g, x, batch->labels));
}

static const tri_task task = {.name = "own", .build = net};

int main(int argc, char **argv) { return tri_main(argc, argv, &task); }
"""
RECIPE = """
name: own
data: {name: synthetic, shape: [1, 28, 28], classes: 10, samples: 64}
batch: {global: 16}
optimizer: {name: sgd, lr: 0.1}
trainer: {max_epochs: 1}
"""


def run(*words, folder=None, **environment):
    done = subprocess.run(words, cwd=folder, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, env={**os.environ, **environment}, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.returncode}\n{done.stdout[-3000:]}"
    return done.stdout


def write(folder, name, text):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as out:
        out.write(text)


def flags_of(prefix, *words):
    """What pkg-config says, asked with nothing but the place of the .pc file."""
    path = os.path.join(prefix, "lib", "pkgconfig")
    flags = run("pkg-config", *words, "trireme", PKG_CONFIG_PATH=path).split()
    for flag in flags:
        place = flag[2:] if flag[:2] in ("-I", "-L") else ""
        assert not place or os.path.isdir(place), f"{flag} is no folder"
        assert not place or os.path.realpath(place).startswith(os.path.realpath(prefix)), flag
    return flags


def check_program(prefix, folder):
    """Compiles a user's program with the shared and with the static library, and runs both."""
    write(folder, "own.c", PROGRAM)
    write(folder, "own.yaml", RECIPE)
    compiler = ["cc", "-Wall", "-Wextra", "-Werror", "own.c"]
    run(*compiler, "-o", "shared", *flags_of(prefix, "--cflags", "--libs"), folder=folder)
    static = flags_of(prefix, "--cflags", "--libs", "--static")
    assert "-ltrireme" in static, static
    static[static.index("-ltrireme")] = "-l:libtrireme.a"
    run(*compiler, "-o", "static", *static, folder=folder)
    assert "libtrireme" not in run("ldd", "static", folder=folder)
    libraries = os.path.join(prefix, "lib")
    for program in ("shared", "static"):
        said = run(f"./{program}", "plan", "own.yaml", folder=folder, LD_LIBRARY_PATH=libraries)
        assert "7,850" in said, said  # 784 x 10 weights and 10 biases
    said = run("./shared", "submit", "--list", folder=folder, LD_LIBRARY_PATH=libraries)
    assert "lumi-g" in said, said


def check_installed(prefix):
    wanted = ["bin/trireme", "lib/libtrireme.so", "lib/libtrireme.a", "lib/pkgconfig/trireme.pc",
              "include/trireme/trireme.h", "share/man/man1/trireme.1",
              "share/trireme/recipes/mnist-cnn.yaml", "share/trireme/sites/lumi-g.yaml",
              "share/doc/trireme/README.md",
              "share/doc/trireme/docs/performance.md", "share/doc/trireme/examples/two-layer.c",
              "share/bash-completion/completions/trireme", "share/zsh/site-functions/_trireme",
              "share/fish/vendor_completions.d/trireme.fish"]
    missing = [path for path in wanted if not os.path.exists(os.path.join(prefix, path))]
    assert not missing, f"not installed: {missing}"
    program = os.path.join(prefix, "bin", "trireme")
    assert "trireme" in run(program, "version")
    assert "lumi-g" in run(program, "submit", "--list", folder=prefix)
    with open(os.path.join(prefix, "lib/pkgconfig/trireme.pc"), encoding="utf-8") as f:
        text = f.read()
    assert SOURCE not in text and prefix not in text and "/usr/local" not in text, text


def install(**places):
    run("make", "install", f"PRESET={os.path.basename(BUILD)}",
        *[f"{name}={value}" for name, value in places.items()], folder=SOURCE)


def check_places(folder):
    """PREFIX, moved afterwards; DESTDIR with PREFIX."""
    first, moved = os.path.join(folder, "first"), os.path.join(folder, "moved")
    install(PREFIX=first)
    check_installed(first)
    os.rename(first, moved)
    check_program(moved, folder)
    stage = os.path.join(folder, "stage")
    install(DESTDIR=stage, PREFIX="/opt/tools")
    assert os.listdir(stage) == ["opt"] and not os.path.exists(first)
    check_installed(os.path.join(stage, "opt", "tools"))
    check_program(os.path.join(stage, "opt", "tools"), folder)


def check_copy(folder):
    """A copied tree with a build folder of the first one: nothing in its new build names that. A
    compiler for GPUs alone does not make it build the module for them."""
    copy = os.path.join(folder, "copy")
    shutil.copytree(SOURCE, copy, symlinks=True,
                    ignore=shutil.ignore_patterns(".git", "build", "runs"))
    release = os.path.join(copy, "build", "release")
    os.makedirs(os.path.join(release, "lib"))
    for name in ("CMakeCache.txt", "build.ninja", "cmake_install.cmake", "trireme.pc"):
        shutil.copy(os.path.join(BUILD, name), release)
    write(release, "lib/old.o", "the other tree's")
    os.mkdir(os.path.join(folder, "bin"))
    write(folder, "bin/nvcc", "#!/bin/sh\n")
    os.chmod(os.path.join(folder, "bin", "nvcc"), 0o755)
    said = run("scripts/configure", "release", folder=copy,
               PATH=f"{folder}/bin:{os.environ['PATH']}")
    if not os.path.exists("/dev/nvidiactl"):
        assert "without CUDA" in said, said
        with open(os.path.join(release, "build.ninja"), encoding="utf-8") as f:
            assert "module_cuda" not in f.read()
    assert f"belongs to {SOURCE}" in said, said
    assert not os.path.exists(os.path.join(release, "lib", "old.o"))
    for name in ("CMakeCache.txt", "build.ninja", "cmake_install.cmake"):
        with open(os.path.join(release, name), encoding="utf-8") as f:
            text = f.read()
        assert f"{SOURCE}/" not in text, f"{name} of the copy names {SOURCE}"
        assert copy in text, name
    write(release, "kept", "")
    assert run("scripts/configure", "release", folder=copy) == ""
    assert os.path.exists(os.path.join(release, "kept")), "a build of this folder is kept"


def main():
    with tempfile.TemporaryDirectory(prefix="trireme-install-") as folder:
        check_places(folder)
        check_copy(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
