#!/usr/bin/env python3
"""scripts/install-deps installs what is missing, by this distribution's names, and names packages
that no source has.

usage: test_install_deps.py BUILD_FOLDER

Scripts for a made-up distribution replace dpkg and apt-get.
"""
import os
import subprocess
import sys
import tempfile

DPKG_QUERY = """#!/bin/sh
for word; do package=$word; done
case "$*" in
*Depends*) grep -qx clang "$STATE/installed" && echo 'clang-77 (>= 1:77~), libc6 (>= 2.34)' ;;
*) grep -qx "$package" "$STATE/installed" && echo installed ;;
esac
"""
APT_CACHE = """#!/bin/sh
for word; do package=$word; done
grep -qx "$package" "$STATE/sources"
"""
APT_GET = """#!/bin/sh
echo "$*" >>"$STATE/calls"
case "$*" in
*install*) for word; do grep -x -- "$word" "$STATE/sources" >>"$STATE/installed"; done; true ;;
esac
"""


def lines(folder, name, content=None):
    path = os.path.join(folder, name)
    if content is not None:
        with open(path, "w", encoding="utf-8") as out:
            out.write("".join(f"{line}\n" for line in content))
    with open(path, encoding="utf-8") as f:
        return f.read().split("\n")[:-1]


def install_deps(folder, *words):
    environment = {**os.environ, "STATE": folder, "PATH": f"{folder}/bin:{os.environ['PATH']}"}
    return subprocess.run(["scripts/install-deps", *words], env=environment, text=True,
                          capture_output=True, check=False)


def main():
    with tempfile.TemporaryDirectory(prefix="trireme-deps-") as folder:
        os.mkdir(os.path.join(folder, "bin"))
        programs = {"dpkg-query": DPKG_QUERY, "apt-get": APT_GET, "apt-cache": APT_CACHE,
                    "id": "#!/bin/sh\necho 0\n",
                    "python3": "#!/bin/sh\nexit 0\n"}  # which brings Arrow from PyPI
        for name, text in programs.items():
            path = os.path.join(folder, "bin", name)
            with open(path, "w", encoding="utf-8") as out:
                out.write(text)
            os.chmod(path, 0o755)
        for name in ("installed", "sources", "calls"):
            lines(folder, name, [])

        # What make build needs has no test programs, shells or clusters in it.
        program = install_deps(folder)
        needed = set(program.stderr.partition(" has ")[2].split())
        assert {"gcc", "cmake", "libdnnl-dev", "libucx-dev"} < needed, program
        assert not needed & {"libcmocka-dev", "clang", "slurm-wlm", "zsh", "fish", "munge",
                             "iptables", "buildah", "dataset-fashion-mnist"}, needed
        lines(folder, "sources", needed)
        assert install_deps(folder).returncode == 0
        assert set(lines(folder, "installed")) == needed
        for name in ("installed", "sources", "calls"):
            lines(folder, name, [])

        nothing = install_deps(folder, "--test")
        assert nothing.returncode == 2, nothing
        assert len(nothing.stderr.splitlines()) == 1 and "libdnnl-dev" in nothing.stderr, nothing
        wanted = nothing.stderr.partition(" has ")[2].split()
        assert {"gcc", "cmake", "clang"} < set(wanted), wanted
        assert not any("install" in call for call in lines(folder, "calls")), "asked for nothing"

        lines(folder, "sources", [name for name in wanted if name != "libisal-dev"])
        one = install_deps(folder, "--test")
        assert one.returncode == 2 and one.stderr.rstrip().endswith(" has libisal-dev"), one.stderr
        assert lines(folder, "installed") == []

        lines(folder, "sources", [*wanted, "libclang-rt-77-dev"])  # as many as the clang here
        done = install_deps(folder, "--test")
        assert done.returncode == 0 and not done.stderr, done
        assert set(lines(folder, "installed")) == {*wanted, "libclang-rt-77-dev"}
        lines(folder, "calls", [])
        again = install_deps(folder, "--test")
        assert again.returncode == 0 and not again.stdout and lines(folder, "calls") == [], again
        # The version that scripts/check wants, beside the distribution's own.
        tools = {"clang-format-14", "clang-tidy-14"}
        lines(folder, "sources", [*wanted, "libclang-rt-77-dev", *tools])
        assert install_deps(folder, "--test").returncode == 0
        assert tools < set(lines(folder, "installed"))

        wrong = install_deps(folder, "--everything")
        assert wrong.returncode == 2 and "usage:" in wrong.stderr, wrong
    return 0


if __name__ == "__main__":
    sys.exit(main())
