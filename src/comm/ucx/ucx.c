// The transport `ucx`: messages with tags over UCX, which uses RDMA, TCP or shared memory,
// depending on the host and on UCX's own configuration (UCX_TLS, UCX_NET_DEVICES, …). It is a
// module: a shared object that the program loads when a run needs it.
//
// A connection (endpoint) to a rank is made when something is first sent to it, so that a rank has
// connections only to those ranks to which it sends.
#include "base/module.h"
#include "comm/message/transport.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucp/api/ucp.h>

enum {
    PROGRESS_CALLS = 16, // the most times that one call of `progress` lets UCX work
    LOSS_BYTES = 128,
    STUCK_ARMS = 20, // limit of tri_transport_end.stuck_arms
    // Limits of the wait while connections are closed: the number of calls without a nap, the
    // length of a nap, and the time after which the wait ends.
    CLOSE_CALLS = 1000,
    CLOSE_NAP_US = 20,
    CLOSE_MS = 2000,
};

typedef struct ucx_peer {
    tri_transport_end *end;
    void *address;
    ucp_ep_h endpoint;     // NULL: not connected
    char loss[LOSS_BYTES]; // why the rank was lost; "": it can be reached
} ucx_peer;

struct tri_transport_end {
    int rank, size, event_fd;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_address_t *address;
    size_t address_bytes;
    ucx_peer *peers;
    // Requests that UCX has not finished. A request's index is its `number`, so that it is found at
    // once when UCX calls back.
    tri_transport_request **pending;
    size_t pending_count, pending_capacity;
    bool moved;
    // How often in succession event_fd was readable although UCX had nothing to do. After
    // STUCK_ARMS times threads sleep for short times instead of until event_fd is readable.
    int stuck_arms;
};

static tri_status refuse(char *why, const char *call, ucs_status_t status) {
    snprintf(why, TRI_TRANSPORT_WHY_BYTES, "%s: %s", call, ucs_status_string(status));
    return TRI_NETWORK;
}

static ucs_status_t make_worker(tri_transport_end *end) {
    ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    ucs_status_t status = ucp_worker_create(end->context, &params, &end->worker);
    if (status == UCS_OK)
        status = ucp_worker_get_address(end->worker, &end->address, &end->address_bytes);
    if (status == UCS_OK && ucp_worker_get_efd(end->worker, &end->event_fd) != UCS_OK)
        end->event_fd = -1; // the caller then calls ucx_progress again and again
    return status;
}

static void ucx_close(tri_transport_end *end, bool is_whole);

// Sets environment variables to values that suit this program better than UCX's defaults, because
// UCX reads them from the environment only. Variables that the user has set stay as they are.
static void prefer(void) {
    // Over TCP, large messages take half the CPU time if they are sent as plain messages instead of
    // being put into the receiver's memory.
    (void)setenv("UCX_TCP_PUT_ENABLE", "n", 0);
    // How many bytes of a message are sent at once over TCP, and how many a receive takes from a
    // connection. With UCX's default of 8 KiB for both, an all-reduce of 64 KiB takes twice as
    // long, and one of 1 MiB one and a half times. The two are equal because UCX refuses to send
    // more at once than is received.
    (void)setenv("UCX_TCP_TX_SEG_SIZE", "128k", 0);
    (void)setenv("UCX_TCP_RX_SEG_SIZE", "128k", 0);
    // Without this, each call that connects blocks: for two minutes if a firewall drops the
    // packets.
    (void)setenv("UCX_TCP_CONN_NB", "y", 0);
}

static tri_status ucx_open(const tri_transport_job *job, tri_transport_end **out, char *why) {
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES |
                                         UCP_PARAM_FIELD_ESTIMATED_NUM_EPS | UCP_PARAM_FIELD_NAME,
                           .features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP,
                           .estimated_num_eps = (size_t)job->size,
                           .name = "trireme"};
    ucp_config_t *config;
    *out = NULL;
    prefer();
    ucs_status_t status = ucp_config_read(NULL, NULL, &config);
    if (status != UCS_OK) return refuse(why, "ucp_config_read", status);
    tri_transport_end *end = calloc(1, sizeof *end);
    if (end) end->peers = calloc((size_t)job->size, sizeof *end->peers);
    if (!end || !end->peers) {
        ucp_config_release(config);
        free(end);
        snprintf(why, TRI_TRANSPORT_WHY_BYTES, "no memory");
        return TRI_NO_MEMORY;
    }
    end->rank = job->rank;
    end->size = job->size;
    end->event_fd = -1;
    for (int r = 0; r < job->size; r++) end->peers[r].end = end;
    status = ucp_init(&params, config, &end->context);
    ucp_config_release(config);
    if (status != UCS_OK) {
        free(end->peers);
        free(end);
        return refuse(why, "ucp_init", status);
    }
    status = make_worker(end);
    if (status != UCS_OK) {
        ucx_close(end, false);
        return refuse(why, "ucp_worker_create", status);
    }
    *out = end;
    return TRI_OK;
}

