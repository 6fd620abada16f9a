"""Trains one model and prints samples (or tokens) per second; started by run_torch.

chunks.py says what the rate is.
"""

import time

START = time.time()
# The clock starts before the imports: they are part of what a user waits for.
import argparse  # noqa: E402

import torch  # noqa: E402

import chunks  # noqa: E402
import jobs  # noqa: E402


def arguments():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("model")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--bf16", action="store_true")
    p.add_argument("--cl", action="store_true", help="channels last")
    p.add_argument("--opt", help="of mnist-cnn: sgd or adadelta")
    p.add_argument("--batch", type=int, help="of the models on Fashion-MNIST")
    p.add_argument("--compile", action="store_true", help="network and loss, by torch.compile")
    p.add_argument("--fused", action="store_true", help="the optimizer's fastest form")
    p.add_argument("--seconds", type=float, default=20)
    p.add_argument("--tag", default="")
    p.add_argument("--json", action="store_true")
    return p.parse_args()


def fastest(job):
    """The option for the optimizer's fastest form: one kernel for all parameters, if it has one."""
    for option in ({"fused": True}, {"foreach": True}):
        try:
            job.optimizer([torch.zeros(1, requires_grad=True)], **option)
            return option
        except (RuntimeError, TypeError):
            pass
    return {}


def main():
    a = arguments()
    torch.set_num_threads(a.threads)
    job = jobs.make(a.model, a.opt, a.batch)
    net = job.net.to(memory_format=torch.channels_last) if a.cl else job.net
    optimizer = job.optimizer(net.parameters(), **(fastest(job) if a.fused else {}))
    net.train()

    def forward(x, y):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=a.bf16):
            output = net(x)
        return job.loss(output.float(), y)

    if a.compile:
        forward = torch.compile(forward)

    def step(i):
        x, y = job.data(i)
        if a.cl:
            x = x.contiguous(memory_format=torch.channels_last)
        optimizer.zero_grad(set_to_none=True)
        loss = forward(x, y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    what = [a.model, f"{a.threads}T", "bf16" if a.bf16 else "fp32", a.opt or "", a.tag]
    what += [flag for flag in ("cl", "compile", "fused") if getattr(a, flag)]
    what = " ".join(filter(None, what))
    chunks.measure(step, START, a.seconds, job.batch, job.tokens, a.json, what)


if __name__ == "__main__":
    main()
