// The types of token numbers in flat files.
#ifndef TRIREME_FORMAT_TOKEN_TYPE_H
#define TRIREME_FORMAT_TOKEN_TYPE_H

typedef enum tri_token_type {
    // The type follows from the header of llm.c, if the file begins with one, or from Megatron's
    // index, if FILE.idx lies beside FILE.bin, else from the file's name: .bin and .u16 are U16,
    // .u32 is U32, all others U8.
    TRI_TOKENS_AUTO,
    TRI_TOKENS_U8,
    TRI_TOKENS_U16,
    TRI_TOKENS_U32,
} tri_token_type;

#endif
