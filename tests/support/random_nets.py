"""Networks that are drawn at random (equivalence/random_net.c), with data for them, and the ways in
which they are trained: all follow from a seed."""
import collections
import json
import math
import os
import random
import sys

import tensors

UCX = os.path.join(os.path.abspath(sys.argv[1]), "lib", "trireme", "ucx.so")
EMULATED = os.path.join(os.path.abspath(sys.argv[1]), "lib", "emulated")


def draw_fields(draw):
    """The shapes of one sample's fields."""
    fields, size = {}, lambda most: draw.choice([1, 1, *range(2, most + 1)])
    if draw.random() < 0.6:
        fields["images"] = [size(4), size(9), size(9)]
    if draw.random() < 0.4 or not fields:
        fields["inputs"] = [size(6) for _ in range(draw.randint(1, 3))]
    tokens = size(7) if draw.random() < 0.4 else 0
    if tokens:
        fields["input_ids"] = [tokens]
        if draw.random() < 0.4:
            fields["attention_mask"] = [tokens]
    if draw.random() < 0.2:
        fields["extra"] = [size(5) for _ in range(draw.randint(1, 2))]
    if draw.random() < 0.6:
        fields["labels"] = [tokens] if tokens and draw.random() < 0.6 else []
    if draw.random() < 0.25:
        fields["soft_labels"] = [size(5)]
    if draw.random() < 0.5 or not {"labels", "soft_labels"} & fields.keys():
        fields["targets"] = [size(4) for _ in range(draw.randint(1, 2))]
    return fields


class Network:
    """A network, its data, and the settings that determine its result."""

    def __init__(self, seed, skip=0):
        draw = self.draw = random.Random(seed)
        self.seed, self.skip = seed, skip
        self.fields = draw_fields(draw)
        self.classes, self.tokens = draw.randint(2, 6), draw.randint(2, 8)
        self.primitives = draw.choice([5, 6, 8, 10, 12, 15, 20, 30])
        self.blocks = draw.randint(4, min(8, self.primitives))
        self.mixes, self.norms = draw.random() < 0.15, draw.random() < 0.25
        self.samples, self.tests = draw.randint(9, 26), draw.randint(1, 7)
        self.step = draw.randint(4, 12)
        self.micro = draw.randint(1, min(5, self.step)) if self.mixes or self.norms else 0
        if self.norms:
            self.micro = max(self.micro, 2)
        self.sync = self.norms and not self.mixes and draw.random() < 0.3
        self.training = self.draw_training(draw)
        self.names = []

    def draw_training(self, draw):
        optimizer = draw.choice([
            "sgd optimizer.lr=0.03", "sgd optimizer.lr=0.02 optimizer.momentum=0.9",
            "sgd optimizer.lr=0.02 optimizer.momentum=0.8 optimizer.nesterov=true "
            "optimizer.weight_decay=0.01",
            "adamw optimizer.lr=0.002 optimizer.eps=1e-3",
            "adam optimizer.lr=0.002 optimizer.eps=1e-3 optimizer.weight_decay=0.01",
            "adadelta optimizer.lr=0.3 optimizer.eps=1e-3"])
        words = ["optimizer.name=" + word if i == 0 else word
                 for i, word in enumerate(optimizer.split())]
        if draw.random() < 0.3:
            words.append(f"trainer.gradient_clip_val={draw.choice([0.05, 0.5])}")
        if draw.random() < 0.2 and "labels" in self.fields:
            words.append("loss.label_smoothing=0.1")
        if draw.random() < 0.2:
            words += ["schedule.name=linear", "schedule.total_iters=5"]
        if self.sync:
            words.append("trainer.sync_batchnorm=true")
        return words

    def draw_groups(self, names):
        """Groups of parameters: some are frozen, others have a rate or a decay of their own."""
        draw = random.Random(f"groups of {self.seed}")
        if len(names) > 3 and draw.random() < 0.3:
            frozen = draw.sample(names, draw.randint(1, len(names) - 1))
            self.training.append(f"optimizer.freeze={json.dumps(frozen)}")
        elif draw.random() < 0.3:
            groups = [{"match": draw.sample(names, 1), "lr_factor": 0.25},
                      {"match": ["*.weight"], "weight_decay": 0.1}]
            if len(names) > 1:
                self.training.append(f"optimizer.groups={json.dumps(groups)}")

    def write(self, folder):
        """Writes the samples, and a recipe that trains on them."""
        for name, count, seed in (("train", self.samples, 1), ("test", self.tests, 2)):
            draw, found = random.Random(self.seed * 10 + seed), {}
            for field, shape in self.fields.items():
                size = math.prod(shape) * count
                values = [self.draw_value(draw, field) for _ in range(size)]
                if field in ("labels", "soft_labels"):
                    values[:1] = [0] if field == "labels" else [0.5]
                kind = "I64" if field in ("labels", "input_ids") else "F32"
                found[field] = kind, [count, *shape], values
            tensors.write(os.path.join(folder, name), found)
        extra = {name: "f32" for name in ("extra",) if name in self.fields}
        self.recipe = os.path.join(folder, "net.yaml")
        with open(self.recipe, "w", encoding="ascii") as file:
            json.dump({"name": "random", "model": {
                "name": os.path.join(os.path.dirname(folder), "random.so"), "seed": self.seed,
                "primitives": self.primitives, "blocks": self.blocks, "classes": self.classes,
                "tokens": self.tokens, "mixes": self.mixes, "norms": self.norms,
                "skip": self.skip},
                "data": {"name": "tensors", "path": folder, "train": "train", "test": "test",
                         "workers": 1, "extra_fields": extra,
                         "shapes": self.fields}}, file)

    def draw_value(self, draw, field):
        if field == "labels":
            return -100 if draw.random() < 0.15 else draw.randrange(self.classes)
        if field == "input_ids":
            return draw.randrange(self.tokens)
        if field == "attention_mask":
            return float(draw.random() < 0.8)
        if field == "soft_labels":
            return draw.random()
        return draw.choice([draw.random(), draw.gauss(0, 0.5)])

    def words(self):
        found = [*self.training, f"batch.global={self.step}", "trainer.max_steps=4",
                 "trainer.max_epochs=-1", "log.tensorboard=false", "log.progress=false",
                 "log.summary=false", "trainer.log_every_n_steps=1", "checkpoint.every_n_epochs=0",
                 "checkpoint.save_top_k=0", f"trainer.val_check_interval=2"]
        if self.mixes:
            found.append(f"batch.eval={self.micro}")
        if self.micro and not self.sync:
            found.append(f"batch.micro={self.micro}")
        return found

    def tell(self):
        return (f"seed {self.seed}{f' skip {self.skip}' if self.skip else ''}: "
                f"{self.primitives} primitives, {self.blocks} blocks, {self.fields}"
                f"{', mixes' if self.mixes else ''}{', norms' if self.norms else ''}")


