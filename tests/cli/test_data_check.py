#!/usr/bin/env python3
"""`data check` shows what the model gets, warns of likely mistakes, and lists what is damaged. It
ends with exit code 2 for damaged data, and with 1 for values that no model can learn from.

usage: test_data_check.py BUILD_FOLDER
"""
import json
import math
import os
import sys
import tarfile
import tempfile
import zlib

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import TRIREME, check_all, run  # noqa: E402
import tensors  # noqa: E402

RECIPE = "recipes/mlp-jax.yaml"
CODES = {"U8": "B", "F32": "f", "I64": "q"}
folder = None


def write_tensors(name, **fields):
    """A safetensors file: name=(type, shape, values)."""
    tensors.write(os.path.join(folder, name), fields)


def check(*words, code=0, kind="tensors"):
    return run([TRIREME, "data", "check", RECIPE, f"data.name={kind}", f"data.path={folder}",
                *words], code=code)


def report(*words, **how):
    return [json.loads(line) for line in check(*words, "--json", **how).stdout.splitlines()]


def check_shown():
    """Per channel, in all and of the first sample, after the transforms; samples of each class."""
    pixels = [0, 255, 0, 51, 102, 102, 0, 0] * 2 + [255] * 8
    write_tensors("bytes", images=("U8", [3, 2, 2, 2], pixels), labels=("I64", [3], [2, 0, 2]))
    write_tensors("turned", labels=("I64", [3], [2, 0, 2]), images=("U8", [3, 2, 2, 2], pixels))
    train, test = report("data.train=bytes", "data.test=turned")
    assert train["fields"] == test["fields"], test
    assert (train["split"], train["samples"], test["split"], test["samples"]) == (
        "train", 3, "test", 3), (train, test)
    os.rename(os.path.join(folder, "turned"), os.path.join(folder, 'a "quoted" name'))
    quoted = report("data.train=bytes", "data.test='a \"quoted\" name'")
    assert quoted[0] == train and quoted[1]["fields"] == test["fields"], quoted
    assert (train["classes"], train["least"], train["most"]) == (3, 0, 2), train
    fields = {field["name"]: field for field in train["fields"]}
    images, labels = fields["images"], fields["labels"]
    assert images["stored"] == "U8" and images["by_255"] and images["dtype"] == "F32", images
    first, second = images["channels"]
    assert math.isclose(first["mean"], (2 * 306 + 4 * 255) / 12 / 255, rel_tol=1e-5), images
    assert math.isclose(second["mean"], (2 * 204 + 4 * 255) / 12 / 255, rel_tol=1e-5), images
    for channel, values in ((first, [0, 255, 0, 51] * 2 + [255] * 4),
                            (second, [102, 102, 0, 0] * 2 + [255] * 4)):
        mean = sum(values) / 12
        std = math.sqrt(sum((value - mean) ** 2 for value in values) / 12)
        assert math.isclose(channel["std"], std / 255, rel_tol=1e-5), (channel, std)
    assert images["first"] == {"min": 0, "max": 1, "mean": 0.25}, images
    assert labels["stored"] == "I64" and not labels["by_255"] and labels["first"]["mean"] == 2
    moved, _ = report("data.train=bytes", "data.test=bytes",
                      "data.transform=[{normalize: {mean: [0.5], std: [0.25]}}]")
    images = {field["name"]: field for field in moved["fields"]}["images"]
    assert (images["min"], images["max"]) == (-2, 2) and images["first"]["mean"] == -1, images
    text = check("data.train=bytes").stdout
    for part in ("bytes are divided by 255", "channel 1: 0 to 1, mean 0.4667, std 0.411",
                 "first sample: 2", "samples of each class: 1 0 2", "train: 3 samples"):
        assert part in text, (part, text)


