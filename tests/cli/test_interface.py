#!/usr/bin/env python3
"""The names that scripts, recipes and outside checks hold on to: commands, exit codes, keys and
their defaults, files of a run, fields of every JSON output, what --resume does.

usage: test_interface.py BUILD_FOLDER
"""
import glob
import json
import math
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import TRIREME, check_all  # noqa: E402

RECIPE = "recipes/mlp-jax.yaml"
DATA = ["data.name=synthetic", "data.samples=40", "data.test_samples=24", "data.classes=10",
        "data.shape=[1,28,28]", "data.workers=0"]
TINY = [*DATA, "batch.global=16", "optimizer.name=sgd", "optimizer.lr=0.05",
        "trainer.max_epochs=2", "trainer.log_every_n_steps=1", "log.tensorboard=false"]

DEFAULTS = """
    seed = 1
    data.shuffle = true
    data.drop_last = false
    data.workers = 2
    data.limit = 0
    data.sequence = 512
    batch.global = 64
    batch.micro = 0
    batch.eval = 0
    optimizer.name = adadelta
    trainer.max_epochs = 3
    trainer.max_steps = -1
    trainer.precision = 32-true
    trainer.gradient_clip_val = 0
    trainer.log_every_n_steps = 50
    trainer.num_sanity_val_steps = 0
    trainer.convolution = auto
    trainer.sync_batchnorm = false
    trainer.deterministic = false
    strategy.name = ddp
    strategy.mesh.replicate = auto
    strategy.mesh.shard = auto
    strategy.mesh.tensor = 1
    strategy.mesh.pipeline = auto
    strategy.schedule = 1f1b
    strategy.recompute = none
    strategy.offload = none
    checkpoint.every_n_epochs = 1
    checkpoint.every_n_steps = 0
    checkpoint.save_last = true
    checkpoint.save_top_k = 1
    checkpoint.monitor = val_loss
    checkpoint.mode = min
    log.tensorboard = true
"""
OPTIMIZERS = {"sgd": {"lr": "1e-3", "momentum": "0", "dampening": "0", "weight_decay": "0"},
              "adam": {"betas": "[0.9, 0.999]", "eps": "1e-8", "weight_decay": "0"},
              "adamw": {"betas": "[0.9, 0.999]", "eps": "1e-8", "weight_decay": "0.01"},
              "adamax": {"lr": "2e-3", "betas": "[0.9, 0.999]", "eps": "1e-8"},
              "adagrad": {"lr": "1e-2", "lr_decay": "0", "eps": "1e-10"},
              "rmsprop": {"lr": "1e-2", "alpha": "0.99", "eps": "1e-8", "centered": "false"},
              "lion": {"lr": "1e-4", "betas": "[0.9, 0.99]", "weight_decay": "0"},
              "adadelta": {"lr": "1.0", "rho": "0.9", "eps": "1e-6", "weight_decay": "0"}}


def run(*words, code=0, **more):
    done = subprocess.run([TRIREME, *words], capture_output=True, text=True, timeout=120, **more)
    assert done.returncode == code, \
        f"{words}: {done.returncode}, not {code}: {done.stdout}{done.stderr}"
    return done


def refused(*words, parts=(), **more):
    """Code 2, nothing on standard output, exactly one line on standard error."""
    done = run(*words, code=2, **more)
    assert not done.stdout, f"{words}: {done.stdout}"
    lines = done.stderr.splitlines()
    assert len(lines) == 1, f"{words}: {len(lines)} lines: {done.stderr}"
    for part in parts:
        assert part in lines[0], f"'{part}' is not in: {lines[0]}"


def metrics(run_dir, kind=None):
    with open(os.path.join(run_dir, "metrics.jsonl"), encoding="utf-8") as lines:
        found = [json.loads(line) for line in lines]
    return [entry for entry in found if kind in (None, entry["kind"])]


def train(run_dir, *more, code=0):
    return run("train", RECIPE, *TINY, "--run-dir", run_dir, *more, code=code)


