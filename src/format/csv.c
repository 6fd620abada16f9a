// Reads tables as text, a record at a time: csv.h tells what is accepted.
#include "format/csv.h"

#include "base/os.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = 1 << 16, NO_END = -1, BOM_BYTES = 3 };

// Finds where the record that begins at text[0] ends, behind its line feed. NO_END: not within
// `size` bytes.
static int64_t find_end(const char *text, int64_t size, char delimiter) {
    const char *feed = memchr(text, '\n', (size_t)size);
    if (feed && !memchr(text, '"', (size_t)(feed - text))) return feed - text + 1;
    bool is_quoted = false, is_start = true;
    for (int64_t i = 0; i < size; i++) {
        char c = text[i];
        if (is_quoted) {
            if (c != '"') continue;
            if (i + 1 < size && text[i + 1] == '"')
                i++;
            else
                is_quoted = false;
            continue;
        }
        if (c == '\n') return i + 1;
        is_quoted = is_start && c == '"';
        is_start = c == delimiter;
    }
    return NO_END;
}

// The part of a file that is in memory.
typedef struct window {
    int fd;
    const char *path;
    char *data; // one byte longer than `capacity`
    int64_t capacity, begin, end;
    int64_t offset; // in the file, of data[0]
    bool at_end;    // the file has no more bytes
} window;

static tri_status read_more(window *w) {
    if (w->begin > 0) {
        memmove(w->data, w->data + w->begin, (size_t)(w->end - w->begin));
        w->end -= w->begin;
        w->offset += w->begin;
        w->begin = 0;
    }
    if (w->end == w->capacity) {
        int64_t capacity = w->capacity ? 2 * w->capacity : CHUNK_BYTES;
        if (capacity > 2 * (int64_t)TRI_CSV_MAX_RECORD_BYTES)
            return TRI_FAIL(TRI_CORRUPT,
                            "%s: a record of more than %d MiB: is a quote never closed?", w->path,
                            TRI_CSV_MAX_RECORD_BYTES >> 20);
        char *data = realloc(w->data, (size_t)capacity + 1);
        if (!data) return TRI_FAIL(TRI_NO_MEMORY, "%s: no memory to read it", w->path);
        w->data = data;
        w->capacity = capacity;
    }
    ssize_t got = tri_os_pread_most(w->fd, w->data + w->end, (size_t)(w->capacity - w->end),
                                    w->offset + w->end);
    if (got < 0) return tri_os_fail("read", w->path);
    w->at_end = got == 0;
    w->end += got;
    return TRI_OK;
}

static int64_t count_feeds(const char *text, int64_t size) {
    int64_t count = 0;
    for (const char *at = text; (at = memchr(at, '\n', (size_t)(text + size - at))); at++) count++;
    return count;
}

static bool is_blank(const char *text, int64_t size) {
    return text[0] == '\n' || (text[0] == '\r' && (size == 1 || text[1] == '\n'));
}

static tri_status visit_all(window *w, char delimiter, int64_t most,
                            tri_status (*visit)(void *context, const tri_csv_record *record),
                            void *context) {
    int64_t line = 1, visited = 0;
    while (visited < most) {
        int64_t left = w->end - w->begin;
        int64_t size = left > 0 ? find_end(w->data + w->begin, left, delimiter) : NO_END;
        if (size == NO_END && !w->at_end) {
            TRI_TRY(read_more(w));
            continue;
        }
        if (size == NO_END) size = left; // the last line has no line feed
        if (size == 0) return TRI_OK;
        char *text = w->data + w->begin, next = text[size];
        if (!is_blank(text, size)) {
            text[size] = 0;
            tri_csv_record record = {text, size, w->offset + w->begin, line};
            int64_t feeds = count_feeds(text, size);
            TRI_TRY(visit(context, &record));
            visited++;
            line += feeds;
            text[size] = next;
        } else {
            line++;
        }
        w->begin += size;
    }
    return TRI_OK;
}

tri_status tri_csv_list(int fd, const char *path, char delimiter, int64_t most,
                        tri_status (*visit)(void *context, const tri_csv_record *record),
                        void *context) {
    window w = {.fd = fd, .path = path};
    tri_status status = read_more(&w);
    if (status == TRI_OK && w.end >= BOM_BYTES && !memcmp(w.data, "\xef\xbb\xbf", BOM_BYTES))
        w.begin = BOM_BYTES;
    if (status == TRI_OK) status = visit_all(&w, delimiter, most, visit, context);
    free(w.data);
    return status;
}

// Takes the quotes off the field at *at, and moves *at to the character behind the closing quote.
static const char *unquote(char **at, const char *end, char **out) {
    char *from = *at + 1, *to = *out = *at;
    for (; from < end; from++) {
        if (*from == '"' && (from + 1 == end || from[1] != '"')) {
            *at = from + 1;
            *to = 0;
            return NULL;
        }
        from += *from == '"';
        *to++ = *from;
    }
    return "a quote is never closed";
}

const char *tri_csv_split(char *text, int64_t size, char delimiter, char **fields, int most,
                          int *count) {
    char *end = text + size, *at = text;
    *count = 0;
    if (memchr(text, 0, (size_t)size)) return "it has NUL bytes: it has to be text in UTF-8";
    while (end > text && (end[-1] == '\n' || end[-1] == '\r')) end--;
    *end = 0;
    for (;; at++) {
        char *field = at;
        if (at < end && *at == '"') {
            const char *why = unquote(&at, end, &field);
            if (why) return why;
            if (at < end && *at != delimiter) return "text follows a closing quote";
        } else {
            char *found = memchr(at, delimiter, (size_t)(end - at));
            at = found ? found : end;
        }
        if (*count < most) fields[*count] = field;
        if (++*count > TRI_CSV_MAX_COLUMNS) return "it has too many fields";
        if (at == end) return NULL;
        *at = 0;
    }
}

bool tri_csv_number(const char *text, double *out) {
    char *end;
    text += strspn(text, " \t");
    if (!*text || text[strspn(text, "0123456789+-.eE \t")]) return false;
    *out = strtod(text, &end);
    return end != text && !end[strspn(end, " \t")] && isfinite(*out);
}

bool tri_csv_is_missing(const char *text) {
    static const char *const words[] = {"", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"};
    text += strspn(text, " \t");
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(text, words[i])) return true;
    return false;
}
