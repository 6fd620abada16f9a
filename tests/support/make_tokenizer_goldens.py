#!/usr/bin/env python3
"""Writes tests/support/goldens/tokenizers: small tokenizers, random lines, and what Hugging Face's
and Google's libraries make of them. unit/test_tokenizer compares ours with them.

usage: tests/support/make_tokenizer_goldens.py TEXT
       tests/support/make_tokenizer_goldens.py --expected
       tests/support/make_tokenizer_goldens.py --compare PROGRAM COUNT SEED TOKENIZER …

TEXT is a file of English, such as Tiny Shakespeare. With --expected, the tokenizers stay, and only
what the libraries make of the lines is written. With --compare, encodes COUNT other random
lines with the program and with the libraries, a chunk after another, and prints for each tokenizer
how many lines differ, and how many of the texts that the tokens are decoded to.
(needs the packages tokenizers and sentencepiece)
"""
import json
import os
import random
import subprocess
import sys
import tempfile

import sentencepiece
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, trainers)

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "goldens", "tokenizers")
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
# First and last characters of scripts, symbols, marks, spaces and control characters.
RANGES = [(0x21, 0x7e)] * 6 + [
    (0xa1, 0x17f), (0x370, 0x3ff), (0x400, 0x4ff), (0x590, 0x5ff), (0x600, 0x6ff),
    (0x900, 0x97f), (0xe00, 0xe7f), (0x1100, 0x11ff), (0x3040, 0x30ff), (0x4e00, 0x9fff),
    (0xac00, 0xd7a3), (0x1f300, 0x1f64f), (0x2000, 0x206f), (0x300, 0x36f), (0xff00, 0xffef),
    (0x2100, 0x214f), (0x1d400, 0x1d7ff), (0xfb00, 0xfb06), (0x180b, 0x180e), (0x2460, 0x24ff),
    (0x1e00, 0x1eff), (0x660, 0x669), (0x0, 0x1f), (0x7f, 0xa0), (0xe000, 0xe010),
    (0x1f1e6, 0x1f1ff), (0x1, 0x10ffff)]
SPECIAL = ["<s>", "</s>", "<unk>", "<|endoftext|>", "<mask>", "foo", "<r>", "The King", "king",
           "<sep>", "\u2581", "<0x0A>", "\t", "'s", "'LL", "don't", "\u0130", "\u00df", "e\u0301",
           "\r", "\U0001f468\u200d\U0001f469", "ab  ", "  ab", "\u212b"]
# Behind a symbol that the user has defined, two ways to make tokens of this have sums that only
# rounding distinguishes.
TIE = b"king " + b"l" * 27
# Characters that Unicode has added or moved since its version 8, which the libraries know or not.
MOVED = ("a\u1c89b \U00010d40\U0001ccf1 \U000105c0x \U000113bba \u061da \u07fda \u0890a \u1734a "
         "\u166da \U000111c9a \U00011938 \u32ffa \U0001fbf3 \uab69 "
         "a\u00b2b a\U000105c0 1\U00010d40 \ua7dc\u0897a \u08d4a")
# A line whose sum of scores is so large that floats would round it too much: how it ends.
LONG = (b"xq ", 40000, b"Heaven")
CHUNK = 20000  # lines that are compared at once
WORDS = "the king and queen of all thy hath 'tis o'er speak, Before we proceed any further".split()


def character(rng, first, last):
    code = 10
    while code == 10 or 0xd800 <= code < 0xe000:
        code = rng.randint(first, last)
    return chr(code)


def line(rng):
    """A line of words, numbers, strange characters and, in some lines, bytes that are no UTF-8."""
    parts = []
    for _ in range(rng.randint(0, 9)):
        kind, script = rng.random(), rng.choice(RANGES)
        if kind < 0.4:
            parts.append(rng.choice(WORDS))
        elif kind < 0.5:
            parts.append(str(rng.randint(0, 10 ** rng.randint(1, 12))))
        elif kind < 0.56:
            parts.append(rng.choice(SPECIAL))
        elif kind < 0.59:
            parts.append(character(rng, *script) * rng.randint(1, 60))
        else:
            length = rng.randint(1, 8 if rng.random() < 0.97 else 100)
            parts.append("".join(character(rng, *script) for _ in range(length)))
        parts.append(rng.choice([" ", " ", " ", "", "  ", "   ", "\t", "\u00a0", "\u3000", "\r"]))
    data = bytearray("".join(parts).encode())
    if rng.random() < 0.15:
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(data) + 1)
            data[at:at + rng.randint(0, 2)] = bytes(rng.choices(range(256), k=rng.randint(0, 3)))
    return bytes(data).replace(b"\n", b" ")


