// What a caller says and gets: options of a connection and of a call, and the reply.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tickpath/messages.hpp"
#include "tickpath/detail/socket.hpp"

namespace tickpath {

// Of a connection.
struct Options {
    std::string client = "cpp";  // who is asking, for people: at most 128 characters
    std::string token;           // at most 2048 characters
    // How long a call may take, connecting included, where the call does not say.
    std::int64_t timeout_ns = 5000000000;
    Wait wait = Wait::block;
    // The longest frames, either way. A server by default takes no longer ones, and never sends them.
    std::size_t request_bytes_max = std::size_t{64} << 20;
    std::size_t reply_bytes_max = std::size_t{64} << 20;
    // Room for the answers to what is in flight, at least; always enough for one of the largest.
    std::size_t receive_bytes = std::size_t{1} << 20;
};

// Of one request.
struct Call {
    std::uint64_t budget_ns = 0;      // from the server's receipt; what can't make it is refused DEADLINE. 0: none
    std::uint64_t event_time_ns = 0;  // Unix time of the event behind it, kept in the server's records. 0: unknown
    std::uint64_t key = 0;            // newest wins: a newer request under it supersedes one that still waits. 0: none
    std::uint64_t priority = 0;       // 0 is the highest; less than `limits().priority_levels`
    std::int64_t timeout_ns = -1;     // how long this client waits; below 0: as the connection's options say
};

// The answer to one request. Its views are good until the client's next call.
class Reply {
public:
    std::uint64_t id = 0;
    Status status = Status::ok;
    std::string_view message;  // of a refusal: what was expected, what came, what to do
    std::string_view version;  // of the model that answered
    // Bits of Flag, all of them the operator's choice; and how old an answer is that stands in for this one (flag_last_answer).
    std::uint64_t flags = 0;
    std::uint64_t age_ns = 0;
    // Of a refused tick: the number that its feed takes next. The tick's own: it was not taken; one more: it was. Else 0.
    std::uint64_t next_sequence = 0;

    std::size_t output_count() const { return count_; }
    // In the model's order; empty beyond the last.
    Bytes output(std::size_t index) const { return index < count_ ? outputs_[index] : Bytes(); }

    // first_byte, received, started, filled, computed, read: nanoseconds on the server's monotonic clock.
    const std::uint64_t (&stamps() const)[stamps_count] { return stamps_; }
    // From the request's first byte to its outputs being ready to send.
    std::uint64_t server_ns() const { return stamps_[stamps_count - 1] - stamps_[0]; }

private:
    friend class Client;

    void take(const ServerMessage& answer) {
        const bool result = answer.tag == Tag::result;
        id = answer.id;
        status = result ? Status::ok : answer.code;
        version = result ? answer.text : std::string_view();
        message = result ? std::string_view() : answer.text;
        flags = result ? answer.flags : 0;
        age_ns = result ? answer.age_ns : 0;
        next_sequence = result ? 0 : answer.next_sequence;
        outputs_ = answer.outputs.data();
        count_ = result ? answer.outputs.size() : 0;
        for (std::size_t i = 0; i < stamps_count; i++) stamps_[i] = result ? answer.stamps[i] : 0;
    }

    const Bytes* outputs_ = nullptr;
    std::size_t count_ = 0;
    std::uint64_t stamps_[stamps_count] = {};
};

}  // namespace tickpath
