// Plans how a node of map is computed: gives the steps of its formula slots, and turns views of its
// inputs into strides.
#include "device/map_plan.h"

#include "ops/ops.h"
#include "tensor/layout.h"

// Gives each step a slot. Returns how many slots there are.
static int assign_slots(const tri_formula *f, uint8_t *slots) {
    int last[TRI_FORMULA_STEPS] = {0}, count = 0; // last[i]: the last step that reads step i
    bool taken[TRI_FORMULA_STEPS] = {false};
    for (int i = 0; i < f->step_count; i++) {
        uint8_t operands[] = {f->steps[i].a, f->steps[i].b, f->steps[i].c};
        for (int k = 0; k < tri_step_arity((tri_step_kind)f->steps[i].kind); k++)
            if (operands[k] < TRI_OPERAND_INPUT) last[operands[k]] = i;
    }
    for (int k = 0; k < f->output_count; k++)
        if (f->outputs[k] < TRI_OPERAND_INPUT) last[f->outputs[k]] = f->step_count;
    for (int i = 0; i < f->step_count; i++) {
        int slot = 0;
        for (int k = 0; k < i; k++) // an operand's slot may be the result's: the loops allow it
            if (last[k] == i) taken[slots[k]] = false;
        while (taken[slot]) slot++;
        taken[slot] = true;
        slots[i] = (uint8_t)slot;
        if (slot >= count) count = slot + 1;
    }
    for (int k = 0; k < f->input_count; k++) slots[TRI_OPERAND_INPUT + k] = (uint8_t)(count + k);
    return count + f->input_count;
}

static const tri_shape *shape_of(const tri_graph *graph, tri_value value) {
    return &tri_value_get(graph, value)->shape;
}

// The shape of the map, which of map_reduce is not that of the output.
static const tri_shape *shape_of_map(const tri_graph *graph, const tri_node *node) {
    const tri_map_attr *attr = node->attr;
    return attr->expands ? &attr->shape : shape_of(graph, node->outputs[0]);
}

static bool is_flat(const tri_graph *graph, const tri_node *node, int input) {
    const tri_map_attr *attr = node->attr;
    return !((attr->viewed | attr->drawn) >> input & 1) &&
           tri_shape_equal(shape_of(graph, node->inputs[input]), shape_of_map(graph, node));
}

// Turns a view of x into strides along the axes of the output.
static tri_map_input input_of(const tri_map_view *view, const tri_shape *x, const tri_shape *out) {
    tri_map_input input = {0};
    int64_t stride = 1;
    for (int i = 0; i < out->rank; i++) input.end[i] = out->dims[i];
    for (int j = x->rank - 1; j >= 0; j--) {
        int64_t size = x->dims[j], start = view->start[j];
        int axis = view->axis[j];
        input.offset += start * stride;
        if (axis >= 0) {
            bool forward = view->sign[j] > 0;
            int64_t first = forward ? -start : start - size + 1;
            int64_t end = forward ? size - start : start + 1;
            input.strides[axis] = view->sign[j] * stride;
            if (first > 0) input.first[axis] = first;
            if (end < input.end[axis]) input.end[axis] = end;
        }
        stride *= size;
    }
    return input;
}

// Sets the axes of the output and the strides of the inputs along them. Neighbouring axes become
// one where every input runs through both as through one.
static void set_strides(tri_map_plan *plan, const tri_graph *graph, const tri_node *node) {
    const tri_shape *out = shape_of_map(graph, node);
    tri_map_input whole[TRI_FORMULA_INPUTS];
    int count = plan->formula.input_count;
    for (int k = 0; k < count; k++) {
        const tri_map_attr *attr = node->attr;
        const tri_shape *x = tri_map_read_shape(attr, k, shape_of(graph, node->inputs[k]));
        tri_map_view view = tri_map_view_of(attr, k, x, out);
        whole[k] = input_of(&view, x, out);
        plan->inputs[k].flat = is_flat(graph, node, k);
        plan->inputs[k].offset = whole[k].offset;
        if (attr->drawn >> k & 1) plan->inputs[k].draws = tri_map_stream_of(&attr->draws[k]);
    }
    for (int i = 0; i < out->rank; i++) {
        bool joins = plan->rank > 0;
        int last = plan->rank - 1;
        for (int k = 0; k < count && joins; k++) {
            const tri_map_input *input = &plan->inputs[k];
            joins = input->strides[last] == whole[k].strides[i] * out->dims[i] &&
                    input->first[last] == 0 && input->end[last] == plan->dims[last] &&
                    whole[k].first[i] == 0 && whole[k].end[i] == out->dims[i];
        }
        if (!joins) plan->dims[plan->rank++] = 1;
        last = plan->rank - 1;
        plan->dims[last] *= out->dims[i];
        for (int k = 0; k < count; k++) {
            plan->inputs[k].strides[last] = whole[k].strides[i];
            plan->inputs[k].first[last] = joins ? 0 : whole[k].first[i];
            plan->inputs[k].end[last] = joins ? plan->dims[last] : whole[k].end[i];
        }
    }
    if (plan->rank > 0) return;
    plan->dims[plan->rank++] = 1; // one element
    for (int k = 0; k < count; k++) plan->inputs[k].end[0] = 1;
}

bool tri_map_is_flat(const tri_graph *graph, const tri_node *node) {
    for (int k = 0; k < node->input_count && tri_value_is(node->inputs[k]); k++)
        if (!is_flat(graph, node, k)) return false;
    return true;
}

tri_dtype tri_map_plan_type(const tri_graph *graph, const tri_node *node, bool *mixed) {
    tri_op_signature s = tri_node_signature(graph, node);
    const tri_map_attr *attr = node->attr;
    tri_dtype type = tri_map_type(attr, &s);
    *mixed = s.out_type[0] != type || attr->mask || attr->drawn;
    for (int k = 0; k < s.input_count && s.present[k]; k++) *mixed |= s.in_type[k] != type;
    return type;
}

void tri_map_layouts(const tri_device_description *device, const tri_graph *graph,
                     const tri_node *node, tri_layout *in, tri_layout *out) {
    const tri_formula *f = &((const tri_map_attr *)node->attr)->formula;
    tri_layout layout = TRI_LAYOUT_PLAIN;
    for (int k = 0; k < f->input_count && tri_map_is_flat(graph, node); k++)
        if (!tri_layout_is_plain(&in[k])) layout = in[k];
    for (int k = 0; k < f->input_count; k++) in[k] = layout;
    for (int k = 0; k < f->output_count; k++) out[k] = layout;
}

int tri_map_plan_slots(const tri_node *node) {
    uint8_t slots[TRI_OPERAND_CONSTANT];
    return assign_slots(&((const tri_map_attr *)node->attr)->formula, slots);
}

void tri_map_plan_formula(const tri_formula *formula, int64_t count, tri_map_plan *out) {
    *out = (tri_map_plan){.formula = *formula, .count = count};
    out->slot_count = assign_slots(&out->formula, out->slots);
}

void tri_map_plan_make(const tri_graph *graph, const tri_node *node, tri_map_plan *out) {
    const tri_value_info *y = tri_value_get(graph, node->outputs[0]);
    tri_map_plan_formula(&((const tri_map_attr *)node->attr)->formula,
                         tri_layout_elements(&y->layout, shape_of_map(graph, node)), out);
    set_strides(out, graph, node);
}
