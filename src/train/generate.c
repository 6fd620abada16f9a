// Generates text token by token. First come calls that take a piece of each prompt
// (TRI_STEP_PREFILL), then calls that take one token of each text (TRI_STEP_DECODE); both find in
// the model's caches what earlier calls have computed. A text that has ended takes part with no
// tokens.
//
// The rank that has the scores of a text draws its next token and tells it to all ranks, since each
// of them gives the tokens to its own part of the model.
#include "train/generate.h"

#include "base/os.h"
#include "nn/exported/exported.h"
#include "tensor/half.h"
#include "train/loop.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    CALL_TOKENS = 512, // that a call of TRI_STEP_PREFILL takes of all texts together
    LEAST_PIECE = 32,  // but at least so many of each
};

typedef struct generating {
    const tri_generate_request *request;
    tri_session *session;
    int64_t classes;  // how many tokens the model knows
    bool *is_done;    // by text
    int64_t *had;     // by text: tokens that the caches have
    int64_t *ids;     // [text][tokens of the call]
    int64_t *spans;   // [text][2]
    int64_t *drawn;   // by text: the next token + 1; 0: none, or another rank has its scores
    int64_t *whole;   // room for the longest text
    float *scores;    // of one text
    float *before;    // its scores in the call before; NULL: no scores are compared (check_causal)
    int64_t compared; // the text whose scores are
    double change;    // by which they differ at most
    train_candidate *room;
    tri_step_shape shape;
    int64_t tokens;  // of the call
    double *decodes; // seconds of each call of TRI_STEP_DECODE, if they are measured
    int round;
} generating;

static tri_status next(void *context, tri_engine_batch *out) {
    generating *g = context;
    const tri_step_plan *step = &g->session->plan->steps[g->shape];
    while (step->round_items[g->round].size == 0) g->round++;
    const tri_step_round *round = &step->round_items[g->round++];
    *out = (tri_engine_batch){
        .size = round->size,
        .fields = {g->ids + round->first * g->tokens, g->spans + 2 * round->first}};
    return TRI_OK;
}

static int64_t length_of(const tri_generated_text *text) {
    return text->prompt_count + text->count;
}

static int64_t token_at(const tri_generated_text *text, int64_t i) {
    return i < text->prompt_count ? text->prompt[i] : text->ids[i - text->prompt_count];
}

// Draws the next token of text n, if the caches have all of the text.
static tri_status draw(generating *g, int64_t n) {
    const tri_generate_request *r = g->request;
    const tri_generated_text *text = &r->texts[n];
    int64_t length = length_of(text);
    if (g->is_done[n] || g->had[n] + g->spans[2 * n + 1] < length) return TRI_OK;
    for (int64_t i = 0; i < length; i++) g->whole[i] = token_at(text, i);
    int64_t token = train_draw_token(&r->draw, g->scores, g->classes, n, g->whole, length, g->room);
    g->drawn[n] = token < 0 ? -1 : token + 1;
    return TRI_OK;
}

// Finds by how much the text's scores have changed, as part of the largest one, and keeps them. The
// largest of those that a token may have: others are masked by an infinity or a number like it.
static tri_status compare(generating *g, int64_t n) {
    const float masked = 1e30f;
    float largest = 0, change = 0;
    if (n != g->compared) return TRI_OK;
    for (int64_t i = 0; i < g->classes; i++) {
        float now = g->scores[i], before = g->before[i];
        bool differs = !(now == before) && !(isnan(now) && isnan(before));
        if (fabsf(now) < masked) largest = fmaxf(largest, fabsf(now));
        if (differs) change = fmaxf(change, isfinite(now - before) ? fabsf(now - before) : masked);
        g->before[i] = now;
    }
    g->change = largest > 0 ? change / largest : 0;
    return TRI_OK;
}

