#!/usr/bin/env python3
"""First mistakes of newcomers from PyTorch are refused with what to do; correct input is accepted.

usage: test_first_steps.py BUILD_FOLDER
"""
import json
import os
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import TRIREME, check_all, entries, run  # noqa: E402
from test_npy import IMAGES, LABELS, array  # noqa: E402

SYNTHETIC = "{name: synthetic, samples: 32, test_samples: 0, shape: [3], workers: 0}"


def write(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w" if isinstance(text, str) else "wb") as out:
        out.write(text)
    return path


def refused(words, *parts):
    done = run([TRIREME, *words], code=2)
    assert done.stderr.count("\n") == 1, done.stderr
    for part in parts:
        assert part in done.stderr, f"no {part!r} in {done.stderr}"


def check_first_name_keeps_the_section(folder):
    """A recipe that leaves data.name to the command line keeps its other keys of data."""
    write(folder, "images.npy", IMAGES)
    write(folder, "labels.npy", LABELS)
    recipe = write(folder, "unnamed.yaml",
                   "model: {name: mlp-jax}\n"
                   f"data: {{path: {folder}, val_fraction: 0.5, workers: 0,\n"
                   "       train: {images: images.npy, labels: labels.npy}}\n")
    done = run([TRIREME, "data", "check", recipe, "data.name=npy", "--json"])
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(f["split"], f["samples"]) for f in found] == [("train", 3), ("val", 3)], found
    # Reading data needs no model.
    recipe = write(folder, "data.yaml", "data: {name: npy, train: {images: images.npy}}\n")
    run([TRIREME, "data", "check", recipe, f"data.path={folder}"])


def check_names_of_elsewhere(folder):
    """Names that Lightning and PyTorch have, and short forms."""
    recipe = "recipes/mnist-cnn.yaml"
    refused(["plan", recipe, "optimizer.name=AdamW"], "did you mean 'adamw'")
    refused(["plan", recipe, "lr=0.1"], "use optimizer.lr")
    refused(["plan", recipe, "batch_size=32"], "use batch.global")
    refused(["plan", recipe, "trainer.gpus=1"], "trireme run --nproc-per-node N")
    refused(["plan", write(folder, "short.yaml", f"model: mnist-cnn\ndata: {SYNTHETIC}\n")],
            "short.yaml:1: 'model'", "write {name: mnist-cnn}")
    refused(["plan", write(folder, "short.yaml", f"model: {{name: llama}}\ndata: {SYNTHETIC}\n"
                                                 "optimizer: adam\n")], "write {name: adam}")
    refused(["plan", write(folder, "tab.yaml", "model:\n\tname: llama\n")],
            "tab.yaml:2: not valid YAML: ", "indent with spaces")
    refused(["plan", recipe, "model.name=mlp"], "there is no model 'mlp'", "mnist-convnet, ",
            "your own: ./FILE.so")
    refused(["plan", write(folder, "own.yaml", f"data: {SYNTHETIC}\n")], "'model.name' is missing")
    refused(["run", "--nproc-per-node", "2", "train", recipe], "write trireme train")


def check_keys_as_flags(folder):
    """What other systems have as flags are keys of the recipe."""
    recipe = "recipes/mnist-cnn.yaml"
    for words, hint in ((["--epochs", "3"], "trainer.max_epochs=3"),
                        (["--lr=0.1"], "optimizer.lr=0.1"),
                        (["--batch-size", "32"], "batch.global=32"), (["--seed", "2"], "seed=2"),
                        (["--weight-decay", "0.1"], "optimizer.weight_decay=0.1"),
                        (["--trainer.max_steps=7"], "trainer.max_steps=7"),
                        (["--deterministic"], "trainer.deterministic=VALUE")):
        refused(["train", recipe, *words], f"unknown flag {words[0]} (did you mean {hint}, "
                                           "without dashes?)")
    refused(["train", "--lr", recipe], "did you mean optimizer.lr=VALUE")
    refused(["train", recipe, "--nproc", "2"], "use trireme run --nproc-per-node N")
    refused(["train", recipe, "--devise", "cpu"], "did you mean --device?")
    refused(["checkpoint", "list", "--epochs", "3", folder], "unknown flag --epochs (see")


