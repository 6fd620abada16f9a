#!/usr/bin/env python3
"""The device cuda, on a GPU that the host emulates, comes to the losses of the CPU but for
rounding, and to the same bits in every run: on one rank, by ddp and by fsdp. In half types and TF32
its images and weights have their channels last, and its checkpoints are still those of the CPU.

usage: test_cuda.py BUILD_FOLDER
"""
import os
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import SYNTHETIC, check_same, losses, on_ranks, run, timed, train  # noqa: E402

os.environ["TRIREME_MODULES"] = os.path.join(os.path.abspath(sys.argv[1]), "lib", "emulated")
# An emulated GPU is thousands of times slower than a real one: a few small samples have to do.
CNN = ("mnist-cnn", [*SYNTHETIC, "data.shape=[1,16,16]", "data.samples=8", "data.test_samples=2",
                     "batch.global=4", "batch.micro=2", "trainer.max_epochs=1"])
CONVNET = ("mnist-convnet", [*CNN[1], "optimizer.lr=0.001", "checkpoint.every_n_steps=1"])
LLAMA = ("llama-tiny", ["batch.global=2", "batch.micro=1", "trainer.max_steps=1",
                        "trainer.limit_val_batches=0", "trainer.log_every_n_steps=1",
                        "log.tensorboard=false"])
FSDP = ["strategy.name=fsdp", "strategy.persistent_bytes=0"]
CASES = [
    ("one rank", CNN, 1, []),
    ("ddp", CNN, 2, []),
    ("fsdp", CNN, 2, FSDP),
    ("llama, fsdp", LLAMA, 2, FSDP),
    ("bf16", CNN, 1, ["trainer.precision=bf16-mixed"]),
    ("f16, fsdp", CONVNET, 2, [*FSDP, "trainer.precision=16-mixed"]),
    ("tf32", CONVNET, 1, ["trainer.fp32_precision=tf32"]),
    ("parameters offloaded", CNN, 2, [*FSDP, "strategy.offload=parameters",
                                      "strategy.offload_step=device"]),
    # The host's CPU runs the optimizer, whose kernels may round otherwise than the GPU's.
    ("optimizer on the host", CNN, 1, ["strategy.offload=optimizer", "strategy.offload_step=host"]),
    ("parameters on the host", CNN, 2, [*FSDP, "strategy.offload=parameters",
                                        "strategy.offload_step=host"]),
]
TOLERANCE = 1e-4  # of losses: sums in F32 in another order
ROUGH = 1e-3  # of losses of which sums are rounded to half types, or inputs to TF32


def run_on(device, folder, case, more=""):
    name, (recipe, shared), ranks, words = case
    place = os.path.join(folder, f"{name} {device}{more}".replace(" ", "_").replace(",", ""))
    run(on_ranks(ranks, train(recipe, place, *shared, *words, "--device", device)))
    return place


def check_close(got, wanted, what, tolerance):
    assert wanted and got.keys() == wanted.keys(), f"{what}: steps {list(got)}, not {list(wanted)}"
    for step, loss in wanted.items():
        difference = abs(float(got[step]) - float(loss))
        assert difference <= tolerance * abs(float(loss)), \
            f"{what}, step {step}: loss {got[step]} on cuda, {loss} on cpu"


def check_case(case, folder):
    cpu, cuda = (run_on(device, folder, case) for device in ("cpu", "cuda"))
    tolerance = ROUGH if any("precision" in word for word in case[3]) else TOLERANCE
    check_close(losses(cuda), losses(cpu), case[0], tolerance)
    if case[1] is not LLAMA:
        check_close(losses(cuda, "val"), losses(cpu, "val"), f"{case[0]}, evaluation", tolerance)


def check_checkpoint(folder):
    """The CPU goes on from weights that had their channels last."""
    name, (recipe, shared), _, words = next(case for case in CASES if case[0] == "tf32")
    place = os.path.join(folder, "goes on")
    run(train(recipe, place, *shared, *words, "trainer.max_steps=1", "--device", "cuda"))
    run(train(recipe, place, *shared, *words, "--device", "cpu"))
    whole = losses(os.path.join(folder, f"{name}_cpu"))
    assert len(whole) == 2, whole
    check_close(losses(place), whole, "begun on cuda, ended on cpu", ROUGH)


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
    timed(check_checkpoint, temporary)