static const void *ucx_address(tri_transport_end *end, size_t *size) {
    *size = end->address_bytes;
    return end->address;
}

static tri_status ucx_know(tri_transport_end *end, int r, const void *address, size_t size,
                           char *why) {
    if (end->peers[r].address) return TRI_OK;
    end->peers[r].address = malloc(size);
    if (!end->peers[r].address) {
        snprintf(why, TRI_TRANSPORT_WHY_BYTES, "no memory");
        return TRI_NO_MEMORY;
    }
    memcpy(end->peers[r].address, address, size);
    return TRI_OK;
}

static void lose(ucx_peer *peer, ucs_status_t status) {
    if (peer->loss[0]) return;
    bool is_gone = status == UCS_ERR_CONNECTION_RESET || status == UCS_ERR_ENDPOINT_TIMEOUT;
    if (is_gone)
        snprintf(peer->loss, sizeof peer->loss, "died");
    else
        snprintf(peer->loss, sizeof peer->loss, "cannot be reached any more (UCX: %s)",
                 ucs_status_string(status));
    peer->end->moved = true;
}

static void on_error(void *argument, ucp_ep_h endpoint, ucs_status_t status) {
    lose(argument, status);
}

static bool connect_to(tri_transport_end *end, int r) {
    ucx_peer *peer = &end->peers[r];
    if (peer->endpoint || peer->loss[0]) return !peer->loss[0];
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                                            UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                            UCP_EP_PARAM_FIELD_ERR_HANDLER,
                              .address = peer->address,
                              .err_mode = UCP_ERR_HANDLING_MODE_PEER,
                              .err_handler = {.cb = on_error, .arg = peer}};
    // A rank cannot lose the connection to itself, so that connection needs no error handler.
    if (r == end->rank) params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    ucs_status_t status = ucp_ep_create(end->worker, &params, &peer->endpoint);
    if (status == UCS_OK) return true;
    peer->endpoint = NULL;
    lose(peer, status);
    return false;
}

static const char *ucx_loss(tri_transport_end *end, int r) {
    return end->peers[r].loss[0] ? end->peers[r].loss : NULL;
}

static void ucx_watch(tri_transport_end *end, int r) {
    if (r != end->rank) (void)connect_to(end, r);
}

static bool ucx_reaches(tri_transport_end *end, int r) { return end->peers[r].endpoint != NULL; }

static void finish(tri_transport_end *end, tri_transport_request *request, ucs_status_t status) {
    if (status == UCS_OK)
        request->state = TRI_REQUEST_DONE;
    else if (status == UCS_ERR_MESSAGE_TRUNCATED)
        request->state = TRI_REQUEST_TOO_LARGE;
    else
        request->state = status == UCS_ERR_CANCELED ? TRI_REQUEST_ENDED : TRI_REQUEST_LOST;
    end->moved = true;
}

static void finish_pending(tri_transport_end *end, tri_transport_request *request,
                           ucs_status_t status) {
    tri_transport_request *last = end->pending[--end->pending_count];
    end->pending[request->number] = last;
    last->number = request->number;
    finish(end, request, status);
}

static void on_sent(void *handle, ucs_status_t status, void *argument) {
    tri_transport_request *request = argument;
    finish_pending(request->end, request, status);
    ucp_request_free(handle);
}

