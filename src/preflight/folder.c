// Checks the run folder: whether there is space, and how long it takes until a small file is on the
// disk. The first rank of each host measures. Nothing remains: the name of the file is removed as
// soon as the file is open, so that the system deletes it when it is closed.
#include "preflight/state.h"

#include "base/os.h"
#include "base/quantity.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>

enum { FSYNCS = 5, SMALL_BYTES = 4096, WRITTEN_BYTES = 16 << 20, CHUNK_BYTES = 1 << 20 };

// The kinds of file systems that a message can name. magic: the number by which statfs identifies
// the kind, as the sources of Linux, Lustre, GPFS and BeeGFS define it.
static const struct {
    long magic;
    const char *name;
} kinds[] = {
    {0xef53, "ext4"},     {0x58465342, "xfs"},    {0x9123683e, "btrfs"},   {0x01021994, "tmpfs"},
    {0x6969, "nfs"},      {0x0bd00bd0, "lustre"}, {0x47504653, "gpfs"},    {0x19830326, "beegfs"},
    {0x00c36400, "ceph"}, {0x65735546, "fuse"},   {0x794c7630, "overlay"}, {0xff534d42, "cifs"},
    {0x2fc12fc1, "zfs"},  {0x01021997, "9p"},
};

static void name_kind(const char *path, char *out, size_t size) {
    struct statfs info;
    out[0] = 0;
    if (statfs(path, &info) != 0) return;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].magic == (long)info.f_type) snprintf(out, size, "%s", kinds[i].name);
}

// Finds the run folder or, if it does not exist yet, the nearest existing folder above it, because
// the system tells the free space only of an existing folder.
static const char *existing(tri_arena *arena, const char *path) {
    struct stat info;
    char *at = tri_arena_strdup(arena, path);
    for (size_t length = strlen(at); length > 1 && at[length - 1] == '/';) at[--length] = 0;
    while (stat(at, &info) != 0 && errno == ENOENT) {
        char *slash = strrchr(at, '/');
        if (!slash) return ".";
        slash[slash == at] = 0;
        if (!strcmp(at, "/")) break;
    }
    return at;
}

static tri_status open_nameless(const char *folder, char *path, int *fd) {
    snprintf(path, PATH_MAX, "%s/.trireme-preflight-%016llx", folder,
             (unsigned long long)tri_os_random());
    *fd = tri_os.open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (*fd < 0) return tri_os_fail("create a file", folder);
    if (tri_os.unlink(path) != 0) return tri_os_fail("remove", path);
    return TRI_OK;
}

static tri_status write_chunks(int fd, const char *folder) {
    char *chunk = calloc(1, CHUNK_BYTES);
    if (!chunk) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a file");
    // The bytes are not all zeros, because a file system might not store zeros.
    for (int i = 0; i < CHUNK_BYTES; i++) chunk[i] = (char)(i * 167 >> 3);
    tri_status status = TRI_OK;
    for (int64_t at = 0; at < WRITTEN_BYTES && status == TRI_OK; at += CHUNK_BYTES)
        status = tri_os_pwrite_all(fd, chunk, CHUNK_BYTES, at, folder);
    free(chunk);
    return status;
}

static tri_status time_writes(int fd, const char *folder, preflight_folder *out) {
    char small[SMALL_BYTES] = {0};
    out->fsync_s = 1e9;
    for (int i = 0; i < FSYNCS; i++) {
        small[0] = (char)i;
        TRI_TRY(tri_os_pwrite_all(fd, small, sizeof small, 0, folder));
        double begin = tri_os_seconds();
        if (tri_os.fsync(fd) != 0) return tri_os_fail("sync", folder);
        double passed = tri_os_seconds() - begin;
        if (passed < out->fsync_s) out->fsync_s = passed;
    }
    double begin = tri_os_seconds();
    TRI_TRY(write_chunks(fd, folder));
    if (tri_os.fsync(fd) != 0) return tri_os_fail("sync", folder);
    out->write_bytes_per_s = WRITTEN_BYTES / (tri_os_seconds() - begin);
    return TRI_OK;
}

static tri_status try_folder(const char *folder, preflight_folder *out) {
    struct statvfs info;
    char path[PATH_MAX];
    int fd;
    name_kind(folder, out->kind, sizeof out->kind);
    if (statvfs(folder, &info) != 0) return tri_os_fail("look at", folder);
    out->free_bytes = (double)info.f_bavail * (double)info.f_frsize;
    TRI_TRY(open_nameless(folder, path, &fd));
    tri_status status = time_writes(fd, folder, out);
    tri_os.close(fd);
    return status;
}