def check_warnings():
    """Channels last, and floats up to 255: data check and train say what to do; neither fails."""
    write_tensors("last", images=("U8", [2, 8, 9, 3], [7] * 432), labels=("I64", [2], [0, 1]))
    write_tensors("first", images=("U8", [2, 3, 8, 9], [7] * 432), labels=("I64", [2], [0, 1]))
    write_tensors("large", images=("F32", [2, 1, 8, 8], [3, 250] * 64), labels=("I64", [2], [0, 1]))
    for name, part in (("last", "x.transpose(0, 3, 1, 2)"), ("large", "divided by 255"),
                       ("first", None)):
        warnings = report(f"data.train={name}")[0]["warnings"]
        assert len(warnings) == (part is not None) and all(part in w for w in warnings), warnings
        text = check(f"data.train={name}").stdout
        assert ("warning: " in text) == (part is not None), text
    for name, warned in (("last", True), ("first", False)):
        done = run([TRIREME, "train", RECIPE, "data.name=tensors", f"data.train={folder}/{name}",
                    "batch.global=2", "trainer.max_steps=1", "log.tensorboard=false", "--run-dir",
                    os.path.join(folder, "run-" + name)])
        assert ("x.transpose(0, 3, 1, 2)" in done.stderr) == warned, done.stderr
    # So does a run whose model cannot be built of such images: they may be why.
    done = run([TRIREME, "train", "recipes/mnist-convnet.yaml", "data.name=tensors",
                f"data.train={folder}/last", "--run-dir", os.path.join(folder, "narrow")], code=2)
    lines = done.stderr.splitlines()
    assert len(lines) == 2 and "x.transpose(0, 3, 1, 2)" in lines[0], done.stderr
    assert "max_pool2d" in lines[1], done.stderr


def check_order():
    """What data.limit leaves of data in the order of their classes is worth a line of the run."""
    for name, labels in (("sorted", [0] * 9 + [1] * 7), ("mixed", [0, 1] * 8)):
        for i, label in enumerate(labels):
            place = os.path.join(folder, name, "ab"[label])
            os.makedirs(place, exist_ok=True)
            with open(os.path.join(place, f"{i}.pgm"), "wb") as file:
                file.write(b"P5 4 4 255\n" + bytes([i] * 16))
        write_tensors(name + ".st", images=("U8", [16, 1, 2, 2], [7] * 64),
                      labels=("I64", [16], labels))
    crop = "data.transform=[{center_crop: 4}]"
    rows = [("imagefolder", "sorted", limit, limit == 9, 0) for limit in (4, 9, 10)]
    for kind, name, limit, found, fraction in (*rows, ("imagefolder", "sorted", 9, True, 0.1),
                                               ("tensors", "mixed.st", 9, False, 0)):
        done = run([TRIREME, "train", RECIPE, f"data.name={kind}", f"data.train={folder}/{name}",
                    f"data.limit={limit}", f"data.val_fraction={fraction}", "batch.global=2",
                    "trainer.fast_dev_run=1",
                    *([crop] if kind == "imagefolder" else [])])
        assert done.stderr.count("looked at are of class 0, of 2") == found, done


def check_bad():
    """Exit code 1 if the data were read and have such values, 2 if they could not be read."""
    for value in (math.nan, math.inf, -math.inf):
        values = [0.5] * 12
        values[7] = value
        write_tensors("nan", images=("F32", [3, 1, 2, 2], values), labels=("I64", [3], [0, 1, 1]))
        write_tensors("good", images=("F32", [1, 1, 2, 2], [0.5] * 4), labels=("I64", [1], [0]))
        for files in (("nan", "good"), ("good", "nan")):
            done = check(f"data.train={files[0]}", f"data.test={files[1]}", code=1)
            lines = done.stderr.splitlines()
            assert len(lines) == 1 and "'images'" in lines[0] and "sample 1" in lines[0], done
            assert "train: " in done.stdout and "test: " in done.stdout, done.stdout
        assert report("data.train=good")[0]["fields"][0]["not_finite"] == 0
    write_tensors("labels", labels=("I64", [3], [0, 1, -7]))
    assert "sample 2 is -7" in check("data.train=labels", code=2).stderr
    with open(os.path.join(folder, "good"), "rb") as file:
        whole = file.read()
    with open(os.path.join(folder, "cut"), "wb") as file:
        file.write(whole[:-3])
    # A file that is damaged as a whole is found when it is opened; the other splits are still read.
    for files in (("cut", "good"), ("good", "cut")):
        words = f"data.train={files[0]}", f"data.test={files[1]}"
        done = check(*words, code=2)
        assert len(done.stderr.splitlines()) == 1 and "cut" in done.stderr, done.stderr
        splits = report(*words, code=2)
        assert [s["damaged"] for s in splits] == [name == "cut" for name in files], splits
        assert "sample" not in splits[files.index("cut")]["damages"][0], splits
    assert "nowhere" in check("data.train=nowhere", code=2).stderr
    assert "data.trian" in check("data.trian=good", code=2).stderr


