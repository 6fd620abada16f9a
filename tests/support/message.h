// Checks messages by what has to be in them: file, key, number, name. The sentence around these may
// be rewritten at any time.
#ifndef TRIREME_TESTS_SUPPORT_MESSAGE_H
#define TRIREME_TESTS_SUPPORT_MESSAGE_H

#include <stdbool.h>

// Fails the test unless `message` has all parts, each as whole words, in this order. The parts are
// separated by '|', as in "r.yaml:2|part.count|1|1000|12.5": "112.5" has no part "12.5".
void message_check(const char *message, const char *parts);
// The same as an answer: for processes in which no test of cmocka runs.
bool message_has(const char *message, const char *parts);

#endif
