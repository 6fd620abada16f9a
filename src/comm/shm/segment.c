// Shared memory between processes of one host: segments (memory made by memfd_create), which other
// processes open through /proc or receive over a socket.
#include "comm/shm/segment.h"

#include "base/limits.h"
#include "base/os.h"
#include "base/quantity.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/un.h>
#include <unistd.h>

static const uint64_t SHM_MAGIC = 0x31656d6572697274u; // "trireme1" in little-endian order

enum { SHM_HUGE_PAGE = 2 << 20, SHM_RETRY_NS = 2000000 };

static tri_status segment_map(shm_segment *segment, size_t size_bytes) {
    void *base = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, segment->fd, 0);
    if (base == MAP_FAILED) {
        tri_status status = TRI_FAIL(TRI_NO_MEMORY, "cannot map %zu bytes of shared memory: %s",
                                     size_bytes, strerror(errno));
        shm_segment_close_fd(segment);
        return status;
    }
    segment->base = base;
    segment->size_bytes = size_bytes;
    return TRI_OK;
}

tri_status shm_segment_create(size_t size_bytes, shm_segment *out, shm_handle *handle) {
    *out = (shm_segment){.fd = -1};
    uint64_t nonce;
    if (getrandom(&nonce, sizeof nonce, 0) != sizeof nonce)
        return TRI_FAIL(TRI_IO, "no random numbers from the system: %s", strerror(errno));
    out->fd = memfd_create("trireme", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (out->fd < 0)
        return TRI_FAIL(TRI_NO_MEMORY, "no shared memory from the system: %s", strerror(errno));
    if (tri_os.ftruncate(out->fd, (off_t)size_bytes) < 0) {
        tri_status status = TRI_FAIL(TRI_NO_MEMORY, "no shared memory of %zu bytes: %s", size_bytes,
                                     strerror(errno));
        shm_segment_close_fd(out);
        return status;
    }
    // These seals keep every process from shrinking the memory, because the other processes would
    // then get SIGBUS.
    (void)fcntl(out->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    TRI_TRY(segment_map(out, size_bytes));
    *(shm_header *)out->base = (shm_header){.magic = SHM_MAGIC, .nonce = nonce};
    *handle = (shm_handle){
        .pid = (int32_t)getpid(), .fd = out->fd, .size_bytes = size_bytes, .nonce = nonce};
    return TRI_OK;
}

// Checks that the opened descriptor is that of the maker's segment, and maps the segment. If the
// maker is in another pid namespace, its pid may belong to another process here, whose descriptor
// may be any file.
static tri_status segment_adopt(const shm_handle *handle, shm_segment *out) {
    struct stat about;
    if (fstat(out->fd, &about) < 0 || (uint64_t)about.st_size != handle->size_bytes) {
        shm_segment_close_fd(out);
        return TRI_FAIL(TRI_NOT_FOUND, "process %d has other memory than it announced",
                        handle->pid);
    }
    TRI_TRY(segment_map(out, handle->size_bytes));
    const shm_header *header = out->base;
    if (header->magic != SHM_MAGIC || header->nonce != handle->nonce) {
        shm_segment_unmap(out);
        return TRI_FAIL(TRI_NOT_FOUND, "process %d has other memory than it announced",
                        handle->pid);
    }
    return TRI_OK;
}

tri_status shm_segment_open(const shm_handle *handle, shm_segment *out) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", handle->pid, handle->fd);
    *out = (shm_segment){.fd = tri_os.open(path, O_RDWR | O_CLOEXEC, 0)};
    if (out->fd < 0) return TRI_FAIL(TRI_NOT_FOUND, "cannot open %s: %s", path, strerror(errno));
    return segment_adopt(handle, out);
}

static socklen_t segment_address(const shm_handle *handle, struct sockaddr_un *address) {
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    // The leading 0 byte makes the socket's name abstract: it is not in the file system, so no file
    // remains.
    int used = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "trireme-shm-%016llx",
                        (unsigned long long)handle->nonce);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)used);
}

static bool segment_same_user(int fd) {
    struct ucred peer;
    socklen_t size = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

typedef union segment_control {
    struct cmsghdr header;
    char space[CMSG_SPACE(sizeof(int))];
} segment_control;

// Prepares a message that carries `data`, with room in `control` for a descriptor.
static struct msghdr segment_message(struct iovec *data, segment_control *control) {
    *control = (segment_control){0};
    return (struct msghdr){.msg_iov = data,
                           .msg_iovlen = 1,
                           .msg_control = control->space,
                           .msg_controllen = sizeof control->space};
}

static bool segment_send_fd(int socket, int fd) {
    char byte = 1;
    segment_control control;
    struct iovec data = {&byte, 1};
    struct msghdr message = segment_message(&data, &control);
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    return sendmsg(socket, &message, MSG_NOSIGNAL) == 1;
}

// Waits until the other end of the socket confirms that it has received the descriptor. If the
// other end gave up meanwhile, it connects again later and is served then.
static bool segment_is_taken(int socket) {
    char byte;
    struct timeval limit = {.tv_sec = 1};
    (void)setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    return tri_os.recv(socket, &byte, 1, 0) == 1;
}

static int segment_receive_fd(int socket) {
    char byte;
    segment_control control;
    struct iovec data = {&byte, 1};
    struct msghdr message = segment_message(&data, &control);
    if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != 1) return -1;
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    if (!head || head->cmsg_type != SCM_RIGHTS || head->cmsg_len != CMSG_LEN(sizeof(int)))
        return -1;
    int fd;
    memcpy(&fd, CMSG_DATA(head), sizeof fd);
    if (tri_os.send(socket, &byte, 1, MSG_NOSIGNAL) == 1) return fd;
    tri_os.close(fd);
    return -1;
}

