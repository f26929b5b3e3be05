/* store_checkpoint.c: brings home what was captured: contents that are written anew, the flushes, the SQLite transaction, and what
 * becomes free with it. Runs beside appends, without the caller's lock. */
#include "store_private.h"

#include "base/failpoint.h"
#include "base/log.h"
#include <stdio.h>
#include <string.h>

bool store_wants_checkpoint(const struct store *base) {
        struct sqlite_store *s = STORE_OF(base);
        (void)pthread_mutex_lock(&s->lock);
        bool wants = false;
        if (!s->read_only && !s->failed[0] && !s->stopped && !s->capture.active) {
                uint64_t half = oplog_half_size(s->log), used = oplog_used(s->log), dead = content_dead_bytes(s->content);
                bool log_full = !s->other_free || used > half - MIN_OF(half / 8, 4 * s->record_max);
                bool too_dead = dead > MAX_OF(64 * MIB, content_live_bytes(s->content) / 4);
                wants = s->trouble < 0 ||
                        ((log_full || too_dead || (s->want_dead_freed && dead > 0)) && (!s->no_space || used >= s->retry_used));
        }
        (void)pthread_mutex_unlock(&s->lock);
        return wants;
}

void store_fail_with(struct sqlite_store *s, const char *what, errint_t error) {
        (void)pthread_mutex_lock(&s->lock);
        bool first = !s->failed[0];
        if (first)
                (void)snprintf(s->failed, sizeof(s->failed), "%s: %s: %s", s->path, what, strerror(-error)); /* cut if need be */
        (void)pthread_mutex_unlock(&s->lock);
        if (first)
                log_error("store: %s; read-only from here on", s->failed);
}

/* --- contents --- */

errint_t store_make_base(struct sqlite_store *s, struct blob *blob, uint64_t seq, struct file_piece *ret, uint8_t **ret_inline) {
        size_t raw_len = (size_t)blob_size(blob), stored_len = raw_len;
        cleanup_free uint8_t *raw = try_malloc(raw_len + 1), *packed = NULL;
        if (!raw)
                return -ENOMEM;
        (void)blob_read(blob, 0, raw, raw_len); /* all of it: raw_len is its size */
        struct file_piece p = {.seq = seq, .base = true, .form = FORM_RAW, .raw_len = raw_len};
        errint_t r = compress_zstd(raw, raw_len, &packed, &stored_len);
        if (r < 0 && r != -ENODATA)
                return r;
        p.form = (uint8_t)(r == 0 ? FORM_ZSTD : FORM_RAW);
        const uint8_t *stored = r == 0 ? packed : raw;
        p.stored_len = r == 0 ? stored_len : raw_len;
        p.crc = crc32c(0, stored, p.stored_len);
        if (p.stored_len < CONTENT_THRESHOLD) {
                *ret_inline = r == 0 ? steal_pointer(&packed) : steal_pointer(&raw);
                *ret = p;
                return 0;
        }
        (void)pthread_mutex_lock(&s->lock);
        bool direct = s->direct && s->level == LEVEL_FILE;
        (void)pthread_mutex_unlock(&s->lock);
        size_t n = 0;
        r = content_write(s->content, stored, p.stored_len, direct, &p.extents, &n);
        if (disk_is_full(r) && ballast_give_up(s))
                r = content_write(s->content, stored, p.stored_len, direct, &p.extents, &n);
        if (r < 0)
                return r;
        p.n_extents = (uint32_t)n;
        (void)pthread_mutex_lock(&s->lock);
        s->content_new = true;
        (void)pthread_mutex_unlock(&s->lock);
        *ret = p;
        return 0;
}

errint_t store_put_file_piece(struct sqlite_store *s, uint64_t ino, const struct file_piece *p, const void *inline_data) {
        struct piece row = {
                .seq = p->seq,
                .base = p->base,
                .edit = p->edit,
                .edit_len = p->edit_len,
                .form = (enum content_form)p->form,
                .raw_len = p->raw_len,
                .inline_data = inline_data,
                .stored_len = (size_t)p->stored_len,
                .crc = p->crc,
                .extents = p->extents,
                .n_extents = p->n_extents,
        };
        return home_put_piece(s->home, ino, &row);
}

