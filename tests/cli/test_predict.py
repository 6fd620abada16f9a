#!/usr/bin/env python3
"""`trireme predict` writes what a model computes of the test data, a row for each sample in their
order: by one rank or several, without labels, completely or not at all.

usage: test_predict.py BUILD_FOLDER
"""
import json
import math
import os
import resource
import signal
import struct
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tensors  # noqa: E402
from runs import TRIREME, check_all, finish, on_ranks, run, start, wait_for  # noqa: E402

SAMPLES = 21
DATA = ["data.name=synthetic", "data.samples=40", f"data.test_samples={SAMPLES}", "data.classes=10",
        "data.shape=[1,28,28]", "data.workers=0", "batch.eval=4", "batch.micro=4"]
LLAMA = ["model.hidden_size=16", "model.intermediate_size=16", "model.num_hidden_layers=2",
         "data.name=synthetic", "data.samples=16", f"data.test_samples={SAMPLES}",
         "data.workers=0", "data.sequence=8", "data.vocabulary=256", "batch.eval=4",
         "batch.micro=4"]


def recipe(model):
    return [f"recipes/{model}.yaml", *(LLAMA if model == "llama-tiny" else DATA)]


def weights(folder, model):
    path = f"{folder}/{model}-weights.safetensors"
    if not os.path.exists(path):
        run([TRIREME, "checkpoint", "init", *recipe(model), "--out", path])
    return path


def command(folder, model, *words, out="logits.safetensors"):
    return [TRIREME, "predict", *recipe(model), "--checkpoint", weights(folder, model), "--out",
            f"{folder}/{out}", *words]


def content(path):
    with open(path, "rb") as file:
        return file.read()


def check_nothing_written(folder, name):
    assert not [entry for entry in os.listdir(folder) if entry.startswith(name)], name


def check_eval(folder):
    """The logits and the labels give the loss and the accuracy of `trireme eval`; log_softmax of
    mnist-cnn is what its loss reads."""
    for model in ("mlp-jax", "mnist-cnn", "mnist-convnet"):
        said = run(command(folder, model, "trainer.limit_val_batches=1")).stdout
        assert f"logits [{SAMPLES}, 10]" in said, said
        run([TRIREME, "data", "dump", *recipe(model), "--split", "test", "--count", str(SAMPLES),
             "--out", f"{folder}/data.safetensors"])
        found = tensors.read(f"{folder}/logits.safetensors")
        assert list(found) == ["logits"] and found["logits"][:2] == ("F32", [SAMPLES, 10]), found
        values = tensors.numbers(found["logits"])
        labels = tensors.numbers(tensors.read(f"{folder}/data.safetensors")["labels"])
        rows = [values[10 * i:10 * i + 10] for i in range(SAMPLES)]
        right = sum(row.index(max(row)) == label for row, label in zip(rows, labels))
        loss = sum(math.log(sum(math.exp(x) for x in row)) - row[label]
                   for row, label in zip(rows, labels)) / SAMPLES
        told = json.loads(run([TRIREME, "eval", *recipe(model), "--checkpoint",
                               weights(folder, model), "--json"]).stdout)
        assert told["samples"] == SAMPLES and abs(told["accuracy"] - right / SAMPLES) < 1e-6, told
        assert abs(told["loss"] - loss) < 1e-5, (told, loss)


def check_ranks(folder):
    """Ranks write the file of one rank: each row once, and the same bytes unless they share
    layers, whose sums are rounded in another order. A device whose work is done later, too."""
    for model in ("mlp-jax", "llama-tiny"):
        run(command(folder, model))
        whole = content(f"{folder}/logits.safetensors")
        for words in ([], ["strategy.name=fsdp"], ["strategy.mesh.pipeline=2"]):
            run(on_ranks(2, command(folder, model, *words, out="ranks.safetensors")))
            assert content(f"{folder}/ranks.safetensors") == whole, (model, words)
        run(command(folder, model, "--device", "far", out="far.safetensors"))
        assert content(f"{folder}/far.safetensors") == whole, model
        run(on_ranks(2, command(folder, model, "strategy.mesh.tensor=2",
                                *(["strategy.tensor={fc1: column, fc2: row}"]
                                  if model == "mlp-jax" else []), out="ranks.safetensors")))
        own = tensors.read(f"{folder}/logits.safetensors")["logits"]
        sliced = tensors.read(f"{folder}/ranks.safetensors")["logits"]
        assert sliced[:2] == own[:2], sliced[:2]
        apart = max(abs(a - b) for a, b in zip(tensors.numbers(own), tensors.numbers(sliced)))
        assert 0 < apart < 1e-5, apart


