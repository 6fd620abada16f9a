#!/usr/bin/env python3
"""Networks that are drawn at random (random_net.c) train on random data in many ways, with the
result of one rank: losses, metrics and weights.

Each way divides the work otherwise: strategies, meshes, orders of pipelines, micro-batches,
recomputation, offload, other devices, a resume on other ranks, settings that `trireme plan --fit`
has found. How far rounding may take a result follows from a second run on one rank, whose initial
weights are changed in their last bit: the limit is a multiple of what that changes, and of the
rounding of F32. A network in which that grows too far is left out, and counted. With
trainer.deterministic, all bits have to be the same on any number of ranks and threads.

NETWORKS=FIRST:COUNT[:WAYS] chooses seeds and how many ways each is trained in. A network that
differs is made smaller: primitives are left out as long as it still differs. NETWORKS_ONLY=TEXT
runs only the ways that have the text. KEEP=FOLDER keeps all files there.

usage: test_random.py BUILD_FOLDER
"""
import collections
import concurrent.futures
import json
import math
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import traceback

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tensors  # noqa: E402
from random_nets import Network, Way, draw_way  # noqa: E402
from runs import TRIREME, entries, last, losses, on_ranks, processor_s  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
PRODUCTS = os.path.join(os.path.dirname(TRIREME), "equivalence_products")
SEEDS, WAYS = range(16), 4  # of `make test`
# By whether it is in half types: how far losses and the movement of weights may differ at least;
# how many times as far as in the run whose first weights differ in their last bits; how large these
# bits are; and what they may change, or the network is left out.
LEAST, FACTOR, BIT, MOST = (1e-4, 1e-2), (100, 5), (2 ** -23, 2 ** -9), (5e-3, 0.1)


class Differs(AssertionError):
    """A way has another result."""


# What a network may be refused for, and must say so.
REFUSALS = ("not divide over strategy.mesh.tensor", "model is divided",
            "does not divide into", "cannot share attention",
            "trainer.deterministic with ", "trainer.deterministic needs strategy.mesh.pipeline: 1",
            "cross-entropy of labels", "last step has ",
            "more than 1 value per channel")


class LeftOut(Exception):
    """A network that cannot be compared: why."""


def leave_out(done, refusals):
    for text in refusals:
        if done.returncode == 2 and text in done.stderr:
            raise LeftOut(f"refused, {text.strip()}")


def execute(network, folder, name, way, more=()):
    """A run's folder."""
    place = os.path.join(folder, name)
    words = [TRIREME, "train", network.recipe, "--run-dir", place, *network.words(), *way.words,
             *more]
    done = subprocess.run(["timeout", "-k", "5", "100", *on_ranks(way.ranks, words)], check=False,
                          capture_output=True, text=True, env={**os.environ, **way.env})
    refusals = (*REFUSALS, "mixes samples") if way.kind == "mixing" else REFUSALS
    leave_out(done, refusals)
    if done.returncode:
        raise Differs(f"exit code {done.returncode}: {done.stderr[-1500:]}")
    return place


def numbers_of(place):
    """Losses and metrics of a run, by step and name."""
    found = {}
    for kind in ("train", "val"):
        for entry in entries(place, kind):
            for key, value in entry.items():
                if key not in ("kind", "wall_s", "samples_per_s", "lr", "epoch", "step"):
                    found[kind, entry["step"], key] = value
    return found


def weights_of(place):
    return os.path.join(last(place), "model.safetensors")


def far(got, wanted):
    none = None, "NaN"  # the mean of nothing, as of labels that are all ignored
    if got in none or wanted in none:
        return 0.0 if got in none and wanted in none else math.inf
    a, b = float(got), float(wanted)
    return abs(a - b) / max(abs(b), 1e-2)


