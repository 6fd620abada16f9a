// The kinds of data sets (data.name), one row for each. kind.h explains what a kind is.
#ifndef TRIREME_DATA_KINDS_H
#define TRIREME_DATA_KINDS_H

// Every kind of data set: ROW(name, the option rows of settings that only this kind has, their
// number, help text). options.c, which uses this table, defines these option rows. The kind X is
// defined as tri_dataset_X, so that a new kind needs only a file and a row here.
#define TRI_DATASET_KINDS(ROW)                                                                     \
    ROW(idx, NULL, 0, "IDX files as of MNIST and Fashion-MNIST, raw or gzip")                      \
    ROW(tensors, NULL, 0, "a safetensors file whose tensors share their first axis")               \
    ROW(npy, NULL, 0,                                                                              \
        "NumPy's arrays that share their first axis: x.npz, or {images: x.npy, labels: y.npy}")    \
    ROW(tokens, tokens_rows, TRI_OPTION_COUNT(tokens_rows),                                        \
        "text, or flat files of token numbers, cut into windows of data.sequence")                 \
    ROW(synthetic, synthetic_rows, TRI_OPTION_COUNT(synthetic_rows),                               \
        "random numbers from the seed, uniform in [0, 1)")

#endif
