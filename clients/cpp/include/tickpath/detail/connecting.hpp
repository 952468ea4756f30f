// Client: opening a connection, what the server says of itself, and its end. Allocates, but for `close`.
#pragma once

#include "tickpath/client.hpp"

namespace tickpath {

inline Status Client::connect(std::string_view address, Options options) {
    close();
    options_ = std::move(options);
    address_ = address;
    detail::Address where;
    if (!detail::parse_address(address, where))
        return fail(Status::bad_address, "expected host:port, [IPv6]:port or unix:/path with a port of 1 to 65535, got '%s'",
                    address_.c_str());
    if (wire::characters(options_.client) > 128 || wire::characters(options_.token) > 2048)
        return fail(Status::bad_value, "a client's name has at most 128 characters, a token 2048");
    const std::int64_t deadline_ns = deadline(-1);
    const char* reason = nullptr;
    socket_ = detail::open_socket(where, deadline_ns, reason);
    if (!socket_.open()) return fail(Status::unreachable, "can't connect to %s: %s", address_.c_str(), reason);
    return greet(options_, deadline_ns);
}

inline Status Client::greet(const Options& options, std::int64_t deadline_ns) {
    asked_.reset(0);
    inbox_ = detail::Inbox(options.reply_bytes_max);
    inbox_.reserve(spare_bytes);
    if (outbox_.size() < small_frame_bytes) outbox_.resize(small_frame_bytes);
    models_.clear();
    sendable_ = true;
    draining_ = welcomed_ = false;
    Status status = transmit(deadline_ns, Hello{protocol_version, options.client, options.token});
    if (status == Status::ok || status == Status::lost) status = welcome(deadline_ns);  // a server without room has said so already
    if (status == Status::lost || status == Status::timed_out) {
        socket_.close();
        const char* const found = status == Status::lost ? "the connection ended without a Welcome" : "no Welcome came in time";
        return fail(Status::unreachable, "can't connect to %s: %s; is that a tickpath server, and does it speak without TLS?",
                    address_.c_str(), found);
    }
    return status;
}

inline Status Client::welcome(std::int64_t deadline_ns) {
    const Status status = next_message(deadline_ns, true);
    if (status != Status::ok) return status;
    if (message_.tag == Tag::failure && message_.id == 0) {
        socket_.close();
        return fail(message_.code, "%s refuses the session: %s: %.*s", address_.c_str(), name(message_.code),
                    static_cast<int>(message_.text.size()), message_.text.data());
    }
    if (message_.tag != Tag::welcome) return end(Status::protocol_error, "something else than Welcome came");
    if (message_.protocol != protocol_version) return end(Status::protocol_error, "it speaks another version of the protocol");
    welcomed_ = true;
    server_ = message_.text;
    limits_ = message_.limits;
    asked_.reset(static_cast<std::size_t>(limits_.in_flight_max < in_flight_most ? limits_.in_flight_max : in_flight_most));
    take_models();
    return Status::ok;
}

inline Status Client::update_models(bool versions, std::int64_t timeout_ns) {
    const Status status = ask(Models{0, versions}, Tag::model_list, timeout_ns, true);
    if (status != Status::ok) return status;
    if (message_.limits_given) limits_ = message_.limits;
    take_models();
    return status;
}

inline void Client::take_models() {
    models_.clear();
    for (ModelInfo& info : message_.models) models_.push_back(detail::check_model(std::move(info)));
    message_.models.clear();
    make_buffers();
}

inline void Client::make_buffers() {
    std::uint64_t request = small_frame_bytes, reply = options_.receive_bytes;
    for (const Model& model : models_) {
        if (model.fault != nullptr) continue;
        if (model.request_bytes_at(model.rows_max) > request) request = model.request_bytes_at(model.rows_max);
        if (model.reply_bytes_at(model.rows_max) > reply) reply = model.reply_bytes_at(model.rows_max);
    }
    // No larger than may be sent or taken; what then does not fit is refused before it is sent.
    if (request > options_.request_bytes_max + prefix_bytes) request = options_.request_bytes_max + prefix_bytes;
    if (reply > options_.reply_bytes_max + prefix_bytes && reply > options_.receive_bytes) reply = options_.reply_bytes_max + prefix_bytes;
    if (outbox_.size() < request) outbox_.resize(static_cast<std::size_t>(request));
    inbox_.reserve(static_cast<std::size_t>(reply) + spare_bytes);
    replies_room_ = inbox_.capacity() - spare_bytes;
}

inline void Client::close() {
    if (socket_.open() && sendable_ && !draining_) {
        std::size_t sent = 0;
        socket_.send_some(outbox_.data(), write_frame(outbox_.data(), outbox_.size(), Goodbye()), sent);
    }
    socket_.close();
    asked_.clear();
    sendable_ = false;
}

inline const Model* Client::find(std::string_view model, std::string_view version) const {
    for (const Model& each : models_)
        if (each.name == model && (version.empty() || each.version == version)) return &each;
    return nullptr;
}

}  // namespace tickpath
