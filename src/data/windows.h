// Samples that are windows of one sequence of tokens: sample i is tokens i·T … i·T + T−1 with
// T = data.sequence, as the field `input_ids`. What the kinds "tokens", "jsonl"
// and "parquet" with a tokenizer share.
#ifndef TRIREME_DATA_WINDOWS_H
#define TRIREME_DATA_WINDOWS_H

#include "data/kind.h"
#include "format/tokens.h"

// Sets the data set's samples and field from its open tokens, which become its state. `source` is
// what messages name. `largest`: the largest token, where it is known; -1: it is looked for.
tri_status tri_windows_open(tri_dataset *dataset, const char *source, tri_tokens *tokens,
                            int64_t largest);

// Functions of tri_dataset_kind. The state is a tri_tokens.
void tri_windows_close(tri_dataset *dataset);
tri_status tri_windows_read(const tri_dataset *dataset, void *worker, int64_t sample,
                            tri_sample_value *values);
void tri_windows_hint(const tri_dataset *dataset, int64_t sample);
bool tri_windows_is_text(const tri_data_options *options);
tri_status tri_windows_describe(tri_dataset *dataset);

#endif
