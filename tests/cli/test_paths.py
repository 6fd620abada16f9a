#!/usr/bin/env python3
"""Paths of a recipe: recorded so that a run folder works from every working directory, and after it
was moved together with its data; variables in them; files beside the recipe.

usage: test_paths.py BUILD_FOLDER
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import TRIREME, check_all, check_refused, entries, run  # noqa: E402
import tensors  # noqa: E402

SOURCE = os.getcwd()
RECIPE = """name: lt
model: {name: mlp-jax}
data: {name: tensors, train: data/train.st, test: data/test.st, workers: 0}
batch: {global: 8}
init: data/init.st
trainer: {max_steps: 2}
log: {tensorboard: false, summary: false, progress: false}
"""


def write_samples(path, count):
    tensors.write(path, {"images": ("F32", [count, 1, 8, 8], [1] * (count * 64)),
                         "labels": ("I64", [count], [1] * count)})


def project(folder, text=RECIPE):
    """A project's folder: recipe, data and initial weights, all by relative paths."""
    place = os.path.join(folder, "project")
    os.makedirs(os.path.join(place, "data"))
    os.makedirs(os.path.join(place, "runs"))
    for name in ("train", "test"):
        write_samples(f"{place}/data/{name}.st", 32)
    with open(f"{place}/lt.yaml", "w", encoding="utf-8") as file:
        file.write(text)
    if "init:" in text:
        run([TRIREME, "checkpoint", "init", "lt.yaml", "data.shapes={images: [1,8,8], labels: []}",
             "--out", "data/init.st"], cwd=place, env=variables(place))
    return place


def variables(place):
    return {**os.environ, "HERE": place, "SUB": "data", "HOME": place}


def steps(place):
    return entries(place, "end")[-1]["steps"]


def recorded(place):
    with open(f"{place}/recipe.yaml", encoding="utf-8") as file:
        return file.read()


def evaluate(checkpoint, where):
    return json.loads(run([TRIREME, "eval", "--checkpoint", checkpoint, "--json"],
                          cwd=where).stdout)["samples"]


def check_from_elsewhere(folder):
    """Evaluates and resumes in other working directories than the one of the start."""
    place = project(folder)
    run([TRIREME, "train", "lt.yaml"], cwd=place)
    before = recorded(f"{place}/runs/lt")
    assert f"train: {place}/data/train.st\n" in before, before
    for checkpoint, where in (("lt", f"{place}/runs"), (f"{place}/runs/lt/checkpoints/last", "/")):
        assert evaluate(checkpoint, where) == 32
    run([TRIREME, "train", "../lt.yaml", "--run-dir", "lt", "trainer.max_steps=4"],
        cwd=f"{place}/runs")
    run([TRIREME, "train", "lt/recipe.yaml", "--run-dir", "lt", "trainer.max_steps=6"],
        cwd=f"{place}/runs")
    assert steps(f"{place}/runs/lt") == 6
    assert before.replace("max_steps: 2", "max_steps: 6") == recorded(f"{place}/runs/lt")
    os.unlink(f"{place}/data/init.st")  # which a run that goes on does not need
    run([TRIREME, "train", "../lt.yaml", "--run-dir", "lt", "trainer.max_steps=8"],
        cwd=f"{place}/runs")
    assert steps(f"{place}/runs/lt") == 8


def check_one_folder(folder):
    """All data come from the folder in which the training data are: the working directory, or the
    recipe's."""
    place, other = project(folder), os.path.join(folder, "other")
    os.makedirs(f"{other}/data")
    write_samples(f"{other}/data/test.st", 4)
    run([TRIREME, "train", f"{place}/lt.yaml", "--run-dir", "runs/a"], cwd=other)
    assert entries(f"{other}/runs/a", "val")[-1]["samples"] == 32
    os.rename(f"{place}/data/train.st", f"{other}/data/train.st")
    run([TRIREME, "train", f"{place}/lt.yaml", "--run-dir", "runs/b"], cwd=other)
    assert entries(f"{other}/runs/b", "val")[-1]["samples"] == 4
    os.unlink(f"{other}/data/test.st")
    check_refused([TRIREME, "train", f"{place}/lt.yaml", "--run-dir", "runs/c"], f"{other}/runs/c",
                  ["data/test.st"], cwd=other)


def check_moved(folder):
    """Data and runs are moved together; then the old place has other data."""
    place, new = project(folder), os.path.join(folder, "deep", "er")
    run([TRIREME, "train", "lt.yaml"], cwd=place)
    os.makedirs(os.path.dirname(new))
    shutil.move(place, new)
    assert evaluate(f"{new}/runs/lt", "/") == 32
    run([TRIREME, "train", f"{new}/runs/lt/recipe.yaml", "--run-dir", f"{new}/runs/lt",
         "trainer.max_steps=4"], cwd="/")
    assert steps(f"{new}/runs/lt") == 4
    assert f"recorded_in: {os.path.realpath(new)}/runs/lt\n" in recorded(f"{new}/runs/lt")
    check_refused([TRIREME, "train", f"{new}/lt.yaml", "--run-dir", f"{new}/runs/lt",
                   f"init={new}/data/../lt.yaml"], f"{new}/none", ["differs in init"])


