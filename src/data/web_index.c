// Makes and finds the index of tar archives: see web_index.h.
#include "data/web_index.h"

#include "base/log.h"
#include "base/os.h"
#include "base/parallel.h"
#include "data/content.h"
#include "data/web_list.h"
#include "format/tar.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MOST_THREADS = 64, TELL_MS = 5000 };

typedef struct job {
    tri_arena *arena;
    const char *cache;
    const char *const *paths;
    int count;
    tri_file_state *states; // by archive
    tri_cache place;        // of the index
    web_index *out;
    bool is_bad; // an archive is, so that no other way to keep the index would help
    int first;   // the first archive of those that are being listed
    struct part *parts;
} job;

// What a thread finds in one archive.
typedef struct part {
    web_list list;
    tri_tar_row row;
    tri_status status;
    char message[TRI_MESSAGE_MAX_BYTES];
} part;

// The unpacked copy of an archive.
typedef struct copy {
    const char *path; // of the archive
    int from;         // the open archive
    tri_cache place;
    int fd;
    int64_t bytes; // of the archive in it
} copy;

static tri_status name_copy(tri_arena *arena, const job *j, int archive, copy *out) {
    *out = (copy){.path = j->paths[archive], .from = -1, .fd = -1};
    return tri_cache_name(arena,
                          &(tri_cache_request){.folder = j->cache,
                                               .settings = "unpacked archive 1",
                                               .suffix = ".tar",
                                               .paths = &j->paths[archive],
                                               .states = &j->states[archive],
                                               .count = 1,
                                               .blocks = 2}, // the last one has a checksum of all
                          &out->place);
}

