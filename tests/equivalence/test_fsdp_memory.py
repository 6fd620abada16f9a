#!/usr/bin/env python3
"""What sharding saves: on N ranks, each rank of fsdp holds at most an N-th of one rank's
parameters, gradients and optimizer states plus 6%, and what two gathered blocks take: parameters,
and gradients before SCATTER. The numbers are those of the plan, which test_memory.py compares with
real memory.

usage: test_fsdp_memory.py BUILD_FOLDER
"""
import json
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import TRIREME, run, timed  # noqa: E402

WIDE = ["recipes/llama-tiny.yaml", "batch.global=16", "strategy.name=fsdp", "model.hidden_size=512",
        "model.intermediate_size=1536", "model.num_attention_heads=8"]
CASES = ([], ["model.num_hidden_layers=8"], ["trainer.precision=bf16-mixed"],
         ["optimizer.name=sgd", "optimizer.momentum=0.9"], ["strategy.recompute=block"],
         ["model.num_hidden_layers=7", "model.intermediate_size=1531"])  # nothing divides evenly
SPARE = 0.06


def plan(ranks, words):
    done = run([TRIREME, "plan", *WIDE, *words, "--ranks", str(ranks), "--json"])
    return json.loads(done.stdout)


def state(planned):
    memory = planned["memory"]
    return memory["parameters"] + memory["gradients"] + memory["optimizer"]


def check_case(words):
    alone = plan(1, words)
    largest = sorted(block["parameters"] for block in alone["blocks"])[-2:]
    bytes_each = 8 if "trainer.precision=bf16-mixed" not in words else 6  # a gradient is F32
    two_blocks = bytes_each * sum(largest)
    for ranks in (2, 3, 8):
        several = plan(ranks, words)
        share = state(several) / state(alone)
        gathered = several["memory"]["communication"]
        print(f"  {' '.join(words) or 'as it is'}: {share:.3f} on {ranks} ranks, gathered "
              f"{gathered / two_blocks:.2f} of two blocks")
        assert share <= 1 / ranks + SPARE, f"{words}: {share} on {ranks} ranks"
        held, most = state(several) + gathered, (1 / ranks + SPARE) * state(alone) + two_blocks
        assert held <= most, f"{words}, {ranks} ranks: {held} of {most} bytes"


def main():
    for words in CASES:
        timed(check_case, words)


if __name__ == "__main__":
    main()
