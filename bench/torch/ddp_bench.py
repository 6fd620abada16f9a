"""Samples per second of PyTorch's DistributedDataParallel over gloo, all ranks together.

torchrun_fix.py --standalone --nproc_per_node=N ddp_bench.py MODEL SECONDS [--fsdp] [--json]

Each rank has the batch of jobs.py; N=1 runs without DDP. --fsdp: FullyShardedDataParallel instead,
each child of the network (or of its lists) a unit; it needs PyTorch 2. Chunks during which other
processes used more than 8% of a core are thrown away.
"""

import json
import os
import sys
import time

import torch
import torch.distributed as dist

import jobs

torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
NAME, SECONDS = sys.argv[1], float(sys.argv[2])
TICKS = os.sysconf("SC_CLK_TCK")


def others(pids):
    """CPU seconds used on the whole machine by other processes than the ranks."""
    with open("/proc/stat", encoding="ascii") as f:
        fields = f.readline().split()
    total = sum(int(fields[k]) for k in (1, 2, 3, 6, 7, 8))
    for pid in pids:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
            own = f.read().rsplit(")", 1)[1].split()
        total -= int(own[11]) + int(own[12])
    return total / TICKS


def shard(net):
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
    from torch.distributed.fsdp.wrap import CustomPolicy

    units = set()
    for child in net.children():
        units.update(child.children() if isinstance(child, torch.nn.ModuleList) else [child])
    units = {unit for unit in units if any(True for _ in unit.parameters())}
    return FullyShardedDataParallel(
        net,
        sharding_strategy=ShardingStrategy.FULL_SHARD,
        auto_wrap_policy=CustomPolicy(lambda module: module in units),
        device_id=torch.device("cpu"),
    )


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    job = jobs.make(NAME)
    net = job.net
    if "--fsdp" in sys.argv:
        net = shard(net)
    elif size > 1:
        net = torch.nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True)
    optimizer = job.optimizer(net.parameters())
    net.train()

    def step(i):
        x, y = job.data(i * size + rank)
        optimizer.zero_grad(set_to_none=False)
        job.loss(net(x), y).backward()
        optimizer.step()

    pids = [None] * size
    dist.all_gather_object(pids, os.getpid())
    for i in range(3):
        step(i)
    t = time.time()
    step(3)
    step(4)
    per_chunk = torch.tensor([max(1, int(0.3 / ((time.time() - t) / 2)))])
    dist.broadcast(per_chunk, 0)
    per_chunk = int(per_chunk)
    rates, rejected, i, begin, go = [], 0, 5, time.time(), torch.ones(1)
    while True:
        wanted = time.time() - begin < SECONDS or len(rates) < 9
        go[0] = 1.0 if wanted and time.time() - begin < 6 * SECONDS + 60 else 0.0
        dist.broadcast(go, 0)
        if go[0] == 0:
            break
        dist.barrier()
        before, t = others(pids), time.perf_counter()
        for _ in range(per_chunk):
            step(i)
            i += 1
        dist.barrier()
        wall = time.perf_counter() - t
        if others(pids) - before > 0.08 * wall + 0.03:
            rejected += 1
        else:
            rates.append(size * per_chunk * job.batch / wall)
    if rank == 0 and not rates:
        sys.exit("no quiet chunk: other processes are using this machine")
    if rank == 0:
        rates.sort()
        n = len(rates)
        if "--json" in sys.argv:
            print(json.dumps({"samples_per_s": rates[n // 2], "ranks": size,
                              "rejected": rejected}), flush=True)
        else:
            kind = "FSDP" if "--fsdp" in sys.argv else "DDP"
            print(f"{kind} {NAME} W={size}x{torch.get_num_threads()}T: {rates[n // 2]:.1f} "
                  f"samples/s, all ranks (p10 {rates[n // 10]:.1f} p90 {rates[n * 9 // 10]:.1f}, "
                  f"n={n}x{per_chunk} rej={rejected})", flush=True)
    try:
        dist.barrier()
    except RuntimeError:  # the other rank was faster in leaving
        pass
    os._exit(0)  # taking gloo down can spin for ever (seen with PyTorch 1.13)


if __name__ == "__main__":
    main()
