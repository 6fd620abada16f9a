// Handles the first messages of everything that connects over TCP to the server of the store (the
// key-value service at which the ranks meet): the greeting (greeting.h), in which a rank proves
// that it has the user's token. Closes the connections that do not have the token, because any
// process of the network can reach the port. A stranger is a connection whose greeting is not
// complete.
#include "rendezvous/store_strangers.h"

#include "base/log.h"
#include "base/os.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

static const int64_t ms = 1000000;

static void drop(store_strangers *s, int index) {
    tri_os.close(s->fds[index].fd);
    s->fds[index].fd = -1;
}

static int oldest_of(const store_strangers *s) {
    int oldest = -1;
    for (int i = 0; i < TRI_MAX_STORE_STRANGERS; i++)
        if (s->fds[i].fd >= 0 && (oldest < 0 || s->at[i].since_ns < s->at[oldest].since_ns))
            oldest = i;
    return oldest;
}

static int free_entry(const store_strangers *s) {
    for (int i = 0; i < TRI_MAX_STORE_STRANGERS; i++)
        if (s->fds[i].fd < 0) return i;
    return -1;
}

bool store_strangers_have_room(const store_strangers *s, int64_t now_ns) {
    if (free_entry(s) >= 0) return true;
    return now_ns - s->at[oldest_of(s)].since_ns >= TRI_STORE_CROWDED_MS * ms;
}

void store_strangers_take(store_strangers *s, int fd, int64_t now_ns) {
    int index = free_entry(s);
    if (index < 0) drop(s, index = oldest_of(s));
    store_stranger *one = &s->at[index];
    memset(one, 0, sizeof *one);
    one->since_ns = now_ns;
    // Sends without waiting: the buffer of a new socket has room for these few bytes. If it has no
    // room after all, the connection is closed, because the server waits for no connection that has
    // not shown the token.
    bool is_greeted = store_challenge_make(&one->challenge) == TRI_OK &&
                      tri_os.send(fd, &one->challenge, sizeof one->challenge,
                                  MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof one->challenge;
    if (is_greeted)
        s->fds[index] = (struct pollfd){.fd = fd, .events = POLLIN};
    else
        tri_os.close(fd);
}

// Closes a connection without the token. Only the first one is reported, because a port scan would
// fill the log.
static void turn_away(store_strangers *s, int index) {
    struct sockaddr_storage peer;
    socklen_t size = sizeof peer;
    char host[NI_MAXHOST] = "a host";
    if (s->turned_away++ == 0) {
        if (getpeername(s->fds[index].fd, (struct sockaddr *)&peer, &size) == 0)
            getnameinfo((struct sockaddr *)&peer, size, host, sizeof host, NULL, 0, NI_NUMERICHOST);
        tri_log_line(
            TRI_LOG_WARNING,
            "store: turned away a connection from %s, which does not have this job's token; "
            "the job goes on, and further ones are not reported",
            host);
    }
    drop(s, index);
}

// Sends the verdict. Returns the socket of an admitted rank, or -1. A rank that has the token may
// still not be admitted, for example because the run was started again without it. It learns the
// reason from the verdict.
static int answer(store_strangers *s, int index) {
    const store_stranger *one = &s->at[index];
    store_verdict verdict;
    if (!store_proof_check(&s->gate, &one->challenge, &one->proof, &verdict)) {
        turn_away(s, index);
        return -1;
    }
    int fd = s->fds[index].fd;
    bool is_sent =
        tri_os.send(fd, &verdict, sizeof verdict, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof verdict;
    if (!is_sent || verdict.admission != STORE_ADMITTED) {
        drop(s, index);
        return -1;
    }
    s->fds[index].fd = -1;
    return fd;
}

int store_strangers_read(store_strangers *s, int index) {
    store_stranger *one = &s->at[index];
    ssize_t got = tri_os.recv(s->fds[index].fd, one->bytes + one->got, sizeof one->bytes - one->got,
                              MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return -1;
    if (got <= 0) {
        drop(s, index);
        return -1;
    }
    one->got += (size_t)got;
    return one->got == sizeof one->bytes ? answer(s, index) : -1;
}

int64_t store_strangers_expire(store_strangers *s, int64_t now_ns) {
    int64_t next = INT64_MAX;
    for (int i = 0; i < TRI_MAX_STORE_STRANGERS; i++) {
        if (s->fds[i].fd < 0) continue;
        int64_t end_ns = s->at[i].since_ns + TRI_STORE_GREETING_MS * ms;
        if (end_ns <= now_ns)
            drop(s, i);
        else if (end_ns < next)
            next = end_ns;
    }
    if (free_entry(s) >= 0) return next;
    int64_t room_ns = s->at[oldest_of(s)].since_ns + TRI_STORE_CROWDED_MS * ms;
    return room_ns > now_ns && room_ns < next ? room_ns : next;
}

void store_strangers_close(store_strangers *s) {
    for (int i = 0; i < TRI_MAX_STORE_STRANGERS; i++)
        if (s->fds[i].fd >= 0) drop(s, i);
}
