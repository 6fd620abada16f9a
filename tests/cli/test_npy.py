#!/usr/bin/env python3
"""NumPy arrays as data, and files of other kinds: the error names the kind and what to do.

usage: test_npy.py BUILD_FOLDER
"""
import gzip
import io
import json
import os
import pickle
import struct
import sys
import tarfile
import tempfile
import zipfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import TRIREME, check_all, entries, run  # noqa: E402

RECIPE = "recipes/mlp-jax.yaml"
folder = None


def array(descr, shape, data, *, fortran="False", version=1, text=None):
    """A .npy file as numpy.save writes it; `text` is another dictionary."""
    text = text or f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}"
    head = text.encode()
    start = 10 if version == 1 else 12
    head += b" " * (-(start + len(head) + 1) % 64) + b"\n"
    size = struct.pack("<H" if version == 1 else "<I", len(head))
    return b"\x93NUMPY" + bytes((version, 0)) + size + head + data


def put(name, data):
    with open(os.path.join(folder, name), "wb") as file:
        file.write(data)


def put_archive(name, method=zipfile.ZIP_STORED, **arrays):
    """As numpy.savez and numpy.savez_compressed: streamed members in the 64-bit form."""
    with zipfile.ZipFile(os.path.join(folder, name), "w", method) as archive:
        for member, data in arrays.items():
            with archive.open(member + ".npy", "w", force_zip64=True) as file:
                file.write(data)


IMAGES = array("|u1", (6, 2, 2), bytes(range(24)))
LABELS = array("<i8", (6,), struct.pack("<6q", 0, 1, 2, 0, 1, -100))


def check(*words, code=0, kind="npy"):
    return run([TRIREME, "data", "check", RECIPE, f"data.name={kind}", f"data.path={folder}",
                *words, "--json"], code=code)


def report(*words):
    return json.loads(check(*words).stdout.splitlines()[0])


def refused(*words, parts, kind="npy"):
    done = run([TRIREME, "train", RECIPE, f"data.name={kind}", *words, "--run-dir",
                os.path.join(folder, "run")], code=2)
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and all(part in lines[0] for part in parts), (words, done.stderr)
    assert not os.path.exists(os.path.join(folder, "run"))


def check_forms():
    """One archive, files of each array, arrays of an archive with other names: the same data."""
    put("x.npy", IMAGES)
    put("y.npy", LABELS)
    put_archive("plain.npz", images=IMAGES, labels=LABELS)
    put_archive("packed.npz", zipfile.ZIP_DEFLATED, images=IMAGES, labels=LABELS)
    put_archive("keras.npz", x_train=IMAGES, y_train=LABELS, x_test=IMAGES, y_test=LABELS)
    put_archive("turned.npz", labels=LABELS, images=IMAGES)
    # One field in several files, cut elsewhere than another one.
    put("x0.npy", array("|u1", (2, 2, 2), bytes(range(8))))
    put_archive("x12.npz", x=array("|u1", (4, 2, 2), bytes(range(8, 24))))
    put("y01.npy", array("<i8", (5,), struct.pack("<5q", 0, 1, 2, 0, 1)))
    put("y2.npy", array("<i8", (1,), struct.pack("<q", -100)))
    first = report("data.train=plain.npz")
    assert first["samples"] == 6 and first["classes"] == 3, first
    fields = {field["name"]: field for field in first["fields"]}
    assert fields["images"]["shape"] == [1, 2, 2] and fields["images"]["dtype"] == "F32", first
    assert abs(fields["images"]["max"] - 23 / 255) < 1e-6, first
    for train in ("packed.npz", "turned.npz", "{labels: y.npy, images: x.npy}",
                  "{images: keras.npz:x_train, labels: keras.npz:y_train}",
                  f"{{images: {folder}/x.npy, labels: packed.npz:labels}}",
                  "{images: [x0.npy, 'x12.npz:x'], labels: [y01.npy, y2.npy]}"):
        assert report(f"data.train={train}") == first, train
    refused(f"data.path={folder}", "data.train={images: [x0.npy, x.npy], labels: y.npy}",
            parts=["y.npy", "6 samples", "8"])
    refused(f"data.path={folder}", "data.train={images: [x0.npy, y.npy], labels: y.npy}",
            parts=["y.npy", "x0.npy"])
    refused(f"data.path={folder}", "data.train={images: []}", parts=["images"])
    losses = []
    for name, train in (("one", "packed.npz"), ("two", "{images: x.npy, labels: y.npy}"),
                        ("three", "turned.npz")):
        run_dir = os.path.join(folder, name)
        run([TRIREME, "train", RECIPE, "data.name=npy", f"data.path={folder}",
             f"data.train={train}", "data.test=plain.npz", "batch.global=4",
             "trainer.max_epochs=2", "log.tensorboard=false", "--run-dir", run_dir])
        losses.append([line["loss"] for line in entries(run_dir, "val")])
        # One of 6 has the label -100.
        assert [line["samples"] for line in entries(run_dir, "val")] == [5, 5]
    assert losses[0] == losses[1] == losses[2] and len(losses[0]) == 2


