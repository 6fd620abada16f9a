// `trireme data tokenize`: makes a list of token numbers of each line of standard input, or a line
// of text of each list.
#include "cli/cli.h"
#include "cli/data_verbs.h"
#include "format/jsonl.h"
#include "format/lines.h"
#include "format/tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct job {
    tri_token_encoder *encoder;
    bool is_json;
    tri_lines lines;
    tri_token_ids ids;
    tokenizer_text memory, out;
} job;

static void write_out(void *context) {
    job *j = context;
    fwrite(j->out.data, 1, j->out.size, stdout);
    fflush(stdout);
    j->out.size = 0;
}

static void put_number(tokenizer_text *out, uint32_t number) {
    char digits[16];
    char *end = digits + sizeof digits, *at = end;
    do {
        *--at = (char)('0' + number % 10);
        number /= 10;
    } while (number);
    tokenizer_text_append(out, at, (size_t)(end - at));
}

static tri_status fail_line(const job *j, tri_status status) {
    return tri_status_context(status, "%s:%lld", j->lines.path, (long long)j->lines.number);
}

static tri_status encode(job *j, tokenizer_string line) {
    const char *wrong = j->is_json ? tri_jsonl_string(line, &j->memory, &line) : NULL;
    if (wrong)
        return TRI_FAIL(TRI_BAD_INPUT, "%s:%lld: is no JSON string: %s", j->lines.path,
                        (long long)j->lines.number, wrong);
    j->ids.count = 0;
    tri_status status = tri_token_encode(j->encoder, line.data, line.size, &j->ids);
    if (status != TRI_OK) return fail_line(j, status);
    tokenizer_text_append(&j->out, "[", 1);
    for (size_t i = 0; i < j->ids.count; i++) {
        if (i > 0) tokenizer_text_append(&j->out, ",", 1);
        put_number(&j->out, j->ids.ids[i]);
    }
    tokenizer_text_append(&j->out, "]\n", 2);
    return TRI_OK;
}

static void take(void *context, uint32_t number) {
    job *j = context;
    tri_token_ids *ids = &j->ids;
    if (ids->count == ids->capacity) {
        size_t capacity = ids->capacity ? 2 * ids->capacity : 1024;
        uint32_t *grown = realloc(ids->ids, capacity * sizeof *grown);
        j->out.failed |= !grown;
        if (!grown) return;
        ids->ids = grown;
        ids->capacity = capacity;
    }
    ids->ids[ids->count++] = number;
}

static tri_status decode(job *j, tokenizer_string line) {
    tokenizer_string text;
    j->ids.count = 0;
    const char *wrong = tri_jsonl_numbers(line, take, j);
    if (wrong)
        return TRI_FAIL(TRI_BAD_INPUT, "%s:%lld: has %s", j->lines.path, (long long)j->lines.number,
                        wrong);
    tri_status status =
        tri_token_decode(j->encoder, j->ids.ids, j->ids.count, &text.data, &text.size);
    if (status != TRI_OK) return fail_line(j, status);
    if (j->is_json)
        tri_jsonl_put_string(&j->out, text);
    else
        tokenizer_text_append(&j->out, text.data, text.size);
    tokenizer_text_append(&j->out, "\n", 1);
    return TRI_OK;
}

static tri_status run_lines(job *j, bool decodes) {
    enum { WRITE_BYTES = 1 << 16 };
    bool has_line;
    tokenizer_string line;
    for (;;) {
        TRI_TRY(tri_lines_next(&j->lines, &line, &has_line));
        if (!has_line) return TRI_OK;
        tri_status status = decodes ? decode(j, line) : encode(j, line);
        if (status != TRI_OK && !strchr(tri_error_message(), ':'))
            status =
                tri_status_context(status, "%s:%lld", j->lines.path, (long long)j->lines.number);
        TRI_TRY(status);
        if (j->out.failed || j->memory.failed)
            return TRI_FAIL(TRI_NO_MEMORY, "%s:%lld: no memory for the line", j->lines.path,
                            (long long)j->lines.number);
        if (j->out.size > WRITE_BYTES) write_out(j);
    }
}

tri_status cli_data_tokenize(const cli_arguments *a) {
    const char *path = cli_value(a, "tokenizer");
    tri_tokenizer *tokenizer;
    if (!path)
        return TRI_FAIL(TRI_BAD_INPUT, "data tokenize: --tokenizer is missing: a tokenizer.json or "
                                       "tokenizer.model");
    TRI_TRY(tri_tokenizer_open(path, &tokenizer));
    job j = {.is_json = cli_has(a, "json")};
    j.lines = (tri_lines){
        .fd = STDIN_FILENO, .path = "standard input", .before_read = write_out, .context = &j};
    tri_status status = tri_token_encoder_create(tokenizer, &j.encoder);
    if (status == TRI_OK) status = run_lines(&j, cli_has(a, "decode"));
    if (status == TRI_OK) write_out(&j);
    tri_token_encoder_destroy(j.encoder);
    tri_tokenizer_close(tokenizer);
    tri_lines_free(&j.lines);
    tokenizer_text_free(&j.memory);
    tokenizer_text_free(&j.out);
    free(j.ids.ids);
    return status;
}
