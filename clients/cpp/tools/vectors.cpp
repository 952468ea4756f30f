// Answers the questions of `tickpath vectors verify` (clients/vectors/README.md): the C++ client's codec, checked against the shared vectors.
#include <algorithm>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "hex.hpp"
#include "json.hpp"
#include "tickpath/detail/inbox.hpp"
#include "tickpath/messages.hpp"

namespace {

using tickpath::ServerMessage;
using tickpath::Tag;

std::string number(std::uint64_t value) { return std::to_string(value); }
std::string text(const std::string& value) { return json::quoted(value); }

std::string limits(const tickpath::Limits& value) {
    return "{\"type\": \"Limits\", \"frame_bytes_max\": " + number(value.frame_bytes_max) + ", \"in_flight_max\": " +
           number(value.in_flight_max) + ", \"sessions_max\": " + number(value.sessions_max) + ", \"frame_ns_max\": " +
           number(value.frame_ns_max) + ", \"priority_levels\": " + number(value.priority_levels) + ", \"feeds_per_session_max\": " +
           number(value.feeds_per_session_max) + ", \"feeds_max\": " + number(value.feeds_max) + ", \"feed_bytes_max\": " +
           number(value.feed_bytes_max) + ", \"feed_idle_ns\": " + number(value.feed_idle_ns) + "}";
}

std::string tensor(const tickpath::TensorInfo& value) {
    return "{\"type\": \"TensorInfo\", \"name\": " + text(value.name) + ", \"dtype\": " + text(value.dtype) + ", \"shape\": " +
           json::list(value.shape, number) + ", \"batch_axis\": " + std::to_string(value.batch_axis) + ", \"optional\": " +
           (value.optional ? "true" : "false") + "}";
}

std::string model(const tickpath::ModelInfo& value) {
    return "{\"type\": \"ModelInfo\", \"name\": " + text(value.name) + ", \"version\": " + text(value.version) + ", \"handle\": " +
           number(value.handle) + ", \"inputs\": " + json::list(value.inputs, tensor) + ", \"outputs\": " +
           json::list(value.outputs, tensor) + ", \"buckets\": " + json::list(value.buckets, number) + ", \"feeds\": " +
           json::list(value.feeds, text) + ", \"sha256\": " + text(value.sha256) + "}";
}

std::string bytes(const tickpath::Bytes& value) { return '"' + to_hex(value.data, value.size) + '"'; }

std::string feed(const tickpath::FeedInfo& value) {
    return ", \"feed\": " + number(value.feed) + ", \"next_sequence\": " + number(value.next_sequence) + ", \"window\": " +
           number(value.window) + ", \"filled\": " + number(value.filled) + ", \"pads\": " + (value.pads ? "true" : "false") +
           ", \"version\": " + text(value.version) + ", \"inputs\": " + json::list(value.inputs, tensor) + ", \"outputs\": " +
           json::list(value.outputs, tensor);
}

std::string describe(const ServerMessage& message) {
    const std::string id = ", \"id\": " + number(message.id);
    const std::string said = json::quoted(message.text);
    switch (message.tag) {
        case Tag::welcome:
            return "{\"type\": \"Welcome\", \"protocol\": " + number(message.protocol) + ", \"server\": " + said + ", \"limits\": " +
                   limits(message.limits) + ", \"models\": " + json::list(message.models, model) + "}";
        case Tag::model_list:
            return "{\"type\": \"ModelList\"" + id + ", \"models\": " + json::list(message.models, model) + ", \"limits\": " +
                   (message.limits_given ? limits(message.limits) : "null") + "}";
        case Tag::result:
            return "{\"type\": \"Result\"" + id + ", \"version\": " + said + ", \"outputs\": " + json::list(message.outputs, bytes) +
                   ", \"stamps\": " + json::list(message.stamps, number) + ", \"flags\": " + number(message.flags) + ", \"age_ns\": " +
                   number(message.age_ns) + "}";
        case Tag::failure:
            return "{\"type\": \"Failure\"" + id + ", \"code\": \"" + tickpath::name(message.code) + "\", \"message\": " + said +
                   ", \"next_sequence\": " + number(message.next_sequence) + "}";
        case Tag::feed_opened: return "{\"type\": \"FeedOpened\"" + id + feed(message.feed) + "}";
        case Tag::feed_snapshot:
            return "{\"type\": \"FeedSnapshot\"" + id + ", \"next_sequence\": " + number(message.next_sequence) + ", \"snapshot\": " +
                   bytes(message.snapshot) + "}";
        case Tag::feed_closed: return "{\"type\": \"FeedClosed\"" + id + "}";
        case Tag::pong: return "{\"type\": \"Pong\"" + id + ", \"server_ns\": " + number(message.server_ns) + "}";
        default: return "{\"type\": \"Goodbye\", \"reason\": " + said + "}";
    }
}

std::string decode(const std::string& hex) {
    std::vector<std::uint8_t> frame;
    ServerMessage message;
    if (!from_hex(hex, frame) || frame.size() < tickpath::prefix_bytes) return "error: a frame in hex was expected";
    // A copy of just its size, so that a read past its end is one past an allocation's.
    const std::vector<std::uint8_t> body(frame.begin() + tickpath::prefix_bytes, frame.end());
    return tickpath::read_server_message(body.data(), body.size(), message) ? describe(message) : "refused BAD_MESSAGE";
}

template <typename... Message>
std::string frame(std::size_t size, const Message&... message) {
    std::vector<std::uint8_t> out(size + 16384);  // the tensors, and everything else
    const std::size_t written = tickpath::write_frame(out.data(), out.size(), message...);
    return written > 0 ? to_hex(out.data(), written) : "error: it does not fit";
}

// The tensors of an Infer or Tick, and the bytes that they are.
struct Tensors {
    std::vector<std::vector<std::uint8_t>> held;
    std::vector<tickpath::InferInput> inputs;
    std::size_t size = 0;

