// tri_einsum: a sum of products whose axes have letters. Values are multiplied from the left to the
// right; each pair is a product of matrices, or one of elements if no axis is summed. The first
// letter of the result stays in front, as the samples' axis has to.
#include "graph/graph.h"
#include "nn/layers.h"
#include "ops/ops.h"

#include <stdio.h>
#include <string.h>
#include <trireme/more_functions.h>
#include <trireme/nn.h>

// Labels of the axes that "..." stands for are the digits, '0' the last of these axes.
enum { MOST_VALUES = 16, DOTS = 3 };

// A value with a label for each axis.
typedef struct term {
    tri_value value;
    char labels[TRI_MAX_RANK + 1];
} term;

// Bytes of other alphabets are no letters, whatever the locale.
static bool is_letter(char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); }

static bool has(const char *labels, char label) { return label && strchr(labels, label); }

static void append(char *labels, char label) {
    size_t count = strlen(labels);
    labels[count] = label;
    labels[count + 1] = 0;
}

static void append_all(char *labels, const char *more) {
    while (*more) append(labels, *more++);
}

static int64_t size_of(tri_graph *g, const term *t, char label) {
    return tri_value_shape(g, t->value).dims[strchr(t->labels, label) - t->labels];
}

// Reads the labels of one value or of the result from *at to a comma, an arrow or the end. "..."
// stands for `dotted` axes. False: they are no letters, or too many.
static bool read_labels(const char **at, int dotted, char labels[TRI_MAX_RANK + 1]) {
    int count = 0;
    bool dots = false;
    for (; **at && **at != ',' && **at != '-'; ++*at) {
        if (**at == ' ') continue;
        if (!strncmp(*at, "...", DOTS) && !dots && count + dotted <= TRI_MAX_RANK) {
            for (int i = dotted; i-- > 0;) labels[count++] = (char)('0' + i);
            dots = true;
            *at += DOTS - 1;
        } else if (is_letter(**at) && count < TRI_MAX_RANK) {
            labels[count++] = **at;
        } else {
            return false;
        }
    }
    labels[count] = 0;
    return true;
}

// The number of axes behind "..." of the labels at `at`, for a value of `rank`: what letters leave.
static int dotted_of(const char *at, int rank) {
    int letters = 0;
    for (; *at && *at != ',' && *at != '-'; at++) letters += is_letter(*at);
    return rank > letters ? rank - letters : 0;
}

// Takes the diagonals of labels that are there twice.
static void take_diagonals(tri_graph *g, term *t) {
    for (int i = 0; t->labels[i]; i++) {
        char *second = strchr(t->labels + i + 1, t->labels[i]), label = t->labels[i];
        if (!second) continue;
        int k = (int)(second - t->labels), rank = (int)strlen(t->labels);
        tri_shape shape = tri_value_shape(g, t->value);
        if (shape.dims[i] != shape.dims[k])
            tri_graph_fail(g, "einsum: the axes %c of one value have different sizes", label);
        t->value = tri_diagonal(g, t->value, 0, i, k);
        memmove(second, second + 1, (size_t)(rank - k));
        memmove(t->labels + i, t->labels + i + 1, (size_t)(rank - 1 - i));
        t->labels[rank - 2] = label;
        t->labels[rank - 1] = 0;
        i = -1; // the labels have moved
    }
}

// Sums over the axes whose labels are not in `kept`.
static void sum_others(tri_graph *g, term *t, const char *kept) {
    int axes[TRI_MAX_RANK], count = 0, left = 0;
    for (int i = 0; t->labels[i]; i++)
        if (!has(kept, t->labels[i])) axes[count++] = i;
    if (count == 0) return;
    t->value = tri_sum(g, t->value, axes, count, false);
    for (int i = 0; t->labels[i]; i++)
        if (has(kept, t->labels[i])) t->labels[left++] = t->labels[i];
    t->labels[left] = 0;
}

// The value with its axes in the order of `labels`, and axes of size 1 for those that it lacks.
static tri_value in_order(tri_graph *g, const term *t, const char *labels) {
    int order[TRI_MAX_RANK], count = 0;
    bool moves = false;
    tri_shape wide = {.rank = (int)strlen(labels)};
    for (int i = 0; labels[i]; i++) {
        wide.dims[i] = 1;
        if (!has(t->labels, labels[i])) continue;
        wide.dims[i] = size_of(g, t, labels[i]);
        order[count] = (int)(strchr(t->labels, labels[i]) - t->labels);
        moves = moves || order[count] != count;
        count++;
    }
    tri_value x = moves ? tri_permute(g, t->value, order) : t->value;
    return count == wide.rank ? x : tri_reshape(g, x, wide);
}

