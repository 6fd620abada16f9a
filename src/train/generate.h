// Generates text, for `trireme generate`: a model with caches computes the scores of the token that
// follows each text, one is drawn, and becomes part of the text.
#ifndef TRIREME_TRAIN_GENERATE_H
#define TRIREME_TRAIN_GENERATE_H

#include "train/draw_token.h"
#include "train/session.h"

typedef struct tri_generated_text {
    const int64_t *prompt;
    int64_t prompt_count; // at least 1
    int64_t *ids;         // room for max_new_tokens, which tri_generate fills in on all ranks
    int64_t count;        // how many it has
} tri_generated_text;

// How fast calls were, over all texts. Prefill is the fastest call, because the first one reads the
// weights from their file; decode the median of all calls.
typedef struct tri_generate_speed {
    int ranks, threads;
    int64_t prefill_tokens;                           // of a call; 0: no prompt has two tokens
    double prefill_s, decode_s;                       // of a call
    double prefill_tokens_per_s, decode_tokens_per_s; // 0: there was no such call
    int64_t decode_calls;
    int64_t weight_bytes; // that a call reads: this rank's parameters
} tri_generate_speed;

typedef struct tri_generate_request {
    const tri_backends *backends;
    const tri_recipe *recipe;
    const tri_task *task; // as tri_session_request.task
    const char *device, *checkpoint;
    tri_generated_text *texts;
    int64_t text_count, max_new_tokens;
    train_draw_options draw;
    const int64_t *ends; // tokens behind which a text ends
    int end_count;
    // Called on rank 0 after each step, in which some texts have got one more token. NULL: nobody
    // waits for them.
    tri_status (*progress)(void *context);
    void *context;
    tri_generate_speed *speed; // NULL: nothing is measured
} tri_generate_request;

// Generates all texts together. *rank: this process's rank. TRI_BAD_INPUT: a prompt has a token
// that the model has not, or the texts are too long for the model.
tri_status tri_generate(const tri_generate_request *request, int *rank);

#endif