def check_commands(folder):
    listed = run("--help").stdout
    for command in ("train", "eval", "predict", "run", "plan", "bench", "data", "checkpoint",
                    "submit", "preflight", "version"):
        assert re.search(rf"^  {command} ", listed, re.M), command
        assert run(command, "--help").stdout.startswith(f"usage: trireme {command}")
    for command, flags in (("train", ("run-dir", "resume", "device", "json")),
                           ("eval", ("checkpoint", "json")),
                           ("predict", ("checkpoint", "out")),
                           ("plan", ("ranks", "mesh", "show", "json")),
                           ("bench", ("op", "sizes", "json")),
                           ("lr-find", ("min", "max", "steps", "rule", "svg", "json")),
                           ("batch-find", ("seconds", "json")),
                           ("preflight", ("run-dir", "json")),
                           ("checkpoint", ("out",)),
                           ("submit", ("site", "nodes", "time", "account", "partition", "launcher",
                                       "container", "dry-run", "list", "json")),
                           ("run", ("standalone", "nproc-per-node", "nnodes", "max-restarts",
                                    "rdzv-backend", "rdzv-endpoint", "rdzv-id", "log-dir", "tee",
                                    "redirects", "master-addr", "master-port", "node-rank"))):
        text = run(command, "--help").stdout
        for flag in flags:
            assert f"--{flag}" in text, f"{command} has no --{flag}"
    for show in ("blocks", "memory", "schedule", "gantt"):
        assert run("plan", RECIPE, "--show", show).stdout
    assert re.fullmatch(r"trireme \d+\.\d+\.\d+\n", run("version").stdout)


def check_codes(folder):
    """2 for bad usage, recipe or input: one line, and no run folder."""
    new = os.path.join(folder, "new")
    at = ["--run-dir", new]
    refused("trian", parts=["did you mean 'train'"])
    refused("train", parts=["--help"])
    refused("train", RECIPE, "--run-dri", new, parts=["--run-dir"])
    refused("train", os.path.join(folder, "none.yaml"), *at, parts=["none.yaml"])
    refused("train", folder, *at, parts=[folder])
    refused("train", RECIPE, *at, "optimizer.rl=1", parts=["optimizer.rl", "'lr'"])
    refused("train", RECIPE, *at, "optimizer.lr=fast", parts=["optimizer.lr", "fast"])
    refused("train", RECIPE, *at, "model.name=mnist", parts=["model.name"])
    refused("train", RECIPE, *at, "data.path=" + folder, parts=[folder])
    refused("train", RECIPE, *at, *DATA, "init=" + RECIPE, parts=[RECIPE])
    refused("train", RECIPE, *at, *DATA, "--resume", folder + "/none", parts=["--resume", "none"])
    refused("train", RECIPE, *at, *DATA, "--device", "abacus", parts=["abacus", "cpu"])
    refused("train", RECIPE, *DATA, "--run-dir", RECIPE, parts=[RECIPE])
    refused("train", RECIPE, *at, *DATA, "model.wings=2", parts=["model.wings"])
    refused("eval", RECIPE, *DATA, "--checkpoint", new, parts=["--checkpoint", new])
    refused("plan", RECIPE, "--ranks", "none", parts=["--ranks"])
    refused("bench", "comm", "--sizes", "8,x", parts=["--sizes"])
    refused("checkpoint", "verify", parts=["--help"])
    refused("run", "--nproc-per-node", "2", parts=["PROGRAM"])
    recipe = os.path.join(folder, "bad.yaml")
    with open(recipe, "w", encoding="utf-8") as out:
        out.write("model: {name: mlp-jax}\ndata: {name: synthetic}\ntrainer:\n  max_epoch: 3\n")
    refused("train", recipe, *at, parts=["bad.yaml:4", "max_epochs"])
    assert not os.path.exists(new), "bad input left a run folder"
    # Bad input of a rank is bad input of the job, whichever rank said it first.
    for _ in range(3):
        run("run", "--standalone", "--nproc-per-node", "2", "trireme", "train", RECIPE, "sed=1",
            code=2)
    # 128+n: ended by signal n. 1: a worker failed.
    run("run", "--standalone", "sh", "-c", "exit 3", code=1)


