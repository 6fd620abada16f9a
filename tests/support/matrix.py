"""The runs that a test can try: combinations of ranks, strategies, models and settings.

A run is a row, which has one value for each of the DIMENSIONS (how ranks divide the work, model,
precision, …). `everything` returns all possible rows. `pairwise` returns few of them, but each pair
of values that is possible together occurs in at least one.
"""
import collections
import itertools
import os
import typing


class Cell(typing.NamedTuple):
    """How the ranks divide the work. The name says strategy and sizes: "fsdp 2x3" has 2 replicated
    groups of 3 ranks that share the parameters."""
    ranks: int
    replicas: int
    stages: int  # of all ranks together
    slices: int  # of each layer: ranks along the tensor-parallel axis
    settings: str  # words, each a key of the recipe's section strategy


CELLS = {name: Cell(*row) for name, *row in (
    ("ddp 2", 2, 2, 1, 1, "name=ddp"),
    ("ddp 3", 3, 3, 1, 1, "name=ddp"),
    ("ddp 5", 5, 5, 1, 1, "name=ddp"),
    ("zero1 2", 2, 2, 1, 1, "name=zero1"),
    ("zero1 2x2", 4, 4, 1, 1, "name=zero1 mesh.replicate=2"),
    ("zero2 3", 3, 3, 1, 1, "name=zero2"),
    ("zero2 2x2", 4, 4, 1, 1, "name=zero2 mesh.replicate=2"),
    ("fsdp 1", 1, 1, 1, 1, "name=fsdp"),
    ("fsdp 2", 2, 2, 1, 1, "name=fsdp"),
    ("fsdp 4, nothing stays", 4, 4, 1, 1, "name=fsdp persistent_bytes=0 prefetch=0"),
    ("fsdp 7", 7, 7, 1, 1, "name=fsdp"),
    ("fsdp 3, kept after forward", 3, 3, 1, 1,
     "name=fsdp persistent_bytes=0 prefetch=2 reshard_after_forward=false"),
    ("fsdp 2x3", 6, 6, 1, 1, "name=fsdp mesh.replicate=2"),
    ("gpipe 3", 3, 1, 3, 1, "name=pipeline schedule=gpipe"),
    ("1f1b 2", 2, 1, 2, 1, "name=pipeline schedule=1f1b"),
    ("1f1b 4", 4, 1, 4, 1, "name=pipeline schedule=1f1b"),
    ("zero-bubble 3", 3, 1, 3, 1, "name=pipeline schedule=zero-bubble"),
    ("interleaved 2", 2, 1, 4, 1, "name=pipeline schedule=interleaved"),
    ("interleaved 3", 3, 1, 6, 1, "name=pipeline schedule=interleaved"),
    ("looped 2", 2, 1, 4, 1, "name=pipeline schedule=looped"),
    ("ddp 2 x 1f1b 2", 4, 2, 2, 1, "name=ddp mesh.pipeline=2"),
    ("zero1 2 x gpipe 2", 4, 2, 2, 1, "name=zero1 mesh.pipeline=2 schedule=gpipe"),
    ("zero2 3 x zero-bubble 2", 6, 3, 2, 1, "name=zero2 mesh.pipeline=2 schedule=zero-bubble"),
    ("fsdp 2 x 1f1b 2", 4, 2, 2, 1, "name=fsdp mesh.pipeline=2 persistent_bytes=0"),
    ("fsdp 2 x interleaved 2", 4, 2, 4, 1, "name=fsdp mesh.pipeline=2 schedule=interleaved"),
    ("fsdp 2 x looped 2", 4, 2, 4, 1, "name=fsdp mesh.pipeline=2 schedule=looped"),
    ("fsdp 2x2 x zero-bubble 2", 8, 4, 2, 1,
     "name=fsdp mesh.replicate=2 mesh.pipeline=2 schedule=zero-bubble"),
    ("tensor 2", 2, 1, 1, 2, "mesh.tensor=2"),
    ("tensor 4, sequences", 4, 1, 1, 4, "mesh.tensor=4 sequence_parallel=true"),
    ("ddp 2 x tensor 2", 4, 2, 1, 2, "name=ddp mesh.tensor=2"),
    ("fsdp 3 x tensor 2, sequences", 6, 3, 1, 2,
     "name=fsdp mesh.tensor=2 sequence_parallel=true persistent_bytes=0"),
    ("1f1b 2 x tensor 2", 4, 1, 2, 2, "name=pipeline mesh.tensor=2"),
    ("zero2 2 x tensor 2 x zero-bubble 2, sequences", 8, 2, 2, 2,
     "name=zero2 mesh.tensor=2 mesh.pipeline=2 schedule=zero-bubble sequence_parallel=true"),
    ("fsdp 2x2 x tensor 2 x looped 2", 16, 4, 4, 2,
     "name=fsdp mesh.replicate=2 mesh.tensor=2 mesh.pipeline=2 schedule=looped"),
)}

