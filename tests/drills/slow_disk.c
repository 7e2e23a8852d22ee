/* A disk like a far NFS server, for whoever loads this before libc: each call that asks the server takes as long as a dial
 * says (ms; below 0: until it is turned), for paths below one folder. Reads and writes go to the page cache, as there. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static volatile const int *dial;
static const char *root;
static size_t root_length;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("SLOW_DISK_DIAL");
    root = getenv("SLOW_DISK_ROOT");
    if (!path || !root) return;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    void *seen = mmap(NULL, sizeof(int), PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    root_length = strlen(root);
    if (seen != MAP_FAILED) dial = seen;
}

static void rest_ms(long ms) {
    struct timespec left = {ms / 1000, (ms % 1000) * 1000000};
    nanosleep(&left, NULL);
}

static void ask_server(const char *path) {
    if (!dial || !path || strncmp(path, root, root_length)) return;
    if (*dial > 0) rest_ms(*dial);
    while (*dial < 0) rest_ms(10);
}

static void ask_at(int folder, const char *path) {
    char link[64], full[PATH_MAX];
    if (!dial || *dial == 0) return;
    if (path && path[0] == '/') { ask_server(path); return; }
    if (folder < 0) return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    ssize_t size = readlink(link, full, sizeof full - 1);
    if (size > 0) { full[size] = 0; ask_server(full); }
}

#define REAL(name) static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)
#define ON_PATH(type, name, path, given, passed) type name given { REAL(name); ask_server(path); return real passed; }
#define ON_FILE(type, name, fd, path, given, passed) type name given { REAL(name); ask_at(fd, path); return real passed; }
#define MODE_OF(last) int mode = 0; if (flags & (O_CREAT | O_TMPFILE)) { va_list more; va_start(more, last); mode = va_arg(more, int); va_end(more); }

int open64(const char *path, int flags, ...) { MODE_OF(flags) REAL(open64); ask_server(path); return real(path, flags, mode); }
int openat64(int folder, const char *path, int flags, ...) { MODE_OF(flags) REAL(openat64); ask_at(folder, path); return real(folder, path, flags, mode); }
ON_PATH(int, stat64, path, (const char *path, struct stat64 *found), (path, found))
ON_PATH(int, lstat64, path, (const char *path, struct stat64 *found), (path, found))
ON_FILE(int, fstatat64, folder, path, (int folder, const char *path, struct stat64 *found, int flags), (folder, path, found, flags))
ON_PATH(int, access, path, (const char *path, int mode), (path, mode))
ON_PATH(int, mkdir, path, (const char *path, mode_t mode), (path, mode))
ON_PATH(int, rmdir, path, (const char *path), (path))
ON_PATH(int, unlink, path, (const char *path), (path))
ON_FILE(int, unlinkat, folder, path, (int folder, const char *path, int flags), (folder, path, flags))
ON_PATH(int, rename, path, (const char *path, const char *to), (path, to))
ON_PATH(int, link, path, (const char *path, const char *to), (path, to))
ON_PATH(DIR *, opendir, path, (const char *path), (path))
ON_FILE(DIR *, fdopendir, fd, NULL, (int fd), (fd))
ON_FILE(int, fsync, fd, NULL, (int fd), (fd))
ON_FILE(int, fdatasync, fd, NULL, (int fd), (fd))
