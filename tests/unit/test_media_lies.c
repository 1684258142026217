/* Helpers that lie. The "helper" of these tests is this program itself, started a second time: main
 * then plays what the job's number says instead of testing. Each lie must end in one error, and
 * never in decoding without the sandbox, although the library is told that it may do without and
 * the file is a good one. */
#include "video/media_talk.h"
#include "video/video.h"

#include "../test.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WANTED = 3, FRAMES = 40, RATE = 16000 };
enum { TEST_END = 40, HELPER_END = 41 }; /* of a channel between this process and its helpers */

static const char clip[] = "tests/data/video/bframes.mp4";
static const struct video_limits usual = { 16 << 20, 1 << 24, 1000, 100 };
static const int64_t wanted[WANTED] = { 3, 5, 20 };
static const char *self; /* this program */

/* --- what is played -----------------------------------------------------------------------------
 */

/* A conversation, a letter for each step: W ready, the sandbox is up, N no sandbox, O opened, F the
 * next frame, S the next sound, R all was sent, X failed; h half a message, e an empty one, l a
 * long one; f frames until the socket is full; a wait for a request; q quit; c close the socket,
 * and live on; ! tell the test, which waits for that before it asks for something; . wait to be
 * killed.
 */
struct script {
    const char *steps;
    bool sound;
    const char *words; /* of the error; NULL: there is none */
};

static const struct script scripts[] = {
    { "WOaFFFRaFFFR.", false, NULL }, /* as it should be */
    { "WOaSSRaSSR.", true, NULL },
    /* the sandbox is said to be missing, too late */
    { "WN.", false, "out of order" },
    { "WON!.", false, "out of order" },
    { "WOaN.", false, "out of order" },
    { "WOaFN.", false, "out of order" },
    { "WOaFFFN.", false, "out of order" },
    { "WOaFFFRN!.", false, "out of order" },
    { "WOaN.", true, "out of order" },
    { "WOaSN.", true, "out of order" },
    /* out of order */
    { "O.", false, "out of order" },
    { "F.", false, "out of order" },
    { "R.", false, "out of order" },
    { "WW.", false, "out of order" },
    { "WF.", false, "out of order" },
    { "WR.", false, "out of order" },
    { "WOO!.", false, "out of order" },
    { "WOW!.", false, "out of order" },
    { "WOX!.", false, "out of order" },
    { "WOF!.", false, "out of order" },
    { "WOaS.", false, "out of order" },
    { "WOaF.", true, "out of order" },
    { "WOaO.", false, "out of order" },
    { "WOaW.", false, "out of order" },
    { "WOaFFR.", false, "an end that cannot be" },
    { "WOaR.", false, "an end that cannot be" },
    /* too much */
    { "WOaFFFF.", false, "not asked for" },
    { "WOaFFFRR!.", false, "out of order" },
    { "WOaFFFRF!.", false, "out of order" },
    { "WOaf.", false, "not asked for" },
    { "WOaFFFRf!.", false, "out of order" },
    { "WOaSSS.", true, "not asked for" },
    /* no messages */
    { "h.", false, "no message" },
    { "Wh.", false, "no message" },
    { "WOaFh.", false, "no message" },
    { "Wl.", false, "no message" },
    { "WOaSl.", true, "no message" },
    { "We.", false, "its decoder" },
    /* silence, then the end */
    { "q", false, "without an answer" },
    { "Wq", false, "without an answer" },
    { "WOaq", false, "without an answer" },
    { "WOaFq", false, "without an answer" },
    { "WOaFFFRq", false, "without an answer" },
    { "Wc.", false, "its decoder" },
    { "WOaFc.", false, "its decoder" },
    { "WOaSc.", true, "its decoder" },
    { ".", false, "took too long" },
    { "WOaS.", true, "took too long" },
    /* failures are believed, and are failures */
    { "X.", false, "no such frame" },
    { "WX.", false, "no such frame" },
    { "WOaFX.", false, "no such frame" },
    { "WOaSX.", true, "no such frame" },
};

enum { N_SCRIPTS = sizeof scripts / sizeof *scripts };

/* One number of the first message of a kind is a lie. */
struct lie {
    enum wire_kind kind;
    size_t offset, size;
    int64_t i;
    double d; /* if size is 0 */
    bool sound;
};

