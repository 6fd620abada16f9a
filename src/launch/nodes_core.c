// The rounds of a run over several nodes: in each, the nodes that have joined start their workers
// (the ranks' processes) once, and the round lasts until all of these have ended. Each node has a
// launcher, its agent. This code runs in the serving agent, which decides what all nodes do; its
// node is the serving node. In a static run (--rdzv-backend static) the user has numbered the
// nodes. nodes_server.c connects this code to sockets; nodes_verdict.c decides what follows a
// round.
#include "launch/nodes_state.h"

#include "base/os.h"
#include "base/quantity.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

nodes_core *nodes_core_create(const nodes_rules *rules, int64_t now_ns) {
    nodes_core *core = calloc(1, sizeof *core);
    TRI_ASSERT(core);
    core->rules = *rules;
    core->gathers_since_ns = core->looked_ns = now_ns;
    return core;
}

void nodes_core_destroy(nodes_core *core) { free(core); }

int nodes_core_connected(const nodes_core *core) {
    int connected = 0;
    for (int i = 0; i < core->end; i++) connected += core->at[i].state != NODE_ABSENT;
    return connected;
}

int nodes_in_state(const nodes_core *core, node_state state) {
    int count = 0;
    for (int i = 0; i < core->end; i++) count += core->at[i].state == state;
    return count;
}

void nodes_send(nodes_core *core, int agent, nodes_kind kind, nodes_message *message) {
    message->head = (nodes_head){.kind = kind, .round = core->round};
    core->rules.send(core->rules.context, agent, message);
}

void nodes_order_text(nodes_message *out, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(out->order.text, sizeof out->order.text, format, arguments);
    va_end(arguments);
}

static void order(nodes_core *core, int agent, nodes_kind kind, int code, const char *text) {
    nodes_message message = {.order = {.code = code}};
    nodes_order_text(&message, "%s", text);
    nodes_send(core, agent, kind, &message);
}

void nodes_end(nodes_core *core, int code, const char *text) {
    core->phase = NODES_OVER;
    core->code = code;
    snprintf(core->last_words, sizeof core->last_words, "%s", text);
    for (int i = 0; i < core->end; i++)
        if (core->at[i].state > NODE_ARRIVED) order(core, i, NODES_END, code, text);
}

// Stops the workers of all nodes except node `except`, which has stopped its own. Does nothing if
// they are already being stopped in this way or a faster one.
void nodes_stop(nodes_core *core, nodes_stopping how, int except, const char *text) {
    if (core->stopping >= how) return;
    core->stopping = how;
    nodes_message message = {.order = {.is_graceful = how == NODES_STOP_GRACEFULLY}};
    nodes_order_text(&message, "%s", text);
    for (int i = 0; i < core->end; i++)
        if (core->at[i].state == NODE_RUNS && i != except)
            nodes_send(core, i, NODES_STOP, &message);
}

static bool comes_before(const nodes_core *core, int a, int b) {
    const node *x = &core->at[a], *y = &core->at[b];
    if (core->rules.is_static && x->join.node_rank != y->join.node_rank)
        return x->join.node_rank < y->join.node_rank;
    if (x->join.is_serving != y->join.is_serving) return x->join.is_serving;
    return x->join_number < y->join_number;
}

