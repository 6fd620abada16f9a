// `trireme data dump`: writes samples as the model gets them.
#include "data/dump.h"

#include "base/limits.h"
#include "cli/cli.h"
#include "cli/data_verbs.h"

#include <string.h>

static tri_status read_count(const cli_arguments *a, const char *flag, const char *otherwise,
                             int64_t least, int64_t *out) {
    const char *text = cli_value(a, flag);
    double value;
    if (!text) text = otherwise;
    if (!tri_quantity_read(text, &value) || value < (double)least || value > TRI_MAX_SAMPLES ||
        value != (double)(int64_t)value)
        return TRI_FAIL(TRI_BAD_INPUT, "--%s %s: has to be a whole number of at least %lld", flag,
                        text, (long long)least);
    *out = (int64_t)value;
    return TRI_OK;
}

static tri_status read_split(const cli_arguments *a, tri_data_split *out) {
    static const char *const names[] = {"train", "val", "test"};
    const char *text = cli_value(a, "split");
    for (int i = 0; i < 3; i++) {
        *out = (tri_data_split)i;
        if (!strcmp(text ? text : "train", names[i])) return TRI_OK;
    }
    return TRI_FAIL(TRI_BAD_INPUT, "--split %s: has to be train, val or test", text);
}

tri_status cli_data_dump(const cli_arguments *a, const char *path, const tri_recipe *recipe) {
    const char *out = cli_value(a, "out");
    tri_data_split split;
    int64_t first, count;
    if (!out) return TRI_FAIL(TRI_BAD_INPUT, "data dump: --out is missing: the file to write");
    TRI_TRY(read_split(a, &split));
    TRI_TRY(read_count(a, "first", "0", 0, &first));
    TRI_TRY(read_count(a, "count", "1", 1, &count));
    TRI_TRY(cli_check_output("out", out, path));
    return tri_data_dump(&recipe->data, split, (uint64_t)recipe->seed, first, count, out);
}
