/* The floor: what a socket round trip costs on this machine when nothing but C and the kernel is in the way.
 *
 *   floor serve  ADDRESS REPLY_BYTES [--spin] [--touch PAGES]
 *   floor ping   ADDRESS SAMPLES_OUT COUNT WARMUP REQUEST_FRAME [PREAMBLE_FRAME] [--spin] [--rate HZ]
 *
 * ADDRESS is a TCP port on 127.0.0.1, the number alone, or the path of a Unix socket (it starts with '/').
 * A frame is what it is everywhere in tickpath: a 4-byte little-endian length and that many bytes.
 * `serve` answers every frame with a frame of REPLY_BYTES (prefix included), in order, to one client at a time; with --touch it also writes
 * one byte in each of PAGES pages per request, the control for "how much of a tail is only this machine's memory".
 * `ping` sends the preamble once and reads one frame, then sends the request COUNT + WARMUP times, one at a time,
 * and writes the COUNT round trips to SAMPLES_OUT as native uint64 nanoseconds.
 * With --rate the requests leave at that pace rather than back to back: between them both sides go idle, as they do under a steady
 * stream, and what waking costs is part of the floor.
 * --spin polls the socket with MSG_DONTWAIT instead of sleeping in recv. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
    FRAME_BYTES_MAX = 64 << 20,
    PAGE_BYTES = 4096,
    PAGES_MAX = 1 << 20,    /* 4 GiB */
    COUNT_MAX = 100000000,  /* 800 MB of samples */
    SPIN_NS = 200000,       /* a sleep ends this late at most, as a rule */
};

static int spin = 0;
static double rate_hz = 0;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

/* The whole of `text` as a number from `low` to `high`: "127.0.0.1:7601" is not port 127. */
static uint64_t whole_number(const char *name, const char *text, uint64_t low, uint64_t high) {
    char *end;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || errno || value < low || value > high) {
        fprintf(stderr, "floor: %s is a whole number from %llu to %llu, '%s' came\n", name, (unsigned long long)low,
                (unsigned long long)high, text);
        exit(2);
    }
    return value;
}

/* Requests a second, above zero. */
static double rate(const char *text) {
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value > 0)) {
        fprintf(stderr, "floor: --rate is a number above zero, '%s' came\n", text);
        exit(2);
    }
    return value;
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void wait_until(uint64_t intended) {
    for (uint64_t now = now_ns(); now < intended; now = now_ns()) {
        struct timespec nap = {0, 0};
        uint64_t ahead = intended - now;
        if (ahead <= SPIN_NS) continue;
        nap.tv_sec = (time_t)((ahead - SPIN_NS) / 1000000000u);
        nap.tv_nsec = (long)((ahead - SPIN_NS) % 1000000000u);
        nanosleep(&nap, NULL);
    }
}

/* Returns 0 when the peer has gone. */
static int send_all(int fd, const uint8_t *bytes, size_t n) {
    while (n > 0) {
        ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL);
        if (sent < 0 && (errno == EPIPE || errno == ECONNRESET)) return 0;
        if (sent < 0) fail("send");
        bytes += sent;
        n -= (size_t)sent;
    }
    return 1;
}

/* What has come of a connection: `have` bytes, of which the first `used` are a frame that was dealt with. */
struct inbox {
    uint8_t *bytes;
    size_t have, used;
};

/* Returns 0 when the peer has gone, 1 when a whole frame came. One recv takes prefix and body together
 * when they come together, as they do for small frames; what has come of the next frames stays for the next call. */
static int recv_frame(int fd, struct inbox *inbox) {
    inbox->have -= inbox->used;
    memmove(inbox->bytes, inbox->bytes + inbox->used, inbox->have);
    inbox->used = 0;
    for (;;) {
        if (inbox->have >= 4) {
            uint32_t length;
            memcpy(&length, inbox->bytes, 4);
            inbox->used = 4 + (size_t)length;
            if (inbox->used > FRAME_BYTES_MAX) exit(1);
            if (inbox->have >= inbox->used) return 1;
        }
        ssize_t got = recv(fd, inbox->bytes + inbox->have, FRAME_BYTES_MAX - inbox->have, spin ? MSG_DONTWAIT : 0);
        if (got == 0) return 0;
        if (got < 0) {
            if (errno == EAGAIN || errno == EINTR) continue;
            if (errno == ECONNRESET) return 0;
            fail("recv");
        }
        inbox->have += (size_t)got;
    }
}

static int open_socket(const char *address, struct sockaddr_storage *where, socklen_t *size) {
    memset(where, 0, sizeof *where);
    if (address[0] == '/') {
        struct sockaddr_un *unix_address = (struct sockaddr_un *)where;
        unix_address->sun_family = AF_UNIX;
        strncpy(unix_address->sun_path, address, sizeof unix_address->sun_path - 1);
        *size = sizeof *unix_address;
    } else {
        struct sockaddr_in *tcp_address = (struct sockaddr_in *)where;
        tcp_address->sin_family = AF_INET;
        tcp_address->sin_port = htons((uint16_t)whole_number("a port", address, 0, 65535));
        tcp_address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        *size = sizeof *tcp_address;
    }
    int fd = socket(where->ss_family, SOCK_STREAM, 0);
    if (fd < 0) fail("socket");
    return fd;
}

