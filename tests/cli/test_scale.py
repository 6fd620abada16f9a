#!/usr/bin/env python3
"""`trireme scale`: strong and weak scaling measured on the ranks that there are, and simulated for
more; its table, JSON object and picture; what it refuses.

usage: test_scale.py BUILD_FOLDER
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import TRIREME, check_all, on_ranks, run  # noqa: E402

SCALE = [TRIREME, "scale", "recipes/mlp-jax.yaml", "data.name=synthetic", "data.samples=500",
         "data.shape=[1,28,28]", "data.classes=10", "data.workers=0", "batch.global=48",
         "--seconds", "0.2"]
SVG = "{http://www.w3.org/2000/svg}"


def sweep(ranks, *words, **more):
    """On so many ranks; 0: alone, so that the command starts them."""
    done = run(on_ranks(ranks or 1, [*SCALE, *words, "--json"]), **more)
    found = json.loads(done.stdout)
    said = [int(count) for count in re.findall(r"(\d+) ranks?\b", done.stderr)]
    measured = [p["ranks"] for p in found["points"] if p["from"] == "measured"]
    assert said == measured and len(done.stderr.splitlines()) == len(said), done.stderr
    return found


def close(a, b):
    return abs(a - b) <= 1e-6 * abs(b)


def check_points(found, measured, batches):
    """What holds between the numbers of every sweep."""
    points, first = found["points"], found["points"][0]
    assert [p["batch"] for p in points] == batches, points
    assert [p["ranks"] for p in points if p["from"] == "measured"] == measured, points
    rate = {}
    for point in points:
        ranks, m, s = point["ranks"], point["measured"], point["simulated"]
        source = m or s
        rate[ranks] = source["samples_per_s"]
        assert close(source["step_s"], point["batch"] / rate[ranks]), point
        assert close(point["speedup"], rate[ranks] / rate[first["ranks"]]), point
        assert close(point["efficiency"], point["speedup"] * first["ranks"] / ranks), point
        if not m:
            assert point["simulation_error"] is None and 0 < point["efficiency"] < 1.2, point
            continue
        assert m["step_s_low"] <= m["step_s"] <= m["step_s_high"] and m["chunks"] > 0, m
        assert 0 <= m["waiting"] < 1 and (ranks > 1 or m["waiting"] == 0), m
        assert (m["link_bytes_per_s"] is None) == (ranks == 1), m
        assert abs(point["simulation_error"] - (s["samples_per_s"] / rate[ranks] - 1)) < 1e-9, point
    assert found["simulation"]["calibrated"] and abs(first["simulation_error"]) < 1e-6, found
    assert found["simulation"]["link_ranks"] == (measured[-1] if measured[-1] > 1 else 0), found


def check_strong(_):
    found = sweep(2, "--ranks", "1,2,8,64", "batch.global=64")
    assert found["scaling"] == "strong" and found["name"] == "mlp-jax", found
    check_points(found, [1, 2], [64] * 4)
    assert [p["hosts"] for p in found["points"]] == [1, 1, 4, 32], found
    # More ranks get fewer samples each, and reduce as much.
    efficiency = [p["efficiency"] for p in found["points"] if p["from"] == "simulated"]
    assert efficiency == sorted(efficiency, reverse=True), efficiency


def check_weak(_):
    found = sweep(3, "--weak", "--ranks", "2,3,6")
    assert found["scaling"] == "weak", found
    check_points(found, [2, 3], [48, 72, 144])


def check_one_rank(_):
    found = sweep(1, "--ranks", "1,4", "--device", "ref", "batch.global=4")
    check_points(found, [1], [4, 4])


def check_asynchronous_device(_):
    points = sweep(2, "--device", "far")["points"]
    assert [p["ranks"] for p in points] == [1, 2], points
    assert all(p["measured"]["waiting"] is None for p in points), points


def check_alone(folder):
    """It starts as many ranks as there are cores, at most."""
    cores = len(os.sched_getaffinity(0))
    found = sweep(0, "--ranks", "1,2,1000", "batch.global=1000", cwd=os.getcwd())
    check_points(found, [r for r in (1, 2) if r <= cores], [1000] * 3)
    assert os.listdir(folder) == [], "a sweep saves nothing"


def check_started_by_loader(_):
    """The starter of a bundle may run the loader with the program as its argument; the ranks are
    started by the same file, which is not what the kernel calls the program then."""
    loader = subprocess.run(["readelf", "-l", TRIREME], capture_output=True, text=True, check=True)
    path = re.search(r"program interpreter: (\S+)\]", loader.stdout)[1]
    found = json.loads(run([path, *SCALE, "--ranks", "1,2", "--json"]).stdout)
    check_points(found, [r for r in (1, 2) if r <= len(os.sched_getaffinity(0))], [48] * 2)


def check_table(folder):
    picture = os.path.join(folder, "scale.svg")
    done = run(on_ranks(2, [*SCALE, "--ranks", "1,2,4", "--svg", picture]))
    rows = [line.split()[:3] for line in done.stdout.splitlines()]
    assert [row for row in rows if row[1:] and row[1].isdigit()] == [
        ["measured", "1", "1"], ["measured", "2", "1"], ["simulated", "4", "2"]], done.stdout
    assert "as measured" in done.stdout, done.stdout
    assert "among 2 on 1 host" in done.stdout and "by up to" in done.stdout, done.stdout
    root = xml.etree.ElementTree.parse(picture).getroot()
    titles = [t.text for t in root.iter(f"{SVG}title")]
    assert sum(t.startswith("measured, 2 ranks") for t in titles) == 2, titles
    assert sum(t.startswith("simulated, 4 ranks") for t in titles) == 2, titles
    texts = [t.text for t in root.iter(f"{SVG}text")]
    assert {"ranks", "samples per second", "efficiency", "ideal", "simulated"} <= set(texts), texts
    width, height = float(root.get("width")), float(root.get("height"))
    for mark in root.iter(f"{SVG}circle"):
        assert 0 < float(mark.get("cx")) < width and 0 < float(mark.get("cy")) < height
    assert os.listdir(folder) == ["scale.svg"], os.listdir(folder)


REFUSED = [
    (["--ranks", "2,1"], "not a rising list"),
    (["--ranks", "1,2,"], "not a rising list"),
    (["--ranks", "1,two"], "not a rising list"),
    (["--ranks", "0,1"], "not a rising list"),
    (["--ranks", "1,100000"], "more than 65536"),
    (["--ranks", "1,64"], "batch.global=48 is less than one"),
    (["--ranks", "1,2", "strategy.mesh.tensor=2"], "1 rank cannot be"),
    (["--ranks", "2,3", "--weak", "batch.global=5"], "--weak: batch.global=5 of 2 ranks"),
    (["--ranks", "1,2", "--seconds", "0"], "--seconds"),
    (["--ranks", "1,2", "--device", "gpu"], "--device"),
    (["--ranks", "1,2", "--svg", "/nowhere/scale.svg"], "/nowhere/scale.svg"),
    (["--ranks", "1,2", "bacth.global=4"], "did you mean"),
    (["--ranks", "100,200", "batch.global=400"], "are the fewest"),
]
# A model can be planned for on any machine, but not measured.
ABSENT = [] if os.path.exists("/dev/nvidiactl") else [
    (["--ranks", "1,2", "--device", "cuda:h200"], "device cuda")]


def check_refused(_):
    """One line and code 2, before any rank is started."""
    for words, text in REFUSED + ABSENT:
        done = run([*SCALE, *words], 2)
        assert text in done.stderr and done.stderr.count("\n") == 1, (words, done.stderr)
        assert done.stdout == "", done.stdout


def check_refused_by_ranks(folder):
    """Under a launcher all ranks agree, and rank 0 alone says why."""
    for words, text in REFUSED[5:9] + REFUSED[10:]:
        done = run(on_ranks(2, [*SCALE, *words]), 2)
        lines = done.stderr.splitlines()
        said = [line for line in lines if text in line and line.startswith("trireme: ")]
        assert said == lines[:1] and done.stdout == "", (words, done.stderr)
    assert os.listdir(folder) == [], os.listdir(folder)


CHECKS = [check_strong, check_weak, check_one_rank, check_asynchronous_device, check_alone,
          check_started_by_loader, check_table, check_refused, check_refused_by_ranks]

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home:
        failed = []
        for check in CHECKS:
            with tempfile.TemporaryDirectory(dir=home) as empty:
                failed += [check_all([check], empty)]
    sys.exit(1 if any(failed) else 0)
