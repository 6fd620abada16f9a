#!/usr/bin/env python3
"""Checkpoints from the command line: runs killed and resumed, damage, the checkpoint commands.

usage: test_checkpoint.py BUILD_FOLDER
"""
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from damage import flip  # noqa: E402
import tensors  # noqa: E402

TRIREME = os.path.join(os.path.abspath(sys.argv[1]), "bin", "trireme")
SETTINGS = ["data.name=synthetic", "data.samples=640", "data.test_samples=64", "data.classes=10",
            "data.shape=[1,28,28]", "data.shuffle=true", "batch.global=64", "batch.micro=32",
            "batch.eval=32", "model.dropout=0.1", "optimizer.name=sgd", "optimizer.lr=0.01",
            "optimizer.momentum=0.9", "trainer.max_epochs=3", "trainer.log_every_n_steps=1",
            "checkpoint.every_n_steps=3", "log.tensorboard=false"]
LAST_STEP = 30


def command(run_dir, *more):
    return [TRIREME, "train", "recipes/mnist-convnet.yaml", *SETTINGS, "--run-dir", run_dir, *more]


def run(words, code=0):
    done = subprocess.run(words, capture_output=True, text=True, timeout=200)
    assert done.returncode == code, f"{words}: {done.returncode}, not {code}: {done.stderr}"
    return done


def refused(words, *parts):
    """Code 2 and exactly one line on standard error, with the parts in it."""
    done = run(words, 2)
    lines = done.stderr.splitlines()
    assert len(lines) == 1, f"{words}: {len(lines)} lines: {done.stderr}"
    for part in parts:
        assert part in lines[0], f"'{part}' is not in: {lines[0]}"


def losses(run_dir):
    """The losses by step as they are written; of repeated steps the later one holds."""
    found = {}
    with open(os.path.join(run_dir, "metrics.jsonl"), encoding="utf-8") as lines:
        for line in lines:
            try:
                entry = json.loads(line)
            except ValueError:  # cut short by a kill
                continue
            if entry["kind"] == "train":
                found[entry["step"]] = entry["loss"]
    return found


def contents(path):
    with open(path, "rb") as file:
        return file.read()


def newest(run_dir):
    return os.path.realpath(os.path.join(run_dir, "checkpoints", "last"))


def kill_at(words, run_dir, step):
    """Starts a run and kills it once it has logged that step; False: it was over before."""
    child = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    metrics = os.path.join(run_dir, "metrics.jsonl")
    while child.poll() is None:
        if os.path.exists(metrics) and max(losses(run_dir), default=0) >= step:
            time.sleep(random.random() * 0.02)
            child.kill()
            child.wait()
            break
        time.sleep(0.002)
    if child.returncode == -signal.SIGKILL:
        return True
    assert child.returncode == 0, f"it ended with {child.returncode}"
    return False


def check_kills(folder, whole):
    """Killed again and again in mid-epoch: the same losses and weights to the last bit."""
    killed, kills = os.path.join(folder, "killed"), []
    while max(kills, default=0) < 3:  # on a busy machine a run may be over before it is killed
        assert len(kills) < 20, f"kills of each run: {kills}"
        kills.append(sum(kill_at(command(killed), killed, step) for step in (2, 7, 11, 19, 26)))
        run(command(killed))
        assert losses(killed) == losses(whole), "a killed run's losses differ"
        for name in ("model.safetensors", "optimizer.safetensors"):
            assert contents(os.path.join(newest(killed), name)) == \
                contents(os.path.join(newest(whole), name)), f"a killed run's {name} differs"
        shutil.rmtree(killed)


def check_damage(folder, whole):
    """A flipped bit anywhere: a path is refused, auto falls back and ends where it would have."""
    names = os.listdir(newest(whole))
    assert sorted(names) == ["model.safetensors", "optimizer.safetensors", "state.json"]
    for name in names:
        copy = os.path.join(folder, "damaged")
        shutil.copytree(whole, copy, symlinks=True)
        path = os.path.join(newest(copy), name)
        for _ in range(3):
            offset, bit = random.randrange(os.path.getsize(path)), random.randrange(8)
            flip(path, offset, bit)
            refused(command(copy, "--resume", newest(copy)), name)
            refused([TRIREME, "checkpoint", "verify", newest(copy)], name)
            flip(path, offset, bit)
        flip(path, offset, bit)
        done = run(command(copy))
        assert "falling back" in done.stderr, done.stderr
        assert losses(copy) == losses(whole)
        assert contents(os.path.join(newest(copy), "model.safetensors")) == \
            contents(os.path.join(newest(whole), "model.safetensors"))
        run([TRIREME, "checkpoint", "verify", copy])
        os.remove(path)
        refused(command(copy, "--resume", newest(copy)), "missing")
        shutil.rmtree(copy)


