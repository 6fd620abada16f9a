"""How far apart the weights of two runs are, by the program equivalence_products."""
import itertools
import json
import math
import os

from runs import TRIREME, run

PRODUCTS = os.path.join(os.path.dirname(TRIREME), "equivalence_products")


def products(pairs):
    """By tensor: the sum of the squares of the first pair's second, and the inner products of the
    differences of all pairs of files. A number that is not finite fails."""
    done = run([PRODUCTS, *itertools.chain(*pairs)])
    found = {line["name"]: line for line in map(json.loads, done.stdout.splitlines())}
    assert len(found) >= 4, done.stdout + done.stderr
    return found


def ways(got, wanted, start):
    """By tensor that training moves: how far it is from where it was wanted, of how far that is
    from the start. A tensor that has to stay where it was, but did not, is infinitely far."""
    found = {}
    for name, line in products([(got, wanted), (start, wanted)]).items():
        (distance, _), (_, way) = line["products"]
        if way or distance:
            found[name] = math.sqrt(distance / way) if way else math.inf
    return found
