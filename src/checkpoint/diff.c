// `trireme checkpoint diff`: compares two sets of tensors by name, because their orders may differ.
#include "checkpoint/convert.h"
#include "checkpoint/find.h"
#include "checkpoint/verify.h"
#include "checkpoint/weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 1 << 15 }; // how many elements are compared at a time

typedef struct comparison {
    tri_arena *arena;
    bool json;
    FILE *out;
    const char *prefix; // prefix of the printed names: "", "optimizer: " or "average: "
    int equal, differing;
    char raw[2][BLOCK * 8];
    double values[2][BLOCK];
} comparison;

typedef struct distance {
    bool same_bits;
    double max_abs;
    double difference_squares, size_squares; // the sums of (a - b)² and of a² over the elements
} distance;

static double relative(const distance *d) {
    if (d->difference_squares == 0) return 0;
    // The result is infinite if `a` is all zeros and `b` is not.
    return sqrt(d->difference_squares) / sqrt(d->size_squares);
}

static void add_block(comparison *c, int64_t count, distance *d) {
    for (int64_t i = 0; i < count; i++) {
        double a = c->values[0][i], b = c->values[1][i];
        double gap = a == b ? 0 : fabs(a - b); // inf - inf would be NaN
        // The comparison `gap > max_abs` is false for NaN, and NaN must be reported.
        if (gap > d->max_abs || isnan(gap)) d->max_abs = gap;
        d->difference_squares += gap * gap;
        d->size_squares += a * a;
    }
}

static tri_status measure(comparison *c, const checkpoint_weights *a, int i,
                          const checkpoint_weights *b, int j, distance *d) {
    tri_dtype x = a->entries[i].dtype, y = b->entries[j].dtype;
    bool numbers = checkpoint_has_f64(x) && checkpoint_has_f64(y);
    int64_t total = tri_shape_count(&a->entries[i].shape);
    *d = (distance){.same_bits = x == y};
    for (int64_t done = 0; done < total; done += BLOCK) {
        int64_t count = total - done < BLOCK ? total - done : BLOCK;
        TRI_TRY(checkpoint_weights_read(a, i, done, count, c->raw[0]));
        TRI_TRY(checkpoint_weights_read(b, j, done, count, c->raw[1]));
        if (x == y && memcmp(c->raw[0], c->raw[1], (size_t)count * tri_dtype_bytes(x)) != 0)
            d->same_bits = false;
        if (!numbers) continue;
        checkpoint_to_f64(x, c->raw[0], count, c->values[0]);
        checkpoint_to_f64(y, c->raw[1], count, c->values[1]);
        add_block(c, count, d);
    }
    if (!numbers && !d->same_bits) d->max_abs = d->difference_squares = NAN;
    return TRI_OK;
}

static tri_tree *number(tri_arena *arena, double value) {
    return isfinite(value) ? tri_tree_double(arena, value) : tri_tree_null(arena);
}

static tri_tree *begin(comparison *c, const char *name, bool equal) {
    tri_tree *line = tri_tree_map(c->arena);
    const char *whole = tri_arena_printf(c->arena, "%s%s", c->prefix, name);
    tri_tree_put(c->arena, line, "name", tri_tree_string(c->arena, whole));
    tri_tree_put(c->arena, line, "equal", tri_tree_bool(c->arena, equal));
    equal ? c->equal++ : c->differing++;
    return line;
}

static void end(comparison *c, const tri_tree *line) {
    if (c->json) fprintf(c->out, "%s\n", tri_json_emit(c->arena, line));
}

static void only_in(comparison *c, const char *name, const char *path) {
    tri_tree *line = begin(c, name, false);
    tri_tree_put(c->arena, line, "only_in", tri_tree_string(c->arena, path));
    end(c, line);
    if (!c->json) fprintf(c->out, "%s%s: only in %s\n", c->prefix, name, path);
}

static const char *kind_of(tri_arena *arena, const tri_safetensors_entry *entry) {
    char shape[128];
    return tri_arena_printf(arena, "%s %s", tri_dtype_name(entry->dtype),
                            tri_shape_text(&entry->shape, shape, sizeof shape));
}

static void put_kinds(comparison *c, tri_tree *line, const char *a, const char *b) {
    tri_tree_put(c->arena, line, "a", tri_tree_string(c->arena, a));
    tri_tree_put(c->arena, line, "b", tri_tree_string(c->arena, b));
}

