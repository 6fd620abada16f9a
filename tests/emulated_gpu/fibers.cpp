// Runs the threads of an emulated GPU's block as fibers of one thread of the host: each has a stack
// of its own and runs until it waits for other threads, then the next one runs. A fiber is entered
// by setcontext the first time, and by the compiler's __builtin_longjmp from then on, which is fast
// because it makes no system call. The C library's longjmp is not used, because AddressSanitizer
// would conclude that the functions on the stack have ended.
#include "emulated_gpu/fibers.h"

#include "emulated_gpu/emulation.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <ucontext.h>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

__thread emulated_thread *emulated_now;

namespace {

enum { WARP = 32, STACK_BYTES = 1 << 17, POISON = 0xff };
enum fiber_state { FIBER_RUNS, FIBER_AT_BARRIER, FIBER_AT_SHUFFLE, FIBER_DONE };

typedef void *jump_buffer[5]; // the buffer of __builtin_setjmp

// A copy to shared memory that a thread has begun.
struct copy {
    void *to;
    const void *from;
    size_t size_bytes;
};

struct fiber {
    emulated_thread index;
    jump_buffer at; // where the fiber goes on
    bool entered = false;
    std::unique_ptr<char[]> stack;
    void *sanitizer_stack = nullptr;
    fiber_state state;
    uint64_t handed;          // what the thread hands to the others of its warp
    std::vector<copy> copies; // copies that were begun, but not waited for
};

// The block that runs now, on a thread of the host. `current`: the number of the running fiber;
// dynamic_bytes: the size of the block's dynamic shared memory.
struct block_of_threads {
    jump_buffer host; // where the host's own thread goes on when a fiber pauses
    void *host_sanitizer_stack = nullptr;
    const void *host_stack = nullptr;
    size_t host_stack_bytes = 0;
    std::vector<fiber> fibers;
    int threads = 0, current = 0, dynamic_bytes = 0;
    const std::function<void()> *body = nullptr;
    std::map<int, std::unique_ptr<char[]>> shared; // by source line: see emulated_shared
    bool trapped = false;
};

thread_local block_of_threads here;

[[noreturn]] void give_up(const char *what) {
    std::fprintf(stderr, "emulated GPU: %s\n", what);
    std::abort();
}

// These tell AddressSanitizer which stack is in use, before and after each switch.
#if defined(__SANITIZE_ADDRESS__)
void enter_fiber(fiber &f) {
    __sanitizer_start_switch_fiber(&here.host_sanitizer_stack, f.stack.get(), STACK_BYTES);
}
void entered_fiber(fiber &f) {
    __sanitizer_finish_switch_fiber(f.sanitizer_stack, &here.host_stack, &here.host_stack_bytes);
}
void leave_fiber(fiber &f) {
    __sanitizer_start_switch_fiber(&f.sanitizer_stack, here.host_stack, here.host_stack_bytes);
}
void left_fiber() { __sanitizer_finish_switch_fiber(here.host_sanitizer_stack, nullptr, nullptr); }
#else
void enter_fiber(fiber &) {}
void entered_fiber(fiber &) {}
void leave_fiber(fiber &) {}
void left_fiber() {}
#endif

// Marks functions in which the stack is switched: AddressSanitizer must not check their frames, and
// the compiler must not inline them into functions whose frames AddressSanitizer checks.
#define SWITCHES __attribute__((noinline, no_sanitize("address")))

[[noreturn]] SWITCHES void go_to(jump_buffer &there) { __builtin_longjmp(there, 1); }

// Pauses the running fiber and goes on with the host's code. `state` says why the fiber pauses: it
// waits at a barrier or a shuffle, or it is done. Returns when the fiber is resumed.
SWITCHES void pause(fiber_state state) {
    fiber &f = here.fibers[here.current];
    f.state = state;
    leave_fiber(f);
    if (__builtin_setjmp(f.at) == 0) go_to(here.host);
    entered_fiber(here.fibers[here.current]);
}

// The function of a fiber. It never ends: after a thread of one block, it runs the thread with the
// same number of the next block.
void run_fiber() {
    entered_fiber(here.fibers[here.current]);
    for (;;) {
        (*here.body)();
        if (!here.fibers[here.current].copies.empty()) give_up("a thread ends during a copy");
        pause(FIBER_DONE);
    }
}

[[noreturn]] SWITCHES void enter_first(fiber &f) {
    ucontext_t context;
    f.stack.reset(new char[STACK_BYTES]);
    f.entered = true;
    getcontext(&context);
    context.uc_stack.ss_sp = f.stack.get();
    context.uc_stack.ss_size = STACK_BYTES;
    context.uc_link = nullptr;
    makecontext(&context, run_fiber, 0);
    enter_fiber(f);
    setcontext(&context);
    give_up("no context for a thread");
}

[[noreturn]] SWITCHES void enter(fiber &f) {
    if (!f.entered) enter_first(f);
    enter_fiber(f);
    go_to(f.at);
}

SWITCHES void resume(int i) {
    here.current = i;
    emulated_now = &here.fibers[i].index;
    if (__builtin_setjmp(here.host) == 0) enter(here.fibers[i]);
    left_fiber();
}

int count_in(int first, int end, fiber_state state) {
    int count = 0;
    for (int i = first; i < end; i++) count += here.fibers[i].state == state;
    return count;
}

// Lets fibers `first` to `end` - 1 run again if all of them have reached this state.
void release(int first, int end, fiber_state state) {
    if (count_in(first, end, state) != end - first) return;
    for (int i = first; i < end; i++) here.fibers[i].state = FIBER_RUNS;
}

void run_block() {
    for (int i = 0; i < here.threads; i++) here.fibers[i].state = FIBER_RUNS;
    int done = 0;
    while (done < here.threads) {
        bool any = false;
        for (int i = 0; i < here.threads; i++) {
            if (here.fibers[i].state != FIBER_RUNS) continue;
            any = true;
            resume(i);
        }
        if (!any) give_up("some threads wait at a barrier or shuffle that others do not reach");
        for (int w = 0; w < here.threads; w += WARP)
            release(w, w + WARP < here.threads ? w + WARP : here.threads, FIBER_AT_SHUFFLE);
        release(0, here.threads, FIBER_AT_BARRIER);
        done = count_in(0, here.threads, FIBER_DONE);
    }
}

} // namespace

