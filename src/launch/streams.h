// Decides where the workers' output goes: files, the console with a prefix, or both.
#ifndef TRIREME_LAUNCH_STREAMS_H
#define TRIREME_LAUNCH_STREAMS_H

#include "launch/options.h"

// The launcher's own standard output or error. The launcher writes to it only while it accepts
// bytes, so that a paused terminal or a full pipe never keeps it from watching the workers.
typedef struct launch_console {
    int fd;
    char *pending;
    size_t size, capacity;
    bool broken; // writing failed; what follows is dropped
} launch_console;

// One output of one worker: where it comes from and goes to.
typedef struct launch_stream {
    int worker_fd;           // what the worker writes to; -1: what it inherits
    int pipe;                // the end from which the launcher reads; -1: none
    int file;                // that the launcher writes; -1: none
    launch_console *console; // of a stream that goes to a file and to the console
    bool goes_to_console;    // inherited, or shown by the launcher
    char prefix[64];
    char *line;      // the bytes since the latest line end; freed by launch_stream_end
    size_t used;     // bytes of `line`
    char path[4096]; // of the file; "": none
} launch_stream;

// Opens the files and pipes of stream `bit` (LAUNCH_STDOUT or LAUNCH_STDERR) of a worker; its log
// file is made in `folder`.
tri_status launch_stream_open(const launch_options *options, int local_rank, int bit,
                              const char *folder, launch_console *console, launch_stream *out);
// Called after the fork: closes the worker's end in the launcher, so that the launcher sees when
// the worker has closed its own.
void launch_stream_started(launch_stream *stream);
// Reads what has arrived. At the end of the stream `pipe` becomes -1.
void launch_stream_read(launch_stream *stream);
// Shows the last line, even without a line end, which a crash leaves out, and closes everything.
void launch_stream_end(launch_stream *stream);
// True if too many bytes wait for the console. The launcher then stops reading the pipe, so that
// the worker blocks as it would on a slow console of its own.
bool launch_stream_must_wait(const launch_stream *stream);

// Writes as many pending bytes as a writable console accepts without blocking.
void launch_console_write(launch_console *console);
void launch_console_free(launch_console *console);

#endif
