/* Fetching with libcurl. Its types stay here. Every connection passes open_socket, which sees the
 * address after name resolution: a name that leads into a private network is refused, whatever it
 * said a moment before. Redirects are followed by us, so that each host is checked like the first.
 */
#include "remote.h"

#include "base/buf.h"
#include "base/mem.h"
#include "remote_rules.h"

#include <curl/curl.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MAX_REDIRECTS = 3, FETCH_SECONDS = 30, CONNECT_SECONDS = 10, SLOW_BYTES = 1 << 10 };

struct fetch {
    struct buf body;
    uint64_t limit; /* bytes of `body` */
    const atomic_bool *left;
    bool refused;  /* a private address */
    bool too_long; /* more than `limit` */
    int no_socket; /* errno: none could be made */
};

static curl_socket_t open_socket(void *user, curlsocktype purpose, struct curl_sockaddr *a)
{
    struct fetch *f = user;
    int fd;
    if (purpose != CURLSOCKTYPE_IPCXN || !remote_address_public(&a->addr)) {
        f->refused = true;
        return CURL_SOCKET_BAD;
    }
    fd = socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
    if (fd < 0)
        f->no_socket = errno;
    return fd;
}

static size_t take(char *data, size_t size, size_t n, void *user)
{
    struct fetch *f = user;
    f->too_long = size * n > f->limit - f->body.len;
    return !f->too_long && buf_add(&f->body, data, size * n) ? size * n : 0;
}

static int go_on(void *user, curl_off_t total, curl_off_t done, curl_off_t up_total, curl_off_t up)
{
    struct fetch *f = user;
    (void)total;
    (void)done;
    (void)up_total;
    (void)up;
    return atomic_load(f->left);
}

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void start_library(void)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

static void configure(CURL *c, struct fetch *f)
{
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(c, CURLOPT_PROXY, ""); /* not even one of the environment */
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(c, CURLOPT_TIMEOUT, (long)FETCH_SECONDS);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_SECONDS);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, (long)SLOW_BYTES);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, (long)CONNECT_SECONDS);
    curl_easy_setopt(c, CURLOPT_MAXFILESIZE_LARGE, (curl_off_t)f->limit);
    curl_easy_setopt(c, CURLOPT_USERAGENT, "prevue");
    curl_easy_setopt(c, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    curl_easy_setopt(c, CURLOPT_OPENSOCKETDATA, f);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, f);
    curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, go_on);
    curl_easy_setopt(c, CURLOPT_XFERINFODATA, f);
}

/* `redirected`: the URL is another server's; no more than its host is told. */
static bool check_host(const char *url, const struct media_part *m, bool redirected,
                       const struct media_rules *rules, struct api_error *e)
{
    struct remote_host host;
    if (!remote_url_host(&host, url))
        return redirected ? api_fail(e, 400, "url",
                                     "%s is redirected to what is not an http(s) URL that can be "
                                     "fetched",
                                     m->name)
                          : api_fail(e, 400, "url",
                                     "\"%.100s\" is not an http(s) URL that can be fetched", url);
    if (!remote_host_allowed(&host, rules->domains, rules->n_domains))
        return api_fail(e, 400, "url", "media from the host %s, port %d, are not allowed here",
                        host.name, host.port);
    return true;
}

/* Why this process can open no socket now; 0: it can. Finding an address takes several. */
static int lack_of_sockets(void)
{
    enum { SOME = 6 };
    int fd[SOME], n = 0, why;
    for (; n < SOME; n++) {
        fd[n] = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (fd[n] < 0)
            break;
    }
    why = n < SOME ? errno : 0;
    while (n > 0)
        close(fd[--n]);
    return why;
}

