// The module `download`: gets files over HTTPS by libcurl.
#include "data/download/download.h"

#include "base/module.h"

#include <curl/curl.h>
#include <stdio.h>
#include <string.h>

enum {
    CONNECT_S = 30,
    SILENT_S = 60, // a connection without any bytes for so long is given up
    MAX_REDIRECTS = 5,
    REST = 206, // answers of HTTP: the bytes from the asked place on; there are none
    OUT_OF_RANGE = 416,
};

typedef struct transfer {
    const tri_download_job *job;
    CURL *curl;
    bool has_begun;
    tri_status status; // of the job's functions
} transfer;

// libcurl has seen all headers when the first bytes come.
static tri_status begin(transfer *t) {
    long code = 0;
    curl_off_t length = -1;
    curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &code);
    curl_easy_getinfo(t->curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    bool is_rest = code == REST;
    int64_t total = length < 0 ? -1 : (int64_t)length + (is_rest ? t->job->from_bytes : 0);
    t->has_begun = true;
    return t->job->begin(t->job->context, is_rest, total);
}

static size_t take(char *bytes, size_t one, size_t size, void *context) {
    transfer *t = context;
    if (!t->has_begun) t->status = begin(t);
    if (t->status == TRI_OK) t->status = t->job->write(t->job->context, bytes, size);
    return t->status == TRI_OK ? size : 0;
}

static bool set_options(transfer *t, char *error) {
    const tri_download_job *job = t->job;
    CURL *c = t->curl;
    CURLcode code = CURLE_OK;
#define SET(option, value)                                                                         \
    if (code == CURLE_OK) code = curl_easy_setopt(c, option, value)
    SET(CURLOPT_ERRORBUFFER, error);
    SET(CURLOPT_PROTOCOLS_STR, "https");
    SET(CURLOPT_REDIR_PROTOCOLS_STR, "https");
    SET(CURLOPT_URL, job->url);
    SET(CURLOPT_FOLLOWLOCATION, 1L);
    SET(CURLOPT_MAXREDIRS, (long)MAX_REDIRECTS);
    SET(CURLOPT_FAILONERROR, 1L);
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
    SET(CURLOPT_LOW_SPEED_LIMIT, 1L);
    SET(CURLOPT_LOW_SPEED_TIME, (long)SILENT_S);
    SET(CURLOPT_USERAGENT, "trireme");
    SET(CURLOPT_WRITEFUNCTION, take);
    SET(CURLOPT_WRITEDATA, t);
    if (job->ca_file) SET(CURLOPT_CAINFO, job->ca_file);
    if (job->from_bytes > 0) SET(CURLOPT_RESUME_FROM_LARGE, (curl_off_t)job->from_bytes);
#undef SET
    return code == CURLE_OK;
}

// A connection that breaks, or bytes that do not come, may be better the next time.
static bool is_interruption(CURLcode code) {
    return code == CURLE_PARTIAL_FILE || code == CURLE_RECV_ERROR || code == CURLE_SEND_ERROR ||
           code == CURLE_GOT_NOTHING || code == CURLE_HTTP2 || code == CURLE_HTTP2_STREAM;
}

static tri_status get(const tri_download_job *job, char *why) {
    char error[CURL_ERROR_SIZE] = "";
    transfer t = {.job = job, .curl = curl_easy_init()};
    if (!t.curl || !set_options(&t, error)) {
        snprintf(why, TRI_DOWNLOAD_WHY_BYTES, "libcurl refuses: %s", error);
        curl_easy_cleanup(t.curl);
        return TRI_UNSUPPORTED;
    }
    CURLcode code = curl_easy_perform(t.curl);
    long answer = 0;
    curl_easy_getinfo(t.curl, CURLINFO_RESPONSE_CODE, &answer);
    // libcurl takes this for a file that is complete; it may be a shorter one.
    if (code == CURLE_OK && answer == OUT_OF_RANGE) code = CURLE_RANGE_ERROR;
    // An empty file has no bytes at which it could begin.
    if (code == CURLE_OK && !t.has_begun) t.status = begin(&t);
    curl_easy_cleanup(t.curl);
    if (t.status != TRI_OK || code == CURLE_OK) return t.status;
    snprintf(why, TRI_DOWNLOAD_WHY_BYTES, "%s", error[0] ? error : curl_easy_strerror(code));
    bool may_come = is_interruption(code) || (code == CURLE_OPERATION_TIMEDOUT && t.has_begun);
    return may_come ? TRI_IO : TRI_NOT_FOUND;
}

static const tri_download table = {.get = get};

TRI_MODULE(TRI_DOWNLOAD_INTERFACE, TRI_DOWNLOAD_ABI, "download", &table);
