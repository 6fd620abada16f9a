#!/usr/bin/env python3
"""`trireme plan`: memory of each rank, the drawing of a step and its estimate, for one to a
thousand ranks.

usage: test_plan.py BUILD_FOLDER
"""
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree

os.environ["OMP_NUM_THREADS"] = "1"  # threads that wait for each other measure a busy machine
TRIREME = os.path.join(os.path.abspath(sys.argv[1]), "bin", "trireme")
PARTS = ["parameters", "gradients", "optimizer", "activations", "workspace", "communication"]
LLAMA = "recipes/llama-tiny.yaml"
GPUS = ("h200 gh200 b200 h100-64 h100-80 a100-40 a100-64 a100-80 v100-16 v100-32 l40s a10 t4 "
        "rtx-3090 rtx-4090 mi250x mi300x").split()
SEVEN = "recipes/codellama-7b.yaml"
PIPELINE = [LLAMA, "--mesh", "pipeline=4", "batch.global=16", "batch.micro=2"]


def plan(*words, code=0, **more):
    done = subprocess.run([TRIREME, "plan", *words], capture_output=True, text=True, timeout=240,
                          check=False, **more)
    assert done.returncode == code, (done.returncode, words, done.stdout + done.stderr)
    return done


def plan_json(*words):
    return json.loads(plan(*words, "--json").stdout)


def check_memory():
    for words in ([LLAMA], PIPELINE, [LLAMA, "--ranks", "2", "strategy.name=fsdp"]):
        made = plan_json(*words)
        for memory in [made["memory"], *(g["memory"] for g in made["rank_groups"])]:
            assert sum(memory[part] for part in PARTS) == memory["peak"], memory
        assert made["memory"]["peak"] == max(g["memory"]["peak"] for g in made["rank_groups"])
        assert sum(group["ranks"] for group in made["rank_groups"]) == made["ranks"]
    alone, sharded = plan_json(LLAMA)["memory"], made["memory"]
    assert sharded["optimizer"] < 0.52 * alone["optimizer"], (sharded, alone)
    text = plan(*PIPELINE, "--show", "memory").stdout
    rows = [line.split()[0] for line in text.splitlines() if line[:1].isdigit()]
    assert rows == ["0", "1", "2", "3"], text
    assert "#" in text and "schedule" not in text


LARGE = """name: llama-405b
model: {name: llama, vocab_size: 128256, hidden_size: 16384, intermediate_size: 53248,
        num_hidden_layers: 126, num_attention_heads: 128, num_key_value_heads: 8,
        max_position_embeddings: 8192}
data: {name: synthetic, samples: 1000000, sequence: 8192, vocabulary: 128256}
batch: {global: 2048, micro: 1}
optimizer: {name: adamw, lr: 1.0e-4}
trainer: {max_epochs: 1, precision: bf16-mixed}
strategy: {name: fsdp, recompute: block, mesh: {tensor: 8, pipeline: 16, shard: 128}}
"""


