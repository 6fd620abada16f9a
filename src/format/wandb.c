// Makes the file of an offline run of Weights & Biases: see wandb.h. Messages are built from their
// ends; a comment behind a call says which field of which message it writes.
#include "format/wandb.h"

#include <endian.h>
#include <isa-l/crc.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 32 << 10, CHUNK_HEAD_BYTES = 7 };
enum { CHUNK_FULL = 1, CHUNK_FIRST, CHUNK_MIDDLE, CHUNK_LAST };

void tri_wandb_free(tri_wandb *file) {
    free(file->data);
    free(file->record.data);
    *file = (tri_wandb){0};
}

static void append(tri_wandb *file, const void *data, size_t size) {
    size_t capacity = file->capacity ? file->capacity : BLOCK_BYTES;
    while (capacity - file->size < size) capacity *= 2;
    if (capacity > file->capacity) {
        uint8_t *grown = realloc(file->data, capacity);
        if (!grown) {
            file->failed = true;
            return;
        }
        file->data = grown;
        file->capacity = capacity;
    }
    memcpy(file->data + file->size, data, size);
    file->size += size;
}

// Appends a part of a record: its checksum, which also covers the type, its length, type and data.
static void append_chunk(tri_wandb *file, uint8_t type, const uint8_t *data, size_t size) {
    uint32_t crc = crc32_gzip_refl(crc32_gzip_refl(0, &type, 1), data, size);
    uint16_t length = htole16((uint16_t)size);
    crc = htole32(crc);
    append(file, &crc, sizeof crc);
    append(file, &length, sizeof length);
    append(file, &type, sizeof type);
    append(file, data, size);
}

static void append_record(tri_wandb *file, const uint8_t *data, size_t size) {
    static const uint8_t zeros[CHUNK_HEAD_BYTES];
    bool is_first = true, is_last = false;
    while (!is_last && !file->failed) {
        size_t left = BLOCK_BYTES - file->size % BLOCK_BYTES;
        if (left < CHUNK_HEAD_BYTES) {
            append(file, zeros, left);
            continue;
        }
        is_last = size <= left - CHUNK_HEAD_BYTES;
        size_t part = is_last ? size : left - CHUNK_HEAD_BYTES;
        append_chunk(file,
                     is_first && is_last ? CHUNK_FULL
                     : is_first          ? CHUNK_FIRST
                     : is_last           ? CHUNK_LAST
                                         : CHUNK_MIDDLE,
                     data, part);
        is_first = false;
        data += part;
        size -= part;
    }
}

// Ends a record, whose message is all that was written since it began, and appends it.
static void finish(tri_wandb *file, int kind) {
    protobuf *record = &file->record;
    protobuf_message(record, kind, 0);
    protobuf_varint(record, 1, ++file->count); // Record.num
    file->failed = file->failed || record->failed;
    if (!file->failed) append_record(file, protobuf_bytes(record), protobuf_size(record));
    protobuf_clear(record);
}

// HistoryRecord.item, SummaryRecord.update and ConfigRecord.update have the same fields.
static void put_items(protobuf *out, const tri_wandb_item *items, int count) {
    for (int i = count - 1; i >= 0; i--) {
        size_t end = protobuf_size(out);
        protobuf_string(out, 16, items[i].json); // value_json
        protobuf_string(out, 1, items[i].key);   // key
        protobuf_message(out, 1, end);
    }
}

void tri_wandb_begin(tri_wandb *file, const tri_wandb_run *run) {
    static const uint8_t head[CHUNK_HEAD_BYTES] = {':', 'W', '&', 'B', 0xe1, 0xbe, 0};
    append(file, head, sizeof head);
    protobuf *out = &file->record;
    uint64_t seconds = (uint64_t)run->start_s;
    protobuf_varint(out, 2, (uint64_t)((run->start_s - (double)seconds) * 1e9)); // nanos
    protobuf_varint(out, 1, seconds);                                            // seconds
    protobuf_message(out, 17, 0);                                                // start_time
    protobuf_string(out, 8, run->name);                                          // display_name
    if (run->group) protobuf_string(out, 6, run->group);                         // run_group
    size_t end = protobuf_size(out);
    put_items(out, run->config, run->config_count);
    protobuf_message(out, 4, end);         // config
    protobuf_string(out, 3, run->project); // project
    protobuf_string(out, 1, run->id);      // run_id
    finish(file, 17);                      // Record.run
}

void tri_wandb_history(tri_wandb *file, const tri_wandb_item *items, int count) {
    put_items(&file->record, items, count);
    finish(file, 2); // Record.history
}

void tri_wandb_summary(tri_wandb *file, const tri_wandb_item *items, int count) {
    put_items(&file->record, items, count);
    finish(file, 3); // Record.summary
}

void tri_wandb_exit(tri_wandb *file, int code, double runtime_s) {
    protobuf_varint(&file->record, 2, (uint64_t)runtime_s);     // RunExitRecord.runtime
    protobuf_varint(&file->record, 1, (uint64_t)(int64_t)code); // RunExitRecord.exit_code
    finish(file, 18);                                           // Record.exit
}
