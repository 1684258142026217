/* The helper process plays the bytes of the input to the library's side of the sandbox: right
 * messages, changed ones, too many, half a one, none. The functions of video/helper_process.h are
 * defined here, so there is no process and no socket. The library must never believe that there is
 * no sandbox, unless the first message says so; it must give no more than what was asked for,
 * within the limits, and must not look at samples that the helper can still change. */
#include "video/helper_process.h"
#include "video/media_wire.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PIXELS = 1 << 12, FRAMES = 8, SECONDS = 10, RATE = 16000, NOTHING = -1 };

/* An input is a byte that says what the library asks for, then steps. The lower half of a step's
 * byte is the kind of a message as it should be, with as many numbers changed as the upper half
 * says, or one of these. */
enum step {
    STEP_END = WIRE_KINDS + 1, /* the helper ends */
    STEP_SIZE,                 /* a message of another size: the next two bytes */
    STEP_SILENCE,              /* nothing for a while */
    STEP_STOP,                 /* the same, and the caller loses patience */
    STEP_EARLY,                /* the next message comes before the library asks */
    STEP_FILL                  /* the shared memory gets the next byte */
};

/* What an input says is changed: bytes [size] at `offset` of the message. */
struct change {
    uint8_t offset[2], size, value[8];
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct player {
    const uint8_t *p, *end;
    bool alive, stop, said_no_sandbox;
    int n_messages, at;
    struct wire_read read; /* what was asked for */
    int fd;                /* the shared memory; NOTHING: none */
} player;

static const int64_t wanted[] = { 0, 3, 3, 17, 39 };
enum { WANTED = sizeof wanted / sizeof *wanted };

/* --- the helper ------------------------------------------------------------------------------- */

static unsigned next_byte(void)
{
    return player.p < player.end ? *player.p++ : 0;
}

static bool is_next(enum step step)
{
    if (player.p == player.end || (*player.p & 15) != (unsigned)step)
        return false;
    player.p++;
    return true;
}

static void fill_memory(unsigned value)
{
    void *m;

    if (player.fd == NOTHING)
        return;
    m = mmap(NULL, (size_t)player.read.size, PROT_READ | PROT_WRITE, MAP_SHARED, player.fd, 0);
    if (m == MAP_FAILED)
        return;
    /* Numbers of frames are of no use to the library any more. */
    memset(m, (int)value, player.read.size < 4 * RATE ? (size_t)player.read.size : 4 * RATE);
    munmap(m, (size_t)player.read.size);
}

static struct wire_answer message(enum wire_kind kind)
{
    struct wire_answer a = { .kind = kind };

    if (kind == WIRE_OPENED)
        a.info = (struct wire_info){ 12, 10, 40, 25, 1.6, 0, 1, 0 };
    if (kind == WIRE_FRAME || kind == WIRE_SOUND)
        a.at = player.at++;
    if (kind == WIRE_FRAME)
        a.index = wanted[a.at % WANTED];
    if (kind == WIRE_SOUND)
        a.n_samples = RATE / 2;
    if (kind == WIRE_FAILED || kind == WIRE_NO_SANDBOX) {
        a.status = PV_E_FORMAT;
        memset(a.text, 'x', sizeof a.text);
    }
    return a;
}

static void change_number(struct wire_answer *a)
{
    struct change c = { 0 };
    size_t left = (size_t)(player.end - player.p), n = left < sizeof c ? left : sizeof c;
    size_t at, size;

    if (n > 0)
        memcpy(&c, player.p, n);
    player.p += n;
    at = (size_t)(c.offset[0] | c.offset[1] << 8) % sizeof *a;
    size = 1U << c.size % 4;
    memcpy((char *)a + at, c.value, size < sizeof *a - at ? size : sizeof *a - at);
}

bool helper_find(char *path, size_t size)
{
    (void)path, (void)size;
    return false;
}

enum pv_status helper_start(struct helper_process *h, const char *program, int file,
                            struct pv_error *err)
{
    (void)program, (void)file, (void)err;
    *h = (struct helper_process){ .pid = 1, .socket = NOTHING };
    player.alive = true;
    return PV_OK;
}

static void must_be_alive(const struct helper_process *h)
{
    if (!player.alive || h->pid != 1)
        abort();
}

void helper_send(const struct helper_process *h, const void *message, size_t size, int fd)
{
    must_be_alive(h);
    if (fd < 0)
        return;
    if (size != sizeof player.read)
        abort();
    memcpy(&player.read, message, size);
    if (player.fd != NOTHING)
        close(player.fd);
    player.fd = dup(fd);
    player.at = 0;
}

bool helper_wait(const struct helper_process *h, int ms)
{
    must_be_alive(h);
    if (ms == 0)
        return is_next(STEP_EARLY);
    player.stop = is_next(STEP_STOP);
    return !player.stop && !is_next(STEP_SILENCE);
}

ssize_t helper_receive(const struct helper_process *h, void *out, size_t size)
{
    struct wire_answer a;
    unsigned step, sent = sizeof a;

    must_be_alive(h);
    while (is_next(STEP_FILL))
        fill_memory(next_byte());
    if (player.p == player.end || is_next(STEP_END))
        return 0;
    if (is_next(STEP_SIZE)) {
        sent = next_byte();
        sent |= next_byte() << 8;
    }
    step = next_byte();
    a = message(step & 15);
    for (unsigned i = 0; i < step >> 4; i++)
        change_number(&a);
    if (player.n_messages++ == 0)
        player.said_no_sandbox = a.kind == WIRE_NO_SANDBOX && a.text[0] && sent == sizeof a;
    memcpy(out, &a, size < sent ? size : sent < sizeof a ? sent : sizeof a);
    return (ssize_t)sent;
}

void helper_end(struct helper_process *h, bool kill_it, int *status)
{
    (void)kill_it;
    *status = -1;
    h->pid = 0;
    player.alive = false;
}

/* --- what the library gives ------------------------------------------------------------------- */

static bool go_on(void *user)
{
    (void)user;
    return !player.stop;
}

/* A failure must say why, in one line. */
static void must_say_why(enum pv_status s, const struct pv_error *err)
{
    if (s < PV_E_ARG || s > PV_E_CANCELLED || s != err->code || !err->text[0])
        abort();
    for (const char *c = err->text; *c; c++)
        if ((unsigned char)*c < ' ')
            abort();
}

struct watch {
    const struct video_info *info;
    int n_frames;
    size_t n_samples;
};

static bool check_frame(void *user, int at, int64_t index, double time, const struct image *p)
{
    struct watch *w = user;
    volatile unsigned sum = 0;

    if (at != w->n_frames++ || at >= WANTED || index < 0 || index >= w->info->n_frames ||
        !(time >= 0 && time <= 2 * SECONDS) || p->width != w->info->width ||
        p->height != w->info->height)
        abort();
    for (size_t i = 0; i < (size_t)p->width * (size_t)p->height * 3; i++)
        sum += p->rgb[i];
    return true;
}

/* The helper changes what it has sent, while it is looked at. */
static enum pv_status check_sound(void *user, const float *samples, size_t n, struct pv_error *err)
{
    struct watch *w = user;
    float first, last;