// Widens axes of size 1 to the size that the other value has. False: the graph has failed.
static bool match_sizes(tri_graph *g, term *t, const term *other) {
    tri_shape shape = tri_value_shape(g, t->value), wide = shape;
    for (int i = 0; t->labels[i]; i++) {
        if (!has(other->labels, t->labels[i])) continue;
        int64_t size = size_of(g, other, t->labels[i]);
        if (shape.dims[i] == size || size == 1) continue;
        if (shape.dims[i] != 1) {
            tri_graph_fail(g,
                           "einsum: an axis%s%.1s has %lld elements in one value, %lld in another",
                           is_letter(t->labels[i]) ? " " : " of ...",
                           is_letter(t->labels[i]) ? t->labels + i : "", (long long)shape.dims[i],
                           (long long)size);
            return false;
        }
        wide.dims[i] = size;
    }
    if (!tri_shape_equal(&shape, &wide)) t->value = tri_expand(g, t->value, wide);
    return true;
}

// The value with the axes of `first`, then those of each of the other two as one; with `joins`,
// those of `first` are one too.
static tri_value as_matrices(tri_graph *g, const term *t, const char *first, bool joins,
                             const char *second, const char *third) {
    const char *parts[] = {first, second, third};
    char order[24];
    snprintf(order, sizeof order, "%s%s%s", first, second, third);
    tri_value x = in_order(g, t, order);
    tri_shape shape = tri_value_shape(g, x), joined = {0};
    int at = 0;
    for (int part = 0; part < 3; part++) {
        int count = (int)strlen(parts[part]);
        bool is_one = part > 0 || joins;
        if (is_one) joined.dims[joined.rank++] = 1;
        for (int i = 0; i < count; i++) {
            if (is_one)
                joined.dims[joined.rank - 1] *= shape.dims[at++];
            else
                joined.dims[joined.rank++] = shape.dims[at++];
        }
    }
    return tri_shape_equal(&shape, &joined) ? x : tri_reshape(g, x, joined);
}

// The products of a's matrices of `rows` and b's of `columns`, one for each index of `batch`, which
// stands behind the rows.
static tri_value multiply_behind(tri_graph *g, const term *a, const term *b, const char *batch,
                                 const char *rows, const char *columns, const char *summed) {
    static const tri_matmul_attr attr = {.permuted = 1 << TRI_MATMUL_A | 1 << TRI_MATMUL_Y,
                                         .axes[TRI_MATMUL_A] = {1, 0, 2},
                                         .axes[TRI_MATMUL_Y] = {1, 0, 2}};
    tri_value in[] = {as_matrices(g, a, rows, true, batch, summed),
                      as_matrices(g, b, batch, true, summed, columns)};
    return tri_node_add(g, &tri_op_matmul, in, 2, &attr, "");
}

// Multiplies two values, and sums over the labels of both that are not in `kept`, of which the
// first stays in front.
static term multiply(tri_graph *g, term a, term b, const char *kept) {
    char keeps[128], batch[8] = "", rows[8] = "", columns[8] = "", summed[8] = "";
    term made = {{0}, ""};
    if (!has(a.labels, *kept) && has(b.labels, *kept)) {
        term other = a;
        a = b;
        b = other;
    }
    snprintf(keeps, sizeof keeps, "%s%s", kept, b.labels);
    sum_others(g, &a, keeps);
    snprintf(keeps, sizeof keeps, "%s%s", kept, a.labels);
    sum_others(g, &b, keeps);
    if (!match_sizes(g, &a, &b) || !match_sizes(g, &b, &a)) return made;
    for (const char *l = a.labels; *l; l++) {
        char *list = !has(b.labels, *l) ? rows : has(kept, *l) ? batch : summed;
        append(list, *l);
    }
    for (const char *l = b.labels; *l; l++)
        if (!has(a.labels, *l)) append(columns, *l);
    if (strlen(batch) + strlen(rows) + strlen(columns) > TRI_MAX_RANK) {
        tri_graph_fail(g, "einsum: a product has more than %d axes", TRI_MAX_RANK);
        return made;
    }
    bool rows_lead = has(rows, *kept);
    append_all(made.labels, rows_lead ? rows : batch);
    append_all(made.labels, rows_lead ? batch : rows);
    append_all(made.labels, columns);
    if (!*summed) {
        made.value = tri_mul(g, in_order(g, &a, made.labels), in_order(g, &b, made.labels));
        return made;
    }
    tri_shape shape = {.rank = (int)strlen(made.labels)};
    for (int i = 0; i < shape.rank; i++)
        shape.dims[i] = size_of(g, has(a.labels, made.labels[i]) ? &a : &b, made.labels[i]);
    bool joins = strlen(batch) + 2 > TRI_MAX_RANK;
    if (rows_lead && *batch)
        made.value = multiply_behind(g, &a, &b, batch, rows, columns, summed);
    else
        made.value = tri_matmul(g, as_matrices(g, &a, batch, joins, rows, summed),
                                as_matrices(g, &b, batch, joins, summed, columns));
    tri_shape is = tri_value_shape(g, made.value);
    if (!tri_shape_equal(&is, &shape)) made.value = tri_reshape(g, made.value, shape);
    return made;
}

