// Asks the real cuDNN, where it is installed, whether it has a plan for the convolutions of our
// models as module/dnn_convolution.cu describes them. No GPU is needed (described_gpu.h). A missing
// plan would be no error at run time, but would make the convolution many times slower.
//
// Plans for convolutions that tensor cores compute are asked for in both layouts of images,
// channels first and channels last. The device stores such images with channels last, and for these
// a plan must need no memory for copies. Some plans are also chosen by measuring, and written to a
// file (TRIREME_CUDA_CHOICES). The plan that cuDNN then makes from this file has to have the same
// text as the plan that was measured.
#include "emulated_gpu/described_gpu.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace {

int most_measured; // the largest number of plans that were measured for one convolution

struct layer {
    const char *name;
    int64_t samples, channels, height, width, features, groups;
    int kernel, stride, padding, dilation;
};

const layer layers[] = {
    {"mnist-cnn, first", 64, 1, 28, 28, 32, 1, 3, 1, 0, 1},
    {"mnist-cnn, second", 64, 32, 26, 26, 64, 1, 3, 1, 0, 1},
    {"mnist-cnn, one sample", 1, 32, 26, 26, 64, 1, 3, 1, 0, 1},
    {"autoencoder", 128, 16, 14, 14, 4, 1, 3, 1, 1, 1},
    {"denoise-cnn", 32, 64, 64, 64, 64, 1, 3, 1, 1, 1},
    {"ResNet-50, stem", 256, 3, 224, 224, 64, 1, 7, 2, 3, 1},
    {"ResNet-50, 1 x 1", 256, 256, 56, 56, 64, 1, 1, 1, 0, 1},
    {"ResNet-50, 3 x 3", 256, 64, 56, 56, 64, 1, 3, 1, 1, 1},
    {"ResNet-50, 3 x 3 with stride", 256, 128, 56, 56, 128, 1, 3, 2, 1, 1},
    {"ViT-B/16, patches", 128, 3, 224, 224, 768, 1, 16, 16, 0, 1},
    {"depthwise", 64, 32, 14, 14, 32, 32, 3, 1, 1, 1},
    {"dilated", 16, 24, 33, 31, 40, 1, 3, 1, 2, 2},
};

// A type of the inputs with a layout of the images; each of the layers is tried in all of these
// forms.
struct form {
    const char *name;
    tri_dtype dtype;
    bool tf32, channels_last;
    int64_t workspace_bytes_sum; // the sum of the plans' workspaces
};

form forms[] = {{"F32", TRI_F32, false, false, 0},  {"TF32", TRI_F32, true, false, 0},
                {"TF32", TRI_F32, true, true, 0},   {"BF16", TRI_BF16, false, false, 0},
                {"BF16", TRI_BF16, false, true, 0}, {"F16", TRI_F16, false, false, 0},
                {"F16", TRI_F16, false, true, 0}};

cuda_convolution convolution_of(const layer &l, const form &f, cuda_convolution_kind kind) {
    cuda_convolution p = {};
    p.tf32 = f.tf32;
    p.channels_last = f.channels_last;
    p.kind = kind;
    p.samples = l.samples;
    p.channels = l.channels;
    p.features = l.features;
    p.groups = l.groups;
    const int64_t sides[] = {l.height, l.width};
    for (int i = 0; i < 2; i++) {
        p.in[i] = (int)sides[i];
        p.kernel[i] = l.kernel;
        p.stride[i] = l.stride;
        p.padding[i] = l.padding;
        p.dilation[i] = l.dilation;
        p.out[i] = (p.in[i] + 2 * l.padding - l.dilation * (l.kernel - 1) - 1) / l.stride + 1;
    }
    p.in_type = f.dtype;
    p.out_type = kind == CUDA_GRAD_WEIGHT ? TRI_F32 : f.dtype;
    static char memory[16] __attribute__((aligned(256)));
    p.a = p.b = p.c = p.workspace = memory;
    p.workspace_bytes = cuda_convolution_bytes(&p);
    return p;
}

// Whether the plan that was asked for last copies an image although it need not. A copy shows as a
// workspace of more than 8 MB: the partial sums of a gradient, for which a plan may use memory,
// take less.
bool copies(const layer &l, const cuda_convolution &p) {
    int64_t lot = p.in_type == TRI_F32 ? 4 : 8; // channels in 16 bytes
    bool is_whole = l.channels / l.groups % lot == 0 && l.features % lot == 0;
    return p.channels_last && is_whole && described.workspace_bytes > 8000000;
}

