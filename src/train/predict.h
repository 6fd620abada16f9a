// Runs `trireme predict`: writes what a model computes of the test data.
#ifndef TRIREME_TRAIN_PREDICT_H
#define TRIREME_TRAIN_PREDICT_H

#include "train/session.h"

typedef struct tri_predict_request {
    const tri_backends *backends;
    const tri_recipe *recipe;
    const tri_task *task; // as in tri_session_request
    const char *device;
    const char *checkpoint;
    const char *out; // the safetensors file that is written or replaced
} tri_predict_request;

typedef struct tri_predict_result {
    int rank;
    int64_t samples;
    tri_val_source source; // whose samples they are
    char outputs[256];     // the outputs' names and shapes, for a message
} tri_predict_result;

// Writes a tensor for each output of the model (tri_output): [samples, …], a row for each sample in
// the order of the data. The ranks write their rows to one file under a temporary name, micro-batch
// by micro-batch, which gets its name when it is complete. Collective. TRI_STOPPED: a signal ended
// it, and nothing was written.
tri_status tri_predict(const tri_predict_request *request, tri_predict_result *out);

#endif
