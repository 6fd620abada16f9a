// Runs a small graph on a device, as the engine would run a block. Before that, it fills all
// outputs with a bit pattern (poison), so that a test notices what a kernel has not written.
#include "support/op_session.h"

#include "base/philox.h"
#include "device/queue.h"
#include "engine/engine_internal.h"
#include "pass/pass.h"
#include "tensor/half.h"

#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { POISON = 0xff }; // every byte; a float of such bytes is NaN

struct op_session {
    tri_graph *graph;
    tri_device *device;
    tri_queue *queue;
    // The communicator that runs collective ops: one that the test gives, or `alone`, which has
    // only this rank.
    tri_comm *alone, *comm;
    int value_count;
    char **host, **memory; // by value: where the value lies on the host, and on the device
    char **kept;           // by value: what op_keep_sources remembers; NULL: nothing
    tri_kernel *kernels;   // one for each node of the graph
    void *workspace;
    size_t workspace_bytes;
    bool adds;    // kernels add results to what outputs hold, where they can
    int added;    // how many outputs kernels have added to, so far
    size_t shift; // how many bytes behind the beginning of its allocation a value lies
};

tri_graph *op_graph_open(tri_dtype dtype) {
    tri_graph_options options = {.seed = 1, .training = true, .dtype = dtype};
    tri_graph *graph = tri_graph_create(NULL, &options);
    tri_block(graph, "test");
    return graph;
}

void op_graph_close(tri_graph *graph) { tri_graph_destroy(graph); }

void op_graph_check_refused(tri_graph *graph, const char *words) {
    const char *message = "";
    char copy[256], *rest = copy;
    if (tri_graph_status(graph, &message) != TRI_BAD_INPUT) fail_msg("not refused: %s", words);
    snprintf(copy, sizeof copy, "%s", words);
    for (const char *word; (word = strsep(&rest, "|"));)
        if (!strstr(message, word)) fail_msg("\"%s\" has no \"%s\"", message, word);
    op_graph_close(graph);
}

// Lets memory that was freed be used again. Otherwise the C library returns large pieces to the
// system, such as the workspaces of products, and each case would have them cleared page by page.
static void keep_memory(void) {
    enum { LARGEST_BYTES = 256 << 20 };
    mallopt(M_MMAP_THRESHOLD, LARGEST_BYTES);
    mallopt(M_TRIM_THRESHOLD, LARGEST_BYTES);
}

tri_device *op_device_open(const tri_device_backend *backend, int threads) {
    keep_memory();
    tri_device *device = NULL;
    tri_device_config config = {.threads = threads};
    assert_int_equal(backend->open(&config, &device), TRI_OK);
    return device;
}

static void ok(tri_status status) {
    if (status != TRI_OK) fail_msg("%s: %s", tri_status_name(status), tri_error_message());
}

static void *device_memory(op_session *s, size_t size_bytes) {
    void *memory = NULL;
    ok(s->device->backend->alloc(s->device, size_bytes, &memory));
    return memory;
}

static bool read_after(const tri_graph *g, tri_value value, int node) {
    for (int i = node + 1; i < g->node_count; i++)
        for (int k = 0; k < g->nodes[i].input_count; k++)
            if (g->nodes[i].inputs[k].id == value.id) return true;
    return false;
}

// The input whose memory output 0 of the node takes over, or none.
static tri_value shared_input(const tri_graph *g, int index, bool in_place) {
    const tri_node *node = &g->nodes[index];
    tri_value none = {0};
    if (node->op->flags & TRI_OP_VIEW) return node->inputs[0];
    int overwritten = tri_node_overwrites(node->op, node->attr);
    if (!in_place || overwritten < 0) return none;
    tri_value input = node->inputs[overwritten];
    const tri_value_info *in = tri_value_get(g, input), *out = tri_value_get(g, node->outputs[0]);
    for (int k = 0; k < node->input_count; k++) // the node must not read the value twice
        if (k != overwritten && node->inputs[k].id == input.id) return none;
    bool same = in->dtype == out->dtype && tri_layout_equal(&in->layout, &out->layout) &&
                tri_value_bytes(g, input) == tri_value_bytes(g, node->outputs[0]);
    return same && !read_after(g, input, index) ? input : none;
}

