#!/usr/bin/env python3
"""Tables as data: what Python's csv module and pyarrow write is read as it was written, classes by
number or by name; a network learns from it; what is damaged or missing is refused by name.

usage: test_tables.py BUILD_FOLDER
"""
import csv
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import TRIREME, check_all, check_refused, entries, run, train  # noqa: E402
import tensors  # noqa: E402

RECIPE = "recipes/mlp-jax.yaml"
GOLDENS = "tests/support/goldens"
folder = None


def path(name):
    return os.path.join(folder, name)


def put(name, data):
    with open(path(name), "wb") as file:
        file.write(data)


def put_csv(name, rows, **how):
    with open(path(name), "w", encoding="utf-8", newline="") as file:
        csv.writer(file, **how).writerows(rows)


def dump(*words, count, kind="csv"):
    """The tensors of `data dump`, each as its shape and values."""
    out = path("out.safetensors")
    run([TRIREME, "data", "dump", RECIPE, f"data.name={kind}", f"data.path={folder}", *words,
         f"--count={count}", f"--out={out}"])
    return {name: (tensor[1], tensors.numbers(tensor))
            for name, tensor in tensors.read(out).items()}


def refused(*words, parts, kind="csv"):
    check_refused(train("mlp-jax", path("run"), f"data.name={kind}", f"data.path={folder}", *words),
                  path("run"), parts)


SPECIES = ["virginica", "setosa", "versi,color", 'the "fourth"', "two\nlines"]


def flowers(count, seed):
    """Rows of four numbers around those of one of five species, whose name comes last."""
    source = random.Random(seed)
    rows = [["sepal length", "sepal, width", "petal", "w", "species"]]
    for _ in range(count):
        kind = source.randrange(len(SPECIES))
        rows.append([round(source.gauss(kind * (i + 1), 0.2), 3) for i in range(4)] +
                    [SPECIES[kind]])
    return rows


def check_written_by_python():
    """Quotes, delimiters, line ends, a byte order mark: the same numbers and classes."""
    rows = flowers(40, 1)
    number = {name: i for i, name in enumerate(sorted(SPECIES))}
    wanted = struct.unpack("160f", struct.pack("160f", *(x for row in rows[1:] for x in row[:4])))
    ways = [({}, ","), ({"quoting": csv.QUOTE_ALL, "lineterminator": "\n"}, ","),
            ({"delimiter": ";", "quoting": csv.QUOTE_NONNUMERIC}, ";"),
            ({"delimiter": "\t"}, "tab")]
    for how, delimiter in ways:
        put_csv("t.csv", rows, **how)
        words = ["data.train=t.csv", "data.fields={labels: species}",
                 f"data.delimiter='{delimiter}'"]
        found = dump(*words, count=40)
        assert found["inputs"] == ([40, 4], list(wanted)), how
        assert found["labels"] == ([40], [number[row[4]] for row in rows[1:]]), how
    with open(path("t.csv"), "rb") as file:
        data = file.read()
    put("b.csv", b"\xef\xbb\xbf" + data.rstrip(b"\r\n").replace(b"\r\n", b"\r\n\r\n\n", 1))
    assert dump(*words, "data.train=b.csv", count=40) == found
    # Any sample is found by its number.
    last = dump(*words, "data.train=b.csv", "--first=39", count=1)
    assert last["inputs"][1] == list(wanted[156:])


def check_fields():
    """Columns by name or position, lists of them, regression, pixels in the shape of images."""
    put("n.csv", b"a,b,target\n1,2,3\n4,5,6\n")
    assert dump("data.train=n.csv", count=2) == {"inputs": ([2, 2], [1, 2, 4, 5]),
                                                 "targets": ([2, 1], [3, 6])}
    words = ["data.train=n.csv", "data.fields={inputs: [b, a], targets: [a, target]}"]
    assert dump(*words, count=2) == {"inputs": ([2, 2], [2, 1, 5, 4]),
                                     "targets": ([2, 2], [1, 3, 4, 6])}
    put("h.csv", b"7,1,2,3,4\n0,5,6,7,8\n")
    words = ["data.train=h.csv", "data.header=false", "data.shapes={images: [1, 2, 2], labels: []}",
             "data.fields={labels: 0, images: [1, 2, 3, 4]}"]
    assert dump(*words, count=2) == {"images": ([2, 1, 2, 2], [1, 2, 3, 4, 5, 6, 7, 8]),
                                     "labels": ([2], [7, 0])}


