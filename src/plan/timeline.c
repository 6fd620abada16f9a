#include "plan/timeline.h"

#include <string.h>

static double cost_s(const tri_plan *plan, const tri_step_plan *step, const tri_action *a,
                     tri_rates rates) {
    double bytes =
        a->block >= 0 ? (double)plan->flat.blocks[a->block].elements * (double)sizeof(float) : 0;
    const tri_program *p = a->round >= 0 ? step->items[a->round].program : NULL;
    switch (a->kind) {
    case TRI_ACTION_FORWARD:
        return tri_program_flops(p, a->block, TRI_PHASE_FORWARD) / rates.flops_per_s;
    case TRI_ACTION_BACKWARD:
        return tri_program_flops(p, a->block, TRI_PHASE_BACKWARD) / rates.flops_per_s;
    case TRI_ACTION_REDUCE:
        return 2 * bytes / rates.bytes_per_s;
    case TRI_ACTION_STEP:
        return 4 * bytes / rates.bytes_per_s;
    case TRI_ACTION_CLEAR:
        return bytes / rates.bytes_per_s;
    case TRI_ACTION_NORM:
    case TRI_ACTION_KIND_COUNT:
        break;
    }
    return 0;
}

double tri_timeline_make(const tri_plan *plan, const tri_step_plan *step, tri_rates rates,
                         tri_moment *moments) {
    const tri_schedule *s = &step->schedule;
    double free_at[TRI_LANE_COUNT] = {0}, end = 0;
    for (int i = 0; i < s->count; i++) {
        const tri_action *a = &s->actions[i];
        tri_lane lane = tri_action_lane(a->kind);
        double start = free_at[lane];
        for (int d = 0; d < a->dependency_count; d++) {
            double done = moments[s->dependencies[a->first_dependency + d]].end_s;
            if (done > start) start = done;
        }
        moments[i] = (tri_moment){start, start + cost_s(plan, step, a, rates)};
        free_at[lane] = moments[i].end_s;
        if (moments[i].end_s > end) end = moments[i].end_s;
    }
    return end;
}

static char letter(int block) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    return letters[block % (int)(sizeof letters - 1)];
}

void tri_timeline_draw(const tri_plan *plan, const tri_step_plan *step, const tri_moment *moments,
                       double end_s, int columns, FILE *out) {
    static const char *const names[] = {"forward", "backward", "reduce", "step"};
    static const tri_action_kind kinds[] = {TRI_ACTION_FORWARD, TRI_ACTION_BACKWARD,
                                            TRI_ACTION_REDUCE, TRI_ACTION_STEP};
    char row[512];
    if (columns > (int)sizeof row - 1) columns = (int)sizeof row - 1;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        bool any = false;
        memset(row, '.', (size_t)columns);
        row[columns] = 0;
        for (int i = 0; i < step->schedule.count; i++) {
            const tri_action *a = &step->schedule.actions[i];
            if (a->kind != kinds[k] || end_s <= 0) continue;
            any = true;
            int from = (int)(moments[i].start_s / end_s * columns);
            int to = (int)(moments[i].end_s / end_s * columns);
            for (int c = from; c < columns && (c < to || c == from); c++) row[c] = letter(a->block);
        }
        if (any) fprintf(out, "  %-9s %s\n", names[k], row);
    }
    fprintf(out, "  blocks:  ");
    for (int b = 0; b < plan->graph->block_count; b++)
        fprintf(out, " %c %s", letter(b), plan->graph->blocks[b]);
    fprintf(out, "\n");
}