#define NUMBER(kind, field, value)                                                                 \
    {                                                                                              \
        kind, offsetof(struct wire_answer, field), sizeof((struct wire_answer *)0)->field, value,  \
            0, false                                                                               \
    }
#define REAL(kind, field, value)                                                                   \
    {                                                                                              \
        kind, offsetof(struct wire_answer, field), 0, 0, value, false                              \
    }
#define HEARD(kind, field, value)                                                                  \
    {                                                                                              \
        kind, offsetof(struct wire_answer, field), sizeof((struct wire_answer *)0)->field, value,  \
            0, true                                                                                \
    }

static const struct lie lies[] = {
    NUMBER(WIRE_READY, kind, 0),
    NUMBER(WIRE_READY, kind, WIRE_KINDS),
    NUMBER(WIRE_OPENED, kind, -1),
    NUMBER(WIRE_OPENED, info.width, 0),
    NUMBER(WIRE_OPENED, info.width, -64),
    NUMBER(WIRE_OPENED, info.width, INT32_MAX),
    NUMBER(WIRE_OPENED, info.height, 0),
    NUMBER(WIRE_OPENED, info.height, INT32_MIN),
    NUMBER(WIRE_OPENED, info.height, 1 << 20),
    NUMBER(WIRE_OPENED, info.n_frames, 0),
    NUMBER(WIRE_OPENED, info.n_frames, -1),
    NUMBER(WIRE_OPENED, info.n_frames, INT64_MAX),
    REAL(WIRE_OPENED, info.fps, -1),
    REAL(WIRE_OPENED, info.fps, (double)NAN),
    REAL(WIRE_OPENED, info.fps, (double)INFINITY),
    REAL(WIRE_OPENED, info.duration, -1),
    REAL(WIRE_OPENED, info.duration, (double)NAN),
    REAL(WIRE_OPENED, info.duration, 201),
    NUMBER(WIRE_OPENED, info.still, 1),
    NUMBER(WIRE_OPENED, info.still, 2),
    NUMBER(WIRE_OPENED, info.has_sound, 255),
    NUMBER(WIRE_OPENED, info.cut, -1),
    NUMBER(WIRE_OPENED, info.cut, INT64_MAX),
    NUMBER(WIRE_FRAME, at, 1),
    NUMBER(WIRE_FRAME, at, -1),
    NUMBER(WIRE_FRAME, at, INT_MAX),
    NUMBER(WIRE_FRAME, index, -1),
    NUMBER(WIRE_FRAME, index, FRAMES),
    REAL(WIRE_FRAME, time, (double)NAN),
    REAL(WIRE_FRAME, time, -0.1),
    REAL(WIRE_FRAME, time, 1e300),
    NUMBER(WIRE_FRAME, index, 4), /* and all were intact */
    NUMBER(WIRE_READ, lost, -1),
    NUMBER(WIRE_READ, lost, 1),
    NUMBER(WIRE_READ, lost, INT_MAX),
    NUMBER(WIRE_FAILED, status, PV_OK),
    NUMBER(WIRE_FAILED, status, PV_E_CANCELLED),
    NUMBER(WIRE_FAILED, status, -1),
    NUMBER(WIRE_FAILED, text[0], 0), /* says nothing */
    HEARD(WIRE_SOUND, at, 1),
    HEARD(WIRE_SOUND, at, -1),
    HEARD(WIRE_SOUND, at, INT_MIN),
    HEARD(WIRE_SOUND, n_samples, 0),
    HEARD(WIRE_SOUND, n_samples, WIRE_SOUND_SAMPLES + 1),
    HEARD(WIRE_SOUND, n_samples, -1),
    HEARD(WIRE_SOUND, n_samples, 2 * RATE + 1),
    HEARD(WIRE_READ, lost, -1),
    HEARD(WIRE_READ, lost, INT_MIN),
};

enum { N_LIES = sizeof lies / sizeof *lies };

/* Numbers of jobs: 0 is none, then the scripts, then the lies. */
enum {
    JOB_SCRIPT = 1,
    JOB_LIE = JOB_SCRIPT + N_SCRIPTS,
    JOB_NO_SANDBOX = JOB_LIE + N_LIES,
    JOB_CHANGE /* changes samples that it has sent, when it is told to */
};

