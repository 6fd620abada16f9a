#!/usr/bin/env python3
"""Ten steps with averages of the weights against PyTorch's goldens (make_average_goldens.py).

usage: test_averages.py BUILD_FOLDER

PyTorch is not needed. Losses and the tensors of average.safetensors have to agree as those of
test_parity.py do. Wrong averages are noticed.
"""
import json
import os
import sys
import tempfile

import formula
import test_parity

# By kind of average, wrong values of its options.
MISTAKES = {"ema": ({"decay": 0.71}, {"every_n_steps": 3}, {"start_step": 3}),
            "swa": ({"start": 0.4}, {"start": 0.2}, {"lr": 0.0031})}


def run(program, case, files, place, average):
    model, weights = case["model"], formula.initial_weights(case["model"])
    formula.write_safetensors(f"{files}/init.safetensors", weights)
    formula.write_safetensors(f"{files}/data.safetensors", formula.data_set(model))
    options = {**formula.OPTIMIZERS[case["optimizer"]]}
    lines, trained = test_parity.run(program, model, options, files, place,
                                     test_parity.overrides("average", average))
    averages = formula.read_safetensors(f"{place}/checkpoints/last/average.safetensors")
    return lines, trained, averages, weights


def check(program, case, files, place):
    lines, trained, averages, weights = run(program, case, files, place, case["average"])
    wrong, loss, tensor = test_parity.compare(case, lines, averages, weights)
    for name, (_, _, values) in averages.items():
        is_frozen = formula.group_of(name, formula.OPTIMIZERS[case["optimizer"]])["frozen"]
        is_buffer = "running" in name or "num_batches" in name
        # Frozen parameters and buffers are those of the model, all others are none of its own.
        if (values == trained[name][2]) != (is_frozen or is_buffer):
            wrong.append(f"{name} is {'not ' if is_frozen or is_buffer else ''}the model's")
    print(f"{case['model']} {case['average']}: losses {loss:.2f}, tensors {tensor:.2f} of what is "
          "allowed", flush=True)
    return wrong


def check_mistakes(program, case, files, place):
    missed = []
    for i, mistake in enumerate(MISTAKES[case["average"]["name"]]):
        lines, _, averages, weights = run(program, case, files, f"{place}-{i}",
                                          {**case["average"], **mistake})
        if not test_parity.compare(case, lines, averages, weights)[0]:
            missed.append(f"{case['model']}: not noticed: {mistake}")
    return missed


def main():
    program = os.path.join(os.path.abspath(sys.argv[1]), "bin", "trireme")
    with open(os.path.join(test_parity.HERE, "goldens", "averages.json"), encoding="utf-8") as f:
        cases = json.load(f)
    assert [{key: case[key] for key in ("model", "optimizer", "average")} for case in cases] == \
        formula.AVERAGES, "make_average_goldens.py makes the goldens again"
    wrong = []
    with tempfile.TemporaryDirectory(prefix="trireme-averages-") as files:
        for i, case in enumerate(cases):
            wrong += check(program, case, files, f"{files}/run-{i}")
        wrong += check_mistakes(program, cases[0], files, f"{files}/ema")
        wrong += check_mistakes(program, cases[2], files, f"{files}/swa")
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
