/* A hostile client, for tests of `prevue serve`: many connections at once that send parts of
 * requests, damaged ones too, in random pieces, read replies or do not, and leave in random ways.
 *
 *   hostile_client PORT SECONDS SEED
 *
 * What it does depends on the seed; in which order the server meets it also on time. Prints counts.
 * Fails if the server takes no connection, or does not answer a request within 20 s at the end. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CONNECTIONS = 24, REQUEST = 4096, MOST_REQUESTS = 4 };

struct connection {
    int fd; /* -1: none */
    char out[MOST_REQUESTS * REQUEST];
    size_t size, sent;
    bool reads;
};

static const struct {
    const char *head, *body;
} requests[] = {
    { "GET /health HTTP/1.1\r\nHost: localhost\r\n", "" },
    { "GET /v1/files HTTP/1.1\r\nHost: localhost\r\n", "" },
    { "GET /metrics HTTP/1.1\r\nHost: localhost\r\n", "" },
    { "GET / HTTP/1.1\r\nHost: localhost\r\n", "" },
    { "GET /v1/files/sample-16-frames/content HTTP/1.1\r\nHost: localhost\r\n", "" },
    { "GET /v1/files/sample-16-frames/frames?num_frames=2 HTTP/1.1\r\nHost: localhost\r\n", "" },
    { "DELETE /v1/files/file-000000000000000000000000 HTTP/1.1\r\nHost: localhost\r\n", "" },
    { "OPTIONS /v1/models HTTP/1.1\r\nHost: localhost\r\nOrigin: http://x\r\n", "" },
    { "POST /tokenize HTTP/1.1\r\nHost: localhost\r\n", "{\"prompt\":\"some text\"}" },
    { "POST /detokenize HTTP/1.1\r\nHost: localhost\r\n", "{\"tokens\":[1,2,3]}" },
    { "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n",
      "{\"stream\":true,\"max_tokens\":30,\"ignore_eos\":true,\"messages\":[{\"role\":\"user\","
      "\"content\":\"Go on.\"}]}" },
    { "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n",
      "{\"n\":2,\"max_tokens\":8,\"messages\":[{\"role\":\"user\",\"content\":\"Go on.\"}]}" },
    { "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n",
      "{\"max_tokens\":2,\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"video_url\","
      "\"video_url\":{\"url\":\"sample-16-frames\",\"num_frames\":2}}]}]}" },
    { "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n",
      "{\"prompt\":[870,338],\"max_tokens\":5,\"logprobs\":2}" },
    { "POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; "
      "boundary=b\r\n",
      "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"x\"\r\n\r\nbytes\r\n"
      "--b--\r\n" },
};

static uint64_t state;
static int port;
static long n_opened, n_written, n_read;

/* xorshift64*: a number below n. */
static unsigned below(unsigned n)
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (unsigned)((state * 0x2545F4914F6CDD1DULL) >> 33) % n;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int connect_to(void)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((unsigned short)port) };
    int fd = socket(AF_INET, SOCK_STREAM, 0), small = 4096;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (below(4) == 0)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a) != 0) {
        perror("hostile_client: connect");
        exit(1);
    }
    return fd;
}

static size_t add_request(char *to)
{
    unsigned which = below(sizeof requests / sizeof *requests);
    const char *head = requests[which].head, *body = requests[which].body;
    size_t n = strlen(body);
    if (!n)
        n = (size_t)snprintf(to, REQUEST, "%s\r\n", head);
    else if (below(3) == 0)
        n = (size_t)snprintf(to, REQUEST,
                             "%sTransfer-Encoding: chunked\r\n\r\n%zx\r\n%s\r\n0\r\n\r\n", head, n,
                             body);
    else /* sometimes of another length */
        n = (size_t)snprintf(to, REQUEST, "%sContent-Length: %zu\r\n\r\n%s", head,
                             below(8) ? n : below(2 * (unsigned)n), body);
    for (unsigned k = below(3) ? 0 : 1 + below(3); k > 0; k--)
        to[below((unsigned)n)] = (char)below(256);
    return n;
}

static void begin(struct connection *c)
{
    *c = (struct connection){ .fd = connect_to(), .reads = below(5) > 0 };
    for (unsigned k = 1 + below(MOST_REQUESTS); k > 0; k--)
        c->size += add_request(c->out + c->size);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    n_opened++;
}

static void leave(struct connection *c)
{
    struct linger at_once = { .l_onoff = 1 };
    if (below(2)) /* a reset */
        setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(c->fd);
    c->fd = -1;
}

static void step(struct connection *c)
{
    char data[2048];
    ssize_t n = 1;
    if (c->fd < 0) {
        begin(c);
        return;
    }
    if (c->sent < c->size && below(3) > 0) {
        size_t some = 1 + below(below(2) ? 3 : 400), left = c->size - c->sent;
        n = send(c->fd, c->out + c->sent, some < left ? some : left, MSG_NOSIGNAL);
        c->sent += n > 0 ? (size_t)n : 0;
        n_written += n > 0 ? n : 0;
    } else if (c->reads) {
        n = recv(c->fd, data, 1 + below(sizeof data), 0);
        n_read += n > 0 ? n : 0;
        n = n == 0 ? 0 : 1;
    }
    if (below(400) == 0)
        shutdown(c->fd, SHUT_WR);
    if (n == 0 || below(300) == 0)
        leave(c);
}

/* The server still answers. */
static bool answers(void)
{
    static const char ask[] = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
    char data[16] = "";
    int fd = connect_to();
    struct pollfd p = { .fd = fd, .events = POLLIN };
    bool good = send(fd, ask, sizeof ask - 1, MSG_NOSIGNAL) == (ssize_t)sizeof ask - 1 &&
                poll(&p, 1, 20000) == 1 && recv(fd, data, 12, MSG_WAITALL) == 12 &&
                !memcmp(data, "HTTP/1.1 200", 12);
    close(fd);
    return good;
}

int main(int argc, char **argv)
{
    static struct connection all[CONNECTIONS];
    double until;
    bool good;
    if (argc != 4)
        return 2;
    port = (int)strtol(argv[1], NULL, 10);
    until = now() + strtod(argv[2], NULL);
    state = strtoull(argv[3], NULL, 10) * 2 + 1;
    for (int i = 0; i < CONNECTIONS; i++)
        all[i].fd = -1;
    while (now() < until)
        step(&all[below(CONNECTIONS)]);
    for (int i = 0; i < CONNECTIONS; i++)
        if (all[i].fd >= 0)
            leave(&all[i]);
    good = answers();
    printf("%ld connections, %ld bytes written, %ld read, the server %s\n", n_opened, n_written,
           n_read, good ? "answers" : "does not answer");
    return !good;
}
