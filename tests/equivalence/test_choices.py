#!/usr/bin/env python3
"""With TRIREME_CUDA_CHOICES, products run by the algorithm that was measured to be the fastest. The
choice is kept: later runs, and all ranks that share the folder, have the same bits, whatever they
would measure. Damaged files are replaced. Without the variable nothing is measured.

usage: test_choices.py BUILD_FOLDER
"""
import os
import shlex
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import SYNTHETIC, check_same, losses, on_ranks, run, train  # noqa: E402

os.environ["TRIREME_MODULES"] = os.path.join(os.path.abspath(sys.argv[1]), "lib", "emulated")
WORDS = [*SYNTHETIC, "data.shape=[1,4,4]", "data.samples=24", "data.test_samples=4",
         "batch.global=12", "batch.micro=3", "trainer.max_epochs=1", "--device", "cuda"]


def losses_with(folder, name, fastest, choices=None, code=0):
    """Trains where algorithm number `fastest` takes the least time, one number for each rank.
    Returns the losses, or what a failed run has printed."""
    place = os.path.join(folder, name)
    ranks = len(fastest)
    words = train("mlp-jax", place, *WORDS)
    setting = f"TRIREME_CUDA_CHOICES={shlex.quote(choices)}" if choices else ""
    script = (f"set -- {' '.join(map(str, fastest))}; shift ${{RANK:-0}}; "
              f"export EMULATED_BLAS_FASTEST=$1 {setting}; exec {shlex.join(words)}")
    done = run(on_ranks(ranks, ["sh", "-c", script]), code)
    return losses(place) if code == 0 else done.stderr


def read(choices):
    """The files of the folder: their bytes by name."""
    found = {}
    for name in os.listdir(choices):
        with open(os.path.join(choices, name), "rb") as file:
            found[name] = file.read()
    return found


def check_kept(folder):
    """A choice is made once."""
    choices = os.path.join(folder, "choices")
    usual = losses_with(folder, "usual", [0])
    check_same(losses_with(folder, "unmeasured", [1]), usual, "nothing is to be measured")
    first = losses_with(folder, "first", [1], choices)
    assert first != usual, "another algorithm has the same bits"
    kept = read(choices)
    assert len(kept) > 4 and all(name.endswith(".choice") for name in kept), kept.keys()
    check_same(losses_with(folder, "second", [2], choices), first, "the choice is kept")
    assert read(choices) == kept, "a second run has written"
    return choices, first, kept


def check_damage(folder, choices, wanted, kept):
    """Files that are cut short, empty or have another bit are measured again, and replaced."""
    for i, (name, data) in enumerate(sorted(kept.items())):
        damaged = [data[:-5], b"", data[:-40] + bytes([data[-40] ^ 1]) + data[-39:], data][i % 4]
        with open(os.path.join(choices, name), "wb") as file:
            file.write(damaged)
    check_same(losses_with(folder, "damaged", [1], choices), wanted, "damaged files")
    assert read(choices) == kept, "a damaged file was not replaced"


def check_ranks(folder):
    """Ranks that measure otherwise compute with what the first of them has kept."""
    choices = os.path.join(folder, "of ranks")
    first = losses_with(folder, "ranks", [1, 2], choices)
    kept = read(choices)
    check_same(losses_with(folder, "ranks again", [2, 1], choices), first, "two ranks")
    check_same(losses_with(folder, "ranks at last", [0, 0], choices), first, "two ranks")
    assert read(choices) == kept, "a later run has written"


def check_unwritable(folder):
    """A folder that cannot be made ends the run, because its bits could not be repeated."""
    said = losses_with(folder, "unwritable", [1], "/dev/null/choices", code=1)
    assert said.count("TRIREME_CUDA_CHOICES: cannot make the folder /dev/null/choices") == 1, said


with tempfile.TemporaryDirectory(prefix="trireme-choices-") as temporary:
    check_damage(temporary, *check_kept(temporary))
    check_ranks(temporary)
    check_unwritable(temporary)
