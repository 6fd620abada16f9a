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
commands are the fenced `sh` blocks. All guides share one copy, so that it is built once.
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
        for guide in guides:
            for commands, _ in test_docs.blocks(read(guide)):
                for line in commands:
                    wrong = test_docs.run(line, folder, os.environ)
                    print(f"{'FAILED  ' if wrong else 'ok      '}  {line}", flush=True)
                    if wrong:
                        print(f"    {wrong}")
                        failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
