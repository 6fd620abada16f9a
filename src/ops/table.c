// The table of all ops. Ops are found in it by name, and tri_ops_print prints it as a reference.
#include "ops/ops.h"

#include <string.h>

#define X(identifier) &tri_op_##identifier,
const tri_op *const tri_ops[] = {TRI_OP_LIST(X) TRI_COLLECTIVE_LIST(X)};
#undef X
const int tri_op_count = sizeof tri_ops / sizeof *tri_ops;

const tri_op *tri_op_find(const char *name) {
    for (int i = 0; i < tri_op_count; i++)
        if (!strcmp(tri_ops[i]->name, name)) return tri_ops[i];
    return NULL;
}

void tri_ops_print(FILE *out) {
    static const char *const kinds[] = {"int", "float", "bool", "key", "type", "text"};
    for (int i = 0; i < tri_op_count; i++) {
        const tri_op *op = tri_ops[i];
        fprintf(out, "%s\n    %s\n", op->name, op->doc);
        for (const tri_attr_field *f = op->attr_fields; f && f->name; f++) {
            fprintf(out, "    attribute %s: %s", f->name, kinds[f->kind]);
            if (f->count) fprintf(out, " x %d", f->count);
            fputc('\n', out);
        }
        if (op->flags & TRI_OP_VIEW) fprintf(out, "    a view: shares the input's memory\n");
        if (op->flags & TRI_OP_RANDOM) fprintf(out, "    draws random numbers by position\n");
        if (op->flags & TRI_OP_COLLECTIVE)
            fprintf(out, "    communicates among the ranks of a group\n");
        if (op->flags & TRI_OP_UPDATE) fprintf(out, "    updates its inputs in place\n");
        if (op->flags & TRI_OP_KEPT) fprintf(out, "    keeps its output from call to call\n");
        if (op->in_place) fprintf(out, "    may overwrite input %d\n", op->in_place - 1);
        if (op->gradient) fprintf(out, "    has a gradient rule\n");
    }
}
