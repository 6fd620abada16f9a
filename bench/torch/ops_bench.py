"""Times one primitive of PyTorch, forward and backward; the cases are those of bench/ops.c.

Prints the median and the shortest time of a call, in microseconds.
"""
import argparse
import json
import statistics
import time

import torch
from torch.nn import functional as F

ROWS = (64, 256, 768)
IMAGES = (32, 64, 64, 64)
POINTS = (8, 128, 128, 2)


def chain(kind):
    def plain(x, y):
        return torch.abs(torch.relu(x * y - y) * 0.5 - x)

    def functions(x, y):
        return torch.sigmoid(torch.exp(-torch.relu(x * y - y))) * x
    return functions if kind else plain


def reduction(kind):
    axis = kind % 3
    return (lambda x: x.sum(axis), lambda x: x.mean(axis), lambda x: x.amax(axis),
            lambda x: x.var(axis))[kind // 3]


def norm(kind):
    if kind < 2:
        return lambda x: torch.softmax(x, 1 if kind else -1)
    layer = torch.nn.LayerNorm(ROWS[-1])
    return lambda x: F.layer_norm(x, layer.normalized_shape, layer.weight, layer.bias)


def norm_of_images(_):
    return torch.nn.GroupNorm(8, IMAGES[1])


def image(kind):
    if kind == 0:
        return lambda x: F.max_pool2d(x, 2, return_indices=True)
    return lambda x: F.interpolate(x, (48, 48), mode="bilinear", antialias=True)


def sample(_):
    return lambda x, grid: F.grid_sample(x, grid, align_corners=False)


FAMILIES = [(chain, [(1 << 12, 1 << 12)] * 2), (reduction, [(256, 256, 256)]), (norm, [ROWS]),
            (norm_of_images, [IMAGES]), (image, [(8, 3, 128, 128)]), (image, [(8, 32, 128, 128)]),
            (sample, [(8, 3, 128, 128), POINTS]), (sample, [(8, 32, 128, 128), POINTS])]


def timed(call, seconds):
    times, begin = [], time.perf_counter()
    while len(times) < 5 or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e6)
    return times


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("family", type=int)
    p.add_argument("kind", type=int)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--bf16", action="store_true")
    p.add_argument("--compile", action="store_true")
    p.add_argument("--seconds", type=float, default=1)
    p.add_argument("--tag")
    p.add_argument("--json", action="store_true")
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    make, shapes = FAMILIES[a.family]
    dtype = torch.bfloat16 if a.bf16 else torch.float32
    inputs = [torch.rand(shape).sub_(0.5).to(dtype).requires_grad_() for shape in shapes]
    function = torch.compile(make(a.kind)) if a.compile else make(a.kind)
    with torch.no_grad():
        for _ in range(2):
            function(*inputs)
        forward = timed(lambda: function(*inputs), a.seconds)
    backward = []
    begin = time.perf_counter()
    while len(backward) < 5 or time.perf_counter() - begin < a.seconds:
        y = function(*inputs)
        y = y[0] if isinstance(y, tuple) else y
        dy = torch.rand_like(y)
        start = time.perf_counter()
        y.backward(dy)
        backward.append((time.perf_counter() - start) * 1e6)
        for x in inputs:
            x.grad = None
    print(json.dumps({"forward_us": statistics.median(forward), "forward_fastest_us": min(forward),
                      "backward_us": statistics.median(backward[1:]),
                      "backward_fastest_us": min(backward)}))


if __name__ == "__main__":
    main()
