// A transport (what carries messages between ranks) over unix sockets. Each rank opens one
// connection to each rank to which it sends. So all messages of a sender come over one connection,
// in order.
#include "support/socket_transport.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

enum { ANY = -1, BUDGET_BYTES = 1 << 18, UNKNOWN = -1, ANSWER = 1u << 31 };

typedef struct head { // what is sent before the data of a message
    uint32_t tag;     // ANSWER: no message, but the confirmation that one was received
    uint32_t from;
    uint64_t bytes;
    // Identifies the message: a sender counts its messages to each rank. In an ANSWER: the id of
    // the message that was received. In the first head of a connection: the sender's address_id.
    uint64_t id;
} head;

typedef struct outgoing { // a message that is being sent
    struct outgoing *next;
    head head;
    const char *data;
    size_t done; // how many bytes of head and data were sent
    tri_transport_request *request;
} outgoing;

typedef struct incoming { // a message that is arriving, or for which no receive is posted yet
    struct incoming *next;
    head head;
    char *data; // where the data arrive: allocated memory or, if a receive is posted, its memory
    tri_transport_request *request;
    size_t got;
} incoming;

typedef struct posted { // a receive that waits for its message
    struct posted *next;
    int peer;
    uint32_t tag;
    char *memory;
    size_t size;
    tri_transport_request *request;
} posted;

typedef struct connection { // a connection that another rank has opened to this one
    struct connection *next;
    int fd, peer;
    head head;
    size_t head_got;
    incoming *message; // the message that is arriving
} connection;

typedef struct peer {
    struct sockaddr_un address;
    socklen_t address_bytes;
    int fd; // -1: not connected
    outgoing *first, **last;
    bool waits_to_write;
    const char *loss;
    // Messages that were written to the socket, but whose receipt the peer has not confirmed yet.
    // Used if a send is complete only when it was received.
    outgoing *unanswered;
    uint64_t sent;
} peer;

struct tri_transport_end {
    int rank, size, listen_fd, epoll_fd;
    struct sockaddr_un address;
    socklen_t address_bytes;
    uint64_t address_id; // makes the address of this tri_transport_end unique (make_address)
    peer *peers;
    connection *connections;
    posted *posted, **last_posted;
    incoming *early, **last_early;
    bool moved, is_strict;
};

static tri_status refuse(char *why, const char *what) {
    snprintf(why, TRI_TRANSPORT_WHY_BYTES, "%s: %s", what, strerror(errno));
    return TRI_NETWORK;
}

static void watch_fd(tri_transport_end *end, int fd, int operation, uint32_t events) {
    struct epoll_event event = {.events = events, .data.fd = fd};
    (void)epoll_ctl(end->epoll_fd, operation, fd, &event);
}

static socklen_t make_address(uint64_t address_id, struct sockaddr_un *out) {
    out->sun_family = AF_UNIX;
    int length = snprintf(out->sun_path + 1, sizeof out->sun_path - 1, "trireme-test-%llx",
                          (unsigned long long)address_id);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static tri_status socket_open(const tri_transport_job *job, tri_transport_end **out, char *why) {
    static int opened;
    tri_transport_end *end = calloc(1, sizeof *end);
    *end = (tri_transport_end){.rank = job->rank, .size = job->size};
    end->peers = calloc((size_t)job->size, sizeof *end->peers);
    for (int r = 0; r < job->size; r++) {
        end->peers[r].fd = -1;
        end->peers[r].last = &end->peers[r].first;
    }
    end->last_posted = &end->posted;
    end->last_early = &end->early;
    end->address_id = (uint64_t)getpid() << 32 | (unsigned)opened++;
    end->address_bytes = make_address(end->address_id, &end->address);
    end->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    end->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    *out = end;
    if (bind(end->listen_fd, (struct sockaddr *)&end->address, end->address_bytes) ||
        listen(end->listen_fd, 128))
        return refuse(why, "listen");
    watch_fd(end, end->listen_fd, EPOLL_CTL_ADD, EPOLLIN);
    return TRI_OK;
}

static tri_status strict_open(const tri_transport_job *job, tri_transport_end **out, char *why) {
    tri_status status = socket_open(job, out, why);
    (*out)->is_strict = true;
    return status;
}

static const void *socket_address(tri_transport_end *end, size_t *size) {
    *size = end->address_bytes;
    return &end->address;
}

static tri_status socket_know(tri_transport_end *end, int r, const void *address, size_t size,
                              char *why) {
    memcpy(&end->peers[r].address, address, size);
    end->peers[r].address_bytes = (socklen_t)size;
    return TRI_OK;
}

// ---- sending

static void lose(tri_transport_end *end, int r) {
    peer *to = &end->peers[r];
    if (to->loss) return;
    to->loss = "died";
    for (outgoing *next, *at = to->first; at; at = next) {
        next = at->next;
        if (at->request) at->request->state = TRI_REQUEST_LOST;
        free(at);
    }
    for (outgoing *next, *at = to->unanswered; at; at = next) {
        next = at->next;
        at->request->state = TRI_REQUEST_LOST;
        free(at);
    }
    to->unanswered = NULL;
    to->first = NULL;
    to->last = &to->first;
    end->moved = true;
}

static bool connect_to(tri_transport_end *end, int r) {
    peer *to = &end->peers[r];
    if (to->fd >= 0 || to->loss) return !to->loss;
    // Connects with a blocking call, because connecting a unix socket never takes long.
    to->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(to->fd, (struct sockaddr *)&to->address, to->address_bytes)) {
        lose(end, r);
        return false;
    }
    struct head hello = {.from = (uint32_t)end->rank, .id = end->address_id};
    if (send(to->fd, &hello, sizeof hello, MSG_NOSIGNAL) != sizeof hello) lose(end, r);
    return !to->loss;
}

