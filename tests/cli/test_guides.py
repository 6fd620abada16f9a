#!/usr/bin/env python3
"""Does what docs/adding-*.md say, in a copy of the tree: their code is applied, then their commands
build and run it. So a guide that misses a step, or that the tree has left behind, fails.

usage: test_guides.py BUILD_FOLDER

A comment in front of a fenced block says where it goes. The paragraph in front of that says the
same to the reader, who does not see the comment: it has PATH and TEXT between `backquotes`.

    <!-- new: PATH -->                      the whole file
    <!-- append: PATH -->                   behind the last line
    <!-- insert: PATH after "TEXT" -->      behind the first line that contains TEXT
    <!-- insert: PATH before "TEXT" -->     in front of it

Code that the tree has already (a guide may explain something that exists) is taken out first. The
commands are the fenced `sh` blocks. All guides share one copy, so that it is built and checked
once. Sources of which the guides change nothing, and no header that they include, are not compiled
again: their objects are those of BUILD_FOLDER. A header counts as unchanged if it only lists more
ops, for sources that do not read the list: for them it declares names that they do not use.
"""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import test_docs  # noqa: E402  its reader of `sh` blocks

MARKED = re.compile(r"^<!-- (new|append|insert): (\S+)"
                    r'(?: (after|before) "((?:\\.|[^"\\])*)")? -->\n'
                    r"```(?:c|python)\n(.*?)^```", re.M | re.S)
# The targets whose objects are kept: the library, and what the guides' tests need beside it. None
# of them compiles in the name of the build folder.
KEPT = tuple(f"{target}.dir/" for target in (
    "CMakeFiles/rooms", "tests/CMakeFiles/test_support",
    "tests/emulated_gpu/CMakeFiles/emulated_gpu"))
# The list of ops, and its rows. Sources that make something of it have its name; headers only
# declare what it names.
LIST = "TRI_OP_LIST"
ROWS = re.compile(r"^    X\(\w+\).*\n", re.M)
# What checks the whole tree, to which all guides have been applied.
CHECKS = ("python3 tests/tidy/test_tidy.py",)
# What the copy's build starts in place of the compiler: it copies an object that the folder READY
# has, and writes the list of headers, which the build asks for. Nobody debugs the rest, so it is
# compiled without what debuggers read.
LAUNCHER = """#!/bin/sh
for word; do
    case $before in
    -o) object=$word ;;
    -c) source=$word ;;
    -MF) headers=$word ;;
    esac
    before=$word
done
ready=READY/$object
[ -n "$headers" ] && [ -e "$ready" ] || exec "$@" -g0
cp "$ready" "$object" && echo "$object: $source" >"$headers"
"""


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.path.exists(path):
        os.remove(path)  # a link to the source
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def check_place(guide, before, path, side, mark):
    """Fails unless the last paragraph of the text says where the block after it goes."""
    said = " ".join(before.rstrip().rsplit("\n\n", 1)[-1].split())
    wanted = [f"`{path}`"] + ([f"{side} the ", f"`{mark}`"] if mark else [])
    for words in wanted:
        assert words in said, f"{guide}: in front of a block for {path}, {said!r} lacks {words!r}"


def apply(folder, guide, text):
    """Applies the guide's blocks; returns how many there were."""
    blocks = list(MARKED.finditer(text))
    for match in blocks:
        kind, path, side, mark, code = match.groups()
        mark = mark and mark.replace('\\"', '"')
        check_place(guide, text[:match.start()], path, side, mark)
        target = os.path.join(folder, path)
        if kind == "new":
            write(target, code)
            continue
        old = read(target).replace(code, "", 1)
        if kind == "append":
            write(target, old + code)
            continue
        at = old.find(mark)
        assert at >= 0, f"{guide}: {path} has no line with {mark!r}"
        at = old.rfind("\n", 0, at) + 1 if side == "before" else old.index("\n", at) + 1
        write(target, old[:at] + code + old[at:])
    return len(blocks)


