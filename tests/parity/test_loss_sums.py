#!/usr/bin/env python3
"""Compares training by weighted sums of losses with PyTorch's. Each loss of a sum is a mean over
the global batch, whatever the number of ranks, the size of micro-batches and the ignored labels.
Also checks that sums of losses without a meaning are refused, and that weights with a weight norm
or a spectral norm are trained as PyTorch's. loss_sums_net.c is the model; its cases are chosen by
number.

usage: test_loss_sums.py BUILD_FOLDER, or, with PyTorch, test_loss_sums.py --golden > loss_sums.json
"""
import array
import json
import math
import os
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import formula  # noqa: E402

SAMPLES, BATCH, EPOCHS, LR, TOKENS = 19, 8, 2, 0.2, 6  # steps of 8, 8 and 3 samples
LOSS_LIMIT, WEIGHT_LIMIT = 2e-6, 5e-6  # largest allowed relative differences
LAYERS = {"trunk": formula.linear("trunk", 4, 8), "one": formula.linear("one", 8, 3),
          "two": formula.linear("two", 8, 3), "numbers": formula.linear("numbers", 8, 2),
          "next": formula.linear("next", 4, 5), "embed": [("embed.weight", (5, 4), 0.8)],
          "whole": formula.linear("whole", 8, 6), "rows": formula.linear("rows", 8, 6),
          "penalised": [("penalised", (3,), 0.5)],
          "length": [("trunk.weight_g", (8, 1), 0.5), ("trunk.weight_v", (8, 4), 0.5),
                     ("trunk.bias", (8,), 0.5)],
          "spectral": [("one.weight_orig", (3, 8), 0.5), ("one.weight_u", (3,), 1),
                       ("one.weight_v", (8,), 1), ("one.bias", (3,), 0.5)]}
CASES = [("trunk", "one", "two", "numbers", "next", "embed"), ("trunk", "one", "two"),
         ("trunk", "one", "two", "numbers"), ("trunk", "one"),
         ("trunk", "whole", "rows", "next", "embed"), ("trunk", "one", "penalised"),
         ("length", "spectral", "numbers"), ("trunk", "one", "two", "numbers", "next", "embed")]
# The losses of case 7.
RECIPE = ("loss=[{name: cross_entropy, label_smoothing: 0.1}, "
          "{name: huber, output: numbers, target: targets, delta: 0.4, weight: 0.3}, "
          "{name: cross_entropy, output: next, target: input_ids, weight: 0.7}, "
          "{name: cross_entropy, output: 1, class_weights: [0.5, 1.25, 2], weight: 0.7}]")
PIPELINE = "strategy.name=pipeline batch.micro=2"
WAYS = [(1, ""), (1, "batch.micro=3"), (3, ""), (2, "batch.micro=1"), (4, "batch.micro=1"),
        (2, PIPELINE), (2, "strategy.name=fsdp batch.micro=2 strategy.persistent_bytes=0"),
        (2, "trainer.deterministic=true batch.micro=2"), (2, "strategy.name=zero2"),
        (2, "strategy.mesh.tensor=2 batch.micro=3")]


def data_set():
    """The data set. Its ignored labels (-100) are the first three, which fill whole micro-batches,
    and every fourth one after them."""
    def numbers(name, count):
        return formula.floats(2 * u - 1 for u in formula.uniform(name, count))
    ids = [int(3 * u) for u in formula.uniform("ids", SAMPLES * TOKENS)]
    labels = [-100 if i < 3 or i % 4 == 1 else int(3 * u)
              for i, u in enumerate(formula.uniform("classes", SAMPLES))]
    # Rows of zeros count in no loss: one row of a sample, and all of another.
    heat = [0 if i // 3 in (8, 10, 11) else u
            for i, u in enumerate(formula.uniform("heat", SAMPLES * 6))]
    return {"images": ("F32", (SAMPLES, 1, 2, 2), numbers("images", SAMPLES * 4)),
            "labels": ("I64", (SAMPLES,), array.array("q", labels)),
            "targets": ("F32", (SAMPLES, 2), numbers("targets", SAMPLES * 2)),
            "input_ids": ("I64", (SAMPLES, TOKENS), array.array("q", ids)),
            "heat": ("F32", (SAMPLES, 2, 3), formula.floats(heat))}


