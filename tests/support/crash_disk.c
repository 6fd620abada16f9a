// A model of a disk: its nodes (files, folders and symbolic links) as they were last synced, and
// what has changed since then: entries (names) of folders, and writes to files. It lists the states
// in which a crash may leave the disk.
#include "support/crash_disk.h"

#include "base/status.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME_BYTES = 96, MAX_NODES = 4000, MAX_ENTRIES = 64, MAX_CHANGES = 256 };

typedef enum node_kind { NODE_FILE, NODE_FOLDER, NODE_LINK } node_kind;

typedef struct entry {
    char name[NAME_BYTES];
    int node;
} entry;

typedef struct entries {
    entry items[MAX_ENTRIES];
    int count;
} entries;

typedef struct change { // a change of a folder's entries
    crash_kind kind;
    char name[NAME_BYTES], other[NAME_BYTES];
    int node; // index of the node to which a new entry leads; below 0: the change makes no entry
} change;

typedef struct node {
    node_kind kind;
    char target[CRASH_PATH_BYTES];
    // Members of a folder: its entries when it was last synced, and what has changed since then.
    entries *synced;
    change *changes;
    int change_count;
    // Members of a file.
    char *data;
    int64_t size;
    const crash_call **writes; // the file's writes and changes of size since it was last synced
    int write_count;
} node;

struct crash_disk {
    node *nodes[MAX_NODES]; // all files and folders; nodes[0] is the root folder
    int count;
    // The folders and files that have changed since they were last synced, and how many changes the
    // folders have. From these follow the states in which a crash now may leave the disk.
    int folders[MAX_NODES], folder_count, files[MAX_NODES], file_count, change_count;
    char words[256];
};

static int add_node(crash_disk *disk, node_kind kind) {
    TRI_ASSERT(disk->count < MAX_NODES);
    node *n = calloc(1, sizeof *n);
    TRI_ASSERT(n);
    n->kind = kind;
    if (kind == NODE_FOLDER) n->synced = calloc(1, sizeof *n->synced);
    disk->nodes[disk->count] = n;
    return disk->count++;
}

crash_disk *crash_disk_new(void) {
    crash_disk *disk = calloc(1, sizeof *disk);
    TRI_ASSERT(disk);
    add_node(disk, NODE_FOLDER);
    return disk;
}

void crash_disk_free(crash_disk *disk) {
    for (int i = 0; i < disk->count; i++) {
        node *n = disk->nodes[i];
        free(n->synced);
        free(n->changes);
        free(n->data);
        free(n->writes);
        free(n);
    }
    free(disk);
}

static void copy_name(char to[NAME_BYTES], const char *name) {
    TRI_ASSERT(strlen(name) < NAME_BYTES);
    memcpy(to, name, strlen(name) + 1);
}

static entry *find(entries *all, const char *name) {
    for (int i = 0; i < all->count; i++)
        if (strcmp(all->items[i].name, name) == 0) return &all->items[i];
    return NULL;
}

// Removes the entry `name` and returns the index of its node; -1: there is no such entry.
static int take(entries *all, const char *name) {
    entry *found = find(all, name);
    if (!found) return -1;
    int taken = found->node;
    *found = all->items[--all->count];
    return taken;
}

static void put(entries *all, const char *name, int to) {
    take(all, name);
    TRI_ASSERT(all->count < MAX_ENTRIES);
    entry *e = &all->items[all->count++];
    e->node = to;
    copy_name(e->name, name);
}

static void change_entries(entries *all, const change *c) {
    if (c->kind == CRASH_RENAME) {
        int moved = take(all, c->name);
        if (moved >= 0) put(all, c->other, moved);
    } else if (c->kind == CRASH_EXCHANGE) {
        entry *a = find(all, c->name), *b = find(all, c->other);
        TRI_ASSERT(a && b);
        int kept = a->node;
        a->node = b->node;
        b->node = kept;
    } else if (c->kind == CRASH_REMOVE) {
        take(all, c->name);
    } else {
        put(all, c->name, c->node);
    }
}

typedef bool choose(const crash_disk *disk, int state, const node *folder, int number);

static bool all_of(const crash_disk *disk, int state, const node *folder, int number) {
    return true;
}

