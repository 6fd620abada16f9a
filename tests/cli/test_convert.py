#!/usr/bin/env python3
"""`trireme data convert`: samples stay the same from one kind of data to the next, image files keep
their bytes, a killed conversion goes on, and what a kind cannot have is refused.

usage: test_convert.py BUILD_FOLDER
"""
import hashlib
import json
import os
import shutil
import signal
import struct
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import TRIREME, check_all, finish, run, start, wait_for  # noqa: E402
import tensors  # noqa: E402

RECIPE = "recipes/mlp-jax.yaml"
GOLDENS = os.path.abspath("tests/support/goldens")
HAS_PARQUET = os.path.exists(os.path.join(os.path.dirname(TRIREME), "../lib/trireme/parquet.so"))
PARQUET = ["parquet"] * HAS_PARQUET  # Arrow's library may be missing
folder = None


def path(name):
    return os.path.join(folder, name)


def convert(kind, out, words, code=0):
    """Converts, and returns the settings that read the result."""
    done = run([TRIREME, "data", "convert", RECIPE, *words, "--to", kind, "--out", path(out)],
               code=code)
    if code:
        lines = [line for line in done.stderr.splitlines() if line.startswith("trireme: ")]
        assert len(lines) == 1, done.stderr
        return done.stderr
    assert not os.path.exists(path(out) + "/.convert.json")
    lines = done.stdout.splitlines()
    assert lines[0] == "data:", done.stdout
    return [f"data.{key}={value.strip(' ' + chr(39))}" for key, _, value in
            (line.strip().partition(":") for line in lines[1:])]


def report(words):
    return json.loads(run([TRIREME, "data", "stats", RECIPE, *words, "--split=train",
                           "--json"]).stdout)


def samples(words, count, split="train", transform="[]"):
    """The samples as a model gets them, as a set, because imagefolder has another order."""
    out = path("out.safetensors")
    run([TRIREME, "data", "dump", RECIPE, *words, f"data.transform={transform}",
         f"--split={split}", f"--count={count}", f"--out={out}"])
    columns = []
    for name, (_, _, data) in sorted(tensors.read(out).items()):
        step = len(data) // count
        columns.append([(name, data[i * step:(i + 1) * step]) for i in range(count)])
    return sorted(zip(*columns))


def put_arrays(name, arrays, count):
    tensors.write(path(name), {key: (dtype, [count, *shape], values)
                               for key, (dtype, shape, values) in arrays.items()})