static void on_received(void *handle, ucs_status_t status, const ucp_tag_recv_info_t *info,
                        void *argument) {
    tri_transport_request *request = argument;
    request->bytes = status == UCS_OK ? info->length : 0;
    // If all fragments of the message were there already, UCX calls this function inside
    // ucp_tag_recv_nbx. Then the request has no handle yet and is not in `pending`.
    if (request->handle)
        finish_pending(request->end, request, status);
    else
        finish(request->end, request, status);
    ucp_request_free(handle);
}

// Records what UCX has returned for a request: it is complete, has failed, or is pending.
static void note(tri_transport_end *end, tri_transport_request *request, ucs_status_ptr_t result) {
    if (!UCS_PTR_IS_PTR(result)) {
        finish(end, request, UCS_PTR_STATUS(result));
        return;
    }
    if (end->pending_count == end->pending_capacity) {
        size_t capacity = end->pending_capacity ? 2 * end->pending_capacity : 64;
        void *grown = realloc(end->pending, capacity * sizeof *end->pending);
        // Without an entry nobody would know until when UCX uses the request's memory.
        if (!grown) abort();
        end->pending = grown;
        end->pending_capacity = capacity;
    }
    request->state = TRI_REQUEST_PENDING;
    request->handle = result;
    request->number = end->pending_count;
    end->pending[end->pending_count++] = request;
}

static uint64_t tag_of(int from, uint32_t tag) { return (uint64_t)(uint32_t)from << 32 | tag; }

static void ucx_send(tri_transport_end *end, int r, uint32_t tag, const void *data, size_t size,
                     tri_transport_request *request) {
    ucp_request_param_t params = {.op_attr_mask =
                                      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                  .cb.send = on_sent,
                                  .user_data = request};
    *request =
        (tri_transport_request){.state = TRI_REQUEST_LOST, .peer = r, .bytes = size, .end = end};
    if (connect_to(end, r))
        note(end, request,
             ucp_tag_send_nbx(end->peers[r].endpoint, data, size, tag_of(end->rank, tag), &params));
}

static void receive(tri_transport_end *end, int r, uint64_t tag, uint64_t mask, void *memory,
                    size_t size, tri_transport_request *request) {
    ucp_tag_recv_info_t info = {0};
    ucp_request_param_t params = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                                  UCP_OP_ATTR_FIELD_USER_DATA |
                                                  UCP_OP_ATTR_FIELD_RECV_INFO,
                                  .cb.recv = on_received,
                                  .user_data = request,
                                  .recv_info.tag_info = &info};
    *request = (tri_transport_request){.peer = r, .end = end};
    ucs_status_ptr_t result = ucp_tag_recv_nbx(end->worker, memory, size, tag, mask, &params);
    if (request->state != TRI_REQUEST_NONE) return; // on_received was called already
    if (!UCS_PTR_IS_PTR(result)) request->bytes = info.length;
    note(end, request, result);
}

static void ucx_recv(tri_transport_end *end, int r, uint32_t tag, void *memory, size_t size,
                     tri_transport_request *request) {
    receive(end, r, tag_of(r, tag), UINT64_MAX, memory, size, request);
}

static void ucx_recv_any(tri_transport_end *end, uint32_t tag, void *memory, size_t size,
                         tri_transport_request *request) {
    receive(end, -1, tag, UINT32_MAX, memory, size, request);
}

static bool ucx_progress(tri_transport_end *end) {
    for (int i = 0; i < PROGRESS_CALLS && ucp_worker_progress(end->worker); i++)
        end->stuck_arms = 0;
    bool moved = end->moved;
    end->moved = false;
    return moved;
}

// Returns the descriptor to sleep on; -1: the caller instead sleeps for a short time before each
// call of ucx_progress, which leaves the cores to ranks that have work. While UCX connects over
// TCP, the descriptor is readable until the other end answers, so that no thread could sleep on it.
static int ucx_event_fd(tri_transport_end *end) {
    return end->stuck_arms < STUCK_ARMS ? end->event_fd : -1;
}

static bool ucx_arm(tri_transport_end *end) {
    if (ucp_worker_arm(end->worker) != UCS_OK) return false;
    struct pollfd now = {.fd = end->event_fd, .events = POLLIN};
    if (poll(&now, 1, 0) > 0) end->stuck_arms++;
    return true;
}

typedef struct patience {
    int calls;
    struct timespec since;
} patience;

