/* guardian.h: a process beside the daemon that does what the daemon cannot do for itself any more.
 *
 * A daemon that is killed does not end while one of its threads sits in the kernel: telling it of a change waits for a directory whose lock
 * a process holds that waits for this very daemon; a flush waits for a disk that does not answer. As the open /dev/fuse keeps the
 * connection alive meanwhile, every process on the mount hangs in D state. The guardian cuts the connection the moment the daemon begins
 * to die. It also reports a daemon whose loops make no step.
 *
 * How it knows: a thread that does nothing but wait has a table of open files of its own (unshare(2), CLONE_FILES), and in it the only
 * writing end of a pipe. When the process is killed this thread ends at once, whatever the others are stuck in, and with it the pipe. A
 * pidfd or a pipe in the shared table would tell only when the last thread has ended; PR_SET_PDEATHSIG was tried and did not always come
 * (Linux 6.18). A crash is told by its signal handler: while a core is written no thread ends. What the guardian cuts is the connection
 * whose abort file it was handed, open: numbers of connections are used again, an open file is not.
 *
 * It has a session of its own, blocks all signals, and holds nothing open but its ends of the pipe and of a socket, that file, and the log.
 * It ends with the daemon's last thread. */
#pragma once

#include "base/base.h"

enum guardian_loop { LOOP_MAIN, LOOP_ENGINE, LOOP_CONTROL, LOOP_COUNT };

struct guardian_config {
        const char *mountpoint;  /* absolute */
        int log_fd;              /* kept open for it; -1: none */
        bool keep_stderr;        /* the log goes there */
        bool detach;             /* the dead mount is unmounted (lazily) as well */
        uint64_t hang_report_ms; /* a loop that makes no step for so long is reported; UINT64_MAX: never */
        uint64_t hang_kill_ms;   /* and the daemon killed after so long; UINT64_MAX: never */
};
struct guardian;
/* Forks it. Before the process has threads of its own; the log is set up. */
errint_t guardian_start(const struct guardian_config *config, struct guardian **ret);
void guardian_stop(struct guardian *g); /* the daemon has ended properly; NULL is fine */
/* From now on there is a mount to look after. abort_fd: see fuse_edge_abort_file; stays the caller's; -1: umount2(MNT_FORCE) is used. */
void guardian_mounted(struct guardian *g, int abort_fd);
/* late: bits of loops that did not answer since the last beat. The first one starts the watchdog. Any thread, never blocks. */
void guardian_beat(struct guardian *g, uint32_t late);
void guardian_rest(struct guardian *g); /* no beats from here on: stopping has time limits of its own */
/* Signals that end with a core are told to the guardian first; where somebody else (a sanitizer) handles them, they are left alone. */
void guardian_watch_crashes(struct guardian *g);

/* guardian_process.c: the process itself; never returns. fd: the other end of a socket of messages: a byte of type and one of detail. */
enum guardian_message { GUARDIAN_MOUNTED = 'M' /* with the file */, GUARDIAN_BEAT = 'B', GUARDIAN_REST = 'R', GUARDIAN_CRASH = 'C' };
_Noreturn void guardian_process(const struct guardian_config *config, int fd, int life, pid_t daemon); /* life: the pipe's reading end */
