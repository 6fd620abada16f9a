// Finds this program's file. /proc/self/exe names a loader instead if the loader was started with
// the program as its argument. The starter of a bundle (a folder with the program and all libraries
// that it needs) starts the program in this way (packaging/starter.c).
#ifndef TRIREME_BASE_PROGRAM_H
#define TRIREME_BASE_PROGRAM_H

#include <limits.h>
#include <stdbool.h>

// Finds the file from which the main program was loaded. False: the system does not tell.
bool tri_program_file(char out[PATH_MAX]);
// Finds the file to execute in order to start this program again: the program's file or, if the
// program lies in a bundle, the bundle's starter (bin/NAME for the program libexec/NAME). False:
// the system does not tell.
bool tri_program_start(char out[PATH_MAX]);
// Finds the folder of the library, which a user's own program may link; else it is the program's.
// False: the system does not tell.
bool tri_program_library_folder(char out[PATH_MAX]);
// Removes the last component of a path. False: there is none.
bool tri_program_folder(char *path);

#endif