// Writes as much of the first message as possible; true if anything was written.
static bool write_some(tri_transport_end *end, int r) {
    peer *to = &end->peers[r];
    outgoing *out = to->first;
    size_t whole = sizeof out->head + out->head.bytes;
    struct iovec parts[2];
    int count = 0;
    if (out->done < sizeof out->head)
        parts[count++] =
            (struct iovec){(char *)&out->head + out->done, sizeof out->head - out->done};
    size_t at = out->done < sizeof out->head ? 0 : out->done - sizeof out->head;
    if (out->head.bytes > at)
        parts[count++] = (struct iovec){(char *)(uintptr_t)out->data + at, out->head.bytes - at};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = (size_t)count};
    ssize_t n = sendmsg(to->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    bool full = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    if (full != to->waits_to_write)
        watch_fd(end, to->fd, full ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, EPOLLOUT);
    to->waits_to_write = full;
    if (n < 0 && !full) lose(end, r);
    if (n <= 0) return false;
    out->done += (size_t)n;
    if (out->done < whole) return true;
    to->first = out->next;
    if (!to->first) to->last = &to->first;
    if (end->is_strict && out->request) {
        out->next = to->unanswered;
        to->unanswered = out;
        return true;
    }
    if (out->request) out->request->state = TRI_REQUEST_DONE;
    end->moved = true;
    free(out);
    return true;
}

static void queue(tri_transport_end *end, int r, const head *what, const void *data,
                  tri_transport_request *request) {
    peer *to = &end->peers[r];
    outgoing *out = malloc(sizeof *out);
    *out = (outgoing){.head = *what, .data = data, .request = request};
    *to->last = out;
    to->last = &out->next;
    while (to->first && write_some(end, r)) continue;
}

static void socket_send(tri_transport_end *end, int r, uint32_t tag, const void *data, size_t size,
                        tri_transport_request *request) {
    *request = (tri_transport_request){
        .state = TRI_REQUEST_LOST, .peer = r, .bytes = size, .handle = NULL};
    if (!connect_to(end, r)) return;
    head what = {
        .tag = tag, .from = (uint32_t)end->rank, .bytes = size, .id = end->peers[r].sent++};
    request->state = TRI_REQUEST_PENDING;
    queue(end, r, &what, data, request);
}

// Handles the answer of a rank that has received a message of this rank: the send is now done.
static void take_answer(tri_transport_end *end, const head *answer) {
    for (outgoing **link = &end->peers[answer->from].unanswered; *link; link = &(*link)->next) {
        outgoing *out = *link;
        if (out->head.id != answer->id) continue;
        *link = out->next;
        out->request->state = TRI_REQUEST_DONE;
        end->moved = true;
        free(out);
        return;
    }
}

// ---- receiving