/* --- the helper
 * ----------------------------------------------------------------------------------- */

struct player {
    int at; /* frames or messages with sound since the last request */
    const struct lie *lie;
    float *memory; /* shared with the library */
};

static struct wire_answer message(const struct player *p, enum wire_kind kind)
{
    struct wire_answer a = { .kind = kind };

    if (kind == WIRE_OPENED)
        a.info = (struct wire_info){ 64, 48, FRAMES, 25, 1.6, 0, 1, 0 };
    if (kind == WIRE_FRAME) {
        a.at = p->at;
        a.index = wanted[p->at % WANTED];
        a.time = (double)a.index / 25;
    }
    if (kind == WIRE_SOUND) {
        a.at = p->at;
        a.n_samples = RATE;
    }
    if (kind == WIRE_FAILED || kind == WIRE_NO_SANDBOX) {
        a.status = PV_E_FORMAT;
        memset(a.text, 'x', sizeof a.text); /* nothing ends it */
        memcpy(a.text, "no such frame\x1b[2J\n", 18);
    }
    if (p->lie && p->lie->kind == kind && p->lie->size)
        memcpy((char *)&a + p->lie->offset, &p->lie->i, p->lie->size);
    else if (p->lie && p->lie->kind == kind)
        memcpy((char *)&a + p->lie->offset, &p->lie->d, sizeof p->lie->d);
    return a;
}

/* False: the socket is full, or nobody listens. */
static bool say(struct player *p, enum wire_kind kind)
{
    struct wire_answer a = message(p, kind);

    p->at += kind == WIRE_FRAME || kind == WIRE_SOUND;
    return send(WIRE_SOCKET, &a, sizeof a, MSG_NOSIGNAL | MSG_DONTWAIT) > 0;
}

/* What is taken out of slots in between is of no interest. */
static void await_request(struct player *p)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct wire_read r;
    struct iovec part = { &r, sizeof r };
    struct msghdr m = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.room };
    int fd;

    do {
        m.msg_controllen = sizeof control.room;
        if (recvmsg(WIRE_SOCKET, &m, 0) <= 0)
            _exit(3);
    } while (m.msg_controllen < sizeof control.head);
    memcpy(&fd, CMSG_DATA(&control.head), sizeof fd);
    p->memory = mmap(NULL, (size_t)r.size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    p->at = 0;
}

/* The kind of a step; 0: another step. */
static enum wire_kind kind_of(char step)
{
    static const char letters[] = "WNOFSRX"; /* in the order of enum wire_kind */
    const char *at = strchr(letters, step);

    return at ? (enum wire_kind)(at - letters + 1) : 0;
}

static void play(struct player *p, const char *steps)
{
    struct wire_answer many[2] = { { .kind = WIRE_READY } };

    for (; *steps; steps++) {
        if (kind_of(*steps))
            say(p, kind_of(*steps));
        else if (*steps == 'a')
            await_request(p);
        else if (*steps == 'h')
            send(WIRE_SOCKET, many, sizeof *many / 2, MSG_NOSIGNAL);
        else if (*steps == 'l')
            send(WIRE_SOCKET, many, sizeof many, MSG_NOSIGNAL);
        else if (*steps == 'e')
            send(WIRE_SOCKET, many, 0, MSG_NOSIGNAL);
        else if (*steps == 'c')
            close(WIRE_SOCKET);
        else if (*steps == 'q')
            _exit(0);
        else if (*steps == '!')
            send(HELPER_END, "", 1, MSG_NOSIGNAL);
        while (*steps == 'f' && say(p, WIRE_FRAME))
            ;
        while (*steps == '.')
            pause();
    }
}

static const char *steps_of_lie(const struct lie *l)
{
    return l->kind == WIRE_FAILED ? "WX." : l->sound ? "WOaSSR." : "WOaFFFR.";
}

static void fill(float *samples, float value)
{
    for (int i = 0; i < RATE; i++)
        samples[i] = value;
}

static void play_change(struct player *p)
{
    char c;

    play(p, "WOa");
    fill(p->memory, 1);
    play(p, "S");
    if (read(HELPER_END, &c, 1) != 1)
        _exit(3);
    fill(p->memory, (float)NAN);
    play(p, "!R.");
}

