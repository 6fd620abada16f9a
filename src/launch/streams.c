// Reads the output of the workers (the ranks' processes) from pipes, writes it to log files, and
// shows it on the console line by line, so that lines of different workers are not mixed.
#include "launch/streams.h"

#include "base/log.h"
#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { READ_BYTES = 1 << 16, LINE_BYTES = 1 << 16, CONSOLE_BYTES = 1 << 18 };

static int streams_of(const launch_stream_map *map, int local_rank) {
    return map->per_rank ? map->of[local_rank] : map->of_all;
}

static tri_status open_file(const char *folder, int bit, launch_stream *s) {
    int used = snprintf(s->path, sizeof s->path, "%s/%s.log", folder,
                        bit == LAUNCH_STDOUT ? "stdout" : "stderr");
    if (used < 0 || (size_t)used >= sizeof s->path)
        return TRI_FAIL(TRI_BAD_INPUT, "--log-dir: the path is too long");
    s->file =
        tri_os.open(s->path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_APPEND | O_CLOEXEC, 0666);
    return s->file < 0 ? tri_os_fail("write", s->path) : TRI_OK;
}

tri_status launch_stream_open(const launch_options *options, int local_rank, int bit,
                              const char *folder, launch_console *console, launch_stream *out) {
    *out = (launch_stream){.worker_fd = -1, .pipe = -1, .file = -1};
    bool teed = streams_of(&options->tee, local_rank) & bit;
    bool to_file = teed || (streams_of(&options->redirects, local_rank) & bit);
    bool shown = (teed || !to_file) && (!options->shown.limited || options->shown.has[local_rank]);
    out->goes_to_console = shown;
    if (to_file) TRI_TRY(open_file(folder, bit, out));
    if (to_file && shown) {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) != 0) return tri_os_fail("make a pipe", out->path);
        out->worker_fd = ends[1];
        out->pipe = ends[0];
        fcntl(out->pipe, F_SETFL, O_NONBLOCK);
        out->console = console;
        out->line = malloc(LINE_BYTES);
        TRI_ASSERT(out->line);
        snprintf(out->prefix, sizeof out->prefix, "[%.40s%d]:", options->role, local_rank);
    } else if (to_file) {
        out->worker_fd = out->file;
        out->file = -1;
    } else if (!shown) {
        out->worker_fd = tri_os.open("/dev/null", O_WRONLY | O_CLOEXEC, 0);
        if (out->worker_fd < 0) return tri_os_fail("open", "/dev/null");
    }
    return TRI_OK;
}

void launch_stream_close_worker_end(launch_stream *s) {
    if (s->worker_fd >= 0) tri_os.close(s->worker_fd);
    s->worker_fd = -1;
}

static void console_put(launch_console *c, const char *data, size_t size) {
    if (c->broken) return;
    if (c->size + size > c->capacity) {
        c->capacity = 2 * (c->size + size);
        c->pending = realloc(c->pending, c->capacity);
        TRI_ASSERT(c->pending);
    }
    memcpy(c->pending + c->size, data, size);
    c->size += size;
}

static void show_line(launch_stream *s) {
    console_put(s->console, s->prefix, strlen(s->prefix));
    console_put(s->console, s->line, s->used);
    console_put(s->console, "\n", 1);
    s->used = 0;
}

static void split_lines(launch_stream *s, const char *data, size_t size) {
    for (size_t i = 0; i < size; i++) {
        if (data[i] != '\n') s->line[s->used++] = data[i];
        if (data[i] == '\n' || s->used == LINE_BYTES) show_line(s);
    }
}

static void close_file(launch_stream *s) {
    if (s->file >= 0) tri_os.close(s->file);
    s->file = -1;
}

void launch_stream_read(launch_stream *s) {
    char data[READ_BYTES];
    ssize_t got;
    do got = tri_os.read(s->pipe, data, sizeof data);
    while (got < 0 && errno == EINTR);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
        tri_os.close(s->pipe);
        s->pipe = -1;
        return;
    }
    if (s->file >= 0 && tri_os_write_all(s->file, data, (size_t)got, s->path) != TRI_OK) {
        tri_log_line(TRI_LOG_WARNING, "%s; the run continues without this log",
                     tri_error_message());
        close_file(s);
    }
    split_lines(s, data, (size_t)got);
}

void launch_stream_end(launch_stream *s) {
    if (s->used) show_line(s);
    free(s->line);
    s->line = NULL;
    launch_stream_close_worker_end(s);
    if (s->pipe >= 0) tri_os.close(s->pipe);
    s->pipe = -1;
    close_file(s);
}

bool launch_stream_must_wait(const launch_stream *s) { return s->console->size > CONSOLE_BYTES; }

void launch_console_write(launch_console *c) {
    // If poll reports a pipe as writable, it accepts PIPE_BUF bytes without blocking.
    size_t size = c->size < PIPE_BUF ? c->size : PIPE_BUF;
    if (!size) return;
    ssize_t done = tri_os.write(c->fd, c->pending, size);
    if (done < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (done < 0) {
        if (c->fd != STDERR_FILENO)
            tri_log_line(TRI_LOG_WARNING,
                         "standard output: %s; what the workers print is not shown any more",
                         strerror(errno));
        c->broken = true;
        c->size = 0;
        return;
    }
    c->size -= (size_t)done;
    memmove(c->pending, c->pending + done, c->size);
}

void launch_console_free(launch_console *c) {
    free(c->pending);
    *c = (launch_console){0};
}