def check_summary():
    """At most ten lines tell whether it fits, its memory, time and disk, and what comes next."""
    labels = ["fits", "memory", "step", "rates", "run", "disk", "next", "more"]
    with tempfile.TemporaryDirectory(prefix="trireme-plan-") as folder:
        large = os.path.join(folder, "llama-405b.yaml")
        with open(large, "w", encoding="ascii") as file:
            file.write(LARGE)
        for words, what in (([LLAMA], "trireme train "),
                            ([LLAMA, "--ranks", "4096", "batch.global=4096"], "submit"),
                            ([SEVEN, "--device", "cuda:a100-64", "--ranks", "4"], "submit"),
                            ([large, "--ranks", "16384", "--device", "cuda:h200"], "submit")):
            lines = plan(*words).stdout.splitlines()
            found = dict(line.split(None, 1) for line in lines[1:])
            assert len(lines) <= 10 and list(found) == labels, lines
            assert what in found["next"] and words[0] in found["next"], lines
            assert "GB = 10^9 bytes" in found["fits"], lines
            assert not any("e+" in line for line in lines), lines
        # It is the first of the repeated blocks that gives them their name.
        blocks = plan(large, "--ranks", "16384", "--show", "blocks").stdout.splitlines()
        assert len(blocks) == 5 and blocks[2].split()[:2] == ["layers.0-125", "126"], blocks
        chart = plan(large, "--ranks", "16384", "--show", "gantt").stdout.splitlines()
        assert len(chart) < 120 and max(map(len, chart)) < 140, chart
        key = [word for line in chart[-3:] for word in line.split("  ") if word[1:2] == " "]
        assert key[0].startswith("a 0") and len({word[0] for word in key}) == len(key) <= 26, key
    # With a limit, because the memory that is free changes from one call to the next.
    few = "--memory", "3G"
    assert plan(LLAMA, *few).stdout == plan(LLAMA, "--show", "summary", *few).stdout
    small = plan(LLAMA, "--memory", "40M", code=2).stdout
    assert "fits     no: " in small and " --fit 40000000" in small, small
    # What comes next is a command of the program that was called, for as many ranks and there.
    def next_of(*words, code=0):
        line, = (line for line in plan(LLAMA, *words, code=code).stdout.splitlines()
                 if line.startswith("next "))
        return line.split()[1:]
    small = next_of("--memory", "40M", "--device", "cpu", "--mesh", "replicate=4", code=2)
    assert small[:2] == [TRIREME, "plan"] and "strategy.mesh.replicate=4" in small, small
    assert "--ranks 4 --device cpu --fit 40000000" in " ".join(small), small
    tiny = next_of("--memory", "3M", "--ranks", "2", code=2)  # no setting fits: more ranks may
    assert "--fit" not in tiny and tiny[tiny.index("--ranks") + 1] == "4", tiny
    large = next_of("--ranks", "2", "--device", "ref")
    assert large[0] == TRIREME and large[large.index("2") + 1:][:2] == [TRIREME, "train"], large
    assert large[-2:] == ["--device", "ref"], large
    assert " step " in plan(LLAMA, "--show", "memory").stdout.replace("\n", " \n "), "no time"


def check_gantt():
    text = plan(*PIPELINE, "--show", "gantt").stdout
    rows = [line.split() for line in text.splitlines() if line.startswith("  rank")]
    assert [row[1] for row in rows if row[2] == "compute"] == ["0", "1", "2", "3"], text
    assert all(len(row[3]) == 84 for row in rows), text
    # The first stage waits while the others compute; the last one begins last.
    assert rows[0][3][0] == "a" and rows[-3][3][0] == "." and "\x1b" not in text, text
    assert "(the bubble)" in text and "assumed" in text, text
    first = plan_json(*PIPELINE)["estimate"]
    assert f"{100 * first['bubble']:.1f}%" in text, (first, text)
    more = plan_json(LLAMA, "--mesh", "pipeline=4", "batch.global=64", "batch.micro=2")["estimate"]
    assert 0.05 < more["bubble"] < first["bubble"] < 0.5, (more, first)
    split = plan_json(*PIPELINE, "strategy.schedule=zero-bubble")["estimate"]
    assert split["bubble"] < first["bubble"], (split, first)


