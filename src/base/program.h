// Where this program's file lies. /proc/self/exe does not always name it: a loader that was started
// with the program as its argument, as the starter of a bundle does it (packaging/starter.c), is
// what the kernel runs.
#ifndef TRIREME_BASE_PROGRAM_H
#define TRIREME_BASE_PROGRAM_H

#include <limits.h>
#include <stdbool.h>

// The file that the main program was loaded from. False: the system does not tell.
bool tri_program_file(char out[PATH_MAX]);
// The file to execute, to start this program again: that file, or the starter of its bundle
// (bin/NAME beside libexec/NAME). False: the system does not tell.
bool tri_program_start(char out[PATH_MAX]);
// Cuts a path's last component off. False: there is none.
bool tri_program_folder(char *path);

#endif
