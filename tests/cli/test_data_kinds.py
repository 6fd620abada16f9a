#!/usr/bin/env python3
"""Tar archives, HDF5 files and LMDB databases as data: `data dump` writes the samples that they
contain, in their order, whatever wrote them; damaged files are refused by name.

usage: test_data_kinds.py BUILD_FOLDER
"""
import fcntl
import gzip
import io
import json
import os
import resource
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import zlib

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import TRIREME, check_all, entries, on_ranks, run  # noqa: E402
import tensors  # noqa: E402

RECIPE = "recipes/mlp-jax.yaml"
GOLDENS = "tests/support/goldens"
folder = None


def path(name):
    return os.path.join(folder, name)


def dump(*words, count, code=0, transform="[]"):
    """The tensors of `data dump`, each as its shape and values."""
    out = path("out.safetensors")
    ended = run([TRIREME, "data", "dump", RECIPE, f"data.path={folder}", *words,
                 f"data.transform={transform}", f"--count={count}", f"--out={out}"], code=code)
    if code:
        assert len(ended.stderr.splitlines()) == 1, ended.stderr
        return ended.stderr
    return {name: (tensor[1], tensors.numbers(tensor))
            for name, tensor in tensors.read(out).items()}


def grey(value):
    """A PGM image of 3 x 2 pixels, all of them `value`."""
    return b"P5 3 2 255\n" + bytes([value] * 6)


def write_tar(name, members, form=tarfile.PAX_FORMAT, mode="w"):
    with tarfile.open(path(name), mode, format=form) as tar:
        for member, data in members:
            info = tarfile.TarInfo(member)
            info.size, info.mtime = len(data), 1.25
            tar.addfile(info, io.BytesIO(data))


def sample(key, value, extension="png"):
    """The files of a sample; what they contain says what format an image has."""
    return [(key + "." + extension, grey(value)), (key + ".cls", str(value % 7).encode()),
            (key + ".json", b"{}")]


def expect_greys(found, values):
    shape, pixels = found["images"]
    assert shape == [len(values), 3, 2, 3], shape
    for i, value in enumerate(values):
        got = {round(pixel * 255, 3) for pixel in pixels[i * 18:(i + 1) * 18]}
        assert got == {float(value)}, (i, value, got)
    assert found["labels"][1] == [value % 7 for value in values], found["labels"]


def dump_greys(*words, count):
    return dump("data.name=webdataset", *words, count=count, transform="[{resize: [2, 3]}]")


def check_webdataset():
    """Long names, every form of tar, compression, patterns, fields in any order and case."""
    long = "deep.folder/" + "n" * 180
    write_tar("a-000.tar", sample(long, 1) + sample("b", 2, "JPEG")[::-1])
    write_tar("a-001.tar", sample(long, 3) + [("README", b"x")] + sample("x.y/b", 4),
              tarfile.GNU_FORMAT)
    write_tar("a-002.tar", sample("c", 5, "Jpg"), tarfile.USTAR_FORMAT)
    expect_greys(dump_greys("data.train=a-{000..002}.tar", count=5), [1, 2, 3, 4, 5])
    expect_greys(dump_greys("data.train=a-*.tar", count=5), [1, 2, 3, 4, 5])
    expect_greys(dump_greys("data.train=a-00{2,0}.tar", count=3), [5, 1, 2])
    with open(path("a-001.tar"), "rb") as plain, gzip.open(path("z.tgz"), "wb") as packed:
        shutil.copyfileobj(plain, packed)
    expect_greys(dump_greys("data.train=[z.tgz, a-002.tar]", count=3), [3, 4, 5])
    expect_greys(dump_greys("data.train=a-000.tar", "--first=1", count=1), [2])
    # What is there by its very name is no pattern, and the name of a folder never is.
    for name in ("in1", "in[1]", "in{1,2}"):
        os.mkdir(path(name))
    shutil.copy(path("a-000.tar"), path("in1/t1.tar"))
    for name in ("in[1]/t1.tar", "in[1]/t[1].tar", "in{1,2}/t{1..3}.tar"):
        shutil.copy(path("a-002.tar"), path(name))
    shutil.copy(path("a-000.tar"), path("in[1]/t1.tar"))
    for place, name, greys in (("in[1]", "t[1].tar", [5]), ("in[1]", "t1.tar", [1, 2]),
                               ("in[1]", "t*.tar", [1, 2, 5]), ("in{1,2}", "t{1..3}.tar", [5]),
                               ("in{1,2}", "t?1*.tar", [5])):
        expect_greys(dump_greys(f"data.path={path(place)}", f"data.train={name}",
                                count=len(greys)), greys)