def tree_files():
    """The files of this tree: those git knows, or, in a copy without git's data, all but builds."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            capture_output=True, check=False)
    if listed.returncode == 0:
        return listed.stdout.decode().split("\0")
    names = []
    for folder, inside, files in os.walk("."):
        if folder == ".":
            inside[:] = [name for name in inside if name not in ("build", "runs", ".git")]
        names += [os.path.relpath(os.path.join(folder, name), ".") for name in files]
    return names


def copy_tree(folder):
    for name in tree_files():
        if not name or not os.path.isfile(name):
            continue
        os.makedirs(os.path.join(folder, os.path.dirname(name)), exist_ok=True)
        shutil.copy2(name, os.path.join(folder, name))


def objects_of(build):
    """The objects of KEPT in a build folder, each with its source and headers."""
    listed = subprocess.run(["ninja", "-C", build, "-t", "deps"], capture_output=True, text=True,
                            check=True).stdout
    for entry in listed.split("\n\n"):
        lines = entry.strip().splitlines()
        if lines and lines[0].startswith(KEPT) and "(VALID)" in lines[0]:
            paths = [os.path.relpath(os.path.join(build, line.strip())) for line in lines[1:]]
            yield lines[0].split(":")[0], paths


def less_rows(text):
    return ROWS.sub("", text)


def same(path, folder):
    """Whether the copy's file is the tree's: all of it, and all but the rows of LIST."""
    copy = os.path.join(folder, path)
    if not os.path.exists(path) or not os.path.exists(copy):
        return False, False
    old, new = read(path), read(copy)
    return old == new, old == new or f"define {LIST}" in old and less_rows(old) == less_rows(new)


def keep_objects(folder, build):
    """Gives the copy the objects whose sources it has not changed; returns the environment of its
    builds."""
    ready, known, count = os.path.join(folder, "build", "ready"), {}, 0
    for made, paths in objects_of(build):
        own = [path for path in paths if not path.startswith("..") and not os.path.isabs(path)]
        for path in own:
            if path not in known:
                known[path] = same(path, folder)
        lists = any(LIST in read(path) for path in own if path.endswith(".c"))
        if own and all(known[path][not lists] for path in own):
            os.makedirs(os.path.dirname(os.path.join(ready, made)), exist_ok=True)
            shutil.copy(os.path.join(build, made), os.path.join(ready, made))
            count += 1
    print(f"{count} objects are kept", flush=True)
    launcher = os.path.join(folder, "build", "launcher")
    write(launcher, LAUNCHER.replace("READY", ready))
    os.chmod(launcher, 0o755)
    return {**os.environ, "CMAKE_C_COMPILER_LAUNCHER": launcher,
            "CMAKE_CXX_COMPILER_LAUNCHER": launcher}


def commands_of(guides):
    """All commands in order. Those of CHECKS come at the end and once, and the build is configured
    once, because all guides have been applied before."""
    lines = [line for guide in guides for commands, _ in test_docs.blocks(read(guide))
             for line in commands]
    found = [line for line in CHECKS if line in lines]
    return [line for i, line in enumerate(lines) if line not in found
            and not (line.startswith("cmake --preset ") and line in lines[:i])] + found


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        write(os.path.join(folder, "a.c"), "one\ntwo\n")
        text = ('In `a.c`, after the line\n`one`:\n\n'
                '<!-- insert: a.c after "one" -->\n```c\nnew\n```\n\n'
                'In `a.c`, before the line `one`:\n\n'
                '<!-- insert: a.c before "one" -->\n```c\ntwo\n```\n\n'
                '`a.c`:\n\n<!-- append: a.c -->\n```python\nend\n```\n\n`b/c.c`:\n\n'
                '<!-- new: b/c.c -->\n```c\nall\n```\n'
                "```c\nint shown_only;\n```\n")
        assert apply(folder, "test", text) == 4
        assert read(os.path.join(folder, "a.c")) == "two\none\nnew\nend\n"
        assert read(os.path.join(folder, "b", "c.c")) == "all\n"
        rows = f"#define {LIST}(X) \\\n" + "    X(old) /* x */ \\\n" * 2 + "int after;\n"
        more = rows.replace("old", "new", 1)
        assert less_rows(more) == less_rows(rows) != less_rows(rows + "    int x;\n"), more
        for place, why in (("In `a.c`, after the line `absent`:", "has no line with"),
                           ("", "lacks '`a.c`'"), ("In `a.c`:", "lacks 'after the '"),
                           ("In `a.c`, after the last line:", "lacks '`absent`'")):
            try:
                apply(folder, "test", f'{place}\n\n<!-- insert: a.c after "absent" -->\n'
                                      "```c\nx\n```\n")
            except AssertionError as error:
                assert why in str(error), error
            else:
                raise AssertionError(f"was accepted: {place!r}")


def main():
    self_test()
    guides = sorted(glob.glob("docs/adding-*.md"))
    assert guides, "no guide in docs/"
    failed = 0
    with tempfile.TemporaryDirectory(prefix="trireme-guides-") as folder:
        copy_tree(folder)
        for guide in guides:
            count = apply(folder, guide, read(guide))
            assert count, f"{guide} has no block that says where it goes"
            print(f"{guide}: {count} blocks applied", flush=True)
        environment = keep_objects(folder, sys.argv[1])
        for line in commands_of(guides):
            wrong = test_docs.run(line, folder, environment)
            print(f"{'FAILED  ' if wrong else 'ok      '}  {line}", flush=True)
            if wrong:
                print(f"    {wrong}")
                failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