op_session *op_session_open(tri_graph *graph, tri_device *device, bool in_place) {
    op_session *s = calloc(1, sizeof *s);
    *s = (op_session){.graph = graph, .device = device, .adds = in_place};
    ok(tri_queue_open(device, &s->queue));
    ok(tri_comm_self_open(&s->alone));
    s->comm = s->alone;
    ok(tri_pass_layout(graph, &device->description));
    s->value_count = graph->value_count;
    s->host = calloc((size_t)s->value_count, sizeof *s->host);
    s->memory = calloc((size_t)s->value_count, sizeof *s->memory);
    s->kept = calloc((size_t)s->value_count, sizeof *s->kept);
    s->kernels = calloc((size_t)graph->node_count, sizeof *s->kernels);
    for (int i = 1; i < s->value_count; i++) {
        tri_value value = {(uint32_t)i};
        size_t bytes = tri_dtype_bytes(graph->values[i].dtype);
        s->host[i] = calloc((size_t)op_count(s, value) + 1, bytes);
        s->memory[i] = device_memory(s, (size_t)tri_value_bytes(graph, value));
    }
    for (int i = 0; i < graph->node_count; i++) {
        const tri_node *node = &graph->nodes[i];
        tri_value shared = shared_input(graph, i, in_place);
        if (tri_value_is(shared)) {
            device->backend->free(device, s->memory[node->outputs[0].id]);
            s->memory[node->outputs[0].id] = s->memory[shared.id];
        }
        if (node->op->flags & TRI_OP_COLLECTIVE) continue;
        const tri_kernel_def *def = tri_device_select(&device->description, graph, node);
        assert_non_null(def);
        ok(tri_kernel_prepare(def, device, graph, node, &s->kernels[i]));
        if (s->kernels[i].workspace_bytes > s->workspace_bytes)
            s->workspace_bytes = s->kernels[i].workspace_bytes;
    }
    s->workspace = device_memory(s, s->workspace_bytes);
    return s;
}

void op_session_close(op_session *s) {
    const tri_device_backend *backend = s->device->backend;
    tri_comm_close(s->alone);
    for (int i = 0; i < s->graph->node_count; i++) tri_kernel_release(&s->kernels[i]);
    for (int i = 1; i < s->value_count; i++) {
        bool shared = false;
        for (int k = 1; k < i; k++) shared = shared || s->memory[k] == s->memory[i];
        if (!shared) backend->free(s->device, s->memory[i] - s->shift);
        free(s->host[i]);
        free(s->kept[i]);
    }
    backend->free(s->device, s->workspace);
    tri_queue_close(s->queue);
    free(s->host);
    free(s->memory);
    free(s->kept);
    free(s->kernels);
    free(s);
}

int op_added(const op_session *session) { return session->added; }

void op_session_shift(op_session *s, size_t bytes) {
    for (int i = 1; i < s->value_count; i++) {
        s->device->backend->free(s->device, s->memory[i] - s->shift);
        size_t size_bytes = (size_t)tri_value_bytes(s->graph, (tri_value){(uint32_t)i});
        s->memory[i] = (char *)device_memory(s, size_bytes + bytes) + bytes;
    }
    s->shift = bytes;
}

void op_session_join(op_session *session, tri_comm *comm) { session->comm = comm; }

void *op_host(const op_session *session, tri_value value) { return session->host[value.id]; }

int64_t op_count(const op_session *session, tri_value value) {
    tri_shape shape = tri_value_shape(session->graph, value);
    return tri_shape_count(&shape);
}

