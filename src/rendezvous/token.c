// Finds the user's token, or makes one. Processes on several hosts that share the home folder may
// do so at the same time, and must all end with the same token. link(2) lets one of them create the
// file, and the other processes read that file.
#include "rendezvous/token.h"

#include "base/limits.h"
#include "base/log.h"
#include "base/os.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <openssl/evp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static tri_status derive_key(const char *text, size_t size, const char *from, store_token *out) {
    // White space at the end, such as the line feed of a text file, does not belong to the token.
    while (size > 0 && isspace((unsigned char)text[size - 1])) size--;
    if (size < TRI_MIN_TOKEN_BYTES || size > TRI_MAX_TOKEN_BYTES)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%s: the token has %zu bytes (%d to %d are allowed); `openssl rand -hex "
                        "32` makes one",
                        from, size, TRI_MIN_TOKEN_BYTES, TRI_MAX_TOKEN_BYTES);
    if (!EVP_Digest(text, size, out->key, NULL, EVP_sha256(), NULL))
        return TRI_FAIL(TRI_NO_MEMORY, "no memory to compute a SHA-256 (libcrypto)");
    return TRI_OK;
}

static tri_status check_owner(int fd, const char *path) {
    struct stat info;
    if (fstat(fd, &info) != 0) return tri_os_fail("look at", path);
    if (!S_ISREG(info.st_mode)) return TRI_FAIL(TRI_BAD_INPUT, "%s: is not a file", path);
    if (info.st_uid != geteuid())
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%s: belongs to user %ld, and this is %ld: use a token file of your own "
                        "(TRIREME_TOKEN_FILE)",
                        path, (long)info.st_uid, (long)geteuid());
    if (info.st_mode & 077)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%s: other users may read or change it (mode %03o): replace the token, and "
                        "chmod 600 the file",
                        path, (unsigned)info.st_mode & 0777);
    return TRI_OK;
}

static tri_status read_open_file(int fd, const char *path, store_token *out) {
    char text[TRI_MAX_TOKEN_BYTES + 2];
    size_t size = 0;
    TRI_TRY(check_owner(fd, path));
    while (size < sizeof text) {
        ssize_t got = tri_os.read(fd, text + size, sizeof text - size);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return tri_os_fail("read", path);
        if (got == 0) break;
        size += (size_t)got;
    }
    return derive_key(text, size, path, out);
}

// Reads a token file. TRI_NOT_FOUND: there is no such file.
static tri_status read_token_file(const char *path, store_token *out) {
    int fd = tri_os.open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0);
    if (fd < 0) return tri_os_fail("open", path);
    tri_status status = read_open_file(fd, path, out);
    tri_os.close(fd);
    return status;
}

static tri_status write_new(const char *temporary) {
    unsigned char bytes[32];
    char text[2 * sizeof bytes + 2];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        return tri_os_fail("draw", "random bytes");
    for (size_t i = 0; i < sizeof bytes; i++) snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    text[2 * sizeof bytes] = '\n';
    int fd = tri_os.open(temporary, O_WRONLY | O_CLOEXEC | O_CREAT | O_EXCL, 0600);
    if (fd < 0) return tri_os_fail("create", temporary);
    tri_status status = tri_os_write_all(fd, text, sizeof text - 1, temporary);
    if (status == TRI_OK && tri_os.fsync(fd) != 0) status = tri_os_fail("sync", temporary);
    tri_os.close(fd);
    return status;
}

// Makes the file, and the folders between the home folder and it. The home folder itself is not
// made: that of daemons is /nonexistent, and stays so.
static tri_status make_token_file(const char *home, const char *folder, const char *path) {
    struct stat info;
    if (stat(home, &info) != 0) return tri_os_fail("find the home folder", home);
    char temporary[PATH_MAX];
    TRI_TRY(tri_os_make_folders(folder));
    if (snprintf(temporary, sizeof temporary, "%s.%016llx", path,
                 (unsigned long long)tri_os_random()) >= (int)sizeof temporary)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: this path is too long", path);
    tri_status status = write_new(temporary);
    if (status == TRI_OK && link(temporary, path) == 0)
        tri_log_line(TRI_LOG_INFO, "made a token for jobs over several hosts: %s", path);
    else if (status == TRI_OK && errno != EEXIST)
        status = tri_os_fail("create", path);
    tri_os.unlink(temporary);
    return status;
}

// The default file is ~/.config/trireme/token.
typedef struct default_file {
    char home[PATH_MAX], folder[PATH_MAX], path[PATH_MAX];
} default_file;

static tri_status find_default(const char *home, default_file *out) {
    struct passwd entry, *found = NULL;
    char names[4096];
    if (!home || !*home) {
        home = NULL;
        if (getpwuid_r(geteuid(), &entry, names, sizeof names, &found) == 0 && found)
            home = found->pw_dir;
        if (!home || !*home) return TRI_FAIL(TRI_NOT_FOUND, "this user has no home folder");
    }
    const size_t size = sizeof out->path;
    if ((size_t)snprintf(out->home, size, "%s", home) >= size ||
        (size_t)snprintf(out->folder, size, "%s/.config/trireme", home) >= size ||
        (size_t)snprintf(out->path, size, "%s/.config/trireme/token", home) >= size)
        return TRI_FAIL(TRI_IO, "%.80s…: this path is too long", home);
    return TRI_OK;
}

static tri_status read_or_make_default(const char *home, store_token *out) {
    default_file file;
    TRI_TRY(find_default(home, &file));
    tri_status status = read_token_file(file.path, out);
    if (status != TRI_NOT_FOUND) return status;
    TRI_TRY(make_token_file(file.home, file.folder, file.path));
    return read_token_file(file.path, out);
}

tri_status store_token_find(const char *(*get)(const char *name), store_token *out) {
    const char *text = get("TRIREME_TOKEN"), *named = get("TRIREME_TOKEN_FILE");
    if (text && *text) return derive_key(text, strlen(text), "TRIREME_TOKEN", out);
    if (named && *named)
        return tri_status_context(read_token_file(named, out), "TRIREME_TOKEN_FILE");
    tri_status status = read_or_make_default(get("HOME"), out);
    if (status == TRI_OK || status == TRI_BAD_INPUT) return status;
    char why[TRI_MESSAGE_MAX_BYTES];
    snprintf(why, sizeof why, "%s", tri_error_message());
    return TRI_FAIL(TRI_BAD_INPUT,
                    "%.500s; for ranks on several hosts, set TRIREME_TOKEN to "
                    "a text of %d to %d bytes, the same on all hosts, or TRIREME_TOKEN_FILE to a "
                    "file with it",
                    why, TRI_MIN_TOKEN_BYTES, TRI_MAX_TOKEN_BYTES);
}