def noise(count):
    return b"".join(hashlib.sha256(b"%d" % i).digest() for i in range(count // 32 + 1))[:count]


def check_around():
    """Images of bytes go through all kinds, one after the other, and stay the same."""
    put_arrays("train.st", {"labels": ("I64", [], struct.pack("<50q", *(i * i * 5 // 3 % 6
                                                                        for i in range(50)))),
                            "images": ("U8", [3, 4, 5], noise(50 * 60))}, 50)
    put_arrays("test.st", {"labels": ("I64", [], struct.pack("<9q", *range(5, -4, -1)[:6], 0, 1,
                                                             2)),
                           "images": ("U8", [3, 4, 5], noise(9 * 60))}, 9)
    words = ["data.name=tensors", f"data.path={folder}", "data.train=train.st",
             "data.test=test.st"]
    train, test = samples(words, 50), samples(words, 9, "test")
    resize = "[resize: [4, 5]]"
    for i, kind in enumerate(("npy", "webdataset", "hdf5", "lmdb", "npz", *PARQUET, "imagefolder",
                              "tensors")):
        words = convert(kind, f"around-{i}", words)
        assert f"data.name={'npy' if kind == 'npz' else kind}" in words, words
        transform = resize if kind in ("webdataset", "lmdb", "imagefolder") else "[]"
        assert samples(words, 50, transform=transform) == train, kind
        assert samples(words, 9, "test", transform) == test, kind


def check_numbers():
    """Tables, and fields of a model's own kinds, in arrays and as text."""
    values = [(i * 37 % 101 - 50) / 7 for i in range(40 * 3)]
    put_arrays("n.st", {"inputs": ("F32", [3], struct.pack("<120f", *values)),
                        "targets": ("F64", [1], struct.pack("<40d", *values[:40]))}, 40)
    words = ["data.name=tensors", f"data.train={path('n.st')}"]
    wanted = samples(words, 40)
    for i, kind in enumerate(("npz", *PARQUET, "csv", "npy", "csv", "hdf5", "tensors")):
        words = convert(kind, f"numbers-{i}", words)
        assert samples(words, 40) == wanted, kind
        stored = {field["name"]: field["stored"] for field in report(words)["fields"]}
        assert stored == {"inputs": "F32", "targets": "F64" if i < len(PARQUET) + 1 else "F32"}
    text = convert("imagefolder", "no", words, code=2)
    assert "inputs" in text and not os.path.exists(path("no")), text


def check_settings():
    """What of the recipe still applies is in the section that is printed."""
    put_arrays("set.st", {"images": ("U8", [1, 2, 2], bytes(40)),
                          "labels": ("I64", [], bytes(80))}, 10)
    kept = ["data.limit=8", "data.val_fraction=0.25", "data.shuffle=false", "data.drop_last=true",
            "data.transform=[{normalize: {mean: [0.5], std: [0.25]}}]"]
    words = convert("npz", "set", ["data.name=tensors", f"data.train={path('set.st')}", *kept])
    assert [word for word in words if word in kept] == kept, words
    assert len(words) == len(kept) + 3, words  # and name, path and train, but no defaults


def check_types():
    """Types, shapes and fields of a recipe's own stay as they are."""
    types = ["U8", "I8", "U16", "I16", "U32", "I32", "I64", "F16", "F32", "F64", "BOOL"]
    wide = {"U8": 1, "I8": 1, "BOOL": 1, "U16": 2, "I16": 2, "F16": 2, "U32": 4, "I32": 4, "F32": 4}
    extra = f"data.extra_fields={{{', '.join(f'f{i}: f32' for i in range(4))}}}"
    for at in range(0, len(types), 4):
        arrays = {f"f{i}": (dtype, [[], [2, 3], [4], [1, 1, 2]][i],
                            bytes(k % 2 for k in range(3 * [1, 6, 4, 2][i] * wide.get(dtype, 8))))
                  for i, dtype in enumerate(types[at:at + 4])}
        put_arrays("types.st", arrays, 3)
        words = ["data.name=tensors", f"data.train={path('types.st')}", extra]
        wanted = report(words)["fields"]
        for kind in ("npz", *["hdf5"] * (at == 0), *PARQUET, "tensors"):
            words = convert(kind, f"types-{at}-{kind}", words)
            assert any(word.startswith("data.extra_fields=") for word in words), words
            assert sorted(map(str, report(words)["fields"])) == sorted(map(str, wanted)), kind


    put_arrays("half.st", {"inputs": ("F16", [2], bytes(8))}, 2)
    words = ["data.name=tensors", f"data.train={path('half.st')}"]
    assert "F16" in convert("hdf5", "no", words, 2) and not os.path.exists(path("no"))


def check_bytes():
    """Plain files of bytes and tokens, which hold nothing else."""
    put_arrays("grey.st", {"labels": ("I64", [], struct.pack("<6q", 0, 255, 3, 1, 1, 9)),
                           "images": ("U8", [1, 5, 4], noise(120))}, 6)
    put_arrays("rgb.st", {"labels": ("I32", [], struct.pack("<4i", 0, 9, 3, 1)),
                          "images": ("U8", [3, 32, 32], noise(4 * 3072))}, 4)
    ids = [i * i * 7919 % 100000 for i in range(60)]
    put_arrays("ids.st", {"input_ids": ("I64", [12], struct.pack("<60q", *ids))}, 5)
    for kind, name, count in (("idx", "grey", 6), ("cifar10", "rgb", 4), ("tokens", "ids", 5)):
        words = ["data.name=tensors", f"data.path={folder}", f"data.train={name}.st",
                 f"data.test={name}.st"]
        wanted = samples(words, count)
        words = convert(kind, f"bytes-{kind}", words)
        assert samples(words, count) == wanted == samples(words, count, "test"), kind
        assert samples(convert("npz", f"of-{kind}", words), count) == wanted, kind
    assert "data.train=train.u32" in words and "data.sequence=12" in words, words
    words = [TRIREME, "data", "convert", RECIPE, *words, "--to", "tokens", "data.test=null"]
    assert "not converted" not in run([*words, "--out", path("all")]).stderr
    done = run([*words, "data.sequence=11", "--out", path("cut")])
    assert "train: not converted: 5 tokens" in done.stderr, done.stderr
    put_arrays("ids.st", {"input_ids": ("I64", [2], struct.pack("<2q", 7, 65535))}, 1)
    assert "data.train=train.u16" in convert("tokens", "short", [
        "data.name=tensors", f"data.train={path('ids.st')}"])
    grey = ["data.name=tensors", f"data.train={path('grey.st')}"]
    rgb = ["data.name=tensors", f"data.train={path('rgb.st')}", f"data.test={path('rgb.st')}"]
    for kind, words, part in (("idx", grey, "test data"), ("idx", rgb, "[3, 32, 32]"),
                              ("cifar10", [*grey, grey[1].replace("train", "test")], "[1, 5, 4]"),
                              ("tokens", grey, "input_ids"), ("csv", rgb, "inputs")):
        text = convert(kind, "no", words, code=2).splitlines()[-1]
        assert f"--to {kind}" in text and part in text and not os.path.exists(path("no")), text


def check_image_files():
    """Image files keep their bytes, whatever their sizes; arrays take those of one size alone."""
    words = ["data.name=lmdb", f"data.train={GOLDENS}/encoded.mdb"]
    wanted = samples(words, 5, transform="[resize: [7, 7]]")
    for i, kind in enumerate(("webdataset", "imagefolder", *PARQUET, "lmdb")):
        words = convert(kind, f"files-{i}", words)
        assert samples(words, 5, transform="[resize: [7, 7]]") == wanted, kind
    for root, _, files in os.walk(path("files-1")):
        for name in files:
            with open(os.path.join(root, name), "rb") as file:
                assert file.read().startswith(b"P5 3 2 255\n"), name
    os.makedirs(path("mixed/a"))
    for side in (2, 3):
        with open(path(f"mixed/a/{side}.pgm"), "wb") as file:
            file.write(b"P5 %d 2 255\n" % side + bytes(2 * side))
    text = convert("npy", "mixed-out", ["data.name=imagefolder", f"data.path={path('mixed')}"], 2)
    assert "differ in size" in text, text


def check_mixture():
    """Image files of each source keep their bytes; images of arrays become files."""
    put_arrays("mix.st", {"labels": ("I64", [], struct.pack("<4q", 0, 1, 2, 1)),
                          "images": ("U8", [3, 4, 5], noise(4 * 60))}, 4)
    lmdb = f"{{name: lmdb, train: {GOLDENS}/encoded.mdb}}"
    words = ["data.name=mixture",
             f"data.mix=[{lmdb}, {{name: tensors, train: {path('mix.st')}}}, {lmdb}]"]
    wanted = samples(words, 14, transform="[resize: [7, 7]]")
    for kind in ("webdataset", "imagefolder", "lmdb"):
        out = convert(kind, f"mixture-{kind}", words)
        assert samples(out, 14, transform="[resize: [7, 7]]") == wanted, kind
    text = convert("npy", "mixture-npy", words, 2)
    assert "differ in size" in text, text


def check_classes():
    """A class without samples would change the numbers of others."""
    put_arrays("gap.st", {"labels": ("I64", [], struct.pack("<2q", 0, 2)),
                          "images": ("U8", [3, 1, 1], bytes(6))}, 2)
    words = ["data.name=tensors", f"data.train={path('gap.st')}"]
    assert "class 1" in convert("imagefolder", "gap", words, 2).splitlines()[-1]


def check_refuses():
    words = ["data.name=lmdb", f"data.train={GOLDENS}/encoded.mdb"]
    assert "webdataset" in convert("zip", "no", words, 2)
    assert "--to tokens" in convert("jsonl", "no", words, 2)
    assert "superclass" in convert("cifar100", "no", words, 2)
    assert "--to csv" in convert("csv", "no", words, 2)
    assert "nope" in convert("npy", "no", ["data.name=lmdb", "data.train=nope"], 2)
    assert not os.path.exists(path("no"))
    os.mkdir(path("full"))
    with open(path("full/x"), "w", encoding="utf-8"):
        pass
    assert "not empty" in convert("npy", "full", words, 2)


def check_length():
    """A file that may not become so long: one line, and no crash of the library that writes it."""
    words = ["data.name=synthetic", "data.shape=[1,28,28]", "data.classes=10", "data.samples=600"]
    done = run(["sh", "-c", 'ulimit -f 1000; exec "$@"', "sh", TRIREME, "data", "convert", RECIPE,
                "--to", "hdf5", "--out", path("long"), *words], 1)
    assert "train.h5" in done.stderr and "too large" in done.stderr, done.stderr


def check_left_out():
    with open(f"{GOLDENS}/datum.mdb", "rb") as file:
        data = bytearray(file.read())
    at = data.index(b"00000042") + 8
    data[at] = 0xff
    with open(path("hurt.mdb"), "wb") as file:
        file.write(data)
    words = ["data.name=lmdb", f"data.train={path('hurt.mdb')}", "data.on_error=skip"]
    found = samples(convert("webdataset", "left", words), 89, transform="[resize: [4, 2]]")
    whole = samples(["data.name=lmdb", f"data.train={GOLDENS}/datum.mdb"], 90)
    assert len(found) == 89 and set(found) < set(whole)
    assert "sample 42" in convert("npy", "left-npy", words, 2)


def check_formats():
    """bench data measures a part of the data as other kinds, and leaves nothing behind."""
    words = [TRIREME, "bench", "data", RECIPE, "data.name=tensors", f"data.train={path('rgb.st')}",
             "data.workers=1", "data.transform=[{normalize: {mean: [0.5], std: [0.2]}}]",
             "--seconds=0.01"]
    os.mkdir(path("tmp"))
    env = {**os.environ, "TMPDIR": path("tmp")}
    done = run([*words, "--formats=npy,webdataset,lmdb,csv", "--json"], env=env)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    workers = [row["workers"] for row in rows if row["format"] == "tensors"]
    assert workers[0] == 0 and workers[-1] == 1, workers
    for kind in ("npy", "webdataset", "lmdb"):
        assert [row["workers"] for row in rows if row["format"] == kind] == workers, rows
    assert all(row["samples_per_s"] > 0 for row in rows[:-1]), rows
    assert rows[-1]["format"] == "csv" and "--to csv" in rows[-1]["refusal"], rows
    text = run([*words, "--formats=all"], env=env).stdout
    for part in ("cifar10 ", "hdf5 ", "tokens: left out", "data.workers="):
        assert part in text, (part, text)
    assert text.count("tensors ") == 1 or "than tensors" in text, text
    assert not os.listdir(path("tmp"))
    assert "'npy'" in run([*words, "--formats=npi"], code=2).stderr


def check_killed():
    """A conversion that is killed goes on from its mark, and the result is that of a whole one."""
    count = 30000
    images = noise(16 * count)

    def put(labels):
        put_arrays("many.st", {"labels": ("I64", [], labels), "images": ("U8", [1, 4, 4], images)},
                   count)
    put(bytes(8 * count))
    words = ["data.name=tensors", f"data.train={path('many.st')}"]
    wanted = samples(words, count)
    for kind in ("webdataset", "lmdb", "npy", "npz", *PARQUET):
        out = path(f"killed-{kind}")
        child = start([TRIREME, "data", "convert", RECIPE, *words, "--to", kind, "--out", out])

        def is_begun(progress=os.path.join(out, ".convert.json")):
            try:
                with open(progress, encoding="utf-8") as file:
                    return json.load(file)["train"][0] > 0
            except OSError:
                return False
        if wait_for(is_begun, "a mark", 60, child):
            child.send_signal(signal.SIGKILL)
        finish(child)
        if not os.path.exists(os.path.join(out, ".convert.json")):
            print(f"  {kind}: complete before it could be killed")
            shutil.rmtree(out)
        else:  # of a process that was killed before it could rename it
            with open(os.path.join(out, "train-000000.0123456789abcdef.tmp"), "wb"):
                pass
            with open(os.path.join(out, ".convert.json"), encoding="utf-8") as file:
                done = json.load(file)["train"][0]
            one = (1).to_bytes(8, "little")
            put(bytes(8) + one * (done - 2) + bytes(8 * (count - done + 1)))  # in the middle
            assert done < 3 or "other data" in convert(kind, f"killed-{kind}", words, 2)
            put(bytes(8 * count))
        found = convert(kind, f"killed-{kind}", words)
        left = [name for name in os.listdir(out) if name.endswith(".tmp")]
        assert not left, f"{kind}: {left}"
        if kind in ("npy", "npz", "parquet"):
            assert samples(found, count) == wanted, kind
        else:
            again = convert("npy", f"again-{kind}", found)
            # A grey image file is read as three equal channels.
            got = samples(again, count)
            assert [sample[1] for sample in got] == [sample[1] for sample in wanted], kind
            assert len(set(got)) == len(set(wanted)), kind


def check_changed():
    """A conversion that ended early goes on where data were repaired, and refuses other data."""
    def put(name, value, pixels=6):
        with open(path(f"changed/a/{name}.pgm"), "wb") as file:
            file.write(b"P5 3 2 255\n" + bytes([value] * pixels))
    os.makedirs(path("changed/a"))
    words = ["data.name=imagefolder", f"data.path={path('changed')}"]
    for name in range(4):
        put(name, name + 1, 6 if name < 3 else 0)
    assert "3.pgm" in convert("imagefolder", "changed-out", words, 2)
    put(0, 9)
    put(3, 4)
    assert "other data" in convert("imagefolder", "changed-out", words, 2)
    put(0, 1)
    convert("imagefolder", "changed-out", words)


def main():
    global folder
    if not HAS_PARQUET:
        print("without Arrow's library: parquet is left out")
    with tempfile.TemporaryDirectory(prefix="trireme-convert-") as folder:
        failed = check_all((check_around, check_numbers, check_settings, check_types, check_bytes,
                            check_image_files, check_mixture, check_classes, check_refuses,
                            check_length, check_left_out, check_changed, check_formats,
                            check_killed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
