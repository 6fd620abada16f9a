#!/usr/bin/env python3
"""bench/page.py names the kind of a CPU, and changes only the measured rows of its own block.

usage: test_bench_page.py BUILD_FOLDER
"""
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "bench"))
import page  # noqa: E402

KINDS = [
    ("GenuineIntel", "avx2 avx512f avx512_vbmi2 avx512_bf16 amx_bf16", "Sapphire Rapids, AMX"),
    ("GenuineIntel", "avx2 avx512f avx512_vbmi2", "Ice Lake"),
    ("AuthenticAMD", "avx2 vaes avx512f avx512_bf16", "Zen 4"),
    ("AuthenticAMD", "avx2 vaes avx512_bf16 avx512_vp2intersect", "Zen 5"),
    ("SomebodyElse", "avx2", "a processor"),
]


def section(*rows):
    return page.Section("Speed", ["recipe", "threads", "ratio"], rows, 2)


def main():
    for maker, flags, wanted in KINDS:
        fields = {"vendor_id": maker, "flags": flags, "model name": "a processor"}
        assert page.kind_of(fields) == wanted, (maker, flags, page.kind_of(fields))

    with open(page.PAGE, encoding="utf-8") as f:
        old = f.read()
    zen = old[old.index("<!-- bench: begin Zen 4"):old.index("<!-- bench: end Zen 4")]
    new = page.merged(old, "A", "first", [section(["x", 1, "1.1"], ["y", 1, "1.2"])])
    assert zen in new and "## Measured on A\n\nfirst\n" in new, new
    assert new.replace(new[new.index("\n<!-- bench: begin A"):
                           new.index("<!-- bench: end A -->\n") + 22], "", 1) == old

    # A row that was not measured (a dash), and one that this run left out, keep what they had.
    measured = section(["y", 1, "1.3"], ["x", 1, "–"], ["x", 2, "2"])
    again = page.merged(new, "A", "second", [measured])
    block = again.split("begin A")[1].split("end A")[0]
    rows = page.parse(block)["Speed"].rows
    assert rows == [["x", "1", "1.1"], ["y", "1", "1.3"], ["x", "2", "2"]], rows
    assert zen in again and "first" not in block
    kept = page.merged(again, "A", None, [section(["z", 1, "1"])])
    assert "## Measured on A\n\nsecond\n" in kept and zen in kept, kept


if __name__ == "__main__":
    main()
