/* Options of the views holistic and alignment. */
#include "draft_view_args.h"

#include <math.h>
#include <string.h>

/* The orders of pv_method's literal and text_after, and of the bits of its terms. */
#define CROP_WORDS "equal literal"
#define TEXT_WORDS "all after"
static const char *const term_words[] = { "attention", "time", "space" };
enum { N_TERMS = sizeof term_words / sizeof *term_words };

#define LEAST_LAYER 0.001
enum { MOST_LAYERS = 1000 };

#define AT(field) offsetof(struct draft_view_args, field)

const struct option draft_view_table[] = {
    { "layer", 0, NULL, OPTION_NUMBER, AT(layer), LEAST_LAYER, MOST_LAYERS, "L",
      "Views holistic and alignment: number of the model's layers that they use; below 1, a share "
      "of them. Default: holistic all, alignment 20, or 0.71 of the layers if there are fewer.",
      NULL },
    { "terms", 0, NULL, OPTION_STRING, AT(terms), 0, 0, "T1,T2,...",
      "View holistic: terms of its score, comma-separated: attention, time, space. Default: all.",
      NULL },
    { "crops", 0, NULL, OPTION_CHOICE, AT(crops), 0, 0, "HOW",
      "View holistic: divide a frame into parts that differ by at most one token (equal), or into "
      "parts of 5 x 5 tokens and a remainder, as published (literal). Default: equal.",
      CROP_WORDS },
    { "text", 0, NULL, OPTION_CHOICE, AT(text), 0, 0, "WHICH",
      "View alignment: the text with which video tokens are compared: all text of the prompt, or "
      "only the text after the video. Default: all.",
      TEXT_WORDS },
};
_Static_assert(sizeof draft_view_table / sizeof *draft_view_table == N_DRAFT_VIEW_OPTIONS, "rows");

/* Words separated by commas, or by slashes (in a list of methods a comma ends the method), each at
 * most once; 0: it is something else. */
static unsigned parse_terms(const char *text)
{
    unsigned terms = 0;
    for (;;) {
        size_t n = strcspn(text, ",/");
        unsigned bit = 0;
        for (int i = 0; i < N_TERMS; i++)
            if (strlen(term_words[i]) == n && !strncmp(text, term_words[i], n))
                bit = 1u << i;
        if (!bit || terms & bit)
            return 0;
        terms |= bit;
        if (!text[n])
            return terms;
        text += n + 1;
    }
}

int draft_view_args_check(const struct draft_view_args *a, const char *command)
{
    if (a->layer >= 1 && a->layer != floor(a->layer))
        return options_misuse(command,
                              "option --layer takes a whole number of layers or a share below 1, "
                              "not %g",
                              a->layer);
    if (a->terms && !parse_terms(a->terms))
        return options_misuse(command,
                              "option --terms takes some of attention, time and space, separated "
                              "by commas, not \"%s\"",
                              a->terms);
    return OPTIONS_RUN;
}

void draft_view_args_set(const struct draft_view_args *a, struct pv_method *m)
{
    if (a->layer > 0)
        m->layer = a->layer;
    if (a->terms)
        m->terms = parse_terms(a->terms);
    if (a->crops >= 0)
        m->literal = a->crops;
    if (a->text >= 0)
        m->text_after = a->text;
}

const char *draft_view_args_useless(const struct draft_view_args *a,
                                    const struct pv_view_info *view, size_t *field)
{
    *field = offsetof(struct pv_view_info, takes_terms);
    if (a->terms && !(view && view->takes_terms))
        return "terms";
    if (a->crops >= 0 && !(view && view->takes_terms))
        return "crops";
    *field = offsetof(struct pv_view_info, takes_text);
    if (a->text >= 0 && !(view && view->takes_text))
        return "text";
    *field = offsetof(struct pv_view_info, takes_layer);
    return a->layer > 0 && !(view && view->takes_layer) ? "layer" : NULL;
}
