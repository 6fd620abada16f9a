"""Trains one model and prints samples (or tokens) per second; started by run_torch.

The rate is the median over chunks of about a quarter of a second. Chunks during which other
processes used more than 8% of a core are thrown away.
"""

import time

START = time.time()
# The clock starts before the imports: they are part of what a user waits for.
import argparse  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import resource  # noqa: E402
import sys  # noqa: E402

import torch  # noqa: E402

import jobs  # noqa: E402


def arguments():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("model")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--bf16", action="store_true")
    p.add_argument("--cl", action="store_true", help="channels last")
    p.add_argument("--opt", help="of mnist-cnn: sgd or adadelta")
    p.add_argument("--batch", type=int, help="of the models on Fashion-MNIST")
    p.add_argument("--compile", action="store_true")
    p.add_argument("--seconds", type=float, default=20)
    p.add_argument("--tag", default="")
    p.add_argument("--json", action="store_true")
    return p.parse_args()


def busy():
    """CPU seconds used on the whole machine (steal included), and by this process."""
    with open("/proc/stat", encoding="ascii") as f:
        fields = f.readline().split()
    ticks = sum(int(fields[k]) for k in (1, 2, 3, 6, 7, 8))
    own = os.times()
    return ticks / os.sysconf("SC_CLK_TCK"), own.user + own.system


def main():
    a = arguments()
    torch.set_num_threads(a.threads)
    job = jobs.make(a.model, a.opt, a.batch)
    net = job.net.to(memory_format=torch.channels_last) if a.cl else job.net
    optimizer = job.optimizer(net.parameters())
    if a.compile:
        net = torch.compile(net)
    net.train()

    def step(i):
        x, y = job.data(i)
        if a.cl:
            x = x.contiguous(memory_format=torch.channels_last)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=a.bf16):
            output = net(x)
        loss = job.loss(output.float(), y)
        loss.backward()
        optimizer.step()
        return loss

    first_loss = step(0).item()
    first_step = time.time() - START
    warm, i = time.time(), 1
    while time.time() - warm < a.seconds * 0.2 or i < 3:
        step(i)
        i += 1
    per_chunk = max(1, int(0.25 / ((time.time() - warm) / (i - 1))))
    rates, rejected, begin = [], 0, time.time()
    while time.time() - begin < a.seconds or len(rates) < 9:
        if time.time() - begin > a.seconds * 6 + 60:
            break
        before, t = busy(), time.perf_counter()
        for _ in range(per_chunk):
            loss = step(i)
            i += 1
        wall, after = time.perf_counter() - t, busy()
        if (after[0] - before[0]) - (after[1] - before[1]) > 0.08 * wall + 0.02:
            rejected += 1
        else:
            rates.append(per_chunk * job.batch * job.tokens / wall)
    if not rates:
        sys.exit("no quiet chunk: other processes are using this machine")
    rates.sort()
    n, rate = len(rates), rates[len(rates) // 2]
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024e-6
    if a.json:
        print(json.dumps({"samples_per_s": rate / job.tokens, "first_step_s": first_step,
                          "max_rss_mb": rss, "rejected": rejected}))
        return
    unit = "tok/s" if job.tokens > 1 else "samples/s"
    print(f"{a.model} {a.threads}T {'bf16' if a.bf16 else 'fp32'} {'cl ' if a.cl else ''}"
          f"{a.opt or ''} {a.tag}: {rate:.1f} {unit} (p10 {rates[n // 10]:.1f} "
          f"p90 {rates[n * 9 // 10]:.1f}, n={n}x{per_chunk} rej={rejected}) "
          f"step {job.batch * job.tokens / rate * 1e3:.2f} ms  loss {first_loss:.3f}->"
          f"{loss.item():.3f} after {i} steps  first-step-done {first_step:.2f}s  "
          f"maxrss {rss:.0f} MB", flush=True)


if __name__ == "__main__":
    main()