// Sets *now, the result of this attempt to measure, to the best values of it and of the attempt
// before. A folder that was usable in one of them counts as usable.
static void keep_best(const preflight_folder *before, preflight_folder *now) {
    if (before->failure[0]) return;
    if (now->failure[0]) {
        *now = *before;
        return;
    }
    if (before->fsync_s < now->fsync_s) now->fsync_s = before->fsync_s;
    if (before->write_bytes_per_s > now->write_bytes_per_s)
        now->write_bytes_per_s = before->write_bytes_per_s;
}

static tri_status measure(preflight *p) {
    preflight_folder mine = {0};
    char absolute[PATH_MAX];
    const char *folder = existing(p->arena, p->request->run_dir);
    p->folder = tri_arena_strdup(p->arena, realpath(folder, absolute) ? absolute : folder);
    if (preflight_is_first(p) && try_folder(p->folder, &mine) != TRI_OK)
        snprintf(mine.failure, sizeof mine.failure, "%s", tri_error_message());
    if (p->folders && preflight_is_first(p)) keep_best(&p->folders[p->identity.rank], &mine);
    p->folders = TRI_NEW_ARRAY(p->arena, preflight_folder, p->identity.size);
    return preflight_gather(p, &mine, p->folders, sizeof mine, "run folder");
}

static tri_tree *folder_tree(const preflight *p, const preflight_folder *f, int host) {
    tri_tree *entry = tri_tree_map(p->arena);
    tri_tree_put(p->arena, entry, "host", tri_tree_string(p->arena, p->host_names[host]));
    tri_tree_put(p->arena, entry, "file_system", tri_tree_string(p->arena, f->kind));
    tri_tree_put(p->arena, entry, "free_bytes", tri_tree_double(p->arena, f->free_bytes));
    tri_tree_put(p->arena, entry, "fsync_s", tri_tree_double(p->arena, f->fsync_s));
    tri_tree_put(p->arena, entry, "write_bytes_per_s",
                 tri_tree_double(p->arena, f->write_bytes_per_s));
    return entry;
}

static void judge(preflight *p, preflight_row *row) {
    const preflight_limits *limits = &p->request->limits;
    const char **texts = TRI_NEW_ARRAY(p->arena, const char *, p->host_count);
    preflight_list broken = {.arena = p->arena}, full = broken, slow = broken;
    row->values = tri_tree_list(p->arena);
    double fsync_s = 0;
    for (int h = 0; h < p->host_count; h++) {
        const preflight_folder *f = &p->folders[p->first[h]];
        const char *host = p->host_names[h];
        texts[h] = f->failure[0]
                       ? "not usable"
                       : tri_arena_printf(p->arena, "%s%s%s free", f->kind, f->kind[0] ? ", " : "",
                                          tri_bytes_text(f->free_bytes));
        tri_tree_append(p->arena, row->values, folder_tree(p, f, h));
        if (f->fsync_s > fsync_s) fsync_s = f->fsync_s;
        if (f->failure[0])
            preflight_list_add(&broken, "%s: %s", host, f->failure);
        else if (f->free_bytes < limits->space_gb * 1e9)
            preflight_list_add(&full, "%s has %s", host, tri_bytes_text(f->free_bytes));
        else if (f->fsync_s * 1e3 > limits->fsync_ms)
            preflight_list_add(&slow, "%s needs %s", host, tri_duration_text(f->fsync_s));
    }
    row->summary = preflight_by_host(p, texts);
    if (fsync_s > 0)
        row->summary = tri_arena_printf(p->arena, "%s, fsync within %s", row->summary,
                                        tri_duration_text(fsync_s));
    if (broken.count) preflight_fail(p, row, "%s", preflight_list_text(&broken));
    if (full.count)
        preflight_fail(p, row, "%s: %s free, less than %g GB", p->folder,
                       preflight_list_text(&full), limits->space_gb);
    if (slow.count)
        preflight_fail(p, row, "%s: %s to sync a small file, more than %s", p->folder,
                       preflight_list_text(&slow), tri_seconds_text(limits->fsync_ms * 1e-3));
}

const preflight_check preflight_run_folder = {
    .name = "run-folder", .attempts = 2, .measure = measure, .judge = judge};
