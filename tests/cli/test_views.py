#!/usr/bin/env python3
"""What shows a run: report, compare, export and log.csv, on runs of this test and on a real one
that was killed and resumed.

usage: test_views.py BUILD_FOLDER
"""
import base64
import csv
import hashlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from made_runs import make_run  # noqa: E402
from runs import (SYNTHETIC, TRIREME, check_all, entries, finish, run, start, train,  # noqa: E402
                  wait_for)

folder = None


def place_of(name):
    return os.path.join(folder, name)


def data_of(page):
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    return json.loads(found.group(1))


def test_page():
    """The page is whole, has no address of another place, and allows its own script alone."""
    place = make_run(place_of("page"), name="</script><b>&", not_finite=7)
    done = run([TRIREME, "report", place])
    assert done.stdout == f"{place}/report.html\n" and not done.stderr, done
    with open(f"{place}/report.html", encoding="utf-8") as file:
        page = file.read()
    data = data_of(page)["runs"][0]
    assert data["name"] == "</script><b>&"
    assert "<title>&lt;/script&gt;&lt;b&gt;&amp;" in page
    assert not re.search(r"\b(https?|ftp|wss?)://|\bsrc=|\bhref=|url\(|@import", page)
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page).group(1)
    assert policy.startswith("default-src 'none';") and "unsafe" not in policy, policy
    for tag, rule in (("script", "script-src"), ("style", "style-src")):
        text = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.S)
        assert len(text) == 1
        digest = base64.b64encode(hashlib.sha256(text[0].encode()).digest()).decode()
        assert f"{rule} 'sha256-{digest}'" in policy, (tag, policy)
    loss = next(c for c in data["curves"] if c["name"] == "train/loss")
    assert len(loss["steps"]) == len(loss["values"]) == 500 and loss["values"][6] == "NaN"
    assert [r["step"] for r in data["resumes"]] == [250]
    assert [(c["step"], c["best"], c["last"]) for c in data["checkpoints"]] == \
        [(200, True, False), (500, False, True)]


def test_data():
    """--json prints the page's data, and writes the page only where it is asked for."""
    place = make_run(place_of("data"))
    done = run([TRIREME, "report", place, "--json"])
    data = json.loads(done.stdout)["runs"][0]
    assert not os.path.exists(f"{place}/report.html")
    changed = {c["key"]: c["values"] for c in data["changed"]}
    assert changed["batch.global"] == [16, 64], changed
    assert "optimizer.lr" not in changed, changed
    page = place_of("of-data.html")
    assert json.loads(run([TRIREME, "report", place, "--json", "--html", page]).stdout)
    with open(page, encoding="utf-8") as file:
        assert data_of(file.read())["runs"][0] == data


def test_compare():
    """The table and the object have each run's last and best figures and what differs."""
    one, two = make_run(place_of("one"), lr=0.5), make_run(place_of("two"), lr=0.25, status=None)
    table = run([TRIREME, "compare", one, two], env={**os.environ, "COLUMNS": "200"}).stdout
    assert re.search(r"^status +completed +failed$", table, re.M), table
    assert re.search(r"^optimizer.lr +0.5 +0.25$", table, re.M), table
    assert re.search(r"^val/accuracy .* at 500 .* at 500$", table, re.M), table
    narrow = run([TRIREME, "compare", *[one] * 5], env={**os.environ, "COLUMNS": "80"}).stdout
    assert max(map(len, narrow.split("\n"))) <= 80, narrow
    found = json.loads(run([TRIREME, "compare", one, two, "--json"]).stdout)
    assert {"key": "optimizer.lr", "values": [0.5, 0.25]} in found["differences"]
    for place, got in zip((one, two), found["runs"]):
        values = [(e["step"], float(e["loss"])) for e in entries(place, "val")]
        best = min(values, key=lambda v: v[1])
        figure = got["figures"]["val/loss"]
        assert (figure["last"]["step"], figure["last"]["value"]) == values[-1]
        assert (figure["best"]["step"], figure["best"]["value"]) == best
    assert found["runs"][1]["status"] == "failed"