LLAMA = ("llama-tiny model.hidden_size=48 model.intermediate_size=80 model.num_hidden_layers=4 "
         "data.sequence=32 data.path={data} data.train=train.txt data.test=test.txt "
         "schedule.name=constant")
# By model: the recipe with its settings; the number of blocks; the most slices of a layer (ranks
# that share it); and over which samples batch norm normalises. None: there is no batch norm.
# "micro": over a micro-batch, so batch.micro changes the result. "step": over a whole step, so
# batch.micro is not set.
MODELS = {
    "cnn": ("mnist-cnn model.dropout=0.3", 4, 2, None),
    "convnet": ("mnist-convnet", 3, 1, "micro"),
    "convnet, synchronised": ("mnist-convnet trainer.sync_batchnorm=true", 3, 1, "step"),
    "llama": (LLAMA, 6, 4, None),
    "tied": (LLAMA + " model.tie_word_embeddings=true", 6, 4, None),
}
IMAGES = ("data.name=synthetic data.shape=[1,16,16] data.classes=10 data.samples={samples} "
          "data.test_samples=20")

# By name: batch.global, batch.micro (None: one micro-batch for each replica), samples of an epoch.
STEPS = {
    "whole": (24, None, 96),
    "rounds": (24, 2, 96),
    "tails": (22, 3, 76),       # the last step of an epoch has 10 samples: some replicas have none
    "one sample": (22, 3, 67),  # the last step of an epoch has 1 sample
}
# Learning rates by data and optimizer. Random images are learned at lower rates: at the rates of
# the texts, a single value that is rounded to another bf16 would change the weights in 12 steps as
# much as a learning rate that is wrong by 5%, so the test could not tell the two apart. AdamW's
# epsilon below is large, so that a wrong epsilon changes the result.
RATES = {"text": {"adamw": 0.001, "sgd": 0.01}, "images": {"adamw": 0.0001, "sgd": 0.001}}
_ADAMW = ("optimizer.name=adamw optimizer.lr={adamw} optimizer.betas=[0.9,0.99] "
          "optimizer.eps=1e-4 optimizer.weight_decay=0.1")
UPDATES = {
    "adamw": _ADAMW,
    "adamw, clipped": _ADAMW + " trainer.gradient_clip_val=0.5",
    "sgd": "optimizer.name=sgd optimizer.lr={sgd}",
    "momentum, clipped": "optimizer.name=sgd optimizer.lr={sgd} optimizer.momentum=0.9 "
                         "optimizer.weight_decay=0.01 trainer.gradient_clip_val=0.5",
}
# Mistakes that a test has to notice: for each number of an optimizer, a wrong value. The second
# value of a pair is for images in bf16-mixed. There, rounding changes the weights by more than the
# first wrong value does: behind batch norm and ReLU, one value that is rounded the other way
# changes by 1 to 3% how far the weights move in 12 steps.
WRONG_RATES = 1.01, 1.2  # factors on the row's learning rate
_WRONG_ADAMW = (("lr={adamw}", "lr={adamw}"), ("betas=[0.89,0.99]", "betas=[0.7,0.99]"),
                ("betas=[0.9,0.98]", "betas=[0.9,0.5]"), ("weight_decay=0.2", "weight_decay=2"),
                ("eps=2e-4", "eps=1e-3"))
MISTAKES = {
    "adamw": _WRONG_ADAMW,
    "adamw, clipped": (*_WRONG_ADAMW, ("gradient_clip_val=0.525", "gradient_clip_val=0")),
    "sgd": (("lr={sgd}", "lr={sgd}"), ("momentum=0.01", "momentum=0.2"),
            ("weight_decay=0.01", "weight_decay=0.05")),
    "momentum, clipped": (("lr={sgd}", "lr={sgd}"), ("momentum=0.89", "momentum=0.8"),
                          ("weight_decay=0.02", "weight_decay=0.05"),
                          ("nesterov=true", "nesterov=true"),
                          ("dampening=0.01", "dampening=0.1"),
                          ("gradient_clip_val=0.525", "gradient_clip_val=1")),
}
KEPT = {
    "all kept": "",
    "recompute": "strategy.recompute=block",
    "recompute every 2nd": "strategy.recompute=block strategy.recompute_every=2",
}
STORED = {  # where the optimizer's states and the F32 master weights lie between their uses
    "in memory": "",
    "states in a file": "strategy.offload=optimizer",
    "masters too": "strategy.offload=parameters",
}
DIMENSIONS = {"cell": list(CELLS), "model": list(MODELS), "precision": ["32-true", "bf16-mixed"],
              "steps": list(STEPS), "update": list(UPDATES), "kept": list(KEPT),
              "stored": list(STORED)}


def micro(row):
    """The batch.micro of a row. 0: it is not set, so that each replica has one micro-batch."""
    cell = CELLS[row["cell"]]
    size, each, _ = STEPS[row["steps"]]
    norm = MODELS[row["model"]][3]
    if norm == "step":
        return 0
    if each is not None:
        return each
    return size // cell.replicas if norm == "micro" or cell.stages > 1 else 0