// Chooses the nodes of the next round (one attempt of the run) among those that wait for it. Puts
// them into chosen[], sorted by comes_before; their indices there become their numbers in the
// round. Returns how many there are; 0: the serving node is not the first of them. In a static run,
// if the user gave two nodes the same number, the one that joined later waits until the other has
// left.
static int choose(const nodes_core *core, int chosen[TRI_MAX_NODES]) {
    int count = 0;
    for (int i = 0; i < core->end; i++) {
        if (core->at[i].state != NODE_WAITS) continue;
        int at = count++;
        for (; at > 0 && comes_before(core, i, chosen[at - 1]); at--) chosen[at] = chosen[at - 1];
        chosen[at] = i;
    }
    int kept = 0;
    for (int i = 0; i < count; i++) {
        const nodes_join *one = &core->at[chosen[i]].join;
        bool is_taken = core->rules.is_static && kept &&
                        core->at[chosen[kept - 1]].join.node_rank == one->node_rank;
        if (!is_taken) chosen[kept++] = chosen[i];
    }
    // Rank 0 will be on the first of these nodes. That has to be the serving node, which all other
    // nodes have reached; as long as it is not, no round begins.
    if (kept && !core->at[chosen[0]].join.is_serving) return 0;
    return kept < core->rules.nodes_max ? kept : core->rules.nodes_max;
}

static void begin_round(nodes_core *core, const int *chosen, int count) {
    nodes_message message = {.round = {.group_size = count, .restarts = core->restarts}};
    tri_status status = core->rules.publish(core->rules.context, core->round,
                                            &core->at[chosen[0]].join, &message.round);
    if (status != TRI_OK) {
        nodes_end(core, tri_status_exit_code(status), tri_error_message());
        return;
    }
    core->phase = NODES_RUNNING;
    core->stopping = NODES_GO_ON;
    core->group_size = count;
    core->failed = core->lost = 0;
    core->is_final = core->is_joined_late = core->is_told = false;
    memset(core->reported, 0, sizeof core->reported);
    for (int i = 0; i < count; i++) {
        node *n = &core->at[chosen[i]];
        n->state = NODE_RUNS;
        n->signal = 0;
        // In the next round these nodes come before nodes that join later.
        n->join_number = ++core->joins;
        message.round.group_rank = i;
        nodes_send(core, chosen[i], NODES_ROUND, &message);
    }
}

static void end_for_lack_of_nodes(nodes_core *core, int have) {
    char text[NODES_TEXT_BYTES];
    int used = snprintf(text, sizeof text, "%d of %s joined within %s", have,
                        tri_counted(core->rules.nodes_min, "node"),
                        tri_seconds_text(core->rules.join_timeout_s));
    const char *between = ": ";
    for (int i = 0; i < core->end && (size_t)used < sizeof text - 300; i++) {
        if (core->at[i].state != NODE_WAITS) continue;
        used += snprintf(text + used, sizeof text - (size_t)used, "%s%s", between,
                         core->at[i].join.host);
        between = ", ";
    }
    nodes_end(core, NODES_EXIT_FAILED, text);
}

int64_t nodes_gather(nodes_core *core, int64_t now_ns) {
    if (core->phase != NODES_GATHERING) return INT64_MAX;
    int *chosen = malloc(TRI_MAX_NODES * sizeof *chosen);
    TRI_ASSERT(chosen);
    int count = choose(core, chosen);
    int64_t next_ns = core->gathers_since_ns + (int64_t)(core->rules.join_timeout_s * 1e9);
    bool is_enough = count >= core->rules.nodes_min;
    if (!is_enough) core->last_call_ns = 0;
    if (is_enough && !core->last_call_ns)
        core->last_call_ns = now_ns + (core->round ? 0 : (int64_t)(core->rules.last_call_s * 1e9));
    if (count == core->rules.nodes_max || (is_enough && now_ns >= core->last_call_ns))
        begin_round(core, chosen, count);
    else if (is_enough)
        next_ns = core->last_call_ns;
    else if (now_ns >= next_ns)
        end_for_lack_of_nodes(core, count);
    free(chosen);
    return core->phase == NODES_GATHERING ? next_ns : INT64_MAX;
}

// Gets the join message of another node that has joined, to compare it with that of `agent`: all
// nodes must have the same number of workers. NULL: this node is the first.
static const nodes_join *earlier_join(const nodes_core *core, int agent) {
    for (int i = 0; i < core->end; i++)
        if (i != agent && core->at[i].state > NODE_ARRIVED) return &core->at[i].join;
    return NULL;
}