def rows_of(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def check_rows(place, path):
    """Of repeated steps the table has the later values; each kind and step is there once."""
    rows, wanted = rows_of(path), {}
    for kind in ("train", "val", "test"):
        for entry in entries(place, kind):
            wanted[kind, entry["step"]] = entry
    assert len(rows) == len(wanted)
    assert len({(r["kind"], r["step"]) for r in rows}) == len(rows)
    assert [int(r["step"]) for r in rows] == sorted(int(r["step"]) for r in rows)
    for row in rows:
        entry = wanted[row["kind"], int(row["step"])]
        for key in set(entry) - {"kind", "step", "wall_s"}:
            if isinstance(entry[key], list):
                assert key not in row
            else:
                assert row[key] == entry[key] or float(row[key]) == float(entry[key]), (row, entry)
    return rows


def test_export():
    place, path = make_run(place_of("export"), not_finite=9), place_of("curves.csv")
    run([TRIREME, "export", place, "--csv", path])
    rows = check_rows(place, path)
    assert rows[8]["loss"] == "NaN" and rows[8]["kind"] == "train"


def test_real_run():
    """log.csv of a run that was killed and resumed is what export makes of it afterwards."""
    place, path = place_of("real"), place_of("real.csv")
    words = train("mnist-cnn", place, *SYNTHETIC, "data.samples=64", "data.test_samples=16",
                  "batch.global=8", "trainer.max_epochs=4", "checkpoint.every_n_steps=4",
                  "log.csv=true")
    child = start([*words, "trainer.max_epochs=4000"])
    wait_for(lambda: len(entries(place, "train")) > 14, "steps", child=child)
    child.send_signal(signal.SIGKILL)
    finish(child)
    assert json.loads(run([TRIREME, "compare", place, "--json"]).stdout)["runs"][0]["status"] == \
        "failed"
    done = max(e["step"] for e in entries(place, "train"))
    run([*words, f"trainer.max_epochs={done // 8 + 2}"])
    run([TRIREME, "export", place, "--csv", path])
    check_rows(place, path)
    live, made = rows_of(f"{place}/metrics.csv"), rows_of(path)
    assert len(live) == len(made)
    for a, b in zip(live, made):
        for key in set(b) - {"wall_s"}:
            assert a[key] == b[key] or float(a[key]) == float(b[key]), (key, a, b)
    data = json.loads(run([TRIREME, "report", place, "--json"]).stdout)["runs"][0]
    assert data["status"] == "completed" and len(data["resumes"]) == 1
    assert any(e["kind"] == "start" and e["ranks"] == 1 for e in data["events"])
    model = [e["model"] for e in data["events"] if e["kind"] == "start"][-1]
    assert sum(b["parameters"] for b in model) == 1199882, model
    # A run that goes on is "running", and its folder may be shown meanwhile.
    child = start([*words, "trainer.max_epochs=100000"])
    wait_for(lambda: max(e["step"] for e in entries(place, "train")) > done + 20, "steps",
             child=child)
    found = json.loads(run([TRIREME, "compare", place, "--json"]).stdout)["runs"][0]
    assert found["status"] == "running", found["status"]
    child.send_signal(signal.SIGKILL)
    finish(child)


def test_failed_run():
    """The end of a run that fails has its message as the reason, and the page shows it."""
    place = place_of("failing")
    done = run(train("mnist-cnn", place, *SYNTHETIC, "data.samples=64", "batch.global=8",
                     "optimizer.name=sgd", "optimizer.lr=1000000"), 1)
    found = json.loads(run([TRIREME, "compare", place, "--json"]).stdout)["runs"][0]
    assert found["status"] == "failed" and found["reason"] in done.stderr, (found, done.stderr)
    assert found["figures"]["train/loss"]["last"]["value"] == "NaN", found
    data = json.loads(run([TRIREME, "report", place, "--json"]).stdout)["runs"][0]
    assert data["reason"] == found["reason"]


def test_bad_input():
    """One line, code 2, and nothing is written."""
    foreign, empty = place_of("foreign"), place_of("empty")
    os.makedirs(foreign)
    os.makedirs(empty)
    with open(f"{foreign}/metrics.jsonl", "w", encoding="utf-8") as file:
        file.write('{"loss": 1}\n')
    good = make_run(place_of("good"))
    shutil.copy(f"{good}/recipe.yaml", place_of("file"))
    for command in (["report"], ["compare"], ["export", "--csv", place_of("bad.csv")]):
        for place, word in ((foreign, "metrics.jsonl"), (empty, "metrics.jsonl"),
                            (place_of("none"), "none"), (place_of("file"), "file")):
            done = run([TRIREME, *command, place], 2)
            assert done.stderr.count("\n") == 1 and word in done.stderr, done.stderr
            assert not done.stdout
        assert not os.path.exists(place_of("bad.csv"))
        run([TRIREME, *command], 2)
    assert run([TRIREME, "export", good], 2).stderr.count("\n") == 1
    for flag in ("report", "--html"), ("export", "--csv"):
        done = run([TRIREME, flag[0], good, flag[1], f"{good}/metrics.jsonl"], 2)
        assert "metrics.jsonl" in done.stderr and entries(good, "end")
    said = run([TRIREME, "report", folder], 2).stderr  # the folder of all runs
    assert f"{folder}/good" in said or said.count("/") > 3, said
    for flag in ("report", "--html"), ("export", "--csv"):  # a file of the user's
        with open(place_of("own.txt"), "w", encoding="utf-8") as file:
            file.write("my own notes")
        done = run([TRIREME, flag[0], good, flag[1], place_of("own.txt")], 2)
        assert done.stderr.count("\n") == 1 and "own.txt" in done.stderr, done.stderr
    with open(f"{good}/metrics.jsonl", "a", encoding="utf-8") as file:
        file.write("damaged\n")
    done = run([TRIREME, "compare", good])
    assert done.stderr.count("\n") == 1 and "damaged" in done.stderr


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="trireme-views-") as folder:
        failures = check_all([test_page, test_data, test_compare, test_export, test_real_run,
                              test_failed_run, test_bad_input])
    sys.exit(failures)
