#!/usr/bin/env python3
"""Data sets and settings that do not fit together, plans whose evaluation batches are larger than
training's, and the messages where there is nothing to show.

usage: test_odd_data.py BUILD_FOLDER
"""
import json
import os
import resource
import struct
import subprocess
import sys
import tempfile

TRIREME = os.path.join(os.path.abspath(sys.argv[1]), "bin", "trireme")
SYNTHETIC = ["data.name=synthetic", "data.shape=[1,28,28]", "data.samples=32",
             "data.test_samples=16", "data.classes=10", "batch.global=16"]


def run(*arguments):
    return subprocess.run([TRIREME, *arguments], capture_output=True, text=True, timeout=240)


def write_tensors(path, tensors):
    """A safetensors file of zeros: name -> (type, bytes of an element, shape)."""
    header, end = {}, 0
    for name, (kind, width, shape) in tensors.items():
        size = width
        for length in shape:
            size *= length
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + bytes(end))


def packed(shape, pixel, label):
    """A safetensors file of one pixel value and one label."""
    count = shape[0] * shape[1] * shape[2] * shape[3]
    pixels, labels = struct.pack("<f", pixel) * count, struct.pack("<q", label) * shape[0]
    end = len(pixels) + len(labels)
    text = json.dumps({
        "images": {"dtype": "F32", "shape": shape, "data_offsets": [0, len(pixels)]},
        "labels": {"dtype": "I64", "shape": shape[:1], "data_offsets": [len(pixels), end]}})
    return struct.pack("<Q", len(text)) + text.encode() + pixels + labels


def check_fields(folder):
    """Test samples with fewer fields than training's are bad input, in one line."""
    images, labels = ("F32", 4, [8, 1, 28, 28]), ("I64", 8, [8])
    write_tensors(os.path.join(folder, "train"), {"images": images, "labels": labels})
    write_tensors(os.path.join(folder, "test"), {"images": images})
    for train, test in (("train", "test"), ("test", "train")):
        done = run("train", "recipes/mlp-jax.yaml", "data.name=tensors", f"data.path={folder}",
                   f"data.train={train}", f"data.test={test}", "--run-dir",
                   os.path.join(folder, "run"))
        assert done.returncode == 2, done
        assert len(done.stderr.splitlines()) == 1 and "fields" in done.stderr, done.stderr
        assert not os.path.exists(os.path.join(folder, "run"))


def check_classes(folder):
    """The built-in models have as many classes as model.num_classes; data with fewer get one line,
    and data with more are refused, both with the setting that fits."""
    for model in "mlp-jax", "mnist-cnn", "mnist-convnet":
        words = ["train", f"recipes/{model}.yaml", *SYNTHETIC, "data.classes=3",
                 "trainer.max_steps=1", "--run-dir", os.path.join(folder, f"classes-{model}")]
        lines = [line for line in run(*words).stderr.splitlines() if "num_classes" in line]
        assert len(lines) == 1 and "model.num_classes=3" in lines[0], lines
        words[-1] += "-3"
        done = run(*words, "model.num_classes=3")
        assert done.returncode == 0 and "num_classes" not in done.stderr, done
        words[-1] += "-2"
        done = run(*words, "model.num_classes=2")
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done
        assert "model.num_classes=3" in done.stderr and not os.path.exists(words[-1]), done
        assert "from 0" in done.stderr, done  # the labels may have been numbered from 1


def check_other_kinds():
    """Of a kind of data that cannot be read, the message names those that can."""
    done = run("train", "recipes/mlp-jax.yaml", "data.name=tfrecord")
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done
    assert all(kind in done.stderr for kind in ("tfrecord", "webdataset", "jsonl")), done