// Rejects the request of an agent (a node's launcher) to join. Before the first round (start of the
// workers on all nodes) this ends the run: one of the nodes has a wrong command, so no round can
// begin.
static void refuse(nodes_core *core, int agent, const char *text) {
    if (core->round == 0 && core->phase == NODES_GATHERING) {
        core->at[agent].state = NODE_WAITS;
        nodes_end(core, NODES_EXIT_BAD_INPUT, text);
    } else {
        core->at[agent].state = NODE_ARRIVED;
        order(core, agent, NODES_END, NODES_EXIT_BAD_INPUT, text);
    }
}

static bool agrees(const nodes_core *core, int agent, char text[NODES_TEXT_BYTES]) {
    const nodes_join *new = &core->at[agent].join, *old = earlier_join(core, agent);
    const nodes_rules *rules = &core->rules;
    if (new->version != NODES_VERSION)
        snprintf(text, NODES_TEXT_BYTES, "%s runs another version of trireme", new->host);
    else if (new->nodes_min != rules->nodes_min || new->nodes_max != rules->nodes_max)
        snprintf(text, NODES_TEXT_BYTES,
                 "--nnodes: %s says %d:%d, and the node that serves the run says %d:%d", new->host,
                 new->nodes_min, new->nodes_max, rules->nodes_min, rules->nodes_max);
    else if (old && old->workers != new->workers)
        snprintf(text, NODES_TEXT_BYTES,
                 "--nproc-per-node: %s has %s and %s has %d; all nodes need the same number",
                 old->host, tri_counted(old->workers, "worker"), new->host, new->workers);
    else
        return true;
    return false;
}

// Gets the join message of another node of a static run, to which the user gave the same number as
// to the node of `agent`. NULL: there is none.
static const nodes_join *namesake(const nodes_core *core, int agent) {
    for (int i = 0; i < core->end && core->rules.is_static; i++)
        if (i != agent && core->at[i].state == NODE_WAITS &&
            core->at[i].join.node_rank == core->at[agent].join.node_rank)
            return &core->at[i].join;
    return NULL;
}

static void join(nodes_core *core, int agent, const nodes_join *join, int64_t now_ns) {
    node *n = &core->at[agent];
    char text[NODES_TEXT_BYTES];
    n->join = *join;
    n->join_number = ++core->joins;
    if (core->phase == NODES_OVER) {
        order(core, agent, NODES_END, core->code, core->last_words);
        return;
    }
    if (!agrees(core, agent, text)) {
        refuse(core, agent, text);
        return;
    }
    const nodes_join *same = namesake(core, agent);
    if (same && core->round == 0 && core->phase == NODES_GATHERING) {
        snprintf(text, sizeof text, "--node-rank: %s and %s both say %d", same->host, join->host,
                 join->node_rank);
        refuse(core, agent, text);
        return;
    }
    n->state = NODE_WAITS;
    if (core->phase == NODES_RUNNING && core->group_size < core->rules.nodes_max) {
        core->is_joined_late = true;
        snprintf(text, sizeof text, "%s joins", join->host);
        nodes_stop(core, NODES_STOP_GRACEFULLY, NODES_NOBODY, text);
    }
    nodes_gather(core, now_ns);
}

// Keeps, of all failures in this attempt of the run, the one that is most likely the cause, for the
// report.
static void consider(nodes_core *core, const launch_cause *cause, const char *name,
                     const char *text, const char *lost_how) {
    bool is_first = !core->failed && !core->lost;
    if (!is_first && !launch_cause_comes_before(cause, &core->cause)) return;
    core->cause = *cause;
    snprintf(core->cause_name, sizeof core->cause_name, "%s", name);
    snprintf(core->cause_lost_how, sizeof core->cause_lost_how, "%s", lost_how);
    snprintf(core->cause_text, sizeof core->cause_text, "%s", text);
}

