#include "fake.h"

#include <sched.h>
#include <stdio.h>

struct fake_item {
        struct fake_item *next;
        uint8_t *head, *payload;
        size_t head_len;
        struct op_payload form;
        void (*done)(void *ctx, const struct op_result *result);
        void *ctx;
        uint64_t token;
        bool barrier, withdrawn;
        struct op_result result;
};

static void push(struct fake_item ***tail, struct fake_item *i) {
        i->next = NULL;
        **tail = i;
        *tail = &i->next;
}
static struct fake_item *pop(struct fake_item **head, struct fake_item ***tail) {
        struct fake_item *i = *head;
        if (i && !(*head = i->next))
                *tail = head;
        return i;
}
static void item_free(struct fake_item *i) {
        free(i->head);
        free(i->payload);
        free(i);
}

/* --- applying, as the executor does it */

static void note(struct fake *k, const struct op *op) {
        k->submits++;
        k->kinds[op->kind]++;
        k->payload_raw += op->payload.raw_len;
        k->payload_stored += op->payload.len;
        k->last_caller = op->caller;
        if (op->kind != OP_WRITE)
                return;
        k->last_write.flags = op->write.flags;
        k->last_write.keep = op->write.keep;
        k->last_write.size = op->write.size;
        k->last_write.n_extents = op->write.n_extents;
        k->last_write.first = op->write.n_extents ? op->write.extents[0] : (struct extent){0};
        k->last_write.form = op->payload.form;
        k->last_write.raw_len = op->payload.raw_len;
        k->last_write.time = op->time;
}

static struct fake_item *item_new(struct fake *k, struct op *op) {
        struct fake_item *i = NEW(struct fake_item);
        struct enc e;
        op->origin = (struct op_origin){
                .node = 1, .incarnation = 1, .number = ++k->numbers, .lowest_waiting = k->numbers > 1000 ? k->numbers - 1000 : 1};
        note(k, op);
        enc_init(&e, OP_HEAD_MAX);
        ck_assert_int_eq(op_encode_head(op, &e), 0);
        i->head = e.data;
        i->head_len = e.len;
        i->form = op->payload;
        i->payload = xmalloc(op->payload.len + 1);
        if (op->payload.len > 0)
                memcpy(i->payload, op->payload.data, op->payload.len);
        i->token = ++k->tokens;
        return i;
}

static struct op_result apply(struct fake *k, const void *head, size_t head_len, const void *payload, size_t payload_len, void *done_ctx) {
        struct op op;
        cleanup_free void *scratch = NULL;
        struct change_set changes;
        struct op_result result = {0};
        ck_assert_int_eq(op_decode(head, head_len, payload, payload_len, &op, &scratch), 0);
        change_set_init(&changes);
        struct state *s = shared_state_write(k->state);
        ck_assert_int_eq(state_apply(s, 1, &op, head, head_len, &changes, &result), 0);
        if (done_ctx)
                fs_applied(k->fs, done_ctx, &result);
        uint64_t seq = s->pos.seq;
        shared_state_done_write(k->state);
        fs_changed(k->fs, &changes, seq, done_ctx != NULL);
        change_set_done(&changes);
        return result;
}

static void item_apply(struct fake *k, struct fake_item *i) {
        if (i->withdrawn)
                i->result = (struct op_result){.error = -EINTR};
        else if (k->refuse < 0)
                i->result = (struct op_result){.error = k->refuse};
        else if (!i->barrier)
                i->result = apply(k, i->head, i->head_len, i->payload, i->form.len, i->ctx);
}

static void item_answer(struct fake_item *i) {
        i->done(i->ctx, &i->result);
        item_free(i);
}