static int segment_left_ms(int64_t deadline_ns) {
    int64_t left = (deadline_ns - tri_os.monotonic_ns()) / 1000000;
    return left < 0 ? 0 : left > INT32_MAX ? INT32_MAX : (int)left;
}

static int64_t segment_deadline(int timeout_ms) {
    return tri_os.monotonic_ns() + (int64_t)timeout_ms * 1000000;
}

tri_status shm_segment_serve(const shm_segment *segment, const shm_handle *handle, int count,
                             int timeout_ms) {
    int64_t deadline = segment_deadline(timeout_ms);
    struct sockaddr_un address;
    socklen_t size = segment_address(handle, &address);
    int listener = tri_os.socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, size) < 0 ||
        listen(listener, TRI_MAX_LOCAL_RANKS) < 0) {
        tri_status status = TRI_FAIL(
            TRI_NETWORK, "cannot pass shared memory to the other ranks: %s", strerror(errno));
        if (listener >= 0) tri_os.close(listener);
        return status;
    }
    tri_status status = TRI_OK;
    while (count > 0) {
        struct pollfd ready = {.fd = listener, .events = POLLIN};
        int got = poll(&ready, 1, segment_left_ms(deadline));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) {
            status = TRI_FAIL(TRI_TIMEOUT, "%d ranks did not fetch their shared memory within %s",
                              count, tri_seconds_text(timeout_ms * 1e-3));
            break;
        }
        int peer = tri_os.accept(listener, NULL, NULL);
        if (peer < 0) continue;
        if (segment_same_user(peer) && segment_send_fd(peer, segment->fd) && segment_is_taken(peer))
            count--;
        tri_os.close(peer);
    }
    tri_os.close(listener);
    return status;
}

tri_status shm_segment_fetch(const shm_handle *handle, int timeout_ms, shm_segment *out) {
    int64_t deadline = segment_deadline(timeout_ms);
    struct sockaddr_un address;
    socklen_t size = segment_address(handle, &address);
    *out = (shm_segment){.fd = -1};
    while (out->fd < 0) {
        int socket = tri_os.socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (socket < 0) return TRI_FAIL(TRI_NETWORK, "no socket: %s", strerror(errno));
        struct timeval limit = {.tv_sec = 1};
        (void)setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        if (tri_os.connect(socket, (struct sockaddr *)&address, size) == 0 &&
            segment_same_user(socket))
            out->fd = segment_receive_fd(socket);
        tri_os.close(socket);
        if (out->fd >= 0) break;
        if (segment_left_ms(deadline) == 0)
            return TRI_FAIL(TRI_TIMEOUT, "process %d did not pass its shared memory within %s",
                            handle->pid, tri_seconds_text(timeout_ms * 1e-3));
        tri_os.sleep_ns(SHM_RETRY_NS);
    }
    return segment_adopt(handle, out);
}

tri_status shm_segment_commit(const shm_segment *segment, size_t offset, size_t size_bytes) {
    if (size_bytes == 0) return TRI_OK;
#ifdef MADV_POPULATE_WRITE
    if (madvise((char *)segment->base + offset, size_bytes, MADV_POPULATE_WRITE) == 0)
        return TRI_OK;
    if (errno != EINVAL)
        return TRI_FAIL(TRI_NO_MEMORY, "no shared memory of %zu bytes: %s", size_bytes,
                        strerror(errno));
#endif
    int failed = posix_fallocate(segment->fd, (off_t)offset, (off_t)size_bytes);
    if (failed)
        return TRI_FAIL(TRI_NO_MEMORY, "no shared memory of %zu bytes: %s", size_bytes,
                        strerror(failed));
    return TRI_OK;
}

void shm_segment_advise_huge(const shm_segment *segment) {
    if (segment->size_bytes >= 2 * SHM_HUGE_PAGE)
        (void)madvise(segment->base, segment->size_bytes, MADV_HUGEPAGE);
}

void shm_segment_close_fd(shm_segment *segment) {
    if (segment->fd >= 0) tri_os.close(segment->fd);
    segment->fd = -1;
}

void shm_segment_unmap(shm_segment *segment) {
    shm_segment_close_fd(segment);
    if (segment->base) munmap(segment->base, segment->size_bytes);
    segment->base = NULL;
}
