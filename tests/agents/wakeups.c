/* wakeups KIND N [setsid]: N processes that wake up again and again, each in a session of its own
 * if asked for.  Kinds: usleep timerfd itimer timer pipe eventfd futex signal. */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

static const struct itimerspec EVERY_100_US = {{0, 100000}, {0, 100000}};
static int own_session;

static void ignore(int number) { (void)number; }

static pid_t forked(void) {
    pid_t pid = fork();
    if (pid == 0 && own_session) setsid();
    return pid;
}

static void pass(int from, int to) {
    uint64_t word = 1;
    while (read(from, &word, sizeof word) == sizeof word && write(to, &word, sizeof word) == sizeof word) {}
    _exit(0);
}

static void storm(const char *kind) {
    uint64_t word = 1;
    int there[2], back[2];
    signal(SIGALRM, ignore);
    if (!strcmp(kind, "timerfd")) {
        int timer = timerfd_create(CLOCK_MONOTONIC, 0);
        timerfd_settime(timer, 0, &EVERY_100_US, 0);
        while (read(timer, &word, sizeof word) > 0) {}
    } else if (!strcmp(kind, "itimer")) {
        struct itimerval every = {{0, 100}, {0, 100}};
        setitimer(ITIMER_REAL, &every, 0);
        for (;;) pause();
    } else if (!strcmp(kind, "timer")) {
        struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
        timer_t timer;
        timer_create(CLOCK_MONOTONIC, &event, &timer);
        timer_settime(timer, 0, &EVERY_100_US, 0);
        for (;;) pause();
    } else if (!strcmp(kind, "pipe")) {
        if (pipe(there) || pipe(back) || write(there[1], &word, sizeof word) < 0) _exit(1);
        if (forked() == 0) pass(there[0], back[1]);
        pass(back[0], there[1]);
    } else if (!strcmp(kind, "eventfd")) {
        there[0] = eventfd(1, 0), back[0] = eventfd(0, 0);
        if (forked() == 0) pass(there[0], back[0]);
        pass(back[0], there[0]);
    } else if (!strcmp(kind, "futex")) {
        volatile int *turn = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        int mine = forked() == 0;
        for (;;) {
            while (*turn != mine) syscall(SYS_futex, turn, FUTEX_WAIT, !mine, 0, 0, 0);
            *turn = !mine;
            syscall(SYS_futex, turn, FUTEX_WAKE, 1, 0, 0, 0);
        }
    } else if (!strcmp(kind, "signal")) {
        sigset_t set;
        int number;
        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        sigprocmask(SIG_BLOCK, &set, 0);
        pid_t parent = getpid(), child = forked(), peer = child ? child : parent;
        for (;;) {
            kill(peer, SIGUSR1);
            sigwait(&set, &number);
        }
    }
    for (;;) usleep(100);
}

int main(int argc, char **argv) {
    const char *kind = argc > 1 ? argv[1] : "usleep";
    long n = argc > 2 ? atol(argv[2]) : 1000;
    own_session = argc > 3;
    if (!strcmp(kind, "pipe") || !strcmp(kind, "eventfd") || !strcmp(kind, "futex") || !strcmp(kind, "signal")) n /= 2;
    for (long i = 1; i < n; i++) {
        pid_t pid = forked();
        if (pid == 0) storm(kind);
        if (i == 100 || (i == n - 1 && n < 100)) if (write(1, "storm\n", 6) < 0) _exit(1);
    }
    storm(kind);
}
