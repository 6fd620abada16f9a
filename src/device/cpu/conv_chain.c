// A primitive of oneDNN for a convolution, between reorders. oneDNN's fastest code for groups, or
// for numbers of channels that are no multiples of 16, wants layouts that no other kernel knows. So
// where a request leaves the layouts to oneDNN (conv_request.any), tensors that lie in another
// layout are copied into the scratchpad first, and the result is copied out of it.
#include "device/cpu/conv.h"

#include <stdlib.h>

enum { ALIGNMENT = 64 };

static size_t aligned(size_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

// The task's tensors in the order of the data of conv_primitives_run. Tensor 2 is the result.
static const int chain_args[][4] = {
    [CONV_FORWARD] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS},
    [CONV_GRAD_INPUT] = {DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_SRC, 0},
    [CONV_GRAD_WEIGHT] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS,
                          DNNL_ARG_DIFF_BIAS},
};

// Describes the reorder of tensor i between the layout that it has and that of the primitive; NULL:
// they are the same.
static tri_status describe_reorder(const conv_request *request, const_dnnl_primitive_desc_t pd,
                                   int i, dnnl_primitive_desc_t *out) {
    onednn_const_md inner =
        dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, chain_args[request->task][i]);
    onednn_md outer = NULL;
    dnnl_engine_t engine;
    dnnl_primitive_attr_t attr;
    *out = NULL;
    TRI_TRY(conv_outer_md(request, i, &outer));
    if (dnnl_memory_desc_equal(inner, outer)) {
        onednn_md_destroy(outer);
        return TRI_OK;
    }
    tri_status status = cpu_engine(&engine);
    if (status == TRI_OK) status = cpu_primitive_attr(&attr);
    if (status == TRI_OK) {
        onednn_const_md from = i < 2 ? outer : inner, to = i < 2 ? inner : outer;
        if (dnnl_reorder_primitive_desc_create(out, from, engine, to, engine, attr) != dnnl_success)
            status = TRI_FAIL(TRI_UNSUPPORTED, "oneDNN has no reorder for a convolution");
        dnnl_primitive_attr_destroy(attr);
    }
    onednn_md_destroy(outer);
    return status;
}

static size_t inner_bytes(const conv_request *request, const_dnnl_primitive_desc_t pd, int i) {
    return aligned(dnnl_memory_desc_get_size(
        dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, chain_args[request->task][i])));
}

tri_status conv_chain_ask(const conv_request *request, cpu_primitive_facts *out) {
    dnnl_primitive_desc_t pd;
    TRI_TRY(conv_describe(request, &pd));
    cpu_primitive_facts facts = cpu_primitive_facts_of(pd);
    tri_status status = TRI_OK;
    facts.scratchpad_bytes = aligned(facts.scratchpad_bytes);
    for (int i = 0; i < 3 && request->any && status == TRI_OK; i++) {
        dnnl_primitive_desc_t reorder;
        status = describe_reorder(request, pd, i, &reorder);
        if (status != TRI_OK || !reorder) continue;
        facts.scratchpad_bytes +=
            inner_bytes(request, pd, i) + aligned(cpu_primitive_facts_of(reorder).scratchpad_bytes);
        dnnl_primitive_desc_destroy(reorder);
    }
    dnnl_primitive_desc_destroy(pd);
    if (status == TRI_OK) *out = facts;
    return status;
}

tri_status conv_chain_make(const cpu_device *device, const conv_request *request, conv_chain *out) {
    dnnl_primitive_desc_t pd, reorders[3] = {0};
    size_t bytes[3] = {0};
    TRI_TRY(conv_describe(request, &pd));
    tri_status status = TRI_OK;
    for (int i = 0; i < 3 && request->any && status == TRI_OK; i++) {
        status = describe_reorder(request, pd, i, &reorders[i]);
        if (reorders[i]) bytes[i] = inner_bytes(request, pd, i);
    }
    if (status == TRI_OK)
        status = cpu_primitive_make(device, pd, chain_args[request->task], 3 + request->bias,
                                    &out->main);
    else
        dnnl_primitive_desc_destroy(pd);
    out->scratchpad_bytes = aligned(out->main.scratchpad_bytes);
    for (int i = 0; i < 3; i++) {
        if (!reorders[i]) continue;
        static const int args[] = {DNNL_ARG_FROM, DNNL_ARG_TO};
        if (status == TRI_OK)
            status = cpu_primitive_make(device, reorders[i], args, 2, &out->reorders[i]);
        else
            dnnl_primitive_desc_destroy(reorders[i]);
        out->copy_bytes[i] = bytes[i];
        out->scratchpad_bytes += bytes[i] + aligned(out->reorders[i].scratchpad_bytes);
    }
    return status;
}

void conv_chain_set_stream(conv_chain *chain, dnnl_stream_t stream) {
    chain->main.stream = stream;
    for (int i = 0; i < 3; i++) chain->reorders[i].stream = stream;
}

// Runs the reorder of tensor i, if there is one.
static tri_status run_reorder(conv_chain *chain, int i, void *from, void *to, char *scratch) {
    if (!chain->reorders[i].primitive) return TRI_OK;
    return cpu_primitive_run(&chain->reorders[i], (void *[]){from, to}, scratch);
}

tri_status conv_chain_run(conv_chain *chain, void *const *data, void *scratchpad) {
    char *scratch = scratchpad, *own = scratch + aligned(chain->main.scratchpad_bytes);
    void *inner[4] = {data[0], data[1], data[2], data[3]};
    char *room[3];
    for (int i = 0; i < 3; i++) {
        if (chain->copy_bytes[i]) inner[i] = own;
        room[i] = own + chain->copy_bytes[i];
        own = room[i] + aligned(chain->reorders[i].scratchpad_bytes);
    }
    for (int i = 0; i < 2; i++) TRI_TRY(run_reorder(chain, i, data[i], inner[i], room[i]));
    TRI_TRY(cpu_primitive_run(&chain->main, inner, scratch));
    return run_reorder(chain, 2, inner[2], data[2], room[2]);
}

void conv_chain_release(conv_chain *chain) {
    cpu_primitive_release(&chain->main);
    for (int i = 0; i < 3; i++) cpu_primitive_release(&chain->reorders[i]);
}