static void no_delay(int fd, const struct sockaddr_storage *where) {
    int on = 1;
    if (where->ss_family == AF_INET) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static void serve(const char *address, size_t reply_bytes, size_t pages) {
    struct sockaddr_storage where;
    socklen_t size;
    int listener = open_socket(address, &where, &size), on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&where, size) < 0) fail("bind");
    if (listen(listener, 8) < 0) fail("listen");
    if (where.ss_family == AF_INET) {
        getsockname(listener, (struct sockaddr *)&where, &size);
        printf("%d\n", ntohs(((struct sockaddr_in *)&where)->sin_port));
    } else {
        printf("%s\n", address);
    }
    fflush(stdout);
    uint8_t *bytes = malloc(FRAME_BYTES_MAX), *reply = calloc(1, reply_bytes);
    uint8_t *touched = pages ? malloc(pages * PAGE_BYTES) : NULL;
    uint32_t body_bytes = (uint32_t)(reply_bytes - 4);
    memcpy(reply, &body_bytes, 4);
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        if (fd < 0) fail("accept");
        no_delay(fd, &where);
        struct inbox inbox = {bytes, 0, 0};
        while (recv_frame(fd, &inbox)) {
            for (size_t page = 0; page < pages; page++) touched[page * PAGE_BYTES] += 1;
            if (!send_all(fd, reply, reply_bytes)) break;
        }
        close(fd);
    }
}

static uint8_t *read_frame_file(const char *path, size_t *bytes) {
    FILE *file = fopen(path, "rb");
    if (!file) fail(path);
    uint8_t *frame = malloc(FRAME_BYTES_MAX);
    *bytes = fread(frame, 1, FRAME_BYTES_MAX, file);
    fclose(file);
    return frame;
}

static void ping(const char *address, const char *samples_path, size_t count, size_t warmup, const char *request_path,
                 const char *preamble_path) {
    struct sockaddr_storage where;
    socklen_t size;
    int fd = open_socket(address, &where, &size);
    if (connect(fd, (struct sockaddr *)&where, size) < 0) fail("connect");
    no_delay(fd, &where);
    size_t request_bytes, preamble_bytes;
    uint8_t *request = read_frame_file(request_path, &request_bytes);
    struct inbox inbox = {malloc(FRAME_BYTES_MAX), 0, 0};
    uint64_t *samples = calloc(count, sizeof *samples);
    if (preamble_path) {
        uint8_t *preamble = read_frame_file(preamble_path, &preamble_bytes);
        if (!send_all(fd, preamble, preamble_bytes) || !recv_frame(fd, &inbox)) exit(1);
    }
    uint64_t first = now_ns();
    for (size_t i = 0; i < count + warmup; i++) {
        if (rate_hz > 0) wait_until(first + (uint64_t)((double)i * 1e9 / rate_hz));
        uint64_t start = now_ns();
        if (!send_all(fd, request, request_bytes) || !recv_frame(fd, &inbox)) { fprintf(stderr, "the server closed after %zu round trips\n", i); exit(1); }
        if (i >= warmup) samples[i - warmup] = now_ns() - start;
    }
    FILE *out = fopen(samples_path, "wb");
    if (!out || fwrite(samples, sizeof *samples, count, out) != count || fclose(out)) fail(samples_path);
}

int main(int argc, char **argv) {
    const char *words[8];
    int n = 0;
    size_t pages = 0;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--spin")) spin = 1;
        else if (!strcmp(argv[i], "--touch") && i + 1 < argc) pages = (size_t)whole_number("PAGES", argv[++i], 0, PAGES_MAX);
        else if (!strcmp(argv[i], "--rate") && i + 1 < argc) rate_hz = rate(argv[++i]);
        else if (n < 8) words[n++] = argv[i];
    }
    if (n == 3 && !strcmp(words[0], "serve")) 
        serve(words[1], (size_t)whole_number("REPLY_BYTES", words[2], 4, FRAME_BYTES_MAX), pages);
    else if ((n == 6 || n == 7) && !strcmp(words[0], "ping"))
        ping(words[1], words[2], (size_t)whole_number("COUNT", words[3], 1, COUNT_MAX),
             (size_t)whole_number("WARMUP", words[4], 0, COUNT_MAX), words[5], n == 7 ? words[6] : NULL);
    else {
        fprintf(stderr, "usage: floor serve ADDRESS REPLY_BYTES [--spin] [--touch PAGES]\n"
                        "       floor ping ADDRESS SAMPLES_OUT COUNT WARMUP REQUEST_FRAME [PREAMBLE_FRAME] [--spin] [--rate HZ]\n");
        return 2;
    }
    return 0;
}
