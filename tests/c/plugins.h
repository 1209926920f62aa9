/* plugins.h - the plugins at hand, for tests: TPUTORCH_TEST_PLUGINS="file:file" names CPU plugins, TPUTORCH_TEST_LIBTPU
 * a libtpu.  Each is started once, with two devices, and stays.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPUTORCH_TEST_PLUGINS_H
#define TPUTORCH_TEST_PLUGINS_H

#include "plugin.h"
#include "test.h"

plugin *plugins_get(int i);                             /* borrowed for ever; NULL after the last, or if it does not start */
const char *plugins_path(int i);                        /* borrowed until the next call; NULL after the last */
/* Compiles and adds 8 floats; what a test does to see that all is well. */
tpu_error *plugins_add(plugin *pl, PJRT_LoadedExecutable *x, float first, float second, float *out_sum) TPU_MUST_USE;
extern const char plugins_add_text[];                   /* adds two arguments of 8 floats */
tpu_error *plugins_compile(plugin *pl, const char *code, PJRT_LoadedExecutable **out_x) TPU_MUST_USE; /* owned */

#define EACH_PLUGIN(pl) \
    plugin *pl = plugins_get(0); \
    for (int i_ = 0; pl; pl = plugins_get(++i_))

#endif
