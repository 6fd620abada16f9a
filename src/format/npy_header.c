// Parses the header of a NumPy array, which is the text of a Python dictionary.
#include "format/npy_header.h"

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PREFIX_BYTES = 8, WORD_BYTES = 24 };
enum { HAS_DESCR = 1, HAS_ORDER = 2, HAS_SHAPE = 4, HAS_ALL = 7 };

typedef struct cursor {
    const char *at, *end;
    const char *name; // name of the array, for messages
} cursor;

static void skip_space(cursor *c) {
    while (c->at < c->end && memchr(" \t\r\n", *c->at, 4)) c->at++;
}

static bool take(cursor *c, char wanted) {
    skip_space(c);
    if (c->at == c->end || *c->at != wanted) return false;
    c->at++;
    return true;
}

static tri_status fail(const cursor *c) {
    return TRI_FAIL(TRI_CORRUPT, "%s: its NumPy header is damaged", c->name);
}

// Reads 'text' or "text", without support for escapes.
static bool take_text(cursor *c, char out[WORD_BYTES]) {
    skip_space(c);
    if (c->at == c->end || (*c->at != '\'' && *c->at != '"')) return false;
    char quote = *c->at++;
    size_t length = 0;
    while (c->at < c->end && *c->at != quote && length < WORD_BYTES - 1) out[length++] = *c->at++;
    out[length] = 0;
    return take(c, quote);
}

static bool take_word(cursor *c, const char *word) {
    skip_space(c);
    size_t length = strlen(word);
    if ((size_t)(c->end - c->at) < length || memcmp(c->at, word, length) != 0) return false;
    c->at += length;
    return true;
}

static bool take_size(cursor *c, int64_t *out) {
    skip_space(c);
    const char *first = c->at;
    *out = 0;
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++)
        if (__builtin_mul_overflow(*out, 10, out) ||
            __builtin_add_overflow(*out, *c->at - '0', out))
            return false;
    if (c->at == first) return false;
    if (c->at < c->end && *c->at == 'L') c->at++; // Python 2 writes sizes with an L
    return true;
}

// Tells what a type's letter means, for the message about a type that is not supported.
static const char *meaning(char letter) {
    static const struct {
        char letter;
        const char *words;
    } rows[] = {{'O', "Python objects"},  {'U', "texts"}, {'S', "texts"}, {'a', "texts"},
                {'c', "complex numbers"}, {'M', "dates"}, {'m', "times"}, {'V', "raw bytes"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].letter == letter) return rows[i].words;
    return "an unknown type";
}

// Reads a type: a byte order, a letter and the number of bytes, as in "<f4", "|u1", ">i8".
static tri_status read_descr(const cursor *c, const char *text, tri_npy_header *out) {
    static const struct {
        const char *type;
        tri_dtype dtype;
    } rows[] = {{"b1", TRI_BOOL}, {"i1", TRI_I8},  {"i2", TRI_I16}, {"i4", TRI_I32},
                {"i8", TRI_I64},  {"u1", TRI_U8},  {"u2", TRI_U16}, {"u4", TRI_U32},
                {"u8", TRI_U64},  {"f2", TRI_F16}, {"f4", TRI_F32}, {"f8", TRI_F64}};
    bool has_order = *text && strchr("<>|=", *text);
    const char *type = text + has_order;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strcmp(rows[i].type, type) != 0) continue;
        out->dtype = rows[i].dtype;
        char foreign = BYTE_ORDER == LITTLE_ENDIAN ? '>' : '<';
        out->is_swapped = *text == foreign && tri_dtype_bytes(out->dtype) > 1;
        return TRI_OK;
    }
    return TRI_FAIL(TRI_UNSUPPORTED,
                    "%s: holds %s (NumPy's dtype '%s'): save numbers, as with x.astype('float32')",
                    c->name, *type == 'f' ? "floats of another size" : meaning(*type), text);
}

