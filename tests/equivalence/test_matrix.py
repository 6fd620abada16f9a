#!/usr/bin/env python3
"""How the ranks divide the work never changes the result: every strategy and model against one
rank.

The test compares 12 steps: the losses, the evaluations, and the distance of each tensor from one
rank's, relative to how far it moved. In addition it looks for mistakes in the optimizer, which move
the weights in a direction that rounding hardly takes. This direction g is the difference between
one rank with the mistake and one rank without it, in float32. For the row's difference d,
<d, g> / <g, g> is 1 if the ranks made exactly that mistake; it has to be less than a half. The test
also checks itself: compared with one rank that makes the mistake, in the row's own precision, each
row has to fail; so it does with one tensor's distance longer by a tenth, or one tensor frozen.

The table is in tests/support/matrix.py. MATRIX chooses rows of it. Unset: a cover in which each
pair of values that is possible together occurs. "all": everything. A number: so many rows at
random. Texts separated by commas: the rows whose description has all of them, REPEAT times. If
MATRIX is set, all mistakes are tried, otherwise three of each setting. VERBOSE prints each row.

usage: test_matrix.py BUILD_FOLDER
"""
import concurrent.futures
import math
import os
import random
import shutil
import sys
import tempfile
import threading
import zlib

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import matrix  # noqa: E402
from matrix import MODELS  # noqa: E402
from products import products  # noqa: E402
from runs import TRIREME, entries, last, losses, on_ranks, run, timed, train  # noqa: E402

# By precision and by whether the samples are text: of losses, of how far a tensor moved. The most
# that rows show is in losses 1.5e-7, 7e-9, 6e-4, 6e-5, in tensors 6e-4, 4e-5, 0.025, 0.007: where
# a value rounded otherwise turns a unit on or off, that grows behind batch norm. With AMX
# and with AVX-512.
LIMITS = {
    ("32-true", False): (2e-5, 1e-3), ("32-true", True): (2e-5, 1e-3),
    ("bf16-mixed", False): (3e-3, 0.05), ("bf16-mixed", True): (3e-4, 0.015),
}
COEFFICIENT_LIMIT = 0.5  # rows show up to 0.06, mistakes at least 0.7
MISTAKES = 3  # tried of each setting; with MATRIX set, all
# A bias in front of batch norm has no gradient but rounding noise, which optimizers that divide by
# the gradient's own size turn into steps; the running mean behind it takes part in that, some steps
# late, and evaluation reads it.
NOISE_ONLY = ("layer1.0.bias", "layer2.0.bias", "layer1.1.running_mean", "layer2.1.running_mean")
STILL = NOISE_ONLY[:2]  # which optimizers that do not divide leave where they are
BUFFERS = ("running_mean", "running_var", "num_batches_tracked")


class Once:
    """Results by key, each made by the test that asks first."""

    def __init__(self):
        self.lock, self.made = threading.Lock(), {}

    def get(self, key, make):
        with self.lock:
            first = key not in self.made
            future = self.made.setdefault(key, concurrent.futures.Future())
        if first:
            try:
                future.set_result(make())
            except BaseException as error:  # passed on to all that wait for it
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


def initial(folder, known, row):
    recipe, own = matrix.settings(row, folder)[:2]
    name = "initial-" + row["model"].replace(" ", "_")
    path = os.path.join(folder, name + ".safetensors")

    def make():
        run([TRIREME, "checkpoint", "init", f"recipes/{recipe}.yaml", *own, "--out", path])
        return path
    return known.get(name, make)


def is_noise(row, name):
    return name in NOISE_ONLY and row["update"].startswith("adam")


def other_order(row):
    """Sums in another order on one rank: of the micro-batches where they are free, else of another
    number of threads."""
    return "OMP_NUM_THREADS=2" if MODELS[row["model"]][3] else "batch.micro=5"


def chosen(row, base):
    """The mistakes that are tried of a row, the same of all rows that share their runs."""
    mistakes = matrix.mistakes(row)
    if os.environ.get("MATRIX"):
        return mistakes
    key = "; ".join((row["model"], row["precision"], row["steps"], row["update"], *base))
    first = zlib.crc32(key.encode())
    return [mistakes[(first + i) % len(mistakes)] for i in range(min(MISTAKES, len(mistakes)))]


def trained(row, tensors):
    """The names of the parameters that have a gradient."""
    return [name for name in tensors
            if name not in STILL and name.rsplit(".", 1)[-1] not in BUFFERS]


def distances(row, tensors, vector=0, of_start=0.0):
    """Of each tensor, those that are noise left out: how long the pair's difference is, plus that
    fraction of the way from the start, over the length of that way."""
    found = {}
    for name, line in tensors.items():
        if is_noise(row, name):
            continue
        p = line["products"]
        # The second pair is start - wanted: minus the way.
        squares = ((1 + of_start) ** 2 * p[vector][vector] + of_start ** 2 * p[1][1]
                   - 2 * of_start * (1 + of_start) * p[vector][1])
        own = line["size"] if name in STILL else p[1][1]
        found[name] = math.sqrt(max(squares, 0) / own) if own else math.inf if squares else 0.0
    return found


def coefficient(row, tensors, vector, template):
    """How much of the template is in the vector: 1 if it is that, 0 if it is orthogonal to it."""
    names = trained(row, tensors)
    own, both = (sum(tensors[name]["products"][i][template] for name in names)
                 for i in (template, vector))
    assert own > 0, "the mistake changes nothing"
    return both / own


