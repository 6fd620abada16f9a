// Names files that are made of the data, and lets one process make them.
#include "data/cache.h"

#include "base/hash.h"
#include "base/log.h"
#include "base/os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WAIT_MS = 50, NAME_DIGITS = 16 };

static tri_file_state state_of(const struct stat *info) {
    return (tri_file_state){info->st_size, info->st_mtim.tv_sec, info->st_mtim.tv_nsec};
}

tri_status tri_file_state_of(const char *path, tri_file_state *out) {
    struct stat info;
    TRI_TRY(tri_os_check_file(path));
    if (stat(path, &info) < 0) return tri_os_fail("look at", path);
    *out = state_of(&info);
    return TRI_OK;
}

tri_status tri_file_state_of_open(int fd, const char *path, tri_file_state *out) {
    struct stat info;
    if (fstat(fd, &info) < 0) return tri_os_fail("look at", path);
    *out = state_of(&info);
    return TRI_OK;
}

bool tri_file_state_equal(const tri_file_state *a, const tri_file_state *b) {
    return a->size == b->size && a->seconds == b->seconds && a->nanoseconds == b->nanoseconds;
}

static const char *folder_above(tri_arena *arena, const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash) return ".";
    return tri_arena_printf(arena, "%.*s", slash == path ? 1 : (int)(slash - path), path);
}

// The user's own folder for such files; NULL: there is none.
static const char *own_folder(tri_arena *arena) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache && *cache == '/') return tri_arena_printf(arena, "%s/trireme", cache);
    return home && *home ? tri_arena_printf(arena, "%s/.cache/trireme", home) : NULL;
}

typedef struct digest {
    EVP_MD_CTX *hash;
} digest;

static digest digest_begin(void) {
    digest d = {EVP_MD_CTX_new()};
    TRI_ASSERT(d.hash && EVP_DigestInit_ex(d.hash, EVP_sha256(), NULL));
    return d;
}

static void digest_add(digest *d, const void *data, size_t size) {
    TRI_ASSERT(EVP_DigestUpdate(d->hash, data, size));
}

static void digest_end(digest *d, uint8_t out[TRI_CACHE_KEY_BYTES]) {
    TRI_ASSERT(EVP_DigestFinal_ex(d->hash, out, NULL));
    EVP_MD_CTX_free(d->hash);
}

static const char *digits_of(const uint8_t *key, char out[NAME_DIGITS + 1]) {
    for (int i = 0; 2 * i < NAME_DIGITS; i++) snprintf(out + 2 * i, 3, "%02x", key[i]);
    return out;
}

// Adds the path: without the folder of the data if the file is made there, so that hosts which
// mount that folder at different places share it; else from the root on.
static void add_path(digest *d, const char *folder, const char *path) {
    char whole[PATH_MAX];
    size_t length = folder ? strlen(folder) : 0;
    if (folder && !strncmp(path, folder, length))
        path += length;
    else if (realpath(path, whole))
        path = whole;
    digest_add(d, path, strlen(path) + 1);
}

static tri_status hash_content(const tri_cache_request *of, uint64_t *out) {
    *out = TRI_HASH_OF_NOTHING;
    if (of->blocks == 0) return tri_hash_files(of->paths, of->count, out);
    for (int i = 0; i < of->count; i++) TRI_TRY(tri_hash_file(of->paths[i], of->blocks, out));
    return TRI_OK;
}

static void name_in(tri_arena *arena, const char *folder, bool is_beside,
                    const tri_cache_request *of, uint64_t content, tri_cache *out) {
    uint8_t identity[TRI_CACHE_KEY_BYTES];
    char identity_digits[NAME_DIGITS + 1], state_digits[NAME_DIGITS + 1];
    const char *slash = strrchr(of->paths[0], '/');
    digest of_identity = digest_begin(), of_all = digest_begin();
    digest_add(&of_identity, of->settings, strlen(of->settings) + 1);
    for (int i = 0; i < of->count; i++)
        add_path(&of_identity, is_beside && slash ? folder : NULL, of->paths[i]);
    digest_end(&of_identity, identity);
    digest_add(&of_all, identity, sizeof identity);
    for (int i = 0; i < of->count; i++) digest_add(&of_all, &of->states[i], sizeof *of->states);
    digest_add(&of_all, &content, sizeof content);
    digest_end(&of_all, out->key);
    out->folder = folder;
    out->identity = tri_arena_printf(arena, ".%s.%s", slash ? slash + 1 : of->paths[0],
                                     digits_of(identity, identity_digits));
    out->stem = tri_arena_printf(arena, "%s/%s-%s", folder, out->identity,
                                 digits_of(out->key, state_digits));
    out->path = tri_arena_printf(arena, "%s%s", out->stem, of->suffix);
    out->lock = tri_arena_printf(arena, "%s/%s.lock", folder, out->identity);
}