static tri_status read_shape(cursor *c, tri_shape *out) {
    *out = (tri_shape){0};
    if (!take(c, '(')) return fail(c);
    while (!take(c, ')')) {
        int64_t size;
        if (!take_size(c, &size)) return fail(c);
        if (out->rank == TRI_MAX_RANK)
            return TRI_FAIL(TRI_UNSUPPORTED, "%s: more than %d axes are not supported", c->name,
                            TRI_MAX_RANK);
        out->dims[out->rank++] = size;
        if (!take(c, ',')) {
            if (!take(c, ')')) return fail(c);
            break;
        }
    }
    return tri_shape_count(out) < 0
               ? TRI_FAIL(TRI_CORRUPT, "%s: the product of its sizes overflows", c->name)
               : TRI_OK;
}

static tri_status read_entry(cursor *c, int *seen, bool *is_fortran, tri_npy_header *out) {
    char key[WORD_BYTES], text[WORD_BYTES];
    int bit = 0;
    if (!take_text(c, key) || !take(c, ':')) return fail(c);
    if (!strcmp(key, "descr")) {
        bit = HAS_DESCR;
        skip_space(c);
        if (c->at < c->end && *c->at == '[')
            return TRI_FAIL(TRI_UNSUPPORTED,
                            "%s: holds records of several types (a structured array): save each "
                            "field as an array of its own",
                            c->name);
        if (!take_text(c, text)) return fail(c);
        TRI_TRY(read_descr(c, text, out));
    } else if (!strcmp(key, "fortran_order")) {
        bit = HAS_ORDER;
        *is_fortran = take_word(c, "True");
        if (!*is_fortran && !take_word(c, "False")) return fail(c);
    } else if (!strcmp(key, "shape")) {
        bit = HAS_SHAPE;
        TRI_TRY(read_shape(c, &out->shape));
    }
    if (!bit || *seen & bit) return fail(c);
    *seen |= bit;
    return TRI_OK;
}

static tri_status read_dictionary(cursor *c, tri_npy_header *out) {
    int seen = 0;
    bool is_fortran = false;
    if (!take(c, '{')) return fail(c);
    while (!take(c, '}')) {
        TRI_TRY(read_entry(c, &seen, &is_fortran, out));
        if (take(c, ',')) continue;
        if (!take(c, '}')) return fail(c);
        break;
    }
    skip_space(c);
    if (seen != HAS_ALL || c->at != c->end) return fail(c);
    if (is_fortran && out->shape.rank > 1)
        return TRI_FAIL(TRI_UNSUPPORTED,
                        "%s: its rows lie in Fortran's order: save numpy.ascontiguousarray(x)",
                        c->name);
    return TRI_OK;
}

tri_status tri_npy_header_read(const uint8_t *bytes, size_t size, const char *name,
                               tri_npy_header *out) {
    *out = (tri_npy_header){0};
    if (size < PREFIX_BYTES + 2 || memcmp(bytes, "\x93NUMPY", 6) != 0)
        return TRI_FAIL(TRI_CORRUPT, "%s: not a NumPy array (.npy) or an archive of them (.npz)",
                        name);
    size_t counted = bytes[6] == 1 ? 2 : 4, length = 0;
    if (bytes[6] < 1 || bytes[6] > 3)
        return TRI_FAIL(TRI_UNSUPPORTED, "%s: version %d of NumPy's format is not known", name,
                        bytes[6]);
    if (size < PREFIX_BYTES + counted) return TRI_FAIL(TRI_CORRUPT, "%s: truncated", name);
    for (size_t i = counted; i-- > 0;) length = length << 8 | bytes[PREFIX_BYTES + i];
    size_t start = PREFIX_BYTES + counted;
    if (length > TRI_NPY_HEADER_BYTES - start)
        return TRI_FAIL(TRI_CORRUPT, "%s: a NumPy header of %zu bytes; at most %zu are possible",
                        name, length, TRI_NPY_HEADER_BYTES - start);
    if (length > size - start) return TRI_FAIL(TRI_CORRUPT, "%s: truncated", name);
    cursor c = {(const char *)bytes + start, (const char *)bytes + start + length, name};
    TRI_TRY(read_dictionary(&c, out));
    out->header_bytes = (int64_t)(start + length);
    return TRI_OK;
}
