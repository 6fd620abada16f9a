#!/usr/bin/env python3
"""A large layer whose loss is computed in chunks of tokens comes to the results of the same layer
as a whole, to the last bit: losses, norms, evaluations and weights, in each way to divide a run.
The CPU computes in chunks where it can. The device `far` runs the CPU's kernels, but keeps a node
for each product and for the loss.

usage: test_chunk_loss.py BUILD_FOLDER
"""
import filecmp
import json
import os
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import (TRIREME, check_same, entries, last, losses, on_ranks, run, timed,  # noqa: E402
                  train)

# 4,096 tokens of a step by 2,048 words: 32 MB of scores.
LLAMA = ["model.vocab_size=2048", "model.hidden_size=80", "model.intermediate_size=96",
         "model.num_hidden_layers=2", "model.num_attention_heads=2", "model.num_key_value_heads=2",
         "data.name=synthetic", "data.samples=40", "data.test_samples=20", "data.vocabulary=2048",
         "data.sequence=256", "batch.global=16", "batch.eval=8", "optimizer.lr=1e-3",
         "schedule.name=constant", "trainer.max_epochs=1", "trainer.log_every_n_steps=1",
         "log.tensorboard=false"]
PIPELINE = ["strategy.name=pipeline", "strategy.mesh.pipeline=2", "batch.micro=4"]
FSDP = ["strategy.name=fsdp", "strategy.persistent_bytes=0"]
TIED = "model.tie_word_embeddings=true"
MIXED = "trainer.precision=bf16-mixed"

# Name, ranks, settings, and whether training computes in chunks.
CASES = [
    ("one rank", 1, [], True),
    ("one rank, mixed", 1, [MIXED], True),
    ("one rank, bf16", 1, ["trainer.precision=bf16-true"], True),
    ("tied", 1, [TIED], True),
    ("tied, mixed", 1, [TIED, MIXED], True),
    ("rounds", 1, ["batch.micro=5"], True),
    ("recomputed", 1, ["strategy.recompute=block"], True),
    ("offloaded", 1, ["strategy.offload=optimizer"], True),
    ("16-mixed", 1, ["trainer.precision=16-mixed"], False),
    ("ddp", 2, [], True),
    ("zero2, tied", 2, ["strategy.name=zero2", TIED], True),
    ("fsdp, mixed, rounds", 2, [*FSDP, MIXED, "batch.micro=8", "batch.global=32",
                                "data.samples=72"], True),
    ("gpipe", 2, [*PIPELINE, "strategy.schedule=gpipe"], True),
    ("1f1b, mixed, tied", 2, [*PIPELINE, MIXED, TIED, "batch.micro=8"], True),
    ("interleaved, recomputed", 2, [*PIPELINE, "strategy.schedule=interleaved",
                                    "strategy.recompute=block"], True),
    # The weight's gradient is computed later than the gradient of the layer's input.
    ("zero-bubble", 2, [*PIPELINE, "strategy.schedule=zero-bubble"], False),
    # Each rank has the scores of half the words.
    ("tensor parallel", 2, ["strategy.mesh.tensor=2"], False),
]


def graph(ranks, words, device):
    return run([TRIREME, "plan", "recipes/llama-tiny.yaml", *LLAMA, *words, "--ranks", str(ranks),
                "--device", device, "--show", "graph"]).stdout


def run_on(device, folder, case):
    name, ranks, words, _ = case
    place = os.path.join(folder, f"{name} {device}".replace(" ", "_").replace(",", ""))
    run(on_ranks(ranks, train("llama-tiny", place, *LLAMA, *words, "--device", device)))
    return place


def check_case(case, folder):
    name, ranks, words, chunks = case
    assert ("linear_cross_entropy_grad" in graph(ranks, words, "cpu")) == chunks, name
    assert "linear_cross_entropy" not in graph(ranks, words, "far"), name
    cpu, far = (run_on(device, folder, case) for device in ("cpu", "far"))
    assert losses(cpu) and losses(cpu, "val"), name
    check_same(losses(cpu), losses(far), name)
    numbers = [[{key: value for key, value in entry.items() if "_s" not in key}
                for kind in ("train", "val") for entry in entries(place, kind)]
               for place in (cpu, far)]
    assert numbers[0] == numbers[1], f"{name}: {numbers[0]}, not {numbers[1]}"
    weights = [os.path.join(last(place), "model.safetensors") for place in (cpu, far)]
    assert filecmp.cmp(*weights, shallow=False), f"{name}: other weights"


def peak(device):
    """The bytes of which the scores are part, as planned."""
    words = ["recipes/llama-tiny.yaml", *LLAMA, "batch.eval=16", "--device", device, "--json"]
    return json.loads(run([TRIREME, "plan", *words]).stdout)["memory"]["peak"]


def check_memory():
    """A plan has the scores of one chunk of 512 tokens, not those of all 4,096."""
    saved, scores = peak("far") - peak("cpu"), 4096 * 2048 * 4
    assert 0.8 * scores < saved < 1.1 * scores, saved


with tempfile.TemporaryDirectory(prefix="trireme-chunk-loss-") as temporary:
    for one in CASES:
        timed(check_case, one, temporary)
    timed(check_memory)
