#!/usr/bin/env python3
"""A device that runs behind the host, and whose memory the host cannot touch, comes to the losses
of the CPU to the last bit: on one and several ranks, in each way to divide a run, with random
delays of its queues.

usage: test_far.py BUILD_FOLDER
"""
import os
import re
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import (DATA, SYNTHETIC, check_same, entries, losses, on_ranks, run,  # noqa: E402
                  timed, train)

CNN = ("mnist-cnn", [*SYNTHETIC, "data.samples=96", "data.test_samples=24", "batch.global=16",
                     "batch.micro=4", "trainer.max_epochs=1"])
BATCH_NORM = ("mnist-convnet", [*SYNTHETIC, "data.samples=64", "data.test_samples=16",
                                "batch.global=16", "trainer.max_epochs=1"])
LLAMA = ("llama-tiny", ["batch.global=4", "batch.micro=1", "trainer.max_steps=3",
                        "trainer.limit_val_batches=2", "trainer.log_every_n_steps=1",
                        "log.tensorboard=false"])
# Images of bytes, which far normalises. Two blocks read the autoencoder's: they are its target too.
BYTES = ["data.limit=96", "batch.global=16", "batch.micro=4", "trainer.max_epochs=1",
         "trainer.limit_val_batches=2", "trainer.log_every_n_steps=1", "log.tensorboard=false",
         f"data.path={DATA}", "data.transform=[{random_crop: {size: 28, padding: 2}}, "
         "random_horizontal_flip, {normalize: {mean: [0.2860], std: [0.3530]}}]"]
TENSOR = "strategy.mesh.tensor=2"
PIPELINE = ["strategy.name=pipeline", "strategy.mesh.pipeline=2"]
FSDP = ["strategy.name=fsdp", "strategy.persistent_bytes=0"]
CASES = [
    ("one rank", CNN, 1, []),
    ("one rank, recomputed", CNN, 1, ["strategy.recompute=block"]),
    ("ddp", CNN, 2, []),
    ("zero1", CNN, 2, ["strategy.name=zero1"]),
    ("zero2, deterministic", CNN, 2, ["strategy.name=zero2", "trainer.deterministic=true"]),
    ("fsdp", CNN, 2, FSDP),
    ("fsdp, 16-mixed", CNN, 2, [*FSDP, "trainer.precision=16-mixed"]),
    ("pipeline", CNN, 2, PIPELINE),
    ("zero-bubble", CNN, 2, [*PIPELINE, "strategy.schedule=zero-bubble"]),
    ("interleaved", CNN, 2, [*PIPELINE, "strategy.schedule=interleaved"]),
    ("shared batch norm", BATCH_NORM, 2, ["trainer.sync_batchnorm=true"]),
    ("tensor parallel", LLAMA, 2, [TENSOR, "strategy.sequence_parallel=true"]),
    ("tensor parallel, pipeline", LLAMA, 4, [TENSOR, *PIPELINE]),
    # The states are copied to the device for a step; equivalence/test_host_step for the other way.
    ("optimizer offloaded", CNN, 1, ["strategy.offload=optimizer", "optimizer.name=adamw",
                                     "strategy.offload_step=device"]),
    ("optimizer offloaded, zero1", CNN, 2, ["strategy.name=zero1", "strategy.offload=optimizer",
                                            "strategy.offload_step=device"]),
    ("parameters offloaded", CNN, 2, [*FSDP, "strategy.offload=parameters",
                                      "strategy.offload_step=device"]),
    ("parameters offloaded, bf16", LLAMA, 2, [*FSDP, "trainer.precision=bf16-mixed",
                                              "strategy.offload=parameters",
                                              "strategy.offload_step=device"]),
    ("parameters offloaded to a file", CNN, 2, [*FSDP, "strategy.offload=parameters",
                                                "strategy.offload_path=/tmp"]),
    ("bytes", ("mnist-cnn", BYTES), 2, FSDP),
    ("bytes, bf16", ("mnist-cnn", [*BYTES, "trainer.precision=bf16-true"]), 1, []),
    ("bytes, pipeline", ("autoencoder", BYTES), 2, PIPELINE),
    ("bf16, zero2", LLAMA, 2, ["trainer.precision=bf16-mixed", "strategy.name=zero2"]),
]


