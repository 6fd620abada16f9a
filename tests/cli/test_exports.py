#!/usr/bin/env python3
"""The library and the program export exactly what the public headers declare.

usage: test_exports.py BUILD_FOLDER

A user's program and task that define every internal name of the library work as those that define
none, with the shared library, with the static one and in the program. The public headers compile
and link in C++.
"""
import os
import re
import subprocess
import sys
import tempfile

BUILD = os.path.abspath(sys.argv[1])
INCLUDE = os.path.abspath("include")
HEADERS = sorted(name for name in os.listdir(os.path.join(INCLUDE, "trireme")))
SHARED = os.path.join(BUILD, "lib", "libtrireme.so")
STATIC = os.path.join(BUILD, "lib", "libtrireme.a")
PROGRAM = os.path.join(BUILD, "bin", "trireme")
OWN = r"""
#include <trireme/trireme.h>

static void net(tri_graph *g, const tri_batch *batch) {
    tri_block(g, "head");
    tri_shape shape = tri_shape_of(batch->size, 784);
    tri_value x = tri_linear(g, "fc", tri_reshape(g, batch->images, shape), 10);
    tri_loss(g, tri_cross_entropy(g, x, batch->labels));
}

static const tri_task task = {"own", net, {}};

TRI_EXPORT_TASK(task)

#ifndef TASK
int main(int argc, char **argv) {
    if (argc == 1) return tri_main(0, NULL, &task) == 2 ? 0 : 1; /* as execve may start a program */
    return tri_main(argc, argv, &task);
}
#endif
"""
RECIPE = """
name: own
data: {name: synthetic, shape: [1, 28, 28], classes: 10, samples: 64}
batch: {global: 16}
optimizer: {name: sgd, lr: 0.1}
trainer: {max_epochs: 1, log_every_n_steps: 1}
"""
# The program's OpenMP runtime (src/cli/openmp.c).
OPENMP = {"GOMP_parallel", "GOMP_barrier", "omp_get_thread_num", "omp_get_num_threads",
          "omp_in_parallel"}
# What is not one of the library's: C's own, which a user's program defines or cannot define.
KEPT = {"main"} | OPENMP


def run(*words, folder=None):
    environment = {**os.environ, "LD_LIBRARY_PATH": os.path.dirname(SHARED), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, cwd=folder, text=True, stdout=subprocess.PIPE, env=environment,
                          stderr=subprocess.STDOUT, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.returncode}\n{done.stdout[-3000:]}"
    return done.stdout


def declared():
    """The functions that the public headers declare, also by rows of lists: X(NAME, …)."""
    found = set()
    for header in HEADERS:
        with open(os.path.join(INCLUDE, "trireme", header), encoding="utf-8") as f:
            text = f.read()
        found |= {f"tri_{name}" for name in re.findall(r"\bX\((\w+), \(tri_value", text)}
        text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text.replace("\\\n", ""), flags=re.S)
        text = re.sub(r"^\s*#[^\n]*", "", text, flags=re.M)
        found |= set(re.findall(r"^[\w \t]+?[ *](tri_\w+)\([^{}]*?\)[^{};]*;", text, flags=re.M))
    return found


def defined(path, *flags):
    lines = run("nm", "--defined-only", "--format=posix", *flags, path).splitlines()
    return {line.split()[0]: line.split()[1] for line in lines if len(line.split()) > 2}


def check_exports(public):
    assert len(public) > 40 and {"tri_main", "tri_version", "tri_name"} < public, public
    for path, flags in ((SHARED, ["-D"]), (PROGRAM, ["-D"]), (STATIC, ["-g"])):
        found = {name for name, kind in defined(path, *flags).items() if kind in "TiWVDBR"}
        if path == PROGRAM:  # what the C runtime brings along
            found -= {"_start", "_init", "_fini", "_edata", "_end", "__bss_start", "__data_start",
                      "data_start", "_IO_stdin_used"}
            assert OPENMP <= found, OPENMP - found
            found -= OPENMP
        assert public - found == set(), f"{path} does not export {public - found}"
        assert found - public == set(), f"{path} also exports {found - public}"


def check_openmp():
    """oneDNN asks OpenMP for nothing that depends on a region but what the program supplies."""
    libraries = re.findall(r"libdnnl\S* => (\S+)", run("ldd", PROGRAM))
    assert len(libraries) == 1, libraries
    names = {line.split()[0].split("@")[0]
             for line in run("nm", "-D", "--undefined-only", "--format=posix",
                             libraries[0]).splitlines()}
    needed = {name for name in names if name.startswith(("GOMP_", "omp_"))}
    assert needed <= OPENMP | {"omp_get_max_threads"}, needed
    assert "GOMP_parallel" in needed, needed


