/* Turns samples of sound into the features of a media item, one chunk after the other. */
#include "engine/media_loader_parts.h"

#include "audio/mel.h"
#include "base/mem.h"

#include <limits.h>
#include <math.h>
#include <string.h>

bool media_hears(const struct vision_config *c, const struct pv_video_params *p)
{
    return c && c->audio.hidden > 0 && !p->no_audio;
}

/* Samples per chunk. A model with shorter chunks than Whisper's gets the first frames of a chunk
 * that is padded with silence. */
static size_t chunk_samples(const struct vision_config *c)
{
    return (size_t)audio_chunk_frames(&c->audio) * MEL_FRAME_SAMPLES;
}

enum pv_status sound_chunks(int *out, const struct vision_config *c, size_t n_samples,
                            const struct load_bounds *b, struct pv_error *err)
{
    size_t size = chunk_samples(c), n = n_samples / size + (n_samples % size != 0);
    if (c->audio.mel != MEL_BINS || audio_chunk_frames(&c->audio) > MEL_FRAMES)
        return fail(err, PV_E_UNSUPPORTED,
                    "the audio encoder takes %d frames of %d mel filters, but at most %d of %d are "
                    "supported",
                    audio_chunk_frames(&c->audio), c->audio.mel, (int)MEL_FRAMES, (int)MEL_BINS);
    if ((double)n_samples / SOUND_RATE > b->limits->video_seconds || n > INT_MAX)
        return fail(err, PV_E_LIMIT, "%.1f seconds of sound, at most %g are allowed",
                    (double)n_samples / SOUND_RATE, b->limits->video_seconds);
    *out = (int)n;
    return PV_OK;
}

/* Keep the first `frames` of MEL_FRAMES frames, for each filter. */
static void keep_frames(float *to, const float *mel, int frames)
{
    for (int i = 0; i < MEL_BINS; i++)
        memcpy(to + (size_t)i * (size_t)frames, mel + (size_t)i * MEL_FRAMES,
               (size_t)frames * sizeof *to);
}

enum pv_status sound_features(struct media *m, const struct vision_config *c, const float *samples,
                              size_t n_samples, struct pv_error *err)
{
    size_t size = chunk_samples(c), whole = (size_t)MEL_BINS * MEL_FRAMES * sizeof(float);
    struct mel *mel = NULL;
    float *chunk = mem_alloc(whole);
    enum pv_status s = chunk ? mel_open(&mel, NULL, err) : fail_nomem(err, whole);
    for (int i = 0; i < m->sound.n_chunks && !s; i++) {
        size_t from = (size_t)i * size, left = n_samples - from;
        mel_chunk(mel, samples + from, left < size ? left : size, chunk);
        keep_frames(m->sound.mel + (size_t)i * (size_t)m->sound.chunk_size, chunk,
                    audio_chunk_frames(&c->audio));
    }
    mel_close(&mel);
    mem_free(chunk);
    return s;
}

enum pv_status sound_check(const float *samples, size_t n, struct pv_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(samples[i]))
            return fail(err, PV_E_ARG, "sample %zu of the sound is not a finite number", i);
    return PV_OK;
}