def run_on(device, folder, case, *more):
    name, (recipe, shared), ranks, words = case
    place = os.path.join(folder, f"{name} {device}".replace(" ", "_").replace(",", ""))
    run(on_ranks(ranks, train(recipe, place, *shared, *words, *more, "--device", device)))
    return place


def check_case(number, case, folder):
    os.environ["TRIREME_FAR_DELAY_US"] = str(50 * (number % 4))
    os.environ["TRIREME_FAR_SEED"] = str(number)
    cpu, far = (run_on(device, folder, case) for device in ("cpu", "far"))
    assert losses(cpu), case[0]
    check_same(losses(far), losses(cpu), case[0])
    check_same(losses(far, "val"), losses(cpu, "val"), f"{case[0]}, evaluation")
    norms = [[entry["grad_norm"] for entry in entries(place, "train")] for place in (cpu, far)]
    assert norms[0] == norms[1], f"{case[0]}: norms {norms[1]}, not {norms[0]}"


def check_resume(folder):
    """A checkpoint of one device is continued on the other."""
    case = ("resume", CNN, 2, [*FSDP, "checkpoint.every_n_steps=3"])
    whole = run_on("cpu", folder, case)
    started = run_on("far", folder, case, "trainer.max_steps=3")
    words = ["--resume", os.path.join(started, "checkpoints", "last")]
    end = os.path.join(folder, "end")
    run(on_ranks(2, train(CNN[0], end, *CNN[1], *case[3], "--device", "far", *words)))
    wanted = {step: loss for step, loss in losses(whole).items() if step > 3}
    check_same(losses(end), wanted, "resume on far")


def check_copies(folder):
    """Micro-batches are copied from memory that the device allocated: in more steps more of it, and
    no more from other memory, where initial weights come from. Images of bytes stay bytes."""
    os.environ["TRIREME_FAR_REPORT"] = "1"
    copied = []
    images = 16 * 28 * 28 * 4  # floats of a step; labels are small copies
    for steps in (2, 6):
        done = run(train(CNN[0], os.path.join(folder, f"copies-{steps}"), *CNN[1], "--device",
                         "far", f"trainer.max_steps={steps}", "trainer.limit_val_batches=0"))
        copied.append([int(number) for number in re.search(
            r"far: copied (\d+) bytes from .*alloc_host, (\d+) from other",
            done.stderr).groups()])
        bytes_done = run(train(CNN[0], os.path.join(folder, f"bytes-{steps}"), *BYTES, "--device",
                               "far", f"trainer.max_steps={steps}", "trainer.limit_val_batches=0"))
        assert f"far: copied {steps * images // 4} bytes from memory" in bytes_done.stderr, \
            bytes_done.stderr
    del os.environ["TRIREME_FAR_REPORT"]
    assert [line[0] for line in copied] == [2 * images, 6 * images], copied
    assert copied[0][1] == copied[1][1] > 0, copied


def check_refusal(folder):
    place = os.path.join(folder, "refused")
    os.environ["TRIREME_FAR_DELAY_US"] = "soon"
    refused = run(train(CNN[0], place, *CNN[1], "--device", "far"), code=2)
    assert "TRIREME_FAR_DELAY_US is 'soon'" in refused.stderr, refused.stderr


with tempfile.TemporaryDirectory(prefix="trireme-far-") as temporary:
    for index, one in enumerate(CASES):
        timed(check_case, index, one, temporary)
    timed(check_resume, temporary)
    timed(check_copies, temporary)
    timed(check_refusal, temporary)