def check_keys(folder):
    text = run("train", "--keys").stdout
    for line in DEFAULTS.split("\n"):
        assert not line.strip() or f"\n  {line.strip()}\n" in text, f"no line '{line.strip()}'"
    for key in ("name", "init.path", "init.ignore", "model.name", "data.name", "data.path",
                "data.train", "data.test", "data.transform", "schedule.name",
                "schedule.warmup_steps", "deepspeed"):
        assert re.search(rf"^  {key}( =.*)?$", text, re.M), key
    for name, defaults in OPTIMIZERS.items():
        part = text.partition(f"  optimizer.name: {name}\n")[2].partition("optimizer.name:")[0]
        for key, value in defaults.items():
            assert f"    optimizer.{key} = {value}\n" in part, f"{name}: {key} is not {value}"
    for name in ("constant", "step", "linear", "polynomial", "cosine", "cosine_restarts",
                 "inverse_sqrt", "plateau", "onecycle", "warmup", "warmup-decay", "warmup-cosine",
                 "triangle"):
        assert f"  schedule.name: {name}\n" in text, name
    for name in ("idx", "tensors", "tokens", "synthetic"):
        assert f"  data.name: {name}\n" in text, name
    # What a later version brings is refused by its name.
    for key in ("log.mlflow=true", "schedule.cycle_momentum=true"):
        refused("plan", RECIPE, key, parts=["not in this version"])


def check_overrides(folder):
    """Another name discards its section's other keys of the file; the overrides then apply."""
    recipe = os.path.join(folder, "named.yaml")
    with open(recipe, "w", encoding="utf-8") as out:
        out.write("model: {name: mlp-jax}\n"
                  "data: {name: synthetic, shape: [1, 28, 28], classes: 10, samples: 32}\n"
                  "optimizer: {name: sgd, lr: 0.5, momentum: 0.25, weight_decay: 0.125}\n"
                  "schedule: {name: step, gamma: 0.3, step_size: 2}\n")

    def resolved(*overrides):
        target = os.path.join(folder, "resolved")
        run("train", recipe, *overrides, "trainer.max_steps=1", "--run-dir", target)
        with open(os.path.join(target, "recipe.yaml"), encoding="utf-8") as text:
            found = text.read()
        run("plan", os.path.join(target, "recipe.yaml"))  # reads back
        subprocess.run(["rm", "-r", target], check=True)
        return found

    def section(text, name):
        inside = re.search(rf"^{name}:(.*(?:\n .*)*)", text, re.M).group(1)
        return dict(re.findall(r"(\w+): ([^\s,}]+)", inside))

    whole = resolved("optimizer.lr=0.1")
    assert section(whole, "optimizer")["momentum"] == "0.25", whole
    assert float(section(whole, "optimizer")["lr"]) == 0.1
    same = section(resolved("optimizer.name=sgd"), "optimizer")
    assert (float(same["lr"]), float(same["weight_decay"])) == (0.5, 0.125), same
    other = section(resolved("optimizer.weight_decay=0.5", "optimizer.name=adamw"), "optimizer")
    assert float(other["lr"]) == 1e-3 and float(other["weight_decay"]) == 0.5, other
    assert "momentum" not in other, other
    other = section(resolved("schedule.name=cosine"), "schedule")
    assert other["name"] == "cosine" and "gamma" not in other and float(other["eta_min"]) == 0
    assert "transform: []" in resolved("data.transform=[]")
    run("plan", recipe, "data.name=synthetic", "data.samples=8")
    refused("plan", recipe, "data.name=tensors", "data.samples=8", parts=["data.samples"])


