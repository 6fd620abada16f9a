// The data set "synthetic" (data.name): random samples, generated when they are read. Floats are
// uniform in [0, 1), and labels and tokens are uniform below data.classes and data.vocabulary. Each
// number depends only on (seed, split, field, sample, element). With data.classes the fields are
// images and labels, with data.vocabulary input_ids, else inputs and targets.
#include "base/philox.h"
#include "data/kind.h"

typedef struct synthetic_state {
    uint64_t keys[2]; // by field: key from which the field's random numbers are drawn
} synthetic_state;

static tri_status synthetic_describe(tri_dataset *dataset) {
    const tri_data_options *options = dataset->options;
    const char *source = "data.shape";
    if (options->shape.count > TRI_MAX_RANK - 1)
        return TRI_FAIL(TRI_BAD_INPUT, "data.shape has %d sizes; at most %d are supported",
                        options->shape.count, TRI_MAX_RANK - 1);
    if (options->classes > 0 && options->vocabulary > 0)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "data.classes and data.vocabulary exclude each other: set one to 0");
    if (options->vocabulary > 0 && options->shape.count == 1)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "data.shape does not apply to token numbers: set data.sequence, the tokens "
                        "per sample");
    tri_shape shape = {.rank = options->shape.count};
    for (int i = 0; i < shape.rank; i++) shape.dims[i] = options->shape.items[i];
    if (options->vocabulary > 0) {
        shape = tri_shape_of(options->sequence);
        TRI_TRY(tri_dataset_add(dataset, "data.sequence", "input_ids", TRI_I64, &shape));
        dataset->fields[0].classes = options->vocabulary;
        return TRI_OK;
    }
    if (options->classes > 0) {
        TRI_TRY(tri_dataset_add(dataset, source, "images", TRI_F32, &shape));
        TRI_TRY(tri_dataset_add(dataset, source, "labels", TRI_I64, &(tri_shape){0}));
        dataset->fields[1].classes = options->classes;
        return TRI_OK;
    }
    TRI_TRY(tri_dataset_add(dataset, source, "inputs", TRI_F32, &shape));
    return tri_dataset_add(dataset, source, "targets", TRI_F32, &shape);
}

static tri_status synthetic_open(tri_dataset *dataset) {
    bool training = dataset->file_split == TRI_DATA_TRAIN;
    dataset->samples = training ? dataset->options->samples : dataset->options->test_samples;
    if (dataset->samples == 0)
        return TRI_FAIL(TRI_NOT_FOUND, "data.test_samples is 0: there is no test data");
    TRI_TRY(synthetic_describe(dataset));
    synthetic_state *state = TRI_NEW(dataset->arena, synthetic_state);
    for (int i = 0; i < dataset->field_count; i++)
        state->keys[i] =
            tri_philox_key(dataset->seed, tri_arena_printf(dataset->arena, "data/synthetic/%s/%s",
                                                           training ? "train" : "test",
                                                           dataset->fields[i].field.name));
    dataset->state = state;
    return TRI_OK;
}

static void synthetic_close(tri_dataset *dataset) {}

// Generates the elements of a sample. Element e is random word e mod 4 of the Philox block with the
// counter (e div 4, low 32 bits of the sample's number, its high 32 bits, 0), so that any sample
// can be generated at any time.
static void draw_field(const tri_dataset *dataset, int field, int64_t sample, void *buffer) {
    const synthetic_state *state = dataset->state;
    int64_t count = tri_shape_count(&dataset->fields[field].stored_shape);
    uint64_t classes = (uint64_t)dataset->fields[field].classes;
    float *floats = buffer;
    int64_t *numbers = buffer;
    bool is_float = dataset->fields[field].stored_dtype == TRI_F32;
    for (int64_t at = 0; at < count; at += 4) {
        const uint32_t counter[4] = {(uint32_t)(at / 4), (uint32_t)sample,
                                     (uint32_t)((uint64_t)sample >> 32), 0};
        tri_philox_block block = tri_philox(state->keys[field], counter);
        for (int64_t k = 0; k < 4 && at + k < count; k++) {
            if (is_float)
                floats[at + k] = tri_philox_uniform(block.word[k]);
            else
                numbers[at + k] = (int64_t)((uint64_t)block.word[k] * classes >> 32);
        }
    }
}

static tri_status synthetic_read(const tri_dataset *dataset, void *worker, int64_t sample,
                                 tri_sample_value *values) {
    for (int field = 0; field < dataset->field_count; field++) {
        draw_field(dataset, field, sample, values[field].buffer);
        values[field].data = values[field].buffer;
    }
    return TRI_OK;
}

static bool synthetic_names(const tri_data_options *options, tri_data_split split) {
    return split == TRI_DATA_TEST && options->test_samples > 0;
}

static bool synthetic_is_text(const tri_data_options *options) { return options->vocabulary > 0; }

const tri_dataset_kind tri_dataset_synthetic = {
    .open = synthetic_open,
    .close = synthetic_close,
    .read = synthetic_read,
    .names = synthetic_names,
    .is_text = synthetic_is_text,
    .describe = synthetic_describe,
};
