/* The timeline as a page: the spans as JSON, and a script that draws the visible part. Scrolling
 * zooms, dragging pans, and a tooltip describes the span under the pointer. */
#include "view_overlap.h"

#include "bench_trace.h"
#include "command.h"
#include "html.h"

#include "base/buf.h"

#include <string.h>

enum { PAGE_MAX = 256 << 20 };

static const char style[] =
    "#legend{display:flex;flex-wrap:wrap;gap:.3rem 1.2rem;margin:.8rem 0;color:var(--ink)}\n"
    "#legend i{display:inline-block;width:.9rem;height:.9rem;margin-right:.4rem;"
    "vertical-align:-.1rem}\n"
    "#says{color:var(--ink);min-height:1.45em;font-variant-numeric:tabular-nums}\n"
    "canvas{display:block;width:100%;cursor:grab;touch-action:none}\n"
    "table{border-collapse:collapse;margin-top:1rem;font-variant-numeric:tabular-nums}\n"
    "th,td{padding:.15rem .8rem;text-align:right;border-bottom:1px solid var(--line)}\n"
    "th:first-child,td:first-child{text-align:left;padding-left:0}\n"
    "caption{text-align:left;color:var(--dim);padding-bottom:.3rem}\n"
    "</style>\n</head>\n<body>\n<h1>";