def check_data_of_another_kind(folder):
    """A model that reads what the data does not have; targets without a last axis; a .pt file."""
    recipe = write(folder, "regression.yaml", f"model: {{name: mlp-jax}}\ndata: {SYNTHETIC}\n")
    for model in ("mlp-jax", "mnist-cnn"):
        refused(["train", recipe, f"model.name={model}", "--run-dir", os.path.join(folder, "run")],
                "an input is missing: the data has inputs, targets")
    write(folder, "x.npy", array("<f4", (2, 3), bytes(24)))
    write(folder, "y.npy", array("<f4", (2,), bytes(8)))
    refused(["data", "check", recipe, "data.name=npy", f"data.path={folder}",
             "data.train={inputs: x.npy, targets: y.npy}"],
            "'targets' is [N], but must be [N, ...]: write x.reshape(-1, 1)")
    torch = os.path.join(folder, "torch")
    os.mkdir(torch)
    new = write(folder, "weights.pt", b"PK\3\4" + bytes(64))
    old = write(folder, "old.bin", b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19." + bytes(64))
    write(torch, "pytorch_model-00001-of-00002.bin", b"PK\3\4" + bytes(64))
    write(torch, "pytorch_model.bin.index.json", b"{}")
    for weights, made in ((new, f"{folder}/weights.safetensors"),
                          (old, f"{folder}/old.safetensors"),
                          (torch, f"{torch}/model.safetensors")):
        refused(["train", "recipes/mnist-cnn.yaml", f"init={weights}"], "as torch.save writes",
                "python3 -c", "torch.load", f"'{made}'")


def check_dropped_keys(folder):
    """Another optimizer drops the recipe's rate: said once, with what is used now."""
    recipe = write(folder, "sgd.yaml",
                   "model: {name: mlp-jax}\n"
                   "data: {name: synthetic, samples: 32, classes: 10, workers: 0}\n"
                   "optimizer: {name: sgd, lr: 0.4, momentum: 0.9}\n"
                   "schedule: {name: step, every: epoch, gamma: 0.5, warmup_steps: 2}\n"
                   "trainer: {max_epochs: 1}\n")
    words = ["train", recipe, "trainer.fast_dev_run=1", "optimizer.name=adam"]
    for done in run([TRIREME, *words]), run([TRIREME, "plan", *words[1:]]):
        said = [line for line in done.stderr.splitlines() if "optimizer.name=adam" in line]
        assert len(said) == 1, done.stderr
        for part in "lr 0.4 is now 0.001", "momentum 0.9 is gone", "optimizer.lr=0.4":
            assert part in said[0], done.stderr
    # Nothing has changed unnoticed where the key is given, or is the default.
    for more in ("optimizer.lr=0.4", "optimizer.lr=3"):
        assert "drops" not in run([TRIREME, *words, more]).stderr, more
    done = run([TRIREME, "train", recipe, "trainer.fast_dev_run=1", "schedule.name=cosine"])
    assert "warmup_steps 2 is now 0, gamma 0.5 is gone" in done.stderr, done.stderr
    # A whole section as an override takes the place of the recipe's.
    done = run([TRIREME, "train", recipe, "trainer.fast_dev_run=1", "optimizer={lr: 0.3}"])
    said = [line for line in done.stderr.splitlines() if "'optimizer={lr: 0.3}'" in line]
    assert len(said) == 1 and "{name: sgd, momentum: 0.9}" in said[0] and \
        "optimizer.KEY=VALUE" in said[0], done.stderr
    for whole in ("optimizer={name: sgd, lr: 1, momentum: 0}", "checkpoint={save_top_k: 0}"):
        done = run([TRIREME, "train", recipe, "trainer.fast_dev_run=1", whole])
        assert "replaces" not in done.stderr, done.stderr


def check_resume_with_another_rate(folder):
    """A run is not continued with another rate, but a new one may begin with its weights."""
    recipe = write(folder, "resume.yaml",
                   "model: {name: mlp-jax}\n"
                   "data: {name: synthetic, samples: 32, classes: 10, workers: 0}\n"
                   "trainer: {max_epochs: 1}\n")
    place = os.path.join(folder, "resumed")
    words = ["train", recipe, "checkpoint.monitor=train_loss"]
    run([TRIREME, *words, "--run-dir", place])
    refused([*words, "--run-dir", place, "optimizer.lr=0.5"], "differs in optimizer.lr;",
            "(optimizer.lr=", "another --run-dir", f"init={place}/checkpoints/last")
    run([TRIREME, *words, "--run-dir", place + "-2", "optimizer.lr=0.5",
         f"init={place}/checkpoints/last"])


def check_bench(folder):
    """Bad input is refused before anything is measured or printed."""
    for words, part in ((["mnist-cn"], "did you mean 'mnist-cnn'?"),
                        (["./own.so"], "model.name=./own.so behind it"),
                        (["recipes/mlp-jax.yaml", "model.hidden=3"], "model.hidden"),
                        (["recipes/mlp-jax.yaml", "model.name=nothing"], "no model 'nothing'")):
        done = run([TRIREME, "bench", "kernels", *words], code=2)
        assert not done.stdout and part in done.stderr and done.stderr.count("\n") == 1, done


def check_output(folder):
    """A run without validation data says its loss; eval says on what; help is of the command."""
    recipe = write(folder, "short.yaml",
                   "model: {name: mlp-jax}\n"
                   "data: {name: synthetic, samples: 32, classes: 10, workers: 0}\n"
                   "trainer: {max_epochs: 1}\n")
    place = os.path.join(folder, "short")
    done = run([TRIREME, "train", recipe, "--run-dir", place, "checkpoint.monitor=train_loss"])
    assert "\ntraining: loss " in done.stdout, done.stdout
    assert "ends at step 1," in done.stderr and "log_every_n_steps=" in done.stderr, done.stderr
    done = run([TRIREME, "train", recipe, "--run-dir", place + "-logged", "batch.global=4",
                "trainer.log_every_n_steps=8", "checkpoint.every_n_steps=1"])
    assert "no training loss" not in done.stderr, done.stderr
    assert "warning" not in done.stderr, done.stderr  # of checkpoints that follow closely, too
    assert entries(place + "-logged", "train")[-1]["step"] == 8
    done = run([TRIREME, "eval", "--checkpoint", place, "data.test_samples=8"])
    assert done.stdout.startswith("test: loss "), done.stdout
    assert run([TRIREME, "help", "eval"]).stdout == run([TRIREME, "eval", "--help"]).stdout


def main():
    with tempfile.TemporaryDirectory(prefix="trireme-first-") as folder:
        failed = check_all((check_first_name_keeps_the_section, check_names_of_elsewhere,
                            check_keys_as_flags, check_data_of_another_kind, check_dropped_keys,
                            check_resume_with_another_rate, check_bench, check_output), folder)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