def check_unused():
    """Beside `inputs`, columns named as fields are read, misspelt ones refused, others told."""
    put_csv("own.csv", [["inputs", "label", "targets", "note"], [1, 1, 0.5, 7], [2, 1, 1, 7]])
    found = dump("data.train=own.csv", count=2)
    assert found == {"inputs": ([2, 1], [1, 2]), "labels": ([2], [1, 1]),
                     "targets": ([2, 1], [0.5, 1])}, found
    own = "data.extra_fields={note: f32}"
    assert dump("data.train=own.csv", own, count=2) == {**found, "note": ([2], [7, 7])}
    report = json.loads(run([TRIREME, "data", "check", RECIPE, "data.name=csv", "data.test=null",
                             f"data.train={path('own.csv')}", "--json"]).stdout)
    assert report["not_used"].startswith("1 column, ") and "'note'" in report["not_used"], report
    put_csv("space.csv", [["a", " kind"], [1, 0]])
    refused("data.train=space.csv", parts=['labels: " kind"'])
    put_csv("near.csv", [["inputs", "soft_label", "lable"], [1, 0, 1]])
    refused("data.train=near.csv", parts=["near.csv", "'soft_label'", "'soft_labels'"])


def warnings(name, *words):
    done = run([TRIREME, "data", "check", RECIPE, "data.name=csv", "data.test=null", "--json",
                f"data.train={path(name)}.csv", *words])
    return json.loads(done.stdout).get("warnings", [])


def check_no_header():
    """A first line that looks like a sample is not taken for names without a word."""
    rows = [[5.1, 3.5, 1.4, 0.2, 0], [7.0, 3.2, 4.7, 1.4, 1], [6.3, 3.3, 6.0, 2.5, 2]]
    names = {"label": [["label", *range(4)]], "year": [["label", 1990, 1995, 2000, 2005]],
             "wave": [["label", 400.5, 401, 401.5, 402]]}
    for name, lines in {"number": rows, "name": [[*row[:4], "n" + str(row[4])] for row in rows],
                        **{name: head + rows for name, head in names.items()}}.items():
        put_csv(name + ".csv", lines)
    for name in ("number", "name"):
        refused(f"data.train={name}.csv", parts=[name + ".csv", "data.header=false", "labels: 4"])
    refused("data.train=number.csv", "data.fields={labels: 4}", parts=["data.header=false"])

    found = warnings("number", "data.fields={labels: 0}")
    assert ["data.header=false" in line for line in found] == [True], found
    assert warnings("number", "data.header=false", "data.fields={labels: 4}") == []
    done = run(train("mlp-jax", path("w"), "data.name=csv", f"data.path={folder}",
                     "data.train=number.csv", "data.test=number.csv", "data.fields={labels: 0}",
                     "model.num_classes=3", "trainer.fast_dev_run=1"))
    assert done.stderr.count("data.header=false") == 1, done.stderr
    for name in names:
        assert warnings(name, "data.on_error=skip") == [], name


def check_blanks():
    """Names of classes that differ only by blanks around them get a warning."""
    put("blank.csv", b"a,label\n1,cat\n2,dog\n3, cat\n4,\tfox\n")
    found = warnings("blank")
    assert len(found) == 1 and "blank.csv" in found[0], found
    assert "'cat'" in found[0] and "' cat'" in found[0], found
    put("blank.csv", b"a,label\n1,cat\n2,dog\n3,cat dog\n4,\tfox\n")
    assert warnings("blank") == []


