"""Helpers for tests of the bundle, an archive with the program and all libraries that it needs.
They make a bundle, start a small run with it, and make folders that look like a bare host, which
become the root folder in which the bundle runs."""
import json
import os
import re
import shutil
import subprocess
import sys

BUILD = os.path.abspath(sys.argv[1])
NAME = "trireme-0.1.0-x86_64"
NOBODY = "65534:65534"
RECIPE = """
name: small
model: {name: mnist-cnn}
data: {name: synthetic, shape: [1, 28, 28], classes: 10, samples: 64}
batch: {global: 16, micro: 8}
optimizer: {name: sgd, lr: 0.1}
trainer: {max_epochs: 1, log_every_n_steps: 1}
"""
# A shell script that runs a command with the folder $1 as its root. It runs in a mount namespace of
# its own, so that its mounts end with it, before the folder is removed.
IN_ROOT = f"""
for folder in proc dev sys; do /bin/mount --rbind /$folder "$1/$folder"; done
exec /usr/sbin/chroot --userspec={NOBODY} "$@"
"""


def run(*words, code=0, **environment):
    """Runs a program, which has to end with exit code `code`, and returns its output (both
    streams). Of the environment it gets only two variables and those in `environment`."""
    done = subprocess.run(words, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env={"NO_COLOR": "1", "OMP_NUM_THREADS": "1", **environment},
                          timeout=120, check=False)
    assert done.returncode == code, f"{words}: {done.returncode}, not {code}\n{done.stdout[-4000:]}"
    return done.stdout


def in_root(root, *words, code=0, **environment):
    """Runs a command with the folder `root` as its root folder, as the user nobody."""
    return run("/usr/bin/unshare", "-m", "--propagation", "private", "/bin/sh", "-c", IN_ROOT, "sh",
               root, *words, code=code, **environment)


def can_mount():
    return os.geteuid() == 0 and \
        subprocess.run(["unshare", "-m", "true"], check=False).returncode == 0


def make(folder):
    """Makes a bundle of the build in `folder`; returns the path of the archive."""
    os.makedirs(os.path.join(folder, "a b"))
    done = subprocess.run(["scripts/bundle", BUILD, folder], check=False, text=True,
                          env={**os.environ, "ZSTD_CLEVEL": "1", "TMPDIR": f"{folder}/a b"},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout[-4000:]
    assert not os.listdir(f"{folder}/a b"), "temporary files stay behind"
    path = os.path.join(folder, f"{NAME}.tar.zst")
    # Of 50 MB, compressed in haste: tests for GPUs, which have most of their bytes in common, 14,
    # oneDNN 11, libhdf5 with what it needs 9, the module for GPUs 8.
    assert os.path.getsize(path) < 56e6, os.path.getsize(path)
    return path


def write_recipe(folder):
    path = f"{folder}/small.yaml"
    with open(path, "w", encoding="utf-8") as f:
        f.write(RECIPE)
    return path


def losses_in(run_folder):
    """The losses of the small run, by step."""
    with open(f"{run_folder}/metrics.jsonl", encoding="utf-8") as f:
        lines = [json.loads(line) for line in f]
    losses = {line["step"]: line["loss"] for line in lines if line["kind"] == "train"}
    assert len(losses) == 4, losses
    return losses


def losses_of_build(folder):
    """The losses of the small run, by step, with the program of the build folder."""
    run(f"{BUILD}/bin/trireme", "train", write_recipe(folder), "--run-dir", f"{folder}/of-build")
    return losses_in(f"{folder}/of-build")


def system_files(*packages):
    """The paths on this machine of the libraries in these Debian packages."""
    listed = subprocess.run(["dpkg-query", "-L", *packages], check=True, text=True,
                            stdout=subprocess.PIPE).stdout.split("\n")
    return [path for path in listed if re.search(r"/lib/x86_64-linux-gnu/[^/]*\.so\.\d+$", path)]


def make_root(root, *packages):
    """A folder that looks like a host with the libraries of these packages and nothing else."""
    libraries = f"{root}/lib/x86_64-linux-gnu"
    for folder in ("proc", "dev", "sys", "tmp", "lib64"):
        os.makedirs(f"{root}/{folder}")
    os.makedirs(libraries)
    for path in system_files(*packages) if packages else ():
        shutil.copy(path, libraries)
    loader = "ld-linux-x86-64.so.2"
    if packages:
        os.symlink(f"/lib/x86_64-linux-gnu/{loader}", f"{root}/lib64/{loader}")
    os.chmod(root, 0o755)
    os.chmod(f"{root}/tmp", 0o1777)
