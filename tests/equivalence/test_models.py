#!/usr/bin/env python3
"""How ranks divide the built-in models never changes the result: each model under each way of
dividing it, against one rank. Compared are the losses of all steps, the evaluations, and the
distance of each tensor, relative to how far it moved. A run whose learning rate is wrong by a
hundredth has to be noticed in every tensor.

Where ranks share layers, `trireme plan` shows that each has some heads of attention and some
features of the MLP, and that a layer of the model makes two sums over the ranks forward, two
backward.

usage: test_models.py BUILD_FOLDER
"""
import os
import re
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from products import ways  # noqa: E402
from runs import TRIREME, check_close, last, losses, on_ranks, run, timed, train  # noqa: E402

STEPS = 4
LOSS_LIMIT = 1e-6  # of losses and evaluations; runs show up to 2.1e-7
COMMON = ["trainer.max_epochs=2", "batch.global=8", "batch.eval=3", "data.workers=1",
          "trainer.log_every_n_steps=1", "trainer.precision=32-true", "schedule.name=constant",
          "log.tensorboard=false", "checkpoint.every_n_epochs=0", "checkpoint.save_top_k=0"]
ADAMW = ["optimizer.name=adamw", "optimizer.eps=1e-4", "optimizer.groups=[]"]
SGD = ["optimizer.name=sgd", "optimizer.momentum=0.9", "optimizer.weight_decay=0.01"]
IMAGES = ["data.name=synthetic", "data.samples=14", "data.test_samples=7", "data.transform=[]"]
LABELLED = [*IMAGES, "data.classes=10", "model.num_classes=10"]
TEXT = ["data.path=recipes/data/tiny-shakespeare", "data.train=train.txt", "data.limit=14",
        "data.test=validation.txt", "data.sequence=24", "trainer.limit_val_batches=3"]

# By name: the recipe, its settings, the learning rate, and how far a tensor may be from one rank's,
# of how far it moved. Runs show up to 1.7e-3 behind batch norm, where rounding turns units on and
# off, else 4e-5.
MODELS = {
    "resnet": ("cifar-resnet18", [*LABELLED, *SGD, "data.shape=[3,16,16]", "batch.micro=4",
                                  "strategy.tensor={fc: row}"], 1e-4, 5e-3),
    "vit": ("vit-b16", [*LABELLED, *ADAMW, "data.shape=[3,16,16]", "data.shapes=null",
                        "data.val_fraction=0", "model.image_size=16", "model.patch_size=4",
                        "model.num_layers=3", "model.num_heads=4", "model.hidden_dim=32",
                        "model.mlp_dim=48", "model.dropout=0.1"], 1e-3, 2e-4),
    "weather-vit": ("weather-vit", [*IMAGES, *ADAMW, "data.shape=[3,16,24]", "data.shapes=null",
                                    "model.img_size=[16,24]", "model.n_in_channels=3",
                                    "model.n_out_channels=3", "model.patch_size=4",
                                    "model.embed_dim=32", "model.depth=3", "model.num_heads=4",
                                    "model.dropout=0.1"], 1e-3, 2e-4),
    "gpt2": ("gpt2-small", [*TEXT, *ADAMW, "model.vocab_size=256", "model.n_positions=24",
                            "model.n_embd=32", "model.n_layer=3", "model.n_head=4",
                            "model.dropout=0.1"], 1e-3, 2e-4),
    "llama": ("llama-tiny", [*TEXT, *ADAMW, "model.hidden_size=32", "model.intermediate_size=48",
                             "model.num_hidden_layers=3", "model.qk_norm=true",
                             "model.dropout=0.1"], 1e-3, 2e-4),
}
BUFFERS = ("running_mean", "running_var", "num_batches_tracked")  # which no optimizer moves
# How ranks divide a model: their number and settings. Batch norm normalises over a micro-batch, so
# all runs of a residual network, one rank's too, have the same.
WAYS = {
    "ddp": (2, []),
    "fsdp": (2, ["strategy.name=fsdp", "strategy.persistent_bytes=0"]),
    "pipeline": (2, ["strategy.name=pipeline", "batch.micro=4"]),
    "tensor": (2, ["strategy.mesh.tensor=2"]),
}