static int be_helper(void)
{
    static struct wire_job job;
    struct player p = { 0 };

    if (recv(WIRE_SOCKET, &job, sizeof job, 0) != (ssize_t)sizeof job)
        return 2;
    if (job.test >= JOB_SCRIPT && job.test < JOB_LIE) {
        play(&p, scripts[job.test - JOB_SCRIPT].steps);
    } else if (job.test >= JOB_LIE && job.test < JOB_NO_SANDBOX) {
        p.lie = &lies[job.test - JOB_LIE];
        play(&p, steps_of_lie(p.lie));
    } else if (job.test == JOB_NO_SANDBOX) {
        play(&p, job.sandbox ? "N." : scripts[0].steps);
    } else if (job.test == JOB_CHANGE) {
        play_change(&p);
    }
    return 0;
}

/* Started by the library: descriptor 4 is its socket. */
static bool is_helper(void)
{
    int type = 0;
    socklen_t size = sizeof type;

    return getsockopt(WIRE_SOCKET, SOL_SOCKET, SO_TYPE, &type, &size) == 0 &&
           type == SOCK_SEQPACKET;
}

/* --- the library
 * ---------------------------------------------------------------------------------- */

static bool count_frame(void *user, int at, int64_t index, double time, const struct image *p)
{
    (void)at, (void)index, (void)time, (void)p;
    ++*(int *)user;
    return true;
}

/* Pairs of sockets, and what waits in them, outlive helpers. */
static void channel_open(void)
{
    const struct timeval limit = { .tv_sec = 20 }; /* only a hang reaches it */
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) || dup2(ends[0], TEST_END) != TEST_END ||
        dup2(ends[1], HELPER_END) != HELPER_END ||
        setsockopt(TEST_END, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit)) {
        perror("socketpair");
        exit(1);
    }
    close(ends[0]);
    close(ends[1]);
}

static void wait_until_told(void)
{
    char c;

    CHECK_MSG(recv(TEST_END, &c, 1, 0) == 1, "the helper tells nothing");
}

/* Opens and reads twice, as long as that goes well; *n counts frames. told_at: the helper tells
 * when it is ready for the read of this number. */
static enum pv_status converse(const struct video_sandbox *box, bool sound, int told_at, int *n,
                               struct pv_error *err)
{
    struct video_limits l = usual;
    struct video *v = NULL;
    struct sound heard = { 0 };
    enum pv_status s;
    int lost = 0;

    l.sandbox = box;
    s = video_open(&v, &(struct video_source){ .path = clip }, &l, 1, err);
    for (int i = 0; i < 2 && !s; i++) {
        if (i == told_at)
            wait_until_told();
        if (sound)
            s = video_read_sound(v, 0, 2, &heard, err);
        else
            s = video_read(v, wanted, WANTED, count_frame, n, &lost, err);
        CHECK(!heard.samples || heard.n == (size_t)(2 * RATE));
        sound_clear(&heard);
    }
    video_close(&v);
    return s;
}

/* Counts how often the library does without the sandbox. */
static void count_told(void *user, const char *why)
{
    (void)why;
    ++*(int *)user;
}

static void check_job(int job, const char *name, bool sound, const char *words)
{
    int told_at = !strchr(name, '!') ? -1 : strchr(name, 'R') ? 1 : 0, told = 0;
    struct video_sandbox box = {
        .helper = self, .test = job, .wall_seconds = 20, .unsandboxed = count_told, .user = &told
    };
    struct pv_error err = { 0 };
    enum pv_status s;
    int n = 0;

    if (words && !strcmp(words, "took too long"))
        box.wall_seconds = 0.2;
    s = converse(&box, sound, told_at, &n, &err);
    if (words)
        CHECK_MSG(s && s == err.code && strstr(err.text, words) && strstr(err.text, clip) &&
                      !strpbrk(err.text, "\n\x1b"),
                  "%s: status %d, \"%s\" instead of \"%s\"", name, s, err.text, words);
    else
        CHECK_MSG(!s && n == (sound ? 0 : 2 * WANTED), "%s: %d \"%s\"", name, s, err.text);
    CHECK_MSG(!told, "%s: the sandbox is given up", name);
    CHECK_MSG(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD, "%s: a process is left", name);
}

