// The unix socket by which ranks on rank 0's host reach the store (the key-value service at which
// the ranks meet). It is abstract: it has no file and ends with the process, so nothing remains of
// a killed run. The kernel tells which user is at the other end.
#include "rendezvous/store_unix.h"

#include "base/limits.h"
#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static tri_status make_address(const tri_identity *identity, struct sockaddr_un *address,
                               socklen_t *size) {
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    // The first byte stays 0, which makes the name abstract: no file remains when the run ends.
    int used = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "trireme-store/%s",
                        identity->job);
    if (used < 0 || (size_t)used >= sizeof address->sun_path - 1)
        return TRI_FAIL(TRI_BAD_INPUT, "the job's name %s is too long for a socket", identity->job);
    *size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)used);
    return TRI_OK;
}

tri_status store_unix_connect(const tri_identity *identity, int *out) {
    struct sockaddr_un address;
    socklen_t size;
    TRI_TRY(make_address(identity, &address, &size));
    // Non-blocking, so that this fails at once if the listening process does not accept.
    int fd = tri_os.socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return tri_os_fail("make a socket", identity->job);
    int failed;
    do failed = tri_os.connect(fd, (struct sockaddr *)&address, size);
    while (failed && errno == EINTR);
    if (failed) {
        int error = errno;
        tri_os.close(fd);
        return TRI_FAIL(error == ECONNREFUSED || error == EAGAIN ? TRI_NOT_FOUND : TRI_NETWORK,
                        "job %s: cannot reach rank 0: %s", identity->job, strerror(error));
    }
    (void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    *out = fd;
    return TRI_OK;
}

tri_status store_unix_admit(int fd) {
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
        return tri_os_fail("read the user of the other end", "store socket");
    if (peer.uid != geteuid())
        return TRI_FAIL(TRI_BAD_INPUT,
                        "process %ld of another user (%ld, this is %ld) has the address where the "
                        "ranks of this job meet: set another MASTER_PORT, or start with `trireme "
                        "run`, which draws an address at random",
                        (long)peer.pid, (long)peer.uid, (long)geteuid());
    return TRI_OK;
}

// Finds out whose process listens at the job's address, if the address is taken. TRI_BAD_INPUT: a
// process of another user. TRI_OK: one of this user, or it is not known whose.
static tri_status check_holder(const tri_identity *identity) {
    int fd;
    if (store_unix_connect(identity, &fd) != TRI_OK) return TRI_OK;
    tri_status status = store_unix_admit(fd);
    tri_os.close(fd);
    return status;
}

tri_status store_unix_listen(const tri_identity *identity, int *out) {
    struct sockaddr_un address;
    socklen_t size;
    TRI_TRY(make_address(identity, &address, &size));
    int fd = tri_os.socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return tri_os_fail("make a socket", identity->job);
    if (bind(fd, (struct sockaddr *)&address, size) != 0 ||
        listen(fd, TRI_MAX_STORE_CLIENTS) != 0) {
        int error = errno;
        tri_os.close(fd);
        if (error == EADDRINUSE) TRI_TRY(check_holder(identity));
        errno = error;
        tri_status status = TRI_FAIL(TRI_NETWORK, "job %s: cannot listen for its ranks: %s",
                                     identity->job, strerror(error));
        errno = error;
        return status;
    }
    *out = fd;
    return TRI_OK;
}