static tri_status in_both(comparison *c, const checkpoint_weights *a, int i,
                          const checkpoint_weights *b, int j) {
    const char *name = a->entries[i].name;
    const char *kind = kind_of(c->arena, &a->entries[i]);
    const char *other = kind_of(c->arena, &b->entries[j]);
    if (!tri_shape_equal(&a->entries[i].shape, &b->entries[j].shape)) {
        tri_tree *line = begin(c, name, false);
        put_kinds(c, line, kind, other);
        end(c, line);
        if (!c->json) fprintf(c->out, "%s%s: %s and %s\n", c->prefix, name, kind, other);
        return TRI_OK;
    }
    distance d;
    TRI_TRY(measure(c, a, i, b, j, &d));
    tri_tree *line = begin(c, name, d.same_bits);
    if (strcmp(kind, other) != 0) put_kinds(c, line, kind, other);
    tri_tree_put(c->arena, line, "max_abs", number(c->arena, d.max_abs));
    tri_tree_put(c->arena, line, "relative_l2", number(c->arena, relative(&d)));
    end(c, line);
    if (!c->json && !d.same_bits)
        fprintf(c->out, "%s%s: max abs %.3g, relative L2 %.3g%s%s%s%s\n", c->prefix, name,
                d.max_abs, relative(&d), strcmp(kind, other) ? ", " : "",
                strcmp(kind, other) ? kind : "", strcmp(kind, other) ? " and " : "",
                strcmp(kind, other) ? other : "");
    return TRI_OK;
}

// Compares two lists of tensors, both sorted by name, in one pass, which also finds the names that
// are only in one of them.
static tri_status compare(comparison *c, const checkpoint_weights *a, const checkpoint_weights *b) {
    for (int i = 0, j = 0; i < a->count || j < b->count;) {
        int order = i == a->count   ? 1
                    : j == b->count ? -1
                                    : strcmp(a->entries[i].name, b->entries[j].name);
        if (order < 0) {
            only_in(c, a->entries[i++].name, a->path);
        } else if (order > 0) {
            only_in(c, b->entries[j++].name, b->path);
        } else {
            TRI_TRY(in_both(c, a, i++, b, j++));
        }
    }
    return TRI_OK;
}

// Opens and verifies another file of a checkpoint than the model's. *out stays empty if the path
// has none of this name, for example a file of weights.
static tri_status open_other(tri_arena *arena, const char *path, const char *name,
                             checkpoint_weights *out) {
    checkpoint_kind kind;
    checkpoint_manifest manifest;
    const char *folder;
    TRI_TRY(checkpoint_resolve(arena, path, &kind, &folder));
    if (kind != CHECKPOINT_IS_STEP) return TRI_OK;
    TRI_TRY(checkpoint_manifest_read(arena, folder, &manifest));
    const checkpoint_file *file = checkpoint_manifest_file(&manifest, name);
    if (!file) return TRI_OK;
    TRI_TRY(checkpoint_verify_file(folder, &manifest, file, NULL, NULL));
    return checkpoint_weights_open_file(arena, tri_arena_printf(arena, "%s/%s", folder, name), out);
}

enum { SETS = 6 }; // of both paths: the weights, the optimizer's states, the averages

static tri_status diff(comparison *c, const char *a, const char *b, checkpoint_weights sets[SETS]) {
    static const struct {
        const char *file, *prefix;
    } others[] = {{CHECKPOINT_OPTIMIZER_FILE, "optimizer: "},
                  {CHECKPOINT_AVERAGE_FILE, "average: "}};
    TRI_TRY(checkpoint_weights_open(c->arena, a, false, &sets[0]));
    TRI_TRY(checkpoint_weights_open(c->arena, b, false, &sets[1]));
    for (int i = 0; i < 2; i++) {
        TRI_TRY(open_other(c->arena, a, others[i].file, &sets[2 * i + 2]));
        TRI_TRY(open_other(c->arena, b, others[i].file, &sets[2 * i + 3]));
    }
    c->prefix = "";
    TRI_TRY(compare(c, &sets[0], &sets[1]));
    for (int i = 0; i < 2; i++) {
        const checkpoint_weights *both = &sets[2 * i + 2];
        c->prefix = others[i].prefix;
        if (both[0].open_count && both[1].open_count) TRI_TRY(compare(c, &both[0], &both[1]));
    }
    if (!c->json) fprintf(c->out, "%d tensors equal, %d differ\n", c->equal, c->differing);
    return TRI_OK;
}

tri_status tri_checkpoint_diff(const char *a, const char *b, bool json, FILE *out, bool *differ) {
    comparison *c = malloc(sizeof *c);
    if (!c) return TRI_FAIL(TRI_NO_MEMORY, "no memory to compare %s and %s", a, b);
    tri_arena *arena = tri_arena_create(NULL, "checkpoint diff");
    memset(c, 0, offsetof(comparison, raw));
    c->arena = arena;
    c->json = json;
    c->out = out;
    checkpoint_weights sets[SETS] = {0};
    tri_status status = diff(c, a, b, sets);
    *differ = c->differing > 0;
    for (int i = 0; i < SETS; i++) checkpoint_weights_close(&sets[i]);
    tri_arena_destroy(arena);
    free(c);
    return status;
}
