// Sizes and limits of the messages between agents (the launchers of a run's nodes), which are
// checked before anything in a message is used.
#include "launch/nodes_message.h"

#include <math.h>
#include <signal.h>
#include <stddef.h>

#define BYTES(member) (sizeof(nodes_head) + sizeof(((nodes_message *)0)->member))

static const size_t bytes_of[] = {
    [NODES_BEAT - NODES_BEAT] = sizeof(nodes_head), [NODES_JOIN - NODES_BEAT] = BYTES(join),
    [NODES_FAILING - NODES_BEAT] = BYTES(order),    [NODES_LEAVE - NODES_BEAT] = BYTES(order),
    [NODES_REPORT - NODES_BEAT] = BYTES(report),    [NODES_BYE - NODES_BEAT] = sizeof(nodes_head),
    [NODES_ROUND - NODES_BEAT] = BYTES(round),      [NODES_STOP - NODES_BEAT] = BYTES(order),
    [NODES_AGAIN - NODES_BEAT] = BYTES(order),      [NODES_END - NODES_BEAT] = BYTES(order),
};

size_t nodes_message_bytes(uint32_t kind) {
    if (kind < NODES_BEAT || kind >= NODES_KIND_END) return 0;
    // In a nodes_message, alignment may leave a gap between the head and the union. bytes_of does
    // not include this gap, so it is added.
    size_t bytes = bytes_of[kind - NODES_BEAT], gap = offsetof(nodes_message, join);
    return bytes == sizeof(nodes_head) ? bytes : bytes + gap - sizeof(nodes_head);
}

static bool check_join(nodes_join *j) {
    j->host[sizeof j->host - 1] = j->address[sizeof j->address - 1] = 0;
    return j->workers >= 1 && j->workers <= TRI_MAX_LOCAL_RANKS && j->nodes_min >= 1 &&
           j->nodes_max >= j->nodes_min && j->nodes_max <= TRI_MAX_NODES && j->node_rank >= 0 &&
           j->node_rank < j->nodes_max;
}

static bool check_report(nodes_report *r) {
    r->name[sizeof r->name - 1] = r->text[sizeof r->text - 1] = 0;
    return r->outcome >= 0 && r->outcome < NODES_OUTCOMES && r->failed >= 0 &&
           r->failed <= TRI_MAX_LOCAL_RANKS && isfinite(r->cause.seconds);
}

static bool check_round(nodes_round *r) {
    r->master_addr[sizeof r->master_addr - 1] = r->nonce[sizeof r->nonce - 1] = 0;
    r->job[sizeof r->job - 1] = 0;
    return r->group_size >= 1 && r->group_size <= TRI_MAX_NODES && r->group_rank >= 0 &&
           r->group_rank < r->group_size && r->master_port >= 1 && r->master_port <= 65535 &&
           r->store_port >= 1 && r->store_port <= 65535;
}

static bool check_order(nodes_order *o) {
    o->text[sizeof o->text - 1] = 0;
    return o->code >= 0 && o->code < 256;
}

// Checks a LEAVE, by which a node reports that a signal asks it to end. The number of the signal,
// `code`, must not be 0, because 0 stands for a node that no signal has asked to end.
static bool check_leave(nodes_order *o) { return check_order(o) && o->code >= 1 && o->code < NSIG; }

static bool check(nodes_message *m) {
    switch (m->head.kind) {
    case NODES_BEAT:
    case NODES_BYE:
        return true;
    case NODES_JOIN:
        return check_join(&m->join);
    case NODES_REPORT:
        return check_report(&m->report);
    case NODES_ROUND:
        return check_round(&m->round);
    case NODES_LEAVE:
        return check_leave(&m->order);
    default:
        return check_order(&m->order);
    }
}

tri_status nodes_message_check(nodes_message *message) {
    return check(message) ? TRI_OK
                          : TRI_FAIL(TRI_BAD_INPUT, "an agent's message has bad values; do all "
                                                    "nodes run the same version of trireme?");
}
