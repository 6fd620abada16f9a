// Finds this program's file. /proc/self/exe does not always name it: if a loader was started with
// the program as its argument, as the starter of a bundle does (packaging/starter.c), it names the
// loader.
#ifndef TRIREME_BASE_PROGRAM_H
#define TRIREME_BASE_PROGRAM_H

#include <limits.h>
#include <stdbool.h>

// Finds the file from which the main program was loaded. False: the system does not tell.
bool tri_program_file(char out[PATH_MAX]);
// Finds the file to execute in order to start this program again: the program's file, or the
// starter of its bundle (bin/NAME beside libexec/NAME). False: the system does not tell.
bool tri_program_start(char out[PATH_MAX]);
// Removes the last component of a path. False: there is none.
bool tri_program_folder(char *path);

#endif