def check_types(folder):
    """Images of bytes and of other numbers in one run are worth a warning: bytes are divided."""
    bytes_, floats = ("U8", 1, [8, 1, 28, 28]), ("F32", 4, [8, 1, 28, 28])
    for name, images in (("bytes", bytes_), ("floats", floats)):
        write_tensors(os.path.join(folder, name), {"images": images, "labels": ("I64", 8, [8])})
    for train, test in (("bytes", "floats"), ("floats", "bytes"), ("bytes", "bytes")):
        done = run("train", "recipes/mlp-jax.yaml", "data.name=tensors", f"data.path={folder}",
                   f"data.train={train}", f"data.test={test}", "trainer.fast_dev_run=1",
                   "batch.global=8")
        assert done.returncode == 0, done.stderr
        found = [line for line in done.stderr.splitlines() if "U8" in line and "F32" in line]
        assert len(found) == (train != test), (train, test, done.stderr)
    # An evaluation knows what its weights were trained on.
    words = ["recipes/mlp-jax.yaml", "data.name=tensors", f"data.path={folder}",
             "data.train=bytes", "data.test=bytes", "batch.global=8"]
    place = os.path.join(folder, "types")
    done = run("train", *words, "trainer.max_steps=1", "--run-dir", place)
    assert done.returncode == 0, done.stderr
    for name in "bytes", "floats":
        done = run("eval", *words, f"data.test={name}", "data.train=null", "--checkpoint", place)
        found = [line for line in done.stderr.splitlines() if "U8" in line and "F32" in line]
        assert done.returncode == 0 and len(found) == (name == "floats"), done


def check_repeated(folder):
    """One file in two splits is worth a warning, whatever its path; a part of a split is none."""
    images, labels = ("U8", 1, [8, 1, 28, 28]), ("I64", 8, [8])
    for name in ("one", "other"):
        write_tensors(os.path.join(folder, name), {"images": images, "labels": labels})
    os.symlink("one", os.path.join(folder, "link"))
    for more, warned in ((["data.test=link"], "data.train and data.test both have"),
                         (["data.val=one", "data.test=other"], "data.train and data.val both have"),
                         (["data.test=other"], None), (["data.val_fraction=0.5"], None),
                         (["data.test=one", "trainer.overfit_batches=1"], None)):
        done = run("train", "recipes/mlp-jax.yaml", "data.name=tensors", f"data.path={folder}",
                   "data.train=one", "trainer.fast_dev_run=1", "batch.global=4", *more)
        assert done.returncode == 0, done.stderr
        found = [line for line in done.stderr.splitlines() if "both have" in line]
        assert len(found) == (warned is not None), (more, done.stderr)
        assert all(warned in line and folder in line for line in found), found


def check_nothing_counts(folder):
    """Labels that are all left out are refused; what is no number is null in JSON, and no best."""
    with open(os.path.join(folder, "none"), "wb") as file:
        file.write(packed([8, 1, 28, 28], 0.5, -100))
    with open(os.path.join(folder, "nan"), "wb") as file:
        file.write(packed([8, 1, 28, 28], float("nan"), 1))
    with open(os.path.join(folder, "good"), "wb") as file:
        file.write(packed([8, 1, 28, 28], 0.5, 1))
    with open(os.path.join(folder, "few"), "wb") as file:  # the last sample of 8 counts
        file.write(packed([8, 1, 28, 28], 0.5, -100)[:-8] + struct.pack("<q", 1))
    words = ["recipes/mlp-jax.yaml", "data.name=tensors", f"data.path={folder}", "data.train=good",
             "trainer.max_epochs=1", "log.tensorboard=false"]
    run_dir = os.path.join(folder, "counts")
    for split, more in (("training", ["data.train=none", "data.test=good"]),
                        ("test", ["data.test=none"])):
        done = run("train", *words, *more, "--run-dir", run_dir)
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done
        assert f"every label of the {split} data is -100" in done.stderr, done.stderr
        assert not os.path.exists(run_dir)
    done = run("train", *words, "data.train=few", "data.test=few", "batch.global=1",
               "data.shuffle=false", "trainer.log_every_n_steps=1", "--run-dir", run_dir + "-few")
    assert done.returncode == 0 and "loss nan" in done.stderr, done
    assert "test: loss" in done.stdout and "(1 sample)" in done.stdout, done.stdout
    assert "-nan" not in done.stderr, done.stderr
    with open(os.path.join(folder, "nine"), "wb") as file:  # a class that no training sample has
        file.write(packed([8, 1, 28, 28], 0.5, 9))
    done = run("train", *words, "data.test=nine", "--run-dir", run_dir + "-nine")
    assert done.returncode == 0 and "num_classes" not in done.stderr, done
    done = run("train", *words, "data.test=nan", "--run-dir", run_dir)
    assert done.returncode == 0 and "test: loss nan" in done.stdout, done
    assert done.stderr.count("of test sample 0 ") == 1, done.stderr
    assert "keeps test data" in done.stdout and "checkpoints/best" not in done.stdout, done.stdout
    # Training data that are no numbers are named: not the learning rate is to blame.
    bad = ["train", *words, "data.train=nan", "data.test=good", "--run-dir", run_dir + "-bad"]
    for command in (bad, ["run", "--standalone", "--nproc-per-node", "2", TRIREME, *bad]):
        done = run(*command)
        assert done.returncode == 1 and "training sample" in done.stderr, done
        assert "data check" in done.stderr and "optimizer.lr" not in done.stderr, done
    done = run("eval", *words, "data.test=nan", "--checkpoint", run_dir, "--json")
    assert json.loads(done.stdout)["loss"] == "NaN", done
    assert "of test sample 0 " in done.stderr, done.stderr
    done = run("train", *words, "data.test=nan", "--run-dir", run_dir + "-json", "--json")
    assert json.loads(done.stdout)["val_loss"] == "NaN", done


