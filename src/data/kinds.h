// The kinds of data sets (data.name), one row for each. kind.h explains what a kind is.
#ifndef TRIREME_DATA_KINDS_H
#define TRIREME_DATA_KINDS_H

// Every kind of data set: ROW(name, the option rows of settings that only this kind has, their
// number, help text). options.c, which uses this table, defines these option rows. The kind X is
// defined as tri_dataset_X, so that a new kind needs only a file and a row here.
#define TRI_DATASET_KINDS(ROW)                                                                     \
    ROW(idx, NULL, 0, "IDX files as of MNIST and Fashion-MNIST, raw or gzip")                      \
    ROW(cifar10, NULL, 0, "CIFAR-10's binary files; data.path: their folder")                      \
    ROW(cifar100, NULL, 0, "CIFAR-100's binary files; data.path: their folder")                    \
    ROW(imagefolder, NULL, 0,                                                                      \
        "a folder for each class, with JPEG, PNG, WebP, BMP or PPM files in it")                   \
    ROW(webdataset, webdataset_rows, TRI_OPTION_COUNT(webdataset_rows),                            \
        "tar files with NAME.jpg and NAME.cls for each sample; {000000..000009} counts files")     \
    ROW(hdf5, hdf5_rows, TRI_OPTION_COUNT(hdf5_rows),                                              \
        "an HDF5 file whose arrays share their first axis")                                        \
    ROW(lmdb, NULL, 0, "an LMDB database of image files, or of images as Caffe's Datum")           \
    ROW(parquet, parquet_rows, TRI_OPTION_COUNT(parquet_rows),                                     \
        "Parquet files, such as those of Hugging Face: images, numbers, and lists of numbers")     \
    ROW(csv, csv_rows, TRI_OPTION_COUNT(csv_rows),                                                 \
        "a table as text: a sample a line, numbers in columns, classes as numbers or names")       \
    ROW(tensors, NULL, 0, "a safetensors file whose tensors share their first axis")               \
    ROW(npy, NULL, 0,                                                                              \
        "NumPy's arrays that share their first axis: x.npz, or {images: x.npy, labels: y.npy}")    \
    ROW(tokens, tokens_rows, TRI_OPTION_COUNT(tokens_rows),                                        \
        "text, or flat files of token numbers, cut into windows of data.sequence")                 \
    ROW(mixture, mixture_rows, TRI_OPTION_COUNT(mixture_rows),                                     \
        "several of these kinds, by weight")                                                       \
    ROW(jsonl, jsonl_rows, TRI_OPTION_COUNT(jsonl_rows),                                           \
        "documents, one JSON object a line, whose text is tokenized and cut into windows")         \
    ROW(synthetic, synthetic_rows, TRI_OPTION_COUNT(synthetic_rows),                               \
        "random numbers from the seed, uniform in [0, 1)")

#endif
