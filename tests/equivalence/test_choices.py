#!/usr/bin/env python3
"""With TRIREME_CUDA_CHOICES, products and convolutions run by the algorithm, or plan, that was
measured to be the fastest. The choice is kept: later runs, and all ranks that share the folder,
have the same bits, whatever they would measure. Damaged files are replaced. Without the variable
nothing is measured.

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
SMALL = [*SYNTHETIC, "data.samples=24", "data.test_samples=4", "batch.global=12",
         "trainer.max_epochs=1", "--device", "cuda"]
# What is measured: by model, the variable that says which way is the fastest, and the number of the
# first way that may be taken. The double of cuDNN takes even numbers of samples only.
PRODUCTS, CONVOLUTIONS = "mlp-jax", "mnist-cnn"
MEASURED = {
    PRODUCTS: ("EMULATED_BLAS_FASTEST", 0, [*SMALL, "data.shape=[1,4,4]", "batch.micro=3"]),
    CONVOLUTIONS: ("EMULATED_DNN_FASTEST", 3, [*SMALL, "data.shape=[1,8,8]", "batch.micro=2"]),
}


def losses_with(folder, name, fastest, choices=None, code=0, model=PRODUCTS):
    """Trains where way number `fastest` takes the least time, one number for each rank. Returns the
    losses, or what a failed run has printed."""
    place = os.path.join(folder, f"{name} {model}")
    variable, first, words = MEASURED[model]
    numbers = [str(first + number) for number in fastest]
    words = train(model, place, *words)
    setting = f"TRIREME_CUDA_CHOICES={shlex.quote(choices)}" if choices else ""
    script = (f"set -- {' '.join(numbers)}; shift ${{RANK:-0}}; "
              f"export {variable}=$1 {setting}; exec {shlex.join(words)}")
    done = run(on_ranks(len(fastest), ["sh", "-c", script]), code)
    return losses(place) if code == 0 else done.stderr


def read(choices):
    """The files of the folder: their bytes by name."""
    found = {}
    for name in os.listdir(choices):
        with open(os.path.join(choices, name), "rb") as file:
            found[name] = file.read()
    return found


def check_kept(folder, model):
    """A choice is made once."""
    choices = os.path.join(folder, f"choices of {model}")

    def losses_of(name, fastest, choices=None):
        return losses_with(folder, name, [fastest], choices, model=model)
    usual = losses_of("usual", 0)
    check_same(losses_of("unmeasured", 1), usual, "nothing is to be measured")
    first = losses_of("first", 1, choices)
    assert first != usual, "another way has the same bits"
    kept = read(choices)
    assert len(kept) > 4 and all(name.endswith(".choice") for name in kept), kept.keys()
    check_same(losses_of("second", 2, choices), first, "the choice is kept")
    assert read(choices) == kept, "a second run has written"
    return choices, first, kept


def check_damage(folder, model, choices, wanted, kept):
    """Files that are cut short, empty or have another bit are measured again, and replaced."""
    for i, (name, data) in enumerate(sorted(kept.items())):
        damaged = [data[:-5], b"", data[:-40] + bytes([data[-40] ^ 1]) + data[-39:], data][i % 4]
        with open(os.path.join(choices, name), "wb") as file:
            file.write(damaged)
    check_same(losses_with(folder, "damaged", [1], choices, model=model), wanted, "damaged files")
    assert read(choices) == kept, "a damaged file was not replaced"


def check_ranks(folder, model):
    """Ranks that measure otherwise compute with what the first of them has kept."""
    choices = os.path.join(folder, f"choices of ranks of {model}")

    def losses_of(name, fastest):
        return losses_with(folder, name, fastest, choices, model=model)
    first = losses_of("ranks", [1, 2])
    kept = read(choices)
    check_same(losses_of("ranks again", [2, 1]), first, "two ranks")
    check_same(losses_of("ranks at last", [0, 0]), first, "two ranks")
    assert read(choices) == kept, "a later run has written"


def hash_of(text):
    """FNV-1a in 64 bits, the checksum of a file."""
    value = 0xcbf29ce484222325
    for byte in text:
        value = (value ^ byte) * 0x100000001b3 % 2**64
    return value


def check_refused(folder, choices):
    """A whole file that names a plan which must not be taken ends the run: the one whose results
    differ from run to run, of engine 0."""
    for name, data in read(choices).items():
        key, words, _ = data.decode().splitlines()
        if "; cuDNN" not in key:
            continue
        words = words.split()
        words[1] = f"{0:016x}"
        text = f"{key}\n{' '.join(words)} \n"
        with open(os.path.join(choices, name), "w", encoding="utf-8") as file:
            file.write(f"{text}{hash_of(text[:-1].encode()):016x}\n")
    said = losses_with(folder, "refused", [1], choices, code=1, model=CONVOLUTIONS)
    assert "TRIREME_CUDA_CHOICES: " in said and "remove this file" in said, said


def check_unwritable(folder):
    """A folder that cannot be made is bad input: one line, before anything is computed."""
    said = losses_with(folder, "unwritable", [1], "/dev/null/choices", code=2)
    why = "TRIREME_CUDA_CHOICES: /dev/null/choices: cannot create the folder"
    assert said.count(why) == 1, said


with tempfile.TemporaryDirectory(prefix="trireme-choices-") as temporary:
    for measured in MEASURED:
        found, its_losses, files = check_kept(temporary, measured)
        check_damage(temporary, measured, found, its_losses, files)
        check_ranks(temporary, measured)
    check_refused(temporary, found)
    check_unwritable(temporary)
