#!/usr/bin/env python3
"""What training does with things that a user or a crash has left in a run folder: symbolic links in
place of files are refused and not touched; folders may be symbolic links; an incomplete last line
of metrics.jsonl is cut off; damage is reported in one line.

usage: test_run_folder.py BUILD_FOLDER
"""
import glob
import json
import os
import shutil
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import (SYNTHETIC, check_all, last, losses, on_ranks, run, train)  # noqa: E402

SHORT = [*SYNTHETIC, "data.samples=64", "data.test_samples=16", "batch.global=16",
         "log.progress=false", "checkpoint.every_n_steps=2", "checkpoint.save_top_k=-1"]


def steps(place, count, *flags):
    return train("mlp-jax", place, *SHORT, f"trainer.max_steps={count}", "trainer.max_epochs=-1",
                 *flags)


def one_line(words, *parts):
    """Checks that the command ends with code 2 and prints one line, which has these parts."""
    lines = run(words, 2).stderr.splitlines()
    assert len(lines) == 1 and all(part in lines[0] for part in parts), lines


def check_links(folder):
    """Symbolic links under the name of a file are refused, and the files to which they point stay
    as they were."""
    place, victim = os.path.join(folder, "links"), os.path.join(folder, "victim")
    run(steps(place, 4))
    for name in ("metrics.jsonl", "recipe.yaml", ".lock"):
        path, aside = os.path.join(place, name), os.path.join(folder, "aside")
        for target in (victim, os.path.join(folder, "nowhere")):
            if os.path.exists(path):
                shutil.move(path, aside)
            with open(victim, "w", encoding="utf-8") as file:
                file.write("precious\n")
            os.symlink(target, path)
            one_line(steps(place, 6), path, "is a symbolic link")
            assert path in run(on_ranks(2, steps(place, 6)), 2).stderr
            with open(victim, encoding="utf-8") as file:
                assert file.read() == "precious\n", f"the target of {name} was written"
            assert not os.path.exists(os.path.join(folder, "nowhere")), name
            os.unlink(path)
        if os.path.exists(aside):
            shutil.move(aside, path)
    run(steps(place, 6))


def check_no_files(folder):
    """A pipe or a folder under the name of a file is refused, and so is a file under the name of a
    folder."""
    place = os.path.join(folder, "kinds")
    run(steps(place, 2))
    metrics = os.path.join(place, "metrics.jsonl")
    os.unlink(metrics)
    os.mkfifo(metrics)
    one_line(steps(place, 4), metrics, "is not a regular file")
    os.unlink(metrics)
    os.mkdir(metrics)
    one_line(steps(place, 4), metrics, "is not a regular file")
    os.rmdir(metrics)
    tensorboard = os.path.join(place, "tensorboard")
    with open(tensorboard, "w", encoding="utf-8"):
        one_line(steps(place, 4), tensorboard, "is not a folder")


def check_folders(folder):
    """A run folder and its folders may be links, as on machines with several disks; a link to a
    disk that is not mounted is refused rather than taken for an empty folder."""
    place, disk, way = (os.path.join(folder, name) for name in ("folders", "disk", "way"))
    os.makedirs(disk)
    os.mkdir(place)
    os.symlink(place, way)
    os.symlink(disk, os.path.join(place, "checkpoints"))
    run(steps(way, 4))
    done = run(steps(way, 6))
    assert "resuming from" in done.stderr and "step 4" in done.stderr, done.stderr
    assert os.path.isdir(os.path.join(disk, "step-00000006"))
    assert sorted(losses(place)) == [1, 2, 3, 4, 5, 6]
    os.rename(disk, disk + ".away")
    one_line(steps(way, 8), os.path.join(way, "checkpoints"), "is its disk mounted?")
    os.rename(disk + ".away", disk)
    run(steps(way, 8))


