// Writes TensorBoard event files. Messages are built from their ends, because a message is preceded
// by its length: see protobuf.h. A comment behind a call, such as "Event.step", says which field of
// which message the call writes.
#include "format/event.h"

#include "base/os.h"
#include "format/protobuf.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <isa-l/crc.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct tri_event_writer {
    int fd;
    int64_t complete_bytes; // size of the complete records in the file
    protobuf buffer;
    char path[PATH_MAX];
};

uint32_t tri_crc32c(const void *data, size_t size) { return tri_crc32c_more(0, data, size); }

uint32_t tri_crc32c_more(uint32_t first, const void *data, size_t size) {
    uint32_t crc = ~first;
    const uint8_t *at = data;
    while (size > 0) {
        int step = size < INT_MAX ? (int)size : INT_MAX;
        crc = crc32_iscsi((unsigned char *)(uintptr_t)at, step, crc);
        at += step;
        size -= (size_t)step;
    }
    return ~crc;
}

static uint32_t masked(const void *data, size_t size) {
    uint32_t crc = tri_crc32c(data, size);
    return htole32((crc >> 15 | crc << 17) + 0xa282ead8u);
}

static double now(void) { return (double)tri_os.realtime_ns() * 1e-9; }

// Begins a record, which consists of length, checksum of the length, data, and checksum of the
// data. It is built from its end, so this reserves the four bytes of the data's checksum. `finish`
// fills them in and puts the length and its checksum in front.
static void begin(tri_event_writer *writer) {
    static const uint8_t room[4];
    protobuf_clear(&writer->buffer);
    protobuf_raw(&writer->buffer, room, sizeof room);
}

static tri_status finish(tri_event_writer *writer) {
    protobuf *buffer = &writer->buffer;
    protobuf_double(buffer, 1, now()); // Event.wall_time
    if (!buffer->failed) {
        uint64_t size = protobuf_size(buffer) - 4, length = htole64(size);
        uint32_t data_crc = masked(protobuf_bytes(buffer), size),
                 length_crc = masked(&length, sizeof length);
        memcpy(buffer->data + buffer->capacity - 4, &data_crc, sizeof data_crc);
        protobuf_raw(buffer, &length_crc, sizeof length_crc);
        protobuf_raw(buffer, &length, sizeof length);
    }
    if (buffer->failed) return TRI_FAIL(TRI_NO_MEMORY, "%s: no memory for a record", writer->path);
    size_t size = protobuf_size(buffer);
    tri_status status = tri_os_write_all(writer->fd, protobuf_bytes(buffer), size, writer->path);
    if (status == TRI_OK)
        writer->complete_bytes += (int64_t)size;
    else // removes the incomplete record, because later records are appended
        (void)tri_os.ftruncate(writer->fd, writer->complete_bytes);
    return status;
}