def check_normalize():
    """`normalize` takes a mean and a standard deviation of each column, which `data check` has."""
    put_csv("t.csv", flowers(40, 1))
    words = ["data.train=t.csv", "data.fields={labels: species}"]
    done = run([TRIREME, "data", "check", RECIPE, "data.name=csv", f"data.path={folder}", *words,
                "--json"])
    fields = {field["name"]: field for field in json.loads(done.stdout)["fields"]}
    columns = fields["inputs"]["channels"]
    mean, std = ([column[key] for column in columns] for key in ("mean", "std"))
    words.append(f"data.transform=[normalize: {{mean: {mean}, std: {std}}}]")
    values = dump(*words, count=40)["inputs"][1]
    for i in range(4):
        column = values[i::4]
        assert abs(sum(column)) < 1e-3 and abs(sum(x * x for x in column) / 40 - 1) < 1e-3, i
    refused(*words[:2], "data.transform=[normalize: {mean: [1, 2], std: 1}]", parts=["normalize"])
    refused(*words[:2], "data.transform=[resize: 3]", parts=["data.transform"])


def check_learns():
    """Test data have the numbers of the training data's classes, also if some are missing."""
    put_csv("t.csv", flowers(300, 1))
    test = flowers(100, 2)
    put_csv("e.csv", [row for row in test if row[4] != SPECIES[1]])
    run(train("mlp-jax", path("learned"), "data.name=csv", f"data.path={folder}",
              "data.train=t.csv", "data.test=e.csv", "data.fields={labels: species}",
              "model.num_classes=5", "batch.global=30", "trainer.max_epochs=15",
              "optimizer={name: adam, lr: 0.001}", "log.tensorboard=false"))
    best = max(float(line["accuracy"]) for line in entries(path("learned"), "val"))
    assert best > 0.95, best


def check_missing():
    """Missing values are refused, or become what the recipe says."""
    put("m.csv", b"age,fare,label\n,1,0\n3,NA,1\n4,2,1\n")
    refused("data.train=m.csv", parts=["m.csv:2", "'age'", "data.missing"])
    refused("data.train=m.csv", "data.missing={age: 9}", parts=["m.csv:3", "'fare'"])
    refused("data.train=m.csv", "data.missing={nope: 9}", parts=["'nope'"])
    refused("data.train=m.csv", "data.missing=zero", parts=["data.missing"])
    assert dump("data.train=m.csv", "data.missing={age: 9.5, fare: -1}",
                count=3)["inputs"][1] == [9.5, 1, 3, -1, 4, 2]
    put("na.csv", b"a,label\n1,US\n2,NA\n3,None\n")
    refused("data.train=na.csv", "data.missing=0", parts=["na.csv:3", "'NA'", "class}"])
    assert dump("data.train=na.csv", "data.missing={label: class}",
                count=3)["labels"][1] == [2, 0, 1]
    refused("data.train=na.csv", "data.missing={a: class}", parts=["'a'"])
    put("blank.csv", b"a,label\n1,NA\n2,\n")
    refused("data.train=blank.csv", "data.missing={label: class}", parts=["blank.csv:3"])
    assert dump("data.train=m.csv", "data.missing=0", count=3)["inputs"][1] == [0, 1, 3, 0, 4, 2]