void op_read(const op_session *session, tri_value value, int64_t first, int64_t count, double *to) {
    tri_dtype dtype = tri_value_get(session->graph, value)->dtype;
    const void *from = op_host(session, value);
    if (dtype == TRI_F64) {
        memcpy(to, (const double *)from + first, (size_t)count * sizeof *to);
    } else if (dtype == TRI_F32) {
        for (int64_t i = 0; i < count; i++) to[i] = (double)((const float *)from)[first + i];
    } else {
        assert_true(tri_dtype_is_half(dtype));
        for (int64_t i = 0; i < count; i++)
            to[i] = (double)tri_half_to_float(dtype, ((const uint16_t *)from)[first + i]);
    }
}

double op_get(const op_session *session, tri_value value, int64_t i) {
    double number;
    op_read(session, value, i, 1, &number);
    return number;
}

static void set(tri_dtype dtype, void *host, int64_t i, double number) {
    if (dtype == TRI_F64)
        ((double *)host)[i] = number;
    else if (tri_dtype_is_half(dtype))
        ((uint16_t *)host)[i] = tri_float_to_half(dtype, (float)number);
    else
        ((float *)host)[i] = (float)number;
}

void op_set(op_session *session, tri_value value, int64_t i, double number) {
    set(tri_value_get(session->graph, value)->dtype, op_host(session, value), i, number);
}

void op_fill(op_session *session, tri_value value, uint64_t seed, double low, double high) {
    tri_dtype dtype = tri_value_get(session->graph, value)->dtype;
    void *host = op_host(session, value);
    for (int64_t i = 0, count = op_count(session, value); i < count; i += 4) {
        tri_philox_block block = tri_philox_quad(seed, value.id, 0, (uint64_t)i / 4);
        for (int64_t k = 0; k < 4 && i + k < count; k++)
            set(dtype, host, i + k, low + (high - low) * (double)tri_philox_uniform(block.word[k]));
    }
}

static bool is_source(const tri_value_info *info) {
    return info->kind != TRI_VALUE_RESULT && info->kind != TRI_VALUE_NONE;
}

static size_t host_bytes(const op_session *s, int i) {
    return (size_t)op_count(s, (tri_value){(uint32_t)i}) *
           tri_dtype_bytes(s->graph->values[i].dtype);
}

void op_keep_sources(op_session *s) {
    for (int i = 1; i < s->value_count; i++) {
        if (!is_source(&s->graph->values[i])) continue;
        if (!s->kept[i]) s->kept[i] = malloc(host_bytes(s, i) + 1);
        memcpy(s->kept[i], s->host[i], host_bytes(s, i));
    }
}

void op_restore_sources(op_session *s) {
    for (int i = 1; i < s->value_count; i++)
        if (s->kept[i]) memcpy(s->host[i], s->kept[i], host_bytes(s, i));
}

// Copies the sources (values that no node computes) to the device, with zeros as their padding.
// Fills the results, their copies on the host and the workspace with poison (a bit pattern), so
// that a kernel that reads them first or leaves elements out is noticed.
static void load(op_session *s) {
    for (int pass = 0; pass < 2; pass++) // sources last, because results may share their memory
        for (int i = 1; i < s->value_count; i++) {
            const tri_value_info *info = &s->graph->values[i];
            if (is_source(info) != (pass == 1)) continue;
            size_t bytes = (size_t)tri_value_bytes(s->graph, (tri_value){(uint32_t)i});
            char *image = calloc(1, bytes + 1);
            size_t element = tri_dtype_bytes(info->dtype);
            int64_t count = op_count(s, (tri_value){(uint32_t)i});
            if (is_source(info)) {
                tri_layout_from_plain(&info->layout, &info->shape, element, s->host[i], image, 0,
                                      count);
            } else {
                memset(image, POISON, bytes);
                memset(s->host[i], POISON, (size_t)count * element);
            }
            ok(tri_queue_write(s->queue, s->memory[i], image, bytes));
            free(image);
        }
    static char poison[1 << 20];
    memset(poison, POISON, sizeof poison);
    for (size_t at = 0; at < s->workspace_bytes; at += sizeof poison) {
        size_t rest = s->workspace_bytes - at;
        ok(tri_queue_write(s->queue, (char *)s->workspace + at, poison,
                           rest < sizeof poison ? rest : sizeof poison));
    }
}

