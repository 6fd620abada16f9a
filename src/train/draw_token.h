// Which token follows: the likeliest one, or one drawn at random by the model's scores. The rules
// are those of Hugging Face's generate, applied in its order: penalty of repetitions, temperature,
// top-k, top-p.
#ifndef TRIREME_TRAIN_DRAW_TOKEN_H
#define TRIREME_TRAIN_DRAW_TOKEN_H

#include <stdbool.h>
#include <stdint.h>

typedef struct train_draw_options {
    double temperature; // scores are divided by it; 0: the likeliest token is taken
    int64_t top_k;      // only the k likeliest tokens are drawn; 0: all
    double top_p;       // only the likeliest tokens whose probabilities make up p; 1: all
    // Scores of tokens that the text has are divided by it, or multiplied if they are negative; 1:
    // they stay.
    double repetition_penalty;
    uint64_t seed;
} train_draw_options;

typedef struct train_candidate {
    double score;
    int64_t token;
} train_candidate;

// Draws the token after a text of `length` tokens from the scores of all tokens. The random number
// depends on the seed, the text's number and its length. Of equal scores the lower token counts as
// the likelier. `room` has place for `count` candidates. -1: a score is NaN, or none is finite.
int64_t train_draw_token(const train_draw_options *options, const float *scores, int64_t count,
                         int64_t number, const int64_t *text, int64_t length,
                         train_candidate *room);

#endif
