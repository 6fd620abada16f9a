// Reads arbitrary bytes as messages in a run over several nodes: each launcher (agent) sends its
// messages to the agent that decides for all nodes. The input has parts, one for each message: the
// number of the sending agent, the kind of the message, and the message's first bytes.
#include "launch/nodes_core.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { AGENTS = 4 };

static void check_sent(void *context, int agent, const nodes_message *message) {
    nodes_message copy;
    size_t bytes = nodes_message_bytes(message->head.kind);
    if (agent < 0 || agent >= AGENTS || bytes < sizeof(nodes_head) || bytes > sizeof copy) abort();
    memcpy(&copy, message, bytes);
    if (nodes_message_check(&copy) != TRI_OK) abort();
}

static tri_status publish(void *context, int round, const nodes_join *first, nodes_round *out) {
    memcpy(out->master_addr, first->host, sizeof first->host);
    out->master_port = out->store_port = 1;
    return TRI_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    nodes_rules rules = {.nodes_min = 1,
                         .nodes_max = 2,
                         .max_restarts = 1,
                         .join_timeout_s = 600,
                         .last_call_s = 1,
                         .silence_s = 15,
                         .send = check_sent,
                         .publish = publish};
    int64_t now_ns = 1;
    bool here[AGENTS];
    nodes_core *core = nodes_core_create(&rules, now_ns);
    for (int i = 0; i < AGENTS; i++) here[i] = nodes_core_arrive(core, now_ns) == i;
    while (size >= 2) {
        int agent = data[0] % AGENTS, silent;
        nodes_message message = {.head = {.kind = NODES_BEAT + data[1] % 16}};
        size_t bytes = nodes_message_bytes(message.head.kind), body = sizeof message.head;
        size_t rest = bytes > body ? bytes - body : 0;
        data += 2;
        size -= 2;
        // Only the first bytes of a message come from the fuzzer's input, so that the input
        // contains many messages.
        size_t taken = rest < 48 ? rest : 48;
        taken = taken < size ? taken : size;
        memcpy((char *)&message + body, data, taken);
        data += taken;
        size -= taken;
        bool is_good = bytes && nodes_message_check(&message) == TRI_OK && here[agent];
        if (is_good && !nodes_core_receive(core, agent, &message, now_ns)) {
            nodes_core_depart(core, agent, now_ns);
            here[agent] = false;
        }
        nodes_core_expire(core, now_ns += 100000000, &silent);
        if (silent != NODES_NOBODY) here[silent] = false;
    }
    nodes_core_destroy(core);
    return 0;
}
