/* Pictures by plain loops: they are small and drawn once. */
#include "view_draw.h"

#include "base/mem.h"
#include "base/status.h"

#include <math.h>
#include <string.h>

static const double grey_light = 0.42; /* what is left of a dropped token's light */
static const double grid_share = 0.30; /* of black in the lines between tokens */
static const double edge_share = 0.75; /* of the edge around kept tokens */
static const double heat_least = 0.60, heat_most = 0.85; /* of the heat's colour */
enum { LINE_SIZE = 1024 };                               /* bytes of a fitted text */
static const struct colour black = { 0, 0, 0 }, edge = { 255, 214, 102 };

enum pv_status canvas_open(struct canvas *c, int width, int height, struct colour ground,
                           struct pv_error *err)
{
    size_t n = 0;
    uint8_t *rgb = NULL;
    if (mul_size((size_t)width, (size_t)height, &n) && mul_size(n, 3, &n))
        rgb = mem_alloc(n);
    if (!rgb)
        return fail_nomem(err, n);
    *c = (struct canvas){ width, height, rgb };
    draw_rect(c, (struct rect){ 0, 0, width, height }, ground, 1);
    return PV_OK;
}

void canvas_close(struct canvas *c)
{
    mem_free(c->rgb);
    *c = (struct canvas){ 0 };
}

static void mix(uint8_t *p, struct colour ink, double share)
{
    p[0] = (uint8_t)lround(p[0] + (ink.r - p[0]) * share);
    p[1] = (uint8_t)lround(p[1] + (ink.g - p[1]) * share);
    p[2] = (uint8_t)lround(p[2] + (ink.b - p[2]) * share);
}

static uint8_t *pixel(const struct canvas *c, int x, int y)
{
    return c->rgb + ((size_t)y * (size_t)c->width + (size_t)x) * 3;
}

void draw_rect(struct canvas *c, struct rect at, struct colour ink, double share)
{
    int x0 = at.x > 0 ? at.x : 0, y0 = at.y > 0 ? at.y : 0;
    int x1 = at.x + at.width < c->width ? at.x + at.width : c->width;
    int y1 = at.y + at.height < c->height ? at.y + at.height : c->height;
    for (int y = y0; y < y1; y++)
        for (int x = x0; x < x1; x++)
            mix(pixel(c, x, y), ink, share);
}

/* ---- letters ---- */

