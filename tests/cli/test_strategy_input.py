#!/usr/bin/env python3
"""`train` and `plan` both refuse what cannot be divided as asked: code 2, one line that names the
setting, and nothing is created.

usage: test_strategy_input.py BUILD_FOLDER
"""
import os
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import SECONDS, SYNTHETIC, TRIREME, on_ranks, timed, train  # noqa: E402

PIPELINE = "strategy.name=pipeline batch.micro=4 "
SYNC, SAME = "trainer.sync_batchnorm=true ", "trainer.deterministic=true "
# Recipe, ranks, settings, what the line has to say.
ROWS = [(row[0], int(row[1]), row[2].split(), row[3].split()) for row in (
    ("cnn", 5, PIPELINE, "strategy.mesh.pipeline 4"),
    ("cnn", 2, "strategy.name=pipeline", "batch.micro"),
    ("cnn", 2, "strategy.mesh.pipeline=2 strategy.schedule=zero-bubble", "batch.micro"),
    ("cnn", 4, PIPELINE + "strategy.schedule=interleaved", "strategy.stages_per_rank 8 4"),
    ("cnn", 2, PIPELINE + "strategy.schedule=looped strategy.stages_per_rank=3",
     "strategy.stages_per_rank 6 4"),
    ("cnn", 2, PIPELINE + "strategy.schedule=breadth", "strategy.schedule looped"),
    ("cnn", 2, PIPELINE + "strategy.stages_per_rank=0", "strategy.stages_per_rank"),
    ("cnn", 2, PIPELINE + "strategy.stages=[fc9]", "strategy.stages fc9"),
    ("cnn", 3, PIPELINE + "strategy.stages=[fc1,conv2]", "strategy.stages conv2"),
    ("cnn", 3, PIPELINE + "strategy.stages=[fc1]", "strategy.stages 3 2"),
    ("cnn", 2, PIPELINE + "strategy.stages=[conv1]", "strategy.stages conv1"),
    ("cnn", 2, "strategy.stages=[fc1]", "strategy.stages strategy.mesh.pipeline"),
    ("cnn", 4, "strategy.name=fsdp strategy.mesh.pipeline=2", "batch.micro"),
    ("cnn", 2, "strategy.name=single", "strategy.name single"),
    ("cnn", 2, "strategy.mesh.shard=2", "strategy.mesh.shard ddp zero1"),
    ("cnn", 3, "strategy.mesh.replicate=2", "strategy.mesh replicate 3"),
    ("cnn", 4, "strategy.name=fsdp strategy.mesh.replicate=3", "strategy.mesh replicate"),
    ("cnn", 2, "strategy.name=zero1 strategy.mesh.shard=3", "strategy.mesh shard"),
    ("cnn", 2, "strategy.mesh.replicate=0", "strategy.mesh.replicate 0"),
    ("cnn", 2, "strategy.mesh.shard=-1", "strategy.mesh.shard -1"),
    ("cnn", 2, "strategy.mesh.tensor=0", "strategy.mesh.tensor 0"),
    ("cnn", 2, "strategy.mesh.pipeline=two", "strategy.mesh.pipeline two"),
    ("cnn", 2, "strategy.recompute=all", "strategy.recompute block"),
    ("cnn", 2, "strategy.recompute=block strategy.recompute_every=0", "strategy.recompute_every"),
    ("cnn", 2, "strategy.prefetch=-1", "strategy.prefetch"),
    ("cnn", 2, "strategy.persistent_bytes=-1", "strategy.persistent_bytes"),
    ("cnn", 2, "strategy.offload=disk", "strategy.offload"),
    ("cnn", 2, "trainer.precision=8-true", "trainer.precision bf16-mixed"),
    ("cnn", 2, SAME, "trainer.deterministic batch.micro"),
    ("cnn", 4, SAME + "batch.micro=4 strategy.name=fsdp strategy.mesh.replicate=2",
     "trainer.deterministic replicate shard"),
    ("cnn", 2, SAME + "strategy.mesh.tensor=2", "trainer.deterministic strategy.mesh.tensor"),
    ("cnn", 2, SAME + "batch.micro=4 strategy.reduce_dtype=float16",
     "trainer.deterministic strategy.reduce_dtype"),
    ("cnn", 2, "optimizer.freeze=['fc9.*']", "optimizer.freeze fc9"),
    ("cnn", 2, "optimizer.freeze=['*']", "optimizer.freeze"),
    ("cnn", 2, 'optimizer.groups=[{"match":["fc9.*","x*"]}]', "optimizer.groups fc9"),
    ("cnn", 2, 'optimizer.groups=[{"match":["*.bias","fc9.bias"]}]', "optimizer.groups fc9.bias"),
    ("cnn", 2, 'optimizer.groups=[{"match":"*","frozen":true}]', "optimizer.groups"),
    ("cnn", 2, 'optimizer.groups=[{"match":"*"},{"match":"fc*","lr_factor":2}]',
     "optimizer.groups fc"),
    ("cnn", 2, 'optimizer.groups=[{"lr_factor":2}]', "optimizer.groups match"),
    ("cnn", 2, 'optimizer.groups=[{"match":"fc*","lr_factor":0}]', "lr_factor 0"),
    ("cnn", 2, 'optimizer.groups=[{"match":"fc*","decay":0}]', "optimizer.groups.decay"),
    ("cnn", 2, 'optimizer.groups=[{"match":"fc*","frozen":true,"weight_decay":0}]',
     "optimizer.groups weight_decay"),
    ("cnn", 2, "optimizer.groups=fc", "optimizer.groups"),
    ("cnn", 3, "batch.global=2", "batch.global 2"),
    ("cnn", 3, "batch.micro=8", "batch.micro 7"),
    ("cnn", 2, "batch.micro=17", "batch.micro 16"),
    ("cnn", 3, "strategy.mesh.tensor=3", "strategy.mesh.tensor"),
    ("cnn", 2, "strategy.mesh.tensor=2 strategy.tensor={fc9: column}", "strategy.tensor fc9"),
    ("cnn", 2, "strategy.mesh.tensor=2 strategy.tensor={fc1: diagonal}", "strategy.tensor column"),
    ("convnet", 2, "strategy.mesh.tensor=2", "strategy.mesh.tensor"),
    ("convnet", 2, "", "batch.micro trainer.sync_batchnorm"),
    ("convnet", 2, "trainer.accumulate_grad_batches=2", "batch.micro trainer.sync_batchnorm"),
    ("cnn", 2, SAME + "trainer.accumulate_grad_batches=2", "trainer.deterministic batch.micro"),
    ("convnet", 2, SYNC + "batch.micro=4", "trainer.sync_batchnorm batch.micro"),
    ("convnet", 2, SYNC + SAME, "trainer.sync_batchnorm trainer.deterministic"),
    ("convnet", 4, SAME + "batch.micro=4 strategy.mesh.pipeline=2",
     "trainer.deterministic strategy.mesh.pipeline"),
    ("convnet", 4, PIPELINE, "strategy.mesh.pipeline 3"),
)]
# What only the size of the data decides, which `plan` does not read.
WITH_DATA = [("convnet", 2, [*SYNC.split(), "batch.global=21"], ["trainer.sync_batchnorm", "1"]),
             ("cnn", 2, ["strategy.memory=20M", "data.samples=9"],  # for less than a whole step
              ["strategy.memory", "the least is"])]