def check_gpu(folder):
    """An emulated GPU, whose layouts and memory are its own, computes what the CPU does."""
    modules = os.path.join(os.path.abspath(sys.argv[1]), "lib", "emulated")
    for model in ("mlp-jax", "mnist-convnet"):
        run(command(folder, model))
        run(command(folder, model, "--device", "cuda", out="gpu.safetensors"),
            env={**os.environ, "TRIREME_MODULES": modules})
        own, gpu = (tensors.read(f"{folder}/{name}.safetensors")["logits"]
                    for name in ("logits", "gpu"))
        assert gpu[:2] == own[:2], gpu[:2]
        apart = max(abs(a - b) for a, b in zip(tensors.numbers(own), tensors.numbers(gpu)))
        assert apart < 1e-5, apart


def check_bare_images(folder):
    """Images without a file or folders of labels have the outputs that they have with them, in the
    order of their names; training and evaluation refuse them."""
    idx, classes, flat = (f"{folder}/{name}" for name in ("idx", "classes", "flat"))
    pixels = [bytes((i * k) % 256 for k in range(784)) for i in range(3)]
    os.makedirs(idx)
    for place in (f"{classes}/a", f"{classes}/b", flat):
        os.makedirs(place)
    for i, image in enumerate(pixels):
        for place in (f"{classes}/{'aab'[i]}", flat):
            with open(f"{place}/{i}.pgm", "wb") as file:
                file.write(b"P5 28 28 255\n" + image)
    head = struct.pack(">IIII", 0x803, 3, 28, 28)
    for name, data in (("t10k-images-idx3-ubyte", head + b"".join(pixels)),
                       ("t10k-labels-idx1-ubyte", struct.pack(">II", 0x801, 3) + bytes(3))):
        with open(f"{idx}/{name}", "wb") as file:
            file.write(data)
    folders = ["data.name=imagefolder", f"data.path={folder}", "data.train=classes",
               "data.transform=[{resize: [28, 28]}, {grayscale: 1}]"]
    base = [TRIREME, "predict", "recipes/mlp-jax.yaml", "--checkpoint", weights(folder, "mlp-jax"),
            "--out", f"{folder}/bare.safetensors"]
    found = []
    for number, words in enumerate(([f"data.path={idx}"], [f"data.path={idx}"],
                                    [*folders, "data.test=classes"], [*folders, "data.test=flat"])):
        run([*base, *words])
        found.append(tensors.read(f"{folder}/bare.safetensors")["logits"])
        if number == 0:
            os.remove(f"{idx}/t10k-labels-idx1-ubyte")
    assert found[0][1] == [3, 10] and all(logits == found[0] for logits in found), found
    for words, part in (([f"data.path={idx}"], "labels-idx1"),
                        ([*folders, "data.test=flat"], "flat")):
        done = run([TRIREME, "eval", "recipes/mlp-jax.yaml", "--checkpoint",
                    weights(folder, "mlp-jax"), *words], 2)
        assert part in done.stderr and done.stderr.count("\n") == 1, done.stderr


def check_without_labels(folder):
    """Data without labels have the same logits as with them. Half types are written as F32."""
    run([TRIREME, "data", "dump", *recipe("mlp-jax"), "--split", "test", "--count", "9", "--out",
         f"{folder}/test.safetensors"])
    data = tensors.read(f"{folder}/test.safetensors")
    found = []
    check_bare_images(folder)
    for name in ("with", "without"):
        path = f"{folder}/{name}.safetensors"
        tensors.write(path, data)
        data.pop("labels", None)
        run([TRIREME, "predict", "recipes/mlp-jax.yaml", "data.name=tensors", f"data.train={path}",
             f"data.test={path}", "--checkpoint", weights(folder, "mlp-jax"), "--out",
             f"{folder}/logits.safetensors"])
        found.append(tensors.read(f"{folder}/logits.safetensors")["logits"])
    assert found[0] == found[1] and found[0][1] == [9, 10], found
    run(command(folder, "mlp-jax", "trainer.precision=bf16-mixed", out="half.safetensors"))
    half = tensors.read(f"{folder}/half.safetensors")["logits"]
    apart = [abs(a - b) for a, b in zip(tensors.numbers(half), tensors.numbers(found[0]))]
    assert half[0] == "F32" and 0 < max(apart[:90]) < 0.02, max(apart)