def check_found_beside_the_recipe():
    """A pattern is relative to the recipe's folder if no such file is in the working directory."""
    write_tar("p-0.tar", sample("a", 1))
    with open(path("r.yaml"), "w", encoding="utf-8") as file:
        file.write("model: {name: mlp-jax}\ndata: {name: webdataset, train: 'p-{0..0}.tar',"
                   " transform: [{resize: [2, 3]}]}\n")
    run([TRIREME, "data", "dump", path("r.yaml"), "--out", path("out")])


def check_webdataset_refuses():
    words = ("data.name=webdataset",)
    two = sample("a", 1) + [("a.jpg", grey(2))]
    write_tar("two.tar", two)
    assert "'a'" in dump(*words, "data.train=two.tar", count=1, code=2)
    write_tar("none.tar", [("a.cls", b"1")])
    assert "'a'" in dump(*words, "data.train=none.tar", count=1, code=2)
    write_tar("word.tar", [("a.jpg", grey(1)), ("a.cls", b"dog")])
    assert "a.cls" in dump(*words, "data.train=word.tar", count=1, code=2)
    write_tar("half.tar", sample("a", 1) + sample("b", 2)[:1])
    assert "'b'" in dump(*words, "data.train=half.tar", count=1, code=2)
    write_tar("first.tar", sample("a", 1))
    write_tar("second.tar", sample("b", 2))
    with open(path("joined.tar"), "wb") as file:
        for name in "first.tar", "second.tar":
            with open(path(name), "rb") as part:
                file.write(part.read())
    assert "joined.tar: has data behind" in dump(*words, "data.train=joined.tar", count=1, code=2)
    assert "nope" in dump(*words, "data.train=nope-*.tar", count=1, code=2)
    assert "pipe:" in dump(*words, "data.train=pipe:ls", count=1, code=2)
    write_tar("whole.tar", sample("a", 1) + [("b.jpg", bytes(5000))])
    with open(path("whole.tar"), "rb") as file:
        data = file.read()
    # A header that promises a terabyte, and an archive that ends too early.
    header = bytearray(data[:512])
    header[124:136] = b"\x80" + (1 << 40).to_bytes(11, "big")
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    for name, content in [("large.tar", bytes(header) + data[512:]), ("cut.tar", data[:5000])]:
        with open(path(name), "wb") as file:
            file.write(content)
        assert name in dump(*words, f"data.train={name}", count=1, code=2)


def check_read_only():
    """On a read-only mount nothing is written; the index and unpacked copies are kept elsewhere."""
    data, cache = path("mount"), path("cache")
    os.makedirs(data)
    write_tar("mount/a.tar", sample("a", 1) + sample("b", 2))
    write_tar("mount/c.tgz", sample("c", 3), mode="w:gz")
    mount = ["unshare", *([] if os.geteuid() == 0 else ["--map-root-user"]), "--mount", "sh", "-c",
             'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"', data]
    if subprocess.run([*mount, "true"], capture_output=True, check=False).returncode != 0:
        print("nothing can be mounted here, so no read-only mount is tested")
        return
    out = path("mounted.safetensors")
    kept = None
    for _ in range(2):
        run([*mount, TRIREME, "data", "dump", RECIPE, "data.name=webdataset", f"data.path={data}",
             "data.train=[a.tar, c.tgz]", "data.transform=[{resize: [2, 3]}]", "--count=3",
             f"--out={out}"], env={**os.environ, "XDG_CACHE_HOME": cache})
        found = {name: (tensor[1], tensors.numbers(tensor))
                 for name, tensor in tensors.read(out).items()}
        expect_greys(found, [1, 2, 3])
        names = sorted(os.listdir(os.path.join(cache, "trireme")))
        assert [name.rsplit(".", 1)[1] for name in names] == ["index", "tar"], names
        state = [os.stat(os.path.join(cache, "trireme", name)).st_ino for name in names]
        assert kept in (None, state), (kept, state)
        kept = state
    assert sorted(os.listdir(data)) == ["a.tar", "c.tgz"], os.listdir(data)