static void look(const crash_disk *disk, int state, const node *folder, choose *has, entries *out) {
    *out = *folder->synced;
    for (int i = 0; i < folder->change_count; i++)
        if (has(disk, state, folder, i)) change_entries(out, &folder->changes[i]);
}

// Finds the node (file, folder or symbolic link) that programs see under a path; NULL: there is
// none. *folder: the node of the folder that contains it. *last: the last component of the path.
static node *walk(crash_disk *disk, const char *path, node **folder, const char **last) {
    char rest[CRASH_PATH_BYTES];
    entries *seen = malloc(sizeof *seen);
    TRI_ASSERT(seen);
    snprintf(rest, sizeof rest, "%s", path);
    node *at = disk->nodes[0];
    char *save = NULL;
    for (char *part = strtok_r(rest, "/", &save); part; part = strtok_r(NULL, "/", &save)) {
        TRI_ASSERT(at && at->kind == NODE_FOLDER);
        *folder = at;
        *last = path + (part - rest);
        look(disk, 0, at, all_of, seen);
        const entry *found = find(seen, part);
        at = found ? disk->nodes[found->node] : NULL;
    }
    free(seen);
    return at;
}

static void add_change(node *folder, crash_kind kind, const char *name, const char *other, int to) {
    TRI_ASSERT(folder->change_count < MAX_CHANGES);
    if (!folder->changes) folder->changes = malloc(MAX_CHANGES * sizeof *folder->changes);
    TRI_ASSERT(folder->changes);
    change *c = &folder->changes[folder->change_count++];
    *c = (change){.kind = kind, .node = to};
    copy_name(c->name, name);
    if (other) copy_name(c->other, other);
}

static void write_to(char **data, int64_t *size, const crash_call *w, int64_t bytes, bool zeros) {
    int64_t end = w->kind == CRASH_SIZE ? w->size : w->offset + bytes;
    if (end > *size || w->kind == CRASH_SIZE) {
        char *grown = realloc(*data, (size_t)end + 1);
        TRI_ASSERT(grown);
        if (end > *size) memset(grown + *size, 0, (size_t)(end - *size));
        *data = grown;
        *size = end;
    }
    if (w->kind != CRASH_WRITE || bytes == 0) return;
    if (zeros)
        memset(*data + w->offset, 0, (size_t)bytes);
    else
        memcpy(*data + w->offset, w->data, (size_t)bytes);
}

static void sync_file(node *file, int writer) {
    int left = 0;
    for (int i = 0; i < file->write_count; i++) {
        const crash_call *w = file->writes[i];
        if (w->kind == CRASH_WRITE && w->writer != writer)
            file->writes[left++] = w;
        else
            write_to(&file->data, &file->size, w, w->size, false);
    }
    file->write_count = left;
}