static tri_status find_copy(void *context, bool *found) {
    copy *c = context;
    *found = false;
    c->fd = tri_os.open(c->place.path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    if (c->fd < 0) return TRI_OK;
    tri_status status = tri_tar_unpacked_bytes(c->place.path, c->fd, &c->bytes);
    *found = status == TRI_OK;
    if (*found) return TRI_OK;
    tri_os.close(c->fd);
    c->fd = -1;
    return status == TRI_CORRUPT ? TRI_OK : status;
}

static tri_status make_copy(void *context) {
    copy *c = context;
    tri_os_replacement file;
    bool found = false;
    TRI_TRY(tri_os_replacement_begin(c->place.path, &file));
    tri_status status = tri_tar_unpack(c->path, c->from, c->place.path, file.fd);
    TRI_TRY(tri_os_replacement_end(&file, status));
    TRI_TRY(find_copy(c, &found));
    return found ? TRI_OK : TRI_FAIL(TRI_IO, "%s: was changed while it was made", c->place.path);
}

static tri_status list_compressed(const job *j, int archive, int from, part *p) {
    copy c;
    TRI_TRY(name_copy(p->list.arena, j, archive, &c));
    c.from = from;
    tri_status status = tri_cache_once(&c.place, &(tri_cache_maker){find_copy, make_copy, &c});
    if (status == TRI_NO_SPACE)
        return tri_status_context(status, "compressed archives are unpacked (data.cache)");
    TRI_TRY(status);
    p->list.path = tri_arena_printf(p->list.arena, "%s (unpacked to %s)", c.path, c.place.path);
    status = web_list_archive(&p->list, c.fd, c.bytes);
    p->row.unpacked_bytes = c.bytes;
    tri_os.close(c.fd);
    return status;
}

// The failure of a file that cannot be listed, by what the file is if it is no tar archive.
static tri_status fail_listed(const char *path, tri_status status) {
    char why[TRI_MESSAGE_MAX_BYTES];
    snprintf(why, sizeof why, "%s", tri_error_message());
    TRI_TRY(tri_content_check(path, "webdataset"));
    return TRI_FAIL(status, "%s", why);
}

static tri_status list_one(const job *j, int archive, part *p) {
    int fd;
    bool is_compressed;
    p->list.path = j->paths[archive];
    TRI_TRY(tri_tar_open(j->paths[archive], &fd, &is_compressed));
    tri_status status = is_compressed ? list_compressed(j, archive, fd, p)
                                      : web_list_archive(&p->list, fd, j->states[archive].size);
    tri_os.close(fd);
    bool is_other = status == TRI_CORRUPT && !is_compressed;
    return is_other ? fail_listed(j->paths[archive], status) : status;
}

static void list_range(void *context, int64_t first, int64_t end) {
    const job *j = context;
    for (int64_t i = first; i < end; i++) {
        part *p = &j->parts[i];
        p->status = list_one(j, j->first + (int)i, p);
        if (p->status != TRI_OK) snprintf(p->message, sizeof p->message, "%s", tri_error_message());
    }
}

static tri_status add_totals(const web_list *list, tri_tar_totals *totals) {
    if (list->others > 0 && totals->others == 0)
        snprintf(totals->first_other, sizeof totals->first_other, "%s", list->first_other);
    totals->others += list->others;
    if (list->count == 0) return TRI_OK;
    if (totals->samples == 0) totals->has_labels = list->has_labels;
    if (totals->has_labels != list->has_labels)
        return web_list_fail_label(list->path, list->first_key, list->has_labels);
    if (list->classes > totals->classes) totals->classes = list->classes;
    return TRI_OK;
}

static tri_status add_part(job *j, const part *p, int fd, tri_tar_totals *totals,
                           tri_tar_row *row) {
    j->is_bad = true; // until all of this has been found to be good
    if (p->status != TRI_OK) return TRI_FAIL(p->status, "%s", p->message);
    TRI_TRY(add_totals(&p->list, totals));
    j->is_bad = false;
    *row = p->row;
    TRI_TRY(tri_tar_index_write(fd, j->place.path, j->count, totals->samples, p->list.samples,
                                p->list.count, row));
    totals->samples += p->list.count;
    return TRI_OK;
}

static void tell(const job *j, int done, int64_t *told_ns) {
    int64_t now = tri_os.monotonic_ns();
    if (now - *told_ns < (int64_t)TELL_MS * 1000000) return;
    *told_ns = now;
    tri_log_line(TRI_LOG_INFO, "listing the samples of %s and others: %d of %d archives",
                 j->paths[0], done, j->count);
}

// Lists as many archives at a time as there are threads, and writes their records in order.
static tri_status list_archives(job *j, int fd, tri_tar_totals *totals, tri_tar_row *rows) {
    int threads = tri_parallel_threads();
    tri_status status = TRI_OK;
    int64_t told_ns = tri_os.monotonic_ns();
    if (threads > MOST_THREADS) threads = MOST_THREADS;
    for (j->first = 0; j->first < j->count && status == TRI_OK; j->first += threads) {
        int some = j->count - j->first < threads ? j->count - j->first : threads;
        for (int i = 0; i < some; i++)
            j->parts[i] = (part){.list.arena = tri_arena_create(NULL, "archive")};
        tri_parallel_for(threads, some, 1, list_range, j);
        for (int i = 0; i < some; i++) {
            if (status == TRI_OK)
                status = add_part(j, &j->parts[i], fd, totals, &rows[j->first + i]);
            tri_arena_destroy(j->parts[i].list.arena);
        }
        tell(j, j->first + some, &told_ns);
    }
    return status;
}

static tri_status build(job *j, int fd) {
    tri_tar_row *rows = calloc((size_t)j->count, sizeof *rows);
    tri_tar_totals *totals = calloc(1, sizeof *totals);
    j->parts = calloc(MOST_THREADS, sizeof *j->parts);
    tri_status status = TRI_OK;
    if (!rows || !totals || !j->parts)
        status = TRI_FAIL(TRI_NO_MEMORY, "no memory to list archives");
    if (status == TRI_OK) status = list_archives(j, fd, totals, rows);
    if (status == TRI_OK && totals->samples == 0) {
        j->is_bad = true;
        status = TRI_FAIL(TRI_BAD_INPUT, "%s: has no samples: NAME.jpg with NAME.cls", j->paths[0]);
    }
    if (status == TRI_OK)
        status = tri_tar_index_finish(fd, j->place.path, j->place.key, rows, j->count, totals);
    free(rows);
    free(totals);
    free(j->parts);
    return status;
}

// Finds the file in which the samples of an archive lie.
static tri_status locate(job *j, int archive, web_archive *out) {
    int64_t unpacked = j->out->samples.rows[archive].unpacked_bytes;
    copy c;
    bool found;
    *out = (web_archive){j->paths[archive], &j->states[archive], j->states[archive].size};
    if (unpacked == 0) return TRI_OK;
    TRI_TRY(name_copy(j->arena, j, archive, &c));
    TRI_TRY(find_copy(&c, &found));
    if (found) tri_os.close(c.fd);
    if (!found || c.bytes != unpacked)
        return TRI_FAIL(TRI_CORRUPT, "%s: is not there, or not whole", c.place.path);
    *out = (web_archive){c.place.path, NULL, unpacked};
    return TRI_OK;
}

// Opens the index `fd` and checks all of it.
static tri_status open_index(job *j, int fd) {
    web_index *out = j->out;
    tri_tar_index_close(&out->samples);
    TRI_TRY(tri_tar_index_open(fd, j->place.path, j->place.key, j->count, &out->samples));
    tri_status status = TRI_OK;
    for (int i = 0; i < j->count && status == TRI_OK; i++) {
        status = locate(j, i, &out->archives[i]);
        if (status == TRI_OK)
            status = tri_tar_index_check(&out->samples, i, out->archives[i].archive_bytes);
    }
    if (status == TRI_OK && out->samples.totals.samples == 0)
        status = TRI_FAIL(TRI_CORRUPT, "%s: has no samples", j->place.path);
    if (status != TRI_OK) tri_tar_index_close(&out->samples);
    return status;
}

static tri_status find(void *context, bool *found) {
    job *j = context;
    int fd = tri_os.open(j->place.path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    *found = false;
    if (fd < 0) return TRI_OK;
    tri_status status = open_index(j, fd);
    *found = status == TRI_OK;
    if (status != TRI_OK)
        tri_log_line(TRI_LOG_DEBUG, "%s: the index is made again", tri_error_message());
    return status == TRI_NO_MEMORY ? status : TRI_OK;
}

static tri_status make(void *context) {
    job *j = context;
    tri_os_replacement file;
    bool found = false;
    TRI_TRY(tri_os_replacement_begin(j->place.path, &file));
    file.is_fleeting = true; // what a crash damages, the checksums tell
    TRI_TRY(tri_os_replacement_end(&file, build(j, file.fd)));
    TRI_TRY(find(j, &found));
    return found ? TRI_OK : TRI_FAIL(TRI_IO, "%s: was changed while it was made", j->place.path);
}

static tri_status hold_in_memory(job *j) {
    int fd = memfd_create("index", MFD_CLOEXEC);
    if (fd < 0) return tri_os_fail("create", "an index in memory");
    tri_status status = build(j, fd);
    if (status == TRI_OK) return open_index(j, fd);
    tri_os.close(fd);
    return status;
}

tri_status web_index_open(tri_arena *arena, const char *cache, const char *const *paths, int count,
                          web_index *out) {
    job j = {.arena = arena, .cache = cache, .paths = paths, .count = count, .out = out};
    *out = (web_index){.samples.fd = -1, .archives = TRI_NEW_ARRAY(arena, web_archive, count)};
    j.states = TRI_NEW_ARRAY(arena, tri_file_state, count);
    for (int i = 0; i < count; i++) TRI_TRY(tri_file_state_of(paths[i], &j.states[i]));
    TRI_TRY(tri_cache_name(arena,
                           &(tri_cache_request){.folder = cache,
                                                .settings = "index of archives 1",
                                                .suffix = ".index",
                                                .paths = paths,
                                                .states = j.states,
                                                .count = count},
                           &j.place));
    tri_status status = tri_cache_once(&j.place, &(tri_cache_maker){find, make, &j});
    if (status == TRI_OK || j.is_bad || status == TRI_NO_MEMORY) return status;
    tri_log_line(TRI_LOG_INFO,
                 "%s: the index of archives is not kept, so that each start lists them",
                 tri_error_message());
    return hold_in_memory(&j);
}
