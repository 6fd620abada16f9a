#!/usr/bin/env python3
"""How the ranks divide the work never changes the result: every way, every model, against one rank.

F32: each loss within 2e-5 of that of one rank over 12 steps, the evaluations too, and the weights
after them. bf16-mixed: within what one rank shows itself when its sums are taken in other orders.
The table is in tests/support/matrix.py. MATRIX chooses of it: unset, a cover in which each pair of
values that is possible together occurs; all, everything; a number, so many rows at random;
texts with commas between, the rows in whose description all of them occur, REPEAT times.
VERBOSE tells of each row.

usage: test_matrix.py BUILD_FOLDER
"""
import concurrent.futures
import itertools
import json
import os
import random
import shutil
import sys
import tempfile
import threading

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import matrix  # noqa: E402
from matrix import MODELS  # noqa: E402
from runs import TRIREME, entries, last, losses, on_ranks, run, timed, train  # noqa: E402

LOSS_LIMIT, WEIGHT_LIMIT = 2e-5, 1e-4
# A bias in front of batch norm has no gradient but rounding noise, which optimizers that divide by
# the gradient's own size turn into steps; the running mean behind it takes part in that, some steps
# late, and evaluation reads it.
NOISE_ONLY = ("layer1.0.bias", "layer2.0.bias", "layer1.1.running_mean", "layer2.1.running_mean")
NOISE_LIMIT = 1e-3


class Once:
    """Results by key, each made by whoever asks first."""

    def __init__(self):
        self.lock, self.made = threading.Lock(), {}

    def get(self, key, make):
        with self.lock:
            first = key not in self.made
            future = self.made.setdefault(key, concurrent.futures.Future())
        if first:
            try:
                future.set_result(make())
            except BaseException as error:  # whoever waits for it gets it too
                future.set_exception(error)
        return future.result()


def tell(row):
    return "; ".join(row.values())


def execute(folder, name, row, ranks, words):
    """A run's folder, less what is not compared."""
    place = os.path.join(folder, name)
    recipe, own = matrix.settings(row, folder)[:2]
    variables = [word for word in words if word[0].isupper()]
    words = [word for word in words if word not in variables]
    run(["env", *variables, "timeout", "120",
         *on_ranks(ranks, train(recipe, place, *own, *words))])
    os.rename(os.path.join(last(place), "model.safetensors"), weights_of(place))
    shutil.rmtree(os.path.join(place, "checkpoints"))
    return place


def weights_of(place):
    return os.path.join(place, "weights.safetensors")


def alone(folder, known, row, words=()):
    """The same on one rank, once for all rows that come to it."""
    key = [row["model"], row["precision"], row["steps"], row["update"], *words]
    name = "alone-" + "-".join(key).replace(" ", "_")
    return known.get(name, lambda: execute(folder, name, row, 1, words))


def differences(got, wanted, what):
    """The largest relative difference of two runs' losses: of steps, of evaluations."""
    found = []
    for kind in ("train", "val"):
        mine, other = losses(got, kind), losses(wanted, kind)
        assert mine.keys() == other.keys() and other, f"{what}: {kind} of {sorted(mine)}"
        samples = [[entry["samples"] for entry in entries(place, kind)] for place in (got, wanted)]
        assert samples[0] == samples[1], f"{what}: {kind}: samples {samples}"
        found.append(max(abs(float(mine[step]) - float(loss)) / abs(float(loss))
                         for step, loss in other.items()))
    assert len(losses(got)) == 12, f"{what}: steps {sorted(losses(got))}"
    return found


def weights(got, wanted, row):
    """The relative L2 of each tensor, those that are noise left out."""
    done = run([TRIREME, "checkpoint", "diff", weights_of(got), weights_of(wanted), "--json"], None)
    found = {line["name"]: line["relative_l2"] for line in map(json.loads,
                                                               done.stdout.splitlines())}
    assert len(found) >= 4, done.stdout + done.stderr
    if row["update"].startswith("adam"):
        found = {name: value for name, value in found.items() if name not in NOISE_ONLY}
    return max(found.items(), key=lambda item: item[1])




def is_noisy(row):
    return MODELS[row["model"]][3] and row["update"].startswith("adam")


