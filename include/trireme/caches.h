// Caches: values that live from call to call, for models that compute a sequence token by token,
// such as a decoder that generates text. Each call brings some tokens of each sequence, computes
// with what the caches keep of the earlier ones, and appends its own.
//
// `spans` says for each sequence where the call's tokens stand: I64 [N, 2], how many tokens earlier
// calls had, and how many of the call's T tokens are the sequence's; padding follows them. It is a
// field of the data: tri_batch_field(batch, "spans"), which tri_rotary_with takes, too. A sequence
// that begins again has 0 earlier tokens, and so nothing has to be erased.
#ifndef TRIREME_CACHES_H
#define TRIREME_CACHES_H

#include <trireme/api.h>
#include <trireme/graph.h>

TRI_API_BEGIN

// The most tokens of a sequence for which the graph is built, if it is built with caches, else 0:
// the model then computes whole sequences, as training and evaluation do.
int64_t tri_cache_length(const tri_graph *graph);

// Appends x [N, T, …] to the cache `name`, and returns all of the cache, [N, tri_cache_length, …].
// What stands behind the last token of a sequence is undefined. A cache lies in memory of its own,
// which all programs of a plan share, and is read in the block that appends to it.
tri_value tri_cache(tri_graph *graph, const char *name, tri_value x, tri_value spans);

typedef struct tri_cached_attention_options {
    double scale; // 0 means 1 / √D
    // How many keys a query sees: its own and those before it. 0: all of the sequence.
    int64_t window;
} tri_cached_attention_options;

// tri_attention, causal, to all tokens of the sequences so far. q [N, T, H, D], k and v [N, T, K,
// D], of which caches NAME.keys and NAME.values keep the earlier ones → [N, T, H, D]. The time that
// it takes grows with the tokens so far, and not with the room of the caches.
tri_value tri_cached_attention(tri_graph *graph, const char *name, tri_value q, tri_value k,
                               tri_value v, tri_value spans, tri_cached_attention_options options);

// The row of each sequence's last token in this call, x [N, T, F] → [N, 1, F]; the first row of a
// sequence that has no token in this call.
tri_value tri_last_token(tri_graph *graph, tri_value x, tri_value spans);

TRI_API_END

#endif
