// Makes tokens of the lines of JSON Lines files, several lines at a time on several threads.
#ifndef TRIREME_DATA_PACK_LINES_H
#define TRIREME_DATA_PACK_LINES_H

#include "data/dataset.h"
#include "format/tokenizer/tokenizer.h"

typedef struct pack_lines {
    // The caller sets these.
    const tri_data_options *options;
    const tri_tokenizer *tokenizer;
    uint32_t end;  // the token behind each document
    bool is_short; // tokens are written as U16
    int out;
    const char *out_path;
    // Results.
    int64_t tokens, left_out;
    tri_data_lengths documents; // without their end marks
    uint32_t largest;           // of the tokens
    // Private.
    struct pack_batch *batch;
    int64_t started_ns, told_ns;
} pack_lines;

tri_status pack_lines_begin(pack_lines *pack);
// Appends the documents of one file.
tri_status pack_lines_file(pack_lines *pack, const char *path);
void pack_lines_end(pack_lines *pack); // also if pack_lines_begin has failed

#endif
