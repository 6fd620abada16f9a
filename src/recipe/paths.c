// Settles the paths of a recipe, makes them absolute for recording, and compares them. paths.h has
// the rules.
#include "recipe/paths.h"

#include "base/option_manual.h"
#include "base/shell.h"

#include <ctype.h>
#include <glob.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// True if a file has a name for which the pattern stands; {000..123} counts as *.
static bool has_match(tri_arena *arena, const char *pattern) {
    const char *open = strchr(pattern, '{'), *dots = open ? strstr(open, "..") : NULL;
    const char *close = dots ? strchr(dots, '}') : NULL;
    if (close)
        return has_match(
            arena, tri_arena_printf(arena, "%.*s*%s", (int)(open - pattern), pattern, close + 1));
    glob_t found;
    if (glob(pattern, GLOB_BRACE | GLOB_NOSORT, NULL, &found) != 0) return false;
    globfree(&found);
    return true;
}

// True if `path` exists, the file of FILE:ARRAY does, or a file of a pattern.
static bool exists(tri_arena *arena, const char *path) {
    const char *colon = strrchr(path, ':');
    if (access(path, F_OK) == 0) return true;
    if (strpbrk(path, "*?[{") && has_match(arena, path)) return true;
    return colon && access(tri_arena_printf(arena, "%.*s", (int)(colon - path), path), F_OK) == 0;
}

static bool begins(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
}

// Whether the text, a value of this row, is a path.
static bool is_path(const tri_option *row, const char *text) {
    if (row->path != TRI_PATH_OR_NAME) return row->path != TRI_PATH_NONE && *text;
    static const char *const heads[] = {"/", "./", "../", "~/", "$"};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        if (begins(text, heads[i])) return true;
    return false;
}

// Replaces $NAME, ${NAME} and a leading ~. A $ that no name follows stays.
static tri_status expand(tri_arena *arena, const tri_tree *node, const char **out) {
    char home[PATH_MAX];
    const char *at = node->text, *done = "";
    // What HOME has is not expanded again.
    if (tri_shell_home(at, home, sizeof home) == home)
        done = tri_arena_printf(arena, "%.*s", (int)(strlen(home) - strlen(++at)), home);
    for (const char *dollar; (dollar = strchr(at, '$'));) {
        bool braced = dollar[1] == '{';
        if (begins(dollar, "${oc.env:"))
            return tri_tree_fail(node, "'%s': write ${NAME} for Hydra's ${oc.env:NAME}",
                                 node->text);
        const char *name = dollar + 1 + braced;
        size_t length = 0;
        while (isalnum((unsigned char)name[length]) || name[length] == '_') length++;
        if (length == 0 || isdigit((unsigned char)*name) || (braced && name[length] != '}')) {
            done = tri_arena_printf(arena, "%s%.*s", done, (int)(dollar + 1 - at), at);
            at = dollar + 1;
            continue;
        }
        const char *variable = tri_arena_printf(arena, "%.*s", (int)length, name);
        const char *value = getenv(variable);
        if (!value)
            return tri_tree_fail(node, "'%s': the environment has no variable %s; set it",
                                 node->text, variable);
        done = tri_arena_printf(arena, "%s%.*s%s", done, (int)(dollar - at), at, value);
        at = name + length + braced;
    }
    *out = tri_arena_printf(arena, "%s%s", done, at);
    return TRI_OK;
}

// Where a relative path starts.
typedef enum start {
    AT_FOLDER,   // at the folder of another option
    AT_EITHER,   // at the working directory or, if it is not there, at the recipe's folder
    AT_RECIPE,   // at the recipe's folder
    AT_DIRECTORY // at the working directory
} start;

// The recipe whose paths are settled.
typedef struct origin {
    tri_arena *arena;
    const tri_option_table *table;
    tri_tree *root;
    const char *file;
    const char *folder;      // of `file`, with a slash at the end; NULL: the working directory
    const char *recorded_in; // the folder in which the recipe was recorded; NULL: none
    const char *run_folder;  // the folder in which that recipe lies now; NULL: not known
    const char *section;     // of the row that was settled last; its paths begin at `section_start`
    start section_start;
    tri_status status;
} origin;