// Lets UCX work once, for a caller that waits until something is closed. After CLOSE_CALLS calls,
// it takes a nap when UCX has nothing to do, because the other end may need the core. False: the
// wait has taken CLOSE_MS. It has to end then, because the other end may be gone and never answer.
static bool work_on(tri_transport_end *end, patience *p) {
    struct timespec now, nap = {.tv_nsec = CLOSE_NAP_US * 1000};
    bool has_worked = ucp_worker_progress(end->worker) > 0;
    if (p->calls++ < CLOSE_CALLS) return true;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (p->calls == CLOSE_CALLS + 1) p->since = now;
    int64_t waited_ms =
        (int64_t)(now.tv_sec - p->since.tv_sec) * 1000 + (now.tv_nsec - p->since.tv_nsec) / 1000000;
    if (!has_worked) nanosleep(&nap, NULL);
    return waited_ms < CLOSE_MS;
}

// Lets UCX work until its operation `handle` is complete or work_on ends the wait.
static void complete(tri_transport_end *end, ucs_status_ptr_t handle) {
    patience p = {0};
    if (!UCS_PTR_IS_PTR(handle)) return;
    while (ucp_request_check_status(handle) == UCS_INPROGRESS && work_on(end, &p)) continue;
    ucp_request_free(handle);
}

static void end_pending(tri_transport_end *end) {
    patience p = {0};
    while (end->pending_count && work_on(end, &p)) continue;
}

static void close_endpoints(tri_transport_end *end, uint32_t flags) {
    ucp_request_param_t params = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = flags};
    for (int r = 0; r < end->size; r++) {
        ucx_peer *peer = &end->peers[r];
        if (!peer->endpoint) continue;
        params.flags = peer->loss[0] ? UCP_EP_CLOSE_FLAG_FORCE : flags;
        complete(end, ucp_ep_close_nbx(peer->endpoint, &params));
        peer->endpoint = NULL;
    }
}

// Receives messages for which nobody has asked, such as notices of ranks that leave after this one
// has stopped listening, because UCX would print warnings about them.
static void drain(tri_transport_end *end) {
    ucp_tag_recv_info_t info;
    ucp_tag_message_h message;
    ucp_request_param_t params = {0};
    while ((message = ucp_tag_probe_nb(end->worker, 0, 0, 1, &info))) {
        void *memory = malloc(info.length + 1);
        if (!memory) return;
        complete(end, ucp_tag_msg_recv_nbx(end->worker, memory, info.length, message, &params));
        free(memory);
    }
}

static void cancel_receives(tri_transport_end *end) {
    // Goes from the last to the first, because a request that is cancelled may be removed from the
    // list at once.
    for (size_t i = end->pending_count; i > 0; i--)
        if (i <= end->pending_count) ucp_request_cancel(end->worker, end->pending[i - 1]->handle);
}

static void ucx_stop(tri_transport_end *end) {
    cancel_receives(end);
    close_endpoints(end, UCP_EP_CLOSE_FLAG_FORCE); // also ends what is being sent
    end_pending(end);
}

static void ucx_close(tri_transport_end *end, bool is_whole) {
    if (end->worker) {
        cancel_receives(end);
        close_endpoints(end, is_whole ? 0 : UCP_EP_CLOSE_FLAG_FORCE);
        end_pending(end);
        drain(end);
        if (end->address) ucp_worker_release_address(end->worker, end->address);
        ucp_worker_destroy(end->worker);
    }
    ucp_cleanup(end->context);
    for (int r = 0; r < end->size; r++) free(end->peers[r].address);
    free(end->peers);
    free(end->pending);
    free(end);
}

static const tri_transport ucx_transport = {.name = "ucx",
                                            .most_bytes = (size_t)1 << 40,
                                            .open = ucx_open,
                                            .address = ucx_address,
                                            .know = ucx_know,
                                            .send = ucx_send,
                                            .recv = ucx_recv,
                                            .recv_any = ucx_recv_any,
                                            .progress = ucx_progress,
                                            .event_fd = ucx_event_fd,
                                            .arm = ucx_arm,
                                            .loss = ucx_loss,
                                            .watch = ucx_watch,
                                            .reaches = ucx_reaches,
                                            .stop = ucx_stop,
                                            .close = ucx_close};

TRI_MODULE(TRI_TRANSPORT_INTERFACE, TRI_TRANSPORT_ABI, "ucx", &ucx_transport);