def other_orders(row):
    """Sums in other orders on one rank: of the micro-batches where they are free, else of another
    number of threads; and within operations, of other kernels."""
    kernels = ("--device", "ref")
    if MODELS[row["model"]][3]:
        return ("OMP_NUM_THREADS=2",), kernels
    pieces = ("batch.micro=1",), ("batch.micro=5",), ("batch.micro=7",)
    return (*pieces, kernels) if matrix.CELLS[row["cell"]][3] > 1 else pieces


def own_spread(folder, known, row, base):
    """What one rank shows when it takes its sums in other orders: of losses, of weights. Twice
    that, since a few runs do not show all."""
    places = [alone(folder, known, row, (*base, *words)) for words in ((), *other_orders(row))]
    pairs = list(itertools.combinations(places, 2))
    return (2 * max(max(differences(a, b, "one rank")) for a, b in pairs),
            2 * max(weights(a, b, row)[1] for a, b in pairs))


def find_limits(folder, known, row, base, weight):
    """Of the losses of steps, of evaluations, and of weights."""
    limits = LOSS_LIMIT, NOISE_LIMIT if is_noisy(row) else LOSS_LIMIT, WEIGHT_LIMIT
    if row["precision"] != "32-true":
        loss, own = own_spread(folder, known, row, base)
        return tuple(max(pair) for pair in zip(limits, (loss, loss, own)))
    if weight > WEIGHT_LIMIT:  # rounding has turned some unit on or off: does it on one rank?
        return *limits[:2], max(WEIGHT_LIMIT, own_spread(folder, known, row, base)[1])
    return limits


def check_row(folder, known, number, row):
    ranks = matrix.CELLS[row["cell"]][0]
    size = matrix.micro(row)
    base = (f"batch.micro={size}",) if MODELS[row["model"]][3] == "micro" else ()
    wanted = alone(folder, known, row, base)
    words = [*matrix.settings(row, folder)[2], f"batch.micro={size}"]
    got = execute(folder, f"row-{number}", row, ranks, words)
    name, weight = weights(got, wanted, row)
    found = (*differences(got, wanted, tell(row)), weight)
    limits = find_limits(folder, known, row, base, weight)
    shutil.rmtree(got)
    said = "steps {:.1e} of {:.1e}, evaluation {:.1e} of {:.1e}, weights {:.1e} of {:.1e} ({})"
    said = said.format(*itertools.chain(*zip(found, limits)), name)
    if os.environ.get("VERBOSE"):
        print(f"  {tell(row)}: {said}", flush=True)
    assert all(one <= limit for one, limit in zip(found, limits)), said


def choose():
    wish = os.environ.get("MATRIX", "")
    if not wish:
        return matrix.pairwise()
    rows = matrix.everything()
    if wish == "all":
        return rows
    if wish.isdigit():
        seed = int(os.environ.get("TRIREME_TEST_SEED", random.randrange(1 << 30)))
        print(f"TRIREME_TEST_SEED={seed}")
        return random.Random(seed).sample(rows, min(int(wish), len(rows)))
    found = [row for row in rows if all(word in tell(row) for word in wish.split(","))]
    assert found, f"MATRIX={wish}: no such rows"
    return found * int(os.environ.get("REPEAT", "1"))


def check_rows(folder, rows):
    matrix.write_text(folder)
    known, failed = Once(), []
    storage = os.path.join(folder, "storage")
    os.mkdir(storage)
    os.environ["TMPDIR"] = storage
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        futures = {pool.submit(check_row, folder, known, i, row): row for i, row in enumerate(rows)}
        for future in concurrent.futures.as_completed(futures):
            error = future.exception()
            if error is not None:
                failed.append(f"{tell(futures[future])}: {error}")
                print(f"FAILED {failed[-1]}", flush=True)
    assert not os.listdir(storage), f"left in storage: {os.listdir(storage)}"
    print(f"  {len(rows)} rows, {len(known.made)} runs of one rank, {len(failed)} failed")
    assert not failed, f"{len(failed)} rows failed, the first: {failed[0]}"


def main():
    with tempfile.TemporaryDirectory(prefix="trireme-matrix-") as folder:
        timed(check_rows, folder, choose())


if __name__ == "__main__":
    main()
