// Keeps one list of the memory that NCCL has allocated in this process (each allocation is a
// region), and of the communicators of NCCL with which each region is registered.
#include "comm/nccl/memory.h"

#include "base/log.h"
#include "device/queue.h"

#include <pthread.h>
#include <stdlib.h>

// A communicator of NCCL that uses a region of memory, and so has tried to register it.
typedef struct region_user {
    struct region_user *next;
    cuda_nccl *nccl;
    void *handle; // NULL: the registration failed
} region_user;

typedef struct region {
    struct region *next;
    char *begin;
    size_t size_bytes;
    region_user *users;
} region;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // protects `regions` and its entries
static region *regions;

// ---- functions whose caller holds `lock`

static region *region_at(const void *address) {
    const char *at = address;
    region *r = regions;
    while (r && !(at >= r->begin && at < r->begin + r->size_bytes)) r = r->next;
    return r;
}

static void drop_user(cuda_device *device, region_user **at, bool deregisters) {
    region_user *user = *at;
    if (deregisters && user->handle) device->runtime->deregister_nccl(user->nccl, user->handle);
    *at = user->next;
    free(user);
}

// Warns once that memory could not be registered. NCCL copies such data through buffers of its own,
// which is slower but gives the same result.
static void warn(const char *why) {
    static bool warned;
    if (!warned) tri_log_line(TRI_LOG_WARNING, "NCCL does not take memory as its own: %s", why);
    warned = true;
}

// Registers the region that contains `address` with the communicator, unless that was done before.
// Memory that NCCL has not allocated is in no region, and is not registered.
static void register_region(cuda_device *device, cuda_nccl *nccl, const void *address) {
    region *r = address ? region_at(address) : NULL;
    if (!r) return;
    for (const region_user *user = r->users; user; user = user->next)
        if (user->nccl == nccl) return;
    region_user *user = calloc(1, sizeof *user);
    if (!user) return;
    char why[CUDA_WHY_BYTES] = "";
    *user = (region_user){.next = r->users, .nccl = nccl};
    if (device->runtime->register_nccl(nccl, r->begin, r->size_bytes, &user->handle, why) != TRI_OK)
        warn(why);
    r->users = user;
}

// ---- functions that are called without `lock` and take it where they need it

static tri_status zero(cuda_device *device, void *memory, size_t size_bytes) {
    TRI_TRY(cuda_zero(device->setup, memory, size_bytes));
    return tri_queue_finish(device->setup);
}

static tri_status alloc_region(cuda_device *device, size_t size_bytes, void **out) {
    const cuda_runtime *runtime = device->runtime;
    char why[CUDA_WHY_BYTES] = "", what[64];
    region *r = calloc(1, sizeof *r);
    if (!r) return TRI_FAIL(TRI_NO_MEMORY, "device cuda: no memory");
    snprintf(what, sizeof what, "no memory for %zu bytes", size_bytes);
    tri_status status =
        cuda_check(runtime->alloc_nccl(device->context, size_bytes, out, why), what, why);
    if (status == TRI_OK) status = zero(device, *out, size_bytes);
    if (status != TRI_OK) {
        if (*out) runtime->free_nccl(device->context, *out);
        *out = NULL;
        free(r);
        return status;
    }
    *r = (region){.begin = *out, .size_bytes = size_bytes};
    pthread_mutex_lock(&lock);
    r->next = regions;
    regions = r;
    pthread_mutex_unlock(&lock);
    return TRI_OK;
}

tri_status nccl_memory_alloc(cuda_device *device, size_t size_bytes, void **out) {
    unsigned abilities;
    char why[CUDA_WHY_BYTES];
    *out = NULL;
    tri_status status = device->runtime->find_nccl(&abilities, why);
    if (status == TRI_OK && abilities & CUDA_NCCL_REGISTERS && size_bytes > 0)
        return alloc_region(device, size_bytes, out);
    return device->head.backend->alloc(&device->head, size_bytes, out);
}

void nccl_memory_free(cuda_device *device, void *memory) {
    if (!memory) return;
    pthread_mutex_lock(&lock);
    region **at = &regions;
    while (*at && (*at)->begin != memory) at = &(*at)->next;
    region *r = *at;
    while (r && r->users) drop_user(device, &r->users, true);
    if (r) *at = r->next;
    pthread_mutex_unlock(&lock);
    if (r)
        device->runtime->free_nccl(device->context, memory);
    else
        device->head.backend->free(&device->head, memory);
    free(r);
}

void nccl_memory_register(cuda_device *device, cuda_nccl *nccl, const cuda_transfer *calls,
                          int count) {
    pthread_mutex_lock(&lock);
    for (int i = 0; regions && i < count; i++) {
        if (calls[i].kind != CUDA_RECV) register_region(device, nccl, calls[i].send);
        if (calls[i].kind != CUDA_SEND) register_region(device, nccl, calls[i].recv);
    }
    pthread_mutex_unlock(&lock);
}

void nccl_memory_forget(cuda_device *device, cuda_nccl *nccl, bool aborts) {
    pthread_mutex_lock(&lock);
    for (region *r = regions; r; r = r->next)
        for (region_user **at = &r->users; *at;)
            if ((*at)->nccl == nccl)
                drop_user(device, at, !aborts);
            else
                at = &(*at)->next;
    pthread_mutex_unlock(&lock);
}
