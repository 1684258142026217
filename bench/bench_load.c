/* bench_load: many clients of `prevue serve` at once, on the loopback interface.
 *
 *   bench_load --port N --bodies FILE [--clients 1,8,64] [--seconds S] [--requests N] [--pid N]
 *              [--label TEXT]
 *
 * FILE has one request of /v1/chat/completions per line, with "stream": true. First each request is
 * sent alone; its answer is the reference from then on. Then, for each number of clients, that many
 * connections send one request after the other, for --seconds or --requests each. An answer is
 * wrong if its token ids differ from the reference; it is lost if the connection ends before
 * "[DONE]" or the status is not 200. With --pid, the server's resident memory is reported: at the
 * beginning, halfway, and its peak.
 *
 *   label,clients,answers,lost,wrong,tokens_s,first_p50_ms,first_p99_ms,interval_p50_ms,
 *   interval_p99_ms,rss_begin_mib,rss_half_mib,rss_peak_mib
 *
 * An interval is the time between two deliveries of tokens; `first` is the time from the request to
 * the first delivery. The exit status is 1 if an answer was lost or wrong. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MAX_BODIES = 256, MAX_CLIENTS = 4096, IDS_SIZE = 1 << 14, LINE_SIZE = 1 << 16 };
enum { GRACE_SECONDS = 120 }; /* for answers that are still running at the end */

/* The body of a reply comes in chunks: SIZE CR LF DATA CR LF. */
enum chunk_state { REPLY_HEAD, CHUNK_SIZE, CHUNK_DATA, CHUNK_END, REPLY_END };

struct client {
    int fd, body;
    enum chunk_state state;
    size_t left;     /* bytes left of the chunk */
    size_t sent;     /* bytes sent of the request */
    bool final;      /* this is the last chunk */
    char frame[256]; /* a line of the head or of the framing; long ones are cut */
    size_t frame_len;
    char *line; /* [LINE_SIZE], of the stream */
    size_t line_len;
    char ids[IDS_SIZE]; /* received so far, comma-separated */
    size_t ids_len;
    bool ok, done;
    double asked, last; /* times; last is 0 before the first token */
    int answers;
};

struct series {
    double *v;
    size_t n, cap;
};

struct run {
    int port, epoll, n_clients, live;
    long pid;
    char *request[MAX_BODIES];
    size_t request_len[MAX_BODIES];
    char *expected[MAX_BODIES]; /* NULL: not known yet */
    int n_bodies, next_body;
    struct series first, interval;
    long answers, lost, wrong, tokens;
    double until; /* no new requests after this time */
    int most;     /* most requests per client; 0: no limit */
    bool told;    /* a wrong or lost answer has been reported */
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void refuse(const char *what)
{
    fprintf(stderr, "bench_load: %s; usage: see the head of bench/bench_load.c\n", what);
    exit(2);
}

static void add(struct series *s, double v)
{
    if (s->n == s->cap) {
        s->cap = s->cap ? 2 * s->cap : 4096;
        s->v = realloc(s->v, s->cap * sizeof *s->v);
        if (!s->v)
            refuse("out of memory");
    }
    s->v[s->n++] = v;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(struct series *s, double q)
{
    if (s->n == 0)
        return 0;
    qsort(s->v, s->n, sizeof *s->v, compare);
    return s->v[(size_t)(q * (double)(s->n - 1))];
}

/* Resident memory of the server in MiB. */
static double resident(long pid)
{
    char path[64], line[256];
    long kib = 0;
    FILE *f;
    if (!pid)
        return 0;
    snprintf(path, sizeof path, "/proc/%ld/status", pid);
    f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, "VmRSS:", 6))
            kib = strtol(line + 6, NULL, 10);
    if (f)
        fclose(f);
    return (double)kib / 1024;
}

/* ---- requests ---- */

static void read_bodies(struct run *r, const char *path)
{
    FILE *f = fopen(path, "r");
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    if (!f)
        refuse("--bodies cannot be read");
    for (n = getline(&line, &cap, f); n > 0 && r->n_bodies < MAX_BODIES;
         n = getline(&line, &cap, f)) {
        size_t room = (size_t)n + 256;
        char *text = malloc(room);
        if (n < 3 || !text)
            continue;
        r->request_len[r->n_bodies] = (size_t)snprintf(
            text, room,
            "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
            "application/json\r\nContent-Length: %zd\r\n\r\n%s",
            n, line);
        r->request[r->n_bodies++] = text;
    }
    free(line);
    fclose(f);
    if (r->n_bodies == 0)
        refuse("--bodies has no request");
}

static void watch(struct run *r, struct client *c, int what)
{
    struct epoll_event e = { .events = EPOLLIN | (c->sent < r->request_len[c->body] ? EPOLLOUT : 0),
                             .data.ptr = c };
    epoll_ctl(r->epoll, what, c->fd, &e);
}

