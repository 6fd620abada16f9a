"""Writes a small data set of images in MNIST's format that a network can learn, for machines where
Fashion-MNIST is not installed: ten patterns, each sample one of them with noise."""
import os
import random
import struct

SIDE, CLASSES = 28, 10


def write_images(folder, train, test, seed=1):
    """Writes files with `train` and `test` samples, the same for the same seed."""
    source = random.Random(seed)
    patterns = [source.randbytes(SIDE * SIDE) for _ in range(CLASSES)]
    os.makedirs(folder, exist_ok=True)
    for name, count in ("train", train), ("t10k", test):
        labels = bytes(source.randrange(CLASSES) for _ in range(count))
        noise = [source.randbytes(SIDE * SIDE) for _ in range(64)]
        with open(os.path.join(folder, f"{name}-labels-idx1-ubyte"), "wb") as file:
            file.write(struct.pack(">II", 0x801, count) + labels)
        with open(os.path.join(folder, f"{name}-images-idx3-ubyte"), "wb") as file:
            file.write(struct.pack(">IIII", 0x803, count, SIDE, SIDE))
            for i, label in enumerate(labels):
                blur = noise[(i * 7 + label) % len(noise)]
                file.write(bytes((3 * a + b) // 4 for a, b in zip(patterns[label], blur)))
    return folder
