// One connected socket, and the time that a call has. POSIX alone.
//
// Theory of operation
// - Sending never sleeps in `send`: what does not fit at once is left to the caller, who takes in replies meanwhile.
// - Receiving spins on MSG_DONTWAIT, or sleeps. A sleep within `recv` itself costs one system call, with the kernel's own timeout, which is
//   set anew only when it is off by more than a millisecond; what has less than five left sleeps in `ppoll`, to the nanosecond.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

namespace tickpath {

enum class Wait {
    block,  // sleep until the answer is there
    spin,   // never sleep: costs a core, saves the wake-up
};

namespace detail {

inline constexpr std::int64_t ns_per_s = 1000000000;
inline constexpr std::int64_t ns_per_ms = 1000000;
// What was sent and is not acknowledged for so long ends the connection: a host that lost its power never says so.
inline constexpr unsigned unacknowledged_ms_max = 10000;

#ifdef MSG_NOSIGNAL
inline constexpr int no_signal = MSG_NOSIGNAL;
#else
inline constexpr int no_signal = 0;  // SO_NOSIGPIPE is set instead
#endif

inline std::int64_t now_ns() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::int64_t>(now.tv_sec) * ns_per_s + now.tv_nsec;
}

// A deadline that far ahead is none: eleven days.
inline std::int64_t deadline_after(std::int64_t timeout_ns) {
    constexpr std::int64_t longest_ns = 1000000 * ns_per_s;
    return now_ns() + (timeout_ns < 0 ? 0 : timeout_ns > longest_ns ? longest_ns : timeout_ns);
}

enum class Io { done, again, ended, failed };

class Socket {
public:
    Socket() = default;
    explicit Socket(int descriptor) : descriptor_(descriptor) {}
    Socket(const Socket&) = delete;
    Socket& operator=(const Socket&) = delete;
    Socket(Socket&& other) noexcept : descriptor_(other.descriptor_), timeout_ns_(other.timeout_ns_) { other.descriptor_ = -1; }
    Socket& operator=(Socket&& other) noexcept {
        if (this != &other) {
            close();
            descriptor_ = other.descriptor_;
            timeout_ns_ = other.timeout_ns_;
            other.descriptor_ = -1;
        }
        return *this;
    }
    ~Socket() { close(); }

    bool open() const { return descriptor_ >= 0; }
    int descriptor() const { return descriptor_; }
    void close() {
        if (descriptor_ >= 0) ::close(descriptor_);
        descriptor_ = -1;
        timeout_ns_ = 0;
    }

    // As many of `size` bytes as fit now; `again` where none do.
    Io send_some(const std::uint8_t* bytes, std::size_t size, std::size_t& sent) {
        const ssize_t count = ::send(descriptor_, bytes, size, MSG_DONTWAIT | no_signal);
        sent = count > 0 ? static_cast<std::size_t>(count) : 0;
        return count >= 0 ? Io::done : problem();
    }

    // At least one byte, if one comes before the deadline; `again` where none does.
    Io receive(std::uint8_t* out, std::size_t size, std::int64_t deadline_ns, Wait wait, std::size_t& got) {
        got = 0;
        if (wait == Wait::block && deadline_ns - now_ns() >= 5 * ns_per_ms) return receive_asleep(out, size, deadline_ns, got);
        for (;;) {
            const Io found = take(::recv(descriptor_, out, size, MSG_DONTWAIT), got);
            if (found != Io::again || now_ns() >= deadline_ns) return found;
            if (wait == Wait::block && !wait_for(POLLIN, deadline_ns)) return Io::again;
        }
    }
    // The same for what is there already.
    Io receive_arrived(std::uint8_t* out, std::size_t size, std::size_t& got) {
        return take(::recv(descriptor_, out, size, MSG_DONTWAIT), got);
    }

