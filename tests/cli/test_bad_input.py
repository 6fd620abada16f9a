#!/usr/bin/env python3
"""Bad input is refused: code 2, exactly one line with the cause, nothing created or overwritten.

usage: test_bad_input.py BUILD_FOLDER
"""
import gzip
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from damage import flip  # noqa: E402
from runs import (SECONDS, SYNTHETIC, TRIREME, last, losses, on_ranks, run, timed,  # noqa: E402
                  train)

FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
         "t10k-labels-idx1-ubyte")
SMALL = [*SYNTHETIC, "data.samples=64", "data.test_samples=16", "batch.global=16",
         "trainer.max_epochs=2"]


def fingerprint(folder):
    """Every file below with its contents, every folder, every link."""
    found = {}
    for path, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            full = os.path.join(path, name)
            if os.path.islink(full):
                found[full] = os.readlink(full)
            elif os.path.isfile(full):
                with open(full, "rb") as file:
                    found[full] = hash(file.read())
            else:
                found[full] = None
    return found


def refused(folder, words, *parts, env=None):
    """Code 2, one line with the words (of a tuple, any of them), and an unchanged folder."""
    before = fingerprint(folder)
    runs = os.path.exists("runs")
    done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=False,
                          env={**os.environ, **(env or {})})
    shown = f"{' '.join(words)}\n{done.stdout}{done.stderr}"
    assert done.returncode == 2, f"exit code {done.returncode} of {shown}"
    lines = done.stderr.splitlines()
    assert len(lines) == 1, f"{len(lines)} lines of {shown}"
    assert lines[0].startswith("trireme: ") and len(lines[0]) < 1000, shown
    assert not done.stdout, shown
    for part in parts:
        options = part if isinstance(part, tuple) else (part,)
        assert any(option in lines[0] for option in options), f"no '{part}' in {shown}"
    assert fingerprint(folder) == before, f"files changed: {shown}"
    assert os.path.exists("runs") == runs, f"a run folder was made: {shown}"


def idx(values, dims, kind=8, zeros=0):
    return struct.pack(f">HBB{len(dims)}I", zeros, kind, len(dims), *dims) + bytes(values)


def write(path, data):
    with open(path, "wb") as file:
        file.write(data)


def make_data(folder):
    """A small data set of 24 and 8 images in the four files of MNIST."""
    os.makedirs(folder)
    for name, count in zip(FILES, (24, 24, 8, 8)):
        if "images" in name:
            data = idx(random.randbytes(count * 784), (count, 28, 28))
        else:
            data = idx([i % 10 for i in range(count)], (count,))
        write(os.path.join(folder, name), data)