def check_padding(folder):
    """A causal model needs no labels for padded text. Rows of its outputs keep their positions, so
    that padding in front of the text, which training moves behind it, is refused."""
    tokens, masks = list(range(1, 13)), {"behind": [1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1],
                                         "front": [0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1], "no": None}
    found = {}
    for name, mask in masks.items():
        data = {"input_ids": ("I64", [2, 6], tokens)}
        if mask:
            data["attention_mask"] = ("F32", [2, 6], mask)
        tensors.write(f"{folder}/{name}.safetensors", data)
        place = f"{folder}/{name}-logits.safetensors"
        done = run([TRIREME, "predict", *recipe("llama-tiny")[:4], "data.name=tensors",
                    f"data.train={folder}/no.safetensors", f"data.test={folder}/{name}.safetensors",
                    "--checkpoint", weights(folder, "llama-tiny"), "--out", place],
                   2 if name == "front" else 0)
        if name == "front":
            assert "sample 0" in done.stderr and done.stderr.count("\n") == 1, done.stderr
            assert not os.path.exists(place)
        else:
            found[name] = tensors.read(place)["logits"]
    assert found["behind"] == found["no"] and found["no"][1] == [2, 6, 256], found["no"][1]


def check_views(folder):
    """An output that is a view of images has their values, also where a device takes bytes."""
    source = os.path.join(folder, "views.c")
    with open(source, "w", encoding="ascii") as file:
        file.write('''#include <trireme/trireme.h>
static void build(tri_graph *g, const tri_batch *batch) {
    tri_block(g, "first");
    tri_value flat = tri_flatten(g, batch->images), x = tri_linear(g, "one", flat, 5);
    tri_output(g, "flat", flat);
    tri_block(g, "second");
    x = tri_linear(g, "two", x, 10);
    tri_output(g, "logits", x);
    tri_loss(g, tri_cross_entropy(g, x, batch->labels));
}
static const tri_task task = {.name = "views", .build = build};
TRI_EXPORT_TASK(task)
''')
    subprocess.run(["cc", "-shared", "-fPIC", "-Iinclude", source, "-o", f"{folder}/views.so"],
                   check=True)
    with open(f"{folder}/views.yaml", "w", encoding="ascii") as file:
        file.write(f"name: views\nmodel: {{name: {folder}/views.so}}\noptimizer: {{name: sgd}}\n")
    path = f"{folder}/bytes.safetensors"
    pixels = [(7 * i) % 256 for i in range(3 * 12)]
    tensors.write(path, {"images": ("U8", [3, 1, 3, 4], pixels), "labels": ("I64", [3], [0, 1, 2])})
    words = [f"{folder}/views.yaml", "data.name=tensors", f"data.train={path}",
             f"data.test={path}", "batch.global=2", "data.shapes={images: [1, 3, 4], labels: []}"]
    run([TRIREME, "checkpoint", "init", *words, "--out", f"{folder}/views.safetensors"])
    for device in "cpu", "far":
        out = f"{folder}/{device}.safetensors"
        run([TRIREME, "predict", *words, "--checkpoint", f"{folder}/views.safetensors", "--out",
             out, "--device", device])
        flat = tensors.numbers(tensors.read(out)["flat"])
        assert max(abs(a - b / 255) for a, b in zip(flat, pixels)) < 1e-6, (device, flat)


