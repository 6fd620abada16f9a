#!/usr/bin/env python3
"""Fields that no built-in model has go from files to the model: masks, positions and labels for
each token of packed and padded sequences, soft labels, and fields that the recipe declares. Two
ranks train on them as one does, on the CPU and on a device with memory of its own. llama's labels
are shifted and ignored as in Hugging Face's models, and a field that a model does not read is
refused.

usage: test_fields.py BUILD_FOLDER
"""
import io
import json
import math
import os
import random
import struct
import subprocess
import sys
import tempfile
import zipfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import TRIREME, check_all, check_close, losses, on_ranks, run  # noqa: E402
import tensors  # noqa: E402

SAMPLES, TOKENS = 22, 8
EXTRA = "data.extra_fields={positions: {type: i64, per: token}, extra: f32}"
folder = None


def make_samples(seed):
    """Sequences of two packed documents; the rest of each is padding, whose labels are -100."""
    draw = random.Random(seed)
    fields = {name: [] for name in ("input_ids", "positions", "attention_mask", "labels", "extra",
                                    "soft_labels")}
    for _ in range(SAMPLES):
        first, second = draw.randint(1, 4), draw.randint(1, 3)
        pad = TOKENS - first - second
        fields["input_ids"] += [draw.randrange(1, 11) for _ in range(first + second)] + [0] * pad
        fields["positions"] += [*range(first), *range(second)] + [0] * pad
        fields["attention_mask"] += [1] * (first + second) + [0] * pad
        fields["labels"] += [draw.randrange(4) for _ in range(first + second)] + [-100] * pad
        fields["soft_labels"] += [draw.random() for _ in range(3)]
        fields["extra"] += [draw.random() for _ in range(2)]
    return fields


# How each is stored: NumPy's and the safetensors name of the type, struct's letter, and its shape.
STORED = {"input_ids": ("<i4", "I32", "i", [TOKENS]), "positions": ("|u1", "U8", "B", [TOKENS]),
          "attention_mask": ("|b1", "BOOL", "B", [TOKENS]), "labels": ("<i8", "I64", "q", [TOKENS]),
          "extra": ("<f4", "F32", "f", [2]), "soft_labels": ("<f8", "F64", "d", [3])}
HIDDEN, WORDS, PROMPT = 4, 8, 3
LLAMA = ["model.name=llama", f"model.vocab_size={WORDS}", f"model.hidden_size={HIDDEN}",
         "model.intermediate_size=8", "model.num_hidden_layers=2", "model.num_attention_heads=2",
         "model.initializer_range=0.5"]


def write_npz(name, fields):
    with zipfile.ZipFile(os.path.join(folder, name), "w") as archive:
        for key, values in fields.items():
            kind, _, letter, shape = STORED[key]
            text = str({"descr": kind, "fortran_order": False, "shape": (SAMPLES, *shape)})
            text += " " * (-(len(text) + 11) % 64) + "\n"
            body = io.BytesIO()
            body.write(b"\x93NUMPY\x01\0" + struct.pack("<H", len(text)) + text.encode())
            body.write(struct.pack(f"<{len(values)}{letter}", *values))
            archive.writestr(key + ".npy", body.getvalue())


def write_tensors(name, fields):
    tensors.write(os.path.join(folder, name),
                  {key: (STORED[key][1], [SAMPLES, *STORED[key][3]],
                         struct.pack(f"<{len(values)}{STORED[key][2]}", *values))
                   for key, values in fields.items()})


def execute(name, ranks, *words, code=0, kind="tensors"):
    place = os.path.join(folder, name)
    done = run([*on_ranks(ranks, [TRIREME, "train", os.path.join(folder, "fields.yaml"),
                                  "--run-dir", place, f"data.name={kind}", f"data.path={folder}",
                                  "data.train=train", "data.test=test", EXTRA, "batch.global=6",
                                  "optimizer.name=sgd", "optimizer.lr=0.1", "trainer.max_epochs=2",
                                  "log.tensorboard=false", "trainer.log_every_n_steps=1",
                                  *words])], code=code)
    return done.stderr if code else (losses(place), losses(place, "val"))


