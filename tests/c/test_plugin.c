/* test_plugin.c - which plugin is taken, and what it is known by.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plugins.h"

/* A tree that looks like "/" of a machine with one PCI device. */
static void write_file(const char *root, const char *name, const char *words)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", root, name);
    for (char *at = path + strlen(root) + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        mkdir(path, 0700);
        *at = '/';
    }
    FILE *f = fopen(path, "w");
    CHECK(f != NULL);
    if (!f) return;
    fputs(words, f);
    fclose(f);
}

static void remove_tree(const char *root)
{
    char command[512];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    CHECK(system(command) == 0);
}

#define PCI "sys/bus/pci/devices/0000:00:05.0/"

TEST(a_tpu_is_a_device_of_googles_that_is_no_network_card_with_a_device_file)
{
    char root[] = "/tmp/tputorch_root_XXXXXX";
    if (!mkdtemp(root)) return;
    CHECK(!plugin_tpu_under(root));
    write_file(root, PCI "vendor", "0x1ae0\n");
    write_file(root, PCI "class", "0x020000\n");
    write_file(root, "dev/vfio/vfio", "");
    write_file(root, "dev/vfio/3", "");
    CHECK(!plugin_tpu_under(root));
    write_file(root, PCI "class", "0x120000\n");
    CHECK(plugin_tpu_under(root));
    remove_tree(root);
    if (mkdir(root, 0700)) return;
    write_file(root, PCI "vendor", "0x1ae0\n");
    write_file(root, PCI "class", "0x120000\n");
    CHECK(!plugin_tpu_under(root));
    write_file(root, "dev/accel0", "");
    CHECK(plugin_tpu_under(root));
    remove_tree(root);
}

TEST(no_plugin_is_one_sentence_that_names_a_package)
{
    if (plugin_tpu_present()) return;
    char *named = getenv("TPUTORCH_PLUGIN");
    char *old = named ? strdup(named) : NULL;
    unsetenv("TPUTORCH_PLUGIN");
    plugin pl = {0};
    tpu_error *e = plugin_find("libtpu=/nowhere/libtpu.so", 1, &pl);
    CHECK(tpu_error_code(e) == TPU_NOT_FOUND && strstr(tpu_error_message(e), "pip install"));
    CHECK(!strchr(tpu_error_message(e), '\n'));
    tpu_error_free(e);
    e = plugin_find("cpu=/nowhere/a.so\ncpu=/nowhere/b.so", 1, &pl);
    CHECK(tpu_error_code(e) == TPU_NOT_FOUND && strstr(tpu_error_message(e), "/nowhere/a.so"));
    tpu_error_free(e);
    if (old) setenv("TPUTORCH_PLUGIN", old, 1);
    free(old);
}

TEST(either_cpu_plugin_replaces_the_other)
{
    const char *path = plugins_path(0);
    if (!path || plugin_tpu_present()) return;
    static plugin pl;
    char lines[5000], *named = getenv("TPUTORCH_PLUGIN"), *old = named ? strdup(named) : NULL;
    snprintf(lines, sizeof lines, "cpu=/nowhere/first.so\ncpu=%s", path);
    unsetenv("TPUTORCH_PLUGIN");
    if (!pl.p) CHECK_OK(plugin_find(lines, 1, &pl));
    if (pl.p) CHECK(pl.target == HLO_CPU && pl.direct && pjrt_device_count(pl.p) == 1);
    if (old) setenv("TPUTORCH_PLUGIN", old, 1);
    free(old);
}

TEST(the_identity_is_of_the_plugin_and_its_flags_not_of_its_place) /* [C2] */
{
    static plugin other;                                /* stays: plugins do not survive many clients in a row */
    static hash128 plain, flagged, turned;
    static bool asked;
    EACH_PLUGIN(pl) {
        CHECK(!strcmp(pjrt_platform(pl->p), "cpu") && *pjrt_platform_version(pl->p) && pjrt_device_count(pl->p) == 2);
        CHECK(pl->options.len > 6);
        if (i_ || asked) continue;
        char link[] = "/tmp/tputorch_link_XXXXXX", at[128], *flags = getenv("XLA_FLAGS");
        if (flags || !mkdtemp(link)) return;
        snprintf(at, sizeof at, "%s/other_name.so", link);
        CHECK(symlink(pjrt_path(pl->p), at) == 0);
        setenv("TPUTORCH_PLUGIN", at, 1);
        hash128 *out[3] = {&plain, &flagged, &turned};
        static const char *const words[3] = {"", "--xla_cpu_use_acl=false --xla_cpu_use_onednn=false", "--xla_cpu_use_onednn=false  --xla_cpu_use_acl=false"};
        for (int i = 0; i < 3; i++) {
            if (*words[i]) setenv("XLA_FLAGS", words[i], 1);
            tpu_error *e = plugin_find("", 2, &other);
            if (!e) *out[i] = other.identity;
            CHECK_OK(e);
            if (!e) plugin_close(&other);
        }
        unsetenv("XLA_FLAGS");
        setenv("TPUTORCH_PLUGIN", pjrt_path(pl->p), 1);
        asked = !test_faulting();
        CHECK(hash_equal(plain, pl->identity));
        CHECK(!hash_equal(flagged, plain) && hash_equal(flagged, turned));
        unlink(at);
        rmdir(link);
    }
}
