// The module `parquet`: reads columns of Parquet files by Arrow's C++ library; write.cpp writes
// them.
#include "base/module.h"
#include "format/parquet/internal.h"

#include <cstdlib>
#include <cstring>
#include <parquet/arrow/reader.h>
#include <parquet/metadata.h>
#include <string_view>

struct tri_parquet_file {
    std::unique_ptr<parquet::arrow::FileReader> reader;
    std::shared_ptr<parquet::FileMetaData> metadata;
    std::shared_ptr<arrow::Schema> schema;
};

namespace parquet_module {
namespace {

tri_status open_file(const char *path, tri_parquet_file **out, char *why) {
    *out = nullptr;
    return guarded(why, [&] {
        auto file = std::make_unique<tri_parquet_file>();
        file->reader = take(parquet::arrow::OpenFile(take(arrow::io::ReadableFile::Open(path)),
                                                     arrow::default_memory_pool()));
        file->reader->set_use_threads(false);
        file->metadata = file->reader->parquet_reader()->metadata();
        check(file->reader->GetSchema(&file->schema));
        *out = file.release();
    });
}

void close_file(tri_parquet_file *file) { delete file; }

int columns(const tri_parquet_file *file) { return file->schema->num_fields(); }

const char *name(const tri_parquet_file *file, int column) {
    return file->schema->field(column)->name().c_str();
}

int groups(const tri_parquet_file *file) { return file->metadata->num_row_groups(); }

int64_t rows(const tri_parquet_file *file, int group) {
    return file->metadata->RowGroup(group)->num_rows();
}

// The leaves of the schema's tree that belong to a column: all of them, or of a struct only its
// member `bytes`.
std::vector<int> leaves_of(const tri_parquet_file *file, int column) {
    const auto &field = *file->schema->field(column);
    bool is_struct = field.type()->id() == arrow::Type::STRUCT;
    std::vector<int> found;
    const auto *schema = file->metadata->schema();
    for (int i = 0; i < schema->num_columns(); i++) {
        auto path = schema->Column(i)->path()->ToDotVector();
        if (path[0] == field.name() && (!is_struct || (path.size() == 2 && path[1] == "bytes")))
            found.push_back(i);
    }
    if (found.empty()) refuse(TRI_UNSUPPORTED, "is a struct without a member 'bytes'");
    return found;
}

// The column's cells of a row group as one array; of a struct, its member.
std::shared_ptr<arrow::Array> read_array(tri_parquet_file *file, int group, int column) {
    std::shared_ptr<arrow::Table> table;
    check(file->reader->ReadRowGroup(group, leaves_of(file, column), &table));
    auto chunks = table->column(0)->chunks();
    if (chunks.empty()) refuse(TRI_CORRUPT, "has no cells");
    auto array = chunks.size() == 1 ? chunks[0] : take(arrow::Concatenate(chunks));
    if (array->length() != rows(file, group)) refuse(TRI_CORRUPT, "lacks cells");
    check(array->ValidateFull());
    if (array->type_id() != arrow::Type::STRUCT) return array;
    if (array->null_count() > 0) refuse(TRI_CORRUPT, "has cells without a value");
    return take(static_cast<const arrow::StructArray &>(*array).Flatten())[0];
}

void check_complete(const arrow::Array &array) {
    if (array.null_count() > 0) refuse(TRI_CORRUPT, "has cells without a value");
}

template <typename A> std::shared_ptr<arrow::Array> flatten_list(const A &list, tri_shape *shape) {
    if (shape->rank == TRI_MAX_RANK - 1) refuse(TRI_UNSUPPORTED, "has too many axes");
    int64_t length = list.length() > 0 ? list.value_length(0) : 0;
    for (int64_t i = 1; i < list.length(); i++)
        if (list.value_length(i) != length) refuse(TRI_UNSUPPORTED, "has lists of several lengths");
    shape->dims[shape->rank++] = length;
    return take(list.Flatten());
}

// Takes the axes of lists off an array, one after the other.
std::shared_ptr<arrow::Array> flatten(std::shared_ptr<arrow::Array> array, tri_shape *shape) {
    for (;;) {
        check_complete(*array);
        switch (array->type_id()) {
        case arrow::Type::LIST:
            array = flatten_list(static_cast<const arrow::ListArray &>(*array), shape);
            break;
        case arrow::Type::LARGE_LIST:
            array = flatten_list(static_cast<const arrow::LargeListArray &>(*array), shape);
            break;
        case arrow::Type::FIXED_SIZE_LIST:
            array = flatten_list(static_cast<const arrow::FixedSizeListArray &>(*array), shape);
            break;
        case arrow::Type::EXTENSION:
            array = static_cast<const arrow::ExtensionArray &>(*array).storage();
            break;
        default:
            return array;
        }
    }
}

tri_dtype dtype_of(const arrow::Array &array) {
    switch (array.type_id()) {
    case arrow::Type::BOOL:
        return TRI_BOOL;
    case arrow::Type::UINT8:
        return TRI_U8;
    case arrow::Type::INT8:
        return TRI_I8;
    case arrow::Type::UINT16:
        return TRI_U16;
    case arrow::Type::INT16:
        return TRI_I16;
    case arrow::Type::UINT32:
        return TRI_U32;
    case arrow::Type::INT32:
        return TRI_I32;
    case arrow::Type::UINT64:
        return TRI_U64;
    case arrow::Type::INT64:
        return TRI_I64;
    case arrow::Type::HALF_FLOAT:
        return TRI_F16;
    case arrow::Type::FLOAT:
        return TRI_F32;
    case arrow::Type::DOUBLE:
        return TRI_F64;
    default:
        refuse(TRI_UNSUPPORTED, "has cells of type " + array.type()->ToString());
    }
}

void *allocate(int64_t bytes) {
    void *memory = std::malloc(bytes > 0 ? static_cast<size_t>(bytes) : 1);
    if (!memory) throw std::bad_alloc();
    return memory;
}

void copy_numbers(const arrow::Array &array, tri_parquet_cells *out) {
    out->dtype = dtype_of(array);
    int64_t width = array.type_id() == arrow::Type::BOOL ? 1 : array.type()->byte_width();
    out->data = allocate(array.length() * width);
    if (array.type_id() == arrow::Type::BOOL) {
        const auto &bits = static_cast<const arrow::BooleanArray &>(array);
        for (int64_t i = 0; i < array.length(); i++)
            static_cast<uint8_t *>(out->data)[i] = bits.Value(i);
        return;
    }
    const uint8_t *from = array.data()->GetValues<uint8_t>(1, 0) + array.offset() * width;
    if (array.length() > 0)
        std::memcpy(out->data, from, static_cast<size_t>(array.length() * width));
}

template <typename A> void copy_bytes(const A &array, tri_parquet_cells *out) {
    check_complete(array);
    out->data = allocate(array.total_values_length());
    out->offsets = static_cast<int64_t *>(
        allocate((array.length() + 1) * static_cast<int64_t>(sizeof(int64_t))));
    int64_t at = 0;
    for (int64_t i = 0; i < array.length(); i++) {
        auto view = array.GetView(i);
        out->offsets[i] = at;
        std::memcpy(static_cast<char *>(out->data) + at, view.data(), view.size());
        at += static_cast<int64_t>(view.size());
    }
    out->offsets[array.length()] = at;
}

void free_cells(tri_parquet_cells *cells) {
    std::free(cells->data);
    std::free(cells->offsets);
    std::free(cells->is_missing);
    *cells = {};
}

tri_status read(tri_parquet_file *file, int group, int column, tri_parquet_cells *out, char *why) {
    *out = {};
    tri_status status = guarded(why, [&] {
        auto array = read_array(file, group, column);
        out->rows = array->length();
        switch (array->type_id()) {
        case arrow::Type::BINARY:
        case arrow::Type::STRING:
            copy_bytes(static_cast<const arrow::BinaryArray &>(*array), out);
            break;
        case arrow::Type::LARGE_BINARY:
        case arrow::Type::LARGE_STRING:
            copy_bytes(static_cast<const arrow::LargeBinaryArray &>(*array), out);
            break;
        default:
            copy_numbers(*flatten(array, &out->shape), out);
        }
    });
    if (status != TRI_OK) free_cells(out);
    return status;
}

// The text of a row; of a dictionary, the one that the row's number stands for.
std::string_view text_of(const arrow::Array &array, int64_t row) {
    switch (array.type_id()) {
    case arrow::Type::STRING:
        return static_cast<const arrow::StringArray &>(array).GetView(row);
    case arrow::Type::LARGE_STRING:
        return static_cast<const arrow::LargeStringArray &>(array).GetView(row);
    case arrow::Type::STRING_VIEW:
        return static_cast<const arrow::StringViewArray &>(array).GetView(row);
    case arrow::Type::DICTIONARY: {
        const auto &coded = static_cast<const arrow::DictionaryArray &>(array);
        return text_of(*coded.dictionary(), coded.GetValueIndex(row));
    }
    default:
        refuse(TRI_UNSUPPORTED, "has cells of type " + array.type()->ToString() + ", and no text");
    }
}

bool has_text(const arrow::Array &array, int64_t row) {
    if (array.IsNull(row)) return false;
    if (array.type_id() != arrow::Type::DICTIONARY) return true;
    const auto &coded = static_cast<const arrow::DictionaryArray &>(array);
    return !coded.dictionary()->IsNull(coded.GetValueIndex(row));
}

void copy_texts(const arrow::ChunkedArray &chunks, tri_parquet_cells *out) {
    int64_t bytes = 0, row = 0;
    for (const auto &chunk : chunks.chunks()) {
        check(chunk->ValidateFull());
        for (int64_t i = 0; i < chunk->length(); i++)
            if (has_text(*chunk, i)) bytes += static_cast<int64_t>(text_of(*chunk, i).size());
    }
    out->rows = chunks.length();
    out->data = allocate(bytes);
    out->offsets =
        static_cast<int64_t *>(allocate((out->rows + 1) * static_cast<int64_t>(sizeof(int64_t))));
    out->is_missing = static_cast<bool *>(allocate(out->rows));
    int64_t at = 0;
    for (const auto &chunk : chunks.chunks())
        for (int64_t i = 0; i < chunk->length(); i++, row++) {
            out->offsets[row] = at;
            out->is_missing[row] = !has_text(*chunk, i);
            if (out->is_missing[row]) continue;
            auto text = text_of(*chunk, i);
            std::memcpy(static_cast<char *>(out->data) + at, text.data(), text.size());
            at += static_cast<int64_t>(text.size());
        }
    out->offsets[row] = at;
}

// Whether a column has texts, which is known before any is read.
bool is_text(const arrow::DataType &type) {
    if (type.id() == arrow::Type::DICTIONARY)
        return is_text(*static_cast<const arrow::DictionaryType &>(type).value_type());
    return type.id() == arrow::Type::STRING || type.id() == arrow::Type::LARGE_STRING ||
           type.id() == arrow::Type::STRING_VIEW;
}

tri_status read_text(tri_parquet_file *file, int group, int column, tri_parquet_cells *out,
                     char *why) {
    *out = {};
    tri_status status = guarded(why, [&] {
        const auto &type = *file->schema->field(column)->type();
        if (!is_text(type))
            refuse(TRI_UNSUPPORTED, "has cells of type " + type.ToString() + ", and no text");
        std::shared_ptr<arrow::Table> table;
        check(file->reader->ReadRowGroup(group, leaves_of(file, column), &table));
        if (table->num_rows() != rows(file, group)) refuse(TRI_CORRUPT, "lacks cells");
        copy_texts(*table->column(0), out);
    });
    if (status != TRI_OK) free_cells(out);
    return status;
}

const tri_parquet table = {.open = open_file,
                           .close = close_file,
                           .columns = columns,
                           .name = name,
                           .groups = groups,
                           .rows = rows,
                           .read = read,
                           .read_text = read_text,
                           .free_cells = free_cells,
                           .create = create,
                           .write = write,
                           .finish = finish,
                           .release = release};

} // namespace
} // namespace parquet_module

TRI_MODULE(TRI_PARQUET_INTERFACE, TRI_PARQUET_ABI, "parquet", &parquet_module::table);
