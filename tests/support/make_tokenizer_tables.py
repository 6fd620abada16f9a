#!/usr/bin/env python3
"""Writes src/format/tokenizer/unicode_tables.h: what Hugging Face's library says of characters
where the libraries of Debian 12, which know Unicode 14, say something else.

usage: tests/support/make_tokenizer_tables.py     (needs the package tokenizers, and Python 3.11)
"""
import os
import sys
import unicodedata

from tokenizers import Regex, normalizers, pre_tokenizers

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../src/format/tokenizer",
                   "unicode_tables.h")
CODES = [code for code in range(0x110000) if not 0xd800 <= code < 0xe000]
CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So".split()
HEAD = """\
// Made by tests/support/make_tokenizer_tables.py: of which characters Hugging Face's library
// (%s) knows more, or less, than Unicode 14. For unicode.c.
#ifndef TRIREME_FORMAT_TOKENIZER_UNICODE_TABLES_H
#define TRIREME_FORMAT_TOKENIZER_UNICODE_TABLES_H

#include <stdint.h>
#include <utf8proc.h>

typedef struct tokenizer_newer {
    uint32_t first, last;
    int category;
} tokenizer_newer;

typedef struct tokenizer_range {
    uint32_t first, last;
} tokenizer_range;

// Characters that Unicode 15 to 16 added, by general category. Its regular expressions know them.
static const tokenizer_newer newer[] = {
"""
MIDDLE = """};

// Punctuation, marks and format characters that are younger than its other classes of characters,
// which are those of Unicode 8: ranges, which may contain characters of other classes.
static const tokenizer_range unknown[] = {
"""
MARKS = """};

// Marks that its normalizer StripAccents does not know.
static const tokenizer_range unknown_marks[] = {
"""


def removed(splitter, codes):
    """The codes that a pre-tokenizer with the behaviour `removed` takes out of a text."""
    kept = set()
    for text, _ in splitter.pre_tokenize_str("".join(map(chr, codes))):
        kept.update(map(ord, text))
    return set(codes) - kept


def ranges(wanted, neutral=()):
    """The codes as ranges, which may contain neutral ones."""
    wanted, neutral, found = sorted(wanted), set(neutral), []
    for code in wanted:
        if found and all(c in neutral for c in range(found[-1][1] + 1, code)):
            found[-1][1] = code
        else:
            found.append([code, code])
    return found


def lines(items):
    line = ""
    for item in items:
        if len(line) + len(item) > 94:
            yield "   " + line + "\n"
            line = ""
        line += f" {item},"
    yield "   " + line + "\n"


def main():
    if unicodedata.unidata_version != "14.0.0":
        sys.exit("Python's characters have to be those of Unicode 14: Python 3.11 has them")
    import tokenizers
    added = [c for c in CODES if unicodedata.category(chr(c)) == "Cn"]
    newer = []
    for name in CATEGORIES:
        found = removed(pre_tokenizers.Split(Regex(f"\\p{{{name}}}"), "removed"), added)
        newer += [(first, last, name) for first, last in ranges(found)]
    category = {c: unicodedata.category(chr(c)) for c in CODES}
    for first, last, name in newer:
        category.update((c, name) for c in range(first, last + 1))
    clean = normalizers.BertNormalizer(True, False, False, False)
    strip = normalizers.BertNormalizer(False, False, True, False)
    theirs = removed(pre_tokenizers.Punctuation("removed"), CODES)
    theirs |= {c for c in CODES if category[c] == "Cf" and clean.normalize_str(chr(c)) == ""}
    theirs |= {c for c in CODES if category[c] == "Mn" and strip.normalize_str(chr(c)) == ""}
    classes = {c for c in CODES if category[c][0] == "P" or category[c] in ("Cf", "Mn")}
    unknown = ranges(classes - theirs, set(CODES) - classes)
    marks = {c for c in CODES if category[c][0] == "M"}
    accents = normalizers.StripAccents()
    known = {c for c in marks if accents.normalize_str(chr(c)) == ""}
    unknown_marks = ranges(marks - known, set(CODES) - marks)
    with open(OUT, "w") as out:
        out.write(HEAD % tokenizers.__version__)
        out.writelines(lines(f"{{{a:#x}, {b:#x}, UTF8PROC_CATEGORY_{name.upper()}}}"
                             for a, b, name in sorted(newer)))
        out.write(MIDDLE)
        out.writelines(lines(f"{{{a:#x}, {b:#x}}}" for a, b in unknown))
        out.write(MARKS)
        out.writelines(lines(f"{{{a:#x}, {b:#x}}}" for a, b in unknown_marks))
        out.write("};\n\n#endif\n")
    print(len(newer), len(unknown), len(unknown_marks))


if __name__ == "__main__":
    main()
