// The macros TRI_API_BEGIN and TRI_API_END, with which every other public header begins and ends.
// They give the declared functions C linkage in C++ too, and export them. The library and the
// program export no other names.
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
