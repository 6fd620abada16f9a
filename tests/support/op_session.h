// A small graph on a device, which a test can run several times. The layout pass has chosen the
// layouts of its values and added the reorders between them. Every value has memory of its own,
// except views and outputs that are written over inputs. Before each run, all memory that a kernel
// must write is poisoned: filled with a bit pattern that is NaN as a float.
#ifndef TRIREME_TESTS_OP_SESSION_H
#define TRIREME_TESTS_OP_SESSION_H

#include "comm/comm.h"
#include "device/device.h"
#include "ops/ops.h"

typedef struct op_session op_session;

// Makes a graph with one block, in which parameters and activations have the type `dtype`.
// op_graph_close frees it.
tri_graph *op_graph_open(tri_dtype dtype);
void op_graph_close(tri_graph *graph);
// Closes a graph whose last call has to be refused. Fails the test unless the message has all
// words, which are parted by |.
void op_graph_check_refused(tri_graph *graph, const char *words);
// The same for a call that may name the graph, g, and an input x of this shape.
#define OP_REFUSED(words, shape, call)                                                             \
    do {                                                                                           \
        tri_graph *g = op_graph_open(TRI_F32);                                                     \
        tri_value x __attribute__((unused)) = tri_input(g, "x", TRI_F32, shape);                   \
        (void)(call);                                                                              \
        op_graph_check_refused(g, words);                                                          \
    } while (0)

tri_device *op_device_open(const tri_device_backend *backend, int threads);

// Runs the layout pass on the graph, which the session then uses but does not own. With in_place,
// a node writes its output over the input that its op names, if no later node reads this input.
// Also, where a kernel can add to an output that no node reads, it adds to a number that fills the
// output and is subtracted afterwards. Fails the test on any error.
op_session *op_session_open(tri_graph *graph, tri_device *device, bool in_place);
void op_session_close(op_session *session);
// Returns to how many outputs kernels have added their results so far, instead of overwriting them.
int op_added(const op_session *session);
// Moves all values `bytes` further in memory than the device aligns them. Not for a session that
// was opened with in_place, whose values share memory.
void op_session_shift(op_session *session, size_t bytes);
// From now on, collective ops run over the ranks of `comm`, which the session does not own. Before,
// they run as if this rank were alone.
void op_session_join(op_session *session, tri_comm *comm);

// The value on the host, in plain layout: op_run reads sources there and writes results there.
void *op_host(const op_session *session, tri_value value);
int64_t op_count(const op_session *session, tri_value value); // elements
// Element i of a value of a floating-point type.
double op_get(const op_session *session, tri_value value, int64_t i);
void op_set(op_session *session, tri_value value, int64_t i, double number);
// Elements first to first + count - 1 of a value of a floating-point type: faster than op_get.
void op_read(const op_session *session, tri_value value, int64_t first, int64_t count, double *to);
enum { OP_READ_COUNT = 512 }; // as many elements as a caller may want to read at a time
// Fills the value with uniform numbers in [low, high) that depend on the seed and the value's id.
void op_fill(op_session *session, tri_value value, uint64_t seed, double low, double high);

// Remembers the sources as they are on the host, and makes them so again.
void op_keep_sources(op_session *session);
void op_restore_sources(op_session *session);

// Runs every node and returns the first failure of a kernel.
tri_status op_run(op_session *session);
// Runs every node, and fails the test when a kernel fails.
void op_run_ok(op_session *session);

#endif
