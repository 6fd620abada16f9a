#!/usr/bin/env python3
"""Slurm takes the job script of every site, launcher and container runtime, on a cluster that has
that site's partitions, limits and nodes; a script's job trains to the end.

usage: test_submit.py BUILD_FOLDER
"""
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import lab
import runs
import submit

MLP = ["trainer.max_steps=3", "trainer.limit_val_batches=1", "batch.global=64", *runs.SYNTHETIC]
# Options that a site's plug-ins add to sbatch.
OF_PLUGINS = ("--image=", "--module=")


def partitions(site):
    """As slurm.conf declares them."""
    rows = {}
    for queue in site["partitions"]:
        minutes = int(queue.get("time_s", 30 * 86400)) // 60
        rows[queue["name"]] = f"MaxTime={minutes} MaxNodes={queue.get('nodes', 'UNLIMITED')}"
    return rows


def node(site):
    """CPUs as the site's Slurm counts them, where the profile knows; else enough."""
    cores = site["cores"] or 64
    return {"CoresPerSocket": cores, "ThreadsPerCore": site["threads_per_core"],
            "RealMemory": 900000, "Feature": "gpu"}


def kind_of(site):
    """The name by which scripts ask for GPUs: --gres=gpu:KIND:N."""
    gres = submit.options(submit.script(site)).get("gres", "").split(":")
    return gres[1] if len(gres) == 3 else ""


def scripts(site):
    for queue in site["partitions"] or [{}]:
        for launcher in submit.LAUNCHERS:
            for runtime in [None, *site["containers"]]:
                more = ["--launcher", launcher]
                if queue:
                    more += ["--partition", queue["name"]]
                if runtime:
                    more += ["--container", f"{runtime}:image"]
                nodes = 1 if queue.get("nodes") == 1 or "gpus" in queue else 2
                yield more, submit.script(site, *more, nodes=nodes)


def check_site(site):
    count = 0
    for more, text in scripts(site):
        lines = [line for line in text.splitlines(keepends=True)
                 if not line.removeprefix("#SBATCH ").startswith(OF_PLUGINS)]
        done = runs.run(lab.on_head("sbatch", "--test-only"), None, input="".join(lines))
        assert done.returncode == 0 and "to start at" in done.stderr, \
            f"{site['name']} {more}: {done.stderr}\n{text}"
        count += 1
    # The partitions' limits are declared: what is more than they allow is refused here too.
    limited = [queue for queue in site["partitions"] if "time_s" in queue]
    for queue in limited[:1]:
        text = submit.script(site, "--partition", queue["name"])
        text = text.replace("#SBATCH --time=", "#SBATCH --time=40-")
        done = runs.run(lab.on_head("sbatch", "--test-only"), None, input=text)
        assert done.returncode != 0, f"{site['name']}: {queue['name']} has no limit"
    return count


def check_every_site(folder):
    before = dict(os.environ)
    os.environ.update(submit.with_modules(tempfile.mkdtemp(dir=folder), "cuda", "hip"))
    try:
        check_sites()
    finally:
        os.environ.clear()
        os.environ.update(before)


def check_sites():
    for site in submit.sites():
        begin = time.monotonic()
        with lab.cluster(2, partitions=partitions(site), node=node(site), gpu=kind_of(site)):
            count = check_site(site)
        print(f"{site['name']}: {count} scripts, {time.monotonic() - begin:.1f} s", flush=True)


def job_ended(number):
    shown = runs.run(lab.on_head("scontrol", "show", "job", number)).stdout
    return "JobState=COMPLETED" in shown or any(
        f"JobState={bad}" in shown for bad in ("FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL"))


def check_jobs_run(folder):
    """Submitted without --dry-run, a job of two ranks trains to the end, under both launchers."""
    one = os.path.join(folder, "one")
    runs.run(runs.train("mlp-jax", one, *MLP))
    with lab.cluster(1):
        for launcher in submit.LAUNCHERS:
            place = os.path.join(folder, launcher)
            recipe = os.path.abspath("recipes/mlp-jax.yaml")
            done = runs.run(lab.on_head(
                submit.TRIREME, "submit", recipe, *MLP, "--run-dir", place, "--site", "generic",
                "--nodes", "1", "--ranks-per-node", "2", "--time", "00:05:00", "--launcher",
                launcher), cwd=folder)
            number = done.stdout.split()[-1]
            runs.wait_for(lambda job=number: job_ended(job), "the job's end", 120)
            with open(os.path.join(folder, f"mlp-jax-{number}.log"), encoding="utf-8") as log:
                said = log.read()
            assert os.path.exists(os.path.join(place, "metrics.jsonl")), said
            assert len(runs.losses(place)) == 3, said
            runs.check_close(runs.losses(place), runs.losses(one), 1e-5, launcher)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as where:
        sys.exit(1 if runs.check_all([check_every_site, check_jobs_run], where) else 0)
