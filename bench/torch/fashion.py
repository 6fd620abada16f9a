"""The images and labels of Fashion-MNIST, as Debian's package dataset-fashion-mnist has them."""

import gzip

import numpy as np

FOLDER = "/usr/share/datasets/fashion-mnist"


def load():
    """Images [samples, 784] between 0 and 1, and labels."""
    with gzip.open(f"{FOLDER}/train-images-idx3-ubyte.gz") as f:
        x = np.frombuffer(f.read(), np.uint8, offset=16).reshape(-1, 784)
    with gzip.open(f"{FOLDER}/train-labels-idx1-ubyte.gz") as f:
        y = np.frombuffer(f.read(), np.uint8, offset=8)
    return x.astype("float32") / np.float32(255), y.astype("int64")
