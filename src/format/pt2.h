// Reads networks that PyTorch has exported: the .pt2 files of torch.export.save, from PyTorch 2.9
// on. Such a file is a zip archive of the network's graph in JSON (models/model.json), and the raw
// bytes of its weights and constants; what is a pickle in it is not read. The format has no
// promise; facts: torch/_export/serde/schema.py, major version 8, and torch/export/pt2_archive.
//
// This file knows no operation of PyTorch: a node is a name with arguments.
#ifndef TRIREME_FORMAT_PT2_H
#define TRIREME_FORMAT_PT2_H

#include "base/arena.h"
#include "base/index.h"
#include "base/status.h"
#include "format/safetensors.h"
#include "format/zip.h"

#include <stdbool.h>
#include <stdint.h>
#include <trireme/tensor.h>

enum {
    TRI_MAX_PT2_GRAPH = 64 << 20, // bytes of the graph's text; 130,000 nodes have about 5 MB
    TRI_MAX_PT2_RANK = 8,         // axes of a value
    TRI_MAX_PT2_DEPTH = 8,        // lists in lists of arguments
};

typedef enum tri_pt2_kind {
    TRI_PT2_NONE,
    TRI_PT2_VALUE, // `number`: which value of the graph, a tensor or a size
    TRI_PT2_INT,   // `number`
    TRI_PT2_FLOAT, // `real`
    TRI_PT2_BOOL,  // `number`
    TRI_PT2_TEXT,  // `text`
    TRI_PT2_DTYPE, // `number`: PyTorch's number of the type (TRI_PT2_LONG, …)
    TRI_PT2_LIST,  // `items`
    TRI_PT2_OTHER, // a device, a layout, a memory format, …; `text`: the kind's name in the file
} tri_pt2_kind;

// PyTorch's numbers of types (schema.py, ScalarType).
enum {
    TRI_PT2_BYTE = 1,
    TRI_PT2_CHAR,
    TRI_PT2_SHORT,
    TRI_PT2_INT32,
    TRI_PT2_LONG,
    TRI_PT2_HALF,
    TRI_PT2_FLOAT32,
    TRI_PT2_DOUBLE,
    TRI_PT2_COMPLEX_HALF,
    TRI_PT2_COMPLEX_FLOAT,
    TRI_PT2_COMPLEX_DOUBLE,
    TRI_PT2_BOOLEAN,
    TRI_PT2_BFLOAT16,
};

typedef struct tri_pt2_argument {
    const char *name; // as the operation's schema has it; NULL: an item of a list, or an output
    tri_pt2_kind kind;
    int64_t number;
    double real;
    const char *text;
    int count;
    struct tri_pt2_argument *items;
} tri_pt2_argument;

enum { TRI_PT2_SYMBOLIC = -1 }; // a size that depends on the inputs

// A value of the graph: a tensor, or a number that the graph computes of sizes.
typedef struct tri_pt2_value {
    const char *name;
    bool is_tensor;
    int dtype; // PyTorch's number; 0: not known
    int rank;
    int64_t *sizes; // TRI_PT2_SYMBOLIC where they are not fixed
    int64_t *most;  // of these: how large they may be; 0: there is no limit
    // Of the tensor that it was when the network was exported: sizes, and the steps of the axes in
    // elements. NULL: the file does not say all of them.
    int64_t *examples, *strides;
} tri_pt2_value;

typedef struct tri_pt2_node {
    const char *target; // "aten.conv2d.default": without "torch.ops."
    int argument_count, output_count;
    tri_pt2_argument *arguments, *outputs; // an output is a VALUE, a LIST of them, or NONE
    // The module that called the operation: its path ("layer1.0.conv1"; "" is the network itself),
    // the same with "@1" behind it at the second call, and its class.
    const char *module, *call, *type;
    const char *source; // the user's line: "net.py:14 in forward"; "": it is not known
    int region;         // the number of the region without gradients that it is in; 0: none
} tri_pt2_node;

typedef enum tri_pt2_role {
    TRI_PT2_INPUT,     // an argument of forward
    TRI_PT2_PARAMETER, // trained
    TRI_PT2_BUFFER,    // of the state dict, but not trained
    TRI_PT2_CONSTANT,  // of the file alone
    TRI_PT2_OUTPUT,    // what forward returns
    TRI_PT2_MUTATION,  // what a buffer or an input becomes
} tri_pt2_role;

// What goes into the graph and comes out of it.
typedef struct tri_pt2_port {
    tri_pt2_role role;
    const char *name; // of an argument or an output, or the full name of a parameter or buffer
    tri_pt2_argument argument;
} tri_pt2_port;

// A weight or constant. `entry` says where it lies in the file, row-major and little-endian.
typedef struct tri_pt2_tensor {
    tri_safetensors_entry entry;
    // It is packed, or its axes lie in another order, so that it is read as a whole: the member of
    // the archive, and in elements where it begins and the steps of its axes.
    bool is_indirect;
    tri_zip_member member;
    int64_t first, strides[TRI_MAX_RANK];
    const char *twin;  // the first tensor with the same elements, which is tied to it; NULL: none
    const char *alias; // of the first one: the name of the next; NULL: it is not tied
    bool is_weight;    // a parameter or buffer of the state dict; false: a constant
    bool is_frozen;    // a parameter with requires_grad=False
} tri_pt2_tensor;

typedef struct tri_pt2 {
    const char *path, *torch_version;
    tri_zip zip;
    int value_count, node_count, input_count, output_count, tensor_count;
    tri_pt2_value *values;
    tri_pt2_node *nodes;
    tri_pt2_port *inputs, *outputs;
    tri_pt2_tensor *tensors;
    tri_index names; // of tensors
} tri_pt2;

// Reads graph and directory; reads no weight. All memory lies in `arena`. TRI_IO; TRI_CORRUPT: it
// is damaged; TRI_UNSUPPORTED: another version, pickled weights, types or layouts that are not
// supported, named with what to do.
tri_status tri_pt2_open(tri_arena *arena, const char *path, tri_pt2 *out);
// Whether a type of PyTorch's has complex numbers, which tensors here have not.
bool tri_pt2_is_complex(int64_t type);
// True if the file is a zip archive with a network of PyTorch.
bool tri_pt2_probe(const char *path);
// The tensor called `name`; NULL: there is none.
const tri_pt2_tensor *tri_pt2_find(const tri_pt2 *file, const char *name);
// Reads a whole tensor into `out`, of entry.size_bytes.
tri_status tri_pt2_read(const tri_pt2 *file, const tri_pt2_tensor *tensor, void *out);
// Opens the parameters and buffers as a list of tensors, in which a tied one has its first name.
// They are read where they lie; if any of them cannot be (is_indirect), all are unpacked into
// memory first.
tri_status tri_pt2_open_weights(const tri_pt2 *file, tri_safetensors **out);

// Parses the graph's JSON text into *out, whose path is set, for tri_pt2_open.
tri_status tri_pt2_parse_graph(tri_arena *arena, const char *text, size_t size, tri_pt2 *out);

#endif
