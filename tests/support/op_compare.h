// Compares a device with the reference device `ref`, the device in plain C: every op at random
// shapes, in F32 or a half type. Outputs are filled with NaN before a run. A family is a way to
// build a graph at random; a case is one such graph. Its sources are the values that no node
// computes: inputs and parameters.
#ifndef TRIREME_TESTS_OP_COMPARE_H
#define TRIREME_TESTS_OP_COMPARE_H

#include "support/op_session.h"

enum { OP_CASE_SOURCES = 16 };

typedef enum op_source_kind {
    OP_SOURCE_NUMBERS,  // uniform in [low, high)
    OP_SOURCE_LABELS,   // I64 in [0, high), some of them ignored
    OP_SOURCE_SOFT,     // uniform in [0, 1), and some rows all 0
    OP_SOURCE_TOKENS,   // I64 in [0, high)
    OP_SOURCE_POSITION, // number of a step, and a sample's position in that step
    OP_SOURCE_BYTES,    // U8, bytes of images
    // Step scalars (what optimizer updates read: learning rate, factors, …) of update number `low`;
    // high not 0: the update is skipped.
    OP_SOURCE_STEP,
} op_source_kind;

typedef struct op_source {
    tri_value value;
    op_source_kind kind;
    double low, high;
} op_source;

// A graph that is being built at random: the same calls with the same seed build the same graph.
typedef struct op_case {
    tri_graph *graph;
    tri_dtype dtype; // type of the values that op_numbers makes
    uint64_t seed;
    uint32_t draws;
    bool channels_last; // ops read copies of the images whose channels lie last
    op_source sources[OP_CASE_SOURCES];
    int source_count;
} op_case;

// The next random whole number in [low, high].
int64_t op_draw(op_case *c, int64_t low, int64_t high);
bool op_chance(op_case *c, int percent);
// Adds to the graph a parameter with random numbers in [low, high), of the case's type.
tri_value op_numbers(op_case *c, tri_shape shape, double low, double high);
// Like op_numbers, but in F32 whatever the type of the case: for statistics, weights of norms,
// optimizer states.
tri_value op_wide(op_case *c, tri_shape shape, double low, double high);
// Like op_numbers, but in F64: for numbers that are computed in F64, such as sums.
tri_value op_double(op_case *c, tri_shape shape, double low, double high);
tri_value op_soft_labels(op_case *c, tri_shape shape);
tri_value op_labels(op_case *c, tri_shape shape, int64_t classes);
tri_value op_tokens(op_case *c, tri_shape shape, int64_t tokens);
tri_value op_bytes(op_case *c, tri_shape shape);
tri_value op_position(op_case *c);
tri_value op_step_scalars(op_case *c, int update, bool skip);
// Fills the case's sources (inputs and parameters) with random numbers.
void op_sources_fill(op_session *session, const op_case *c);

// Which results must be NaN or infinite as on `ref` if an input has NaN or an infinity.
typedef enum op_not_finite {
    OP_NOT_FINITE_ALIKE, // all
    // All if the input has NaN. An infinity may become NaN or spread, because a device computes the
    // same formula by other terms (x · scale + shift), whose difference of infinities is NaN.
    OP_INFINITY_SPREADS,
    // More results may be not finite than on `ref`, because a device multiplies by 0 what `ref`
    // leaves out: padding, and keys that are masked.
    OP_NOT_FINITE_SPREADS,
    // None: which of several numbers a max pooling selects depends on what has spread before it.
    OP_NOT_FINITE_ANYWHERE,
} op_not_finite;

// A way to build a graph at random, and how far results may differ: |a - b| <= tolerance * the
// largest |b| of the tensor. U8 and I64 results must be equal.
typedef struct op_family {
    const char *name;
    void (*build)(op_case *c);
    double tolerance;
    // Added to the allowed error where a result is the difference of nearly equal numbers of about
    // 1, whose rounding errors remain; else 0.
    double rounding;
    // The tolerance of cases in a half type, for families whose graphs round values several times.
    // 0: `tolerance`, plus one rounding to the half type for a result in that type.
    double half_tolerance;
    bool any_layout; // uses layouts that only the device ref supports
    // True: one more rounding is tolerated in a half type on the device `cuda`, because its library
    // writes results in the half type before our kernel finishes them (bias, cast).
    bool rounds_on_gpu;
    bool channels_last;       // images have their channels last, on devices that have this layout
    op_not_finite not_finite; // what op_compare_not_finite compares
} op_family;

extern const op_family op_families[]; // a NULL name ends the list

// One random graph of a family on one device.
typedef struct op_side {
    op_case c;
    tri_device *device;
    op_session *session;
    int built; // number of values before the layout pass added some
} op_side;

typedef struct op_side_options {
    int threads; // 0: as many as OMP_NUM_THREADS says
    tri_dtype dtype;
    uint64_t seed;
    bool deterministic; // kernels must give the same bits on any number of threads
    bool in_place;      // nodes write over inputs where they can (op_session_open)
} op_side_options;

// Builds the graph that belongs to the seed, prepares it for the device and fills its sources, but
// does not run it.
void op_side_open(op_side *side, const op_family *family, const tri_device_backend *backend,
                  op_side_options options);
void op_side_close(op_side *side);

// Builds `rounds` graphs of the family (a way to build a graph at random) and runs them on the
// device and on `ref`; in every other graph, nodes write over inputs on the device where they can.
// If results differ, or a kernel fails, prints the seed and the value, and fails the test. Prints
// which kernels were used.
void op_compare(const op_family *family, const tri_device_backend *backend, int threads,
                tri_dtype dtype, uint64_t seed, int rounds);
// Calls op_compare for each of the `count` families (ways to build a graph at random). Skips
// families whose layouts only the device `ref` accepts, unless `count` is 1. The test fails at the
// end, so that one run shows everything that differs on a device: some devices can be used only
// seldom.
void op_compare_each(const op_family *families, size_t count, const tri_device_backend *backend,
                     int threads, tri_dtype dtype, uint64_t seed, int rounds);
// Calls op_compare_each for the families of the list op_families.
void op_compare_all(const tri_device_backend *backend, int threads, tri_dtype dtype, uint64_t seed,
                    int rounds);
// Builds `rounds` graphs of each family and plants NaN, and infinity or −infinity, in some elements
// of each input, one input after the other. The results that are NaN or infinite must be those of
// `ref`. Exceptions are the families that say so (op_not_finite) and Winograd's algorithm, which
// computes with sums of pixels: they may make more results of the graph not finite. But what is not
// finite on `ref` must not be finite, and what is NaN because of a NaN must be NaN. (op_compare
// checks that finite inputs give finite results.)
void op_compare_not_finite(const tri_device_backend *backend, tri_dtype dtype, uint64_t seed,
                           int rounds);
// Every loss and metric of the device must refuse a label that is not a class, and the embedding a
// token that is not in the vocabulary, and gather and scatter an index that the axis does not have,
// with TRI_BAD_INPUT.
void op_compare_bad_labels(const tri_device_backend *backend);

#endif