def expect_damaged(kind, words, samples, parts, all_samples):
    """These samples are listed, one line on standard error names the first, and skip passes."""
    text = check(*words, kind=kind, code=2)
    lines = text.stderr.splitlines()
    assert len(lines) == 1 and f"sample {samples[0]}" in lines[0], lines
    assert all(part in lines[0] for part in parts), lines
    listed = [line for line in text.stdout.splitlines() if line.startswith("    sample ")]
    assert len(listed) == min(20, len(samples)), text.stdout
    assert (f"{len(samples) - 20} more" in text.stdout) == (len(samples) > 20), text.stdout
    train = report(*words, kind=kind, code=2)[0]
    assert train["samples"] == all_samples and train["damaged"] == len(samples), train
    assert [damage["sample"] for damage in train["damages"]] == samples, train
    assert all(part in train["damages"][0]["reason"] for part in parts), train
    assert train["left_out"] == 0, train
    assert (train["fields"][0]["mean"] > 0) == (len(samples) < all_samples), train
    train = report(*words, "data.on_error=skip", kind=kind)[0]
    assert train["left_out"] == train["damaged"] == len(samples), train


def check_damaged():
    """All samples are read, whatever is wrong with some of them, in each kind that decodes."""
    def image(i):
        whole = b"P5 4 4 255\n" + bytes([100 + i] * 16)
        return whole[:-3] if i % 2 == 0 else whole
    tar = os.path.join(folder, "images.tar")
    with tarfile.open(tar, "w") as archive:
        for i in range(44):
            path = os.path.join(folder, "tree", "ab"[i >= 22], f"{i:02}.pgm")
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(image(i))
            archive.add(path, f"{i:02}.png")
            with open(path + ".cls", "wb") as file:
                file.write(b"1")
            archive.add(path + ".cls", f"{i:02}.cls")
            os.remove(path + ".cls")
    crop = "data.transform=[{center_crop: 4}]"
    even = list(range(0, 44, 2))
    expect_damaged("imagefolder", [f"data.train={folder}/tree", crop], even, ["a/00.pgm"], 44)
    expect_damaged("webdataset", [f"data.train={tar}", crop], even, ["images.tar"], 44)
    twice = report(f"data.train=[images.tar,{tar}]", crop, "data.on_error=skip", kind="webdataset")
    assert ["images.tar twice" in w for w in twice[0]["warnings"]] == [True], twice[0]["warnings"]
    with open(os.path.join(folder, "data_batch_1.bin"), "wb") as file:
        for i in range(5):
            file.write(bytes([200 if i in (1, 4) else i]) + bytes([9] * 3072))
    with open(os.path.join(folder, "test_batch.bin"), "wb") as file:
        file.write(bytes(3073))
    expect_damaged("cifar10", ["data.train=data_batch_1.bin"], [1, 4], ["data_batch_1.bin", "200"],
                   5)
    with open("tests/support/goldens/chunks.h5", "rb") as file:
        whole = file.read()
    at = next(i for i in range(len(whole)) if whole[i:i + 2] == b"\x78\x5e"
              and len(zlib.decompressobj().decompress(whole[i:])) > 48)  # a chunk of the images
    with open(os.path.join(folder, "chunks.h5"), "wb") as file:
        file.write(whole[:at + 8] + b"\xff" * 8 + whole[at + 16:])
    words = ["data.train=chunks.h5", "data.fields={images: images, labels: group/y}"]
    expect_damaged("hdf5", words, list(range(6)), ["chunks.h5", "'images'"], 6)


def stats(*words, code=0):
    done = run([TRIREME, "data", "stats", RECIPE, f"data.path={folder}", *words, "--json"],
               code=code)
    return [json.loads(line) for line in done.stdout.splitlines()]


def is_near(found, values, wide=1e-11):
    """Whether min, max, mean and the deviation (numpy's std) are those of the values."""
    mean = math.fsum(values) / len(values)
    std = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
    return (found["min"], found["max"]) == (min(values), max(values)) and math.isclose(
        found["mean"], mean, rel_tol=wide, abs_tol=1e-12) and math.isclose(found["std"], std,
                                                                           rel_tol=wide)


