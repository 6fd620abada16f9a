"""Trains mlp-jax with JAX and prints samples per second; started by run_torch.

The whole step is one compiled function. Rates are taken as train_bench.py takes them.
"""

import time

START = time.time()
import argparse  # noqa: E402
import os  # noqa: E402


def arguments():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("model", choices=["mlp-jax"])
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--batch", type=int, default=128)
    p.add_argument("--seconds", type=float, default=20)
    p.add_argument("--tag", default="")
    p.add_argument("--json", action="store_true")
    return p.parse_args()


def main():
    a = arguments()
    # JAX starts a thread for each CPU that it may use.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: a.threads])
    import jax
    import jax.numpy as jnp

    import chunks
    import fashion

    images, labels = fashion.load()
    steps = len(images) // a.batch
    rows = [slice(i * a.batch, (i + 1) * a.batch) for i in range(steps)]
    batches = [(jnp.asarray(images[r]), jnp.asarray(labels[r])) for r in rows]
    widths = [784, 512, 512, 10]
    keys = jax.random.split(jax.random.PRNGKey(0), 3)
    parameters = [
        (jax.random.normal(k, (i, o)) * (2 / i) ** 0.5, jnp.zeros(o))
        for k, i, o in zip(keys, widths, widths[1:])
    ]

    def loss(parameters, x, y):
        for w, b in parameters[:-1]:
            x = jax.nn.relu(x @ w + b)
        w, b = parameters[-1]
        rows = jax.nn.log_softmax(x @ w + b)
        return -jnp.mean(jnp.take_along_axis(rows, y[:, None], 1))

    @jax.jit
    def update(parameters, x, y):
        value, gradients = jax.value_and_grad(loss)(parameters, x, y)
        return value, jax.tree.map(lambda p, g: p - 0.01 * g, parameters, gradients)

    def step(i):
        nonlocal parameters
        value, parameters = update(parameters, *batches[i % steps])
        return value.block_until_ready()

    what = f"{a.model} {a.threads}T JAX {a.tag}"
    chunks.measure(step, START, a.seconds, a.batch, 1, a.json, what)


if __name__ == "__main__":
    main()
