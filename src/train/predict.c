// Writes the outputs of a model for all samples, for `trireme predict`. It is an evaluation whose
// program has outputs instead of a loss: the engine hands over the rows of each micro-batch, and
// each rank writes its own to their place in one safetensors file, which rank 0 has laid out.
#include "train/predict.h"

#include "base/log.h"
#include "base/os.h"
#include "base/quantity.h"
#include "data/progress.h"
#include "format/safetensors.h"
#include "tensor/half.h"
#include "train/loop.h"
#include "train/origin.h"
#include "train/signals.h"
#include "train/tell.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

typedef struct predicting {
    tri_session *session;
    tri_arena *arena;
    train_feed feed;
    const char *checkpoint; // as the user has named it
    int64_t samples;
    tri_safetensors_layout layout;
    tri_os_replacement file; // on other ranks than 0, only `fd` and `temporary`
    float *widened;          // room for one row of a half type
    tri_data_progress progress;
} predicting;

static bool has_signal(void *context, double numbers[TRI_MAX_CALLER_NUMBERS]) {
    (void)context;
    numbers[0] = tri_signals_seen() != 0;
    return numbers[0] != 0;
}

static bool is_half(tri_dtype dtype) { return dtype == TRI_BF16 || dtype == TRI_F16; }

// Describes the file: the outputs with the rows of all samples. Half types are written as F32.
static tri_status lay_out(predicting *p) {
    const tri_graph *g = p->session->plan->graph;
    tri_safetensors_spec *specs = TRI_NEW_ARRAY(p->arena, tri_safetensors_spec, g->output_count);
    int64_t longest = 0;
    for (int i = 0; i < g->output_count; i++) {
        const tri_value_info *info = tri_value_get(g, g->outputs[i].value);
        tri_shape shape = info->shape;
        int64_t row = tri_shape_count(&shape) / shape.dims[0];
        if (row > longest) longest = row;
        shape.dims[0] = p->samples;
        specs[i] = (tri_safetensors_spec){g->outputs[i].name,
                                          is_half(info->dtype) ? TRI_F32 : info->dtype, shape};
    }
    p->widened = TRI_NEW_ARRAY(p->arena, float, longest);
    return tri_safetensors_lay_out(p->arena, specs, g->output_count, NULL, 0, &p->layout);
}

// Refuses to replace what is read by what is made of it.
static tri_status check_file(const predicting *p) {
    const char *path = p->file.path, *what = NULL;
    const char *model = tri_arena_printf(p->arena, "%s/model.safetensors", p->checkpoint);
    if (tri_os_is_same_file(p->checkpoint, path) || tri_os_is_same_file(model, path))
        what = "has the weights (--checkpoint)";
    if (tri_dataset_reads_file(p->session->val_data, path)) what = "has the samples";
    if (!what) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT, "--out: %s %s: name another file", path, what);
}

static tri_status begin_file(predicting *p) {
    const char *path = p->file.path;
    TRI_TRY(check_file(p));
    tri_status status = tri_os_replacement_begin(path, &p->file);
    if (status != TRI_OK) {
        p->file.fd = -1;
        return status;
    }
    TRI_TRY(tri_os_write_all(p->file.fd, p->layout.header, (size_t)p->layout.header_bytes, path));
    // The size is set at once, so that no rank's rows depend on those of another.
    if (tri_os.ftruncate(p->file.fd, p->layout.file_bytes) < 0) return tri_os_fail("write", path);
    return TRI_OK;
}

// Opens the file on all ranks. Rank 0 has created it, and tells its temporary name. After a failure
// close_file has to be called, too.
static tri_status open_file(predicting *p) {
    tri_session *s = p->session;
    bool is_first = s->identity.rank == 0;
    TRI_TRY(tri_tell_and_agree(s->comm, is_first ? begin_file(p) : TRI_OK, "--out"));
    if (s->comm->size == 1) return TRI_OK;
    tri_comm_op tell = {.kind = TRI_COMM_BROADCAST,
                        .dtype = TRI_U8,
                        .count = sizeof p->file.temporary,
                        .send = p->file.temporary,
                        .recv = p->file.temporary,
                        .label = "name of --out"};
    TRI_TRY(tri_comm_run(s->comm, &tell));
    tri_status status = TRI_OK;
    if (!is_first) p->file.fd = tri_os.open(p->file.temporary, O_WRONLY | O_CLOEXEC, 0);
    if (p->file.fd < 0)
        status = TRI_FAIL(TRI_BAD_INPUT,
                          "--out %s: rank %d does not see the file that rank 0 has created: name "
                          "a folder that all hosts share",
                          p->file.path, s->identity.rank);
    return tri_tell_and_agree(s->comm, status, "--out");
}

