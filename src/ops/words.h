/* words.h - parts of messages.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPUTORCH_OPS_WORDS_H
#define TPUTORCH_OPS_WORDS_H

#include <stdio.h>

#include "ops.h"

typedef struct words {
    char s[256];
} words;

/* "[2, 3]" */
static inline words sizes_in_words(tpu_type t)
{
    words w;
    size_t room = sizeof w.s, at = (size_t)snprintf(w.s, room, "[");
    for (int i = 0; i < t.rank && at < room; i++)
        at += (size_t)snprintf(w.s + at, room - at, i ? ", %lld" : "%lld", (long long)t.dim[i]);
    if (at < room) snprintf(w.s + at, room - at, "]");
    return w;
}

#endif
