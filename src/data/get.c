// Gets a file over HTTPS, by the module `download`, and checks its hash. The bytes are hashed as
// they come; those of an earlier try are read once for that.
#include "data/get.h"

#include "base/log.h"
#include "base/module.h"
#include "base/os.h"
#include "base/quantity.h"
#include "data/download/download.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>

enum { HASH_BYTES = 32, BLOCK_BYTES = 1 << 20 };
#define REDRAW_S 0.2

typedef struct getting {
    const char *url, *path;
    char part[PATH_MAX]; // where the bytes lie until they are complete
    int fd;
    EVP_MD_CTX *hash;
    int64_t bytes, total_bytes; // written so far; of the whole file, -1: unknown
    int64_t begun_bytes;        // how many were there before
    double begun_s, drawn_s;
} getting;

static tri_status start_hash(getting *g) {
    if (!g->hash) g->hash = EVP_MD_CTX_new();
    if (g->hash && EVP_DigestInit_ex(g->hash, EVP_sha256(), NULL)) return TRI_OK;
    return TRI_FAIL(TRI_NO_MEMORY, "no memory to compute a hash");
}

static tri_status add_to_hash(getting *g, const void *bytes, size_t size) {
    if (EVP_DigestUpdate(g->hash, bytes, size)) return TRI_OK;
    return TRI_FAIL(TRI_INTERNAL, "cannot compute a hash");
}

// Whether the bytes so far have this hash.
static bool is_complete(const getting *g, const char *sha256, char hash[2 * HASH_BYTES + 1]) {
    unsigned char bytes[HASH_BYTES];
    EVP_MD_CTX *copy = EVP_MD_CTX_new();
    hash[0] = 0;
    if (copy && EVP_MD_CTX_copy_ex(copy, g->hash) && EVP_DigestFinal_ex(copy, bytes, NULL))
        for (int i = 0; i < HASH_BYTES; i++) snprintf(hash + 2 * i, 3, "%02x", bytes[i]);
    EVP_MD_CTX_free(copy);
    return !strcasecmp(hash, sha256);
}

// Adds the bytes of the file `fd` to the hash, and counts them.
static tri_status hash_file(getting *g, int fd, const char *path) {
    TRI_TRY(start_hash(g));
    char *block = malloc(BLOCK_BYTES);
    if (!block) return TRI_FAIL(TRI_NO_MEMORY, "no memory to read %s", path);
    tri_status status = TRI_OK;
    ssize_t got = 1;
    for (g->bytes = 0; status == TRI_OK && got > 0; g->bytes += got) {
        got = tri_os_pread_most(fd, block, BLOCK_BYTES, g->bytes);
        status = got < 0 ? tri_os_fail("read", path) : add_to_hash(g, block, (size_t)got);
        if (got < 0) got = 0;
    }
    free(block);
    return status;
}

static tri_status check_request(const char *url, const char *sha256) {
    if (strncmp(url, "https://", 8) != 0 || !url[8])
        return TRI_FAIL(TRI_BAD_INPUT, "data get: %s: has to begin with https://", url);
    if (strlen(sha256) == 2 * HASH_BYTES &&
        strspn(sha256, "0123456789abcdefABCDEF") == 2 * HASH_BYTES)
        return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT, "--sha256 %s: has to be %d hexadecimal digits", sha256,
                    2 * HASH_BYTES);
}

// Finds whether the file is there already. TRI_BAD_INPUT: there is another one.
static tri_status look_for_file(getting *g, const char *sha256, bool *is_there) {
    char hash[2 * HASH_BYTES + 1];
    int fd = tri_os.open(g->path, O_RDONLY | O_CLOEXEC, 0);
    *is_there = fd >= 0;
    if (fd < 0) return errno == ENOENT ? TRI_OK : tri_os_fail("open", g->path);
    tri_status status = hash_file(g, fd, g->path);
    tri_os.close(fd);
    if (status != TRI_OK || is_complete(g, sha256, hash)) return status;
    return TRI_FAIL(TRI_BAD_INPUT,
                    "%s: there is a file with another hash (SHA-256 %s): remove it, or name "
                    "another --out",
                    g->path, hash);
}

