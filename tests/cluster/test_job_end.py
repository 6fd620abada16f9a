#!/usr/bin/env python3
"""A job of one minute whose run needs longer: it ends in several parts, put back into the queue or
chained, with the losses of one undisturbed run. Takes minutes, so only CLUSTER=all runs it.

usage: test_job_end.py BUILD_FOLDER
"""
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import lab
import runs

STEPS = 90
MLP = [f"trainer.max_steps={STEPS}", "trainer.max_epochs=-1", "trainer.limit_val_batches=0",
       "batch.global=8", "data.samples=64", *runs.SYNTHETIC]
# The device's queues sleep before each of their works, about two seconds in a step: without a break
# the run would take three minutes.
SLOW = {"TRIREME_FAR_DELAY_US": "60000"}


def submit(folder, run_dir, how):
    script = os.path.join(folder, f"{how}.sh")
    words = runs.train("mlp-jax", run_dir, *MLP, f"trainer.on_timeout={how}", "--device", "far")
    with open(script, "w", encoding="utf-8") as file:
        file.write("#!/bin/bash\n#SBATCH --nodes=1 --ntasks=2 --time=1\n"
                   "#SBATCH --requeue --open-mode=append\n"
                   f"#SBATCH --output={script}.out\nsrun {' '.join(words)}\n")
    runs.run(lab.on_head("sbatch", "--parsable", script), env={**os.environ, **SLOW})


def check_parts(folder, how, said):
    run_dir, log = os.path.join(folder, how), os.path.join(folder, f"{how}.sh.out")

    def is_complete():
        return any(e["status"] == "completed" for e in runs.entries(run_dir, "end"))
    runs.wait_for(is_complete, f"the end of a run in parts, by {how}", 400)
    with open(log, encoding="utf-8") as file:
        text = file.read()
    parts = text.count(said)
    assert parts >= 1, text
    for end in runs.entries(run_dir, "end")[:-1]:  # it leaves 5 s free, and wastes few steps
        assert 42 < float(end["wall_s"]) < 57, end
    print(f"{how}: {parts + 1} parts")
    whole = os.path.join(folder, f"{how}-whole")
    runs.run(runs.on_ranks(2, runs.train("mlp-jax", whole, *MLP)))
    runs.check_same(runs.losses(run_dir), runs.losses(whole), f"a run in parts, by {how}")


def check_requeue(folder):
    check_parts(folder, "requeue", "goes back into")


def check_chain(folder):
    check_parts(folder, "chain", "follows when job")


def main():
    if os.environ.get("CLUSTER") != "all":
        print("skipped: takes four minutes; CLUSTER=all runs it")
        return 77
    with tempfile.TemporaryDirectory() as folder, lab.cluster(1):
        for how in "requeue", "chain":  # both at once: they mostly sleep
            submit(folder, os.path.join(folder, how), how)
        return runs.check_all([check_requeue, check_chain], folder)


if __name__ == "__main__":
    sys.exit(main())