static struct fake_item *take(struct fake *k, bool to_apply) {
        (void)pthread_mutex_lock(&k->lock);
        struct fake_item *i = to_apply ? pop(&k->to_apply, &k->to_apply_tail) : pop(&k->to_answer, &k->to_answer_tail);
        (void)pthread_mutex_unlock(&k->lock);
        return i;
}
static void hand_on(struct fake *k, struct fake_item *i) {
        (void)pthread_mutex_lock(&k->lock);
        push(&k->to_answer_tail, i);
        (void)pthread_cond_broadcast(&k->cond);
        (void)pthread_mutex_unlock(&k->lock);
}
void fake_apply(struct fake *k) {
        struct fake_item *i = take(k, true);
        ck_assert_ptr_nonnull(i);
        item_apply(k, i);
        hand_on(k, i);
}
void fake_answer(struct fake *k) {
        struct fake_item *i = take(k, false);
        ck_assert_ptr_nonnull(i);
        item_answer(i);
}
void fake_again(struct fake *k) {
        struct fake_item *i = take(k, false);
        ck_assert_ptr_nonnull(i);
        (void)pthread_mutex_lock(&k->lock);
        push(&k->to_apply_tail, i);
        (void)pthread_mutex_unlock(&k->lock);
}
void fake_all(struct fake *k) {
        while (k->to_apply || k->to_answer) {
                if (k->to_apply)
                        fake_apply(k);
                else
                        fake_answer(k);
        }
}
unsigned fake_waiting(struct fake *k) {
        unsigned n = 0;
        for (struct fake_item *i = k->to_apply; i; i = i->next)
                n++;
        for (struct fake_item *i = k->to_answer; i; i = i->next)
                n++;
        return n;
}

static void *thread_main(struct fake *k, bool to_apply) {
        for (;;) {
                (void)pthread_mutex_lock(&k->lock);
                while (!(to_apply ? k->to_apply : k->to_answer) && !k->ending)
                        (void)pthread_cond_wait(&k->cond, &k->lock);
                bool end = !(to_apply ? k->to_apply : k->to_answer);
                (void)pthread_mutex_unlock(&k->lock);
                if (end)
                        return NULL;
                struct fake_item *i = take(k, to_apply);
                if (to_apply) {
                        item_apply(k, i);
                        hand_on(k, i);
                } else {
                        (void)sched_yield();
                        item_answer(i);
                }
        }
}
static void *apply_main(void *k) {
        return thread_main(k, true);
}
static void *answer_main(void *k) {
        return thread_main(k, false);
}

/* --- the backend */

static void hand_over(struct fake *k, struct fake_item *i) {
        if (k->mode == FAKE_AT_ONCE) {
                item_apply(k, i);
                item_answer(i);
                return;
        }
        (void)pthread_mutex_lock(&k->lock);
        push(&k->to_apply_tail, i);
        (void)pthread_cond_broadcast(&k->cond);
        (void)pthread_mutex_unlock(&k->lock);
}

