// Decides where the output of the workers (the ranks' processes) goes: to files, to the console
// with a prefix, or to both.
#ifndef TRIREME_LAUNCH_STREAMS_H
#define TRIREME_LAUNCH_STREAMS_H

#include "launch/options.h"

// The launcher's own standard output or error. The launcher never writes more than the stream takes
// at once without blocking, so that a paused terminal or a full pipe cannot keep the launcher from
// watching the workers.
typedef struct launch_console {
    int fd;
    char *pending; // bytes that wait until the console accepts them
    size_t size, capacity;
    bool broken; // writing has failed, so further output is dropped
} launch_console;

// One output stream of one worker: where it comes from and where it goes.
typedef struct launch_stream {
    int worker_fd; // the descriptor to which the worker writes; -1: the one that it inherits
    int pipe;      // the end from which the launcher reads; -1: there is no pipe
    int file;      // the log file to which the launcher writes; -1: none
    launch_console *console; // where the launcher also writes what it reads; NULL: no pipe
    // The stream is shown on the console, because the worker inherits the console or because the
    // launcher writes to it.
    bool goes_to_console;
    char prefix[64];
    char *line;      // text that has come since the latest line end; launch_stream_end frees it
    size_t used;     // number of bytes in `line`
    char path[4096]; // path of the log file; "": none
} launch_stream;

// Opens the files and pipes of stream `bit` (LAUNCH_STDOUT or LAUNCH_STDERR) of a worker; a log
// file is created in `folder`.
tri_status launch_stream_open(const launch_options *options, int local_rank, int bit,
                              const char *folder, launch_console *console, launch_stream *out);
// Closes the worker's end of the pipe in the launcher, after the fork, so that the launcher notices
// when the worker has closed its own.
void launch_stream_close_worker_end(launch_stream *stream);
// Reads what has arrived in the stream's pipe, and passes it on to the log file and the console. At
// the end of the stream, sets `pipe` to -1.
void launch_stream_read(launch_stream *stream);
// Writes the last line, even if it has no line end (as after a crash), and closes everything.
void launch_stream_end(launch_stream *stream);
// True if too many bytes wait for the console. The launcher then stops reading the pipe, so that
// the worker blocks as it would on a slow console of its own.
bool launch_stream_must_wait(const launch_stream *stream);

// Writes as many of the waiting bytes as a writable console accepts without blocking.
void launch_console_write(launch_console *console);
void launch_console_free(launch_console *console);

#endif
