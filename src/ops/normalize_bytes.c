// Defines the op that converts images of bytes to normalized F32: (x / 255 - mean[c]) / std[c] for
// byte x of channel c. Because the device does this, images are copied to it as bytes, a quarter of
// their size in F32.
#include "ops/rules.h"

static tri_status normalize_bytes_shape(const void *attr, tri_op_signature *s) {
    const tri_pixel_scale *a = attr;
    TRI_TRY(ops_want_type("normalize_bytes", "x", s->in_type[0], TRI_U8));
    if (a->channels < 1 || a->channels > TRI_MAX_PIXEL_CHANNELS || s->in[0].rank < 2 ||
        s->in[0].dims[1] != a->channels)
        return TRI_FAIL(TRI_BAD_INPUT, "normalize_bytes: x must be [N, %lld, ..]",
                        (long long)a->channels);
    s->out[0] = s->in[0];
    s->out_type[0] = TRI_F32;
    return TRI_OK;
}

static tri_cost normalize_bytes_cost(const void *attr, const tri_op_signature *s) {
    return ops_cost_per_input(s, 3);
}

static const tri_attr_field normalize_bytes_fields[] = {
    OPS_FIELD(TRI_ATTR_INT, tri_pixel_scale, channels),
    {.name = "mean",
     .kind = TRI_ATTR_FLOAT,
     .offset = offsetof(tri_pixel_scale, mean),
     .count = TRI_MAX_PIXEL_CHANNELS},
    {.name = "std",
     .kind = TRI_ATTR_FLOAT,
     .offset = offsetof(tri_pixel_scale, std),
     .count = TRI_MAX_PIXEL_CHANNELS},
    {0},
};

const tri_op tri_op_normalize_bytes = {
    .name = "normalize_bytes",
    .doc = "x U8 [N, C, ..] -> y F32: (x / 255 - mean[c]) / std[c], each operation rounded to F32",
    .input_count = 1,
    .output_count = 1,
    .attr_bytes = sizeof(tri_pixel_scale),
    .attr_fields = normalize_bytes_fields,
    .shape = normalize_bytes_shape,
    .cost = normalize_bytes_cost,
};