def check_nothing_evaluated(folder):
    """An evaluation of which no label counts is warned of once."""
    with open(os.path.join(folder, "ignored"), "wb") as file:  # the first sample of 8 counts
        labels = struct.pack("<8q", 1, *[-100] * 7)
        file.write(packed([8, 1, 28, 28], 0.5, 1)[:-64] + labels)
    done = run("train", "recipes/mlp-jax.yaml", "data.name=tensors", f"data.path={folder}",
               "data.train=good", "data.test=ignored", "data.val=ignored", "batch.eval=1",
               "trainer.max_epochs=2", "trainer.limit_val_batches=1", "log.tensorboard=false",
               "--run-dir", os.path.join(folder, "nothing"))
    assert done.returncode == 0 and "counts nothing" not in done.stderr, done
    done = run("train", "recipes/mlp-jax.yaml", "data.name=tensors", f"data.path={folder}",
               "data.train=ignored", "data.val_fraction=0.25", "seed=0", "data.test=good",
               "trainer.max_epochs=2", "log.tensorboard=false",
               "--run-dir", os.path.join(folder, "nothing-held"))
    assert done.returncode == 0, done
    assert done.stderr.count("the validation data counts nothing") == 1, done.stderr


def check_empty_step(folder):
    """A step whose labels are all left out changes neither weights nor the optimizer's state."""
    good = packed([4, 1, 28, 28], 0.5, 1)
    header = 8 + struct.unpack("<Q", good[:8])[0]
    pixels = good[header:-4 * 8]
    text = json.dumps({
        "images": {"dtype": "F32", "shape": [8, 1, 28, 28], "data_offsets": [0, 2 * len(pixels)]},
        "labels": {"dtype": "I64", "shape": [8],
                   "data_offsets": [2 * len(pixels), 2 * len(pixels) + 64]}}).encode()
    with open(os.path.join(folder, "half"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + 2 * pixels)
        file.write(struct.pack("<8q", 1, 2, 3, 4, *[-100] * 4))
    for precision in "32-true", "16-mixed":
        states = []
        for steps in 1, 2, 4:
            run_dir = os.path.join(folder, f"empty-{precision}-{steps}")
            done = run("train", "recipes/mlp-jax.yaml", "data.name=tensors", "data.workers=0",
                       f"data.path={folder}", "data.train=half", "data.shuffle=false",
                       "optimizer.name=adamw", "optimizer.lr=0.01", "optimizer.weight_decay=0.1",
                       "batch.global=4", "schedule.name=constant", f"trainer.max_steps={steps}",
                       f"trainer.precision={precision}", "trainer.loss_scale.initial=64",
                       "trainer.log_every_n_steps=1", "--run-dir", run_dir)
            lines = [line for line in done.stderr.splitlines() if "labels are ignored" in line]
            assert done.returncode == 0 and len(lines) == (steps > 1), done
            files = []
            for name in "model", "optimizer":
                path = os.path.join(run_dir, "checkpoints", "last", f"{name}.safetensors")
                with open(path, "rb") as file:
                    data = file.read()
                files.append(data[8 + struct.unpack("<Q", data[:8])[0]:])
            states.append(files)
        assert "step 2: " in lines[0] and states[0] == states[1], (precision, lines)


def check_tokens(folder):
    """Text is found relative to the recipe; a file that is no text is bad input, in one line."""
    recipe = os.path.join(folder, "text.yaml")
    os.mkdir(os.path.join(folder, "texts"))
    for name, data in (("train.txt", b"abcdefgh" * 5), ("odd.bin", b"123"), ("empty.txt", b"")):
        with open(os.path.join(folder, "texts", name), "wb") as file:
            file.write(data)
    with open(recipe, "w", encoding="ascii") as file:
        file.write("model: {name: mlp-jax}\n"
                   "data: {name: tokens, path: texts, train: train.txt, sequence: 12}\n")
    done = run("data", "check", recipe, "--json")
    report = json.loads(done.stdout)
    assert report["samples"] == 3 and report["fields"][0]["name"] == "input_ids", report
    assert report["fields"][0]["min"] == ord("a") and report["fields"][0]["max"] == ord("h")
    for setting, words in (("data.train=nowhere.txt", "nowhere.txt"),
                           ("data.train=odd.bin", "not a multiple"),
                           ("data.train=empty.txt", "is empty"),
                           ("data.test=odd.bin", "odd.bin"),
                           ("data.sequence=41", "has 40 tokens, less than one sample"),
                           ("data.sequence=1", "'data.sequence' has to be"),
                           ("data.dtype=u64", "'data.dtype' has to be"),
                           ("data.path=texts", "train.txt")):  # an override is taken literally
        done = run("train", recipe, setting, "--run-dir", os.path.join(folder, "run"))
        assert done.returncode == 2, done
        assert len(done.stderr.splitlines()) == 1 and words in done.stderr, done.stderr
        assert not os.path.exists(os.path.join(folder, "run"))
    # The type of a file without a header or an index is a guess, which a larger vocabulary refutes.
    with open(os.path.join(folder, "texts", "meg.bin"), "wb") as file:
        file.write(bytes(range(200)) * 8)
    large = ["train", "recipes/llama-tiny.yaml", f"data.path={folder}/texts", "data.train=meg.bin",
             "data.test=null", "data.sequence=32", "model.vocab_size=65537", "trainer.max_steps=1",
             "batch.global=2", "model.num_hidden_layers=1", "schedule.warmup_steps=0"]
    done = run(*large, "--run-dir", os.path.join(folder, "run"))
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done
    assert "meg.bin" in done.stderr and "data.dtype" in done.stderr, done.stderr
    assert run(*large, "data.dtype=u16", "--run-dir", os.path.join(folder, "u16")).returncode == 0
    llama = os.path.abspath("recipes/llama-tiny.yaml")
    done = subprocess.run([TRIREME, "data", "check", llama, "--json"], cwd=folder,
                          capture_output=True, text=True, timeout=240)
    splits = [json.loads(line) for line in done.stdout.splitlines()]
    assert [split["samples"] for split in splits] == [1003854 // 256, 111540 // 256], done
    done = run("train", llama, "model.vocab_size=100", "--run-dir", os.path.join(folder, "run"))
    assert done.returncode == 2 and "tokens up to 122" in done.stderr, done
    assert not os.path.exists(os.path.join(folder, "run"))


def check_plan():
    """The peak is that of the larger batches."""
    def peak(size):
        sizes = ["batch.global=8", f"batch.eval={size}"]
        done = run("plan", "recipes/mnist-cnn.yaml", *sizes, "--json")
        return json.loads(done.stdout)["memory"]["activations"]
    assert peak(256) > 4 * peak(8)


def check_quiet(folder):
    """A checkpoint that failed is reported also without a progress line."""
    run_dir, bound = os.path.join(folder, "blocked"), (1 << 20, 1 << 20)  # bytes of a file
    done = subprocess.run([TRIREME, "train", "recipes/mlp-jax.yaml", *SYNTHETIC,
                           "trainer.max_epochs=2", "log.progress=false", "--run-dir", run_dir],
                          capture_output=True, text=True, timeout=240,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, bound))
    assert done.returncode == 1, done
    assert "warning: no checkpoint of step 2:" in done.stderr, done.stderr


def check_no_evaluation(folder):
    """Evaluation that is off stays off in a dry run; less than one batch is one."""
    dry = ["train", "recipes/mlp-jax.yaml", *SYNTHETIC, "trainer.fast_dev_run=true"]
    assert "test: loss" in run(*dry).stdout
    assert "test: loss" not in run(*dry, "trainer.limit_val_batches=0").stdout
    assert "test: loss" in run(*dry, "trainer.limit_val_batches=0.001").stdout
    weights = os.path.join(folder, "unused.safetensors")
    run("checkpoint", "init", *dry[1:], "--out", weights)
    done = run("eval", *dry[1:], "--checkpoint", weights, "trainer.limit_val_batches=0")
    assert done.returncode == 2 and "limit_val_batches is 0" in done.stderr, done


def check_null_device(folder):
    """A run on the device that computes nothing says so: its losses may look like perfect ones."""
    for name in ("null", "null:h200"):
        done = run("train", "recipes/mlp-jax.yaml", *SYNTHETIC, "trainer.fast_dev_run=true",
                   "--device", name)
        assert done.returncode == 0, done
        assert f"warning: --device {name} computes nothing" in done.stderr, done.stderr
        assert "loss 0.0000" in done.stdout and "nan" not in done.stderr, done
        weights = os.path.join(folder, "weights.safetensors")
        run("checkpoint", "init", "recipes/mlp-jax.yaml", *SYNTHETIC, "--out", weights)
        done = run("eval", "recipes/mlp-jax.yaml", *SYNTHETIC, "--checkpoint", weights,
                   "--device", name)
        assert done.returncode == 0, done
        assert f"warning: --device {name} computes nothing" in done.stderr, done.stderr
    done = run("train", "recipes/mlp-jax.yaml", *SYNTHETIC, "--device", "null:h100")
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done


def check_extremes(folder):
    """The largest and the smallest values of each key: done, or refused in one line."""
    tiny = [*SYNTHETIC, "batch.global=4", "trainer.max_steps=1", "trainer.limit_val_batches=1",
            "log.tensorboard=false"]
    most = 1 << 48
    rows = [(0, f"data.limit={most}"), (2, f"data.limit={most + 1}"), (2, "data.limit=-1"),
            (2, "data.limit=99999999999999999999"), (0, f"data.samples={most}"),
            (0, f"data.samples={most} data.val_fraction=0.5"),
            (0, f"data.samples={most} data.val_fraction=1e-300"),
            (2, f"data.samples={most} data.val_fraction=0.9999999999999999"),
            (2, f"data.samples={most} data.val_fraction=0.3 trainer.limit_val_batches=1.0"),
            (0, f"data.test_samples={most}"), (2, "data.shape=[1073741824,1,1]"),
            (2, "data.shape=[1073741824,1073741824,1073741824]"), (2, "data.shape=[0]"),
            (2, "data.shape=[]"), (2, "data.shape=[1,1,1,1,1,1,1]"),
            (2, "data.classes=1073741824"), (2, "data.classes=1073741825"),
            (0, "data.workers=64"), (2, "data.workers=257"), (2, "data.workers=-1"),
            (2, "data.vocabulary=1073741824 data.classes=0"), (2, "data.sequence=0"),
            (2, "data.samples=1 data.drop_last=true"), (2, "data.val_fraction=nan"),
            (2, "data.transform=[{random_crop:{size:65536,padding:65536}}]".replace(":", ": ")),
            (0, "data.transform=[{normalize:{mean:[1e6],std:[1e-30]}}]".replace(":", ": "))]
    for number, (code, words) in enumerate(rows):
        words = [words] if "transform" in words else words.split()
        done = run("train", "recipes/mlp-jax.yaml", *tiny, *words, "--run-dir",
                   os.path.join(folder, f"extreme-{number}"))
        assert done.returncode == code, (words, done)
        assert code == 0 or len(done.stderr.splitlines()) == 1, (words, done.stderr)
    done = run("data", "check", "recipes/mlp-jax.yaml", *SYNTHETIC,
               "data.transform=[{random_crop: {size: 65536, padding: 65536}}]")
    assert done.returncode == 2 and "data.transform" in done.stderr, done


with tempfile.TemporaryDirectory() as temporary:
    check_extremes(temporary)
    check_fields(temporary)
    check_classes(temporary)
    check_other_kinds()
    check_types(temporary)
    check_repeated(temporary)
    check_nothing_counts(temporary)
    check_nothing_evaluated(temporary)
    check_empty_step(temporary)
    check_tokens(temporary)
    check_plan()
    check_quiet(temporary)
    check_no_evaluation(temporary)
    check_null_device(temporary)