/* A record of the log that has a payload. What does not read back as it was appended is not used. */
static errint_t read_payload(struct sqlite_store *s, uint64_t seq, uint64_t offset, uint32_t len, struct oplog_record *rec,
                             void **ret_buffer) {
        errint_t r = len > 0 ? oplog_read(s->log, offset, len, rec, ret_buffer) : -ENOENT;
        if (r < 0)
                return r;
        return rec->pos.seq == seq && rec->payload ? 0 : -EBADMSG;
}

static errint_t read_piece(struct sqlite_store *s, const struct file_piece *p, struct oplog_record *rec, void **ret_buffer) {
        errint_t r = read_payload(s, p->seq, p->log_offset, p->log_len, rec, ret_buffer);
        if (r < 0)
                return r;
        bool same = rec->payload_len == p->stored_len && rec->payload_crc == p->crc && rec->form == (enum content_form)p->form &&
                    rec->raw_len == p->raw_len;
        return same ? 0 : -EBADMSG;
}

/* A content that one record is. */
static errint_t read_whole(struct sqlite_store *s, const struct capture *c, size_t at, struct oplog_record *rec, void **ret_buffer) {
        const struct dirty_inode *in = &c->dirty.inodes[at];
        errint_t r = read_payload(s, in->seq, in->log_offset, in->log_len, rec, ret_buffer);
        if (r < 0)
                return r;
        return rec->raw_len == blob_size(c->inodes[at].blob) ? 0 : -EBADMSG;
}

static bool reads_back(struct sqlite_store *s, const struct captured_content *k) {
        for (size_t i = 0; i < k->n; i++) {
                struct oplog_record rec;
                cleanup_free void *buffer = NULL;
                const struct file_piece *p = &k->pieces[i];
                if (p->n_extents == 0 && p->stored_len > 0 && read_piece(s, p, &rec, &buffer) < 0)
                        return false;
        }
        return true;
}

/* Memory has what the log has lost. */
static void rewrite_lost(struct sqlite_store *s, struct capture *c) {
        size_t at = 0;
        for (size_t i = 0; i < c->dirty.n_inodes; i++) {
                struct oplog_record rec;
                cleanup_free void *buffer = NULL;
                struct dirty_inode *in = &c->dirty.inodes[i];
                if (!(in->flags & DIRTY_CONTENT))
                        continue;
                struct captured_content *k = &c->contents[at];
                if (in->log_len == 0) {
                        k->rewrite |= !reads_back(s, k);
                        at++;
                } else if (read_whole(s, c, i, &rec, &buffer) < 0) {
                        in->log_len = 0;
                        memmove(k + 1, k, (c->n_contents++ - at++) * sizeof(*k)); /* there is room for all inodes */
                        *k = (struct captured_content){.at = i, .rewrite = true};
                }
        }
}

/* Room to write a content anew is found before the home is touched: its extents are flushed with the others. */
static errint_t make_rewrites(struct sqlite_store *s, struct capture *c) {
        rewrite_lost(s, c);
        for (size_t i = 0; i < c->n_contents; i++) {
                struct captured_content *k = &c->contents[i];
                struct blob *blob = c->inodes[k->at].blob;
                errint_t r = k->rewrite && blob_size(blob) > 0 ? store_make_base(s, blob, c->meta.pos.seq, &k->made, &k->inlined) : 0;
                if (r < 0)
                        return r;
        }
        return 0;
}

static errint_t put_whole(struct sqlite_store *s, const struct capture *c, size_t at) {
        struct oplog_record rec = {0};
        cleanup_free void *buffer = NULL;
        errint_t r = read_whole(s, c, at, &rec, &buffer);
        if (r < 0)
                return r;
        const struct file_piece p = {.seq = rec.pos.seq,
                                     .base = true,
                                     .form = (uint8_t)rec.form,
                                     .raw_len = rec.raw_len,
                                     .stored_len = rec.payload_len,
                                     .crc = rec.payload_crc};
        return store_put_file_piece(s, c->inodes[at].ino, &p, rec.payload);
}

