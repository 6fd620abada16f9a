#!/usr/bin/env python3
"""Trains on an emulated GPU: the losses have to be the CPU's, and those of a second run have to
have the same bits.

usage: test_cuda.py BUILD_FOLDER
"""
import json
import os
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


def main():
    """Trains in single precision and in mixed precision."""
    with tempfile.TemporaryDirectory() as folder:
        write_texts(folder)
        check(folder, [], 1e-5)
        check(folder, ["trainer.precision=bf16-mixed"], 5e-3)
        check_bench()


main()