static void b_submit(void *ctx, struct op *op, void (*done)(void *done_ctx, const struct op_result *result), void *done_ctx,
                     uint64_t *ret_token) {
        struct fake *k = ctx;
        (void)pthread_mutex_lock(&k->lock);
        struct fake_item *i = item_new(k, op);
        i->done = done;
        i->ctx = done_ctx;
        *ret_token = i->token;
        if (k->mode != FAKE_AT_ONCE) { /* in the order of their numbers */
                push(&k->to_apply_tail, i);
                (void)pthread_cond_broadcast(&k->cond);
                i = NULL;
        }
        (void)pthread_mutex_unlock(&k->lock);
        if (i)
                hand_over(k, i);
}
static void b_barrier(void *ctx, void (*done)(void *done_ctx, const struct op_result *result), void *done_ctx) {
        struct fake *k = ctx;
        struct fake_item *i = NEW(struct fake_item);
        i->barrier = true;
        i->done = done;
        i->ctx = done_ctx;
        (void)pthread_mutex_lock(&k->lock);
        k->barriers++;
        (void)pthread_mutex_unlock(&k->lock);
        hand_over(k, i);
}
static void b_withdraw(void *ctx, uint64_t token) {
        struct fake *k = ctx;
        (void)pthread_mutex_lock(&k->lock);
        for (struct fake_item *i = k->to_apply; i; i = i->next) {
                if (i->token == token) {
                        i->withdrawn = true;
                        k->withdrawn++;
                }
        }
        (void)pthread_mutex_unlock(&k->lock);
}
static errint_t b_reserve(void *ctx, uint64_t bytes, bool frees) {
        struct fake *k = ctx;
        (void)frees;
        (void)pthread_mutex_lock(&k->lock);
        errint_t r = k->room != UINT64_MAX && (uint64_t)k->reserved + bytes > k->room ? -ENOSPC : 0;
        if (r == 0)
                k->reserved += (int64_t)bytes;
        k->reserved_max = MAX_OF(k->reserved_max, k->reserved);
        (void)pthread_mutex_unlock(&k->lock);
        return r;
}
static void b_release(void *ctx, uint64_t bytes) {
        struct fake *k = ctx;
        (void)pthread_mutex_lock(&k->lock);
        k->reserved -= (int64_t)bytes;
        ck_assert_int_ge(k->reserved, 0);
        (void)pthread_mutex_unlock(&k->lock);
}
static errint_t b_writable(void *ctx) {
        return ((struct fake *)ctx)->not_writable;
}
static void b_invalidate(void *ctx, uint64_t ino) {
        struct fake *k = ctx;
        (void)pthread_mutex_lock(&k->lock);
        k->invalidated++;
        k->last_invalidated = ino;
        (void)pthread_mutex_unlock(&k->lock);
}
static void b_arm(void *ctx, uint64_t at_ms) {
        struct fake *k = ctx;
        (void)pthread_mutex_lock(&k->lock);
        k->armed_ms = at_ms;
        (void)pthread_mutex_unlock(&k->lock);
}
static void b_realtime(void *ctx, struct timestamp *ret) {
        struct fake *k = ctx;
        (void)pthread_mutex_lock(&k->lock);
        k->now.nsec += 1000;
        *ret = k->now;
        (void)pthread_mutex_unlock(&k->lock);
}
static uint64_t b_monotonic(void *ctx) {
        return ((struct fake *)ctx)->now_ms;
}
static void b_program(void *ctx, int32_t pid, char program[LIMIT_PROGRAM]) {
        (void)ctx;
        (void)snprintf(program, LIMIT_PROGRAM, "prog%d", (int)pid);
}
static errint_t b_virtual(void *ctx, const char *name, struct enc *e) {
        (void)ctx;
        enc_raw(e, name, strlen(name));
        enc_raw(e, " text\n", 6);
        return e->err;
}

void fake_fs_config(struct fake *k, void (*change)(struct fs_config *c)) {
        struct fs_config c = {
                .state = k->state,
                .backend = {.submit = b_submit,
                            .barrier = b_barrier,
                            .withdraw = b_withdraw,
                            .reserve = b_reserve,
                            .release = b_release,
                            .writable = b_writable,
                            .invalidate_inode = b_invalidate,
                            .arm = b_arm,
                            .realtime = b_realtime,
                            .monotonic_ms = b_monotonic,
                            .program = b_program,
                            .virtual_text = b_virtual,
                            .ctx = k},
                .metrics = &k->metrics,
                .gather_ms = 1000,
        };
        if (change)
                change(&c);
        fs_free(k->fs);
        k->fs = fs_new(&c);
}

struct fake *fake_new(enum fake_mode mode) {
        struct fake *k = NEW(struct fake);
        k->mode = mode;
        k->state = shared_state_new(1);
        (void)pthread_mutex_init(&k->lock, NULL);
        (void)pthread_cond_init(&k->cond, NULL);
        k->to_apply_tail = &k->to_apply;
        k->to_answer_tail = &k->to_answer;
        k->room = UINT64_MAX;
        k->now_ms = 5000;
        k->now = (struct timestamp){1700000000, 0};
        fake_fs_config(k, NULL);
        if (mode == FAKE_THREAD) {
                (void)pthread_create(&k->threads[0], NULL, apply_main, k);
                (void)pthread_create(&k->threads[1], NULL, answer_main, k);
        }
        return k;
}

static void shut(void *ctx) {
        atomic_store((_Atomic int *)ctx, 1);
}