def check_refuses():
    good = b"a,b,label\n1,2,0\n3,4,1\n"
    rows = {
        "short.csv": (b"a,b,label\n1,2,0\n1,2\n", ["short.csv:3", "2 fields"]),
        "word.csv": (b"a,b,label\n1,two,0\n", ["word.csv:2", "'b'", "'two'"]),
        "hex.csv": (b"a,b,label\n1,0x10,0\n", ["hex.csv:2", "'0x10'"]),
        "inf.csv": (b"a,b,label\n1,inf,0\n", ["inf.csv:2", "'inf'"]),
        "large.csv": (b"a,b,label\n1,1e39,0\n", ["large.csv:2", "'1e39'"]),
        "open.csv": (b'a,b,label\n1,"2,0\n3,4,1\n', ["open.csv:2", "quote"]),
        "tail.csv": (b'a,b,label\n1,"2"x,0\n', ["tail.csv:2", "quote"]),
        "nul.csv": (b"a,b,label\n1,2\0,0\n", ["nul.csv"]),
        "half.csv": (b"a,b,label\n1,2,0.5\n", ["half.csv:2", "'0.5'"]),
        "less.csv": (b"a,b,label\n1,2,-3\n", ["less.csv:2", "'-3'"]),
        "mixed.csv": (b"a,b,label\n1,2,0\n1,2,dog\n", ["mixed.csv:3", "'dog'"]),
        "other.csv": (b"a,b,label\n1,2,dog\n1,2,7\n", ["other.csv:3", "'7'"]),
        "empty.csv": (b"", ["empty.csv"]),
        "header.csv": (b"a,b,label\n\n", ["header.csv", "no samples"]),
        "twice.csv": (b"a,a,label\n1,2,0\n", ["twice.csv"]),
        "none.csv": (b"a,b,c\n1,2,0\n", ["none.csv", "data.fields", "{inputs: "]),
        "index.csv": (b",a,label\n0,2,0\n", ["index.csv", "column 1", "index=False"]),
        "again.csv": (b"a,Unnamed: 0,label\n2,0,0\n", ["again.csv", "'Unnamed: 0'", "data.fields"]),
    }
    for name, (data, parts) in rows.items():
        put(name, data)
        words = ["data.fields={inputs: [a], labels: label}"] if name == "twice.csv" else []
        refused(f"data.train={name}", *words, parts=parts)
    found = dump("data.train=index.csv", "data.fields={inputs: [a], labels: label}", count=1)
    assert found["inputs"] == ([1, 1], [2]), found
    put("both.csv", b"a,label,class\n1,0,0\n")
    refused("data.train=both.csv", parts=["both.csv", "'class'", "data.fields"])
    put("good.csv", good)
    refused("data.train=good.csv", "data.fields={labels: lable}", parts=["'lable'", "'label'"])
    refused("data.train=good.csv", "data.delimiter=ab", parts=["data.delimiter"])
    put("semicolons.csv", good.replace(b",", b";"))
    refused("data.train=semicolons.csv", "data.fields={labels: label}",
            parts=["semicolons.csv", "data.delimiter=';'"])
    refused("data.train=nope.csv", parts=["nope.csv"])
    put("test.csv", b"b,a,label\n1,2,0\n")
    refused("data.train=good.csv", "data.test=test.csv", parts=["test.csv", "data.fields"])
    put("names.csv", b"a,b,label\n1,2,cat\n1,2,dog\n")
    put("test.csv", b"a,b,label\n1,2,cow\n")
    refused("data.train=names.csv", "data.test=test.csv", parts=["test.csv:2", "'cow'"])
    # Names of two fields would have one numbering.
    put("two.csv", b"a,b,kind,label\n1,2,x,cat\n1,2,y,dog\n")
    refused("data.train=two.csv", "data.test=two.csv", "data.extra_fields={kind: i64}",
            "data.fields={inputs: [a, b], kind: kind, labels: label}",
            parts=["two.csv:2", "another field"])
    # Numbers are no classes where the training data have names.
    put("test.csv", b"a,b,label\n1,2,1\n1,2,0\n")
    refused("data.train=names.csv", "data.test=test.csv", parts=["test.csv", "names.csv"])
    put("test.csv", b"a,b,label\n1,2,dog\n1,2,1\n")
    refused("data.train=names.csv", "data.test=test.csv", parts=["test.csv:3", "'1'"])