tri_status tri_event_writer_create(const char *folder, tri_event_writer **out) {
    *out = NULL;
    tri_event_writer *writer = calloc(1, sizeof *writer);
    if (!writer) return TRI_FAIL(TRI_NO_MEMORY, "%s: no memory for an event file", folder);
    char host[256] = "localhost";
    gethostname(host, sizeof host - 1);
    long long seconds = (long long)(tri_os.realtime_ns() / 1000000000);
    for (int uid = 0;; uid++) {
        int length =
            snprintf(writer->path, sizeof writer->path, "%s/events.out.tfevents.%010lld.%s.%ld.%d",
                     folder, seconds, host, (long)getpid(), uid);
        if (length >= (int)sizeof writer->path) {
            free(writer);
            return TRI_FAIL(TRI_BAD_INPUT, "%s: the path is too long", folder);
        }
        writer->fd =
            tri_os.open(writer->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
        if (writer->fd >= 0 || errno != EEXIST) break;
    }
    if (writer->fd < 0) {
        tri_status status = tri_os_fail("create", writer->path);
        free(writer);
        return status;
    }
    begin(writer);
    protobuf_string(&writer->buffer, 3, "brain.Event:2"); // field Event.file_version
    tri_status status = finish(writer);
    if (status == TRI_OK) {
        *out = writer;
    } else {
        tri_os.unlink(writer->path); // remove the file, because it contains no complete record
        tri_event_writer_destroy(writer);
    }
    return status;
}

void tri_event_writer_destroy(tri_event_writer *writer) {
    if (!writer) return;
    tri_os.close(writer->fd);
    free(writer->buffer.data);
    free(writer);
}

const char *tri_event_writer_path(const tri_event_writer *writer) { return writer->path; }

tri_status tri_event_scalars(tri_event_writer *writer, int64_t step,
                             const tri_event_scalar *scalars, int count) {
    begin(writer);
    protobuf *buffer = &writer->buffer;
    size_t summary = protobuf_size(buffer);
    for (int i = count - 1; i >= 0; i--) {
        size_t value = protobuf_size(buffer);
        protobuf_float(buffer, 2, scalars[i].value); // Value.simple_value
        protobuf_string(buffer, 1, scalars[i].tag);  // Value.tag
        protobuf_message(buffer, 1, value);          // Summary.value
    }
    protobuf_message(buffer, 5, summary);       // Event.summary
    protobuf_varint(buffer, 2, (uint64_t)step); // Event.step
    return finish(writer);
}

tri_status tri_event_begin(tri_event_writer *writer, int64_t step) {
    begin(writer);
    protobuf *buffer = &writer->buffer;
    size_t log = protobuf_size(buffer);
    protobuf_varint(buffer, 1, 1);              // SessionLog.status: START
    protobuf_message(buffer, 7, log);           // Event.session_log
    protobuf_varint(buffer, 2, (uint64_t)step); // Event.step
    return finish(writer);
}

// Ends a record of the hparams plugin. The bytes that were written since the buffer had `data`
// bytes become field number `kind` of the message HParamsPluginData. This is wrapped in the
// messages that contain it (Value, Summary, Event), and the record is written.
static tri_status finish_hparams(tri_event_writer *writer, int kind, size_t data, const char *tag) {
    protobuf *buffer = &writer->buffer;
    protobuf_message(buffer, kind, data);
    protobuf_message(buffer, 2, data);     // PluginData.content
    protobuf_string(buffer, 1, "hparams"); // PluginData.plugin_name
    protobuf_message(buffer, 1, data);     // SummaryMetadata.plugin_data
    protobuf_message(buffer, 9, data);     // Value.metadata
    protobuf_string(buffer, 1, tag);       // Value.tag
    protobuf_message(buffer, 1, data);     // Summary.value
    protobuf_message(buffer, 5, data);     // Event.summary
    return finish(writer);
}

static tri_status write_experiment(tri_event_writer *writer, const tri_event_hparam *hparams,
                                   int count, const char *const *metric_tags, int metric_count) {
    // The numbers of the enum DataType in TensorBoard's api.proto.
    static const uint64_t types[] = {
        [TRI_HPARAM_STRING] = 1, [TRI_HPARAM_BOOL] = 2, [TRI_HPARAM_NUMBER] = 3};
    begin(writer);
    protobuf *buffer = &writer->buffer;
    size_t data = protobuf_size(buffer);
    for (int i = metric_count - 1; i >= 0; i--) {
        size_t info = protobuf_size(buffer);
        protobuf_string(buffer, 2, metric_tags[i]); // MetricName.tag
        protobuf_message(buffer, 1, info);          // MetricInfo.name
        protobuf_message(buffer, 5, info);          // Experiment.metric_infos
    }
    for (int i = count - 1; i >= 0; i--) {
        size_t info = protobuf_size(buffer);
        protobuf_varint(buffer, 4, types[hparams[i].type]); // HParamInfo.type
        protobuf_string(buffer, 1, hparams[i].name);        // HParamInfo.name
        protobuf_message(buffer, 4, info);                  // Experiment.hparam_infos
    }
    protobuf_double(buffer, 3, now()); // Experiment.time_created_secs
    return finish_hparams(writer, 2, data, "_hparams_/experiment");
}

static void put_hparam(protobuf *buffer, const tri_event_hparam *hparam) {
    size_t entry = protobuf_size(buffer);
    if (hparam->type == TRI_HPARAM_STRING)
        protobuf_string(buffer, 3, hparam->text); // google.protobuf.Value.string_value
    if (hparam->type == TRI_HPARAM_NUMBER) protobuf_double(buffer, 2, hparam->number);
    if (hparam->type == TRI_HPARAM_BOOL) protobuf_varint(buffer, 4, hparam->number != 0);
    protobuf_message(buffer, 2, entry);       // the value of an entry of the map
    protobuf_string(buffer, 1, hparam->name); // the key of that entry
    protobuf_message(buffer, 1, entry);       // SessionStartInfo.hparams
}

tri_status tri_event_session_start(tri_event_writer *writer, const tri_event_hparam *hparams,
                                   int count, const char *const *metric_tags, int metric_count) {
    TRI_TRY(write_experiment(writer, hparams, count, metric_tags, metric_count));
    begin(writer);
    protobuf *buffer = &writer->buffer;
    size_t data = protobuf_size(buffer);
    // There is no SessionStartInfo.group_name: TensorBoard shows all sessions with the same one as
    // one row, with the means of their metrics. Without it, each session is a row.
    protobuf_double(buffer, 5, now()); // SessionStartInfo.start_time_secs
    for (int i = count - 1; i >= 0; i--) put_hparam(buffer, &hparams[i]);
    return finish_hparams(writer, 3, data, "_hparams_/session_start_info");
}

tri_status tri_event_session_end(tri_event_writer *writer, bool success) {
    begin(writer);
    protobuf *buffer = &writer->buffer;
    size_t data = protobuf_size(buffer);
    protobuf_double(buffer, 2, now());           // SessionEndInfo.end_time_secs
    protobuf_varint(buffer, 1, success ? 1 : 2); // SessionEndInfo.status: success or failure
    return finish_hparams(writer, 4, data, "_hparams_/session_end_info");
}
