/* The page of 'prevue-lab view': every frame once, as an embedded picture; what each view keeps and
 * the scores as JSON; a few lines of script that draw them over the frames. Nothing is loaded from
 * elsewhere, and the page's own policy says so. The frames are written as they come. */
#include "view_report.h"

#include "base/png.h"
#include "html.h"

#include "base/buf.h"
#include "base/status.h"

#include <math.h>
#include <string.h>

enum {
    FRAME_WIDTH = 256,    /* pixels of a stored frame, at most, about, */
    LEAST_WIDTH = 96,     /* and at least */
    FRAMES_MAX = 2200000, /* bytes of all frames in the page, about: it has to open quickly */
    MOST_BITS = 7,        /* of a colour; fewer where a frame would take more than its share */
    LEAST_BITS = 2,
    RAMP = 64,            /* colours */
    PIECE_MAX = 64 << 20, /* bytes written at once */
};

static const char style[] =
    "nav{display:flex;flex-wrap:wrap;gap:.35rem;margin:1rem 0 .5rem}\n"
    "button{font:inherit;padding:.25rem .7rem;border:1px solid var(--line);border-radius:1rem;"
    "background:none;color:inherit;cursor:pointer}\n"
    "button[aria-pressed=true]{background:var(--on);color:var(--off);border-color:var(--on)}\n"
    "#says{color:var(--ink);min-height:1.45em}\n"
    "#ramp{display:none;width:16rem;max-width:100%;height:.7rem;border-radius:.2rem}\n"
    ".heat #ramp{display:block}\n"
    "main{display:grid;gap:.7rem;margin-top:.8rem}\n"
    "figure{margin:0;min-width:0}\n"
    "figure div{position:relative;line-height:0}\n"
    "img,canvas{width:100%;height:auto;border-radius:.2rem}\n"
    "canvas{position:absolute;inset:0;height:100%}\n"
    ".heat img,.view img{filter:grayscale(1) brightness(.42)}\n"
    "figcaption{display:flex;justify-content:space-between;gap:.5rem;font-size:.8rem;"
    "color:var(--dim);font-variant-numeric:tabular-nums}\n";