// Finds the run folder of a recorded recipe. It is the folder of the file; of a recipe in a
// checkpoint, whose name is that of the checkpoint's folder, it is the folder that has the folder
// `checkpoints`.
static const char *run_folder_of(tri_arena *arena, const char *file) {
    char real[PATH_MAX];
    if (!realpath(file, real)) return NULL;
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(real, '/');
        if (!slash || slash == real) return NULL;
        *slash = 0;
        const char *name = strrchr(real, '/');
        if (up == 0 && (!name || strcmp(name, "/checkpoints") != 0)) break;
    }
    return tri_arena_strdup(arena, real);
}

static origin origin_of(tri_arena *arena, tri_tree *root, const char *file) {
    origin o = {.arena = arena, .root = root, .file = file};
    const char *slash = strrchr(file, '/');
    if (slash) o.folder = tri_arena_printf(arena, "%.*s", (int)(slash + 1 - file), file);
    const tri_tree *recorded = tri_tree_get(root, "recorded_in");
    if (recorded && recorded->kind == TRI_TREE_SCALAR) {
        o.recorded_in = recorded->text;
        o.run_folder = run_folder_of(arena, file);
    }
    return o;
}

// Returns where an absolute path would lie if it had been moved together with the run folder: as
// many folders up as from the old run folder to the path, and down again.
static const char *moved(const origin *o, const char *path) {
    const char *from = o->recorded_in, *rest = path;
    size_t common = 0;
    for (size_t i = 0;; i++) {
        bool ends = !from[i] || !path[i];
        bool at_slash = (!from[i] || from[i] == '/') && (!path[i] || path[i] == '/');
        if (at_slash) common = i;
        if (ends || from[i] != path[i]) break;
    }
    const char *up = "";
    for (const char *c = from + common; *c; c++)
        if (*c == '/' && c[1]) up = tri_arena_printf(o->arena, "%s/..", up);
    rest += common;
    return tri_arena_printf(o->arena, "%s%s%s%s", o->run_folder, up, *rest == '/' ? "" : "/", rest);
}

// Where a relative path of the recipe's file would lie beside that file. NULL: it is absolute, or
// not of that file.
static const char *beside(const origin *o, const tri_tree *node) {
    bool is_own = o->folder && node->file && !strcmp(node->file, o->file);
    if (!is_own || node->kind != TRI_TREE_SCALAR || node->text[0] == '/') return NULL;
    return tri_arena_printf(o->arena, "%s%s%s", strchr("/.", o->folder[0]) ? "" : "./", o->folder,
                            node->text + 2 * begins(node->text, "./"));
}

static tri_status settle(const origin *o, tri_tree *node, start from) {
    bool is_here = node->kind == TRI_TREE_SCALAR && exists(o->arena, node->text);
    if (node->kind != TRI_TREE_SCALAR || (is_here && from != AT_FOLDER && from != AT_RECIPE))
        return TRI_OK;
    TRI_TRY(expand(o->arena, node, &node->text));
    const char *other = NULL;
    if (node->text[0] == '/')
        other = o->recorded_in && o->run_folder ? moved(o, node->text) : NULL;
    else if (from == AT_EITHER || from == AT_RECIPE)
        other = beside(o, node);
    bool is_elsewhere = from == AT_RECIPE || !exists(o->arena, node->text);
    if (other && is_elsewhere && exists(o->arena, other)) node->text = other;
    return TRI_OK;
}

tri_status tri_recipe_settle_path(tri_arena *arena, tri_tree *node, const char *file) {
    origin o = origin_of(arena, NULL, file);
    return settle(&o, node, AT_EITHER);
}

// The folder at which the paths of this row start: that of the option `path` of the same section
// (`key` begins with the section's name), if it is set. NULL: none.
static const tri_tree *folder_of(const tri_option *row, const tri_tree *root, const char *key) {
    if (row->path != TRI_PATH_IN_FOLDER) return NULL;
    const tri_tree *folder = tri_tree_get(tri_tree_entry(root, key, strcspn(key, ".")), "path");
    return tri_tree_is_null(folder) ? NULL : folder;
}

