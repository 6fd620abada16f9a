#!/usr/bin/env python3
"""What other programs read of a run: metrics.prom for Prometheus and offline runs of W&B, of runs
of this test and of a real one that was killed and resumed. Where prometheus_client, or a wandb that
has its reader of such files in Python (up to 0.16), is installed for this python, it reads them.

usage: test_sinks.py BUILD_FOLDER
"""
import glob
import json
import math
import os
import re
import signal
import struct
import sys
import tempfile
import zlib

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from made_runs import make_run  # noqa: E402
from runs import (SYNTHETIC, TRIREME, check_all, entries, finish, run, start, train,  # noqa: E402
                  wait_for)

BLOCK = 32768
folder = None


def place_of(name):
    return os.path.join(folder, name)


def records_of(path):
    """The records of a .wandb file, by the format of its blocks."""
    with open(path, "rb") as file:
        data = file.read()
    assert data[:7] == b":W&B\xe1\xbe\0"
    at, parts, found = 7, None, []
    while at < len(data):
        left = BLOCK - at % BLOCK
        if left < 7:
            assert not any(data[at:at + left])
            at += left
            continue
        crc, size, kind = struct.unpack_from("<IHB", data, at)
        body = data[at + 7:at + 7 + size]
        assert crc == zlib.crc32(data[at + 6:at + 7 + size]) and size + 7 <= left
        assert (kind in (1, 2)) == (parts is None), kind
        parts = body if parts is None else parts + body
        if kind in (1, 4):
            found.append(parts)
            parts = None
        at += 7 + size
    assert parts is None
    return found


def fields_of(message):
    """The fields of a protobuf message: (number, value), values as whole numbers or bytes."""
    def varint(at):
        value = shift = 0
        while True:
            byte = message[at]
            value |= (byte & 127) << shift
            at, shift = at + 1, shift + 7
            if byte < 128:
                return value, at

    at, found = 0, []
    while at < len(message):
        tag, at = varint(at)
        value, at = varint(at)
        if tag & 7 == 2:
            value, at = message[at:at + value], at + value
        else:
            assert tag & 7 == 0, tag
        found.append((tag >> 3, value))
    return found


def items_of(message, field):
    found = {}
    for number, item in fields_of(message):
        if number == field:
            parts = dict(fields_of(item))
            found[parts[1].decode()] = json.loads(parts[16])
    return found


def wandb_of(place):
    """An offline run: its fields, its config, the rows of its history, its summary, its exit."""
    [path] = glob.glob(f"{place}/offline-run-*/run-*.wandb")
    name = re.fullmatch(r".*/offline-run-\d{8}_\d{6}-([0-9a-z]{8})/run-([0-9a-z]{8})\.wandb", path)
    records = records_of(path)
    check_with_library(path, records)
    found = {"path": path, "history": [], "exit": None}
    for number, record in enumerate(records, 1):
        (head, count), (kind, body) = fields_of(record)
        assert (head, count) == (1, number)
        if kind == 17:
            found["run"], found["config"] = dict(fields_of(body)), \
                items_of(dict(fields_of(body))[4], 1)
            assert found["run"][1].decode() == name[1] == name[2]
        elif kind == 2:
            found["history"].append(items_of(body, 1))
        elif kind == 3:
            found["summary"] = items_of(body, 1)
        else:
            assert kind == 18, kind
            found["exit"] = dict(fields_of(body))
    steps = [row["_step"] for row in found["history"]]
    assert steps == sorted(set(steps)), "W&B gives a repeated step another number"
    return found


def check_with_library(path, records):
    try:
        from wandb.proto import wandb_internal_pb2  # pylint: disable=import-outside-toplevel
        from wandb.sdk.internal import datastore  # pylint: disable=import-outside-toplevel
    except ImportError as missing:
        print(f"not read by wandb itself: {missing}")
        return
    store = datastore.DataStore()
    store.open_for_scan(path)
    for wanted in records:
        got = store.scan_data()
        assert bytes(got) == wanted
        record = wandb_internal_pb2.Record()
        record.ParseFromString(got)
        assert record.WhichOneof("record_type") in ("run", "history", "summary", "exit")
    assert store.scan_data() is None


def figures_of(place):
    """What metrics.jsonl has, of repeated steps the later line: {step: {figure: value}}."""
    found = {}
    for kind in ("train", "val", "test"):
        for entry in entries(place, kind):
            row = found.setdefault(entry["step"], {})
            row.update({f"{kind}/{key}": float(value) for key, value in entry.items()
                        if key not in ("kind", "step", "wall_s") and not isinstance(value, list)})
    return found


def same(a, b):
    return a == b or (math.isnan(a) and math.isnan(b))


def check_history(place, found):
    wanted = figures_of(place)
    assert [row["_step"] for row in found["history"]] == sorted(wanted)
    last_s = 0
    for row in found["history"]:
        entry = wanted[row["_step"]]
        assert set(row) == set(entry) | {"_step", "_runtime", "_timestamp"}
        assert all(same(row[key], entry[key]) for key in entry), (row, entry)
        assert row["_runtime"] >= last_s
        last_s = row["_runtime"]
    latest = {key: value for step in sorted(wanted) for key, value in wanted[step].items()}
    for key, value in latest.items():
        assert same(found["summary"][key], value), (key, found["summary"])