static const char script[] =
    "<script>\n"
    "'use strict';\n"
    "const data = JSON.parse(document.getElementById('data').textContent);\n"
    "const figures = [...document.querySelectorAll('figure')];\n"
    "const per = data.height * data.width;\n"
    "const ramp = document.getElementById('ramp'), says = document.getElementById('says');\n"
    "const percent = x => (100 * x).toFixed(1) + ' %';\n"
    "const choices = [{name: 'frames', kind: 'plain'}];\n"
    "ramp.style.background = `linear-gradient(90deg, ${data.ramp.join()})`;\n"
    "for (const h of data.heats)\n"
    "    choices.push({kind: 'heat', ...h, name: 'heat: ' + h.name});\n"
    "for (const v of data.views)\n"
    "    choices.push({kind: 'view', visible: new Set(v.kept), ...v});\n"
    "\n"
    "function sentence(c) {\n"
    "    if (c.kind === 'plain')\n"
    "        return 'The frames as the model sees them. The buttons, or the arrow keys, show ' +\n"
    "            'which of their tokens each view leaves for the drafter.';\n"
    "    if (c.kind === 'heat')\n"
    "        return `${c.name} (${c.what}): how important the model finds each token. Dark is ` +\n"
    "            `${c.low}, the brightest colour ${c.top}` +\n"
    "            (c.attention ? ' times the mean' : '') + ' and more.' +\n"
    "            (c.attention ? ' Brightness follows the square root.' : '');\n"
    "    return `With the view ${c.name} the drafter sees ${c.visible.size} of ${data.tokens} ` +\n"
    "        `tokens (${percent(1 - c.ratio)})` +\n"
    "        (c.attention < 0 ? '.' : `, which hold ${percent(c.attention)} of the attention.`) +\n"
    "        ` ${percent(c.rows)} of them lie in the top or bottom tenth of a frame ` +\n"
    "        `(${percent(data.rows)} of all tokens do), and ${percent(c.frames)} in the first ` +\n"
    "        `or last tenth of the video (${percent(data.frames)}).`;\n"
    "}\n"
    "\n"
    "/* Light lines where kept tokens end. */\n"
    "function edges(g, visible, unit, row, column, w, h) {\n"
    "    const at = (r, c) => r >= 0 && r < data.height && c >= 0 && c < data.width &&\n"
    "        visible.has(unit * per + r * data.width + c);\n"
    "    const x = column * w, y = row * h;\n"
    "    g.fillStyle = 'rgba(255,214,102,.85)';\n"
    "    if (!at(row - 1, column)) g.fillRect(x, y, w, 1);\n"
    "    if (!at(row + 1, column)) g.fillRect(x, y + h - 1, w, 1);\n"
    "    if (!at(row, column - 1)) g.fillRect(x, y, 1, h);\n"
    "    if (!at(row, column + 1)) g.fillRect(x + w - 1, y, 1, h);\n"
    "}\n"
    "\n"
    "function paint(figure, unit, c) {\n"
    "    const image = figure.querySelector('img'), canvas = figure.querySelector('canvas');\n"
    "    const g = canvas.getContext('2d');\n"
    "    canvas.width = image.naturalWidth;\n"
    "    canvas.height = image.naturalHeight;\n"
    "    const w = canvas.width / data.width, h = canvas.height / data.height;\n"
    "    let kept = 0, sum = 0;\n"
    "    for (let i = 0; i < per && c.kind !== 'plain'; i++) {\n"
    "        const row = Math.floor(i / data.width), column = i % data.width;\n"
    "        const x = column * w, y = row * h, token = unit * per + i;\n"
    "        if (c.kind === 'heat') {\n"
    "            const at = (c.scores[token] - c.low) / (c.top - c.low);\n"
    "            const on = Math.max(0, Math.min(1, at)), t = c.attention ? Math.sqrt(on) : on;\n"
    "            sum += c.scores[token];\n"
    "            g.globalAlpha = .6 + .25 * t;\n"
    "            g.fillStyle = data.ramp[Math.round(t * (data.ramp.length - 1))];\n"
    "            g.fillRect(x, y, w, h);\n"
    "        } else if (c.visible.has(token)) {\n"
    "            kept++;\n"
    "            g.drawImage(image, x, y, w, h, x, y, w, h);\n"
    "        }\n"
    "        g.globalAlpha = 1;\n"
    "        g.fillStyle = 'rgba(0,0,0,.3)';\n"
    "        g.fillRect(x, y, w, 1);\n"
    "        g.fillRect(x, y, 1, h);\n"
    "    }\n"
    "    for (let i = 0; i < per && kept; i++)\n"
    "        if (c.visible.has(unit * per + i))\n"
    "            edges(g, c.visible, unit, Math.floor(i / data.width), i % data.width, w, h);\n"
    "    figure.querySelector('span').textContent = c.kind === 'view' ? `${kept} / ${per}` :\n"
    "        c.kind !== 'heat' ? '' : c.attention ? percent(sum / data.tokens) :\n"
    "        'mean ' + (sum / per).toPrecision(3);\n"
    "}\n"
    "\n"
    "let shown = 0;\n"
    "function show(c) {\n"
    "    shown = choices.indexOf(c);\n"
    "    document.body.className = c.kind;\n"
    "    says.textContent = sentence(c);\n"
    "    for (const o of choices)\n"
    "        o.button.setAttribute('aria-pressed', o === c);\n"
    "    figures.forEach((figure, unit) => paint(figure, unit, c));\n"
    "}\n"
    "\n"
    "for (const c of choices) {\n"
    "    c.button = document.createElement('button');\n"
    "    c.button.type = 'button';\n"
    "    c.button.textContent = c.name;\n"
    "    c.button.onclick = () => show(c);\n"
    "    document.querySelector('nav').append(c.button);\n"
    "}\n"
    "window.addEventListener('load', () => show(choices[0]));\n"
    "window.addEventListener('keydown', e => {\n"
    "    const by = e.key === 'ArrowRight' ? 1 : e.key === 'ArrowLeft' ? choices.length - 1 : 0;\n"
    "    if (!by || e.altKey || e.ctrlKey || e.metaKey)\n"
    "        return;\n"
    "    e.preventDefault();\n"
    "    show(choices[(shown + by) % choices.length]);\n"
    "});\n"
    "</script>\n";

/* ---- pieces ---- */