def check_expressions_of_labels(folder):
    """Losses and metrics may read missing fields in any way; an output may not, but a model may do
    without a field. What a checkpoint or data.shapes says of them is enough."""
    source = os.path.join(folder, "made.c")
    with open(source, "w", encoding="ascii") as file:
        file.write('''#include <trireme/trireme.h>
static void build(tri_graph *g, const tri_batch *batch) {
    tri_value scale = tri_batch_field(batch, "scale"), noise = tri_batch_field(batch, "noise");
    tri_value x = tri_linear(g, "one", batch->inputs, 2);
    if (noise.id) x = tri_add(g, x, noise);
    if (tri_training(g)) x = tri_add(g, x, tri_batch_field(batch, "drift"));
    tri_output(g, "y", tri_model_bool(g, "scaled", false) ? tri_mul(g, x, scale) : x);
    tri_value y = tri_map(g, "2 * y - 1", batch->targets);
    tri_metric(g, "far", tri_mean_loss(g, tri_abs(g, tri_sub(g, x, y))));
    tri_loss(g, tri_mean_loss(g, tri_map(g, "x, y, s -> (x - y)^2 * s", x, y, scale)));
}
static const tri_task task = {.name = "made", .build = build};
TRI_EXPORT_TASK(task)
''')
    subprocess.run(["cc", "-shared", "-fPIC", "-Iinclude", source, "-o", f"{folder}/made.so"],
                   check=True)
    fields = {"inputs": 3, "targets": 2, "scale": 2, "drift": 2, "noise": 2}
    data = {name: ("F32", [5, width], [i / 8 for i in range(5 * width)])
            for name, width in fields.items() if name != "noise"}
    tensors.write(f"{folder}/made.safetensors", data)
    tensors.write(f"{folder}/noisy.safetensors", {**data, "noise": ("F32", [5, 2], [0.5] * 10)})
    tensors.write(f"{folder}/bare.safetensors", {"inputs": data["inputs"]})
    with open(f"{folder}/made.yaml", "w", encoding="ascii") as file:
        file.write(f"name: made\nmodel: {{name: {folder}/made.so}}\n"
                   "optimizer: {name: sgd, lr: 0.1}\nbatch: {global: 2}\n"
                   "trainer: {max_epochs: 1}\n"
                   f"data: {{name: tensors, train: {folder}/made.safetensors, "
                   f"test: {folder}/made.safetensors}}\n")
    out, bare = f"{folder}/y.safetensors", f"data.test={folder}/bare.safetensors"
    for kind in "made", "noisy":
        place = f"{folder}/{kind}-run"
        run([TRIREME, "train", f"{folder}/made.yaml", f"data.train={folder}/{kind}.safetensors",
             f"data.test={folder}/{kind}.safetensors", "--run-dir", place,
             "data.extra_fields={scale: f32, drift: f32, noise: f32}"])
        # An evaluation does not read what is for training alone.
        run([TRIREME, "eval", "--checkpoint", place])
        found = []
        for words in ([f"data.test={folder}/made.safetensors"], [bare]):
            run([TRIREME, "predict", "--checkpoint", place, "--out", out, *words])
            found.append(content(out))
        assert found[0] == found[1], kind
    done = run([TRIREME, "predict", "--checkpoint", f"{folder}/made-run", "--out", out, bare,
                "model.scaled=1"], 2)
    assert all(part in done.stderr for part in ("'y'", "'scale'")), done.stderr
    assert done.stderr.splitlines()[-1].count("made") and content(out) == found[1], done.stderr
    # Weights alone say nothing of the fields, but a line says how they get known.
    os.mkdir(f"{folder}/alone")
    run([TRIREME, "checkpoint", "export", f"{folder}/noisy-run", "--out",
         f"{folder}/alone/weights.safetensors"])
    alone = [TRIREME, "predict", f"{folder}/made.yaml", "--checkpoint",
             f"{folder}/alone/weights.safetensors", "--out", out, bare]
    assert "data.shapes" in run(alone, 2).stderr
    run([*alone, "data.extra_fields={scale: f32, drift: f32}",
         "data.shapes={inputs: [3], targets: [2], scale: [2]}"])
    assert content(out) == found[1]


