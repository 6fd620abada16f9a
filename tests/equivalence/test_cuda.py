#!/usr/bin/env python3
"""The device cuda, on a GPU that the host emulates, comes to the losses of the CPU but for
rounding, and to the same bits in every run: on one rank, by ddp and by fsdp.

usage: test_cuda.py BUILD_FOLDER
"""
import os
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import SYNTHETIC, check_same, losses, on_ranks, run, timed, train  # noqa: E402

os.environ["TRIREME_MODULES"] = os.path.join(os.path.abspath(sys.argv[1]), "lib", "emulated")
# An emulated GPU is thousands of times slower than a real one: a few samples have to do.
CNN = ("mnist-cnn", [*SYNTHETIC, "data.samples=8", "data.test_samples=2", "batch.global=4",
                     "batch.micro=2", "trainer.max_epochs=1"])
LLAMA = ("llama-tiny", ["batch.global=2", "batch.micro=1", "trainer.max_steps=1",
                        "trainer.limit_val_batches=0", "trainer.log_every_n_steps=1",
                        "log.tensorboard=false"])
FSDP = ["strategy.name=fsdp", "strategy.persistent_bytes=0"]
CASES = [
    ("one rank", CNN, 1, []),
    ("ddp", CNN, 2, []),
    ("fsdp", CNN, 2, FSDP),
    ("llama, fsdp", LLAMA, 2, FSDP),
    ("parameters offloaded", CNN, 2, [*FSDP, "strategy.offload=parameters"]),
]
TOLERANCE = 1e-4  # of losses: sums in F32 in another order


def run_on(device, folder, case, more=""):
    name, (recipe, shared), ranks, words = case
    place = os.path.join(folder, f"{name} {device}{more}".replace(" ", "_").replace(",", ""))
    run(on_ranks(ranks, train(recipe, place, *shared, *words, "--device", device)))
    return place


def check_close(got, wanted, what):
    assert wanted and got.keys() == wanted.keys(), f"{what}: steps {list(got)}, not {list(wanted)}"
    for step, loss in wanted.items():
        difference = abs(float(got[step]) - float(loss))
        assert difference <= TOLERANCE * abs(float(loss)), \
            f"{what}, step {step}: loss {got[step]} on cuda, {loss} on cpu"


def check_case(case, folder):
    cpu, cuda = (run_on(device, folder, case) for device in ("cpu", "cuda"))
    check_close(losses(cuda), losses(cpu), case[0])
    if case[1] is CNN:
        check_close(losses(cuda, "val"), losses(cpu, "val"), f"{case[0]}, evaluation")


def check_bits(folder):
    again = run_on("cuda", folder, CASES[0], " again")
    first = os.path.join(folder, "one_rank_cuda")
    check_same(losses(again), losses(first), "a second run")
    check_same(losses(again, "val"), losses(first, "val"), "a second run, evaluation")
    check_same(losses(os.path.join(folder, "parameters_offloaded_cuda")),
               losses(os.path.join(folder, "fsdp_cuda")), "parameters offloaded")


with tempfile.TemporaryDirectory(prefix="trireme-cuda-") as temporary:
    for one in CASES:
        timed(check_case, one, temporary)
    timed(check_bits, temporary)