// Another user has made it and keeps it from this one. A folder with the sticky bit would not even
// let it be replaced.
static bool is_kept_away(const char *path, int mode) {
    return tri_os.access(path, F_OK) == 0 && tri_os.access(path, mode) != 0;
}

tri_status tri_cache_name(tri_arena *arena, const tri_cache_request *of, tri_cache *out) {
    const char *beside = folder_above(arena, of->paths[0]), *own = own_folder(arena);
    uint64_t content;
    TRI_TRY(hash_content(of, &content));
    name_in(arena, of->folder ? of->folder : beside, !of->folder, of, content, out);
    if (of->folder || !own || tri_os.access(out->path, R_OK) == 0) return TRI_OK;
    if (tri_os.access(beside, W_OK) != 0 || is_kept_away(out->path, R_OK) ||
        is_kept_away(out->lock, W_OK))
        name_in(arena, own, false, of, content, out);
    return TRI_OK;
}

static bool is_stale(const tri_cache *cache, const char *name) {
    static const char temporary[] = ".tmp";
    size_t length = strlen(cache->identity), folder = strlen(cache->folder) + 1,
           stem = strlen(cache->stem + folder), end = strlen(name);
    if (strncmp(name, cache->identity, length) != 0 || name[length] != '-') return false;
    // On a network a host may not see yet what another one has made, and uses.
    bool is_current = !strncmp(name, cache->stem + folder, stem);
    return !is_current ||
           (end > sizeof temporary - 1 && !strcmp(name + end - (sizeof temporary - 1), temporary));
}

// Removes files of this identity and of other states, and what killed processes have left. The
// caller has the lock.
static void remove_stale(const tri_cache *cache) {
    DIR *folder = opendir(cache->folder);
    if (!folder) return;
    for (struct dirent *entry; (entry = readdir(folder));) {
        char path[PATH_MAX];
        if (!is_stale(cache, entry->d_name)) continue;
        if (snprintf(path, sizeof path, "%s/%s", cache->folder, entry->d_name) < (int)sizeof path)
            tri_os.unlink(path);
    }
    closedir(folder);
}

// Waits until no other process has the lock. *has_lock is false if the file system has no locks.
static void wait_for_lock(const tri_cache *cache, int fd, bool *has_lock) {
    bool told = false;
    while (tri_os.lock(fd) != 0) {
        *has_lock = errno == EAGAIN || errno == EACCES || errno == EINTR;
        if (!*has_lock) return;
        if (!told)
            tri_log_line(TRI_LOG_DEBUG, "waiting for the process that makes %s", cache->path);
        told = true;
        tri_os.sleep_ns((int64_t)WAIT_MS * 1000000);
    }
    *has_lock = true;
}

// Opens and locks the lock's file. Another process may have removed it before the lock was there:
// then it is no lock against those that come later, and is opened again.
static tri_status take_lock(const tri_cache *cache, int *fd, bool *has_lock) {
    for (;;) {
        struct stat info;
        *fd = tri_os_open_or_create(cache->lock, O_RDWR | O_CLOEXEC, 0666);
        if (*fd < 0) return tri_os_fail("create", cache->lock);
        wait_for_lock(cache, *fd, has_lock);
        if (!*has_lock || fstat(*fd, &info) < 0 || info.st_nlink > 0) return TRI_OK;
        tri_os.close(*fd);
    }
}

tri_status tri_cache_once(const tri_cache *cache, const tri_cache_maker *maker) {
    int fd;
    bool found = false, has_lock = false;
    TRI_TRY(maker->find(maker->context, &found));
    if (found) return TRI_OK;
    tri_status status = tri_os_make_folders(cache->folder);
    if (status == TRI_OK) status = take_lock(cache, &fd, &has_lock);
    if (status != TRI_OK)
        return tri_status_context(status, "a folder is needed for what is made of the data "
                                          "(data.cache)");
    status = maker->find(maker->context, &found);
    if (status == TRI_OK && !found) {
        if (has_lock) remove_stale(cache);
        status = maker->make(maker->context);
    }
    tri_os.unlink(cache->lock);
    tri_os.close(fd);
    return status;
}