static tri_status take_scores(void *context, const tri_output_rows *rows) {
    generating *g = context;
    int64_t bytes = g->classes * (int64_t)tri_dtype_bytes(rows->dtype);
    if (strcmp(g->session->plan->graph->outputs[rows->output].name, "logits") != 0) return TRI_OK;
    for (int64_t i = 0; i < rows->size; i++) {
        const char *scores = (const char *)rows->data + i * bytes;
        if (rows->dtype == TRI_F32)
            memcpy(g->scores, scores, (size_t)bytes);
        else
            tri_half_widen(rows->dtype, scores, g->scores, g->classes);
        TRI_TRY(g->before ? compare(g, rows->first + i) : draw(g, rows->first + i));
    }
    return TRI_OK;
}

// Gives each text's next tokens to a call, at most `tokens` of them.
static void fill(generating *g, int64_t tokens) {
    const tri_generate_request *r = g->request;
    g->tokens = tokens;
    memset(g->ids, 0, (size_t)(r->text_count * tokens) * sizeof *g->ids);
    memset(g->drawn, 0, (size_t)r->text_count * sizeof *g->drawn);
    for (int64_t n = 0; n < r->text_count; n++) {
        int64_t left = g->is_done[n] ? 0 : length_of(&r->texts[n]) - g->had[n];
        int64_t count = left < tokens ? left : tokens;
        g->spans[2 * n] = g->had[n];
        g->spans[2 * n + 1] = count;
        for (int64_t i = 0; i < count; i++)
            g->ids[n * tokens + i] = token_at(&r->texts[n], g->had[n] + i);
    }
}

static tri_status share_drawn(generating *g) {
    if (g->session->comm->size == 1) return TRI_OK;
    return tri_comm_run(g->session->comm, &(tri_comm_op){.kind = TRI_COMM_ALL_REDUCE,
                                                         .dtype = TRI_I64,
                                                         .count = g->request->text_count,
                                                         .send = g->drawn,
                                                         .recv = g->drawn,
                                                         .label = "next tokens"});
}

static bool is_end(const tri_generate_request *r, int64_t token) {
    for (int i = 0; i < r->end_count; i++)
        if (r->ends[i] == token) return true;
    return false;
}

// Appends the drawn tokens. *all: all texts have ended. TRI_NOT_FINITE on all ranks alike: there
// are no scores to draw by.
static tri_status append(generating *g, bool *all) {
    const tri_generate_request *r = g->request;
    *all = true;
    for (int64_t n = 0; n < r->text_count; n++) {
        tri_generated_text *text = &r->texts[n];
        if (!g->session->texts.are_whole) g->had[n] += g->spans[2 * n + 1];
        if (g->drawn[n] < 0)
            return TRI_FAIL(
                TRI_NOT_FINITE,
                "the scores of the token after %lld others are not finite: are the weights?",
                (long long)length_of(text));
        if (g->drawn[n] > 0) {
            text->ids[text->count++] = g->drawn[n] - 1;
            g->is_done[n] = is_end(r, g->drawn[n] - 1) || text->count == r->max_new_tokens;
        }
        *all = *all && g->is_done[n];
    }
    return TRI_OK;
}

// Notes how long a call took, whose spans are still those that it had.
static void measure(generating *g, double seconds) {
    tri_generate_speed *speed = g->request->speed;
    int64_t tokens = 0;
    if (!speed) return;
    for (int64_t n = 0; n < g->request->text_count; n++) tokens += g->spans[2 * n + 1];
    double rate = (double)tokens / seconds;
    if (g->shape == TRI_STEP_DECODE) {
        g->decodes[speed->decode_calls++] = seconds;
        speed->decode_tokens_per_s = (double)tokens; // of a call, until the end
    } else if (rate > speed->prefill_tokens_per_s) {
        speed->prefill_tokens_per_s = rate;
        speed->prefill_tokens = tokens;
        speed->prefill_s = seconds;
    }
}