def check_mixture():
    """One number means the same in all sources."""
    put("one.csv", b"a,b,label\n1,2,cat\n3,4,dog\n")
    put("same.csv", b"a,b,label\n5,6,dog\n5,6,cat\n")
    put("turned.csv", b"b,a,label\n6,5,cat\n6,5,dog\n")
    put("more.csv", b"a,b,label\n1,2,dog\n3,4,emu\n7,8,cat\n")
    put("less.csv", b"a,b,label\n1,2,dog\n")
    put("numbers.csv", b"a,b,label\n1,2,1\n3,4,0\n")

    def sources(other, fields=""):
        return f"data.mix=[{{name: csv, train: one.csv{fields}}}, " \
               f"{{name: csv, train: {other}{fields}}}]"

    found = dump(sources("same.csv"), kind="mixture", count=4)
    assert found["labels"][1] == [0, 1, 1, 0], found
    named = dump(sources("turned.csv", ", fields: {labels: label, inputs: [a, b]}"),
                 kind="mixture", count=4)
    assert named["inputs"][1] == [1, 2, 3, 4, 5, 6, 5, 6], named
    for other, parts in (("more.csv", ["source 2", "'emu'"]), ("less.csv", ["source 2", "'cat'"]),
                         ("numbers.csv", ["source 2", "numbers"]),
                         ("turned.csv", ["source 2", "'inputs'", "data.fields"])):
        refused(sources(other), parts=parts, kind="mixture")


def check_left_out():
    """With data.on_error=skip, damaged lines are left out of the loss, and named."""
    put("d.csv", b"a,b,label\n1,2,0\n1,x,1\n3\n3,4,1\n5,6,\n")
    refused("data.train=d.csv", parts=["d.csv:3"])
    words = ["data.train=d.csv", "data.on_error=skip"]
    assert dump(*words, count=5)["labels"][1] == [0, -100, -100, 1, -100]
    done = run(train("mlp-jax", path("left"), "data.name=csv", f"data.path={folder}", *words,
                     "data.test=d.csv", "batch.global=5", "trainer.max_epochs=1",
                     "log.tensorboard=false"))
    for line in (3, 4, 6):
        assert f"d.csv:{line}:" in done.stderr, done.stderr
    put("void.csv", b"a,label\n1,0\n2,255\n")
    refused("data.train=void.csv", parts=["255", "-100"])
    # The class of a line that is left out is none, in the numbers of other splits, too.
    put("c.csv", b"a,label\n1,n\n2,m\nbad,a\n")
    put("e.csv", b"a,label\n1,m\n2,n\nx,a\n")
    words = ["data.train=c.csv", "data.test=e.csv", "data.on_error=skip"]
    assert dump(*words, count=3)["labels"][1] == [1, 0, -100]
    assert dump(*words, "--split=test", count=3)["labels"][1] == [0, 1, -100]
    # Where not all are named, their number is.
    put("many.csv", b"a,b,label\n1,2,0\n3,4,1\n" + b"1,x,1\n" * 13)
    done = run(train("mlp-jax", path("many"), "data.name=csv", f"data.path={folder}",
                     "data.train=many.csv", "data.on_error=skip", "batch.global=15",
                     "trainer.max_epochs=1", "log.tensorboard=false"))
    assert done.stderr.count("many.csv:") == 10, done.stderr
    assert " 13 damaged samples" in done.stderr, done.stderr


