#!/usr/bin/env python3
"""The section `loss` of a recipe: a built-in model whose loss it replaces by the same one trains to
the same losses, metrics and weights to the last bit, in each way to divide a run, with the same
fused kernels. Others do not depend on the ranks, data need not have what the model's own loss
takes, and what cannot be is refused in one line before anything is written.

usage: test_recipe_loss.py BUILD_FOLDER
"""
import filecmp
import json
import os
import random
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import (TRIREME, check_all, check_close, check_same, entries, last,  # noqa: E402
                  losses, on_ranks, run)
import tensors  # noqa: E402

SAMPLES = 22
LLAMA = ["model.vocab_size=40", "model.hidden_size=16", "model.num_attention_heads=2",
         "model.intermediate_size=16", "model.num_hidden_layers=2"]
GPT2 = ["model.vocab_size=40", "model.n_embd=16", "model.n_head=2", "model.n_layer=2",
        "model.n_positions=16"]
VIT = ["model.image_size=28", "model.patch_size=14", "model.num_layers=1", "model.num_heads=2",
       "model.hidden_dim=16", "model.mlp_dim=16", "model.num_classes=10"]
TENSOR, PIPELINE = ["strategy.mesh.tensor=2"], ["strategy.name=pipeline", "batch.micro=2"]
FSDP = ["strategy.name=fsdp", "batch.micro=2", "strategy.persistent_bytes=0"]
LAYERS = "strategy.tensor={fc1: column, fc2: row}"
NLL, CE = ["loss.name=nll"], ["loss.name=cross_entropy"]
# Model, data, its options, and the loss that is its own.
OWN = [("mnist-cnn", "images", [], NLL), ("mlp-jax", "images", [], CE),
       ("mlp-jax", "soft", [], [*CE, "loss.target=soft_labels"]),
       ("mnist-convnet", "images", [], [*CE, "loss.output=logits"]), ("vit", "images", VIT, CE),
       ("autoencoder", "images", [], ["loss={name: mse, target: images}"]),
       ("llama", "tokens", LLAMA, CE), ("llama", "chat", LLAMA, CE), ("gpt2", "tokens", GPT2, CE)]
folder = None


def write_data():
    draw = random.Random(3)
    labels = [draw.randrange(10) for _ in range(SAMPLES)]
    labels[4] = labels[5] = -100
    ids = [draw.randrange(40) for _ in range(SAMPLES * 8)]
    chat = [-100 if draw.random() < 0.4 else token for token in ids]
    images = ("U8", [SAMPLES, 1, 28, 28], [draw.randrange(256) for _ in range(SAMPLES * 784)])
    soft = [float(k == label) for label in labels for k in range(10)]
    for name, fields in (
            ("images", {"images": images, "labels": ("I64", [SAMPLES], labels)}),
            ("soft", {"images": images, "soft_labels": ("F32", [SAMPLES, 10], soft)}),
            ("targets", {"images": images, "targets": ("F32", [SAMPLES, 10], soft)}),
            ("column", {"images": images, "targets": ("F32", [SAMPLES, 1], soft[:SAMPLES])}),
            ("tokens", {"input_ids": ("I64", [SAMPLES, 8], ids)}),
            ("chat", {"input_ids": ("I64", [SAMPLES, 8], ids),
                      "labels": ("I64", [SAMPLES, 8], chat)})):
        tensors.write(os.path.join(folder, name), fields)


def words_of(model, data, *words):
    return [os.path.join(folder, "loss.yaml"), f"model.name={model}", f"data.train={folder}/{data}",
            f"data.test={folder}/{data}", *words]


def train(name, model, data, words, ranks=1):
    place = os.path.join(folder, name)
    run(on_ranks(ranks, [TRIREME, "train", *words_of(model, data, *words), "--run-dir", place]))
    return place


def figures(place):
    """What evaluations have, without times."""
    return [{key: value for key, value in entry.items() if "_s" not in key}
            for entry in entries(place, "val")]


def check_own():
    """The model's own loss, written into the recipe, is the same one."""
    for i, (model, data, words, loss) in enumerate(OWN):
        ways = [(1, []), (2, TENSOR), (2, PIPELINE), (2, FSDP)] if model == "llama" else [(1, [])]
        for ranks, way in ways:
            name = f"{i}-{ranks}-{len(way)}-{way[:1]}"
            own, given = (train(name + kind, model, data, [*words, *way, *more], ranks)
                          for kind, more in (("own", []), ("given", loss)))
            check_same(losses(given), losses(own), name)
            assert len(losses(own)) == 8 and figures(own) == figures(given), (name, figures(given))
            weights = [os.path.join(last(place), "model.safetensors") for place in (own, given)]
            assert filecmp.cmp(*weights, shallow=False), f"{model}: other weights"


def graph(*words):
    return run([TRIREME, "plan", *words, "--show", "graph"]).stdout


def check_graphs():
    """The same nodes are planned: a loss in chunks, a loss of a divided vocabulary, and no more
    memory. The output is not kept."""
    text = ["recipes/llama-tiny.yaml", "data={name: synthetic, vocabulary: 2048, sequence: 256, "
            "samples: 40}", "model.vocab_size=2048", "batch.global=16", "--device", "cpu"]
    for words, op in (([], "linear_cross_entropy_grad"), (["--ranks", "2", *TENSOR], "vocab")):
        own, given = graph(*text, *words), graph(*text, *words, *CE)
        assert op in own and op in given, op
        assert own.count("\n") == given.count("\n"), op
    plans = [json.loads(run([TRIREME, "plan", *text, "--json", *loss]).stdout)["memory"]
             for loss in ([], CE)]
    assert plans[0] == plans[1], plans


