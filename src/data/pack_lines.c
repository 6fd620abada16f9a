// Makes tokens of documents, batch by batch: those of a batch are divided among threads, and their
// tokens are written in the order of the documents.
#include "data/pack_lines.h"

#include "base/log.h"
#include "base/os.h"
#include "base/parallel.h"
#include "base/quantity.h"
#include "format/jsonl.h"
#include "format/lines.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BATCH_BYTES = 8 << 20,
    BATCH_DOCUMENTS = 1 << 20,
    MOST_THREADS = 64,
    TELL_MS = 5000,
    MOST_NAMED = 10
};

typedef struct batch_line {
    size_t start, size;
    bool is_missing;
} batch_line;

// What one thread makes of its share of a batch.
typedef struct share {
    tri_token_encoder *encoder;
    tri_token_ids ids;
    tokenizer_text memory;
    int64_t *damaged; // numbers of the lines that are, and why, in turn
    const char **reasons;
    int damaged_count, damaged_capacity;
    tri_data_lengths documents;
    tri_status status;
    char message[TRI_MESSAGE_MAX_BYTES];
} share;

struct pack_batch {
    const pack_lines *pack;
    tokenizer_text text;
    batch_line *lines;
    size_t count, capacity;
    int64_t first_line; // number of the batch's first document in its file
    int threads;
    share shares[MOST_THREADS];
    tri_arena *arena; // of the lists of damaged lines
};

tri_status pack_lines_begin(pack_lines *pack) {
    struct pack_batch *batch = pack->batch = calloc(1, sizeof *batch);
    if (!batch) return TRI_FAIL(TRI_NO_MEMORY, "no memory to pack text");
    batch->pack = pack;
    batch->arena = tri_arena_create(NULL, "damaged lines");
    int threads = tri_parallel_threads();
    batch->threads = threads < MOST_THREADS ? threads : MOST_THREADS;
    for (int i = 0; i < batch->threads; i++)
        TRI_TRY(tri_token_encoder_create(pack->tokenizer, &batch->shares[i].encoder));
    pack->started_ns = pack->told_ns = tri_os.monotonic_ns();
    return TRI_OK;
}

void pack_lines_end(pack_lines *pack) {
    struct pack_batch *batch = pack->batch;
    if (!batch) return;
    for (int i = 0; i < batch->threads; i++) {
        tri_token_encoder_destroy(batch->shares[i].encoder);
        free(batch->shares[i].ids.ids);
        tokenizer_text_free(&batch->shares[i].memory);
    }
    tokenizer_text_free(&batch->text);
    tri_arena_destroy(batch->arena);
    free(batch->lines);
    free(batch);
    pack->batch = NULL;
}

static bool reserve_ids(tri_token_ids *ids) {
    if (ids->count < ids->capacity) return true;
    size_t capacity = ids->capacity ? 2 * ids->capacity : 1 << 16;
    uint32_t *grown = realloc(ids->ids, capacity * sizeof *grown);
    if (!grown) return false;
    ids->ids = grown;
    ids->capacity = capacity;
    return true;
}

// Finds the text of a document. False: it has none, and *wrong says why, or is NULL for a blank
// line.
static bool find_text(const pack_lines *pack, share *s, const batch_line *document,
                      tokenizer_string line, tokenizer_string *out, const char **wrong) {
    const tokenizer_string field = {pack->options->field, strlen(pack->options->field)};
    *wrong = document->is_missing ? "no text" : NULL;
    *out = line;
    if (pack->is_plain || *wrong) return !*wrong;
    if (tri_jsonl_is_blank(line)) return false;
    *wrong = tri_jsonl_field(line, field, &s->memory, out);
    return !*wrong;
}