class Way(collections.namedtuple("Way", "ranks words env kind first", defaults=[None])):
    """How a network is trained. The kind says with what it is compared: "one" rank, with one rank
    in "half" types, or with one rank to the "bits". "resume": a run that another way, the first,
    has begun. "plan": `trireme plan --fit` chooses the settings. "eval": the run's last evaluation
    by `trireme eval`. "again": the bits of the same way without an interruption. "mixing": a step
    is cut by the number of ranks, so where samples are mixed the run has to be refused."""

    def tell(self):
        env = " ".join(f"{name}={value}" for name, value in self.env.items())
        first = f", after {self.first.tell()}" if self.first else ""
        return f"{self.kind}: {self.ranks} ranks, {' '.join(self.words)} {env}{first}"


SCHEDULES = ["1f1b", "gpipe", "interleaved", "looped", "zero-bubble"]


def draw_mesh(draw, network, kind):
    """Settings of a strategy, and its ranks."""
    name = draw.choice(["ddp", "zero1", "zero2", "fsdp", "fsdp", "pipeline"])
    words, ranks = [f"strategy.name={name}"], 1
    if name == "pipeline" or (draw.random() < 0.3 and not network.sync):
        stages = draw.choice([2, 2, 3, 4] if name == "pipeline" else [2])
        if network.sync:
            return draw_mesh(draw, network, kind)
        ranks *= stages
        words.append(f"strategy.mesh.pipeline={stages}")
        words.append(f"strategy.schedule={draw.choice(SCHEDULES)}")
        if words[-1].endswith(("interleaved", "looped")):
            each = draw.randint(1, network.blocks // stages)
            words.append(f"strategy.stages_per_rank={each}")
            stages *= each
        if draw.random() < 0.3:
            begins = sorted(draw.sample(range(1, network.blocks), stages - 1))
            words.append(f"strategy.stages=[{','.join(f'block{block}' for block in begins)}]")
        if not network.micro:
            words.append(f"batch.micro={draw.randint(1, min(5, network.step))}")
    elif not network.micro and (kind == "bits" or draw.random() < 0.5):
        words.append(f"batch.micro={draw.randint(1, min(5, network.step))}")
    if name != "pipeline":
        replicas = draw.choice([2, 2, 3, 4] if ranks == 1 else [2])
        ranks *= replicas
        if name != "ddp" and replicas == 4 and kind != "bits" and draw.random() < 0.5:
            words.append("strategy.mesh.replicate=2")
    if kind != "bits" and ranks <= 3 and draw.random() < 0.4:
        slices = draw.choice([2, 2, 2, 3, 4] if ranks < 3 else [2])
        ranks *= slices
        words.append(f"strategy.mesh.tensor={slices}")
        if draw.random() < 0.3:
            words.append("strategy.sequence_parallel=true")
    if name == "fsdp":
        words.append(f"strategy.persistent_bytes={draw.choice([0, 0, 100, 65536])}")
        words.append(f"strategy.reshard_after_forward={draw.choice(['true', 'false'])}")
    return ranks, words


def draw_way(draw, network):
    """A way that this network can be trained in: each replica needs a micro-batch."""
    while True:
        way = draw_any(draw, network)
        if way.kind == "again":
            way = way._replace(first=way)
        if way.kind == "bits" and draw.random() < 0.3:
            way = way._replace(first=way._replace(ranks=1, words=[
                word for word in way.words if word.startswith(("batch.micro", "trainer."))]))
        if way.kind == "resume":
            first = draw_any(draw, network)
            micro = [word for word in way.words if word.startswith("batch.micro")]
            words = [word for word in first.words
                     if not word.startswith(("batch.micro", "trainer."))]
            way = way._replace(first=first._replace(words=[*words, *micro], kind="one"))
            if "pipeline" in " ".join(first.words) and not (micro or network.micro):
                continue
        if all(fits(network, part) for part in (way, way.first) if part):
            return way


def fits(network, way):
    if way.kind == "mixing":
        return True
    sizes = dict(word.split("=", 1) for word in way.words if "=" in word)
    shared = math.prod(int(sizes.get(f"strategy.mesh.{axis}", 1))
                       for axis in ("pipeline", "tensor"))
    micro = int(sizes.get("batch.micro", 0)) or network.micro
    return network.sync or not micro or way.ranks // shared <= -(-network.step // micro)


def draw_any(draw, network):
    kind = draw.choice(["one"] * 6 + ["half"] * 2 + ["bits"] * 3 + ["resume"] * 2
                       + ["again", "plan", "eval"])
    if network.sync and kind == "bits":
        kind = "one"
    env = {"OMP_NUM_THREADS": draw.choice("112") if kind != "bits" else draw.choice("123")}
    if kind == "plan":
        return Way(draw.randint(2, 4), [], env, kind)
    if network.mixes and not network.norms and draw.random() < 0.2:
        return Way(draw.randint(2, 4), ["batch.micro=0", "batch.eval=0"], env, "mixing")
    ranks, words = draw_mesh(draw, network, kind)
    if kind != "resume" and draw.random() < 0.2:
        ranks, words = 1, [word for word in words if word.startswith("batch.micro")]
    if draw.random() < 0.35:
        words.append("strategy.recompute=block")
        if draw.random() < 0.4:
            words.append(f"strategy.recompute_every={draw.randint(2, 3)}")
    if draw.random() < 0.25:
        words.append(f"strategy.offload={draw.choice(['optimizer', 'parameters'])}")
    if draw.random() < 0.2:
        words.append(f"strategy.prefetch={draw.randint(2, 4)}")
    if draw.random() < 0.1:
        words.append("trainer.detect_anomaly=true")
    if kind in ("one", "half") and draw.random() < 0.25:
        words += ["--device", draw.choice(["far", "ref", "cuda"] if kind == "one" else ["far"])]
    elif kind == "bits" and draw.random() < 0.2:
        words += ["--device", "far"]
    if words[-1:] == ["cuda"]:
        env["TRIREME_MODULES"] = EMULATED
    elif ranks > 1 and draw.random() < 0.1 and os.path.exists(UCX):
        words.append("comm.backend=ucx")
        env["UCX_TLS"] = "tcp"
    if kind == "half" or (kind == "bits" and draw.random() < 0.3):
        words.append("trainer.precision=" + draw.choice(["bf16-mixed", "bf16-mixed", "bf16-true",
                                                         "16-mixed"]))
    if kind == "bits":
        words.append("trainer.deterministic=true")
    return Way(ranks, words, env, kind)
