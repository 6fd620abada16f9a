"""The pipeline of ImageNet's evaluation, of one thread: decode, resize 256, crop 224, normalise.

usage: images_bench.py FOLDER SECONDS torchvision|pillow

`torchvision`: its own decoder and transforms of tensors (v2, antialiased). `pillow`: Pillow, or
Pillow-SIMD where that is installed, and numpy; it needs no torch. Prints samples per second and
samples per second of processor time.
"""
import glob
import io
import os
import sys
import time

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def torchvision_pipeline():
    import torch
    import torchvision
    from torchvision.io import ImageReadMode, decode_jpeg
    from torchvision.transforms import v2

    torch.set_num_threads(1)
    transforms = v2.Compose([v2.Resize(256, antialias=True), v2.CenterCrop(224),
                             v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)])

    def load(data):
        data = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        return transforms(decode_jpeg(data, mode=ImageReadMode.RGB))
    return load, f"torchvision {torchvision.__version__}"


def pillow_pipeline():
    import numpy
    import PIL
    from PIL import Image

    scale = (1 / 255 / numpy.array(STD, numpy.float32)).reshape(3, 1, 1)
    shift = (numpy.array(MEAN) / numpy.array(STD)).astype(numpy.float32).reshape(3, 1, 1)

    def load(data):
        image = Image.open(io.BytesIO(data)).convert("RGB")
        width, height = image.size
        short = min(width, height)
        size = (256 * width // short, 256 * height // short)
        image = image.resize(size, Image.BILINEAR)
        left, top = round((size[0] - 224) / 2), round((size[1] - 224) / 2)
        pixels = numpy.asarray(image.crop((left, top, left + 224, top + 224)))
        made = pixels.transpose(2, 0, 1) * scale
        made -= shift
        return made
    return load, f"Pillow {PIL.__version__}"


def main():
    folder, seconds, kind = sys.argv[1], float(sys.argv[2]), sys.argv[3]
    load, name = {"torchvision": torchvision_pipeline, "pillow": pillow_pipeline}[kind]()
    files = []
    for path in sorted(glob.glob(os.path.join(folder, "*", "*"))):
        with open(path, "rb") as file:
            files.append(file.read())
    for data in files[:10]:
        load(data)
    began, processor, count = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - began < seconds:
        for data in files[:20]:
            load(data)
        count += 20
        files = files[20:] + files[:20]
    spent, processor = time.perf_counter() - began, time.process_time() - processor
    print(f"{name}: {count / spent:.1f} samples/s, {count / processor:.1f} of processor time")


if __name__ == "__main__":
    main()
