// `trireme data dump`: writes samples as the model gets them.
#include "data/dump.h"

#include "base/limits.h"
#include "cli/cli.h"
#include "cli/data_verbs.h"
#include "data/sheet.h"

#include <stdio.h>
#include <string.h>

tri_status cli_data_split(const cli_arguments *a, tri_data_split *out) {
    const char *text = cli_value(a, "split");
    for (int i = 0; i < TRI_DATA_SPLITS; i++) {
        *out = (tri_data_split)i;
        if (!strcmp(text ? text : "train", tri_data_split_key(*out))) return TRI_OK;
    }
    return TRI_FAIL(TRI_BAD_INPUT, "--split %s: has to be train, val or test", text);
}

static tri_status write_png(const tri_data_options *data, tri_data_split split, uint64_t seed,
                            int64_t first, int64_t count, const char *path) {
    tri_data_sheet sheet;
    TRI_TRY(tri_data_sheet_write(data, split, seed, first, count, path, &sheet));
    printf("%s: samples %lld to %lld, %lld in a row", path, (long long)first,
           (long long)(first + count - 1), (long long)sheet.columns);
    if (sheet.has_range) printf("; black is %.4g, white %.4g", sheet.black, sheet.white);
    printf("\n");
    return TRI_OK;
}

tri_status cli_data_dump(const cli_arguments *a, const char *path, const tri_recipe *recipe) {
    const char *out = cli_value(a, "out"), *png = cli_value(a, "png");
    tri_data_split split;
    int64_t first = 0, count = 1;
    if (!out && !png)
        return TRI_FAIL(TRI_BAD_INPUT, "data dump: name the file to write: --out or --png");
    TRI_TRY(cli_data_split(a, &split));
    TRI_TRY(cli_read_whole(a, "first", 0, TRI_MAX_SAMPLES, &first));
    TRI_TRY(cli_read_whole(a, "count", 1, TRI_MAX_SAMPLES, &count));
    TRI_TRY(cli_check_output("out", out, path));
    TRI_TRY(cli_check_output("png", png, path));
    uint64_t seed = (uint64_t)recipe->seed;
    if (out) TRI_TRY(tri_data_dump(&recipe->data, split, seed, first, count, out));
    return png ? write_png(&recipe->data, split, seed, first, count, png) : TRI_OK;
}
