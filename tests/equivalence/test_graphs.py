#!/usr/bin/env python3
"""With CUDA graphs a run comes to the same losses and norms of gradients, to the last bit, as
without: on an emulated GPU, with accumulation, a smaller last step, evaluation between epochs,
clipping, steps that a loss scale skips, sharded state, and after a resume.

usage: test_graphs.py BUILD_FOLDER
"""
import os
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import SYNTHETIC, entries, on_ranks, run, timed, train  # noqa: E402

os.environ["TRIREME_MODULES"] = os.path.join(os.path.abspath(sys.argv[1]), "lib", "emulated")
SMALL = ["data.shape=[1,4,4]", "data.samples=39", "data.test_samples=8", "batch.global=12",
         "batch.micro=2", "trainer.max_epochs=2", "trainer.gradient_clip_val=0.1"]
MLP = ("mlp-jax", [*SYNTHETIC, *SMALL])
CNN = ("mnist-cnn", [*SYNTHETIC, "data.shape=[1,16,16]", "data.samples=10",
                     "data.test_samples=2", "batch.global=4", "batch.micro=2",
                     "trainer.max_epochs=1"])
LLAMA = ("llama-tiny", ["model.num_hidden_layers=2", "model.hidden_size=32",
                        "model.intermediate_size=48", "data.sequence=16", "data.limit=24",
                        "batch.global=4", "batch.micro=2", "schedule.warmup_steps=2",
                        "trainer.max_epochs=1", "trainer.limit_val_batches=1",
                        "data.workers=1", "trainer.log_every_n_steps=1", "log.tensorboard=false"])
FSDP = ["strategy.name=fsdp", "strategy.persistent_bytes=0"]
OVERFLOW = ["trainer.precision=16-mixed", "trainer.loss_scale.initial=1e9",
            "trainer.loss_scale.hysteresis=1"]
CASES = [
    ("ddp", MLP, 2, []),
    ("fsdp, skipped steps", MLP, 2, [*FSDP, *OVERFLOW]),
    ("optimizer offloaded", MLP, 1, ["strategy.offload=optimizer", "optimizer.name=adamw",
                                     "strategy.offload_step=device"]),
    ("optimizer on the host", MLP, 1, ["strategy.offload=optimizer", "optimizer.name=adamw",
                                       "strategy.offload_step=host"]),
    ("convolutions", CNN, 1, []),
    ("llama, recomputed", LLAMA, 1, ["strategy.recompute=block"]),
]


def write_texts(folder):
    """Two small texts. What they say does not matter."""
    text = "".join(f"word{i * i % 89} " for i in range(300))
    for name in ("train", "validation"):
        with open(os.path.join(folder, f"{name}.txt"), "w", encoding="ascii") as file:
            file.write(text)


def numbers(place):
    """What the run has logged, without times."""
    return [{key: entry[key] for key in ("kind", "step", "loss", "grad_norm") if key in entry}
            for kind in ("train", "val") for entry in entries(place, kind)]


def run_case(folder, name, graphs, case, *more):
    """Trains with (graphs "1") or without CUDA graphs. Returns the run folder and what it said."""
    _, (recipe, shared), ranks, words = case
    place = os.path.join(folder, f"{name}-{graphs}".replace(" ", "-").replace(",", ""))
    if recipe == "llama-tiny":
        shared = [*shared, f"data.path={folder}"]
    os.environ["TRIREME_CUDA_GRAPHS"] = graphs
    done = run(on_ranks(ranks, train(recipe, place, *shared, *words, *more, "--device", "cuda")))
    return place, done.stderr + done.stdout


def check_case(case, folder):
    """Compares a run with graphs and one without."""
    without, _ = run_case(folder, case[0], "0", case)
    with_graphs, said = run_case(folder, case[0], "1", case)
    wanted, got = numbers(without), numbers(with_graphs)
    assert len(wanted) > 3 and any(entry["kind"] == "val" for entry in wanted), wanted
    assert got == wanted, f"{case[0]}: with graphs {got}, without {wanted}"
    if "skipped" in case[0]:
        assert "overflowed; the loss scale" in said, said


def check_smaller_step(folder):
    """The epoch's last step has shapes of its own, so libraries load kernels for it. If sums go
    through the hosts, the step before waits on the GPU for a thread of the host. Loading must not
    block this thread, so it begins only when that step is done. With one micro-batch a step, the
    host issues the last step while the one before is still in flight."""
    os.environ["TRIREME_NCCL"] = "0"
    check_case(("smaller step", MLP, 2, ["batch.micro=0"]), folder)
    del os.environ["TRIREME_NCCL"]


def check_resume(folder):
    """A run with graphs that is ended and resumed goes on as the whole one without."""
    case = ("resume", MLP, 1, [])
    whole, _ = run_case(folder, "whole", "0", case)
    begun, _ = run_case(folder, "begun", "1", case, "trainer.max_steps=5")
    end, _ = run_case(folder, "end", "1", case, "--resume",
                      os.path.join(begun, "checkpoints", "last"))
    wanted = [entry for entry in numbers(whole) if entry["step"] > 5]
    assert len(wanted) > 2 and numbers(end) == wanted, f"{numbers(end)}, not {wanted}"


with tempfile.TemporaryDirectory(prefix="trireme-graphs-") as temporary:
    write_texts(temporary)
    for one in CASES:
        timed(check_case, one, temporary)
    timed(check_smaller_step, temporary)
    timed(check_resume, temporary)