// The labels of a result that the equation does not name: of "...", then the letters that are there
// once. False: they are too many.
static bool implied(const char *equation, int dotted, char labels[TRI_MAX_RANK + 1]) {
    int uses[128] = {0}, count = 0;
    for (const char *at = equation; *at; at++)
        if (is_letter(*at)) uses[(int)*at]++;
    for (int i = strstr(equation, "...") ? dotted : 0; i-- > 0;) labels[count++] = (char)('0' + i);
    for (int l = 'A'; l <= 'z'; l++) {
        if (uses[l] == 1 && count == TRI_MAX_RANK) return false;
        if (uses[l] == 1) labels[count++] = (char)l;
    }
    labels[count] = 0;
    return true;
}

// Reads the equation. False: the graph has failed.
static bool read_equation(tri_graph *g, const char *equation, const tri_value *values, int count,
                          term *terms, char result[TRI_MAX_RANK + 1]) {
    const char *at = equation;
    int dotted = 0;
    bool good = true;
    for (int i = 0; i < count; i++) {
        if (!tri_graph_check_input(g, "einsum", NULL, values[i])) return false;
        int rank = tri_value_shape(g, values[i]).rank, own = dotted_of(at, rank);
        bool dots = memchr(at, '.', strcspn(at, ",-")) != NULL;
        if (dots && own > dotted) dotted = own;
        terms[i].value = values[i];
        good = good && read_labels(&at, own, terms[i].labels) &&
               (int)strlen(terms[i].labels) == rank && (i == count - 1 ? *at != ',' : *at == ',');
        if (!good) break;
        at += *at == ',';
    }
    if (good && *at == '-') {
        good = *++at == '>';
        if (good) at++;
        good = good && read_labels(&at, dotted, result) && !*at;
    } else if (good) {
        good = implied(equation, dotted, result);
    }
    for (int i = 0; good && result[i]; i++) {
        bool found = false;
        for (int k = 0; k < count; k++) found = found || has(terms[k].labels, result[i]);
        good = found && !has(result + i + 1, result[i]);
    }
    if (!good)
        tri_graph_fail(g,
                       "einsum \"%s\": needs a letter for each axis of %d values, at most %d, and "
                       "behind -> letters of these, each once",
                       equation, count, TRI_MAX_RANK);
    return good;
}

tri_value tri_einsum_values(tri_graph *graph, const char *equation, const tri_value *values,
                            int count) {
    term terms[MOST_VALUES] = {{{0}, ""}};
    char result[TRI_MAX_RANK + 1] = "", kept[MOST_VALUES * (TRI_MAX_RANK + 1)];
    if (count < 1 || count > MOST_VALUES) {
        tri_graph_fail(graph, "einsum: takes 1 to %d values, not %d", MOST_VALUES, count);
        return (tri_value){0};
    }
    if (!read_equation(graph, equation, values, count, terms, result)) return (tri_value){0};
    for (int i = 0; i < count; i++) take_diagonals(graph, &terms[i]);
    term made = terms[0];
    for (int i = 1; i < count && graph->status == TRI_OK; i++) {
        snprintf(kept, sizeof kept, "%s", result);
        for (int k = i + 1; k < count; k++) append_all(kept, terms[k].labels);
        made = multiply(graph, made, terms[i], kept);
    }
    if (graph->status != TRI_OK) return (tri_value){0};
    sum_others(graph, &made, result);
    return in_order(graph, &made, result);
}