def data_file(folder, case):
    return f"{folder}/{'heat' if case == 4 else 'data'}.safetensors"


def write_data(folder):
    fields = data_set()
    for case, names in ((4, ("images", "input_ids", "heat")),
                        (0, ("images", "labels", "targets", "input_ids"))):
        formula.write_safetensors(data_file(folder, case), {name: fields[name] for name in names})


def weights_of(case):
    rows = [row for layer in CASES[case] for row in LAYERS[layer]]
    return {name: ("F32", shape, formula.floats((2 * u - 1) * bound for u in formula.uniform(
        f"loss-sums/{name}", math.prod(shape)))) for name, shape, bound in rows}


def golden():
    """PyTorch's losses and final tensors of each case, in double precision."""
    import torch
    import torch.nn.functional as F

    def tensor(entry):
        kind = torch.float64 if entry[0] == "F32" else torch.int64
        return torch.tensor(list(entry[2]), dtype=kind).reshape(entry[1])

    def weight_of(p, name, trains):
        if f"{name}.weight_g" in p:
            return torch._weight_norm(p[f"{name}.weight_v"], p[f"{name}.weight_g"], 0)
        if f"{name}.weight_orig" not in p:
            return p[f"{name}.weight"]
        w, u, v = (p[f"{name}.weight_{what}"] for what in ("orig", "u", "v"))
        with torch.no_grad():
            if trains:
                v.copy_(F.normalize(w.t() @ u, dim=0, eps=1e-12))
                u.copy_(F.normalize(w @ v, dim=0, eps=1e-12))
        return w / torch.dot(u.detach().clone(), w @ v.detach().clone())

    def loss_of(case, p, d, trains=True):
        def linear(x, name):
            return F.linear(x, weight_of(p, name, trains), p[f"{name}.bias"])
        x = F.relu(linear(d["images"].flatten(1), "trunk"))
        if case == 4:
            def soft(scores, labels):
                terms = -(labels * F.log_softmax(scores, -1)).sum(-1)
                return terms.sum() / (labels != 0).any(-1).sum()
            ids = d["input_ids"].reshape(-1, TOKENS // 2)
            scores = linear(F.embedding(ids, p["embed.weight"]), "next")
            return (soft(linear(x, "whole"), d["heat"].flatten(1))
                    + 0.5 * soft(linear(x, "rows").unflatten(1, (2, 3)), d["heat"])
                    + 0.3 * F.cross_entropy(scores[:, :-1].flatten(0, 1), ids[:, 1:].flatten()))
        scores = linear(x, "one")
        if case == 5:
            scores = scores + p["penalised"]
        first = F.cross_entropy(scores, d["labels"])
        if case == 3:
            return 3 * first
        if case == 5:
            return first + 0.5 * (p["penalised"] ** 2).mean()
        if case != 6:
            second = F.cross_entropy(linear(x, "two"), d["labels"])
        if case == 1:
            return first - 0.4 * second
        if case == 7:
            ids, weights = d["input_ids"], torch.tensor([0.5, 1.25, 2], dtype=torch.float64)
            scores = linear(F.embedding(ids, p["embed.weight"]), "next")
            return (F.cross_entropy(linear(x, "one"), d["labels"], label_smoothing=0.1)
                    + 0.3 * F.huber_loss(linear(x, "numbers"), d["targets"], delta=0.4)
                    + 0.7 * F.cross_entropy(scores[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
                    + 0.7 * F.cross_entropy(linear(x, "two"), d["labels"], weights))
        squares = F.mse_loss(linear(x, "numbers"), d["targets"])
        if case == 6:
            return first + 0.5 * squares
        apart = F.mse_loss(linear(x, "two"), linear(x, "one"))
        if case == 2:
            return apart + 1.5 * (squares + squares)
        ids = d["input_ids"]
        scores = linear(F.embedding(ids, p["embed.weight"]), "next")
        follow = F.cross_entropy(scores[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        return first + 0.3 * squares + 0.7 * (follow + (second + 0.25 * apart))

    results = []
    data = {name: tensor(entry) for name, entry in data_set().items()}
    for case in range(len(CASES)):
        parameters = {name: tensor(entry).requires_grad_()
                      for name, entry in weights_of(case).items()}
        optimizer = torch.optim.SGD(parameters.values(), lr=LR)
        losses = []
        for _ in range(EPOCHS):
            for first in range(0, SAMPLES, BATCH):
                optimizer.zero_grad()
                loss = loss_of(case, parameters,
                               {name: t[first:first + BATCH] for name, t in data.items()})
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        results.append({"losses": losses, "val": loss_of(case, parameters, data, False).item(),
                        "tensors": {name: p.flatten().tolist() for name, p in parameters.items()}})
    json.dump({"torch": torch.__version__, "cases": results}, sys.stdout, separators=(",", ":"))
    print()


def train(folder, case, ranks, words):
    place = os.path.join(folder, f"run-{case}-{ranks}-{words}".replace(" ", "_"))
    done = run(on_ranks(ranks, [
        TRIREME, "train", os.path.join(folder, "task.yaml"), f"model.case={case}",
        f"init={folder}/init-{case}.safetensors", f"data.train={data_file(folder, case)}",
        f"data.test={data_file(folder, case)}", "--run-dir", place,
        *(["data.extra_fields={heat: f32}"] if case == 4 else []),
        *([RECIPE] if case == 7 else []), *words.split()]))
    tensors = formula.read_safetensors(os.path.join(last(place), "model.safetensors"))
    return place, tensors, done.stderr


def close(got, wanted, limit, what):
    error = max(abs(float(a) - b) for a, b in zip(got, wanted)) / max(map(abs, wanted))
    assert len(got) == len(wanted) and error <= limit, f"{what}: {got}, not {wanted}: {error:.1e}"
    return error


def check_case(folder, case, wanted):
    worst = [0.0, 0.0]
    for ranks, words in WAYS:
        what = f"case {case}, {ranks} ranks, {words}"
        place, tensors, _ = train(folder, case, ranks, words)
        found = losses(place)
        assert list(found) == list(range(1, 7)), what
        worst[0] = max(worst[0], close(list(found.values()), wanted["losses"], LOSS_LIMIT, what))
        close([losses(place, "val")[6]], [wanted["val"]], LOSS_LIMIT, what + ", val")
        assert set(tensors) == set(wanted["tensors"])
        for name, values in wanted["tensors"].items():
            worst[1] = max(worst[1], close(list(tensors[name][2]), values, WEIGHT_LIMIT,
                                           f"{what}, {name}"))
    print(f"case {case}: losses within {worst[0]:.1e}, weights {worst[1]:.1e}", flush=True)


def check_terms(folder):
    """Checks that each loss of the sum is a metric of the evaluation, named after its op, and that
    checkpoint.monitor accepts its name."""
    place, _, _ = train(folder, 0, 1, "checkpoint.monitor=val_cross_entropy_2")
    line = entries(place, "val")[-1]
    terms = [float(line[name]) for name in ("cross_entropy", "mse_loss", "cross_entropy_2",
                                            "cross_entropy_3", "mse_loss_2")]
    total = sum(w * t for w, t in zip((1, 0.3, 0.7, 0.7, 0.175), terms))
    assert abs(total - float(line["loss"])) < 1e-6 * total, line
    # train_loss: the mean over the last epoch's samples, of which its last step has fewer.
    epoch = [float(losses(place)[step]) for step in (4, 5, 6)]
    with open(os.path.join(last(place), "state.json"), encoding="utf-8") as file:
        found = json.load(file)["training"]["train_loss"]
    assert found["count"] == SAMPLES, found
    close([found["sum"] / SAMPLES], [(8 * epoch[0] + 8 * epoch[1] + 3 * epoch[2]) / SAMPLES], 1e-6,
          "train_loss")


def check_again(folder):
    """A loss that is declared as a metric, too, is reported by both names and trained on."""
    place, _, _ = train(folder, 1, 2, "")
    line = entries(place, "val")[-1]
    first, second = line["cross_entropy"], line["cross_entropy_2"]
    assert first != second
    assert (line["before"], line["behind"], line["evaluated"]) == (first, second, first), line
    labelled = f"{folder}/labelled.safetensors"
    formula.write_safetensors(labelled, {name: tensor for name, tensor in data_set().items()
                                         if name in ("images", "labels")})
    for number, body in enumerate(['tri_metric(g, "again", ce); tri_loss(g, ce);',
                                   'tri_loss(g, ce); tri_metric(g, "again", ce);']):
        make_task(folder, f"again{number}", body_of(body))
        place = os.path.join(folder, f"run-again{number}")
        run([TRIREME, "train", f"{folder}/again{number}.yaml", f"data.train={labelled}",
             f"data.test={labelled}", "--run-dir", place])
        line = entries(place, "val")[-1]
        assert line["loss"] == line["again"] and 0 < float(line["loss"]) < 10, line
        assert float(entries(place, "train")[0]["grad_norm"]) > 0
    # A metric that is not finite beside a finite loss: one warning, by every command.
    make_task(folder, "odd", body_of("""tri_value odd = x;
    for (int i = 0; i < 200; i++) odd = tri_add(g, odd, odd);
    tri_metric(g, "odd", tri_mse_loss(g, odd, odd)); tri_loss(g, ce);"""))
    place, data = os.path.join(folder, "run-odd"), [f"data.train={labelled}",
                                                    f"data.test={labelled}"]
    for words in ([TRIREME, "train", f"{folder}/odd.yaml", *data, "--run-dir", place],
                  [TRIREME, "eval", "--checkpoint", place]):
        done = run(words)
        warned = [line for line in done.stderr.splitlines() if "metric odd" in line]
        assert len(warned) == 1 and "nan" in warned[0] and "test data" in warned[0], done.stderr
    assert 0 < float(entries(place, "val")[-1]["loss"]) < 10


def check_samples(folder):
    """An evaluation counts samples, also where the loss reads the labels of all tokens as one row.
    """
    make_task(folder, "flat", """#include <trireme/trireme.h>
static void build(tri_graph *g, const tri_batch *batch) {
    tri_value x = tri_embedding(g, "embed", batch->input_ids, (tri_embedding_options){3, 3});
    tri_value labels = tri_reshape(g, batch->input_ids, tri_shape_of(6 * batch->size));
    x = tri_reshape(g, x, tri_shape_of(6 * batch->size, 3));
    tri_loss(g, tri_cross_entropy(g, x, labels));
}
static const tri_task task = {.name = "flat", .build = build};
TRI_EXPORT_TASK(task)
""")
    ids = f"{folder}/ids.safetensors"
    formula.write_safetensors(ids, {"input_ids": data_set()["input_ids"]})
    place = os.path.join(folder, "run-flat")
    run([TRIREME, "train", f"{folder}/flat.yaml", f"data.train={ids}", f"data.test={ids}",
         "--run-dir", place])
    assert [line["samples"] for line in entries(place, "val")] == [SAMPLES] * EPOCHS


def check_half(folder, wanted):
    """In F16 the loss is scaled, and with it every loss of the sum. Checks that losses differ from
    PyTorch's only by F16's rounding."""
    place, _, _ = train(folder, 0, 2, "trainer.precision=16-mixed batch.micro=2")
    close(list(losses(place).values()), wanted["losses"], 3e-3, "16-mixed")


REFUSED = [
    ("tri_loss(g, tri_add(g, ce, x));", "only to a loss, "),
    ("tri_loss(g, tri_weighted(g, x, 2));", "tri_weighted takes only one"),
    ("tri_loss(g, tri_weighted(g, ce, 1.0 / 0.0));", "the weight is inf"),
    ("tri_relu(g, ce); tri_loss(g, ce);", "input 0 is a loss"),
    ("tri_loss(g, tri_add(g, ce, tri_mse_loss(g, ce, ce)));", "input 0 is a loss"),
    ("tri_metric(g, \"both\", tri_add(g, ce, ce)); tri_loss(g, ce);", "'both' is not a metric"),
    ("tri_loss(g, ce); tri_loss(g, ce);", "'loss' is declared twice"),
    ("tri_loss(g, x);", "not a tensor ["),
]


def body_of(body):
    return f"""#include <trireme/trireme.h>
static void build(tri_graph *g, const tri_batch *batch) {{
    tri_value x = tri_linear(g, "fc", tri_flatten(g, batch->images), 3);
    tri_value ce = tri_cross_entropy(g, x, batch->labels);
    (void)ce;
    {body}
}}
static const tri_task task = {{.name = "refused", .build = build}};
TRI_EXPORT_TASK(task)
"""


def check_refused(folder):
    for number, (body, text) in enumerate(REFUSED):
        make_task(folder, f"refused{number}", body_of(body))
        place = os.path.join(folder, "refused")
        done = run([TRIREME, "train", f"{folder}/refused{number}.yaml", "--run-dir", place], 2)
        assert text in done.stderr and done.stderr.count("\n") == 1, (body, done.stderr)
        assert not os.path.exists(place)


def make_task(folder, name, source):
    path = os.path.join(folder, name)
    with open(path + ".c", "w", encoding="ascii") as file:
        file.write(source)
    subprocess.run(["cc", "-Wall", "-Werror", "-shared", "-fPIC", "-Iinclude", path + ".c", "-o",
                    path + ".so"], check=True)
    with open(path + ".yaml", "w", encoding="ascii") as file:
        file.write(f"name: sums\nmodel: {{name: {path}.so}}\n"
                   f"data: {{name: tensors, train: {folder}/data.safetensors, shuffle: false,"
                   f" test: {folder}/data.safetensors, workers: 1}}\nbatch: {{global: {BATCH}}}\n"
                   f"optimizer: {{name: sgd, lr: {LR}}}\n"
                   f"trainer: {{max_epochs: {EPOCHS}, log_every_n_steps: 1}}\n"
                   "log: {tensorboard: false}\n")


def main():
    with open(os.path.join(HERE, "loss_sums.json"), encoding="ascii") as file:
        wanted = json.load(file)["cases"]
    with open(os.path.join(HERE, "loss_sums_net.c"), encoding="ascii") as file:
        source = file.read()
    with tempfile.TemporaryDirectory(prefix="trireme-sums-") as folder:
        write_data(folder)
        make_task(folder, "task", source)
        for case in range(len(CASES)):
            formula.write_safetensors(f"{folder}/init-{case}.safetensors", weights_of(case))
        check_refused(folder)
        check_terms(folder)
        check_again(folder)
        check_samples(folder)
        check_half(folder, wanted[0])
        for case, golden_of_case in enumerate(wanted):
            check_case(folder, case, golden_of_case)


if __name__ == "__main__":
    if sys.argv[1] == "--golden":
        golden()
    else:
        from runs import TRIREME, entries, last, losses, on_ranks, run
        main()
