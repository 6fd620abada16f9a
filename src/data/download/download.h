// The interface of the module `download`, which gets files over HTTPS by libcurl. That library
// needs some thirty others, so only `trireme data get` loads it. The module calls no function of
// the program.
#ifndef TRIREME_DATA_DOWNLOAD_DOWNLOAD_H
#define TRIREME_DATA_DOWNLOAD_DOWNLOAD_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TRI_DOWNLOAD_ABI = 1, // has to be raised with every change of this header
    TRI_DOWNLOAD_WHY_BYTES = 512,
};
#define TRI_DOWNLOAD_INTERFACE "download"

typedef struct tri_download_job {
    const char *url;     // https://…; it may redirect to other addresses of https
    const char *ca_file; // certificates to trust; NULL: the system's
    int64_t from_bytes;  // how many of the file's first bytes are there already
    void *context;
    // Called once before `write`: whether the server sends the rest after from_bytes, or the whole
    // file, and how many bytes the whole file has (-1: unknown).
    tri_status (*begin)(void *context, bool is_rest, int64_t total_bytes);
    // Takes the next bytes. If it or `begin` fails, the download ends with its status.
    tri_status (*write)(void *context, const void *bytes, size_t size);
} tri_download_job;

typedef struct tri_download {
    // A failure other than those of begin and write puts the reason into why[]. TRI_NOT_FOUND: the
    // host cannot be reached, is not who it says, or does not have the file; TRI_IO: the
    // connection ended too early.
    tri_status (*get)(const tri_download_job *job, char *why);
} tri_download;

#endif
