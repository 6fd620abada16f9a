// Arranges ranks along axes. If the given sizes do not multiply to the number of ranks, the message
// names sizes that do, so that users need not search for them.
#include "mesh/mesh.h"

#include "base/limits.h"
#include "base/quantity.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

static const char *const names[TRI_AXIS_COUNT] = {"pipeline", "replicate", "shard", "tensor"};

const char *tri_axis_name(tri_axis axis) { return names[axis]; }

typedef struct mesh_wish {
    const int *size; // by axis; 0: not given
    // The strategy's axis. If `size` gives no size for it, its size is the number of ranks divided
    // by the sizes of the other axes.
    tri_axis own;
    int ranks;       // ranks of the run
    int64_t product; // product of the sizes that the user gave
} mesh_wish;

static bool is_open(const mesh_wish *wish) { return wish->size[wish->own] == 0; }

static bool is_possible(const mesh_wish *wish, int64_t product) {
    if (product < 1 || product > wish->ranks) return false;
    return is_open(wish) ? wish->ranks % product == 0 : product == wish->ranks;
}

typedef struct mesh_text { // a message under construction; it is cut off when its memory is full
    char *at;
    size_t left;
} mesh_text;

static void __attribute__((format(printf, 2, 3))) say(mesh_text *text, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int used = vsnprintf(text->at, text->left, format, arguments);
    va_end(arguments);
    size_t step = used < 0 ? 0 : (size_t)used < text->left ? (size_t)used : text->left - 1;
    text->at += step;
    text->left -= step;
}

static void say_wish(mesh_text *text, const mesh_wish *wish) {
    const char *between = "";
    for (int a = 0; a < TRI_AXIS_COUNT; a++) {
        bool own_open = a == (int)wish->own && is_open(wish);
        if (wish->size[a] <= 1 && !own_open) continue;
        say(text, own_open ? "%s%s auto" : "%s%s %d", between, names[a], wish->size[a]);
        between = " x ";
    }
    if (!*between) say(text, "%s 1", names[wish->own]);
}

// Writes into the message the nearest sizes of one axis, below and above the given one, that fit
// the other axes, because the user probably meant one of them.
static void say_nearest(mesh_text *text, const mesh_wish *wish, tri_axis axis, int *said) {
    int64_t rest = wish->product / wish->size[axis];
    int found[2] = {0};
    for (int size = 1; size <= wish->ranks; size++)
        if (is_possible(wish, size * rest)) {
            bool above = size > wish->size[axis];
            if (!above || !found[1]) found[above] = size;
        }
    if (!found[0] && !found[1]) return;
    say(text, "%s%s %d", (*said)++ ? ", or " : "; possible: ", names[axis],
        found[0] ? found[0] : found[1]);
    if (found[0] && found[1]) say(text, " or %d", found[1]);
}

static tri_status refuse(const mesh_wish *wish) {
    char said[256], possible[256] = "", start[64];
    mesh_text text = {said, sizeof said};
    int count = 0;
    say_wish(&text, wish);
    text = (mesh_text){possible, sizeof possible};
    for (int a = 0; a < TRI_AXIS_COUNT; a++)
        if (wish->size[a] > 0 && (wish->size[a] > 1 || a == (int)wish->own))
            say_nearest(&text, wish, (tri_axis)a, &count);
    long long below = wish->ranks / wish->product * wish->product;
    text = (mesh_text){start, sizeof start};
    if (!is_open(wish) || below == 0)
        say(&text, "%s", tri_counted(wish->product, "rank"));
    else
        say(&text, "%lld or %lld ranks", below, below + (long long)wish->product);
    return TRI_FAIL(TRI_BAD_INPUT, "strategy.mesh: %s cannot be %s%s; or start %s",
                    tri_counted(wish->ranks, "rank"), said, possible, start);
}

tri_status tri_mesh_make(const int size[TRI_AXIS_COUNT], tri_axis own, int ranks, tri_mesh *out) {
    tri_mesh mesh = {.ranks = ranks};
    mesh_wish wish = {.size = size, .own = own, .ranks = ranks, .product = 1};
    for (int i = 0; i < TRI_AXIS_COUNT; i++) {
        if (size[i] < 0 || size[i] > TRI_MAX_RANKS)
            return TRI_FAIL(TRI_BAD_INPUT, "strategy.mesh.%s: %d is not a number of ranks",
                            names[i], size[i]);
        mesh.size[i] = size[i] ? size[i] : 1;
        // A product above TRI_MAX_RANKS is too large already; to multiply on could overflow.
        if (wish.product <= TRI_MAX_RANKS) wish.product *= mesh.size[i];
    }
    if (!is_possible(&wish, wish.product)) return refuse(&wish);
    if (is_open(&wish)) mesh.size[own] = (int)(ranks / wish.product);
    *out = mesh;
    return TRI_OK;
}

int tri_mesh_coordinate(const tri_mesh *mesh, int rank, tri_axis axis) {
    for (int i = TRI_AXIS_COUNT - 1; i > (int)axis; i--) rank /= mesh->size[i];
    return rank % mesh->size[axis];
}

int tri_mesh_key(const tri_mesh *mesh, int rank, unsigned axes) {
    int key = 0;
    for (int a = 0; a < TRI_AXIS_COUNT; a++)
        if (axes >> a & 1) key = key * mesh->size[a] + tri_mesh_coordinate(mesh, rank, (tri_axis)a);
    return key;
}

int tri_mesh_colour(const tri_mesh *mesh, int rank, unsigned axes) {
    return tri_mesh_key(mesh, rank, ~axes);
}

int tri_mesh_size(const tri_mesh *mesh, unsigned axes) {
    int size = 1;
    for (int a = 0; a < TRI_AXIS_COUNT; a++)
        if (axes >> a & 1) size *= mesh->size[a];
    return size;
}

int tri_mesh_member(const tri_mesh *mesh, int rank, unsigned axes, int key) {
    int member = 0;
    for (int a = 0, rest = tri_mesh_size(mesh, axes); a < TRI_AXIS_COUNT; a++) {
        int coordinate = tri_mesh_coordinate(mesh, rank, (tri_axis)a);
        if (axes >> a & 1) {
            rest /= mesh->size[a];
            coordinate = key / rest % mesh->size[a];
        }
        member = member * mesh->size[a] + coordinate;
    }
    return member;
}

int tri_mesh_replicas(const tri_mesh *mesh) { return tri_mesh_size(mesh, TRI_AXES_REPLICAS); }

int tri_mesh_replica(const tri_mesh *mesh, int rank) {
    return tri_mesh_key(mesh, rank, TRI_AXES_REPLICAS);
}

char *tri_mesh_text(const tri_mesh *mesh, char *out, size_t size) {
    enum { SHOWN = 4 }; // how many ranks of a long axis are listed
    mesh_text text = {out, size};
    const char *between = "";
    *out = 0;
    for (int a = 0; a < TRI_AXIS_COUNT; a++) {
        if (mesh->size[a] == 1) continue;
        say(&text, "%s%s %d (ranks", between, names[a], mesh->size[a]);
        for (int key = 0; key < mesh->size[a]; key++) {
            bool middle = key >= SHOWN - 1 && key < mesh->size[a] - 1 && mesh->size[a] > SHOWN;
            if (middle && key == SHOWN - 1) say(&text, " ...");
            if (!middle) say(&text, " %d", tri_mesh_member(mesh, 0, 1u << a, key));
        }
        say(&text, ")");
        between = " x ";
    }
    if (!*between) say(&text, "1 rank");
    return out;
}