void fake_free(struct fake *k) {
        char fault[256];
        _Atomic int down = 0;
        fs_shutdown(k->fs, shut, &down);
        while (!down) {
                if (k->mode == FAKE_BY_HAND)
                        fake_all(k);
                else
                        (void)sched_yield();
        }
        if (k->mode == FAKE_THREAD) {
                (void)pthread_mutex_lock(&k->lock);
                k->ending = true;
                (void)pthread_cond_broadcast(&k->cond);
                (void)pthread_mutex_unlock(&k->lock);
                (void)pthread_join(k->threads[0], NULL);
                (void)pthread_join(k->threads[1], NULL);
        }
        fake_all(k);
        fs_tick(k->fs, UINT64_MAX - 1);
        fake_all(k);
        ck_assert_int_eq(k->reserved, 0);
        fs_free(k->fs);
        const struct state *s = shared_state_read(k->state);
        ck_assert_msg(tree_check(s->tree, fault, sizeof(fault)) == 0, "%s", fault);
        shared_state_done_read(k->state);
        shared_state_free(k->state);
        (void)pthread_mutex_destroy(&k->lock);
        (void)pthread_cond_destroy(&k->cond);
        free(k);
}

void fake_advance(struct fake *k, uint64_t ms) {
        k->now_ms += ms;
        k->now.sec += (int64_t)(ms / 1000) + 1;
        if (k->armed_ms != 0 && k->armed_ms <= k->now_ms) {
                k->armed_ms = 0;
                fs_tick(k->fs, k->now_ms);
        }
}

/* --- others */

struct op_result fake_remote(struct fake *k, struct op *op) {
        struct enc e;
        op->origin = (struct op_origin){.node = 2, .incarnation = 1, .number = ++k->remote_numbers, .lowest_waiting = k->remote_numbers};
        if (op->time.sec == 0)
                b_realtime(k, &op->time);
        enc_init(&e, OP_HEAD_MAX);
        ck_assert_int_eq(op_encode_head(op, &e), 0);
        struct op_result r = apply(k, e.data, e.len, op->payload.data, op->payload.len, NULL);
        enc_done(&e);
        return r;
}
static void remote_bytes(struct fake *k, uint64_t ino, uint32_t flags, uint64_t keep, uint64_t size, uint64_t offset, const char *text) {
        size_t len = strlen(text);
        struct extent x = {offset, len, EXTENT_DATA};
        struct op op = {.kind = OP_WRITE, .payload = {.raw_len = len, .data = (const uint8_t *)text, .len = len}};
        op.write.ino = ino;
        op.write.flags = flags;
        op.write.keep = keep;
        op.write.size = size;
        op.write.extents = &x;
        op.write.n_extents = len > 0 ? 1 : 0;
        ck_assert_int_eq(fake_remote(k, &op).error, 0);
}
void fake_remote_write(struct fake *k, uint64_t ino, uint64_t keep, uint64_t size, uint64_t offset, const char *text) {
        remote_bytes(k, ino, 0, keep, size, offset, text);
}
void fake_remote_append(struct fake *k, uint64_t ino, const char *text) {
        remote_bytes(k, ino, WRITE_APPEND, BLOB_KEEP_ALL, BLOB_KEEP_ALL, 0, text);
}
void fake_remote_unlink(struct fake *k, uint64_t parent, const char *name) {
        struct op op = {.kind = OP_UNLINK};
        op.unlink.parent = parent;
        op.unlink.name = (struct op_name){name, strlen(name)};
        ck_assert_int_eq(fake_remote(k, &op).error, 0);
}
uint64_t fake_lookup(struct fake *k, uint64_t parent, const char *name) {
        uint64_t ino = 0;
        const struct state *s = shared_state_read(k->state);
        (void)tree_lookup(s->tree, parent, name, strlen(name), &ino);
        shared_state_done_read(k->state);
        return ino;
}
void fake_content(struct fake *k, uint64_t ino, char *buf, size_t size) {
        struct blob *b = NULL;
        const struct state *s = shared_state_read(k->state);
        ck_assert_int_eq(tree_content(s->tree, ino, &b), 0);
        shared_state_done_read(k->state);
        buf[blob_read(b, 0, buf, size - 1)] = '\0';
        blob_unref(b);
}
struct attr fake_attr(struct fake *k, uint64_t ino) {
        struct attr a = {0};
        const struct state *s = shared_state_read(k->state);
        ck_assert_int_eq(tree_getattr(s->tree, ino, &a), 0);
        shared_state_done_read(k->state);
        return a;
}