static void finish(tri_transport_end *end, incoming *message) {
    message->request->state = TRI_REQUEST_DONE;
    message->request->bytes = message->head.bytes;
    end->moved = true;
    int from = (int)message->head.from;
    head answer = {.tag = ANSWER, .from = (uint32_t)end->rank, .id = message->head.id};
    if (end->is_strict && connect_to(end, from)) queue(end, from, &answer, NULL, NULL);
    free(message);
}

static void give(tri_transport_end *end, incoming *message, const posted *to) {
    if (message->head.bytes > to->size) {
        to->request->state = TRI_REQUEST_TOO_LARGE;
        end->moved = true;
        // The rest of the message still arrives, in memory of its own, which is then freed.
        if (message->got < message->head.bytes) return;
        free(message->data);
        free(message);
        return;
    }
    if (message->data) memcpy(to->memory, message->data, message->got);
    free(message->data);
    message->data = to->memory;
    message->request = to->request;
    if (message->got == message->head.bytes) finish(end, message);
}

static bool fits(const incoming *message, int r, uint32_t tag) {
    return message->head.tag == tag && (r == ANY || (int)message->head.from == r);
}

static void receive(tri_transport_end *end, int r, uint32_t tag, void *memory, size_t size,
                    tri_transport_request *request) {
    posted to = {.peer = r, .tag = tag, .memory = memory, .size = size, .request = request};
    *request = (tri_transport_request){.state = TRI_REQUEST_PENDING, .peer = r};
    for (incoming **link = &end->early; *link; link = &(*link)->next) {
        incoming *message = *link;
        if (!fits(message, r, tag)) continue;
        *link = message->next;
        if (!*link) end->last_early = link;
        give(end, message, &to);
        return;
    }
    *end->last_posted = malloc(sizeof to);
    **end->last_posted = to;
    end->last_posted = &(*end->last_posted)->next;
}

static void socket_recv(tri_transport_end *end, int r, uint32_t tag, void *memory, size_t size,
                        tri_transport_request *request) {
    receive(end, r, tag, memory, size, request);
}

static void socket_recv_any(tri_transport_end *end, uint32_t tag, void *memory, size_t size,
                            tri_transport_request *request) {
    receive(end, ANY, tag, memory, size, request);
}

// Called when the head of a message has arrived: finds the receive that has waited longest for such
// a message.
static void begin_message(tri_transport_end *end, connection *from) {
    incoming *message = calloc(1, sizeof *message);
    message->head = from->head;
    for (posted **link = &end->posted; *link; link = &(*link)->next) {
        posted *to = *link;
        if (!fits(message, to->peer, to->tag) || to->size < from->head.bytes) {
            if (!fits(message, to->peer, to->tag)) continue;
            to->request->state = TRI_REQUEST_TOO_LARGE;
            end->moved = true;
        } else {
            message->data = to->memory;
            message->request = to->request;
        }
        *link = to->next;
        if (!*link) end->last_posted = link;
        free(to);
        break;
    }
    from->message = message;
    if (message->request) return;
    message->data = malloc(from->head.bytes + 1);
    *end->last_early = message;
    end->last_early = &message->next;
}

// Reads from the connection once, and subtracts what it read from *budget, which becomes 0 if
// nothing is left to read now. False at the end of the connection.
static bool read_some(tri_transport_end *end, connection *from, size_t *budget) {
    bool in_head = from->head_got < sizeof from->head;
    incoming *message = from->message;
    char *to = in_head ? (char *)&from->head + from->head_got : message->data + message->got;
    size_t want = in_head ? sizeof from->head - from->head_got : message->head.bytes - message->got;
    ssize_t n = want ? recv(from->fd, to, want, MSG_DONTWAIT) : 0;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        *budget = 0;
        return true;
    }
    if (want && n <= 0) return false;
    *budget -= (size_t)n < *budget ? (size_t)n : *budget;
    if (in_head) {
        from->head_got += (size_t)n;
        if (from->head_got < sizeof from->head) return true;
        if (from->peer == UNKNOWN) { // the first header only tells which rank has connected
            from->peer = (int)from->head.from;
            peer *sender = &end->peers[from->peer]; // the sender's address may not be known yet
            if (!sender->address_bytes)
                sender->address_bytes = make_address(from->head.id, &sender->address);
            from->head_got = 0;
            return true;
        }
        if (from->head.tag == ANSWER) {
            take_answer(end, &from->head);
            from->head_got = 0;
            return true;
        }
        begin_message(end, from);
        message = from->message;
    } else {
        message->got += (size_t)n;
    }
    if (message->got < message->head.bytes) return true;
    if (message->request) finish(end, message);
    from->message = NULL;
    from->head_got = 0;
    return true;
}