static void report(nodes_core *core, int agent, const nodes_report *report, int64_t now_ns) {
    char text[NODES_TEXT_BYTES];
    core->at[agent].state = NODE_REPORTED;
    core->at[agent].outcome = (nodes_outcome)report->outcome;
    core->reported[report->outcome]++;
    core->is_final |= report->is_final != 0;
    if (report->failed) consider(core, &report->cause, report->name, report->text, "");
    core->failed += report->failed;
    if (report->failed) {
        bool has_bad_input = report->cause.flags & LAUNCH_BAD_INPUT;
        core->is_told |= has_bad_input && report->cause.flags & LAUNCH_TOLD;
        // After bad input the order to stop has no text, because the ranks tell each other the
        // reason, and one of them prints it.
        snprintf(text, sizeof text, has_bad_input ? "" : "%s failed", report->name);
        nodes_stop(core, NODES_STOP_AT_ONCE, agent, text);
    }
    if (nodes_in_state(core, NODE_RUNS) == 0) nodes_conclude(core, now_ns);
}

// Records that a node of this round (start of the workers on all nodes) is gone. Its ranks are
// missing, so the round will end for all nodes.
static void lose(nodes_core *core, int agent, const char *how, double seconds, int64_t now_ns) {
    node *n = &core->at[agent];
    char name[128], text[NODES_CAUSE_BYTES];
    snprintf(name, sizeof name, "node %.100s", n->join.host);
    snprintf(text, sizeof text, "  node %.200s: its agent was lost: %s\n", n->join.host, how);
    // Workers on other nodes may have noticed the loss of this node sooner than this process, and
    // failed. The loss has to count as earlier than their failures, so its time is set back by a
    // second.
    launch_cause cause = {.seconds = seconds - 1, .flags = LAUNCH_CRASHED};
    consider(core, &cause, name, text, how);
    core->lost++;
    n->state = NODE_ABSENT;
    snprintf(text, sizeof text, "node %.200s was lost: %s", n->join.host, how);
    nodes_stop(core, NODES_STOP_AT_ONCE, agent, text);
    if (nodes_in_state(core, NODE_RUNS) == 0) nodes_conclude(core, now_ns);
}

static void depart(nodes_core *core, int agent, const char *how, double seconds, int64_t now_ns) {
    node *n = &core->at[agent];
    bool is_serving = n->join.is_serving && n->state > NODE_ARRIVED;
    bool is_member = n->state == NODE_RUNS;
    if (is_member && core->phase == NODES_RUNNING) lose(core, agent, how, seconds, now_ns);
    *n = (node){0};
    if (is_serving && core->phase != NODES_OVER)
        nodes_end(core, NODES_EXIT_FAILED, "the agent that serves the run has ended");
    nodes_gather(core, now_ns);
}

void nodes_core_depart(nodes_core *core, int agent, int64_t now_ns) {
    depart(core, agent, "its connection ended", (double)tri_os.realtime_ns() * 1e-9, now_ns);
}

int nodes_core_arrive(nodes_core *core, int64_t now_ns) {
    for (int i = 0; i < TRI_MAX_NODES; i++) {
        if (core->at[i].state != NODE_ABSENT) continue;
        core->at[i] = (node){.state = NODE_ARRIVED, .heard_ns = now_ns};
        if (i >= core->end) core->end = i + 1;
        return i;
    }
    return NODES_NOBODY;
}

