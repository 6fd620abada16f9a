// The token: a secret that all jobs of a user share. Only a process that has it may connect over
// TCP to the store of one of these jobs, the key-value service at which the job's ranks meet. The
// reason: on a cluster other users can reach the same ports.
#ifndef TRIREME_RENDEZVOUS_TOKEN_H
#define TRIREME_RENDEZVOUS_TOKEN_H

#include "base/status.h"

enum { STORE_KEY_BYTES = 32 };

typedef struct store_token {
    unsigned char key[STORE_KEY_BYTES]; // SHA-256 of the token's text
} store_token;

// Finds the token: TRIREME_TOKEN; else the file that TRIREME_TOKEN_FILE names; else
// ~/.config/trireme/token, which is created if it is missing and there is a home folder.
// TRI_BAD_INPUT: other users may read the file, it belongs to another user, the token is shorter
// than TRI_MIN_TOKEN_BYTES, or no file can be created; then the message names TRIREME_TOKEN.
tri_status store_token_find(const char *(*get)(const char *name), store_token *out);

#endif
