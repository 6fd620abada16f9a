#!/usr/bin/env python3
"""Completion in bash and the manual page, which the program writes from its own tables.

usage: test_completion.py BUILD_FOLDER
"""
import os
import shutil
import subprocess
import sys
import tempfile

BUILD = os.path.abspath(sys.argv[1])
TRIREME = os.path.join(BUILD, "bin", "trireme")


def trireme(*words):
    return subprocess.run([TRIREME, *words], capture_output=True, text=True, check=True).stdout


def complete(script, line, breaks="\"'><=;|&(:"):
    """What bash would offer at the end of the line."""
    program = ('source "$1"; COMP_WORDBREAKS=$3; COMP_LINE=$2; COMP_POINT=${#2}; COMPREPLY=(); '
               '_trireme; (( ${#COMPREPLY[@]} == 0 )) || printf "%s\\n" "${COMPREPLY[@]}"')
    done = subprocess.run(["bash", "--norc", "-c", program, "bash", script, line, breaks],
                          capture_output=True, text=True, check=True)
    assert not done.stderr, f"{line}: {done.stderr}"
    return [word.strip() for word in done.stdout.splitlines()]


def check_completion(script):
    def offers(line, *wanted, exactly=True):
        found = complete(script, line)
        missing = set(wanted) - set(found)
        assert not missing, f"'{line}' does not offer {missing}: {found}"
        assert not exactly or len(found) == len(wanted), f"'{line}' offers {found}"

    offers("trireme tr", "train")
    offers("trireme ", "train", "eval", "run", "plan", "checkpoint", "version", exactly=False)
    offers("build/release/bin/trireme ev", "eval")
    offers("trireme train --r", "--run-dir", "--resume")
    offers("trireme train --device ", "auto", "cpu", "ref", "null")
    offers("trireme train --resume n", "never")
    offers("trireme train recipes/mnist-", "recipes/mnist-cnn.yaml", "recipes/mnist-convnet.yaml")
    offers("trireme train re", "recipes")
    recipe = "trireme train recipes/mnist-cnn.yaml "
    offers(recipe + "optimizer.we", "optimizer.weight_decay=")
    offers(recipe + "data.", "data.path=", "data.samples=", "data.limit=", exactly=False)
    offers(recipe + "optimizer.name=ada", "adam", "adamw", "adadelta")
    offers(recipe + "seed=2 schedule.name=", "constant", "step", "linear", "cosine", "onecycle",
           "warmup", "warmup-decay", "warmup-cosine", "triangle")
    offers(recipe + "model.name=mnist-c", "mnist-cnn", "mnist-convnet")
    offers(recipe + "data.shuffle=f", "false")
    offers(recipe + "trainer.convolution=d", "direct")
    offers(recipe + "data.path=recipes/auto", "recipes/autoencoder.yaml")
    offers(recipe + "nothing")
    offers(recipe + "seed=")
    found = complete(script, recipe + "trainer.convolution=d", breaks=" ")
    assert found == ["trainer.convolution=direct"], found
    offers("trireme checkpoint ", "list", "verify", "export", "diff", "init")
    offers("trireme checkpoint export x --dtype B", "BF16")
    offers("trireme checkpoint verify READ", "README.md")
    offers("trireme bench t", "train")
    offers("trireme run --nproc", "--nproc-per-node")
    offers("trireme run --nproc-per-node ", "auto", "cpu", "gpu")
    offers("trireme run --standalone ", "trireme")
    offers("trireme run --standalone trireme train --js", "--json")
    offers("trireme plan recipes/mnist-cnn.yaml --show g", "gantt", "graph")


def check_manual(page):
    for part in ("\\fB\\-\\-run\\-dir\\fR", "optimizer.weight_decay", ".SS trireme checkpoint",
                 "\\fB\\-\\-nproc\\-per\\-node\\fR", "trainer.max_epochs", ".SH EXIT STATUS"):
        assert part in page, f"{part} is not in the manual"
    assert page.isascii(), "roff takes ASCII"
    if not shutil.which("groff"):
        print("the page is not set: there is no groff")
        return
    done = subprocess.run(["groff", "-man", "-ww", "-Tutf8", "-z"], input=page, text=True,
                          capture_output=True, check=True)
    assert not done.stderr, done.stderr


def check_help():
    """Every command teaches by an example, and its examples' flags exist."""
    commands = [line.split()[0] for line in trireme("--help").splitlines()
                if line.startswith("  ") and not line.startswith("  trireme")]
    assert len(commands) >= 10, commands
    for command in commands:
        text = trireme(command, "--help")
        assert text.startswith(f"usage: trireme {command}"), text
        examples = text.partition("for example\n")[2].splitlines()
        assert examples and all(f" {command}" in line for line in examples), text
        assert max(map(len, text.splitlines())) <= 110 or command == "run", text
    some = trireme("train", "--keys", "optimizer")
    assert "optimizer.betas = [0.9, 0.999]" in some and "trainer" not in some, some
    assert "trainer.max_epochs = 3" in trireme("train", "--keys")


def main():
    script = trireme("completion", "bash")
    with tempfile.TemporaryDirectory(prefix="trireme-completion-") as folder:
        path = os.path.join(folder, "trireme")
        with open(path, "w", encoding="utf-8") as out:
            out.write(script)
        check_completion(path)
    check_manual(trireme("manual"))
    check_help()
    for name, text in (("trireme.bash", script), ("trireme.1", trireme("manual"))):
        with open(os.path.join(BUILD, name), encoding="utf-8") as built:
            assert built.read() == text, f"{name} is not what the program says"
    return 0


if __name__ == "__main__":
    sys.exit(main())
