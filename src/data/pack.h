// Packed text: the tokens of all documents of JSON Lines or Parquet files, one document after the
// other with an end mark behind each, in a file beside the data. So text is tokenized once, before
// the first step of the first run, and any window of it can be read directly.
#ifndef TRIREME_DATA_PACK_H
#define TRIREME_DATA_PACK_H

#include "base/arena.h"
#include "data/dataset.h"

typedef struct tri_pack {
    const char *path;    // of the file with the tokens
    tri_token_type type; // of the tokens
    int64_t tokens;
    int64_t largest;            // of the tokens
    tri_data_lengths documents; // without their end marks
    int64_t left_out;           // lines that are damaged and were left out (data.on_error: skip)
    const char *tokenizer;      // SHA-256 of its file, in hexadecimal digits
    const char *end_mark;       // the number of the token with which a text ends
} tri_pack;

// Finds the packed text of these files (is_table: Parquet files), or makes it. It belongs to their
// sizes, times and content, the tokenizer, data.field and data.on_error: if one of them
// changes, the text is packed again. If several ranks need it at a time, one makes it and the
// others wait. TRI_BAD_INPUT: a line is damaged (data.on_error: refuse); the message names file and
// line.
tri_status tri_pack_open(tri_arena *arena, const tri_data_options *options,
                         const char *const *paths, int count, bool is_table, tri_pack *out);

#endif
