// Client: requests and their answers. Nothing here allocates, unless `may_grow` says so.
#pragma once

#include "tickpath/client.hpp"

namespace tickpath {

inline Status Client::infer(const Model& model, std::uint64_t rows, const Input* inputs, std::size_t input_count, Reply& reply,
                            const Call& call) {
    if (in_flight() > 0) return fail(Status::misuse, "answers are outstanding: receive them first, or use send and receive alone");
    const std::int64_t deadline_ns = deadline(call.timeout_ns);
    std::uint64_t id = 0;
    const Status status = begin(model, rows, inputs, input_count, call, deadline_ns, id);
    return status == Status::ok ? finish(id, deadline_ns, reply) : status;
}

inline Status Client::send(const Model& model, std::uint64_t rows, const Input* inputs, std::size_t input_count, std::uint64_t& id,
                           const Call& call) {
    return begin(model, rows, inputs, input_count, call, deadline(call.timeout_ns), id);
}

inline Status Client::begin(const Model& model, std::uint64_t rows, const Input* inputs, std::size_t input_count, const Call& call,
                            std::int64_t deadline_ns, std::uint64_t& id) {
    const Infer message{0, model.handle, rows, call.budget_ns, call.priority, 0, call.event_time_ns, call.key};
    return begin_request(message, model, rows, inputs, input_count, deadline_ns, id);
}

// Sends an Infer or a Tick; `message` gets its id here.
template <typename Message>
Status Client::begin_request(Message message, const Model& model, std::uint64_t rows, const Input* inputs, std::size_t input_count,
                             std::int64_t deadline_ns, std::uint64_t& id) {
    if (const Status status = ready(); status != Status::ok) return status;
    if (const Status status = bad_request(model, rows, inputs, input_count); status != Status::ok) return status;
    if (const Status status = no_room(model, rows); status != Status::ok) return status;
    detail::Asked& asked = asked_.add(Tag::result);
    asked_.is_infer(asked, model, rows, model.reply_bytes_at(rows));
    message.id = asked.id;
    const std::size_t size = write_frame(outbox_.data(), outbox_.size(), message, inputs, input_count);
    if (size == 0 || size - prefix_bytes > limits_.frame_bytes_max) {
        asked_.remove(asked);
        return fail(Status::bad_shape, "model '%s': the request is longer than the server or this client's options allow; send fewer rows",
                    model.name.c_str());
    }
    id = asked.id;
    const Status status = transmit_bytes(size, deadline_ns);
    if (status != Status::ok && socket_.open()) asked_.remove(asked);
    return status == Status::lost ? hear_last_words() : status;
}

// Waits for the one request that is outstanding.
inline Status Client::finish(std::uint64_t id, std::int64_t deadline_ns, Reply& reply) {
    const Status status = next_answer(deadline_ns);
    if (is_answer(status)) reply.take(message_);
    else forget(id);
    return status;
}

inline Status Client::receive(Reply& reply, std::int64_t timeout_ns) {
    if (!socket_.open()) return fail(Status::not_connected, "not connected: call connect first");
    if (in_flight() == 0) return fail(Status::misuse, "nothing was asked that is not answered");
    const Status status = next_answer(deadline(timeout_ns));
    if (is_answer(status)) reply.take(message_);
    return status;
}

inline Status Client::cancel(std::uint64_t id) {
    if (!socket_.open() || !sendable_) return fail(Status::not_connected, "not connected: call connect first");
    const Status status = transmit(deadline(-1), Cancel{id});
    return status == Status::lost ? hear_last_words() : status;
}

inline void Client::forget(std::uint64_t id) {
    detail::Asked* const asked = asked_.find(id);
    if (asked == nullptr || asked->forgotten) return;
    const bool infer = asked->answer == Tag::result;
    asked_.forget(*asked);
    // Without waiting: where it does not fit at once, the server answers for nothing, which is no harm.
    if (infer && socket_.open() && sendable_) (void)transmit(detail::now_ns(), Cancel{id});
}

inline Status Client::ping(std::uint64_t& server_ns, std::int64_t timeout_ns) {
    const Status status = ask(Ping{0}, Tag::pong, timeout_ns, false);
    if (status == Status::ok) server_ns = message_.server_ns;
    return status;
}

// Sends what is neither Infer nor Tick, and waits for its answer, in `message_`.
template <typename Message>
Status Client::ask(Message message, Tag answer, std::int64_t timeout_ns, bool may_grow) {
    if (!socket_.open() || !sendable_) return fail(Status::not_connected, "not connected: call connect first");
    if (in_flight() > 0) return fail(Status::misuse, "answers are outstanding: receive them first");
    if (asked_.full()) return fail(Status::overloaded, "too many requests are unanswered: wait for some first");
    const std::int64_t deadline_ns = deadline(timeout_ns);
    message.id = asked_.add(answer).id;
    Status status = transmit(deadline_ns, message);
    if (status == Status::ok) status = next_answer(deadline_ns, may_grow);
    if (!is_answer(status)) forget(message.id);
    return status == Status::lost ? hear_last_words() : status;
}

inline Status Client::check() {
    if (!socket_.open()) return fail(Status::not_connected, "not connected: call connect first");
    if (in_flight() == 0) {
        const Status status = next_answer(0);  // what was forgotten, or a Goodbye: nothing of it is delivered
        if (status != Status::timed_out) return status;
    }
    return draining_ ? fail(Status::not_ready, "%s takes no new requests on this connection", address_.c_str()) : Status::ok;
}

inline Status Client::goodbye(std::string_view reason) {
    if (const Status status = ready(); status != Status::ok) return status;
    if (wire::characters(reason) > reason_chars_max) return fail(Status::bad_value, "a reason has at most 1024 characters");
    const Status status = transmit(deadline(-1), Goodbye{reason});
    if (status == Status::ok) draining_ = true;
    return status == Status::lost ? hear_last_words() : status;
}

// What is wrong with a request, without a look at the connection.
inline Status Client::bad_request(const Model& model, std::uint64_t rows, const Input* inputs, std::size_t input_count) {
    const char* const called = model.name.c_str();
    if (model.fault != nullptr) return fail(Status::protocol_error, "model '%s': the server describes %s", called, model.fault);
    if (rows < 1 || rows > model.rows_max)
        return fail(Status::bad_shape, "model '%s' takes 1 to %llu rows in a request, got %llu", called,
                    static_cast<unsigned long long>(model.rows_max), static_cast<unsigned long long>(rows));
    if (input_count != model.inputs.size())
        return fail(Status::bad_shape, "model '%s' takes %zu input%s, got %zu", called, model.inputs.size(),
                    model.inputs.size() == 1 ? "" : "s", input_count);
    for (std::size_t i = 0; i < input_count; i++) {
        const Tensor& tensor = model.inputs[i];
        const char* const input = tensor.info.name.c_str();
        if (!inputs[i].given && tensor.info.optional) continue;
        if (!inputs[i].given) return fail(Status::bad_shape, "model '%s', input '%s' is not optional, and was left out", called, input);
        if (inputs[i].dtype != tensor.dtype)
            return fail(Status::bad_dtype, "model '%s', input '%s': expected %s, got %s; nothing is converted silently", called, input,
                        name(tensor.dtype), name(inputs[i].dtype));
        if (inputs[i].bytes != tensor.bytes_at(rows))
            return fail(Status::bad_shape, "model '%s', input '%s': expected %llu bytes at %llu rows, got %zu", called, input,
                        static_cast<unsigned long long>(tensor.bytes_at(rows)), static_cast<unsigned long long>(rows), inputs[i].bytes);
    }
    return Status::ok;
}

inline Status Client::no_room(const Model& model, std::uint64_t rows) {
    const std::uint64_t reply_bytes = model.reply_bytes_at(rows);
    if (reply_bytes > replies_room_)
        return fail(Status::bad_shape, "model '%s': the answer is longer than the %zu bytes that are taken; send fewer rows",
                    model.name.c_str(), options_.reply_bytes_max);
    if (asked_.infers() >= limits_.in_flight_max || asked_.full())
        return fail(Status::overloaded, "%zu requests are in flight, and %s allows no more: receive some first", asked_.infers(),
                    address_.c_str());
    if (asked_.reply_bytes() + reply_bytes > replies_room_)
        return fail(Status::overloaded, "the answers outstanding may take all of receive_bytes: receive some first");
    return Status::ok;
}

inline Status Client::ready() {
    if (!socket_.open() || !sendable_) return fail(Status::not_connected, "not connected: call connect first");
    return draining_ ? fail(Status::not_ready, "%s takes no new requests on this connection", address_.c_str()) : Status::ok;
}

template <typename... Message>
Status Client::transmit(std::int64_t deadline_ns, const Message&... message) {
    return transmit_bytes(write_frame(outbox_.data(), outbox_.size(), message...), deadline_ns);
}

// Sends the outbox. TIMED_OUT leaves the connection as it was if nothing went out, and closes it if a part did. LOST leaves it open for
// what may still come.
inline Status Client::transmit_bytes(std::size_t size, std::int64_t deadline_ns) {
    for (std::size_t done = 0; done < size;) {
        std::size_t sent = 0;
        const detail::Io found = socket_.send_some(outbox_.data() + done, size - done, sent);
        done += sent;
        if (found == detail::Io::done) continue;
        const Status status = found == detail::Io::again ? take_in(deadline_ns) : Status::lost;
        if (status == Status::timed_out && done == 0) return fail(status, "the server takes no requests in time");
        if (status == Status::timed_out) return end(status, "it took part of a request only");
        sendable_ = status == Status::ok;
        if (!sendable_) return fail(status, "the connection to %s takes nothing any more", address_.c_str());
    }
    return Status::ok;
}

// Waits until more can be sent; takes in what comes meanwhile, since a server that can't deliver stops reading.
inline Status Client::take_in(std::int64_t deadline_ns) {
    std::size_t room = 0, got = 0;
    std::uint8_t* const out = inbox_.room(room);
    if (!socket_.wait_for(static_cast<short>(POLLOUT | (room > 0 ? POLLIN : 0)), deadline_ns)) return Status::timed_out;
    const detail::Io found = room > 0 ? socket_.receive_arrived(out, room, got) : detail::Io::again;
    inbox_.received(got);
    return found == detail::Io::done || found == detail::Io::again ? Status::ok : Status::lost;
}

// Nothing can be sent any more. Answers that are outstanding may still be received; where there are none, the server may have said why.
inline Status Client::hear_last_words() {
    const std::int64_t deadline_ns = detail::now_ns() + last_words_ns;
    while (socket_.open() && in_flight() == 0)
        if (next_answer(deadline_ns) == Status::timed_out) end(Status::lost, "it was closed");
    return Status::lost;
}

// The next answer that somebody waits for, in `message_`. The answer's status, or why there is none.
inline Status Client::next_answer(std::int64_t deadline_ns, bool may_grow) {
    for (;;) {
        Status status = next_message(deadline_ns, may_grow);
        if (status != Status::ok) return status;
        bool delivered = false;
        status = settle(delivered);
        if (delivered || status != Status::ok) return status;
    }
}

// Which request `message_` answers.
inline Status Client::settle(bool& delivered) {
    if (message_.tag == Tag::goodbye) {
        draining_ = true;
        return Status::ok;
    }
    detail::Asked* const asked = message_.tag == Tag::welcome ? nullptr : asked_.find(message_.id);
    if (asked == nullptr) return end(Status::protocol_error, "it answers what was not asked");
    if (message_.tag != Tag::failure && message_.tag != asked->answer) return end(Status::protocol_error, "it answers something else");
    if (message_.tag == Tag::result && !fits(*asked)) return end(Status::protocol_error, "its outputs do not fit the model");
    delivered = !asked->forgotten;
    asked_.remove(*asked);
    if (message_.tag != Tag::failure || !delivered) return Status::ok;
    return fail(message_.code, "%s: %.*s", name(message_.code), static_cast<int>(message_.text.size()), message_.text.data());
}

inline bool Client::fits(const detail::Asked& asked) const {
    if (asked.forgotten) return true;
    const std::vector<Tensor>& outputs = asked.model->outputs;
    if (message_.outputs.size() != outputs.size()) return false;
    for (std::size_t i = 0; i < outputs.size(); i++)
        if (message_.outputs[i].size != outputs[i].bytes_at(asked.rows)) return false;
    return true;
}

// The next message of any kind, in `message_`. `may_grow`: a list of models may be longer than any reply.
inline Status Client::next_message(std::int64_t deadline_ns, bool may_grow) {
    for (;;) {
        Bytes body;
        std::size_t needed = 0;
        switch (inbox_.next(body, needed)) {
            case detail::Found::frame:
                if (!read_server_message(body.data, body.size, message_)) return end(Status::protocol_error, "it is no message");
                return welcomed_ && message_.tag == Tag::failure && message_.id == 0 ? ended_by_server() : Status::ok;
            case detail::Found::bad_length: return end(Status::protocol_error, "a frame's length is out of range");
            case detail::Found::no_room:
                if (!may_grow) return end(Status::protocol_error, "a frame is longer than any answer that was asked for");
                // Believed only so far as bytes have come.
                if (inbox_.waiting() == inbox_.capacity()) inbox_.reserve(needed < 2 * inbox_.capacity() ? needed : 2 * inbox_.capacity());
                [[fallthrough]];
            case detail::Found::nothing:
                if (const Status status = fill(deadline_ns); status != Status::ok) return status;
        }
    }
}

inline Status Client::fill(std::int64_t deadline_ns) {
    std::size_t room = 0, got = 0;
    std::uint8_t* const out = inbox_.room(room);
    const detail::Io found = socket_.receive(out, room, deadline_ns, options_.wait, got);
    inbox_.received(got);
    if (found == detail::Io::done) return Status::ok;
    if (found == detail::Io::again) return fail(Status::timed_out, "no answer from %s in time", address_.c_str());
    return end(Status::lost, found == detail::Io::ended ? "it was closed" : std::strerror(errno));
}

inline Status Client::fail(Status status, const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(error_, sizeof error_, format, arguments);
    va_end(arguments);
    return status;
}

inline Status Client::ended_by_server() {
    char reason[sizeof error_ / 2];
    std::snprintf(reason, sizeof reason, "%s: %.*s", name(message_.code), static_cast<int>(message_.text.size()), message_.text.data());
    return end(Status::lost, reason);
}

// The connection is over.
inline Status Client::end(Status status, const char* reason) {
    socket_.close();
    asked_.clear();
    sendable_ = false;
    if (status == Status::protocol_error)
        return fail(status, "the server at %s sent what the protocol does not allow: %s", address_.c_str(), reason);
    return fail(status, "the connection to %s ended: %s; what was in flight may have run, or not", address_.c_str(), reason);
}

}  // namespace tickpath