def check_ranks():
    """Any division of the work has one rank's result, and both kinds of files."""
    alone = execute("alone", 1)
    assert len(alone[0]) == 8 and len(alone[1]) == 2, alone
    assert float(alone[0][8]) < float(alone[0][1]), alone
    assert execute("npy", 1, "data.train=train.npz", "data.test=test.npz", kind="npy") == alone
    assert execute("far", 1, "--device", "far") == alone
    for name, ranks, words in (
            ("ddp", 2, []), ("micro", 2, ["batch.micro=2"]),
            ("fsdp", 2, ["strategy.name=fsdp", "strategy.persistent_bytes=0", "batch.micro=1"]),
            ("pipeline", 2, ["strategy.name=pipeline", "batch.micro=2"]),
            ("far2", 2, ["strategy.name=fsdp", "batch.micro=2", "--device", "far"])):
        found = execute(name, ranks, *words)
        for i in range(2):
            check_close(found[i], alone[i], 2e-5, name)


def check_shown():
    """`data check` shows each field; what it prints for data.shapes is enough to plan."""
    words = ["data.name=tensors", f"data.path={folder}", "data.train=train", "data.test=test"]
    recipe = os.path.join(folder, "fields.yaml")
    done = run([TRIREME, "data", "check", recipe, *words, EXTRA, "--json"])
    report = json.loads(done.stdout.splitlines()[0])
    fields = {field["name"]: field for field in report["fields"]}
    assert {name: (field["dtype"], field["shape"]) for name, field in fields.items()} == {
        "input_ids": ("I64", [TOKENS]), "positions": ("I64", [TOKENS]), "labels": ("I64", [TOKENS]),
        "attention_mask": ("F32", [TOKENS]), "extra": ("F32", [2]), "soft_labels": ("F32", [3])}
    labels = [label for label in make_samples(1)["labels"] if label >= 0]
    assert abs(fields["attention_mask"]["mean"] * SAMPLES * TOKENS - len(labels)) < 1e-3, report
    counts = [labels.count(k) for k in range(4)]
    assert (report["classes"], report["least"], report["most"]) == (
        4, min(counts), max(counts)), (report, counts)
    plan = run([TRIREME, "plan", recipe, "data.name=tensors", EXTRA,
                f"data.shapes={report['shapes']}", "--json"])
    assert json.loads(plan.stdout)["ranks"] == 1


def check_refused():
    """Names that nobody declared, sequences of two lengths, and -100 where a table is looked up."""
    fields = make_samples(3)
    for number, (words, text) in enumerate((
            (["data.extra_fields={}"], "declare it: data.extra_fields='{"),
            (["data.extra_fields={labels: i64}"], "'labels' is a field"),
            (["data.extra_fields={extra: f32, positoins: i64}"], "did you mean 'positoins'"),
            (["data.extra_fields={extra: f32, position: i64}"], "'position' is no name"),
            (["data.extra_fields={extra: f64}"], "has to be f32, i64"),
            (["data.extra_fields={extra: {type: f32, pre: token}}"], "has to be f32, i64"),
            (["data.extra_fields={positions: f32, extra: {type: f32, per: token}}"],
             "per token"))):
        lines = execute(f"refused{number}", 1, *words, code=2).splitlines()
        assert len(lines) == 1 and text in lines[0], (text, lines)
    fields["positions"] = [-100] + fields["positions"][1:]
    STORED["positions"] = ("<i8", "I64", "q", [TOKENS])
    write_tensors("bad", fields)
    error = execute("bad100", 1, "data.train=bad", code=2)
    assert "'positions'" in error and "-100, which is for labels" in error, error