bool emulated_run(int64_t blocks, int threads, int shared_bytes, bool samples,
                  const std::function<void()> &body) {
    if (threads < 1 || threads > 1024) give_up("a block has 1 to 1024 threads");
    if (shared_bytes > 227 * 1024) give_up("a block has at most 227 KiB of shared memory");
    if (blocks > 0x7fffffff) give_up("a grid has at most 2^31 - 1 blocks");
    if ((int)here.fibers.size() < threads) here.fibers.resize((size_t)threads);
    here.threads = threads;
    here.body = &body;
    here.trapped = false;
    here.dynamic_bytes = shared_bytes;
    for (fiber &f : here.fibers) f.copies.clear(); // a kernel that trapped may have left some
    for (int64_t b = 0; b < blocks && !here.trapped; b++) {
        here.shared.clear();
        for (int i = 0; i < threads; i++)
            here.fibers[i].index = {
                {(unsigned)i}, {(unsigned)b}, {(unsigned)threads}, {(unsigned)blocks}};
        run_block();
        if (samples && b == 0 && blocks > 1) b = blocks - 2;
    }
    here.shared.clear();
    return !here.trapped;
}

void emulated_trap() { here.trapped = true; }

void *emulated_shared(int line, size_t size_bytes) {
    std::unique_ptr<char[]> &memory = here.shared[line];
    if (!memory) {
        memory.reset(new char[size_bytes]);
        memset(memory.get(), POISON, size_bytes);
    }
    return memory.get();
}

void *emulated_dynamic_shared() { return emulated_shared(0, (size_t)here.dynamic_bytes); }

void emulated_barrier() { pause(FIBER_AT_BARRIER); }

uint64_t emulated_shuffle_xor(uint64_t bits, int mask) {
    int own = here.current, other = own / WARP * WARP + (own % WARP ^ mask);
    here.fibers[own].handed = bits;
    pause(FIBER_AT_SHUFFLE);
    if (other >= here.threads) give_up("a shuffle reads a lane that the block does not have");
    uint64_t got = here.fibers[other].handed;
    pause(FIBER_AT_SHUFFLE); // until all lanes have read: then `handed` may be overwritten
    return got;
}

void emulated_gather(const void *address, const void **lanes) {
    int first = here.current / WARP * WARP;
    if (first + WARP > here.threads) give_up("a warp that works together is not whole");
    here.fibers[here.current].handed = (uint64_t)(uintptr_t)address;
    pause(FIBER_AT_SHUFFLE);
    for (int i = 0; i < WARP; i++)
        lanes[i] = (const void *)(uintptr_t)here.fibers[first + i].handed;
}

void emulated_go_on() { pause(FIBER_AT_SHUFFLE); }

void emulated_copy(void *to, const void *from, size_t size_bytes) {
    if ((uintptr_t)to % size_bytes || (uintptr_t)from % size_bytes)
        give_up("a copy to shared memory is not aligned");
    memset(to, POISON, size_bytes);
    here.fibers[here.current].copies.push_back({to, from, size_bytes});
}

void emulated_copy_wait() {
    std::vector<copy> &copies = here.fibers[here.current].copies;
    for (const copy &c : copies)
        if (c.from)
            memcpy(c.to, c.from, c.size_bytes);
        else
            memset(c.to, 0, c.size_bytes);
    copies.clear();
}
