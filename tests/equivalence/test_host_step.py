#!/usr/bin/env python3
"""Where the host's CPU runs the optimizer, beside a device whose memory it cannot touch, every
loss, norm and weight has the same bits as without offload: with each strategy, with clipping, steps
that a loss scale skips, statistics and tied weights, and random delays of the device's queues. A
run that is killed, and one that was saved without it, go on with the same bits.

usage: test_host_step.py BUILD_FOLDER
"""
import json
import os
import signal
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import (SYNTHETIC, TRIREME, check_same, entries, finish, last, losses,  # noqa: E402
                  on_ranks, run, start, timed, train, wait_for)

HOST = ["--device", "far", "strategy.offload_step=host"]
STEPS = 6
COMMON = ["batch.global=12", "batch.micro=3", f"trainer.max_steps={STEPS}",
          "trainer.max_epochs=-1", "trainer.gradient_clip_val=0.5", "trainer.limit_val_batches=1"]
CNN = ("mnist-cnn", [*SYNTHETIC, *COMMON, "data.samples=40", "data.test_samples=12"])
BATCH_NORM = ("mnist-convnet", CNN[1])
LLAMA = ("llama-tiny", [*COMMON, "model.num_hidden_layers=2", "model.hidden_size=48",
                        "model.intermediate_size=80", "model.tie_word_embeddings=true",
                        "data.sequence=16", "data.limit=60", "log.tensorboard=false",
                        "trainer.log_every_n_steps=1"])
ADAMW = ["optimizer.name=adamw", "optimizer.lr=0.01", "optimizer.weight_decay=0.1"]
BF16 = "trainer.precision=bf16-mixed"
# The first steps overflow and are skipped.
SKIPS = ["trainer.precision=16-mixed", "trainer.loss_scale.initial=1e9",
         "trainer.loss_scale.hysteresis=1"]
FSDP = ["strategy.name=fsdp", "strategy.persistent_bytes=0"]
PIPELINE = ["strategy.name=pipeline", "strategy.mesh.pipeline=2"]
OPTIMIZER, PARAMETERS = "optimizer", "parameters"
# Name, recipe, ranks, what is offloaded, settings.
CASES = [
    ("one rank", CNN, 1, OPTIMIZER, ADAMW),
    ("one rank, bf16", LLAMA, 1, OPTIMIZER, [*ADAMW, BF16]),
    ("one rank, skipped steps", LLAMA, 1, PARAMETERS, [*ADAMW, *SKIPS]),
    ("ddp, momentum", CNN, 2, OPTIMIZER, ["optimizer.name=sgd", "optimizer.lr=0.05",
                                          "optimizer.momentum=0.9", "optimizer.nesterov=true"]),
    ("ddp, statistics", BATCH_NORM, 2, OPTIMIZER, ADAMW),
    ("zero1", CNN, 2, OPTIMIZER, ["strategy.name=zero1"]),
    ("zero2, deterministic", LLAMA, 2, OPTIMIZER, [*ADAMW, "strategy.name=zero2",
                                                   "trainer.deterministic=true"]),
    ("fsdp, statistics", BATCH_NORM, 2, PARAMETERS, [*FSDP, *ADAMW]),
    ("fsdp, bf16", LLAMA, 2, PARAMETERS, [*FSDP, *ADAMW, BF16]),
    ("fsdp, small units, skipped steps", LLAMA, 2, OPTIMIZER, ["strategy.name=fsdp", *ADAMW,
                                                               *SKIPS]),
    ("pipeline", LLAMA, 2, OPTIMIZER, [*PIPELINE, *ADAMW, BF16]),
    ("zero-bubble", CNN, 2, OPTIMIZER, [*PIPELINE, "strategy.schedule=zero-bubble"]),
    ("tensor parallel", LLAMA, 2, OPTIMIZER, ["strategy.mesh.tensor=2", *ADAMW,
                                              "strategy.sequence_parallel=true"]),
    ("frozen", LLAMA, 1, PARAMETERS, [*ADAMW, BF16, "optimizer.freeze=[model.layers.0.*]"]),
]


def train_to(place, case, *more):
    _, (recipe, shared), ranks, _, words = case
    run(on_ranks(ranks, train(recipe, place, *shared, *words, *more)))


