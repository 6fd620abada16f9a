#!/usr/bin/env python3
"""Runs from DeepSpeed's configuration: the two files in use, on one rank and on two.

usage: test_deepspeed.py BUILD_FOLDER
"""
import json
import math
import os
import subprocess
import sys
import tempfile

TRIREME = os.path.join(os.path.abspath(sys.argv[1]), "bin", "trireme")
RECIPE = """model: {name: mlp-jax}
data: {name: synthetic, shape: [1, 28, 28], samples: 64, test_samples: 8, classes: 10}
trainer: {max_steps: 4}
"""
LUMI = """{
  "train_batch_size": 32,
  "steps_per_print": 1,
  "optimizer": {
    "type": "Adam",
    "params": {"lr": 0.001},
  },
  "gradient_clipping": 1.0,
  "fp16": {"enabled": false},
  "zero_optimization": {"stage": 1, "overlap_comm": true},
}
"""
CSC = {"train_batch_size": 16, "steps_per_print": 1, "gradient_clipping": 1.0,
       "optimizer": {"type": "Adam", "params": {"lr": 0.001, "betas": [0.8, 0.999], "eps": 1e-8,
                                                "weight_decay": 3e-7}},
       "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 0, "warmup_max_lr": 0.001,
                                                    "warmup_num_steps": 1000}}}


def write(name, content):
    with open(name, "w", encoding="ascii") as file:
        file.write(content if isinstance(content, str) else json.dumps(content))


def train(*arguments, ranks=1):
    command = [TRIREME, "train", "r.yaml", *arguments]
    if ranks > 1:
        command = [TRIREME, "run", "--standalone", "--nproc-per-node", str(ranks)] + command
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def steps(folder):
    with open(os.path.join(folder, "metrics.jsonl"), encoding="ascii") as file:
        lines = [json.loads(line) for line in file]
    return [line for line in lines if line["kind"] == "train"]


def check_lumi():
    """Trailing commas are accepted with one warning on any number of ranks; overrides win."""
    write("lumi.json", LUMI)
    for ranks in (1, 2):
        done = train("deepspeed=lumi.json", "strategy.name=ddp", "--run-dir", f"lumi{ranks}",
                     ranks=ranks)
        assert done.returncode == 0, done
        assert done.stderr.count("lumi.json: has comments or commas") == 1, done.stderr
        assert done.stderr.count("without effect here: zero_optimization.overlap_comm") == 1
        with open(f"lumi{ranks}/recipe.yaml", encoding="ascii") as file:
            resolved = file.read()
        assert "deepspeed" not in resolved and "  global: 32\n" in resolved, resolved
    for one, two in zip(steps("lumi1"), steps("lumi2")):
        assert abs(one["loss"] - two["loss"]) < 2e-5 * one["loss"], (one, two)
    done = train("deepspeed=lumi.json", "strategy.name=ddp", "--run-dir", "lumi1",
                 "trainer.max_steps=6")
    assert done.returncode == 0 and steps("lumi1")[-1]["step"] == 6, done  # goes on


def check_csc():
    """Rates follow WarmupLR; accumulation on two ranks gives the same losses."""
    write("csc.json", CSC)
    done = train("deepspeed=csc.json", "--run-dir", "csc")
    told = [line for line in done.stderr.splitlines() if "warning" in line]
    assert done.returncode == 0 and len(told) == 1, done
    assert "run of 4 steps ends before its warm-up (schedule.warmup_steps: 1,000 " in told[0], told
    for line in steps("csc"):
        rate = 0.001 * math.log(max(line["step"] - 1, 1)) / math.log(1000)
        assert abs(line["lr"] - rate) < 1e-9, (line, rate)
    del CSC["train_batch_size"]
    write("csc.json", dict(CSC, train_micro_batch_size_per_gpu=2, gradient_accumulation_steps=4))
    done = train("deepspeed=csc.json", "--run-dir", "accumulated", ranks=2)
    assert done.returncode == 0, done
    with open("accumulated/recipe.yaml", encoding="ascii") as file:
        assert "  global: 16\n  micro: 2\n" in file.read()
    for one, two in zip(steps("csc"), steps("accumulated")):
        assert abs(one["loss"] - two["loss"]) < 2e-5 * one["loss"], (one, two)


def check_refusals():
    """Contradictions are bad input: one line, and nothing is left."""
    bad = {"batch.json": (dict(CSC, train_batch_size=32, train_micro_batch_size_per_gpu=2,
                               gradient_accumulation_steps=4), "32 is not batch.micro=2 x"),
           "key.json": ({"gradient_cliping": 1}, "did you mean 'gradient_clipping'"),
           "json.json": ("{", "json.json:1: not valid JSON")}
    for name, (content, words) in bad.items():
        write(name, content)
        done = train(f"deepspeed={name}", "--run-dir", "bad")
        assert done.returncode == 2, done
        assert len(done.stderr.splitlines()) == 1 and words in done.stderr, done.stderr
        assert not os.path.exists("bad")
    write("r.yaml", RECIPE + "optimizer: {name: sgd}\ndeepspeed: csc.json\n")
    done = train("--run-dir", "bad")
    assert done.returncode == 2 and "'optimizer.name' is sgd here, but adamw" in done.stderr, done
    assert len(done.stderr.splitlines()) == 1


with tempfile.TemporaryDirectory() as temporary:
    os.chdir(temporary)
    write("r.yaml", RECIPE)
    check_lumi()
    check_csc()
    check_refusals()