def inner_names(public):
    """What the library calls its own functions and data that have external linkage."""
    rooms = defined(os.path.join(BUILD, "lib", "librooms.a"), "-g")
    names = {name for name, kind in rooms.items() if kind in "TDBR"} - public - KEPT
    assert len(names) > 500 and "tri_loader_next" in names, len(names)
    return sorted(names)


def curve(folder, *command):
    """The losses that training prints."""
    run(*command, "--run-dir", "run", folder=folder)
    with open(os.path.join(folder, "run", "metrics.jsonl"), encoding="utf-8") as f:
        losses = re.findall(r'"loss":([^,]*)', f.read())
    run("rm", "-r", "run", folder=folder)
    assert len(losses) >= 4, losses
    return losses


def check_names(folder, names):
    """A program and a task with all inner names train as those without."""
    with open(os.path.join(folder, "names.c"), "w", encoding="utf-8") as out:
        out.write("void abort(void);\n")
        out.writelines(f"void {name}(void); void {name}(void) {{ abort(); }}\n" for name in names)
    compile_c = ["cc", "-Wall", "-Wextra", "-Werror", f"-I{INCLUDE}", "-rdynamic", "own.c"]
    shared = [f"-L{os.path.dirname(SHARED)}", "-ltrireme"]
    with open(os.path.join(BUILD, "trireme.pc"), encoding="utf-8") as f:
        private = re.search(r"^Libs\.private: (.*)", f.read(), flags=re.M).group(1).split()
    run("cc", "-c", "-fPIC", "-fno-builtin", "names.c", folder=folder)
    run(*compile_c, "-o", "plain", *shared, folder=folder)
    run(*compile_c, "names.o", "-o", "shared", *shared, folder=folder)
    run(*compile_c, "names.o", "-o", "static", STATIC, *private, folder=folder)
    run(*compile_c, "names.o", "-DTASK", "-shared", "-fPIC", "-o", "task.so", folder=folder)
    assert "usage: trireme" in run("./plain", folder=folder)
    plain = curve(folder, "./plain", "train", "own.yaml")
    for command in (["./shared", "train", "own.yaml"], ["./static", "train", "own.yaml"],
                    [PROGRAM, "train", "own.yaml", "model.name=./task.so"],
                    ["./plain", "train", "own.yaml", "model.name=./task.so"]):
        found = curve(folder, *command)
        assert found == plain, f"{command}: {found}, not {plain}"


def check_cpp(folder, public):
    """Every header alone, every function by its address, and a task, in C++."""
    compile_cpp = ["g++", "-Wall", "-Wextra", "-Wno-missing-field-initializers", "-Werror",
                   f"-I{INCLUDE}"]
    for header in HEADERS:
        for standard in ("c++11", "c++20"):
            text = f"#include <trireme/{header}>\n#include <trireme/{header}>\nint one;\n"
            with open(os.path.join(folder, "header.cc"), "w", encoding="utf-8") as out:
                out.write(text)
            run(*compile_cpp, f"-std={standard}", "-Wpedantic", "-c", "header.cc", folder=folder)
    table = ", ".join(f"(void *)&{name}" for name in sorted(public))
    with open(os.path.join(folder, "own.cc"), "w", encoding="utf-8") as out:
        out.write(OWN + f"\nvoid *all[] = {{{table}}};\n")
    run(*compile_cpp, "own.cc", "-o", "cpp", f"-L{os.path.dirname(SHARED)}", "-ltrireme",
        folder=folder)
    run(*compile_cpp, "-DTASK", "-fvisibility=hidden", "-shared", "-fPIC", "own.cc", "-o", "cpp.so",
        folder=folder)
    own = curve(folder, "./cpp", "train", "own.yaml")
    assert own == curve(folder, PROGRAM, "train", "own.yaml", "model.name=./cpp.so")
    assert own == curve(folder, "./plain", "train", "own.yaml")


def main():
    public = declared()
    check_exports(public)
    check_openmp()
    with tempfile.TemporaryDirectory(prefix="trireme-exports-") as folder:
        for name, text in (("own.c", OWN), ("own.yaml", RECIPE)):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as out:
                out.write(text)
        check_names(folder, inner_names(public))
        check_cpp(folder, public)
    return 0


if __name__ == "__main__":
    sys.exit(main())