static errint_t put_content(struct sqlite_store *s, const struct capture *c, const struct captured_content *k) {
        uint64_t ino = c->inodes[k->at].ino;
        if (k->rewrite)
                return blob_size(c->inodes[k->at].blob) == 0 ? home_delete_content(s->home, ino)
                                                             : store_put_file_piece(s, ino, &k->made, k->inlined);
        for (size_t i = 0; i < k->n; i++) {
                const struct file_piece *p = &k->pieces[i];
                struct oplog_record rec = {0};
                cleanup_free void *buffer = NULL;
                errint_t r = 0;
                if (p->n_extents == 0 && p->stored_len > 0)
                        r = read_piece(s, p, &rec, &buffer);
                if (r == 0)
                        r = store_put_file_piece(s, ino, p, rec.payload);
                if (r < 0)
                        return r;
        }
        return 0;
}

static errint_t put_contents(struct sqlite_store *s, const struct capture *c) {
        errint_t r = 0;
        size_t at = 0;
        for (size_t i = 0; r == 0 && i < c->dirty.n_inodes; i++) {
                const struct dirty_inode *in = &c->dirty.inodes[i];
                if (in->flags & DIRTY_CONTENT)
                        r = in->log_len > 0 ? put_whole(s, c, i) : put_content(s, c, &c->contents[at++]);
        }
        return r;
}

/* --- the transaction --- */

static errint_t put_inode(struct sqlite_store *s, const struct captured_inode *in, unsigned flags) {
        const struct tree_inode_state row = {
                .attr = {.ino = in->ino,
                         .size = in->size,
                         .atime = {in->atime, in->atime_ns},
                         .mtime = {in->mtime, in->mtime_ns},
                         .ctime = {in->ctime, in->ctime_ns},
                         .mode = in->mode,
                         .uid = in->uid,
                         .gid = in->gid,
                         .nlink = in->nlink,
                         .rdev = in->rdev},
                .parent = in->parent,
                .next_cookie = in->next_cookie,
        };
        if (in->mode == 0)
                return home_delete_inode(s->home, in->ino);
        errint_t r = home_put_inode(s->home, &row, in->content_check);
        return r == 0 && flags & DIRTY_XATTRS ? home_put_xattrs(s->home, in->ino, in->xattrs, in->xattrs_len) : r;
}

static errint_t put_all(struct sqlite_store *s, const struct capture *c) {
        errint_t r = 0;
        for (size_t i = 0; r == 0 && i < c->dirty.n_inodes; i++)
                r = put_inode(s, &c->inodes[i], c->dirty.inodes[i].flags);
        for (size_t i = 0; r == 0 && i < c->dirty.n_entries; i++) {
                const struct entry_key *k = c->dirty.entries[i];
                const struct captured_entry *e = &c->entries[i];
                r = e->ino != 0 ? home_put_entry(s->home, k->parent, k->name, k->len, e->ino, e->cookie)
                                : home_delete_entry(s->home, k->parent, k->name, k->len);
        }
        if (r == 0)
                r = put_contents(s, c);
        for (size_t i = 0; r == 0 && i < c->n_settings; i += 2)
                r = home_put_setting(s->home, c->settings[i], c->settings[i + 1]);
        return r < 0 ? r : home_put_sessions(s->home, c->sessions.data, c->sessions.len);
}

errint_t store_fresh_home(struct sqlite_store *s) {
        if (!s->home_doubtful)
                return 0;
        struct home_meta meta;
        errint_t r = home_reopen(s->home, &meta);
        if (r < 0)
                return r;
        /* Which of the two it is does not matter: the same changes come again, and salts are as they were or belong to a free half. */
        s->meta = meta;
        s->home_doubtful = false;
        return 0;
}

