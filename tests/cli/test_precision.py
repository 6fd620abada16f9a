#!/usr/bin/env python3
"""Training in half types: it learns as F32 does, stores F32, resumes to the bit, and a CPU without
instructions for BF16 computes the same.

usage: test_precision.py BUILD_FOLDER
"""
import json
import os
import re
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import runs  # noqa: E402
import tensors  # noqa: E402

STEPS = 12
COMMON = ["trainer.log_every_n_steps=1", "log.tensorboard=false", f"trainer.max_steps={STEPS}",
          "trainer.max_epochs=-1", "checkpoint.save_top_k=0"]
MODELS = {
    "mnist-cnn": [*runs.SYNTHETIC, "data.samples=64", "data.test_samples=32", "batch.global=16",
                  "optimizer.name=adamw", "optimizer.lr=0.001"],
    "llama-tiny": ["data.sequence=64", "batch.global=4", "model.num_hidden_layers=2",
                   "data.workers=0", "optimizer.lr=0.003", "schedule.name=constant"],
}
# Relative, of each step's loss; what rounding to 8 or 11 bits may do, and a bug does not.
LIMITS = {"bf16-mixed": 0.01, "bf16-true": 0.02, "16-mixed": 0.002}


def train(folder, model, name, *words, env=None):
    run_dir = os.path.join(folder, f"{model}-{name}")
    done = runs.run(runs.train(model, run_dir, *MODELS[model], *COMMON, *words),
                    env=dict(os.environ, **(env or {})))
    # Elsewhere this name means BF16 weights.
    lines = [line for line in done.stderr.splitlines() if "bf16-true" in line]
    assert len(lines) == ("trainer.precision=bf16-true" in words), done.stderr
    return run_dir


def check_scales_the_mean(folder):
    """A loss scale multiplies the mean over tokens: of their sum, each gradient would overflow."""
    words = ["batch.global=1", "trainer.max_steps=3", "model.num_hidden_layers=1"]
    wide = runs.losses(train(folder, "llama-tiny", "wide", *words))
    words += ["trainer.precision=16-mixed", "trainer.loss_scale.fixed=65536"]
    ranks = ["batch.global=2", "batch.micro=1", *words[1:]]
    for name, command in ("mean", words), ("accumulated", ranks):
        run_dir = os.path.join(folder, name)
        done = runs.run(runs.train("llama-tiny", run_dir, *MODELS["llama-tiny"], *COMMON, *command))
        assert "overflow" not in done.stderr, done.stderr
    runs.check_close(runs.losses(os.path.join(folder, "mean")), wide, 0.002, "fixed loss scale")


def stored_types(run_dir):
    path = os.path.join(run_dir, "checkpoints", "last", "model.safetensors")
    return {dtype for dtype, _, _ in tensors.read(path).values()}


def check_learns(folder, model):
    wide = runs.losses(train(folder, model, "f32"))
    for precision, limit in LIMITS.items():
        run_dir = train(folder, model, precision, f"trainer.precision={precision}")
        losses = runs.losses(run_dir)
        worst = runs.check_close(losses, wide, limit, f"{model} in {precision}")
        assert losses != wide, f"{model} in {precision} is F32 to the last digit"
        assert float(losses[STEPS]) < float(losses[1]), f"{model} in {precision} learns nothing"
        assert stored_types(run_dir) == {"F32"}, stored_types(run_dir)
        print(f"  {model} in {precision}: losses within {worst:.1e} of F32's")


def check_resumes(folder, model):
    whole = runs.losses(os.path.join(folder, f"{model}-bf16-mixed"))
    half = ["trainer.precision=bf16-mixed", f"trainer.max_steps={STEPS // 2}"]
    run_dir = train(folder, model, "resumed", *half)
    train(folder, model, "resumed", "trainer.precision=bf16-mixed")
    runs.check_same(runs.losses(run_dir), whole, f"{model} stopped and resumed")


def check_isa(folder, model):
    native = runs.losses(os.path.join(folder, f"{model}-bf16-mixed"))
    for isa in ("avx512", "avx2"):
        run_dir = train(folder, model, isa, "trainer.precision=bf16-mixed",
                        env={"TRIREME_CPU_ISA": isa})
        runs.check_close(runs.losses(run_dir), native, 0.01, f"{model} on {isa}")


def check_ref(folder):
    """The reference device, on a small model because it is slow."""
    small = ["trainer.precision=bf16-mixed", "trainer.max_steps=4", "data.sequence=16",
             "model.hidden_size=32", "model.intermediate_size=48", "model.num_hidden_layers=1",
             "model.tie_word_embeddings=true"]
    cpu = runs.losses(train(folder, "llama-tiny", "small", *small))
    ref = runs.losses(train(folder, "llama-tiny", "ref", *small, "--device", "ref"))
    runs.check_close(cpu, ref, 0.002, "a small decoder on cpu against ref")


def bench(*words, code=0):
    # Two ranks: a rank alone would wait for the machine to be quiet.
    return runs.run(runs.on_ranks(2, [
        runs.TRIREME, "bench", "train", "recipes/mnist-cnn.yaml", *MODELS["mnist-cnn"], *words,
        "--seconds", "0.1", "--json"]), code=code)


def check_bench():
    """The benchmark trains like a run: the scale falls from one that makes gradients overflow."""
    half = ["trainer.precision=16-mixed", "trainer.loss_scale.hysteresis=1",
            "trainer.loss_scale.initial=1e12"]
    scale = json.loads(bench(*half).stdout)["loss_scale"]
    assert 1 < scale < 1e12, scale
    assert json.loads(bench().stdout)["loss_scale"] == 1
    refused = bench(*half, "trainer.loss_scale.minimum=1e12", code=1)
    assert re.search(r"step 1: .* loss scale \(1e\+12\)", refused.stderr), refused.stderr
    fixed = bench(*half[:1], "trainer.loss_scale.fixed=1e30").stderr
    assert "warning: " in fixed and "trainer.loss_scale.fixed" in fixed, fixed


def check_sent_in_f16():
    """A plan says if small gradients would be sent as 0: there is no loss scale."""
    for ranks, precision, count in ((2, "32-true", 1), (2, "16-mixed", 0), (1, "32-true", 0)):
        done = runs.run([runs.TRIREME, "plan", "recipes/mlp-jax.yaml", "--ranks", str(ranks),
                         "strategy.reduce_dtype=float16", f"trainer.precision={precision}"])
        assert done.stderr.count("no loss scale") == count, done.stderr


with tempfile.TemporaryDirectory() as temporary:
    check_bench()
    check_sent_in_f16()
    for each in MODELS:
        check_learns(temporary, each)
        check_resumes(temporary, each)
    check_isa(temporary, "mnist-cnn")
    check_ref(temporary)
    check_scales_the_mean(temporary)