def test_wandb():
    """A file of many blocks: rows, what is not finite, config, names; and the same id again."""
    place, home = make_run(place_of("made"), name="a ü", steps=3000, not_finite=2900), \
        place_of("home")
    printed = run([TRIREME, "export", place, "--wandb", home, "--csv", place_of("a.csv")]).stdout
    found = wandb_of(home)
    assert printed == os.path.dirname(found["path"]) + "\n" and os.path.exists(place_of("a.csv"))
    assert os.path.getsize(found["path"]) > 4 * BLOCK
    check_history(place, found)
    row = next(r for r in found["history"] if r["_step"] == 2900)
    assert math.isnan(row["train/loss"]) and "val/accuracy" in row
    assert found["run"][8].decode() == "a ü" and found["run"][3] == b"trireme"
    assert 6 not in found["run"]
    assert dict(fields_of(found["run"][17]))[1] == 1767323045  # 2026-01-02T03:04:05Z
    assert "/offline-run-20260102_030405-" in found["path"]
    assert found["config"]["optimizer"] == {"name": "adadelta", "lr": 1.0}
    assert found["exit"][1] == 0
    with open(found["path"], "rb") as file:
        before = file.read()
    with open(f"{found['path']}.synced", "w", encoding="utf-8"):
        pass  # as wandb marks what it has uploaded
    run([TRIREME, "export", place, "--wandb", home])
    with open(wandb_of(home)["path"], "rb") as file:
        assert file.read() == before
    assert not os.path.exists(f"{found['path']}.synced")
    killed, other = make_run(place_of("killed"), status=None), place_of("other")
    run([TRIREME, "export", killed, "--wandb", other])
    assert wandb_of(other)["exit"][1] == 1
    assert wandb_of(other)["run"][1] != found["run"][1]


def test_refusals():
    place = make_run(place_of("refused"))
    for words, text in (([place], "--wandb"),
                        ([place, "--wandb", f"{place}/recipe.yaml"], "recipe"),
                        ([place_of("none"), "--wandb", place_of("x")], "none")):
        done = run([TRIREME, "export", *words], 2)
        assert text in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert not os.path.exists(place_of("x"))
    for setting, text in (("group=a", "log.wandb.project"), ("project=a/b", "log.wandb.project")):
        words = train("mnist-cnn", place_of("x"), *SYNTHETIC, f"log.wandb.{setting}")
        assert text in run(words, 2).stderr
    assert not os.path.exists(place_of("x"))


def prom_of(place):
    """The samples of metrics.prom: {name: (value, labels)}."""
    with open(f"{place}/metrics.prom", encoding="utf-8") as file:
        text = file.read()
    found = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        name, labels, value = re.fullmatch(r"([a-z_0-9]+)\{(.*)\} (\S+)", line).groups()
        assert text.count(f"# TYPE {name} gauge\n") == 1 and name not in found
        found[name] = float(value), labels
    try:
        from prometheus_client import parser  # pylint: disable=import-outside-toplevel
    except ImportError as missing:
        print(f"not read by prometheus_client: {missing}")
        return found
    got = {s.name: s for f in parser.text_string_to_metric_families(text) for s in f.samples}
    assert got.keys() == found.keys()
    for name, sample in got.items():
        assert same(sample.value, found[name][0]) and sample.labels["folder"] == place
    return found


def check_prom(place, status):
    found, wanted = prom_of(place), figures_of(place)
    latest = {key: value for step in sorted(wanted) for key, value in wanted[step].items()}
    for key, value in latest.items():
        assert same(found["trireme_" + key.replace("/", "_")][0], value), (key, found)
    assert f'status="{status}"' in found["trireme_status"][1]
    assert found["trireme_step"][0] == max(wanted)


def test_real_run():
    """Both go on after a kill and a resume."""
    place, home = place_of("real"), place_of("real-home")
    words = train("mnist-cnn", place, *SYNTHETIC, "data.samples=64", "data.test_samples=16",
                  "batch.global=8", "trainer.max_epochs=4", "checkpoint.every_n_steps=4",
                  "log.prometheus=true", "log.wandb.project=demo", "log.wandb.group=mine")
    child = start([*words, "trainer.max_epochs=4000"])
    wait_for(lambda: len(entries(place, "train")) > 14, "steps", child=child)
    child.send_signal(signal.SIGKILL)
    finish(child)
    assert 'status="running"' in prom_of(place)["trireme_status"][1]
    first = wandb_of(f"{place}/wandb")
    assert first["exit"] is None and first["history"]
    done = max(e["step"] for e in entries(place, "train"))
    run([*words, f"trainer.max_epochs={done // 8 + 2}"])
    check_prom(place, "completed")
    found = wandb_of(f"{place}/wandb")
    check_history(place, found)
    assert found["path"] == first["path"] and found["exit"][1] == 0
    assert (found["run"][3], found["run"][6]) == (b"demo", b"mine")
    run([TRIREME, "export", place, "--wandb", home])
    with open(found["path"], "rb") as live, open(wandb_of(home)["path"], "rb") as made:
        assert live.read() == made.read()


def test_no_place():
    """A sink that cannot write is one line, and the run goes on."""
    place = place_of("no-place")
    words = train("mnist-cnn", place, *SYNTHETIC, "data.samples=16", "data.test_samples=8",
                  "batch.global=8", "trainer.max_epochs=1", "log.prometheus=true",
                  "log.wandb.project=demo")
    run(words)
    os.remove(f"{place}/metrics.prom")
    os.mkdir(f"{place}/metrics.prom")
    os.rename(f"{place}/wandb", f"{place}/before")
    with open(f"{place}/wandb", "w", encoding="utf-8"):
        pass
    said = run([*words, "trainer.max_epochs=3"]).stderr
    assert [said.count("metrics.prom:"), said.count("without metrics.prom")] == [1, 1], said
    assert said.count("with gaps in the offline run of W&B") == 1, said
    assert len(figures_of(place)) == 6


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="trireme-sinks-") as folder:
        failures = check_all([test_wandb, test_refusals, test_real_run, test_no_place])
    sys.exit(failures)
