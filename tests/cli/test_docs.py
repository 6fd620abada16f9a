#!/usr/bin/env python3
"""Runs the commands of README.md, docs/clusters.md and every page of docs/guide, so that none of
them is wrong; checks that docs/recipe.md and docs/api.md are what scripts/make-docs writes.

usage: test_docs.py BUILD_FOLDER [PAGE …]

Without PAGE: all of them or, if DOCS is `preflight`, those with a command that refuses a machine
that others use; with any other text the rest. So only few commands need a quiet machine.

Every command of a page's fenced `sh` blocks runs, in order. Each page has a folder of its own that
looks like a checkout after `make build`: links to the sources, the build as build/release, its
programs in PATH. Its recipes name the first images of Fashion-MNIST instead of all. Commands that
begin with a word of ELSEWHERE, which other tests or .ci/run cover, and blocks after a comment
<!-- not run: why --> are printed and left out.
"""
import glob
import gzip
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

ELSEWHERE = {
    "make": "make test is what runs this; the demo and the installation have their own tests",
    "git": "needs the network",
    "sudo": "changes the machine",
    "apt-get": "changes the machine",
    "sbatch": "needs a cluster",
    "srun": "needs a cluster",
    "cd": "this is the folder already",
}
LINKED = ("examples", "include", "docs", "sites", "scripts", "bench", "tests")
BLOCK = re.compile(r"(<!--\s*not run:([^>]*?)-->\s*)?^```(?:sh|bash|shell|console)\n(.*?)^```",
                   re.M | re.S)
LIMIT_S = 200
DATA = "/usr/share/datasets/fashion-mnist"
IMAGES = {"train": 2000, "t10k": 500}  # so many


def blocks(text):
    """For each fenced block its commands to run, and what is left out with the reason."""
    for match in BLOCK.finditer(text):
        commands, left_out = [], []
        body = re.sub(r"\s*\\\n\s*", " ", match.group(3))
        for line in body.splitlines():
            line = re.sub(r"^\$ ", "", line).strip()
            if not line or line.startswith("#"):
                continue
            word = line.split()[0]
            if match.group(1):
                left_out.append((line, match.group(2).strip()))
            elif word in ELSEWHERE:
                left_out.append((line, ELSEWHERE[word]))
            else:
                commands.append(line)
        yield commands, left_out


def run(line, folder, environment):
    """What is wrong with the command, or an empty text."""
    try:
        done = subprocess.run(["sh", "-euc", line], cwd=folder, env=environment, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"no end after {LIMIT_S} s"
    if done.returncode != 0:
        return f"exit code {done.returncode}: {done.stdout[-1500:]}"
    return ""


def small_recipes(folder):
    """Makes the folder's recipes, and a folder of data with the first images of each file."""
    data = os.path.join(folder, "fashion-mnist")
    os.mkdir(data)
    for path in glob.glob(f"{DATA}/*.gz"):
        name = os.path.basename(path).removesuffix(".gz")
        with gzip.open(path) as file:
            head = bytearray(file.read(8 if "labels" in name else 16))
            count = IMAGES[name.split("-")[0]]
            head[4:8] = struct.pack(">I", count)
            size = count * (1 if "labels" in name else 28 * 28)
            with open(os.path.join(data, name), "wb") as out:
                out.write(head + file.read(size))
    shutil.copytree("recipes", os.path.join(folder, "recipes"))
    for path in glob.glob(f"{folder}/recipes/*.yaml"):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        with open(path, "w", encoding="utf-8") as file:
            file.write(text.replace(DATA, data))


def checkout(folder, build):
    """Makes the folder look like a checkout after `make build`; returns the environment."""
    source = os.getcwd()
    for name in LINKED:
        if os.path.exists(name):
            os.symlink(os.path.join(source, name), os.path.join(folder, name))
    small_recipes(folder)
    os.mkdir(os.path.join(folder, "build"))
    os.symlink(os.path.abspath(build), os.path.join(folder, "build", "release"))
    programs = os.path.join(folder, "build", "release", "bin")
    return {**os.environ, "HOME": folder, "PATH": f"{programs}:{os.environ['PATH']}"}


def with_gpus(environment, folder):
    """The environment in which this build seems to drive NVIDIA's GPUs, for `trireme submit`."""
    if os.path.exists(os.path.join(folder, "build/release/lib/trireme/cuda.so")):
        return environment
    modules = os.path.join(folder, "modules")
    os.makedirs(modules, exist_ok=True)
    open(os.path.join(modules, "cuda.so"), "w", encoding="utf-8").close()
    return {**environment, "TRIREME_MODULES": modules}


def self_test():
    text = ("```sh\nmake demo\ntrue  # fine\nfalse \\\n  --really\n```\n"
            "```c\nint x;\n```\n<!-- not run: no such machine -->\n```sh\nsbatch job\n```\n")
    found = list(blocks(text))
    assert [commands for commands, _ in found] == [["true  # fine", "false --really"], []], found
    assert [line for _, left in found for line, _ in left] == ["make demo", "sbatch job"], found
    assert not run("true", ".", os.environ) and run("false; true", ".", os.environ)


def run_page(page, build):
    """Runs a page's commands; returns how many there were and how many failed."""
    with open(page, encoding="utf-8") as f:
        found = list(blocks(f.read()))
    ran = failed = 0
    with tempfile.TemporaryDirectory(prefix="trireme-docs-") as folder:
        environment = checkout(folder, build)
        for commands, left_out in found:
            for line, why in left_out:
                print(f"left out  {line}: {why}")
            for line in commands:
                is_submit = line.startswith("trireme submit ")
                wrong = run(line, folder,
                            with_gpus(environment, folder) if is_submit else environment)
                print(f"{'FAILED  ' if wrong else 'ok      '}  {line}", flush=True)
                if wrong:
                    print(f"    {wrong}")
                ran, failed = ran + 1, failed + bool(wrong)
    if not ran:
        print(f"{page} has no `sh` block with a command to run")
    return ran, failed


def check_page_one(build):
    """README names no kind of data, model or optimizer as missing that there is; returns them."""
    with open("README.md", encoding="utf-8") as f:
        missing = f.read().partition("**Not yet:**")[2].partition("- **")[0]
    keys = subprocess.run([f"{build}/bin/trireme", "train", "--keys"], stdout=subprocess.PIPE,
                          text=True, check=True).stdout
    names = set(re.findall(r"^ *(?:data|model|optimizer|schedule)\.name: (\S+)$", keys, re.M))
    assert {"idx", "llama", "adamw", "cosine"} <= names and missing, names
    return [name for name in names if re.search(rf"\b{name}\b", missing, re.I)]


def chosen_pages(choice):
    pages = ["README.md", "docs/clusters.md", *sorted(glob.glob("docs/guide/*.md"))]
    if not choice:
        return pages
    quiet = []
    for page in pages:
        with open(page, encoding="utf-8") as f:
            found = blocks(f.read())
        if any("trireme preflight" in line for commands, _ in found for line in commands):
            quiet.append(page)
    return quiet if choice == "preflight" else [page for page in pages if page not in quiet]


def main():
    self_test()
    there = check_page_one(sys.argv[1])
    assert not there, f"README.md says that these are missing: {there}"
    pages = sys.argv[2:] or chosen_pages(os.environ.get("DOCS", ""))
    assert pages, "there is no such page"
    # Pages that are written from the program must be those that it would write now.
    failed = subprocess.call(["scripts/make-docs", "--check", sys.argv[1]])
    for page in pages:
        print(f"== {page}", flush=True)
        ran, wrong = run_page(page, sys.argv[1])
        failed += wrong + (not ran)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
