// Every other public header begins with TRI_API_BEGIN and ends with TRI_API_END. They give the
// functions C names in C++ too, and make them the only names that the library and the program
// export.
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