def check_refusals(folder, whole):
    before = sorted(os.walk(whole))
    refused(command(whole, "--resume", "never"), "is not empty")
    refused(command(os.path.join(folder, "new"), "--resume", os.path.join(folder, "none")), "none")
    refused(command(os.path.join(folder, "new"), "--resume", newest(whole), "optimizer.lr=0.5"),
            "optimizer.lr")
    assert sorted(os.walk(whole)) == before, "a refused run changed its folder"
    assert not os.path.exists(os.path.join(folder, "new")), "a refused run left a folder"


def check_commands(folder, whole):
    lines = run([TRIREME, "checkpoint", "list", whole, "--json"]).stdout.splitlines()
    entries = [json.loads(line) for line in lines]
    assert entries[-1]["step"] == LAST_STEP and entries[-1]["last"] and entries[-1]["whole"]
    out = os.path.join(folder, "weights")
    done = run([TRIREME, "checkpoint", "export", whole, "--out", out])
    assert done.stdout.startswith(f"{out}: ") and f" tensors, 117 kB, from {whole}/" in \
        done.stdout, done.stdout
    model = tensors.read(os.path.join(newest(whole), "model.safetensors"))
    assert tensors.read(out) == model
    assert b'"__metadata__":{"format":"pt"' in contents(out)[:64], "not as PyTorch's libraries do"
    assert model["layer1.1.num_batches_tracked"][:2] == ("I64", [])
    assert model["layer1.0.weight"][:2] == ("F32", [16, 1, 5, 5])
    run([TRIREME, "checkpoint", "diff", out, whole])
    first = os.path.join(folder, "first")
    init = [TRIREME, "checkpoint", "init", "recipes/mnist-convnet.yaml", "data.path=/nowhere"]
    run([*init, "--out", first])
    run([*init, "--out", first + "2"])
    assert contents(first) == contents(first + "2"), "one seed, two initial weights"
    run([TRIREME, "checkpoint", "diff", first, whole], 1)
    run([TRIREME, "checkpoint", "export", whole, "--out", out, "--dtype", "BF16"])
    assert tensors.read(out)["fc.weight"][0] == "BF16"
    # Values that F16 cannot hold are counted.
    run([TRIREME, "checkpoint", "export", whole, "--out", out])
    data = contents(out)
    start = data.index(model["fc.weight"][2])
    with open(out, "wb") as file:
        file.write(data[:start] + struct.pack("<2f", 1e6, -7e4) + data[start + 8:])
    done = run([TRIREME, "checkpoint", "export", out, "--out", out + "16", "--dtype", "F16"])
    assert done.stderr.count("\n") == 1 and "2 values" in done.stderr, done.stderr
    assert "'fc.weight'" in done.stderr and "F16" in done.stderr, done.stderr
    assert tensors.read(out + "16")["fc.weight"][2][:4] == b"\x00\x7c\x00\xfc"
    # Numbers of eight bits are copied, and not left as they are where another type is asked for.
    tensors.write(first, {"w8": ("F8_E4M3", [4], bytes(4))})
    run([TRIREME, "checkpoint", "export", first, "--out", out])
    assert tensors.read(out)["w8"][0] == "F8_E4M3"
    refused([TRIREME, "checkpoint", "export", first, "--out", first + "3", "--dtype", "F32"],
            "w8", "F8_E4M3", "--dtype")
    assert not os.path.exists(first + "3")
    refused([TRIREME, "checkpoint", "verify", os.path.join(folder, "none")], "none")
    with open(out, "wb") as file:
        file.write(struct.pack("<Q", 1 << 63) + b"{}")
    refused(command(os.path.join(folder, "new"), f"init={out}"), out)


def check_old_damage(folder, _whole):
    """A checkpoint that cannot be read stands in nobody's way if it is not the newest."""
    run_dir = os.path.join(folder, "old damage")
    words = ["checkpoint.save_top_k=-1", "checkpoint.every_n_steps=2", "trainer.max_steps=6"]
    run([*command(run_dir), *words])
    steps = sorted(os.listdir(os.path.join(run_dir, "checkpoints")))[2:]
    evaluate = [TRIREME, "eval", "--checkpoint", run_dir]
    for step, good in ((steps[0], True), (steps[-1], False)):
        with open(os.path.join(run_dir, "checkpoints", step, "state.json"), "r+b") as file:
            file.write(b"xx")
        if good:
            run(evaluate)
            done = run([*command(run_dir), *words])
            assert "falling back" not in done.stderr and "is complete" in done.stdout, done
        else:
            refused(evaluate, step)