static void add_base64(struct buf *b, const char *bytes, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint8_t *p = (const uint8_t *)bytes;
    for (size_t i = 0; i < n; i += 3) {
        uint32_t v = (uint32_t)p[i] << 16 | (i + 1 < n ? (uint32_t)p[i + 1] << 8 : 0) |
                     (i + 2 < n ? p[i + 2] : 0);
        char four[4] = { digits[v >> 18], digits[v >> 12 & 63],
                         i + 1 < n ? digits[v >> 6 & 63] : '=', i + 2 < n ? digits[v & 63] : '=' };
        buf_add(b, four, sizeof four);
    }
}

/* Write what was put together and forget it. */
static enum pv_status flush(struct view_page *p, struct buf *b, struct pv_error *err)
{
    enum pv_status s =
        b->failed ? fail_nomem(err, b->cap) : file_out_write(&p->file, b->data, b->len, err);
    buf_reset(b);
    return s;
}

static void add_head(struct buf *b, const struct view_report *r)
{
    html_begin(b, "Views of ", r->video);
    buf_puts(b, style);
    if (r->columns)
        buf_printf(b, "main{grid-template-columns:repeat(%d,minmax(0,1fr))}\n", r->columns);
    else
        buf_puts(b, "main{grid-template-columns:repeat(auto-fill,minmax(11rem,1fr))}\n");
    buf_puts(b, "</style>\n</head>\n<body>\n<h1>");
    html_text(b, r->video);
    buf_puts(b, "</h1>\n<p>");
    html_text(b, r->model);
    buf_puts(b, ", asked: ");
    html_text(b, r->question);
    buf_printf(b, "</p>\n<p>%d %s of %d \303\227 %d tokens: %d tokens.</p>\n", r->units,
               r->frames > r->units ? "pairs of frames, the first of each shown," : "frames",
               r->height, r->width, report_tokens(r));
    buf_puts(b, "<nav aria-label=\"Views\"></nav>\n<p id=\"says\" aria-live=\"polite\"></p>\n"
                "<div id=\"ramp\"></div>\n"
                "<noscript><p>The views are drawn by a script, which is off.</p></noscript>\n"
                "<main>\n");
}

static void add_view_json(struct buf *b, const struct view_report *r, const struct kept_view *v)
{
    bool first = true;
    buf_puts(b, "{\"name\":");
    buf_json(b, v->name, strlen(v->name));
    buf_printf(b, ",\"ratio\":%.4f,\"attention\":%.5f,\"rows\":%.5f,\"frames\":%.5f,\"kept\":[",
               report_ratio(r, v), v->attention, v->rows, v->frames);
    for (int i = 0; i < report_tokens(r); i++) {
        if (!v->visible[i])
            continue;
        buf_printf(b, first ? "%d" : ",%d", i);
        first = false;
    }
    buf_puts(b, "]}");
}

static void add_heat_json(struct buf *b, const struct view_report *r, const struct heat *h)
{
    for (int i = 0; i < report_tokens(r); i++)
        buf_printf(b, "%s%.4g", i ? "," : "{\n\"scores\":[", (double)h->scores[i]);
    buf_printf(b,
               "],\n\"name\":\"%s\",\"what\":\"%s\",\"attention\":%s,\"low\":%.4g,"
               "\"top\":%.4g}",
               h->name, h->what, h->attention ? "true" : "false", h->low, h->top);
}

/* Names of views and numbers alone: nothing in it could end the element that holds it. */
static enum pv_status write_data(struct view_page *p, struct buf *b, struct pv_error *err)
{
    const struct view_report *r = p->report;
    enum pv_status s = PV_OK;

    buf_printf(b,
               "</main>\n<script type=\"application/json\" id=\"data\">\n{\"height\":%d,"
               "\"width\":%d,\"tokens\":%d,\"rows\":%.5f,\"frames\":%.5f,\n\"heats\":[",
               r->height, r->width, report_tokens(r), r->all_rows, r->all_frames);
    for (int i = 0; i < r->n_heats; i++) {
        buf_puts(b, i ? "," : "");
        add_heat_json(b, r, &r->heats[i]);
    }
    buf_puts(b, "],\n\"ramp\":[");
    for (int i = 0; i < RAMP; i++) {
        struct colour c = heat_colour((double)i / (RAMP - 1));
        buf_printf(b, "%s\"#%02x%02x%02x\"", i ? "," : "", c.r, c.g, c.b);
    }
    buf_puts(b, "],\n\"views\":[");
    for (int i = 0; i < r->n_views && !s; i++) {
        buf_puts(b, i ? ",\n" : "\n");
        add_view_json(b, r, &r->views[i]);
        s = flush(p, b, err);
    }
    buf_puts(b, "]}\n</script>\n");
    return s ? s : flush(p, b, err);
}

