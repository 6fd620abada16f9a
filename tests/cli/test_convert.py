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
    for i, kind in enumerate(("npy", "webdataset", "hdf5", "lmdb", "imagefolder", "tensors")):
        words = convert(kind, f"around-{i}", words)
        assert f"data.name={kind}" in words, words
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
    for i, kind in enumerate(("csv", "npy", "csv", "hdf5", "tensors")):
        words = convert(kind, f"numbers-{i}", words)
        assert samples(words, 40) == wanted, kind
    text = convert("imagefolder", "no", words, code=2)
    assert "inputs" in text and not os.path.exists(path("no")), text


def check_image_files():
    """Image files keep their bytes, whatever their sizes; arrays take those of one size alone."""
    words = ["data.name=lmdb", f"data.train={GOLDENS}/encoded.mdb"]
    wanted = samples(words, 5, transform="[resize: [7, 7]]")
    for i, kind in enumerate(("webdataset", "imagefolder", "lmdb")):
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


def check_classes():
    """A class without samples would change the numbers of others."""
    put_arrays("gap.st", {"labels": ("I64", [], struct.pack("<2q", 0, 2)),
                          "images": ("U8", [3, 1, 1], bytes(6))}, 2)
    words = ["data.name=tensors", f"data.train={path('gap.st')}"]
    assert "class 1" in convert("imagefolder", "gap", words, 2).splitlines()[-1]


def check_refuses():
    words = ["data.name=lmdb", f"data.train={GOLDENS}/encoded.mdb"]
    assert "webdataset" in convert("zip", "no", words, 2)
    assert "--to csv" in convert("csv", "no", words, 2)
    assert "nope" in convert("npy", "no", ["data.name=lmdb", "data.train=nope"], 2)
    assert not os.path.exists(path("no"))
    os.mkdir(path("full"))
    with open(path("full/x"), "w", encoding="utf-8"):
        pass
    assert "not empty" in convert("npy", "full", words, 2)


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


def check_killed():
    """A conversion that is killed goes on from its mark, and the result is that of a whole one."""
    count = 30000
    put_arrays("many.st", {"labels": ("I64", [], bytes(8 * count)),
                           "images": ("U8", [1, 4, 4], noise(16 * count))}, count)
    words = ["data.name=tensors", f"data.train={path('many.st')}"]
    wanted = samples(words, count)
    for kind in ("webdataset", "lmdb", "npy"):
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
        found = convert(kind, f"killed-{kind}", words)
        if kind == "npy":
            assert samples(found, count) == wanted, kind
        else:
            again = convert("npy", f"again-{kind}", found)
            # A grey image file is read as three equal channels.
            got = samples(again, count)
            assert [sample[1] for sample in got] == [sample[1] for sample in wanted], kind
            assert len(set(got)) == len(set(wanted)), kind


def main():
    global folder
    with tempfile.TemporaryDirectory(prefix="trireme-convert-") as folder:
        failed = check_all((check_around, check_numbers, check_image_files, check_classes,
                            check_refuses,                            check_left_out, check_killed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
