#!/usr/bin/env python3
"""Separate validation data: epochs, `best` and early stopping use them, and test data are read only
at the end. The same samples are held back on any number of ranks.

usage: test_validation.py BUILD_FOLDER
"""
import json
import os
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import SYNTHETIC, TRIREME, check_all, entries, on_ranks, run, train  # noqa: E402
import tensors  # noqa: E402

RECIPE = "mlp-jax"
TINY = [*SYNTHETIC, "data.samples=50", "data.test_samples=24", "batch.global=16", "batch.eval=8",
        "optimizer.name=sgd", "optimizer.lr=0.05", "trainer.max_epochs=3"]
folder = None
KEPT = "data.val_fraction=0.1"


def refused(run_dir, *words, part):
    done = run(train(RECIPE, run_dir, *TINY, *words), code=2)
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and part in lines[0], (words, done.stderr)


def tell_test(done):
    """The line about the test data."""
    return [line for line in done.stdout.splitlines() if line.startswith("test: ")]


def check_ranks():
    """10 of 50 samples are held back: val lines have them, the last line has the test data."""
    found = {}
    for ranks in (1, 2, 3):
        run_dir = os.path.join(folder, f"ranks-{ranks}")
        done = run(on_ranks(ranks, train(RECIPE, run_dir, *TINY, "data.val_fraction=0.2")))
        val, test = entries(run_dir, "val"), entries(run_dir, "test")
        assert [line["samples"] for line in val] == [10, 10, 10], val
        assert [(line["samples"], line["step"]) for line in test] == [(24, 9)], test
        assert [line["samples"] for line in entries(run_dir, "train")][-1] == 120
        assert "validation: loss" in done.stdout and "test: loss" in done.stdout, done.stdout
        assert KEPT not in done.stdout, done.stdout
        again = run(on_ranks(ranks, train(RECIPE, run_dir, *TINY, "data.val_fraction=0.2")))
        assert "is complete already" in again.stdout and entries(run_dir, "test") == test, again
        assert tell_test(again) == tell_test(done), (again.stdout, done.stdout)
        found[ranks] = [float(line["loss"]) for line in val + test]
        evaluated = run([TRIREME, "eval", f"recipes/{RECIPE}.yaml", *TINY, "data.val_fraction=0.2",
                         "--checkpoint", run_dir, "--json"])
        assert json.loads(evaluated.stdout)["samples"] == 24, evaluated
        assert abs(json.loads(evaluated.stdout)["loss"] - found[ranks][-1]) < 1e-5
    for ranks in (2, 3):
        for one, other in zip(found[1], found[ranks]):
            assert abs(one - other) < 1e-5 * one, found
    other = os.path.join(folder, "seed")
    run(train(RECIPE, other, *TINY, "data.val_fraction=0.2", "optimizer.lr=0", "seed=5"))
    again = os.path.join(folder, "again")
    run(train(RECIPE, again, *TINY, "data.val_fraction=0.2", "optimizer.lr=0", "seed=6"))
    assert entries(other, "val")[0]["loss"] != entries(again, "val")[0]["loss"]


def check_resume():
    """The fraction defines the run; what is held back is the same after a resume."""
    whole, parts = os.path.join(folder, "whole"), os.path.join(folder, "parts")
    held = [*TINY, "data.val_fraction=0.2"]
    run(train(RECIPE, whole, *held))
    run(train(RECIPE, parts, *held, "trainer.max_steps=4"))
    refused(parts, part="data.val_fraction")
    refused(parts, "data.val_fraction=0.1", part="data.val_fraction")
    run(train(RECIPE, parts, *held))
    assert entries(parts, "val")[-1] == entries(whole, "val")[-1]
    assert entries(parts, "test")[-1] == entries(whole, "test")[-1]
    again = run(train(RECIPE, whole, *held))
    assert "complete already" in again.stdout and len(entries(whole, "test")) == 1


def check_killed_test():
    """A run that is killed in the evaluation of its test data makes it when it is started again."""
    held = [*TINY, "data.val_fraction=0.2"]
    for ranks in (1, 2):
        run_dir = os.path.join(folder, f"killed-{ranks}")
        command = on_ranks(ranks, train(RECIPE, run_dir, *held, "trainer.num_sanity_val_steps=0"))
        victim = os.path.join(os.path.dirname(TRIREME), "fault_victim")
        run([victim if word == TRIREME else word for word in command], code=None,
            env={**os.environ, "VICTIM": "-1,evaluation,4,9"})
        assert len(entries(run_dir, "val")) == 3 and not entries(run_dir, "test")
        done = run(command)
        made = entries(run_dir, "test")
        assert [line["step"] for line in made] == [9] and "is complete" not in done.stdout, done
        assert [line["status"] for line in entries(run_dir, "end")] == ["completed"]
        again = run(command)
        assert tell_test(again) == tell_test(done) and "is complete already" in again.stdout
        assert entries(run_dir, "test") == made and len(entries(run_dir, "end")) == 1


def write_tensors(path, seed, count):
    """Images and labels that a fixed rule makes from the seed."""
    tensors.write(path, {
        "labels": ("I64", [count], [(i + seed) % 10 for i in range(count)]),
        "images": ("F32", [count, 1, 2, 2],
                   [(seed * 7919 + i * 104729) % 1000 / 1000 for i in range(count * 4)])})


