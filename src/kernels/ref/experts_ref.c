/* A mixture of experts in plain C: chooses the experts of a row and their weights, and computes the
 * weighted sum of their outputs. experts_ref reads like the definition (tensor/device.h) and is
 * slow on purpose: the kernel checker compares every device with it. */
#include "base/mem.h"
#include "kernels/kernels.h"
#include "tensor/quant.h"

#include <math.h>

/* The value by which experts are ranked: NaN ranks below every number. */
static float rank_of(float logit)
{
    return isnan(logit) ? -INFINITY : logit;
}

/* Whether expert i with logit a is chosen before expert j with logit b. */
static bool goes_before(float a, int i, float b, int j)
{
    return rank_of(a) > rank_of(b) || (rank_of(a) == rank_of(b) && i < j);
}

void route_ref(int *expert, float *weight, const float *logits, int n, int used, bool normed)
{
    float sum = 0, part = 0;
    int top = 0, last = -1;
    for (int k = 0; k < used; k++) { /* insert the next best after `last`, sorted by index */
        int best = -1, at = k;
        for (int i = 0; i < n; i++)
            if ((last < 0 || goes_before(logits[last], last, logits[i], i)) &&
                (best < 0 || goes_before(logits[i], i, logits[best], best)))
                best = i;
        for (; at > 0 && expert[at - 1] > best; at--)
            expert[at] = expert[at - 1];
        expert[at] = best;
        top = k == 0 ? best : top;
        last = best;
    }
    for (int i = 0; i < n; i++)
        sum += expf(logits[i] - logits[top]);
    for (int k = 0; k < used; k++) {
        weight[k] = expf(logits[expert[k]] - logits[top]) / sum;
        part += weight[k];
    }
    for (int k = 0; k < used && normed; k++)
        weight[k] /= part;
}

/* y = W x */
static void product(float *y, const struct matrix *w, const float *x, float *row)
{
    for (int o = 0; o < w->out; o++) {
        float sum = 0;
        row_to_f32(row, (const uint8_t *)w->data + (size_t)o * w->row_size, w->dtype, w->in);
        for (int i = 0; i < w->in; i++)
            sum += x[i] * row[i];
        y[o] = sum;
    }
}

void experts_ref(float *y, const struct expert_weights *e, const float *x, int n)
{
    int hidden = e->router.in, ffn = e->gate[0].out, expert[DEVICE_MAX_USED];
    size_t longest = (size_t)(hidden > ffn ? hidden : ffn);
    float *mem = mem_alloc(sizeof(float) * ((size_t)e->n + 4 * longest));
    float *logits = mem, *row = logits + e->n, *gate = row + longest, *up = gate + longest,
          *out = up + longest, weight[DEVICE_MAX_USED];
    for (int r = 0; mem && r < n; r++) {
        const float *in = x + (size_t)r * (size_t)hidden;
        float *sum = y + (size_t)r * (size_t)hidden;
        product(logits, &e->router, in, row);
        route_ref(expert, weight, logits, e->n, e->used, e->normed);
        for (int i = 0; i < hidden; i++)
            sum[i] = 0;
        for (int k = 0; k < e->used; k++) {
            product(gate, &e->gate[expert[k]], in, row);
            product(up, &e->up[expert[k]], in, row);
            for (int i = 0; i < ffn; i++)
                gate[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
            product(out, &e->down[expert[k]], gate, row);
            for (int i = 0; i < hidden; i++)
                sum[i] += weight[k] * out[i];
        }
    }
    mem_free(mem);
}
