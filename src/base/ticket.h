// A ticket stands for work that was started and is waited for later: work of a device's queue, of a
// communicator or of the storage's thread. Each of these sources numbers its work in the order in
// which it is started.
#ifndef TRIREME_BASE_TICKET_H
#define TRIREME_BASE_TICKET_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct tri_ticket_kind {
    // Waits until the work is done. Fails if the work failed. Any thread may call it.
    tri_status (*wait)(void *source, uint64_t number);
    // True if `wait` would return at once, also after a failure. Never blocks. Any thread may call
    // it.
    bool (*is_done)(void *source, uint64_t number);
} tri_ticket_kind;

typedef struct tri_ticket {
    const tri_ticket_kind *kind; // NULL: there is no work under way
    void *source; // a queue, a communicator or the storage, which must outlive the ticket
    uint64_t number;
} tri_ticket;

static inline tri_status tri_ticket_wait(const tri_ticket *ticket) {
    return ticket->kind ? ticket->kind->wait(ticket->source, ticket->number) : TRI_OK;
}

static inline bool tri_ticket_is_done(const tri_ticket *ticket) {
    return !ticket->kind || ticket->kind->is_done(ticket->source, ticket->number);
}

#endif
