// The manual of option tables, for `trireme train --keys`, the manual page, completion and
// docs/recipe.md. All are made from the rows of the tables (base/option.h), so that none can be out
// of date. A variant is one of the kinds that a section can have, with rows of its own, such as
// adam of the section `optimizer`.
#ifndef TRIREME_BASE_OPTION_MANUAL_H
#define TRIREME_BASE_OPTION_MANUAL_H

#include "base/option.h"

#include <stdio.h>

// One entry of a table's manual, in one of two forms:
// - An option: `row` is set. `key` is its whole path ("optimizer.lr", "model.*"). `allowed`
//   describes its values; NULL: free text. `variant` is the variant to which the row belongs; NULL:
//   none.
// - The head of a variant: `row` is NULL, and `key` is the key that chooses the variant
//   ("optimizer.name"). The entries of the variant's rows follow.
// If a row has several kinds (tri_option.kinds), each kind is listed as a variant.
typedef struct tri_option_entry {
    const char *key;
    const tri_option *row;
    const tri_option_variant *variant;
    const char *allowed;
    bool is_element; // `key` belongs to an element of a list, so it is not a path of a recipe
} tri_option_entry;
typedef void tri_option_visit(void *data, const tri_option_entry *entry);
// Calls `visit` for all entries in the order of the rows, with the entries of nested tables in
// between.
void tri_option_walk(const tri_option_table *table, tri_option_visit *visit, void *data);
// Prints the manual: key, default, help, allowed values. It prints only keys that begin with
// `prefix` ("": all). False: there are none.
bool tri_option_print(const tri_option_table *table, const char *prefix, FILE *out);

#endif