static void ask(struct run *r, struct client *c, int body)
{
    c->body = body;
    c->state = REPLY_HEAD;
    c->sent = c->line_len = c->frame_len = c->ids_len = 0;
    c->ids[0] = 0;
    c->ok = c->done = false;
    c->asked = now();
    c->last = 0;
    watch(r, c, EPOLL_CTL_MOD);
}

static bool open_client(struct run *r, struct client *c)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)r->port) };
    struct epoll_event e = { .data.ptr = c };
    int on = 1;
    c->line = c->line ? c->line : malloc(LINE_SIZE);
    if (!c->line)
        refuse("out of memory");
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&a, sizeof a) != 0)
        return false;
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    epoll_ctl(r->epoll, EPOLL_CTL_ADD, c->fd, &e);
    r->live++;
    return true;
}

static void close_client(struct run *r, struct client *c)
{
    if (c->fd < 0)
        return;
    close(c->fd);
    c->fd = -1;
    r->live--;
}

/* ---- replies ---- */

static void complain(struct run *r, const char *what, const char *text)
{
    if (!r->told)
        fprintf(stderr, "bench_load: %s: %.300s\n", what, text);
    r->told = true;
}

/* Process a line of the stream. */
static void take_line(struct run *r, struct client *c)
{
    const char *at = strstr(c->line, "\"ids\":[");
    double t = now();
    if (!strncmp(c->line, "data: [DONE]", 12))
        c->done = true;
    if (strstr(c->line, "\"error\":"))
        complain(r, "an error", c->line);
    if (!at || at[7] == ']')
        return;
    for (at += 7; *at && *at != ']' && c->ids_len + 2 < IDS_SIZE; at++) {
        c->ids[c->ids_len++] = *at;
        r->tokens += *at == ',';
    }
    c->ids[c->ids_len++] = ',';
    c->ids[c->ids_len] = 0;
    r->tokens++;
    add(c->last > 0 ? &r->interval : &r->first, t - (c->last > 0 ? c->last : c->asked));
    c->last = t;
}

/* Process a line of the HTTP head, or of the chunk framing. */
static void take_frame(struct run *r, struct client *c)
{
    size_t n = c->frame_len;
    c->frame[n > 0 && c->frame[n - 1] == '\r' ? n - 1 : n] = 0;
    c->frame_len = 0;
    if (c->state == REPLY_HEAD) {
        if (!strncmp(c->frame, "HTTP/1.1 ", 9)) {
            c->ok = !strncmp(c->frame + 9, "200", 3);
            if (!c->ok)
                complain(r, "a refusal", c->frame);
        }
        if (c->frame[0] == 0)
            c->state = c->ok ? CHUNK_SIZE : REPLY_END;
    } else if (c->state == CHUNK_SIZE) {
        c->left = strtoul(c->frame, NULL, 16);
        c->final = c->left == 0;
        c->state = c->final ? CHUNK_END : CHUNK_DATA;
    } else {
        c->state = c->final ? REPLY_END : CHUNK_SIZE;
    }
}

static void take_char(struct run *r, struct client *c, char ch)
{
    if (c->state != CHUNK_DATA) {
        if (ch == '\n')
            take_frame(r, c);
        else if (c->frame_len + 1 < sizeof c->frame)
            c->frame[c->frame_len++] = ch;
        return;
    }
    if (ch == '\n') {
        c->line[c->line_len] = 0;
        take_line(r, c);
        c->line_len = 0;
    } else if (c->line_len + 1 < LINE_SIZE) {
        c->line[c->line_len++] = ch;
    }
    c->left--;
    if (c->left == 0)
        c->state = CHUNK_END;
}

/* The answer is complete: compare it with the reference. */
static void judge(struct run *r, struct client *c)
{
    r->answers++;
    c->answers++;
    if (!c->ok || !c->done) {
        r->lost++;
        return;
    }
    if (!r->expected[c->body])
        r->expected[c->body] = strdup(c->ids);
    else if (strcmp(r->expected[c->body], c->ids) != 0) {
        complain(r, "other ids than alone", c->ids);
        r->wrong++;
    }
}

static void lose(struct run *r, struct client *c)
{
    r->lost++;
    r->answers++;
    complain(r, "a connection was lost", strerror(errno));
    close_client(r, c);
}

static void take(struct run *r, struct client *c)
{
    char data[1 << 14];
    ssize_t n = read(c->fd, data, sizeof data);
    if (n < 0 && errno == EAGAIN)
        return;
    if (n <= 0) {
        lose(r, c);
        return;
    }
    for (ssize_t i = 0; i < n && c->state != REPLY_END; i++)
        take_char(r, c, data[i]);
    if (c->state != REPLY_END)
        return;
    judge(r, c);
    if (!c->ok || now() >= r->until || (r->most && c->answers >= r->most))
        close_client(r, c);
    else
        ask(r, c, r->next_body++ % r->n_bodies);
}