def compare(network, got, wanted, start=None):
    """How far two runs are from each other: of losses, and of how far a tensor moved; and where.
    `start`: the initial weights of the first, if they are others."""
    mine, other = numbers_of(got), numbers_of(wanted)
    if mine.keys() != other.keys():
        raise Differs(f"other lines: {sorted(mine.keys() ^ other.keys(), key=str)}")
    loss, tensor, where = 0.0, 0.0, ""
    for key, value in other.items():
        if key[2] == "samples" and mine[key] != value:
            raise Differs(f"{key}: {mine[key]}, not {value}")
        distance = far(mine[key], value)
        if not distance <= loss and "accuracy" not in key[2]:
            loss, where = distance, f"{key}: {mine[key]}, not {value}"
    done = subprocess.run([PRODUCTS, weights_of(got), weights_of(wanted), network.start,
                           weights_of(wanted), start or network.start, network.start],
                          capture_output=True, text=True, check=False)
    if done.returncode:
        raise Differs(done.stderr)
    for line in map(json.loads, done.stdout.splitlines()):
        squares = line["products"]
        # Numbers that hardly move are rounded: to a part of what they are.
        way = math.sqrt(squares[1][1]) + 1e-3 * math.sqrt(line["size"]) + 1e-4
        distance = math.sqrt(max(squares[0][0] - 2 * squares[0][2] + squares[2][2], 0)) / way
        if distance > tensor:
            tensor = distance
            where += f"; {line['name']} {distance:.1e}"
    return max(loss, tensor), where