class Weights:
    """A row's weights against one rank's, with what mistakes do to them."""

    def __init__(self, folder, known, row, base, got):
        self.row = row
        self.mistakes = chosen(row, base)
        self.wanted = weights_of(alone(folder, known, row, base))
        pairs = [(got, self.wanted), (initial(folder, known, row), self.wanted)]
        # The direction of a mistake comes from float32, where bf16's noise does not hide it. The
        # run that makes the mistake has the row's precision and takes its sums in another order.
        exact = {**row, "precision": "32-true"}
        right = weights_of(alone(folder, known, exact, base))
        for word in self.mistakes:
            pairs.append((weights_of(alone(folder, known, exact, (*base, word))), right))
            wrong = weights_of(alone(folder, known, row, (*base, other_order(row), word)))
            pairs.append((wrong, got))
        self.tensors = products(pairs)
        self.distances = distances(row, self.tensors)
        self.coefficients = {}
        for i, word in enumerate(self.mistakes):
            self.coefficients[word] = [coefficient(row, self.tensors, vector, 2 + 2 * i)
                                       for vector in (0, 3 + 2 * i)]

    def check(self, limit):
        name, distance = self.worst()
        assert distance <= limit, f"{name}: {distance:.1e} of how far it moved, of {limit:.1e}"
        for word, (found, wrong) in self.coefficients.items():
            assert abs(found) < COEFFICIENT_LIMIT, f"like {word}: {found:.3f} of it"
            assert wrong >= COEFFICIENT_LIMIT, f"{word} is not noticed: {wrong:.3f} of it"

    def check_scaled(self, limit):
        """A single tensor that moved a tenth further fails, whichever it is."""
        scaled = distances(self.row, self.tensors, of_start=0.1)
        for name, distance in scaled.items():
            moved = self.tensors[name]["products"][1][1] > 0 and name not in STILL
            assert not moved or distance > limit, f"{name} times 1.1 is not noticed: {distance:.3f}"

    def worst(self):
        return max(self.distances.items(), key=lambda item: item[1])


def check_frozen(folder, known, row, base, got, names, limit):
    """A tensor that one side does not train fails."""
    wanted = weights_of(alone(folder, known, row, base))
    start = initial(folder, known, row)
    name = names[zlib.crc32(row["update"].encode()) % len(names)]
    frozen = weights_of(alone(folder, known, row, (*base, f'optimizer.freeze=["{name}"]')))
    found = distances(row, products([(got, frozen), (start, wanted)]))
    assert found[name] > limit, f"{name} frozen is not noticed: {found[name]:.3f}"


def check_row(folder, known, number, row):
    ranks = matrix.CELLS[row["cell"]].ranks
    size = matrix.micro(row)
    base = (f"batch.micro={size}",) if MODELS[row["model"]][3] == "micro" else ()
    wanted = alone(folder, known, row, base)
    words = [*matrix.settings(row, folder)[2], f"batch.micro={size}"]
    got = execute(folder, f"row-{number}", row, ranks, words)
    loss, limit = LIMITS[row["precision"], matrix.is_text(row)]
    found = differences(got, wanted, tell(row))
    weights = Weights(folder, known, row, base, weights_of(got))
    name, distance = weights.worst()
    fractions = ", ".join(f"{word} {own:.3f} not {wrong:.2f}"
                      for word, (own, wrong) in weights.coefficients.items())
    said = (f"steps {found[0]:.1e}, evaluation {found[1]:.1e} of {loss:.1e}, "
            f"weights {distance:.1e} of {limit:.1e} ({name}), {fractions}")
    if os.environ.get("VERBOSE"):
        print(f"  {tell(row)}: {said}", flush=True)
    assert max(found) <= loss, said
    weights.check(limit)
    weights.check_scaled(limit)
    check_frozen(folder, known, row, base, weights_of(got), trained(row, weights.tensors), limit)
    shutil.rmtree(got)
    return weights


def tell_extremes(passed):
    """Prints how close the rows that passed were to their limits."""
    if not passed:
        return
    found = [(word, *pair) for one in passed for word, pair in one.coefficients.items()]
    most, least = max(found, key=lambda item: abs(item[1])), min(found, key=lambda item: item[2])
    print(f"  fractions of mistakes: at most {abs(most[1]):.3f} ({most[0]}) in rows, "
          f"at least {least[2]:.3f} ({least[0]}) of those made; {len(found)} tried")
    for key, (_, limit) in LIMITS.items():
        own = [one for one in passed if (one.row["precision"], matrix.is_text(one.row)) == key]
        if own:
            name, distance = max((one.worst() for one in own), key=lambda item: item[1])
            print(f"  {key[0]}, {'text' if key[1] else 'images'}: at most {distance:.1e} of how "
                  f"far a tensor moved ({name}), limit {limit:g}")


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
    known, failed, passed = Once(), [], []
    storage = os.path.join(folder, "storage")
    os.mkdir(storage)
    os.environ["TMPDIR"] = storage
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        futures = {pool.submit(check_row, folder, known, i, row): row for i, row in enumerate(rows)}
        for future in concurrent.futures.as_completed(futures):
            error = future.exception()
            if error is None:
                passed.append(future.result())
            else:
                failed.append(f"{tell(futures[future])}: {error}")
                print(f"FAILED {failed[-1]}", flush=True)
    assert not os.listdir(storage), f"left in storage: {os.listdir(storage)}"
    print(f"  {len(rows)} rows, {len(known.made)} runs of one rank, {len(failed)} failed")
    tell_extremes(passed)
    assert not failed, f"{len(failed)} rows failed, the first: {failed[0]}"


def main():
    with tempfile.TemporaryDirectory(prefix="trireme-matrix-") as folder:
        timed(check_rows, folder, choose())


if __name__ == "__main__":
    main()
