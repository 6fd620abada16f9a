#!/usr/bin/env python3
"""Adapters are trained alike on any ranks: losses and weights are those of one rank with every
strategy, and after a resume or a kill on other ranks. Frozen weights stay as they are, to the bit,
and cost no gradients and no optimizer states.

usage: test_lora.py BUILD_FOLDER
"""
import json
import os
import random
import signal
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import (TRIREME, check_close, check_nothing_left, end_all, finish, last,  # noqa: E402
                  losses, on_ranks, run, start_ranks, timed, train, wait_for)
import tensors  # noqa: E402
from test_tensor import GPT2, HALF_LIMIT, LIMIT, LLAMA, check_case, compare_weights  # noqa: E402

GOLDENS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support", "goldens")
TENSOR, SEQUENCE = "strategy.mesh.tensor=2", "strategy.sequence_parallel=true"
PIPELINE = ["strategy.name=pipeline", "batch.micro=2"]
RATE = ["optimizer.lr=0.02", "schedule.name=constant", "schedule.warmup_steps=0"]
# Recipe, its settings, and what they are compared with: ranks and further settings.
CASES = [
    ("llama-tiny", [*LLAMA, *RATE, "lora.match=[q_proj, v_proj, '*.mlp.*', lm_head]",
                    "lora.dropout=0.2"], [
        (2, []),
        (2, ["strategy.name=fsdp", "strategy.recompute=block"]),
        (2, PIPELINE),
        (2, [TENSOR, SEQUENCE]),
        (3, ["strategy.name=zero2"]),
        (4, [TENSOR, *PIPELINE]),
        (4, [TENSOR, "strategy.name=fsdp"]),
    ]),
    # Of small gradients Adam makes whole steps, of which rounding chooses the direction.
    ("gpt2-small", [*GPT2, "optimizer.name=sgd", "optimizer.lr=0.5", "optimizer.momentum=0.9",
                    "lora.match=[c_attn, c_proj]", "lora.rank=3"], [
        (2, []),
        (2, ["strategy.name=fsdp"]),
        (2, PIPELINE),
        (2, [TENSOR]),
    ]),
]


def check_half_types(folder):
    """On weights that are BF16 where they are computed with."""
    recipe, words, _ = CASES[0]
    words = [*words, "trainer.precision=bf16-true", "optimizer.lr=0.001"]
    alone, several = f"{folder}/half-1", f"{folder}/half-2"
    run(train(recipe, alone, *words))
    run(on_ranks(2, train(recipe, several, *words, TENSOR)))
    check_close(losses(several), losses(alone), HALF_LIMIT, "bf16-true")


def check_resume(folder, number):
    """Each part of the run is on other ranks."""
    recipe, options, _ = CASES[number]
    place, alone = f"{folder}/resumed-{number}", f"{folder}/{number}"
    for ranks, steps, more in ((2, 2, [TENSOR]), (1, 3, []), (2, 4, ["strategy.name=zero1"]),
                               (4, -1, [TENSOR, "strategy.name=fsdp"])):
        run(on_ranks(ranks, train(recipe, place, *options, f"trainer.max_steps={steps}", *more)))
    check_close(losses(place), losses(alone), LIMIT, "resumed on other ranks")
    compare_weights(alone, place, "resumed on other ranks")


def check_kill(folder):
    """Two ranks are killed while they train; one goes on."""
    recipe, options, _ = CASES[0]
    place, whole = f"{folder}/killed", f"{folder}/whole-of-killed"
    words = [*options, "optimizer.lr=0.001", "trainer.max_epochs=100000",
             "checkpoint.every_n_steps=1"]
    children = start_ranks(train(recipe, place, *words, "strategy.name=fsdp"), 2)
    try:
        wait_for(lambda: len(losses(place)) > 2, "a third step", child=children[0])
        for child in children:
            child.send_signal(signal.SIGKILL)
        for child in children:
            assert finish(child)[2] == -signal.SIGKILL, "it ended before it was killed"
    finally:
        end_all(children)
    check_nothing_left()
    step = int(os.path.basename(os.path.realpath(last(place))).split("-")[1])
    for folder_of_run in (place, whole):
        run(train(recipe, folder_of_run, *words, f"trainer.max_steps={step + 3}"))
    check_close(losses(place), losses(whole), LIMIT, "killed and gone on with")
    compare_weights(whole, place, "killed and gone on with")


def check_start(folder):
    """Adapters that the file of initial weights lacks begin as drawn, and change no output; those
    that it has are taken. Only adapters move."""
    recipe, words, _ = CASES[0]
    base = f"{folder}/base.safetensors"
    run([TRIREME, "checkpoint", "init", f"recipes/{recipe}.yaml", *words, "seed=5", "lora=null",
         "--out", base])
    whole, fresh, again = (f"{folder}/{name}" for name in ("whole", "fresh", "again"))
    no_dropout = [*words, "model.dropout=0", "lora.dropout=0", f"init={base}"]
    run(train(recipe, whole, *no_dropout, "lora=null", "trainer.max_steps=1"))
    run(on_ranks(2, train(recipe, fresh, *no_dropout, "strategy.name=fsdp")))
    assert losses(whole)[1] == losses(fresh)[1], f"{losses(whole)} {losses(fresh)}"
    run(train(recipe, again, *no_dropout[:-1], f"init={last(fresh)}", "trainer.max_steps=1"))
    assert abs(float(losses(again)[1]) - float(losses(fresh)[1])) > 1e-3, "adapters are not taken"
    done = run([TRIREME, "checkpoint", "diff", last(fresh), base, "--json"], 1)
    for line in map(json.loads, done.stdout.splitlines()):
        assert ".lora_" in line["name"] or line["equal"], f"a frozen weight has moved: {line}"