def check_beside():
    """Files that a recipe names without data.path lie in the working directory or beside it."""
    recipe = os.path.join(folder, "own.yaml")
    put_archive("plain.npz", images=IMAGES, labels=LABELS)
    put("x.npy", IMAGES)
    for train in ("plain.npz", "{images: 'plain.npz:images', labels: 'plain.npz:labels'}"):
        put("own.yaml", b"model: {name: mlp-jax}\n"
            b"data: {name: npy, test: plain.npz, train: %s}\n" % train.encode())
        here = run([TRIREME, "data", "check", "own.yaml", "--json"], cwd=folder).stdout
        assert json.loads(here.splitlines()[0])["samples"] == 6, here
        assert run([TRIREME, "data", "check", recipe, "--json"]).stdout == here
    # An override is taken literally.
    done = run([TRIREME, "data", "check", recipe, "data.train={images: x.npy}"], code=2)
    assert "x.npy: cannot open" in done.stderr, done.stderr


def check_types():
    """All types, byte orders and versions of the header give the numbers that were stored."""
    values = [0, 1, 2, 3, 100, 5]
    types = {"b": "i1", "B": "u1", "h": "i2", "H": "u2", "i": "i4", "I": "u4", "q": "i8", "Q": "u8",
             "e": "f2", "f": "f4", "d": "f8"}
    for version in (1, 2, 3):
        for letter, word in types.items():
            for order in "<>":
                data = struct.pack(f"{order}6{letter}", *values)
                put("inputs.npy", array(order + word, "(3, 2)", data, version=version))
                field = report("data.train={inputs: inputs.npy}")["fields"][0]
                assert (field["min"], field["max"]) == (0, 100), (order, word, field)
                assert abs(field["mean"] - 18.5) < 1e-3 and field["shape"] == [2], field
    put("inputs.npy", array("|b1", "(2, 2)", bytes((0, 1, 1, 0))))
    assert report("data.train={inputs: inputs.npy}")["fields"][0]["mean"] == 0.5
    for text in ('{"shape":(2,2),"fortran_order":False,"descr":"<f4"}',
                 "{'shape': (2L, 2L), 'descr': '<f4', 'fortran_order': False}"):
        put("inputs.npy", array("", "", bytes(16), text=text))
        assert report("data.train={inputs: inputs.npy}")["samples"] == 2
    big = array("|u1", (300, 4, 4), bytes(300 * 16))  # a deflated member far smaller than it is
    put_archive("big.npz", zipfile.ZIP_DEFLATED, images=big,
                labels=array(">i4", (300,), struct.pack(">300i", *(i % 7 for i in range(300)))))
    assert report("data.train=big.npz")["classes"] == 7


