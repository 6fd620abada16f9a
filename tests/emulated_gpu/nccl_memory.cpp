// The memory of the test double of NCCL.
#include "emulated_gpu/nccl_memory.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>

static struct {
    std::mutex lock;
    std::map<char *, size_t> regions;
    std::set<std::pair<ncclComm_t, char *>> known; // with which communicator a region is registered
} memory;

void nccl_refuse(const char *why) {
    fprintf(stderr, "emulated NCCL: %s\n", why);
    abort();
}

void nccl_memory_check(ncclComm_t comm, const void *at) {
    std::lock_guard<std::mutex> guard(memory.lock);
    for (const auto &region : memory.regions) {
        bool is_in = at >= region.first && at < region.first + region.second;
        if (is_in && !memory.known.count({comm, region.first}))
            nccl_refuse("memory of ncclMemAlloc is used by a communicator that was not told of it");
    }
}

void nccl_memory_check_end(ncclComm_t comm) {
    std::lock_guard<std::mutex> guard(memory.lock);
    for (const auto &user : memory.known)
        if (user.first == comm) nccl_refuse("a communicator is closed that knows of memory");
}

ncclResult_t nccl_memory_alloc(void **out, size_t size) {
    enum { GRAIN = 1 << 16, POISON = 0xff };
    size_t bytes = (size + GRAIN - 1) / GRAIN * GRAIN;
    *out = size > (size_t)4 << 30 ? nullptr : aligned_alloc(GRAIN, bytes);
    if (!*out) return ncclUnhandledCudaError;
    memset(*out, POISON, bytes);
    std::lock_guard<std::mutex> guard(memory.lock);
    memory.regions[(char *)*out] = size;
    return ncclSuccess;
}

ncclResult_t nccl_memory_free(void *at) {
    std::lock_guard<std::mutex> guard(memory.lock);
    if (!memory.regions.erase((char *)at))
        nccl_refuse("memory is freed that ncclMemAlloc did not give");
    for (const auto &user : memory.known)
        if (user.second == at) nccl_refuse("memory is freed that a communicator still knows");
    free(at);
    return ncclSuccess;
}

void nccl_memory_register(ncclComm_t comm, void *at, size_t size) {
    std::lock_guard<std::mutex> guard(memory.lock);
    auto region = memory.regions.find((char *)at);
    bool fits = region != memory.regions.end() && region->second >= size;
    if (!fits || !memory.known.insert({comm, (char *)at}).second)
        nccl_refuse("memory is registered twice, or was not given by ncclMemAlloc");
}

void nccl_memory_deregister(ncclComm_t comm, void *at) {
    std::lock_guard<std::mutex> guard(memory.lock);
    if (!memory.known.erase({comm, (char *)at})) nccl_refuse("memory is deregistered twice");
}

void nccl_memory_forget(ncclComm_t comm) {
    std::lock_guard<std::mutex> guard(memory.lock);
    for (auto at = memory.known.begin(); at != memory.known.end();)
        at = at->first == comm ? memory.known.erase(at) : std::next(at);
}