def check_svg():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "step.svg")
        plan(*PIPELINE, "--svg", path)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        plan(*PIPELINE, "--svg", os.path.join(folder, "none", "step.svg"), code=2)
    root = xml.etree.ElementTree.fromstring(text)
    words = [t.text for t in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "bubble" in words[0] and "1f1b" in words[0], words[0]
    assert "forward" in words and "optimizer" in words and "rank 3 compute" in words, words
    titles = [t.text for t in root.iter("{http://www.w3.org/2000/svg}title")]
    assert any(t.startswith("FORWARD layers.1, micro-batch 7") for t in titles), titles[:20]
    assert "href" not in text and "<script" not in text
    width = float(root.get("width"))
    for bar in root.iter("{http://www.w3.org/2000/svg}rect"):
        if bar.get("x"):
            assert 0 <= float(bar.get("x")) <= float(bar.get("x")) + float(bar.get("width")) < width


def check_rates():
    slow, fast = (plan_json(LLAMA, "--flops", rate, "--bandwidth", "1T", "--link", "1G")["estimate"]
                  for rate in ("30G", "60e9"))
    assert slow["rates"] == "given" and slow["flops_per_s"] == 30e9, slow
    assert 1.8 < slow["step_s"] / fast["step_s"] <= 2.0, (slow, fast)
    assert slow["step_flops"] / 30e9 <= slow["step_s"], slow
    assert abs(slow["samples_per_s"] * slow["step_s"] - 16) < 1e-6, slow
    far, near = (plan_json(LLAMA, "--ranks", "4", "--link", rate)["estimate"]
                 for rate in ("10M", "10G"))
    assert far["step_s"] > 2 * near["step_s"], (far, near)
    # Attention, nearly all of a layer of so many tokens, needs two products forward, four backward.
    # The one that makes its scores again is none of the model's.
    found = plan_json(LLAMA, "data.sequence=16384", "model.max_position_embeddings=16384")
    layer = next(row for row in found["blocks"] if row["name"] == "layers.0")
    assert layer["forward_flops"] > 7e10, layer
    assert 1.98 < layer["backward_flops"] / layer["forward_flops"] < 2.02, layer
    for flag, text in (("--flops", "fast"), ("--link", "0"), ("--bandwidth", "-1G")):
        assert flag in plan(LLAMA, flag, text, code=2).stderr


def check_many():
    """A thousand ranks in less than two seconds, which are counted as the processor's: it works
    alone, and other tests may run beside it."""
    wanted = {"replicate=256,pipeline=4": 4, "replicate=1024": 1, "replicate=16,pipeline=64": 64}
    for mesh, groups in wanted.items():
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        made = plan_json(LLAMA, "--mesh", mesh, "batch.global=4096", "batch.micro=1",
                         "model.num_hidden_layers=64", "--device", "null")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
        print(f"{mesh}: {seconds:.2f} s")
        assert made["ranks"] == 1024 and len(made["rank_groups"]) == groups, made["rank_groups"]
        assert seconds < 2 or "san" in os.path.basename(os.path.abspath(sys.argv[1])), seconds


def check_fit():
    """The proposed settings fit when planned, and a search changes nothing that is learned."""
    found = plan_json(LLAMA, "--ranks", "4", "--fit", "40M")
    assert len(found) > 5 and found == sorted(found, key=lambda c: c["step_s"]), found
    assert any("fsdp" in c["overrides"] for c in found), found
    assert any("pipeline=2" in c["overrides"] for c in found), found
    for candidate in found[::3]:
        made = plan_json(LLAMA, "--ranks", "4", *candidate["overrides"].split())
        assert made["memory"]["peak"] == candidate["peak"] <= 40e6, (candidate, made["memory"])
        assert abs(made["estimate"]["step_s"] / candidate["step_s"] - 1) < 1e-3, candidate
        assert "batch.global" not in candidate["overrides"]
    text = plan(LLAMA, "--ranks", "4", "--fit", "40M").stdout.splitlines()
    assert len(text) == 1 + len(found) and "samples/s" in text[0], text
    whole = plan_json("recipes/mnist-convnet.yaml", "--fit", "64G")
    assert all("batch.micro" not in c["overrides"] for c in whole), whole  # it has batch norm
    for flag in "--show", "--svg", "--memory":  # would have no effect
        both = plan(LLAMA, "--fit", "40M", flag, "memory", code=2).stderr
        assert f"--fit and {flag}" in both, both
    more = plan(LLAMA, "--fit", "40M", "strategy.memory=39M", code=2).stderr
    assert "strategy.memory: 39M" in more, more
    none = plan(LLAMA, "--fit", "1M", code=2).stderr
    assert "nothing tried fits" in none and "the least is" in none, none


def step_samples(made):
    return round(made["estimate"]["samples_per_s"] * made["estimate"]["step_s"])


def check_fit_of_passes():
    """If the recipe sets the number of micro-batches of a step, the proposals keep it."""
    deepspeed = ("deepspeed={train_batch_size: 16, train_micro_batch_size_per_gpu: 4, "
                 "gradient_accumulation_steps: 1}")
    for stated in (["trainer.accumulate_grad_batches=2"], [deepspeed],
                   ["batch.global=auto", "batch.micro=2", "trainer.accumulate_grad_batches=3"]):
        words = [LLAMA, *stated, "--ranks", "4"]
        step = step_samples(plan_json(*words))
        peaks = sorted(c["peak"] for c in plan_json(*words, "--fit", "64G"))
        found = plan_json(*words, "--fit", str(peaks[len(peaks) // 2]))
        assert len(found) > 3 and any("accumulate" in c["overrides"] for c in found), found
        for candidate in found:
            made = plan_json(*words, *candidate["overrides"].split())
            assert made["memory"]["peak"] == candidate["peak"], (stated, candidate)
            assert step_samples(made) == step, (stated, candidate)


def check_offload_fit():
    """Offloading is proposed if nothing else fits, and then the plan fits."""
    least = min(c["peak"] for c in plan_json(LLAMA, "--fit", "64G"))
    tight = plan(LLAMA, "--fit", "1M", code=2).stderr
    assert "strategy.offload" in tight, tight
    needed = min(plan_json(LLAMA, "strategy.recompute=block", "batch.micro=1", "batch.eval=1",
                           f"strategy.offload={what}")["memory"]["peak"]
                 for what in ("optimizer", "parameters"))
    found = plan_json(LLAMA, "--fit", str(needed))
    assert needed < least and found, (needed, least)
    assert all("strategy.offload" in c["overrides"] for c in found), found
    slow, fast = (plan_json(LLAMA, "strategy.offload=optimizer", "--disk", rate)["estimate"]
                  for rate in ("100M", "10G"))
    assert slow["step_s"] > fast["step_s"], (slow, fast)


def check_measure():
    """Compute actions take their measured times; rates matter only for the rest."""
    words = [LLAMA, "data.sequence=33", "--measure"]
    one = plan_json(*words)["estimate"]
    assert one["rates"].startswith("measured in part"), one
    absurd = plan_json(*words, "--flops", "1k")["estimate"]
    assert 0.1 < absurd["step_s"] / one["step_s"] < 10, (one, absurd)
    text = plan(*words, "--ranks", "2", "strategy.name=pipeline", "batch.micro=2",
                "strategy.schedule=zero-bubble").stdout
    assert "measured in part" in text and " GFLOP/s on each rank" in text, text
    plan(*words, "--mesh", "tensor=2")
    for ranks in "1", "3":
        plan("recipes/mnist-convnet.yaml", "trainer.sync_batchnorm=true", "--measure", "--ranks",
             ranks)
    found = plan_json(*words, "--ranks", "2", "--fit", "64G")
    assert found, found


def check_refusal():
    peak = plan_json(LLAMA)["memory"]["peak"]
    plan(LLAMA, "--memory", str(peak))
    refused = plan(LLAMA, "--memory", str(peak - 1000000), "--show", "memory", code=2)
    assert re.search(r"parameters +\S+ .B\n", refused.stdout), refused.stdout
    assert "1.0 MB more than" in refused.stderr and refused.stderr.count("\n") == 1, refused.stderr
    least = plan_json(LLAMA, "strategy.recompute=block")["memory"]["peak"]
    words = [LLAMA, f"strategy.memory={(peak + least) // 2}"]
    plan(*words, code=2)
    fitted = plan_json(*words, "strategy.recompute=fit")
    again = [a["block"] for a in fitted["schedule"] if a["action"] == "RECOMPUTE"]
    assert fitted["memory"]["peak"] <= (peak + least) // 2 and 1 <= len(again) < 5, again
    plan(LLAMA, f"strategy.memory={peak}", "strategy.recompute=fit")
    same = plan_json(LLAMA, "--memory", str((peak + least) // 2), "strategy.recompute=fit")
    assert same["memory"]["peak"] == fitted["memory"]["peak"], same["memory"]
    for text in ("lots", "-1", "0"):
        assert "strategy.memory" in plan(LLAMA, f"strategy.memory={text}", code=2).stderr
    with tempfile.TemporaryDirectory() as folder:
        run = os.path.join(folder, "run")
        train = subprocess.run([TRIREME, "train", "recipes/mnist-cnn.yaml", "--run-dir", run,
                                "data.name=synthetic", "data.shape=[1,28,28]", "data.classes=10",
                                "strategy.memory=30M"],
                               capture_output=True, text=True, timeout=240, check=False)
        assert train.returncode == 2 and not os.path.exists(run), train
        assert "of strategy.memory; " in train.stderr, train.stderr
        assert train.stderr.count("\n") == 1, train.stderr


def check_targets():
    """Without the data, an exported network tells what it takes, and the losses of the recipe what
    they compare its outputs with: [10] classes with a label, or numbers with as many."""
    cnn = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "parity", "exported",
                       "cnn.pt2")
    recipe = {"model": {"name": "torch", "program": os.path.abspath(cnn)},
              "data": {"name": "tensors", "train": "not-there.safetensors"},
              "batch": {"global": 8}, "optimizer": {"name": "sgd", "lr": 0.1}}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "recipe.yaml")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(recipe, file)
        for loss, target in (("nll", None), ("cross_entropy", "kind"), ("mse", None),
                             ("bce", "kind"), ("cross_entropy", "soft_labels")):
            words = [f"loss.name={loss}"] + ([f"loss.target={target}"] if target else [])
            plan_json(path, *words)
            done = subprocess.run([TRIREME, "submit", path, "--dry-run", "--site", "lumi-g",
                                   "--nodes", "1", "--account", "a", "--device", "cpu", *words],
                                  capture_output=True, text=True, timeout=240, check=False)
            assert done.returncode == 0 and "not checked" not in done.stderr, done
        refused = plan(path, "loss.name=ctc", code=2).stderr
        assert "data.shapes is not set" in refused and refused.count("\n") == 1, refused
        refused = plan(path, "loss.name=mse", "loss.output=heat", code=2).stderr
        assert "has no output 'heat'" in refused and refused.count("\n") == 1, refused


def check_described_device():
    """A plan for a device that is not here: its memory decides, and other settings would fit."""
    words = ["recipes/mnist-cnn.yaml", "batch.global=100000", "--device", "null:v100-32"]
    twice = [words[0], "batch.global=200000", *words[2:], "--ranks", "2"]
    for too_large in words, twice:
        refused = plan(*too_large, "--show", "memory", code=2)
        assert "more than the 32.0 GB of null:v100-32; would fit" in refused.stderr, refused.stderr
    plan("recipes/mnist-cnn.yaml", "batch.global=100000", "--device", "null:h200")
    plan(*twice, "batch.micro=50000")
    more = plan(*words, "--memory", "200G", code=2).stderr  # more than there is
    assert "of null:v100-32; " in more, more
    less = plan(*words, "--memory", "20G", code=2).stderr
    assert "of strategy.memory; " in less, less
    found = plan_json(*words, "--fit", "30G")
    assert found and all(c["peak"] <= 30e9 for c in found), found
    assert "null:v100-32" in plan(*words, "--fit", "33G", code=2).stderr
    unknown = plan(*words[:-1], "null:v100", code=2).stderr
    assert unknown.count("\n") == 1 and all(name in unknown for name in GPUS), unknown
    assert "cpu has no models" in plan(*words[:-1], "cpu:v100", code=2).stderr
    with tempfile.TemporaryDirectory() as folder:
        run = os.path.join(folder, "run")
        train = subprocess.run([TRIREME, "train", *words, "--run-dir", run, "data.name=synthetic",
                                "data.shape=[1,28,28]", "data.classes=10", "data.samples=100000"],
                               capture_output=True, text=True, timeout=240, check=False)
        assert train.returncode == 2 and not os.path.exists(run), train
        assert "of null:v100-32; would fit" in train.stderr, train.stderr
        assert train.stderr.count("\n") == 1, train.stderr


def check_gpus():
    """CodeLlama-7B on the GPUs of supercomputers, planned where there is none: its 108 GB of state
    fit into 4 x 64 GB when they are divided, and without that the refusal says what is missing."""
    words = ["recipes/codellama-7b.yaml", "--ranks", "4", "--device"]
    fits = plan_json(*words, "cuda:a100-64")
    assert fits["memory"]["peak"] < 64e9 and fits["memory"]["workspace"] > 32 << 20, fits["memory"]
    assert fits["estimate"]["rates"] == "the maker's peak", fits["estimate"]
    whole = plan(*words, "cuda:a100-64", "strategy.name=ddp", code=2).stderr
    missing = re.search(r"(\S+) GB of memory, (\S+) GB more than the 62.9 GB of cuda:a100-64 "
                        r".*1.1 GB.*: strategy", whole)
    assert missing and whole.count("\n") == 1, whole
    # Weights in F32 and BF16, gradients and AdamW's two states in F32: 18 bytes a parameter.
    assert 18 * 6.74 < float(missing.group(1)) < 18 * 6.74 + 5, whole
    assert abs(float(missing.group(1)) - float(missing.group(2)) - 62.93) < 0.11, whole
    found = plan_json(*words, "cuda:a100-64", "--fit", "64G")
    assert found and all(c["peak"] <= 64e9 - (1 << 30) for c in found), found
    for device in "h200", "a100-40", "mi250x":
        plan(*words, f"cuda:{device}", "--show", "memory")
        # The module for AMD's GPUs calls no library that wants channels last.
        graph = plan("recipes/denoise-cnn.yaml", "trainer.precision=bf16-mixed", "--device",
                     f"cuda:{device}", "--show", "graph").stdout
        assert ("acdb" in graph) == (device != "mi250x"), (device, graph)
    assert "of cuda:v100-32" in plan(*words, "cuda:v100-32", "--show", "memory", code=2).stderr
    small = ["recipes/mlp-jax.yaml", "--device"]
    # Without a module, a GPU can be planned for but not driven.
    with tempfile.TemporaryDirectory() as none:
        for device, module in ("mi250x", "hip"), ("a10", "cuda"):
            modules = {**os.environ, "TRIREME_MODULES": none}
            text = plan(*small, f"cuda:{device}", env=modules).stderr
            assert text.count("\n") == 1 and f"cuda:{device}" in text and module in text, text
        open(os.path.join(none, "cuda.so"), "w", encoding="utf-8").close()
        assert not plan(*small, "cuda:a10", env=modules).stderr
    if os.path.exists("/dev/nvidiactl"):
        return
    absent = plan("recipes/mnist-cnn.yaml", "--device", "cuda", code=2).stderr
    assert absent.count("\n") == 1 and "/dev/nvidiactl" in absent, absent
    for script in "tests/gpu/test-gpu", "bench/gpu":
        done = subprocess.run([script], capture_output=True, text=True, check=False)
        assert done.returncode == 77, done
        assert "no NVIDIA driver" in done.stdout + done.stderr, done


for check in (check_memory, check_gantt, check_summary, check_svg, check_rates, check_fit,
              check_fit_of_passes, check_offload_fit, check_measure, check_refusal, check_targets,
              check_described_device, check_gpus, check_many):
    started = time.monotonic()
    check()
    print(f"{check.__name__}: {time.monotonic() - started:.1f} s", flush=True)
