// Asks the real cuDNN, where it is installed, whether it has a plan for attention and its gradient
// as module/dnn_attention.cu describes them. No GPU is needed (described_gpu.h). cuDNN compiles
// these kernels at run time, for which it needs a driver: a double of it is enough (driver.c). A
// missing plan would be no error at run time, but would make attention several times slower.
#include "emulated_gpu/described_gpu.h"

#include <cstdio>
#include <dlfcn.h>

namespace {

struct layer {
    const char *name;
    int64_t samples, length, heads, kv_heads, width;
    bool causal;
};

const layer layers[] = {
    {"llama-1b", 8, 2048, 32, 4, 64, true},       {"llama-tiny", 16, 128, 8, 8, 32, true},
    {"CodeLlama-7B", 1, 4096, 32, 32, 128, true}, {"ViT-B/16", 128, 197, 12, 12, 64, false},
    {"odd length", 4, 333, 6, 2, 80, true},       {"two tokens", 2, 2, 4, 4, 16, true},
    {"narrow heads", 2, 65, 4, 1, 8, false},
};

cuda_attention attention_of(const layer &l, tri_dtype type) {
    static char memory[16] __attribute__((aligned(256)));
    cuda_attention p = {};
    p.samples = l.samples;
    p.queries = p.keys = l.length;
    p.heads = l.heads;
    p.kv_heads = l.kv_heads;
    p.width = l.width;
    p.scale = 0.125f;
    p.causal = l.causal;
    p.type = type;
    p.q = p.k = p.v = p.y = p.workspace = memory;
    p.log_sum_exp = (float *)memory;
    p.workspace_bytes = CUDA_ATTENTION_DNN_BYTES;
    return p;
}

// Returns 0 if there was a plan, else prints a line and returns 1.
int check(const layer &l, const char *what, bool is_taken, tri_status status, const char *why,
          int before) {
    if (is_taken && status == TRI_OK && described.executed == before + 1) return 0;
    printf("%s, %s: %s %s\n", l.name, what, is_taken ? "fails" : "no plan", why);
    return 1;
}

int check_layer(const layer &l, tri_dtype type) {
    char why[CUDA_WHY_BYTES] = "";
    tri_status status = TRI_OK;
    cuda_attention p = attention_of(l, type);
    int before = described.executed;
    bool is_taken = vendor_attention(nullptr, &p, &status, why);
    int missing = check(l, "forward", is_taken, status, why, before);
    cuda_attention_grad grad = {};
    grad.forward = p;
    grad.forward.workspace_bytes = cuda_attention_grad_dnn_bytes(&p);
    grad.dy = grad.dq = grad.dk = grad.dv = (void *)p.q;
    grad.dots = grad.dq_sums = p.log_sum_exp;
    before = described.executed;
    is_taken = vendor_attention_grad(nullptr, &grad, &status, why);
    if (is_taken)
        printf("%s: the gradient's plan needs %lld of %lld bytes\n", l.name,
               (long long)described.workspace_bytes, (long long)grad.forward.workspace_bytes);
    return missing + check(l, "gradient", is_taken, status, why, before);
}

} // namespace

int main() {
    if (!dlopen(DRIVER_DOUBLE, RTLD_NOW | RTLD_GLOBAL)) {
        printf("%s\n", dlerror());
        return 1;
    }
    int missing = 0;
    for (described_kind kind : {DESCRIBED_H200, DESCRIBED_A100}) {
        if (!describe_gpu(kind)) return DESCRIBED_SKIPPED;
        printf("%s\n", kind == DESCRIBED_H200 ? "H200" : "A100");
        for (const layer &l : layers) missing += check_layer(l, TRI_BF16);
        missing += check_layer(layers[0], TRI_F16);
    }
    printf("cuDNN %zu: %d plans, %d missing\n", described.version, described.executed, missing);
    return missing > 0;
}