def check_step_elsewhere(folder):
    """A checkpoint that was moved to another disk, with a symbolic link in its place, is used like
    any other. When old checkpoints are removed, only its link is removed. While its disk is not
    mounted, a warning names it, and the run resumes from another checkpoint."""
    place, disk = os.path.join(folder, "elsewhere"), os.path.join(folder, "archive")
    os.mkdir(disk)
    run(steps(place, 4))
    step = os.path.join(place, "checkpoints", "step-00000004")
    shutil.move(step, disk)
    os.symlink(os.path.join(disk, "step-00000004"), step)
    assert "step-00000004, step 4" in run(steps(place, 6)).stderr
    os.rename(disk, disk + ".away")
    done = run(steps(place, 8))
    assert "step-00000006, step 6" in done.stderr and "step-00000004" in done.stderr, done.stderr
    os.rename(disk + ".away", disk)
    run(steps(place, 14, "checkpoint.save_top_k=0"))
    assert not os.path.lexists(step)
    assert os.path.exists(os.path.join(disk, "step-00000004", "state.json"))


def check_links_of_a_killed_save(folder):
    """A save was killed after its commit, before it had set the symbolic links `last` and `best`:
    the next start sets them."""
    place = os.path.join(folder, "late")
    run(steps(place, 4))
    for name in ("last", "best"):
        link = os.path.join(place, "checkpoints", name)
        right = os.readlink(link)
        for wrong in ("step-00000002", None):
            os.unlink(link)
            if wrong:
                os.symlink(wrong, link)
            run(steps(place, 4))
            assert name == "best" and not wrong or os.readlink(link) == right, (name, wrong)


def check_damage(folder):
    """If a run has no intact checkpoint, one line is printed, whatever the number of ranks."""
    place = os.path.join(folder, "damage")
    run(steps(place, 4))
    states = glob.glob(os.path.join(place, "checkpoints", "step-*", "model.safetensors"))
    assert len(states) == 2, states
    for path in states:
        with open(path, "r+b") as file:
            file.seek(-8, os.SEEK_END)
            file.write(b"\xff" * 8)
    one_line(steps(place, 6), "no earlier checkpoint")
    done = run(on_ranks(2, steps(place, 6)), 2)
    assert done.stderr.count(".safetensors") == 1, done.stderr


def check_torn_line(folder):
    """The last line of metrics.jsonl, which a crash has cut short, is removed, and that is reported
    once. The whole lines stay."""
    place = os.path.join(folder, "torn")
    run(steps(place, 4))
    metrics = os.path.join(place, "metrics.jsonl")
    with open(metrics, "r+b") as file:
        whole = file.read()
        file.truncate(len(whole) - 20)
    done = run(steps(place, 6))
    assert done.stderr.count("metrics.jsonl: removed its last") == 1, done.stderr
    assert "metrics.jsonl" not in run(steps(place, 8)).stderr
    with open(metrics, "rb") as file:
        lines = file.read()
    assert lines.startswith(whole[:whole[:-1].rindex(b"\n") + 1]), lines
    for line in lines.splitlines():
        json.loads(line)


def check_pipes(folder):
    """A pipe in place of a file is refused, not waited for."""
    place, pipe = os.path.join(folder, "pipes"), os.path.join(folder, "pipe")
    os.mkfifo(pipe)
    one_line(steps(place, 4, f"model.name={pipe}"), "model.name: ", "is not a file")
    for words in ([f"data.train={pipe}", "data.name=npy"], [f"init={pipe}"],
                  [f"data.path={pipe}", "data.name=tensors"]):
        words = [*words, "trainer.max_steps=1", "batch.global=16"]
        one_line(train("mlp-jax", place, *words), pipe, "is not a file")
    run(steps(place, 2))
    state = os.path.join(last(place), "state.json")
    os.unlink(state)
    os.mkfifo(state)
    one_line(steps(place, 4), "state.json: is not a file")


def main():
    with tempfile.TemporaryDirectory(prefix="trireme-folder-") as folder:
        sys.exit(check_all((check_links, check_no_files, check_folders, check_step_elsewhere,
                            check_links_of_a_killed_save, check_damage,
                            check_torn_line, check_pipes), folder))


if __name__ == "__main__":
    main()