// Where the paths of a section without the option `path` start: at one folder, which is decided by
// its training data.
static start start_of_section(const origin *o, const char *key) {
    const tri_tree *train = tri_tree_get(tri_tree_entry(o->root, key, strcspn(key, ".")), "train");
    const char *other = tri_tree_is_null(train) ? NULL : beside(o, train);
    if (!other) return AT_EITHER;
    if (exists(o->arena, train->text)) return AT_DIRECTORY;
    return exists(o->arena, other) ? AT_RECIPE : AT_EITHER;
}

static start start_of(origin *o, const tri_option_entry *entry) {
    if (folder_of(entry->row, o->root, entry->key)) return AT_FOLDER;
    if (entry->row->path != TRI_PATH_IN_FOLDER) return AT_EITHER;
    size_t section = strcspn(entry->key, ".");
    // Decided once, because settling `train` changes it.
    if (!o->section || strlen(o->section) != section ||
        strncmp(o->section, entry->key, section) != 0) {
        o->section = tri_arena_printf(o->arena, "%.*s", (int)section, entry->key);
        o->section_start = start_of_section(o, entry->key);
    }
    return o->section_start;
}

static tri_status settle_value(origin *o, const tri_option_entry *entry, tri_tree *node) {
    if (node->kind == TRI_TREE_SCALAR)
        return is_path(entry->row, node->text) ? settle(o, node, start_of(o, entry)) : TRI_OK;
    for (int i = 0; i < node->count; i++) TRI_TRY(settle_value(o, entry, node->items[i]));
    return TRI_OK;
}

tri_tree *tri_recipe_of_element(tri_arena *arena, const tri_tree *root, const char *key,
                                int index) {
    const char *section = tri_arena_printf(arena, "%.*s", (int)strcspn(key, "."), key);
    const tri_tree *outer = tri_tree_get(root, section), *list = tri_tree_find(root, key);
    const tri_tree *element = list->items[index];
    if (element->kind != TRI_TREE_MAP) return NULL;
    tri_tree *of = tri_tree_map(arena), *map = tri_tree_map(arena);
    for (int i = 0; i < element->count; i++)
        tri_tree_put(arena, map, element->items[i]->key, element->items[i]);
    const tri_tree *path = tri_tree_get(outer, "path");
    if (!tri_tree_is_null(path) && tri_tree_is_null(tri_tree_get(map, "path")))
        tri_tree_put(arena, map, "path", tri_tree_copy(arena, path));
    tri_tree_put(arena, of, section, map);
    return of;
}

// How many elements of the list at this key are to be looked into.
static int count_elements(const tri_tree *root, const tri_option_entry *entry) {
    const tri_tree *list =
        entry->row && entry->row->holds_sections ? tri_tree_find(root, entry->key) : NULL;
    return list && list->kind == TRI_TREE_LIST ? list->count : 0;
}

static void visit(void *data, const tri_option_entry *entry) {
    origin *o = data;
    for (int i = 0; i < count_elements(o->root, entry) && o->status == TRI_OK; i++) {
        origin inner = *o;
        inner.section = NULL;
        inner.root = tri_recipe_of_element(o->arena, o->root, entry->key, i);
        if (inner.root) tri_option_walk(o->table, visit, &inner);
        o->status = inner.status;
    }
    if (o->status != TRI_OK || !entry->row || entry->row->path == TRI_PATH_NONE) return;
    tri_tree *node = tri_tree_find(o->root, entry->key);
    if (!tri_tree_is_null(node)) o->status = settle_value(o, entry, node);
}

tri_status tri_recipe_settle_paths(tri_arena *arena, const tri_option_table *table, tri_tree *root,
                                   const char *file) {
    origin o = origin_of(arena, root, file);
    o.table = table;
    tri_option_walk(table, visit, &o);
    tri_tree_remove(root, "recorded_in");
    return o.status;
}

