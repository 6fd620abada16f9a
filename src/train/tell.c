// Tells all ranks of a failure that only one rank knows. A communicator that one rank ends gives
// the others a text but no status. So the text tells whether the failure was bad input (exit code
// 2); if it was, the other ranks end with the status TRI_REFUSED.
#include "train/tell.h"

#include <stdio.h>
#include <string.h>

static const char BAD_INPUT[] = ": bad input: ";

// Turns "a rank was lost" into TRI_REFUSED if the text says that the rank had bad input.
static tri_status status_of(tri_status status) {
    const char *why = tri_error_message();
    bool is_told = status == TRI_PEER_LOST && !strncmp(why, "rank ", 5) && strstr(why, BAD_INPUT);
    return is_told ? TRI_REFUSED : status;
}

tri_status tri_tell_failure(tri_comm *comm, const tri_identity *identity, tri_status status) {
    char why[TRI_MESSAGE_MAX_BYTES], text[TRI_MESSAGE_MAX_BYTES];
    status = status_of(status);
    bool all_end = status == TRI_OK || status == TRI_STOPPED || status == TRI_NOT_FINITE;
    if (all_end || !comm || comm->size == 1) return status;
    snprintf(why, sizeof why, "%s", tri_error_message());
    bool is_bad_input = tri_status_exit_code(status) == 2;
    bool is_named = !strncmp(why, "rank", 4); // such a message already says which rank it was
    const char *behind_name = is_named ? strstr(why, ": ") : NULL;
    // TRI_REFUSED: this rank was only told of another rank's bad input. This rank too ends its
    // communicator, because closing the communicator would otherwise wait for the other rank. The
    // text has to contain BAD_INPUT, which is added behind the other rank's name if it is missing.
    if (status == TRI_REFUSED && !strstr(why, BAD_INPUT) && behind_name)
        snprintf(text, sizeof text, "%.*s%s%.*s", (int)(behind_name - why), why, BAD_INPUT,
                 (int)sizeof text - 160, behind_name + 2);
    else if (status != TRI_REFUSED && (is_bad_input || !is_named))
        snprintf(text, sizeof text, "rank %d (host %.63s)%s%.*s", identity->rank, identity->host,
                 is_bad_input ? BAD_INPUT : ": ", (int)sizeof text - 160, why);
    else
        snprintf(text, sizeof text, "%s", why);
    comm->backend->abort(comm, text);
    return TRI_FAIL(status, "%s", why);
}

tri_status tri_tell_and_agree(tri_comm *comm, tri_status own, const char *what) {
    char why[TRI_MESSAGE_MAX_BYTES];
    if (comm->size == 1) return own;
    snprintf(why, sizeof why, "%s", own == TRI_OK ? "" : tri_error_message());
    tri_status status = tri_comm_agree(comm, own, what);
    if (own != TRI_OK) return TRI_FAIL(own, "%s", why);
    if (tri_status_exit_code(status) != 2) return status_of(status);
    snprintf(why, sizeof why, "%s", tri_error_message());
    return TRI_FAIL(TRI_REFUSED, "%s", why);
}
