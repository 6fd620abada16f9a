// Carries out sends and receives. The sender sends a header, together with the data if they are
// small. Larger data follow in messages of their own, from the sender's memory to the receiver's
// without a copy. progress_item.state of a send or receive points to its message_post.
#include "comm/message/post.h"

#include "comm/message/header.h"
#include "comm/message/spread.h"
#include "comm/progress/describe.h"
#include "comm/progress/failure.h"

#include <stdlib.h>
#include <string.h>

enum { POST_EAGER_BYTES = 4096 }; // up to this size data travel with the header

typedef struct message_post {
    tri_transport_request header_request, data_request;
    bool agrees; // for a receive: the header has arrived, and its size and type fit the call
    int64_t at;  // offset in the data at which the next message begins
    message_header header;
    char payload[POST_EAGER_BYTES];
} message_post;

static size_t bytes_of(const tri_comm_op *op) { return (size_t)op->count * message_width(op); }
static bool is_small(const tri_comm_op *op) { return bytes_of(op) <= POST_EAGER_BYTES; }

static message_post *begin(message_comm *comm, progress_item *item) {
    message_post *post = calloc(1, sizeof *post);
    if (!post) {
        progress_fail(&comm->base, TRI_NO_MEMORY, "rank %d: no memory for a message",
                      comm->base.job_rank[message_rank(comm)]);
        return NULL;
    }
    item->state = post;
    const tri_comm_op *op = &item->op;
    if (op->kind == TRI_COMM_RECV) {
        message_recv(comm, MESSAGE_POSTED, op->peer, &post->header,
                     sizeof post->header + sizeof post->payload, &post->header_request);
        return post;
    }
    message_header_write(item, &post->header);
    size_t data = is_small(op) ? bytes_of(op) : 0;
    if (data) memcpy(post->payload, op->send, data);
    message_send(comm, MESSAGE_POSTED, op->peer, &post->header, sizeof post->header + data,
                 &post->header_request);
    return post;
}

static bool compare(message_comm *comm, progress_item *item, message_post *post) {
    tri_comm_call mine;
    tri_comm_call_of(&item->op, &mine);
    post->header.call.label[sizeof post->header.call.label - 1] = 0;
    if (tri_comm_calls_agree(&post->header.call, &mine)) return true;
    progress_disagree(&comm->base, 0,
                      (progress_caller){.rank = item->op.peer, .call = &post->header.call},
                      (progress_caller){.rank = message_rank(comm), .call = &mine});
    return false;
}

static bool send_advance(message_comm *comm, const tri_comm_op *op, message_post *post,
                         bool *advanced) {
    bool sent =
        is_small(op) || message_send_range(comm, MESSAGE_PAYLOAD, op->peer, op->send, bytes_of(op),
                                           &post->at, &post->data_request, advanced);
    return sent && message_is_over(&post->header_request);
}

static bool recv_advance(message_comm *comm, progress_item *item, message_post *post,
                         bool *advanced) {
    const tri_comm_op *op = &item->op;
    bool received =
        is_small(op) || message_recv_range(comm, MESSAGE_PAYLOAD, op->peer, op->recv, bytes_of(op),
                                           &post->at, &post->data_request, advanced);
    if (!post->agrees) {
        if (post->header_request.state != TRI_REQUEST_DONE) return false;
        if (!compare(comm, item, post)) return false;
        post->agrees = true;
        *advanced = true;
        if (is_small(op) && op->count) memcpy(op->recv, post->payload, bytes_of(op));
    }
    return received;
}

progress_result message_post_advance(message_comm *comm, progress_item *item) {
    bool advanced = false;
    message_post *post = item->state;
    if (!post) {
        post = begin(comm, item);
        if (!post) return PROGRESS_IDLE;
        advanced = true;
    }
    bool is_send = item->op.kind == TRI_COMM_SEND;
    item->done = is_send ? send_advance(comm, &item->op, post, &advanced)
                         : recv_advance(comm, item, post, &advanced);
    return advanced || item->done ? PROGRESS_ADVANCED : PROGRESS_BLOCKED;
}
