#!/usr/bin/env python3
"""trireme data tokenize: there and back, in a pipe, as JSON strings, and what is refused.

usage: test_tokenize.py BUILD_FOLDER
"""
import json
import subprocess
import sys
import tempfile

sys.argv[1:] = sys.argv[1:] or ["build/release"]
sys.path.insert(0, "tests/support")
sys.dont_write_bytecode = True
from runs import TRIREME, check_all, run  # noqa: E402

GOLDENS = "tests/support/goldens/tokenizers/"
LINES = ["First Citizen:", "", "  o'er the <|endoftext|> king\t12345  ",
         "\u212b e\u0301 \u4e2d\u6587"]


def tokenize(name, text, *flags, code=0):
    return run([TRIREME, "data", "tokenize", "--tokenizer", GOLDENS + name, *flags], code,
               input=text)


def check_both_ways(_):
    text = "".join(line + "\n" for line in LINES)
    for name in ("gpt2.json", "llama3.json", "llama2.json", "bpe.model"):
        ids = tokenize(name, text).stdout
        assert [type(json.loads(one)) for one in ids.splitlines()] == [list] * len(LINES), ids
        assert ids.splitlines()[1] == "[]"
        if name != "bpe.model":  # whose rules change characters
            assert tokenize(name, ids, "--decode").stdout == text, name
        # The last line needs no line feed.
        assert tokenize(name, text[:-1]).stdout == ids


def check_json(_):
    strings = [json.dumps(line + "\n\0more") for line in LINES]
    ids = tokenize("gpt2.json", "\n".join(strings), "--json").stdout
    back = tokenize("gpt2.json", ids, "--json", "--decode").stdout
    assert [json.loads(one) for one in back.splitlines()] == [json.loads(s) for s in strings], back


def check_pipe(_):
    """Each line's tokens come before the next line is there."""
    with subprocess.Popen([TRIREME, "data", "tokenize", "--tokenizer", GOLDENS + "gpt2.json"],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        for line in LINES:
            child.stdin.write(line + "\n")
            child.stdin.flush()
            assert isinstance(json.loads(child.stdout.readline()), list)
        child.stdin.close()
        assert child.wait() == 0


def check_refused(folder):
    def refused(done, *texts):
        assert done.stderr.count("\n") == 1, done.stderr
        for text in texts:
            assert text in done.stderr, done.stderr
    refused(tokenize("gpt2.json", "[1]\n[1,]\n", "--decode", code=2), ":2:")
    refused(tokenize("gpt2.json", "[1]\n[99999]\n", "--decode", code=2), ":2:", "99999")
    refused(tokenize("gpt2.json", '"a"\nb\n', "--json", code=2), ":2:")
    refused(run([TRIREME, "data", "tokenize"], 2, input=""), "--tokenizer")
    for words in (["tokenize", "text.txt", "--tokenizer", GOLDENS + "gpt2.json"],
                  ["list", "text.txt"], ["get", "https://localhost/a", "text.txt"]):
        refused(run([TRIREME, "data", *words], 2, input=""), "text.txt")
    refused(tokenize("none.json", "", code=2), "none.json")
    with open(folder + "/odd.json", "w", encoding="utf-8") as out:
        json.dump({"model": {"type": "Odd"}}, out)
    refused(run([TRIREME, "data", "tokenize", "--tokenizer", folder + "/odd.json"], 2, input=""),
            "odd.json", "'Odd'")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        sys.exit(1 if check_all([check_both_ways, check_json, check_pipe, check_refused],
                                temporary) else 0)
