// Notes which memory of a device is read, and which is written, by the work that this thread starts
// on the device. So a test finds out which actions must not run at the same time (held_run.h).
#ifndef TESTS_SUPPORT_DEVICE_NOTES_H
#define TESTS_SUPPORT_DEVICE_NOTES_H

#include "device/device.h"

enum { DEVICE_NOTES_RANGES = 224 };

typedef struct device_range {
    const char *from, *end;
    bool writes;
} device_range;

typedef struct device_notes {
    int count;
    device_range ranges[DEVICE_NOTES_RANGES];
} device_notes;

extern _Thread_local device_notes *device_notes_now; // this thread's notes; NULL: it notes nothing

// Makes the functions of the backend, and its kernel, note which memory they read and write. The
// backend must have a single kernel definition that runs all ops, as the test device `far` does. To
// be called once in a program.
void device_notes_add(tri_device_backend *backend);
void device_note(const void *memory, size_t size_bytes, bool writes);
// Whether there is a byte that both lists of accesses touch and at least one of them writes.
bool device_notes_conflict(const device_notes *a, const device_notes *b);

#endif