static tri_status encode_line(const pack_lines *pack, share *s, const batch_line *document,
                              tokenizer_string line, const char **wrong) {
    tokenizer_string text;
    size_t before = s->ids.count;
    if (!find_text(pack, s, document, line, &text, wrong)) return TRI_OK;
    TRI_TRY(tri_token_encode(s->encoder, text.data, text.size, &s->ids));
    if (s->memory.failed || !reserve_ids(&s->ids))
        return TRI_FAIL(TRI_NO_MEMORY, "no memory for a document");
    int64_t length = (int64_t)(s->ids.count - before);
    tri_data_lengths_add(&s->documents, &(tri_data_lengths){1, length, length, length});
    s->ids.ids[s->ids.count++] = pack->end;
    return TRI_OK;
}

static void encode_share(struct pack_batch *batch, int index) {
    share *s = &batch->shares[index];
    size_t first = batch->count * (size_t)index / (size_t)batch->threads;
    size_t end = batch->count * (size_t)(index + 1) / (size_t)batch->threads;
    s->ids.count = 0;
    s->damaged_count = 0;
    s->documents = (tri_data_lengths){0};
    s->status = TRI_OK;
    for (size_t i = first; i < end && s->status == TRI_OK; i++) {
        const char *wrong;
        tokenizer_string line = {batch->text.data + batch->lines[i].start, batch->lines[i].size};
        s->status = encode_line(batch->pack, s, &batch->lines[i], line, &wrong);
        if (s->status == TRI_OK && !wrong) continue;
        s->damaged[s->damaged_count] = batch->first_line + (int64_t)i;
        s->reasons[s->damaged_count++] = wrong;
        if (wrong && batch->pack->options->on_error == TRI_DATA_REFUSE) break;
    }
    if (s->status != TRI_OK) snprintf(s->message, sizeof s->message, "%s", tri_error_message());
}

static void encode_shares(void *context, int64_t first, int64_t end) {
    for (int64_t i = first; i < end; i++) encode_share(context, (int)i);
}

static tri_status check_share(pack_lines *pack, const share *s, const char *path) {
    const char *row = pack->is_plain ? " row " : "";
    for (int i = 0; i < s->damaged_count; i++) {
        long long line = (long long)s->damaged[i];
        if (s->status != TRI_OK && i + 1 == s->damaged_count)
            return TRI_FAIL(s->status, "%s:%s%lld: %s", path, row, line, s->message);
        if (pack->options->on_error == TRI_DATA_REFUSE)
            return TRI_FAIL(TRI_CORRUPT, "%s:%s%lld: has %s; data.on_error=skip leaves out such %s",
                            path, row, line, s->reasons[i], pack->is_plain ? "rows" : "lines");
        pack->left_out++;
        if (pack->left_out <= MOST_NAMED)
            tri_log_line(TRI_LOG_WARNING, "%s:%s%lld: has %s: left out%s", path, row, line,
                         s->reasons[i],
                         pack->left_out == MOST_NAMED ? "; further ones are only counted" : "");
    }
    return TRI_OK;
}

static tri_status write_share(pack_lines *pack, share *s) {
    uint16_t *narrow =
        (uint16_t *)(void *)s->ids.ids; // in place: each is written behind its reading
    size_t width = pack->is_short ? sizeof *narrow : sizeof *s->ids.ids;
    for (size_t i = 0; i < s->ids.count; i++)
        if (s->ids.ids[i] > pack->largest) pack->largest = s->ids.ids[i];
    for (size_t i = 0; i < s->ids.count && pack->is_short; i++) {
        uint16_t id = (uint16_t)s->ids.ids[i];
        memcpy((char *)narrow + i * sizeof id, &id, sizeof id);
    }
    pack->tokens += (int64_t)s->ids.count;
    tri_data_lengths_add(&pack->documents, &s->documents);
    if (s->ids.count == 0) return TRI_OK;
    return tri_os_write_all(pack->out, s->ids.ids, s->ids.count * width, pack->out_path);
}

