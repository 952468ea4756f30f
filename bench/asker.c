/* An open-loop asker that costs next to nothing: one thread, one frame that was made before, sent when it is due.
 *
 *   asker PORT SESSIONS DUE_FILE REQUEST_FRAME ID_OFFSET HELLO_FRAME REPLIES_PREFIX
 *
 * DUE_FILE holds native uint64 nanoseconds from the start, ascending: request n leaves then, on session n % SESSIONS, whatever became of
 * those before. Its id is ID_BASE + n, big-endian at ID_OFFSET of the frame (MessagePack's uint 64). What came back on session s is written
 * to REPLIES_PREFIX.s as it came, once all has been sent and the server has ended every session. Between requests it sleeps: nothing is
 * measured here, a reply carries the server's own stamps. Prints the nanoseconds from the start to the last send. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { SESSIONS_MAX = 64, FRAME_BYTES_MAX = 64 << 20, READ_BYTES = 64 << 10, QUIET_S = 30 };
static const uint64_t ID_BASE = (uint64_t)1 << 32;

struct session {
    int fd, open;
    uint8_t *bytes;
    size_t have, room;
};

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint8_t *read_file(const char *path, size_t *bytes) {
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END)) fail(path);
    *bytes = (size_t)ftell(file);
    rewind(file);
    uint8_t *data = malloc(*bytes + 1);
    if (!data || fread(data, 1, *bytes, file) != *bytes) fail(path);
    fclose(file);
    return data;
}

static void send_all(int fd, const uint8_t *bytes, size_t n) {
    while (n > 0) {
        ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) fail("send");
        bytes += sent;
        n -= (size_t)sent;
    }
}

static void connect_to(struct session *session, uint16_t port) {
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int on = 1;
    session->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (session->fd < 0 || connect(session->fd, (struct sockaddr *)&where, sizeof where)) fail("connect");
    setsockopt(session->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    session->open = 1;
}

/* Keep what has come. */
static void take(struct session *session) {
    if (session->room - session->have < READ_BYTES) {
        session->room = 2 * session->room + READ_BYTES;
        session->bytes = realloc(session->bytes, session->room);
        if (!session->bytes) fail("realloc");
    }
    ssize_t got = recv(session->fd, session->bytes + session->have, READ_BYTES, MSG_DONTWAIT);
    if (got > 0) session->have += (size_t)got;
    else if (got == 0) session->open = 0;
    else if (errno != EAGAIN && errno != EINTR) fail("recv");
}

/* Take what comes until then; 0 where nothing did. */
static int take_until(struct session *sessions, int count, uint64_t until_ns) {
    struct pollfd polled[SESSIONS_MAX];
    uint64_t now = now_ns(), left = until_ns > now ? until_ns - now : 0;
    struct timespec wait = {(time_t)(left / 1000000000u), (long)(left % 1000000000u)};
    for (int i = 0; i < count; i++) polled[i] = (struct pollfd){sessions[i].open ? sessions[i].fd : -1, POLLIN, 0};
    int ready = ppoll(polled, (nfds_t)count, &wait, NULL);
    if (ready < 0 && errno != EINTR) fail("ppoll");
    for (int i = 0; ready > 0 && i < count; i++)
        if (polled[i].revents) take(&sessions[i]);
    return ready;
}

static int any_open(const struct session *sessions, int count) {
    for (int i = 0; i < count; i++)
        if (sessions[i].open) return 1;
    return 0;
}

static void keep(const struct session *session, const char *prefix, int number) {
    char path[4096];
    snprintf(path, sizeof path, "%s.%d", prefix, number);
    FILE *out = fopen(path, "wb");
    if (!out || fwrite(session->bytes, 1, session->have, out) != session->have || fclose(out)) fail(path);
}

int main(int argc, char **argv) {
    if (argc != 8 || atoi(argv[2]) < 1 || atoi(argv[2]) > SESSIONS_MAX) {
        fprintf(stderr, "usage: asker PORT SESSIONS DUE_FILE REQUEST_FRAME ID_OFFSET HELLO_FRAME REPLIES_PREFIX\n");
        return 2;
    }
    int count = atoi(argv[2]);
    size_t due_bytes, request_bytes, hello_bytes, id_at = (size_t)atol(argv[5]);
    uint8_t *due_file = read_file(argv[3], &due_bytes);
    uint8_t *request = read_file(argv[4], &request_bytes), *hello = read_file(argv[6], &hello_bytes);
    struct session sessions[SESSIONS_MAX] = {0};
    if (id_at + 8 > request_bytes) return 2;
    prctl(PR_SET_TIMERSLACK, 1ul);
    for (int i = 0; i < count; i++) {
        connect_to(&sessions[i], (uint16_t)atoi(argv[1]));
        send_all(sessions[i].fd, hello, hello_bytes);
    }
    uint64_t start = now_ns(), last = start;
    for (size_t n = 0; n < due_bytes / 8; n++) {
        uint64_t due, id = htobe64(ID_BASE + n);
        memcpy(&due, due_file + 8 * n, 8);
        while (now_ns() < start + due) take_until(sessions, count, start + due);
        memcpy(request + id_at, &id, 8);
        send_all(sessions[n % (size_t)count].fd, request, request_bytes);
        last = now_ns();
    }
    for (int i = 0; i < count; i++) shutdown(sessions[i].fd, SHUT_WR);
    while (any_open(sessions, count))
        if (!take_until(sessions, count, now_ns() + QUIET_S * 1000000000ull)) {
            fprintf(stderr, "asker: the server did not end its sessions within %d s\n", QUIET_S);
            return 1;
        }
    for (int i = 0; i < count; i++) keep(&sessions[i], argv[7], i);
    printf("%llu\n", (unsigned long long)(last - start));
    return 0;
}