// Copies all values back to the host, the sources too: an optimizer's update writes over them, and
// a test may check that other ops leave them as they are.
static void store(op_session *s) {
    for (int i = 1; i < s->value_count; i++) {
        const tri_value_info *info = &s->graph->values[i];
        size_t bytes = (size_t)tri_value_bytes(s->graph, (tri_value){(uint32_t)i});
        char *image = malloc(bytes + 1);
        ok(tri_queue_read(s->queue, image, s->memory[i], bytes));
        tri_layout_to_plain(&info->layout, &info->shape, tri_dtype_bytes(info->dtype), image,
                            s->host[i], 0, op_count(s, (tri_value){(uint32_t)i}));
        free(image);
    }
}

// Before a kernel adds to an output, the output is filled with bytes ADDED_TO. Four such bytes are
// a float with the value ADDED_NUMBER.
enum { ADDED_TO = 0x3e };
static const float ADDED_NUMBER = 0x1.7c7c7cp-3f;

// Which outputs of the node are to be added to what their memory holds: all that the kernel can
// add, if no node reads them. Gradients of parameters are such values.
static unsigned adds_of(const op_session *s, int index) {
    const tri_node *node = &s->graph->nodes[index];
    unsigned adds =
        s->adds ? tri_kernel_adds(s->kernels[index].def, &s->device->description, s->graph, node)
                : 0;
    for (int k = 0; adds >> k; k++)
        if (k >= node->output_count || !tri_value_is(node->outputs[k]) ||
            read_after(s->graph, node->outputs[k], index))
            adds &= ~(1u << k);
    return adds;
}

// Fills the outputs to which the kernel adds with ADDED_NUMBER, which `take_off` subtracts again.
static void fill_added(op_session *s, int index, unsigned adds) {
    for (int k = 0; adds >> k; k++) {
        if (!(adds >> k & 1)) continue;
        tri_value value = s->graph->nodes[index].outputs[k];
        size_t bytes = (size_t)tri_value_bytes(s->graph, value);
        assert_int_equal(tri_value_get(s->graph, value)->dtype, TRI_F32);
        char *image = malloc(bytes + 1);
        memset(image, ADDED_TO, bytes);
        ok(tri_queue_write(s->queue, s->memory[value.id], image, bytes));
        free(image);
    }
}

static void take_off(op_session *s) {
    for (int i = 0; i < s->graph->node_count; i++) {
        if (!s->kernels[i].def) continue;
        unsigned adds = adds_of(s, i);
        for (int k = 0; adds >> k; k++) {
            if (!(adds >> k & 1)) continue;
            tri_value value = s->graph->nodes[i].outputs[k];
            for (int64_t e = 0, count = op_count(s, value); e < count; e++)
                ((float *)op_host(s, value))[e] -= ADDED_NUMBER;
            s->added++;
        }
    }
}

static tri_status run_node(op_session *s, int index) {
    const tri_node *node = &s->graph->nodes[index];
    void *in[TRI_MAX_INPUTS] = {NULL}, *out[TRI_MAX_OUTPUTS] = {NULL};
    if (node->op->flags & TRI_OP_VIEW) return TRI_OK;
    for (int k = 0; k < node->input_count; k++) in[k] = s->memory[node->inputs[k].id];
    for (int k = 0; k < node->output_count; k++) out[k] = s->memory[node->outputs[k].id];
    if (node->op->flags & TRI_OP_COLLECTIVE)
        return engine_collective(s->comm, s->graph, node, in, out);
    tri_kernel_args args = {.queue = s->queue,
                            .in = in,
                            .out = out,
                            .workspace = s->workspace,
                            .adds = adds_of(s, index)};
    fill_added(s, index, args.adds);
    return tri_kernel_run(&s->kernels[index], &args);
}

tri_status op_run(op_session *session) {
    load(session);
    for (int i = 0; i < session->graph->node_count; i++) TRI_TRY(run_node(session, i));
    TRI_TRY(tri_queue_finish(session->queue));
    store(session);
    take_off(session);
    return TRI_OK;
}

void op_run_ok(op_session *session) { ok(op_run(session)); }
