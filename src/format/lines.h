// Reads a file or a pipe line by line, with memory for the longest line.
#ifndef TRIREME_FORMAT_LINES_H
#define TRIREME_FORMAT_LINES_H

#include "format/tokenizer/text.h"

enum { TRI_MAX_LINE_BYTES = 256 << 20 };

typedef struct tri_lines {
    int fd;
    const char *path;    // for messages
    tokenizer_text text; // what was read; lines before `at` are done
    size_t at, searched; // no line feed is before `searched`
    bool is_end;
    int64_t number;     // of the line that was read last, from 1
    int64_t bytes_done; // of the file, up to the end of that line
    // Called before a read, which may have to wait; NULL: nothing is called.
    void (*before_read)(void *context);
    void *context;
} tri_lines;

// Reads the next line, without its line feed, into memory that the next call uses again. *has_line
// is false at the end. The last line need not end with a line feed. TRI_IO; TRI_BAD_INPUT: the line
// is longer than TRI_MAX_LINE_BYTES.
tri_status tri_lines_next(tri_lines *lines, tokenizer_string *line, bool *has_line);
// Frees the memory; the file stays open.
void tri_lines_free(tri_lines *lines);

#endif