static int by_size(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

static void summarize(const generating *g) {
    tri_generate_speed *speed = g->request->speed;
    if (!speed || speed->decode_calls == 0) return;
    qsort(g->decodes, (size_t)speed->decode_calls, sizeof *g->decodes, by_size);
    speed->decode_s = g->decodes[speed->decode_calls / 2];
    speed->decode_tokens_per_s /= speed->decode_s;
}

// Runs the model on the tokens with which fill has filled the call.
static tri_status compute(generating *g) {
    const tri_session *s = g->session;
    tri_step_output sums;
    g->round = 0;
    tri_ledger_mark mark = tri_ledger_enter(s->comm->ledger, "generation", NULL);
    tri_status status = tri_engine_step(
        s->engine,
        &(tri_step_input){.shape = g->shape, .next = next, .output = take_scores, .context = g},
        &sums);
    tri_ledger_end(s->comm->ledger, mark);
    if (status != TRI_OK) {
        tri_engine_abandon(s->engine);
        return status;
    }
    TRI_TRY(tri_engine_release_batches(s->engine));
    return share_drawn(g);
}

static tri_status call(generating *g, int64_t tokens, bool *is_done) {
    const tri_session *s = g->session;
    double began = tri_os_seconds();
    g->shape = tokens > 1 || s->texts.are_whole ? TRI_STEP_PREFILL : TRI_STEP_DECODE;
    fill(g, tokens);
    TRI_TRY(compute(g));
    measure(g, tri_os_seconds() - began);
    TRI_TRY(append(g, is_done));
    return s->identity.rank == 0 && g->request->progress ? g->request->progress(g->request->context)
                                                         : TRI_OK;
}

// Where each call takes all of a text, the model has to be causal: the padding behind a text must
// not change its scores. Those of the shortest text are computed with two paddings.
static tri_status check_causal(generating *g) {
    const tri_session *s = g->session;
    int64_t tokens = s->texts.piece;
    if (!s->texts.are_whole || g->classes < 2) return TRI_OK;
    for (int64_t n = 0; n < g->request->text_count; n++)
        if (length_of(&g->request->texts[n]) < length_of(&g->request->texts[g->compared]))
            g->compared = n;
    g->before = TRI_NEW_ARRAY(s->arena, float, g->classes);
    g->shape = TRI_STEP_PREFILL;
    for (int pass = 0; pass < 2; pass++) {
        fill(g, tokens);
        for (int64_t i = length_of(&g->request->texts[g->compared]); i < tokens; i++)
            g->ids[g->compared * tokens + i] = pass * (1 + i % (g->classes - 1));
        TRI_TRY(compute(g));
    }
    // Sums of half types are rounded by up to 1%, where their order depends on all tokens.
    bool is_exact = s->recipe->trainer.precision == TRI_PRECISION_32_TRUE && !s->half_weights;
    g->drawn[g->compared] = g->change > (is_exact ? 1e-4 : 0.05);
    TRI_TRY(share_drawn(g));
    g->before = NULL;
    if (g->drawn[g->compared] == 0) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT,
                    "%s generates no text: it is not causal: the scores of a token change with the "
                    "tokens behind it",
                    nn_exported_file(nn_exported_of(s->task))->path);
}

// How many tokens of each text the next call takes: as the most that a text has not given to the
// caches yet need.
static int64_t tokens_of_call(const generating *g) {
    int64_t most = 0;
    for (int64_t n = 0; n < g->request->text_count; n++) {
        int64_t left = g->is_done[n] ? 0 : length_of(&g->request->texts[n]) - g->had[n];
        if (left > most) most = left;
    }
    return most > 1 || g->session->texts.are_whole ? g->session->texts.piece : 1;
}

static tri_status check_prompts(const generating *g) {
    for (int64_t n = 0; n < g->request->text_count; n++)
        for (int64_t i = 0; i < g->request->texts[n].prompt_count; i++) {
            int64_t token = g->request->texts[n].prompt[i];
            if (token >= 0 && token < g->classes) continue;
            return TRI_FAIL(TRI_BAD_INPUT,
                            "prompt %lld has the token %lld, but the model knows only %lld tokens: "
                            "the tokenizer is of another model",
                            (long long)n + 1, (long long)token, (long long)g->classes);
        }
    return TRI_OK;
}