static const char script[] =
    "<script>\n"
    "'use strict';\n"
    "const data = JSON.parse(document.getElementById('data').textContent);\n"
    "const canvas = document.querySelector('canvas'), g = canvas.getContext('2d');\n"
    "const says = document.getElementById('says'), hint = says.textContent;\n"
    "const lanes = data.methods.flatMap(m => data.sides.map((side, i) => ({method: m.name,\n"
    "    end: m.end, side, first: i === 0, spans: m.spans.filter(s => s[0] === i)})))\n"
    "    .filter(l => l.spans.length);\n"
    "const all = Math.max(...data.methods.map(m => m.end), 1e-6);\n"
    "const named = l => `${l.method}, ${l.end.toFixed(2)} s`;\n"
    "const font = '13px system-ui,sans-serif', axis = 26, tall = 24, step = 30;\n"
    "g.font = font;\n"
    "const label = 80 + Math.max(140, ...lanes.map(l => g.measureText(named(l)).width));\n"
    "let from = 0, to = all, width = 0, drag = null;\n"
    "\n"
    "for (const k of data.kinds) {\n"
    "    const item = document.createElement('span'), box = document.createElement('i');\n"
    "    box.style.background = k.ink;\n"
    "    item.append(box, k.name);\n"
    "    document.getElementById('legend').append(item);\n"
    "}\n"
    "\n"
    "const time = t => to - from < .5 ? +(t * 1e3).toPrecision(6) + ' ms' :\n"
    "    +t.toPrecision(6) + ' s';\n"
    "const x_of = t => label + (t - from) / (to - from) * (width - label);\n"
    "const t_of = x => from + (x - label) / (width - label) * (to - from);\n"
    "const y_of = i => axis + i * step;\n"
    "\n"
    "function ticks(ink, dim) {\n"
    "    const least = (to - from) * 90 / Math.max(width - label, 90);\n"
    "    const power = 10 ** Math.floor(Math.log10(least)), lead = least / power;\n"
    "    const by = power * (lead <= 1 ? 1 : lead <= 2 ? 2 : lead <= 5 ? 5 : 10);\n"
    "    for (let i = Math.ceil(from / by - 1e-9); i * by <= to; i++) {\n"
    "        g.fillStyle = dim;\n"
    "        g.globalAlpha = .3;\n"
    "        g.fillRect(x_of(i * by), axis - 6, 1, lanes.length * step + 6);\n"
    "        g.globalAlpha = 1;\n"
    "        g.fillText(time(i * by), x_of(i * by) + 3, axis - 14);\n"
    "    }\n"
    "}\n"
    "\n"
    "function draw() {\n"
    "    const css = getComputedStyle(document.documentElement), dense = devicePixelRatio || 1;\n"
    "    const ink = css.getPropertyValue('--ink'), dim = css.getPropertyValue('--dim');\n"
    "    width = canvas.clientWidth;\n"
    "    canvas.width = width * dense;\n"
    "    canvas.height = (y_of(lanes.length) + 4) * dense;\n"
    "    canvas.style.height = y_of(lanes.length) + 4 + 'px';\n"
    "    g.scale(dense, dense);\n"
    "    g.font = font;\n"
    "    g.textBaseline = 'middle';\n"
    "    ticks(ink, dim);\n"
    "    lanes.forEach((l, i) => {\n"
    "        const y = y_of(i);\n"
    "        g.fillStyle = css.getPropertyValue('--line');\n"
    "        g.fillRect(label, y, width - label, tall);\n"
    "        for (const [, begin, end, kind, rows] of l.spans) {\n"
    "            const x0 = Math.max(x_of(begin), label), x1 = Math.min(x_of(end), width);\n"
    "            if (x1 <= label || x0 >= width)\n"
    "                continue;\n"
    "            const gap = x1 - x0 > 4 ? 1 : 0;\n"
    "            g.fillStyle = data.kinds[kind].ink;\n"
    "            g.fillRect(x0 + gap, y, x1 - x0 - gap, tall);\n"
    "            g.fillStyle = '#101114';\n"
    "            const text = String(rows), room = g.measureText(text).width;\n"
    "            if (rows > 0 && room + 4 < x1 - x0)\n"
    "                g.fillText(text, (x0 + x1 - room) / 2, y + tall / 2);\n"
    "        }\n"
    "        g.fillStyle = dim;\n"
    "        g.fillText(l.side, label - 8 - g.measureText(l.side).width, y + tall / 2);\n"
    "        g.fillStyle = ink;\n"
    "        if (l.first)\n"
    "            g.fillText(named(l), 0, y + tall / 2);\n"
    "    });\n"
    "}\n"
    "\n"
    "function zoom(a, b) {\n"
    "    const size = Math.min(Math.max(b - a, all * 1e-5), all);\n"
    "    from = Math.min(Math.max(a, 0), all - size);\n"
    "    to = from + size;\n"
    "    draw();\n"
    "}\n"
    "\n"
    "canvas.addEventListener('wheel', e => {\n"
    "    const t = t_of(Math.max(e.offsetX, label)), by = Math.exp(e.deltaY * .002);\n"
    "    e.preventDefault();\n"
    "    zoom(t - (t - from) * by, t + (to - t) * by);\n"
    "}, {passive: false});\n"
    "canvas.addEventListener('pointerdown', e => {\n"
    "    drag = t_of(e.offsetX);\n"
    "    canvas.setPointerCapture(e.pointerId);\n"
    "});\n"
    "canvas.addEventListener('pointerup', () => { drag = null; });\n"
    "canvas.addEventListener('pointermove', e => {\n"
    "    const t = t_of(e.offsetX), l = lanes[Math.floor((e.offsetY - axis) / step)];\n"
    "    if (drag !== null) {\n"
    "        zoom(from + drag - t, to + drag - t);\n"
    "        return;\n"
    "    }\n"
    "    const s = l && e.offsetX > label && l.spans.find(([, a, b]) => a <= t && t < b);\n"
    "    says.textContent = !s ? hint : `${l.method}, ${l.side}: ${data.kinds[s[3]].name}, ` +\n"
    "        (s[4] ? `${s[4]} tokens, ` : '') + `${((s[2] - s[1]) * 1e3).toFixed(3)} ms from "
    "${s[1].toFixed(4)} s`;\n"
    "});\n"
    "canvas.addEventListener('dblclick', () => zoom(0, all));\n"
    "addEventListener('resize', draw);\n"
    "draw();\n"
    "</script>\n";