def check_other_spellings(folder):
    """Another spelling of the same file is the same recipe."""
    place = project(folder)
    run([TRIREME, "train", "lt.yaml"], cwd=place)
    os.symlink("data", f"{place}/link")
    for number, words in enumerate((
            [f"init={place}/data/init.st"], ["init=link/../data/./init.st"],
            ["data.train=$HERE/data/train.st", "data.test=${HERE}/data/test.st"],
            ["data.path=~/data", "data.train=train.st", "data.test=test.st"])):
        run([TRIREME, "train", "lt.yaml", f"trainer.max_steps={4 + number}", *words], cwd=place,
            env=variables(place))
        assert steps(f"{place}/runs/lt") == 4 + number


def check_variables(folder):
    """Variables in the recipe's file; one that is not set; a folder that is called like one."""
    place = project(folder, RECIPE.replace("data/train.st", "'${HERE}/$SUB/train.st'")
                    .replace("init: data", "init: ~/data"))
    words = [TRIREME, "train", "lt.yaml"]
    env = variables(place)
    run(words, cwd=place, env=env)
    assert f"train: {place}/data/train.st\n" in recorded(f"{place}/runs/lt")
    assert f"init: {place}/data/init.st\n" in recorded(f"{place}/runs/lt")
    del env["SUB"]
    done = run([*words, "--run-dir", "new"], 2, cwd=place, env=env)
    assert done.stderr.count("\n") == 1 and "lt.yaml:3" in done.stderr and "SUB" in done.stderr
    done = run([*words, "data.train=${oc.env:HERE}/x", "--run-dir", "new"], 2, cwd=place, env=env)
    assert done.stderr.count("\n") == 1 and "${NAME}" in done.stderr, done.stderr
    assert not os.path.exists(f"{place}/new")
    os.rename(f"{place}/data", f"{place}/$SUB")
    run([*words, "--run-dir", "new", "data.train=$SUB/train.st", "data.test=$SUB/test.st",
         "init=null"], cwd=place, env=env)


def check_home(folder):
    """A ~ at the beginning of a flag's path is the home folder, also where no shell expands it."""
    place = project(folder)
    env = {**variables(place), "HOME": folder}
    run([TRIREME, "train", "lt.yaml", "--run-dir=~/kept"], cwd=place, env=env)
    assert steps(f"{folder}/kept") == 2
    run([TRIREME, "checkpoint", "export", f"{folder}/kept", "--out", "~/out.safetensors"],
        cwd=place, env=env)
    run([TRIREME, "run", "--standalone", "--log-dir=~/logs", TRIREME, "eval",
         "--checkpoint=~/kept"], cwd=place, env=env)
    assert os.path.exists(f"{folder}/out.safetensors") and os.listdir(f"{folder}/logs")
    assert not os.path.exists(f"{place}/~")


def check_object(folder):
    """A model's shared object beside its recipe is found, and recorded with its whole path."""
    place = project(folder, RECIPE.replace("mlp-jax", "./net.so")
                    .replace("init: data/init.st\n", ""))
    source = f"{SOURCE}/tests/cli/pointwise_net.c"
    done = subprocess.run(["cc", "-shared", "-fPIC", f"-I{SOURCE}/include", "-o",
                           f"{place}/net.so", source], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    run([TRIREME, "train", f"{place}/lt.yaml", "--run-dir", f"{place}/runs/lt"], cwd="/")
    run([TRIREME, "train", "project/lt.yaml", "--run-dir", f"{place}/runs/lt",
         "trainer.max_steps=3"], cwd=folder)
    assert evaluate(f"{place}/runs/lt", "/") == 32
    text = recorded(f"{place}/runs/lt")
    assert f"name: {place}/net.so\n" in text, text


def check_sources(folder):
    """Paths in the sources of a mixture are recorded, found and compared as all others."""
    place, other = project(folder), os.path.join(folder, "other")
    sources = ("data: {name: mixture, workers: 0, mix: [{name: tensors, train: data/train.st, "
               "test: data/test.st}, {name: tensors, path: $SUB, train: train.st}]}")
    with open(f"{place}/mix.yaml", "w", encoding="utf-8") as file:
        file.write("".join(sources + "\n" if line.startswith("data:") else line
                           for line in RECIPE.splitlines(True) if not line.startswith("init:")))
    words = [TRIREME, "train", "mix.yaml", "--run-dir", f"{place}/runs/lt"]
    run(words, cwd=place, env=variables(place))
    assert f"train: {place}/data/train.st" in recorded(f"{place}/runs/lt")
    assert evaluate(f"{place}/runs/lt", "/") == 32
    # The recipe's folder and another spelling are the same data; another folder has others.
    run([TRIREME, "train", f"{place}/mix.yaml", "--run-dir", f"{place}/runs/lt",
         "trainer.max_steps=3"], cwd="/", env={**variables(place), "SUB": f"{place}/data/../data"})
    assert steps(f"{place}/runs/lt") == 3
    shutil.copytree(f"{place}/data", f"{other}/data")
    check_refused([TRIREME, "train", f"{place}/mix.yaml", "--run-dir", f"{place}/runs/lt",
                   "trainer.max_steps=4"], f"{other}/none", ["data.mix"], cwd=other,
                  env=variables(place))
    shutil.move(place, f"{folder}/new")
    assert evaluate(f"{folder}/new/runs/lt", "/") == 32


CHECKS = (check_from_elsewhere, check_one_folder, check_moved, check_other_spellings,
          check_variables, check_home, check_object, check_sources)


def alone(check):
    def in_folder():
        with tempfile.TemporaryDirectory(prefix="trireme-paths-") as folder:
            check(os.path.realpath(folder))
    in_folder.__name__ = check.__name__
    return in_folder


if __name__ == "__main__":
    sys.exit(1 if check_all([alone(check) for check in CHECKS]) else 0)