LOSSES = """#include <trireme/trireme.h>
static void build(tri_graph *g, const tri_batch *batch) {
    static const float weights[3] = {1, 2, 3};
    int64_t which = tri_model_int(g, "case", 0);
    tri_value x = tri_linear(g, "fc", batch->inputs, 3), y = batch->labels;
    tri_value scores = tri_log_softmax(g, x), known = tri_map(g, "y -> y >= 0", y);
    tri_label_loss_options weighted = {.class_weights = weights}, smoothed = weighted;
    smoothed.label_smoothing = 0.1;
    if (which == 0) tri_loss(g, tri_cross_entropy_with(g, x, y, weighted));
    if (which == 1) tri_loss(g, tri_nll_loss_with(g, scores, y, weighted));
    if (which == 2) tri_loss(g, tri_cross_entropy_with(g, x, y, smoothed));
    if (which == 3) {
        tri_value sum = tri_cross_entropy_with(g, x, tri_ignore_label(g, y, 2), weighted);
        tri_loss(g, tri_add(g, sum, tri_weighted(g, tri_cross_entropy(g, x, y), 0.5)));
    }
    if (which == 4) {
        tri_value mask = tri_unsqueeze(g, tri_cast(g, known, TRI_F32), 1);
        int last = -1;
        tri_value hot = tri_mul(g, mask, tri_one_hot(g, y, 3));
        tri_value terms = tri_sum(g, tri_mul(g, hot, scores), &last, 1, false);
        tri_loss(g, tri_ratio_loss(g, tri_neg(g, terms), tri_sum(g, hot, &last, 1, false)));
    }
    if (which == 5) tri_loss(g, tri_mean_loss(g, tri_mul(g, tri_cast(g, known, TRI_F32),
                                                         tri_mean(g, x, (int[]){1}, 1, false))));
}
static const tri_task task = {.name = "losses", .build = build};
TRI_EXPORT_TASK(task)
"""


def check_left_out_of_losses():
    """A loss on labels is that of the samples that are whole, whatever it computes of them; one
    that divides by the number of all samples is refused."""
    put("losses.c", LOSSES.encode())
    subprocess.run(["cc", "-shared", "-fPIC", "-I", "include", path("losses.c"), "-o",
                    path("losses.so")], check=True)
    put("hurt.csv", b"a,b,label\n1,2,0\n1,x,1\n3\n3,4,1\n5,6,2\n")
    put("whole.csv", b"a,b,label\n1,2,0\n3,4,1\n5,6,2\n")

    def words(data, case):
        return train("mlp-jax", path(f"{data}-{case}"), "data.name=csv", f"data.path={folder}",
                     f"data.train={data}.csv", "data.on_error=skip", "batch.global=5",
                     f"model={{name: {path('losses.so')}, case: {case}}}", "trainer.max_epochs=1",
                     "log.tensorboard=false", "trainer.log_every_n_steps=1")
    for case in range(5):
        losses = []
        for data in "hurt", "whole":
            run(words(data, case))
            losses += [float(line["loss"]) for line in entries(path(f"{data}-{case}"), "train")]
        assert len(losses) == 2 and abs(losses[0] - losses[1]) < 1e-6, (case, losses)
    check_refused(words("hurt", 5), path("hurt-5"), ["data.on_error", "'loss'", "-100"])


def golden(name):
    return f"data.train={os.path.abspath(GOLDENS)}/{name}.parquet"


def check_parquet():
    """What pyarrow wrote: images, numbers of all types, lists of numbers, in any order of rows."""
    found = dump(golden("images-*"), "data.transform=[{resize: [2, 3]}]", kind="parquet",
                   count=14)
    assert found["labels"] == ([14], [i % 7 for i in range(14)]), found["labels"]
    pixels = [round(pixel * 255, 3) for pixel in found["images"][1]]
    assert pixels == [i for i in range(14) for _ in range(18)]
    last = dump(golden("images-{0..1}"), "data.transform=[{resize: [2, 3]}]", "--first=13",
                kind="parquet", count=1)
    assert last["images"][1] == found["images"][1][-18:] and last["labels"][1] == [6]
    found = dump(golden("types"), kind="parquet", count=5)
    wanted = [j % 2 if i == 0 else i + j for j in range(5) for i in range(11)]
    assert found["inputs"] == ([5, 11], wanted), found
    found = dump(golden("lists"), kind="parquet", count=4)
    assert found["targets"] == ([4, 2], [i for i in range(4) for _ in range(2)]), found
    assert found["inputs"] == ([4, 2, 2], [x for i in range(4)
                                             for x in (i + 0.5, i + 1, i + 2, i + 3)]), found


