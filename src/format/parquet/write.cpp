// Writes Parquet files: one row group after the other.
#include "format/parquet/internal.h"

#include <arrow/array/concatenate.h>
#include <parquet/arrow/writer.h>
#include <unistd.h>

struct tri_parquet_writer {
    std::vector<tri_parquet_column> columns;
    std::shared_ptr<arrow::Schema> schema;
    std::shared_ptr<arrow::io::FileOutputStream> file;
    std::unique_ptr<parquet::arrow::FileWriter> writer;
};

namespace parquet_module {
namespace {

std::shared_ptr<arrow::DataType> number_type(tri_dtype dtype) {
    switch (dtype) {
    case TRI_BOOL:
        return arrow::boolean();
    case TRI_U8:
        return arrow::uint8();
    case TRI_I8:
        return arrow::int8();
    case TRI_U16:
        return arrow::uint16();
    case TRI_I16:
        return arrow::int16();
    case TRI_U32:
        return arrow::uint32();
    case TRI_I32:
        return arrow::int32();
    case TRI_U64:
        return arrow::uint64();
    case TRI_I64:
        return arrow::int64();
    case TRI_F16:
        return arrow::float16();
    case TRI_F32:
        return arrow::float32();
    case TRI_F64:
        return arrow::float64();
    default:
        refuse(TRI_UNSUPPORTED, "has no type for these numbers");
    }
}

std::shared_ptr<arrow::DataType> image_type() {
    return arrow::struct_(
        {arrow::field("bytes", arrow::binary()), arrow::field("path", arrow::utf8())});
}

std::shared_ptr<arrow::DataType> type_of(const tri_parquet_column &column) {
    if (column.type == TRI_PARQUET_IMAGE) return image_type();
    auto type = number_type(column.dtype);
    for (int i = column.shape.rank - 1; i >= 0; i--)
        type = arrow::fixed_size_list(arrow::field("element", type, false),
                                      static_cast<int32_t>(column.shape.dims[i]));
    return type;
}

std::shared_ptr<arrow::Buffer> view(const void *data, int64_t bytes) {
    return std::make_shared<arrow::Buffer>(static_cast<const uint8_t *>(data), bytes);
}

std::shared_ptr<arrow::Array> number_array(const tri_parquet_column &column,
                                           const tri_parquet_cells &cells) {
    int64_t count = cells.rows;
    for (int i = 0; i < column.shape.rank; i++) count *= column.shape.dims[i];
    auto type = number_type(column.dtype);
    std::shared_ptr<arrow::Array> array;
    if (column.dtype == TRI_BOOL) {
        arrow::BooleanBuilder bits;
        check(bits.AppendValues(static_cast<const uint8_t *>(cells.data), count));
        array = take(bits.Finish());
    } else {
        array = arrow::MakeArray(arrow::ArrayData::Make(
            type, count, {nullptr, view(cells.data, count * type->byte_width())}, 0));
    }
    for (int i = column.shape.rank - 1; i >= 0; i--) {
        auto size = static_cast<int32_t>(column.shape.dims[i]);
        auto list = arrow::fixed_size_list(arrow::field("element", array->type(), false), size);
        count /= size;
        array = std::make_shared<arrow::FixedSizeListArray>(list, count, array);
    }
    return array;
}

std::shared_ptr<arrow::Array> image_array(const tri_parquet_cells &cells) {
    arrow::BinaryBuilder bytes;
    for (int64_t i = 0; i < cells.rows; i++)
        check(bytes.Append(static_cast<const uint8_t *>(cells.data) + cells.offsets[i],
                           static_cast<int32_t>(cells.offsets[i + 1] - cells.offsets[i])));
    auto path = take(arrow::MakeArrayOfNull(arrow::utf8(), cells.rows));
    return take(arrow::StructArray::Make({take(bytes.Finish()), path}, image_type()->fields()));
}

} // namespace

tri_status create(int fd, const tri_parquet_column *columns, int count, tri_parquet_writer **out,
                  char *why) {
    *out = nullptr;
    return guarded(why, [&] {
        auto writer = std::make_unique<tri_parquet_writer>();
        std::vector<std::shared_ptr<arrow::Field>> fields;
        for (int i = 0; i < count; i++) {
            bool is_image = columns[i].type == TRI_PARQUET_IMAGE;
            writer->columns.push_back(columns[i]);
            fields.push_back(arrow::field(columns[i].name, type_of(columns[i]), is_image));
        }
        writer->schema = arrow::schema(fields);
        int own = dup(fd);
        if (own < 0) refuse(TRI_IO, "cannot be opened a second time");
        writer->file = take(arrow::io::FileOutputStream::Open(own));
        parquet::WriterProperties::Builder properties;
        properties.created_by("trireme")->compression(parquet::Compression::ZSTD);
        for (int i = 0; i < count; i++) // image files are compressed already
            if (columns[i].type == TRI_PARQUET_IMAGE)
                properties.compression(std::string(columns[i].name) + ".bytes",
                                       parquet::Compression::UNCOMPRESSED);
        auto arrow_properties = parquet::ArrowWriterProperties::Builder().store_schema()->build();
        writer->writer = take(
            parquet::arrow::FileWriter::Open(*writer->schema, arrow::default_memory_pool(),
                                             writer->file, properties.build(), arrow_properties));
        *out = writer.release();
    });
}

tri_status write(tri_parquet_writer *writer, const tri_parquet_cells *cells, char *why) {
    return guarded(why, [&] {
        std::vector<std::shared_ptr<arrow::Array>> arrays;
        for (size_t i = 0; i < writer->columns.size(); i++)
            arrays.push_back(writer->columns[i].type == TRI_PARQUET_IMAGE
                                 ? image_array(cells[i])
                                 : number_array(writer->columns[i], cells[i]));
        auto table = arrow::Table::Make(writer->schema, arrays, cells[0].rows);
        check(writer->writer->WriteTable(*table, cells[0].rows));
    });
}

tri_status finish(tri_parquet_writer *writer, char *why) {
    return guarded(why, [&] {
        check(writer->writer->Close());
        check(writer->file->Close());
    });
}

void release(tri_parquet_writer *writer) { delete writer; }

} // namespace parquet_module