def train_llama(name, fields, ranks=1, *words, code=0):
    """Six steps of llama on a file of these fields: the losses, or the refusal's lines."""
    write_tensors(name + ".data", fields)
    place = os.path.join(folder, name)
    done = run([*on_ranks(ranks, [TRIREME, "train", os.path.join(folder, "llama.yaml"),
                                  "--run-dir", place, f"data.path={folder}",
                                  f"data.train={name}.data", "batch.global=6", "optimizer.name=sgd",
                                  "optimizer.lr=0.1", "trainer.max_steps=6",
                                  "log.tensorboard=false", "trainer.log_every_n_steps=1",
                                  "data.shuffle=false", *LLAMA, *words])], code=code)
    return done.stderr.splitlines() if code else losses(place)


def text_samples():
    """Instructions: the labels of the prompt are -100, those of the answer the tokens themselves,
    and those of the padding behind it -100."""
    draw = random.Random(5)
    fields = {name: [] for name in ("input_ids", "labels", "attention_mask")}
    for _ in range(SAMPLES):
        pad = draw.randrange(3)
        ids = [draw.randrange(1, WORDS) for _ in range(TOKENS - pad)] + [0] * pad
        fields["input_ids"] += ids
        fields["labels"] += [-100] * PROMPT + ids[PROMPT:TOKENS - pad] + [-100] * pad
        fields["attention_mask"] += [1] * (TOKENS - pad) + [0] * pad
    return fields


def reference_loss(fields, embedding, head, samples):
    """The loss by Hugging Face's convention, of a llama whose layers add nothing: the scores at
    position t are compared with the label at t + 1."""
    total, count = 0.0, 0
    for at in range(samples * TOKENS):
        label = fields["labels"][at + 1] if (at + 1) % TOKENS else -100
        if label == -100:
            continue
        x = embedding[fields["input_ids"][at]]
        scale = (sum(v * v for v in x) / HIDDEN + 1e-6) ** -0.5
        scores = [sum(a * scale * b for a, b in zip(x, row)) for row in head]
        total += math.log(sum(map(math.exp, scores))) - scores[label]
        count += 1
    return total / count


def write_weights():
    """Weights of which only the embedding and the head are not zero. Returns these two."""
    whole, fresh = os.path.join(folder, "fresh"), os.path.join(folder, "passing")
    run([TRIREME, "checkpoint", "init", os.path.join(folder, "llama.yaml"), *LLAMA,
         f"data.shapes={{input_ids: [{TOKENS}]}}", "--out", whole])
    found, tables = tensors.read(whole), {}
    for name, (dtype, shape, data) in found.items():
        if name.endswith("_proj.weight"):
            found[name] = dtype, shape, bytes(len(data))
        values = tensors.numbers(found[name])
        tables[name] = [values[i:i + HIDDEN] for i in range(0, len(values), HIDDEN)]
    tensors.write(fresh, found)
    return fresh, tables["model.embed_tokens.weight"], tables["lm_head.weight"]


def check_llama():
    """llama learns the labels that the data have, on any division of the work."""
    fields = text_samples()
    plain = {"input_ids": fields["input_ids"]}
    labelled = {**plain, "labels": fields["labels"]}
    init, embedding, head = write_weights()
    found = float(train_llama("reference", labelled, 1, f"init={init}")[1])
    wanted = reference_loss(fields, embedding, head, 6)
    assert abs(found / wanted - 1) < 1e-5, (found, wanted)
    alone = train_llama("labelled", labelled)
    copied = train_llama("copied", {**plain, "labels": fields["input_ids"]})
    assert copied == train_llama("plain", plain) != alone, (copied, alone)
    assert train_llama("masked", fields) == alone
    # Padding before the text is as padding behind it, on any number of ranks.
    left = {name: [] for name in fields}
    for begin in range(0, SAMPLES * TOKENS, TOKENS):
        pad = fields["attention_mask"][begin:begin + TOKENS].count(0)
        for name, values in fields.items():
            sample = values[begin:begin + TOKENS]
            left[name] += sample[TOKENS - pad:] + sample[:TOKENS - pad]
    assert left["attention_mask"][::TOKENS].count(0) > 1
    assert train_llama("left", left) == alone
    check_close(train_llama("left-pipeline", left, 2, "strategy.name=pipeline", "batch.micro=2"),
                alone, 2e-5, "left")
    for name, ranks, words in (
            ("ddp", 2, ["batch.micro=2"]),
            ("fsdp", 2, ["strategy.name=fsdp", "strategy.persistent_bytes=0", "batch.micro=1"]),
            ("tensor", 2, ["strategy.mesh.tensor=2"]),
            ("pipeline", 2, ["strategy.name=pipeline", "batch.micro=2"])):
        check_close(train_llama("llama-" + name, labelled, ranks, *words), alone, 2e-5, name)


