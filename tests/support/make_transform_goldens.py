#!/usr/bin/env python3
"""Writes tests/support/goldens/transforms.safetensors: a picture, and what torchvision's transforms
make of it as an image of Pillow. unit/test_transforms compares ours with them.

A tensor `list/[…]` is the result of the entries of data.transform in its name, whose ranges leave
nothing to chance. A tensor `mask/[…]` is what becomes of a mask with the numbers of the picture.
A tensor `rand/OP/BIN/SIGN` or `trivial/OP/BIN/SIGN` is that of one operation of
rand_augment or trivial_augment_wide.

usage: tests/support/make_transform_goldens.py    (needs python3-torchvision and python3-pil)
"""
import os

import torch
import torchvision.transforms as T
import torchvision.transforms.functional as F
from PIL import Image
from torchvision.transforms.autoaugment import _apply_op
from torchvision.transforms.functional import InterpolationMode as Mode

from make_image_goldens import picture, planes, write

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "goldens", "transforms.safetensors")
WIDTH, HEIGHT = 30, 21
MODES = {"nearest": Mode.NEAREST, "bilinear": Mode.BILINEAR}


def jitter(image, key, value):
    return getattr(F, f"adjust_{key}")(image, value)


def lists(image):
    """The name of each list, and its result."""
    for key in ["brightness", "contrast", "saturation"]:
        for value in [0.0, 0.35, 1.8]:
            yield f"[color_jitter: {{{key}: [{value}, {value}]}}]", jitter(image, key, value)
    for value in [-0.5, -0.1, 0.27]:
        yield f"[color_jitter: {{hue: [{value}, {value}]}}]", jitter(image, "hue", value)
    yield "[{grayscale: 3}]", F.to_grayscale(image, 3)
    yield "[{grayscale: 1}]", F.to_grayscale(image, 1)
    yield "[random_grayscale: 1]", F.to_grayscale(image, 3)
    for name, mode in MODES.items():
        for angle in [-30, 7.5, 90, 180, 271]:
            yield (f"[random_rotation: {{degrees: [{angle}, {angle}], filter: {name}, "
                   "fill: [9, 80, 200]}]", F.rotate(image, angle, mode, fill=(9, 80, 200)))
    for size, sigma in [((3, 3), 0.4), ((5, 9), 1.5), ((21, 11), 3.0)]:
        yield (f"[gaussian_blur: {{kernel_size: [{size[0]}, {size[1]}], sigma: {sigma}}}]",
               F.gaussian_blur(image, size, sigma))


def operations(image):
    table = [("rand", T.RandAugment()._augmentation_space(31, (HEIGHT, WIDTH)), (9, 30)),
             ("trivial", T.TrivialAugmentWide()._augmentation_space(31), (15, 22))]
    for name, space, bins in table:
        for number, (op, (magnitudes, signed)) in enumerate(space.items()):
            for bin in bins:
                sign = -1 if signed and (number + bin) % 2 else 1
                value = float(magnitudes[bin]) * sign if magnitudes.ndim else 0.0
                if not magnitudes.ndim and bin != bins[0]:
                    continue
                yield (f"{name}/{number}/{bin}/{sign}",
                       _apply_op(image, op, value, Mode.NEAREST, [10, 20, 30]))


def masks(image):
    """What becomes of numbers of pixels: never a mean of two."""
    for height, width in [(13, 50), (40, 7), (1, 1)]:
        yield f"[{{resize: [{height}, {width}]}}]", image.resize((width, height), Image.NEAREST)
    yield "[{resize: 35}, {gaussian_blur: 3}]", F.resize(image, 35, Mode.NEAREST)
    yield ("[{random_rotation: {degrees: [20, 20], filter: bilinear, fill: 9}}, "
           "{color_jitter: 0.9}, normalize]", F.rotate(image, 20, Mode.NEAREST))


def main():
    torch.set_num_threads(1)
    # Fewer colours than there are bytes, so that equalize and autocontrast have work to do.
    image = F.adjust_contrast(picture(1).resize((WIDTH, HEIGHT), Image.BILINEAR), 0.6)
    tensors = {"source": planes(image)}
    for name, result in lists(image):
        tensors["list/" + name] = planes(result)[:1] if result.mode == "L" else planes(result)
    for name, result in operations(image):
        tensors[name] = planes(result)
    for name, result in masks(image):
        tensors["mask/" + name] = planes(result)
    write(OUT, dict(sorted(tensors.items())))


if __name__ == "__main__":
    main()
