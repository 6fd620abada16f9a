#!/usr/bin/env python3
"""Trains on an emulated GPU: the losses have to be the CPU's, and those of a second run have to
have the same bits. Ranks of a pipeline that keep images in different layouts are refused.

usage: test_cuda.py BUILD_FOLDER
"""
import json
import os
import shlex
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import runs  # pylint: disable=wrong-import-position

os.environ["TRIREME_MODULES"] = os.path.join(os.path.abspath(sys.argv[1]), "lib", "emulated")
LLAMA = ["model.num_hidden_layers=1", "model.hidden_size=64", "model.intermediate_size=96",
         "data.sequence=32", "batch.global=4", "data.limit=24"]
USUAL = ["trainer.max_epochs=1", "trainer.log_every_n_steps=1", "log.tensorboard=false",
         "data.workers=1", "schedule.warmup_steps=2"]


def write_texts(folder):
    """Two small texts. What they say does not matter."""
    words = [f"word{i * i % 89} " for i in range(600)]
    for name, count in (("train", 600), ("validation", 60)):
        with open(os.path.join(folder, f"{name}.txt"), "w", encoding="ascii") as file:
            file.write("".join(words[:count]))


def losses(folder, name, device, *options):
    """Trains the small Llama; the loss of each step, as text."""
    run_dir = os.path.join(folder, name)
    runs.run(runs.train("llama-tiny", run_dir, f"data.path={folder}", *LLAMA, *USUAL, *options,
                        "--device", device))
    found = runs.losses(run_dir)
    assert len(found) == 6, f"{name}: {found}"
    return found


def check(folder, options, tolerance):
    """Compares two runs on the GPU and one on the CPU."""
    name = "-".join(options) or "plain"
    cpu = losses(folder, f"cpu-{name}", "cpu", *options)
    gpu = losses(folder, f"gpu-{name}", "cuda", *options)
    again = losses(folder, f"again-{name}", "cuda", *options)
    assert gpu == again, f"two runs differ: {gpu} and {again}"
    for step, loss in cpu.items():
        far = abs(float(loss) - float(gpu[step]))
        assert far <= tolerance * float(loss), f"step {step}: {gpu[step]}, on the CPU {loss}"


def check_bench():
    """Each kernel is measured against the device's own rates, and none runs on the host."""
    done = runs.run([runs.TRIREME, "bench", "kernels", "recipes/llama-tiny.yaml", "data.path=/",
                     *LLAMA, "trainer.precision=bf16-mixed", "--device", "cuda", "--seconds",
                     "0.01", "--json"])
    peak, *rows = map(json.loads, done.stdout.splitlines())
    rows = [row for row in rows if "op" in row]  # without the sums by op
    assert peak["peak_gflops"] > 0 and peak["peak_bf16_gflops"] > 0 and peak["peak_gb_s"] > 0, peak
    assert len(rows) > 20 and not [row for row in rows if row["kernel"] == "on-host"], rows
    assert all(row["time_us"] > 0 for row in rows if row["gflops"] > 0), rows


def check_layouts(folder):
    """Two stages of a pipeline have to agree where channels lie in what they send each other."""
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pointwise_net.c")
    library = os.path.join(folder, "pointwise.so")
    runs.run(["cc", "-Wall", "-Werror", "-shared", "-fPIC", "-Iinclude", source, "-o", library])
    recipe = os.path.join(folder, "pointwise.yaml")
    with open(recipe, "w", encoding="ascii") as file:
        file.write(f"name: pointwise\nmodel: {{name: {library}}}\ndata: {{name: synthetic}}\n")
    place = os.path.join(folder, "pointwise")
    words = [runs.TRIREME, "train", recipe, "--run-dir", place, *runs.SYNTHETIC, "--device", "cuda",
             "data.shape=[4,6,6]", "data.samples=8", "data.test_samples=2", "batch.global=4",
             "batch.micro=2", "optimizer.name=sgd", "optimizer.lr=0.01", "trainer.max_epochs=1",
             "trainer.precision=bf16-mixed", "strategy.name=pipeline"]
    without = f'test "$RANK" = 1 && export EMULATED_DNN=0; exec {shlex.join(words)}'
    done = runs.run(runs.on_ranks(2, ["sh", "-c", without]), 2)
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and "in different layouts" in lines[0] and "rank 1" in lines[0], lines
    assert not os.path.exists(place), "a refused run left a folder"
    runs.run(runs.on_ranks(2, words))


def check_missing(folder):
    """A run says once that a library is missing; `plan`, which uses no library, does not say it."""
    words = ["recipes/mnist-cnn.yaml", *runs.SYNTHETIC, "data.samples=4", "data.test_samples=2",
             "batch.global=4", "batch.micro=2", "trainer.max_epochs=1", "--device"]
    os.environ["EMULATED_DNN"] = "0"
    place = os.path.join(folder, "missing")
    done = runs.run(runs.on_ranks(2, [runs.TRIREME, "train", *words, "cuda", "--run-dir", place]))
    planned = runs.run([runs.TRIREME, "plan", *words, "cuda:h200"])
    del os.environ["EMULATED_DNN"]
    lines = [line for line in done.stderr.splitlines() if "cuDNN" in line]
    assert len(lines) == 1 and "cuDNN (libcudnn.so was not found)" in lines[0], done.stderr
    assert "TRIREME_CUDA_LIBRARIES" in lines[0], lines
    assert "cuDNN" not in planned.stderr, planned.stderr


def main():
    """Trains in single precision and in mixed precision."""
    with tempfile.TemporaryDirectory() as folder:
        write_texts(folder)
        check(folder, [], 1e-5)
        check(folder, ["trainer.precision=bf16-mixed"], 5e-3)
        check_bench()
        check_layouts(folder)
        check_missing(folder)


main()