static const struct {
    CURLcode code;
    const char *why;
} reasons[] = {
    { CURLE_COULDNT_RESOLVE_HOST, "no address of its host was found" },
    { CURLE_COULDNT_CONNECT, "its server takes no connection" },
    { CURLE_OPERATION_TIMEDOUT, "its server took too long" },
    { CURLE_GOT_NOTHING, "its server closed the connection before the end" },
    { CURLE_PARTIAL_FILE, "its server closed the connection before the end" },
    { CURLE_RECV_ERROR, "its server closed the connection before the end" },
    { CURLE_SEND_ERROR, "its server closed the connection before the end" },
    { CURLE_PEER_FAILED_VERIFICATION, "the certificate of its server is not valid" },
    { CURLE_SSL_CONNECT_ERROR, "no TLS connection to its server could be made" },
    { CURLE_WEIRD_SERVER_REPLY, "its server does not answer in HTTP" },
    { CURLE_UNSUPPORTED_PROTOCOL, "its server does not answer in HTTP" },
};

/* Addresses are not told: which ones a name has may be known to this network alone. */
static bool explain(CURLcode rc, const struct fetch *f, const char *name, struct api_error *e)
{
    const char *why = curl_easy_strerror(rc);
    int lack = f->no_socket;
    if (f->refused)
        return api_fail(e, 400, "url", "%s leads to an address that is not public", name);
    if (rc == CURLE_FILESIZE_EXCEEDED || f->too_long)
        return api_fail(e, 400, "url", "%s is longer than %llu bytes", name,
                        (unsigned long long)f->limit);
    if (rc == CURLE_COULDNT_RESOLVE_HOST)
        lack = lack_of_sockets();
    if (lack && status_of_errno(lack) == PV_E_NOMEM)
        return api_fail(e, 503, "url", "%s cannot be fetched now: %s", name, strerror(lack));
    if (rc == CURLE_OUT_OF_MEMORY || f->body.failed)
        return api_fail(e, 503, "url", "%s cannot be fetched now: out of memory", name);
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (reasons[i].code == rc)
            why = reasons[i].why;
    return api_fail(e, 400, "url", "%s cannot be fetched: %s", name, why);
}

/* Follows redirects up to the file itself. */
static bool follow(CURL *c, struct media_part *m, struct fetch *f, const struct media_rules *rules,
                   struct api_error *e)
{
    for (int i = 0; i <= MAX_REDIRECTS; i++) {
        char *next = NULL;
        long status = 0;
        CURLcode rc;
        if (!check_host(m->url, m, i > 0, rules, e))
            return false;
        buf_reset(&f->body);
        curl_easy_setopt(c, CURLOPT_URL, m->url);
        rc = curl_easy_perform(c);
        if (rc)
            return explain(rc, f, m->name, e);
        curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &status);
        curl_easy_getinfo(c, CURLINFO_REDIRECT_URL, &next);
        if (status == 200)
            return true;
        if (!next)
            return api_fail(e, 400, "url",
                            "%s cannot be fetched: its server answers with status %ld", m->name,
                            status);
        mem_free(m->url);
        m->url = mem_strdup(next);
        if (!m->url)
            return api_fail(e, 503, NULL, "out of memory for a URL");
    }
    return api_fail(e, 400, "url", "%s is redirected more than %d times", m->name, MAX_REDIRECTS);
}

bool remote_fetch(struct media_part *m, const struct media_rules *rules, const atomic_bool *left,
                  struct api_error *e)
{
    struct fetch f = { .limit = rules->limit, .left = left };
    CURL *c;
    bool ok;
    if (!m->url)
        return true;
    pthread_once(&once, start_library);
    c = curl_easy_init();
    if (!c)
        return api_fail(e, 503, NULL, "out of memory to fetch a media file");
    buf_init(&f.body, rules->limit);
    configure(c, &f);
    ok = follow(c, m, &f, rules, e);
    curl_easy_cleanup(c);
    if (!ok) {
        buf_clear(&f.body);
        return false;
    }
    m->data = (uint8_t *)f.body.data;
    m->size = f.body.len;
    return true;
}

const char *remote_library(void)
{
    return curl_version();
}