def settle(words):
    """Joins the words of a setting's value that a blank has separated."""
    found = []
    for word in words:
        if found and "=" not in word:
            found[-1] += " " + word
        else:
            found.append(word)
    return found


def check_row(folder, command, row):
    _, ranks, words, parts = row
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    shown = f"{ranks} ranks, {' '.join(words)}: code {done.returncode}: {done.stdout}{done.stderr}"
    assert done.returncode == 2, shown
    lines = done.stderr.splitlines()
    marks = ("trireme: ",)
    if "--nproc-per-node" in command:
        # The launcher says which ranks failed, and the reason where rank 0 was stopped before it.
        marks = ("trireme: ", "TRI_BAD_INPUT: ")
        lines = [line.strip() for line in lines if all(part in line for part in parts)]
    assert len(lines) == 1 and len(lines[0]) < 400 and lines[0].startswith(marks), shown
    assert all(part in lines[0] for part in parts), f"no {parts} in {shown}"
    assert not os.listdir(folder), f"{os.listdir(folder)} was made: {shown}"
    return lines[0].partition(": ")[2]


def check_rows(folder):
    for row in ROWS + WITH_DATA:
        model, ranks, words, _ = row
        words = ["batch.global=16", *settle(words)]
        recipe = f"recipes/mnist-{model}.yaml"
        planned = [TRIREME, "plan", recipe, *words, "--ranks", str(ranks)]
        said = check_row(folder, planned, row) if row in ROWS else None
        # Under a launcher the ranks say it together; every second row is enough.
        if said and ROWS.index(row) % 2:
            continue
        place = os.path.join(folder, "run")
        started = on_ranks(ranks, train(f"mnist-{model}", place, *SYNTHETIC, "data.samples=64",
                                        "data.test_samples=16", *words))
        started = check_row(folder, started, row)
        assert said in (None, started), f"plan says {said}, train says {started}"


def check_tied(folder):
    """A parameter on two stages has a sum of its own order; without one, stages keep the bits."""
    for tied, code in (("true", 2), ("false", 0)):
        done = subprocess.run([TRIREME, "plan", "recipes/llama-tiny.yaml", *PIPELINE.split(),
                               SAME.strip(), f"model.tie_word_embeddings={tied}", "--ranks", "2"],
                              capture_output=True, text=True, timeout=SECONDS,
                              check=False)
        assert done.returncode == code, done
        assert code == 0 or "model.tie_word_embeddings" in done.stderr, done.stderr
    assert not os.listdir(folder)


def main():
    with tempfile.TemporaryDirectory(prefix="trireme-strategies-") as folder:
        timed(check_rows, folder)
        timed(check_tied, folder)


if __name__ == "__main__":
    main()
