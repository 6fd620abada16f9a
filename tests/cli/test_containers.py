#!/usr/bin/env python3
"""The container files of a bundle make images in which the program runs.

usage: test_containers.py BUILD_FOLDER

buildah builds the Dockerfile, without privileged helpers and without the network: the base is an
image with a shell and the C library of this machine. apptainer is no package of Debian, so its
steps are done by hand in such a root: files, environment, test, runscript. What is not run here is
a base from a registry, and libraries of MPI or of a GPU that a host binds into the container.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.getcwd(), "tests", "support"))
import bundle as fixture  # noqa: E402

INSIDE = "/opt/trireme"


def sections_of(text):
    """Of apptainer.def: the lines of each section without comments; the head is ''."""
    sections, name = {"": []}, ""
    for line in text.split("\n"):
        found = re.match(r"%(\w+)$", line)
        if found:
            name = found.group(1)
            sections[name] = []
        elif line.strip() and not line.startswith("#"):
            sections[name].append(line.strip())
    return sections


def make_base(root):
    """A root with a shell: what a slim base of Debian has of what is used here."""
    fixture.make_root(root, "libc6")
    os.makedirs(f"{root}/bin")
    shutil.copy("/bin/sh", f"{root}/bin/sh")


def check_runs(run, job, losses):
    """`run`: runs words in the container, where the folder `job` is /job. Their output is not
    looked at: buildah sometimes loses it."""
    fixture.write_recipe(job)
    subprocess.run(["chown", "-R", fixture.NOBODY, job], check=True)
    run("trireme", "version")
    run("trireme", "submit", "--list")  # finds the profiles
    run("trireme", "run", "--standalone", "--nproc-per-node", "2", "trireme", "train",
        "/job/small.yaml", "--run-dir", "/job/two")
    assert fixture.losses_in(f"{job}/two") == losses


def check_apptainer(folder, bundle, losses):
    with open(f"{bundle}/share/trireme/containers/apptainer.def", encoding="utf-8") as f:
        sections = sections_of(f.read())
    assert sections[""] == ["Bootstrap: docker", "From: debian:bookworm-slim"], sections[""]
    assert set(sections) == {"", "files", "environment", "runscript", "test", "labels"}
    root = f"{folder}/apptainer"
    make_base(root)
    job = f"{root}/job"
    os.makedirs(job)
    for line in sections["files"]:
        source, target = line.split()
        os.makedirs(os.path.dirname(root + target), exist_ok=True)
        copy = shutil.copytree if os.path.isdir(f"{bundle}/{source}") else shutil.copy
        copy(f"{bundle}/{source}", root + target)  # links become files, as with apptainer
    left_out = set(os.listdir(bundle)) - set(os.listdir(root + INSIDE))
    assert left_out == {"README"}, left_out
    start = "\n".join(["set -e", *sections["environment"], 'exec "$@"'])

    def run(*words):
        return fixture.in_root(root, "/bin/sh", "-c", start, "sh", *words, PATH="/usr/bin:/bin")

    check_runs(run, job, losses)
    assert run("sh", "-ec", "\n".join(sections["test"])) == "trireme 0.1.0\n"
    script = "\n".join(sections["runscript"])
    assert run("sh", "-ec", script, "sh", "version") == "trireme 0.1.0\n"


def check_docker(folder, bundle, losses):
    """Builds the Dockerfile with the base, and with none."""
    store = ["/usr/bin/buildah", "--storage-driver", "vfs", "--root", f"{folder}/store",
             "--runroot", f"{folder}/run"]
    environment = {"HOME": folder, "PATH": os.environ["PATH"], "BUILDAH_ISOLATION": "chroot"}

    def buildah(*words):
        return fixture.run(*store, *words, **environment)

    def name_of(said):
        return said.strip().split("\n")[-1]

    make_base(f"{folder}/base")
    base = name_of(buildah("from", "scratch"))
    buildah("copy", "-q", base, f"{folder}/base", "/")
    buildah("commit", "-q", base, "localhost/base")
    for image in ("localhost/base", "scratch"):
        buildah("bud", "-q", "--pull-never", "--build-arg", f"BASE={image}", "-f",
                f"{bundle}/share/trireme/containers/Dockerfile", "-t", "localhost/trireme", bundle)
        container = name_of(buildah("from", "--pull-never", "localhost/trireme"))
        config = json.loads(buildah("inspect", container))["OCIv1"]["config"]
        assert config["Cmd"] == ["trireme", "help"], config
        assert f"PATH={INSIDE}/bin:" in " ".join(config["Env"]), config
        job = f"{folder}/job-{os.path.basename(image)}"
        os.makedirs(job)
        check_runs(lambda *words, c=container, j=job: buildah(
            "run", "--user", fixture.NOBODY, "-v", f"{j}:/job", "-v", f"{j}:/tmp", c, "--", *words),
                   job, losses)
        inside = name_of(buildah("mount", container))
        python = [name for _, _, names in os.walk(inside) for name in names
                  if name.startswith("python")]
        assert not python, python
        buildah("rm", container)


def main():
    if not fixture.can_mount():
        print("skipped: needs root, and mounts of its own")
        return 77
    with tempfile.TemporaryDirectory(prefix="trireme-containers-") as folder:
        folder = os.path.realpath(folder)
        os.chmod(folder, 0o755)
        losses = fixture.losses_of_build(folder)
        archive = fixture.make(f"{folder}/made")
        subprocess.run(["tar", "-xf", archive, "-C", folder], check=True)
        bundle = f"{folder}/{fixture.NAME}"
        check_apptainer(folder, bundle, losses)
        if not os.path.exists("/usr/bin/buildah"):
            print("skipped: the Dockerfile, since buildah is not installed")
            return 77
        check_docker(folder, bundle, losses)
    return 0


if __name__ == "__main__":
    sys.exit(main())
