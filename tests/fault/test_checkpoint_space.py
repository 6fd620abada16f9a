#!/usr/bin/env python3
"""A disk that fills up during a run: training continues with a warning, earlier checkpoints stay
intact, and the run resumes from them once there is space. The run fails only because its final
state could not be saved.

usage: test_checkpoint_space.py BUILD_FOLDER     skipped where no small file system can be mounted
"""
import os
import subprocess
import sys
import tempfile

TRIREME = os.path.join(os.path.abspath(sys.argv[1]), "bin", "trireme")
RECIPE = ["recipes/mnist-convnet.yaml", "data.name=synthetic", "data.samples=640",
          "data.test_samples=64", "data.classes=10", "data.shape=[1,28,28]", "batch.global=64",
          "optimizer.name=adam", "optimizer.lr=0.001", "checkpoint.every_n_steps=1",
          "checkpoint.save_top_k=-1", "trainer.max_epochs=1", "log.tensorboard=false"]


def run(*words, code=0):
    done = subprocess.run([TRIREME, *words], capture_output=True, text=True, timeout=100)
    assert done.returncode == code, f"{words}: {done.returncode}: {done.stderr}"
    return done


def inside(folder):
    """Mounts a small file system at `folder` and checks runs in it; returns the exit code. This
    process has a mount namespace of its own, so the mount ends with the process."""
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1500k", "none", folder],
                      capture_output=True).returncode != 0:
        return 77
    run_dir = os.path.join(folder, "run")
    full = run("train", *RECIPE, "--run-dir", run_dir, code=1)
    assert "complete at step 10, but its last checkpoint" in full.stderr
    assert "No space left on device; training continues" in full.stderr, full.stderr
    names = os.listdir(os.path.join(run_dir, "checkpoints"))
    steps = [name for name in names if name.startswith("step-")]
    assert 1 <= len(steps) < 10, names
    assert not [name for name in names if name.startswith(".")], names
    checked = run("checkpoint", "verify", run_dir).stdout.splitlines()
    assert len(checked) == len(steps), checked

    subprocess.run(["mount", "-o", "remount,size=100m", folder], check=True)
    again = run("train", *RECIPE, "--run-dir", run_dir)
    assert f"resuming from {run_dir}/checkpoints/{max(steps)}" in again.stderr, again.stderr
    assert len(run("checkpoint", "verify", run_dir).stdout.splitlines()) == 10
    return 0


def main():
    if len(sys.argv) > 2:
        return inside(sys.argv[2])
    unshare = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user",
                                                                "--mount"]
    with tempfile.TemporaryDirectory(prefix="trireme-space-") as folder:
        if subprocess.run([*unshare, "true"], capture_output=True).returncode != 0:
            code = 77
        else:
            code = subprocess.run([*unshare, sys.executable, *sys.argv, folder]).returncode
    if code == 77:
        print("no file system can be mounted here, so none can be filled")
    return code


if __name__ == "__main__":
    sys.exit(main())