static tri_status find_scores(generating *g) {
    const tri_graph *graph = g->session->plan->graph;
    for (int i = 0; i < graph->output_count; i++) {
        tri_shape shape = tri_value_shape(graph, graph->outputs[i].value);
        if (strcmp(graph->outputs[i].name, "logits") != 0) continue;
        g->classes = tri_shape_count(&shape) / shape.dims[0];
        if (shape.rank != 3 || shape.dims[1] != 1) break;
        return TRI_OK;
    }
    return TRI_FAIL(TRI_BAD_INPUT,
                    "model %s: generates no text: it has to name the scores of the next token "
                    "'logits' [N, 1, tokens], and to use caches (tri_cache_length)",
                    g->session->task->name);
}

static tri_status generate(tri_session *s, const tri_generate_request *request) {
    int64_t texts = request->text_count;
    generating g = {.request = request, .session = s};
    TRI_TRY(find_scores(&g));
    TRI_TRY(check_prompts(&g));
    g.is_done = TRI_NEW_ARRAY(s->arena, bool, texts);
    g.had = TRI_NEW_ARRAY(s->arena, int64_t, texts);
    g.ids = TRI_NEW_ARRAY(s->arena, int64_t, texts * s->texts.piece);
    g.spans = TRI_NEW_ARRAY(s->arena, int64_t, 2 * texts);
    g.drawn = TRI_NEW_ARRAY(s->arena, int64_t, texts);
    g.whole = TRI_NEW_ARRAY(s->arena, int64_t, s->texts.length);
    g.scores = TRI_NEW_ARRAY(s->arena, float, g.classes);
    g.room = TRI_NEW_ARRAY(s->arena, train_candidate, g.classes);
    g.decodes = TRI_NEW_ARRAY(s->arena, double, request->max_new_tokens + 1);
    if (request->speed)
        *request->speed = (tri_generate_speed){.ranks = s->identity.size,
                                               .threads = s->device->description.threads,
                                               .weight_bytes = s->plan->memory.parameters};
    TRI_TRY(train_load_weights(s, request->task, request->checkpoint));
    if (request->max_new_tokens > 0) TRI_TRY(check_causal(&g));
    for (bool is_done = request->max_new_tokens == 0; !is_done;)
        TRI_TRY(call(&g, tokens_of_call(&g), &is_done));
    summarize(&g);
    return TRI_OK;
}

tri_status tri_generate(const tri_generate_request *request, int *rank) {
    tri_session *s;
    train_texts texts = {.count = request->text_count};
    *rank = 0;
    for (int64_t n = 0; n < request->text_count; n++) {
        TRI_ASSERT(request->texts[n].prompt_count > 0);
        request->texts[n].count = 0;
        if (request->texts[n].prompt_count > texts.length)
            texts.length = request->texts[n].prompt_count;
    }
    int64_t piece = texts.count > 0 ? CALL_TOKENS / texts.count : CALL_TOKENS;
    if (piece < LEAST_PIECE) piece = LEAST_PIECE;
    texts.piece = texts.length < piece ? texts.length : piece;
    if (texts.piece < 2) texts.piece = 2; // TRI_STEP_DECODE takes one
    texts.length += request->max_new_tokens;
    if (texts.length < texts.piece) texts.length = texts.piece;
    TRI_TRY(tri_session_open(&(tri_session_request){.backends = request->backends,
                                                    .recipe = request->recipe,
                                                    .task = request->task,
                                                    .device = request->device,
                                                    .weights = request->checkpoint,
                                                    .texts = texts},
                             &s));
    *rank = s->identity.rank;
    tri_status status = generate(s, request);
    if (status == TRI_OK && *rank == 0) tri_recipe_log_notes(s->recipe);
    status = tri_session_tell(s, status);
    tri_session_close(s);
    return status;
}