def byte_level(corpus, splitter, normalizer=None, special=(), **options):
    made = Tokenizer(models.BPE(**options))
    made.pre_tokenizer, made.decoder = splitter, decoders.ByteLevel()
    if normalizer:
        made.normalizer = normalizer
    made.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=500, special_tokens=list(special), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return made


def newer():
    """Merges of letters and numbers with the first byte of others behind them, which Unicode has
    added: they show whether these belong to the same words."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {text: i for i, text in enumerate([*alphabet, "a\u00f0", "1\u00f0"])}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[("a", "\u00f0"), ("1", "\u00f0")]))
    made.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    made.decoder = decoders.ByteLevel()
    return made


def llama2(corpus):
    made = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<unk>", "<s>", "</s>"]
    made.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=700, limit_alphabet=100, show_progress=False,
        special_tokens=special + ["<0x%02X>" % byte for byte in range(256)]))
    tree = json.loads(made.to_str())
    tree["added_tokens"] = [t for t in tree["added_tokens"] if t["content"] in special]
    made = Tokenizer.from_str(json.dumps(tree))
    made.pre_tokenizer = None
    made.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"),
                                            normalizers.Replace(" ", "\u2581")])
    made.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(),
                                      decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return made


def hugging_face(corpus):
    plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    yield "gpt2", byte_level(corpus, pre_tokenizers.ByteLevel(add_prefix_space=False),
                             special=["<|endoftext|>"])
    splitter = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"), plain])
    yield "llama3", byte_level(corpus, splitter, ignore_merges=True)
    one = Regex(LLAMA3.replace("{1,3}", ""))
    splitter = pre_tokenizers.Sequence([pre_tokenizers.Split(one, "isolated"), plain])
    yield "qwen2", byte_level(corpus, splitter, normalizers.NFC(), ["<|im_start|>"])
    made = byte_level(corpus, pre_tokenizers.ByteLevel(), normalizers.Lowercase(), ["<s>"])
    made.add_tokens([AddedToken("foo", single_word=True), AddedToken("The King", normalized=True),
                     AddedToken("<mask>", lstrip=True, special=True, normalized=False),
                     AddedToken("<r>", rstrip=True, normalized=False),
                     AddedToken(" ab", normalized=True, lstrip=True, rstrip=True)])
    yield "added", made
    yield "llama2", llama2(corpus)
    yield "newer", newer()
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer, made.decoder = normalizers.BertNormalizer(), decoders.WordPiece()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.train_from_iterator(corpus, trainers.WordPieceTrainer(
        vocab_size=500, limit_alphabet=100, show_progress=False,
        special_tokens=["[UNK]", "[CLS]", "[SEP]"]))
    yield "bert", made
    made = Tokenizer(models.Unigram())
    made.normalizer = normalizers.Sequence([normalizers.NFKC(),
                                            normalizers.Replace(Regex(" {2,}"), " ")])
    made.pre_tokenizer, made.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    made.train_from_iterator([t for t in corpus if t.isascii()], trainers.UnigramTrainer(
        vocab_size=400, show_progress=False, special_tokens=["</s>", "<unk>"], unk_token="<unk>"))
    yield "unigram", made


def google(corpus, folder):
    """tokenizer.model of both kinds, with few rules, because those of nmt_nfkc are long."""
    text, rules = os.path.join(folder, "text"), os.path.join(folder, "rules.tsv")
    with open(text, "w") as out:
        out.write("\n".join(corpus))
    with open(rules, "w") as out:
        out.write("A0\t20\n9\t20\n212B\tC5\n65 301\tE9\nFB01\t66 69\n200D\t\n")
    for name, options in (("bpe", {"byte_fallback": True}),
                          ("unigram", {"user_defined_symbols": ["<sep>", "king"]})):
        sentencepiece.SentencePieceTrainer.train(
            input=text, model_prefix=os.path.join(OUT, name), vocab_size=600, model_type=name,
            character_coverage=0.98, normalization_rule_tsv=rules, minloglevel=3, **options)
        os.remove(os.path.join(OUT, name + ".vocab"))
        without_folders(os.path.join(OUT, name + ".model"), folder)


def without_folders(path, folder):
    """A model names the files from which it was made. Their folders become as many bytes of ./"""
    with open(path, "rb") as file:
        data = file.read()
    for name in (OUT, folder):
        name = os.path.join(name, "").encode()
        data = data.replace(name, (b"./" * len(name))[-len(name):])
    with open(path, "wb") as file:
        file.write(data)


def library(path):
    """Functions of the library: from bytes to tokens, and from tokens to text."""
    if path.endswith(".model"):
        made = sentencepiece.SentencePieceProcessor(path)
        return made.encode, made.decode
    made = Tokenizer.from_file(path)
    return (lambda data: made.encode(data.decode("utf-8", "replace"), add_special_tokens=False).ids,
            lambda ids: made.decode(ids, skip_special_tokens=False))


def write(text):
    os.makedirs(OUT, exist_ok=True)
    rng = random.Random(1)
    with open(text) as file:
        corpus = file.read().split("\n")[:3000]
    corpus += [line(rng).decode("utf-8", "replace").replace("\r", " ").replace("\0", " ")
               for _ in range(300)]
    for name, made in hugging_face(corpus):
        tree = json.loads(made.to_str())
        with open(os.path.join(OUT, name + ".json"), "w") as out:
            json.dump(tree, out, separators=(",", ":"))
    with tempfile.TemporaryDirectory() as folder:
        google([one for one in corpus if max(one, default=" ") < "\u0250"], folder)
    write_expected()


def write_expected():
    rng = random.Random(2)
    lines = [line(rng) for _ in range(80)] + [TIE, MOVED.encode()]
    part, count, end = LONG
    expected = {"lines": [data.hex() for data in lines],
                "long": {"part": part.decode(), "count": count, "end": end.decode()}}
    for name in sorted(os.listdir(OUT)):
        if name == "expected.json":
            continue
        encode, decode = library(os.path.join(OUT, name))
        ids = [encode(data) for data in lines]
        expected[name] = {"ids": [" ".join(map(str, one)) for one in ids],
                          "texts": [decode(one).encode().hex() for one in ids]}
        if name.endswith(".model"):
            expected[name]["long"] = " ".join(map(str, encode(part * count + end)[-8:]))
    with open(os.path.join(OUT, "expected.json"), "w") as out:
        json.dump(expected, out, separators=(",", ":"))


def differences(program, path, encode, decode, lines):
    """The lines that the program encodes in another way, and those that it decodes in another."""
    theirs = [encode(data) for data in lines]
    command = [program, "data", "tokenize", "--tokenizer", path]
    made = subprocess.run(command, input=b"".join(data + b"\n" for data in lines),
                          stdout=subprocess.PIPE, check=True).stdout.split(b"\n")[:-1]
    texts = subprocess.run(command + ["--decode", "--json"], stdout=subprocess.PIPE, check=True,
                           input=b"".join(json.dumps(ids).encode() + b"\n" for ids in theirs))
    ours = zip(lines, theirs, made, texts.stdout.split(b"\n")[:-1], strict=True)
    encoded, decoded = [], []
    for data, ids, our_ids, our_text in ours:
        if json.loads(our_ids) != ids:
            encoded.append(data)
        if json.loads(our_text) != decode(ids):
            decoded.append(data)
    return encoded, decoded


def compare(program, count, seed, paths):
    rng = random.Random(seed)
    libraries = [(path, *library(path), [], []) for path in paths]
    for done in range(0, count, CHUNK):
        lines = [line(rng) for _ in range(min(CHUNK, count - done))]
        for path, encode, decode, encoded, decoded in libraries:
            more = differences(program, path, encode, decode, lines)
            encoded += more[0]
            decoded += more[1]
    for path, _, _, encoded, decoded in libraries:
        print(f"{path}: of {count} lines {len(encoded)} differ, of their texts {len(decoded)}",
              encoded[:2], decoded[:2])
    return any(encoded or decoded for *_, encoded, decoded in libraries)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--compare"]:
        sys.exit(compare(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5:]))
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if sys.argv[1] == "--expected":
        write_expected()
    else:
        write(sys.argv[1])
