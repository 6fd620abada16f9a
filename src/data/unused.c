// Finds misspelt fields among what a file has beside its fields: see unused.h.
#include "data/unused.h"

#include "base/option.h"
#include "base/quantity.h"

#include <string.h>

static bool has(const tri_strings *list, const char *name) {
    for (int i = 0; i < list->count; i++)
        if (!strcmp(list->items[i], name)) return true;
    return false;
}

tri_status tri_data_unused(tri_dataset *dataset, const char *path, const char *word,
                           const tri_strings *names, const tri_strings *taken) {
    const char *known[TRI_MAX_FIELD_NAMES], *lacking[TRI_MAX_FIELD_NAMES];
    int known_count = tri_field_list(dataset->options->extra_fields, known), count = 0;
    for (int i = 0; i < known_count; i++)
        if (!has(taken, known[i])) lacking[count++] = known[i];
    for (int i = 0; i < names->count; i++) {
        const char *name = names->items[i], *field = tri_option_nearest(name, lacking, count);
        if (field)
            return TRI_FAIL(TRI_BAD_INPUT,
                            "%s: its %s '%s' would not be used: if it is the field '%s', name all "
                            "fields in data.fields='{%s: %s, ...}'; if not, name the others there",
                            path, word, name, field, field,
                            tri_yaml_flow(dataset->arena, tri_tree_string(dataset->arena, name)));
    }
    if (names->count > 0 && !dataset->facts.rest)
        dataset->facts.rest = tri_arena_printf(
            dataset->arena, "%s, the first is '%s' of %s: data.fields says which are used",
            tri_counted(names->count, word), names->items[0], path);
    return TRI_OK;
}