// Ends the file: rank 0 gives it its name once all ranks have written and synced their rows, and
// removes it if that failed.
static tri_status close_file(predicting *p, tri_status status) {
    tri_session *s = p->session;
    bool is_first = s->identity.rank == 0;
    if (p->file.fd < 0) return status;
    if (!is_first && status == TRI_OK && tri_os.fsync(p->file.fd) < 0)
        status = tri_os_fail("sync", p->file.path);
    if (!is_first && tri_os.close(p->file.fd) < 0 && status == TRI_OK)
        status = tri_os_fail("close", p->file.path);
    if (status == TRI_OK) status = tri_tell_and_agree(s->comm, TRI_OK, "writing of --out");
    return is_first ? tri_os_replacement_end(&p->file, status) : status;
}

static tri_status next(void *context, tri_engine_batch *out) {
    predicting *p = context;
    TRI_TRY(train_feed_next(&p->feed, out));
    if (p->session->identity.rank > 0) return TRI_OK;
    // Replicas take their micro-batches in turn, so that all are about as far as this one.
    int64_t first = p->feed.held[p->feed.given - 1]->micro.first;
    tri_data_progress_show(&p->progress, first);
    return TRI_OK;
}

static void release(void *context) {
    predicting *p = context;
    train_feed_release(&p->feed);
}

static tri_status take_output(void *context, const tri_output_rows *rows) {
    predicting *p = context;
    const tri_safetensors_entry *entry = &p->layout.entries[rows->output];
    int64_t row_bytes = entry->size_bytes / p->samples;
    int64_t at = entry->offset + rows->first * row_bytes;
    if (!is_half(rows->dtype))
        return tri_os_pwrite_all(p->file.fd, rows->data, (size_t)(rows->size * row_bytes), at,
                                 p->file.path);
    int64_t elements = tri_shape_count(&rows->shape) / rows->size;
    for (int64_t i = 0; i < rows->size; i++) {
        const uint16_t *half = (const uint16_t *)rows->data + i * elements;
        tri_half_widen(rows->dtype, half, p->widened, elements);
        TRI_TRY(tri_os_pwrite_all(p->file.fd, p->widened, (size_t)row_bytes, at + i * row_bytes,
                                  p->file.path));
    }
    return TRI_OK;
}

// Writes over the rows of samples that this rank could not read, as no network's outputs: all bits
// are set, which is NaN, or -1 of integers. Other ranks may have computed and written these rows.
static tri_status mark_left_out(predicting *p) {
    const tri_dataset *data = p->session->val_data;
    int64_t longest = 0;
    for (int i = 0; i < p->layout.count; i++)
        if (p->layout.entries[i].size_bytes > longest) longest = p->layout.entries[i].size_bytes;
    char *nothing = memset(tri_arena_alloc(p->arena, (size_t)(longest / p->samples)), 0xff,
                           (size_t)(longest / p->samples));
    for (int64_t sample = 0; sample < p->samples; sample++)
        for (int i = 0; i < p->layout.count && tri_dataset_has_left_out(data, sample); i++) {
            int64_t row_bytes = p->layout.entries[i].size_bytes / p->samples;
            TRI_TRY(tri_os_pwrite_all(p->file.fd, nothing, (size_t)row_bytes,
                                      p->layout.entries[i].offset + sample * row_bytes,
                                      p->file.path));
        }
    return TRI_OK;
}

// Marks the rows of samples that could not be read (data.on_error: skip), and tells how many.
static tri_status settle_left_out(predicting *p) {
    tri_session *s = p->session;
    int64_t left_out;
    if (!tri_dataset_leaves_out(s->val_data)) return TRI_OK;
    // The ranks wait for each other here, so that no row is written after it was marked.
    TRI_TRY(train_sum_left_out(s, p->feed.left_out, &left_out));
    TRI_TRY(mark_left_out(p));
    if (left_out > 0 && s->identity.rank == 0)
        tri_log_line(TRI_LOG_WARNING,
                     "%s cannot be read (data.on_error: skip): the numbers of such a row of %s are "
                     "NaN, or -1 of integers",
                     tri_counted(left_out, "sample"), p->file.path);
    return TRI_OK;
}

