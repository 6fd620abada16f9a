// Reads lines.
#include "format/lines.h"

#include "base/os.h"

#include <errno.h>
#include <string.h>

enum { BLOCK_BYTES = 1 << 20 };

// Reads more behind what is not done yet.
static tri_status fill(tri_lines *l) {
    tokenizer_text *text = &l->text;
    if (l->at > 0) {
        memmove(text->data, text->data + l->at, text->size - l->at);
        text->size -= l->at;
        l->searched -= l->at;
        l->at = 0;
    }
    if (text->size > TRI_MAX_LINE_BYTES)
        return TRI_FAIL(TRI_BAD_INPUT, "%s:%lld: the line is longer than %d bytes", l->path,
                        (long long)l->number + 1, TRI_MAX_LINE_BYTES);
    if (!tokenizer_text_reserve(text, BLOCK_BYTES))
        return TRI_FAIL(TRI_NO_MEMORY, "%s: no memory for a line", l->path);
    if (l->before_read) l->before_read(l->context);
    ssize_t count;
    do {
        count = tri_os.read(l->fd, text->data + text->size, BLOCK_BYTES);
    } while (count < 0 && errno == EINTR);
    if (count < 0) return tri_os_fail("read", l->path);
    text->size += (size_t)count;
    l->is_end = count == 0;
    return TRI_OK;
}

tri_status tri_lines_next(tri_lines *l, tokenizer_string *line, bool *has_line) {
    const char *end = NULL;
    for (;;) {
        if (l->text.size > l->searched)
            end = memchr(l->text.data + l->searched, '\n', l->text.size - l->searched);
        if (end || l->is_end) break;
        l->searched = l->text.size;
        TRI_TRY(fill(l));
    }
    *has_line = end || l->at < l->text.size;
    if (!*has_line) return TRI_OK;
    size_t until = end ? (size_t)(end - l->text.data) : l->text.size;
    *line = (tokenizer_string){l->text.data + l->at, until - l->at};
    l->bytes_done += (int64_t)(until - l->at) + (end != NULL);
    l->at = l->searched = until + (end != NULL);
    l->number++;
    return TRI_OK;
}

void tri_lines_free(tri_lines *l) { tokenizer_text_free(&l->text); }