// Asks for a plan. Returns 0 if there is one that copies no image, and that leaves the caller
// nothing to do, or only the work `most` (such as adding the bias); else prints a line and
// returns 1.
int check(const layer &l, form *f, const cuda_convolution &p, const char *what, vendor_left most) {
    static const char *const kind_names[] = {"forward", "gradient of x", "gradient of the weight"};
    vendor_left left = VENDOR_LEFT_NOTHING;
    tri_status status = TRI_OK;
    char why[CUDA_WHY_BYTES] = "";
    int before = described.executed;
    bool is_taken = vendor_convolution(nullptr, &p, &left, &status, why);
    f->workspace_bytes_sum += is_taken ? described.workspace_bytes : 0;
    if (is_taken && status == TRI_OK && (left == VENDOR_LEFT_NOTHING || left == most) &&
        described.executed == before + 1 && !copies(l, p))
        return 0;
    printf("%s, %s, channels %s, %s%s: %s %s (%lld bytes)\n", l.name, f->name,
           p.channels_last ? "last" : "first", kind_names[p.kind], what,
           !is_taken                          ? "no plan"
           : status != TRI_OK                 ? "fails"
           : described.executed != before + 1 ? "not executed"
           : copies(l, p)                     ? "copies images"
                                              : "more is left to do than need be",
           why, (long long)described.workspace_bytes);
    return 1;
}

int check_layer(const layer &l, form *f) {
    static const char bias[16] __attribute__((aligned(16))) = "";
    int missing = 0;
    cuda_convolution p = convolution_of(l, *f, CUDA_FORWARD);
    missing += check(l, f, p, "", VENDOR_LEFT_NOTHING);
    p.bias = bias;
    missing += check(l, f, p, ", bias", VENDOR_LEFT_NOTHING);
    p.relu = true;
    missing += check(l, f, p, ", bias and ReLU", VENDOR_LEFT_NOTHING);
    // cuDNN compiles a plan for "ReLU without bias" only on request, which needs a driver. So in
    // this test our own kernel may apply ReLU.
    p.bias = nullptr;
    missing += check(l, f, p, ", ReLU", VENDOR_LEFT_FINISH);
    p = convolution_of(l, *f, CUDA_GRAD_INPUT);
    missing += check(l, f, p, "", VENDOR_LEFT_NOTHING);
    p = convolution_of(l, *f, CUDA_GRAD_WEIGHT);
    missing += check(l, f, p, "", f->dtype == TRI_F32 ? VENDOR_LEFT_NOTHING : VENDOR_LEFT_WIDEN);
    return missing;
}

// Measures the plans of a convolution, of which the last one is the fastest, and makes the chosen
// one again from its file, as another process would. Returns 0 if both are the same plan, else
// prints a line and returns 1.
int check_kept(const layer &l, const form &f, const cuda_convolution &p) {
    vendor_left left[2];
    tri_status status[2];
    char why[CUDA_WHY_BYTES] = "";
    std::string plans[2];
    int measured = 0;
    for (int i = 0; i < 2; i++) {
        int before = described.executed;
        described.device_number = 2 + i;
        if (!vendor_convolution(nullptr, &p, &left[i], &status[i], why)) status[i] = TRI_INTERNAL;
        plans[i] = described.last_plan;
        if (i == 0) measured = (described.executed - before - 1) / (1 + VENDOR_TIMES);
        if (i == 1 && described.executed != before + 1)
            status[1] = TRI_INTERNAL; // it was measured again
    }
    most_measured = measured > most_measured ? measured : most_measured;
    if (status[0] == TRI_OK && status[1] == TRI_OK && left[0] == left[1] && measured > 0 &&
        !plans[0].empty() && plans[0] == plans[1])
        return 0;
    printf("%s, %s, kind %d: the kept plan is not the measured one (%d measured) %s\n", l.name,
           f.name, p.kind, measured, why);
    return 1;
}

int check_kept_plans() {
    char folder[] = "/tmp/trireme-cudnn-XXXXXX";
    static const char bias[16] __attribute__((aligned(16))) = "";
    if (!mkdtemp(folder) || setenv("TRIREME_CUDA_CHOICES", folder, 1)) return 1;
    described.wants_plan = true;
    int wrong = 0;
    for (const form &f : forms) {
        if (f.dtype != TRI_F32 && !f.channels_last) continue;
        for (cuda_convolution_kind kind : {CUDA_FORWARD, CUDA_GRAD_INPUT, CUDA_GRAD_WEIGHT}) {
            const layer &l = layers[7]; // ResNet-50, 3 x 3
            cuda_convolution p = convolution_of(l, f, kind);
            if (kind == CUDA_FORWARD) p.bias = bias;
            wrong += check_kept(l, f, p);
        }
    }
    std::filesystem::remove_all(folder);
    return wrong;
}

} // namespace

int main() {
    if (!describe_gpu(DESCRIBED_H200)) return DESCRIBED_SKIPPED;
    int missing = 0;
    for (form &f : forms) {
        for (const layer &l : layers) missing += check_layer(l, &f);
        printf("%s, channels %s: %.0f MB of workspace, summed over the plans\n", f.name,
               f.channels_last ? "last" : "first", (double)f.workspace_bytes_sum / 1e6);
    }
    printf("cuDNN %zu: %d plans, %d missing\n", described.version, described.executed, missing);
    missing += check_kept_plans();
    printf("at most %d plans were measured for a convolution\n", most_measured);
    return missing > 0 || most_measured < 2;
}