def check_refused():
    put_archive("keras.npz", x_train=IMAGES, y_train=LABELS)
    put("x.npy", IMAGES)
    for data, parts in (
            (array("<f4", "(2, 2)", bytes(16), fortran="True"), ["Fortran", "ascontiguousarray"]),
            (array("|O", "(2,)", b"..."), ["Python objects"]),
            (array("<U5", "(2,)", bytes(40)), ["texts"]), (array("<c8", "(2, 1)", bytes(16)),
                                                          ["complex"]),
            (array("<f16", "(2, 1)", bytes(32)), ["another size"]),
            (array("", "", b"", text="{'descr': [('a', '<f4')], 'fortran_order': False, "
                   "'shape': (1,)}"), ["structured"]),
            (array("<f4", "(2, 2)", bytes(15)), ["truncated", "16 bytes, and 15"]),
            (array("<f4", "(2, 2)", bytes(17)), ["too many"]),
            (array("<f4", "(2, 2", bytes(16)), ["header is damaged"]),
            (array("<f4", "(-2, 2)", bytes(16)), ["header is damaged"]),
            (array("<f4", "(2, 2)", bytes(16), version=7), ["version 7"]),
            (array("<f4", f"({2**62}, 4, 2)", bytes(16)), ["overflows"]),
            (array("<f4", f"({2**70},)", bytes(16)), ["header is damaged"]),
            (array("<f4", "(1,1,1,1,1,1,1,1)", bytes(4)), ["axes"]),
            (array("<f4", "()", bytes(4)), ["no samples"]),
            (array("<f4", "(0, 3)", b""), ["no samples"]),
            (b"\x93NUMPY\x01\0", ["not a NumPy array"]), (b"no array", ["not a NumPy array"]),
            (b"", ["not a NumPy array"])):
        put("bad.npy", data)
        refused("data.train={inputs: bad.npy}", f"data.path={folder}", parts=["bad.npy", *parts])
    put("y.npy", array("<i8", "(3,)", struct.pack("<3q", 0, -5, 1)))
    refused(f"data.train={{labels: {folder}/y.npy}}",
            parts=["sample 1 is -5", "not a class", "0 to "])
    put("y.npy", array("<f4", "(3,)", bytes(12)))
    refused(f"data.train={{labels: {folder}/y.npy}}",
            parts=["F32", "does not convert to I64", "astype"])
    # One-hot labels are another field's numbers, or those of argmax.
    put("y.npy", array("<f4", "(3, 2)", bytes(24)))
    refused(f"data.train={{labels: {folder}/y.npy}}", parts=["soft_labels", "argmax"])
    put("y.npy", array("<i8", "(6, 10)", bytes(480)))
    refused(f"data.train={{images: {folder}/x.npy, labels: {folder}/y.npy}}",
            parts=["labels", "argmax"])
    put("y.npy", array("<i8", "(6, 1)", bytes(48)))
    refused(f"data.train={{images: {folder}/x.npy, labels: {folder}/y.npy}}",
            parts=["labels", "squeeze"])
    put("y.npy", array("<i8", "(3,)", bytes(24)))
    refused(f"data.train={{images: {folder}/x.npy, labels: {folder}/y.npy}}",
            parts=["3 samples", "has 6"])
    refused(f"data.train={folder}/keras.npz", parts=["x_train", "{images: "])
    refused(f"data.train={folder}/x.npy", parts=["{images: x.npy, labels: y.npy}"])
    refused(f"data.train={folder}/keras.npz:x_train",
            parts=["names one array", "{images: ", "keras.npz:x_train"])
    put("notes.txt", b"what these files are\n")
    refused(f"data.train={folder}/notes.txt", parts=["notes.txt", "not a NumPy array"])
    refused(f"data.train={{images: {folder}/keras.npz}}", parts=["holds 2 arrays", ":NAME"])
    refused(f"data.train={{images: {folder}/keras.npz:x}}", parts=["no array 'x'", "x_train"])
    refused(f"data.train={{images: {folder}/x.npy:x}}", parts=["not an archive"])
    refused(f"data.train={{images: [[{folder}/x.npy]]}}", parts=["'images'", "FILE.npz:ARRAY"])
    refused("data.train={}", parts=["no files"])
    refused("data.train={image: x.npy}", f"data.path={folder}", parts=["did you mean 'images'"])
    refused(parts=["data.train is not set"])
    refused(f"data.train={folder}/nowhere.npz", parts=["nowhere.npz"])