def check_test_data_decide_nothing():
    """With other test data all but the last line stays; without validation data, not."""
    for name, seed, count in (("train", 1, 40), ("held", 2, 12), ("a", 3, 16), ("b", 4, 16)):
        write_tensors(os.path.join(folder, name), seed, count)
    files = ["data.name=tensors", f"data.path={folder}", "data.train=train", "batch.global=8",
             "trainer.max_epochs=6", "optimizer.lr=0.5", "log.tensorboard=false"]

    def result(name, *words):
        run_dir = os.path.join(folder, name)
        done = run(train(RECIPE, run_dir, *files, *words))
        val = [line["loss"] for line in entries(run_dir, "val")]
        return (val, os.readlink(os.path.join(run_dir, "checkpoints", "best")),
                [line["loss"] for line in entries(run_dir, "test")], done)

    for held in ("data.val=held", "data.val_fraction=0.25"):
        one = result(f"{held}-a", held, "data.test=a")
        other = result(f"{held}-b", held, "data.test=b")
        assert one[:2] == other[:2] and one[2] != other[2], (one, other)
        assert len(one[0]) == 6 and len(one[2]) == 1
        best = min(range(6), key=lambda i: float(one[0][i]))
        steps = 5 if held == "data.val=held" else 4
        assert one[1] == f"step-{(best + 1) * steps:08}", one
        assert KEPT not in one[3].stdout
    one, other = result("a-alone", "data.test=a"), result("b-alone", "data.test=b")
    assert one[0] != other[0] and not one[2] and not other[2], (one, other)
    assert KEPT in one[3].stdout.splitlines()[-1], one[3].stdout
    alone = result("held-alone", "data.val=held")  # no test data at all
    assert alone[0] == result("held-test", "data.val=held", "data.test=a")[0] and not alone[2]
    done = run([TRIREME, "eval", f"recipes/{RECIPE}.yaml", *files, "data.val=held", "--json",
                "--checkpoint", os.path.join(folder, "held-alone")])
    found = json.loads(done.stdout)
    assert found["samples"] == 12 and found["evaluated_on"] == "validation", done
    stopped = result("stopped", "data.val=held", "data.test=a", "trainer.max_epochs=9",
                     "optimizer.lr=0", "trainer.early_stopping.monitor=val_loss",
                     "trainer.early_stopping.patience=2")
    assert len(stopped[0]) == 3 and len(stopped[2]) == 1, stopped


def check_limits():
    """Evaluation that is off, limited or tried out; data check names the splits."""
    held = [*TINY, "data.val_fraction=0.2"]
    run_dir = os.path.join(folder, "limits")
    run(train(RECIPE, run_dir, *held, "trainer.limit_val_batches=1"))
    assert [line["samples"] for line in entries(run_dir, "val")] == [8, 8, 8]
    assert [line["samples"] for line in entries(run_dir, "test")] == [8]
    run_dir = os.path.join(folder, "off")
    done = run(train(RECIPE, run_dir, *held, "trainer.limit_val_batches=0", "--json"))
    assert not entries(run_dir, "val") and not entries(run_dir, "test")
    assert json.loads(done.stdout)["evaluated_on"] == "nothing", done
    # Without a step there is no curve that another setting could give.
    done = run(train(RECIPE, run_dir + "-0", *held, "trainer.max_steps=0"))
    assert "log_every_n_steps" not in done.stderr, done
    done = run(train(RECIPE, os.path.join(folder, "dry"), *held, "trainer.fast_dev_run=true"))
    assert "test: loss" in done.stdout and KEPT not in done.stdout, done.stdout
    done = run(train(RECIPE, os.path.join(folder, "overfit"), *held, "trainer.overfit_batches=1",
                     "--json"))
    result = json.loads(done.stdout)
    assert result["evaluated_on"] == "training" and "test_loss" not in result, result
    # Random transforms act in training alone, also where its samples are evaluated.
    found = []
    for name, transform in (("plain", "[]"), ("drawn", "[random_horizontal_flip]")):
        place = os.path.join(folder, name)
        run(train(RECIPE, place, *held, "trainer.overfit_batches=1", "optimizer.lr=0",
                  f"data.transform={transform}"))
        found.append([entries(place, kind)[0]["loss"] for kind in ("train", "val")])
    assert found[0][1] == found[1][1] and found[0][0] != found[1][0], found
    done = run([TRIREME, "data", "check", f"recipes/{RECIPE}.yaml", *held, "data.limit=40",
                "--json"])
    splits = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(s["split"], s["samples"]) for s in splits] == [("train", 32), ("val", 8),
                                                            ("test", 24)], splits
    none = os.path.join(folder, "none")
    refused(none, "data.val_fraction=0.1", "data.limit=1", part="data.val_fraction=0.1 of 1 ")
    refused(none, "data.val=x", "data.val_fraction=0.1", part="exclude each other")
    refused(none, "data.val=x", part="val_fraction")
    assert not os.path.exists(none)


def check_memory():
    """An evaluation needs no memory for gradients and the optimizer's states. (A rank's process
    alone is counted as 8 MiB.)"""
    run_dir = os.path.join(folder, "memory")
    words = ["model.hidden_size=128", "model.num_hidden_layers=4", "data.limit=2",
             "data.sequence=8", "trainer.max_steps=1", "batch.global=1", "batch.eval=1",
             "log.tensorboard=false", "trainer.limit_val_batches=1"]
    run(train("llama-tiny", run_dir, *words))
    limited = "strategy.memory=15MB"  # 3.4 MB of weights, as many of gradients, twice of states
    done = run(train("llama-tiny", run_dir + "2", *words, limited), code=2)
    assert "strategy.memory" in done.stderr, done.stderr
    run([TRIREME, "eval", "--checkpoint", run_dir, limited])


def main():
    global folder
    with tempfile.TemporaryDirectory(prefix="trireme-validation-") as folder:
        failed = check_all((check_ranks, check_resume, check_killed_test,
                            check_test_data_decide_nothing, check_limits, check_memory))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