def check_another_history(folder, _whole):
    """A run that goes on from an earlier checkpoint leaves the later ones: they are put aside, and
    are neither its best nor its newest."""
    run_dir = os.path.join(folder, "histories")
    home = os.path.join(run_dir, "checkpoints")
    words = [*command(run_dir), "checkpoint.save_top_k=-1", "checkpoint.every_n_steps=2",
             "trainer.val_check_interval=2", "trainer.limit_val_batches=1", "checkpoint.mode=max",
             "checkpoint.monitor=val_loss"]
    run([*words, "trainer.max_steps=8"])
    assert "abandoned" not in run([*words, "trainer.max_steps=10"]).stderr
    early, best = os.path.join(home, "step-00000004"), os.path.join(home, "best")
    os.remove(best)
    os.symlink("step-00000008", best)
    done = run([*words, "trainer.max_steps=5", "--resume", early])
    aside = os.path.join(home, "abandoned-1")
    assert f"{aside}: now holds 3 checkpoints" in done.stderr, done.stderr
    assert sorted(os.listdir(aside)) == [f"step-{n:08}" for n in (6, 8, 10)]
    assert os.path.basename(os.path.realpath(best)) != "step-00000008" and os.path.exists(best)
    assert newest(run_dir).endswith("step-00000005")
    # Nobody has to know the recipe of what was put aside, or can lose it.
    run([TRIREME, "eval", "--checkpoint", os.path.join(aside, "step-00000008")])
    run([*words, "trainer.max_steps=8"])
    assert newest(run_dir).endswith("step-00000008") and len(os.listdir(aside)) == 3
    # After damage, too, the run goes on from an earlier checkpoint.
    flip(os.path.join(home, "step-00000008", "model.safetensors"), 4000, 3)
    done = run([*words, "trainer.max_steps=7"])
    assert "falling back" in done.stderr and "now holds 1 checkpoint that" in done.stderr, done


def check_unreadable(folder, whole):
    """What cannot be opened is reported as what it is, by every command."""
    run_dir = os.path.join(folder, "unreadable")
    shutil.copytree(whole, run_dir, symlinks=True)
    home, step = os.path.join(run_dir, "checkpoints"), newest(run_dir)
    other = ["--run-dir", os.path.join(folder, "new")]
    readers = (["checkpoint", "list"], ["checkpoint", "verify"], ["eval", "--checkpoint"],
               ["checkpoint", "export", "--out", os.path.join(folder, "e"), "--"],
               ["checkpoint", "diff", whole],
               ["predict", "recipes/mnist-convnet.yaml", *SETTINGS, "--out",
                os.path.join(folder, "p"), "--checkpoint"],
               ["train", "recipes/mnist-convnet.yaml", *SETTINGS, *other, "--resume"])
    # Root may read everything, unless it gives up these rights.
    without_rights = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--"]
    prefix = without_rights if os.geteuid() == 0 else []

    def check(path, text, *named):
        for words in readers:
            done = subprocess.run([*prefix, TRIREME, *words, path], capture_output=True, text=True,
                                  timeout=200, check=False)
            lines = done.stderr.splitlines()
            assert done.returncode == 2 and len(lines) == 1, f"{words}: {done}"
            assert text in lines[0] and any(name in lines[0] for name in named), done.stderr
        assert not os.path.exists(other[1])

    for locked in (home, run_dir):
        os.chmod(locked, 0)
        check(run_dir, "Permission denied", locked)
        os.chmod(locked, 0o755)
    os.rename(home, home + ".away")
    os.symlink("nowhere", home)
    check(run_dir, "No such file or directory", home)
    os.remove(home)
    os.symlink("checkpoints", home)
    check(run_dir, "Too many levels of symbolic links", home)
    os.remove(home)
    os.rename(home + ".away", home)
    os.rename(step, step + ".away")
    check(os.path.join(home, "last"), "No such file or directory", os.path.join(home, "last"))
    shutil.rmtree(run_dir)