def check_end(got, wanted, what):
    """Losses, norms, evaluations, weights and the optimizer's states."""
    assert sorted(losses(wanted)) == list(range(1, STEPS + 1)), sorted(losses(wanted))
    check_same(losses(got), losses(wanted), what)
    check_same(losses(got, "val"), losses(wanted, "val"), f"{what}, val")
    norms = [[entry["grad_norm"] for entry in entries(place, "train")] for place in (got, wanted)]
    assert norms[0] == norms[1], f"{what}: norms {norms[0]}, not {norms[1]}"
    run([TRIREME, "checkpoint", "diff", last(got), last(wanted)])


def check_case(folder, number, case):
    os.environ["TRIREME_FAR_DELAY_US"] = str(50 * (number % 3))
    os.environ["TRIREME_FAR_SEED"] = str(number)
    whole, host = (os.path.join(folder, f"{number}-{name}") for name in ("whole", "host"))
    train_to(whole, case, "--device", "far")
    train_to(host, case, *HOST, f"strategy.offload={case[3]}")
    check_end(host, whole, case[0])


def check_kill(folder, case):
    """Killed, continued without the host's steps, and continued with them."""
    whole, place = os.path.join(folder, "kill-whole"), os.path.join(folder, "kill")
    offload = f"strategy.offload={case[3]}"
    train_to(whole, case, "--device", "far")
    _, (recipe, shared), _, _, words = case
    child = start(train(recipe, place, *shared, *words, *HOST, offload,
                        "checkpoint.every_n_steps=1", "trainer.max_steps=100000"))
    wait_for(lambda: os.path.exists(last(place)), "a checkpoint", child=child)
    child.send_signal(signal.SIGKILL)
    assert finish(child)[2] == -signal.SIGKILL
    step = int(os.path.basename(os.path.realpath(last(place))).split("-")[1])
    ends = {STEPS: whole}
    if step >= STEPS:  # it went further before it was killed
        longer = os.path.join(folder, "kill-longer")
        train_to(longer, case, "--device", "far", f"trainer.max_steps={step + 3}")
        ends = {step + 3: longer}
    (end, wanted), = ends.items()
    middle = (step + end + 1) // 2
    train_to(place, case, "--device", "far", f"trainer.max_steps={middle}",
             "checkpoint.every_n_steps=1")
    train_to(place, case, *HOST, offload, f"trainer.max_steps={end}", "checkpoint.every_n_steps=1")
    check_same({step: loss for step, loss in losses(place).items() if step <= end},
               losses(wanted), f"{case[0]}, killed")
    run([TRIREME, "checkpoint", "diff", last(place), last(wanted)])


def plan(case, *more):
    _, (recipe, shared), ranks, offload, words = case
    done = run([TRIREME, "plan", f"recipes/{recipe}.yaml", *shared, *words, *more, "--ranks",
                str(ranks), f"strategy.offload={offload}", "--json"])
    return json.loads(done.stdout)


def check_plan():
    """What the plan says is there: less memory of the device, more of the host."""
    case = ("plan", LLAMA, 1, OPTIMIZER, [*ADAMW, BF16])
    steps = {where: plan(case, "--device", "far", f"strategy.offload_step={where}")
             for where in ("device", "host")}
    assert [steps[where]["offload_step"] for where in steps] == ["device", "host"], steps
    device, host = (steps[where]["memory"] for where in ("device", "host"))
    # Masters, gradients and half types of n parameters lie on the host, and two states before.
    assert host["peak"] < device["peak"] and host["parameters"] < device["parameters"], steps
    assert host["offloaded"] > (4 + 4 + 4 + 4) / (4 + 4) * device["offloaded"], steps


def check_refusal(folder):
    place = os.path.join(folder, "refused")
    done = run(train(CNN[0], place, *CNN[1], *HOST, "strategy.offload=optimizer",
                     "strategy.offload_path=/tmp"), 2)
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and "strategy.offload_step" in lines[0], done.stderr
    assert not os.path.exists(place), "a refused run left a folder"


def main():
    with tempfile.TemporaryDirectory(prefix="trireme-host-step-") as folder:
        timed(check_refusal, folder)
        timed(check_plan)
        timed(check_kill, folder, CASES[1])
        for number, case in enumerate(CASES):
            timed(check_case, folder, number, case)


if __name__ == "__main__":
    main()
