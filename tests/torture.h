/* A model opened again and again, each time with another allocation failing. */
#ifndef PV_TESTS_TORTURE_H
#define PV_TESTS_TORTURE_H

#include "base/mem.h"
#include "family/families.h"
#include "format/model_file.h"
#include "test.h"

/* Every failure must say why and leave nothing; the model is returned open. */
static inline struct model_file *torture_open(const char *path)
{
    struct model_file *mf = NULL;
    enum pv_status s = PV_E_NOMEM;
    int k;
    for (k = 1; s && k < 100000; k++) {
        struct pv_error err = { 0 };
        mem_fail_at((uint64_t)k);
        s = model_file_open(&mf, path, NULL, 0, families, &err);
        mem_fail_at(0);
        if (s && !CHECK_MSG(err.text[0] && mf == NULL, "allocation %d of %s", k, path))
            return NULL;
    }
    CHECK_EQ(s, PV_OK);
    CHECK(k > 15);
    return mf;
}

#endif