class Bench:
    """The runs of one network on one rank."""

    def __init__(self, network, folder):
        self.network, self.folder, self.known = network, folder, {}
        network.write(folder)
        network.start = os.path.join(folder, "start.safetensors")
        done = subprocess.run([TRIREME, "checkpoint", "init", network.recipe, *network.words(),
                               "--out", network.start], capture_output=True, text=True, check=False)
        leave_out(done, REFUSALS)
        if done.returncode:
            raise Differs(f"checkpoint init: {done.stderr}")
        network.draw_groups(sorted(name for name in tensors.read(network.start)
                                   if name.endswith((".weight", ".bias"))))

    def alone(self, words=(), env=None):
        key = " ".join(words)
        if key not in self.known:
            way = Way(1, list(words), {"OMP_NUM_THREADS": "1", **(env or {})}, "one")
            name = f"alone{len(self.known)}"
            try:
                self.known[key] = execute(self.network, self.folder, name, way)
            except Differs as error:
                if "not finite" in str(error):
                    raise LeftOut("not finite") from error
                raise
        return self.known[key]

    def perturbed(self, half):
        """The initial weights, some of whose last bits are others."""
        path = os.path.join(self.folder, f"perturbed{half:d}.safetensors")
        if not os.path.exists(path):
            draw, found = random.Random(1), tensors.read(self.network.start)
            for name, (dtype, shape, data) in found.items():
                if dtype == "F32" and "running" not in name:
                    values = [value * (1 + draw.choice([-1, 0, 1]) * BIT[half])
                              for value in tensors.numbers((dtype, shape, data))]
                    found[name] = dtype, shape, values
            tensors.write(path, found)
        return path

    def moved(self, words, half):
        """How far last bits of the initial weights take a result."""
        start = self.perturbed(half)
        moved = self.alone((*words, f"init={start}"))
        distance, _ = compare(self.network, moved, self.alone(words), start)
        return distance

    def check(self, way):
        network = self.network
        name = "way"
        for old in (name, "whole"):
            shutil.rmtree(os.path.join(self.folder, old), ignore_errors=True)
        if way.kind in ("bits", "again"):
            wanted = execute(network, self.folder, "whole", way) if way.kind == "again" else \
                self.alone([word for word in way.words
                            if word.startswith(("batch.micro", "trainer."))])
            if way.first:
                execute(network, self.folder, name, way.first, ["trainer.max_steps=2"])
            self.check_bits(execute(network, self.folder, name, way), wanted)
            return 0.0
        base = [word for word in way.words if word.startswith("trainer.precision")]
        if way.kind == "mixing":
            base = way.words
        half = way.kind == "half"
        wanted, moved = self.alone(base), self.moved(base, half)
        if moved > MOST[half]:
            raise LeftOut(f"a last bit changes it: by {moved:.1e}")
        if way.kind == "resume":
            execute(network, self.folder, name, way.first, ["trainer.max_steps=2"])
        if way.kind == "plan":
            way = way._replace(words=self.planned(way))
        if way.kind == "eval":
            return self.check_eval(way, wanted, max(LEAST[0], FACTOR[0] * moved))
        if half:
            self.check_narrow(wanted)
        got = execute(network, self.folder, name, way)
        found, where = compare(network, got, wanted)
        limit = max(LEAST[half], FACTOR[half] * moved)
        if not found <= limit:
            raise Differs(f"{found:.1e}, of {limit:.1e} ({moved:.1e}): {where}")
        return found / limit

    def check_eval(self, way, wanted, limit):
        done = subprocess.run(on_ranks(way.ranks, [TRIREME, "eval", self.network.recipe,
                                                   "--checkpoint", wanted, "--json",
                                                   *self.network.words(), *way.words]),
                              capture_output=True, text=True, check=False,
                              env={**os.environ, **way.env})
        leave_out(done, REFUSALS)
        if done.returncode:
            raise Differs(f"eval: {done.stderr}")
        mine, other = json.loads(done.stdout), entries(wanted, "val")[-1]
        most = 0.0
        for key in mine.keys() & other.keys() - {"kind", "step", "epoch", "wall_s"}:
            distance = far(mine[key], other[key])
            if distance > limit:
                raise Differs(f"eval: {key}: {mine[key]}, not {other[key]}")
            most = max(most, distance / limit)
        return most

    def check_narrow(self, wanted):
        """The first loss in half types is about that in F32."""
        narrow, wide = (losses(place)[1] for place in (wanted, self.alone()))
        if far(narrow, wide) > 0.1:
            raise Differs(f"the first loss is {narrow} in half types, {wide} in F32")

    def planned(self, way):
        """The settings of one line of `plan --fit`."""
        done = subprocess.run([TRIREME, "plan", self.network.recipe, *self.network.words(),
                               "--ranks", str(way.ranks), "--fit", "1G"], capture_output=True,
                              text=True, check=False)
        if done.returncode:
            raise Differs(f"plan: {done.stderr}")
        lines = [line for line in done.stdout.splitlines() if "=" in line]
        if not lines:
            raise LeftOut("no settings")
        line = random.Random(self.network.seed).choice(lines)
        return [word for word in line.split() if "=" in word]

    def check_bits(self, got, wanted):
        mine, other = numbers_of(got), numbers_of(wanted)
        for key in sorted(mine.keys() | other.keys(), key=str):
            if mine.get(key) != other.get(key):
                raise Differs(f"{key}: {mine.get(key)}, not {other.get(key)}")
        with open(weights_of(got), "rb") as a, open(weights_of(wanted), "rb") as b:
            if a.read() != b.read():
                raise Differs("other bits of weights")


def try_way(folder, seed, skip, way):
    """Why the way differs in the network with these primitives left out; None: it does not."""
    place = tempfile.mkdtemp(dir=folder)
    try:
        Bench(Network(seed, skip), place).check(way)
    except Differs as error:
        return str(error)
    except LeftOut:
        return None
    finally:
        shutil.rmtree(place)
    return None


def shrink(folder, network, way, why):
    """Leaves out primitives, and settings of the way, as long as it still differs alike."""
    code = re.match(r"exit code \d+", why)

    def still(skip, way):
        found = try_way(folder, network.seed, skip, way)
        return found if found and (not code or code[0] in found) else None
    skip = network.skip
    for at in reversed(range(network.primitives)):
        found = still(skip | 1 << at, way)
        if found:
            skip, why = skip | 1 << at, found
    for word in list(way.words):
        if word.startswith(("strategy.re", "strategy.off", "strategy.pre", "strategy.seq",
                            "strategy.per")):
            less = way._replace(words=[other for other in way.words if other != word])
            found = still(skip, less)
            if found:
                way, why = less, found
    return skip, way, why