def write_recipes(place, model, match):
    """The recipes of a built-in model and of the same model as PyTorch has exported it."""
    golden, draw = os.path.join(GOLDENS, model), random.Random(3)
    tensors.write(f"{place}.data", {"input_ids": ("I64", [8, 12], [draw.randrange(300)
                                                                   for _ in range(96)])})
    both = {"data": {"name": "tensors", "train": f"{place}.data"}, "batch": {"global": 8},
            "optimizer": {"name": "sgd", "lr": 0.05}, "lora": {"match": match, "rank": 3},
            "trainer": {"max_epochs": 4, "log_every_n_steps": 1}}
    for kind, more in (("own", {"model": {"config": f"{golden}/config.json", "dropout": 0}}),
                       ("exported", {"model": {"name": "torch", "program": f"{golden}/net.pt2",
                                               "dropout": 0},
                                     "loss": {"name": "cross_entropy", "target": "input_ids"}})):
        with open(f"{place}.{kind}.yaml", "w", encoding="utf-8") as file:
            json.dump({**both, **more}, file)


def check_exported(folder, model, match):
    """An exported network, whose names begin with "model.", has the adapters of the built-in one:
    the same losses on any ranks, and the same exports."""
    place = f"{folder}/{model}"
    write_recipes(place, model, match)

    def trained(kind, number, ranks=1, words=()):
        out = f"{place}.{kind}-{number}"
        run(on_ranks(ranks, [TRIREME, "train", f"{place}.{kind}.yaml", "--run-dir", out, *words]))
        return out

    first = trained("own", "first", words=[f"init={GOLDENS}/{model}/model.safetensors"])
    start = tensors.read(f"{last(first)}/model.safetensors")
    tensors.write(f"{place}.init", {f"model.{name}": value for name, value in start.items()})
    alone = trained("own", "alone", words=[f"init={first}"])
    for number, (ranks, words) in enumerate([(1, []), (2, []), (3, ["strategy.name=fsdp"]),
                                             (2, PIPELINE), (2, [TENSOR])]):
        out = trained("exported", number, ranks, [f"init={place}.init", *words])
        check_close(losses(out), losses(alone), LIMIT, f"{model} {words}")
    for kind, source in ("own", alone), ("exported", out):
        for words in ["--lora", f"{place}.{kind}"], ["--merged", "--out", f"{place}.{kind}/merged"]:
            run([TRIREME, "checkpoint", "export", source, *words])
    for file, before in ("adapter_model.safetensors", "base_model.model."), ("merged", ""):
        found, wanted = (tensors.read(f"{place}.{kind}/{file}") for kind in ("exported", "own"))
        for name, value in wanted.items():
            other = found[f"{before}model.{name.removeprefix(before)}"]
            assert other[1] == value[1] and all(
                abs(a - b) < 1e-5 for a, b in zip(tensors.numbers(other), tensors.numbers(value),
                                                  strict=True)), (file, name)
        assert (file == "merged") == all("lora" not in name for name in found), found.keys()
    configs = []
    for kind in "exported", "own":
        with open(f"{place}.{kind}/adapter_config.json", encoding="utf-8") as file:
            config = json.load(file)
        configs.append([config[key] for key in ("r", "target_modules", "fan_in_fan_out")])
    assert configs[0] == configs[1], configs


def check_plan():
    """What is not trained has no gradients and no optimizer states, on any mesh."""
    recipe, words, _ = CASES[0]
    for ranks, more in ((1, []), (2, ["strategy.name=fsdp"]), (2, [TENSOR]), (2, PIPELINE)):
        done = run([TRIREME, "plan", f"recipes/{recipe}.yaml", *words, *more, "--ranks",
                    str(ranks), "--json"])
        memory = json.loads(done.stdout)["memory"]
        assert memory["gradients"] < memory["parameters"] / 3, f"{more}: {memory}"
        assert memory["optimizer"] < memory["parameters"] / 1.5, f"{more}: {memory}"


def main():
    timed(check_plan)
    with tempfile.TemporaryDirectory(prefix="trireme-lora-") as folder:
        for number in range(len(CASES)):
            timed(check_case, folder, CASES, number)
            timed(check_resume, folder, number)
        timed(check_exported, folder, "generate", ["q_proj", "v_proj", "*.down_proj", "lm_head"])
        timed(check_exported, folder, "generate-gpt2", ["c_attn", "c_proj"])
        timed(check_half_types, folder)
        timed(check_kill, folder)
        timed(check_start, folder)


if __name__ == "__main__":
    main()
