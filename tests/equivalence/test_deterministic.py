#!/usr/bin/env python3
"""trainer.deterministic: the same bits on any number of ranks, however they share the state, and on
any number of threads.

Losses, evaluations and final weights of 1, 2, 3 and 4 ranks under ddp, zero1, zero2 and fsdp, with
dropout, batch norm, clipping, tied weights, uneven tails, and in half types. Ranks with two or
three threads are compared with a rank with one, also if the number changes at a resume.

MATRIX=all: runs each case on all of them; otherwise on one of them in turn.

usage: test_deterministic.py BUILD_FOLDER
"""
import concurrent.futures
import os
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import matrix  # noqa: E402
from runs import TRIREME, check_same, last, losses, on_ranks, run, timed, train  # noqa: E402

STRATEGIES = ("ddp", "zero1", "zero2", "fsdp")
BF16 = "trainer.precision=bf16-mixed"
EPOCHS = ["trainer.max_steps=8", "trainer.max_epochs=-1", "trainer.deterministic=true",
          "data.workers=1", "data.shuffle=true", "log.tensorboard=false",
          "trainer.log_every_n_steps=1", "batch.eval=7", "checkpoint.every_n_epochs=0",
          "strategy.persistent_bytes=8192"]
ADAMW, CLIP = ["optimizer.name=adamw", "optimizer.lr=0.001"], "trainer.gradient_clip_val=0.5"
# Model, threads of a rank, batch.global, batch.micro, samples, settings.
CASES = {
    "dropout and clipping": ("cnn", 1, 22, 3, 76, [*ADAMW, CLIP]),
    "batch norm, one sample": ("convnet", 1, 24, 5, 49, [*ADAMW, CLIP]),
    "llama": ("llama", 1, 22, 3, 76, [*ADAMW, CLIP, "strategy.recompute=block"]),
    "tied weights": ("tied", 1, 16, 4, 50, ["optimizer.name=sgd", "optimizer.lr=0.01"]),
    "llama in bf16": ("llama", 1, 22, 3, 76, [*ADAMW, CLIP, BF16]),
    "batch norm in bf16": ("convnet", 1, 24, 4, 73, [*ADAMW, BF16]),
    "frozen layers": ("cnn", 1, 24, 2, 96, [*ADAMW, "optimizer.freeze=['conv1.*', '*.bias']"]),
    "two threads": ("cnn", 2, 11, 3, 30, [*ADAMW, CLIP]),
    "three threads": ("cnn", 3, 32, 8, 128, []),
    "three threads, direct": ("cnn", 3, 32, 8, 128, ["trainer.convolution=direct"]),
    "three threads, bf16": ("cnn", 3, 32, 8, 128, [*ADAMW, BF16]),
    "llama, two threads": ("llama", 2, 11, 3, 30, [*ADAMW, CLIP]),
    "batch norm, two threads": ("convnet", 2, 11, 3, 30, [*ADAMW, CLIP]),
}


def execute(folder, name, case, ranks, strategy, more_words=()):
    model, threads, size, micro, samples, more = case
    recipe, *words = matrix.MODELS[model][0].split()
    words += [f"data.limit={samples}"] if "llama" in recipe else matrix.IMAGES.split()
    words = [word.format(data=folder, samples=samples) for word in words]
    place = os.path.join(folder, name)
    words += [*EPOCHS, *more, f"batch.global={size}", f"batch.micro={micro}", *more_words]
    run(["env", f"OMP_NUM_THREADS={threads}", "timeout", "120",
         *on_ranks(ranks, train(recipe, place, *words, f"strategy.name={strategy}"))])
    return place


def compare(folder, what, case, alone, ranks, strategy):
    name = f"{what}-{ranks}-{strategy}".replace(" ", "_")
    got = execute(folder, name, case, ranks, strategy)
    what = f"{what}, {strategy} on {ranks} ranks"
    for kind in ("train", "val"):
        check_same(losses(got, kind), losses(alone, kind), f"{what}, {kind}")
    run([TRIREME, "checkpoint", "diff", last(got), last(alone)])  # weights, states of the optimizer


def check_case(folder, what):
    case = CASES[what]
    one_thread = (case[0], 1, *case[2:])
    alone = execute(folder, f"{what}-alone".replace(" ", "_"), one_thread, 1, "ddp")
    assert len(losses(alone)) == 8 and len(set(losses(alone).values())) == 8, losses(alone)
    workers = len(os.sched_getaffinity(0)) if case[1] == 1 else 1
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        meshes = [(ranks, strategy) for strategy in STRATEGIES for ranks in (1, 2, 3, 4)
                  if (ranks, strategy) != (1, "ddp") or case[1] > 1]
        if os.environ.get("MATRIX") != "all":  # each number of ranks and each strategy, by turns
            turns = 4 if case[1] == 1 else 7
            meshes = meshes[list(CASES).index(what) % turns::turns]
        for done in [pool.submit(compare, folder, what, case, alone, *mesh) for mesh in meshes]:
            done.result()


def check_threads_changed(folder):
    """A run of one thread that is ended and resumed with three goes on as on one."""
    case = CASES["two threads"]
    one_thread, three_threads = (case[0], 1, *case[2:]), (case[0], 3, *case[2:])
    alone = execute(folder, "alone", one_thread, 1, "ddp")
    changed = execute(folder, "changed", one_thread, 1, "ddp", ["trainer.max_steps=3"])
    assert len(losses(changed)) == 3, losses(changed)
    execute(folder, "changed", three_threads, 1, "ddp")
    check_same(losses(changed), losses(alone), "resumed with three threads")
    run([TRIREME, "checkpoint", "diff", last(changed), last(alone)])


def main():
    # The device `far` has the kernels of `cpu`, whose threads that device's test compares.
    is_far = os.environ.get("TEST_DEVICE") == "far"
    with tempfile.TemporaryDirectory(prefix="trireme-deterministic-") as folder:
        matrix.write_text(folder)
        for what, case in CASES.items():
            if is_far and case[1] > 1 and what != "two threads":
                continue
            print(f"{what}: ", end="")
            timed(check_case, folder, what)
        if not is_far:
            print("another number of threads after a resume: ", end="")
            timed(check_threads_changed, folder)


if __name__ == "__main__":
    main()
