// Reads data.mix: see sources.h.
#include "data/sources.h"

#include <string.h>

// Which keys of the section `data` a source has for itself, beside those of its kind. All others
// apply to the mixture as a whole.
static const char *const own_keys[] = {"name", "path", "train", "val", "test", "sequence"};

static bool is_own_key(const char *key) {
    for (size_t i = 0; i < sizeof own_keys / sizeof *own_keys; i++)
        if (!strcmp(own_keys[i], key)) return true;
    for (int i = 0; i < tri_data_table.count; i++)
        if (!strcmp(tri_data_table.rows[i].key, key)) return false;
    return true; // of its kind, or unknown
}

static tri_status read_source(tri_arena *arena, const tri_data_options *outer,
                              const tri_tree *entry, tri_data_source *out) {
    tri_tree *own = tri_tree_map(arena);
    tri_data_options *options = &out->options;
    if (entry->kind != TRI_TREE_MAP)
        return tri_tree_fail(entry, "a source of 'data.mix' has to be a map: {name: webdataset, "
                                    "train: a.tar, weight: 2}");
    own->file = entry->file;
    own->line = entry->line;
    for (int i = 0; i < entry->count; i++) {
        const tri_tree *item = entry->items[i];
        if (!is_own_key(item->key))
            return tri_tree_fail(item, "'%s' belongs to 'data', and not to one source of it",
                                 item->key);
        if (strcmp(item->key, "weight") != 0)
            tri_tree_put(arena, own, item->key, tri_tree_copy(arena, item));
        else if (!tri_tree_to_double(item, &out->weight) || out->weight <= 0)
            return tri_tree_fail(item, "'weight' has to be a number above 0");
    }
    TRI_TRY(tri_option_decode(arena, &tri_data_table, own, options));
    if (!strcmp(options->name, "mixture"))
        return tri_tree_fail(entry, "a source of 'data.mix' cannot be a mixture itself");
    const tri_tree *sequence = tri_tree_get(entry, "sequence");
    if (sequence && !tri_data_is_text(options))
        return tri_tree_fail(sequence,
                             "'sequence' has no effect: the data of this source, %s, are "
                             "not text",
                             options->name);
    if (!sequence) options->sequence = outer->sequence;
    if (!options->path) options->path = outer->path;
    options->on_error = outer->on_error;
    options->extra_fields = outer->extra_fields;
    options->may_lack_fields = outer->may_lack_fields;
    return TRI_OK;
}

// Refuses settings of the section that belong to its sources.
static tri_status check_outer(const tri_data_options *outer) {
    const tri_tree *files[TRI_DATA_SPLITS] = {outer->train, outer->val, outer->test};
    for (int i = 0; i < TRI_DATA_SPLITS; i++) {
        const char *key = tri_data_split_key((tri_data_split)i);
        if (!tri_tree_is_null(files[i]))
            return tri_tree_fail(files[i],
                                 "'data.%s' does not apply to data.name=mixture: give the sources "
                                 "'%s'",
                                 key, key);
    }
    if (outer->limit > 0 || outer->val_fraction > 0)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "data.limit and data.val_fraction do not apply to data.name=mixture: a "
                        "sample may come several times; give the sources 'val'");
    return TRI_OK;
}

tri_status tri_data_sources_read(tri_arena *arena, const tri_data_options *options,
                                 tri_data_source **out, int *count) {
    const tri_tree *list = options->mix;
    bool is_list = list && list->kind == TRI_TREE_LIST && list->count > 0;
    *count = 0;
    if (!is_list || list->count > TRI_MAX_SOURCES)
        return tri_tree_fail(list,
                             "'data.mix' has to be a list of 1 to %d sources: [{name: "
                             "webdataset, train: a.tar, weight: 2}, ...]",
                             TRI_MAX_SOURCES);
    TRI_TRY(check_outer(options));
    tri_data_source *sources = *out = TRI_NEW_ARRAY(arena, tri_data_source, list->count);
    for (int i = 0; i < list->count; i++) {
        TRI_TRY(read_source(arena, options, list->items[i], &sources[i]));
        if ((sources[i].weight > 0) != (sources[0].weight > 0))
            return tri_tree_fail(list->items[i], "'weight' has to be given for all sources of "
                                                 "'data.mix', or for none");
    }
    *count = list->count;
    return TRI_OK;
}

bool tri_data_sources_any(const tri_data_options *options,
                          bool (*is)(const tri_data_options *source, tri_data_split split),
                          tri_data_split split) {
    tri_arena *arena = tri_arena_create(NULL, "sources");
    tri_data_source *sources;
    int count;
    bool is_any = false;
    if (tri_data_sources_read(arena, options, &sources, &count) != TRI_OK) count = 0;
    for (int i = 0; i < count; i++) is_any |= is(&sources[i].options, split);
    tri_arena_destroy(arena);
    return is_any;
}