def check_run_directory(folder):
    """The files, their fields and formats."""
    whole = os.path.join(folder, "whole")
    done = train(whole, "log.tensorboard=true")
    assert whole in done.stdout and "step 1/6" not in done.stdout, "results on standard output"
    assert "epoch 1/2  step 1/6" in done.stderr and "\r" not in done.stderr, done.stderr
    assert "\x1b" not in done.stdout + done.stderr, "colours on a pipe"
    assert sorted(os.listdir(whole)) == ["checkpoints", "metrics.jsonl", "recipe.yaml",
                                         "tensorboard"]
    assert glob.glob(os.path.join(whole, "tensorboard", "events.out.tfevents.*"))
    home = os.path.join(whole, "checkpoints")
    assert os.readlink(os.path.join(home, "last")) == "step-00000006"
    assert os.path.islink(os.path.join(home, "best"))
    assert {"model.safetensors", "state.json"} <= set(os.listdir(os.path.join(home, "last")))
    trained, evaluated = metrics(whole, "train"), metrics(whole, "val")
    assert [entry["step"] for entry in trained] == [1, 2, 3, 4, 5, 6]
    assert [entry["epoch"] for entry in trained] == [0, 0, 0, 1, 1, 1]
    assert [entry["samples"] for entry in trained] == [16, 32, 40, 56, 72, 80], trained
    for entry in trained:
        assert list(entry) == ["kind", "step", "epoch", "loss", "lr", "grad_norm", "samples",
                               "samples_per_s", "wall_s"], entry
    assert [(entry["step"], entry["epoch"]) for entry in evaluated] == [(3, 0), (6, 1)]
    for entry in evaluated:
        assert list(entry) == ["kind", "step", "epoch", "loss", "accuracy", "samples"], entry
        assert entry["samples"] == 24 and 0 <= entry["accuracy"] <= 1
    end = metrics(whole)[-1]
    assert list(end) == ["kind", "status", "steps", "wall_s", "actions"], end
    assert (end["status"], end["steps"]) == ("completed", 6)
    with open(os.path.join(whole, "metrics.jsonl"), encoding="utf-8") as lines:
        losses = re.findall(r'"loss":([^,]+)', lines.read())
    digits = [len(re.sub(r"e.*|\D", "", loss).lstrip("0")) for loss in losses]
    assert max(digits) <= 9 and sorted(digits)[len(digits) // 2] >= 8, losses
    # The best is the evaluation with the least loss.
    best = min(evaluated, key=lambda entry: entry["loss"])["step"]
    assert os.readlink(os.path.join(home, "best")) == f"step-{best:08}"
    sparse = os.path.join(folder, "sparse")
    run("train", RECIPE, *TINY, "trainer.log_every_n_steps=2", "--run-dir", sparse)
    assert [entry["step"] for entry in metrics(sparse, "train")] == [2, 4, 6]
    assert [e["loss"] for e in metrics(sparse, "train")] == [e["loss"] for e in trained[1::2]]


def check_use_of_peak(folder):
    """The fractions of the peak, where that is known: 784-512-512-10 has 668,672 weights; forward
    and backward pass take 6 operations for each, without the gradient of the input."""
    def use(**peaks):
        place = os.path.join(folder, "used-" + "-".join(peaks))
        os.environ.update(peaks)
        try:
            said = run("train", RECIPE, *TINY, "--run-dir", place).stderr
        finally:
            for name in peaks:
                del os.environ[name]
        return said, metrics(place, "train")
    for peak, key, text in (("FLOPS", "mfu", "  MFU "), ("BANDWIDTH", "mbu", "  memory ")):
        said, lines = use(**{f"TRIREME_PEAK_{peak}": "50e9"})
        assert lines and {"mfu", "mbu"} & {*lines[0]} == {key}, lines
        assert text in said and ("  MFU " in said) + ("  memory " in said) == 1, said
    said, lines = use(TRIREME_PEAK_FLOPS="50e9", TRIREME_PEAK_BANDWIDTH="1e12")
    operations = 6 * (784 * 512 + 512 * 512 + 512 * 10) - 2 * 784 * 512
    for entry in lines:
        assert list(entry)[7:] == ["samples_per_s", "mfu", "mbu", "wall_s"], entry
        mfu = entry["samples_per_s"] * operations / 50e9
        assert abs(entry["mfu"] - mfu) < 0.03 * mfu + 1e-4, (entry, mfu)
        # Each step of 16 samples at least reads the weights, writes their gradients, reads both
        # and writes the weights.
        assert entry["mbu"] >= entry["samples_per_s"] / 16 * 4 * 5 * 668672 / 1e12 - 1e-4, entry
    assert re.search(r" samples/s.*  MFU \d+\.\d%  memory \d+\.\d%", said), said


def check_default_folder(folder):
    recipe = os.path.abspath(RECIPE)
    run("train", recipe, *TINY, "name=my-run", "trainer.max_steps=1", cwd=folder)
    assert os.path.exists(os.path.join(folder, "runs", "my-run", "metrics.jsonl"))
    run("train", recipe, *TINY, "trainer.fast_dev_run=true", cwd=folder)
    assert os.listdir(os.path.join(folder, "runs")) == ["my-run"], "a dry run left files"


def check_resume(folder):
    whole, part = os.path.join(folder, "whole"), os.path.join(folder, "part")
    if not os.path.exists(whole):
        train(whole)
    train(part, "trainer.max_steps=2")
    assert [entry["step"] for entry in metrics(part, "train")] == [1, 2]
    done = train(part, "trainer.max_steps=2")
    assert "complete already" in done.stdout, done.stdout
    refused("train", RECIPE, *TINY, "--run-dir", part, "--resume", "never", parts=["not empty"])
    refused("train", RECIPE, *TINY, "--run-dir", part, "optimizer.lr=0.06", "seed=9",
            parts=["optimizer.lr", "seed"])
    before = open(os.path.join(part, "metrics.jsonl"), encoding="utf-8").read()
    done = train(part)  # its end was raised
    going_on = [line for line in done.stderr.splitlines() if "resuming from" in line]
    assert len(going_on) == 1 and "step-00000002" in going_on[0], done.stderr
    after = open(os.path.join(part, "metrics.jsonl"), encoding="utf-8").read()
    assert after.startswith(before), "a resume appends"
    wanted = {entry["step"]: entry["loss"] for entry in metrics(whole, "train")}
    assert {entry["step"]: entry["loss"] for entry in metrics(part, "train")} == wanted
    # Without metrics.jsonl, from a path, into a new folder; steps are the same.
    moved = os.path.join(folder, "moved")
    os.remove(os.path.join(part, "metrics.jsonl"))
    train(moved, "--resume", os.path.join(whole, "checkpoints", "step-00000003")
          if os.path.exists(os.path.join(whole, "checkpoints", "step-00000003"))
          else os.path.join(whole, "checkpoints", "last"), "trainer.max_epochs=3")
    later = {entry["step"]: entry["loss"] for entry in metrics(moved, "train")}
    assert later and all(later[step] == wanted[step] for step in later if step in wanted)
    # A damaged newest checkpoint: auto falls back, a path is refused.
    train(part, "trainer.max_epochs=3", "checkpoint.save_top_k=-1")
    newest = os.path.realpath(os.path.join(part, "checkpoints", "last"))
    with open(os.path.join(newest, "model.safetensors"), "r+b") as file:
        file.seek(-4, os.SEEK_END)
        file.write(b"\xff\xff\xff\xff")
    refused("train", RECIPE, *TINY, "--run-dir", part, "--resume", newest, parts=["--resume"])
    done = train(part, "trainer.max_epochs=4")
    assert "falling back" in done.stderr, done.stderr


def check_stopped(folder):
    """75: stopped early with a checkpoint; the same command goes on and completes with 0."""
    stopped = os.path.join(folder, "stopped")
    command = [TRIREME, "train", RECIPE, *TINY, "trainer.max_epochs=2000", "data.samples=4000",
               "checkpoint.every_n_epochs=1000", "--run-dir", stopped]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU,
                   signal.SIGHUP):
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 text=True)
        deadline, seen = time.monotonic() + 60, 0
        path = os.path.join(stopped, "metrics.jsonl")
        before = len(metrics(stopped, "train")) if os.path.exists(path) else 0
        while seen <= before and time.monotonic() < deadline and child.poll() is None:
            time.sleep(0.01)
            seen = len(metrics(stopped, "train")) if os.path.exists(path) else 0
        child.send_signal(number)
        out, err = child.communicate(timeout=60)
        assert child.returncode == 75, f"{number}: {child.returncode}: {err}"
        assert not out and "the same command" in err.splitlines()[-1], out + err
        end = metrics(stopped)[-1]
        assert end["kind"] == "end" and end["status"] == "stopped", end
        last = os.readlink(os.path.join(stopped, "checkpoints", "last"))
        assert last == f"step-{end['steps']:08}", (last, end)
    run(*command[1:], f"trainer.max_steps={end['steps'] + 1}")


