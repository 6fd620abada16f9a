#!/usr/bin/env python3
"""No test pins a whole sentence of a message: tests check keys, numbers, names and exit codes, so
that a message can be rephrased.

usage: test_messages.py BUILD_FOLDER     run in the source folder

A literal of a test may have at most WORDS plain words in a row that also stand in one literal of
src/, without a number, a name or a sign in between. Docstrings and comments do not count, nor what
lies in support/ (its helpers have messages of their own).
"""
import ast
import os
import re
import sys

WORDS = 4
KINDS = ("unit", "ranks", "grad", "parity", "equivalence", "fault", "cluster", "cli")
C_TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|(?P<text>"(?:\\.|[^"\\\n])*"'
                     r'(?:\s*(?:PRI\w+\s*)?"(?:\\.|[^"\\\n])*")*)|\'(?:\\.|[^\'\\\n])+\'', re.S)
FORMAT = re.compile(r"%[-+ 0-9.*]*(?:hh|h|ll|l|z|j|t)?[a-zA-Z]")


def literals_of_c(text):
    for match in C_TOKEN.finditer(text):
        if match["text"]:
            yield text.count("\n", 0, match.start()) + 1, \
                re.sub(r'"\s*(?:PRI\w+\s*)?"', "", match["text"])[1:-1].replace("\\n", "\n")


def literals_of_python(text):
    tree = ast.parse(text)
    docstrings = {id(node.body[0].value) for node in ast.walk(tree)
                  if isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef))
                  and node.body and isinstance(node.body[0], ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) \
                and id(node) not in docstrings:
            yield node.lineno, node.value


def runs_of_words(text):
    """The plain words between two names, options, numbers, signs or formats; commas are none."""
    words = []
    for token in FORMAT.sub(" % ", text).replace(",", " ").split():
        is_word = re.fullmatch(r"a|[a-z]{2,}('s)?[.:;]?", token)
        words += [token.rstrip(".:;")] if is_word else []
        if not is_word or token.endswith((".", ":", ";")):
            yield words
            words = []
    yield words


def grams(text):
    for words in runs_of_words(text):
        for i in range(len(words) - WORDS):
            yield tuple(words[i:i + WORDS + 1])


def check(sources, tests):
    """sources, tests: path -> text. Yields (path, line, words) of what is pinned."""
    said = {gram for text in sources.values() for _, literal in literals_of_c(text)
            for gram in grams(literal)}
    for path, text in sorted(tests.items()):
        found = literals_of_python(text) if path.endswith(".py") else literals_of_c(text)
        for line, literal in found:
            pinned = next((gram for gram in grams(literal) if gram in said), None)
            if pinned:
                yield path, line, " ".join(pinned)


def read(folder, endings):
    texts = {}
    for place, _, names in os.walk(folder):
        for name in names:
            if name.endswith(endings):
                with open(os.path.join(place, name), encoding="utf-8") as file:
                    texts[os.path.join(place, name)] = file.read()
    return texts


def self_test():
    source = {"src/a.c": '// a comment that is never said\n'
                         'f("batch.micro=%lld: the model has no "\n  "tensor of that name");\n'}
    wanted = {
        'f("has no tensor of that name");': True,  # over two literals
        'f("batch.micro=3: the model has", "tensor of that name");': False,
        '// the model has no tensor of that name\n': False,
        'f("a comment that is never said");': False,
    }
    for text, is_pinned in wanted.items():
        assert bool(list(check(source, {"a.c": text}))) == is_pinned, text
        script = "" if text.startswith("//") else text.removesuffix(";")
        assert bool(list(check(source, {"a.py": script}))) == is_pinned, text
    assert not list(check(source, {"a.py": '"""the model has no tensor of that name"""\n'}))


def main():
    self_test()
    tests = {}
    for kind in KINDS:
        tests.update(read(os.path.join("tests", kind), (".c", ".py")))
    found = list(check(read("src", (".c", ".h", ".cu")), tests))
    for path, line, words in found:
        print(f"{path}:{line}: pins '{words}' of a message: check its key, number or name instead")
    print(f"{len(tests)} tests, {len(found)} pin a sentence")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
