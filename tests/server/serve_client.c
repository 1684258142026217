/* A client that behaves badly, for the tests of `prevue serve`.
 *
 *   serve_client PORT slow-head SECONDS        one byte of the head each 0.2 s
 *   serve_client PORT slow-body FILE SECONDS   the head, then one byte of the body each 0.2 s
 *   serve_client PORT slow-read FILE SECONDS   the request, and then it reads nothing
 *   serve_client PORT vanish FILE BYTES        so many bytes of the request, then it closes; with
 *                                              BYTES 0 all of it, and it closes after the first
 *                                              bytes of the reply
 *   serve_client PORT timeouts FILE N SECONDS  N requests at once, which it leaves after SECONDS
 *   serve_client PORT raw FILE                 sends the bytes, prints the reply
 *
 * FILE holds a request with its head. The slow ones print for how many seconds the server bore
 * them, at most SECONDS. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int port;
static char *request;
static size_t request_size;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void die(const char *what)
{
    fprintf(stderr, "serve_client: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void pause_for(double seconds)
{
    struct timespec t = { (time_t)seconds, (long)(1e9 * (seconds - (double)(time_t)seconds)) };
    nanosleep(&t, NULL);
}

static int connect_to(int receive_buffer)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((unsigned short)port) };
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (receive_buffer)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a) != 0)
        die("connect");
    return fd;
}

static void read_request(const char *path)
{
    struct stat st;
    FILE *f = fopen(path, "rb");
    if (!f || fstat(fileno(f), &st) != 0)
        die(path);
    request_size = (size_t)st.st_size;
    request = malloc(request_size + 1);
    if (!request || fread(request, 1, request_size, f) != request_size)
        die(path);
    request[request_size] = 0;
    fclose(f);
}

/* False: the server has closed the connection. */
static bool send_all(int fd, const char *data, size_t size)
{
    while (size > 0) {
        ssize_t n = send(fd, data, size, MSG_NOSIGNAL);
        if (n <= 0)
            return false;
        data += n;
        size -= (size_t)n;
    }
    return true;
}

static bool is_closed(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };
    char c;
    if (poll(&p, 1, 0) <= 0)
        return false;
    return p.revents & (POLLERR | POLLHUP) || recv(fd, &c, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* One byte after the other. */
static void send_slowly(const char *data, size_t size, size_t at_once, double seconds)
{
    int fd = connect_to(0);
    double begin = now();
    size_t at = at_once;
    send_all(fd, data, at_once);
    while (now() - begin < seconds && !is_closed(fd) && send_all(fd, data + at % size, 1)) {
        at++;
        pause_for(0.2);
    }
    printf("%.1f\n", now() - begin);
    close(fd);
}

/* With a small buffer of its own, so that the server's fills. A server that gives up resets the
 * connection: sending to it fails then. */
static void read_nothing(double seconds)
{
    int fd = connect_to(4096);
    double begin = now();
    int error = 0;
    if (!send_all(fd, request, request_size))
        die("send");
    while (now() - begin < seconds && !error) {
        struct pollfd p = { .fd = fd, .events = 0 };
        pause_for(0.1);
        error = poll(&p, 1, 0) > 0 && p.revents & (POLLERR | POLLHUP);
    }
    printf("%.1f\n", now() - begin);
    close(fd);
}

static void vanish(size_t bytes)
{
    int fd = connect_to(0);
    char c;
    send_all(fd, request, bytes ? bytes : request_size);
    if (!bytes && read(fd, &c, 1) != 1)
        die("no reply");
    close(fd);
}

static void leave_many(int n, double seconds)
{
    int *fd = calloc((size_t)n, sizeof *fd);
    for (int i = 0; fd && i < n; i++) {
        fd[i] = connect_to(0);
        send_all(fd[i], request, request_size);
    }
    pause_for(seconds);
    for (int i = 0; fd && i < n; i++)
        close(fd[i]);
    free(fd);
}

static void exchange_raw(void)
{
    int fd = connect_to(0);
    char data[4096];
    struct timeval limit = { 10, 0 };
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    send_all(fd, request, request_size);
    for (ssize_t n = read(fd, data, sizeof data); n > 0; n = read(fd, data, sizeof data))
        fwrite(data, 1, (size_t)n, stdout);
    close(fd);
}

int main(int argc, char **argv)
{
    static const char head[] = "GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: ";
    const char *mode = argc > 2 ? argv[2] : "";
    const char *last = argc > 3 ? argv[argc - 1] : "0";
    const char *end;
    if (argc < 4)
        return 2;
    port = (int)strtol(argv[1], NULL, 10);
    if (!strcmp(mode, "slow-head")) {
        send_slowly(head, sizeof head - 1, sizeof head - 1, strtod(last, NULL));
        return 0;
    }
    read_request(argv[3]);
    end = strstr(request, "\r\n\r\n");
    if (!strcmp(mode, "slow-body"))
        send_slowly(request, request_size, end ? (size_t)(end + 4 - request) : 0,
                    strtod(last, NULL));
    else if (!strcmp(mode, "slow-read"))
        read_nothing(strtod(last, NULL));
    else if (!strcmp(mode, "vanish"))
        vanish(strtoul(last, NULL, 10));
    else if (!strcmp(mode, "timeouts") && argc > 5)
        leave_many((int)strtol(argv[4], NULL, 10), strtod(last, NULL));
    else if (!strcmp(mode, "raw"))
        exchange_raw();
    else
        return 2;
    return 0;
}