def check_unread():
    """A mask that llama would have to read, and other fields that no node reads, are refused."""
    fields = text_samples()
    ids, labels, mask = (fields[name] for name in ("input_ids", "labels", "attention_mask"))
    soft = [0.5] * 3 * SAMPLES
    for name, data, words, texts in (
            ("hole", {**fields, "attention_mask": [1, 0] + mask[2:]}, [],
             ["'attention_mask'", "sample 0"]),
            ("begins", {**fields, "labels": ids, "attention_mask": [0] + mask[1:]}, [],
             ["'attention_mask'", "sample 0", "loss"]),
            ("counted", {**fields, "labels": ids}, [], ["'attention_mask'", "loss", "-100"]),
            ("unlabelled", {"input_ids": ids, "attention_mask": mask}, [],
             ["'attention_mask'", "'labels'"]),
            ("soft", {**fields, "soft_labels": soft}, [], ["'soft_labels'", "llama"]),
            ("own", {"input_ids": ids, "labels": labels, "extra": soft[:2 * SAMPLES]},
             ["data.extra_fields={extra: f32}"], ["'extra'", "llama"])):
        lines = train_llama(name, data, 1, *words, code=2)
        assert len(lines) == 1 and all(text in lines[0] for text in texts), (name, lines)
        assert not os.path.exists(os.path.join(folder, name)), name
    # The advice is of the kind: arrays are named in data.train, tensors are left out of the file.
    assert "data.fields" not in lines[0] and "leave this one out" in lines[0], lines
    write_npz("own.npz", {"input_ids": ids, "extra": soft[:2 * SAMPLES]})
    words = ["data.name=npy", "data.train=own.npz"]
    lines = train_llama("array", {}, 1, *words, "data.extra_fields={extra: f32}", code=2)
    assert len(lines) == 1 and "data.train='{inputs: FILE.npz:ARRAY" in lines[0], lines
    lines = train_llama("array", {}, 1, *words, code=2)
    assert len(lines) == 1 and "data.train='{" in lines[0] and "{extra: f32}" in lines[0], lines
    train_llama("array", {}, 1, words[0], "data.train={input_ids: own.npz:input_ids}")


def main():
    global folder
    with tempfile.TemporaryDirectory(prefix="trireme-fields-") as folder:
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fields_net.c")
        library = os.path.join(folder, "fields.so")
        subprocess.run(["cc", "-Wall", "-Werror", "-shared", "-fPIC", "-Iinclude", source, "-o",
                        library], check=True)
        with open(os.path.join(folder, "fields.yaml"), "w", encoding="ascii") as file:
            file.write(f"name: fields\nmodel: {{name: {library}}}\ndata: {{name: tensors}}\n")
        with open(os.path.join(folder, "llama.yaml"), "w", encoding="ascii") as file:
            file.write("name: text\ndata: {name: tensors}\n")
        for name, seed in (("train", 1), ("test", 2)):
            write_npz(name + ".npz", make_samples(seed))
            write_tensors(name, make_samples(seed))
        return 1 if check_all((check_ranks, check_shown, check_refused, check_llama,
                                check_unread)) else 0


if __name__ == "__main__":
    sys.exit(main())