static bool continues(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

int text_width(const char *utf8, int scale)
{
    int n = 0;
    for (; *utf8; utf8++)
        n += !continues(*utf8);
    return n * GLYPH_ADVANCE * scale;
}

static void draw_glyph(struct canvas *c, int x0, int y0, int scale, struct colour ink, char letter)
{
    for (int y = 0; y < GLYPH_HEIGHT; y++)
        for (int x = 0; x < GLYPH_WIDTH; x++)
            if (glyph_pixel(letter, x, y))
                draw_rect(c, (struct rect){ x0 + x * scale, y0 + y * scale, scale, scale }, ink, 1);
}

void draw_text(struct canvas *c, int x, int y, int scale, struct colour ink, const char *utf8)
{
    for (; *utf8; utf8++) {
        if (continues(*utf8))
            continue;
        draw_glyph(c, x, y, scale, ink, *utf8);
        x += GLYPH_ADVANCE * scale;
    }
}

void draw_fitted(struct canvas *c, int x, int y, int width, int scale, struct colour ink,
                 const char *utf8)
{
    int most = width / (GLYPH_ADVANCE * scale), n = 0;
    int end = text_width(utf8, 1) / GLYPH_ADVANCE > most ? most - 3 : most;
    char text[LINE_SIZE];
    size_t at = 0;
    for (; utf8[at] && at + 4 < sizeof text; at++) {
        bool starts = !continues(utf8[at]);
        if (starts && n == end)
            break;
        n += starts;
        text[at] = utf8[at];
        if ((unsigned char)text[at] < ' ')
            text[at] = ' ';
    }
    memcpy(text + at, utf8[at] ? "..." : "", utf8[at] ? 4 : 1);
    draw_text(c, x, y, scale, ink, text);
}

/* ---- frames ---- */

/* The mean of what pixel x, y of `to` covers, its edges counted by their parts. */
static void mean_colour(uint8_t out[3], const struct canvas *to, int x, int y, int width,
                        int height, const uint8_t *rgb)
{
    double x0 = (double)x * width / to->width, x1 = (double)(x + 1) * width / to->width;
    double y0 = (double)y * height / to->height, y1 = (double)(y + 1) * height / to->height;
    double sum[3] = { 0 }, area = 0;
    for (int v = (int)y0; v < height && v < y1; v++) {
        double tall = fmin(v + 1, y1) - fmax(v, y0);
        for (int u = (int)x0; u < width && u < x1; u++) {
            double part = tall * (fmin(u + 1, x1) - fmax(u, x0));
            const uint8_t *p = rgb + ((size_t)v * (size_t)width + (size_t)u) * 3;
            for (int k = 0; k < 3; k++)
                sum[k] += part * p[k];
            area += part;
        }
    }
    for (int k = 0; k < 3; k++)
        out[k] = (uint8_t)(area > 0 ? lround(sum[k] / area) : 0);
}

void draw_picture(struct canvas *to, int width, int height, const uint8_t *rgb)
{
    for (int y = 0; y < to->height; y++)
        for (int x = 0; x < to->width; x++)
            mean_colour(pixel(to, x, y), to, x, y, width, height, rgb);
}

static struct colour greyed(const uint8_t *p, double light)
{
    uint8_t v = (uint8_t)lround((0.2126 * p[0] + 0.7152 * p[1] + 0.0722 * p[2]) * light);
    return (struct colour){ v, v, v };
}

/* Token i of the frame, its first pixel at x0, y0. */
static void draw_cell(struct canvas *c, int x0, int y0, const struct canvas *picture, int px,
                      int py, const struct tile *t, int i)
{
    bool grey = t->heat || (t->visible && !t->visible[i]);
    double heat = t->heat ? fmin(t->heat[i], 1) : 0;
    struct colour ink = heat_colour(heat);
    for (int y = 0; y < t->cell_h; y++) {
        for (int x = 0; x < t->cell_w; x++) {
            const uint8_t *from = pixel(picture, px + x, py + y);
            struct colour v = { from[0], from[1], from[2] };
            uint8_t *to = pixel(c, x0 + x, y0 + y);
            mix(to, grey ? greyed(from, grey_light) : v, 1);
            if (t->heat)
                mix(to, ink, heat_least + (heat_most - heat_least) * heat);
            if ((t->visible || t->heat) && (x == 0 || y == 0))
                mix(to, black, grid_share);
        }
    }
}

static bool is_visible(const struct tile *t, int row, int column)
{
    return row >= 0 && row < t->rows && column >= 0 && column < t->columns &&
           t->visible[row * t->columns + column];
}

/* A line where kept tokens end: on dark pictures full colour alone says little. */
static void draw_edges(struct canvas *c, int x0, int y0, const struct tile *t, int row, int column)
{
    int w = t->cell_w, h = t->cell_h, x = x0 + column * w, y = y0 + row * h;
    if (!is_visible(t, row, column))
        return;
    if (!is_visible(t, row - 1, column))
        draw_rect(c, (struct rect){ x, y, w, 1 }, edge, edge_share);
    if (!is_visible(t, row + 1, column))
        draw_rect(c, (struct rect){ x, y + h - 1, w, 1 }, edge, edge_share);
    if (!is_visible(t, row, column - 1))
        draw_rect(c, (struct rect){ x, y, 1, h }, edge, edge_share);
    if (!is_visible(t, row, column + 1))
        draw_rect(c, (struct rect){ x + w - 1, y, 1, h }, edge, edge_share);
}

void draw_tile(struct canvas *c, int x, int y, const struct canvas *picture, const struct tile *t)
{
    for (int i = 0; i < t->rows * t->columns; i++) {
        int px = i % t->columns * t->cell_w, py = i / t->columns * t->cell_h;
        draw_cell(c, x + px, y + py, picture, px, py, t, i);
    }
    for (int i = 0; t->visible && i < t->rows * t->columns; i++)
        draw_edges(c, x, y, t, i / t->columns, i % t->columns);
}

/* ---- heat ---- */

static uint8_t srgb_of(double linear)
{
    double v = fmin(fmax(linear, 0), 1);
    v = v <= 0.0031308 ? 12.92 * v : 1.055 * pow(v, 1 / 2.4) - 0.055;
    return (uint8_t)lround(v * 255);
}

/* In Oklab (Ottosson 2020), whose lightness is made to look even: it rises in a line while the hue
 * turns. The chroma is what sRGB can show at both ends. */
struct colour heat_colour(double t)
{
    double light = 0.20 + 0.74 * t, hue = (300 + 170 * t) * (acos(-1) / 180);
    double chroma = 0.07 + 0.13 * sin(acos(-1) * fmin(fmax(t, 0), 1));
    double a = chroma * cos(hue), b = chroma * sin(hue);
    double l = pow(light + 0.3963377774 * a + 0.2158037573 * b, 3);
    double m = pow(light - 0.1055613458 * a - 0.0638541728 * b, 3);
    double s = pow(light - 0.0894841775 * a - 1.2914855480 * b, 3);
    return (struct colour){ srgb_of(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s),
                            srgb_of(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s),
                            srgb_of(-0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s) };
}
