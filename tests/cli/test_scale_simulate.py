#!/usr/bin/env python3
"""`trireme scale --simulate`: machines that are not here. ResNet-50 on JUWELS Booster takes as long
as JSC has measured (docs/scaling.md says where the figures are from); what is refused.

usage: test_scale_simulate.py BUILD_FOLDER
"""
import json
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import TRIREME, check_all, run  # noqa: E402

SCALE = [TRIREME, "scale", "recipes/imagenet-resnet50.yaml", "--simulate", "--site",
         "juwels-booster", "--weak"]
RUN = ["--samples", "1281167", "--val-samples", "50000"]
# The rates of one node, and PyTorch's loader.
NODE = ["--rate", "772", "--loader", "2555", "--cold-loader", "--start", "60"]
# Minutes of 10 epochs by GPUs; 256 samples each on one node, 128 on several.
MEASURED = {256: {1: 342 + 11.9 / 60, 4: 89 + 15.9 / 60},
            128: {16: 24 + 48.2 / 60, 32: 13 + 10.7 / 60, 64: 6 + 56.5 / 60, 128: 4 + 48.3 / 60}}


def simulate(ranks, batch, *words):
    global_batch = batch * int(ranks.split(",", maxsplit=1)[0])
    return json.loads(run([*SCALE, "--ranks", ranks, f"batch.global={global_batch}",
                           f"batch.micro={batch}", "--json", *words]).stdout)


def check_juwels(_):
    for batch, minutes in MEASURED.items():
        found = simulate(",".join(map(str, minutes)), batch, *RUN, *NODE)
        assert found["site"] == "juwels-booster", found
        for point in found["points"]:
            ranks, part = point["ranks"], point["run"]
            off = part["total_s"] / 60 / minutes[ranks] - 1
            assert abs(off) < 0.1, (ranks, part["total_s"] / 60, minutes[ranks], off)
            assert point["from"] == "simulated" and point["hosts"] == -(-ranks // 4), point
            parts = sum(part[key] for key in ("computing_s", "network_s", "data_s",
                                              "evaluations_s", "start_s"))
            assert abs(parts / part["total_s"] - 1) < 1e-9 and part["start_s"] == 60, part
            assert abs(point["simulated"]["samples_per_s"] / (772 * ranks) - 1) < 0.02, point


def check_parts(_):
    """What a term is good for shows if it goes."""
    last = [simulate("1,128", 128, *RUN, *words)["points"][1]["run"] for words in
            ([], ["--loader", "2555"], ["--loader", "2555", "--cold-loader"])]
    bare, warm, cold = (run["total_s"] for run in last)
    assert last[0]["data_s"] == 0 and bare < warm < cold, last
    assert last[1]["efficiency"] > 0.95 > last[2]["efficiency"] > 0.7, last
    # A slow network shows where it is more than the backward pass hides.
    steps = [simulate("1,128", 128, "--rate", "772", *words)["points"][1]["simulated"]["step_s"]
             for words in ([], ["--site", "puhti", "--device", "cuda:a100-40"])]
    assert steps[0] <= steps[1] < 1.1 * steps[0], steps
    words = [*SCALE, "--ranks", "1,4", "batch.micro=256"]
    text = run([*words, *RUN]).stdout
    assert "on juwels-booster, simulated" in text and "evaluating" in text, text
    assert "--samples N" in run(words).stdout


def check_refused(_):
    plain = [word for word in SCALE if word not in ("--simulate",)]
    for words, text in (
            ([*plain, "--ranks", "1"], "--site has no effect without --simulate"),
            ([*SCALE], "--simulate needs --ranks"),
            ([*SCALE, "--ranks", "1", "--loader", "9"], "--loader has no effect without --samples"),
            ([*SCALE, "--ranks", "1", "--rate", "0"], "--rate: '0'"),
            ([*SCALE, "--ranks", "1", *RUN, "--start", "soon"], "--start: 'soon'"),
            ([*SCALE, "--ranks", "1", "--seconds", "2"], "--seconds has no effect"),
            ([*SCALE[:4], "--site", "juwel", "--ranks", "1"], "juwel")):
        done = run(words, code=2)
        lines = done.stderr.splitlines()
        assert len(lines) == 1 and text in lines[0] and not done.stdout, (words, done)


if __name__ == "__main__":
    sys.exit(1 if check_all((check_juwels, check_parts, check_refused), None) else 0)
