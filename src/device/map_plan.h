// How a node of map, or the map of map_reduce, is computed, for devices that interpret its formula:
// where the results of steps lie, and how inputs are read.
#ifndef TRIREME_DEVICE_MAP_PLAN_H
#define TRIREME_DEVICE_MAP_PLAN_H

#include "graph/op.h"
#include "ops/draw.h"
#include "ops/formula.h"

// How an input is read: element by element with the output (flat), or by strides along the axes of
// the plan. Outside of [first, end) of an axis it is 0.
typedef struct tri_map_input {
    int64_t flat; // 1: it has the shape and layout of the output
    int64_t offset, strides[TRI_MAX_RANK], first[TRI_MAX_RANK], end[TRI_MAX_RANK];
    tri_draw_stream draws; // what is read, if its kind is not TRI_DRAW_NONE
} tri_map_input;

typedef struct tri_map_plan {
    tri_formula formula;
    // By operand: its slot. Results of steps have slots that are used again when no later step
    // reads them; a result may have the slot of an operand of the same step. Then come the inputs.
    uint8_t slots[TRI_OPERAND_CONSTANT];
    int slot_count;
    int rank; // axes of the output; neighbours along which all inputs are read alike are one axis
    int64_t count; // elements of the output, with the padding of its layout
    int64_t dims[TRI_MAX_RANK];
    tri_map_input inputs[TRI_FORMULA_INPUTS];
} tri_map_plan;

// The slots of a formula on `count` elements, of which all inputs are read element by element.
void tri_map_plan_formula(const tri_formula *formula, int64_t count, tri_map_plan *out);
void tri_map_plan_make(const tri_graph *graph, const tri_node *node, tri_map_plan *out);
// The number of slots alone.
int tri_map_plan_slots(const tri_node *node);
// The type in which the node computes, and whether it has an input or output of another type.
tri_dtype tri_map_plan_type(const tri_graph *graph, const tri_node *node, bool *mixed);
typedef struct tri_device_description tri_device_description;
typedef struct tri_layout tri_layout;
// Chooses layouts. Inputs of the output's shape may have any layout, if it is the same one: that of
// the last input that is not plain. In a gradient this is a value of the forward pass, whose layout
// suits the kernels beside it.
void tri_map_layouts(const tri_device_description *device, const tri_graph *graph,
                     const tri_node *node, tri_layout *in, tri_layout *out);
// Whether all inputs have the shape of the output, so that any layout will do if it is the same.
bool tri_map_is_flat(const tri_graph *graph, const tri_node *node);

#endif
