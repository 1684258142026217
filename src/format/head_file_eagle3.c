/* What heads of EAGLE-3 have beside the others: a draft vocabulary of their own, and a list of the
 * target's layers whose states they read. */
#include "base/mem.h"
#include "format/head_file_parts.h"

#include <stdlib.h>
#include <string.h>

/* ---- the draft vocabulary ---- */

static int by_value(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Ids that lie in any vocabulary, each of them once. */
static enum pv_status check_draft_ids(const struct head_file *hf, struct pv_error *err)
{
    size_t n = (size_t)hf->n_draft_ids;
    int32_t *sorted = mem_alloc(n * sizeof *sorted);
    enum pv_status s = PV_OK;
    if (!sorted)
        return fail_nomem(err, n * sizeof *sorted);
    memcpy(sorted, hf->draft_ids, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_value);
    for (size_t i = 0; i < n && !s; i++)
        if (sorted[i] < 0 || sorted[i] >= CONFIG_MAX_VOCAB)
            s = fail(err, PV_E_FORMAT, "%s: a draft token is mapped to token %d of the target",
                     hf->in.path, (int)sorted[i]);
        else if (i > 0 && sorted[i] == sorted[i - 1])
            s = fail(err, PV_E_FORMAT, "%s: two draft tokens are mapped to token %d of the target",
                     hf->in.path, (int)sorted[i]);
    mem_free(sorted);
    return s;
}

enum pv_status head_set_draft_vocab(struct head_file *hf, const struct tensor *lm_head,
                                    struct pv_error *err)
{
    struct head_config *h = &hf->config;
    int64_t rows = lm_head ? lm_head->dim[0] : 0;
    if (lm_head && (lm_head->n_dims != 2 || rows < 1 || rows > CONFIG_MAX_VOCAB))
        return fail(err, PV_E_FORMAT, "%s: the tensor %s is not a matrix of 1 to %d rows",
                    hf->in.path, lm_head->name, CONFIG_MAX_VOCAB);
    if (h->draft_vocab > 0 && !lm_head)
        return fail(err, PV_E_FORMAT, "%s: a draft vocabulary of %d, and no LM head", hf->in.path,
                    h->draft_vocab);
    if (h->draft_vocab > 0 && lm_head && h->draft_vocab != rows)
        return fail(err, PV_E_FORMAT, "%s: a draft vocabulary of %d and an LM head of %lld rows",
                    hf->in.path, h->draft_vocab, (long long)rows);
    if (hf->draft_ids && hf->n_draft_ids != rows)
        return fail(err, PV_E_FORMAT,
                    "%s: a map of %d draft tokens (d2t) and an LM head of %lld rows", hf->in.path,
                    hf->n_draft_ids, (long long)rows);
    h->draft_vocab = (int)rows;
    return hf->draft_ids ? check_draft_ids(hf, err) : PV_OK;
}

/* ---- features ---- */

struct head_features head_features_of(const struct head_config *h, int n_layers)
{
    struct head_features usual = { 3, { 2, n_layers / 2, n_layers - 3 } };
    return h->layout == HEAD_LAYOUT_EAGLE3 && h->features.n == 0 ? usual : h->features;
}

/* How many states the FC takes follows from its width, and must be as many as are named. */
enum pv_status head_check_eagle3(struct head_file *hf, struct pv_error *err)
{
    struct head_config *h = &hf->config;
    const struct tensor *fc = head_find_tensor(hf, "fc.weight");
    int64_t cols = fc && fc->n_dims == 2 ? fc->dim[1] : 0, k = cols / h->c.hidden;
    if (!fc)
        return fail(err, PV_E_FORMAT, "%s: the tensor fc.weight is missing", hf->in.path);
    if (k < 1 || k > HEAD_MAX_FEATURES || cols % h->c.hidden)
        return fail(err, PV_E_FORMAT,
                    "%s: fc.weight has rows of %lld, where 1 to %d states of %d are possible",
                    hf->in.path, (long long)cols, HEAD_MAX_FEATURES, h->c.hidden);
    h->n_features = (int)k;
    if (h->features.n == 0 ? k != 3 : k != h->features.n)
        return fail(err, PV_E_FORMAT, "%s: fc.weight is made for %d layers of the target, not %d",
                    hf->in.path, (int)k, h->features.n ? h->features.n : 3);
    if (h->visual != HEAD_VISUAL_FC)
        return fail(err, PV_E_UNSUPPORTED, "%s: visual_rows of a head of EAGLE-3 are \"fc\"",
                    hf->in.path);
    return PV_OK;
}

/* ---- beside a target ---- */

/* The layers that it reads, and the tokens that it drafts. */
enum pv_status head_fit_eagle3(const struct head_file *hf, const struct config *target,
                               const char *target_path, struct pv_error *err)
{
    const struct head_config *h = &hf->config;
    struct head_features f = head_features_of(h, target->n_layers);
    for (int i = 0; i < f.n; i++)
        if (f.layer[i] < 0 || f.layer[i] > target->n_layers)
            return fail(err, PV_E_ARG, "%s needs states after layer %d, but %s has %d layers",
                        hf->in.path, f.layer[i], target_path, target->n_layers);
    if (h->draft_vocab > target->vocab)
        return fail(err, PV_E_ARG, "%s drafts %d tokens, and the vocabulary of %s is %d",
                    hf->in.path, h->draft_vocab, target_path, target->vocab);
    if (h->draft_vocab > 0 && h->draft_vocab < target->vocab && !hf->draft_ids)
        return fail(err, PV_E_ARG,
                    "%s drafts %d of the %d tokens of %s, and does not say which (d2t is missing)",
                    hf->in.path, h->draft_vocab, target->vocab, target_path);
    for (int i = 0; i < hf->n_draft_ids; i++)
        if (hf->draft_ids[i] >= target->vocab)
            return fail(err, PV_E_ARG, "%s drafts token %d, and the vocabulary of %s is %d",
                        hf->in.path, (int)hf->draft_ids[i], target_path, target->vocab);
    return PV_OK;
}
