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
           number(value.frame_ns_max) + ", \"priority_levels\": " + number(value.priority_levels) + "}";
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
           json::list(value.feeds, text) + "}";
}

std::string bytes(const tickpath::Bytes& value) { return '"' + to_hex(value.data, value.size) + '"'; }

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
                   ", \"stamps\": " + json::list(message.stamps, number) + "}";
        case Tag::failure:
            return "{\"type\": \"Failure\"" + id + ", \"code\": \"" + tickpath::name(message.code) + "\", \"message\": " + said + "}";
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

std::string encode_infer(const json::Value& in) {
    std::vector<std::vector<std::uint8_t>> held(in["inputs"].items.size());
    std::vector<tickpath::InferInput> inputs;
    std::size_t size = 0;
    for (std::size_t i = 0; i < held.size(); i++) {
        const json::Value& each = in["inputs"].items[i];
        if (!from_hex(each.text, held[i])) return "error: a tensor in hex was expected";
        size += held[i].size();
        inputs.push_back({held[i].data(), held[i].size(), each.kind != json::Value::Kind::null});
    }
    const tickpath::Infer message{in["id"].number,       in["handle"].number, in["rows"].number,         in["budget_ns"].number,
                                  in["priority"].number, in["feed"].number,   in["event_time_ns"].number};
    const tickpath::InferInput* const given = inputs.data();
    return frame(size, message, given, inputs.size());
}

std::string encode(const std::string& source) {
    json::Value in;
    if (!json::Parser(source).parse(in)) return "error: a message in JSON was expected";
    const std::string& type = in["type"].text;
    const std::uint64_t id = in["id"].number;
    if (type == "Hello") return frame(0, tickpath::Hello{in["protocol"].number, in["client"].text, in["token"].text});
    if (type == "Models") return frame(0, tickpath::Models{id, in["versions"].boolean});
    if (type == "Infer") return encode_infer(in);
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
