// Finds the parts of a schedule that a device may record once and repeat in every step (captured
// parts). A part is a run of actions of the compute lane; other lanes (communicators, storage) run
// their actions beside it. capture.h gives the rules.
#include "plan/capture.h"

int tri_capture_find(tri_arena *arena, const tri_schedule *schedule, const bool *may,
                     tri_capture **out) {
    // awaited[i]: an action of another lane (communication, storage, a copy) waits for action i.
    // Then i cannot be in the middle of a captured part (actions that the device repeats as one),
    // because such a part is finished only as a whole.
    bool *awaited = TRI_NEW_ARRAY(arena, bool, schedule->count);
    for (int i = 0; i < schedule->dependency_count; i++) awaited[schedule->dependencies[i]] = true;
    int count = 0, capacity = 0;
    bool open = false; // true: the next action may continue the latest captured part
    *out = NULL;
    for (int i = 0; i < schedule->count; i++) {
        const tri_action *a = &schedule->actions[i];
        if (tri_action_lane(a->kind) != TRI_LANE_COMPUTE) continue;
        if (!may[i]) {
            open = false;
            continue;
        }
        if (!open || a->dependency_count > 0)
            TRI_PUSH(arena, *out, count, capacity) = (tri_capture){.first = i};
        tri_capture *run = &(*out)[count - 1];
        run->last = i;
        run->actions++;
        open = !awaited[i];
    }
    return count;
}

// Whether the action copies outputs of the model to the host, each time to other memory.
static bool makes_outputs(const tri_program *p, int block) {
    for (int i = 0; i < p->graph->output_count; i++)
        if (tri_value_node(p->graph, p->graph->outputs[i].value)->block == block) return true;
    return false;
}

static bool allows_segment(const tri_program *p, int block, tri_phase phase) {
    tri_segment s = p->segments[block][phase];
    for (int i = s.first; i < s.end; i++) {
        if (p->graph->nodes[i].op->flags & TRI_OP_COLLECTIVE) return false;
        if (p->kernels[i] && p->kernels[i]->uses_host) return false;
    }
    return true;
}

// Whether the action reads inputs whose addresses alternate from step to step. It cannot be
// captured then, because a captured part always reads the same addresses.
static bool reads_alternating(const tri_step_plan *step, const tri_action *action) {
    const tri_step_memory *memory = &step->memory;
    int at = (int)(action - step->schedule.actions);
    for (int k = memory->first[at]; k < memory->first[at + 1]; k++)
        if (memory->buffers[memory->settings[k].buffer].heap == TRI_HEAP_INPUTS) return true;
    return false;
}

bool tri_capture_allows(const tri_plan *plan, const tri_step_plan *step, const tri_action *action) {
    tri_action_kind kind = action->kind;
    if (!plan->device.backend->captures || tri_action_lane(kind) != TRI_LANE_COMPUTE) return false;
    // The action NORM sums the losses and the squares of the gradients. In a run of several ranks,
    // a communicator adds up these sums over all ranks in the middle of NORM. A captured part runs
    // as a whole, so nothing can wait for a communicator in its middle.
    if (kind == TRI_ACTION_NORM) return plan->mesh.ranks == 1;
    if (tri_action_subject(kind) != TRI_SUBJECT_BLOCK) return true;
    const tri_program *p = step->round_items[action->round].program;
    if (!p || reads_alternating(step, action) || makes_outputs(p, action->subject)) return false;
    bool forward = kind == TRI_ACTION_FORWARD || kind == TRI_ACTION_RECOMPUTE;
    bool input = kind == TRI_ACTION_BACKWARD || kind == TRI_ACTION_BACKWARD_INPUT;
    bool weight = kind == TRI_ACTION_BACKWARD || kind == TRI_ACTION_BACKWARD_WEIGHT;
    return (!forward || allows_segment(p, action->subject, TRI_PHASE_FORWARD)) &&
           (!input || allows_segment(p, action->subject, TRI_PHASE_BACKWARD)) &&
           (!weight || allows_segment(p, action->subject, TRI_PHASE_WEIGHT));
}