def check_stats():
    """Exact means and deviations, the same for any number of threads, of what normalize gets."""
    count = 3000  # several blocks
    pixels = [1000 + (i * 7919 % 1009) / 4096 for i in range(count * 18)]
    labels = [i * i % 7 for i in range(count)]
    write_tensors("wide", images=("F32", [count, 2, 3, 3], pixels), labels=("I64", [count], labels))
    words = ("data.name=tensors", "data.train=wide", "data.test=wide")
    train, test = stats(*words)
    assert stats(*words, "data.workers=0") == stats(*words, "data.workers=5") == [train, test]
    images = {field["name"]: field for field in train["fields"]}["images"]
    by_channel = [[value for i, value in enumerate(pixels) if i // 9 % 2 == c] for c in (0, 1)]
    assert is_near(images, pixels), images
    assert all(is_near(found, values) for found, values in zip(images["channels"], by_channel))
    assert train["class_counts"] == [labels.count(i) for i in range(5)], train
    assert [round(mean, 3) for mean in train["normalize"]["mean"]] == [
        round(math.fsum(values) / len(values), 3) for values in by_channel], train
    assert "normalize" not in test, test
    assert [s["split"] for s in stats(*words, "--split=test")] == ["test"]
    # With a normalize of other numbers they stay; what is printed goes into a recipe as it is.
    normalize = "data.transform=[random_horizontal_flip, normalize: {mean: [3], std: [5]}]"
    assert stats(*words, normalize)[0]["normalize"] == train["normalize"]
    lines = run([TRIREME, "data", "stats", RECIPE, f"data.path={folder}", *words, normalize,
                 "--split=train"]).stdout.splitlines()
    paste = lines[lines.index("data:") + 1].strip().replace("transform: ", "data.transform=")
    assert paste.startswith("data.transform=[random_horizontal_flip, {normalize:"), paste
    for channel in report(*words[1:], paste)[0]["fields"][0]["channels"]:
        assert abs(channel["mean"]) < 1e-3 and abs(channel["std"] - 1) < 1e-3, channel


def check_stats_of_others():
    """Columns, constants, ignored labels, masks of text, and damaged samples."""
    write_tensors("columns", inputs=("F32", [4, 2], [1, 5, 2, 5, 3, 5, 4, 5]),
                  labels=("I64", [4], [1, -100, 1, 0]))
    train = stats("data.name=tensors", "data.train=columns")[0]
    assert train["class_counts"] == [1, 2], train
    assert is_near(train["fields"][0]["channels"][0], [1, 2, 3, 4]), train
    assert train["normalize"] == {"mean": [2.5, 5], "std": [1.118034, 1]}, train
    write_tensors("text", input_ids=("I64", [3, 4], range(12)), attention_mask=(
        "F32", [3, 4], [1, 1, 0, 0, 1, 0, 0, 0, 1, 1, 1, 1]))
    train = stats("data.name=tensors", "data.train=text")[0]
    assert train["lengths"] == {"count": 3, "least": 1, "most": 4, "mean": 7 / 3} or math.isclose(
        train["lengths"]["mean"], 7 / 3, rel_tol=1e-11), train
    with open(os.path.join(folder, "data_batch_1.bin"), "wb") as file:
        for i in range(5):
            file.write(bytes([200 if i in (1, 4) else i]) + bytes([85 * i % 256] * 3072))
    with open(os.path.join(folder, "test_batch.bin"), "wb") as file:
        file.write(bytes(3073))
    words = ("data.name=cifar10", "data.train=data_batch_1.bin", "--split=train")
    train = stats(*words, "data.on_error=skip")[0]
    assert (train["damaged"], train["left_out"]) == (2, 2), train
    assert is_near(train["fields"][0], [0, 2 / 3, 1], 1e-6), train
    assert stats(*words, code=2)[0]["damaged"] == 2
    bad = ["--split=val"], ["--split=x"]
    for flags in bad:
        run([TRIREME, "data", "stats", RECIPE, f"data.path={folder}", *words[:2], *flags], code=2)


def main():
    global folder
    with tempfile.TemporaryDirectory(prefix="trireme-check-") as folder:
        failed = check_all((check_shown, check_warnings, check_order, check_bad, check_damaged,
                            check_stats, check_stats_of_others))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
