// TensorBoard event files: TFRecord frames around Event messages, with scalars and the hparams
// plugin. Formats: tensorflow/core/lib/io/record_writer.h (frame), core/util/event.proto,
// core/framework/summary.proto, tensorboard/plugins/hparams/{plugin_data,api}.proto.
#ifndef TRIREME_FORMAT_EVENT_H
#define TRIREME_FORMAT_EVENT_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Computes the CRC-32C (Castagnoli) of `size` bytes, which is part of TFRecord frames.
uint32_t tri_crc32c(const void *data, size_t size);
// The same of bytes of which a first part has the CRC `first`, and `data` is the rest.
uint32_t tri_crc32c_more(uint32_t first, const void *data, size_t size);

typedef struct tri_event_writer tri_event_writer;

// Creates `folder`/events.out.tfevents.TIME.HOST.PID.UID, with the first UID from 0 on that gives a
// new name, and writes the version record. Each record is one write, so a killed program leaves
// complete records. After a failed write the file is truncated to the last complete record, and
// later calls may succeed. Only one thread at a time may use a writer.
tri_status tri_event_writer_create(const char *folder, tri_event_writer **out);
void tri_event_writer_destroy(tri_event_writer *writer); // NULL allowed
const char *tri_event_writer_path(const tri_event_writer *writer);

typedef struct tri_event_scalar {
    const char *tag; // name of the value, for example "train/loss"
    float value;
} tri_event_scalar;

// Writes all of `scalars`, at `step`, as one record, so that a crash cannot separate them.
tri_status tri_event_scalars(tri_event_writer *writer, int64_t step,
                             const tri_event_scalar *scalars, int count);

// Writes that a process begins to write at `step` (SessionLog.START). TensorBoard then leaves out
// the values that earlier files of the folder have from that step on, because they are written
// again.
tri_status tri_event_begin(tri_event_writer *writer, int64_t step);

typedef enum tri_event_hparam_type {
    TRI_HPARAM_STRING,
    TRI_HPARAM_NUMBER,
    TRI_HPARAM_BOOL
} tri_event_hparam_type;

typedef struct tri_event_hparam {
    const char *name;
    tri_event_hparam_type type;
    const char *text; // the value of a TRI_HPARAM_STRING
    double number;    // the value of other types; a bool is true when it is not 0
} tri_event_hparam;

// Writes the start of a session (what the hparams plugin calls one run): the experiment (names of
// hyperparameters and metrics), and this session's values of the hyperparameters.
tri_status tri_event_session_start(tri_event_writer *writer, const tri_event_hparam *hparams,
                                   int count, const char *const *metric_tags, int metric_count);
tri_status tri_event_session_end(tri_event_writer *writer, bool success);

#endif