// Makes a path absolute. ./ and ../ at its beginning are resolved, because the working directory
// has no symbolic links in its path; further ones may follow a link, so they stay.
static const char *complete(tri_arena *arena, const char *path) {
    char here[PATH_MAX];
    if (path[0] == '/' || !getcwd(here, sizeof here)) return path;
    for (;;) {
        while (*path == '/') path++;
        if (begins(path, "./") || !strcmp(path, ".")) {
            path++;
        } else if (begins(path, "../") || !strcmp(path, "..")) {
            path += 2;
            char *slash = strrchr(here, '/');
            if (slash) *slash = 0;
        } else {
            break;
        }
    }
    return tri_arena_printf(arena, "%s/%s", here, path);
}

typedef struct completion {
    tri_arena *arena;
    const tri_option_table *table;
    tri_tree *root;
} completion;

static void complete_value(const completion *c, const tri_option *row, tri_tree *node) {
    if (node->kind == TRI_TREE_SCALAR && is_path(row, node->text))
        node->text = complete(c->arena, node->text);
    for (int i = 0; i < node->count; i++) complete_value(c, row, node->items[i]);
}

static void visit_complete(void *data, const tri_option_entry *entry) {
    const completion *c = data;
    for (int i = 0; i < count_elements(c->root, entry); i++) {
        tri_tree *inner = tri_recipe_of_element(c->arena, c->root, entry->key, i);
        if (inner) tri_recipe_complete_paths(c->arena, c->table, inner);
    }
    if (!entry->row || entry->row->path == TRI_PATH_NONE) return;
    tri_tree *node = tri_tree_find(c->root, entry->key);
    if (tri_tree_is_null(node)) return;
    if (!folder_of(entry->row, c->root, entry->key)) complete_value(c, entry->row, node);
}

void tri_recipe_complete_paths(tri_arena *arena, const tri_option_table *table, tri_tree *root) {
    completion c = {arena, table, root};
    tri_option_walk(table, visit_complete, &c);
}

// Returns one spelling for all paths of a file: without links, if the file exists.
static const char *canonical(tri_arena *arena, const tri_option *row, const char *key,
                             const tri_tree *root, const char *path) {
    char real[PATH_MAX];
    const tri_tree *folder = folder_of(row, root, key);
    if (folder && folder->kind == TRI_TREE_SCALAR && path[0] != '/')
        path = tri_arena_printf(arena, "%s/%s", folder->text, path);
    path = complete(arena, path);
    if (realpath(path, real)) return tri_arena_strdup(arena, real);
    const char *colon = strrchr(path, ':');
    if (colon && realpath(tri_arena_printf(arena, "%.*s", (int)(colon - path), path), real))
        return tri_arena_printf(arena, "%s%s", real, colon);
    return path;
}

// Whether a relative path whose file is gone, as the first weights of a run that goes on, is the
// end of the absolute path at which that file was recorded. Where it began cannot be found any
// more.
static bool is_end_of(tri_arena *arena, const char *recorded, const char *path) {
    if (recorded[0] != '/' || path[0] == '/' || exists(arena, recorded) || exists(arena, path))
        return false;
    while (begins(path, "./") || begins(path, "../")) path = strchr(path, '/') + 1;
    size_t whole = strlen(recorded), end = strlen(path);
    return end < whole && recorded[whole - end - 1] == '/' && !strcmp(recorded + whole - end, path);
}

bool tri_recipe_is_same_file(tri_arena *arena, const tri_option *row, const char *key,
                             const tri_tree *root_a, const tri_tree *a, const tri_tree *root_b,
                             const tri_tree *b) {
    bool texts = a && b && a->kind == TRI_TREE_SCALAR && b->kind == TRI_TREE_SCALAR;
    return row && texts && is_path(row, a->text) && is_path(row, b->text) &&
           (is_end_of(arena, a->text, b->text) ||
            !strcmp(canonical(arena, row, key, root_a, a->text),
                    canonical(arena, row, key, root_b, b->text)));
}
