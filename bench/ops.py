"""The part `ops` of bench/run: primitives on large tensors, beside PyTorch's and memory's rate."""
import os
import subprocess
import tempfile

import page

# Title, family and kind in bench/ops.c, MB that its forward pass reads and writes at least.
CASES = [
    ("chain of 6 functions, 2^24", 0, 0, 201), ("chain with exp and sigmoid, 2^24", 0, 1, 201),
    *((f"{name} over axis {axis} of [256, 256, 256]", 1, 3 * kind + axis, 67)
      for kind, name in enumerate(("sum", "mean", "max", "variance")) for axis in range(3)),
    ("softmax over the last axis of [64, 256, 768]", 2, 0, 101),
    ("softmax over axis 1 of [64, 256, 768]", 2, 1, 101),
    ("layer norm of [64, 256, 768]", 2, 2, 101),
    ("group norm of [32, 64, 64, 64]", 3, 0, 67),
    ("max pooling with indices of [8, 3, 128, 128]", 4, 0, 3),
    ("max pooling with indices of [8, 32, 128, 128]", 5, 0, 29),
    ("antialiased 48 x 48 of [8, 3, 128, 128]", 4, 1, 2),
    ("antialiased 48 x 48 of [8, 32, 128, 128]", 5, 1, 19),
    ("grid_sample of [8, 3, 128, 128]", 6, 0, 4), ("grid_sample of [8, 32, 128, 128]", 7, 0, 35),
]
BF16_CASES = ("sum", "max over")


def library(folder):
    """Compiles bench/ops.c and returns the model's path."""
    path = os.path.join(folder, "ops.so")
    here = os.path.dirname(os.path.abspath(__file__))
    subprocess.run([os.environ.get("CC", "cc"), "-O1", "-shared", "-fPIC", "-I",
                    os.path.join(here, "..", "include"), "-o", path,
                    os.path.join(here, "ops.c")], check=True)
    return path


def ours(bench, model, case, threads, half):
    """Microseconds of the forward and of the backward pass, and memory's rate in GB/s."""
    _, family, kind, _ = case
    more = ["trainer.precision=bf16-mixed"] if half else []
    command = [bench.trireme, "bench", "kernels", "bench/ops.yaml", f"model.name={model}",
               f"model.family={family}", f"model.kind={kind}", *more,
               "--seconds", str(bench.options.seconds / 4), "--json"]
    lines = bench.json_lines(command, threads)[0]
    rows = [line for line in lines if line.get("block") == "measured"]
    # Casts to and from BF16 belong to the inputs.
    rows = [row for row in rows if row["op"] != "cast" or not half]
    sums = [sum(row["time_us"] for row in rows if row["phase"] == phase)
            for phase in ("forward", "backward")]
    return (*sums, lines[0]["peak_gb_s"])


def theirs(bench, case, threads, half, compiled):
    _, family, kind, _ = case
    return bench.theirs(["--program", "ops_bench.py", str(family), str(kind),
                         *(["--bf16"] if half else []), *(["--compile"] if compiled else [])],
                        threads, seconds=bench.options.seconds / 8)


def rows_of(bench, model, case, threads, half, failed, shown, middle, verdict):
    title = case[0] + (", BF16" if half else "")
    megabytes = case[3] / (2 if half else 1)
    turns = []
    for _ in range(bench.options.turns):
        try:
            mine = ours(bench, model, case, threads, half)
            forms = [theirs(bench, case, threads, half, compiled) for compiled in (False, True)]
        except failed as why:
            bench.note(str(why))
            continue
        forms = [form for form in forms if form]
        best = [min(form[key] for form in forms) if forms else None
                for key in ("forward_us", "backward_us")]
        turns.append((mine, best))
    if not turns:
        return []
    ratios = [middle([best[k] / mine[k] for mine, best in turns if best[k] and mine[k]])
              for k in (0, 1)]
    share = middle([megabytes * 1e3 / mine[0] / mine[2] for mine, _ in turns if mine[0]])
    cells = [shown(middle([side[k] for side in sides]))
             for k in (0, 1) for sides in zip(*turns)]
    return [[title, str(threads), *cells[:2], verdict(ratios[0], 1), *cells[2:],
             verdict(ratios[1], 1), shown(share, 2)]]


def section(bench, failed, shown, middle, verdict):
    rows = []
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as folder:
        model = library(folder)
        for case in CASES:
            for half in (False, True):
                if half and not case[0].startswith(BF16_CASES):
                    continue
                for threads in (1, 2):
                    if bench.wanted(case[0], threads):
                        rows += rows_of(bench, model, case, threads, half, failed, shown, middle,
                                        verdict)
                        print(" | ".join(rows[-1] if rows else []), flush=True)
    return page.Section(
        "Primitives on large tensors, microseconds",
        ["primitive", "threads", "Trireme", "PyTorch", "ratio", "Trireme, backward",
         "PyTorch, backward", "ratio backward", "share of memory's rate, forward"], rows, 2,
        "PyTorch is the faster of eager and torch.compile. Memory's rate is that of reading and "
        "writing at once, which `trireme bench kernels` measures beside.")
