// Records what a program does to the files of a SQLite database, and what it promises its callers meanwhile, in one
// order. Preloaded into the program by the chapter on power loss, which plays the recording up to any point.
//
// A record is a kind, a file (0 the database, 1 its log, 2 its rollback journal, 3 their folder), an offset, a length, and
// as many bytes. Kinds: C created, W written, T cut to the offset, S synchronized, U removed, A a 2xx is about to be sent.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define FDS 4096
#define PROMISE_MAX 8192

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static char names[4][4096];
static int recording = -1;
// The tracked file behind a descriptor, plus one.
static unsigned char tracked[FDS];

struct record {
    uint8_t kind, file;
    uint16_t unused;
    uint32_t length;
    uint64_t offset;
};

static void begin(void) {
    const char *database = getenv("OVERDUE_RECORDED"), *path = getenv("OVERDUE_RECORDING");
    if (!database || !path || strlen(database) > 4000) return;
    const char *suffixes[] = {"", "-wal", "-journal"};
    for (int file = 0; file < 3; file++) strcat(strcpy(names[file], database), suffixes[file]);
    strcpy(names[3], database);
    *strrchr(names[3], '/') = 0;
    recording = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static int file_of(const char *path) {
    pthread_once(&once, begin);
    for (int file = 0; recording >= 0 && file < 4; file++)
        if (strcmp(path, names[file]) == 0) return file;
    return -1;
}

static int file_behind(int fd) { return fd >= 0 && fd < FDS ? tracked[fd] - 1 : -1; }

static void note(char kind, int file, uint64_t offset, const void *bytes, size_t length) {
    struct record record = {kind, (uint8_t)file, 0, (uint32_t)length, offset};
    struct iovec parts[] = {{&record, sizeof record}, {(void *)bytes, length}};
    if (syscall(SYS_writev, recording, parts, 2) != (ssize_t)(sizeof record + length)) abort();
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int opened(int fd, int file, int was_there) {
    if (fd >= 0 && fd < FDS) tracked[fd] = (unsigned char)(file + 1);
    if (fd >= 0 && file >= 0 && file < 3 && !was_there) note('C', file, 0, "", 0);
    return fd;
}

#define OPEN(name)                                                                                                             \
    int name(const char *path, int flags, ...) {                                                                               \
        va_list rest;                                                                                                          \
        va_start(rest, flags);                                                                                                 \
        mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;                                                              \
        va_end(rest);                                                                                                          \
        int file = file_of(path);                                                                                              \
        if (file < 0) return opened(REAL(name)(path, flags, mode), file, 1);                                                   \
        pthread_mutex_lock(&lock);                                                                                             \
        int was_there = access(path, F_OK) == 0;                                                                               \
        int fd = opened(REAL(name)(path, flags, mode), file, was_there);                                                       \
        pthread_mutex_unlock(&lock);                                                                                           \
        return fd;                                                                                                             \
    }
OPEN(open)
OPEN(open64)

int close(int fd) {
    if (fd >= 0 && fd < FDS) tracked[fd] = 0;
    return REAL(close)(fd);
}

static void promise(const struct iovec *parts, int count) {
    static const char begins[] = "HTTP/1.1 20";
    pthread_once(&once, begin);
    if (recording < 0 || count < 1 || parts[0].iov_len < sizeof begins - 1) return;
    if (memcmp(parts[0].iov_base, begins, sizeof begins - 1) != 0) return;
    static __thread char text[PROMISE_MAX];
    size_t length = 0;
    for (int part = 0; part < count; part++) {
        size_t more = parts[part].iov_len;
        if (more > PROMISE_MAX - length) more = PROMISE_MAX - length;
        memcpy(text + length, parts[part].iov_base, more);
        length += more;
    }
    pthread_mutex_lock(&lock);
    note('A', 0, 0, text, length);
    pthread_mutex_unlock(&lock);
}

ssize_t write(int fd, const void *bytes, size_t length) {
    int file = file_behind(fd);
    if (file < 0) {
        struct iovec part = {(void *)bytes, length};
        promise(&part, 1);
        return REAL(write)(fd, bytes, length);
    }
    pthread_mutex_lock(&lock);
    off_t at = lseek(fd, 0, SEEK_CUR);
    ssize_t written = REAL(write)(fd, bytes, length);
    if (written > 0) note('W', file, (uint64_t)at, bytes, (size_t)written);
    pthread_mutex_unlock(&lock);
    return written;
}

#define PWRITE(name, offset_type)                                                                                              \
    ssize_t name(int fd, const void *bytes, size_t length, offset_type at) {                                                   \
        int file = file_behind(fd);                                                                                            \
        if (file < 0) return REAL(name)(fd, bytes, length, at);                                                                \
        pthread_mutex_lock(&lock);                                                                                             \
        ssize_t written = REAL(name)(fd, bytes, length, at);                                                                   \
        if (written > 0) note('W', file, (uint64_t)at, bytes, (size_t)written);                                                \
        pthread_mutex_unlock(&lock);                                                                                           \
        return written;                                                                                                        \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

#define TRUNCATE(name, offset_type)                                                                                            \
    int name(int fd, offset_type length) {                                                                                     \
        int file = file_behind(fd);                                                                                            \
        if (file < 0) return REAL(name)(fd, length);                                                                           \
        pthread_mutex_lock(&lock);                                                                                             \
        int done = REAL(name)(fd, length);                                                                                     \
        if (done == 0) note('T', file, (uint64_t)length, "", 0);                                                               \
        pthread_mutex_unlock(&lock);                                                                                           \
        return done;                                                                                                           \
    }
TRUNCATE(ftruncate, off_t)
TRUNCATE(ftruncate64, off64_t)

// The lock is held: what is written meanwhile would not be certain to be synchronized.
#define SYNC(name)                                                                                                             \
    int name(int fd) {                                                                                                         \
        int file = file_behind(fd);                                                                                            \
        if (file < 0) return REAL(name)(fd);                                                                                   \
        pthread_mutex_lock(&lock);                                                                                             \
        int done = REAL(name)(fd);                                                                                             \
        if (done == 0) note('S', file, 0, "", 0);                                                                              \
        pthread_mutex_unlock(&lock);                                                                                           \
        return done;                                                                                                           \
    }
SYNC(fsync)
SYNC(fdatasync)

int unlink(const char *path) {
    int file = file_of(path);
    if (file < 0) return REAL(unlink)(path);
    pthread_mutex_lock(&lock);
    int done = REAL(unlink)(path);
    if (done == 0) note('U', file, 0, "", 0);
    pthread_mutex_unlock(&lock);
    return done;
}

ssize_t send(int fd, const void *bytes, size_t length, int flags) {
    struct iovec part = {(void *)bytes, length};
    promise(&part, 1);
    return REAL(send)(fd, bytes, length, flags);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
    promise(message->msg_iov, (int)message->msg_iovlen);
    return REAL(sendmsg)(fd, message, flags);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    if (file_behind(fd) >= 0) abort();
    promise(parts, count);
    return REAL(writev)(fd, parts, count);
}
