// Checks the limits of the messages between ranks and the store's server. Both ends do so before
// they read a message's key and value, because the other end may be broken or hostile.
#include "rendezvous/store_protocol.h"

#include "base/limits.h"

tri_status store_head_check(const store_head *head) {
    if (head->kind < STORE_HELLO || head->kind >= STORE_KIND_END)
        return TRI_FAIL(TRI_BAD_INPUT, "store: a message of unknown kind 0x%x", head->kind);
    if (head->key_bytes > TRI_MAX_NAME_BYTES)
        return TRI_FAIL(TRI_BAD_INPUT, "store: a key of %u bytes (at most %d)", head->key_bytes,
                        TRI_MAX_NAME_BYTES);
    if (head->value_bytes > TRI_STORE_VALUE_MAX_BYTES)
        return TRI_FAIL(TRI_BAD_INPUT, "store: a value of %u bytes (at most %d)", head->value_bytes,
                        TRI_STORE_VALUE_MAX_BYTES);
    return TRI_OK;
}
