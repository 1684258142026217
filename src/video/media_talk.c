/* A table of states and kinds of messages says what is allowed and which state comes next. Each
 * entry names the check of the message's numbers. What is not in the table is a lie. */
#include "video/media_talk.h"

#include "video/frame_index.h"

#include <math.h>

/* --- numbers of messages: NULL, or what is wrong ---------------------------------------------- */

/* Frames are numbered by their times, which lie within the limit. The last of them may be shown as
 * long as all before it. */
static bool is_duration(const struct media_talk *t, double seconds)
{
    return seconds >= 0 && seconds <= 2 * t->limits->seconds && isfinite(seconds);
}

static bool is_sound_alone(const struct video_info *i)
{
    return i->width == 0 && i->height == 0 && i->n_frames == 0 && i->fps == 0 && !i->still &&
           i->has_sound && i->cut == 0;
}

static bool is_video(const struct video_info *i, const struct video_limits *l)
{
    if (i->width <= 0 || i->height <= 0 || i->width > l->pixels / i->height || i->n_frames <= 0 ||
        i->n_frames > INDEX_PACKETS_MAX || i->cut < 0 || i->cut > INT32_MAX)
        return false;
    return i->still ? i->n_frames == 1 && i->fps == 0 && i->duration == 0
                    : i->fps >= 0 && isfinite(i->fps);
}

static const char *hear_opened(struct media_talk *t, const struct wire_answer *a)
{
    struct video_info i;

    if (!wire_read_info(&i, &a->info) || !is_duration(t, i.duration) ||
        !(is_video(&i, t->limits) || (t->sound_alone && is_sound_alone(&i))))
        return "frames that cannot be";
    t->info = i;
    return NULL;
}

static const char *hear_frame(struct media_talk *t, const struct wire_answer *a)
{
    if (t->at >= t->n || a->at != t->at || a->index < 0 || a->index >= t->info.n_frames ||
        !(a->time >= 0 && a->time <= t->info.duration))
        return "a frame that was not asked for";
    t->lost += a->index != t->wanted[t->at];
    t->at++;
    return NULL;
}

static const char *hear_frames_end(struct media_talk *t, const struct wire_answer *a)
{
    return t->at == t->n && a->lost == t->lost ? NULL : "an end that cannot be";
}

static const char *hear_sound(struct media_talk *t, const struct wire_answer *a)
{
    if (a->at != t->at || a->n_samples == 0 || a->n_samples > WIRE_SOUND_SAMPLES ||
        (int64_t)a->n_samples > t->samples_left)
        return "sound that was not asked for";
    t->at++;
    t->samples_left -= (int64_t)a->n_samples;
    return NULL;
}

static const char *hear_sound_end(struct media_talk *t, const struct wire_answer *a)
{
    t->lost = a->lost;
    return a->lost >= 0 ? NULL : "an end that cannot be";
}

static const char *hear_failure(struct media_talk *t, const struct wire_answer *a)
{
    (void)t;
    return a->status >= PV_E_ARG && a->status <= PV_E_LIMIT && a->text[0]
               ? NULL
               : "a failure that cannot be";
}

static const char *hear_no_sandbox(struct media_talk *t, const struct wire_answer *a)
{
    (void)t;
    return a->text[0] ? NULL : "a failure that cannot be";
}

static const char *hear_ready(struct media_talk *t, const struct wire_answer *a)
{
    (void)t, (void)a;
    return NULL;
}

/* --- the order of messages -------------------------------------------------------------------- */

struct rule {
    const char *(*hear)(struct media_talk *, const struct wire_answer *); /* NULL: not allowed */
    enum talk_state next;
};

static const struct rule rules[TALK_STATES][WIRE_KINDS] = {
    [TALK_STARTED] = { [WIRE_READY] = { hear_ready, TALK_OPENING },
                       [WIRE_NO_SANDBOX] = { hear_no_sandbox, TALK_NO_SANDBOX },
                       [WIRE_FAILED] = { hear_failure, TALK_OVER } },
    [TALK_OPENING] = { [WIRE_OPENED] = { hear_opened, TALK_IDLE },
                       [WIRE_FAILED] = { hear_failure, TALK_OVER } },
    [TALK_FRAMES] = { [WIRE_FRAME] = { hear_frame, TALK_FRAMES },
                      [WIRE_READ] = { hear_frames_end, TALK_IDLE },
                      [WIRE_FAILED] = { hear_failure, TALK_OVER } },
    [TALK_SOUND] = { [WIRE_SOUND] = { hear_sound, TALK_SOUND },
                     [WIRE_READ] = { hear_sound_end, TALK_IDLE },
                     [WIRE_FAILED] = { hear_failure, TALK_OVER } },
};

void talk_begin(struct media_talk *t, const struct video_limits *limits, bool sound_alone)
{
    *t = (struct media_talk){ .state = TALK_STARTED, .limits = limits, .sound_alone = sound_alone };
}

void talk_ask_frames(struct media_talk *t, const int64_t *wanted, int n)
{
    t->state = TALK_FRAMES;
    t->wanted = wanted;
    t->n = n;
    t->at = 0;
    t->lost = 0;
}

void talk_ask_sound(struct media_talk *t, int64_t most)
{
    t->state = TALK_SOUND;
    t->at = 0;
    t->samples_left = most;
}

const char *talk_hear(struct media_talk *t, const struct wire_answer *a, size_t size)
{
    const struct rule *rule;
    const char *wrong;

    if (size != sizeof *a || a->kind >= WIRE_KINDS) {
        wrong = "what is no message";
    } else {
        rule = &rules[t->state][a->kind];
        wrong = rule->hear ? rule->hear(t, a) : "a message out of order";
        if (!wrong)
            t->state = rule->next;
    }
    if (wrong)
        t->state = TALK_OVER;
    return wrong;
}