def check_parquet_is_missing():
    refused(golden("types"), parts=["data.name=parquet", "install-deps --parquet"], kind="parquet")


def grey(value):
    """A PGM image of 3 x 2 pixels, all of them `value`."""
    return b"P5 3 2 255\n" + bytes([value] * 6)


def check_parquet_refuses():
    for column, part in (("text", "text"), ("hole", "value"), ("ragged", "lengths"),
                         ("day", "date32"), ("nope", "nope")):
        refused(golden("bad"), f"data.fields={{inputs: {column}, labels: label}}",
                parts=["bad.parquet", f"'{column}'", part], kind="parquet")
    refused(golden("bad"), "data.fields={inputs: label, labels: less}", parts=["-7"],
            kind="parquet")
    folder_of = os.path.abspath(GOLDENS)
    refused(golden("ab"), f"data.test={folder_of}/ba.parquet", parts=["ba.parquet", "ab.parquet"],
            kind="parquet")
    with open(f"{GOLDENS}/images-0.parquet", "rb") as file:
        data = file.read()
    put("cut.parquet", data[:-9])
    refused("data.train=cut.parquet", parts=["cut.parquet"], kind="parquet")
    # A damaged row group is refused when it is read, or its samples are left out.
    at = data.index(grey(4)) - 20
    put("hurt.parquet", data[:at] + bytes(b ^ 255 for b in data[at:at + 60]) + data[at + 60:])
    words = ["data.train=hurt.parquet", "data.transform=[{resize: [28, 28]}]",
             "data.on_error=skip"]
    labels = dump(*words, kind="parquet", count=7)["labels"][1]
    assert labels == [0, 1, 2, -100, -100, -100, 6], labels


def check_parquet_text():
    """A column of text becomes the tokens that lines of JSON with the same texts become."""
    texts = ["The king", "", 'is "gone"\n', "caf\u00e9 and more"]
    tokenizer = f"data.tokenizer={os.path.abspath(GOLDENS)}/tokenizers/gpt2.json"
    words = [tokenizer, "data.sequence=3", f"data.cache={folder}"]
    # text-0 has missing values, text-1 large strings, text-2 a dictionary and the texts twice.
    put("texts.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in texts * 4).encode())
    wanted = dump("data.train=texts.jsonl", *words, kind="jsonl", count=11)["input_ids"]
    found = dump(golden("text-*"), *words, "data.on_error=skip", kind="parquet",
                 count=11)["input_ids"]
    assert found == wanted, (found, wanted)
    done = run([TRIREME, "data", "stats", RECIPE, "data.name=parquet", golden("text-*"), *words,
                "data.on_error=skip", "--json"])
    train = json.loads(done.stdout)
    assert train["documents"]["count"] == 16 and train["documents_left_out"] == 1, train
    for more, parts in (([], ["text-0.parquet", "row 2"]),
                        (["data.field=other"], ["text-0.parquet", "'other'", "int64"]),
                        (["data.field=txt"], ["text-0.parquet", "'txt'", "'text'"]),
                        (["data.fields={inputs: other}"], ["data.fields", "data.tokenizer"])):
        refused(golden("text-*"), *words, *more, parts=parts, kind="parquet")


def main():
    global folder
    parquet = (check_parquet, check_parquet_refuses, check_parquet_text)
    if not os.path.exists(os.path.join(os.path.dirname(TRIREME), "../lib/trireme/parquet.so")):
        print("Parquet is left out: its module is not built")
        parquet = (check_parquet_is_missing,)
    with tempfile.TemporaryDirectory(prefix="trireme-tables-") as folder:
        failed = check_all((check_written_by_python, check_fields, check_unused, check_no_header,
                            check_blanks, check_normalize, check_learns, check_missing,
                            check_refuses, check_mixture, check_left_out, check_left_out_of_losses,
                            *parquet))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