def check_links_are_not_followed():
    """A link or an absolute name in an archive reaches no file."""
    with tarfile.open(path("link.tar"), "w") as tar:
        info = tarfile.TarInfo("a.jpg")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/hostname"
        tar.addfile(info)
        for name, data in [("../../b.jpg", grey(3)), ("../../b.cls", b"3")]:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    expect_greys(dump_greys("data.train=link.tar", count=1), [3])


def segment(marker, data):
    return bytes([0xff, marker]) + struct.pack(">H", len(data) + 2) + data


def many_scans(side, scans):
    """A grey progressive JPEG. Each scan but the first takes 12 bytes, and says of all its blocks
    at once that nothing changes: a decoder visits them all, in each scan."""
    blocks = (side // 8) ** 2
    assert blocks == 1 << 14
    code = bytes([1] + [0] * 15) # one code of one bit
    scan = segment(0xda, bytes([1, 1, 0, 1, 63, 0])) + b"\0\1" # 15 bits: a run of 1 << 14 blocks
    return b"".join([b"\xff\xd8", segment(0xdb, b"\0" + b"\1" * 64),
                     segment(0xc2, struct.pack(">BHHB", 8, side, side, 1) + b"\1\x11\0"),
                     segment(0xc4, b"\0" + code + b"\0"), segment(0xc4, b"\x10" + code + b"\xe0"),
                     segment(0xda, bytes([1, 1, 0, 0, 0, 0])) + bytes(blocks // 8),
                     scan * scans, b"\xff\xd9"])


def huge_png(side):
    """A PNG of some bytes whose header promises side * side pixels."""
    def chunk(name, data):
        return (struct.pack(">I", len(data)) + name + data +
                struct.pack(">I", zlib.crc32(name + data)))
    return (b"\x89PNG\r\n\x1a\n" +
            chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b""))


def check_hostile_images():
    """Files that would take minutes or gigabytes to decode are damaged files: refused by name, or
    left out, in bounded time and memory."""
    few = many_scans(1024, 10)
    for name, data in (("scans.jpg", many_scans(1024, 80000)), ("huge.png", huge_png(65500)),
                       ("cut.jpg", few[:len(few) // 2])):
        for file, content in (("a.pgm", grey(3)), (name, data)):
            os.makedirs(path(f"of-{name}/1"), exist_ok=True)
            with open(path(f"of-{name}/1/{file}"), "wb") as out:
                out.write(content)
        words = ("data.name=imagefolder", f"data.train=of-{name}")
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert name in dump(*words, transform="[{resize: [2, 3]}]", count=2, code=2), name
        labels = dump(*words, "data.on_error=skip", transform="[{resize: [2, 3]}]",
                      count=2)["labels"][1]
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert sorted(labels) == [-100, 0], (name, labels)
        assert after.ru_utime - before.ru_utime < 5, (name, before, after)
        assert after.ru_maxrss < 1 << 20, (name, after) # in KiB
    with open(path("few.jpg"), "wb") as out:
        out.write(few)
    os.makedirs(path("fine/1"))
    os.rename(path("few.jpg"), path("fine/1/few.jpg")) # so many scans are no damage
    found = dump("data.name=imagefolder", "data.train=fine", transform="[{resize: [2, 3]}]",
                 count=1)
    assert found["labels"][1] == [0], found


def check_bytes_elsewhere():
    """Files whose bytes are with another member, or stored with gaps, are refused."""
    with tarfile.open(path("hard.tar"), "w") as tar:
        for name, data in sample("a", 1)[:2]:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        info = tarfile.TarInfo("b.png")
        info.type, info.linkname = tarfile.LNKTYPE, "a.png"
        tar.addfile(info)
    assert "'b.png'" in dump_refused("hard.tar")
    with tarfile.open(path("gaps.tar"), "w", format=tarfile.PAX_FORMAT) as tar:
        info = tarfile.TarInfo("a.pgm")
        info.size, info.pax_headers = len(grey(1)), {
            "GNU.sparse.size": "1000", "GNU.sparse.numblocks": "1",
            "GNU.sparse.map": f"0,{len(grey(1))}"}
        tar.addfile(info, io.BytesIO(grey(1)))
    assert "'a.pgm'" in dump_refused("gaps.tar")


def dump_refused(name):
    return dump("data.name=webdataset", f"data.train={name}", count=1, code=2)


def not_used(*words, recipe=RECIPE):
    """What `data check` and a run say of what no sample has, by split."""
    words = [recipe, f"data.path={folder}", *words]
    done = run([TRIREME, "data", "check", *words, "--json"])
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    done = run([TRIREME, "train", *words, "batch.global=1", "trainer.fast_dev_run=1",
                "log.summary=false"])
    warned = [line for line in done.stderr.splitlines() if "not used" in line]
    return {r["split"]: r["not_used"] for r in reports if "not_used" in r}, warned


def check_not_used():
    """Files that no sample has are counted, and the first is named; a text's end is counted."""
    resize = "data.transform=[{resize: [28, 28]}, {grayscale: 1}]"
    write_tar("some.tar", [*sample("a", 1), ("img.0000.png", grey(1)), ("img.0000.cls", b"1"),
                           ("img.0001.png", grey(2)), ("._a.png", b"x"), *sample("z", 2),
                           ("README", b"x")])
    write_tar("all.tar", sample("a", 1))
    found, warned = not_used("data.name=webdataset", "data.train=some.tar", "data.test=all.tar",
                             resize)
    assert list(found) == ["train"] and found["train"].startswith("4 files, "), found
    assert "some.tar: img.0000.png: " in found["train"], found
    assert len(warned) == 1 and "training samples: 4 files, " in warned[0], warned
    for name in ("few/a/1.pgm", "few/b/2.pgm", "few/b/x.tif", "few/b/y/z.gif", "few/.z",
                 "few/x.txt", "few/y.png", "whole/a/1.pgm"):
        os.makedirs(os.path.dirname(path(name)), exist_ok=True)
        with open(path(name), "wb") as file:
            file.write(grey(3))
    found, warned = not_used("data.name=imagefolder", "data.train=few", "data.test=whole", resize)
    assert list(found) == ["train"] and found["train"].startswith("3 files, "), found
    assert "few/b/x.tif: " in found["train"] and len(warned) == 1, (found, warned)
    for size, rest in ((100, {"train": "4 tokens"}), (96, {})):
        with open(path("text"), "wb") as file:
            file.write(b"a" * size)
        found, warned = not_used("data.name=tokens", "data.train=text", "data.test=null",
                                 "data.sequence=32", recipe="recipes/llama-tiny.yaml")
        assert {split: text[:8] for split, text in found.items()} == rest and not warned, found


def check_hdf5():
    expected = [i * 7 % 256 for i in range(6 * 2 * 4 * 3)]
    for name in ("plain", "chunks", "swapped"):
        found = dump("data.name=hdf5", f"data.train={os.path.abspath(GOLDENS)}/{name}.h5",
                       "data.fields={images: images, labels: group/y}", count=6)
        shape, pixels = found["images"]
        assert shape == [6, 2, 4, 3], shape
        assert [round(pixel * 255, 3) for pixel in pixels] == expected, name
        assert found["labels"] == ([6], [0, 1, 2, 3, 0, 1]), name


def check_hdf5_links():
    """Arrays of another file are read from it; where it is not there, nothing is read for it."""
    expected = [i * 7 % 256 for i in range(6 * 2 * 4 * 3)]
    words = ("data.name=hdf5", "data.train=links.h5")
    shutil.copy(f"{GOLDENS}/links.h5", path("links.h5"))
    shutil.copy(f"{GOLDENS}/plain.h5", path("plain.h5"))
    fields = [f"data.fields={{images: {name}, labels: group/y}}" for name in ("images", "virtual")]
    for field in fields:
        # No file is locked to be read: some file systems have no locks, here another has it.
        with open(path("links.h5"), "rb") as one, open(path("plain.h5"), "rb") as other:
            fcntl.flock(one, fcntl.LOCK_EX)
            fcntl.flock(other, fcntl.LOCK_EX)
            found = dump(*words, field, count=6)
        assert [round(pixel * 255, 3) for pixel in found["images"][1]] == expected, field
        assert found["labels"] == ([6], [0, 1, 2, 3, 0, 1]), field
    # A virtual array keeps its samples when its source grows, but not when that has other samples.
    shutil.copy(f"{GOLDENS}/grown.h5", path("plain.h5"))
    found = dump(*words, fields[1], count=6)
    assert [round(pixel * 255, 3) for pixel in found["images"][1]] == expected
    shutil.copy(f"{GOLDENS}/wider.h5", path("plain.h5"))
    assert "another shape" in dump(*words, fields[1], count=6, code=2)
    os.remove(path("plain.h5"))
    assert "'images'" in dump(*words, "data.fields={images: images}", count=6, code=2)
    assert "plain.h5" in dump(*words, "data.fields={images: virtual}", count=6, code=2)


def check_hdf5_names():
    """Numbers with names are the numbers; only h5py's FALSE and TRUE are a bool."""
    file = f"{os.path.abspath(GOLDENS)}/names.h5"
    for name, expected in (("i1", [0, 1, 2, 3, 0, 1]), ("i2", [0, 1, 2, 3, 0, 1]),
                           ("u1", [0, 1, 2, 3, 0, 1]), ("two", [0, 0, 1, 1, 0, 0]),
                           ("bool", [0, 0, 1, 1, 0, 0])):
        found = dump("data.name=hdf5", f"data.train={file}", f"data.fields={{labels: {name}}}",
                       count=6)
        assert found["labels"] == ([6], expected), (name, found)


def check_hdf5_named():
    """Without data.fields, what a file names as a field is read or refused; the rest is told."""
    for name in ("linked", "grouped", "plain"):
        shutil.copy(f"{GOLDENS}/{name}.h5", path(name + ".h5"))
    words = ("data.name=hdf5", "data.test=null", "data.train=linked.h5")
    assert dump(*words, count=6)["labels"] == ([6], [0, 1, 2, 3, 0, 1])
    rest = [json.loads(run([TRIREME, "data", "check", RECIPE, f"data.path={folder}", *words,
                            "data.transform=[]", "--json"]).stdout)["not_used"]]
    assert ["1 member" in line and "'words'" in line for line in rest] == [True], rest
    os.remove(path("plain.h5"))
    gone = dump(*words, count=6, code=2)
    assert "'labels'" in gone and "plain.h5" in gone, gone
    grouped = dump(*words[:2], "data.train=grouped.h5", count=6, code=2)
    assert "'labels'" in grouped and "data.fields" in grouped, grouped
    with open(path("linked.h5"), "rb") as file:
        whole = file.read()
    for near in (b"Labels", b"lables"):
        with open(path("linked.h5"), "wb") as file:
            file.write(whole.replace(b"labels", near))
        refused = dump(*words, count=6, code=2)
        assert near.decode() in refused and "'labels'" in refused, refused
        assert list(dump(*words, "data.fields={images: images}", count=6)) == ["images"]


def check_hdf5_lacking():
    """What the library would read as zeros, because it is not there, is refused, unless a fill
    value was chosen; raw data lie beside their file, whatever the working directory has."""
    for name in ("lacking", "short"):
        shutil.copy(f"{GOLDENS}/{name}.h5", path(name + ".h5"))
    words = ("data.name=hdf5", "data.train=lacking.h5")
    expected = [i * 7 % 256 for i in range(6 * 2 * 4 * 3)]

    def pixels(name):
        found = dump(*words, f"data.fields={{images: {name}}}", count=6)["images"][1]
        return [round(pixel * 255, 3) for pixel in found]

    for name, parts in (("never", "never written"), ("half", "4 of its 8 chunks"),
                        ("part", "'half'"), ("gap", "96 of its 144"), ("long", "short.h5"),
                        ("raw", "raw.bin")):
        refused = dump(*words, f"data.fields={{images: {name}}}", count=6, code=2)
        assert "lacking.h5" in refused and f"'{name}'" in refused and parts in refused, refused
    assert pixels("whole") == expected
    assert pixels("meant") == expected[:96] + [0] * 48
    assert pixels("endless") == expected
    with open(path("raw.bin"), "wb") as file:
        file.write(bytes(expected))
    os.mkdir(path("elsewhere"))
    with open(path("elsewhere/raw.bin"), "wb") as file:
        file.write(bytes(144))
    os.environ["HDF5_EXTFILE_PREFIX"] = path("elsewhere")
    assert pixels("raw") == [0] * 144
    del os.environ["HDF5_EXTFILE_PREFIX"]
    out = path("raw.safetensors")
    run([TRIREME, "data", "dump", os.path.abspath(RECIPE), f"data.path={folder}", *words,
         "data.fields={images: raw}", "data.transform=[]", "--count=6", f"--out={out}"],
        cwd=path("elsewhere"))
    assert [round(pixel * 255, 3) for pixel in tensors.numbers(tensors.read(out)["images"])
            ] == expected
    os.truncate(path("raw.bin"), 143)
    refused = dump(*words, "data.fields={images: raw}", count=6, code=2)
    assert "raw.bin" in refused and "143" in refused, refused


def check_hdf5_refuses():
    shutil.copy(f"{GOLDENS}/chunks.h5", path("c.h5"))
    words = ("data.name=hdf5", "data.train=c.h5")
    assert "'nope'" in dump(*words, "data.fields={images: nope}", count=1, code=2)
    assert "'words'" in dump(*words, "data.fields={images: words}", count=1, code=2)
    shutil.copy(f"{GOLDENS}/lzf.h5", path("lzf.h5"))
    refused = dump(words[0], "data.train=lzf.h5", count=1, code=2)
    assert "lzf.h5" in refused and "'images'" in refused and "gzip" in refused, refused
    with open(path("pointer.h5"), "w", encoding="ascii") as file:
        file.write("version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\n")
    assert "git lfs pull" in dump(words[0], "data.train=pointer.h5", count=1, code=2)
    with open(path("c.h5"), "r+b") as file:
        file.truncate(900)
    assert "c.h5" in dump(*words, count=1, code=2)


TWO_LOSSES = """#include <trireme/trireme.h>
static void conditional(tri_graph *g, const tri_batch *batch, tri_value x) {
    tri_value known = tri_embedding(g, "known", batch->labels, (tri_embedding_options){7, 4});
    tri_value y = tri_linear(g, "same", known, 3 * 28 * 28);
    tri_value ones = tri_map(g, "x -> 1 + 0 * x", x);
    tri_loss(g, tri_ratio_loss(g, tri_square(g, tri_sub(g, y, x)), ones));
}
// The terms of case 4 are not 0 where the counts are; those of case 6 are 0 / 0 there, perhaps.
static void positives(tri_graph *g, const tri_batch *batch, tri_value x, int64_t which) {
    tri_value y = tri_linear(g, "one", x, 1);
    tri_value m = tri_map(g, "y -> y >= 0", batch->labels);
    m = tri_unsqueeze(g, tri_cast(g, m, TRI_F32), -1);
    tri_value terms = tri_square(g, y);
    if (which > 4) terms = which == 5 ? tri_mul(g, m, terms) : tri_div(g, m, terms);
    tri_loss(g, tri_ratio_loss(g, terms, m));
}
static void build(tri_graph *g, const tri_batch *batch) {
    int64_t which = tri_model_int(g, "case", 0);
    tri_value x = tri_flatten(g, batch->images);
    if (which == 2 || which > 3) {
        if (which == 2) conditional(g, batch, x);
        else positives(g, batch, x, which);
        return;
    }
    tri_value known = tri_cross_entropy(g, tri_linear(g, "class", x, 7), batch->labels);
    if (which == 0)
        known = tri_add(g, known, tri_mse_loss(g, tri_linear(g, "same", x, 3 * 28 * 28), x));
    tri_loss(g, known);
    tri_value light = tri_training(g) ? (tri_value){0} : tri_mean_loss(g, x);
    if (which == 1) tri_metric(g, "brightness", light);
    if (which > 2) {
        tri_value odd = tri_map(g, "y -> y % 2", batch->labels);
        tri_metric_of(g, "odd", TRI_METRIC_ACCURACY, x, odd, (tri_metric_options){0});
    }
}
static const tri_task task = {.name = "two", .build = build};
TRI_EXPORT_TASK(task)
"""


def lmdb_words(name):
    return "data.name=lmdb", f"data.train={os.path.abspath(GOLDENS)}/{name}.mdb"


def check_lmdb():
    """Databases that py-lmdb wrote: each layout of images and classes, in the order of the keys."""
    found = dump(*lmdb_words("datum"), count=90)
    shape, pixels = found["images"]
    assert shape == [90, 3, 4, 2], shape
    assert [round(pixel * 255, 3) for pixel in pixels] == [
        (i + k) % 256 for i in range(90) for k in range(24)]
    assert found["labels"] == ([90], [i % 7 for i in range(90)])
    for name, values in ("encoded", range(5)), ("pairs", range(1, 6)), ("classes", range(3)):
        expect_greys(dump(*lmdb_words(name), count=len(values), transform="[{resize: [2, 3]}]"),
                     list(values))
    os.mkdir(path("db"))
    shutil.copy(f"{GOLDENS}/pairs.mdb", path("db/data.mdb"))
    os.chmod(path("db"), 0o555)
    expect_greys(dump("data.name=lmdb", "data.train=db", count=5, transform="[{resize: [2, 3]}]"),
                 [1, 2, 3, 4, 5])
    os.chmod(path("db"), 0o755)
    assert os.listdir(path("db")) == ["data.mdb"]


def check_lmdb_refuses():
    """Other values are refused by name; no damage of a page ends the process."""
    assert "pickle" in dump(*lmdb_words("pickle"), count=1, code=2)
    words = ("data.name=lmdb", "data.train=x.mdb")
    with open(f"{GOLDENS}/datum.mdb", "rb") as file:
        data = file.read()
    for size in (100, 5000, len(data) - 1):
        with open(path("x.mdb"), "wb") as file:
            file.write(data[:size])
        assert "x.mdb" in dump(*words, count=1, code=2)
    for offset in range(4096 + 24, len(data), 509):
        changed = bytearray(data)
        changed[offset:offset + 8] = b"\xff" * 8
        with open(path("x.mdb"), "wb") as file:
            file.write(changed)
        done = run([TRIREME, "data", "dump", RECIPE, f"data.path={folder}", *words,
                    "data.transform=[]", f"--out={path('out')}"], code=None)
        assert done.returncode in (0, 2), done
    # A value that is no image: refused by its key, or left out.
    at = data.index(b"00000042") + 8
    with open(path("x.mdb"), "wb") as file:
        file.write(data[:at] + b"\xff" + data[at + 1:])
    assert "00000042" in dump(*words, count=1, code=2)
    # A model that reads no labels cannot leave it out, nor one with batch norm, or with one loss
    # or metric more that reads none, or a loss whose counts or terms do not come from labels.
    with open(path("two.c"), "w", encoding="ascii") as file:
        file.write(TWO_LOSSES)
    subprocess.run(["cc", "-shared", "-fPIC", "-I", "include", path("two.c"), "-o",
                    path("two.so")], check=True)
    for model, recipe in (("autoencoder", []), ("mnist-convnet", []),
                          *(("two", [f"model={{name: {path('two.so')}, case: {case}}}"])
                            for case in (0, 1, 2, 3, 4, 6))):
        base = model if not recipe else "mlp-jax"
        done = run([TRIREME, "train", f"recipes/{base}.yaml", *recipe, f"data.path={folder}",
                    *words, "data.test=x.mdb", "data.transform=[{resize: [28, 28]}]",
                    "data.on_error=skip", f"--run-dir={path('run')}"], code=2)
        assert "data.on_error" in done.stderr and model in done.stderr, done.stderr
        assert done.stderr.count("\n") == 1 and not os.path.exists(path("run")), done.stderr
    run([TRIREME, "train", "recipes/mlp-jax.yaml", f"model={{name: {path('two.so')}, case: 5}}",
         f"data.path={folder}", *words, "data.test=x.mdb", "data.transform=[{resize: [28, 28]}]",
         "data.on_error=skip", "trainer.max_steps=1", f"--run-dir={path('masked')}"])
    labels = dump(*words, "data.on_error=skip", count=90)["labels"][1]
    assert labels == [-100 if i == 42 else i % 7 for i in range(90)], labels
    # Nor does an evaluation count it, on any number of ranks.
    for ranks, more in ((1, ()), (2, ("batch.eval=16",)),
                        (2, ("strategy.name=pipeline", "batch.micro=16"))):
        place = path(f"run-{ranks}-{len(more)}")
        done = run(on_ranks(ranks, [
            TRIREME, "train", RECIPE, f"data.path={folder}", *words, "data.transform=[]",
            "data.on_error=skip", "data.test=x.mdb", "trainer.max_steps=1", "--run-dir", place,
            *more]))
        assert "sample 42" in done.stderr, done.stderr
        assert [line["samples"] for line in entries(place, "val")] == [89], (ranks, more)


def main():
    global folder
    with tempfile.TemporaryDirectory(prefix="trireme-kinds-") as folder:
        failed = check_all((check_webdataset, check_not_used, check_found_beside_the_recipe,
                            check_webdataset_refuses, check_hostile_images, check_read_only,
                            check_links_are_not_followed, check_bytes_elsewhere, check_hdf5,
                            check_hdf5_links, check_hdf5_names, check_hdf5_named,
                            check_hdf5_lacking, check_hdf5_refuses, check_lmdb,
                            check_lmdb_refuses))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
