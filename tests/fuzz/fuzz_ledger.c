// Reads arbitrary bytes as a ledger (the record of what a rank does) that another host sent, and
// describes what is in it.
#include "base/ledger.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static tri_ledger_ring ring; // an input is unpacked over what earlier inputs have left here
    char text[224], packed[TRI_LEDGER_PACKED_BYTES];
    if (!tri_ledger_unpack(data, size, &ring)) return 0;
    tri_ledger_text(&ring, text, sizeof text);
    if (strlen(text) >= sizeof text) abort();
    (void)tri_ledger_waits(&ring);
    // A ledger that was accepted must still have the same text after it was packed and unpacked.
    static tri_ledger_ring again;
    char same[224];
    if (!tri_ledger_unpack(packed, tri_ledger_pack(&ring, packed), &again)) abort();
    tri_ledger_text(&again, same, sizeof same);
    if (strcmp(text, same) != 0) abort();
    return 0;
}
