// Where the workers' output goes: files, the console with a prefix, or both.
#ifndef TRIREME_LAUNCH_STREAMS_H
#define TRIREME_LAUNCH_STREAMS_H

#include "launch/options.h"

// The launcher's own standard output or error. It is written to only while it takes bytes, so that
// a paused terminal or a full pipe never stops the watch over the workers.
typedef struct launch_console {
    int fd;
    char *pending;
    size_t size, capacity;
    bool broken; // nobody reads it any more
} launch_console;

// One output of one worker.
typedef struct launch_stream {
    int worker_fd;           // what the worker writes to; -1: what it inherits
    int pipe;                // its other end if the launcher reads it; -1: none
    int file;                // -1: none
    launch_console *console; // of a teed stream
    bool goes_to_console;    // inherited or teed
    char prefix[64];
    char *line; // begun, not ended; freed by launch_stream_end
    size_t used;
    char path[4096]; // of the file; "": none
} launch_stream;

// Opens what stream `bit` (LAUNCH_STDOUT or LAUNCH_STDERR) of a worker needs, its file in `folder`.
tri_status launch_stream_open(const launch_options *options, int local_rank, int bit,
                              const char *folder, launch_console *console, launch_stream *out);
// After the fork: the worker's end belongs to the worker.
void launch_stream_started(launch_stream *stream);
// Reads what there is. At the end of the stream `pipe` becomes -1.
void launch_stream_read(launch_stream *stream);
// Shows a line without its end and closes everything.
void launch_stream_end(launch_stream *stream);
// Too much waits for the console: leave the pipe alone, so that the worker waits as it would on a
// console of its own.
bool launch_stream_is_held(const launch_stream *stream);

// Writes what a writable console takes at once.
void launch_console_write(launch_console *console);
void launch_console_free(launch_console *console);

#endif
