"""The rate of a training step, as all programs of this folder report it.

It is the median over chunks of about a quarter of a second. Chunks during which other processes
used more than 8% of a core are thrown away, and so are the first steps, in which a program may
still compile.
"""

import json
import os
import resource
import sys
import time


def busy():
    """CPU seconds used on the whole machine (steal included), and by this process."""
    with open("/proc/stat", encoding="ascii") as f:
        fields = f.readline().split()
    ticks = sum(int(fields[k]) for k in (1, 2, 3, 6, 7, 8))
    own = os.times()
    return ticks / os.sysconf("SC_CLK_TCK"), own.user + own.system


def measure(step, start, seconds, batch, tokens, as_json, what):
    """Runs step(number), which returns the loss, and prints what `what` reached."""
    first_loss = float(step(0))
    first_step = time.time() - start
    step(1)  # compiled again where a first step differs from all others
    warm, i = time.time(), 2
    while time.time() - warm < seconds * 0.2 or i < 4:
        step(i)
        i += 1
    per_chunk = max(1, int(0.25 / ((time.time() - warm) / (i - 2))))
    rates, rejected, begin = [], 0, time.time()
    while time.time() - begin < seconds or len(rates) < 9:
        if time.time() - begin > seconds * 6 + 60:
            break
        before, t = busy(), time.perf_counter()
        for _ in range(per_chunk):
            loss = step(i)
            i += 1
        wall, after = time.perf_counter() - t, busy()
        if (after[0] - before[0]) - (after[1] - before[1]) > 0.08 * wall + 0.02:
            rejected += 1
        else:
            rates.append(per_chunk * batch * tokens / wall)
    if not rates:
        sys.exit("no quiet chunk: other processes are using this machine")
    rates.sort()
    n, rate = len(rates), rates[len(rates) // 2]
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024e-6
    if as_json:
        print(json.dumps({"samples_per_s": rate / tokens, "first_step_s": first_step,
                          "max_rss_mb": rss, "rejected": rejected}))
        return
    unit = "tok/s" if tokens > 1 else "samples/s"
    print(f"{what}: {rate:.1f} {unit} (p10 {rates[n // 10]:.1f} p90 {rates[n * 9 // 10]:.1f}, "
          f"n={n}x{per_chunk} rej={rejected}) step {batch * tokens / rate * 1e3:.2f} ms  "
          f"loss {first_loss:.3f}->{float(loss):.3f} after {i} steps  "
          f"first-step-done {first_step:.2f}s  maxrss {rss:.0f} MB", flush=True)