static void sync_folder(const crash_disk *disk, node *folder) {
    entries *seen = malloc(sizeof *seen);
    TRI_ASSERT(seen);
    look(disk, 0, folder, all_of, seen);
    *folder->synced = *seen;
    folder->change_count = 0;
    free(seen);
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

void crash_disk_apply(crash_disk *disk, const crash_call *call) {
    if (call->kind == CRASH_MARK) return;
    node *folder = NULL, *at;
    const char *name = NULL;
    at = walk(disk, call->path, &folder, &name);
    if (call->kind == CRASH_SYNC && at) {
        if (at->kind == NODE_FOLDER)
            sync_folder(disk, at);
        else
            sync_file(at, call->writer);
        return;
    }
    TRI_ASSERT(folder && name);
    if (call->kind == CRASH_WRITE || call->kind == CRASH_SIZE) {
        TRI_ASSERT(at && at->kind == NODE_FILE);
        size_t bytes = ((size_t)at->write_count + 1) * sizeof *at->writes;
        at->writes = realloc(at->writes, bytes);
        TRI_ASSERT(at->writes);
        at->writes[at->write_count++] = call;
        return;
    }
    const char *other = call->other[0] ? base_name(call->other) : NULL;
    int made = -1;
    // This model supports a rename or an exchange only within one folder.
    if (call->kind == CRASH_RENAME || call->kind == CRASH_EXCHANGE)
        TRI_ASSERT(other && !strncmp(call->path, call->other, (size_t)(name - call->path)) &&
                   call->other + (name - call->path) == other);
    if (call->kind == CRASH_CREATE) made = add_node(disk, NODE_FILE);
    if (call->kind == CRASH_MKDIR) made = add_node(disk, NODE_FOLDER);
    if (call->kind == CRASH_SYMLINK) {
        made = add_node(disk, NODE_LINK);
        snprintf(disk->nodes[made]->target, sizeof disk->nodes[made]->target, "%s", call->other);
        other = NULL;
    }
    add_change(folder, call->kind, name, other, made);
}

// From here on: the states in which a crash may leave the disk. A state says which changes of
// folders, and which writes to files, have reached the disk. The changes are all, none, only those
// of one folder, all except those of one folder, only one (with those on which it builds), or all
// except one (and those that build on it). The writes are all, none, of each file only its new
// size, of each file the first half of its writes, all except those of one file, or all except that
// one file has only its new size.

static void mark_reached(crash_disk *disk, int at, char *reached) {
    if (reached[at]) return;
    reached[at] = 1;
    const node *n = disk->nodes[at];
    if (n->kind != NODE_FOLDER) return;
    for (int i = 0; i < n->synced->count; i++)
        mark_reached(disk, n->synced->items[i].node, reached);
    for (int i = 0; i < n->change_count; i++)
        if (n->changes[i].node >= 0) mark_reached(disk, n->changes[i].node, reached);
}

static int folder_choices(const crash_disk *disk) {
    return 2 + 2 * disk->folder_count + 2 * disk->change_count;
}

int crash_disk_states(crash_disk *disk) {
    char *reached = calloc(MAX_NODES, 1);
    TRI_ASSERT(reached);
    mark_reached(disk, 0, reached);
    disk->folder_count = disk->file_count = disk->change_count = 0;
    for (int i = 0; i < disk->count; i++) {
        const node *n = disk->nodes[i];
        if (!reached[i]) continue;
        if (n->change_count) disk->folders[disk->folder_count++] = i;
        disk->change_count += n->change_count;
        if (n->write_count) disk->files[disk->file_count++] = i;
    }
    free(reached);
    return folder_choices(disk) * (4 + 2 * disk->file_count);
}

static bool share_a_name(const change *a, const change *b) {
    const char *x[] = {a->name, a->other}, *y[] = {b->name, b->other};
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++)
            if (x[i][0] && !strcmp(x[i], y[j])) return true;
    return false;
}

// Whether change `late` builds on change `early` of the same folder, directly (they share a name)
// or through others.
static bool builds_on(const node *folder, int late, int early) {
    if (late == early) return true;
    bool on[MAX_CHANGES] = {0};
    on[early] = true;
    for (int i = early + 1; i <= late; i++)
        for (int j = early; j < i && !on[i]; j++)
            on[i] = on[j] && share_a_name(&folder->changes[i], &folder->changes[j]);
    return on[late];
}

static bool chosen(const crash_disk *disk, int state, const node *folder, int number) {
    int choice = state % folder_choices(disk);
    if (choice < 2) return choice == 0;
    choice -= 2;
    if (choice < 2 * disk->folder_count) {
        bool is_it = folder == disk->nodes[disk->folders[choice / 2]];
        return is_it == (choice % 2 == 0);
    }
    choice -= 2 * disk->folder_count;
    int wanted = choice / 2, i = 0;
    while (wanted >= disk->nodes[disk->folders[i]]->change_count)
        wanted -= disk->nodes[disk->folders[i++]]->change_count;
    bool is_it = folder == disk->nodes[disk->folders[i]];
    if (choice % 2 == 0) return is_it && builds_on(folder, wanted, number);
    return !is_it || !builds_on(folder, number, wanted);
}

typedef enum amount { AMOUNT_ALL, AMOUNT_NONE, AMOUNT_SIZE, AMOUNT_HALF } amount;

static amount amount_of(const crash_disk *disk, int state, const node *file) {
    int choice = state / folder_choices(disk);
    if (choice < 4) return (amount)choice;
    choice -= 4;
    if (file != disk->nodes[disk->files[choice / 2]]) return AMOUNT_ALL;
    return choice % 2 == 0 ? AMOUNT_NONE : AMOUNT_SIZE;
}