def check_recipe_of_labels(folder):
    """A recipe that names the labels, their column or array and their shape predicts without
    them; another shape of what is there, and a part of the inputs, are refused."""
    base = ["recipes/mlp-jax.yaml", "data.transform=[]", "data.workers=0"]
    row = [str(i / 784) for i in range(784)]
    with open(f"{folder}/labelled.csv", "w", encoding="utf-8") as file:
        file.write("\n".join([",".join(["kind", *(f"p{i}" for i in range(784))]),
                              *(",".join([str(i), *row]) for i in range(10))]) + "\n")
    with open(f"{folder}/bare.csv", "w", encoding="utf-8") as file:
        file.write("\n".join([",".join(f"p{i}" for i in range(784)), ",".join(row)]) + "\n")
    columns = ", ".join(f"p{i}" for i in range(784))
    csv = [*base, "data.name=csv", f"data.train={folder}/labelled.csv",
           f"data.fields={{labels: kind, images: [{columns}]}}"]
    shape = "data.shapes={images: [1, 28, 28], labels: []}"
    flat = f"{folder}/flat.safetensors"
    tensors.write(flat, {"images": ("F32", [2, 1, 28, 28], bytes(2 * 28 * 28 * 4))})
    for path, shapes in ((f"{folder}/bare.csv", shape), (f"{folder}/labelled.csv", shape)):
        run([TRIREME, "predict", *csv, f"data.test={path}", shapes, "--checkpoint",
             weights(folder, "mlp-jax"), "--out", f"{folder}/csv.safetensors"])
    array = [*base, "data.name=tensors", f"data.train={flat}", f"data.test={flat}", "--checkpoint",
             weights(folder, "mlp-jax"), "--out", f"{folder}/flat-out.safetensors"]
    run([TRIREME, "predict", *array, shape])
    run([TRIREME, "data", "convert", *array[:-4], "--to", "hdf5", "--out", f"{folder}/h5"])
    run([TRIREME, "predict", *base, "data.name=hdf5", f"data.train={folder}/h5/test.h5",
         f"data.test={folder}/h5/test.h5", "data.fields={labels: kind, images: images}", shape,
         *array[-4:]])
    for words, parts in (([*array, "data.shapes={images: [1, 14, 14], labels: []}"], "[1, 28, 28]"),
                         ([*csv, f"data.test={folder}/part.csv", "--checkpoint",
                           weights(folder, "mlp-jax"), "--out", f"{folder}/no"], "'p0'")):
        with open(f"{folder}/part.csv", "w", encoding="utf-8") as file:
            file.write("kind,p1\n1,0.5\n")
        assert parts in run([TRIREME, "predict", *words], 2).stderr, parts


def check_left_out(folder):
    """Samples that cannot be read are counted once, by ranks that share them, too, and their rows
    are no numbers."""
    for split in "train", "test":
        os.makedirs(f"{folder}/images/{split}/a")
        for i in range(3):
            with open(f"{folder}/images/{split}/a/{i}.png", "wb") as file:
                file.write(b"\x89PNG\r\n\x1a\n")
    words = ["recipes/mlp-jax.yaml", "data.name=imagefolder", f"data.path={folder}/images",
             "data.train=train", "data.test=test", "data.on_error=skip", "data.workers=0",
             "data.transform=[{resize: [28, 28]}, {grayscale: 1}]", "batch.micro=1"]
    for mesh in "replicate", "tensor", "pipeline":
        done = run(on_ranks(2, [TRIREME, "predict", *words, "--checkpoint",
                                weights(folder, "mlp-jax"), "--out", f"{folder}/rows.safetensors",
                                f"strategy.mesh.{mesh}=2",
                                "strategy.tensor={fc1: column, fc2: row}"]))
        told = [line for line in done.stderr.splitlines() if "rows.safetensors" in line]
        assert len(told) == 1 and "3 samples" in told[0], done.stderr
        rows = tensors.numbers(tensors.read(f"{folder}/rows.safetensors")["logits"])
        assert len(rows) == 30 and all(math.isnan(number) for number in rows), rows


def check_run_folder(folder):
    """Without a recipe, that of the run is used. A network whose loss compares images has
    `outputs`."""
    words = ["data.name=synthetic", "data.samples=8", "data.test_samples=3",
             "data.shape=[1,28,28]", "data.classes=10", "data.workers=0", "log.tensorboard=false",
             "batch.global=8", "trainer.max_epochs=1"]
    run([TRIREME, "train", "recipes/autoencoder.yaml", *words, "--run-dir", f"{folder}/run"])
    path = f"{folder}/run.safetensors"
    run([TRIREME, "predict", "--checkpoint", f"{folder}/run", "--out", path])
    found = tensors.read(path)
    assert list(found) == ["outputs"] and found["outputs"][1] == [3, 784], found.keys()


