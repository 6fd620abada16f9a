// Files of measured choices: one for each key, named after the key's hash. (A key is a line of text
// that names the device, the library and what is computed; a choice says how it is computed.) A
// file holds the key, the choice and a checksum, so that a damaged file is recognised and replaced.
// It is written under a temporary name and then linked to its own name, which fails if the name
// exists: so of several processes that measure at the same time, the first one decides for all,
// also over NFS.
#include "device/cuda/module/choices.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

namespace {

uint64_t hash_of(const std::string &text) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (char c : text) hash = (hash ^ (unsigned char)c) * 0x100000001b3u;
    return hash;
}

std::string hex(uint64_t value) {
    char text[20];
    snprintf(text, sizeof text, "%016" PRIx64, value);
    return text;
}

std::string path_of(const std::string &key) {
    return std::string(choices_folder()) + "/" + hex(hash_of(key)) + ".choice";
}

// Returns the contents of a choice's file: the key, the choice, and the hash of both.
std::string text_of(const std::string &key, const choice &c) {
    std::string text = key + "\n";
    for (uint64_t word : c) text += hex(word) + " ";
    return text + "\n" + hex(hash_of(text)) + "\n";
}

tri_status failed(const std::string &path, char *why) {
    snprintf(why, CUDA_WHY_BYTES, "TRIREME_CUDA_CHOICES: cannot write %s: %s", path.c_str(),
             strerror(errno));
    return TRI_INTERNAL;
}

// Writes `text` into a new file. *path is a template as mkstemp takes it, and becomes the file's
// path.
bool write_file(std::string *path, const std::string &text) {
    int fd = mkstemp(path->data());
    if (fd < 0) return false;
    bool good = write(fd, text.data(), text.size()) == (ssize_t)text.size() && fsync(fd) == 0;
    return close(fd) == 0 && good;
}

} // namespace

const char *choices_folder() {
    const char *folder = getenv("TRIREME_CUDA_CHOICES");
    return folder && *folder ? folder : nullptr;
}

bool choices_read(const std::string &key, choice *out) {
    char data[4096];
    FILE *file = fopen(path_of(key).c_str(), "r");
    if (!file) return false;
    std::string text(data, fread(data, 1, sizeof data, file));
    (void)fclose(file);
    if (text.compare(0, key.size() + 1, key + "\n") != 0) return false;
    const char *at = text.c_str() + key.size() + 1;
    choice found;
    while (*at && *at != '\n') {
        char *end;
        found.push_back(strtoull(at, &end, 16));
        if (*end != ' ') return false;
        at = end + 1;
    }
    if (text != text_of(key, found)) return false;
    *out = found;
    return true;
}

tri_status choices_write(const std::string &key, choice *own, char *why) {
    std::string path = path_of(key), temporary = path + ".XXXXXX";
    if (!write_file(&temporary, text_of(key, *own))) {
        tri_status status = failed(temporary, why);
        (void)unlink(temporary.c_str());
        return status;
    }
    bool is_first = link(temporary.c_str(), path.c_str()) == 0;
    // If a file of this name exists, it either holds the choice of another process, which is taken,
    // or is damaged and is replaced.
    bool is_done = is_first || (errno == EEXIST && choices_read(key, own)) ||
                   rename(temporary.c_str(), path.c_str()) == 0;
    tri_status status = is_done ? TRI_OK : failed(path, why);
    (void)unlink(temporary.c_str());
    return status;
}

tri_status choices_refuse(const std::string &key, char *why) {
    snprintf(why, CUDA_WHY_BYTES,
             "TRIREME_CUDA_CHOICES: the library cannot compute as %s says: remove this file",
             path_of(key).c_str());
    return TRI_INTERNAL;
}

int choices_fastest(int count, const std::function<double(int)> &seconds_of) {
    const double worth = 0.98;
    double least = 0;
    int best = -1;
    for (int i = 0; i < count; i++) {
        double seconds = seconds_of(i);
        if (seconds < 0 || (best >= 0 && seconds >= worth * least)) continue;
        best = i;
        least = seconds;
    }
    return best;
}