static errint_t commit_once(struct sqlite_store *s, struct capture *c) {
        errint_t r = store_fresh_home(s);
        if (r == 0)
                r = home_begin(s->home);
        if (r < 0)
                return r;
        if (c->everything)
                r = home_clear(s->home);
        if (r == 0)
                r = put_all(s, c);
        if (r == 0)
                r = failpoint("store.home.commit");
        if (r < 0) {
                home_rollback(s->home);
                s->home_doubtful = true;
                return r;
        }
        (void)pthread_mutex_lock(&s->lock);
        c->meta.promised = s->promised; /* not tied to the position: the newest is the right one */
        (void)pthread_mutex_unlock(&s->lock);
        c->meta.content_size = content_file_size(s->content);
        r = home_commit(s->home, &c->meta);
        if (r < 0)
                s->home_doubtful = true;
        return r;
}

static errint_t bring_home(struct sqlite_store *s, struct capture *c) {
        uint64_t seq = 0;
        errint_t r = make_rewrites(s, c);
        if (r == 0)
                r = c->kind == CHECKPOINT_NORMAL ? store_flush_all(s, &seq)
                                                 : store_flush_content(s); /* else the log is not needed any more */
        if (r < 0)
                return r;
        memcpy(c->meta.cluster_id, s->meta.cluster_id, sizeof(c->meta.cluster_id));
        memcpy(c->meta.database_id, s->meta.database_id, sizeof(c->meta.database_id));
        memcpy(c->meta.boot_id, s->boot_id, sizeof(c->meta.boot_id));
        c->meta.log_size = s->log_size;
        r = commit_once(s, c);
        if (disk_is_full(r) && ballast_give_up(s))
                r = commit_once(s, c);
        return r;
}

/* --- afterwards; under lock --- */

/* The home has `made` for all pieces up to the captured position, unless newer ones have replaced them. */
static void settle_rewrite(struct sqlite_store *s, const struct capture *c, struct captured_content *k) {
        uint64_t ino = c->inodes[k->at].ino, seq = c->meta.pos.seq;
        struct file *f = file_find(s, ino);
        struct file_piece made = k->made;
        const struct dirty_inode *since = dirty_find(&s->dirty, ino);
        if (f ? f->pieces[0].seq > seq : since && since->flags & (DIRTY_CONTENT | DIRTY_GONE)) {
                if (made.n_extents > 0) /* overtaken: the home names them until it covers what came since */
                        content_free_at(s->content, made.extents, made.n_extents, s->tick);
                return;
        }
        if (!f && made.n_extents == 0)
                return;
        k->made = (struct file_piece){0};
        made.in_home = made.base = true;
        made.seq = seq;
        f = file_get(s, ino);
        if (f->n == 0) {
                file_push(f, &made);
                return;
        }
        uint32_t kept = 1;
        for (size_t i = 0; i < f->n; i++) {
                struct file_piece *p = &f->pieces[i];
                if (p->seq > seq) {
                        f->pieces[kept++] = *p;
                        continue;
                }
                if (p->n_extents > 0)
                        content_free_at(s->content, p->extents, p->n_extents, c->tick);
                piece_done(p);
        }
        f->pieces[0] = made;
        f->n = kept;
        if (made.n_extents > 0)
                return;
        if (kept == 1) { /* turned out small: the home has it, and nothing is to be kept */
                file_forget(s, ino);
                return;
        }
        s->tick++; /* edits of something small: it is written whole, beyond what this home covers */
        file_rewrite(s, ino);
}

static void settle_pieces(struct sqlite_store *s, const struct capture *c, const struct captured_content *k) {
        struct file *f = file_find(s, c->inodes[k->at].ino);
        for (size_t i = 0; f && i < f->n; i++)
                for (size_t j = 0; j < k->n; j++)
                        if (f->pieces[i].seq == k->pieces[j].seq)
                                f->pieces[i].in_home = true;
}

