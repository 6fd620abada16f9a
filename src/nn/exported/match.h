// Finds groups of operations in an exported graph by patterns. A pattern is a text:
//
//     mul(rsqrt(add(mean(pow(x, 2), [-1], True), eps)), x)
//
// A name with parentheses is an operation of ATen, of any overload, with its arguments in their
// order or as name=.. (which the operation may leave out). Other names are variables, each of which
// stands for one value, number or list wherever it occurs. Arguments of add and mul may be
// exchanged. {a | b} is either of both, tried in this order; f?(a, ..) is f(a, ..) or a alone;
// f(..).1 is f's second result. Numbers match within 1e-6; a negative one also matches the axis of
// that number. An operation that has another argument than the pattern, but for types and places,
// does not match. What changes nothing, such as a conversion between types of floating point, may
// lie between.
#ifndef TRIREME_NN_EXPORTED_MATCH_H
#define TRIREME_NN_EXPORTED_MATCH_H

#include "nn/exported/build.h"

enum { EXPORTED_MAX_VARIABLES = 12, EXPORTED_MAX_MATCHED = 48, EXPORTED_MAX_TERMS = 10 };

// A text that has been parsed.
typedef struct exported_term exported_term;

typedef struct exported_variable {
    const char *name;
    tri_pt2_argument value;
} exported_variable;

typedef struct exported_match {
    nn_exported *network;
    const int *uses; // by value, how often live nodes and outputs read it
    int root;        // the node that makes the result
    int variable_count, node_count;
    exported_variable variables[EXPORTED_MAX_VARIABLES];
    int nodes[EXPORTED_MAX_MATCHED]; // those that the pattern names, and what lies between
} exported_match;

const exported_term *exported_parse_pattern(tri_arena *arena, const char *text);
// Whether node `root` and those before it are what the pattern says, and nothing else reads what is
// made between them.
bool exported_match_node(nn_exported *network, const exported_term *pattern, int root,
                         const int *uses, exported_match *out);
// Puts the operation of `replacement`, whose name is whole ("aten.gelu"), in the place of the root;
// arguments whose variable is not bound are left out.
void exported_replace_root(const exported_match *match, const exported_term *replacement);

// Whether the node is an operation of that name, of any overload, also in place.
bool exported_is_called(const tri_pt2_node *node, const char *name);
// Whether the value is made of a port of that role.
bool exported_follows_from(const nn_exported *network, int value, tri_pt2_role role);
// Puts losses in the place of means and sums that the network has written out as its loss
// (own_losses.c). Returns how many.
int exported_find_losses(nn_exported *network, const int *uses);

// The variable of that name; NULL: it is not bound.
const tri_pt2_argument *exported_bound(const exported_match *match, const char *name);
void exported_bind_variable(exported_match *match, const char *name, tri_pt2_argument value);
// The tensor that the variable is, as the file describes it; NULL: it is none, or has a rank that
// is not supported.
const tri_pt2_value *exported_bound_tensor(const exported_match *match, const char *name);
// The number that the variable is. False: it is none.
bool exported_bound_number(const exported_match *match, const char *name, double *out);

#endif