def check_seed(folder, seed, count):
    """Trains one network. Returns notes: what happened to each way."""
    network = Network(seed, int(os.environ.get("NETWORKS_SKIP", "0")))
    place = os.path.join(folder, f"seed{seed}")
    os.mkdir(place)
    only, notes = os.environ.get("NETWORKS_ONLY", ""), []
    draw = random.Random(f"ways of {seed}")
    try:
        bench = Bench(network, place)
        for _ in range(count):
            way = draw_way(draw, network)
            if only not in way.tell():
                continue
            try:
                notes.append(("same", way.kind, bench.check(way)))
            except LeftOut as why:
                notes.append(("left out", way.kind, str(why)))
            except Differs as error:
                notes.append(("differs", network, way, str(error)))
            except Exception:  # what else goes wrong is a fault too: of the program, or of this one
                notes.append(("differs", network, way, traceback.format_exc()))
    except LeftOut as why:
        notes.append(("left out", "all", str(why)))
    except Differs as error:
        notes.append(("differs", network, Way(1, [], {}, "one"), str(error)))
    finally:
        if "KEEP" not in os.environ:
            shutil.rmtree(place)
    return notes


def make_model(folder):
    sources = [os.path.join(HERE, f"random_{part}.c")
               for part in ("net", "layers", "functions", "indices", "losses")]
    subprocess.run(["cc", "-Wall", "-Werror", "-shared", "-fPIC", "-Iinclude", *sources, "-o",
                    os.path.join(folder, "random.so")], check=True)


def report(folder, notes, shrinks):
    failed = [note for note in notes if note[0] == "differs"]
    for _, network, way, why in failed:
        print(f"FAILED {network.tell()}\n  {way.tell()}\n  {why}", flush=True)
        if shrinks and network.skip == 0:
            skip, way, why = shrink(folder, network, way, why)
            print(f"  smaller: NETWORKS_SKIP={skip} {way.tell()}\n  {why}", flush=True)


def sum_of(notes):
    counts = collections.Counter(note[0] for note in notes)
    by_kind = collections.Counter(note[1] for note in notes if note[0] == "same")
    why = collections.Counter(note[2].split(":")[0] for note in notes if note[0] == "left out")
    most = max((note[2] for note in notes if note[0] == "same"), default=0)
    return (f"{counts['same']} ways the same (at most {most:.2f} of the limit; {dict(by_kind)}), "
            f"{counts['left out']} left out ({dict(why)}), {counts['differs']} differ")


def main():
    wish = [int(number) for number in os.environ.get("NETWORKS", "").split(":") if number]
    seeds, count = SEEDS, WAYS
    if wish:
        seeds, count = range(wish[0], wish[0] + wish[1]), (wish[2:] or [6])[0]
    workers = int(os.environ.get("NETWORKS_WORKERS", len(os.sched_getaffinity(0))))
    folder = os.environ.get("KEEP") or tempfile.mkdtemp(prefix="trireme-random-")
    every, done = [], 0
    try:
        make_model(folder)
        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            for future in concurrent.futures.as_completed(
                    [pool.submit(check_seed, folder, seed, count) for seed in seeds]):
                notes = future.result()
                report(folder, notes, bool(wish))
                every += notes
                done += 1
                if done % 50 == 0:
                    print(f"  {done} networks: {sum_of(every)}", flush=True)
    finally:
        if "KEEP" not in os.environ:
            shutil.rmtree(folder)
    print(f"{len(seeds)} networks: {sum_of(every)}; {processor_s():.0f} s of a core")
    assert all(note[0] != "differs" for note in every)


if __name__ == "__main__":
    main()