// Makes tokens of the lines that were collected, and writes them.
static tri_status flush(pack_lines *pack, const char *path) {
    struct pack_batch *batch = pack->batch;
    if (batch->text.failed) return TRI_FAIL(TRI_NO_MEMORY, "%s: no memory for its lines", path);
    tri_arena_reset(batch->arena);
    for (int i = 0; i < batch->threads; i++) {
        size_t most = batch->count / (size_t)batch->threads + 1;
        batch->shares[i].damaged = TRI_NEW_ARRAY(batch->arena, int64_t, most);
        batch->shares[i].reasons = TRI_NEW_ARRAY(batch->arena, const char *, most);
    }
    tri_parallel_for(batch->threads, batch->threads, 1, encode_shares, batch);
    for (int i = 0; i < batch->threads; i++) {
        TRI_TRY(check_share(pack, &batch->shares[i], path));
        TRI_TRY(write_share(pack, &batch->shares[i]));
    }
    batch->first_line += (int64_t)batch->count;
    batch->count = batch->text.size = 0;
    return TRI_OK;
}

static tri_status collect(struct pack_batch *batch, const char *text, size_t size,
                          bool is_missing) {
    if (batch->count == batch->capacity) {
        size_t capacity = batch->capacity ? 2 * batch->capacity : 1024;
        batch_line *grown = realloc(batch->lines, capacity * sizeof *grown);
        if (!grown) return TRI_FAIL(TRI_NO_MEMORY, "no memory for documents");
        batch->lines = grown;
        batch->capacity = capacity;
    }
    batch->lines[batch->count++] = (batch_line){batch->text.size, size, is_missing};
    tokenizer_text_append(&batch->text, text, size);
    return TRI_OK;
}

static void tell(pack_lines *pack, const char *path, double done) {
    int64_t now = tri_os.monotonic_ns();
    if (now - pack->told_ns < (int64_t)TELL_MS * 1000000) return;
    pack->told_ns = now;
    tri_log_line(TRI_LOG_INFO, "packing %s: %.0f%%, %lld tokens", path, 100 * done,
                 (long long)pack->tokens);
}

// The first line of a file without the byte order mark that some programs write before it.
static tokenizer_string without_mark(tokenizer_string line) {
    enum { MARK_BYTES = 3 };
    if (line.size < MARK_BYTES || memcmp(line.data, "\xef\xbb\xbf", MARK_BYTES) != 0) return line;
    return (tokenizer_string){line.data + MARK_BYTES, line.size - MARK_BYTES};
}

void pack_lines_begin_file(pack_lines *pack, int64_t first) { pack->batch->first_line = first; }

static tri_status add(pack_lines *pack, const char *path, const char *text, size_t size,
                      bool is_missing, double done) {
    struct pack_batch *batch = pack->batch;
    TRI_TRY(collect(batch, text, size, is_missing));
    if (batch->text.size < BATCH_BYTES && batch->count < BATCH_DOCUMENTS) return TRI_OK;
    TRI_TRY(flush(pack, path));
    tell(pack, path, done);
    return TRI_OK;
}

tri_status pack_lines_add(pack_lines *pack, const char *path, const char *text, size_t size,
                          double done) {
    return add(pack, path, text, size, false, done);
}

tri_status pack_lines_add_missing(pack_lines *pack, const char *path, double done) {
    return add(pack, path, "", 0, true, done);
}

tri_status pack_lines_end_file(pack_lines *pack, const char *path) { return flush(pack, path); }

static tri_status pack_all(pack_lines *pack, tri_lines *lines) {
    struct stat info = {0};
    tokenizer_string line;
    bool has_line;
    if (fstat(lines->fd, &info) < 0) return tri_os_fail("look at", lines->path);
    pack_lines_begin_file(pack, 1);
    for (;;) {
        double done = info.st_size > 0 ? (double)lines->bytes_done / (double)info.st_size : 0;
        TRI_TRY(tri_lines_next(lines, &line, &has_line));
        if (!has_line) return pack_lines_end_file(pack, lines->path);
        if (lines->number == 1) line = without_mark(line);
        TRI_TRY(pack_lines_add(pack, lines->path, line.data, line.size, done));
    }
}

tri_status pack_lines_file(pack_lines *pack, const char *path) {
    tri_lines lines = {.path = path};
    TRI_TRY(tri_os_open_input(path, &lines.fd));
    tri_status status = pack_all(pack, &lines);
    tri_os.close(lines.fd);
    tri_lines_free(&lines);
    return status;
}
