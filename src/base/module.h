// Modules: shared objects that the program loads when a run needs them, for libraries that not
// every host has (MPI, UCX). So the program also starts on hosts that lack such a library.
#ifndef TRIREME_BASE_MODULE_H
#define TRIREME_BASE_MODULE_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

// The contents of the symbol tri_module_entry of a module. The first two members never change, so
// that a module of any version can be recognised and rejected.
typedef struct tri_module {
    uint32_t magic; // always TRI_MODULE_MAGIC
    uint32_t abi;   // version of the interface
    const char *interface, *name;
    const void *table; // the table of the interface's functions
} tri_module;

enum { TRI_MODULE_MAGIC = 0x54524d4f };
#define TRI_MODULE_SYMBOL "tri_module_entry"

// Defines a module's entry, by which the program finds its table. A module's source contains for
// example: TRI_MODULE("transport", 1, "ucx", &table);
#define TRI_MODULE(interface_name, abi_version, module_name, functions)                            \
    __attribute__((visibility("default"))) extern const tri_module tri_module_entry;               \
    const tri_module tri_module_entry = {.magic = TRI_MODULE_MAGIC,                                \
                                         .abi = (abi_version),                                     \
                                         .interface = (interface_name),                            \
                                         .name = (module_name),                                    \
                                         .table = (functions)}

// The folder that the environment variable TRIREME_MODULES names; NULL: none.
const char *tri_module_chosen_folder(void);
// Whether the module NAME.so lies in one of the folders in which tri_module_load searches.
bool tri_module_is_installed(const char *name);
// Loads the module NAME.so and sets *table to its table of functions. The module stays loaded until
// the process ends. If the environment variable TRIREME_MODULES names a folder, the module has to
// be there. Otherwise the module is searched for beside the program (bin/../lib/trireme), beside
// the library, and in the folder for which the program was built. TRI_NOT_FOUND: the message lists
// the folders. TRI_UNSUPPORTED: the module cannot be loaded, or belongs to another version of the
// program.
tri_status tri_module_load(const char *name, const char *interface, uint32_t abi,
                           const void **table);

#endif
