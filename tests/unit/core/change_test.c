/* Change sets and settings. */
#include "helper.h"

START_TEST(names_stay) {
        struct change_set s, copy;
        char name[300];
        change_set_init(&s);
        change_set_init(&copy);
        for (int round = 0; round < 3; round++) {
                change_set_reset(&s);
                for (int i = 0; i < 100; i++) {
                        memset(name, 'a' + i % 26, sizeof(name));
                        struct change *c = change_set_add(&s, CHANGE_ENTRY_ADD, (uint64_t)i);
                        change_set_name(&s, c, name, (size_t)(i + 150));
                }
                change_set_copy(&copy, &s);
        }
        for (size_t i = 0; i < 100; i++) {
                memset(name, (int)('a' + i % 26), sizeof(name));
                const struct change *c = &s.items[i], *d = &copy.items[i];
                ck_assert_uint_eq(c->ino, i);
                ck_assert_uint_eq(c->name_len, i + 150);
                ck_assert_mem_eq(c->name, name, c->name_len);
                ck_assert_int_eq(c->name[c->name_len], 0);
                ck_assert_ptr_ne(c->name, d->name);
                ck_assert_str_eq(c->name, d->name);
                ck_assert_uint_eq(c->ino, d->ino);
        }
        ck_assert_uint_eq(copy.n, 100);
        change_set_done(&s);
        change_set_done(&s);
        change_set_done(&copy);
}
END_TEST

static Suite *suite_change(void) {
        Suite *s = suite_create("change");
        TCase *c = tcase_create("change");
        tcase_add_test(c, names_stay);
        suite_add_tcase(s, c);
        return s;
}
UNIT_SUITE(suite_change)

static int set(struct settings *s, const char *name, const char *text) {
        return settings_set(s, name, strlen(name), text, strlen(text));
}

START_TEST(values) {
        struct settings s;
        settings_default(&s);
        ck_assert_uint_eq(s.file_size_max, 16 * MIB);
        ck_assert_uint_eq(s.tree_size_max, GIB);
        ck_assert_uint_eq(s.inodes_max, 1048576);
        ck_assert_int_eq(set(&s, "file_size_max", "12345"), 0);
        ck_assert_uint_eq(s.file_size_max, 12345);
        ck_assert_int_eq(set(&s, "file_size_max", "3K"), 0);
        ck_assert_uint_eq(s.file_size_max, 3072);
        ck_assert_int_eq(set(&s, "file_size_max", "64M"), 0);
        ck_assert_int_eq(set(&s, "file_size_max", "65M"), -EINVAL);
        ck_assert_uint_eq(s.file_size_max, 64 * MIB);
        ck_assert_int_eq(set(&s, "tree_size_max", "2G"), 0);
        ck_assert_uint_eq(s.tree_size_max, 2 * GIB);
        ck_assert_int_eq(set(&s, "tree_size_max", ""), 0);
        ck_assert_uint_eq(s.tree_size_max, GIB);
        ck_assert_int_eq(set(&s, "inodes_max", "15"), -EINVAL);
        static const char *const bad[] = {
                "K", "-1", "+1", " 1", "1 ", "1k", "0x10", "1KK", "1.5", "18446744073709551616", "18446744073709551615K", "99999999999G"};
        for (size_t i = 0; i < ARRAY_LEN(bad); i++)
                ck_assert_msg(set(&s, "tree_size_max", bad[i]) == -EINVAL, "%s", bad[i]);
        ck_assert_int_eq(set(&s, "nothing", "1"), -EINVAL);
        ck_assert_int_eq(set(&s, "", "1"), -EINVAL);
        ck_assert_int_eq(set(&s, "inodes_ma", "1"), -EINVAL);
}
END_TEST

START_TEST(the_table) {
        struct settings s;
        settings_default(&s);
        for (size_t i = 0; i < settings_count(); i++) {
                const struct setting_info *info = settings_info(i);
                ck_assert_ptr_eq(settings_find(info->name, strlen(info->name)), info);
                ck_assert_uint_eq(settings_get(&s, info), info->def);
                ck_assert(info->min <= info->def && info->def <= info->max);
        }
        ck_assert_ptr_null(settings_find("x", 1));
}
END_TEST

static Suite *suite_settings(void) {
        Suite *s = suite_create("settings");
        TCase *c = tcase_create("settings");
        tcase_add_test(c, values);
        tcase_add_test(c, the_table);
        suite_add_tcase(s, c);
        return s;
}
UNIT_SUITE(suite_settings)
