/* The steps of a durable message, and nothing else: a group of files under dot-names, one sync,
 * then a rename of each into another folder. What HTTP and Python cost is measured against it.
 *
 *     floor FOLDER TO SECONDS BYTES GROUP
 *
 * Prints how many files a second it stored. A group of 1 is synced by fsync of its file, a larger
 * one by one syncfs. Folders are open, as they are in fsmq.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void die(const char *what) {
    perror(what);
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static int folder(const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        die(path);
    return fd;
}

static void store(int from, long number, const char *body, size_t size, int alone) {
    char name[32];
    snprintf(name, sizeof name, ".%ld", number);
    int fd = openat(from, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        die("open");
    if (write(fd, body, size) != (ssize_t)size)
        die("write");
    if (alone && fsync(fd))
        die("fsync");
    close(fd);
}

static void show(int from, int to, long number) {
    char name[32];
    snprintf(name, sizeof name, ".%ld", number);
    if (renameat(from, name, to, name + 1))
        die("rename");
}

int main(int argc, char **argv) {
    if (argc != 6) {
        fprintf(stderr, "usage: floor FOLDER TO SECONDS BYTES GROUP\n");
        return 2;
    }
    int from = folder(argv[1]), to = folder(argv[2]);
    double seconds = atof(argv[3]);
    size_t size = strtoul(argv[4], NULL, 10);
    long group = atol(argv[5]), count = 0;
    char *body = malloc(size + 1);
    if (!body || group < 1)
        die("body and group");
    memset(body, 'x', size);
    double began = now(), end;
    do {
        for (long n = count; n < count + group; n++)
            store(from, n, body, size, group == 1);
        if (group > 1 && syncfs(from))
            die("syncfs");
        for (long n = count; n < count + group; n++)
            show(from, to, n);
        count += group;
        end = now();
    } while (end - began < seconds);
    printf("%f\n", count / (end - began));
    return 0;
}
