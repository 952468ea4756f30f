// What became of a call: the protocol's closed list of codes (docs/PROTOCOL.md, section 8) under their own numbers, and what can go wrong
// without a server.
#pragma once

#include <cstdint>

namespace tickpath {

enum class Status : std::uint8_t {
    ok = 0,

    // A server's codes. This client uses some of them itself, for what the server would refuse: then nothing was sent.
    bad_frame = 1,
    bad_message = 2,
    unknown_model = 3,
    bad_shape = 4,
    bad_dtype = 5,
    bad_value = 6,
    deadline = 7,
    superseded = 8,
    overloaded = 9,
    not_ready = 10,
    cancelled = 11,
    unauthenticated = 12,
    forbidden = 13,
    feed_gap = 14,
    engine_failed = 15,
    internal = 16,

    // No server's word.
    bad_address = 32,     // it can't be read
    unreachable = 33,     // no connection could be opened; nothing was asked
    not_connected = 34,   // there is no connection: call connect; nothing was asked
    lost = 35,            // the connection ended: what was in flight may have run, or not
    timed_out = 36,       // no answer came in time
    protocol_error = 37,  // the server sent what the protocol does not allow; the connection is closed
    misuse = 38,          // a call that makes no sense now; nothing was asked
};

inline constexpr std::uint64_t code_max = 16;

// True for what a server answers; false for what has no answer.
constexpr bool is_answer(Status status) { return static_cast<std::uint8_t>(status) <= code_max; }

// The name that the protocol, or this file, gives it.
constexpr const char* name(Status status) {
    switch (status) {
        case Status::ok: return "OK";
        case Status::bad_frame: return "BAD_FRAME";
        case Status::bad_message: return "BAD_MESSAGE";
        case Status::unknown_model: return "UNKNOWN_MODEL";
        case Status::bad_shape: return "BAD_SHAPE";
        case Status::bad_dtype: return "BAD_DTYPE";
        case Status::bad_value: return "BAD_VALUE";
        case Status::deadline: return "DEADLINE";
        case Status::superseded: return "SUPERSEDED";
        case Status::overloaded: return "OVERLOADED";
        case Status::not_ready: return "NOT_READY";
        case Status::cancelled: return "CANCELLED";
        case Status::unauthenticated: return "UNAUTHENTICATED";
        case Status::forbidden: return "FORBIDDEN";
        case Status::feed_gap: return "FEED_GAP";
        case Status::engine_failed: return "ENGINE_FAILED";
        case Status::internal: return "INTERNAL";
        case Status::bad_address: return "BAD_ADDRESS";
        case Status::unreachable: return "UNREACHABLE";
        case Status::not_connected: return "NOT_CONNECTED";
        case Status::lost: return "LOST";
        case Status::timed_out: return "TIMED_OUT";
        case Status::protocol_error: return "PROTOCOL_ERROR";
        case Status::misuse: return "MISUSE";
    }
    return "?";
}

}  // namespace tickpath
