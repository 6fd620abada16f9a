// What the other public headers begin and end with, so that their functions have C names in C++
// too, and are the only ones that the library and the program export.
#ifndef TRIREME_API_H
#define TRIREME_API_H

#ifdef __cplusplus
#define TRI_API_BEGIN                                                                              \
    extern "C" {                                                                                   \
    _Pragma("GCC visibility push(default)")
#define TRI_API_END                                                                                \
    _Pragma("GCC visibility pop")                                                                  \
    }
#else
#define TRI_API_BEGIN _Pragma("GCC visibility push(default)")
#define TRI_API_END _Pragma("GCC visibility pop")
#endif

#endif