/* ---- the page ---- */

enum pv_status page_open(struct view_page *p, const struct view_report *r, const char *path,
                         struct pv_error *err)
{
    struct buf b;
    enum pv_status s = file_out_open(&p->file, path, err);
    p->report = r;
    if (s)
        return s;
    buf_init(&b, PIECE_MAX);
    add_head(&b, r);
    s = flush(p, &b, err);
    buf_clear(&b);
    return s;
}

/* Rounds colours to so many bits, which compresses better. */
static void round_colours(struct canvas *c, int bits)
{
    int step = 1 << (8 - bits);
    for (size_t i = 0; i < (size_t)c->width * (size_t)c->height * 3; i++) {
        int v = (c->rgb[i] + step / 2) / step * step;
        c->rgb[i] = (uint8_t)(v > 255 ? 255 : v);
    }
}

/* A frame's share of the page. */
static size_t frame_bytes(const struct view_page *p)
{
    return (size_t)FRAMES_MAX / 4 * 3 / (size_t)p->report->units; /* base64 takes a third more */
}

/* As a PNG file, with as many bits of colour as its share allows. */
static enum pv_status encode_frame(const struct view_page *p, struct canvas *frame, struct buf *png,
                                   struct pv_error *err)
{
    enum pv_status s = PV_OK;
    for (int bits = MOST_BITS; bits >= LEAST_BITS && !s; bits--) {
        round_colours(frame, bits);
        buf_reset(png);
        s = png_encode(png, frame->width, frame->height, frame->rgb, err);
        if (png->len <= frame_bytes(p))
            break;
    }
    return s;
}

static enum pv_status add_figure(struct view_page *p, struct canvas *frame,
                                 const struct pv_frame *f, struct pv_error *err)
{
    struct buf png, b;
    enum pv_status s;

    buf_init(&png, PIECE_MAX / 2);
    buf_init(&b, PIECE_MAX);
    s = encode_frame(p, frame, &png, err);
    if (!s) {
        buf_printf(&b,
                   "<figure><div><img alt=\"frame %lld\" width=\"%d\" height=\"%d\" "
                   "src=\"data:image/png;base64,",
                   (long long)f->index, frame->width, frame->height);
        add_base64(&b, png.data, png.len);
        buf_printf(&b,
                   "\"><canvas></canvas></div><figcaption>frame %lld, %.2f s<span></span>"
                   "</figcaption></figure>\n",
                   (long long)f->index, f->time);
        s = flush(p, &b, err);
    }
    buf_clear(&png);
    buf_clear(&b);
    return s;
}

/* So that a pixel has about a byte of the frame's share. */
static int frame_width(const struct view_page *p, const struct pv_frame *f)
{
    double wide = sqrt((double)frame_bytes(p) * f->width / f->height);
    return wide > FRAME_WIDTH ? FRAME_WIDTH : wide < LEAST_WIDTH ? LEAST_WIDTH : (int)wide;
}

enum pv_status page_add(struct view_page *p, const struct pv_frame *f, struct pv_error *err)
{
    struct canvas frame = { 0 };
    struct tile t = { 0 };
    enum pv_status s;

    report_cells(p->report, f, frame_width(p, f), &t);
    s = canvas_open(&frame, t.columns * t.cell_w, t.rows * t.cell_h, (struct colour){ 0 }, err);
    if (s)
        return s;
    draw_picture(&frame, f->width, f->height, f->rgb);
    s = add_figure(p, &frame, f, err);
    canvas_close(&frame);
    return s;
}

enum pv_status page_write(struct view_page *p, struct pv_error *err)
{
    struct buf b;
    enum pv_status s;

    buf_init(&b, PIECE_MAX);
    s = write_data(p, &b, err);
    buf_puts(&b, script);
    buf_puts(&b, "</body>\n</html>\n");
    if (!s)
        s = flush(p, &b, err);
    buf_clear(&b);
    return s ? s : file_out_commit(&p->file, err);
}

void page_close(struct view_page *p)
{
    file_out_abandon(&p->file);
    *p = (struct view_page){ 0 };
}