def is_possible(row):
    """Whether a row can be run. The row may still lack values of some dimensions."""
    if "cell" not in row or "model" not in row:
        return True
    cell = CELLS[row["cell"]]
    _, blocks, most_slices, norm = MODELS[row["model"]]
    if cell.stages > blocks or cell.slices > most_slices:
        return False
    # For batch norm over a whole step, each replica has one micro-batch, and each needs samples.
    if norm == "step":
        return cell.stages == 1 and (cell.replicas == 1 or row.get("steps") != "one sample")
    return True


def everything():
    names = list(DIMENSIONS)
    rows = (dict(zip(names, values)) for values in itertools.product(*DIMENSIONS.values()))
    return [row for row in rows if is_possible(row)]


def pairs_of(row):
    return set(itertools.combinations(sorted(row.items()), 2))


def cover(parts):
    """Rows that have every possible pair of values of two dimensions. Each part is a list of
    choices, of which a row has one; a choice has values of one dimension or of several. Each row
    begins with a pair that is still missing. Of every part it gets the choice that adds most
    missing pairs; if several add as many, the one used least. The rows are the same on every
    machine."""
    names = [name for part in parts for name in part[0]]
    missing = {}  # pairs that are still missing, as keys: a dict keeps their order, a set does not
    for a, b in itertools.combinations(names, 2):
        for x, y in itertools.product(DIMENSIONS[a], DIMENSIONS[b]):
            if is_possible({a: x, b: y}):
                missing[tuple(sorted(((a, x), (b, y))))] = True
    used = collections.Counter()
    rows = []
    while missing:
        row = dict(next(iter(missing)))
        for part in parts:
            def gain(choice, row=row):
                new = sum(pair in missing for pair in pairs_of({**row, **choice}))
                return new, -used[tuple(choice.items())]
            fitting = [choice for choice in part if is_possible({**row, **choice}) and
                       all(row.get(name, value) == value for name, value in choice.items())]
            best = max(fitting, key=gain)
            row.update(best)
            used[tuple(best.items())] += 1
        for pair in pairs_of(row):
            missing.pop(pair, None)
        rows.append({name: row[name] for name in DIMENSIONS if name in row})
    return rows


def pairwise():
    """Rows that have every possible pair. What decides the runs of one rank with which a row is
    compared comes from few combinations, which have every pair among themselves: so that one such
    run serves many rows."""
    single = {name: [{name: value} for value in values] for name, values in DIMENSIONS.items()}
    alone = cover([single[name] for name in ("model", "steps", "update", "precision")])
    return cover([single["cell"], alone, single["kept"], single["stored"]])


def write_text(folder):
    """Writes files for `data.name: tokens`, of which a model can learn a little."""
    words = ["the", "oar", "of", "every", "bank", "pulls", "water", "and", "sea", "with", "one"]
    state, text = 1, []
    for _ in range(8000):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2 ** 64
        text.append(words[(state >> 40) % len(words)])
    text = " ".join(text)
    for name, own in (("train.txt", text[:20000]), ("test.txt", text[20000:20000 + 32 * 20 + 1])):
        with open(os.path.join(folder, name), "w", encoding="ascii") as file:
            file.write(own)


def is_text(row):
    return "llama" in MODELS[row["model"]][0]


def mistakes(row):
    """A list of settings. Each of them alone is one mistake in a row's optimizer."""
    is_large = row["precision"] == "bf16-mixed" and not is_text(row)
    wrong = {name: f"{rate * WRONG_RATES[is_large]:g}" for name, rate in rates(row).items()}
    words = [pair[is_large].format(**wrong) for pair in MISTAKES[row["update"]]]
    return [("trainer." if word.startswith("gradient_clip") else "optimizer.") + word
            for word in words]


def rates(row):
    return RATES["text" if is_text(row) else "images"]


def settings(row, data):
    """The recipe of a row and the settings that determine its result; then those of its cell, which
    must not change the result."""
    recipe, *words = MODELS[row["model"]][0].split()
    size, _, samples = STEPS[row["steps"]]
    words += [f"data.limit={samples}"] if "llama" in recipe else IMAGES.split()
    words += UPDATES[row["update"]].split()
    words += ["trainer.max_steps=12", "trainer.max_epochs=-1", f"batch.global={size}",
              "batch.eval=7", "data.workers=1", "data.shuffle=true", "log.tensorboard=false",
              "trainer.log_every_n_steps=1", "checkpoint.every_n_epochs=0",
              f"trainer.precision={row['precision']}"]
    words = [word.format(data=data, samples=samples, **rates(row)) for word in words]
    own = ["strategy." + word for word in CELLS[row["cell"]].settings.split()]
    own += KEPT[row["kept"]].split() + STORED[row["stored"]].split()
    return recipe, words, own