def check_idx(folder):
    good = os.path.join(folder, "good")
    make_data(good)
    place = os.path.join(folder, "run")

    def command(data):
        return train("mlp-jax", place, f"data.path={data}", "batch.global=8",
                     "trainer.max_epochs=1", "log.tensorboard=false")
    run(command(good))
    shutil.rmtree(place)
    contents = {name: open(os.path.join(good, name), "rb").read() for name in FILES}
    changes = []
    for name, data in contents.items():
        dims = data[3]
        changes += [(name, data[:-1], name), (name, data[:len(data) // 2], name),
                    (name, data[:4 + 4 * dims], name), (name, data[:3], name), (name, b"", name),
                    (name, data + b"\0", name), (name, b"\x89PNG" + data[4:], name),
                    (name, data[:2] + b"\x0d" + data[3:], name),
                    (name, data[:4] + b"\xff\xff\xff\xff" + data[8:], name),
                    (name, data[:4] + b"\0\0\0\0" + data[8:], name), (name, None, name)]
        squeezed = gzip.compress(data)
        changes += [(name + ".gz", squeezed[:-9], name), (name + ".gz", squeezed[:20], name),
                    (name + ".gz", squeezed[:12] + bytes([squeezed[12] ^ 255]) + squeezed[13:],
                     name),
                    (name + ".gz", squeezed[:-1], name), (name + ".gz", b"", name)]
    changes.append(("train-labels-idx1-ubyte", idx([10 + i % 10 for i in range(24)], (24,)),
                    ("label", "classes")))
    changes.append(("train-labels-idx1-ubyte", idx([1] * 23, (23,)), "23"))
    for name, data, part in changes:
        bad = os.path.join(folder, "bad")
        shutil.copytree(good, bad)
        plain = os.path.join(bad, name.removesuffix(".gz"))
        os.remove(plain)
        if data is not None:
            write(os.path.join(bad, name), data)
        refused(folder, command(bad), part)
        shutil.rmtree(bad)
    for a, b in ((0, 1), (2, 3), (0, 2), (1, 3)):
        bad = os.path.join(folder, "swapped")
        shutil.copytree(good, bad)
        write(os.path.join(bad, FILES[a]), contents[FILES[b]])
        write(os.path.join(bad, FILES[b]), contents[FILES[a]])
        if (a, b) in ((0, 2), (1, 3)):  # images and labels then differ in number
            refused(folder, command(bad), ("24", "8"))
        else:
            refused(folder, command(bad), (FILES[a], FILES[b]))
        shutil.rmtree(bad)
    refused(folder, command(os.path.join(folder, "nowhere")), "nowhere")
    refused(folder, command(os.path.join(good, FILES[0])), FILES[0])
    refused(folder, [*command(good), "data.limit=-1"], "data.limit")


def check_recipes(folder):
    place = os.path.join(folder, "run")

    def text(content):
        path = os.path.join(folder, "recipe.yaml")
        write(path, content.encode() if isinstance(content, str) else content)
        return [TRIREME, "train", path, "--run-dir", place]
    with open("recipes/mlp-jax.yaml", encoding="utf-8") as file:
        good = file.read()
    bombs = "a: &a [x, x, x, x, x, x, x, x, x]\n"
    for above, below in zip("abcdefgh", "bcdefghi"):
        bombs += f"{below}: &{below} [{', '.join(9 * ['*' + above])}]\n"
    for content, parts in (
            (good.replace("batch:", "bacth:"), ("recipe.yaml:17", "bacth", "batch")),
            (good.replace("global: 128", "globl: 128"), ("globl", "global")),
            (good.replace("lr: 0.01", "lr: fast"), ("optimizer.lr", "fast")),
            (good.replace("lr: 0.01", "lr: [1]"), ("optimizer.lr",)),
            (good.replace("global: 128", "global: 12.5"), ("batch.global", "12.5")),
            (good.replace("global: 128", "global: 9999999999999999999999"), ("batch.global",)),
            (good.replace("name: mlp-jax", "name: {}"), ("name",)),
            (good.replace("  name: mlp-jax", "  name: mlp-jaks"), ("mlp-jaks", "mlp-jax")),
            (good.replace("name: sgd", "name: sgdd"), ("sgdd", "sgd")),
            (good.replace("name: idx", "name: idxx"), ("idxx", "idx")),
            (good.replace("seed: 0", "seed: -1"), ("seed",)),
            (good.replace("transform: []", "transform: [{normalise: {}}]"),
             ("normalise", "normalize")),
            (good + "seed: 5\n", ("seed",)), (good + "extra: 5\n", ("extra",)),
            (bombs, ("recipe.yaml",)), (bombs + good, ("recipe.yaml",)),
            (good + "data: &x {y: *x}\n", ("recipe.yaml",)),
            ("", ("recipe.yaml",)), ("- 1\n- 2\n", ("recipe.yaml",)),
            ("{" * 5000, ("recipe.yaml",)),
            ("a: [\n", ("recipe.yaml",)), (b"\xff\xfe\x00x", ("recipe.yaml",)),
            ("\tx: 1\n", ("recipe.yaml",)), (b"x" * (2 << 20), ("recipe.yaml",)),
            ('{"architectures": ["LlamaForCausalLM"], "hidden_size": 64}',
             ("architectures", "Hugging Face", "'model: {config")),
            ("name: x\n", ("data.name", "missing"))):
        refused(folder, text(content), *parts)
    os.remove(os.path.join(folder, "recipe.yaml"))
    refused(folder, [TRIREME, "train", os.path.join(folder, "none.yaml")], "none.yaml")
    refused(folder, [TRIREME, "train", folder], folder)
    for words, parts in (
            (["batch.globl=4"], ("batch.globl", "global")), (["batch.global"], ("batch.global",)),
            (["=4"], ()), (["batch=4"], ("batch",)), (["optimizer.lr=nan"], ("optimizer.lr",)),
            (["optimizer.lr=-1"], ("optimizer.lr",)), (["optimizer.lr=1e999"], ("optimizer.lr",)),
            (["optimizer.momentum=true"], ("optimizer.momentum",)),
            (["optimizer.betas=[0.9,0.99]"], ("betas",)), (["data.transform=[{"], ()),
            (["data.transform=[to_tensor]"],
             ("'to_tensor'", "known: ", "random_horizontal_flip", "normalize")),
            (["data.transform=[{normalize: {mean: [0.1, 0.2]}}]"],
             ("2 values of 'mean'", "images of 1 channel: give 1")),
            (["model=[1"], ()), (["model.dropout=1"], ("dropout",)),
            (["model.depth=3"], ("depth",)), (["trainer.precision=64-true"], ("precision",)),
            (["trainer.max_epochs=-1"], ("no end",)), (["schedule.name=stepp"], ("stepp", "step")),
            (["checkpoint.monitor=val_los"], ("val_los",)),
            (["model.name=nothing.so"], ("nothing.so",)),
            (["model.name=./README.md"], ("README.md",)),
            (["init=none.safetensors"], ("none.safetensors",))):
        refused(folder, train("mlp-jax", place, *SMALL, *words), *parts)


def check_text(folder):
    """Impossible sizes of a decoder, and tokens that its vocabulary does not have."""
    place = os.path.join(folder, "run")
    text = ["data.name=synthetic", "data.vocabulary=256", "data.sequence=20", "data.samples=8"]
    for words, parts in (
            (["data.vocabulary=300"], ("tokens up to 299", "256")),
            (["model.vocab_size=255"], ("tokens up to 255", "255")),
            (["data.vocabulary=0", "data.shape=[3]"], ("embed_tokens", "has inputs, targets")),
            (["model.num_key_value_heads=3"], ("num_key_value_heads", "4 and 3")),
            (["model.hidden_size=36"], ("head_dim", "9")),
            (["model.hidden_size=33"], ("hidden_size", "33", "num_attention_heads", "4")),
            (["model.num_hidden_layers=0"], ("num_hidden_layers", "0")),
            (["model.intermediate_size=1.5"], ("intermediate_size", "1.5")),
            (["model.rms_norm_eps=0"], ("rms_norm_eps",)),
            (["model.max_position_embeddings=19"], ("max_position_embeddings", "20")),
            (["model.rope_scaling=2"], ("rope_scaling",))):
        refused(folder, train("llama-tiny", place, *text, *words), *parts)


def check_numbers(folder):
    """Impossible batches and numbers of ranks."""
    place = os.path.join(folder, "run")
    for words, parts in (
            (["batch.global=0"], ("batch.global",)), (["batch.global=-3"], ("batch.global",)),
            (["batch.global=1000000000"], ("batch.global",)),
            (["batch.micro=-1"], ("batch.micro",)), (["batch.eval=-1"], ("batch.eval",)),
            (["data.samples=0"], ("data.samples",)),
            (["strategy.mesh.replicate=2"], ("replicate", "rank")),
            (["strategy.mesh.tensor=2"], ("tensor",)),
            (["strategy.mesh.replicate=0"], ("replicate",)),
            (["strategy.name=ddpp"], ("ddpp", "ddp")),
            (["batch.global=100", "data.drop_last=true"], ("drop_last", "batch.global"))):
        refused(folder, train("mlp-jax", place, *SMALL, *words), *parts)
    command = train("mlp-jax", place, *SMALL)
    for environment, part in (
            ({"RANK": "2", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}, "RANK"),
            ({"RANK": "-1", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}, "RANK"),
            ({"RANK": "0", "WORLD_SIZE": "two", "LOCAL_RANK": "0"}, "WORLD_SIZE"),
            ({"RANK": "0", "WORLD_SIZE": "99999999", "LOCAL_RANK": "0"}, "WORLD_SIZE")):
        refused(folder, command, part, env=environment)


def check_checkpoints(folder):
    place = os.path.join(folder, "trained")
    command = train("mlp-jax", place, *SMALL)
    run(command)
    wanted = losses(place)
    newest = os.path.realpath(last(place))
    evaluate = [TRIREME, "eval", "recipes/mlp-jax.yaml", *SMALL, "--checkpoint"]
    run([*evaluate, place])
    refused(folder, evaluate, "--checkpoint")
    refused(folder, evaluate[:-1], "--checkpoint")
    refused(folder, [*evaluate, os.path.join(folder, "none")], "none")
    for name in os.listdir(newest):
        path = os.path.join(newest, name)
        size = os.path.getsize(path)
        for offset in (0, 7, 8, size // 2, size - 1, random.randrange(size)):
            bit = random.randrange(8)
            flip(path, offset, bit)
            refused(folder, [*command, "--resume", newest], name)
            if name == "model.safetensors":
                refused(folder, [*evaluate, newest], name)
                refused(folder, [TRIREME, "checkpoint", "export", newest, "--out",
                                 os.path.join(folder, "out")], name)
            flip(path, offset, bit)
        flip(path, size // 3, 3)
        copy = os.path.join(folder, "copy")
        shutil.copytree(place, copy, symlinks=True)
        done = run(train("mlp-jax", copy, *SMALL))
        assert "falling back" in done.stderr and name in done.stderr, done.stderr
        assert losses(copy) == wanted
        shutil.rmtree(copy)
        flip(path, size // 3, 3)
    weights = os.path.join(folder, "weights")
    for data, parts in (
            (struct.pack("<Q", 1 << 63) + b"{}", ("weights",)),
            (struct.pack("<Q", (1 << 64) - 8) + b"{}", ("weights",)), (b"", ("weights",)),
            (struct.pack("<Q", 2) + b"{", ("weights",)),
            (struct.pack("<Q", 2) + b"[]", ("weights",)),
            (struct.pack("<Q", 2) + b"{}", ("fc1.weight", "weights"))):
        write(weights, data)
        refused(folder, train("mlp-jax", os.path.join(folder, "new"), *SMALL, f"init={weights}"),
                *parts)
        refused(folder, [*evaluate, weights], *parts)
    os.remove(weights)


def check_paths(folder):
    """As root, only special files cannot be written."""
    write(os.path.join(folder, "file"), b"mine")
    for place in (os.path.join(folder, "file"), os.path.join(folder, "file", "below"),
                  "/proc/trireme", "/dev/null/run", os.path.join(folder, "x" * 300),
                  folder + "/y" * 3000):
        refused(folder, train("mlp-jax", place, *SMALL), (place[:40], "--run-dir"))
    mine = os.path.join(folder, "mine")
    os.makedirs(mine)
    write(os.path.join(mine, "notes"), b"of mine")
    refused(folder, train("mlp-jax", mine, *SMALL, "--resume", "never"), "mine")
    os.makedirs(os.path.join(mine, "recipe.yaml"))
    refused(folder, train("mlp-jax", mine, *SMALL), "recipe.yaml")


def check_outputs(folder):
    """An output replaces neither a device, pipe or folder nor the recipe itself."""
    recipe, pipe = os.path.join(folder, "mine.yaml"), os.path.join(folder, "pipe")
    shutil.copy("recipes/mlp-jax.yaml", recipe)
    os.mkfifo(pipe)
    os.symlink(pipe, os.path.join(folder, "link"))
    for command, flag in ((["plan"], "--svg"), (["checkpoint", "init"], "--out")):
        words = [TRIREME, *command, recipe, *SMALL, flag]
        for name in ("pipe", "link", "."):
            refused(folder, [*words, os.path.join(folder, name)], "name a file")
        refused(folder, [*words, recipe], "is the recipe itself")
    place = os.path.join(folder, "run")
    refused(folder, [TRIREME, "train", recipe, "--run-dir", place, *SMALL, "--trace", recipe],
            "is the recipe itself")
    refused(folder, [TRIREME, "bench", "train", recipe, *SMALL, "--trace", recipe],
            "is the recipe itself")


def check_environment(folder):
    """A wrong setting of the device is refused; auto does not take the slow reference device."""
    place = os.path.join(folder, "run")
    for key, value in (("OMP_NUM_THREADS", "1025"), ("OMP_NUM_THREADS", "99999999999"),
                       ("TRIREME_CPU_ISA", "sse")):
        refused(folder, train("mlp-jax", place, *SMALL), key, env={key: value})


def check_command_line(folder):
    place = os.path.join(folder, "run")
    command = train("mlp-jax", place, *SMALL)
    for words, parts in (
            (["trian"], ("trian",)), (["train"], ("recipe",)),
            (["train", "recipes/mlp-jax.yaml", "--keys"], ("is a file", "sections")),
            (["eval"], ("checkpoint",)),
            (["plan"], ("recipe",)), (["train", "--help-me"], ("--help-me",)),
            (["checkpoint", "frob"], ("checkpoint",)), (["checkpoint", "verify"], ("verify",)),
            (["data", "check"], ()), (["bench", "nothing"], ("bench",)),
            (["plan", "recipes/mlp-jax.yaml", "--ranks", "0"], ("ranks",)),
            (["plan", "recipes/mlp-jax.yaml", "--ranks", "-1"], ("ranks",)),
            (["plan", "recipes/mlp-jax.yaml", "--ranks", "99999999999"], ("ranks",)),
            (["plan", "recipes/mlp-jax.yaml", "--show", "nothing"], ("nothing",)),
            (["run"], ()), (["run", "--nproc-per-node", "0", "true"], ("nproc",)),
            (["run", "--standalone", "--nproc-per-node", "x", "true"], ("nproc",)),
            (["run", "--standalone", "--nproc-per-node", "2", "no-such-program-here"],
             ("no-such-program-here",))):
        refused(folder, [TRIREME, *words], *parts)
    for words, parts in (
            (["--device", "xyz"], ("xyz", "cpu")),
            (["--resume", os.path.join(folder, "no")], ("no",)),
            (["--resum", "auto"], ("--resum", "--resume")), (["--json=1"], ("--json",)),
            (["--run-dir"], ("--run-dir",)), (["-x"], ("-x",))):
        refused(folder, [*command, *words], *parts)


def check_under_the_launcher(folder):
    """Two ranks find the same error: rank 0 prints it once, and the launcher ends with 2 too."""
    place = os.path.join(folder, "run")
    for words, part in (
            (["batch.globl=4"], "batch.globl"), (["optimizer.lr=fast"], "optimizer.lr"),
            (["batch.global=1"], "batch.global"), (["init=/none"], "/none"),
            (["--device", "xyz"], "xyz")):
        for _ in range(3):
            done = run(on_ranks(2, train("mlp-jax", place, *SMALL, *words)), 2)
            assert part in done.stderr, done.stderr
            assert not os.path.exists(place), "a run folder was made"


def main():
    seed = int(os.environ.get("TRIREME_TEST_SEED", random.randrange(1 << 30)))
    print(f"TRIREME_TEST_SEED={seed}")
    random.seed(seed)
    for check in (check_command_line, check_recipes, check_text, check_numbers, check_idx,
                  check_checkpoints, check_paths, check_outputs, check_environment,
                  check_under_the_launcher):
        with tempfile.TemporaryDirectory(prefix="trireme-bad-") as folder:
            timed(check, folder)


if __name__ == "__main__":
    main()
