#!/usr/bin/env python3
"""Writes tests/support/goldens/images.safetensors: small image files of every format, the pixels
that Pillow decodes from them, and images that Pillow has scaled. unit/test_images compares ours
with them.

usage: tests/support/make_image_goldens.py    (needs python3-pil and python3-numpy)
"""
import io
import json
import os

import numpy as np
from PIL import Image

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "goldens", "images.safetensors")
WIDTH, HEIGHT = 47, 33


def picture(seed):
    """A smooth picture with some noise, so that JPEG, palettes and filters have work to do."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    channels = [127 + 90 * np.sin(x / (4 + c) + y / (7 - c)) for c in range(3)]
    noise = random.normal(0, 12, (HEIGHT, WIDTH, 3))
    return Image.fromarray(np.clip(np.stack(channels, -1) + noise, 0, 255).astype(np.uint8))


def files():
    """Name, image and how Pillow saves it."""
    base = picture(1)
    alpha = base.convert("RGBA")
    alpha.putalpha(picture(2).convert("L"))
    return [
        ("rgb.png", base, {}), ("grey.png", base.convert("L"), {}),
        ("palette.png", base.convert("P"), {}), ("bits.png", base.convert("1"), {}),
        ("alpha.png", alpha, {}), ("grey_alpha.png", base.convert("LA"), {}),
        ("usual.jpg", base, {}), ("full.jpg", base, {"subsampling": 0, "quality": 95}),
        ("progressive.jpg", base, {"progressive": True}), ("grey.jpg", base.convert("L"), {}),
        ("cmyk.jpg", base.convert("CMYK"), {}), ("lossy.webp", base, {"quality": 70}),
        ("lossless.webp", base, {"lossless": True}), ("alpha.webp", alpha, {"lossless": True}),
        ("rgb.bmp", base, {}), ("palette.bmp", base.convert("P"), {}),
        ("bits.bmp", base.convert("1"), {}), ("alpha.bmp", alpha, {}),
        ("rgb.ppm", base, {}), ("grey.pgm", base.convert("L"), {}),
    ]


def planes(image):
    return np.ascontiguousarray(np.asarray(image.convert("RGB")).transpose(2, 0, 1))


def write(path, tensors):
    header, at = {}, 0
    for name, array in tensors.items():
        header[name] = {"dtype": "U8", "shape": list(array.shape),
                        "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for array in tensors.values():
            out.write(array.tobytes())


def main():
    tensors = {}
    for name, image, how in files():
        saved = io.BytesIO()
        image.save(saved, {"jpg": "JPEG", "pgm": "PPM"}.get(name[-3:], name.split(".")[1].upper()),
                   **how)
        tensors["file/" + name] = np.frombuffer(saved.getvalue(), np.uint8)
        tensors["pixels/" + name] = planes(Image.open(io.BytesIO(saved.getvalue())))
    base = picture(1)
    tensors["source"] = planes(base)
    for height, width in [(20, 31), (33, 90), (100, 47), (1, 1), (64, 64), (32, 46)]:
        for name, how in [("bilinear", Image.BILINEAR), ("bicubic", Image.BICUBIC)]:
            tensors[f"{name}/{height}x{width}"] = planes(base.resize((width, height), how))
    write(OUT, dict(sorted(tensors.items())))


if __name__ == "__main__":
    main()