    bool add(const json::Value& hex) {
        held.emplace_back();
        if (!from_hex(hex.text, held.back())) return false;
        size += held.back().size();
        inputs.push_back({held.back().data(), held.back().size(), hex.kind != json::Value::Kind::null});
        return true;
    }
};

template <typename Message>
std::string encode_request(const Message& message, const json::Value& in) {
    Tensors tensors;
    for (const json::Value& each : in["inputs"].items)
        if (!tensors.add(each)) return "error: a tensor in hex was expected";
    const tickpath::InferInput* const given = tensors.inputs.data();
    return frame(tensors.size, message, given, tensors.inputs.size());
}

std::string encode_open_feed(const json::Value& in) {
    Tensors tensors;
    if (!tensors.add(in["snapshot"])) return "error: a snapshot in hex was expected";
    return frame(tensors.size, tickpath::OpenFeed{in["id"].number, in["handle"].number, in["key"].text, in["anew"].boolean, tensors.inputs[0]});
}

std::string encode(const std::string& source) {
    json::Value in;
    if (!json::Parser(source).parse(in)) return "error: a message in JSON was expected";
    const std::string& type = in["type"].text;
    const std::uint64_t id = in["id"].number;
    if (type == "Hello") return frame(0, tickpath::Hello{in["protocol"].number, in["client"].text, in["token"].text});
    if (type == "Models") return frame(0, tickpath::Models{id, in["versions"].boolean});
    const std::uint64_t budget_ns = in["budget_ns"].number, priority = in["priority"].number, event_time_ns = in["event_time_ns"].number;
    if (type == "Infer")
        return encode_request(
            tickpath::Infer{id, in["handle"].number, in["rows"].number, budget_ns, priority, in["feed"].number, event_time_ns, in["key"].number},
            in);
    if (type == "Tick")
        return encode_request(tickpath::Tick{id, in["feed"].number, in["sequence"].number, budget_ns, priority, event_time_ns}, in);
    if (type == "OpenFeed") return encode_open_feed(in);
    if (type == "SnapshotFeed") return frame(0, tickpath::SnapshotFeed{id, in["feed"].number});
    if (type == "CloseFeed") return frame(0, tickpath::CloseFeed{id, in["feed"].number});
    if (type == "Cancel") return frame(0, tickpath::Cancel{id});
    if (type == "Ping") return frame(0, tickpath::Ping{id});
    if (type == "Goodbye") return frame(0, tickpath::Goodbye{in["reason"].text});
    return "unsupported";
}

std::string frames(std::istringstream& words) {
    std::size_t frame_bytes_max = 0, needed = 0;
    words >> frame_bytes_max;
    tickpath::detail::Inbox inbox(frame_bytes_max);
    inbox.reserve(tickpath::prefix_bytes + frame_bytes_max);
    std::vector<std::string> found;
    const char* code = "null";
    std::vector<std::uint8_t> piece;
    for (std::string hex; words >> hex && code[0] == 'n';) {
        if (!from_hex(hex, piece)) return "error: pieces in hex were expected";
        for (std::size_t at = 0; at < piece.size() && code[0] == 'n';) {
            std::size_t room = 0;
            std::uint8_t* const out = inbox.room(room);
            const std::size_t taken = room < piece.size() - at ? room : piece.size() - at;
            std::copy_n(piece.data() + at, taken, out);
            inbox.received(taken);
            at += taken;
            tickpath::Bytes body;
            tickpath::detail::Found next;
            while ((next = inbox.next(body, needed)) == tickpath::detail::Found::frame) found.push_back(bytes(body));
            if (next == tickpath::detail::Found::bad_length) code = "\"BAD_FRAME\"";
        }
    }
    return "{\"frames\": " + json::list(found, [](const std::string& each) { return each; }) +
           ", \"bytes_waiting\": " + number(code[0] == 'n' ? inbox.waiting() : 0) + ", \"code\": " + code + "}";
}

std::string answer(const std::string& line) {
    std::istringstream words(line);
    std::string what, side, rest;
    words >> what;
    if (what == "frames") return frames(words);
    words >> side >> std::ws;
    std::getline(words, rest);
    if (what == "decode" && side == "server") return decode(rest);
    if (what == "encode" && side == "client") return encode(rest);
    return "unsupported";
}

}  // namespace

int main() {
    std::ios::sync_with_stdio(false);
    for (std::string line; std::getline(std::cin, line);) std::cout << answer(line) << std::endl;
    return 0;
}