static void draw(getting *g, bool is_last) {
    double now = tri_os_seconds();
    if (!tri_log_is_terminal() || (now - g->drawn_s < REDRAW_S && !is_last)) return;
    g->drawn_s = now;
    double rate = (double)(g->bytes - g->begun_bytes) / (now - g->begun_s + 1e-9);
    fprintf(stderr, "\r\x1b[K%s: %s", g->path, tri_bytes_text((double)g->bytes));
    if (g->total_bytes > 0)
        fprintf(stderr, " of %s, %.0f%%", tri_bytes_text((double)g->total_bytes),
                100.0 * (double)g->bytes / (double)g->total_bytes);
    fprintf(stderr, ", %s/s%s", tri_bytes_text(rate), is_last ? "\n" : "");
}

static tri_status begin(void *context, bool is_rest, int64_t total_bytes) {
    getting *g = context;
    g->total_bytes = total_bytes;
    if (!is_rest && g->bytes > 0) {
        if (tri_os.ftruncate(g->fd, 0) < 0) return tri_os_fail("shorten", g->part);
        g->bytes = 0;
        TRI_TRY(start_hash(g));
    }
    g->begun_bytes = g->bytes;
    g->begun_s = tri_os_seconds();
    return TRI_OK;
}

static tri_status write_bytes(void *context, const void *bytes, size_t size) {
    getting *g = context;
    TRI_TRY(tri_os_pwrite_all(g->fd, bytes, size, g->bytes, g->part));
    TRI_TRY(add_to_hash(g, bytes, size));
    g->bytes += (int64_t)size;
    draw(g, false);
    return TRI_OK;
}

static tri_status ask(getting *g, const tri_download *module, char *why) {
    const tri_download_job job = {.url = g->url,
                                  .ca_file = getenv("SSL_CERT_FILE"),
                                  .from_bytes = g->bytes,
                                  .context = g,
                                  .begin = begin,
                                  .write = write_bytes};
    tri_status status = module->get(&job, why);
    if (g->begun_s > 0) draw(g, true);
    return status;
}

static tri_status download(getting *g) {
    const void *table;
    char why[TRI_DOWNLOAD_WHY_BYTES] = "";
    TRI_TRY(tri_module_load("download", TRI_DOWNLOAD_INTERFACE, TRI_DOWNLOAD_ABI, &table));
    tri_status status = ask(g, table, why);
    // A server also refuses to go on from beyond the file's end: then the bytes are of another one.
    if (status == TRI_NOT_FOUND && g->bytes > 0 && g->begun_s == 0) {
        TRI_TRY(begin(g, false, -1));
        g->begun_s = why[0] = 0;
        status = ask(g, table, why);
    }
    if (!why[0]) return status;
    return TRI_FAIL(status, "%s: %s; %s", g->url, why,
                    status == TRI_IO ? "the same command goes on where it ended"
                                     : "on a node without a way out, get it on a login node");
}

// Puts the complete file in its place.
static tri_status publish(getting *g, const char *sha256) {
    char hash[2 * HASH_BYTES + 1];
    if (!is_complete(g, sha256, hash)) {
        tri_os.unlink(g->part);
        return TRI_FAIL(TRI_CORRUPT, "%s: its SHA-256 is %s, and not that of --sha256", g->url,
                        hash);
    }
    if (tri_os.fsync(g->fd) < 0) return tri_os_fail("sync", g->part);
    if (tri_os.rename(g->part, g->path) < 0) return tri_os_fail("rename", g->part);
    return TRI_OK;
}

static tri_status get_part(getting *g, const char *sha256) {
    char hash[2 * HASH_BYTES + 1];
    if (flock(g->fd, LOCK_EX | LOCK_NB) < 0)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: another process is getting it", g->part);
    TRI_TRY(hash_file(g, g->fd, g->part));
    if (!is_complete(g, sha256, hash)) TRI_TRY(download(g));
    return publish(g, sha256);
}

tri_status tri_data_get(const char *url, const char *sha256, const char *path, bool *was_there) {
    getting g = {.url = url, .path = path, .total_bytes = -1};
    TRI_TRY(check_request(url, sha256));
    if (snprintf(g.part, sizeof g.part, "%s.part", path) >= (int)sizeof g.part)
        return TRI_FAIL(TRI_BAD_INPUT, "--out %s: the path is too long", path);
    tri_status status = look_for_file(&g, sha256, was_there);
    if (status == TRI_OK && !*was_there) {
        g.fd = tri_os_open_or_create(g.part, O_RDWR | O_CLOEXEC, 0666);
        status = g.fd < 0 ? tri_os_fail("create", g.part) : get_part(&g, sha256);
        if (g.fd >= 0 && status != TRI_OK && g.bytes == 0) tri_os.unlink(g.part);
        if (g.fd >= 0) tri_os.close(g.fd);
    }
    EVP_MD_CTX_free(g.hash);
    return status;
}
