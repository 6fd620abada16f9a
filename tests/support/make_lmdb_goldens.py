#!/usr/bin/env python3
"""Writes small LMDB databases for cli/test_data_kinds to tests/support/goldens: one for each layout
of images and classes that is read, and one that is refused.

usage: tests/support/make_lmdb_goldens.py    (needs python3-lmdb)
"""
import os
import pickle

import lmdb

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "goldens")


def grey(value):
    """A PGM image of 3 x 2 pixels, all of them `value`."""
    return b"P5 3 2 255\n" + bytes([value] * 6)


def varint(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def datum(data, label, shape=(), encoded=False):
    """Caffe's Datum, its fields in the order of their numbers, as protobuf writes them."""
    out = b"".join(bytes([(i + 1) << 3]) + varint(size) for i, size in enumerate(shape))
    out += bytes([4 << 3 | 2]) + varint(len(data)) + data + bytes([5 << 3]) + varint(label)
    return out + (bytes([7 << 3, 1]) if encoded else b"")


def write(name, items):
    path = os.path.join(FOLDER, name + ".mdb")
    if os.path.exists(path):
        os.remove(path)
    with lmdb.open(path, subdir=False, map_size=1 << 20, lock=False) as environment:
        with environment.begin(write=True) as transaction:
            for key, value in items:
                transaction.put(key, value)
        with environment.begin() as transaction:
            print(name, environment.stat())


# Enough entries for a tree of two levels, with values in leaves and on pages of their own.
raw = [(b"%08d" % i, datum(bytes((i + k) % 256 for k in range(24)), i % 7, (3, 4, 2)))
       for i in range(90)]
write("datum", raw)
write("encoded", [(b"%02d" % i, datum(grey(i) + bytes(3000 if i == 2 else 0), i % 7,
                                      encoded=True)) for i in range(5)])
write("pairs", [(b"image-%09d" % i, grey(i)) for i in range(1, 6)] +
      [(b"label-%09d" % i, b"%d" % (i % 7)) for i in range(1, 6)] + [(b"num-samples", b"5")])
write("classes", [(b"%d/%s" % (i % 7, name), grey(i)) for i, name in enumerate((b"x", b"y", b"z"))])
write("pickle", [(b"0", pickle.dumps((1, 2)))])
