// Counts the allocations of a test's program, those of all libraries included. For one test alone,
// because it replaces functions of the C library and of oneDNN.
#ifndef TESTS_SUPPORT_COUNT_ALLOCATIONS_H
#define TESTS_SUPPORT_COUNT_ALLOCATIONS_H

#include <dlfcn.h>
#include <dnnl.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTS 0 // the sanitizer's own allocator cannot be replaced
#else
#define COUNTS 1
#endif

// Allocations during dnnl_primitive_execute, on all threads, are oneDNN's, because nothing else
// runs then. They are counted separately, and have to be freed before the call returns.
static atomic_int counting, allocations, library_allocations, library_most_bytes, library_held;

#if COUNTS
static atomic_bool in_library;

// These definitions replace those of the C library in the program and in all its libraries.
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *memory);

static void count(size_t size) {
    if (!atomic_load(&counting)) return;
    atomic_fetch_add(in_library ? &library_allocations : &allocations, 1);
    if (!in_library) return;
    atomic_fetch_add(&library_held, 1);
    if ((int)size > library_most_bytes) library_most_bytes = (int)size;
}

dnnl_status_t dnnl_primitive_execute(const_dnnl_primitive_t primitive, dnnl_stream_t stream,
                                     int count, const dnnl_exec_arg_t *args) {
    static dnnl_status_t (*real)(const_dnnl_primitive_t primitive, dnnl_stream_t stream, int count,
                                 const dnnl_exec_arg_t *args);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "dnnl_primitive_execute");
    in_library = true;
    dnnl_status_t status = real(primitive, stream, count, args);
    in_library = false;
    return status;
}

void *malloc(size_t size) {
    count(size);
    return __libc_malloc(size);
}

void *calloc(size_t number, size_t size) {
    count(number * size);
    return __libc_calloc(number, size);
}

void *realloc(void *old, size_t size) {
    count(size);
    return __libc_realloc(old, size);
}

void free(void *memory) {
    if (memory && in_library && atomic_load(&counting)) atomic_fetch_sub(&library_held, 1);
    __libc_free(memory);
}

void *memalign(size_t alignment, size_t size) {
    count(size);
    return __libc_memalign(alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size) {
    count(size);
    return __libc_memalign(alignment, size);
}

int posix_memalign(void **out, size_t alignment, size_t size) {
    count(size);
    *out = __libc_memalign(alignment, size);
    return *out || size == 0 ? 0 : 12;
}

void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset) {
    count(size);
    return (void *)syscall(SYS_mmap, at, size, protection, flags, fd, offset);
}
#endif

#endif
