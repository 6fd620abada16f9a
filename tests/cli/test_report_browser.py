#!/usr/bin/env python3
"""The page of `trireme report` in a real browser, wide and narrow, light and dark: it draws every
point of every curve, runs its script without an error, and its picture is not blank.

usage: test_report_browser.py BUILD_FOLDER
"""
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from made_runs import make_run  # noqa: E402
from runs import SECONDS, SOON, TRIREME, check_all, run  # noqa: E402

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
STEPS = 500
browser = None
folder = None


def browse(page, *flags):
    """Opens the page without a network, lets its script run, and returns what the browser says."""
    words = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             "--proxy-server=127.0.0.1:9", "--disable-dev-shm-usage", "--enable-logging=stderr",
             f"--user-data-dir={folder}/profile", "--virtual-time-budget=3000", *flags,
             "file://" + page]
    done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=True,
                          env={**os.environ, "HOME": folder})
    said = [line for line in done.stderr.split("\n") if "CONSOLE" in line]
    assert not said, said
    return done.stdout


def points_of(dom):
    """How many points the curves have, by their names."""
    found = {}
    for name, inside in re.findall(r'<g class="c\d" data-curve="([^"]*)">(.*?)</g>', dom, re.S):
        lines = re.findall(r'<polyline points="([^"]*)"', inside)
        found[name] = [sum(len(line.split()) for line in lines), inside.count('class="lost"')]
    return found


def pixels_of(path):
    """The rows of a PNG with 8 bits a channel, as bytes, and the bytes of a pixel."""
    with open(path, "rb") as file:
        data = file.read()
    at, packed = 8, b""
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        if kind == b"IHDR":
            width, _, depth, colour = struct.unpack(">IIBB", data[at + 8:at + 18])
            assert depth == 8
            each = {2: 3, 6: 4}[colour]
        if kind == b"IDAT":
            packed += data[at + 8:at + 8 + size]
        at += size + 12
    raw, stride = zlib.decompress(packed), width * each
    rows, above = [], bytearray(stride)
    for begin in range(0, len(raw), stride + 1):
        rule, row = raw[begin], bytearray(raw[begin + 1:begin + 1 + stride])
        for i in range(stride if rule else 0):
            left, up = row[i - each] if i >= each else 0, above[i]
            corner = above[i - each] if i >= each else 0
            guess = left + up - corner
            nearest = min((left, up, corner), key=lambda v, g=guess: abs(g - v))
            row[i] = (row[i] + (left, up, (left + up) // 2, nearest)[rule - 1]) & 255
        rows.append(bytes(row))
        above = row
    return rows, each


def picture(page, width, is_dark):
    """Takes a picture, and returns its colours with the share of each."""
    path = os.path.join(folder, "picture.png")
    scheme = 0 if is_dark else 1
    browse(page, f"--blink-settings=preferredColorScheme={scheme}", f"--screenshot={path}",
           f"--window-size={width},600")
    rows, each = pixels_of(path)
    assert len(rows[0]) == width * each
    counts = {}
    for row in rows[::2]:
        for i in range(0, len(row), 2 * each):
            colour = row[i:i + 3]
            counts[colour] = counts.get(colour, 0) + 1
    return {colour: count / sum(counts.values()) for colour, count in counts.items()}


def test_points():
    """Every value is a point; one that is not finite is a cross, which interrupts the line."""
    place = make_run(os.path.join(folder, "points"), steps=STEPS, not_finite=7)
    run([TRIREME, "report", place])
    for width in 1300, 420:
        dom = browse(f"{place}/report.html", "--dump-dom", f"--window-size={width},900")
        found = points_of(dom)
        assert found["train/loss"] == [STEPS - 1, 1], found
        for name in "train/lr", "train/grad_norm", "train/samples_per_s":
            assert found[name] == [STEPS, 0], found
        assert found["val/accuracy"] == [STEPS // 100, 0], found
        assert dom.count('class="resume"') == dom.count('class="card chart"') - 1
        for text in ("a&lt;b", "differs from the default", "step-00000200, best", "head"):
            assert text in dom, text


def test_several():
    """Several runs: a curve of each, the parallel coordinates, and what differs."""
    places = [make_run(os.path.join(folder, f"run-{i}"), lr=0.25 * (i + 1)) for i in range(3)]
    page = os.path.join(folder, "several.html")
    run([TRIREME, "report", *places, "--html", page])
    dom = browse(page, "--dump-dom")
    found = points_of(dom)
    losses = [count for name, count in found.items() if name.endswith(" train/loss")]
    assert losses == [[STEPS, 0]] * 3, found
    assert dom.count('class="parallel"') == 3
    assert "optimizer.lr" in dom


def test_picture():
    """The picture has a ground, which is light or dark, and enough else."""
    place = make_run(os.path.join(folder, "picture"))
    run([TRIREME, "report", place])
    for width, is_dark in (1100, False), (420, True):
        shares = picture(f"{place}/report.html", width, is_dark)
        ground = max(shares, key=shares.get)
        assert (sum(ground) < 3 * 128) == is_dark, (width, is_dark, ground)
        assert shares[ground] < 0.93 and len(shares) > 50, (width, is_dark, len(shares))


def test_errors_are_seen():
    """A script that fails, or that the policy forbids, would be noticed."""
    place = make_run(os.path.join(folder, "errors"))
    run([TRIREME, "report", place])
    with open(f"{place}/report.html", encoding="utf-8") as file:
        page = file.read()
    for name, wrong in (("broken", page.replace('"runs":', '"rams":')),
                        ("forbidden", page.replace("draw(report.runs);", "draw(report.runs); "))):
        path = os.path.join(folder, f"{name}.html")
        with open(path, "w", encoding="utf-8") as file:
            file.write(wrong)
        try:
            browse(path, "--dump-dom")
        except AssertionError:
            continue
        raise AssertionError(f"the browser does not tell what is wrong: {name}")


def works():
    """Whether the browser starts at all: not in every container."""
    try:
        done = subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu",
                               f"--user-data-dir={folder}/profile", "--dump-dom",
                               "data:text/html,<p>it</p>"], capture_output=True, text=True,
                              timeout=SOON, check=False, env={**os.environ, "HOME": folder})
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0 and "<p>it</p>" in done.stdout


if __name__ == "__main__":
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if not browser:
        print("no browser is installed, such as Debian's chromium")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="trireme-page-", ignore_cleanup_errors=True) as folder:
        if not works():
            print(f"{browser} does not start here")
            sys.exit(77)
        failures = check_all([test_points, test_several, test_picture, test_errors_are_seen])
    sys.exit(failures)
