// Keeps the first failure of a family (a communicator and all that were split from it), and passes
// it on to the families that are linked with it (tri_comm_link), which then fail too. A process
// that records a failure passes it on at once. Another process of the family passes it on when one
// of its calls returns the failure, at the latest with its next heartbeat.
#include "comm/progress/failure.h"

#include "base/os.h"

#include <stdarg.h>
#include <stdio.h>

// Protects the circular lists of linked families (progress_family.linked). A thread that holds it
// never waits for another rank, so that no thread waits long for this lock.
static pthread_mutex_t links = PTHREAD_MUTEX_INITIALIZER;

static void record(progress_family *family, tri_status status, const char *text) {
    progress_failure *failure = family->failure;
    uint32_t none = PROGRESS_FAILURE_NONE;
    if (!atomic_compare_exchange_strong(&failure->state, &none, PROGRESS_FAILURE_BEING_WRITTEN))
        return;
    failure->status = (int32_t)status;
    snprintf(failure->text, sizeof failure->text, "%s", text);
    atomic_store(&failure->state, PROGRESS_FAILURE_WRITTEN);
    family->backend->wake_all(family);
}

void progress_spread_failure(progress_family *family) {
    const progress_failure *failure = family->failure;
    if (atomic_load(&failure->state) != PROGRESS_FAILURE_WRITTEN ||
        atomic_load(&family->failure_passed_on))
        return;
    pthread_mutex_lock(&links);
    atomic_store(&family->failure_passed_on, true);
    for (progress_family *other = family->linked; other != family; other = other->linked)
        record(other, (tri_status)failure->status, failure->text);
    pthread_mutex_unlock(&links);
}

void progress_take_failure(progress_family *family, tri_status status, const char *text) {
    record(family, status, text);
    progress_spread_failure(family);
}

void progress_fail(progress_comm *comm, tri_status status, const char *format, ...) {
    char text[TRI_MESSAGE_MAX_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    progress_take_failure(comm->family, status, text);
}

tri_status progress_failure_status(progress_comm *comm) {
    const progress_failure *failure = comm->family->failure;
    // Another rank may still be writing the failure. If that rank was killed while it wrote, it
    // never finishes, so the number of tries is limited.
    for (int tries = 0; tries < 1000 && atomic_load(&failure->state) != PROGRESS_FAILURE_WRITTEN;
         tries++)
        tri_os.sleep_ns(1000000);
    if (atomic_load(&failure->state) != PROGRESS_FAILURE_WRITTEN)
        return TRI_FAIL(TRI_PEER_LOST, "a rank was lost while it reported a failure");
    progress_spread_failure(comm->family);
    return TRI_FAIL((tri_status)failure->status, "%s", failure->text);
}

static void set_health(progress_family *family, tri_health *health) {
    progress_family *at = family;
    do {
        atomic_store(&at->health, health);
        at = at->linked;
    } while (at != family);
}

void tri_comm_set_health(tri_comm *comm, tri_health *health) {
    progress_family *family = comm->backend->family ? comm->backend->family(comm) : NULL;
    if (!family) return;
    pthread_mutex_lock(&links);
    set_health(family, health);
    pthread_mutex_unlock(&links);
}

void tri_comm_link(tri_comm *a, tri_comm *b) {
    progress_family *first = a->backend->family ? a->backend->family(a) : NULL;
    progress_family *second = b->backend->family ? b->backend->family(b) : NULL;
    if (!first || !second) return;
    pthread_mutex_lock(&links);
    if (!atomic_load(&first->health)) set_health(first, atomic_load(&second->health));
    set_health(second, atomic_load(&first->health));
    progress_family *at = first;
    while (at->linked != first && at != second) at = at->linked;
    if (at != second) { // joins two circular lists of families to one
        progress_family *after = first->linked;
        first->linked = second->linked;
        second->linked = after;
    }
    atomic_store(&first->failure_passed_on, false);
    atomic_store(&second->failure_passed_on, false);
    pthread_mutex_unlock(&links);
    progress_spread_failure(first);
    progress_spread_failure(second);
}

void progress_unlink(progress_family *family) {
    pthread_mutex_lock(&links);
    progress_family *before = family;
    while (before->linked != family) before = before->linked;
    before->linked = family->linked;
    family->linked = family;
    pthread_mutex_unlock(&links);
}

static void tell(progress_family *family, int job_rank) {
    atomic_store(&family->awaited_rank, job_rank + 1);
    if (family->backend->set_awaited) family->backend->set_awaited(family, job_rank);
}

void progress_tell_awaited(progress_family *family, int job_rank) {
    if (atomic_load_explicit(&family->awaited_rank, memory_order_relaxed) == job_rank + 1) return;
    tri_health_set_awaited(atomic_load(&family->health), job_rank);
    pthread_mutex_lock(&links);
    tell(family, job_rank);
    for (progress_family *other = family->linked; other != family; other = other->linked)
        tell(other, job_rank);
    pthread_mutex_unlock(&links);
}

void progress_clear_awaited(progress_family *family) {
    progress_tell_awaited(family, PROGRESS_NOBODY);
}

tri_status progress_failed(tri_comm *head) {
    progress_comm *comm = progress_of(head);
    return progress_has_failed(comm) ? progress_failure_status(comm) : TRI_OK;
}

void progress_abort(tri_comm *head, const char *why) {
    progress_fail(progress_of(head), TRI_PEER_LOST, "%s", why ? why : "aborted");
}

struct progress_family *progress_family_of(tri_comm *head) {
    return progress_of(head)->family;
}