static void add_method(struct buf *b, const struct overlap *o, int k)
{
    char name[64];
    contender_title(name, sizeof name, &o->who->items[k]);
    buf_puts(b, "{\"name\":");
    buf_json(b, name, strlen(name));
    buf_printf(b, ",\"end\":%.6f,\"spans\":[", overlap_end(o, k));
    for (size_t i = 0; i < o->found->n_spans[k]; i++) {
        const struct trial_span *s = &o->found->span[k][i];
        buf_printf(b, "%s[%d,%.6f,%.6f,%d,%d]", i ? "," : "", (int)s->side, s->begin, s->end,
                   span_kind_of(s->what), s->rows);
    }
    buf_puts(b, "]}");
}

/* Names of methods and numbers alone: nothing in it could end the element that holds it. */
static void add_data(struct buf *b, const struct overlap *o)
{
    buf_printf(b,
               "<script type=\"application/json\" id=\"data\">\n{\"sides\":[\"%s\",\"%s\"],\n"
               "\"kinds\":[",
               side_name(PV_SIDE_MODEL), side_name(PV_SIDE_DRAFTER));
    for (int i = 0; i < N_SPAN_KINDS; i++) {
        struct colour c = span_kinds[i].ink;
        buf_printf(b, "%s{\"name\":\"%s\",\"ink\":\"#%02x%02x%02x\"}", i ? "," : "",
                   span_kinds[i].name, c.r, c.g, c.b);
    }
    buf_puts(b, "],\n\"methods\":[\n");
    for (int k = 0; k < o->who->n; k++) {
        buf_puts(b, k ? ",\n" : "");
        add_method(b, o, k);
    }
    buf_puts(b, "]}\n</script>\n");
}

/* Seconds of each kind, which a bar shorter than a pixel does not show. */
static void add_totals(struct buf *b, const struct overlap *o)
{
    buf_puts(b, "<table><caption>Seconds in all. Model and drafter may work at the same time."
                "</caption>\n<tr><th>method</th><th>side</th>");
    for (int i = 0; i < N_SPAN_KINDS; i++)
        buf_printf(b, "<th>%s</th>", span_kinds[i].name);
    buf_puts(b, "<th>last token after</th></tr>\n");
    for (int k = 0; k < o->who->n; k++) {
        char name[64];
        contender_title(name, sizeof name, &o->who->items[k]);
        for (int side = PV_SIDE_MODEL; side <= PV_SIDE_DRAFTER; side++) {
            if (!overlap_has(o, k, (enum pv_side)side))
                continue;
            buf_puts(b, "<tr><td>");
            html_text(b, side == PV_SIDE_MODEL ? name : "");
            buf_printf(b, "</td><td>%s</td>", side_name((enum pv_side)side));
            for (int i = 0; i < N_SPAN_KINDS; i++)
                buf_printf(b, "<td>%.3f</td>", overlap_seconds(o, k, (enum pv_side)side, i));
            if (side == PV_SIDE_MODEL)
                buf_printf(b, "<td>%.3f</td></tr>\n", overlap_end(o, k));
            else
                buf_puts(b, "<td></td></tr>\n");
        }
    }
    buf_puts(b, "</table>\n");
}

static void make_page(struct buf *b, const struct overlap *o)
{
    html_begin(b, "Timeline of ", o->clip);
    buf_puts(b, style);
    html_text(b, o->clip);
    buf_puts(b, "</h1>\n<p>");
    html_text(b, o->model);
    buf_puts(b, ": what model and drafter did when. Each method alone, from an empty session.</p>\n"
                "<p id=\"legend\"></p>\n"
                "<p id=\"says\">Scroll to zoom, drag to pan, double-click to reset.</p>\n"
                "<canvas></canvas>\n"
                "<noscript><p>The timeline is drawn by a script, which is off.</p></noscript>\n");
    add_totals(b, o);
    add_data(b, o);
    buf_puts(b, script);
    buf_puts(b, "</body>\n</html>\n");
}

enum pv_status overlap_page(const struct overlap *o, const char *path, struct pv_error *err)
{
    struct buf b;
    enum pv_status s;

    buf_init(&b, PAGE_MAX);
    make_page(&b, o);
    s = write_file(path, &b, err);
    buf_clear(&b);
    return s;
}
