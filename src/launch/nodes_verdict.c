// Decides what follows when a round (a start of the workers on all nodes) has ended: another round
// or the end of the run. This code runs in the launcher of one of the nodes, the serving node.
// --max-restarts limits only the rounds that follow a failure; nodes may join and leave any number
// of times.
#include "launch/nodes_state.h"

#include "base/quantity.h"

#include <stdio.h>
#include <string.h>

static bool has_all(const nodes_core *core, nodes_outcome outcome) {
    for (int i = 0; i < NODES_OUTCOMES; i++)
        if (i != (int)outcome && core->reported[i]) return false;
    return !core->lost;
}

// Begins to gather nodes for the next attempt of the run. The nodes that have reported the end of
// their workers wait for this attempt. `why`: the reason, for the log of every node.
static void go_on(nodes_core *core, const char *why, bool is_restart, int64_t now_ns) {
    nodes_message message = {0};
    if (is_restart)
        nodes_order_text(&message, "%s: starting all workers again (restart %d of %d)", why,
                         ++core->restarts, core->rules.max_restarts);
    else
        nodes_order_text(&message, "%s: starting all workers again", why);
    for (int i = 0; i < core->end; i++) {
        if (core->at[i].state != NODE_REPORTED) continue;
        core->at[i].state = NODE_WAITS;
        nodes_send(core, i, NODES_AGAIN, &message);
    }
    core->round++;
    core->phase = NODES_GATHERING;
    core->gathers_since_ns = now_ns;
    core->last_call_ns = 0;
    nodes_gather(core, now_ns);
}

// Ends a run that failed. The serving node gets the report, and every other node one line, so that
// the report is printed once.
static void end_failed(nodes_core *core, int code) {
    nodes_message report = {.order = {.code = code, .is_report = 1}};
    nodes_message line = {.order = {.code = code}};
    char failed[96] = "", lost[96] = "";
    if (core->failed)
        snprintf(failed, sizeof failed, "%s failed", tri_counted(core->failed, "worker"));
    if (core->lost)
        snprintf(lost, sizeof lost, "%s%s lost", core->failed ? ", " : "",
                 tri_counted(core->lost, "node"));
    nodes_order_text(&report,
                     "trireme: run failed: of %s %s%s, attempt %d of %d\n"
                     "root cause, the first to fail:\n%s",
                     tri_counted(core->group_size, "node"), failed, lost, core->restarts + 1,
                     core->rules.max_restarts + 1, core->cause_text);
    nodes_order_text(&line,
                     "the run failed: %s was the first; the node that serves the run "
                     "prints the report",
                     core->cause_name);
    core->phase = NODES_OVER;
    core->code = code;
    snprintf(core->last_words, sizeof core->last_words, "%s", line.order.text);
    for (int i = 0; i < core->end; i++)
        if (core->at[i].state > NODE_ARRIVED)
            nodes_send(core, i, NODES_END, core->at[i].join.is_serving ? &report : &line);
}

static void fail(nodes_core *core, int64_t now_ns) {
    char why[256];
    bool is_lost_node = *core->cause_lost_how;
    snprintf(why, sizeof why, "%s %s%s", core->cause_name, is_lost_node ? "was lost: " : "failed",
             core->cause_lost_how);
    bool is_elastic = core->rules.nodes_min < core->rules.nodes_max;
    if (!core->is_final && core->cause.flags & LAUNCH_BAD_INPUT && core->is_told)
        nodes_end(core, NODES_EXIT_BAD_INPUT, "");
    else if (core->is_final || core->cause.flags & LAUNCH_BAD_INPUT)
        end_failed(core, core->is_final ? NODES_EXIT_FAILED : NODES_EXIT_BAD_INPUT);
    else if (is_lost_node && is_elastic)
        go_on(core, why, false, now_ns);
    else if (core->restarts < core->rules.max_restarts)
        go_on(core, why, true, now_ns);
    else
        end_failed(core, NODES_EXIT_FAILED);
}

// Finds a node that a signal has asked to end; NODES_NOBODY: there is none. If signals have asked
// several nodes to end, and one of them is the serving node, finds that one, because the run ends
// when the serving node leaves.
static int find_leaving(const nodes_core *core) {
    int found = NODES_NOBODY;
    for (int i = 0; i < core->end; i++) {
        const node *n = &core->at[i];
        if (n->state == NODE_REPORTED && n->signal && (found == NODES_NOBODY || n->join.is_serving))
            found = i;
    }
    return found;
}

static int code_of_leaving(const node *n) {
    return n->outcome == NODES_FAILED ? NODES_EXIT_SIGNAL + n->signal : NODES_EXIT_STOPPED;
}

// Lets the nodes leave that signals have asked to end. If enough nodes remain, and the serving node
// is one of them, they begin another round; else the run ends. `first` is the node that messages
// name.
static void let_nodes_leave(nodes_core *core, int first, int64_t now_ns) {
    char why[TRI_HOST_NAME_MAX + 64];
    const node *n = &core->at[first];
    int staying = 0;
    for (int i = 0; i < core->end; i++)
        staying += core->at[i].state == NODE_REPORTED && !core->at[i].signal;
    snprintf(why, sizeof why, "node %s was asked to end by %s", n->join.host,
             launch_signal_name(n->signal));
    bool may_go_on = staying >= core->rules.nodes_min && !n->join.is_serving;
    if (!may_go_on) {
        bool is_saved = core->reported[NODES_FAILED] == 0;
        nodes_end(core, is_saved ? NODES_EXIT_STOPPED : NODES_EXIT_SIGNAL + n->signal, why);
        return;
    }
    for (int i = 0; i < core->end; i++) {
        node *leaving = &core->at[i];
        if (leaving->state != NODE_REPORTED || !leaving->signal) continue;
        nodes_message message = {.order = {.code = code_of_leaving(leaving)}};
        nodes_order_text(&message, "the run goes on without this node");
        nodes_send(core, i, NODES_END, &message);
        leaving->state = NODE_ARRIVED;
    }
    go_on(core, why, false, now_ns);
}

void nodes_conclude(nodes_core *core, int64_t now_ns) {
    if (core->phase != NODES_RUNNING) return;
    int leaving = find_leaving(core);
    bool has_bad_input =
        core->failed && !*core->cause_lost_how && core->cause.flags & LAUNCH_BAD_INPUT;
    if (has_all(core, NODES_DONE))
        nodes_end(core, 0, "");
    else if (core->is_final || has_bad_input)
        fail(core, now_ns);
    else if (leaving != NODES_NOBODY)
        let_nodes_leave(core, leaving, now_ns);
    else if (core->is_joined_late && !core->lost)
        go_on(core, "a node joins", false, now_ns);
    else if (core->failed || core->lost)
        fail(core, now_ns);
    else if (core->reported[NODES_FAILED])
        // Workers were asked to end, and it is not known by whom: none failed by itself, no node
        // was lost, and no signal to a node was reported.
        nodes_end(core, NODES_EXIT_FAILED, "workers were stopped");
    else
        nodes_end(core, NODES_EXIT_STOPPED, "");
}