def check_eval(folder):
    whole = os.path.join(folder, "whole")
    last = metrics(whole, "val")[-1]
    for path in (whole, os.path.join(whole, "checkpoints", "last"),
                 os.path.join(whole, "checkpoints", "last", "model.safetensors")):
        found = json.loads(run("eval", RECIPE, *TINY, "--checkpoint", path, "--json").stdout)
        assert found.pop("evaluated_on") == "test", found
        assert found == {key: last[key] for key in ("loss", "accuracy", "samples")}, (found, last)


def check_plan(folder):
    """Never opens the data; bytes on the fullest rank."""
    closed = ["data.path=" + os.path.join(folder, "nowhere")]
    peaks = []
    for ranks in ([], ["--ranks", "4"], ["--mesh", "replicate=4"]):
        plan = json.loads(run("plan", "recipes/mnist-cnn.yaml", *closed, *ranks, "--json").stdout)
        memory = plan["memory"]
        assert list(memory) == ["parameters", "gradients", "optimizer", "activations", "workspace",
                                "communication", "peak"], memory
        assert memory["parameters"] >= 4 * 1199882 and plan["ranks"] == (4 if ranks else 1)
        assert max(value for key, value in memory.items() if key != "peak") <= memory["peak"]
        peaks.append(memory["peak"])
    assert peaks[0] > peaks[1] == peaks[2], peaks
    # This host may have too little memory for the largest recipe.
    where = {"recipes/codellama-7b.yaml": ["--device", "cuda:a100-64", "--ranks", "4"],
             "recipes/llama3-8b.yaml": ["--device", "cuda:h100-80", "--ranks", "8"],
             "recipes/gpt2-small.yaml": ["--device", "cuda:a100-64"],
             "recipes/imagenet-resnet50.yaml": ["--device", "cuda:a100-64"],
             "recipes/weather-vit.yaml": ["--device", "cuda:a100-64"]}
    for recipe in glob.glob("recipes/*.yaml"):
        words = closed if recipe.endswith("cnn.yaml") else where.get(recipe, [])
        run("plan", recipe, *words, "--json")
    out = os.path.join(folder, "weights")  # no suffix: known by content
    run("checkpoint", "init", RECIPE, "seed=3", *closed, "--out", out)
    with open(out, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    names = {"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias", "fc3.weight", "fc3.bias"}
    assert set(header) - {"__metadata__"} == names, header
    # The same weights that a run of that seed begins with.
    first = [os.path.join(folder, "first"), os.path.join(folder, "second")]
    train(first[0], "seed=3", "trainer.max_steps=1")
    train(first[1], "seed=3", "trainer.max_steps=1", "init=" + out)
    assert metrics(first[0], "train")[0]["loss"] == metrics(first[1], "train")[0]["loss"]


def check_bench(folder):
    ranks = ["run", "--standalone", "--nproc-per-node", "2", "trireme"]
    lines = run(*ranks, "bench", "comm", "--sizes", "8,64k", "--json").stdout.splitlines()
    entries = [json.loads(line) for line in lines]
    assert [entry["bytes"] for entry in entries] == [8, 65536], entries
    for entry in entries:
        assert list(entry)[:7] == ["op", "backend", "ranks", "bytes", "time_us", "algbw_gb_s",
                                   "busbw_gb_s"], entry
        assert (entry["op"], entry["ranks"]) == ("all_reduce", 2)
        assert math.isclose(entry["algbw_gb_s"], entry["bytes"] / entry["time_us"] / 1e3,
                            rel_tol=0.05, abs_tol=1e-3), entry
    for op in ["all_gather", "reduce_scatter", "send", "fold"]:
        for kind in ["f32", "f64"] if op == "fold" else ["f32", "bf16"]:
            words = ["bench", "comm", "--op", op, "--type", kind, "--sizes", "1k", "--json"]
            for prefix in [[], ranks] if kind != "f32" else [[]]:
                entry = json.loads(run(*prefix, *words).stdout)
                assert (entry["op"], entry["type"]) == (op, kind.upper()), entry


def check_ranks(folder):
    """Rank 0 alone writes; the losses are those of one rank; --json is one object."""
    two = os.path.join(folder, "two")
    done = run("run", "--standalone", "--nproc-per-node", "2", "trireme", "train", RECIPE, *TINY,
               "--run-dir", two, "--json")
    assert json.loads(done.stdout)["ranks"] == 2
    assert [e["step"] for e in metrics(two, "train")] == [1, 2, 3, 4, 5, 6]
    whole = os.path.join(folder, "whole")
    for a, b in zip(metrics(two), metrics(whole)):
        assert a["kind"] == b["kind"]
        if "loss" in a:
            assert math.isclose(a["loss"], b["loss"], rel_tol=1e-5), (a, b)
        if a["kind"] == "val":
            assert a["samples"] == b["samples"] == 24


def main():
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in [name for name in os.environ if name.startswith(("PET_", "TORCHELASTIC_"))]:
        del os.environ[name]
    with tempfile.TemporaryDirectory(prefix="trireme-interface-") as folder:
        failed = check_all((check_commands, check_codes, check_keys, check_overrides,
                            check_run_directory, check_use_of_peak, check_default_folder,
                            check_resume, check_stopped, check_eval, check_plan, check_bench,
                            check_ranks), folder)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
