"""docs/performance.md: which kind of CPU this is, and the block of the page that belongs to it.

A block has one table per part of bench/run. A run replaces the rows that it measured; the others
stay.
"""

import os
import re

PAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
                    "docs", "performance.md")
HEADING = "## Measured on "

# Kinds of CPU, the newest of a maker first: maker, instructions that it has and older ones lack.
KINDS = [
    ("GenuineIntel", {"amx_fp16"}, "Granite Rapids, AMX"),
    ("GenuineIntel", {"amx_bf16"}, "Sapphire Rapids, AMX"),
    ("GenuineIntel", {"avx512_bf16"}, "Cooper Lake"),
    ("GenuineIntel", {"avx512_vbmi2"}, "Ice Lake"),
    ("GenuineIntel", {"avx512f"}, "Skylake or Cascade Lake"),
    ("GenuineIntel", {"avx2"}, "Intel, AVX2"),
    ("AuthenticAMD", {"avx512_vp2intersect"}, "Zen 5"),
    ("AuthenticAMD", {"avx512_bf16"}, "Zen 4"),
    ("AuthenticAMD", {"vaes"}, "Zen 3"),
    ("AuthenticAMD", {"avx2"}, "Zen or Zen 2"),
]


def cpu_info():
    """The fields of the first CPU in /proc/cpuinfo."""
    fields = {}
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        for line in f:
            name, colon, value = line.partition(":")
            if not colon:
                break
            fields[name.strip()] = value.strip()
    return fields


def kind_of(fields):
    flags = set(fields.get("flags", "").split())
    for maker, needed, name in KINDS:
        if fields.get("vendor_id") == maker and needed <= flags:
            return name
    return fields.get("model name", "unknown processor")


class Section:
    """A table below a heading. Rows with the same first `keys` cells are the same row."""

    def __init__(self, title, head, rows, keys=1, below=""):
        self.title, self.head, self.keys, self.below = title, head, keys, below
        self.rows = [[str(cell) for cell in row] for row in rows]

    def text(self):
        lines = ["| " + " | ".join(self.head) + " |", "|" + "---|" * len(self.head)]
        lines += ["| " + " | ".join(row) + " |" for row in self.rows]
        return f"### {self.title}\n\n" + "\n".join(lines) + "\n" + (
            f"\n{self.below}\n" if self.below else "")

    def key(self, row):
        return tuple(row[: self.keys])

    def take_over(self, older):
        """Keeps the rows of an older table that were not measured again, in the table's order."""
        if older.head != self.head:
            return
        mine = {self.key(row): row for row in self.rows if "–" not in row}
        rows = [mine.pop(self.key(row), row) for row in older.rows]
        self.rows = rows + list(mine.values())


def parse(text):
    """The sections of a block by title."""
    found = {}
    for part in re.split(r"(?m)^### ", text)[1:]:
        title, rest = part.split("\n", 1)
        lines = [line for line in rest.splitlines() if line.startswith("|")]
        cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
        below = "\n".join(line for line in rest.splitlines() if not line.startswith("|")).strip()
        if len(cells) > 2:
            found[title] = Section(title, cells[0], cells[2:], below=below)
    return found


def merged(page, kind, machine, sections):
    """The page with the sections in the block of this kind; a new block follows the others.

    machine: what the block says of the machine and the versions; None: what it says already.
    """
    begin, end = f"<!-- bench: begin {kind} -->", f"<!-- bench: end {kind} -->"
    if begin not in page:
        last = [m.end() for m in re.finditer(r"<!-- bench: end .*? -->\n", page)][-1]
        page = f"{page[:last]}\n{begin}\n{end}\n{page[last:]}"
    before, rest = page.split(begin, 1)
    block, after = rest.split(end, 1)
    kept = parse(block)
    if machine is None:
        machine = block.split("### ")[0].partition(f"{HEADING}{kind}\n\n")[2].rstrip("\n") + "\n"
    for section in sections:
        if section.title in kept:
            section.take_over(kept[section.title])
        kept[section.title] = section
    text = "\n".join(section.text() for section in kept.values())
    return f"{before}{begin}\n{HEADING}{kind}\n\n{machine}\n{text}{end}{after}"


def write(machine, sections):
    """Puts the sections into the page's block of this kind of CPU (merged)."""
    with open(PAGE, encoding="utf-8") as f:
        page = f.read()
    page = merged(page, kind_of(cpu_info()), machine, sections)
    with open(PAGE, "w", encoding="utf-8") as f:
        f.write(page)
