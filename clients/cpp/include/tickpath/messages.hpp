// Every message (docs/PROTOCOL.md, section 5): those of clients are written, those of servers are read. Bytes in, bytes out: no sockets.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "tickpath/msgpack.hpp"
#include "tickpath/status.hpp"

namespace tickpath {

inline constexpr std::uint64_t protocol_version = 1;
inline constexpr std::size_t prefix_bytes = 4;
inline constexpr std::size_t frame_bytes_min = 2;  // the shortest body: Goodbye without a reason
inline constexpr std::size_t tensors_max = 1024;
inline constexpr std::size_t reason_chars_max = 1024;
inline constexpr std::size_t key_chars_max = 128;

// Who is asking. `client` has at most 128 characters, `token` at most 2048.
struct Hello {
    std::uint64_t protocol = protocol_version;
    std::string_view client;
    std::string_view token;
};

struct Models {
    std::uint64_t id;
    bool versions = false;
};

// A tensor of an Infer. `given` false leaves an optional input out.
struct InferInput {
    const void* data = nullptr;
    std::size_t bytes = 0;
    bool given = true;
};

struct Infer {
    std::uint64_t id;
    std::uint64_t handle;
    std::uint64_t rows;
    std::uint64_t budget_ns = 0;
    std::uint64_t priority = 0;
    std::uint64_t feed = 0;
    std::uint64_t event_time_ns = 0;
    std::uint64_t key = 0;
};

// `key`: which of the model's feeds, 1 to 128 characters. `snapshot.given` false: none.
struct OpenFeed {
    std::uint64_t id;
    std::uint64_t handle;
    std::string_view key;
    bool anew = false;
    InferInput snapshot{nullptr, 0, false};
};

struct Tick {
    std::uint64_t id;
    std::uint64_t feed;
    std::uint64_t sequence;
    std::uint64_t budget_ns = 0;
    std::uint64_t priority = 0;
    std::uint64_t event_time_ns = 0;
};

struct SnapshotFeed {
    std::uint64_t id;
    std::uint64_t feed;
};

struct CloseFeed {
    std::uint64_t id;
    std::uint64_t feed;
};

struct Cancel {
    std::uint64_t id;
};

struct Ping {
    std::uint64_t id;
};

struct Goodbye {
    std::string_view reason;
};

enum class Tag : std::uint8_t {
    none = 0,
    hello = 1,
    welcome = 2,
    models = 3,
    model_list = 4,
    infer = 5,
    result = 6,
    failure = 7,
    open_feed = 8,
    close_feed = 9,
    tick = 10,
    cancel = 11,
    ping = 12,
    pong = 13,
    goodbye = 14,
    feed_opened = 15,
    snapshot_feed = 16,
    feed_snapshot = 17,
    feed_closed = 18,
};

namespace wire {

inline void begin(msgpack::Writer& out, std::size_t fields, Tag tag) {
    out.array(fields + 1);
    out.number(static_cast<std::uint64_t>(tag));
}
inline void write(msgpack::Writer& out, const Hello& message) {
    begin(out, 3, Tag::hello);
    out.number(message.protocol);
    out.text(message.client);
    out.text(message.token);
}
inline void write(msgpack::Writer& out, const Models& message) {
    begin(out, 2, Tag::models);
    out.number(message.id);
    out.boolean(message.versions);
}
inline void write_tensor(msgpack::Writer& out, const InferInput& tensor) {
    if (tensor.given) out.binary(tensor.data, tensor.bytes);
    else out.nil();
}
template <typename Input>
void write_tensors(msgpack::Writer& out, const Input* tensors, std::size_t count) {
    out.array(count);
    for (std::size_t i = 0; i < count; i++) write_tensor(out, tensors[i]);
}
template <typename Input>
void write(msgpack::Writer& out, const Infer& message, const Input* inputs, std::size_t count) {
    begin(out, 9, Tag::infer);
    out.number(message.id);
    out.number(message.handle);
    out.number(message.rows);
    write_tensors(out, inputs, count);
    out.number(message.budget_ns);
    out.number(message.priority);
    out.number(message.feed);
    out.number(message.event_time_ns);
    out.number(message.key);
}
template <typename Input>
void write(msgpack::Writer& out, const Tick& message, const Input* inputs, std::size_t count) {
    begin(out, 7, Tag::tick);
    out.number(message.id);
    out.number(message.feed);
    out.number(message.sequence);
    write_tensors(out, inputs, count);
    out.number(message.budget_ns);
    out.number(message.priority);
    out.number(message.event_time_ns);
}
inline void write(msgpack::Writer& out, const OpenFeed& message) {
    begin(out, 5, Tag::open_feed);
    out.number(message.id);
    out.number(message.handle);
    out.text(message.key);
    out.boolean(message.anew);
    write_tensor(out, message.snapshot);
}
inline void write(msgpack::Writer& out, const SnapshotFeed& message) {
    begin(out, 2, Tag::snapshot_feed);
    out.number(message.id);
    out.number(message.feed);
}
inline void write(msgpack::Writer& out, const CloseFeed& message) {
    begin(out, 2, Tag::close_feed);
    out.number(message.id);
    out.number(message.feed);
}
inline void write(msgpack::Writer& out, const Cancel& message) {
    begin(out, 1, Tag::cancel);
    out.number(message.id);
}
inline void write(msgpack::Writer& out, const Ping& message) {
    begin(out, 1, Tag::ping);
    out.number(message.id);
}
inline void write(msgpack::Writer& out, const Goodbye& message) {
    begin(out, 1, Tag::goodbye);
    out.text(message.reason);
}

}  // namespace wire

// The message as one whole frame at `out`. Returns its bytes, prefix included, or 0 where `capacity` is too small.
template <typename... Message>
std::size_t write_frame(std::uint8_t* out, std::size_t capacity, const Message&... message) {
    if (capacity < prefix_bytes) return 0;
    msgpack::Writer writer(out + prefix_bytes, capacity - prefix_bytes);
    wire::write(writer, message...);
    if (writer.failed() || writer.size() > std::numeric_limits<std::uint32_t>::max()) return 0;
    for (std::size_t i = 0; i < prefix_bytes; i++) out[i] = static_cast<std::uint8_t>(writer.size() >> (8 * i));
    return prefix_bytes + writer.size();
}

// What a server takes at the most. Those of feeds are 0 where an older server tells none.
struct Limits {
    std::uint64_t frame_bytes_max = 0;
    std::uint64_t in_flight_max = 0;
    std::uint64_t sessions_max = 0;
    std::uint64_t frame_ns_max = 0;
    std::uint64_t priority_levels = 1;
    std::uint64_t feeds_per_session_max = 0;
    std::uint64_t feeds_max = 0;
    std::uint64_t feed_bytes_max = 0;
    std::uint64_t feed_idle_ns = 0;
};

// An input or output as the server describes it: `shape` is that of one row, which lies along `batch_axis` (-1: none).
struct TensorInfo {
    std::string name;
    std::string dtype;
    std::vector<std::uint64_t> shape;
    std::int64_t batch_axis = -1;
    bool optional = false;
};

// A model as the server describes it. The last of `buckets` is the most rows that one request may have; `sha256` is that
// of its file, in hexadecimal, empty where the server does not tell.
struct ModelInfo {
    std::string name;
    std::string version;
    std::uint64_t handle = 0;
    std::vector<TensorInfo> inputs;
    std::vector<TensorInfo> outputs;
    std::vector<std::uint64_t> buckets;
    std::vector<std::string> feeds;
    std::string sha256;
};

// A feed as the server describes it: `inputs` and `outputs` are a Tick's and its Result's, states aside.
struct FeedInfo {
    std::uint64_t feed = 0;
    std::uint64_t next_sequence = 0;
    std::uint64_t window = 0;
    std::uint64_t filled = 0;
    bool pads = false;
    std::string version;
    std::vector<TensorInfo> inputs;
    std::vector<TensorInfo> outputs;
};

inline constexpr std::size_t stamps_count = 6;

// What to know of an answer before acting on it: bits of Result's `flags`. Those that this client does not know say nothing to it.
enum Flag : std::uint64_t {
    flag_input_non_finite = 1,
    flag_output_non_finite = 2,
    flag_output_out_of_bounds = 4,
    flag_last_answer = 8,  // the model gave none: the last one that this session had, `age_ns` old
    flag_cpu_answer = 16,
};

// Any message of a server: `tag` says which, and so which of the fields hold something. Views point into the frame that was read.
struct ServerMessage {
    // As many as there may be, so that reading a Result never allocates.
    ServerMessage() { outputs.reserve(tensors_max); }

