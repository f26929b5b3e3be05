/* sessions.h: which requests were applied and with what result, per (node, incarnation): part of the replicated state, so that a request
 * that is sent again is applied once. Per live incarnation: the highest number applied, and the results at and above the origin's
 * lowest waiting number, at most SESSION_RESULTS. The first operation of a new incarnation of a node drops that node's older ones.
 * Pure; iteration, encoding and digest are in order of (node, incarnation). */
#pragma once

#include "core/op.h"

#define SESSION_RESULTS 1024u
#define SESSIONS_ENCODED_MAX (16 * MIB)
struct sessions;
struct sessions *sessions_new(void);
void sessions_free(struct sessions *s);
DEFINE_FREEP(sessions_free, struct sessions)

enum session_verdict { SESSION_NEW, SESSION_KNOWN, SESSION_FORGOTTEN /* not above the highest, result no longer kept: -EIO to the caller */ };
/* ret is filled for SESSION_KNOWN alone. */
enum session_verdict sessions_find(const struct sessions *s, uint32_t node, uint64_t incarnation, uint64_t number, struct op_result *ret);
void sessions_record(struct sessions *s, const struct op_origin *origin, const struct op_result *result); /* incarnation 0 is not kept */
struct hash128 sessions_digest(const struct sessions *s); /* rolling */
errint_t sessions_encode(const struct sessions *s, struct enc *e); /* appends; e's own error, such as -EMSGSIZE beyond its max */
errint_t sessions_decode(const void *p, size_t n, struct sessions **ret); /* *ret is the caller's; -EBADMSG */