static tri_status run(predicting *p) {
    tri_session *s = p->session;
    tri_loader *loader;
    tri_step_output sums;
    TRI_TRY(tri_session_val_loader(s, &loader));
    p->feed = train_feed_make(p->arena, s, loader);
    p->progress = tri_data_progress_begin(tri_val_source_names[s->val_source], p->samples, true);
    tri_step_input input = {.shape = TRI_STEP_EVALUATE,
                            .next = next,
                            .release = release,
                            .output = take_output,
                            .is_cancelled = has_signal,
                            .context = p};
    tri_ledger_mark mark = tri_ledger_enter(s->comm->ledger, "prediction", NULL);
    tri_status status = tri_engine_step(s->engine, &input, &sums);
    tri_ledger_end(s->comm->ledger, mark);
    status = train_feed_end(&p->feed, status);
    tri_loader_destroy(loader);
    TRI_TRY(status);
    if (sums.caller_sums[0] > 0)
        return TRI_FAIL(TRI_STOPPED, "stopped by a signal: %s is not written", p->file.path);
    if (s->identity.rank == 0) tri_data_progress_show(&p->progress, p->samples);
    return settle_left_out(p);
}

static void describe(const predicting *p, tri_predict_result *out) {
    size_t used = 0;
    out->samples = p->samples;
    out->source = p->session->val_source;
    for (int i = 0; i < p->layout.count && used < sizeof out->outputs; i++) {
        char shape[128];
        const tri_safetensors_entry *entry = &p->layout.entries[i];
        used += (size_t)snprintf(out->outputs + used, sizeof out->outputs - used, "%s%s %s",
                                 i ? ", " : "", entry->name,
                                 tri_shape_text(&entry->shape, shape, sizeof shape));
    }
}

static tri_status predict(tri_session *s, const tri_predict_request *request,
                          tri_predict_result *out) {
    predicting p = {.session = s,
                    .arena = s->arena,
                    .checkpoint = request->checkpoint,
                    .samples = tri_sampler_step_size(&s->val_sampler, 0),
                    .file = {.path = request->out, .fd = -1}};
    TRI_TRY(train_load_weights(s, request->task, request->checkpoint));
    TRI_TRY(lay_out(&p));
    tri_status status = open_file(&p);
    if (status == TRI_OK) status = run(&p);
    TRI_TRY(close_file(&p, status));
    describe(&p, out);
    return TRI_OK;
}

tri_status tri_predict(const tri_predict_request *request, tri_predict_result *out) {
    *out = (tri_predict_result){.rank = 0};
    tri_session *s;
    tri_recipe recipe = *request->recipe;
    recipe.data.may_lack_fields = true;
    tri_field trained[TRI_MAX_DATA_FIELDS];
    tri_arena *arena = tri_arena_create(NULL, "fields of training");
    int count = train_origin_fields(arena, request->checkpoint, trained, TRI_MAX_DATA_FIELDS);
    tri_status opened = tri_session_open(&(tri_session_request){.backends = request->backends,
                                                                .recipe = &recipe,
                                                                .task = request->task,
                                                                .device = request->device,
                                                                .evaluate = true,
                                                                .predict = true,
                                                                .weights = request->checkpoint,
                                                                .trained = trained,
                                                                .trained_count = count},
                                         &s);
    tri_arena_destroy(arena);
    TRI_TRY(opened);
    out->rank = s->identity.rank;
    // From here on a signal is only noted, so that no unfinished file is left behind.
    tri_signals_watch_start("", NULL, false, false);
    tri_signals_watch();
    tri_status status = predict(s, request, out);
    if (status == TRI_OK && s->identity.rank == 0) {
        tri_recipe_log_notes(s->recipe);
        tri_session_warn(s);
    }
    status = tri_session_tell(s, status);
    tri_session_close(s);
    tri_signals_unwatch();
    return status;
}