TEST(conversations)
{
    for (int i = 0; i < N_SCRIPTS; i++)
        check_job(JOB_SCRIPT + i, scripts[i].steps, scripts[i].sound, scripts[i].words);
}

/* What talk_hear says of a conversation with a lie; *kind: of the message that it says it of. */
static const char *hear_lie(struct media_talk *t, const struct lie *lie, enum wire_kind *kind)
{
    struct player p = { .lie = lie };
    const char *wrong = NULL;

    talk_begin(t, &usual, false);
    for (const char *step = steps_of_lie(lie); *step != '.' && !wrong; step++) {
        *kind = kind_of(*step);
        if (*kind) {
            struct wire_answer a = message(&p, *kind);
            wrong = talk_hear(t, &a, sizeof a);
            p.at += *kind == WIRE_FRAME || *kind == WIRE_SOUND;
        } else if (lie->sound) {
            talk_ask_sound(t, 2 * RATE);
        } else {
            talk_ask_frames(t, wanted, WANTED);
        }
    }
    return wrong;
}

TEST(numbers)
{
    for (int i = 0; i < N_LIES; i++) {
        struct media_talk t;
        enum wire_kind kind = 0;
        const char *wrong = hear_lie(&t, &lies[i], &kind);
        bool late = lies[i].kind == WIRE_FRAME && kind == WIRE_READ; /* its count shows it */
        CHECK_MSG(wrong && t.state == TALK_OVER && (kind == lies[i].kind || late),
                  "lie %d, in a message of kind %d: %s of kind %d", i, lies[i].kind,
                  wrong ? wrong : "nothing is said", kind);
    }
}

/* The same, sent by a helper. */
TEST(numbers_sent)
{
    for (int i = 0; i < N_LIES; i++) {
        char name[64];
        snprintf(name, sizeof name, "lie %d, in a message of kind %d", i, lies[i].kind);
        check_job(JOB_LIE + i, name, lies[i].sound, "answered with");
    }
}

/* What the others must not do: a helper that has not read the file yet may say that there is no
 * sandbox, and the library starts it again without one where it may, once. */
TEST(no_sandbox)
{
    int told = 0, n = 0;
    struct video_sandbox box = {
        .helper = self, .test = JOB_NO_SANDBOX, .unsandboxed = count_told, .user = &told
    };
    struct pv_error err = { 0 };

    CHECK_MSG(!converse(&box, false, -1, &n, &err) && n == 2 * WANTED, "%s", err.text);
    CHECK_EQ(told, 1);
    box.mode = PV_SANDBOX_ON;
    n = 0;
    CHECK_EQ(converse(&box, false, -1, &n, &err), PV_E_UNSUPPORTED);
    CHECK_MSG(n == 0 && strstr(err.text, "no such frame"), "%d frames, \"%s\"", n, err.text);
    CHECK_EQ(told, 1);
}

static enum pv_status change_samples(void *user, const float *samples, size_t n,
                                     struct pv_error *err)
{
    CHECK_EQ(n, RATE);
    send(TEST_END, "", 1, MSG_NOSIGNAL);
    wait_until_told();
    for (size_t i = 0; i < n; i++)
        *(int *)user += samples[i] == 1;
    (void)err;
    return PV_OK;
}

/* Samples are copied before they are checked: the helper cannot change them any more. */
TEST(sound_changed_later)
{
    struct video_sandbox box = { .helper = self, .test = JOB_CHANGE, .wall_seconds = 20 };
    struct video_limits l = usual;
    struct video *v = NULL;
    struct pv_error err = { 0 };
    int same = 0, lost;
    const struct sound_wish wish = { .end = 2, .fn = change_samples, .user = &same };

    l.sandbox = &box;
    if (CHECK_MSG(!video_open(&v, &(struct video_source){ .path = clip }, &l, 1, &err), "%s",
                  err.text))
        CHECK_MSG(!video_hear(v, &wish, &lost, &err), "%s", err.text);
    CHECK_MSG(same == RATE, "%d of %d samples are as they were sent", same, RATE);
    video_close(&v);
}

int main(int argc, char **argv)
{
    if (is_helper())
        return be_helper();
    self = argv[0];
    channel_open();
    return test_main(argc, argv);
}