static void after_success(struct sqlite_store *s, struct capture *c) {
        for (size_t i = 0; i < c->n_contents; i++) {
                if (c->contents[i].rewrite)
                        settle_rewrite(s, c, &c->contents[i]);
                else
                        settle_pieces(s, c, &c->contents[i]);
        }
        s->salt[0] = c->meta.salt[0];
        s->salt[1] = c->meta.salt[1];
        s->no_space = s->want_dead_freed = s->waits_for_room = false;
        if (c->kind == CHECKPOINT_NORMAL) {
                s->other_free |= c->free_half >= 0;
                return;
        }
        s->half = c->meta.half;
        s->other_free = true;
        index_clear(s, 0);
        index_clear(s, 1);
        oplog_drop_pending(s->log, c->meta.pos.seq);
        oplog_start(s->log, s->half, s->salt[s->half], 0, 0);
        s->replacing = false;
        s->content_ok_seq = c->meta.pos.seq;
        if (s->pos.seq == c->meta.pos.seq)
                s->trouble = 0; /* else what came meanwhile is in no log: it needs another one */
}

static void after_failure(struct sqlite_store *s, struct capture *c) {
        for (size_t i = 0; i < c->n_contents; i++) {
                struct captured_content *k = &c->contents[i];
                uint64_t ino = c->inodes[k->at].ino;
                struct file *f = file_find(s, ino);
                if (k->made.n_extents > 0) /* perhaps the home names them all the same */
                        content_free_at(s->content, k->made.extents, k->made.n_extents, s->tick);
                if (k->rewrite && f && f->pieces[0].seq <= c->meta.pos.seq)
                        file_rewrite(s, ino);
        }
        dirty_merge(&s->dirty, &c->dirty);
        s->stopped = false;
}

/* A full disk is no trouble: SQLite has rolled back, the log goes on while it has room, and the next checkpoint may find space. Nor is a
 * rescue that finds no room the end: all of it is still in memory, and the next one is as good. */
static errint_t judge_failure(struct sqlite_store *s, const struct capture *c, errint_t r) {
        bool full = disk_is_full(r), rescue = c->kind == CHECKPOINT_RESCUE;
        (void)pthread_mutex_lock(&s->lock);
        if (full && c->kind == CHECKPOINT_NORMAL) {
                s->no_space = true;
                s->retry_used = MIN_OF(oplog_used(s->log) + oplog_half_size(s->log) / 16, oplog_half_size(s->log) - 2 * s->record_max);
        } else if (s->trouble == 0) {
                s->trouble = r;
        }
        bool told = s->waits_for_room;
        s->waits_for_room = full && rescue;
        (void)pthread_mutex_unlock(&s->lock);
        if (full)
                (void)ballast_give_up(s); /* for the next one */
        if (rescue && !c->first_replace && !full)
                store_fail_with(s, "what the log could not take could not be brought home either", r);
        else if (!told)
                log_warning("store: %s: checkpoint failed: %s", s->path, strerror(-r));
        return r;
}

errint_t store_checkpoint_run(struct store *base) {
        struct sqlite_store *s = STORE_OF(base);
        struct capture *c = &s->capture;
        (void)pthread_mutex_lock(&s->home_lock);
        (void)pthread_mutex_lock(&s->lock);
        errint_t r = s->failed[0] ? -EROFS : !c->active ? -EINVAL : c->error;
        bool nothing = r == 0 && c->nothing;
        (void)pthread_mutex_unlock(&s->lock);
        if (r == 0 && !nothing) {
                r = bring_home(s, c);
                if (r < 0)
                        r = judge_failure(s, c, r);
        }
        (void)pthread_mutex_lock(&s->lock);
        if (c->active && !nothing) {
                if (r == 0) {
                        s->meta = c->meta;
                        after_success(s, c);
                } else {
                        after_failure(s, c);
                }
        }
        uint64_t tick = c->tick;
        capture_done(c);
        (void)pthread_mutex_unlock(&s->lock);
        if (r == 0 && !nothing) {
                content_home_durable(s->content, tick);
                metric_add(s->metrics, METRIC_CHECKPOINTS, 1);
                (void)ballast_make(s); /* if it is missing; tried again with the next reservation */
        }
        (void)pthread_mutex_unlock(&s->home_lock);
        return r;
}