    // Sleeps until the socket is ready for one of `events`, or has ended. False at the deadline.
    bool wait_for(short events, std::int64_t deadline_ns) const {
        for (;;) {
            const std::int64_t left_ns = deadline_ns - now_ns();
            pollfd entry{descriptor_, events, 0};
            if (poll_ns(entry, left_ns > 0 ? left_ns : 0) > 0) return true;
            if (left_ns <= 0) return false;
        }
    }

private:
    Io receive_asleep(std::uint8_t* out, std::size_t size, std::int64_t deadline_ns, std::size_t& got) {
        for (;;) {
            const std::int64_t left_ns = deadline_ns - now_ns();
            if (left_ns <= 0) return Io::again;
            if (timeout_ns_ < left_ns || timeout_ns_ - left_ns > ns_per_ms) sleep_at_most(left_ns);
            const Io found = take(::recv(descriptor_, out, size, 0), got);
            if (found != Io::again) return found;
        }
    }
    void sleep_at_most(std::int64_t left_ns) {
        // In whole milliseconds above, so that a call's next one with the same timeout still fits.
        timeout_ns_ = (left_ns / ns_per_ms + 1) * ns_per_ms;
        timeval timeout{};
        timeout.tv_sec = static_cast<time_t>(timeout_ns_ / ns_per_s);
        timeout.tv_usec = static_cast<suseconds_t>(timeout_ns_ % ns_per_s / 1000);
        ::setsockopt(descriptor_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    }
    static int poll_ns(pollfd& entry, std::int64_t left_ns) {
#ifdef __linux__
        const timespec left{static_cast<time_t>(left_ns / ns_per_s), static_cast<long>(left_ns % ns_per_s)};
        return ::ppoll(&entry, 1, &left, nullptr);
#else
        return ::poll(&entry, 1, static_cast<int>((left_ns + ns_per_ms - 1) / ns_per_ms));
#endif
    }
    static Io take(ssize_t count, std::size_t& got) {
        got = count > 0 ? static_cast<std::size_t>(count) : 0;
        return count > 0 ? Io::done : count == 0 ? Io::ended : problem();
    }
    static Io problem() {
        if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return Io::again;
        return errno == EPIPE || errno == ECONNRESET ? Io::ended : Io::failed;
    }

    int descriptor_ = -1;
    std::int64_t timeout_ns_ = 0;  // the kernel's, of recv; 0: none was set
};

// "host:port", "[::1]:7070" or "unix:/path".
struct Address {
    std::string host;  // empty for a Unix socket
    std::string port;
    std::string path;
};

inline bool parse_address(std::string_view text, Address& out) {
    constexpr std::string_view unix_prefix = "unix:";
    if (text.substr(0, unix_prefix.size()) == unix_prefix) {
        out.path = text.substr(unix_prefix.size());
        return !out.path.empty() && out.path.size() < sizeof(sockaddr_un::sun_path);
    }
    const std::size_t colon = text.rfind(':');
    if (colon == std::string_view::npos) return false;
    std::string_view host = text.substr(0, colon);
    const std::string_view port = text.substr(colon + 1);
    const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
    if (bracketed) host = host.substr(1, host.size() - 2);
    if (host.empty() || (!bracketed && host.find(':') != std::string_view::npos)) return false;
    if (port.empty() || port.size() > 5 || port.find_first_not_of("0123456789") != std::string_view::npos) return false;
    out.host = host;
    out.port = port;
    const int number = std::atoi(out.port.c_str());
    return number >= 1 && number <= 65535;
}

inline void set_number(int descriptor, int level, int option, int value) {
    ::setsockopt(descriptor, level, option, &value, sizeof value);
}

// A connection that opened in time, or a closed socket with the reason in `errno`.
inline Socket connect_to(const sockaddr* address, socklen_t size, std::int64_t deadline_ns) {
    Socket socket(::socket(address->sa_family, SOCK_STREAM, 0));
    if (!socket.open()) return socket;
    const int descriptor = socket.descriptor();
    ::fcntl(descriptor, F_SETFD, FD_CLOEXEC);
    const int flags = ::fcntl(descriptor, F_GETFL);
    ::fcntl(descriptor, F_SETFL, flags | O_NONBLOCK);
    int reason = 0;
    if (::connect(descriptor, address, size) < 0) reason = errno;
    if (reason == EINPROGRESS || reason == EINTR) {
        socklen_t reason_size = sizeof reason;
        reason = ETIMEDOUT;
        if (socket.wait_for(POLLOUT, deadline_ns)) ::getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &reason, &reason_size);
    }
    ::fcntl(descriptor, F_SETFL, flags);
    if (reason != 0) socket.close();
    errno = reason;
    return socket;
}

inline Socket connect_unix(const std::string& path, std::int64_t deadline_ns) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    return connect_to(reinterpret_cast<const sockaddr*>(&address), sizeof address, deadline_ns);
}

// Tries each address that the host's name stands for. Looking a name up has a timeout of its own, the resolver's.
inline Socket connect_tcp(const Address& where, std::int64_t deadline_ns, const char*& reason) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const int problem = ::getaddrinfo(where.host.c_str(), where.port.c_str(), &hints, &found);
    if (problem != 0) {
        reason = ::gai_strerror(problem);
        return Socket();
    }
    Socket socket;
    for (const addrinfo* each = found; each != nullptr && !socket.open(); each = each->ai_next)
        socket = connect_to(each->ai_addr, each->ai_addrlen, deadline_ns);
    reason = socket.open() ? nullptr : std::strerror(errno);
    ::freeaddrinfo(found);
    if (!socket.open()) return socket;
    set_number(socket.descriptor(), IPPROTO_TCP, TCP_NODELAY, 1);
#ifdef TCP_USER_TIMEOUT
    set_number(socket.descriptor(), IPPROTO_TCP, TCP_USER_TIMEOUT, unacknowledged_ms_max);
#endif
    return socket;
}

// A closed socket, with a reason for people, where no connection opened before the deadline.
inline Socket open_socket(const Address& where, std::int64_t deadline_ns, const char*& reason) {
    Socket socket;
    if (where.path.empty()) {
        socket = connect_tcp(where, deadline_ns, reason);
    } else {
        socket = connect_unix(where.path, deadline_ns);
        reason = socket.open() ? nullptr : std::strerror(errno);
    }
#ifdef SO_NOSIGPIPE
    if (socket.open()) set_number(socket.descriptor(), SOL_SOCKET, SO_NOSIGPIPE, 1);
#endif
    return socket;
}

}  // namespace detail
}  // namespace tickpath
