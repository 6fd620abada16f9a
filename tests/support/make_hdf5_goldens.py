#!/usr/bin/env python3
"""Writes small HDF5 files for cli/test_data_kinds to tests/support/goldens: the same arrays in one
piece, in compressed chunks, and with the bytes of each number in the other order; labels whose
numbers have names; and files that lead to the arrays of another one, have more than fields, or lack
data.

usage: tests/support/make_hdf5_goldens.py    (needs python3-h5py)
"""
import os

import h5py
import numpy as np

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "goldens")
images = (np.arange(6 * 2 * 4 * 3) * 7 % 256).reshape(6, 2, 4, 3).astype(np.uint8)
labels = np.arange(6) % 4

for name, label_type, how in [("plain", "<i8", {}), ("chunks", "<i4", {"compression": "gzip"}),
                              ("swapped", ">i2", {})]:
    with h5py.File(os.path.join(FOLDER, name + ".h5"), "w") as file:
        file.create_dataset("images", data=images, **how)
        file.create_dataset("group/y", data=labels.astype(label_type), **how)
        file.create_dataset("words", data=np.array([b"a"] * 6))

names = {"CAT": 0, "DOG": 1, "BIRD": 2, "FISH": 3}
with h5py.File(os.path.join(FOLDER, "names.h5"), "w") as file:
    for name, label_type in (("i1", "i1"), ("i2", ">i2"), ("u1", "u1")):
        file.create_dataset(name, data=labels, dtype=h5py.enum_dtype(names, label_type))
    file.create_dataset("two", data=labels // 2,
                        dtype=h5py.enum_dtype({"NO": 0, "YES": 1}, "i1"))
    file.create_dataset("bool", data=labels > 1)

with h5py.File(os.path.join(FOLDER, "links.h5"), "w") as file:
    # So long that the places of the other file's arrays are within this one.
    file.create_dataset("notes", data=np.full(4096, 99, np.uint8))
    file["images"] = h5py.ExternalLink("plain.h5", "images")
    file["group/y"] = h5py.ExternalLink("plain.h5", "group/y")
    layout = h5py.VirtualLayout(images.shape, images.dtype)
    layout[:] = h5py.VirtualSource("plain.h5", "images", images.shape, images.dtype)
    file.create_virtual_dataset("virtual", layout)

# plain.h5 as it is after more samples came, and with longer rows.
for name, shape in (("grown", (8, 2, 4, 3)), ("wider", (6, 2, 4, 4))):
    with h5py.File(os.path.join(FOLDER, name + ".h5"), "w") as file:
        larger = np.full(shape, 255, np.uint8)
        larger[:6, :, :, :3] = images
        file.create_dataset("images", data=larger)
        file.create_dataset("group/y", data=labels)

for name in ("linked", "grouped"):
    with h5py.File(os.path.join(FOLDER, name + ".h5"), "w") as file:
        file.create_dataset("images", data=images[:, :, :1, :1])
        file.create_dataset("words", data=np.array([b"a"] * 6))
        if name == "linked":
            file["labels"] = h5py.ExternalLink("plain.h5", "group/y")
        else:
            file.create_group("labels")

with h5py.File(os.path.join(FOLDER, "lacking.h5"), "w") as file:
    file.create_dataset("raw", images.shape, "u1", external=[("raw.bin", 0, images.nbytes)])
    file.create_dataset("never", images.shape, "u1")
    for name, fill, written in (("half", None, 4), ("meant", 0, 4), ("whole", None, 6)):
        array = file.create_dataset(name, images.shape, "u1", chunks=(4, 2, 3, 2), fillvalue=fill,
                                    compression="gzip")
        array[:written] = images[:written]
    for name, source, taken in (("gap", "whole", 4), ("part", "half", 6), ("long", "images", 6)):
        layout = h5py.VirtualLayout(images.shape, images.dtype)
        layout[:taken] = h5py.VirtualSource("." if name != "long" else "short.h5", source,
                                            images.shape, images.dtype)[:taken]
        file.create_virtual_dataset(name, layout)
    end = (slice(0, h5py.h5s.UNLIMITED), Ellipsis)
    file.create_dataset("grows", data=images, maxshape=(None, *images.shape[1:]))
    layout = h5py.VirtualLayout(images.shape, images.dtype, maxshape=(None, *images.shape[1:]))
    layout[end] = h5py.VirtualSource(".", "grows", images.shape, images.dtype,
                                     (None, *images.shape[1:]))[end]
    file.create_virtual_dataset("endless", layout)
with h5py.File(os.path.join(FOLDER, "lzf.h5"), "w") as file:
    file.create_dataset("images", data=images[:, :, :1, :1], compression="lzf")
with h5py.File(os.path.join(FOLDER, "short.h5"), "w") as file:
    file.create_dataset("images", data=images[:3])