    Tag tag = Tag::none;
    std::uint64_t id = 0;              // all but Welcome and Goodbye
    std::uint64_t protocol = 0;        // Welcome
    std::uint64_t server_ns = 0;       // Pong
    std::string_view text;             // Welcome: server; Result: version; Failure: message; Goodbye: reason
    Status code = Status::ok;          // Failure
    std::uint64_t next_sequence = 0;   // Failure, FeedSnapshot
    std::vector<Bytes> outputs;        // Result
    std::uint64_t stamps[stamps_count] = {};  // Result: first_byte, received, started, filled, computed, read; ns
    std::uint64_t flags = 0;           // Result
    std::uint64_t age_ns = 0;          // Result
    Limits limits;                     // Welcome; ModelList if `limits_given`
    bool limits_given = false;
    std::vector<ModelInfo> models;     // Welcome, ModelList
    FeedInfo feed;                     // FeedOpened
    Bytes snapshot;                    // FeedSnapshot
};

namespace wire {

using msgpack::Fields;
using msgpack::Reader;

template <typename Item, typename Read>
void read_list(Reader& in, std::vector<Item>& items, Read read) {
    items.clear();
    for (std::size_t left = in.array(); left > 0 && !in.failed(); left--) items.push_back(read(in));
}
inline std::uint64_t read_number(Reader& in) { return in.number(); }
inline std::string read_text(Reader& in) { return std::string(in.text()); }
inline std::uint64_t read_id(Reader& in) {
    const std::uint64_t id = in.number();
    if (id == 0) in.fail();
    return id;
}
inline std::int64_t read_axis(Reader& in) {
    const msgpack::Integer found = in.integer();
    const bool minus_one = found.negative && found.value == std::numeric_limits<std::uint64_t>::max();
    const bool above = !found.negative && found.value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if ((found.negative && !minus_one) || above) in.fail();
    return in.failed() || minus_one ? -1 : static_cast<std::int64_t>(found.value);
}
inline Status read_code(Reader& in) {
    const std::uint64_t code = in.number();
    if (code < 1 || code > code_max) in.fail();
    return in.failed() ? Status::internal : static_cast<Status>(code);
}
inline TensorInfo read_tensor_info(Reader& in) {
    TensorInfo info;
    Fields fields(in);
    if (fields.required()) info.name = in.text();
    if (fields.required()) info.dtype = in.text();
    if (fields.required()) read_list(in, info.shape, read_number);
    if (fields.next()) info.batch_axis = read_axis(in);
    if (fields.next()) info.optional = in.boolean();
    fields.skip_rest();
    return info;
}
inline ModelInfo read_model_info(Reader& in) {
    ModelInfo info;
    Fields fields(in);
    if (fields.required()) info.name = in.text();
    if (fields.required()) info.version = in.text();
    if (fields.required()) info.handle = in.number();
    if (fields.required()) read_list(in, info.inputs, read_tensor_info);
    if (fields.required()) read_list(in, info.outputs, read_tensor_info);
    if (fields.required()) read_list(in, info.buckets, read_number);
    if (fields.next()) read_list(in, info.feeds, read_text);
    if (fields.next()) info.sha256 = in.text();
    fields.skip_rest();
    return info;
}
inline Limits read_limits(Reader& in) {
    Limits limits;
    Fields fields(in);
    for (std::uint64_t* field :
         {&limits.frame_bytes_max, &limits.in_flight_max, &limits.sessions_max, &limits.frame_ns_max})
        if (fields.required()) *field = in.number();
    for (std::uint64_t* field : {&limits.priority_levels, &limits.feeds_per_session_max, &limits.feeds_max,
                                 &limits.feed_bytes_max, &limits.feed_idle_ns})
        if (fields.next()) *field = in.number();
    fields.skip_rest();
    return limits;
}
inline void read_welcome(Reader& in, Fields& fields, ServerMessage& out) {
    if (fields.required()) out.protocol = in.number();
    if (fields.required()) out.text = in.text();
    if (fields.required()) out.limits = read_limits(in);
    if (fields.required()) read_list(in, out.models, read_model_info);
}
inline void read_model_list(Reader& in, Fields& fields, ServerMessage& out) {
    if (fields.required()) out.id = read_id(in);
    if (fields.required()) read_list(in, out.models, read_model_info);
    const bool there = fields.next();
    out.limits_given = there && !in.next_is_nil();
    if (out.limits_given) out.limits = read_limits(in);
    else if (there) in.nil();
}
inline void read_result(Reader& in, Fields& fields, ServerMessage& out) {
    if (fields.required()) out.id = read_id(in);
    if (fields.required()) out.text = in.text();
    out.outputs.clear();
    if (fields.required()) {
        const std::size_t count = in.array();
        if (count > tensors_max) in.fail();
        for (std::size_t i = 0; i < count && !in.failed(); i++) out.outputs.push_back(in.binary());
    }
    if (fields.required()) {
        if (in.array() != stamps_count) in.fail();
        for (std::uint64_t& stamp : out.stamps) stamp = in.number();
    }
    out.flags = fields.next() ? in.number() : 0;
    out.age_ns = fields.next() ? in.number() : 0;
}
inline void read_failure(Reader& in, Fields& fields, ServerMessage& out) {
    if (fields.required()) out.id = in.number();
    if (fields.required()) out.code = read_code(in);
    if (fields.required()) out.text = in.text();
    out.next_sequence = fields.next() ? in.number() : 0;
}
inline void read_feed_opened(Reader& in, Fields& fields, ServerMessage& out) {
    if (fields.required()) out.id = read_id(in);
    for (std::uint64_t* field : {&out.feed.feed, &out.feed.next_sequence, &out.feed.window, &out.feed.filled})
        if (fields.required()) *field = in.number();
    if (fields.required()) out.feed.pads = in.boolean();
    if (fields.required()) out.feed.version = in.text();
    if (fields.required()) read_list(in, out.feed.inputs, read_tensor_info);
    if (fields.required()) read_list(in, out.feed.outputs, read_tensor_info);
}
inline void read_feed_snapshot(Reader& in, Fields& fields, ServerMessage& out) {
    if (fields.required()) out.id = read_id(in);
    if (fields.required()) out.next_sequence = in.number();
    if (fields.required()) out.snapshot = in.binary();
}
inline void read_feed_closed(Reader& in, Fields& fields, ServerMessage& out) {
    if (fields.required()) out.id = read_id(in);
}
inline void read_pong(Reader& in, Fields& fields, ServerMessage& out) {
    if (fields.required()) out.id = read_id(in);
    if (fields.required()) out.server_ns = in.number();
}
inline std::size_t characters(std::string_view text) {
    std::size_t count = 0;
    for (const char each : text) count += (static_cast<std::uint8_t>(each) & 0xC0) != 0x80;
    return count;
}
inline void read_goodbye(Reader& in, Fields& fields, ServerMessage& out) {
    out.text = fields.next() ? in.text() : std::string_view();
    if (characters(out.text) > reason_chars_max) in.fail();
}

}  // namespace wire

// Reads a frame's body. False where it is no message of a server; `out` then holds nothing of use.
[[nodiscard]] inline bool read_server_message(const std::uint8_t* body, std::size_t size, ServerMessage& out) {
    msgpack::Reader in(body, size);
    msgpack::Fields fields(in);
    const std::uint64_t tag = fields.required() ? in.number() : 0;
    out.tag = tag <= static_cast<std::uint64_t>(Tag::feed_closed) ? static_cast<Tag>(tag) : Tag::none;
    switch (out.tag) {
        case Tag::welcome: wire::read_welcome(in, fields, out); break;
        case Tag::model_list: wire::read_model_list(in, fields, out); break;
        case Tag::result: wire::read_result(in, fields, out); break;
        case Tag::failure: wire::read_failure(in, fields, out); break;
        case Tag::pong: wire::read_pong(in, fields, out); break;
        case Tag::goodbye: wire::read_goodbye(in, fields, out); break;
        case Tag::feed_opened: wire::read_feed_opened(in, fields, out); break;
        case Tag::feed_snapshot: wire::read_feed_snapshot(in, fields, out); break;
        case Tag::feed_closed: wire::read_feed_closed(in, fields, out); break;
        default: return false;
    }
    fields.skip_rest();
    return !in.failed() && in.at_end();
}

}  // namespace tickpath
