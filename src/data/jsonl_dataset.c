// The data set "jsonl" (data.name), and "parquet" with a tokenizer: documents, one JSON object a
// line or one row. Their tokens, with an end mark behind each document, are one sequence, which is
// packed once (pack.h) and cut into windows of data.sequence.
#include "data/files.h"
#include "data/pack.h"
#include "data/windows.h"

static tri_status open_documents(tri_dataset *dataset, const char *example, bool is_table) {
    tri_data_files files = {0};
    tri_pack pack;
    tri_tokens *tokens = TRI_NEW(dataset->arena, tri_tokens);
    dataset->state = tokens;
    TRI_TRY(tri_data_files_find(dataset, example, &files));
    if (dataset->options->tokenizer) tri_dataset_note_file(dataset, dataset->options->tokenizer);
    TRI_TRY(tri_pack_open(dataset->arena, dataset->options, (const char *const *)files.paths,
                          files.count, is_table, &pack));
    dataset->facts.documents_left_out = pack.left_out;
    dataset->facts.documents = pack.documents;
    if (pack.tokens == 0) return TRI_FAIL(TRI_BAD_INPUT, "%s: has no documents", files.paths[0]);
    TRI_TRY(tri_tokens_open(pack.path, pack.type, tokens));
    TRI_TRY(tri_windows_open(dataset, files.paths[0], tokens, pack.largest));
    for (int i = 0; i < dataset->field_count; i++) {
        dataset->fields[i].names.tokenizer = pack.tokenizer;
        dataset->fields[i].names.end_mark = pack.end_mark;
    }
    return TRI_OK;
}

static tri_status open_lines(tri_dataset *dataset) {
    return open_documents(dataset, "JSON Lines files, such as train-*.jsonl", false);
}

static tri_status open_rows(tri_dataset *dataset) {
    return open_documents(dataset, "Parquet files, such as train-*.parquet", true);
}

#define DOCUMENTS                                                                                  \
    .close = tri_windows_close, .read = tri_windows_read, .hint = tri_windows_hint,                \
    .is_text = tri_windows_is_text, .describe = tri_windows_describe
const tri_dataset_kind tri_dataset_jsonl = {.open = open_lines, DOCUMENTS};
const tri_dataset_kind tri_dataset_parquet_text = {.open = open_rows, DOCUMENTS};
