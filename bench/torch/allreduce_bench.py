"""PyTorch's all-reduce over gloo: median time and rate by size, one JSON object a line.

torchrun_fix.py --standalone --nproc_per_node=N allreduce_bench.py
"""

import json
import os
import time

import torch
import torch.distributed as dist

REPETITIONS = {8: 1000, 1 << 20: 60, 16 << 20: 20, 64 << 20: 12, 256 << 20: 9}


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for size, repetitions in REPETITIONS.items():
        x = torch.ones(size // 4)
        times = []
        for _ in range(repetitions):
            dist.barrier()
            t = time.perf_counter()
            dist.all_reduce(x)
            times.append(time.perf_counter() - t)
            x.fill_(1)
        times = sorted(times[2:])
        median = times[len(times) // 2]
        if dist.get_rank() == 0:
            print(json.dumps({"op": "all_reduce", "backend": "gloo", "bytes": size,
                              "ranks": dist.get_world_size(), "time_us": median * 1e6,
                              "algbw_gb_s": size / median / 1e9}), flush=True)
    try:
        dist.barrier()
    except RuntimeError:  # the other rank was faster in leaving
        pass
    os._exit(0)  # taking gloo down can spin for ever (seen with PyTorch 1.13)


if __name__ == "__main__":
    main()
