#!/usr/bin/env python3
"""`train --keys` lists models, transforms and all other keys with types, defaults and bounds. Names
that Lightning uses for them are refused with the name to use. An empty value is an error.

usage: test_keys.py BUILD_FOLDER
"""
import os
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import TRIREME, check_all, run  # noqa: E402

# Lightning's names: a value that is accepted, or None if the error says what to use instead.
TRAINER = {"max_epochs": "2", "max_steps": "5", "max_time": "00:01:00:00",
           "limit_train_batches": "0.5", "limit_val_batches": "2", "val_check_interval": "0.5",
           "accumulate_grad_batches": "2", "gradient_clip_val": "1.0", "log_every_n_steps": "10",
           "num_sanity_val_steps": "2", "fast_dev_run": "true", "overfit_batches": "2",
           "deterministic": "true", "detect_anomaly": "true", "precision": "bf16-mixed",
           "profiler": None, "resume": None, "enable_progress_bar": None,
           "enable_model_summary": None, "logger": None, "callbacks": None, "devices": None,
           "num_nodes": None, "accelerator": None, "strategy": None, "default_root_dir": None,
           "enable_checkpointing": None, "learning_rate_monitor": None, "track_grad_norm": None,
           "early_stopping.monitor": "val_loss", "early_stopping.patience": "3",
           "early_stopping.min_delta": "0.1", "early_stopping.mode": "min"}
CHECKPOINT = {"save_top_k": "2", "monitor": "val_loss", "mode": "min", "save_last": "true",
              "every_n_steps": "10", "every_n_epochs": "1", "train_time_interval": "10m",
              "dirpath": None, "every_n_train_steps": None}


# Losses that do not take mlp-jax's labels: a recipe, and what they take there.
IMAGES = ("autoencoder", ["loss.target=images"])
LOSSES = {"bce": IMAGES, "huber": IMAGES, "smooth_l1": IMAGES, "kl": IMAGES,
          "ctc": ("llama-tiny", ["loss.target=input_ids", "loss.input_lengths=none",
                                 "loss.target_lengths=none"])}

# The recipes of models that are named otherwise.
RECIPES = {"llama": "llama-tiny", "resnet": "cifar-resnet18", "vit": "vit-b16",
           "gpt2": "gpt2-small"}


def keys(*words):
    return run([TRIREME, "train", "--keys", *words]).stdout


def plan(*words, code=0, recipe="mlp-jax"):
    done = run([TRIREME, "plan", f"recipes/{recipe}.yaml", *words], code)
    assert code == 0 or done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def check_lists():
    text = keys("data.transform")
    for line in ("data.transform: normalize", "data.transform: random_crop",
                 "data.transform.random_crop.size = [32]",
                 "from 1 to 65535)",
                 "data.transform.normalize.mean = [0.5]"):
        assert line in text, line
    text = keys("model")
    for model in ("mnist-cnn", "mnist-convnet", "autoencoder", "denoise-cnn", "mlp-jax", "llama"):
        assert f"  model.name: {model}\n" in text, model
    assert "    model.hidden = 64\n" in text and "    model.rope_theta = 10000\n" in text
    for word, line in (("optimizer", "optimizer.name: adamw"), ("schedule", "schedule.T_max = 0"),
                       ("trainer", "trainer.detect_anomaly = false")):
        assert line in keys(word), word


def check_models():
    """The listed options are those that models take, and their defaults change nothing."""
    blocks = re.split(r"\n  model\.name: ", keys("model"))[1:]
    for block in blocks:
        name = block.split("\n")[0]
        recipe = RECIPES.get(name, name)
        options = re.findall(r"    model\.(\w+)(?: = (\S+))?\n", block)
        assert options or name == "autoencoder", block
        for option, value in options:
            if option == "config":  # a file, which check_config of test_models has
                continue
            plan(f"model.{option}={value or '0.1'}", "--device", "cuda:a100-64", recipe=recipe)
            if value not in (None, "", "0", "false", "true"):
                least = -2 if value == "-1" else -1
                assert f"model.{option}" in plan(f"model.{option}={least}", code=2, recipe=recipe)
        assert "model.no_such" in plan("model.no_such=1", code=2, recipe=recipe)


def check_lightning():
    for section, names in (("trainer", TRAINER), ("checkpoint", CHECKPOINT)):
        for name, value in names.items():
            more = ["trainer.early_stopping.monitor=val_loss"] if "early" in name else []
            if value is not None:
                plan(*more, f"{section}.{name}={value}")
                continue
            error = plan(f"{section}.{name}=x", code=2)
            assert "of Trireme: " in error and section + "." + name in error, error


def check_listed_keys_are_taken():
    """No key is listed that any recipe would be refused for: each takes its own default."""
    name = None
    for line in keys().splitlines():
        head = re.match(r"  (\w+\.name): (\S+)$", line)
        if head:
            name = head.groups()
            continue
        found = re.match(r"  ( *)([\w.]+) = (.+)$", line)
        if not found or found.group(2).startswith(("data.", "model.")) or found.group(3) == "null":
            continue
        key, value = found.group(2), found.group(3)
        section = key.split(".")[0]
        more = [f"{name[0]}={name[1]}"] if found.group(1) and name[0].startswith(section) else []
        recipe, words = LOSSES.get(name and name[1], ("mlp-jax", []))
        if "_lengths" not in key:  # fields that the data need
            plan(*more, *words, f"{key}={value}", recipe=recipe)


def check_empty():
    for word in ("trainer.max_epochs=", "optimizer.lr=", "init=", "data.transform="):
        assert "the value is missing" in plan(word, code=2), word
    plan("trainer.max_epochs=null")
    error = run([TRIREME, "train", "recipes/mlp-jax.yaml", "--run-dir="], 2).stderr
    assert "--run-dir needs DIR" in error, error


if __name__ == "__main__":
    sys.exit(1 if check_all([check_lists, check_models, check_lightning,
                             check_listed_keys_are_taken, check_empty]) else 0)
