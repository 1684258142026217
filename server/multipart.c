/* A part ends at CR LF "--" boundary. A boundary has no CR, so a match that fails can begin again
 * only at a CR: what was matched so far is data, and no search back is needed. */
#include "multipart.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { MAX_PARTS = 32 };
enum state {
    PREAMBLE, /* before the first boundary */
    AFTER,    /* behind a boundary: "--" ends, CR LF begins a part */
    AFTER_DASH,
    AFTER_CR,
    HEAD, /* lines of a part's head */
    BODY,
    DONE,
};

/* The value of a parameter such as boundary="x" in a header; false: it is not there or too long. */
static bool parameter(char *out, size_t size, const char *text, const char *name)
{
    size_t len = strlen(name), n = 0;
    const char *at = text;
    for (;;) {
        at = strchr(at, ';');
        if (!at)
            return false;
        at += 1 + strspn(at + 1, " \t");
        if (!strncasecmp(at, name, len) && at[len] == '=')
            break;
    }
    at += len + 1;
    if (*at == '"') {
        for (at++; *at && *at != '"' && n + 1 < size; at++) {
            at += *at == '\\' && at[1];
            out[n++] = *at;
        }
        if (*at != '"')
            return false;
    } else {
        n = strcspn(at, "; \t");
        if (n + 1 > size)
            return false;
        memcpy(out, at, n);
    }
    out[n] = 0;
    return n > 0;
}

enum pv_status multipart_init(struct multipart *m, const char *content_type,
                              const struct multipart_calls *calls, void *user, struct pv_error *err)
{
    static const char form[] = "multipart/form-data";
    char boundary[72]; /* RFC 2046: at most 70 characters */
    if (!content_type || strncasecmp(content_type, form, sizeof form - 1) != 0)
        return fail(err, PV_E_ARG, "a file is uploaded as %s, not as %.60s", form,
                    content_type ? content_type : "a body without a type");
    if (!parameter(boundary, sizeof boundary, content_type, "boundary") ||
        strpbrk(boundary, "\r\n"))
        return fail(err, PV_E_FORMAT, "the content type %.100s has no boundary", content_type);
    *m = (struct multipart){ .calls = *calls, .user = user, .state = PREAMBLE };
    m->mark_len = (size_t)snprintf(m->mark, sizeof m->mark, "\r\n--%s", boundary);
    m->matched = 2; /* the first boundary needs no line break before it */
    return PV_OK;
}

/* ---- the head of a part ---- */

static void read_line(struct multipart_part *p, const char *line)
{
    static const char disposition[] = "content-disposition:", type[] = "content-type:";
    if (!strncasecmp(line, disposition, sizeof disposition - 1)) {
        parameter(p->name, sizeof p->name, line, "name");
        parameter(p->file, sizeof p->file, line, "filename");
    } else if (!strncasecmp(line, type, sizeof type - 1)) {
        line += sizeof type - 1;
        line += strspn(line, " \t");
        snprintf(p->type, sizeof p->type, "%.*s", (int)strcspn(line, "; \t"), line);
    }
}

static enum pv_status end_head(struct multipart *m, struct pv_error *err)
{
    struct multipart_part p = { .name = "" };
    char *line = m->head;
    m->head[m->head_len] = 0;
    for (char *end = strstr(line, "\r\n"); end; end = strstr(line, "\r\n")) {
        *end = 0;
        read_line(&p, line);
        line = end + 2;
    }
    m->head_len = 0;
    if (++m->parts > MAX_PARTS)
        return fail(err, PV_E_LIMIT, "a form of more than %d parts", MAX_PARTS);
    m->state = BODY;
    return m->calls.begin(m->user, &p) ? PV_OK : PV_E_CANCELLED;
}

static enum pv_status add_head(struct multipart *m, char c, struct pv_error *err)
{
    if (c == 0)
        return fail(err, PV_E_FORMAT, "the head of a part of the form has a zero byte");
    if (m->head_len + 1 == sizeof m->head)
        return fail(err, PV_E_LIMIT, "a part of the form has a head of more than %d bytes",
                    MULTIPART_HEAD);
    m->head[m->head_len++] = c;
    if (m->head_len >= 4 && !memcmp(m->head + m->head_len - 4, "\r\n\r\n", 4))
        return end_head(m, err);
    if (m->head_len == 2 && !memcmp(m->head, "\r\n", 2))
        return end_head(m, err);
    return PV_OK;
}

/* ---- data ---- */

static bool deliver(struct multipart *m, const char *data, size_t size)
{
    return m->state != BODY || size == 0 || m->calls.data(m->user, data, size);
}

/* Up to and including the next boundary; *used says how far. */
static enum pv_status scan(struct multipart *m, const char *data, size_t size, size_t *used)
{
    size_t i = 0, from = 0; /* data[from..i) is neither delivered nor matched */
    while (i < size) {
        if (m->matched == 0) {
            const char *cr = memchr(data + i, '\r', size - i);
            i = cr ? (size_t)(cr - data) : size;
            if (i > from && !deliver(m, data + from, i - from))
                return PV_E_CANCELLED;
            from = i;
            if (i == size)
                break;
        }
        if (data[i] == m->mark[m->matched]) {
            m->matched++;
            from = ++i;
            if (m->matched == m->mark_len) {
                bool inside = m->state == BODY;
                m->matched = 0;
                m->state = AFTER;
                *used = i;
                return inside && !m->calls.end(m->user) ? PV_E_CANCELLED : PV_OK;
            }
            continue;
        }
        if (!deliver(m, m->mark, m->matched)) /* it was data after all */
            return PV_E_CANCELLED;
        m->matched = 0;
        if (data[i] != '\r')
            i++; /* delivered with what follows */
    }
    if (i > from && !deliver(m, data + from, i - from))
        return PV_E_CANCELLED;
    *used = size;
    return PV_OK;
}

static enum pv_status add_byte(struct multipart *m, char c, struct pv_error *err)
{
    switch (m->state) {
    case AFTER:
        m->state = c == '-' ? AFTER_DASH : c == '\r' ? AFTER_CR : AFTER;
        if (c != '-' && c != '\r' && c != ' ' && c != '\t')
            return fail(err, PV_E_FORMAT, "a boundary of the form is followed by other text");
        return PV_OK;
    case AFTER_DASH:
        m->state = DONE;
        return c == '-' ? PV_OK : fail(err, PV_E_FORMAT, "a boundary of the form is cut off");
    case AFTER_CR:
        m->state = HEAD;
        return c == '\n' ? PV_OK : fail(err, PV_E_FORMAT, "a boundary of the form is cut off");
    default:
        return add_head(m, c, err);
    }
}

enum pv_status multipart_add(struct multipart *m, const char *data, size_t size,
                             struct pv_error *err)
{
    enum pv_status s = PV_OK;
    for (size_t at = 0; at < size && !s && m->state != DONE;) {
        size_t used = 1;
        if (m->state == PREAMBLE || m->state == BODY)
            s = scan(m, data + at, size - at, &used);
        else
            s = add_byte(m, data[at], err);
        at += used;
    }
    return s;
}

enum pv_status multipart_end(const struct multipart *m, struct pv_error *err)
{
    if (m->state != DONE)
        return fail(err, PV_E_FORMAT, "the form ends before its last boundary");
    return PV_OK;
}
