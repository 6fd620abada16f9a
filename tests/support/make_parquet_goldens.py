#!/usr/bin/env python3
"""Writes small Parquet files for cli/test_tables to tests/support/goldens: images with classes as
Hugging Face's data sets have them, numbers of all types, lists of numbers, and what is refused.

usage: tests/support/make_parquet_goldens.py    (needs pyarrow)
"""
import os

import pyarrow as pa
import pyarrow.parquet as pq

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "goldens")


def grey(value):
    """A PGM image of 3 x 2 pixels, all of them `value`."""
    return b"P5 3 2 255\n" + bytes([value] * 6)


def write(name, columns, **how):
    pq.write_table(pa.table(columns), os.path.join(FOLDER, name + ".parquet"), **how)


image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
for part in range(2):
    numbers = range(part * 7, part * 7 + 7)
    write(f"images-{part}", {
        "image": pa.array([{"bytes": grey(i), "path": f"{i}.pgm"} for i in numbers], image),
        "label": pa.array([i % 7 for i in numbers], pa.int64())}, row_group_size=3,
        compression=("none", "snappy")[part])
types = [pa.bool_(), pa.uint8(), pa.int8(), pa.uint16(), pa.int16(), pa.uint32(), pa.int32(),
         pa.uint64(), pa.int64(), pa.float32(), pa.float64()]
columns = {f"c{i}": pa.array([j % 2 == 1 for j in range(5)] if i == 0 else range(i, i + 5), kind)
           for i, kind in enumerate(types)}
write("types", {**columns, "label": pa.array(range(5), pa.int32())}, row_group_size=2,
      compression="zstd")
write("lists", {
    "inputs": pa.array([[[i + 0.5, i + 1], [i + 2, i + 3]] for i in range(4)],
                       pa.list_(pa.list_(pa.float32()))),
    "target": pa.array([[i, i] for i in range(4)], pa.list_(pa.float64(), 2))}, row_group_size=3)
write("bad", {
    "text": pa.array(["a", "b"]), "hole": pa.array([1, None], pa.int64()),
    "ragged": pa.array([[1.0], [1.0, 2.0]], pa.list_(pa.float32())),
    "day": pa.array([1, 2], pa.date32()), "label": pa.array([0, 1], pa.int64()),
    "less": pa.array([0, -7], pa.int64())})
for order in ("ab", "ba"):
    write(order, {**{name: pa.array([ord(name), 0], pa.int32()) for name in order},
                  "label": pa.array([0, 1], pa.int64())})

texts = ["The king", "", 'is "gone"\n', "caf\u00e9 and more"]
strings = pa.array(texts[:2] + [None] + texts[2:])
write("text-0", {"text": strings, "other": pa.array(range(5))}, row_group_size=2)
write("text-1", {"text": pa.array(texts, pa.large_string()), "other": pa.array(range(4))},
      row_group_size=3, compression="zstd")
write("text-2", {"text": pa.array(texts + texts).dictionary_encode(),
                 "other": pa.array(range(8))}, row_group_size=5)