def check_ranks():
    """Losses that no model has, on data that lack what the model's own loss takes; a sum names each
    of its terms."""
    both = ("loss=[{name: bce, pos_weight: [2]}, {name: huber, delta: 0.3, weight: 0.5, "
            "target: targets}]")
    for i, (model, data, words) in enumerate((
            ("mlp-jax", "targets", [both]), ("mnist-cnn", "targets", ["loss.name=smooth_l1"]),
            ("mlp-jax", "column", ["model.num_classes=1", "loss.name=bce"]),
            ("mlp-jax", "images", ["loss={name: cross_entropy, class_weights: [1, 2, 0, 1, 1, 1, "
                                   "1, 1, 3, 0.5], label_smoothing: 0.1, ignore: 3}"]))):
        alone = train(f"alone-{i}", model, data, words)
        for name, ranks, way in (("ddp", 2, ["batch.micro=2"]), ("pipeline", 2, PIPELINE),
                                 ("fsdp", 2, FSDP), ("tensor", 2, [*TENSOR, LAYERS]),
                                 ("micro", 1, ["batch.micro=1"])):
            place = train(f"{name}-{i}", model, data, [*words, *way], ranks)
            check_close(losses(place), losses(alone), 2e-5, f"{words}, {name}")
            check_close(losses(place, "val"), losses(alone, "val"), 2e-5, f"{words}, {name}")
        line = figures(alone)[-1]
        if i == 0:
            total = float(line["bce"]) + 0.5 * float(line["huber"])
            assert abs(total - float(line["loss"])) < 1e-6 * total, line
        assert ("accuracy" in line) == (i == 3), line
        evaluated = json.loads(run([TRIREME, "eval", "--checkpoint", alone, "--json"]).stdout)
        assert abs(evaluated["loss"] - float(line["loss"])) < 1e-6, (evaluated, line)


def check_run():
    """A resume goes on with the same loss and refuses another one; predictions need none."""
    place = train("stopped", "mlp-jax", "images", [*CE, "trainer.max_steps=5"])
    whole = train("whole", "mlp-jax", "images", CE)
    for words, code in ((["loss.name=nll"], 2), (CE, 0)):
        done = run([TRIREME, "train", *words_of("mlp-jax", "images", *words), "--run-dir", place],
                   code)
        assert code == 0 or "loss" in done.stderr, done.stderr
    check_same(losses(place), losses(whole), "resumed")
    out = os.path.join(folder, "out.safetensors")
    run([TRIREME, "predict", "--checkpoint", whole, "--out", out])
    assert "logits" in tensors.read(out)
    rows = "loss: {name: cross_entropy, label_smoothing: 0.1}\n"
    path = os.path.join(folder, "named.yaml")
    with open(os.path.join(folder, "loss.yaml"), encoding="ascii") as base, \
            open(path, "w", encoding="ascii") as file:
        file.write(base.read() + rows)
    done = run([TRIREME, "plan", path, "model.name=mlp-jax", "loss.name=nll",
                "data.shapes={images: [1, 28, 28], labels: []}"])
    assert "label_smoothing" in done.stderr, done.stderr


def check_refused():
    """One line with the key, code 2, and no run folder."""
    place = os.path.join(folder, "refused")
    for model, data, words, parts in (
            ("mlp-jax", "images", ["loss.name=mse"], ("loss: ", "'labels'", "'logits'")),
            ("mlp-jax", "column", CE, ("loss: ", "'targets' is F32", "labels are I64")),
            ("mlp-jax", "images", [*CE, "loss.output=logit"], ("loss.output", "'logits'")),
            ("mlp-jax", "images", [*CE, "loss.target=label"], ("loss.target", "'labels'")),
            ("mlp-jax", "images", [*CE, "loss.class_weights=[1,2]"], ("loss.class_weights", "10")),
            ("mlp-jax", "images", ["loss.name=cross"], ("loss.name", "cross_entropy")),
            ("mlp-jax", "images", ["loss=mse"], ("loss", "{name: mse}")),
            ("mlp-jax", "images", ["loss=[mse]"], ("loss", "name")),
            ("mlp-jax", "images", ["loss=[{name: nll}, {name: l1, weight: x}]"],
             ("loss[1].weight", "number")),
            ("mlp-jax", "images", ["loss.terms=[{name: nll}]"], ("loss.terms",)),
            ("llama", "chat", [*LLAMA, "loss.name=ctc"], ("loss.input_lengths", "none")),
            ("llama", "tokens", [*LLAMA, "loss.name=mse"], ("loss.target", "input_ids")),
            ("mlp-jax", "soft", ["loss={name: nll, target: images}"], ("loss: ", "'images'"))):
        done = run([TRIREME, "train", *words_of(model, data, *words), "--run-dir", place], 2)
        assert done.stderr.count("\n") == 1, done.stderr
        for part in parts:
            assert part in done.stderr, f"{part} is not in: {done.stderr}"
        assert not os.path.exists(place), words


def main():
    global folder
    with tempfile.TemporaryDirectory(prefix="trireme-loss-") as folder:
        with open(os.path.join(folder, "loss.yaml"), "w", encoding="ascii") as file:
            file.write("data: {name: tensors, workers: 1}\nbatch: {global: 6}\noptimizer: {name: "
                       "sgd, lr: 0.02}\ntrainer: {max_epochs: 2, log_every_n_steps: 1}\n"
                       "log: {tensorboard: false}\n")
        write_data()
        return 1 if check_all((check_own, check_graphs, check_ranks, check_run,
                                check_refused)) else 0


if __name__ == "__main__":
    sys.exit(main())