// Lets a node leave the run, because signal `number` has asked its launcher (its agent) to end. If
// the node takes part in a round, the workers of all nodes are stopped, and what follows is decided
// at the end of the round.
static void leave(nodes_core *core, int agent, int number, int64_t now_ns) {
    node *n = &core->at[agent];
    char text[NODES_TEXT_BYTES];
    n->signal = number;
    snprintf(text, sizeof text, "node %s was asked to end by %s", n->join.host,
             launch_signal_name(number));
    if (n->state == NODE_RUNS || n->state == NODE_REPORTED) {
        nodes_stop(core, NODES_STOP_GRACEFULLY, agent, text);
    } else if (core->phase != NODES_OVER) {
        bool is_serving = n->join.is_serving;
        n->state = NODE_ARRIVED;
        if (is_serving) nodes_end(core, NODES_EXIT_SIGNAL + number, text);
        order(core, agent, NODES_END, NODES_EXIT_SIGNAL + number, "");
        nodes_gather(core, now_ns);
    }
}

bool nodes_core_receive(nodes_core *core, int agent, const nodes_message *m, int64_t now_ns) {
    node *n = &core->at[agent];
    n->heard_ns = now_ns;
    bool runs = n->state == NODE_RUNS && m->head.round == core->round;
    switch (m->head.kind) {
    case NODES_BEAT: {
        nodes_message answer;
        nodes_send(core, agent, NODES_BEAT, &answer);
        return true;
    }
    case NODES_JOIN:
        if (n->state != NODE_ARRIVED) return false;
        join(core, agent, &m->join, now_ns);
        return true;
    case NODES_FAILING:
        if (runs) nodes_stop(core, NODES_STOP_AT_ONCE, agent, m->order.text);
        return true;
    case NODES_LEAVE:
        if (n->state <= NODE_ARRIVED) return false;
        leave(core, agent, m->order.code, now_ns);
        return true;
    case NODES_REPORT:
        if (runs) report(core, agent, &m->report, now_ns);
        return runs;
    default:
        return false;
    }
}

// Finds an agent (the launcher of a node) that has been silent for too long, so that its node
// counts as lost. Returns the agent's number. NODES_NOBODY: there is none; then *next_ns is lowered
// to the time of the next check. Time in which this process itself did not run does not count as
// silence, because messages may have arrived that were not read.
static int find_silent(nodes_core *core, int64_t now_ns, int64_t *next_ns) {
    int64_t limit_ns = (int64_t)(core->rules.silence_s * 1e9);
    bool stood_still = now_ns - core->looked_ns > TRI_NODES_LATE_MS * INT64_C(1000000);
    core->looked_ns = now_ns;
    for (int i = 0; i < core->end; i++) {
        node *n = &core->at[i];
        if (n->state == NODE_ABSENT) continue;
        if (stood_still) n->heard_ns = now_ns;
        if (now_ns - n->heard_ns >= limit_ns) return i;
    }
    int64_t again_ns = now_ns + TRI_NODES_BEAT_MS * INT64_C(1000000);
    if (nodes_core_connected(core) && again_ns < *next_ns) *next_ns = again_ns;
    return NODES_NOBODY;
}

int64_t nodes_core_expire(nodes_core *core, int64_t now_ns, int *silent) {
    int64_t next_ns = nodes_gather(core, now_ns);
    *silent = find_silent(core, now_ns, &next_ns);
    if (*silent == NODES_NOBODY) return next_ns;
    const node *n = &core->at[*silent];
    char how[96];
    double silence_s = (double)(now_ns - n->heard_ns) * 1e-9;
    snprintf(how, sizeof how, "it was silent for %s", tri_seconds_text(round(silence_s)));
    if (n->state > NODE_ARRIVED && core->phase != NODES_OVER) {
        char text[192];
        snprintf(text, sizeof text,
                 "this node was silent for %s, and the run goes on without "
                 "it",
                 tri_seconds_text(round(silence_s)));
        nodes_message message = {.order = {.code = NODES_EXIT_FAILED, .is_cut_off = 1}};
        nodes_order_text(&message, "%s", text);
        nodes_send(core, *silent, NODES_END, &message);
    }
    depart(core, *silent, how, (double)tri_os.realtime_ns() * 1e-9 - silence_s, now_ns);
    return now_ns;
}
