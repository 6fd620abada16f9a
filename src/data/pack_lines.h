// Makes tokens of documents, several at a time on several threads: of the lines of JSON Lines
// files, or of the rows of Parquet files (pack_rows.c).
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
    bool is_plain; // documents are texts, and not lines of JSON that contain them
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
// Appends the documents of one JSON Lines file, or of the column data.field of a Parquet file.
tri_status pack_lines_file(pack_lines *pack, const char *path);
tri_status pack_rows_file(pack_lines *pack, const char *path);
// What these two do: begin a file whose first document has this number, add its documents one after
// the other, and end it. `done` of the file, from 0 to 1, is for the progress.
void pack_lines_begin_file(pack_lines *pack, int64_t first);
tri_status pack_lines_add(pack_lines *pack, const char *path, const char *text, size_t size,
                          double done);
// Adds a document without a text, which is damaged.
tri_status pack_lines_add_missing(pack_lines *pack, const char *path, double done);
tri_status pack_lines_end_file(pack_lines *pack, const char *path);
void pack_lines_end(pack_lines *pack); // also if pack_lines_begin has failed

#endif