static void send_more(struct run *r, struct client *c)
{
    const char *text = r->request[c->body];
    ssize_t n = send(c->fd, text + c->sent, r->request_len[c->body] - c->sent, MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN) {
        lose(r, c);
        return;
    }
    c->sent += n > 0 ? (size_t)n : 0;
    if (c->sent == r->request_len[c->body])
        watch(r, c, EPOLL_CTL_MOD);
}

/* ---- a run ---- */

/* Resident memory in the middle of the time for requests, and its peak. */
struct memory {
    double half, peak;
};

static struct memory serve_events(struct run *r, double end)
{
    struct epoll_event e[256];
    struct memory m = { 0 };
    double begin = now(), looked = 0;
    while (r->live > 0 && now() < end) {
        int n = epoll_wait(r->epoll, e, 256, 200);
        for (int i = 0; i < n; i++) {
            struct client *c = e[i].data.ptr;
            if (c->fd >= 0 && e[i].events & EPOLLOUT)
                send_more(r, c);
            if (c->fd >= 0 && e[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
                take(r, c);
        }
        if (now() - looked > 0.5) {
            double rss = resident(r->pid);
            looked = now();
            m.peak = rss > m.peak ? rss : m.peak;
            m.half = looked < (begin + r->until) / 2 ? rss : m.half;
        }
    }
    return m;
}

static void run_clients(struct run *r, struct client *clients, int n, double seconds,
                        const char *label)
{
    struct memory m;
    double begin, rss = resident(r->pid), took;
    r->answers = r->lost = r->wrong = r->tokens = 0;
    r->first.n = r->interval.n = 0;
    begin = now();
    r->until = begin + seconds;
    for (int i = 0; i < n; i++) {
        clients[i].answers = 0;
        clients[i].fd = -1;
        if (!open_client(r, &clients[i])) {
            r->lost++;
            complain(r, "no connection", strerror(errno));
            continue;
        }
        ask(r, &clients[i], r->next_body++ % r->n_bodies);
    }
    m = serve_events(r, r->until + GRACE_SECONDS);
    took = now() - begin;
    for (int i = 0; i < n; i++) {
        r->lost += clients[i].fd >= 0;
        close_client(r, &clients[i]);
    }
    printf("%s,%d,%ld,%ld,%ld,%.1f,%.1f,%.1f,%.2f,%.2f,%.0f,%.0f,%.0f\n", label, n, r->answers,
           r->lost, r->wrong, (double)r->tokens / took, 1e3 * quantile(&r->first, 0.5),
           1e3 * quantile(&r->first, 0.99), 1e3 * quantile(&r->interval, 0.5),
           1e3 * quantile(&r->interval, 0.99), rss, m.half, m.peak);
    fflush(stdout);
}

/* Send each request alone, to get the reference answers. */
static bool ask_alone(struct run *r, struct client *c)
{
    r->most = 1;
    r->until = now() + 1e9;
    for (int i = 0; i < r->n_bodies; i++) {
        c->fd = -1;
        c->answers = 0;
        if (!open_client(r, c))
            return false;
        ask(r, c, i);
        serve_events(r, now() + GRACE_SECONDS);
        if (!r->expected[i])
            return false;
    }
    return r->lost == 0;
}

int main(int argc, char **argv)
{
    static struct run r;
    const char *bodies = NULL, *clients = "1,8,64", *label = "load";
    struct rlimit files = { 8192, 8192 };
    struct client *c;
    double seconds = 10;
    int requests = 0;
    long bad = 0;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--port"))
            r.port = (int)strtol(argv[i + 1], NULL, 10);
        else if (!strcmp(argv[i], "--bodies"))
            bodies = argv[i + 1];
        else if (!strcmp(argv[i], "--clients"))
            clients = argv[i + 1];
        else if (!strcmp(argv[i], "--seconds"))
            seconds = strtod(argv[i + 1], NULL);
        else if (!strcmp(argv[i], "--requests"))
            requests = (int)strtol(argv[i + 1], NULL, 10);
        else if (!strcmp(argv[i], "--pid"))
            r.pid = strtol(argv[i + 1], NULL, 10);
        else if (!strcmp(argv[i], "--label"))
            label = argv[i + 1];
        else
            refuse("unknown option");
    }
    if (!r.port || !bodies)
        refuse("--port and --bodies are needed");
    setrlimit(RLIMIT_NOFILE, &files);
    read_bodies(&r, bodies);
    r.epoll = epoll_create1(0);
    c = calloc(MAX_CLIENTS, sizeof *c);
    if (!c || !ask_alone(&r, c)) {
        fprintf(stderr, "bench_load: a request was not answered alone\n");
        return 1;
    }
    r.most = requests;
    for (const char *at = clients; at; at = strchr(at, ',')) {
        int n = (int)strtol(at + (*at == ','), NULL, 10);
        at += *at == ',';
        if (n < 1 || n > MAX_CLIENTS)
            refuse("--clients has numbers from 1 to 4096");
        run_clients(&r, c, n, requests ? 1e6 : seconds, label);
        bad += r.lost + r.wrong;
    }
    return bad > 0;
}