def check_outputs(folder, whole):
    """Nothing is written over a checkpoint or a run's own files; a trace replaces traces only."""
    link, weights = os.path.join(folder, "link"), os.path.join(folder, "weights")
    os.symlink(newest(whole), link)
    shutil.copy(os.path.join(newest(whole), "model.safetensors"), weights)
    init = [TRIREME, "checkpoint", "init", "recipes/mnist-convnet.yaml", "--out"]
    export = [TRIREME, "checkpoint", "export", whole, "--out"]
    files = {os.path.join(link, name): "is part of a checkpoint"
             for name in ("model.safetensors", "optimizer.safetensors", "state.json")}
    files.update({os.path.join(whole, name): "is part of a run"
                  for name in ("recipe.yaml", "metrics.jsonl")})
    traced = command(os.path.join(folder, "traced"), "trainer.max_steps=1", "log.progress=false")
    for path, why in files.items():
        before = contents(path)
        for words in (init, export, [*traced, "--trace"]):
            refused([*words, path], path, why)
            assert contents(path) == before, f"{words} changed {path}"
    before = contents(weights)
    refused([*traced, f"init={weights}", "--trace", weights], weights, "is no trace")
    assert contents(weights) == before, "a trace was written over weights"
    trace = os.path.join(folder, "trace.json")
    run([*traced, "--trace", trace])
    run([*traced, "--trace", trace])
    run([*export, os.path.join(whole, "exported.safetensors")])
    # A file of another kind is the user's own, whatever its name.
    for name, data in (("a.txt", b"text"), ("own", b"PK\3\4" + bytes(600))):
        own = os.path.join(folder, name)
        with open(own, "wb") as file:
            file.write(data)
        for words in (init, export, ["trireme", "plan", "recipes/mnist-convnet.yaml", "--svg"]):
            refused([TRIREME, *words[1:], own], own)
            assert contents(own) == data, words
    for name in ("w.pt", "w.npz"):
        refused([*export, os.path.join(folder, name)], "w.safetensors")
        assert not os.path.exists(os.path.join(folder, name))
    with open(own, "wb"):
        pass
    run([*export, own])  # an empty file is nobody's data


def check_other_ranks(folder, whole):
    """Stopped on one rank, resumed on two: every step's loss is the same within rounding."""
    stopped = os.path.join(folder, "stopped")
    run(command(stopped, "trainer.max_steps=13"))
    run([TRIREME, "run", "--standalone", "--nproc-per-node", "2", *command(stopped)])
    got, wanted = losses(stopped), losses(whole)
    assert got.keys() == wanted.keys()
    for step, loss in wanted.items():
        assert abs(got[step] - loss) <= 1e-5 * abs(loss), f"step {step}: {got[step]} not {loss}"
    shutil.rmtree(stopped)


def check_lacking(folder, whole):
    """Training can begin without running statistics; nothing can be evaluated without them. No
    command does without parameters, also of layers that are frozen."""
    run([TRIREME, "checkpoint", "export", whole, "--out", os.path.join(folder, "all")])
    every = tensors.read(os.path.join(folder, "all"))
    few, new = os.path.join(folder, "few"), os.path.join(folder, "new")
    evaluation = [TRIREME, "eval", "recipes/mnist-convnet.yaml", *SETTINGS, "--checkpoint", few]
    frozen = "optimizer.freeze=['layer1.0.*']"
    tensors.write(few, {n: t for n, t in every.items() if "running_" not in n})
    refused(evaluation, few, "layer1.1.running_mean")
    run(command(new, f"init={few}", "trainer.max_steps=1"))
    shutil.rmtree(new)
    tensors.write(few, {n: t for n, t in every.items() if "num_batches" not in n})
    run(evaluation)
    tensors.write(few, {n: t for n, t in every.items() if n != "layer1.0.weight"})
    refused(command(new, f"init={few}", frozen), few, "layer1.0.weight")
    refused([*evaluation, frozen], few, "layer1.0.weight")


def check_other_data(folder, _whole):
    """Resumed within an epoch with other data: a warning if their number of samples differs."""
    data, stopped = os.path.join(folder, "data"), os.path.join(folder, "other-data")
    os.mkdir(data)
    small = ["model.num_hidden_layers=1", "model.hidden_size=32", "model.intermediate_size=48",
             "data.sequence=16", "batch.global=2", f"data.path={data}", "log.tensorboard=false",
             "trainer.limit_val_batches=1"]

    def resumed(samples, letter, steps):
        for name in ("train.txt", "validation.txt"):
            with open(os.path.join(data, name), "w", encoding="utf-8") as file:
                file.write(letter * (16 * samples + 1))
        return run([TRIREME, "train", "recipes/llama-tiny.yaml", *small, "--run-dir", stopped,
                    f"trainer.max_steps={steps}"]).stderr

    assert "and had" not in resumed(20, "a", 2)
    assert "and had" not in resumed(20, "b", 4)
    said = resumed(40, "b", 6)
    assert "40 samples, and had 20 " in said, said
    assert "and had" not in resumed(40, "a", 8)


def main():
    os.environ["OMP_NUM_THREADS"] = "1"
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    random.seed(seed)
    with tempfile.TemporaryDirectory(prefix="trireme-checkpoint-") as folder:
        whole = os.path.join(folder, "whole")
        run(command(whole))
        assert sorted(losses(whole)) == list(range(1, LAST_STEP + 1))
        for check in (check_commands, check_refusals, check_old_damage,
                      check_another_history, check_unreadable, check_outputs,
                      check_damage, check_kills, check_other_ranks, check_lacking,
                      check_other_data):
            start = time.monotonic()
            check(folder, whole)
            print(f"{check.__name__}: {time.monotonic() - start:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