# By model: the features that the linear layers of its layers make on one of two ranks; the heads of
# attention there; how many sums over the ranks the three layers, and the embedding of tokens and
# the head, make forward and backward.
CUTS = {
    "vit": ({"self_attention": 48, "out_proj": 32, "mlp.0": 24, "mlp.3": 32}, 2, 12),
    "weather-vit": ({"attn.qkv": 48, "attn.proj": 32, "mlp.fc1": 64, "mlp.fc2": 32}, 2, 12),
    "gpt2": ({"attn.c_attn": 48, "attn.c_proj": 32, "mlp.c_fc": 64, "mlp.c_proj": 32}, 2, 16),
    "llama": ({"q_proj": 16, "k_proj": 8, "v_proj": 8, "o_proj": 32, "gate_proj": 24,
               "up_proj": 24, "down_proj": 32}, 2, 16),
}


def execute(folder, name, rate, ranks=1, more=()):
    """A run's folder."""
    recipe, words = MODELS[name][:2]
    place = os.path.join(folder, f"{name}-{rate}-{ranks}-{'-'.join(more)}".replace(" ", ""))
    run(on_ranks(ranks, train(recipe, place, *COMMON, *words, f"optimizer.lr={rate}", *more)))
    assert len(losses(place)) == STEPS, f"{name}: {sorted(losses(place))}"
    return place


def weights(place):
    return os.path.join(last(place), "model.safetensors")


def check_model(folder, name):
    recipe, words, rate, limit = MODELS[name]
    start = os.path.join(folder, f"{name}.safetensors")
    run([TRIREME, "checkpoint", "init", f"recipes/{recipe}.yaml", *words, "--out", start])
    alone = execute(folder, name, rate)
    wrong = ways(weights(execute(folder, name, rate * 1.01)), weights(alone), start)
    for tensor, distance in wrong.items():
        assert distance > limit or tensor.endswith(BUFFERS), \
            f"{name}: another learning rate is not noticed in {tensor}: {distance:.1e}"
    for way, (ranks, more) in WAYS.items():
        what = f"{name}, {way}"
        several = execute(folder, name, rate, ranks, more)
        worst = max(check_close(losses(several, kind), losses(alone, kind), LOSS_LIMIT,
                                f"{what}, {kind}") for kind in ("train", "val"))
        found = ways(weights(several), weights(alone), start)
        tensor, most = max(found.items(), key=lambda item: item[1])
        assert most <= limit, f"{what}: {tensor}: {most:.1e} of how far it moved, of {limit:.0e}"
        print(f"  {what}: losses {worst:.1e}, weights {most:.1e} ({tensor})", flush=True)


def check_cut(name):
    recipe, words = MODELS[name][:2]
    ranks, settings = WAYS["tensor"]
    graph = run([TRIREME, "plan", f"recipes/{recipe}.yaml", *COMMON, *words, *settings, "--ranks",
                 str(ranks), "model.dropout=0", "--show", "graph"]).stdout
    features, heads, sums = CUTS[name]
    made = re.findall(r", (\d+)\] = linear '(\S+)'", graph)
    for layer, wanted in features.items():
        own = [int(count) for count, linear in made if linear.endswith("." + layer)]
        assert own == 3 * [wanted], f"{name}: {layer} makes {own} features, not {wanted} thrice"
    own = re.findall(r", (\d+), \d+\], [^=\n]*= attention ", graph)
    assert own == 3 * [str(heads)], f"{name}: heads {own}"
    assert graph.count(" = all_reduce ") == sums, f"{name}: {graph.count(' = all_reduce ')} sums"


def main():
    with tempfile.TemporaryDirectory(prefix="trireme-models-") as folder:
        for name in CUTS:
            timed(check_cut, name)
        for name in MODELS:
            timed(check_model, folder, name)


if __name__ == "__main__":
    main()