static bool read_connection(tri_transport_end *end, connection *from) {
    for (size_t budget = BUDGET_BYTES; budget > 0;)
        if (!read_some(end, from, &budget)) return false;
    return true;
}

static void accept_all(tri_transport_end *end) {
    int fd;
    while ((fd = accept4(end->listen_fd, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        connection *from = calloc(1, sizeof *from);
        *from = (connection){.next = end->connections, .fd = fd, .peer = UNKNOWN};
        end->connections = from;
        watch_fd(end, fd, EPOLL_CTL_ADD, EPOLLIN);
    }
}

static bool socket_progress(tri_transport_end *end) {
    accept_all(end);
    for (connection **link = &end->connections; *link;) {
        connection *from = *link;
        if (read_connection(end, from)) {
            link = &from->next;
            continue;
        }
        *link = from->next;
        close(from->fd);
        if (from->peer != UNKNOWN) lose(end, from->peer);
        free(from);
    }
    for (int r = 0; r < end->size; r++)
        while (end->peers[r].first && write_some(end, r)) continue;
    bool moved = end->moved;
    end->moved = false;
    return moved;
}

static int socket_event_fd(tri_transport_end *end) { return end->epoll_fd; }
static int no_event_fd(tri_transport_end *end) { return -1; }

static const char *socket_loss(tri_transport_end *end, int r) { return end->peers[r].loss; }

static void socket_watch(tri_transport_end *end, int r) { (void)connect_to(end, r); }

static bool socket_reaches(tri_transport_end *end, int r) { return end->peers[r].fd >= 0; }

static void socket_stop(tri_transport_end *end) {
    for (posted *next, *at = end->posted; at; at = next) {
        next = at->next;
        at->request->state = TRI_REQUEST_ENDED;
        free(at);
    }
    end->posted = NULL;
    for (int r = 0; r < end->size; r++) {
        for (outgoing *next, *at = end->peers[r].first; at; at = next) {
            next = at->next;
            if (at->request) at->request->state = TRI_REQUEST_ENDED;
            free(at);
        }
        for (outgoing *next, *at = end->peers[r].unanswered; at; at = next) {
            next = at->next;
            at->request->state = TRI_REQUEST_ENDED;
            free(at);
        }
        end->peers[r].unanswered = NULL;
        end->peers[r].first = NULL;
    }
    while (end->connections) {
        connection *from = end->connections;
        end->connections = from->next;
        if (from->message && from->message->request) {
            from->message->request->state = TRI_REQUEST_ENDED;
            free(from->message);
        }
        close(from->fd);
        free(from);
    }
    for (incoming *next, *at = end->early; at; at = next) {
        next = at->next;
        free(at->data);
        free(at);
    }
    end->early = NULL;
}

static void socket_close(tri_transport_end *end, bool is_whole) {
    socket_stop(end);
    for (int r = 0; r < end->size; r++)
        if (end->peers[r].fd >= 0) close(end->peers[r].fd);
    close(end->listen_fd);
    close(end->epoll_fd);
    free(end->peers);
    free(end);
}

// The functions that the transports below have in common.
#define SOCKET_FUNCTIONS                                                                           \
    .address = socket_address, .know = socket_know, .send = socket_send, .recv = socket_recv,      \
    .recv_any = socket_recv_any, .progress = socket_progress, .loss = socket_loss,                 \
    .watch = socket_watch, .reaches = socket_reaches, .stop = socket_stop, .close = socket_close

const tri_transport socket_transport = {.name = "message",
                                        // So small that operations send several messages.
                                        .most_bytes = 300000,
                                        .open = socket_open,
                                        .event_fd = socket_event_fd,
                                        SOCKET_FUNCTIONS};

const tri_transport socket_transport_without_events = {.name = "message",
                                                       .most_bytes = 1 << 30,
                                                       .open = socket_open,
                                                       .event_fd = no_event_fd,
                                                       SOCKET_FUNCTIONS};

const tri_transport socket_transport_strict = {.name = "message",
                                               .most_bytes = 1 << 30,
                                               .open = strict_open,
                                               .event_fd = socket_event_fd,
                                               SOCKET_FUNCTIONS};
