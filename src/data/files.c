// Expands the patterns of data.train, data.val and data.test (files.h), and hashes files.
#include "data/files.h"

#include "base/hash.h"
#include "base/os.h"

#include <ctype.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_FILES = 1 << 20 };

static void add(tri_dataset *dataset, const char *path, tri_data_files *out) {
    const char *copy = tri_arena_strdup(dataset->arena, path);
    TRI_PUSH(dataset->arena, out->paths, out->count, out->capacity) = copy;
    tri_dataset_note_file(dataset, copy);
    tri_dataset_note_source(dataset, copy);
}

// The path with a backslash before each character that patterns give a meaning.
static char *escaped(tri_arena *arena, const char *path) {
    char *out = tri_arena_alloc(arena, 2 * strlen(path) + 1), *at = out;
    for (; *path; path++) {
        if (strchr("*?[]{},~\\", *path)) *at++ = '\\';
        *at++ = *path;
    }
    *at = 0;
    return out;
}

// Adds all paths for which the pattern `name` in `folder` (NULL: it is the whole path) stands, in
// order: {000..123} counts, {a,b}, * and ? are those of a shell. A file of that very name comes
// first, and a folder has no patterns.
static tri_status expand(tri_dataset *dataset, const char *folder, const char *name,
                         tri_data_files *out) {
    const char *open = strchr(name, '{'), *dots = open ? strstr(open, "..") : NULL;
    const char *close = open ? strchr(open, '}') : NULL;
    const char *path = folder ? tri_dataset_path(dataset, name) : name;
    char *end;
    if (!strpbrk(name, "*?[{") || tri_os.access(path, F_OK) == 0) {
        add(dataset, path, out);
        return TRI_OK;
    }
    if (dots && close && dots < close && isdigit((unsigned char)open[1])) {
        int digits = (int)(dots - open - 1);
        int64_t first = strtoll(open + 1, &end, 10), last = strtoll(dots + 2, &end, 10);
        if (end != close || last < first || last - first >= MOST_FILES)
            return TRI_FAIL(TRI_BAD_INPUT, "%s: {FIRST..LAST} has to count up, at most to %d files",
                            path, MOST_FILES);
        for (int64_t i = first; i <= last; i++)
            TRI_TRY(expand(dataset, folder,
                           tri_arena_printf(dataset->arena, "%.*s%0*lld%s", (int)(open - name),
                                            name, digits, (long long)i, close + 1),
                           out));
        return TRI_OK;
    }
    glob_t found;
    size_t within = strlen(path) - strlen(name); // the folder's part of the path
    const char *pattern = tri_arena_printf(
        dataset->arena, "%s%s",
        escaped(dataset->arena, tri_arena_printf(dataset->arena, "%.*s", (int)within, path)), name);
    int result = glob(pattern, GLOB_BRACE, NULL, &found);
    if (result != 0) return TRI_FAIL(TRI_NOT_FOUND, "%s: no file has such a name", path);
    for (size_t i = 0; i < found.gl_pathc; i++) add(dataset, found.gl_pathv[i], out);
    globfree(&found);
    return TRI_OK;
}

static tri_status add_pattern(tri_dataset *dataset, const tri_tree *node, tri_data_files *out) {
    if (node->kind != TRI_TREE_SCALAR)
        return tri_tree_fail(node, "has to be a file, a pattern, or a list of them");
    if (!strncmp(node->text, "pipe:", 5) || strstr(node->text, "://"))
        return tri_tree_fail(node, "'%s' is not read: only files are, no commands and no addresses",
                             node->text);
    return expand(dataset, dataset->options->path, node->text, out);
}

tri_status tri_data_files_find(tri_dataset *dataset, const char *example, tri_data_files *out) {
    const tri_tree *files = tri_dataset_files(dataset);
    bool is_training = dataset->file_split == TRI_DATA_TRAIN;
    if (!files && is_training && dataset->options->path)
        return expand(dataset, NULL, dataset->options->path, out);
    if (!files)
        return TRI_FAIL(is_training ? TRI_BAD_INPUT : TRI_NOT_FOUND, "data.%s is not set: %s",
                        is_training ? "train" : "test", example);
    if (files->kind != TRI_TREE_LIST) return add_pattern(dataset, files, out);
    for (int i = 0; i < files->count; i++) TRI_TRY(add_pattern(dataset, files->items[i], out));
    return TRI_OK;
}

void tri_dataset_note_file(tri_dataset *dataset, const char *path) {
    tri_data_facts *facts = &dataset->facts;
    bool is_again = facts->file_count > 0 && !strcmp(facts->files[facts->file_count - 1], path);
    if (!is_again)
        TRI_PUSH(dataset->arena, facts->files, facts->file_count, facts->file_capacity) = path;
}

void tri_dataset_note_source(tri_dataset *dataset, const char *path) {
    tri_data_facts *facts = &dataset->facts;
    TRI_PUSH(dataset->arena, facts->sources, facts->source_count, facts->source_capacity) = path;
}

tri_status tri_dataset_hash_files(const tri_dataset *dataset, uint64_t *hash) {
    const tri_data_facts *facts = &dataset->facts;
    *hash = tri_hash_bytes(*hash, &facts->listing, sizeof facts->listing);
    return tri_hash_files(facts->files, facts->file_count, hash);
}

bool tri_dataset_reads_file(const tri_dataset *dataset, const char *path) {
    const tri_data_facts *facts = &dataset->facts;
    bool reads = false;
    for (int i = 0; i < facts->file_count && !reads; i++)
        reads = tri_os_is_same_file(facts->files[i], path);
    return reads;
}