def check_refused(folder):
    """One line and code 2 for bad input; nothing is written, and no file of another kind is
    replaced."""
    full = command(folder, "mlp-jax", out="new.safetensors")
    flags = {name: full.index(name) for name in ("--checkpoint", "--out")}
    for name, at in flags.items():
        done = run(full[:at] + full[at + 2:], 2)
        assert name in done.stderr and done.stderr.count("\n") == 1, done.stderr
    done = run([word.replace(weights(folder, "mlp-jax"), f"{folder}/none") for word in full], None)
    assert done.returncode and "none" in done.stderr and done.stderr.count("\n") == 1, done.stderr
    check_nothing_written(folder, "new.safetensors")
    for name in ("notes.txt", "recipe.npy"):
        with open(f"{folder}/{name}", "w", encoding="utf-8") as file:
            file.write("some text that a user wrote")
        done = run(command(folder, "mlp-jax", out=name), 2)
        assert name in done.stderr and "--out" in done.stderr, done.stderr
        assert content(f"{folder}/{name}") == b"some text that a user wrote"
    # Nor is what is read replaced, under whatever name.
    run([TRIREME, "data", "dump", *recipe("mlp-jax"), "--split", "test", "--count", "3", "--out",
         f"{folder}/samples.safetensors"])
    own = os.path.basename(weights(folder, "mlp-jax"))
    os.link(f"{folder}/{own}", f"{folder}/link.safetensors")
    for name, word in ((own, "weights"), ("link.safetensors", "weights"),
                       ("samples.safetensors", "samples")):
        before = content(f"{folder}/{name}")
        done = run([TRIREME, "predict", "recipes/mlp-jax.yaml", "data.name=tensors",
                    f"data.train={folder}/samples.safetensors",
                    f"data.test={folder}/samples.safetensors", "--checkpoint",
                    weights(folder, "mlp-jax"), "--out", f"{folder}/{name}"], 2)
        assert "--out" in done.stderr and word in done.stderr, done.stderr
        assert done.stderr.count("\n") == 1 and content(f"{folder}/{name}") == before, name
    done = run(command(folder, "mlp-jax", out="no/such/folder"), None)
    assert done.returncode and "no/such/folder" in done.stderr, done.stderr


def check_full_disk(folder):
    """A file that cannot be written whole is not written, by one rank and by several; a file of
    that name stays."""
    small = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))  # noqa: E731
    with open(f"{folder}/kept.safetensors", "wb") as file:
        file.write(b"\x02\0\0\0\0\0\0\0{}")
    done = run(command(folder, "mlp-jax", out="kept.safetensors"), 1, preexec_fn=small)
    assert "kept.safetensors" in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert content(f"{folder}/kept.safetensors") == b"\x02\0\0\0\0\0\0\0{}"
    assert len([e for e in os.listdir(folder) if e.startswith("kept")]) == 1, os.listdir(folder)
    # On a full file system the ranks find out only when they write their rows.
    disk = f"{folder}/disk"
    os.mkdir(disk)
    mount = ["unshare", "-m", "sh", "-c",
             'mount -t tmpfs -o size=16k t "$0" || exit 77; "$@"; code=$?; ls -A "$0"; exit $code',
             disk]
    for ranks in (1, 2):
        done = run([*mount, *on_ranks(ranks, command(folder, "mlp-jax", "data.test_samples=2000",
                                                     out="disk/new.safetensors"))], None)
        if "mount" in done.stderr or "unshare" in done.stderr:
            print("check_full_disk: no file system can be mounted here")
            return
        assert done.returncode == 1 and "No space left" in done.stderr, done.stderr
        assert done.stdout == "", done.stdout


def check_signal(folder):
    """A signal ends it as every program, and leaves no unfinished file."""
    words = command(folder, "mlp-jax", "data.test_samples=400000", "batch.eval=1000",
                    out="cut.safetensors")
    child = start(words)
    wait_for(lambda: any(e.startswith("cut.safetensors") for e in os.listdir(folder)),
             "the unfinished file", child=child)
    child.send_signal(signal.SIGTERM)
    finish(child)
    assert child.returncode == -signal.SIGTERM, child.returncode
    check_nothing_written(folder, "cut.safetensors")


def main():
    with tempfile.TemporaryDirectory(prefix="trireme-predict-") as folder:
        return check_all([check_eval, check_ranks, check_gpu, check_without_labels,
                          check_padding, check_views, check_expressions_of_labels,
                          check_recipe_of_labels, check_left_out, check_run_folder, check_refused,
                          check_full_disk, check_signal], folder)


if __name__ == "__main__":
    sys.exit(main())
