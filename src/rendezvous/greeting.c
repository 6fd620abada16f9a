// Makes and checks the messages of a greeting, with which a TCP connection between a rank and the
// server of the store (the key-value service at which the ranks meet) begins: both ends prove that
// they have the user's token (greeting.h). This code allocates nothing and uses no sockets, because
// it handles bytes of unknown senders.
#include "rendezvous/greeting.h"

#include "base/hash.h"
#include "base/os.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stddef.h>
#include <string.h>
#include <sys/random.h>

static const char magic[8] = "trireme1";
// Texts of which one comes first in the bytes that a MAC is computed over. Each kind of message has
// its own text, so that a message cannot be sent back as one of another kind.
static const char of_proof[16] = "rank's proof", of_verdict[16] = "store's verdict";

_Static_assert(sizeof(store_challenge) == 40 && sizeof(store_proof) == 96 &&
                   sizeof(store_verdict) == 48,
               "the messages have no padding");

uint64_t store_run_hash(const tri_identity *identity) {
    return tri_hash_text(TRI_HASH_OF_NOTHING, identity->run[0] ? identity->run : identity->job);
}

static bool compute_mac(const store_token *token, const void *text, size_t size,
                        unsigned char out[STORE_MAC_BYTES]) {
    unsigned length = STORE_MAC_BYTES;
    return HMAC(EVP_sha256(), token->key, sizeof token->key, text, size, out, &length) != NULL;
}

static bool proof_mac(const store_token *token, const store_challenge *challenge,
                      const store_proof *proof, unsigned char out[STORE_MAC_BYTES]) {
    struct {
        char label[sizeof of_proof];
        store_challenge challenge;
        store_proof proof; // with zeros as its member `mac`, which is computed here
    } text;
    memcpy(text.label, of_proof, sizeof of_proof);
    text.challenge = *challenge;
    text.proof = *proof;
    memset(text.proof.mac, 0, sizeof text.proof.mac);
    return compute_mac(token, &text, sizeof text, out);
}

static bool verdict_mac(const store_token *token, const store_challenge *challenge,
                        const store_proof *proof, const store_verdict *verdict,
                        unsigned char out[STORE_MAC_BYTES]) {
    struct {
        char label[sizeof of_verdict];
        store_challenge challenge;
        store_proof proof;
        store_verdict verdict; // with zeros as its member `mac`, which is computed here
    } text;
    memcpy(text.label, of_verdict, sizeof of_verdict);
    text.challenge = *challenge;
    text.proof = *proof;
    text.verdict = *verdict;
    memset(text.verdict.mac, 0, sizeof text.verdict.mac);
    return compute_mac(token, &text, sizeof text, out);
}

static tri_status draw_nonce(unsigned char out[STORE_NONCE_BYTES]) {
    if (getrandom(out, STORE_NONCE_BYTES, 0) != STORE_NONCE_BYTES)
        return tri_os_fail("draw", "random bytes");
    return TRI_OK;
}

tri_status store_challenge_make(store_challenge *out) {
    memcpy(out->magic, magic, sizeof magic);
    return draw_nonce(out->nonce);
}

static store_admission admission_of(const store_gate *gate, const store_proof *proof) {
    if (proof->run != gate->run) return STORE_OTHER_RUN;
    if (proof->generation < gate->generation) return STORE_STALE;
    return proof->generation > gate->generation ? STORE_EARLY : STORE_ADMITTED;
}

bool store_proof_check(const store_gate *gate, const store_challenge *challenge,
                       const store_proof *proof, store_verdict *out) {
    unsigned char mac[STORE_MAC_BYTES];
    if (!proof_mac(&gate->token, challenge, proof, mac) ||
        CRYPTO_memcmp(mac, proof->mac, sizeof mac) != 0 || memcmp(proof->magic, magic, 8) != 0)
        return false;
    *out = (store_verdict){.admission = admission_of(gate, proof), .generation = gate->generation};
    return verdict_mac(&gate->token, challenge, proof, out, out->mac);
}

tri_status store_proof_make(const store_token *token, const tri_identity *identity,
                            const store_challenge *challenge, store_proof *out) {
    if (memcmp(challenge->magic, magic, sizeof magic) != 0)
        return TRI_FAIL(TRI_NOT_FOUND, "something else than a store listens there");
    memset(out, 0, sizeof *out);
    memcpy(out->magic, magic, sizeof magic);
    TRI_TRY(draw_nonce(out->nonce));
    out->run = store_run_hash(identity);
    out->generation = identity->generation;
    out->rank = identity->rank;
    if (!proof_mac(token, challenge, out, out->mac))
        return TRI_FAIL(TRI_NO_MEMORY, "no memory to compute an HMAC (libcrypto)");
    return TRI_OK;
}

tri_status store_verdict_check(const store_token *token, const store_challenge *challenge,
                               const store_proof *proof, const store_verdict *verdict) {
    unsigned char mac[STORE_MAC_BYTES];
    if (!verdict_mac(token, challenge, proof, verdict, mac) ||
        CRYPTO_memcmp(mac, verdict->mac, sizeof mac) != 0)
        return TRI_FAIL(TRI_NOT_FOUND, "what listens there does not have the token");
    return TRI_OK;
}