def check_damage():
    """Bytes that are wrong anywhere in an archive are found, or the data are what they were."""
    for name, method in (("plain.npz", zipfile.ZIP_STORED), ("packed.npz", zipfile.ZIP_DEFLATED)):
        put_archive(name, method, images=IMAGES, labels=LABELS)
        with open(os.path.join(folder, name), "rb") as file:
            whole = file.read()
        good, found = report(f"data.train={name}"), 0
        for at in range(0, len(whole), 17):
            put("hurt.npz", whole[:at] + bytes((whole[at] ^ 0x55,)) + whole[at + 1:])
            done = check("data.train=hurt.npz", code=None)
            assert done.returncode in (0, 1, 2), (name, at, done)
            found += done.returncode != 0
            assert done.returncode or json.loads(done.stdout) == good, (name, at, done)
        assert found > 5, found
        # Training compares the checksums of the data, too.
        at = len(whole) // 2
        put("hurt.npz", whole[:at] + bytes((whole[at] ^ 0x55,)) + whole[at + 1:])
        refused(f"data.train={folder}/hurt.npz", parts=["hurt.npz", "is damaged"])
        for size in (0, 3, 20, len(whole) // 2, len(whole) - 1):
            put("short.npz", whole[:size])
            assert check("data.train=short.npz", code=None).returncode in (1, 2), size


def check_other_kinds():
    """A file of another kind is named by what it holds, whatever its name says."""
    torch = io.BytesIO()
    with zipfile.ZipFile(torch, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}q\x00.")
        archive.writestr("archive/version", b"3\n")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("x"))
    other = io.BytesIO()
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("picture.png", b"")
    old = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03."
    npz = io.BytesIO()
    with zipfile.ZipFile(npz, "w") as archive:
        archive.writestr("images.npy", IMAGES)
    rows = {
        "x.pt": (torch.getvalue(), "a PyTorch file", "safetensors.torch.save_file"),
        "old.pth": (old, "a PyTorch file", "safetensors.torch.save_file"),
        "x.pkl": (pickle.dumps({"images": [1]}), "a Python pickle", "numpy.savez"),
        "x.csv": (b"label,pixel1,pixel2\n1,2,3\n", "CSV", "data.name=csv"),
        "x.h5": (b"\x89HDF\r\n\x1a\n" + bytes(99), "an HDF5 file", "data.name=hdf5"),
        "x.png": (b"\x89PNG\r\n\x1a\n" + bytes(99), "one PNG image", "[N, C, H, W]"),
        "x.jpg": (b"\xff\xd8\xff\xe0" + bytes(99), "one JPEG image", "[N, C, H, W]"),
        "x.parquet": (b"PAR1" + bytes(99), "a Parquet file", "data.name=parquet"),
        "x.tar": (packed.getvalue(), "a tar archive", "data.name=webdataset"),
        "x.zip": (other.getvalue(), "a zip archive", "unpack"),
        "x.npy": (IMAGES, "a NumPy array", "data.name=npy"),
        "x.npz": (npz.getvalue(), "NumPy arrays", "data.name=npy"),
        "x.json": (b'[{"image": 1}]\n', "JSON", "numpy.savez"),
        "x.idx": (struct.pack(">II", 0x801, 1) + b"\0", "an IDX file", "data.name=idx"),
        "x.gz": (gzip.compress(b"x" * 99), "gzip-compressed", "unpack"),
        "x.safetensors": (struct.pack("<Q", 2) + b"{}", "a safetensors file", "data.name=tensors"),
    }
    for name, (data, what, advice) in rows.items():
        put(name, data)
        path = os.path.join(folder, name)
        for kind in ("tensors", "npy", "idx", "tokens"):
            own = {"npy": ("x.npy", "x.npz"), "tensors": ("x.safetensors",),
                   "idx": ("x.idx", "x.gz"), "tokens": ("x.csv", "x.json", "x.pkl", "x.idx")}
            if name in own[kind]:
                continue
            key = "data.path" if kind == "idx" else "data.train"
            words = [f"data.train={{images: {path}}}"] if kind == "npy" else [f"{key}={path}"]
            refused(*words, kind=kind, parts=[path, what, advice, f"data.name={kind}"])
    for kind in ("tensors", "npy", "tokens"):
        refused(f"data.path={folder}", kind=kind, parts=[folder, "folder" if kind != "tokens"
                                                         else "is not a file"])
    refused(f"data.path={folder}/x.idx", kind="idx", parts=["x.idx", "folder"])
    put("train-images-idx3-ubyte", rows["x.png"][0])
    put("train-labels-idx1-ubyte", rows["x.idx"][0])
    refused(f"data.path={folder}", kind="idx", parts=["train-images-idx3-ubyte", "one PNG image"])


def main():
    global folder
    with tempfile.TemporaryDirectory(prefix="trireme-npy-") as folder:
        failed = check_all((check_forms, check_beside, check_types, check_refused,
                            check_damage, check_other_kinds))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