    (void)err;
    fill_memory(0);
    first = samples[0];
    last = samples[n - 1];
    fill_memory(0x5a);
    if (memcmp(&first, samples, sizeof first) || memcmp(&last, samples + n - 1, sizeof last))
        abort();
    w->n_samples += n;
    if (n < 1 || w->n_samples > 2 * RATE)
        abort();
    return PV_OK;
}

static void check_info(const struct video_info *i, bool sound_alone)
{
    if (sound_alone && i->width == 0 && i->height == 0 && i->n_frames == 0 && i->has_sound)
        return;
    if (i->width < 1 || i->height < 1 || (int64_t)i->width * i->height > PIXELS ||
        i->n_frames < 1 || i->n_frames > 1 << 23 || !isfinite(i->fps) || i->fps < 0 ||
        !(i->duration >= 0 && i->duration <= 2 * SECONDS) || i->cut < 0)
        abort();
}

static enum pv_status read_frames(struct video *m, struct pv_error *err)
{
    struct watch w = { .info = video_info(m) };
    int n = 0, lost = -1;
    enum pv_status s;

    while (n < WANTED && wanted[n] < w.info->n_frames)
        n++;
    s = video_read(m, wanted, n, check_frame, &w, &lost, err);
    if (!s && (w.n_frames != n || lost < 0 || lost > n))
        abort();
    return s;
}

static enum pv_status read_sound(struct video *m, struct pv_error *err)
{
    struct watch w = { .info = video_info(m) };
    const struct sound_wish wish = { .start = 1, .end = 3, .fn = check_sound, .user = &w };
    int lost = -1;
    enum pv_status s = video_hear(m, &wish, &lost, err);

    if (!s && lost < 0)
        abort();
    return s;
}

static void keep_told(void *user, const char *why)
{
    (void)why;
    *(bool *)user = true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bool told = false;
    const struct video_sandbox box = {
        .helper = "helper", .unsandboxed = keep_told, .user = &told, .wall_seconds = 60
    };
    const struct video_limits limits = { .file_bytes = 1 << 20,
                                         .pixels = PIXELS,
                                         .frames = FRAMES,
                                         .seconds = SECONDS,
                                         .memory = 1 << 26,
                                         .go_on = go_on,
                                         .sandbox = &box };
    struct video_source from = { .data = "file", .size = 4 };
    struct video *m = NULL;
    struct pv_error err = { 0 };
    enum pv_status s;
    unsigned asked;

    player = (struct player){ .p = data, .end = data + size, .fd = NOTHING };
    asked = next_byte(); /* 1: sound alone is accepted; then two bits for each read */
    from.sound_alone = asked & 1;
    s = video_open(&m, &from, &limits, 1, &err);
    if (told != player.said_no_sandbox || !s != (m != NULL))
        abort();
    if (!s)
        check_info(video_info(m), from.sound_alone);
    for (asked >>= 1; !s && asked; asked >>= 2)
        s = asked & 1 ? read_sound(m, &err) : read_frames(m, &err);
    if (s)
        must_say_why(s, &err);
    video_close(&m);
    if (player.fd != NOTHING)
        close(player.fd);
    if (player.alive)
        abort();
    return 0;
}