static char *contents(const crash_disk *disk, int state, const node *file, int64_t *size) {
    char *data = malloc((size_t)file->size + 1);
    TRI_ASSERT(data);
    if (file->size) memcpy(data, file->data, (size_t)file->size);
    *size = file->size;
    amount how = file->write_count ? amount_of(disk, state, file) : AMOUNT_NONE;
    for (int i = 0; i < file->write_count && how != AMOUNT_NONE; i++) {
        const crash_call *w = file->writes[i];
        int64_t bytes = w->size;
        if (how == AMOUNT_HALF && w->kind == CRASH_WRITE && i >= file->write_count / 2)
            bytes = i == file->write_count / 2 ? bytes / 2 : 0;
        write_to(&data, size, w, bytes, how == AMOUNT_SIZE);
    }
    return data;
}

static uint64_t mix(uint64_t hash, const void *data, size_t size) {
    const unsigned char *bytes = data;
    for (size_t i = 0; i < size; i++) hash = (hash ^ bytes[i]) * 0x100000001b3u;
    return hash;
}

// Hashes a file, a link, or a folder with all that it contains. The order of a folder's entries
// does not matter, so their hashes are added.
static uint64_t hash_node(const crash_disk *disk, int state, const node *n) {
    uint64_t hash = mix(0xcbf29ce484222325u, &n->kind, sizeof n->kind);
    if (n->kind == NODE_LINK) return mix(hash, n->target, strlen(n->target));
    if (n->kind == NODE_FILE) {
        int64_t size;
        char *data = contents(disk, state, n, &size);
        hash = mix(hash, data, (size_t)size);
        free(data);
        return hash;
    }
    entries *seen = malloc(sizeof *seen);
    TRI_ASSERT(seen);
    look(disk, state, n, chosen, seen);
    for (int i = 0; i < seen->count; i++) {
        uint64_t below = hash_node(disk, state, disk->nodes[seen->items[i].node]);
        hash += mix(below * 0x9e3779b97f4a7c15u, seen->items[i].name, strlen(seen->items[i].name));
    }
    free(seen);
    return hash;
}

uint64_t crash_disk_hash(crash_disk *disk, int state) {
    return hash_node(disk, state, disk->nodes[0]);
}

static void show_file(const crash_disk *disk, int state, const node *file, const char *path) {
    int64_t size;
    char *data = contents(disk, state, file, &size);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    TRI_ASSERT(fd >= 0 && write(fd, data, (size_t)size) == size);
    close(fd);
    free(data);
}

static void show_folder(const crash_disk *disk, int state, const node *folder, const char *root) {
    entries *seen = malloc(sizeof *seen);
    TRI_ASSERT(seen);
    look(disk, state, folder, chosen, seen);
    for (int i = 0; i < seen->count; i++) {
        char path[4 * CRASH_PATH_BYTES];
        const node *n = disk->nodes[seen->items[i].node];
        int used = snprintf(path, sizeof path, "%s/%s", root, seen->items[i].name), made = 0;
        TRI_ASSERT(used < (int)sizeof path);
        if (n->kind == NODE_FILE) show_file(disk, state, n, path);
        if (n->kind == NODE_LINK) made = symlink(n->target, path);
        if (n->kind == NODE_FOLDER) {
            made = mkdir(path, 0777);
            show_folder(disk, state, n, path);
        }
        TRI_ASSERT(made == 0);
    }
    free(seen);
}

void crash_disk_show(crash_disk *disk, int state, const char *root) {
    show_folder(disk, state, disk->nodes[0], root);
}

const char *crash_disk_tell(crash_disk *disk, int state) {
    static const char *const amounts[] = {"all", "nothing", "only the size", "half"};
    size_t used = (size_t)snprintf(disk->words, sizeof disk->words, "changes of names:");
    for (int i = 0; i < disk->folder_count; i++) {
        const node *folder = disk->nodes[disk->folders[i]];
        used += (size_t)snprintf(disk->words + used, sizeof disk->words - used, " ");
        for (int j = 0; j < folder->change_count && used < sizeof disk->words - 64; j++)
            used += (size_t)snprintf(disk->words + used, sizeof disk->words - used, "%c",
                                     chosen(disk, state, folder, j) ? '1' : '0');
    }
    used += (size_t)snprintf(disk->words + used, sizeof disk->words - used, "; of writes:");
    for (int i = 0; i < disk->file_count && used < sizeof disk->words - 16; i++)
        used += (size_t)snprintf(disk->words + used, sizeof disk->words - used, " %s",
                                 amounts[amount_of(disk, state, disk->nodes[disk->files[i]])]);
    return disk->words;
}
